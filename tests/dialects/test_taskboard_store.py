"""Document 004's board on its own files: every sentence of it, and what hostile or sloppy hands do to the file."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dibs import BoardTask, TaskBoard, TaskStatus, Worker
from dibs.errors import BoardUnusable, DibsError, NotClaimable
from tests.clocks import START, HandClock
from tests.searching import examples

GOLDEN = Path(__file__).parent / "golden" / "taskboard"
KEYS = [
    "id", "description", "status", "assigned_to", "depends_on",
    "result", "priority", "created_at", "claimed_at", "completed_at",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def board(folder: Path, clock: HandClock) -> TaskBoard:
    return TaskBoard(state_dir=folder, clock=clock)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


def content(folder: Path) -> bytes:
    return (folder / "taskboard.json").read_bytes()


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(content(folder))["tasks"]
    return found


def entry(task_id: str, **fields: Any) -> dict[str, Any]:
    """A task as the document's own program writes it."""
    made: dict[str, Any] = {
        "id": task_id, "description": f"do {task_id}", "status": "pending", "assigned_to": None, "depends_on": [],
        "result": None, "priority": 0, "created_at": START, "claimed_at": None, "completed_at": None,
    }  # fmt: skip
    return made | fields


def write(folder: Path, *tasks: dict[str, Any], **top: Any) -> bytes:
    """The file as the document's own program writes it: in place."""
    folder.mkdir(exist_ok=True)
    data = json.dumps({"tasks": list(tasks), **top}, indent=2).encode()
    (folder / "taskboard.json").write_bytes(data)
    return data


def taken(board: TaskBoard, name: str) -> BoardTask:
    task = board.claim(name)
    assert task is not None
    return task


def python(script: str, *words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class TestTheDocument:
    def test_each_verb_writes_what_the_documents_program_would_write(
        self, board: TaskBoard, folder: Path, clock: HandClock
    ) -> None:
        board.add("Implement user registration", id="a1b2c3d4")
        clock.advance(1)
        board.add('Write tests for „login“\nand "logout"', depends_on=["a1b2c3d4"], priority=2, id="b2c3d4e5")
        assert content(folder) == golden("1-added")
        clock.advance(1)
        assert taken(board, "worker-1").id == "a1b2c3d4"
        assert content(folder) == golden("2-claimed")
        clock.advance(43)
        board.complete("a1b2c3d4", result="Endpoint created at POST /api/users")
        assert content(folder) == golden("3-completed")
        clock.advance(1.5)
        board.claim("worker-2")
        assert content(folder) == golden("4-claimed")
        board.release("b2c3d4e5")
        assert content(folder) == golden("5-released")
        clock.advance(0.5)
        board.claim("worker-2")
        clock.advance(1)
        board.fail("b2c3d4e5", "no such table: users")
        assert content(folder) == golden("6-failed")

    def test_the_example_file_is_read_and_stays_as_it_is(self, board: TaskBoard, folder: Path) -> None:
        (folder / "taskboard.json").write_bytes(golden("document"))
        (row,) = board.status()
        assert row["result"] == "Endpoint created at POST /api/users"
        assert board.claim("worker-1") is None
        assert board.all_done
        assert content(folder) == golden("document")

    def test_quick_start_as_it_stands(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        board = TaskBoard(state_dir=Path(tmp_path / "my-board"))
        board.add("Write the login endpoint", priority=2)
        with pytest.raises(ValueError, match="login-task-id"):
            board.add("Write tests for login", depends_on=["<login-task-id>"])
        board.add("Update API docs")
        task = board.claim("worker-1")
        if task:
            print(f"Claimed: {task.description}")
            board.complete(task.id, result="Login endpoint implemented")
        assert capsys.readouterr().out == "Claimed: Write the login endpoint\n"

    def test_ten_keys_in_order_and_times_as_floats(self, board: TaskBoard, folder: Path) -> None:
        task_id = board.add("x")
        board.claim("worker-1")
        board.complete(task_id)
        (row,) = rows(folder)
        assert list(row) == KEYS
        assert [type(row[key]) for key in ("created_at", "claimed_at", "completed_at")] == [float, float, float]
        assert type(row["priority"]) is int
        assert re.fullmatch("[0-9a-f]{8}", task_id)
        assert (row["status"], row["result"]) == ("completed", None)
        assert list(board.status()[0]) == KEYS

    def test_defaults_of_add(self, board: TaskBoard, folder: Path) -> None:
        board.add("x")
        row = rows(folder)[0]
        assert (row["depends_on"], row["priority"], row["status"], row["assigned_to"]) == ([], 0, "pending", None)

    def test_claims_go_by_priority_then_by_creation_whatever_the_order_of_the_list(
        self, board: TaskBoard, folder: Path
    ) -> None:
        write(
            folder,
            entry("young", created_at=START + 9),
            entry("old", created_at=START + 1),
            entry("urgent", created_at=START + 20, priority=5),
            entry("middle", created_at=START + 5),
            entry("later", created_at=START + 2, priority=-1),
        )
        order = [taken(board, "w").id for _ in range(5)]
        assert order == ["urgent", "old", "middle", "young", "later"]

    def test_an_older_task_that_a_hand_adds_later_comes_first(self, board: TaskBoard, folder: Path) -> None:
        write(folder, entry("b", created_at=START), entry("d", created_at=START + 9))
        assert board.pending_count == 2
        write(folder, entry("b"), entry("d", created_at=START + 9), entry("a", created_at=START - 5))
        assert [taken(board, "w").id for _ in range(3)] == ["a", "b", "d"]

    def test_dependencies_must_be_completed_not_only_ended(self, board: TaskBoard) -> None:
        first = board.add("one")
        board.add("two", depends_on=[first])
        board.claim("w")
        board.fail(first, "broke")
        assert board.claim("w") is None
        board.retry(first)
        taken(board, "w")
        assert board.claim("w") is None
        board.complete(first)
        assert taken(board, "w").description == "two"

    def test_status_and_counts_reload_from_disk(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a1")
        assert (board.pending_count, board.completed_count, board.all_done) == (1, 0, False)
        write(folder, entry("a1", status="completed"), entry("a2", status="completed"), entry("a3", status="failed"))
        assert [row["id"] for row in board.status()] == ["a1", "a2", "a3"]
        assert (board.pending_count, board.completed_count, board.all_done) == (0, 2, True)

    def test_all_done_is_false_while_anything_is_in_progress_and_on_an_empty_board(
        self, board: TaskBoard, folder: Path
    ) -> None:
        assert board.all_done is False
        assert board.status() == []
        write(folder, entry("a1", status="in_progress", assigned_to="w", claimed_at=START))
        assert board.all_done is False

    def test_unknown_ids(self, board: TaskBoard) -> None:
        for call in (board.complete, board.release, lambda i: board.fail(i, "boom")):
            with pytest.raises(ValueError, match=r"^Task not found: deadbeef\b"):
                call("deadbeef")

    @pytest.mark.parametrize("status", ["pending", "completed", "failed"])
    def test_release_only_works_in_progress(self, board: TaskBoard, folder: Path, status: str) -> None:
        before = write(folder, entry("a1", status=status))
        with pytest.raises(ValueError, match=f"it is {status}"):
            board.release("a1")
        assert content(folder) == before

    def test_release_agent_tasks(self, board: TaskBoard, folder: Path) -> None:
        write(
            folder,
            entry("a", status="in_progress", assigned_to="worker-1", claimed_at=START),
            entry("b", status="in_progress", assigned_to="worker-2", claimed_at=START),
            entry("c", status="completed", assigned_to="worker-1", claimed_at=START, completed_at=START),
            entry("d"),
        )
        board.claim("worker-1")
        assert sorted(board.release_agent_tasks("worker-1")) == ["a", "d"]
        assert board.release_agent_tasks("worker-1") == []
        assert [(row["status"], row["assigned_to"], row["claimed_at"]) for row in rows(folder)] == [
            ("pending", None, None),
            ("in_progress", "worker-2", START),
            ("completed", "worker-1", START),
            ("pending", None, None),
        ]

    def test_nothing_is_written_that_the_document_does_not_have(self, board: TaskBoard, folder: Path) -> None:
        board.add("x")
        board.claim("worker-1")
        assert sorted(os.listdir(folder)) == [".dibs", "taskboard.json", "taskboard.lock"]
        assert (folder / "taskboard.lock").read_bytes() == b""

    def test_without_a_state_dir_nothing_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        board = TaskBoard()
        board.add("x")
        assert taken(board, "w").description == "x"
        assert os.listdir(tmp_path) == []

    def test_a_pending_task_that_is_assigned_to_another_agent_is_not_available(
        self, board: TaskBoard, folder: Path
    ) -> None:
        write(folder, entry("a", assigned_to="worker-9"))
        assert board.claim("worker-1") is None
        assert taken(board, "worker-9").id == "a"


class TestStaleClaims:
    def test_the_sweep_is_inside_claim(self, folder: Path, clock: HandClock) -> None:
        board = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        board.add("x", id="a")
        board.claim("worker-1")
        clock.advance(301)
        assert rows(folder)[0]["assigned_to"] == "worker-1"
        assert board.claim("worker-2", "a") is not None
        assert rows(folder)[0]["assigned_to"] == "worker-2"

    def test_a_hands_claim_goes_stale_too(self, folder: Path, clock: HandClock) -> None:
        board = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        write(folder, entry("a", status="in_progress", assigned_to="hand", claimed_at=START))
        clock.advance(300 - 1)
        assert board.claim("worker-2") is None
        clock.advance(2)
        assert taken(board, "worker-2").id == "a"

    def test_what_is_swept_loses_its_holder_and_its_time(self, folder: Path, clock: HandClock) -> None:
        board = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        write(folder, entry("a", status="in_progress", assigned_to="hand", claimed_at=START), entry("b", priority=9))
        clock.advance(301)
        assert taken(board, "worker-2").id == "b"
        assert rows(folder)[0] == entry("a")

    def test_a_claim_of_a_board_without_stale_timeout_goes_stale_on_one_with(
        self, folder: Path, clock: HandClock, board: TaskBoard
    ) -> None:
        board.add("x", id="a")
        board.claim("worker-1")
        clock.advance(301)
        other = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        assert taken(other, "worker-2").id == "a"
        with pytest.raises(PermissionError):
            board.complete("a")
        assert rows(folder)[0]["status"] == "in_progress"

    def test_a_claim_with_a_longer_lease_goes_stale_and_a_renewal_counts_as_a_claim(
        self, folder: Path, clock: HandClock
    ) -> None:
        """As the command line makes them: for an hour, renewed by every verb."""
        command_line = TaskBoard.open(f"taskboard:{folder}", create=True, clock=clock)
        program = TaskBoard(state_dir=folder, stale_timeout=300, clock=clock)
        for task_id in ("a", "b", "c"):
            command_line.add("x", id=task_id)
        command_line.claim(Worker("worker-1"), "a")
        command_line.claim(Worker("worker-2"), "b", lease=60)
        clock.advance(200)
        command_line.renew("a", worker="worker-1")
        clock.advance(299)
        assert [task.id for task in program.ready()] == ["b", "c"]
        assert taken(program, "worker-3").id == "b"
        clock.advance(1)
        assert command_line.ready() == [command_line.get("c")]
        assert taken(program, "worker-4").id == "a"
        with pytest.raises(PermissionError):
            command_line.complete("a", worker="worker-1")
        assert rows(folder)[0]["assigned_to"] == "worker-4"

    def test_without_a_stale_timeout_nothing_expires(self, board: TaskBoard, folder: Path, clock: HandClock) -> None:
        board.add("x", id="a")
        board.claim("worker-1")
        write(folder, *rows(folder), entry("b", status="in_progress", assigned_to="hand", claimed_at=1.0))
        clock.advance(40 * 365 * 86_400)
        assert board.claim("worker-2") is None
        assert board.recover() == []

    def test_a_claim_without_a_time_is_stale_at_once(self, folder: Path, clock: HandClock) -> None:
        write(folder, entry("a", status="in_progress", assigned_to="hand"))
        assert TaskBoard(state_dir=folder, clock=clock).claim("w") is None
        assert taken(TaskBoard(state_dir=folder, stale_timeout=5, clock=clock), "w").id == "a"

    @pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "5"])
    def test_a_stale_timeout_is_a_number_of_seconds(self, folder: Path, value: Any) -> None:
        with pytest.raises(ValueError, match="stale_timeout"):
            TaskBoard(state_dir=folder, stale_timeout=value)
        assert not folder.exists()


class TestWhatOthersWrote:
    ODD = (
        '{"owner" : "team", "tasks":[ {"priority":3,"x-note":{"a":[1,2.50]},"id":"a1","description":"caf\\u00e9",\n'
        '   "status" : "pending", "created_at":1700000000, "depends_on":[]} ,{"id":"b2", "description":"ü"}],\n'
        '\t"meta":{"k":1e2}}\n\n'
    ).encode()

    def test_unknown_keys_order_and_formatting_survive_every_verb(self, board: TaskBoard, folder: Path) -> None:
        path = folder / "taskboard.json"
        path.write_bytes(self.ODD)
        path.chmod(0o640)
        board.claim("w", "a1")
        board.complete("a1", result="ok")
        text = content(folder).decode()
        for kept in (
            '{"owner" : "team"',
            '"x-note":{"a":[1,2.50]}',
            '"caf\\u00e9"',
            '"priority":3',
            '"meta":{"k":1e2}}\n\n',
        ):
            assert kept in text
        assert '{"id":"b2", "description":"ü"}' in text
        board.claim("w", "b2")
        board.release("b2")
        board.add("new", id="c3")
        found = json.loads(content(folder))
        assert found["owner"] == "team"
        assert found["meta"] == {"k": 100.0}
        assert [row["id"] for row in found["tasks"]] == ["a1", "b2", "c3"]
        assert found["tasks"][0]["x-note"] == {"a": [1, 2.5]}
        assert found["tasks"][0]["status"] == "completed"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert content(folder).endswith(b"\n\n")

    def test_a_refused_verb_changes_no_byte(self, board: TaskBoard, folder: Path) -> None:
        (folder / "taskboard.json").write_bytes(self.ODD)
        for attempt in (lambda: board.release("a1"), lambda: board.complete("zz"), lambda: board.add("", id="q")):
            with pytest.raises(DibsError):
                attempt()
        assert content(folder) == self.ODD

    def test_a_symbolic_link_is_refused_and_what_it_leads_to_stays(
        self, board: TaskBoard, folder: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "real.json"
        target.write_bytes(golden("0-new"))
        (folder / "taskboard.json").symlink_to(target)
        with pytest.raises(BoardUnusable, match="it is a symbolic link"):
            board.add("x", id="a")
        assert (folder / "taskboard.json").is_symlink()
        assert target.read_bytes() == golden("0-new")

    def test_unknown_dependencies_are_a_visible_reason_and_can_be_dropped(self, board: TaskBoard, folder: Path) -> None:
        write(folder, entry("a", depends_on=["ghost", "ghost"]), entry("b", depends_on=["b"]))
        assert board.claim("w") is None
        with pytest.raises(NotClaimable, match="ghost, which is not on the board"):
            board.claim("w", "a")
        with pytest.raises(NotClaimable, match="waits for b"):
            board.claim("w", "b")
        board.undepend("a", ["ghost"])
        board.undepend("b", ["b"])
        assert [row["depends_on"] for row in rows(folder)] == [[], []]
        assert sorted([taken(board, "w").id, taken(board, "w").id]) == ["a", "b"]

    def test_a_dependency_that_is_written_twice_is_met_once(self, board: TaskBoard, folder: Path) -> None:
        write(folder, entry("a"), entry("b", depends_on=["a", "a"]))
        board.claim("w", "a")
        board.complete("a")
        assert taken(board, "w").id == "b"

    def test_a_cycle_by_hand_hurts_nobody_else(self, board: TaskBoard, folder: Path) -> None:
        write(folder, entry("a", depends_on=["b"]), entry("b", depends_on=["a"]), entry("c"))
        assert taken(board, "w").id == "c"
        assert board.claim("w") is None
        with pytest.raises(NotClaimable, match="waits for b"):
            board.claim("w", "a")
        board.undepend("a", ["b"])
        assert taken(board, "w").id == "a"

    def test_a_task_that_a_hand_removes_is_gone(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        board.add("y", id="b", depends_on=["a"])
        board.claim("w", "a")
        write(folder, *[row for row in rows(folder) if row["id"] != "a"])
        with pytest.raises(ValueError, match="Task not found: a"):
            board.complete("a")
        with pytest.raises(NotClaimable, match="a, which is not on the board"):
            board.claim("w", "b")

    def test_a_hand_that_takes_a_claim_over_wins(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        board.claim("worker-1")
        write(folder, entry("a", status="in_progress", assigned_to="hand", claimed_at=START + 1))
        with pytest.raises(PermissionError):
            board.complete("a")
        assert board.get("a").assigned_to == "hand"
        write(folder, entry("a"))
        assert board.get("a").status is TaskStatus.PENDING
        assert taken(board, "worker-1").id == "a"


DAMAGE: dict[str, bytes] = {
    "empty": b"",
    "torn": golden("2-claimed")[:-80],
    "not utf-8": b'{"tasks": [{"id": "\xff"}]}',
    "a list": b"[]",
    "no tasks": b"{}",
    "tasks null": b'{"tasks": null}',
    "task is a number": b'{"tasks": [1]}',
    "no id": b'{"tasks": [{"description": "x"}]}',
    "same id twice": b'{"tasks": [{"id": "a"}, {"id": "a"}]}',
    "same key twice": b'{"tasks": [], "tasks": []}',
    "NaN": b'{"tasks": [{"id": "a", "created_at": NaN}]}',
    "1e999": b'{"tasks": [{"id": "a", "created_at": 1e999}]}',
    "1e999 in a full row": golden("1-added").replace(b"1700000000.0", b"1e999"),
    "400 digits": b'{"tasks": [{"id": "a", "claimed_at": 1' + b"0" * 400 + b"}]}",
    "5000 digits": b'{"tasks": [{"id": "a", "priority": 1' + b"0" * 5000 + b"}]}",
    "milliseconds": b'{"tasks": [{"id": "a", "status": "in_progress", "claimed_at": 1700000000000.0}]}',
    "text for a time": b'{"tasks": [{"id": "a", "created_at": "2026-01-01"}]}',
    "true for a time": b'{"tasks": [{"id": "a", "created_at": true}]}',
    "true for a priority": b'{"tasks": [{"id": "a", "priority": true}]}',
    "half a priority": b'{"tasks": [{"id": "a", "priority": 0.5}]}',
    "unknown status": b'{"tasks": [{"id": "a", "status": "done"}]}',
    "list for a status": golden("1-added").replace(b'"pending"', b"[]"),
    "number for a name": b'{"tasks": [{"id": "a", "assigned_to": 7}]}',
    "text for dependencies": b'{"tasks": [{"id": "a", "depends_on": "b"}]}',
    "numbers for dependencies": golden("1-added").replace(b'"a1b2c3d4"\n', b"1\n"),
    "object for a result": b'{"tasks": [{"id": "a", "result": {}}]}',
    "deep": b'{"tasks": [{"id": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    "half a pair": b'{"tasks": [{"id": "a", "description": "\\ud800"}]}',
}


class TestDamage:
    @pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
    def test_a_file_that_makes_no_sense_is_left_alone_and_works_once_mended(
        self, board: TaskBoard, folder: Path, data: bytes
    ) -> None:
        board.add("x", id="a")
        good = content(folder)
        (folder / "taskboard.json").write_bytes(data)
        for attempt in (
            board.status,
            lambda: board.claim("w"),
            lambda: board.add("y"),
            lambda: TaskBoard(state_dir=folder).tasks(),
        ):
            with pytest.raises(BoardUnusable, match=r"taskboard\.json") as caught:
                attempt()
            assert caught.value.hint
            assert content(folder) == data
        (folder / "taskboard.json").write_bytes(good)
        assert taken(board, "w").id == "a"

    @examples(60)
    @given(
        data=st.binary(max_size=200) | st.text(max_size=80).map(lambda t: f'{{"tasks":[{{"id":"a",{t}}}]}}'.encode())
    )
    def test_any_bytes_give_our_own_error_or_a_board(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "taskboard.json").write_bytes(data)
            try:
                TaskBoard(state_dir=folder).status()
                TaskBoard(state_dir=folder).claim("w", "zz")
            except DibsError:
                pass
            assert content(folder) == data

    @examples(80)
    @given(data=st.data())
    def test_a_well_formed_file_with_one_value_changed(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*KEYS, "tasks"]))
        value = data.draw(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
            | st.lists(st.text(max_size=2))
            | st.sampled_from([10**400, -(10**25), 1e300, "in_progress", "completed", {}])
        )  # fmt: skip
        document: dict[str, Any] = {"tasks": [entry("a", status="in_progress", claimed_at=START), entry("b")]}
        (document if key == "tasks" else document["tasks"][0])[key] = value
        written = json.dumps(document, indent=2).encode()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "taskboard.json").write_bytes(written)
            board = TaskBoard(state_dir=folder, stale_timeout=60)
            board.store.durable = False  # type: ignore[attr-defined]
            try:
                board.status()
            except BoardUnusable:
                with pytest.raises(BoardUnusable):
                    board.claim("w")
                assert content(folder) == written
                return
            board.claim("w")
            board.add("new", id="new")
            TaskBoard(state_dir=folder).tasks()
            assert rows(folder)[-1]["id"] == "new"

    def test_a_directory_in_place_of_the_file(self, board: TaskBoard, folder: Path) -> None:
        (folder / "taskboard.json").mkdir()
        for attempt in (board.status, lambda: board.add("x"), lambda: board.claim("w")):
            with pytest.raises(BoardUnusable, match=r"taskboard\.json"):
                attempt()
        (folder / "taskboard.json").rmdir()
        board.add("x")

    def test_a_lock_that_is_no_file(self, board: TaskBoard, folder: Path) -> None:
        (folder / "taskboard.lock").mkdir()
        with pytest.raises(BoardUnusable, match=r"taskboard\.lock"):
            board.add("x")
        with pytest.raises(BoardUnusable, match=r"taskboard\.lock"):
            board.status()

    def test_the_folder_goes_away(self, board: TaskBoard, folder: Path) -> None:
        os.rmdir(folder)
        with pytest.raises(BoardUnusable):
            board.add("x")
        folder.mkdir()
        board.add("x")

    def test_a_file_in_place_of_the_folder(self, folder: Path) -> None:
        folder.write_text("")
        with pytest.raises(OSError, match="state"):
            TaskBoard(state_dir=folder)

    def test_a_folder_that_may_not_be_written_can_be_read(self, tmp_path: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "state"
            write(folder, entry("a"))
            os.chmod(name, 0o755)
            folder.chmod(0o555)
            child = os.fork() if os.getuid() == 0 else 0
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                return
            code = 1
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                board = TaskBoard(state_dir=folder)
                assert [row["id"] for row in board.status()] == ["a"]
                with pytest.raises(BoardUnusable, match="Permission denied"):
                    board.claim("w")
                code = 0
            finally:
                folder.chmod(0o755) if os.getuid() != 65534 else os._exit(code)

    def test_a_full_disk_changes_nothing_and_says_so(
        self, board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        board.add("x", id="a")
        before = content(folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", _no_space)
            with pytest.raises(BoardUnusable, match="nothing was changed"):
                board.claim("w")
        assert content(folder) == before
        assert sorted(os.listdir(folder)) == [".dibs", "taskboard.json", "taskboard.lock"]
        assert taken(board, "w").attempts == 1
        assert len([e for e in board.recent() if e.action == "claimed_activity"]) == 1


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device", "somewhere")


HOLD = """
import fcntl, sys, os, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
if len(sys.argv) > 2:
    open(sys.argv[2], "w").write(sys.argv[3])
os.close(fd)
"""


class TestTheLock:
    @pytest.mark.parametrize("verb", ["claim", "status", "add"])
    def test_whoever_holds_the_flock_is_waited_for(self, board: TaskBoard, folder: Path, verb: str) -> None:
        board.add("x", id="a")
        after = json.dumps({"tasks": [entry("a", status="completed"), entry("late", priority=9)]}, indent=2)
        holder = python(HOLD, str(folder / "taskboard.lock"), str(folder / "taskboard.json"), after)
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        answers: list[Any] = []
        calls: dict[str, Callable[[], Any]] = {
            "claim": lambda: taken(board, "w").id,
            "status": lambda: [row["id"] for row in board.status()],
            "add": lambda: board.add("new", id="new"),
        }
        thread = threading.Thread(target=lambda: answers.append(calls[verb]()))
        thread.start()
        thread.join(0.15)
        assert answers == []
        (folder / "taskboard.json").write_text("half of it")  # in place, as the document's program does
        holder.stdin.write("\n")
        holder.stdin.flush()
        thread.join(20)
        assert holder.wait(20) == 0
        holder.stdin.close()
        holder.stdout.close()
        assert answers == [{"claim": "late", "status": ["a", "late"], "add": "new"}[verb]]
        assert {row["id"] for row in rows(folder)} == {"a", "late"} | ({"new"} if verb == "add" else set())

    def test_readers_do_not_hinder_each_other(self, board: TaskBoard, folder: Path) -> None:
        board.add("x")
        with open(folder / "taskboard.lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            assert board.pending_count == 1

    def test_two_boards_and_threads_on_one_folder(self, folder: Path) -> None:
        boards = [TaskBoard(state_dir=folder) for _ in range(3)]
        for board in boards:
            board.store.durable = False  # type: ignore[attr-defined]
        ids = [boards[at % 3].add(f"task {at}") for at in range(30)]
        got: list[str] = []

        def work(board: TaskBoard, name: str) -> None:
            while (task := board.claim(name)) is not None:
                got.append(task.id)
                board.complete(task.id, name)

        threads = [threading.Thread(target=work, args=(boards[at % 3], f"w{at}")) for at in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(got) == sorted(ids)
        assert all(board.all_done for board in boards)

    def test_a_forked_child_goes_on_even_if_a_thread_was_in_the_middle(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        inside, go_on = threading.Event(), threading.Event()

        def middle() -> None:
            with board.store.write() as tx:
                tx.get(["a"])
                inside.set()
                go_on.wait(20)

        thread = threading.Thread(target=middle)
        thread.start()
        assert inside.wait(20)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of exactly this
            child = os.fork()
        if child == 0:
            try:
                time.sleep(0.05)
                ok = board.claim("child") is not None
            except BaseException:
                ok = False
            os._exit(0 if ok else 1)
        go_on.set()
        thread.join(20)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert board.get("a").assigned_to in ("child", None)  # None: the child's process is dead by now

    def test_a_writer_that_was_killed_half_way_through_the_file(self, board: TaskBoard, folder: Path) -> None:
        board.add("x", id="a")
        whole = content(folder)
        killed = python(
            """
            import fcntl, os, signal, sys
            fd = os.open(sys.argv[1] + ".lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(fd, fcntl.LOCK_EX)
            with open(sys.argv[1] + ".json", "r+") as file:
                data = file.read()
                file.seek(0)
                file.truncate()
                file.write(data[: len(data) // 2])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            """,
            str(folder / "taskboard"),
        )
        killed.communicate(timeout=20)
        torn = content(folder)
        assert torn == whole[: len(whole) // 2]
        with pytest.raises(BoardUnusable, match=r"taskboard\.json: line \d+, column \d+"):
            board.claim("w")
        assert content(folder) == torn
        (folder / "taskboard.json").write_bytes(whole)
        assert taken(board, "w").id == "a"


def _update(tasks: list[dict[str, Any]], row: dict[str, Any]) -> None:
    next(task for task in tasks if task["id"] == row["id"]).update(row)


class Sharing(RuleBasedStateMachine):
    """Two boards by dibs and a hand, which loads, changes and dumps under the flock, on one file; and a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.clock = HandClock()
        self.boards = [TaskBoard(state_dir=self.folder, clock=self.clock) for _ in range(2)]
        for board in self.boards:
            board.store.durable = False  # type: ignore[attr-defined]
        self.model: dict[str, dict[str, Any]] = {}
        self.number = 0

    def teardown(self) -> None:
        self.temporary.cleanup()

    def _hand(self, change: Callable[[list[dict[str, Any]]], None], indent: int | None = 2) -> None:
        path = self.folder / "taskboard.json"
        with open(self.folder / "taskboard.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = json.loads(path.read_bytes()) if path.exists() else {"tasks": []}
            change(found["tasks"])
            path.write_text(json.dumps(found, indent=indent))

    def _pick(self, data: st.DataObject, *statuses: str) -> dict[str, Any] | None:
        found = sorted(i for i, row in self.model.items() if row["status"] in statuses)
        return self.model[data.draw(st.sampled_from(found))] if found else None

    def _worker(self, name: str) -> Worker:
        return Worker(name, session=f"session of {name}")

    @rule(who=st.integers(0, 1), priority=st.integers(0, 2), text=st.text(min_size=1, max_size=5), data=st.data())
    def add(self, who: int, priority: int, text: str, data: st.DataObject) -> None:
        self.clock.advance(1)
        self.number += 1
        needs = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True, max_size=2)) if self.model else []
        task_id = f"t{self.number}"
        try:
            self.boards[who].add(text, priority=priority, depends_on=needs, id=task_id)
        except ValueError:
            return  # no text worth a task
        self.model[task_id] = entry(
            task_id, description=self.boards[who].get(task_id).description, priority=priority, depends_on=needs,
            created_at=self.clock.wall(),
        )  # fmt: skip

    @rule(who=st.integers(0, 1))
    def claim(self, who: int) -> None:
        self.clock.advance(1)
        free = [
            row
            for row in self.model.values()
            if row["status"] == "pending" and all(self.model[i]["status"] == "completed" for i in row["depends_on"])
        ]
        free.sort(key=lambda row: (-row["priority"], row["created_at"]))
        task = self.boards[who].claim(self._worker(f"w{who}"))
        assert (task.id if task else None) == (free[0]["id"] if free else None)
        if task:
            self.model[task.id] |= {"status": "in_progress", "assigned_to": f"w{who}", "claimed_at": self.clock.wall()}

    @rule(verb=st.sampled_from(["complete", "fail", "release"]), data=st.data())
    def end(self, verb: str, data: st.DataObject) -> None:
        self.clock.advance(1)
        row = self._pick(data, "in_progress")
        if row is None:
            return
        who = int(row["assigned_to"][-1]) if row["assigned_to"] in ("w0", "w1") else 0
        worker = self._worker(row["assigned_to"])
        if verb == "release":
            self.boards[who].release(row["id"], worker=worker)
            row |= {"status": "pending", "assigned_to": None, "claimed_at": None}
        else:
            getattr(self.boards[who], verb)(row["id"], verb, worker=worker)
            row |= {
                "status": f"{verb}d" if verb == "complete" else "failed",
                "result": verb,
                "completed_at": self.clock.wall(),
            }

    @rule(data=st.data(), indent=st.sampled_from([2, None]))
    def hand_claims(self, data: st.DataObject, indent: int | None) -> None:
        self.clock.advance(1)
        row = self._pick(data, "pending")
        if row is not None:
            row |= {"status": "in_progress", "assigned_to": "hand", "claimed_at": self.clock.wall()}
            self._hand(lambda tasks: _update(tasks, row), indent)

    @rule(data=st.data(), note=st.text(max_size=3))
    def hand_edits(self, data: st.DataObject, note: str) -> None:
        row = self._pick(data, "pending", "in_progress", "completed", "failed")
        if row is not None:
            row |= {"priority": row["priority"] + 1, "note": note}
            self._hand(lambda tasks: _update(tasks, row))

    @rule()
    def hand_adds(self) -> None:
        self.clock.advance(1)
        self.number += 1
        row = entry(f"h{self.number}", created_at=self.clock.wall() - 10)
        self.model[row["id"]] = dict(row)
        self._hand(lambda tasks: tasks.insert(0, row))

    @rule(data=st.data())
    def hand_removes(self, data: st.DataObject) -> None:
        row = self._pick(data, "completed", "failed")
        if row is None or any(row["id"] in other["depends_on"] for other in self.model.values()):
            return
        del self.model[row["id"]]
        self._hand(lambda tasks: tasks.remove(next(task for task in tasks if task["id"] == row["id"])))

    @precondition(lambda self: self.model)
    @rule()
    def companion_is_lost(self) -> None:
        (self.folder / ".dibs" / "claims.json").unlink(missing_ok=True)

    @invariant()
    def nothing_is_lost(self) -> None:
        if self.model:
            assert {row["id"]: row for row in rows(self.folder)} == self.model
            for board in self.boards:
                assert {row["id"]: row["status"] for row in board.status()} == {
                    i: row["status"] for i, row in self.model.items()
                }


TestSharing = Sharing.TestCase
TestSharing.settings = settings(examples(25), stateful_step_count=20)


@pytest.fixture(autouse=True)
def _no_leftovers(tmp_path: Path) -> Iterator[None]:
    """No draft of any file stays behind."""
    yield
    assert [str(path) for path in tmp_path.rglob("*.dibs-*")] == []
