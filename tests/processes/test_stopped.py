"""SIGSTOP: a worker that sleeps through its lease has lost it, and one that sleeps inside the gate harms nobody."""

from __future__ import annotations

import signal

from dibs import BoardTask, TaskBoard
from tests.processes.harness import (
    IN_A_FILE,
    Actor,
    Crew,
    assert_whole,
    on_postgres,
    wait_until,
    waits_for_lock,
)


def test_a_holder_that_slept_through_its_lease_cannot_complete(url: str, crew: Crew) -> None:
    """Eight sleepers; each is replaced, and wakes to be refused."""
    with TaskBoard.open(url, worker="maker") as board:
        added = board.add_many([{"description": "slow work", "paths": [f"src/{n}.py"]} for n in range(8)])
        starting = [crew.start("carry", url, f"sleeper-{n}", 1.0) for n in range(8)]
        sleepers: dict[str, Actor] = {}
        tokens: dict[str, int] = {}
        for sleeper in starting:
            _, task_id, token = sleeper.expect("claimed").split()
            sleepers[task_id], tokens[task_id] = sleeper, int(token)
            sleeper.send(signal.SIGSTOP)
        assert sorted(sleepers) == sorted(added)

        successors: dict[str, BoardTask] = {}
        while len(successors) < 8:
            task = board.claim("successor", wait=30)
            assert task is not None
            assert task.assigned_to == "successor"
            assert (task.token or 0) > tokens[task.id]
            successors[task.id] = task
        locks, last = board.locks(), board.recent(1)[-1].seq
        assert [lock.holder.name for lock in locks] == ["successor"] * 8

        for sleeper in sleepers.values():
            sleeper.tell()  # complete, as soon as you run again
            sleeper.send(signal.SIGCONT)
        for task_id, sleeper in sleepers.items():
            answer = sleeper.expect("lost", "completed")
            assert answer.startswith(f"lost you no longer hold task {task_id}"), answer
            assert "successor took it" in answer
            assert "nothing was changed" in answer

        for task_id, task in successors.items():
            now = board.get(task_id)
            assert (now.status, now.assigned_to, now.token) == ("in_progress", "successor", task.token)
        assert board.locks() == locks
        assert [event.action for event in board.changelog(after=last)] == []
        for task in successors.values():
            task.complete("done")
    assert_whole(url).close()
    print("0 stale writes by 8 holders that were stopped past their leases and replaced")


def test_a_holder_that_slept_through_its_lease_cannot_complete_although_nobody_took_over(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("slow work")
        sleeper = crew.start("carry", url, "sleeper", 0.5 if on_postgres(url) else 0.2)
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


@IN_A_FILE
def test_writers_wait_for_a_process_that_was_stopped_inside_the_gate(url: str, crew: Crew) -> None:
    occupant = crew.start("occupy", url)
    occupant.expect("inside")
    occupant.send(signal.SIGSTOP)
    waiting = crew.start("add", url, "patient")
    waiting.expect("ready")
    waiting.tell()
    wait_until(lambda: waits_for_lock(waiting.pid), "the writer standing at the gate")
    with TaskBoard.open(url) as board:
        assert board.status() == [], "readers need no gate, and see nothing of an open transaction"
    occupant.tell()
    occupant.send(signal.SIGCONT)
    occupant.expect("outside")
    waiting.expect("added")
    with assert_whole(url) as board, board._store.read() as tx:
        assert tx.mark("occupant") == 1


@IN_A_FILE
def test_the_gate_opens_when_a_stopped_process_is_killed(url: str, crew: Crew) -> None:
    occupant = crew.start("occupy", url)
    occupant.expect("inside")
    occupant.send(signal.SIGSTOP)
    waiting = crew.start("add", url, "patient")
    waiting.expect("ready")
    waiting.tell()
    wait_until(lambda: waits_for_lock(waiting.pid), "the writer standing at the gate")
    occupant.kill()
    waiting.expect("added")
    assert_whole(url).close()
