"""Many processes at one board: no task is claimed twice, none is lost, no circle closes, no lock has two holders."""

from __future__ import annotations

import json
import random
import time
from itertools import combinations
from pathlib import Path

import pytest

from dibs import Lock, TaskBoard
from tests.processes.actors import files_under
from tests.processes.harness import (
    IN_A_FILE,
    PATIENCE,
    SLOW_ON_POSTGRES,
    Actor,
    Crew,
    assert_acyclic,
    assert_whole,
    at_once,
    everything,
    new_seed,
    on_postgres,
)


def drained(url: str, crew: Crew, tmp_path: Path, processes: int, tasks: int, patience: float = PATIENCE) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        added = set(board.add_many([{"description": f"task {n}", "priority": n % 3} for n in range(tasks)]))
    journals = [tmp_path / f"journal-{n}" for n in range(processes)]
    herd = at_once(crew, processes, "drain", url, "worker-{n}", tmp_path / "journal-{n}")
    assert herd.lines(patience) == ["done"] * processes

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


def test_many_processes_claim_every_task_exactly_once(url: str, crew: Crew, tmp_path: Path) -> None:
    drained(url, crew, tmp_path, *((64, 2000) if on_postgres(url) else (32, 3200)))


@pytest.mark.slow
def test_many_processes_claim_very_many_tasks_exactly_once(url: str, crew: Crew, tmp_path: Path) -> None:
    drained(url, crew, tmp_path, *((64, 50_000) if on_postgres(url) else (32, 100_000)), 1800)


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


def woven(url: str, crew: Crew, processes: int, tasks: int, rounds: int, patience: float = PATIENCE) -> None:
    seed = new_seed()
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": "a task", "id": f"t{n}"} for n in range(tasks)])
    herd = at_once(crew, processes, "weave", url, "weaver-{n}", f"{seed % 10**6}{{n}}", tasks, rounds)
    answers = [line.split() for line in herd.lines(patience)]
    tied, refused = (sum(int(answer[at]) for answer in answers) for at in (1, 2))
    assert refused > 0, "no circle was ever tried: the test shows nothing"
    with assert_whole(url) as board:
        assert_acyclic(board)
    print(f"0 circles in {tied:,} edges tied and {refused:,} refused by {processes} processes on {tasks} tasks")


def test_racing_dependencies_never_close_a_circle(url: str, crew: Crew) -> None:
    woven(url, crew, *((8, 30, 60) if on_postgres(url) else (4, 8, 150)))


@pytest.mark.slow
def test_racing_dependencies_never_close_a_circle_for_long(url: str, crew: Crew) -> None:
    woven(url, crew, 8, 30, 3000, 900)


@SLOW_ON_POSTGRES
def test_overlapping_locks_never_have_two_holders(url: str, crew: Crew, tmp_path: Path) -> None:
    """Seen from outside, by traces that holders leave in a folder, and from inside, by the changelog's intervals."""
    folder = tmp_path / "traces"
    folder.mkdir()
    said = at_once(crew, 8, "hold", url, "holder-{n}", folder, f"{new_seed() % 10**6}{{n}}", 120).lines()
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


@IN_A_FILE
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


def conflicting(one: list[str], other: list[str]) -> bool:
    return bool({f for p in one for f in files_under(p)} & {f for p in other for f in files_under(p)})


def assert_no_two_holders(locks: list[Lock]) -> None:
    for one, other in combinations(locks, 2):
        if one.holder.name != other.holder.name and not (one.shared and other.shared):
            assert not conflicting([one.pattern], [other.pattern]), (one, other)


def grabbed(url: str, crew: Crew, processes: int, rounds: int, patience: float = PATIENCE) -> None:
    """Seen from outside, by the times at which the processes held what; in the table, while they do; and in the
    changelog's order."""
    seed = new_seed()
    rng = random.Random(seed)
    with TaskBoard.open(url, worker="maker") as board:
        paths = ["src/**", "src/a/x.py", "src/*/y.py", "src/b", "docs/*.md", "docs/index.md", "**/x.py"]
        tasks = [{"description": "work", "paths": rng.sample(paths, rng.choice((1, 2)))} for _ in range(rounds * 2)]
        board.add_many(tasks)
        herd = at_once(crew, processes, "grab", url, "holder-{n}", seed, rounds)
        looks = 0
        while herd.listen():
            assert_no_two_holders(board.locks())
            looks += 1
            time.sleep(0.01)
    said = herd.lines(patience)
    held = [json.loads(line.partition(" ")[2]) for line in said if line.startswith("held")]
    assert sum(int(line.split()[2]) for line in said if line.startswith("done")) > 0, "nobody was ever refused"
    held.sort()
    open_: list[tuple[float, str, bool, list[str]]] = []
    for since, until, name, shared, patterns in held:
        open_ = [one for one in open_ if one[0] > since]
        for _, other, is_shared, others in open_:
            if other != name and not (shared and is_shared):
                assert not conflicting(patterns, others), f"{name} and {other}: {patterns}, {others}"
        open_.append((until, name, shared, patterns))
    in_order: dict[tuple[str, int], tuple[str, bool, str | None]] = {}
    with assert_whole(url) as board:
        assert board.locks() == []
        for event in board.changelog():
            data = event.data or {}
            if data.get("set", {}).get("status", "in_progress") != "in_progress":
                in_order = {key: lock for key, lock in in_order.items() if lock[2] != event.task_id}
            for lock in data.get("locks", ()):
                for (pattern, _), (worker, is_shared, _) in in_order.items():
                    if worker != event.worker and not (is_shared and lock.get("shared")):
                        assert not conflicting([pattern], [lock["pattern"]]), event
                in_order[lock["pattern"], lock["token"]] = (event.worker, bool(lock.get("shared")), event.task_id)
            for pattern, token in data.get("unlocks", ()):
                del in_order[pattern, token]
    print(f"0 overlaps among {len(held):,} grants to {processes} processes, in {looks:,} looks at the table")
    assert len(held) > rounds


def test_overlapping_paths_never_have_two_holders(url: str, crew: Crew) -> None:
    grabbed(url, crew, 16, 12)


@pytest.mark.slow
def test_overlapping_paths_never_have_two_holders_for_long(url: str, crew: Crew) -> None:
    grabbed(url, crew, 16, 1000, 900)
