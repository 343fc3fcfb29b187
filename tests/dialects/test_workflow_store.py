"""Document 000's board on its own files: the three steps, the error table row by row, roles, hands that break it."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import BoardTask, TaskBoard, TaskStatus
from dibs.dialects import workflow as module
from dibs.errors import (
    BoardUnusable,
    Busy,
    DibsError,
    Invalid,
    NoBoard,
    NotAllowed,
    NotClaimable,
    OutcomeUnknown,
    Unsupported,
)
from dibs.guards import lockfile
from tests.clocks import HandClock
from tests.searching import examples

GOLDEN = Path(__file__).parent / "golden" / "workflow"
QUICK = "?pause=0.01&retries=3&stale=60"
MESSAGE = "Board is locked by another agent. Cannot proceed."
CLAIMED = 1_770_787_805.0  # 2026-02-11T14:30:05+09:00


@pytest.fixture(autouse=True)
def in_japan(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The document's examples have the offset +09:00."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".workflow"


def opened(folder: Path, worker: str | None = None, **options: Any) -> TaskBoard:
    return TaskBoard.open(f"workflow:{folder}{QUICK}", worker=worker, durability="normal", **options)


@pytest.fixture
def board(folder: Path) -> TaskBoard:
    """A planner's board with two tasks, the second of which needs the first."""
    made = opened(folder, "planner-1", create=True)
    made.add("Write the login page", id="task-001")
    made.add("Test it", depends_on=["task-001"])
    return opened(folder)


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "board.json").read_bytes())
    return found


def version(folder: Path) -> int:
    return int(document(folder)["version"])


def put_lock(folder: Path, content: str | None = None, age: float = 0.0) -> Path:
    path = folder / "board.lock"
    ts = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - age))
    path.write_text(json.dumps({"agent": "worker-w9", "ts": ts}) if content is None else content)
    return path


def taken(board: TaskBoard, name: str) -> BoardTask:
    task = board.claim(name)
    assert task is not None
    return task


class TestErrorRecovery:
    """The document's table, row by row."""

    def test_a_recent_lock_is_waited_for(self, board: TaskBoard, folder: Path) -> None:
        path = put_lock(folder)
        threading.Timer(0.01, path.unlink).start()
        assert taken(board, "worker-w1").id == "task-001"
        assert not path.exists()

    def test_a_lock_that_stays_is_reported_in_the_documents_words(self, board: TaskBoard, folder: Path) -> None:
        path = put_lock(folder)
        before = path.read_bytes(), (folder / "board.json").read_bytes()
        with pytest.raises(Busy) as caught:
            board.claim("worker-w1")
        assert caught.value.message == MESSAGE
        assert "worker-w9" in caught.value.hint
        assert (path.read_bytes(), (folder / "board.json").read_bytes()) == before

    @pytest.mark.parametrize("content", [None, "{}", '{"agent": "x"}', '{"ts": "yesterday"}', "", "not json", "[]"])
    def test_a_stale_or_malformed_lock_is_deleted(self, board: TaskBoard, folder: Path, content: str | None) -> None:
        put_lock(folder, content, age=61)
        assert taken(board, "worker-w1").id == "task-001"
        assert not (folder / "board.lock").exists()

    def test_a_ts_without_a_zone_is_stale_when_it_is_so_in_every_zone(self, board: TaskBoard, folder: Path) -> None:
        # Written this very minute by somebody in California (UTC-8), whose clock shows seventeen hours less than ours.
        here = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 8 * 3600))
        path = put_lock(folder, json.dumps({"agent": "worker-w9", "ts": here}))
        with pytest.raises(Busy, match=MESSAGE) as caught:
            board.claim("worker-w1")
        assert "no time zone" in caught.value.hint
        assert path.exists()
        past = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 12 * 3600 - 62))
        put_lock(folder, json.dumps({"agent": "worker-w9", "ts": past}))
        assert taken(board, "worker-w1").id == "task-001"

    @pytest.mark.parametrize("content", [None, "{}"])
    def test_readers_delete_a_stale_or_malformed_lock_too(
        self, board: TaskBoard, folder: Path, content: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        put_lock(folder, content, age=61)
        assert board.pending_count == 2
        assert not (folder / "board.lock").exists()
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("where", ["replace", "write", "fsync"])
    def test_a_write_that_fails_removes_the_lock_reports_and_is_not_tried_again(
        self, folder: Path, board: TaskBoard, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        board = TaskBoard.open(f"workflow:{folder}{QUICK}")
        before = (folder / "board.json").read_bytes()
        tries: list[object] = []
        real = os.write

        def full(*args: Any) -> Any:
            if where == "write" and b'"agent"' in bytes(args[1])[:20]:
                return real(*args)  # there was room for the lock
            tries.append(args)
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            if where == "fsync":
                patch.setattr("dibs.fs.sync_data", full)
            else:
                patch.setattr(os, where, full)
            with pytest.raises(BoardUnusable, match=r"No space left on device.*nothing was changed"):
                board.claim("worker-w1")
        assert len(tries) == 1
        assert (folder / "board.json").read_bytes() == before
        assert sorted(os.listdir(folder)) == [".dibs", "board.json"]
        assert taken(board, "worker-w1").attempts == 1
        assert version(folder) == json.loads(before)["version"] + 1

    @pytest.mark.parametrize("name", ["worker-1", "integrator-1", "ann", None])
    def test_only_a_planner_creates_the_board(self, folder: Path, name: str | None) -> None:
        with pytest.raises(NotAllowed, match="only a planner may create it"):
            opened(folder, name, create=True)
        assert not folder.exists()
        with pytest.raises(NoBoard, match="only a planner may create it"):
            opened(folder, name)

    def test_a_board_that_vanishes_is_an_error_for_all_but_planners(self, board: TaskBoard, folder: Path) -> None:
        planner = opened(folder, "planner-1")
        (folder / "board.json").unlink()
        for attempt in (board.status, lambda: board.claim("worker-1"), lambda: board.add("x", worker="worker-1")):
            with pytest.raises(NoBoard, match="only a planner may create it"):
                attempt()
        assert not (folder / "board.json").exists()
        assert not (folder / "board.lock").exists()
        assert planner.status() == []
        planner.add("again")
        assert board.pending_count == 1


class TestReaders:
    def test_they_wait_while_there_is_a_lock(self, board: TaskBoard, folder: Path) -> None:
        path = put_lock(folder)
        threading.Timer(0.015, path.unlink).start()
        assert board.pending_count == 2
        assert not path.exists()

    def test_past_the_retries_they_read_what_parses_and_say_so_once(
        self, board: TaskBoard, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        put_lock(folder)
        assert board.pending_count == 2
        assert board.completed_count == 0
        err = capsys.readouterr().err
        assert err == f"dibs: {folder / 'board.lock'} is still held by worker-w9; reading all the same\n"
        put_lock(folder, '{"agent": "worker-w8", "ts": "2999-01-01T00:00:00Z"}')
        assert board.pending_count == 2
        assert "worker-w8" in capsys.readouterr().err

    def test_past_the_retries_a_file_in_the_middle_of_a_write_is_an_error(self, board: TaskBoard, folder: Path) -> None:
        put_lock(folder)
        whole = (folder / "board.json").read_bytes()
        (folder / "board.json").write_bytes(whole[:-30])
        with pytest.raises(BoardUnusable, match=r"board\.json"):
            board.status()
        (folder / "board.json").write_bytes(whole)
        assert board.pending_count == 2

    def test_they_create_no_lock(self, board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lockfile, "_write_new", lambda *_: pytest.fail("a reader made a lock"))
        board.status()
        assert board.pending_count == 2


class TestVersions:
    def test_one_more_for_each_write_and_none_for_what_is_refused(self, board: TaskBoard, folder: Path) -> None:
        now = version(folder)
        board.claim("worker-1")
        assert version(folder) == now + 1
        refused: list[Callable[[], object]] = [
            lambda: board.claim("worker-2", "task-002"),
            lambda: board.complete("task-001", worker="worker-2"),
            lambda: board.accept("task-001", worker="integrator-1"),
            lambda: board.fail("task-001", "no", worker="worker-1"),
            lambda: board.claim("integrator-1", "task-001"),
            lambda: board.release("task-999"),
        ]
        for attempt in refused:
            with pytest.raises(DibsError):
                attempt()
        assert board.claim("worker-2") is None
        board.status()
        board.tell("hello", worker="worker-1")
        board.renew("task-001", worker="worker-1")
        assert version(folder) == now + 1
        board.complete("task-001", worker="worker-1")
        board.accept("task-001", worker="integrator-1")
        assert version(folder) == now + 3
        board.add_many([{"description": "a"}, {"description": "b"}], worker="planner-1")
        assert version(folder) == now + 4

    @pytest.mark.parametrize("value", ["null", '"3"', "-1", "1.5", "true", "1e999", "[]"])
    def test_a_version_that_is_no_number_is_refused_and_left(self, board: TaskBoard, folder: Path, value: str) -> None:
        path = folder / "board.json"
        text = path.read_text().replace(f'"version": {version(folder)}', f'"version": {value}')
        path.write_text(text)
        for attempt in (board.status, lambda: board.claim("worker-1")):
            with pytest.raises(BoardUnusable, match="version"):
                attempt()
        assert path.read_text() == text
        assert not (folder / "board.lock").exists()


class TestWhoBreaksTheProtocol:
    """Each of these happens between our reading and our writing."""

    def _in_between(self, board: TaskBoard, folder: Path, deed: Callable[[], object]) -> None:
        before = (folder / "board.json").read_bytes()
        with board.store.write() as tx:
            (task,) = tx.get(["task-001"]).values()
            task.description = "changed"
            tx.save([task])
            deed()
            after = (folder / "board.json").read_bytes()
        pytest.fail(f"written over {after!r} although it was {before!r}")

    def test_a_lock_that_is_taken_away(self, board: TaskBoard, folder: Path) -> None:
        before = (folder / "board.json").read_bytes()
        with pytest.raises(Busy, match=r"took the guard .* away while we held it; board\.json was not written"):
            self._in_between(board, folder, (folder / "board.lock").unlink)
        assert (folder / "board.json").read_bytes() == before
        assert taken(board, "worker-1").id == "task-001"

    def test_a_lock_that_another_has_now_is_left_to_him(self, board: TaskBoard, folder: Path) -> None:
        before = (folder / "board.json").read_bytes()
        with pytest.raises(Busy, match=r"board\.json was not written"):
            self._in_between(board, folder, lambda: put_lock(folder))
        assert (folder / "board.json").read_bytes() == before
        assert json.loads((folder / "board.lock").read_bytes())["agent"] == "worker-w9"

    def test_a_file_that_changed_under_our_lock(self, board: TaskBoard, folder: Path) -> None:
        path = folder / "board.json"
        other = json.dumps(document(folder) | {"version": 99}).encode()
        with pytest.raises(Busy, match=r"somebody changed board\.json while we held"):
            self._in_between(board, folder, lambda: path.write_bytes(other))
        assert path.read_bytes() == other
        assert not (folder / "board.lock").exists()
        board.claim("worker-1")
        assert version(folder) == 100

    def test_a_write_that_fell_asleep_before_its_rename_is_not_acknowledged(
        self, board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, real = folder / "board.json", os.replace

        def replace_late(draft: str, target: str) -> None:
            if target == str(path):  # ours was the lock at the last look; asleep for 60 s, it is rightly broken
                (folder / "board.lock").unlink()
                path.write_text(json.dumps(document(folder) | {"version": 99}))
            real(draft, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace_late)
            with pytest.raises(OutcomeUnknown, match=r"board\.json was written.*may have overwritten") as caught:
                board.claim("worker-1", "task-001")
        assert "dibs list --all" in caught.value.hint
        # The file decides, for everybody: the claim is in it, and the next write logs it.
        assert board.get("task-001").assigned_to == "worker-1"
        board.tell("hello", worker="worker-2")
        assert [event.action for event in board.changelog() if event.task_id == "task-001"][-1] == "claimed_activity"

    def test_the_lock_names_who_acts(self, folder: Path, board: TaskBoard) -> None:
        with opened(folder, "worker-w1").store.write():
            found = json.loads((folder / "board.lock").read_bytes())
        assert found["agent"] == "worker-w1"
        assert list(found) == ["agent", "ts"]
        assert not (folder / "board.lock").exists()


class TestRoles:
    def test_work_goes_from_worker_to_integrator(self, board: TaskBoard, folder: Path) -> None:
        assert taken(board, "worker-1").id == "task-001"
        assert board.complete("task-001", "built", worker="worker-1").status is TaskStatus.REVIEW
        first = document(folder)["tasks"][0]
        assert (first["status"], first["claimed_by"], first["note"]) == ("done", "worker-1", "built")
        done_at = first["done_at"]
        board.accept("task-001", worker="integrator-1")
        first = document(folder)["tasks"][0]
        assert (first["status"], first["done_at"]) == ("integrated", done_at)

    def test_a_dependency_is_met_when_the_work_is_done(self, board: TaskBoard, folder: Path) -> None:
        taken(board, "worker-1")
        with pytest.raises(NotClaimable, match="waits for task-001"):
            board.claim("worker-2", "task-002")
        board.complete("task-001", worker="worker-1")
        assert taken(board, "worker-2").id == "task-002"
        assert opened(folder).get("task-002").assigned_to == "worker-2"

    def test_a_rejection_opens_the_task_with_a_note(self, board: TaskBoard, folder: Path) -> None:
        taken(board, "worker-1")
        board.complete("task-001", worker="worker-1")
        board.reject("task-001", "no tests", worker="integrator-1")
        first = document(folder)["tasks"][0]
        assert [first[key] for key in ("status", "claimed_by", "claimed_at", "done_at")] == ["open", None, None, None]
        assert "no tests" in first["note"]
        assert opened(folder).claim("worker-2", "task-001") is not None

    @pytest.mark.parametrize(
        ("name", "ask"),
        [
            ("integrator-1", lambda board: board.claim("integrator-1", "task-001")),
            ("planner-1", lambda board: board.claim("planner-1", "task-001")),
            ("planner-1", lambda board: board.accept("task-002", worker="planner-1")),
            ("worker-7", lambda board: board.reject("task-002", "no", worker="worker-7")),
        ],
    )
    def test_what_is_not_ones_role(self, board: TaskBoard, folder: Path, name: str, ask: Callable[..., object]) -> None:
        path = folder / "board.json"
        path.write_text(path.read_text().replace('"depends_on": [\n        "task-001"\n      ]', '"depends_on": []'))
        board.claim("worker-1", "task-002")
        board.complete("task-002", worker="worker-1")
        before = path.read_bytes()
        with pytest.raises(NotAllowed, match=name):
            ask(board)
        assert path.read_bytes() == before
        assert not (folder / "board.lock").exists()

    def test_a_name_without_a_role_may_do_all_but_create(self, board: TaskBoard) -> None:
        assert taken(board, "ann").id == "task-001"
        board.complete("task-001", worker="ann")
        assert board.accept("task-001", worker="ben").status is TaskStatus.COMPLETED


class TestTheFile:
    def test_a_claim_is_the_documents_version_bump(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "board.json").write_bytes((GOLDEN / "1-open.json").read_bytes())
        clock = HandClock(CLAIMED)
        board = opened(folder, clock=clock)
        first = document(folder)["tasks"][0]["id"]
        board.claim("worker-w1", first)
        assert (folder / "board.json").read_bytes() == (GOLDEN / "2-claimed.json").read_bytes()

    def test_a_new_board(self, folder: Path) -> None:
        opened(folder, "planner-1", create=True, clock=HandClock(CLAIMED))
        found = (folder / "board.json").read_text().replace(str(folder.parent), "/srv/my-project")
        found = found.replace(f'"{folder.parent.name}"', '"my-project"')
        assert found == (GOLDEN / "created.json").read_text()

    def test_unknown_keys_and_formatting_survive(self, folder: Path) -> None:
        folder.mkdir()
        odd = (
            '{"version":7 , "x": [1,  2],\n "tasks" : [{"id":"task-7","owner":"me","status":"open"},\n'
            ' {"id":"task-08", "status":"open", "title" : "é"}], "tail": {"k": 1.50}}\n'
        )
        (folder / "board.json").write_text(odd)
        (folder / "board.json").chmod(0o600)
        board = opened(folder)
        board.claim("worker-1", "task-7")
        text = (folder / "board.json").read_text()
        for kept in (
            '{"version":8 , "x": [1,  2],',
            '"owner":"me"',
            '{"id":"task-08", "status":"open", "title" : "é"}',
            "1.50}}\n",
        ):
            assert kept in text
        assert board.add("more") == "task-009"
        assert (folder / "board.json").stat().st_mode & 0o777 == 0o600

    def test_what_has_no_place_is_refused(self, board: TaskBoard, folder: Path) -> None:
        before = (folder / "board.json").read_bytes()
        for fields in (
            {"priority": 1},
            {"labels": ["a"]},
            {"steps": ["a"]},
            {"max_attempts": 2},
            {"reserved": "human"},
        ):
            with pytest.raises(Unsupported, match="workflow"):
                board.add("x", **fields)
        assert (folder / "board.json").read_bytes() == before

    def test_ids_and_dependencies_by_hand(self, board: TaskBoard, folder: Path) -> None:
        found = document(folder)
        found["tasks"][0]["depends_on"] = ["task-002", "ghost"]
        (folder / "board.json").write_text(json.dumps(found))
        assert board.claim("worker-1") is None
        with pytest.raises(NotClaimable, match="ghost, which is not on the board"):
            board.claim("worker-1", "task-001")
        board.undepend("task-001", ["ghost", "task-002"])
        assert taken(board, "worker-1").id == "task-001"

    @given(
        data=st.binary(max_size=120) | st.text(max_size=60).map(lambda t: f'{{"version":1,"tasks":[{{{t}}}]}}'.encode())
    )
    def test_any_bytes_as_the_board(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "board.json").write_bytes(data)
            for attempt in (lambda: opened(folder).status(), lambda: opened(folder).claim("worker-1", "zz")):
                with pytest.raises(DibsError):
                    attempt()
                assert (folder / "board.json").read_bytes() == data
                assert not (folder / "board.lock").exists()

    @examples(60)
    @given(data=st.data())
    def test_one_value_changed(self, data: st.DataObject) -> None:
        found = json.loads((GOLDEN / "3-done.json").read_bytes())
        row = data.draw(st.sampled_from([found, found["tasks"][0]]))
        key = data.draw(st.sampled_from([*row]))
        row[key] = data.draw(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
            | st.lists(st.text(max_size=2))
            | st.sampled_from([10**400, {}, "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "claimed", "open"])
        )  # fmt: skip
        written = json.dumps(found).encode()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "board.json").write_bytes(written)
            board = opened(folder)
            try:
                board.status()
            except BoardUnusable:
                with pytest.raises(BoardUnusable):
                    board.claim("worker-1")
                assert (folder / "board.json").read_bytes() == written
                return
            board.tasks()
            added = board.add("new")
            assert board.claim("worker-1", added) is not None
            assert opened(folder).get(added).assigned_to == "worker-1"

    @examples(40)
    @given(data=st.binary(max_size=60) | st.text(max_size=30).map(lambda t: json.dumps({"agent": t, "ts": t}).encode()))
    def test_any_bytes_as_the_lock(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "board.json").write_bytes((GOLDEN / "1-open.json").read_bytes())
            (folder / "board.lock").write_bytes(data)
            board = TaskBoard.open(f"workflow:{folder}?pause=0.001&retries=1", durability="normal")
            busy = ""
            try:
                board.add("x")
            except Busy as error:
                busy = error.message
            assert busy in ("", MESSAGE)
            assert (folder / "board.lock").exists() == bool(busy)
            if busy:
                assert (folder / "board.lock").read_bytes() == data


class TestNumbers:
    @pytest.mark.parametrize(
        "query", ["pause=x", "pause=nan", "pause=-1", "stale=inf", "retries=1.5", "speed=9", "", "pause"]
    )
    def test_what_makes_no_sense_is_refused(self, folder: Path, query: str) -> None:
        with pytest.raises(Invalid, match="workflow board's URL"):
            module.split(f"{folder}?{query}")

    def test_each_is_optional(self) -> None:
        assert module.split("a/.workflow") == ("a/.workflow", {})
        assert module.split("w?stale=5&retries=0") == ("w", {"stale": 5.0, "retries": 0})

    def test_the_defaults_are_the_documents(self, board: TaskBoard, folder: Path) -> None:
        store = module.WorkflowStore(str(folder), place=None)
        lock = store._lock()
        assert (lock.pause, lock.retries, lock.stale) == (2.0, 5, 60.0)
