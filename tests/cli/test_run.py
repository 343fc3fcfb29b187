"""`dibs run` with real processes and real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

import dibs
from dibs import TaskBoard, TaskStatus, Worker

OTHER = Worker("other", session="elsewhere")
PATIENCE = 20.0
SHORT_GRACE = "import sys, dibs.cli.running as r, dibs.cli as c; r.GRACE = 0.3; sys.exit(c.main())"


class Place:
    """A folder with a board, and `dibs` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.board = TaskBoard.open(f"sqlite:{folder / 'board.db'}", create=True, durability="normal")
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("DIBS_", "CLAUDE", "CODEX", "GEMINI"))}
        self.environ = plain | {
            "DIBS_BOARD": self.board.url,
            "DIBS_AGENT": "runner",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(Path(dibs.__file__).parents[1]),
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, program: tuple[str, ...] = ("-m", "dibs")) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def dibs(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def status(self, task_id: str) -> str:
        return str(self.board.get(task_id).status)

    def notes(self, task_id: str) -> list[str | None]:
        return [event.details for event in self.board.changelog(task_id=task_id)]

    def close(self) -> None:
        for process in self.started:
            process.terminate()
            process.communicate()
        self.board.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.01)
    return found


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


# -- how it ends


def test_a_command_that_succeeds_completes_its_task(place: Place) -> None:
    place.board.add("paint the shed", id="shed")
    code, out, err = place.dibs("run", "--", "echo", "painted")
    assert (code, out) == (0, "painted\n")
    assert "shed is completed" in err
    task = place.board.get("shed")
    assert (task.status, task.result, task.assigned_to) == (TaskStatus.COMPLETED, "exit 0", "runner")


def test_the_command_finds_the_task_and_its_worker_in_the_environment(place: Place) -> None:
    place.board.add("paint the\nshed ☀", id="shed", labels=["garden"])
    show = "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('DIBS')}))"
    code, out, _ = place.dibs("run", "--", sys.executable, "-c", show)
    assert code == 0
    found = json.loads(out)
    claimed = next(e for e in place.board.changelog() if e.action == "claimed_activity")
    assert claimed.data is not None
    holder = claimed.data["set"]["holder"]
    assert found["DIBS_TASK_ID"] == "shed"
    assert found["DIBS_TASK"] == "paint the\nshed ☀"
    assert found["DIBS_TOKEN"] == str(claimed.data["set"]["token"])
    assert (found["DIBS_AGENT"], found["DIBS_KIND"]) == ("runner", "agent")
    assert found["DIBS_SESSION"] == holder["session"]
    assert found["DIBS_BOARD"] == place.board.url
    assert json.loads(found["DIBS_TASK_JSON"])["labels"] == ["garden"]


def test_a_task_too_long_for_the_environment_is_left_out_of_it_and_said(place: Place) -> None:
    place.board.add("\x01" * 60_000, id="long")
    code, out, err = place.dibs("run", "--", "sh", "-c", 'echo "${DIBS_TASK_JSON-none}" "${#DIBS_TASK}"')
    assert (code, out) == (0, "none 60000\n")
    assert "dibs show long --json" in err


def test_a_command_that_fails_gives_the_task_back_and_its_exit_code_is_ours(place: Place) -> None:
    place.board.add("x", id="x")
    assert place.dibs("run", "--", "sh", "-c", "exit 42")[0] == 42
    assert place.status("x") == "pending"
    assert place.notes("x")[-1] == "command exited with 42"


def test_with_fail_a_command_that_fails_fails_the_task(place: Place) -> None:
    place.board.add("x", id="x")
    assert place.dibs("run", "--fail", "--", "sh", "-c", "exit 42")[0] == 42
    assert place.status("x") == "failed"
    assert place.board.get("x").result == "command exited with 42"


def test_a_command_that_a_signal_ended_gives_the_task_back(place: Place) -> None:
    place.board.add("x", id="x")
    assert place.dibs("run", "--", "sh", "-c", "kill -KILL $$")[0] == 128 + signal.SIGKILL
    assert place.status("x") == "pending"
    assert place.notes("x")[-1] == "command was ended by SIGKILL"


@pytest.mark.parametrize(
    ("verb", "status"), [("done 'by hand'", "completed"), ("fail 'no way'", "failed"), ("release", "pending")]
)
@pytest.mark.parametrize("code", [0, 5])
def test_what_the_command_did_with_its_task_stays_as_it_is(place: Place, verb: str, status: str, code: int) -> None:
    place.board.add("x", id="x")
    assert place.dibs("run", "--", "sh", "-c", f"$PYTHON -m dibs {verb} && exit {code}")[0] == code
    assert place.status("x") == status
    endings = [e for e in place.board.changelog(task_id="x") if "status" in (e.data or {}).get("set", {})]
    assert len(endings) == 2  # the claim, and what the command did


def test_a_command_may_go_on_after_it_has_ended_its_task(place: Place) -> None:
    place.board.add("x", id="x")
    process = place.start(
        "run", "--lease", "0.3", "--", "sh", "-c", "$PYTHON -m dibs done >&2; echo done; sleep 0.7; echo still here"
    )
    assert process.communicate(timeout=PATIENCE)[0] == "done\nstill here\n"
    assert process.returncode == 0


def test_a_task_that_asks_for_review_goes_to_review(place: Place) -> None:
    place.board.add("x", id="x", review=True)
    assert place.dibs("run", "--", "true")[0] == 0
    assert place.status("x") == "review"


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), (os.devnull, 126)])
def test_a_command_that_cannot_be_started_gives_the_task_back(place: Place, command: str, code: int) -> None:
    place.board.add("x", id="x")
    got, _, err = place.dibs("run", "--", command)
    assert got == code
    assert f"cannot run {command}" in err
    assert place.status("x") == "pending"


def test_nothing_to_claim_is_exit_code_3_and_runs_nothing(place: Place) -> None:
    code, out, err = place.dibs("run", "--", "echo", "ran")
    assert (code, out) == (3, "")
    assert "nothing to claim" in err


def test_under_json_stdout_is_one_document_and_the_command_writes_to_stderr(place: Place) -> None:
    place.board.add("x", id="x")
    code, out, err = place.dibs("run", "--json", "--", "sh", "-c", "echo from the command; exit 4")
    assert code == 4
    document = json.loads(out)
    assert (document["id"], document["status"], document["exit_code"]) == ("x", "pending", 4)
    assert "from the command" in err


# -- which task


def test_a_named_task_is_run_and_a_prefix_will_do(place: Place) -> None:
    place.board.add("first", id="first", priority=9)
    place.board.add("second", id="second")
    assert place.dibs("run", "--task", "sec", "--", "true")[0] == 0
    assert (place.status("first"), place.status("second")) == ("pending", "completed")


def test_two_runs_of_one_name_never_share_a_task(place: Place) -> None:
    place.environ["DIBS_SESSION"] = "one-and-the-same"
    place.board.add("x", id="x")
    first = place.start("run", "--task", "x", "--", "sh", "-c", "echo started; exec sleep 60")
    assert first_line(first) == "started"
    code, out, err = place.dibs("run", "--task", "x", "--", "echo", "ran twice")
    assert (code, out) == (1, "")
    assert "held by runner" in err


def test_waits_for_a_task_to_appear(place: Place) -> None:
    process = place.start("run", "--wait", "20", "--", "echo", "ran")
    place.board.add("late", id="late")
    assert process.communicate(timeout=PATIENCE)[0] == "ran\n"
    assert place.status("late") == "completed"


def test_waits_for_a_named_task_to_become_free(place: Place) -> None:
    place.board.add("x", id="x")
    held = place.board.claim(OTHER, "x")
    assert held is not None
    process = place.start("run", "--task", "x", "--wait", "20", "--", "echo", "ran")
    held.release()
    assert process.communicate(timeout=PATIENCE)[0] == "ran\n"


def test_keep_going_runs_everything_in_order_of_dependencies(place: Place) -> None:
    place.board.add("a", id="a")
    place.board.add("b", id="b", depends_on=["a"], priority=5)
    place.board.add("c", id="c", depends_on=["b"])
    code, out, _ = place.dibs("run", "-k", "--", "sh", "-c", 'echo "$DIBS_TASK_ID"')
    assert (code, out) == (0, "a\nb\nc\n")
    assert place.board.all_done


def test_keep_going_does_not_try_what_failed_again_and_tells_by_its_exit_code(place: Place) -> None:
    for name in "abc":
        place.board.add(name, id=name)
    code, out, _ = place.dibs("run", "-k", "--", "sh", "-c", 'echo "$DIBS_TASK_ID"; test "$DIBS_TASK_ID" != a')
    assert (code, out) == (1, "a\nb\nc\n")
    assert [place.status(name) for name in "abc"] == ["pending", "completed", "completed"]


# -- the lease


def test_the_lease_is_renewed_while_the_command_lives(place: Place, tmp_path: Path) -> None:
    place.board.add("x", id="x", paths=["src/**"])
    go_on = tmp_path / "go-on"
    wait = f"while [ ! -e {go_on} ]; do sleep 0.02; done; echo finished"
    process = place.start("run", "--lease", "0.9", "--", "sh", "-c", wait)

    def renewals() -> int:
        return sum(event.action == "renewed_activity" for event in place.board.changelog(task_id="x"))

    until(lambda: renewals() >= 5, "the lease was renewed past its end")
    assert place.board.claim(OTHER) is None
    go_on.touch()
    assert process.communicate(timeout=PATIENCE)[0] == "finished\n"
    assert place.status("x") == "completed"


TELLING = "trap 'echo told; exit 0' TERM; echo started; while :; do sleep 0.02; done"


def test_a_run_that_was_suspended_past_its_lease_stops_its_command_and_touches_nothing(place: Place) -> None:
    place.board.add("x", id="x")
    process = place.start("run", "--lease", "0.5", "--", "sh", "-c", TELLING)
    assert first_line(process) == "started"
    process.send_signal(signal.SIGSTOP)
    taken = place.board.claim(OTHER, wait=PATIENCE)
    assert taken is not None
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "told\n")
    assert "its lease ran out" in err
    now = place.board.get("x")
    assert (now.assigned_to, now.token) == ("other", taken.token)


def test_cancelling_the_task_stops_the_command(place: Place) -> None:
    place.board.add("x", id="x")
    process = place.start("run", "--lease", "1", "--", "sh", "-c", TELLING)
    assert first_line(process) == "started"
    place.board.cancel("x", "not needed", worker=Worker("eve", "human"))
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "told\n")
    assert "cancelled by eve: not needed" in err
    assert place.status("x") == "cancelled"


@pytest.mark.parametrize("kind", ["taskboard", "workitems"])
def test_on_a_board_in_files_it_says_what_ended_the_claim(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path)
    place.board.close()
    place.board = TaskBoard.open(f"{kind}:{tmp_path / 'board'}", create=True, worker="planner-1")
    place.environ["DIBS_BOARD"] = place.board.url
    try:
        task_id = place.board.add("x")
        process = place.start("run", "--", "sh", "-c", TELLING)
        assert first_line(process) == "started"
        place.board.release_agent_tasks("runner", note="not needed")
        assert place.board.claim(OTHER, task_id)
        out, err = process.communicate(timeout=PATIENCE)
        assert "lease ran out" not in err
        assert (process.returncode, out) == (1, "told\n")
        assert f"task {task_id} was released by" in err
    finally:
        place.close()


# -- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_command_and_the_task_is_given_back(place: Place, number: signal.Signals) -> None:
    place.board.add("x", id="x", paths=["src/**"])
    short = number.name.removeprefix("SIG")
    script = f"trap 'echo got {short}; exit 0' {short}; sleep 60 & echo $!; while :; do sleep 0.02; done"
    process = place.start("run", "--", "sh", "-c", script, program=("-c", SHORT_GRACE))
    helper = int(first_line(process))
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (128 + number, f"got {short}\n")
    assert place.status("x") == "pending"
    assert place.notes("x")[-1] == f"dibs run was stopped by {number.name}"
    assert place.board.locks() == []
    until(lambda: not is_running(helper), "what the command started has ended too")


def test_a_command_that_ignores_the_signal_is_killed_with_all_that_it_started(place: Place) -> None:
    place.board.add("x", id="x")
    script = "trap '' TERM; sleep 61 & echo $! $$; while :; do sleep 0.02; done"
    process = place.start("run", "--", "sh", "-c", script, program=("-c", SHORT_GRACE))
    helper, command = map(int, first_line(process).split())
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    until(lambda: not is_running(helper) and not is_running(command), "both are gone")
    assert place.status("x") == "pending"


def test_a_helper_that_outlives_the_command_is_killed_after_the_grace(place: Place) -> None:
    place.board.add("x", id="x")
    script = "(trap '' TERM; while :; do sleep 0.02; done) & echo $!; wait"
    process = place.start("run", "--", "sh", "-c", script, program=("-c", SHORT_GRACE))
    helper = int(first_line(process))
    process.terminate()
    process.communicate(timeout=PATIENCE)
    until(lambda: not is_running(helper), "the helper is gone")


def test_a_signal_while_waiting_for_a_task_ends_the_run(place: Place) -> None:
    process = place.start("run", "--wait", "60", "--", "echo", "ran", program=("-c", WAITING))
    assert first_line(process) == "waiting"
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")


WAITING = """
import sys, dibs.cli.running as r, dibs.cli as c
claim = r._claim
def announced(*given):
    print("waiting", flush=True)
    return claim(*given)
r._claim = announced
sys.exit(c.main())
"""


def test_after_a_sigkill_the_next_claimant_has_the_task_at_once(place: Place) -> None:
    place.board.add("x", id="x", paths=["src/**"])
    process = place.start("run", "--lease", "1h", "--", "sh", "-c", "echo $$; exec sleep 62")
    command = int(first_line(process))
    assert place.board.claim(OTHER) is None
    process.kill()
    process.wait()
    taken = place.board.claim(OTHER)
    assert taken is not None
    assert taken.id == "x"
    if sys.platform == "linux":
        until(lambda: not is_running(command), "the orphaned command was told to end")


def test_what_the_command_claimed_and_locked_besides_is_given_back(place: Place) -> None:
    for name in "xyz":
        place.board.add(name, id=name)
    mine = place.board.claim(Worker("runner"), "z")  # the same name, no session: not of this run
    assert mine is not None
    script = "$PYTHON -m dibs claim y && $PYTHON -m dibs lock docs/a.md"
    assert place.dibs("run", "--task", "x", "--", "sh", "-c", script)[0] == 0
    assert [place.status(name) for name in "xyz"] == ["completed", "pending", "in_progress"]
    assert place.board.locks() == []


# -- the terminal


def at_a_terminal(place: Place, *command: str) -> pexpect.spawn:
    return pexpect.spawn(
        sys.executable,
        ["-m", "dibs", "run", "--", *command],
        cwd=str(place.folder),
        env=place.environ,
        timeout=PATIENCE,
        encoding="utf-8",
        echo=False,
    )


def test_an_interactive_command_has_the_terminal(place: Place) -> None:
    place.board.add("x", id="x")
    terminal = at_a_terminal(place, "sh", "-c", 'printf "name? "; read name; echo "hello $name"')
    terminal.expect_exact("name? ")
    terminal.sendline("ann")
    terminal.expect_exact("hello ann")
    terminal.expect_exact("x is completed")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_ctrl_c_ends_the_command_and_the_task_is_given_back(place: Place) -> None:
    place.board.add("x", id="x")
    terminal = at_a_terminal(place, "sh", "-c", "echo started; exec sleep 60")
    terminal.expect_exact("started")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert place.status("x") == "pending"


def test_under_a_shell_ctrl_z_stops_the_run_and_fg_continues_it(place: Place) -> None:
    place.board.add("x", id="x")
    shell = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "-i"],
        cwd=str(place.folder),
        env=place.environ | {"PS1": "ready> "},
        timeout=PATIENCE,
        encoding="utf-8",
        echo=False,
    )
    shell.expect_exact("ready> ")
    shell.sendline("$PYTHON -m dibs run -- sh -c 'echo st''arted; read line; echo got $line'")
    shell.expect_exact("started")
    shell.sendcontrol("z")
    shell.expect_exact("Stopped")
    shell.expect_exact("ready> ")
    shell.sendline("fg")
    shell.sendline("again")
    shell.expect_exact("got again")
    shell.expect_exact("x is completed")
    shell.expect_exact("ready> ")
    shell.sendline("exit")
    shell.expect(pexpect.EOF)
    shell.close()
