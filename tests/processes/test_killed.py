"""SIGKILL at random moments: what was acknowledged stays, what was not is there whole or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

import pytest

from dibs import Event, TaskBoard
from tests.processes.harness import IN_A_FILE, PATIENCE, Crew, assert_whole, new_seed, on_postgres

RENEWALS = ("renewed_activity", "renewed_locks")


def tell_apart(line: str) -> tuple[str, str, list[list[list[object]]]]:
    fate, name, calls = line.split(" ", 2)
    return fate, name, json.loads(calls)


def matches(event: Event, expected: list[object]) -> bool:
    action, task_id, token = expected
    if event.action != action or event.task_id != task_id:
        return False
    if action == "claimed_activity":
        return event.data is not None and event.data["set"]["token"] == token
    return action != "locked_files" or event.seq == token


def assert_acknowledged(name: str, calls: list[list[list[object]]], events: Iterable[Event]) -> int:
    """The worker's events are those of the acknowledged calls, then of one more at most; of how many more?"""
    left = [event for event in events if event.action not in RENEWALS]
    for call in calls:
        for expected in call:
            assert left, f"{name}: acknowledged and lost: {expected}"
            assert matches(left[0], expected), f"{name}: acknowledged {expected}, and the changelog has {left[0]}"
            del left[0]
    unknown = [event.action for event in left]
    assert len(unknown) <= 1 or unknown == ["completed_activity", "claimed_activity"], f"{name}: {unknown}"
    return int(bool(unknown))


def forking(url: str) -> tuple[str, ...]:
    """What the command of actors that fork begins with."""
    from tests.postgres.actors import AS_ACTOR  # which imports this module

    return AS_ACTOR if on_postgres(url) else ()


def killed_at_random(url: str, crew: Crew, seconds: float, size: int, reopens: float = PATIENCE) -> None:
    seed = new_seed()
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": f"task {n}", "paths": [f"lib/{n % 20}.py"]} for n in range(300)])
    said = crew.start("killing", url, seed, seconds, size, before=forking(url)).lines(timeout=seconds + PATIENCE)
    assert said.pop() == "over"
    workers = [tell_apart(line) for line in said]
    assert all(fate == "killed" for fate, _, _ in workers), [name for fate, name, _ in workers if fate != "killed"]

    if on_postgres(url):
        from tests.postgres.actors import settle

        settle(url)
    started = time.monotonic()
    board = TaskBoard.open(url)
    board.counts()
    reopening = time.monotonic() - started
    assert reopening < reopens, f"reopening took {reopening:.2f} s"

    by_worker: dict[str, list[Event]] = {}
    tokens = []
    for event in board.changelog():
        by_worker.setdefault(event.worker, []).append(event)
        if event.action == "claimed_activity":
            tokens.append((event.data or {})["set"]["token"])
    assert len(tokens) == len(set(tokens)), "two claims with one token"
    calls = unknown = 0
    for _, name, acknowledged in workers:
        unknown += assert_acknowledged(name, acknowledged, by_worker.get(name, []))
        calls += len(acknowledged)

    # Everybody is dead, so everything that is left is there for the next worker, now.
    left = {status: n for status, n in board.counts().items() if status in ("pending", "in_progress")}
    taken = board.claim("survivor", n=10_000)
    assert len(taken) == sum(left.values())
    assert all(task.assigned_to == "survivor" for task in taken)
    board.close()
    assert_whole(url).close()
    print(
        f"0 of {calls:,} acknowledged calls lost, 0 events without a call, in {len(workers):,} kills "
        f"({unknown:,} of them in a call whose outcome the caller never learnt); seed {seed}"
    )
    assert len(workers) > seconds * 4
    assert calls > len(workers) - size


def test_sigkill_loses_nothing_that_was_acknowledged(url: str, crew: Crew) -> None:
    killed_at_random(url, crew, 4 if on_postgres(url) else 6, 6)


@pytest.mark.slow
def test_sigkill_loses_nothing_in_five_minutes(url: str, crew: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    killed_at_random(url, crew, 300, 8, reopens=PATIENCE if on_postgres(url) else 1.0)
    with capsys.disabled():
        print(f"\n  {capsys.readouterr().out.strip()}")


def test_what_a_killed_worker_held_is_claimable_at_once(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("the only one", paths=["src/**"])
        holder = crew.start("carry", url, "holder", 3600)
        token = int(holder.expect("claimed").split()[2])
        assert board.claim("other") is None
        holder.kill()
        task = board.claim("other", wait=10 if on_postgres(url) else 0)
        assert task is not None
        assert (task.id, task.assigned_to, task.attempts) == (task_id, "other", 2)
        assert task.token is not None
        assert task.token > token
        assert [(lock.holder.name, lock.token) for lock in board.locks()] == [("other", task.token)]
        assert [e.details for e in board.changelog() if e.action == "recovered_activity"] == [
            "the holder's process has died (held by holder)"
        ]
    assert_whole(url).close()


@IN_A_FILE
def test_a_killed_worker_does_not_leave_the_gate_locked(url: str, crew: Crew) -> None:
    occupant = crew.start("occupy", url)
    occupant.expect("inside")
    waiting = crew.start("add", url, "after the dead")
    waiting.expect("ready")
    waiting.tell()
    occupant.kill()
    waiting.expect("added")
    with assert_whole(url) as board:
        with board.store.read() as tx:
            assert tx.marks("occupant") == {}, "half a transaction was kept"
        assert [task["description"] for task in board.status()] == ["after the dead"]
