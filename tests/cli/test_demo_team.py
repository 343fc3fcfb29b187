"""`dibs demo` as a stranger runs it: a lead and workers, real processes that speak MCP, write a shop in git worktrees.

The demo judges itself; here the repository, the board and the processes that it left are judged by other means.
"""

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

from dibs import TaskBoard
from dibs.cli.demo import project, shopcode
from dibs.cli.demo.repository import git, land
from tests.processes.harness import environment

PATIENCE = 240.0
WORKERS = 4
TASKS = len(shopcode.PLAN) + 1

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def surroundings(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir(exist_ok=True)
    return environment() | {"TMPDIR": str(folder / "tmp"), "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}


def processes(folder: Path, word: str = "") -> list[str]:
    """The commands of this test's demo and all that it has started; those with a word in them."""
    mark = f"TMPDIR={folder / 'tmp'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [command for command in found if word in command]


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.05)


# -- a whole run


def test_a_team_writes_the_shop_although_a_worker_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "demo", "--json", "--seed", "7"],
        env=surroundings(tmp_path),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    home = Path(shown["repository"])
    assert processes(tmp_path) == []
    the_demo_is_content(shown)
    the_killed_workers_task_changed_hands(shown)
    the_shop_works(home)
    every_task_is_a_commit_of_its_own(home, shown)
    the_lead_was_told_and_added_a_task(shown)
    killed = shown["killed"]["worker"]
    assert re.search(rf"^ *\d+\.\d s +{killed} +IS KILLED with SIGKILL while it writes \S+", done.stderr, re.MULTILINE)


def the_demo_is_content(shown: dict[str, Any]) -> None:
    assert shown["problems"] == []
    assert shown["ok"] is True
    assert shown["ending"] == "done"
    assert (shown["tasks"], shown["completed"], shown["added_on_the_way"]) == (TASKS, TASKS, 1)
    assert (shown["claims"], shown["double_claims"], shown["left_running"]) == (TASKS + 1, 0, 0)
    assert shown["replay_agrees"]
    assert shown["tests"]["before"]["failed"] == shown["tests"]["before"]["ran"] > 20
    assert shown["tests"]["after"]["failed"] == 0
    lead, *workers = shown["agents"]
    assert (lead["role"], lead["status"], lead["runs"]) == ("lead", "completed", 1)
    assert [worker["name"] for worker in workers] == [f"worker-{n}" for n in range(1, WORKERS + 1)]
    assert sum(len(worker["completed"]) for worker in workers) == TASKS
    assert all(Path(agent["output_file"]).is_file() for agent in shown["agents"])


def the_killed_workers_task_changed_hands(shown: dict[str, Any]) -> None:
    killed = shown["killed"]
    with TaskBoard.open(shown["board"]) as board:
        assert board.all_done
        assert board.locks() == []
        history = [(event.action, event.worker) for event in board.changelog(task_id=killed["task"])]
    added, claimed, back, again, completed = history
    assert added == ("added_activity", "lead")
    assert claimed == ("claimed_activity", killed["worker"])
    assert back[0] in ("released_activity", "recovered_activity")
    assert again == ("claimed_activity", killed["taken_by"])
    assert completed == ("completed_activity", killed["taken_by"])
    assert killed["half_written"]


def the_shop_works(home: Path) -> None:
    assert git(str(home), "status", "--porcelain") == ""
    assert git(str(home), "rev-parse", "main") == git(str(home), "rev-parse", "trunk")
    assert "NotImplementedError" not in git(str(home), "grep", "--cached", "-h", "def ", "--", "shop")
    done = subprocess.run([sys.executable, "-m", "unittest"], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def every_task_is_a_commit_of_its_own(home: Path, shown: dict[str, Any]) -> None:
    subjects = git(str(home), "log", "--no-merges", "--format=%s", "trunk").splitlines()
    landed = sorted(found[1] for text in subjects if (found := re.search(r"\((\w+) by worker-\d\)", text)))
    completed = sorted(task for agent in shown["agents"] for task in agent["completed"])
    assert landed == completed
    assert len(subjects) == TASKS + 1


def the_lead_was_told_and_added_a_task(shown: dict[str, Any]) -> None:
    with TaskBoard.open(shown["board"]) as board:
        said = [(message.sender, message.to, message.content) for message in board.messages()]
        adders = [event.worker for event in board.changelog() if event.action == "added_activity"]
    assert said[0] == ("lead", None, shopcode.WELCOME)
    assert said[1][1:] == ("lead", shopcode.FINDING)
    assert adders == ["lead"] * TASKS


@pytest.mark.slow
def test_on_a_terminal_it_ends_with_a_summary_that_says_where_to_look(tmp_path: Path) -> None:
    terminal = at_a_terminal(tmp_path)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0, terminal.before
    frames, _, summary = (terminal.before or "").rpartition("\x1b[?1049l")
    assert "on the way, a worker will be killed" in frames
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", summary).replace("\r", "")
    assert f"all {TASKS} tasks were completed, each exactly once" in plain
    assert "nothing is left running" in plain
    lines = [line for line in plain.splitlines() if not line.startswith("  ")]  # commands are as long as they are
    assert max(map(len, lines)) < 80
    _, _, look = plain.partition("Look around:\n")
    commands = [line.strip() for line in look.splitlines()[:5] if line.startswith("  ")]  # whole lines, as pasted
    script = "\n".join(["set -e", *commands])
    done = subprocess.run(["sh", "-c", script], env=surroundings(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "everything is done" in done.stdout


# -- stopping it


def at_a_terminal(folder: Path, *words: str) -> pexpect.spawn:
    return pexpect.spawn(
        sys.executable,
        ["-m", "dibs", "demo", *words],
        env=surroundings(folder),
        dimensions=(24, 80),
        timeout=PATIENCE,
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("number", "code", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 0)], ids=["Ctrl-C", "SIGTERM"]
)
def test_stopping_it_leaves_no_process_and_the_terminal_as_it_was(
    tmp_path: Path, number: int, code: int, workers: int
) -> None:
    """While workers work, and while the lead plans."""
    terminal = at_a_terminal(tmp_path, "--workers", "2")
    until(lambda: processes(tmp_path, "dibs.cli.demo.lead"), "the lead runs")
    if workers:
        terminal.expect_exact("in progress")
        until(lambda: len(processes(tmp_path, "dibs.cli.demo.coder")) == workers, "the workers run")
    if number == signal.SIGINT:
        terminal.sendintr()
    else:
        terminal.kill(number)
    terminal.expect_exact("\x1b[?1049l")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == code
    assert processes(tmp_path) == []
    assert "Traceback" not in (terminal.before or "")
    [folder] = (tmp_path / "tmp").glob("dibs-demo-*")
    assert f"stays in {folder}" in (terminal.before or "").replace("\r\n", "")


def test_agents_end_by_themselves_when_the_demo_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "demo"], env=surroundings(tmp_path), stdout=subprocess.DEVNULL
    )
    try:
        until(lambda: processes(tmp_path, "dibs.cli.demo.lead"), "the lead runs")
    finally:
        process.kill()
        process.wait()
    until(lambda: not processes(tmp_path), "the agents have gone")


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "demo"], env=surroundings(tmp_path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"a team of 5" in process.stdout.readline()
    process.stdout.close()
    process.wait(PATIENCE)
    assert processes(tmp_path) == []


# -- what the agents know


def test_the_plan_leads_to_a_shop_that_works(tmp_path: Path) -> None:
    home = project.make(str(tmp_path))
    ran, failed, _ = project.run_tests(home)
    assert ran == failed > 20
    board = TaskBoard()
    board.add_many([{("depends_on" if k == "needs" else k): v for k, v in task.items()} for task in shopcode.PLAN])
    board.add_many([{k: v for k, v in shopcode.FURTHER.items() if k not in ("needs", "name")}])
    while task := board.claim("coder"):
        for step in project.steps(task.description):
            project.write(home, step)
        assert sorted(project.changed(home)) == task.paths
        ran, failed, printed = project.run_tests(home, *project.modules(task.description))
        assert ran > 0
        assert failed == 0, printed
        git(home, "add", ".")
        git(home, "commit", "--quiet", "-m", task.id)
        task.complete()
    assert board.all_done
    assert project.stubs(home) == 0
    assert project.run_tests(home)[1] == 0


def test_every_task_can_be_interrupted_when_it_is_half_written() -> None:
    for task in [*shopcode.PLAN, shopcode.FURTHER]:
        assert len(project.steps(task["description"])) > 1


@pytest.mark.parametrize("is_committed", [False, True])
def test_what_a_killed_coder_left_is_kept_on_a_branch_and_not_gone_on_with(tmp_path: Path, is_committed: bool) -> None:
    home = project.make(str(tmp_path))
    tree = os.path.join(tmp_path, "tree")
    git(home, "worktree", "add", "--quiet", "-b", "own", tree, "trunk")
    assert project.tidy(tree, "worker-1") is None
    first, *_ = project.steps("Amounts: write money.parse")
    project.write(tree, first)
    if is_committed:
        git(tree, "commit", "--quiet", "-a", "-m", "never landed")
    kept = project.tidy(tree, "worker-1")
    assert kept is not None
    assert project.changed(tree) == []
    assert git(tree, "rev-parse", "HEAD") == git(tree, "rev-parse", "trunk")
    assert project.left_behind(home, "worker-1") == [kept]
    assert not project.is_on_trunk(home, kept)
    assert first.after in git(home, "show", f"{kept}:shop/money.py") + "\n"


def test_a_task_without_its_commit_on_the_trunk_is_noticed(tmp_path: Path) -> None:
    home = project.make(str(tmp_path))
    tree = os.path.join(tmp_path, "tree")
    git(home, "worktree", "add", "--quiet", "-b", "own", tree, "trunk")
    board = TaskBoard()
    board.add("Search: write search.find.", id="search")
    task = board.claim("worker-1")
    assert task is not None
    for step in project.steps(task.description):
        project.write(tree, step)
    git(tree, "commit", "--quiet", "-a", "-m", project.subject(task.id, task.description, "worker-1"))
    commit = git(tree, "rev-parse", "HEAD")
    task.complete(f"landed as {commit[:10]}")
    done = [board.get("search")]
    found = project.unlanded(home, done)
    assert "search by worker-1 has 0 commits on trunk" in found
    assert any("is not on trunk, though it says" in problem for problem in found)
    assert land(tree) == commit
    assert project.unlanded(home, done) == []
