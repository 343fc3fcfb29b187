"""SIGSTOP: a worker that sleeps through its lease has lost it, and one that sleeps inside the gate harms nobody."""

from __future__ import annotations

import signal

from dibs import TaskBoard
from tests.processes.harness import Crew, assert_whole, wait_until, waits_for_lock


def test_a_holder_that_slept_through_its_lease_cannot_complete(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("slow work", paths=["src/a.py"])
        sleeper = crew.start("carry", url, "sleeper", 0.4)
        _, claimed, token = sleeper.expect("claimed").split()
        assert claimed == task_id
        sleeper.send(signal.SIGSTOP)

        successor = board.claim("successor", wait=30)
        assert successor is not None
        assert (successor.id, successor.assigned_to) == (task_id, "successor")
        assert successor.token is not None
        assert successor.token > int(token)
        locks, last = board.locks(), [event.seq for event in board.changelog()][-1]
        assert [lock.holder.name for lock in locks] == ["successor"]

        sleeper.tell()  # complete, as soon as you run again
        sleeper.send(signal.SIGCONT)
        answer = sleeper.expect("lost", "completed")
        assert answer.startswith(f"lost you no longer hold task {task_id}"), answer
        assert "successor took it" in answer
        assert "nothing was changed" in answer

        now = board.get(task_id)
        assert (now.status, now.assigned_to, now.token) == ("in_progress", "successor", successor.token)
        assert board.locks() == locks
        assert [event.action for event in board.changelog(after=last)] == []
        successor.complete("done")
    assert_whole(url).close()


def test_a_holder_that_slept_through_its_lease_cannot_complete_although_nobody_took_over(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("slow work")
        sleeper = crew.start("carry", url, "sleeper", 0.2)
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
    with assert_whole(url) as board, board.store.read() as tx:
        assert tx.marks("occupant") == {"occupant": 1}


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
