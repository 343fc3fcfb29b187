"""SIGSTOP: a worker that sleeps through its lease has lost it; those who wait for one that sleeps inside the gate learn
who it is, and give up in the end; one that sleeps in its sync is not waited for."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from dibs import BoardTask, TaskBoard
from dibs.errors import Busy
from tests.cli.shell import Shell
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
    with assert_whole(url) as board, board.store.read() as tx:
        assert tx.marks("occupant") == {"occupant": 1}


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


@pytest.fixture
def stopped(url: str, crew: Crew) -> Actor:
    occupant = crew.start("occupy", url)
    occupant.expect("inside")
    occupant.send(signal.SIGSTOP)
    return occupant


@IN_A_FILE
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process does")
def test_whoever_waits_at_the_gate_says_for_whom_and_gives_up(url: str, stopped: Actor, tmp_path: Path) -> None:
    result = Shell(tmp_path)("--board", url, "add", "x", DIBS_GATE_WAIT="4")
    assert result.code == 1
    told, refused, *hint = result.err.splitlines()
    who = rf"process {stopped.pid} \(.*actors occupy .*\), which has been writing to the board since 20\S+Z"
    assert re.match(rf"dibs: waiting for {who} \(\d+s\) and is stopped; let it go on: kill -CONT {stopped.pid}", told)
    assert re.match(rf"dibs: waited 4 s for {who} \(\d+s\) and is stopped: nothing was changed", refused)
    assert f"kill -CONT {stopped.pid}" in " ".join(hint)
    at_once = Shell(tmp_path)("--board", url, "--json", "add", "x", DIBS_GATE_WAIT="0")
    assert (at_once.code, at_once.error["code"]) == (1, "busy")
    stopped.send(signal.SIGCONT)
    stopped.tell()
    stopped.expect("outside")
    assert Shell(tmp_path)("--board", url, "add", "x").code == 0
    assert_whole(url).close()


@IN_A_FILE
def test_doctor_shows_who_keeps_the_gate(url: str, stopped: Actor, tmp_path: Path) -> None:
    result = Shell(tmp_path)("--board", url, "--json", "doctor")
    assert result.code == 1
    assert [(f["code"], f["hint"]) for f in result.json["findings"]] == [
        ("writer_in_the_way", f"let it go on: kill -CONT {stopped.pid}")
    ]
    assert result.json["writer"]["pid"] == stopped.pid
    stopped.send(signal.SIGCONT)
    stopped.tell()
    stopped.expect("outside")
    assert Shell(tmp_path)("--board", url, "--json", "doctor").json["findings"] == []


@IN_A_FILE
def test_threads_give_up_too(url: str, stopped: Actor, crew: Crew) -> None:
    said = crew.start("add_in_a_thread", url, before=["env", "DIBS_GATE_WAIT=1"]).lines()
    assert len(said) == 2
    for line in said:
        assert line.startswith("busy waited 1 s for process "), line


@IN_A_FILE
def test_a_program_that_uses_the_alarm_itself_keeps_it(
    url: str, stopped: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        monkeypatch.setenv("DIBS_GATE_WAIT", "1")
        with TaskBoard.open(url, worker="w") as board, pytest.raises(Busy, match="waited 1 s for process"):
            board.add("x")
        assert rung == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)


@IN_A_FILE
def test_whoever_is_stopped_in_its_sync_is_not_waited_for(url: str, crew: Crew) -> None:
    syncer = crew.start("stand_in_sync", url)
    syncer.expect("syncing")
    syncer.send(signal.SIGSTOP)
    adder = crew.start("add", url, "beside it")
    adder.expect("ready")
    adder.tell()
    adder.expect("added", timeout=30)
    syncer.kill()
    assert_whole(url).close()
