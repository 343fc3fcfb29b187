"""Many processes, with wrong clocks, killed, stopped and cut off: no task is claimed twice, none is lost, no circle
closes, no path has two holders, and whoever slept through its lease has lost it."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from dibs import BoardTask, Event, Lock, TaskBoard
from tests.postgres.actors import AS_ACTOR, assert_whole, board_of, crowd_of, settle
from tests.postgres.server import Server
from tests.processes.actors import files_under
from tests.processes.harness import PATIENCE, Crew, assert_acyclic, everything, new_seed, wait_until
from tests.processes.harness import crew as crew
from tests.processes.test_killed import assert_acknowledged, tell_apart


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with board_of(server) as made:
        yield made


# -- claims


def drained(url: str, crew: Crew, tmp_path: Path, processes: int, tasks: int, patience: float = PATIENCE) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        added = set(board.add_many([{"description": f"task {n}", "priority": n % 3} for n in range(tasks)]))
    crowd = crowd_of(crew, processes, "drain", url, "worker-{n}", tmp_path / "journal-{n}")
    crowd.go()
    assert crowd.lines(patience) == ["done"] * processes

    journals = [tmp_path / f"journal-{n}" for n in range(processes)]
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
    print(f"0 double and 0 lost among {tasks:,} claims by {processes} processes whose clocks differ by up to 12 hours")


def test_64_processes_claim_every_task_exactly_once(url: str, crew: Crew, tmp_path: Path) -> None:
    drained(url, crew, tmp_path, 64, 2000)


@pytest.mark.slow
def test_64_processes_claim_fifty_thousand_tasks_exactly_once(url: str, crew: Crew, tmp_path: Path) -> None:
    drained(url, crew, tmp_path, 64, 50_000, 1800)


def test_a_named_task_has_exactly_one_winner_among_12_processes(url: str, crew: Crew) -> None:
    rounds = 40
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": "wanted", "id": f"t{n}"} for n in range(rounds)])
    racers = [crew.start("race", url, f"racer-{n}") for n in range(12)]
    for racer in racers:
        racer.expect("ready")
    for number in range(rounds):
        start = time.monotonic() + 0.008
        for racer in racers:
            racer.tell(f"t{number} {start}")
        answers = [racer.expect("won", "lost") for racer in racers]
        winners = [at for at, answer in enumerate(answers) if answer.startswith("won")]
        assert len(winners) == 1, answers
        assert all(f"held by racer-{winners[0]} " in answer for answer in answers if answer.startswith("lost")), answers
    for racer in racers:
        racer.tell()
        assert racer.lines() == []
    assert_whole(url).close()
    print(f"one winner in each of {rounds} rounds")


# -- being killed


def killed_at_random(url: str, crew: Crew, seconds: float, size: int) -> None:
    seed = new_seed()
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": f"task {n}", "paths": [f"lib/{n % 20}.py"]} for n in range(300)])
    said = crew.start("killing", url, seed, seconds, size, before=AS_ACTOR).lines(timeout=seconds + PATIENCE)
    assert said.pop() == "over"
    workers = [tell_apart(line) for line in said]
    assert all(fate == "killed" for fate, _, _ in workers), [name for fate, name, _ in workers if fate != "killed"]
    settle(url)

    board = TaskBoard.open(url)
    by_worker: dict[str, list[Event]] = {}
    for event in board.changelog():
        by_worker.setdefault(event.worker, []).append(event)
    calls = unknown = 0
    for _, name, acknowledged in workers:
        unknown += assert_acknowledged(name, acknowledged, by_worker.get(name, []))
        calls += len(acknowledged)

    # Everybody is dead, so everything that is left is there for the next worker, now.
    left = sum(n for status, n in board.counts().items() if status in ("pending", "in_progress"))
    assert len(board.claim("survivor", n=10_000)) == left
    board.close()
    assert_whole(url).close()
    print(
        f"0 of {calls:,} acknowledged calls lost, 0 events without a call, in {len(workers):,} kills "
        f"({unknown:,} of them in a call whose outcome the caller never learnt); seed {seed}"
    )
    assert len(workers) > seconds * 4
    assert calls > len(workers) - size


def test_sigkill_loses_nothing_that_was_acknowledged(url: str, crew: Crew) -> None:
    killed_at_random(url, crew, 4, 6)


@pytest.mark.slow
def test_sigkill_loses_nothing_in_five_minutes(url: str, crew: Crew) -> None:
    killed_at_random(url, crew, 300, 8)


def test_what_a_killed_worker_held_is_claimable_at_once(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("the only one", paths=["src/**"])
        holder = crew.start("carry", url, "holder", 3600)
        token = int(holder.expect("claimed").split()[2])
        assert board.claim("other") is None
        holder.kill()
        task = board.claim("other", wait=10)
        assert task is not None
        assert (task.id, task.assigned_to, task.attempts) == (task_id, "other", 2)
        assert (task.token or 0) > token
        assert [(lock.holder.name, lock.token) for lock in board.locks()] == [("other", task.token)]
    assert_whole(url).close()


# -- sleeping


def test_a_holder_that_slept_through_its_lease_cannot_complete(url: str, crew: Crew) -> None:
    """Eight sleepers; each is replaced, and wakes to be refused."""
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": "slow work", "paths": [f"src/{n}.py"]} for n in range(8)])
        sleepers = [crew.start("carry", url, f"sleeper-{n}", 1.0) for n in range(8)]
        tokens = {}
        for sleeper in sleepers:
            _, task_id, token = sleeper.expect("claimed").split()
            tokens[task_id] = int(token)
            sleeper.send(signal.SIGSTOP)
        assert len(tokens) == 8
        successors: list[BoardTask] = []
        while len(successors) < 8:
            task = board.claim("successor", wait=30)
            assert task is not None
            assert (task.token or 0) > tokens[task.id]
            successors.append(task)
        last, before = board.recent(1)[-1].seq, {lock.token for lock in board.locks()}
        for sleeper in sleepers:
            sleeper.tell()  # complete, as soon as you run again
            sleeper.send(signal.SIGCONT)
        for sleeper in sleepers:
            answer = sleeper.expect("lost", "completed")
            assert answer.startswith("lost you no longer hold task"), answer
            assert "successor" in answer
        assert [event.action for event in board.changelog(after=last)] == []
        assert {lock.token for lock in board.locks()} == before
        for task in successors:
            task.complete("done")
    assert_whole(url).close()
    print("0 stale writes by 8 holders that were stopped past their leases and replaced")


def test_a_holder_that_slept_through_its_lease_cannot_complete_although_nobody_took_over(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("slow work")
        sleeper = crew.start("carry", url, "sleeper", 0.5)
        sleeper.expect("claimed")
        sleeper.send(signal.SIGSTOP)
        expires = board.get(task_id).lease_expires_at
        assert expires is not None
        wait_until(lambda: board.now() > expires, "the lease's end")
        sleeper.tell()
        sleeper.send(signal.SIGCONT)
        sleeper.expect("lost")
        assert board.get(task_id).status == "in_progress"
        assert board.recover() == [task_id]
    assert_whole(url).close()


# -- paths


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
        crowd = crowd_of(crew, processes, "grab", url, "holder-{n}", seed, rounds)
        crowd.go()
        looks = 0
        while crowd.actor.listen():
            assert_no_two_holders(board.locks())
            looks += 1
            time.sleep(0.01)
    said = crowd.lines(patience)
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


# -- dependencies


def woven(url: str, crew: Crew, processes: int, tasks: int, rounds: int, patience: float = PATIENCE) -> None:
    seed = new_seed()
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": "a task", "id": f"t{n}"} for n in range(tasks)])
    crowd = crowd_of(crew, processes, "weave", url, "weaver-{n}", f"{seed % 10**6}{{n}}", tasks, rounds)
    crowd.go()
    answers = [line.split() for line in crowd.lines(patience)]
    tied, refused = (sum(int(answer[at]) for answer in answers) for at in (1, 2))
    assert refused > 0, "no circle was ever tried: the test shows nothing"
    with assert_whole(url) as board:
        assert_acyclic(board)
    print(f"0 circles in {tied:,} edges tied and {refused:,} refused by {processes} processes on {tasks} tasks")


def test_racing_dependencies_never_close_a_circle(url: str, crew: Crew) -> None:
    woven(url, crew, 8, 30, 60)


@pytest.mark.slow
def test_racing_dependencies_never_close_a_circle_for_long(url: str, crew: Crew) -> None:
    woven(url, crew, 8, 30, 3000, 900)


def test_of_two_processes_that_would_close_a_circle_one_is_refused(url: str, crew: Crew) -> None:
    """Some rounds close it directly, some over a chain whose middle exists already."""
    rounds = 40
    with TaskBoard.open(url, worker="maker") as board:
        for n in range(rounds):
            board.add("a", id=f"a{n}")
            board.add("between", id=f"m{n}", depends_on=[f"a{n}"])
            board.add("b", id=f"b{n}", depends_on=[f"m{n}"] if n % 2 else [])
    actors = [crew.start("tie", url, f"tier-{n}") for n in range(2)]
    for actor in actors:
        actor.expect("ready")
    for n in range(rounds):
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
