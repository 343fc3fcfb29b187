"""Document 004's own examples and lifecycle, word for word."""

from __future__ import annotations

import dataclasses

import pytest

from dibs import BoardTask, TaskBoard, TaskStatus
from tests.clocks import HandClock
from tests.contract.people import take
from tests.contract.stores import Home


@pytest.mark.needs("priorities")
def test_the_direct_usage_example(board: TaskBoard) -> None:
    login = board.add("Write the login endpoint", priority=2)
    board.add("Write tests for login", depends_on=[login])
    board.add("Update API docs")

    task = board.claim("worker-1")
    assert task
    assert task.description == "Write the login endpoint"
    board.complete(task.id, result="Login endpoint implemented")

    assert board.pending_count == 2
    assert board.completed_count == 1
    assert [row["description"] for row in board.status() if row["status"] == "pending"] == [
        "Write tests for login",
        "Update API docs",
    ]


def test_the_dependencies_example(board: TaskBoard) -> None:
    t1 = board.add("Set up database schema")
    t2 = board.add("Implement user model", depends_on=[t1])
    t3 = board.add("Write user API endpoints", depends_on=[t2])
    t4 = board.add("Write API tests", depends_on=[t3])
    for expected in (t1, t2, t3, t4):
        task = board.claim("worker-1")
        assert task is not None
        assert task.id == expected
        assert board.claim("worker-2") is None
        board.complete(task.id)
    assert board.all_done


@pytest.mark.needs("failed tasks")
def test_the_lifecycle(board: TaskBoard) -> None:
    task_id = board.add("x")
    assert board.get(task_id).status is TaskStatus.PENDING
    claimed = board.claim("worker-1")
    assert claimed is not None
    assert board.get(task_id).status is TaskStatus.IN_PROGRESS
    board.release(task_id)
    assert board.get(task_id).status is TaskStatus.PENDING
    board.claim("worker-2")
    board.fail(task_id, "it broke")
    failed = board.get(task_id)
    assert (failed.status, failed.result) == (TaskStatus.FAILED, "it broke")
    other_id = board.add("y")
    board.claim("worker-2")
    board.complete(other_id)
    assert board.get(other_id).status is TaskStatus.COMPLETED


def test_a_claim_by_agent_id_keyword_free_call_returns_a_board_task(board: TaskBoard) -> None:
    board.add("x")
    task = board.claim("worker-1")
    assert task is not None
    assert (task.status, task.assigned_to) == (TaskStatus.IN_PROGRESS, "worker-1")
    assert task.claimed_at is not None


def test_release_only_works_on_tasks_in_progress(board: TaskBoard) -> None:
    task_id = board.add("x")
    with pytest.raises(ValueError, match="pending"):
        board.release(task_id)


def test_unknown_ids_raise_a_value_error_with_the_id(board: TaskBoard) -> None:
    for call in (board.complete, board.release, lambda i: board.fail(i, "boom")):
        with pytest.raises(ValueError, match="Task not found: deadbeef"):
            call("deadbeef")


def test_release_agent_tasks_cleans_up_after_a_crash(board: TaskBoard) -> None:
    ids = [board.add(f"task {i}") for i in range(3)]
    board.claim("worker-1")
    board.claim("worker-2")
    board.claim("worker-1")
    assert sorted(board.release_agent_tasks("worker-1")) == sorted([ids[0], ids[2]])
    assert [row["assigned_to"] for row in board.status()] == [None, "worker-2", None]


def test_stale_claims_are_swept_by_the_next_claim(home: Home, clock: HandClock) -> None:
    board = home.open(stale_timeout=300)
    task_id = board.add("x")
    board.claim("worker-1")
    clock.advance(299)
    assert board.claim("worker-2") is None
    clock.advance(2)
    task = board.claim("worker-2")
    assert task is not None
    assert (task.id, task.assigned_to, task.claimed_at) == (task_id, "worker-2", clock.wall())


def test_the_persisted_record_has_the_documented_keys_and_values(
    board: TaskBoard, home: Home, clock: HandClock
) -> None:
    task_id = board.add("Implement user registration")
    take(board, "worker-1")
    clock.advance(44)
    board.complete(task_id, "Endpoint created at POST /api/users")
    (row,) = board.status()
    assert list(row) == [field.name for field in dataclasses.fields(BoardTask)]  # type: ignore[arg-type]
    assert (row["status"], row["assigned_to"], row["depends_on"]) == ("completed", "worker-1", [])
    assert row["priority"] == home.priority
    assert isinstance(row["created_at"], float)
    assert row["completed_at"] - row["claimed_at"] == 44
