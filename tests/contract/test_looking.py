"""Reading: document 004's status and counts, pages, prefixes, waiting."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import NotFound, TaskBoard, TaskStatus
from dibs.errors import AmbiguousId, DibsError, Invalid
from tests.clocks import START, HandClock
from tests.contract.people import ANN, EVE, take
from tests.contract.stores import Home

TEN_KEYS = [
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


def test_status_is_a_list_of_plain_dicts_in_order_of_creation(board: TaskBoard, home: Home, clock: HandClock) -> None:
    first = board.add("first")
    second = board.add("second", [first], home.priorities[-1])
    take(board, "worker-1")
    clock.advance(3)
    board.complete(first, "done")
    rows = board.status()
    assert [list(row) for row in rows] == [TEN_KEYS, TEN_KEYS]
    assert rows[0] == {
        "id": first,
        "description": "first",
        "status": "completed",
        "assigned_to": "worker-1",
        "depends_on": [],
        "result": "done",
        "priority": home.priority,
        "created_at": START,
        "claimed_at": START,
        "completed_at": START + 3,
    }
    assert (rows[1]["id"], rows[1]["depends_on"], rows[1]["priority"]) == (second, [first], home.priorities[-1])
    assert all(type(row["status"]) is str for row in rows)


def test_an_empty_board_has_no_status_and_is_not_done(board: TaskBoard) -> None:
    assert board.status() == []
    assert (board.pending_count, board.completed_count) == (0, 0)
    assert board.all_done is False


@pytest.mark.needs("cancelled tasks", "failed tasks", "reviews")
def test_counts_follow_every_status(board: TaskBoard) -> None:
    board.add_many([{"description": str(i), "id": f"t{i}", "review": i == 3} for i in range(6)])
    for i in range(1, 5):
        take(board, ANN, f"t{i}")
    board.complete("t2")
    board.complete("t3")
    board.fail("t4", "boom")
    board.cancel("t5", worker=EVE)
    assert board.counts() == dict.fromkeys(TaskStatus, 1)
    assert (board.pending_count, board.completed_count) == (1, 1)


@pytest.mark.needs("failed tasks", "reviews")
def test_all_done_means_nothing_pending_in_progress_or_in_review(board: TaskBoard) -> None:
    board.add("x", id="t1", review=True)
    assert not board.all_done
    take(board, ANN)
    assert not board.all_done
    board.complete("t1")
    assert not board.all_done
    board.accept("t1", worker=EVE)
    assert board.all_done
    board.add("y", id="t2")
    assert not board.all_done
    take(board, ANN).fail("boom")
    assert board.all_done


def test_another_view_of_the_board_sees_every_change_at_once(board: TaskBoard, other: TaskBoard) -> None:
    task_id = board.add("x")
    assert other.pending_count == 1
    take(other, ANN).complete("done")
    assert board.completed_count == 1
    assert board.get(task_id).result == "done"


class TestPages:
    @pytest.fixture
    def full(self, board: TaskBoard, clock: HandClock) -> TaskBoard:
        """One task of each sort, at different times."""
        for i, (name, priority) in enumerate(
            [("wait", 9), ("low", 1), ("high", 5), ("work", 0), ("done", 0), ("oops", 0), ("gone", 0)]
        ):
            depends_on = ["low"] if name == "again" else []
            board.add(f"task {name}", depends_on, priority, id=name, labels=["odd"] if i % 2 else ["even", "all"])
            clock.advance(1)
        board.add("task look", id="look", review=True, parent="high")
        board.depend("wait", ["low"], worker=EVE)
        for name in ("done", "oops", "look", "work"):
            take(board, ANN, name)
            clock.advance(1)
        board.complete("done")
        clock.advance(1)
        board.fail("oops", "boom")
        board.complete("look")
        board.cancel("gone", worker=EVE)
        return board

    @pytest.mark.needs("labels", "priorities")
    def test_the_order_is_that_in_which_people_look(self, full: TaskBoard) -> None:
        found, total = full.tasks()
        assert [task.id for task in found] == ["work", "look", "high", "low", "wait", "done", "oops", "gone"]
        assert total == 8

    @pytest.mark.needs("labels", "priorities")
    def test_pages_join_without_gaps(self, full: TaskBoard) -> None:
        whole, _ = full.tasks()
        pages = [full.tasks(limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        assert [task for page, _ in pages for task in page] == whole
        assert {total for _, total in pages} == {8}

    def test_pages_join_without_gaps_when_everything_happened_at_once(self, board: TaskBoard) -> None:
        ids = board.add_many([{"description": "x"} for _ in range(12)])
        for task in board.claim(ANN, n=8):
            if task.id in ids[:4]:
                task.complete()
        seen = [task.id for offset in range(0, 12, 5) for task in board.tasks(limit=5, offset=offset)[0]]
        assert sorted(seen) == sorted(ids)

    @pytest.mark.needs("labels", "priorities")
    @pytest.mark.parametrize(
        ("statuses", "ids"),
        [
            (["pending"], ["high", "low", "wait"]),
            ([TaskStatus.COMPLETED, "failed"], ["done", "oops"]),
            (["review", "in_progress"], ["work", "look"]),
            (["cancelled"], ["gone"]),
            ([], []),
        ],
    )
    def test_statuses_can_be_chosen(self, full: TaskBoard, statuses: list[str], ids: list[str]) -> None:
        found, total = full.tasks(statuses)
        assert ([task.id for task in found], total) == (ids, len(ids))

    @pytest.mark.needs("cancelled tasks", "failed tasks", "labels", "parents", "priorities", "reviews")
    def test_words_and_no_limit_as_on_the_command_line(self, full: TaskBoard) -> None:
        assert [task.id for task in full.tasks(["done"])[0]] == ["done"]
        assert [task.id for task in full.tasks(["open"], limit=0)[0]] == ["work", "look", "high", "low", "wait"]
        assert [task.id for task in full.tasks(["closed", "In-Progress"])[0]] == ["work", "done", "oops", "gone"]
        assert len(full.tasks(["all"], limit=0)[0]) == full.tasks()[1] == 8
        for statuses in (["finished"], ["ready"], "done", [5], 5):
            with pytest.raises(Invalid):
                full.tasks(statuses)  # type: ignore[arg-type]

    @pytest.mark.needs("labels", "parents", "priorities")
    def test_labels_holders_parents_and_words_can_be_asked_for(self, full: TaskBoard) -> None:
        assert {task.id for task in full.tasks(label="odd")[0]} == {"low", "work", "oops"}
        assert {task.id for task in full.tasks(label="eve")[0]} == set()
        assert {task.id for task in full.tasks(["in_progress"], assigned_to="ann")[0]} == {"work"}
        assert [task.id for task in full.tasks(parent="high")[0]] == ["look"]
        assert [task.id for task in full.tasks(search="TASK HI")[0]] == ["high"]
        assert full.tasks(search="%", label="odd") == ([], 0)
        found, total = full.tasks(label="even", limit=1)
        assert (len(found), total) == (1, 4)

    def test_words_are_found_whatever_their_case_in_any_language(self, board: TaskBoard) -> None:
        board.add("Äpfel pflücken", id="t1")
        assert [task.id for task in board.tasks(search="äpfel")[0]] == ["t1"]
        assert [task.id for task in board.tasks(search="PFLÜCKEN")[0]] == ["t1"]

    @pytest.mark.needs("labels", "priorities")
    @pytest.mark.parametrize("wrong", [{"limit": -1}, {"offset": -1}, {"limit": "x"}])
    def test_a_page_that_makes_no_sense_is_refused(self, full: TaskBoard, wrong: dict[str, Any]) -> None:
        with pytest.raises(Invalid):
            full.tasks(**wrong)

    @pytest.mark.needs("labels", "priorities")
    def test_a_status_that_there_is_not_is_refused(self, full: TaskBoard) -> None:
        with pytest.raises(ValueError, match="blocked"):
            full.tasks(["blocked"])


class TestPrefixes:
    def test_a_unique_prefix_stands_for_its_id(self, board: TaskBoard) -> None:
        board.add_many([{"description": "x", "id": i} for i in ("abc1", "abd2", "xyz", "xyz.1", "_", "A")])
        assert board.resolve("abc") == "abc1"
        assert board.resolve("abc1") == "abc1"
        assert board.resolve("xyz") == "xyz"
        assert board.resolve("xyz.") == "xyz.1"
        assert board.resolve("A") == "A"

    def test_a_prefix_of_several_names_them(self, board: TaskBoard) -> None:
        board.add_many([{"description": "x", "id": f"ab{i}"} for i in range(9)])
        with pytest.raises(AmbiguousId, match="ab0") as caught:
            board.resolve("ab")
        assert isinstance(caught.value, LookupError)

    def test_a_prefix_of_nothing_is_not_found(self, board: TaskBoard) -> None:
        board.add("x", id="abc")
        for prefix in ("abcd", "b", "ABC"):
            with pytest.raises(NotFound):
                board.resolve(prefix)


@pytest.mark.parametrize("look", ["get", "reasons"])
def test_looking_at_what_is_not_there_is_not_found(board: TaskBoard, look: str) -> None:
    for task_id in ("nowhere", "", "../x", "\ud800", "a\0"):
        with pytest.raises(DibsError):
            getattr(board, look)(task_id)
