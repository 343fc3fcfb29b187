"""Dependencies: order, refusal of what could never be done, and depth."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import NotFound, TaskBoard, TaskStatus
from dibs.errors import DependencyCycle, Invalid, WrongStatus
from tests.contract.people import ANN, BEN, EVE, take
from tests.contract.stores import Home


@pytest.mark.needs("priorities")
def test_a_task_waits_until_every_dependency_is_completed(board: TaskBoard) -> None:
    board.add("a", id="a")
    board.add("b", id="b")
    board.add("c", ["a", "b"], 99, id="c")
    assert take(board).id == "a"
    assert take(board).id == "b"
    assert board.claim(ANN) is None
    board.complete("a")
    assert board.claim(ANN) is None
    board.complete("b")
    assert take(board).id == "c"


def test_a_dependency_that_is_completed_already_does_not_delay(board: TaskBoard) -> None:
    board.add("a", id="a")
    board.complete("a")
    board.add("b", ["a"], id="b")
    assert take(board).id == "b"


def test_the_same_dependency_named_twice_counts_once(board: TaskBoard) -> None:
    board.add("a", id="a")
    board.add("b", ["a", "a"], id="b")
    board.complete("a")
    assert board.get("b").depends_on == ["a"]
    assert take(board).id == "b"


@pytest.mark.needs("reviews")
def test_a_task_in_review_is_not_yet_completed(board: TaskBoard, home: Home) -> None:
    board.add("a", id="a", review=True)
    board.add("b", ["a"], id="b")
    take(board, ANN).complete("done")
    if home.reviews_all:
        # Document 000 lets work go on that builds on what is done; integrating it is somebody else's business.
        assert take(board, BEN).id == "b"
        return
    assert board.claim(BEN) is None
    board.accept("a", worker=EVE)
    assert take(board, BEN).id == "b"


def test_unknown_ids_are_refused(board: TaskBoard) -> None:
    with pytest.raises(NotFound, match="nowhere") as caught:
        board.add("x", ["nowhere"])
    assert caught.value.fields["task_id"] == "nowhere"
    assert board.status() == []


def test_tasks_of_one_call_may_depend_on_each_other_in_any_order(board: TaskBoard) -> None:
    board.add_many(
        [
            {"description": "last", "id": "c", "depends_on": ["b"]},
            {"description": "middle", "id": "b", "depends_on": ["a"]},
            {"description": "first", "id": "a"},
        ]
    )
    for expected in ("a", "b", "c"):
        task = take(board)
        assert task.id == expected
        task.complete()
    assert board.all_done


@pytest.mark.parametrize(
    "edges",
    [
        {"a": ["a"]},
        {"a": ["b"], "b": ["a"]},
        {"a": ["b"], "b": ["c"], "c": ["a"]},
        {"a": [], "b": ["a", "d"], "c": ["b"], "d": ["c"]},
    ],
)
def test_a_circle_within_one_call_is_refused_whole(board: TaskBoard, edges: dict[str, list[str]]) -> None:
    with pytest.raises(DependencyCycle):
        board.add_many([{"description": "x", "id": i, "depends_on": needs} for i, needs in edges.items()])
    assert board.status() == []


def test_dependencies_must_be_a_list_of_ids(board: TaskBoard) -> None:
    board.add("abc", id="abc")
    wrongs: list[Any] = ["abc", [1], ["../x"], [""], ["a b"], {"abc": 1}, 5, [["abc"]], [{}]]
    for wrong in wrongs:
        with pytest.raises(Invalid):
            board.add("x", wrong)
    assert len(board.status()) == 1


@pytest.mark.needs("failed tasks")
def test_a_failed_dependency_blocks_visibly_until_it_is_retried(board: TaskBoard) -> None:
    board.add("a", id="a")
    board.add("b", ["a"], id="b")
    take(board)
    board.fail("a", "boom")
    assert board.claim(ANN) is None
    assert "failed" in board.reasons("b")[0].text
    board.retry("a", worker=EVE)
    take(board, ANN, "a").complete()
    assert take(board).id == "b"


@pytest.mark.needs("cancelled tasks")
def test_so_does_a_cancelled_one(board: TaskBoard, home: Home) -> None:
    board.add("a", id="a")
    board.add("b", ["a"], id="b")
    board.cancel("a", worker=EVE)
    if home.skips:
        # Document 001 calls it skipped: work goes on without it.
        assert take(board, ANN).id == "b"
        return
    assert board.claim(ANN) is None
    assert "cancelled" in board.reasons("b")[0].text


class TestEdges:
    @pytest.mark.needs("failed tasks")
    def test_a_failed_dependency_can_be_dropped(self, board: TaskBoard) -> None:
        board.add("a", id="a")
        board.add("b", ["a"], id="b")
        board.fail("a", "boom")
        assert board.undepend("b", ["a"], worker=EVE).depends_on == []
        assert take(board).id == "b"

    @pytest.mark.needs("priorities")
    def test_an_edge_can_be_added_later(self, board: TaskBoard) -> None:
        board.add("a", id="a")
        board.add("b", id="b", priority=9)
        assert board.depend("b", ["a"], worker=EVE).depends_on == ["a"]
        assert take(board).id == "a"
        assert board.claim(ANN) is None
        board.complete("a")
        assert take(board).id == "b"

    def test_an_edge_that_exists_is_left_as_it_is(self, board: TaskBoard) -> None:
        board.add("a", id="a")
        board.add("b", ["a"], id="b")
        assert board.depend("b", ["a"], worker=EVE).depends_on == ["a"]
        board.complete("a")
        assert take(board).id == "b"

    def test_an_edge_to_a_completed_task_does_not_block(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        board.complete("a")
        board.depend("b", ["a"], worker=EVE)
        assert take(board).id == "b"

    def test_dropping_an_edge_to_a_completed_task_changes_nothing_else(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        board.add("c", ["a", "b"], id="c")
        board.complete("a")
        board.undepend("c", ["a"], worker=EVE)
        assert [reason.task_id for reason in board.reasons("c")] == ["b"]
        board.complete("b")
        assert take(board).id == "c"

    def test_an_edge_dropped_before_completion_counts_no_more(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        board.add("c", ["a", "b"], id="c")
        board.undepend("c", ["a"], worker=EVE)
        board.complete("a")
        assert {task.id for task in board.ready(ANN)} == {"b"}
        board.complete("b")
        assert take(board).id == "c"

    def test_an_edge_that_is_not_there_cannot_be_dropped(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        with pytest.raises(NotFound):
            board.undepend("b", ["a"], worker=EVE)

    def test_unknown_ids_are_refused(self, board: TaskBoard) -> None:
        board.add("a", id="a")
        with pytest.raises(NotFound):
            board.depend("a", ["nowhere"], worker=EVE)
        with pytest.raises(NotFound):
            board.depend("nowhere", ["a"], worker=EVE)

    def test_circles_are_refused_and_change_nothing(self, board: TaskBoard) -> None:
        board.add("a", id="a")
        board.add("b", ["a"], id="b")
        board.add("c", ["b"], id="c")
        for needs in (["a"], ["b"], ["c"]):
            with pytest.raises(DependencyCycle):
                board.depend("a", needs, worker=EVE)
        assert board.get("a").depends_on == []
        assert take(board).id == "a"

    def test_a_diamond_is_no_circle(self, board: TaskBoard) -> None:
        board.add("a", id="a")
        board.add("b", ["a"], id="b")
        board.add("c", ["a"], id="c")
        board.add("d", ["b", "c"], id="d")
        board.depend("d", ["a"], worker=EVE)
        assert board.get("d").depends_on == ["b", "c", "a"]

    def test_work_that_has_begun_gets_no_new_dependency(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        take(board, ANN, "b")
        with pytest.raises(WrongStatus):
            board.depend("b", ["a"], worker=EVE)
        board.complete("b")
        with pytest.raises(WrongStatus):
            board.depend("b", ["a"], worker=EVE)


DEPTH = 10_000


@pytest.mark.slow_on("workflow", "bilu", "workitems")
def test_a_chain_ten_thousand_deep_is_added_worked_on_and_closed_to_circles(board: TaskBoard, home: Home) -> None:
    depth = min(DEPTH, home.largest)
    chain = [{"description": "link", "id": f"n{i}", "depends_on": [f"n{i - 1}"] if i else []} for i in range(depth)]
    board.add_many(list(reversed(chain)))
    for i in range(50):
        task = take(board)
        assert task.id == f"n{i}"
        task.complete()
    assert [reason.task_id for reason in board.reasons(f"n{depth - 1}")] == [f"n{depth - 2}"]
    with pytest.raises(DependencyCycle):
        board.depend("n50", [f"n{depth - 1}"], worker=EVE)
    board.add("beside", id="beside")
    board.depend("beside", [f"n{depth - 1}"], worker=EVE)
    assert board.counts()[TaskStatus.PENDING] == depth - 50 + 1


def test_a_circle_ten_thousand_long_is_refused(board: TaskBoard) -> None:
    with pytest.raises(DependencyCycle):
        board.add_many(
            [{"description": "link", "id": f"n{i}", "depends_on": [f"n{(i - 1) % DEPTH}"]} for i in range(DEPTH)]
        )
    assert board.status() == []


@pytest.mark.slow_on("workflow", "bilu", "workitems")
def test_a_task_that_thousands_wait_for_frees_them_all(board: TaskBoard) -> None:
    board.add("root", id="root")
    board.add_many([{"description": "leaf", "depends_on": ["root"]} for _ in range(3000)])
    assert len(board.ready(ANN, limit=10)) == 1
    take(board).complete()
    assert len(board.ready(ANN, limit=3000)) == 3000
