"""`dibs team` as people run it: real agents (scripts that use the board), real signals, pipes and terminals."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unicodedata import combining, east_asian_width

import pexpect
import pytest

from dibs import TaskBoard, TaskStatus
from tests.cli.shell import environment

PATIENCE = 60.0

AGENT = """
import os, signal, subprocess, sys, time
from dibs import TaskBoard
from dibs.jsontext import loads
from dibs.worker import from_environment

HOME = sys.argv[1]

def there(name):
    return os.path.exists(os.path.join(HOME, name))

def leave(name):
    open(os.path.join(HOME, name), "x").close()

def work(task):
    word = task.description.split()[0]
    if word == "crash" and not there("crashed"):
        leave("crashed")
        os._exit(7)
    if word == "wait":
        while not there("go"):
            time.sleep(0.02)
    if word == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave("is stubborn")
        while True:
            time.sleep(1)
    if word in ("commit", "halfway"):
        with open(task.id, "w") as file:
            file.write(f"text of {os.getpid()}")
        subprocess.run(["git", "add", task.id], check=True)
        subprocess.run(["git", "commit", "--quiet", "-m", task.id], check=True)
    if word == "halfway" and not there("went halfway"):
        leave("went halfway")
        os._exit(7)
    if word == "fail":
        task.fail("it cannot be done")
        return
    if word == "much":
        for n in range(5000):
            print(f"line {n} of very much")
    task.complete(f"did {task.id}")

with TaskBoard.open() as board:
    me = from_environment()
    print("hello \\x1b[31mfrom", me.name, flush=True)
    if me.name.endswith("lead"):
        with open(os.path.join(HOME, "plan")) as file:
            board.add_many(loads(file.read()), worker=me)
        sys.exit()
    while not board.all_done:
        task = board.claim(me, wait=0.2)
        if task is not None:
            work(task)
"""


class Place:
    """A folder with a board, and an agent's program."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.url = f"sqlite:{self.work}/.dibs/board.db"
        program = folder / "agent.py"
        program.write_text(AGENT)
        self.agent = shlex.join([sys.executable, str(program), str(folder)])
        self.environ = environment(TERM="xterm-256color", LC_ALL="C.UTF-8", GIT_CONFIG_GLOBAL=os.devnull)
        for who in ("AUTHOR", "COMMITTER"):
            self.environ |= {f"GIT_{who}_NAME": "alice", f"GIT_{who}_EMAIL": "alice@example.org"}
        self.started: list[subprocess.Popen[str]] = []

    def add(self, *tasks: str | dict[str, Any]) -> None:
        with TaskBoard.open(self.url, create=True, durability="normal") as board:
            board.add_many(
                [{"id": each.split()[-1], "description": each} if isinstance(each, str) else each for each in tasks]
            )

    def statuses(self) -> dict[str, str]:
        with TaskBoard.open(self.url) as board:
            return {task["id"]: str(task["status"]) for task in board.status()}

    def words(self, *words: str) -> list[str]:
        return ["team", "--agent", self.agent, *words]

    def start(self, *words: str, **how: Any) -> subprocess.Popen[str]:
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **how}
        command = [sys.executable, "-m", "dibs", *self.words(*words)]
        process = subprocess.Popen(command, cwd=self.work, env=self.environ, text=True, encoding="utf-8", **told)
        self.started.append(process)
        return process

    def run(self, *words: str, **how: Any) -> tuple[int, str, str]:
        process = self.start(*words, **how)
        out, err = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def go(self) -> None:
        (self.home / "go").touch()

    def processes(self) -> list[int]:
        """Agents of ours that still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if os.fsencode(self.home / "agent.py") in entry.read_bytes().split(b"\0"):
                    found.append(int(entry.parent.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.02)
    return found


# -- plain lines, and the summary


def test_a_team_finishes_the_board_and_says_what_it_did_in_plain_lines(place: Place) -> None:
    place.add("paint shed", "mow lawn", {"id": "cart", "description": "Cart: add", "depends_on": ["shed"]})
    code, out, err = place.run("--agents", "2")
    assert (code, err) == (0, "")
    assert set(place.statuses().values()) == {"completed"}
    lines, _, summary = out.partition("\n\n")
    assert re.search(r"^ +\d+\.\d s  worker-\d  claimed cart: Cart: add$", lines, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d s  worker-\d  completed shed: did shed$", lines, re.MULTILINE)
    assert all(re.match(r" *\d+\.\d s  \S", line) for line in lines.splitlines())
    assert summary.startswith("dibs team: done in ")
    assert "On the board: 3 completed." in summary
    assert re.search(r"^worker-1 +completed +1 ", summary, re.MULTILINE)
    folder = re.search(r"^  ls (\S+)$", summary, re.MULTILINE)
    assert folder is not None
    assert "from worker-1" in (place.work / folder[1] / "worker-1.1.log").read_text()
    assert "\x1b" not in out
    assert place.processes() == []


def test_a_lead_plans_on_a_board_that_is_made_for_it(place: Place) -> None:
    (place.home / "plan").write_text(json.dumps([{"id": f"t{n}", "description": f"part {n}"} for n in range(8)]))
    code, out, _ = place.run("--agents", "2", "--lead", "do it all")
    assert code == 0
    assert "lead      added 8 tasks: t0, t1, t2, t3, t4, …" in out
    assert len(place.statuses()) == 8


def test_tasks_come_from_a_file(place: Place) -> None:
    (place.work / "tasks.jsonl").write_text('{"id": "a", "description": "one"}\n"two"\n')
    code, out, _ = place.run("--agents", "1", "--tasks", "tasks.jsonl")
    assert code == 0
    assert "claimed a: one" in out
    assert len(place.statuses()) == 2
    (place.work / "tasks.jsonl").write_text('{"id": "a", "description": "one"}\n"two"\n"three"\n')
    code, _, err = place.run("--agents", "1", "--tasks", "tasks.jsonl")
    assert code == 1
    assert (
        "task a is already on the board; nothing was added\n  to go on with what is on the board, leave --tasks out"
        in err
    )


def test_the_same_command_again_goes_on_with_the_tasks_that_it_added(place: Place) -> None:
    (place.work / "tasks.jsonl").write_text('"wait for it"\n"after that"\n')
    words = ("--agents", "1", "--tasks", "tasks.jsonl")
    TaskBoard.open(place.url, create=True).close()
    team = place.start(*words)
    until(lambda: "in_progress" in place.statuses().values(), "it works")
    team.kill()
    team.communicate()
    place.go()
    code, out, err = place.run(*words)
    assert code == 0
    assert re.search(r"^dibs: the tasks of tasks.jsonl were added \d+s ago: going on with them$", err, re.MULTILINE)
    assert list(place.statuses().values()) == ["completed"] * 2
    code, out, err = place.run(*words)
    assert code == 3
    assert re.match(r"dibs: the tasks of tasks.jsonl were added \d+s ago; there is nothing to do: ", err)
    code, out, err = place.run(*words, "--json")
    assert code == 3
    assert json.loads(out)["ending"] == "nothing to do"
    assert len(place.statuses()) == 2


def test_a_team_may_have_a_name(place: Place) -> None:
    place.add("a", "b")
    (place.home / "plan").write_text("[]")
    code, out, _ = place.run("-n", "1", "--name", "ci-8", "--lead", "plan")
    assert code == 0
    with TaskBoard.open(place.url) as board:
        assert {board.get(task).assigned_to for task in "ab"} == {"ci-8-worker-1"}
    assert "ci-8-lead " in out
    place.add("c")
    for name in ("", "a/b", "-x", "x-", "a b", "x" * 41):
        code, _, err = place.run(f"--name={name}")
        assert code != 0
        assert "name" in err


def test_tasks_come_from_a_pipe_or_stdin_which_can_be_read_only_once(place: Place) -> None:
    os.mkfifo(place.work / "pipe")
    team = place.start("--agents", "1", "--tasks", "pipe")
    (place.work / "pipe").write_text('["one"]')
    assert team.wait(PATIENCE) == 0
    (place.home / "stdin").write_text('["two"]')
    with (place.home / "stdin").open() as stdin:
        assert place.run("--agents", "1", "--tasks", "-", stdin=stdin)[0] == 0
    assert len(place.statuses()) == 2


def test_what_is_left_is_named_with_what_it_waits_for(place: Place) -> None:
    place.add({"id": "rev", "description": "look at it", "review": True})
    code, out, _ = place.run("-n", "1", "--board", place.url)
    assert code == 1
    summary = out.partition("\n\n")[2]
    assert summary.startswith("dibs team: stuck after ")
    assert "dibs accept rev" in summary
    assert "On the board: 1 in review. Not done:\n  rev  in review    look at it\n" in summary
    assert f"  dibs --board {place.url} show rev  " in summary or f"  dibs --board {place.url} show rev\n" in summary


def test_a_file_with_a_mistake_starts_and_makes_nothing(place: Place) -> None:
    (place.work / "tasks.jsonl").write_text('{"id": "a", "description": "one"}\n{oh}\n')
    code, out, err = place.run("--tasks", "tasks.jsonl")
    assert (code, out) == (1, "")
    assert "tasks.jsonl, line 2" in err
    assert not (place.work / ".dibs").exists()
    (place.work / "tasks.jsonl").write_text('{"id": "a", "description": "one", "needs": ["nobody"]}\n')
    code, out, err = place.run("--tasks", "tasks.jsonl")
    assert code == 1
    assert "tasks.jsonl, line 1" in err
    assert place.statuses() == {}


def test_prompts_come_from_files_and_the_agents_get_them(place: Place) -> None:
    place.add("a")
    (place.work / "how").write_text("Do as I say.\n")
    place.agent = "sh -c 'cat; dibs claim; dibs done a \"$0\"' {name}"
    place.environ["PATH"] = f"{_dibs_on_path(place.home)}:{place.environ['PATH']}"
    code, out, _ = place.run("-n", "1", "--worker-prompt", "@how")
    assert code == 0, out
    assert "completed a: worker-1" in out
    (output,) = place.work.glob(".dibs/team/*/worker-1.1.log")
    assert output.read_text().startswith("Do as I say.\n")


def _dibs_on_path(folder: Path) -> Path:
    tools = folder / "bin"
    tools.mkdir()
    (tools / "dibs").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dibs "$@"\n')
    (tools / "dibs").chmod(0o755)
    return tools


def test_what_agents_print_is_shown_if_asked_for_and_cannot_harm_the_terminal(place: Place) -> None:
    place.add("a", "\x1b[31mred\x07\n\nb")
    code, out, _ = place.run("-n", "1", "--tail")
    assert code == 0
    assert "worker-1 | hello \\x1b[31mfrom worker-1\n" in out
    assert "claimed b: \\x1b[31mred\\x07 b" in out
    assert "\x1b" not in out


# -- when there is nothing to do, or nothing to do it with


def test_without_anything_to_do_it_says_so_and_starts_nobody(place: Place) -> None:
    code, out, err = place.run()
    assert (code, out) == (1, "")
    assert "there is no board" in err
    place.add()
    code, out, err = place.run()
    assert (code, out) == (3, "")
    assert "nothing to do" in err
    assert "dibs team --lead" in err
    code, out, _ = place.run("--json")
    assert code == 3
    assert json.loads(out)["ending"] == "nothing to do"
    place.add({"id": "h", "description": "for a person", "reserved": "human"})
    code, _, err = place.run()
    assert code == 1
    assert "nothing can be claimed: 1 pending cannot go on: h is reserved for a human" in err
    code, out, _ = place.run("--json")
    assert code == 1
    summary = json.loads(out)
    assert (summary["ending"], summary["counts"]["pending"], summary["results"]) == ("stuck", 1, [])
    assert not (place.work / ".dibs" / "team").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--agents", "0"),
        ("--agents", "65"),
        ("--restarts", "-1"),
        ("--timeout", "0"),
        ("--stale-timeout", "soon"),
        ("--lead-agent", "codex"),
        ("--lead", " "),
        ("--lead", "@missing"),
        ("--worker-prompt", "@missing"),
        ("surplus",),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(place: Place, words: tuple[str, ...]) -> None:
    place.add("a")
    code, out, err = place.run(*words)
    assert (code, out) == (2, "")
    assert "usage: dibs team" in err


def test_a_client_that_is_not_there_is_refused_with_the_way_out(place: Place) -> None:
    place.add("a")
    place.agent = "no-such-program --at-all"
    code, out, err = place.run()
    assert (code, out) == (1, "")
    assert "no-such-program" in err
    assert place.statuses() == {"a": "pending"}


# -- accidents


def test_a_crash_costs_nothing_but_time(place: Place) -> None:
    place.add("crash a", "b")
    code, out, _ = place.run("-n", "2")
    assert code == 0
    assert set(place.statuses().values()) == {"completed"}
    assert "has ended: exit code 7" in out
    # By the team, or by the other worker, whichever noticed first.
    assert "is gone, and a is free again: its process has ended" in out or "the holder's process has died" in out


def test_agents_that_never_finish_anything_are_given_up(place: Place) -> None:
    place.add("a")
    place.agent = "sh -c 'echo no thanks; exit 4'"
    code, out, _ = place.run("-n", "1", "--restarts", "0")
    assert code == 1
    summary = out.partition("\n\n")[2]
    assert summary.startswith("dibs team: gave up after ")
    assert "worker-1: exit code 4: no thanks" in summary
    assert "dibs show a" in summary
    last_words = re.search(r"^  (tail \S+)  # its last words$", summary, re.MULTILINE)
    assert last_words is not None
    assert subprocess.check_output(last_words[1].split(), cwd=place.work) == b"no thanks\n"


def test_agents_that_do_nothing_have_not_completed_anything(place: Place) -> None:
    place.add("a")
    place.agent = "sh -c 'echo all is well'"
    code, out, _ = place.run("-n", "1", "--restarts", "0")
    assert code == 1
    assert "worker-1: ended without finishing a task" in out
    assert re.search(r"^worker-1 +error ", out, re.MULTILINE)
    assert "# its last words" in out


def test_a_failed_task_makes_the_exit_code_1_but_not_an_old_one(place: Place) -> None:
    place.add("fail a", "b")
    code, out, _ = place.run("-n", "1")
    assert code == 1
    assert "failed a: it cannot be done" in out
    assert "  dibs retry a" in out
    place.add("c")
    assert place.run("-n", "1")[0] == 0


def test_an_agent_that_takes_too_long_is_ended(place: Place) -> None:
    place.add("wait a")
    code, out, _ = place.run("-n", "1", "--timeout", "0.5", "--restarts", "0")
    assert code == 1
    assert re.search(r"^worker-1 +timeout ", out, re.MULTILINE)
    assert place.statuses() == {"a": "pending"}


# -- JSON


def test_under_json_every_line_is_an_event_and_the_last_one_the_summary(place: Place) -> None:
    place.add("a", "b")
    code, out, err = place.run("--json", "-n", "1", "--tail")
    assert (code, err) == (0, "")
    *events, summary = [json.loads(line) for line in out.splitlines()]
    assert all({"kind", "agent", "time", "text"} <= event.keys() for event in events)
    assert (events[0]["kind"], events[-1]["kind"]) == ("run_started", "run_ended")
    claimed = [event for event in events if event.get("action") == "claimed_activity"]
    assert [(event["agent"], event["task_id"]) for event in claimed] == [("worker-1", "a"), ("worker-1", "b")]
    assert any(event["kind"] == "output" and "hello" in event["text"] for event in events)
    assert (summary["kind"], summary["ending"]) == ("summary", "done")
    assert summary["why"]
    assert summary["seconds"] > 0
    assert [(result["agent"], result["tasks"]) for result in summary["results"]] == [("worker-1", ["a", "b"])]


# -- being stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_in_order(place: Place, number: int) -> None:
    place.add("wait a", "wait b")
    team = place.start("--json", "-n", "2")
    until(lambda: list(place.statuses().values()) == ["in_progress"] * 2, "both are at work")
    team.send_signal(number)
    out, err = team.communicate(timeout=PATIENCE)
    assert team.returncode == 128 + number
    assert "stopping 2 agents" in err
    summary = json.loads(out.splitlines()[-1])
    assert (summary["kind"], summary["ending"], len(summary["results"])) == ("summary", "stopped", 2)
    assert [result["status"] for result in summary["results"]] == ["stopped", "stopped"]
    assert place.processes() == []
    assert place.statuses() == {"a": "pending", "b": "pending"}


def test_a_second_signal_does_not_wait_for_the_stubborn(place: Place) -> None:
    place.add("stubborn a")
    team = place.start("-n", "1")
    until((place.home / "is stubborn").exists, "the agent ignores SIGTERM")
    team.send_signal(signal.SIGINT)
    assert team.stderr is not None
    assert "stopping 1 agent" in team.stderr.readline()
    team.send_signal(signal.SIGINT)
    assert "killing 1 agent" in team.stderr.readline()
    out, _ = team.communicate(timeout=PATIENCE)
    assert team.returncode == 130
    assert "stopped by Ctrl-C" in out
    assert place.processes() == []
    assert place.statuses() == {"a": "pending"}


def test_under_nohup_a_hangup_is_nothing(place: Place) -> None:
    place.add("wait a")
    team = place.start("-n", "1", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until(lambda: place.statuses() == {"a": "in_progress"}, "it works")
    team.send_signal(signal.SIGHUP)
    place.go()
    out, _ = team.communicate(timeout=PATIENCE)
    assert team.returncode == 0
    assert "completed a" in out


def test_when_nobody_reads_any_more_the_team_goes_home(place: Place) -> None:
    place.add("wait a")
    team = place.start("-n", "1")
    until(lambda: place.statuses() == {"a": "in_progress"}, "it works")
    assert team.stdout is not None
    team.stdout.close()  # `| head` has seen enough; nothing more will be printed meanwhile
    assert team.wait(PATIENCE) == 141
    assert team.stderr is not None
    assert "Traceback" not in team.stderr.read()
    assert place.processes() == []
    assert place.statuses() == {"a": "pending"}


def test_a_reader_who_pauses_does_not_hold_the_team_up(place: Place) -> None:
    place.add("much a", "much b", "c")
    team = place.start("-n", "1", "--tail")
    until(lambda: set(place.statuses().values()) == {"completed"}, "all is done, unread")
    out, _ = team.communicate(timeout=PATIENCE)
    assert team.returncode == 0
    assert "dibs team: done" in out


def test_if_the_team_is_killed_its_agents_go_and_their_tasks_come_back(place: Place) -> None:
    place.add("wait a")
    team = place.start("-n", "1")
    until(lambda: place.statuses() == {"a": "in_progress"}, "it works")
    team.kill()
    team.wait()
    until(lambda: not place.processes(), "the agent has gone")


# -- worktrees


def git(folder: Path, *words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=folder, text=True).strip()


def make_repository(place: Place) -> None:
    git(place.work, "init", "--quiet")
    for words in (("config", "user.name", "alice"), ("config", "user.email", "alice@example.org")):
        git(place.work, *words)
    git(place.work, "commit", "--quiet", "--allow-empty", "-m", "start")


def test_a_branch_with_work_that_somebody_else_finished_is_not_one_to_merge_unseen(place: Place) -> None:
    make_repository(place)
    place.add("wait b", "halfway a")
    team = place.start("-n", "2", "--worktrees", "--restarts", "0")  # whoever crashes does not come back
    until(lambda: (place.home / "went halfway").exists(), "one has crashed")
    place.go()
    out, _ = team.communicate(timeout=PATIENCE)
    assert place.statuses() == {"a": "completed", "b": "completed"}
    left, right = re.split(r"look\s+before\s+you\s+merge:\n", out)
    assert re.findall(r"^  git merge dibs/\S+  +# 1 commit$", left, re.MULTILINE)
    found = re.search(r"^  git log -p HEAD\.\.(\S+)  +# not finished: a\n  git merge (\S+) ", right, re.MULTILINE)
    assert found, out
    assert found[1] == found[2]
    assert found[1] not in left.split("Work that is on branches")[1]


def test_a_board_that_is_taken_away_leaves_a_summary_with_what_was_committed(place: Place) -> None:
    make_repository(place)
    place.add("commit a", "wait b")
    team = place.start("-n", "1", "--worktrees", "--json")
    assert team.stdout is not None
    told = iter(team.stdout.readline, "")
    assert any('"action":"completed_activity","task_id":"a"' in line for line in told)
    until(lambda: place.statuses()["b"] == "in_progress", "it is at the next")
    os.rename(place.work / ".dibs" / "board.db", place.home / "board.db")
    for process in place.processes():
        os.kill(process, signal.SIGKILL)
    out, _ = team.communicate(timeout=PATIENCE)
    assert team.returncode == 1
    summary = json.loads(out.splitlines()[-1])
    assert (summary["kind"], summary["ending"]) == ("summary", "board lost")
    assert "there is no board at" in summary["why"]
    ((tasks, branch),) = [(result["tasks"], result["branch"]) for result in summary["results"]]
    assert (tasks, git(place.work, "log", "-1", "--format=%s", branch)) == (["a"], "a")


def test_with_worktrees_the_summary_says_how_to_merge_and_that_works(place: Place) -> None:
    make_repository(place)
    place.add("commit a", "commit b", "commit c")
    code, out, _ = place.run("-n", "2", "--worktrees")
    assert code == 0, out
    merges = re.findall(r"^  git merge \S+  +# \d commits?$", out, re.MULTILINE)
    assert merges
    for line in merges:  # as it stands there, with what is said about it
        subprocess.run(line, shell=True, cwd=place.work, check=True, capture_output=True)
    assert {"a", "b", "c"} <= {path.name for path in place.work.iterdir()}


# -- on a terminal


class Terminal:
    """As much of a terminal as is drawn on: a grid of characters. What it does not know is an error."""

    def __init__(self, columns: int, rows: int) -> None:
        self.is_alternate, self.has_cursor = False, True
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.clear()

    def clear(self) -> None:
        self.grid = [[" "] * self.columns for _ in range(self.rows)]
        self.x = self.y = 0

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.grid]

    def feed(self, text: str) -> None:
        for match in re.finditer(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b])", text):
            if match[2]:
                self._obey(match[1], match[2])
            elif match[3]:
                self.x = 0
            elif match[4]:
                if self.y == self.rows - 1:
                    self.grid = [*self.grid[1:], [" "] * self.columns]
                self.y = min(self.rows - 1, self.y + 1)
            elif not combining(match[5]):
                wide = 2 if east_asian_width(match[5]) in "WF" else 1
                if self.x + wide > self.columns:
                    assert not self.is_alternate, f"line {self.y} of the table is too wide"
                    continue
                self.grid[self.y][self.x : self.x + wide] = [match[5], ""][:wide]
                self.x += wide

    def _obey(self, what: str, letter: str) -> None:
        if letter == "H":
            line, _, column = what.partition(";")
            self.y, self.x = min(self.rows, int(line or 1)) - 1, int(column or 1) - 1
        elif letter in "KJ" and what in ("", "2"):
            if what == "2":
                self.clear()
            self.grid[self.y][self.x :] = [" "] * (self.columns - self.x)
            for row in self.grid[self.y + 1 :] if letter == "J" else ():
                row[:] = [" "] * self.columns
        elif what == "?25":
            self.has_cursor = letter == "h"
        elif what == "?1049":
            self.is_alternate = letter == "h"
            self.clear()
        else:
            assert letter == "m", f"ESC[{what}{letter}"


class Seat:
    """`dibs team` on a terminal, and somebody who looks at it."""

    def __init__(self, place: Place, *words: str, shell: bool = False, **environ: str) -> None:
        columns, rows = 80, 24
        self.screen = Terminal(columns, rows)
        self.raw = ""
        command = [sys.executable, "-m", "dibs", *place.words(*words)]
        around = ["bash", "--norc", "--noprofile", "--noediting", "-i"] if shell else command
        self.process = pexpect.spawn(
            around[0],
            around[1:],
            cwd=str(place.work),
            env={**place.environ, **environ},
            dimensions=(rows, columns),
            timeout=PATIENCE,
            encoding="utf-8",
        )
        if shell:
            self.process.sendline(shlex.join(command))

    def _read(self) -> bool:
        try:
            text = self.process.read_nonblocking(65536, 0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += text
        self.screen.feed(text)
        return True

    def see(self, *texts: str) -> list[str]:
        """Look until all of these are on the screen at once."""

        def look() -> bool:
            self._read()
            return all(any(text in line for line in self.screen.lines) for text in texts)

        until(look, f"{texts} can be seen")
        return self.screen.lines

    def end(self) -> int:
        until(lambda: not self._read(), "the end of the output")
        self.process.close()
        assert "Traceback" not in self.raw
        assert not self.screen.is_alternate
        assert self.screen.has_cursor
        code: int = self.process.exitstatus
        return code


@pytest.fixture
def sit(place: Place) -> Iterator[Callable[..., Seat]]:
    taken: list[Seat] = []

    def take(*words: str, **how: Any) -> Seat:
        taken.append(Seat(place, *words, **how))
        return taken[-1]

    yield take
    for seat in taken:
        seat.process.close(force=True)


def test_on_a_terminal_there_is_one_table_that_changes_in_place(place: Place, sit: Callable[..., Seat]) -> None:
    place.add("first", {"id": "last", "description": "wait for 购物车", "paths": ["src/cart.py"], "priority": -1})
    seat = sit("-n", "2")
    lines = seat.see("1 of 2 done", "last: wait for 购物车", "1 lock: src/cart.py (worker-")
    assert lines[0].startswith("dibs team: 2 workers, python")
    assert lines[4].split() == ["AGENT", "STATE", "TASK", "FOR", "DONE"]
    assert any(line.startswith("worker-") and "working" in line for line in lines)
    assert any("completed first: did first" in line for line in lines)
    assert seat.screen.is_alternate
    assert not seat.screen.has_cursor
    seat.process.setwinsize(10, 40)
    seat.screen.resize(40, 10)
    assert seat.see("1 of 2 done", "last: wait for")[0].startswith("dibs team: 2 workers")
    place.go()
    assert seat.end() == 0
    summary = "\n".join(seat.screen.lines)
    assert "dibs team: done" in summary or "On the board: 2 completed." in summary
    assert seat.raw.count("\x1b[?1049h") == seat.raw.count("\x1b[?1049l") == 1


def test_texts_cannot_do_anything_to_the_terminal(place: Place, sit: Callable[..., Seat]) -> None:
    place.add({"id": "evil", "description": "wait \x1b[2J\x1b]0;gotcha\x07\u202e " + "x" * 5000})
    seat = sit("-n", "1", "--tail")
    seat.see("wait \\x1b[2J\\x1b]0;gotcha\\x07\\u202e xxx", "worker-1 | hello \\x1b[31mfrom worker-1")
    place.go()
    assert seat.end() == 0
    assert "\x07" not in seat.raw
    assert "\x1b]" not in seat.raw


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_on_a_terminal_it_leaves_it_as_it_was(place: Place, sit: Callable[..., Seat], number: int) -> None:
    place.add("wait a")
    seat = sit("-n", "1")
    seat.see("a: wait a")
    if number == signal.SIGINT:
        seat.process.sendintr()
    else:
        seat.process.kill(number)
    assert seat.end() == 128 + number  # perhaps before there was a frame that says "stopping 1 agent"
    assert "dibs team: stopped after" in seat.raw
    assert any(re.match(r"worker-1 +stopped ", line) for line in seat.screen.lines)
    assert place.processes() == []
    assert place.statuses() == {"a": "pending"}


def test_while_it_is_suspended_the_terminal_is_the_shells(place: Place, sit: Callable[..., Seat]) -> None:
    place.add("wait a")
    seat = sit("-n", "1", shell=True)
    seat.see("a: wait a")
    seat.process.sendcontrol("z")
    seat.see("Stopped")
    assert not seat.screen.is_alternate
    assert seat.screen.has_cursor
    seat.process.sendline("fg")
    seat.see("a: wait a", "worker-1")
    assert seat.screen.is_alternate
    place.go()
    seat.see("On the board: 1 completed.")
    seat.process.sendline("exit $?")
    assert seat.end() == 0


def test_where_nobody_could_continue_it_it_is_not_suspended(place: Place, sit: Callable[..., Seat]) -> None:
    place.add("wait a")
    seat = sit("-n", "1")
    seat.see("a: wait a")
    os.kill(seat.process.pid, signal.SIGTSTP)
    place.go()
    assert seat.end() == 0


def test_a_terminal_without_colours_or_unicode_gets_neither(place: Place, sit: Callable[..., Seat]) -> None:
    place.add("wait 购物车 a", "b")
    seat = sit("-n", "2", "--no-color", PYTHONIOENCODING="ascii")
    seat.see("a: wait ??? a", "#", "1 of 2 done")
    place.go()
    assert seat.end() == 0
    assert seat.raw.isascii()
    assert not re.search(r"\x1b\[[0-9;]*m", seat.raw)


def test_on_a_terminal_that_can_do_nothing_there_are_lines(place: Place, sit: Callable[..., Seat]) -> None:
    place.add("a")
    seat = sit("-n", "1", TERM="dumb")
    assert seat.end() == 0
    assert "\x1b" not in seat.raw
    assert "s  worker-1  completed a: did a" in seat.raw


def test_the_board_stays_claimable_for_others_meanwhile(place: Place) -> None:
    place.add("wait a", {"id": "mine", "description": "for a person", "reserved": "human"})
    team = place.start("-n", "1")
    until(lambda: place.statuses()["a"] == "in_progress", "it works")
    with TaskBoard.open(place.url) as board:
        from dibs import Worker

        task = board.claim(Worker("alice", "human"), "mine")
        assert task is not None
        place.go()
        task.complete("by hand")
    assert team.wait(PATIENCE) == 0
    with TaskBoard.open(place.url) as board:
        assert board.get("mine").status is TaskStatus.COMPLETED
