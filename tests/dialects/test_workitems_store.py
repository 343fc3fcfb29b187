"""Work items on the disk: dibs beside workers that follow document 001 by hand, and crashes between its steps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import TaskBoard, TaskStatus, Worker
from dibs.dialects import workitems, workitems_locks, workitems_pivot
from dibs.errors import Busy, Invalid, LeaseLost, NoBoard, NotClaimable, WrongStatus
from tests.clocks import START, HandClock

ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s1")
EVE = Worker("eve", "human", session="s1")

PROGRESS = """\
# kept by hand; comments stay
schema_version: 2
version: 7
last_modified: "2023-11-01T00:00:00Z"
last_modified_by: hand
work_item_id: {id}
title: Search            # a title
type: feature
status: planning
created: "2023-11-01T00:00:00Z"
updated: "2023-11-01T00:00:00Z"
owner: somebody-else     # not in the document
activities:
  - id: {id}-A1
    title: Build the index
    status: pending      # first
    actor: agent
    depends_on: []
    completed_by: null
    completed_at: null
    tasks:
      - {{id: {id}-A1-T1, title: read, status: completed, completed_by: hand, completed_at: null}}
      - id: {id}-A1-T2
        title: write
        status: pending
        completed_by: null
        completed_at: null
  - id: {id}-A2
    title: Review it
    status: pending
    actor: human
    depends_on: [{id}-A1]
    completed_by: null
    completed_at: null
blockers: []
artifacts: {{}}
"""


def make(folder: Path, name: str = "WI-001-search") -> Path:
    item = folder / name
    (item / "locks").mkdir(parents=True)
    (item / "progress.yaml").write_text(PROGRESS.format(id=name[:6]))
    return item


def opened(folder: Path, clock: HandClock) -> TaskBoard:
    return TaskBoard.open(f"workitems:{folder}", durability="normal", clock=clock)


def hand_lock(item: Path, activity: str, holder: str = "hand", at: str = "22:13:20", ends: str = "23:13:20") -> Path:
    """As `set -o noclobber` or `open(path, "x")` make it. The clock of these tests starts at 22:13:20."""
    path = item / "locks" / f"{activity}.lock"
    record = {
        "holder": holder,
        "holder_type": "human",
        "acquired": f"2023-11-14T{at}Z",
        "expires": f"2023-11-14T{ends}Z",
    }
    with path.open("x") as file:
        json.dump(record | {"task_id": None, "task_acquired": None, "task_expires": None}, file)
    return path


def lock_of(item: Path, activity: str) -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads((item / "locks" / f"{activity}.lock").read_text())
    return found


def logged(item: Path) -> list[str]:
    return [json.loads(line)["action"] for line in (item / "changelog.log").read_text().splitlines()]


def changed_lines(before: str, after: str) -> list[str]:
    return [new for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new]


def test_a_claim_makes_the_lock_sets_the_status_and_logs(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    before = (item / "progress.yaml").read_text()
    os.chmod(item / "progress.yaml", 0o640)
    task = opened(tmp_path, clock).claim(ANN)
    assert task is not None
    assert task.id == "WI-001-A1"
    assert lock_of(item, "WI-001-A1") == {
        "holder": "ann", "holder_type": "agent", "acquired": "2023-11-14T22:13:20Z", "expires": "2023-11-14T23:13:20Z",
        "task_id": None, "task_acquired": None, "task_expires": None,
    }  # fmt: skip
    assert changed_lines(before, (item / "progress.yaml").read_text()) == [
        "version: 8",
        'last_modified: "2023-11-14T22:13:20Z"',
        "last_modified_by: ann",
        "status: in_progress",
        'updated: "2023-11-14T22:13:20Z"',
        "    status: in_progress      # first",
    ]
    assert logged(item) == ["claimed_activity"]
    assert (item / "progress.yaml").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in (item / "locks").iterdir()) == ["WI-001-A1.lock"]


def test_steps_are_in_the_lock_while_they_are_worked_on_and_then_in_the_file(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.claim(ANN)
    text = (item / "progress.yaml").read_text()
    board.step("WI-001-A1", "start", worker=ANN)
    assert (item / "progress.yaml").read_text() == text
    assert lock_of(item, "WI-001-A1")["task_id"] == "WI-001-A1-T2"
    assert lock_of(item, "WI-001-A1")["task_expires"] == "2023-11-14T22:43:20Z"
    board.step("WI-001-A1", "done", "it was easy", worker=ANN)
    assert lock_of(item, "WI-001-A1")["task_id"] is None
    assert "notes: it was easy" in (item / "progress.yaml").read_text()
    assert [step.status for step in opened(tmp_path, clock).get("WI-001-A1").steps] == ["completed", "completed"]


def test_the_last_activity_makes_the_work_item_ready_for_review(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.claim(ANN)
    board.complete("WI-001-A1", "built", worker=ANN)
    assert not list((item / "locks").iterdir())
    assert board.claim(ANN) is None  # the other one is for a human
    board.claim(EVE)
    board.complete("WI-001-A2", worker=EVE)
    assert "status: review\n" in (item / "progress.yaml").read_text()
    assert logged(item) == ["claimed_activity", "completed_activity"] * 2


def test_a_live_lock_by_hand_is_a_claim(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    hand_lock(item, "WI-001-A1")
    board = opened(tmp_path, clock)
    task = board.get("WI-001-A1")
    assert (task.status, task.assigned_to, task.lease_expires_at) == (TaskStatus.IN_PROGRESS, "hand", START + 3600)
    assert task.holder is not None
    assert task.holder.kind == "human"
    assert board.claim(ANN) is None
    with pytest.raises(NotClaimable):
        board.claim(ANN, "WI-001-A1")
    assert logged_nothing(item)


def logged_nothing(item: Path) -> bool:
    return not (item / "changelog.log").exists()


def test_a_worker_by_hand_may_go_on_with_dibs_under_its_name(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    hand_lock(item, "WI-001-A1")
    board = opened(tmp_path, clock)
    board.step("WI-001-A1", "start", worker=Worker("hand", "human"))
    assert lock_of(item, "WI-001-A1")["task_id"] == "WI-001-A1-T2"
    assert lock_of(item, "WI-001-A1")["acquired"] == "2023-11-14T22:13:20Z"
    board.complete("WI-001-A1", worker=Worker("hand", "human"))
    assert not list((item / "locks").iterdir())


def test_an_expired_lock_is_recovered_and_the_next_holder_resumes(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    hand_lock(item, "WI-001-A1", at="20:00:00", ends="21:00:00")
    board = opened(tmp_path, clock)
    task = board.claim(ANN)
    assert task is not None
    assert logged(item) == ["recovered_activity", "claimed_activity"]
    assert lock_of(item, "WI-001-A1")["holder"] == "ann"
    assert board.step("WI-001-A1", "start", worker=ANN).steps[1].status == "in_progress"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"holder": "hand"}', b'{"holder": "hand", "expires": "soon"}'])
def test_a_lock_that_cannot_be_read_is_live(tmp_path: Path, clock: HandClock, content: bytes) -> None:
    item = make(tmp_path)
    (item / "locks" / "WI-001-A1.lock").write_bytes(content)
    clock.advance(10 * 86_400)
    board = opened(tmp_path, clock)
    assert board.claim(ANN) is None
    assert board.recover() == []
    assert (item / "locks" / "WI-001-A1.lock").read_bytes() == content


def test_a_lock_by_hand_that_came_first_is_found_out_and_nothing_stays(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.add("Something else", id="WI-001-A3")
    real = workitems_locks.create

    def late(path: str, data: bytes, durable: bool) -> bool:
        if path.endswith("A1.lock") and not os.path.exists(path):
            hand_lock(item, "WI-001-A1")
        return real(path, data, durable)

    monkeypatch.setattr(workitems, "create", late)
    task = board.claim(ANN)
    assert task is not None
    assert task.id == "WI-001-A3"
    assert board.get("WI-001-A1").assigned_to == "hand"
    assert logged(item) == ["added_activity", "claimed_activity"]


def test_of_several_claims_none_stays_when_one_is_raced(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.add("Something else", id="WI-001-A3")
    real = workitems_locks.create

    def late(path: str, data: bytes, durable: bool) -> bool:
        if path.endswith("A3.lock") and not os.path.exists(path):
            hand_lock(item, "WI-001-A3")
        return real(path, data, durable)

    monkeypatch.setattr(workitems, "create", late)
    assert [task.id for task in board.claim(ANN, n=2)] == ["WI-001-A1"]
    assert board.get("WI-001-A3").assigned_to == "hand"


def test_what_others_wrote_about_other_activities_stays(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    real = workitems.WorkItemsStore._encode

    def meanwhile(store: workitems.WorkItemsStore, tx: object) -> object:
        text = (item / "progress.yaml").read_text()
        (item / "progress.yaml").write_text(text.replace("title: Review it", "title: Review all").replace("7", "8"))
        return real(store, tx)  # type: ignore[arg-type]

    monkeypatch.setattr(workitems.WorkItemsStore, "_encode", meanwhile)
    assert board.claim(ANN) is not None
    assert "title: Review all" in (item / "progress.yaml").read_text()
    assert "version: 9" in (item / "progress.yaml").read_text()
    monkeypatch.undo()
    assert board.get("WI-001-A2").description == "Review all"


def test_an_activity_that_was_finished_meanwhile_is_not_claimed(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    real = workitems.WorkItemsStore._encode

    def meanwhile(store: workitems.WorkItemsStore, tx: object) -> object:
        text = (item / "progress.yaml").read_text()
        (item / "progress.yaml").write_text(text.replace("status: pending      # first", "status: completed      # 1"))
        return real(store, tx)  # type: ignore[arg-type]

    monkeypatch.setattr(workitems.WorkItemsStore, "_encode", meanwhile)
    assert board.claim(ANN) is None
    assert not list((item / "locks").iterdir())


def test_a_holder_whose_lock_was_replaced_writes_nothing(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    task = board.claim(ANN)
    assert task is not None
    (item / "locks" / "WI-001-A1.lock").unlink()
    hand_lock(item, "WI-001-A1", at="22:13:25")
    text = (item / "progress.yaml").read_text()
    with pytest.raises(LeaseLost):
        task.complete("late")
    assert (item / "progress.yaml").read_text() == text
    assert lock_of(item, "WI-001-A1")["holder"] == "hand"


class Killed(BaseException):
    pass


def dies(*_: object, **__: object) -> None:
    raise Killed


CUTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the lock": lambda patch: patch.setattr(workitems, "create", dies),
    "before the file": lambda patch: patch.setattr("dibs.fs.replace_file", dying("progress.yaml")),
    "before the changelog": lambda patch: patch.setattr("dibs.dialects.workitems_log.changelog_lines.append", dies),
}


def dying(name: str) -> Callable[..., None]:
    from dibs import fs

    real = fs.replace_file

    def replace(path: str, *rest: object, **more: object) -> None:
        if os.path.basename(path) == name:
            raise Killed
        real(path, *rest, **more)  # type: ignore[arg-type]

    return replace


def killed_in(board: TaskBoard, patch: pytest.MonkeyPatch, where: str, verb: Callable[[], object]) -> None:
    """As SIGKILL leaves it: nothing is given back by whoever died, the kernel ends its locks."""
    with patch.context() as inner:
        CUTS[where](inner)
        inner.setattr(workitems, "take_away", lambda *_: True)
        inner.setattr("dibs.dialects.workitems_locks.take_away", lambda *_: True)
        inner.setattr("dibs.dialects.workitems_locks.BoardGuard._clear_note", lambda _: None)
        with pytest.raises(Killed):
            verb()


@pytest.mark.parametrize("where", CUTS)
def test_a_claim_that_dies_between_its_steps_is_made_or_not_made(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    killed_in(board, monkeypatch, where, lambda: board.claim(ANN))
    other = opened(tmp_path, clock)
    made = where != "before the lock"
    assert (other.get("WI-001-A1").assigned_to == "ann") is made
    other.add("Another", id="WI-001-A3")  # any write finishes what was begun, and waits for nobody
    assert (other.get("WI-001-A1").assigned_to == "ann") is made
    assert logged(item) == ["claimed_activity"] * made + ["added_activity"]
    assert ("status: in_progress      # first" in (item / "progress.yaml").read_text()) is made
    assert sorted(p.name for p in (item / "locks").iterdir()) == ["WI-001-A1.lock"] * made


@pytest.mark.parametrize("where", ["before the file", "before the changelog"])
def test_a_finish_that_dies_between_its_steps_is_done_or_not_done(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.claim(ANN)
    killed_in(board, monkeypatch, where, lambda: board.complete("WI-001-A1", worker=ANN))
    other = opened(tmp_path, clock)
    done = where != "before the file"
    assert (other.get("WI-001-A1").status is TaskStatus.COMPLETED) is done
    other.add("Another", id="WI-001-A3")
    assert logged(item) == ["claimed_activity", *["completed_activity"] * done, "added_activity"]
    assert other.get("WI-001-A1").status is (TaskStatus.COMPLETED if done else TaskStatus.IN_PROGRESS)


def test_a_lock_that_a_hand_has_removed_is_not_made_again_for_a_claim_that_died(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    killed_in(opened(tmp_path, clock), monkeypatch, "before the changelog", lambda: opened(tmp_path, clock).claim(ANN))
    (item / "locks" / "WI-001-A1.lock").unlink()
    other = opened(tmp_path, clock)
    other.add("Another", id="WI-001-A3")
    assert list((item / "locks").iterdir()) == []
    assert other.get("WI-001-A1").status is TaskStatus.PENDING
    assert logged(item) == ["added_activity"]
    taken = other.claim(BEN)
    assert taken is not None
    assert taken.id == "WI-001-A1"


def test_a_finish_that_died_before_its_file_is_not_made_when_a_hand_has_removed_the_lock(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.claim(ANN)
    killed_in(board, monkeypatch, "before the file", lambda: board.complete("WI-001-A1", worker=ANN))
    (item / "locks" / "WI-001-A1.lock").unlink()
    other = opened(tmp_path, clock)
    other.add("Another", id="WI-001-A3")
    assert other.get("WI-001-A1").status is TaskStatus.PENDING
    assert logged(item) == ["claimed_activity", "added_activity"]


def test_a_lock_left_on_a_finished_activity_goes_when_it_has_ended(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    text = (item / "progress.yaml").read_text()
    (item / "progress.yaml").write_text(text.replace("status: pending      # first", "status: completed"))
    lock = hand_lock(item, "WI-001-A1")
    board = opened(tmp_path, clock)
    board.claim(EVE, "WI-001-A2")
    assert lock.exists()
    clock.advance(4000)
    board.release("WI-001-A2", worker=EVE)
    assert not lock.exists()


def test_a_dead_writers_lock_of_the_work_item_ends_after_a_minute(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    hand_lock(item, "WI-001", at="22:00:00", ends="22:01:00")
    assert opened(tmp_path, clock).claim(ANN) is not None
    assert not (item / "locks" / "WI-001.lock").exists()


def test_a_live_one_is_waited_for_and_then_named(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = make(tmp_path)
    hand_lock(item, "WI-001")
    monkeypatch.setattr("dibs.dialects.workitems_locks.PATIENCE", 0.05)
    with pytest.raises(Busy, match="lock busy"):
        opened(tmp_path, clock).claim(ANN)
    assert sorted(p.name for p in (item / "locks").iterdir()) == ["WI-001.lock"]


def test_a_blocker_is_recorded_and_gives_the_lock_back(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.claim(ANN)
    board.block("WI-001-A1", "no password", worker=ANN)
    text = (item / "progress.yaml").read_text()
    assert "status: blocked      # first" in text
    assert "id: WI-001-A1-B1" in text
    assert "description: no password" in text
    assert not list((item / "locks").iterdir())
    board.unblock("WI-001-A1", "it is on the wiki", worker=EVE)
    assert "resolution: it is on the wiki" in (item / "progress.yaml").read_text()
    assert logged(item) == ["claimed_activity", "blocked", "unblocked"]
    assert opened(tmp_path, clock).claim(ANN) is not None


@pytest.mark.parametrize("word", ["blocked", "awaiting_human", "parked"])
def test_a_status_by_hand_that_says_wait_is_a_blocker(tmp_path: Path, clock: HandClock, word: str) -> None:
    item = make(tmp_path)
    text = (item / "progress.yaml").read_text()
    (item / "progress.yaml").write_text(text.replace("status: pending      # first", f"status: {word}"))
    board = opened(tmp_path, clock)
    assert board.claim(ANN) is None
    assert [reason.code for reason in board.reasons("WI-001-A1")] == ["blocker"]
    board.unblock("WI-001-A1", worker=EVE)
    assert board.get("WI-001-A1").blockers == []
    assert opened(tmp_path, clock).claim(ANN) is not None


def test_two_work_items_under_one_root_are_one_board(tmp_path: Path, clock: HandClock) -> None:
    first, second = make(tmp_path), make(tmp_path, "WI-002-sort")
    board = opened(tmp_path, clock)
    assert [task.id for task in board.claim(ANN, n=5)] == ["WI-001-A1", "WI-002-A1"]
    with pytest.raises(Invalid, match="several work items"):
        board.add("more")
    assert board.add("more", parent="WI-001") == "WI-001-A3"
    board.tell("hello", worker=ANN)
    with (second / "changelog.log").open("a") as file:
        line = {"timestamp": "2023-11-14T22:13:21Z", "worker": "hand", "worker_type": "human", "action": "unblocked"}
        file.write(json.dumps(line) + "\n")
    events = list(board.changelog())
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert events[-1].worker == "hand"
    board.complete("WI-002-A1", worker=ANN)
    assert [event.seq for event in opened(tmp_path, clock).changelog()] == [1, 2, 3, 4, 5, 6]
    assert list(opened(tmp_path, clock).changelog())[:5] == events
    assert logged(first) == ["claimed_activity", "added_activity"]
    assert logged(second) == ["claimed_activity", "unblocked", "completed_activity"]
    assert [task.id for task in opened(tmp_path, clock).ready(ANN, limit=9)] == ["WI-001-A3"]


def test_one_work_items_folder_is_a_board_too(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    board = opened(item, clock)
    board.claim(ANN)
    board.tell("hello", worker=ANN)
    assert [event.seq for event in board.changelog()] == [1, 2]
    assert logged(item) == ["claimed_activity", "sent_message"]


def test_a_board_is_made(tmp_path: Path, clock: HandClock) -> None:
    with pytest.raises(NoBoard):
        opened(tmp_path / "none", clock)
    TaskBoard.open(f"workitems:{tmp_path / 'My plan'}", create=True, clock=clock).add("first")
    item = tmp_path / "My plan" / "WI-001-my-plan"
    assert logged(item) == ["work_item_created", "added_activity"]
    TaskBoard.open(f"workitems:{tmp_path / 'WI-007-search'}", create=True, clock=clock)
    assert "work_item_id: WI-007" in (tmp_path / "WI-007-search" / "progress.yaml").read_text()


def test_a_pivot_resets_what_was_done(tmp_path: Path, clock: HandClock) -> None:
    item = make(tmp_path)
    board = opened(tmp_path, clock)
    board.claim(ANN)
    board.complete("WI-001-A1", worker=ANN)
    with pytest.raises(WrongStatus):
        workitems_pivot.reset(board, "WI-001-A1", worker=EVE)
    workitems_pivot.start(board, "WI-001", "another plan", worker=EVE)
    assert "\nstatus: planning\n" in (item / "progress.yaml").read_text()
    with pytest.raises(WrongStatus):
        workitems_pivot.start(board, "WI-001", worker=EVE)
    task = workitems_pivot.reset(board, "WI-001-A1", worker=EVE)
    assert (task.status, [step.status for step in task.steps]) == (TaskStatus.PENDING, ["pending", "pending"])
    workitems_pivot.done(board, "WI-001", worker=EVE)
    assert "\nstatus: in_progress\n" in (item / "progress.yaml").read_text()
    assert logged(item)[2:] == ["pivot_started", "reset_activity", "pivot_completed"]
    again = opened(tmp_path, clock).claim(ANN)
    assert again is not None
    assert again.id == "WI-001-A1"
    with pytest.raises(WrongStatus):
        workitems_pivot.done(board, "WI-001", worker=EVE)
