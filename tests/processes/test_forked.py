"""One process, several connections: after a fork, and when boards are opened beside each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.processes.harness import IN_A_FILE, Crew, assert_whole, python, rows, wait_until


def test_parent_and_child_go_on_with_one_board_object(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        added = board.add_many([{"description": "a task"} for _ in range(200)])
    said = [line.split() for line in crew.start("forked_use", url, 100).lines()]
    assert said.pop() == ["ended", "0"]
    assert sorted(task_id for _, task_id, _ in said) == sorted(added)
    assert len({token for _, _, token in said}) == 200
    with assert_whole(url) as board:
        assert board.all_done


@IN_A_FILE
def test_what_a_forked_child_wrote_outlives_the_parents_close(url: str, crew: Crew) -> None:
    """SQLite tells the last connection by locks; a child whose locks are not seen would go on in a deleted WAL."""
    said = crew.start("forked_then_closed", url).lines()
    assert said.pop() == "ended"
    added = [line.removeprefix("added ") for line in said]
    assert len(added) == 2
    with assert_whole(url) as board:
        assert [task["id"] for task in board.status()] == added, "acknowledged and lost"


@IN_A_FILE
def test_a_childs_inherited_descriptors_do_not_keep_a_dead_parents_gate_locked(url: str, crew: Crew) -> None:
    """A flock belongs to the open file, which a fork shares: it would outlive the parent in a child that sleeps."""
    parent = crew.start("forked_bystander", url)
    child = int(parent.expect("inside").split()[1])
    try:
        waiting = crew.start("add", url, "after the dead")
        waiting.expect("ready")
        waiting.tell()
        parent.process.kill()
        parent.process.wait()
        waiting.expect("added", timeout=20)
    finally:
        os.kill(child, 9)
    assert_whole(url).close()


@IN_A_FILE
def test_forking_while_a_thread_writes_leaves_every_child_able_to_write(url: str, crew: Crew) -> None:
    said = crew.start("forked_by_a_thread", url, 60).lines()
    assert said.pop() == "ended"
    assert [line for line in said if not line.startswith("added")] == []
    assert len(said) == 60
    with assert_whole(url) as board:
        assert [task["id"] for task in board.status()] == [line.removeprefix("added ") for line in said]


def test_opening_and_closing_two_hundred_boards_leaves_no_descriptor(tmp_path: Path, crew: Crew) -> None:
    before, after = crew.start("descriptors", tmp_path, 200).line().split()
    assert before == after


@IN_A_FILE
def test_boards_that_are_dropped_without_closing_leave_no_descriptor(url: str, crew: Crew) -> None:
    before, after = crew.start("dropped", url, 20).line().split()
    assert before == after


@IN_A_FILE
def test_a_second_board_on_the_same_file_can_be_closed_without_harm_to_the_first(url: str, crew: Crew) -> None:
    """Closing any descriptor of a file drops all POSIX locks that the process has on it, unless somebody takes care."""
    with TaskBoard.open(url, worker="first") as first:
        first.add("one")
        with first.store.read() as tx:
            tx.counts()
            TaskBoard.open(url, worker="second").close()
            # Another process must still see us: if it took itself for the only one, it would empty and delete the WAL.
            adder = crew.start("add", url, "two")
            adder.expect("ready")
            adder.tell()
            adder.expect("added")
            assert adder.lines() == []
            assert [task.description for task in tx.all_tasks()] == ["one"]
        assert os.path.getsize(url.removeprefix("sqlite:") + "-wal") > 0
        first.add("three")
        assert [row[0] for row in rows(url, "SELECT description FROM task ORDER BY seq")] == ["one", "two", "three"]
    assert_whole(url).close()


@IN_A_FILE
def test_the_wal_is_gone_when_the_last_process_has_closed_the_board(url: str) -> None:
    with TaskBoard.open(url, worker="only") as board:
        board.add("one")
    path = Path(url.removeprefix("sqlite:"))
    wait_until(lambda: not Path(f"{path}-wal").exists(), "the WAL's end")
    assert sorted(p.name for p in path.parent.iterdir()) == ["board.db", "board.db-lock", "board.db-sync"]


LEAVE_IN_A_FORKED_CHILD = """
import os, sys
from dibs import TaskBoard
board = TaskBoard.open(sys.argv[1])
with board.claim("parent", "t1") as task:
    child = os.fork()
    if child == 0:
        try:
            with task:
                raise RuntimeError("in the child")
        except RuntimeError:
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    now = board.get("t1")
    print(now.status, now.assigned_to, now.token == task.token, [lock.pattern for lock in board.locks()])
    task.complete("by the parent")
print(board.get("t1").status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_leaves_the_block_by_an_exception_does_not_release_its_parents_claim(url: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("x", id="t1", paths=["src/a.py"])
    assert python(LEAVE_IN_A_FORKED_CHILD, url) == ["7", "in_progress parent True ['src/a.py']", "completed"]
    with assert_whole(url) as board:
        assert "released_activity" not in [event.action for event in board.changelog(task_id="t1")]


def test_the_claims_own_process_still_releases_by_an_exception(url: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("x", id="t1")
        task = board.claim("me", "t1")
        assert task is not None
        with pytest.raises(RuntimeError), task:
            raise RuntimeError
        assert board.get("t1").status == "pending"
