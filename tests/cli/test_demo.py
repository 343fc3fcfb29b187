"""`dibs demo --plain` as a stranger runs it, and that its checks would notice if something were wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

import dibs
from dibs import TaskBoard, Worker
from dibs.cli.demo import shop
from dibs.cli.demo.check import examine, left_running, passed_over

PATIENCE = 60.0
QUICK = ("--plain", "--workers", "3", "--tasks", "8")


def environment(folder: Path) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("DIBS_", "COLUMNS"))}
    return plain | {
        "PYTHONPATH": str(Path(dibs.__file__).parents[1]),
        "TMPDIR": str(folder),
        "TERM": "xterm-256color",
        "PYTHONIOENCODING": "utf-8",
    }


def demo(folder: Path, *words: str, **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "demo", *words],
        env=environment(folder) | more,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


def worker_processes(folder: Path) -> list[int]:
    """The demo's workers that run on a board in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes()
        except OSError:
            continue
        if b"dibs.cli.demo.worker" in command and os.fsencode(folder) in command:
            found.append(int(entry.parent.name))
    return found


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.02)


def test_everything_is_done_once_although_a_worker_is_killed(tmp_path: Path) -> None:
    code, out, err = demo(tmp_path, "--json", *QUICK)
    assert code == 0, err
    document = json.loads(out)
    assert document["ok"]
    assert (document["tasks"], document["completed"]) == (8, 8)
    assert (document["claims"], document["double_claims"]) == (9, 0)
    assert document["problems"] == []
    killed = document["killed"]
    assert killed["taken_by"] not in (None, killed["worker"])
    assert sum(len(worker["completed"]) for worker in document["workers"]) == 8
    assert worker_processes(tmp_path) == []
    with TaskBoard.open(document["board"]) as board:
        assert board.all_done
        history = [(event.action, event.worker) for event in board.changelog(task_id=killed["task"])]
        assert history[1:] == [
            ("claimed_activity", killed["worker"]),
            ("recovered_activity", "dibs"),
            ("claimed_activity", killed["taken_by"]),
            ("completed_activity", killed["taken_by"]),
        ]


def test_without_a_terminal_progress_is_plain_lines_and_the_summary_says_where_to_look(tmp_path: Path) -> None:
    code, out, _ = demo(tmp_path, *QUICK)
    assert code == 0
    assert "\x1b" not in out
    assert "8/8" in out
    assert "is killed with SIGKILL while it works on" in out
    assert "0 double claims" in out
    board = re.search(r"--board (\S+) log\n", out)
    assert board is not None
    assert Path(board[1]).is_file()
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "--board", board[1], "list", "--all", "--json"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert json.loads(done.stdout)["total"] == 8


def at_a_terminal(folder: Path, *words: str) -> pexpect.spawn:
    return pexpect.spawn(
        sys.executable,
        ["-m", "dibs", "demo", *words],
        env=environment(folder),
        dimensions=(24, 80),
        timeout=PATIENCE,
        encoding="utf-8",
    )


def test_on_a_terminal_one_screen_changes_in_place_and_fits_80_columns(tmp_path: Path) -> None:
    terminal = at_a_terminal(tmp_path, *QUICK)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    shown = terminal.before or ""
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor comes back
    frames, _, summary = shown.rpartition("\x1b[?25h")
    assert "worker-3" in frames
    assert "8 tasks" in summary
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "")
    lines = [line for line in plain.splitlines() if "dibs-demo-" not in line]  # paths are as long as they are
    assert max(map(len, lines)) < 80
    above = [int(rows) for rows in re.findall(r"\x1b\[(\d+)A", shown)]
    assert len(above) > 5
    assert max(above) < 24


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_it_leaves_no_process_and_a_terminal_with_a_cursor(tmp_path: Path, number: int, code: int) -> None:
    terminal = at_a_terminal(tmp_path, "--plain")
    terminal.expect_exact("of 24 done")
    until(lambda: len(worker_processes(tmp_path)) == 4, "all workers run")
    if number == signal.SIGINT:
        terminal.sendintr()
    else:
        terminal.kill(number)
    terminal.expect_exact("\x1b[?25h")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == code
    assert worker_processes(tmp_path) == []
    assert "Traceback" not in (terminal.before or "")


def test_workers_end_by_themselves_when_the_demo_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "demo", "--plain"], env=environment(tmp_path), stdout=subprocess.DEVNULL
    )
    try:
        until(lambda: len(worker_processes(tmp_path)) == 4, "all workers run")
    finally:
        process.kill()
        process.wait()
    until(lambda: not worker_processes(tmp_path), "the workers have gone")


@pytest.mark.parametrize(
    "words",
    [
        ("--workers", "1"),
        ("--workers", "99"),
        ("--plain", "--workers", "99"),
        ("--plain", "--tasks", "0"),
        ("--plain", "--tasks", "x"),
        ("--plain", "--agents"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert demo(tmp_path, *words)[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_tasks_is_the_leads_affair_and_the_refusal_says_where_it_can_be_given(tmp_path: Path) -> None:
    code, _, err = demo(tmp_path, "--tasks", "8")
    assert code == 2
    assert "--tasks goes with --plain or --agents" in err


def test_without_git_the_plain_demo_is_shown_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    code, out, err = demo(tmp_path, "--json", "--workers", "3", PATH=str(tmp_path / "bin"))
    assert code == 0, err
    assert "there is no git here; showing dibs demo --plain instead" in err
    assert json.loads(out)["completed"] == 24


@pytest.mark.parametrize("number", [1, 24, 60])
def test_the_shop_is_a_plan_that_a_board_accepts(number: int) -> None:
    assert len(TaskBoard().add_many(shop.tasks(number))) == number


# -- the checks check


class Diary:
    """A board that was worked on as the demo's workers would, and their records."""

    def __init__(self) -> None:
        self.board = TaskBoard()
        self.board.add("first", id="a", paths=["src/**"])
        self.board.add("second", id="b", depends_on=["a"])
        self.records: dict[str, list[dict[str, Any]]] = {"w1": [], "w2": []}
        self.ends = {"w1": 100.0, "w2": 100.0}
        self.work("w1", "a", 1.0, 2.0)
        self.work("w2", "b", 3.0, 4.0)

    def work(self, name: str, task_id: str, begun: float, done: float) -> None:
        task = self.board.claim(Worker(name, session=name), task_id)
        assert task is not None
        self.note(name, "claimed", task_id, task.token, begun)
        self.note(name, "finished", task_id, task.token, done)
        task.complete()
        self.note(name, "completed", task_id, task.token, done)

    def note(self, name: str, did: str, task_id: str, token: int | None, at: float) -> None:
        self.records[name].append({"did": did, "task": task_id, "token": token, "at": at})

    def problems(self) -> list[str]:
        return examine(self.board, self.records, self.ends).problems


def test_an_orderly_run_has_no_problems() -> None:
    assert Diary().problems() == []


def test_two_workers_at_one_task_at_the_same_time_are_noticed() -> None:
    diary = Diary()
    diary.note("w2", "claimed", "a", 99, 1.5)
    assert "a: w1 and w2 worked on it at the same time" in diary.problems()


def test_a_claim_that_is_not_in_the_changelog_is_noticed() -> None:
    diary = Diary()
    diary.note("w2", "claimed", "a", 99, 50.0)
    assert any("only in w2's records" in problem for problem in diary.problems())


def test_a_claim_that_no_worker_knows_of_is_noticed() -> None:
    diary = Diary()
    diary.records["w2"] = []
    assert any("only in the changelog" in problem for problem in diary.problems())


def test_a_worker_that_was_killed_and_came_back_is_no_second_one() -> None:
    diary = Diary()
    diary.board.add("third", id="c")
    lost = diary.board.claim(Worker("w1", session="first run"), "c")
    assert lost is not None
    diary.note("w1", "claimed", "c", lost.token, 5.0)
    lost.release()
    diary.work("w2", "c", 7.0, 9.0)
    assert "c: w1 and w2 worked on it at the same time" in diary.problems()
    diary.note("w1", "killed", "c", None, 6.0)
    assert diary.problems() == []


def test_claims_that_passed_over_a_held_file_are_counted() -> None:
    board = TaskBoard()
    for name, path in (("a", "x.py"), ("b", "x.py"), ("c", "y.py"), ("d", "z.py")):
        board.add(name, id=name, paths=[path], depends_on=["c"] if name == "d" else [])

    def count() -> int:
        return passed_over({task.id: task for task in board.tasks()[0]}, list(board.changelog()))

    first = board.claim("w1")
    assert first is not None
    assert first.id == "a"
    assert count() == 0
    second = board.claim("w2")
    assert second is not None
    assert second.id == "c"
    assert count() == 1
    first.complete()
    assert board.claim("w3", "b") is not None
    assert count() == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of processes")
def test_a_process_that_was_left_running_is_noticed(tmp_path: Path) -> None:
    session = f"run of {tmp_path}"
    process = subprocess.Popen(["sleep", "60"], env=os.environ | {"DIBS_SESSION": f"{session}-worker-1-1"})
    try:
        until(lambda: left_running(session) == [f"process {process.pid} is still running"], "it is found")
    finally:
        process.kill()
        process.wait()
    assert left_running(session) == []


def test_a_task_that_was_left_undone_is_noticed() -> None:
    diary = Diary()
    diary.board.add("third", id="c")
    assert "c is pending and was completed 0 times" in diary.problems()


def test_a_completion_that_the_board_does_not_know_is_noticed() -> None:
    diary = Diary()
    diary.note("w1", "completed", "b", 5, 9.0)
    assert any("known to one side only" in problem for problem in diary.problems())
