"""Many processes at one board: no task is claimed twice, none is lost, no circle closes, no lock has two holders."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.processes.actors import files_under
from tests.processes.harness import PATIENCE, Actor, Crew, assert_acyclic, assert_whole, everything, new_seed


def drained(url: str, crew: Crew, tmp_path: Path, processes: int, tasks: int, patience: float = PATIENCE) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        added = set(board.add_many([{"description": f"task {n}", "priority": n % 3} for n in range(tasks)]))
    journals = [tmp_path / f"journal-{n}" for n in range(processes)]
    arguments = [(url, f"worker-{n}", journals[n]) for n in range(processes)]
    for actor in crew.at_barrier("drain", arguments):
        assert actor.lines(patience) == ["done"]

    won = [line.split() for journal in journals for line in journal.read_text().splitlines()]
    claimed = [task_id for task_id, _ in won]
    tokens = [int(token) for _, token in won]
    assert len(claimed) == len(set(claimed)), "double claims"
    assert set(claimed) == added, "lost claims"
    assert len(tokens) == len(set(tokens)), "two claims with one token"

    with assert_whole(url) as board:
        assert board.completed_count == tasks
        assert {(t.id, t.token) for t in everything(board)} == set(zip(claimed, tokens, strict=True))
        events = [(e.action, e.task_id) for e in board.changelog()]
        for action in ("claimed_activity", "completed_activity"):
            assert sorted(i for a, i in events if a == action and i) == sorted(added)
    print(f"0 double and 0 lost among {tasks:,} claims by {processes} processes")


def test_32_processes_claim_every_task_exactly_once(url: str, crew: Crew, tmp_path: Path) -> None:
    drained(url, crew, tmp_path, 32, 3200)


@pytest.mark.slow
def test_32_processes_claim_a_hundred_thousand_tasks_exactly_once(url: str, crew: Crew, tmp_path: Path) -> None:
    drained(url, crew, tmp_path, 32, 100_000, 1800)


def test_a_named_task_has_exactly_one_winner_among_16_processes(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": "wanted", "id": f"t{n}"} for n in range(50)])
    racers = [crew.start("race", url, f"racer-{n}") for n in range(16)]
    for racer in racers:
        racer.expect("ready")
    tokens = []
    for number in range(50):
        start = time.monotonic() + 0.008
        for racer in racers:
            racer.tell(f"t{number} {start}")
        answers = [racer.expect("won", "lost") for racer in racers]
        winners = [at for at, answer in enumerate(answers) if answer.startswith("won")]
        assert len(winners) == 1, answers
        tokens.append(int(answers[winners[0]].split()[1]))
        assert all(f"held by racer-{winners[0]} " in answer for answer in answers if answer.startswith("lost"))
    assert tokens == sorted(set(tokens))
    for racer in racers:
        racer.tell()
        assert racer.lines() == []
    assert_whole(url).close()


def test_of_two_processes_that_would_close_a_circle_one_is_refused(url: str, crew: Crew) -> None:
    """Some rounds close it directly, some over a chain whose middle exists already."""
    with TaskBoard.open(url, worker="maker") as board:
        for n in range(40):
            board.add("a", id=f"a{n}")
            board.add("between", id=f"m{n}", depends_on=[f"a{n}"])
            board.add("b", id=f"b{n}", depends_on=[f"m{n}"] if n % 2 else [])
    actors = [crew.start("tie", url, f"tier-{n}") for n in range(2)]
    for actor in actors:
        actor.expect("ready")
    for n in range(40):
        start = time.monotonic() + 0.004
        actors[n % 2].tell(f"a{n} b{n} {start}")
        actors[1 - n % 2].tell(f"b{n} a{n} {start}")
        answers = sorted(actor.expect("tied", "refused") for actor in actors)
        assert answers == ["refused", "tied"]
    for actor in actors:
        actor.tell()
        actor.lines()
    with assert_whole(url) as board:
        assert_acyclic(board)


def test_racing_dependencies_never_close_a_circle(url: str, crew: Crew) -> None:
    rng = random.Random(new_seed())
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": "a task", "id": f"t{n}"} for n in range(8)])
    arguments = [(url, f"weaver-{n}", rng.randrange(2**32), 8, 150) for n in range(4)]
    answers = [actor.lines()[-1].split() for actor in crew.at_barrier("weave", arguments)]
    assert sum(int(refused) for _, _, refused in answers) > 0, "no circle was ever tried: the test shows nothing"
    with assert_whole(url) as board:
        assert_acyclic(board)


def test_overlapping_locks_never_have_two_holders(url: str, crew: Crew, tmp_path: Path) -> None:
    """Seen from outside, by traces that holders leave in a folder, and from inside, by the changelog's intervals."""
    rng = random.Random(new_seed())
    folder = tmp_path / "traces"
    folder.mkdir()
    arguments = [(url, f"holder-{n}", folder, rng.randrange(2**32), 120) for n in range(8)]
    said = [line for actor in crew.at_barrier("hold", arguments) for line in actor.lines()]
    assert not [line for line in said if not line.startswith("done")]
    grants = sum(int(line.split()[1]) for line in said)
    assert grants > 100
    assert sum(int(line.split()[2]) for line in said) > 0, "nobody was ever refused: the test shows nothing"

    held: dict[tuple[str, int], tuple[str, bool]] = {}
    with assert_whole(url) as board:
        assert board.locks() == []
        for event in board.changelog():
            for lock in (event.data or {}).get("locks", ()):
                for (pattern, _), (worker, shared) in held.items():
                    if worker != event.worker and not (shared and lock.get("shared")):
                        assert not set(files_under(pattern)) & set(files_under(lock["pattern"])), event
                held[lock["pattern"], lock["token"]] = (event.worker, bool(lock.get("shared")))
            for pattern, token in (event.data or {}).get("unlocks", ()):
                del held[pattern, token]
    print(f"0 overlaps among {grants:,} granted locks")


def test_a_wall_clock_that_is_set_back_and_corrected_gives_no_task_to_two_processes(
    url: str, crew: Crew, tmp_path: Path
) -> None:
    hands = tmp_path / "hands"
    hands.write_text("0")
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("a task")
    holder, other = (crew.start("work_by_a_clock", url, name, hands) for name in ("holder", "other"))

    def do(actor: Actor, order: str) -> str:
        actor.tell(order)
        return actor.line()

    assert (holder.line(), other.line()) == ("ready", "ready")
    assert do(other, "tell") == "told"
    assert do(holder, "claim") == f"claimed {task_id}"
    hands.write_text("-7200")
    assert do(holder, "renew") == "renewed"
    hands.write_text("0")
    assert do(other, "claim") == "claimed None"
    assert do(holder, "renew") == "renewed"
    assert do(other, "claim") == "claimed None"
