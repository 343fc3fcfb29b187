"""What all boards in documents' files share: the companion, the note of a write, the changelog, crashes at any step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import TaskBoard, TaskStatus, Worker, fs
from dibs.dialects.companion import Companion
from dibs.dialects.filestore import FileStore
from dibs.errors import BoardUnusable, DibsError, LeaseLost, NotClaimable, OutcomeUnknown
from tests.clocks import START, HandClock

ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s2")


class Killed(BaseException):
    """The process is gone: nothing after this point happens."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "board"


def opened(folder: Path, clock: HandClock | None = None) -> TaskBoard:
    return TaskBoard.open(f"taskboard:{folder}", create=True, durability="normal", clock=clock)


@pytest.fixture
def board(folder: Path, clock: HandClock) -> TaskBoard:
    return opened(folder, clock)


def companion(folder: Path) -> Path:
    return folder / ".dibs" / "claims.json"


def actions(board: TaskBoard, task_id: str | None = None) -> list[str]:
    return [event.action for event in board.recent(1000, task_id)]


def by_hand(folder: Path, task_id: str, **fields: Any) -> None:
    path = folder / "taskboard.json"
    document = json.loads(path.read_bytes())
    for row in document["tasks"]:
        if row["id"] == task_id:
            row.update(fields)
    path.write_text(json.dumps(document, indent=2))


class TestTheCompanion:
    @pytest.mark.parametrize(
        "accident",
        [
            lambda path: path.unlink(),
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(b"\xff\x00garbage"),
            lambda path: path.write_bytes(b"[" * 100_000),
            lambda path: path.write_text('{"claims": {"a": 7}}'),
            lambda path: path.write_text('{"claims": 1, "marks": {"x": 1e999}}'),
            lambda path: path.write_text('{"marks": {"x": 1e999}}'),
            lambda path: path.write_text('{"redo": {"lines": [1], "at": 0, "files": []}}'),
            lambda path: path.write_text('{"redo": {"lines": ["x"], "at": 0, "files": [{"path": "taskboard.json"}]}}'),
            lambda path: path.write_text('{"redo": {"lines": ["x"], "at": 1e999, "files": [{}]}}'),
            lambda path: path.write_text('{"redo": "yes"}'),
            lambda path: (path.unlink(), path.mkdir()),
            lambda path: (path.unlink(), path.symlink_to("elsewhere.json")),
            lambda path: shutil.rmtree(path.parent),
        ],
        ids=range(14),
    )  # fmt: skip
    def test_losing_it_loses_no_claim_and_no_task(
        self, board: TaskBoard, folder: Path, clock: HandClock, accident: Callable[[Path], object]
    ) -> None:
        board.add("x", id="a")
        board.add("y", id="b")
        task = board.claim(ANN, "a")
        assert task is not None
        accident(companion(folder))
        for each in (board, opened(folder, clock)) if not companion(folder).is_dir() else (board,):
            assert each.get("a").assigned_to == "ann"
            assert each.get("a").token == task.token
        if companion(folder).is_dir():
            before = (folder / "taskboard.json").read_bytes()
            with pytest.raises(BoardUnusable, match=r"claims\.json: Is a directory; nothing was changed"):
                board.claim(BEN)
            assert (folder / "taskboard.json").read_bytes() == before
            return
        assert board.claim(BEN, "b") is not None
        board.complete("a", "done", worker=ANN, token=task.token)
        assert opened(folder, clock).get("a").status is TaskStatus.COMPLETED

    def test_a_foreign_one_changes_nothing_that_the_file_says(
        self, board: TaskBoard, folder: Path, tmp_path: Path, clock: HandClock
    ) -> None:
        other = opened(tmp_path / "other", clock)
        for each in (board, other):
            each.add("x", id="a")
        other.claim(BEN, "a")
        companion(folder).write_bytes(companion(tmp_path / "other").read_bytes())
        assert board.get("a").status is TaskStatus.PENDING
        task = board.claim(ANN, "a")
        assert task is not None
        assert opened(folder, clock).get("a").assigned_to == "ann"

    @given(
        entry=st.fixed_dictionaries(
            {},
            optional={
                key: st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just({"name": 5})
                | st.just({"name": "ann", "pid": 10**30, "boot": "x"}) | st.just({"name": "ann"})
                for key in ("token", "by", "attempts", "worker", "lease", "expires")
            },
        ),
        right=st.booleans(),
    )  # fmt: skip
    def test_entries_that_make_no_sense_do_not_count(self, entry: dict[str, Any], right: bool) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if right:
                entry |= {"token": int(START * 1e6), "by": "ann"}
            rows = [{"id": "a", "status": "in_progress", "assigned_to": "ann", "claimed_at": START}, {"id": "b"}]
            (folder / "taskboard.json").write_text(json.dumps({"tasks": rows}))
            (folder / ".dibs").mkdir()
            document = {"claims": {"a": entry, "b": entry}, "redo": None, "marks": {}, "requests": {}}
            companion(folder).write_text(json.dumps(document))
            board = opened(folder, HandClock())
            assert board.get("a").assigned_to == "ann"
            assert board.tasks()[1] == 2
            board.claim(BEN)
            board.release_agent_tasks("ann")
            assert board.get("a").status is TaskStatus.PENDING

    @given(data=st.binary(max_size=80) | st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["claims", "locks", "marks", "requests", "redo", "anchor", "lines", "at", "files"]), inner),
    ).map(lambda value: json.dumps(value).encode()))  # fmt: skip
    def test_any_bytes_are_as_good_as_none(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "taskboard.json").write_text('{"tasks": [{"id": "a"}]}')
            (folder / ".dibs").mkdir()
            companion(folder).write_bytes(data)
            board = opened(folder, HandClock())
            assert board.claim(ANN) is not None
            assert board.complete("a", worker=ANN).status is TaskStatus.COMPLETED

    def test_it_is_kept_out_of_version_control(self, board: TaskBoard, folder: Path) -> None:
        board.add("x")
        assert (folder / ".dibs" / ".gitignore").read_text() == "*\n"

    def test_only_so_many_ended_claims_are_remembered(self, tmp_path: Path) -> None:
        notes = Companion(str(tmp_path))
        notes.claims = {f"t{at}": {"token": at, "by": "x", "attempts": 1} for at in range(700)}
        notes.claims["t3"]["expires"] = 5.0
        notes.requests = {f"k{at}": ("[]", 0.0) for at in range(1100)}
        notes.save()
        again = Companion(str(tmp_path))
        again.load()
        assert "t3" in again.claims
        assert "t699" in again.claims
        assert "t100" not in again.claims
        assert len(again.requests) == 1000
        assert "k1099" in again.requests

    def test_request_keys_marks_and_messages_survive_the_process(
        self, board: TaskBoard, folder: Path, clock: HandClock
    ) -> None:
        first = board.add("x", request_key="k1")
        board.tell("hello", "ben", worker=ANN)
        board.tell("all of you", worker=ANN)
        assert [m.content for m in board.inbox(BEN)] == ["hello", "all of you"]
        again = opened(folder, clock)
        assert again.add("x", request_key="k1") == first
        assert again.inbox(BEN) == []
        again.tell("and more", "ben", worker=ANN)
        assert [m.content for m in again.inbox(BEN, peek=True)] == ["and more"]
        assert [m.content for m in opened(folder, clock).inbox(BEN)] == ["and more"]
        claim = again.claim(ANN, request_key="k2")
        repeated = opened(folder, clock).claim(ANN, request_key="k2")
        assert claim is not None
        assert repeated is not None
        assert (repeated.id, repeated.token) == (claim.id, claim.token)


class TestTheChangelog:
    def test_events_are_numbered_by_their_lines(self, board: TaskBoard, folder: Path, clock: HandClock) -> None:
        board.add("x", id="a")
        with open(folder / ".dibs" / "changelog.log", "a", encoding="utf-8") as file:
            file.write("not an event\n")
        board.claim(ANN)
        numbers = [(event.seq, event.action) for event in board.recent()]
        assert numbers == [(1, "work_item_created"), (2, "added_activity"), (4, "claimed_activity")]
        assert [(e.seq, e.action) for e in opened(folder, clock).recent()] == numbers

    def test_a_torn_last_line_spoils_only_itself(self, board: TaskBoard, folder: Path, clock: HandClock) -> None:
        board.add("x", id="a")
        log = folder / ".dibs" / "changelog.log"
        with open(log, "ab") as file:
            file.write(b'{"timestamp": "2026-')
        board.claim(ANN)
        assert actions(board) == ["work_item_created", "added_activity", "claimed_activity"]
        assert actions(opened(folder, clock)) == actions(board)

    def test_one_that_was_removed_is_begun_anew(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        (folder / ".dibs" / "changelog.log").unlink()
        board.claim(ANN)
        assert actions(board) == ["claimed_activity"]
        board.complete("a", worker=ANN)
        assert actions(board) == ["claimed_activity", "completed_activity"]


STEPS = ["companion", "draft", "rename", "log"]


def kill_at(step: str, monkeypatch: pytest.MonkeyPatch, store: FileStore, what: BaseException) -> None:
    """The process ends right before the step, or, for the last one, in the middle of it."""
    if step == "companion":
        monkeypatch.setattr(store.companion, "save", lambda: _raise(what))
    elif step == "draft":
        monkeypatch.setattr(store, "_put_file", lambda *_: _raise(what))
    elif step == "rename":
        real = os.replace

        def replace(old: str, new: str) -> None:
            if not new.endswith("claims.json"):
                raise what
            real(old, new)

        monkeypatch.setattr(os, "replace", replace)
    else:
        monkeypatch.setattr(store.log, "append", lambda *_: _raise(what))


def _raise(what: BaseException) -> None:
    raise what


class TestCrashes:
    @pytest.mark.parametrize("step", STEPS)
    def test_a_claim_that_is_killed_is_made_with_its_event_or_not_at_all(
        self, folder: Path, clock: HandClock, step: str
    ) -> None:
        board = opened(folder, clock)
        board.add("x", id="a")
        with pytest.MonkeyPatch.context() as patch:
            kill_at(step, patch, board.store, Killed())  # type: ignore[arg-type]
            with pytest.raises(Killed):
                board.claim(ANN, "a", request_key="k")
        made = step == "log"
        after = TaskBoard.open(f"taskboard:{folder}", durability="normal", clock=clock)
        assert (after.get("a").status is TaskStatus.IN_PROGRESS) == made
        assert actions(after, "a").count("claimed_activity") == 0  # a reader repairs nothing
        again = after.claim(ANN, "a", request_key="k")
        assert again is not None
        assert again.attempts == 1
        assert after.get("a").assigned_to == "ann"
        after.tell("anything", worker=BEN)
        assert actions(after, "a") == ["added_activity", "claimed_activity"]
        assert actions(opened(folder, clock), "a") == ["added_activity", "claimed_activity"]
        assert after.complete("a", worker=ANN).attempts == 1

    @pytest.mark.parametrize("step", STEPS)
    def test_an_add_with_a_request_key_can_be_repeated_after_a_crash(
        self, folder: Path, clock: HandClock, step: str
    ) -> None:
        board = opened(folder, clock)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(step, patch, board.store, Killed())  # type: ignore[arg-type]
            with pytest.raises(Killed):
                board.add("x", request_key="k")
        after = opened(folder, clock)
        task_id = after.add("x", request_key="k")
        assert [row["id"] for row in after.status()] == [task_id]
        assert actions(after).count("added_activity") == 1

    @pytest.mark.parametrize("step", STEPS)
    def test_the_same_object_goes_on_after_a_failure(self, board: TaskBoard, step: str) -> None:
        board.add("x", id="a")
        board.add("y", id="b")
        with pytest.MonkeyPatch.context() as patch:
            kill_at(step, patch, board.store, OSError(28, "No space left on device"))  # type: ignore[arg-type]
            with pytest.raises((BoardUnusable, OutcomeUnknown)) as caught:
                board.claim(ANN, "a")
        assert (caught.type is OutcomeUnknown) == (step == "log")
        assert (board.get("a").status is TaskStatus.IN_PROGRESS) == (step == "log")
        board.claim(BEN, "b")
        assert actions(board, "a").count("claimed_activity") == (step == "log")
        assert actions(board, "b") == ["added_activity", "claimed_activity"]

    def test_a_hand_that_edits_between_the_crash_and_the_recovery_is_respected(
        self, folder: Path, clock: HandClock
    ) -> None:
        board = opened(folder, clock)
        board.add("x", id="a")
        for step in ("rename", "log"):
            with pytest.MonkeyPatch.context() as patch:
                kill_at(step, patch, board.store, Killed())  # type: ignore[arg-type]
                with pytest.raises(Killed):
                    board.claim(ANN, "a")
            by_hand(folder, "a", status="completed", assigned_to="hand", claimed_at=START, result="by hand")
            board = opened(folder, clock)
            board.add("more")
            task = board.get("a")
            assert (task.status, task.assigned_to, task.result) == (TaskStatus.COMPLETED, "hand", "by hand")
            by_hand(folder, "a", status="pending", assigned_to=None, claimed_at=None, result=None)

    def test_half_of_the_lines_in_the_changelog_are_not_written_twice(self, folder: Path, clock: HandClock) -> None:
        """The disk took one line of two, and the board's file is in place."""
        board = opened(folder, clock)
        board.add_many([{"description": "one", "id": "a"}, {"description": "two", "id": "b"}])
        log = folder / ".dibs" / "changelog.log"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
        after = opened(folder, clock)
        after.claim(ANN, "a")
        assert actions(after) == ["work_item_created", "added_activity", "added_activity", "claimed_activity"]
        assert [event.task_id for event in after.recent()] == [None, "a", "b", "a"]

    def test_what_could_not_be_finished_is_tried_again(self, folder: Path, clock: HandClock) -> None:
        board = opened(folder, clock)
        board.add("x", id="a")
        with pytest.MonkeyPatch.context() as patch:
            kill_at("log", patch, board.store, Killed())  # type: ignore[arg-type]
            with pytest.raises(Killed):
                board.claim(ANN, "a")
        after = TaskBoard.open(f"taskboard:{folder}", durability="normal", clock=clock)
        with pytest.MonkeyPatch.context() as patch:
            kill_at("log", patch, after.store, OSError(28, "No space left on device"))  # type: ignore[arg-type]
            with pytest.raises(BoardUnusable):
                after.add("y")
        after.add("z", id="z")
        assert actions(after) == ["work_item_created", "added_activity", "claimed_activity", "added_activity"]

    @pytest.mark.parametrize("steps", range(6))
    def test_several_files_become_what_they_were_to_be_or_stay(
        self, folder: Path, clock: HandClock, steps: int
    ) -> None:
        """`bilu` keeps a file a task, so one call can change many; it is killed before each of the writes in turn."""
        url = f"bilu:{folder}"
        board = TaskBoard.open(url, create=True, durability="normal", clock=clock)
        left = steps
        real = fs.replace_file

        def put(path: str, *args: Any, **options: Any) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            real(path, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fs, "replace_file", put)
            try:
                board.add_many([{"description": f"task {at}"} for at in range(3)])
            except Killed:
                pass
            finally:
                (folder / "storage" / "lock" / "pid").unlink(missing_ok=True)
        for found in folder.rglob("lock"):
            if found.is_dir():
                for file in found.iterdir():
                    file.unlink()
                found.rmdir()
        after = TaskBoard.open(url, durability="normal", clock=clock)
        after.tell("anything", worker=BEN)
        assert len(after.status()) == (0 if steps < 2 else 3)
        assert actions(after).count("added_activity") == len(after.status())


class TestTime:
    def test_a_clock_that_jumps_ends_no_claim_early(self, folder: Path, clock: HandClock) -> None:
        board = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        board.add("x", id="a")
        board.claim(ANN)
        clock.jump(10_000)
        assert board.claim(BEN) is None
        assert TaskBoard(state_dir=folder, stale_timeout=300, clock=clock).claim(BEN) is None
        clock.advance(299)
        assert board.claim(BEN) is None
        clock.advance(2)
        assert board.claim(BEN) is not None
        with pytest.raises(LeaseLost):
            board.complete("a", worker=ANN, token=1)

    def test_a_clock_that_jumps_back_makes_none_last_longer_and_tokens_still_grow(
        self, folder: Path, clock: HandClock
    ) -> None:
        board = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        board.add("x", id="a")
        first = board.claim(ANN)
        clock.jump(-10_000)
        clock.advance(301)
        second = board.claim(BEN)
        assert first is not None
        assert second is not None
        assert second.token is not None
        assert first.token is not None
        assert second.token > first.token

    def test_a_hands_time_in_the_far_future_does_not_rub_off(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        board.add("y", id="b")
        by_hand(folder, "a", status="in_progress", assigned_to="hand", claimed_at=2.5e11)
        task = board.claim(ANN)
        assert task is not None
        assert task.claimed_at == START
        assert board.get("a").assigned_to == "hand"


class TestProcesses:
    def test_a_change_by_another_process_wakes_who_waits(self, folder: Path) -> None:
        board = opened(folder)
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(
                f"""
                import sys, time
                from dibs import TaskBoard
                board = TaskBoard.open("taskboard:{folder}", durability="normal")
                sys.stdin.readline()
                print(time.time(), flush=True)
                board.add("work")
                """)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        task = board.claim("w", wait=20)
        woken = time.time()
        assert task is not None
        assert woken - float(child.stdout.readline()) < 0.5
        assert child.wait(20) == 0
        child.stdin.close()
        child.stdout.close()

    def test_a_store_after_fork(self, board: TaskBoard, folder: Path, clock: HandClock) -> None:
        board.add("x", id="a")
        board.add("y", id="b")
        board.claim(ANN, "a")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                board.complete("a", worker=ANN)
                board.add("z", id="c")
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert {row["id"]: row["status"] for row in board.status()} == {
            "a": "completed",
            "b": "pending",
            "c": "pending",
        }
        board.add("w", id="d")
        assert actions(board) == actions(opened(folder, clock))

    def test_nothing_stays_open(self, board: TaskBoard) -> None:
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("no table of open files here")
        board.add("x", id="a")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            board.claim(ANN, "a")
            board.release("a", worker=ANN)
        assert len(os.listdir("/proc/self/fd")) == before


@given(
    data=st.binary(max_size=80) | st.text(max_size=30).map(lambda t: f"agent: {t}\ntimestamp: {t}\npath: {t}".encode())
)
def test_any_bytes_as_an_owner_file_are_somebodys_lock(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("tasks", "files"):
            (folder / ".locks" / kind / "T1").mkdir(parents=True)
            (folder / ".locks" / kind / "T1" / "owner").write_bytes(data)
        board = TaskBoard.open(f"spec:{folder}", clock=HandClock())
        (task,), _ = board.tasks()
        assert task.id == "T1"
        with pytest.raises(NotClaimable):
            board.claim(ANN, "T1")
        assert len(board.locks()) == 1
        assert board.claim(ANN, "T2") is not None
        for kind in ("tasks", "files"):
            assert (folder / ".locks" / kind / "T1" / "owner").read_bytes() == data


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_durability_decides_whether_files_are_synced(
    folder: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = fs.sync_data
    monkeypatch.setattr(fs, "sync_data", lambda fd: [synced.append(fd), real(fd)])  # type: ignore[func-returns-value]
    board = TaskBoard.open(f"taskboard:{folder}", create=True, durability=durability)
    synced.clear()
    board.add("x")
    assert len(synced) == (2 if durability == "full" else 0)  # the board and the changelog
    with pytest.raises(DibsError, match="durability"):
        TaskBoard.open(f"taskboard:{folder}", durability="whatever")


@pytest.fixture(autouse=True)
def _no_leftovers(tmp_path: Path) -> Iterator[None]:
    yield
    assert [str(path) for path in tmp_path.rglob("*.dibs-*")] == []


class TestLinks:
    """A repository that was cloned may bring links; what they lead to is not dibs' to write."""

    def test_a_link_in_the_place_of_the_notes_is_replaced_and_not_followed(
        self, board: TaskBoard, folder: Path, tmp_path: Path
    ) -> None:
        board.add("x", id="a")
        victim = tmp_path / "victim"
        victim.write_text("precious")
        companion(folder).unlink()
        companion(folder).symlink_to(victim)
        board.claim(ANN, "a")
        assert victim.read_text() == "precious"
        assert not companion(folder).is_symlink()

    @pytest.mark.parametrize("name", ["changelog.log", "."])
    def test_a_link_to_where_the_notes_or_the_changelog_would_go_is_refused(
        self, board: TaskBoard, folder: Path, tmp_path: Path, name: str
    ) -> None:
        board.add("x", id="a")
        victim = tmp_path / "victim"
        if name == ".":
            victim.mkdir()
            shutil.rmtree(companion(folder).parent)
            companion(folder).parent.symlink_to(victim)
        else:
            victim.write_text("precious")
            (companion(folder).parent / name).unlink()
            (companion(folder).parent / name).symlink_to(victim)
        with pytest.raises(DibsError):
            board.claim(ANN, "a")
        assert list(victim.iterdir()) == [] if name == "." else victim.read_text() == "precious"

    def test_a_note_that_leads_out_of_the_board_is_not_carried_out(
        self, board: TaskBoard, folder: Path, tmp_path: Path
    ) -> None:
        board.add("x", id="a")
        (tmp_path / "outside").mkdir()
        (folder / "link").symlink_to(tmp_path / "outside")
        note = {
            "at": 0,
            "lines": ["{}"],
            "files": [
                {"path": "taskboard.json", "was": None, "becomes": digest(folder / "taskboard.json")},
                {"path": "link/f", "was": None, "becomes": "1-0", "content": "x"},
                {"path": "../outside/g", "was": None, "becomes": "1-0", "content": "x"},
            ],
        }
        companion(folder).write_text(json.dumps({"redo": note}))
        board.claim(ANN, "a")
        assert list((tmp_path / "outside").iterdir()) == []

    def test_a_note_with_a_line_break_in_a_line_stops_nobody(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        note = {"at": 0, "lines": ["x\n"], "files": [{"path": "nofile", "was": None, "becomes": None}]}
        companion(folder).write_text(json.dumps({"redo": note}))
        assert board.claim(ANN, "a") is not None


def digest(path: Path) -> str:
    data = path.read_bytes()
    return f"{len(data)}-{zlib.crc32(data):08x}"
