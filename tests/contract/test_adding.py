"""Adding tasks: what they start as, their ids, and that a call adds all of its tasks or none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, TaskStatus
from dibs.errors import DependencyCycle, Duplicate, Invalid, NotFound
from tests.clocks import START, HandClock
from tests.contract.people import ANN, actions
from tests.contract.stores import Home


def test_a_new_task_has_the_documented_defaults(board: TaskBoard, home: Home) -> None:
    task = board.get(board.add("Write the login endpoint"))
    assert task.description == "Write the login endpoint"
    assert task.status is TaskStatus.PENDING
    assert task.assigned_to is None
    assert task.depends_on == []
    assert task.result is None
    assert task.priority == home.priority
    assert task.created_at == START
    assert task.claimed_at is None
    assert task.completed_at is None


def test_a_new_task_is_unclaimed_unreserved_and_plain(board: TaskBoard, home: Home) -> None:
    task = board.get(board.add("x"))
    assert (task.token, task.lease, task.lease_expires_at, task.holder) == (None, None, None, None)
    assert (task.paths, task.labels, task.steps, task.blockers) == ([], [], [], [])
    assert (task.parent, task.reserved, task.attempts, task.max_attempts) == (None, "any", 0, None)
    assert task.review is home.reviews_all


def test_an_id_is_new_and_in_the_style_of_the_board(board: TaskBoard, home: Home) -> None:
    ids = [board.add(f"task {i}") for i in range(20)]
    assert all(re.fullmatch(home.ids, task_id) for task_id in ids)
    assert len(set(ids)) == 20


@pytest.mark.needs("labels", "limits of attempts", "parents", "paths", "priorities", "reservations", "reviews", "steps")
def test_everything_that_a_task_can_bring_is_kept(board: TaskBoard) -> None:
    epic = board.add("epic", id="epic-1")
    first = board.add("first")
    task_id = board.add(
        "all of it",
        [first],
        7,
        id="T.1_x-y",
        paths=["src/auth/**", "docs/auth.md"],
        labels=["backend", "two words"],
        steps=["read", "write"],
        parent=epic,
        reserved="human",
        review=True,
        max_attempts=3,
        worker=ANN,
    )
    task = board.get(task_id)
    assert task.id == "T.1_x-y"
    assert (task.depends_on, task.priority, task.parent) == ([first], 7, epic)
    assert task.paths == ["src/auth/**", "docs/auth.md"]
    assert task.labels == ["backend", "two words"]
    assert [(step.id, step.title, step.status) for step in task.steps] == [
        ("s1", "read", "pending"),
        ("s2", "write", "pending"),
    ]
    assert (task.reserved, task.review, task.max_attempts, task.created_by) == ("human", True, 3, "ann")


@pytest.mark.needs("steps")
def test_two_steps_may_have_the_same_title(board: TaskBoard) -> None:
    task = board.get(board.add("x", steps=["test", "fix", "test"]))
    assert [step.title for step in task.steps] == ["test", "fix", "test"]


def test_many_tasks_are_added_in_the_order_given(board: TaskBoard) -> None:
    ids = board.add_many([{"description": f"task {i}"} for i in range(50)])
    assert [row["id"] for row in board.status()] == ids


def test_adding_nothing_is_fine(board: TaskBoard) -> None:
    assert board.add_many([]) == []
    assert board.status() == []


@pytest.mark.parametrize("given", [["a string"], "a string", [{"description": "good"}, None]])
def test_a_task_that_is_no_dict_is_refused_with_an_example(board: TaskBoard, given: Any) -> None:
    with pytest.raises(Invalid, match="as a dict") as caught:
        board.add_many(given)
    assert '{"description": ' in str(caught.value.hint)
    assert board.status() == []


def test_a_call_with_one_bad_task_adds_none_and_says_which(board: TaskBoard) -> None:
    with pytest.raises(Invalid, match="task 2 of 3"):
        board.add_many([{"description": "good"}, {"description": ""}, {"description": "good"}])
    assert board.status() == []
    with pytest.raises(NotFound):
        board.add_many([{"description": "good"}, {"description": "waits", "depends_on": ["nowhere"]}])
    assert board.status() == []


def test_tasks_of_one_call_may_name_each_other(board: TaskBoard) -> None:
    old = board.add("there before")
    wanted: list[dict[str, object]] = [
        {"description": "the roof", "name": "roof", "depends_on": ["the walls", old]},
        {"description": "the walls", "name": "the walls"},
    ]
    roof, walls = board.add_many(wanted, request_key="house")
    assert board.add_many(wanted, request_key="house") == [roof, walls]
    assert board.get(roof).depends_on == [walls, old]
    assert board.get(walls).depends_on == []
    assert len(board.tasks()[0]) == 3


@pytest.mark.needs("parents")
def test_a_part_may_name_its_whole(board: TaskBoard) -> None:
    part, whole = board.add_many(
        [{"description": "a", "parent": "all of it"}, {"description": "b", "name": "all of it"}]
    )
    assert board.get(part).parent == whole


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ([{"name": "hen", "depends_on": ["egg"]}, {"name": "egg", "depends_on": ["hen"]}], DependencyCycle, "hen, egg"),
        ([{"name": "hen", "depends_on": ["nest"]}], NotFound, "nest, which hen is to depend on"),
        ([{"depends_on": ["nest"]}], NotFound, "nest, which the new task is to depend on"),
        ([{}, {"depends_on": ["nest"]}], NotFound, "nest, which task 2 of 2 is to depend on"),
        ([{"parent": "nest"}], NotFound, "nest, the parent of the new task"),
        (
            [{"name": "a", "depends_on": ["b"]}, {"name": "b", "depends_on": ["a"]}, {"depends_on": ["a"]}],
            DependencyCycle,
            "a, b, task 3 of 3",
        ),
        ([{"name": "hen"}, {"name": "hen"}], Invalid, "two tasks of this call are named 'hen'"),
        ([{"name": "two\nlines"}], Invalid, "not a name"),
    ],
)
def test_what_names_cannot_mean_is_refused_by_name(
    board: TaskBoard, wanted: list[dict[str, object]], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        board.add_many([{"description": "x", **fields} for fields in wanted])
    assert board.tasks() == ([], 0)


def test_a_request_key_tells_names_apart(board: TaskBoard) -> None:
    first: list[dict[str, object]] = [{"description": "a", "name": "x"}, {"description": "b", "depends_on": ["x"]}]
    board.add_many(first, request_key="k")
    with pytest.raises(Invalid, match="used before"):
        board.add_many([{"description": "a", "name": "x"}, {"description": "b"}], request_key="k")


def test_an_id_that_is_taken_is_refused(board: TaskBoard) -> None:
    board.add("first", id="t1")
    with pytest.raises(Duplicate):
        board.add("second", id="t1")
    with pytest.raises(Duplicate):
        board.add_many([{"description": "a", "id": "t2"}, {"description": "b", "id": "t2"}])
    assert [row["description"] for row in board.status()] == ["first"]


def test_an_unknown_parent_is_refused(board: TaskBoard) -> None:
    with pytest.raises(NotFound):
        board.add("child", parent="nowhere")


def test_a_field_that_tasks_do_not_have_is_refused(board: TaskBoard) -> None:
    with pytest.raises(Invalid, match="colour"):
        board.add("x", colour="red")


def test_the_ten_documented_fields_come_first_and_in_order() -> None:
    task = BoardTask("id", "text", TaskStatus.FAILED, "ann", ["other"], "boom", 4, 1.0, 2.0, 3.0)
    assert (task.id, task.description, task.status, task.assigned_to) == ("id", "text", "failed", "ann")
    assert (task.depends_on, task.result, task.priority) == (["other"], "boom", 4)
    assert (task.created_at, task.claimed_at, task.completed_at) == (1.0, 2.0, 3.0)


def test_a_repeated_add_with_the_same_request_key_adds_once(board: TaskBoard, other: TaskBoard) -> None:
    first = board.add("once", request_key="r-1")
    assert other.add("once", request_key="r-1") == first
    assert len(board.status()) == 1
    many = [{"description": "a"}, {"description": "b"}]
    assert board.add_many(many, request_key="r-2") == other.add_many(many, request_key="r-2")
    assert len(board.status()) == 3
    assert actions(board).count("added_activity") == 3


def test_another_request_key_adds_again(board: TaskBoard) -> None:
    assert board.add("x", request_key="r-1") != board.add("x", request_key="r-2")


def test_a_request_key_stands_for_one_request_only(board: TaskBoard) -> None:
    board.add("x", request_key="r-1")
    with pytest.raises(Invalid):
        board.add("something else", request_key="r-1")
    assert [row["description"] for row in board.status()] == ["x"]


def test_a_refused_add_does_not_use_up_its_request_key(board: TaskBoard) -> None:
    with pytest.raises(NotFound):
        board.add("x", ["t1"], request_key="r-1")
    board.add("the missing one", id="t1")
    assert board.get(board.add("x", ["t1"], request_key="r-1")).depends_on == ["t1"]


@pytest.mark.needs("labels", "steps")
def test_what_a_board_hands_out_is_a_copy(board: TaskBoard) -> None:
    task_id = board.add("x", labels=["a"], steps=["one"])
    mine = board.get(task_id)
    mine.description = "changed"
    mine.labels.append("b")
    mine.steps[0].title = "changed"
    kept = board.get(task_id)
    assert (kept.description, kept.labels, kept.steps[0].title) == ("x", ["a"], "one")


def test_time_of_creation_is_the_boards_time(board: TaskBoard, clock: HandClock) -> None:
    board.add("early")
    clock.advance(60)
    board.add("late")
    assert [row["created_at"] for row in board.status()] == [START, START + 60]
