"""Copying a board from any store into any other: what comes along, what does not, and that the report says so.

Another kind of board joins by adding its name to `KINDS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, Worker
from dibs.board.task_board import begin_changelog
from dibs.cli.audit import disagreements
from dibs.copying import Report, copy, is_same, rehearse
from dibs.errors import DependencyCycle, DibsError, Invalid, Unsupported
from dibs.transfer import dump, load

KINDS = ("memory", "sqlite", "taskboard", "workflow", "bilu")
ROWS = ("memory", "sqlite")
ANN = Worker("ann", session="s1")
BEN = Worker("ben", "human", session="s2")
FIELDS = (
    "description", "status", "assigned_to", "result", "priority", "paths", "labels", "steps", "blockers", "reserved",
    "max_attempts", "attempts", "created_by",
)  # fmt: skip
TIMES = ("created_at", "claimed_at", "completed_at")


def url_of(kind: str, folder: Path) -> str:
    places = {"sqlite": "board.db", "workflow": ".workflow"}
    return f"{kind}:{folder / places.get(kind, kind)}" if kind != "memory" else "memory:"


def new_board(kind: str, folder: Path) -> TaskBoard:
    folder.mkdir(exist_ok=True)
    return TaskBoard.open(url_of(kind, folder), create=True, worker="planner-1", durability="normal")


def attempt(act: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a board can do, done; what it cannot, not."""
    try:
        return act(*args, **options)
    except Unsupported:
        return None


def furnish(board: TaskBoard) -> None:
    """A bit of everything that this kind of board can hold."""
    first = board.add("Set up the schema\n\nThree tables and an index.")
    second = board.add("Write the endpoint", depends_on=[first])
    third = board.add("größer als ☀")
    board.add("Test it", depends_on=[second, third])
    board.claim(ANN, first)
    board.complete(first, "three tables", worker=ANN)
    attempt(board.accept, first, worker="integrator-1") if board.get(first).status == "review" else None
    board.claim(ANN, third, lease=1234.5)
    given_back = board.add("Given back once")
    board.claim(BEN, given_back)
    board.release(given_back, worker=BEN)
    for fields in (
        {"priority": -7}, {"priority": 2**31 - 1}, {"labels": ["früh", "später"]}, {"paths": ["src/**", "docs/ä.md"]},
        {"steps": ["eins", "zwei"]}, {"reserved": "human"}, {"max_attempts": 2}, {"parent": second}, {"review": True},
    ):  # fmt: skip
        attempt(board.add, f"with {fields}", **fields)
    locking = attempt(board.add, "holds files", paths=["lib/**"])
    if locking:
        board.claim(ANN, locking)
    handed_in = attempt(board.add, "handed in", review=True)
    if handed_in:
        board.claim(ANN, handed_in)
        board.complete(handed_in, "bitte prüfen", worker=ANN)
    for verb in (board.fail, board.cancel, board.block):
        task_id = board.add(f"to {verb.__name__}")
        if verb == board.fail:
            board.claim(ANN, task_id)
        attempt(verb, task_id, "no longer", worker=ANN)
    attempt(board.lock, ["README.md"], ANN)
    board.tell("hallo ☎", "ben", worker=ANN)


def tasks_of(board: TaskBoard) -> dict[str, BoardTask]:
    with board.store.read() as tx:
        return {task.id: task for task in tx.all_tasks()}


def told(report: Report) -> set[str]:
    return {task_id for ids in report.left_out.values() for task_id in ids}


def reopened(board: TaskBoard) -> TaskBoard:
    """The board as another process would see it."""
    return board if board.url == "memory:" else TaskBoard.open(board.url)


@pytest.mark.parametrize(("source_kind", "target_kind"), list(itertools.product(KINDS, KINDS)))
def test_whatever_differs_after_a_copy_is_in_its_report(tmp_path: Path, source_kind: str, target_kind: str) -> None:
    source = new_board(source_kind, tmp_path / "source")
    if source_kind == "memory":
        begin_changelog(source.core)
    furnish(source)
    before = tasks_of(source)
    target = TaskBoard() if target_kind == "memory" else new_board(target_kind, tmp_path / "target")
    report = copy(source, target, BEN)
    after = tasks_of(reopened(target))
    assert tasks_of(source) == before
    assert len(after) == report.tasks > 4
    for task_id, task in before.items():
        found = after.get(report.renamed.get(task_id, task_id))
        if found is None:
            assert report.became["cancelled tasks"] == "left out whole"
            assert task_id in report.left_out["cancelled tasks"]
            continue
        different = [name for name in FIELDS if (getattr(task, name) or None) != (getattr(found, name) or None)]
        different += [name for name in TIMES if abs((getattr(task, name) or 0) - (getattr(found, name) or 0)) > 0.001]
        assert not different or task_id in told(report), (task, found, report.left_out)
        assert [report.renamed.get(need, need) for need in task.depends_on] == found.depends_on
        if task.status == "in_progress":
            assert found.status == "in_progress"
            assert found.holder == task.holder
    assert report.exact == (source_kind in ROWS and target_kind in ROWS)
    if report.exact:
        assert not report.left_out


@pytest.mark.parametrize(("source_kind", "target_kind"), list(itertools.product(KINDS, ROWS)))
def test_a_copied_board_is_what_its_changelog_says_and_can_be_exported(
    tmp_path: Path, source_kind: str, target_kind: str
) -> None:
    source = new_board(source_kind, tmp_path / "source")
    if source_kind == "memory":
        begin_changelog(source.core)
    furnish(source)
    target = TaskBoard() if target_kind == "memory" else new_board(target_kind, tmp_path / "target")
    copy(source, target, BEN)
    assert disagreements(target) == []
    assert load(TaskBoard(), dump(target)) == len(tasks_of(target))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_a_live_claim_goes_on_after_the_copy(tmp_path: Path, kind: str) -> None:
    source = TaskBoard()
    for _ in range(3):
        source.add("work")
    claimed = source.claim(ANN)
    assert claimed is not None
    target = new_board(kind, tmp_path / "target")
    report = copy(source, target, BEN) if kind != "sqlite" else copy_rows(source, tmp_path / "rows")
    board = reopened(target) if kind != "sqlite" else TaskBoard.open(f"sqlite:{tmp_path / 'rows' / 'board.db'}")
    task_id = report.renamed.get(claimed.id, claimed.id)
    with pytest.raises(DibsError, match="held by ann"):
        board.complete(task_id, "not mine", worker=BEN)
    board.complete(task_id, "done", worker=ANN)
    other = board.claim(BEN)
    assert other is not None
    assert other.token is not None
    assert other.token > (board.get(task_id).token or 0)


def copy_rows(source: TaskBoard, folder: Path) -> Report:
    """Into a store without a first event, as the command makes it."""
    from dibs.address import open_store

    folder.mkdir()
    with TaskBoard(store=open_store(f"sqlite:{folder / 'board.db'}", create=True, durability="normal")) as target:
        return copy(source, target, BEN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_board_with_tasks_of_its_own_is_no_target(tmp_path: Path, kind: str) -> None:
    for other in KINDS:
        target = new_board(kind, tmp_path / f"target-{other}")
        target.add("mine")
        before = tasks_of(target)
        source = new_board(other, tmp_path / f"source-{other}")
        source.add("theirs")
        with pytest.raises(Invalid, match=r"tasks of its own.*nothing was copied"):
            copy(source, target, BEN)
        assert tasks_of(target) == before


def test_a_board_is_not_copied_onto_itself_by_whatever_name(tmp_path: Path) -> None:
    board = new_board("taskboard", tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "taskboard")
    other = TaskBoard.open(f"taskboard:{tmp_path / 'link'}")
    with pytest.raises(Invalid, match="the same board"):
        copy(board, other, ANN)
    assert is_same("workflow:/x/.workflow?pause=1", "workflow:/x/.workflow")
    assert not is_same("memory:", "memory:")


def test_work_in_review_is_completed_where_there_are_no_reviews(tmp_path: Path) -> None:
    source = TaskBoard()
    source.add("look at it", id="x", review=True)
    source.claim(ANN, "x")
    source.complete("x", "done", worker=ANN)
    target = new_board("taskboard", tmp_path)
    report = copy(source, target, BEN)
    assert target.get("x").status == "completed"
    assert report.left_out["reviews"] == ["x"]
    assert "cancelled tasks" not in report.left_out


def test_cancelled_work_never_comes_back_to_life(tmp_path: Path) -> None:
    source = TaskBoard()
    source.add("no longer wanted", id="dead")
    source.add("waits for it", id="waits", depends_on=["dead"])
    source.cancel("dead", "no longer", worker=BEN)
    failed = new_board("taskboard", tmp_path / "a")
    assert copy(source, failed, BEN).became == {"cancelled tasks": "failed"}
    assert failed.get("dead").status == "failed"
    without = new_board("workflow", tmp_path / "b")
    report = copy(source, without, BEN)
    assert report.left_out["cancelled tasks"] == ["dead"]
    assert report.tasks == 1
    assert without.get("waits").depends_on == ["dead"]  # so it stays where it is: waiting
    assert without.claim(ANN) is None


def test_a_failed_task_is_put_back_where_nothing_fails(tmp_path: Path) -> None:
    source = TaskBoard()
    source.add("too hard", id="x")
    source.claim(ANN, "x")
    source.fail("x", "cannot", worker=ANN)
    target = new_board("workflow", tmp_path)
    assert copy(source, target, BEN).became == {"failed tasks": "pending"}
    task = target.get("x")
    assert (task.status, task.assigned_to, task.claimed_at, task.completed_at) == ("pending", None, None, None)


def by_hand(folder: Path, tasks: str) -> TaskBoard:
    folder.mkdir(exist_ok=True)
    (folder / "taskboard.json").write_text('{"tasks": [' + tasks + "]}")
    return TaskBoard.open(f"taskboard:{folder}")


def test_what_only_a_hand_could_write_is_told_and_left_out(tmp_path: Path) -> None:
    source = by_hand(
        tmp_path,
        '{"id": "a b", "description": "odd id"},'
        '{"id": "c", "description": "x", "depends_on": ["a b", "nowhere"], "priority": 99999999999}',
    )
    target = TaskBoard()
    report = copy(source, target, BEN)
    (fresh,) = report.renamed.values()
    assert list(report.renamed) == ["a b"]
    assert target.get("c").depends_on == [fresh]
    assert report.left_out["dependencies on tasks that are not there"] == ["c"]
    assert report.left_out["priorities beyond 2,147,483,647"] == ["c"]
    assert disagreements(target) == []


def test_a_circle_written_by_hand_is_refused_and_nothing_is_copied(tmp_path: Path) -> None:
    source = by_hand(tmp_path, '{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}')
    target = TaskBoard()
    with pytest.raises(DependencyCycle, match="nothing was copied"):
        copy(source, target, BEN)
    assert sum(target.counts().values()) == 0


def test_a_hand_made_claim_stays_with_its_holder(tmp_path: Path) -> None:
    source = by_hand(
        tmp_path, '{"id": "a", "status": "in_progress", "assigned_to": "zoe", "claimed_at": 1700000000.25}'
    )
    target = TaskBoard()
    copy(source, target, BEN)
    task = target.get("a")
    assert (task.status, task.assigned_to, task.claimed_at) == ("in_progress", "zoe", 1700000000.25)
    assert target.claim(ANN) is None


def test_ids_that_the_target_gives_itself_never_meet_those_that_came_along(tmp_path: Path) -> None:
    from dibs.copying import _rename

    tasks = [BoardTask("T-1", "kept"), BoardTask("odd", "renamed", depends_on=["T-1"])]
    report = Report()
    _rename(tasks, lambda i: i.startswith("T-"), lambda some: [f"T-{n}" for n, _ in enumerate(some, 1)], report)
    assert [task.id for task in tasks] == ["T-1", "T-2"]
    assert tasks[1].depends_on == ["T-1"]
    assert report.renamed == {"odd": "T-2"}


def test_a_rehearsal_raises_what_the_copy_would_and_makes_nothing(tmp_path: Path) -> None:
    source = by_hand(tmp_path / "hand", '{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}')
    for kind in KINDS:
        with pytest.raises(DependencyCycle):
            rehearse(source, url_of(kind, tmp_path / "new"), BEN)
    rehearse(TaskBoard(), url_of("workflow", tmp_path / "new"), BEN)
    assert not (tmp_path / "new").exists()


def test_a_board_that_keeps_no_list_of_tasks_takes_those_that_somebody_holds(tmp_path: Path) -> None:
    source = TaskBoard()
    source.add("somebody's", id="held")
    source.add("nobody's", id="free")
    source.claim(ANN, "held")
    target = new_board("spec", tmp_path)
    report = copy(source, target, BEN)
    assert report.tasks == 1
    assert report.left_out["whole tasks"] == ["free"]
    assert [task.id for task in target.tasks(["in_progress"])[0]] == ["held"]


def test_claims_keep_their_times_whatever_the_order_of_the_tasks(tmp_path: Path) -> None:
    source = by_hand(
        tmp_path,
        '{"id": "a", "status": "in_progress", "assigned_to": "zoe", "claimed_at": 1700000500.25},'
        '{"id": "b", "status": "in_progress", "assigned_to": "yan", "claimed_at": 1700000000.5},'
        '{"id": "c", "status": "in_progress", "assigned_to": "xia", "claimed_at": 1700000000.5}',
    )
    for kind in ("taskboard", "workflow"):
        target = new_board(kind, tmp_path / kind)
        report = copy(source, target, BEN)
        times = [task.claimed_at for task in tasks_of(reopened(target)).values()]
        assert times == pytest.approx([1700000500.25, 1700000000.5, 1700000000.5], abs=0.001)
        assert "times of claims" not in report.left_out
