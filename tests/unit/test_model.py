"""The nouns: BoardTask is used as the dataclass of document 004, TaskStatus as an enum."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import time

import pytest

from dibs import BoardTask, Event, Lock, Message, TaskBoard, TaskStatus, Worker
from dibs.model import CLOSED, OPEN, Blocker, Step

DOCUMENTED = [
    "id",
    "description",
    "status",
    "assigned_to",
    "depends_on",
    "result",
    "priority",
    "created_at",
    "claimed_at",
    "completed_at",
]
STATUSES = ["pending", "in_progress", "review", "completed", "failed", "cancelled"]


class TestTaskStatus:
    def test_iterating_gives_every_status_in_order(self) -> None:
        assert [status.value for status in TaskStatus] == STATUSES
        assert len(TaskStatus) == 6

    @pytest.mark.parametrize("value", STATUSES)
    def test_a_value_gives_the_one_member(self, value: str) -> None:
        member = TaskStatus(value)
        assert member is getattr(TaskStatus, value.upper())
        assert TaskStatus(member) is member
        assert TaskStatus[value.upper()] is member
        assert (member.name, member.value) == (value.upper(), value)
        assert type(member.value) is str
        assert isinstance(member, TaskStatus)

    @pytest.mark.parametrize("wrong", ["blocked", "PENDING", "", None, 5, ["pending"]])
    def test_another_value_is_a_value_error(self, wrong: object) -> None:
        with pytest.raises(ValueError, match="is not a valid TaskStatus"):
            TaskStatus(wrong)

    def test_another_name_is_a_key_error(self) -> None:
        with pytest.raises(KeyError):
            TaskStatus["BLOCKED"]

    def test_membership_can_be_asked(self) -> None:
        assert TaskStatus.PENDING in TaskStatus
        assert "blocked" not in list(TaskStatus)

    @pytest.mark.parametrize("status", list(TaskStatus))
    def test_copies_and_pickles_are_the_same_object(self, status: TaskStatus) -> None:
        assert copy.copy(status) is status
        assert copy.deepcopy([status])[0] is status
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(status, protocol)) is status

    def test_a_member_is_its_value_as_text(self) -> None:
        assert TaskStatus.IN_PROGRESS == "in_progress"
        assert f"{TaskStatus.IN_PROGRESS}" == "in_progress"
        assert json.dumps({"status": TaskStatus.FAILED}) == '{"status": "failed"}'
        assert hash(TaskStatus.FAILED) == hash("failed")
        assert repr(TaskStatus.FAILED) == "TaskStatus.FAILED"

    def test_every_status_is_open_or_closed(self) -> None:
        assert sorted((*OPEN, *CLOSED)) == sorted(TaskStatus)
        assert not set(OPEN) & set(CLOSED)


class TestBoardTask:
    def test_only_the_first_two_fields_must_be_given(self) -> None:
        before = time.time()
        task = BoardTask("a1b2c3d4", "Implement user registration")
        assert (task.status, task.assigned_to, task.depends_on, task.result) == (TaskStatus.PENDING, None, [], None)
        assert (task.priority, task.claimed_at, task.completed_at) == (0, None, None)
        assert before <= task.created_at <= time.time()

    def test_lists_are_not_shared_between_tasks(self) -> None:
        BoardTask("a", "x").depends_on.append("b")
        assert BoardTask("c", "y").depends_on == []

    def test_it_is_a_dataclass_with_the_documented_fields_in_order(self) -> None:
        assert dataclasses.is_dataclass(BoardTask)
        assert dataclasses.is_dataclass(BoardTask("a", "x"))
        assert [field.name for field in dataclasses.fields(BoardTask)] == DOCUMENTED
        assert [field.name for field in dataclasses.fields(BoardTask("a", "x"))] == DOCUMENTED

    def test_asdict_and_astuple_give_the_documented_fields(self) -> None:
        task = BoardTask("a", "x", depends_on=["b"], created_at=1.0)
        assert dataclasses.asdict(task) == {  # type: ignore[call-overload]
            "id": "a",
            "description": "x",
            "status": TaskStatus.PENDING,
            "assigned_to": None,
            "depends_on": ["b"],
            "result": None,
            "priority": 0,
            "created_at": 1.0,
            "claimed_at": None,
            "completed_at": None,
        }
        assert dataclasses.astuple(task)[:2] == ("a", "x")  # type: ignore[call-overload]
        assert json.loads(json.dumps(dataclasses.asdict(task)))["status"] == "pending"  # type: ignore[call-overload]

    def test_replace_makes_a_changed_copy(self) -> None:
        task = BoardTask("a", "x", priority=3, created_at=1.0)
        changed = dataclasses.replace(task, description="y", status=TaskStatus.FAILED)  # type: ignore[type-var]
        assert (changed.id, changed.description, changed.status, changed.priority) == ("a", "y", "failed", 3)
        assert task.description == "x"

    def test_equality_is_by_content(self) -> None:
        assert BoardTask("a", "x", created_at=1.0) == BoardTask("a", "x", created_at=1.0)
        assert BoardTask("a", "x", created_at=1.0) != BoardTask("a", "x", created_at=2.0)
        assert BoardTask("a", "x") != "a"

    def test_a_claimed_task_can_be_copied_pickled_and_turned_into_a_dict(self) -> None:
        board = TaskBoard()
        board.add("x", labels=["a"], steps=["one"])
        task = board.claim("worker-1")
        assert task is not None
        assert copy.copy(task) == task
        assert copy.deepcopy(task) == task
        assert pickle.loads(pickle.dumps(task)) == task
        assert dataclasses.asdict(task)["assigned_to"] == "worker-1"  # type: ignore[call-overload]

    def test_ready_means_pending_with_nothing_in_the_way(self) -> None:
        task = BoardTask("a", "x")
        assert task.is_ready
        task.blockers = [Blocker("b1", "why", "eve", 1.0)]
        assert not task.is_ready
        task.blockers[0].resolved_at = 2.0
        assert task.is_ready
        task.unmet = 1
        assert not task.is_ready

    def test_its_repr_is_short_and_says_who(self) -> None:
        shown = repr(BoardTask("a", "x" * 500, TaskStatus.IN_PROGRESS, "ann"))
        assert len(shown) < 200
        assert "assigned_to='ann'" in shown


class TestWorker:
    @pytest.mark.parametrize(
        ("one", "two", "same"),
        [
            (Worker("ann"), Worker("ann"), True),
            (Worker("ann", session="1"), Worker("ann", session="1"), True),
            (Worker("ann", session="1"), Worker("ann"), True),
            (Worker("ann"), Worker("ann", session="1"), True),
            (Worker("ann", session="1"), Worker("ann", session="2"), False),
            (Worker("ann"), Worker("ben"), False),
            (Worker("ann", session="1"), Worker("ben", session="1"), False),
        ],
    )
    def test_workers_are_the_same_by_name_unless_two_known_sessions_differ(
        self, one: Worker, two: Worker, same: bool
    ) -> None:
        assert one.is_same(two) is same
        assert two.is_same(one) is same

    def test_its_text_gives_it_back(self) -> None:
        worker = Worker("ünï \x1b", "human", "lead", "s", "host", 12, "345", "boot")
        assert Worker.from_text(worker.text) == worker
        assert worker.text.isascii()
        assert Worker.from_text(Worker("ann").text) == Worker("ann")

    def test_it_is_shown_by_its_name(self) -> None:
        assert str(Worker("ann")) == "ann"


def test_records_are_equal_by_content_and_survive_copying() -> None:
    for make in (
        lambda: Step("s1", "read"),
        lambda: Blocker("b1", "why"),
        lambda: Lock("src", Worker("ann"), 3, 1.0, 2.0, 1.0),
        lambda: Event("added_activity", "ann", "agent", data={"a": [1]}),
        lambda: Message("ann", "hello"),
    ):
        one = make()
        assert one == make()
        assert copy.deepcopy(one) == one
        assert pickle.loads(pickle.dumps(one)) == one
        assert type(one).__name__ in repr(one)
        assert one != object()


def test_as_dict_leaves_out_what_is_not_set() -> None:
    assert Step("s1", "read").as_dict() == {"id": "s1", "title": "read", "status": "pending"}
    assert Step(**Step("s1", "read", notes="n").as_dict()) == Step("s1", "read", notes="n")
