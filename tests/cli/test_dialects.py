"""The commands on boards that live in documents' own files: what they say, what they refuse, how they exit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.shell import Shell

BUSY = "Board is locked by another agent. Cannot proceed."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


class TestTaskboard:
    @pytest.fixture
    def shell(self, folder: Path) -> Shell:
        made = Shell(folder, DIBS_BOARD=f"taskboard:{folder / 'state'}")
        made.ok("init")
        return made

    def test_a_task_from_beginning_to_end(self, shell: Shell, folder: Path) -> None:
        first = shell.add("Write the login endpoint", "--priority", "2")
        second = shell.add("Test it", "--needs", first)
        assert shell.ok("list", "--json").json["tasks"][0]["id"] == first
        claimed = shell.ok("claim").out
        assert f"claimed {first}" in claimed
        assert "worker-1" in shell.ok("show", first).out
        refused = shell("claim", second)
        assert refused.code == 1
        assert f"waits for {first}" in refused.err
        shell.ok("done", first, "it works")
        rows = json.loads((folder / "state" / "taskboard.json").read_bytes())["tasks"]
        assert [(row["status"], row["result"]) for row in rows] == [("completed", "it works"), ("pending", None)]
        shell.ok("claim")
        shell.ok("release", second)
        assert shell.status(second) == "pending"
        shell.ok("claim")
        shell.ok("fail", second, "no database")
        assert shell.status(second) == "failed"
        log = shell.ok("log").out
        for said in ("made the board", f"added {first}", f"claimed {first}", "completed", "released", "no database"):
            assert said in log

    def test_a_hands_claim_has_no_end_and_can_be_recovered(self, shell: Shell, folder: Path) -> None:
        task = shell.add("x")
        path = folder / "state" / "taskboard.json"
        found = json.loads(path.read_bytes())
        found["tasks"][0] |= {"status": "in_progress", "assigned_to": "hand", "claimed_at": time.time()}
        path.write_text(json.dumps(found, indent=2))
        refused = shell("claim", task)
        assert refused.code == 1
        assert f"cannot claim task {task}: held by hand until it is given back" in refused.err
        assert "until it is given back" in shell("done", task, "me").err
        found["tasks"][0]["claimed_at"] = None
        path.write_text(json.dumps(found, indent=2))
        assert "held by hand until it is given back" in shell("claim", task).err
        assert "nothing to recover" in shell.ok("recover").out
        assert task in shell.ok("recover", "--worker", "hand").out
        assert shell.status(task) == "pending"

    def test_messages_and_waiting(self, shell: Shell) -> None:
        shell.ok("tell", "worker-2", "please look")
        assert "please look" in shell.ok("inbox", DIBS_AGENT="worker-2").out
        assert "please look" not in shell.ok("inbox", DIBS_AGENT="worker-2").out
        assert shell("wait", "--timeout", "0").code == 3
        waiting = subprocess.Popen(
            [sys.executable, "-m", "dibs", "wait", "--timeout", "30"],
            cwd=shell.folder,
            env=shell.environ,
            stdout=subprocess.DEVNULL,
        )
        shell.add("x")
        assert waiting.wait(30) == 0

    @pytest.mark.parametrize(
        ("words", "what", "nearest"),
        [
            (("block", "ID", "why"), "blockers", "dibs release"),
            (("cancel", "ID"), "cancelled tasks", "dibs fail"),
            (("lock", "a.py"), "locks", "dibs init"),
            (("add", "x", "--path", "a.py"), "paths", "description"),
            (("add", "x", "--parent", "ID"), "parents", "dibs add --needs"),
        ],
    )
    def test_what_the_format_cannot_keep(self, shell: Shell, words: tuple[str, ...], what: str, nearest: str) -> None:
        task = shell.add("x")
        refused = shell(*(task if word == "ID" else word for word in words), "--json")
        assert refused.code == 1
        assert refused.error["code"] == "unsupported"
        assert refused.error["capability"] == what
        assert "taskboard" in refused.error["message"]
        assert nearest in refused.error["hint"]

    def test_dependencies_by_hand_are_named_and_dropped(self, shell: Shell, folder: Path) -> None:
        task = shell.add("x")
        path = folder / "state" / "taskboard.json"
        path.write_text(path.read_text().replace('"depends_on": []', '"depends_on": ["ghost"]'))
        refused = shell("claim", task)
        assert f"dibs dep {task} --drop ghost" in " ".join(refused.err.split())
        assert "ghost" in shell("check").out
        shell.ok("dep", task, "--drop", "ghost")
        shell.ok("claim", task)

    def test_a_damaged_file_is_an_error_with_a_place(self, shell: Shell, folder: Path) -> None:
        path = folder / "state" / "taskboard.json"
        path.write_text('{"tasks": [')
        for words in (("list",), ("claim",), ("add", "x")):
            refused = shell(*words, "--json")
            assert refused.code == 1
            assert refused.error["code"] == "board_unusable"
            assert "taskboard.json: line 1, column" in refused.error["message"]
        assert path.read_text() == '{"tasks": ['

    def test_no_board_there(self, folder: Path) -> None:
        refused = Shell(folder)("--board", "taskboard:nowhere", "list", "--json")
        assert refused.code == 1
        assert refused.error["code"] == "no_board"
        assert not (folder / "nowhere").exists()


class TestWorkflow:
    @pytest.fixture
    def shell(self, folder: Path) -> Shell:
        made = Shell(folder, DIBS_BOARD=f"workflow:{folder / '.workflow'}?pause=0.01&retries=3")
        made.ok("--as", "planner-1", "init")
        return made

    def test_only_a_planner_makes_it(self, folder: Path) -> None:
        shell = Shell(folder)
        refused = shell("--board", "workflow:.workflow", "--as", "worker-1", "init", "--json")
        assert refused.code == 1
        assert refused.error["code"] == "not_allowed"
        assert list(folder.iterdir()) == []
        shell.ok("--board", "workflow:.workflow", "--as", "planner-1", "init")
        assert json.loads((folder / ".workflow" / "board.json").read_bytes())["version"] == 1
        assert "there already" in shell.ok("--board", "workflow:.workflow", "--as", "worker-1", "init").out

    def test_from_planner_to_worker_to_integrator(self, shell: Shell, folder: Path) -> None:
        shell.ok("--as", "planner-1", "add", "Build the parser", "--path", "src/parser.py")
        shell.ok("--as", "planner-1", "add", "Test it", "--needs", "task-001")
        refused = shell("--as", "integrator-1", "claim", "--json")
        assert (refused.code, refused.error["code"]) == (1, "not_allowed")
        assert "locked for you: src/parser.py" in shell.ok("claim").out
        assert "review" in shell.ok("done", "task-001", "built").out
        assert "task-002" in shell.ok("--as", "worker-2", "claim").out
        shell.ok("--as", "integrator-1", "accept", "task-001")
        shell.ok("--as", "worker-2", "done", "task-002")
        shell.ok("--as", "integrator-1", "reject", "task-002", "no tests")
        board = json.loads((folder / ".workflow" / "board.json").read_bytes())
        assert [task["status"] for task in board["tasks"]] == ["integrated", "open"]
        assert "no tests" in board["tasks"][1]["note"]
        assert board["version"] == 9

    def test_a_lock_that_stays(self, shell: Shell, folder: Path) -> None:
        shell.ok("--as", "planner-1", "add", "x")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lock = folder / ".workflow" / "board.lock"
        lock.write_text(json.dumps({"agent": "worker-w9", "ts": now}))
        refused = shell("claim")
        assert refused.code == 1
        assert refused.err.startswith(f"dibs: {BUSY}\n")
        assert "worker-w9 has it" in refused.err
        assert shell("claim", "--json").error["message"] == BUSY
        listed = shell.ok("list")
        assert "task-001" in listed.out
        assert listed.err.count("still held by worker-w9; reading all the same") == 1
        lock.write_text('{"agent": "worker-w9"}')
        shell.ok("claim")
        assert not lock.exists()

    def test_a_board_that_is_missing(self, shell: Shell, folder: Path) -> None:
        (folder / ".workflow" / "board.json").unlink()
        for words in (("list",), ("claim",), ("--as", "integrator-1", "list")):
            refused = shell(*words, "--json")
            assert (refused.code, refused.error["code"]) == (1, "no_board")
            assert "only a planner may create it" in refused.error["message"]
        assert not (folder / ".workflow" / "board.json").exists()

    @pytest.mark.parametrize(
        ("words", "what"), [(("fail", "task-001", "no"), "failed tasks"), (("cancel", "task-001"), "cancelled tasks")]
    )
    def test_what_the_format_cannot_keep(self, shell: Shell, words: tuple[str, ...], what: str) -> None:
        shell.ok("--as", "planner-1", "add", "x")
        shell.ok("claim")
        refused = shell(*words, "--json")
        assert refused.error["code"] == "unsupported"
        assert refused.error["capability"] == what
        assert "workflow" in refused.error["message"]
        assert "dibs release task-001" in refused.error["hint"]

    def test_numbers_that_make_no_sense(self, folder: Path) -> None:
        refused = Shell(folder)("--board", "workflow:.workflow?pause=nan", "list", "--json")
        assert (refused.code, refused.error["code"]) == (1, "invalid")


class TestSpec:
    @pytest.fixture
    def shell(self, folder: Path) -> Shell:
        made = Shell(folder, DIBS_BOARD=f"spec:{folder / 'spec'}")
        made.ok("init")
        return made

    def test_a_task_and_its_files_or_busy(self, shell: Shell, folder: Path) -> None:
        assert shell.ok("acquire", "T1", "src/a.py", "src/b.py").out == "ACQUIRED\n"
        assert sorted(path.name for path in (folder / "spec" / ".locks" / "files").iterdir()) == [
            "src__a.py",
            "src__b.py",
        ]
        busy = shell("acquire", "T2", "src/b.py", "--retry", "0", DIBS_AGENT="worker-2")
        assert (busy.code, busy.out) == (3, "BUSY\n")
        assert "src/b.py is held by worker-1 until it is given back" in busy.err
        assert [path.name for path in (folder / "spec" / ".locks" / "tasks").iterdir()] == ["T1"]
        shell.ok("done", "T1")
        assert list((folder / "spec" / ".locks" / "files").iterdir()) == []
        assert shell.ok("acquire", "T2", "src/b.py", DIBS_AGENT="worker-2").out == "ACQUIRED\n"

    def test_a_list_is_tried_in_turn(self, shell: Shell, folder: Path) -> None:
        shell.ok("acquire", "T1", "a.py")
        (folder / "tasks.txt").write_text("T1\nT2 a.py\n\nT3 c.py\n")
        got = shell.ok("acquire", "--file", "tasks.txt", "--retry", "0", "--json", DIBS_AGENT="worker-2").json
        assert got["acquired"] is True
        assert got["task"]["id"] == "T3"
        assert [(c["task_id"], c["holder"]) for c in got["conflicts"]] == [("T1", "worker-1"), ("T2", "worker-1")]
        none = shell("acquire", "--file", "-", "--retry", "0", stdin="T1\n", DIBS_AGENT="worker-3")
        assert (none.code, none.out) == (3, "BUSY\n")
        third = shell.ok("acquire", "--file", "-", stdin="T1\nT4\n", DIBS_AGENT="worker-3")
        assert third.out == "ACQUIRED T4\n"

    def test_the_orchestrator_cleans_up(self, shell: Shell, folder: Path) -> None:
        shell.ok("acquire", "T1", "a.py")
        assert "T1" in shell.ok("recover", "--worker", "worker-1", DIBS_AGENT="lead-1").out
        for kind in ("tasks", "files"):
            assert list((folder / "spec" / ".locks" / kind).iterdir()) == []

    def test_there_is_no_list_of_tasks(self, shell: Shell) -> None:
        for words, nearest in ((("add", "x"), "dibs claim ID"), (("claim",), "dibs acquire --file FILE")):
            refused = shell(*words, "--json")
            assert refused.error["code"] == "unsupported"
            assert "spec" in refused.error["message"]
            assert nearest in refused.error["hint"]

    def test_claims_have_no_end(self, shell: Shell) -> None:
        assert "yours until you give it back" in shell.ok("claim", "T1").out
        assert "no end" in shell.ok("lock", "a.py").out + shell.ok("locks").out
        assert "held by worker-1 until it is given back" in shell("claim", "T1", DIBS_AGENT="worker-2").err
