"""`dibs team` in a process of its own: what its summary says of what agents left, and how hard it is to stop."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from dibs import TaskBoard, fs
from dibs.model import FAILED, PENDING
from tests.pool.conftest import ACTORS, NAP, PATIENCE, Place, branches, git, settled

COMMIT = "command git add . && git -c user.name=a -c user.email=a@b commit -qm"


class Team:
    """The command, with scripted agents that all do the same steps."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.board = TaskBoard.open(place.url, create=True, durability="normal")

    def words(self, steps: str, *more: str) -> list[str]:
        agent = shlex.join([sys.executable, "-P", str(ACTORS / "direct.py"), steps])
        return [sys.executable, "-m", "dibs", "--board", self._place.url, "team", "--agent", agent, "-n", "1", *more]

    def run(self, steps: str, *more: str) -> tuple[int, str]:
        done = subprocess.run(
            self.words(steps, *more), cwd=self._place.workspace, capture_output=True, text=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        assert done.stderr == ""
        assert self._place.left() == []
        return done.returncode, done.stdout


@pytest.fixture
def team(place: Place) -> Iterator[Team]:
    made = Team(place)
    with made.board:
        yield made


# -- the summary


def test_commits_beside_an_agents_branch_are_named_and_can_be_merged(team: Team, repository: Path) -> None:
    team.board.add("x")
    steps = ["claim", "write on.txt", f"{COMMIT} on", "command git checkout -q --detach"]
    steps += ["write beside.txt", f"{COMMIT} beside", "complete"]
    code, out = team.run("; ".join(steps), "--worktrees")
    assert code == 0, out
    branch = next(name for name in branches(repository) if name != "main")
    found = re.findall(r"^  git merge (\S+)  +# (.*)$", out, re.MULTILINE)
    assert [why for _, why in found] == ["1 commit", f"1 commit beside {branch}"]
    for commit, _ in found:
        git(repository, "merge", commit)
    assert {"on.txt", "beside.txt"} <= {path.name for path in repository.iterdir()}


def test_a_worktree_that_its_agent_has_removed_is_said_to_be_gone_and_its_branch_can_be_merged(
    team: Team, repository: Path
) -> None:
    team.board.add("x")
    code, out = team.run(f'claim; write on.txt; {COMMIT} on; command rm -rf "$PWD"; complete', "--worktrees")
    assert code == 0, out
    (command,) = re.findall(r"^  (git merge \S+)  +# 1 commit$", out, re.MULTILINE)
    git(repository, *command.split()[1:])
    assert (repository / "on.txt").exists()
    gone = "Worktrees that are gone, with what was not committed there; branches stay:"
    assert f"{gone}\n  git worktree list  # worker-1\n" in out
    assert "could not be read" not in out


def test_a_task_that_failed_counts_although_one_that_had_failed_before_is_mended(team: Team) -> None:
    """As many have failed in the end as in the beginning, and others."""
    old, new = team.board.add("old"), team.board.add("new")
    assert team.board.claim("alice", old) is not None
    team.board.fail(old, "it cannot be done", worker="alice")
    retry = shlex.join([sys.executable, "-m", "dibs", "retry", old])
    code, out = team.run(f"command {retry}; claim {old}; complete; claim {new}; fail")
    assert code == 1, out
    assert ", but 1 task failed\n" in out
    assert team.board.counts()[FAILED] == 1


# -- Ctrl-C


@contextmanager
def frozen(place: Place) -> Iterator[None]:
    """Whoever writes to the board waits, as if its disk were gone."""
    gate = fs.open_lock_file(f"{place.path / 'board.db'}-lock")
    fs.lock(gate)
    try:
        yield
    finally:
        os.close(gate)


def test_a_third_ctrl_c_waits_for_nothing(team: Team, place: Place) -> None:
    """The first ends the agents in order, the second kills them; what they held is given back, or ends by itself."""
    task = team.board.add("x")
    program, *words = team.words("child deaf + sleep; deaf; claim; sleep")
    seat = pexpect.spawn(program, words, cwd=str(place.workspace), timeout=PATIENCE, encoding="utf-8",
                         env={**os.environ, "TERM": "xterm"}, dimensions=(24, 80))  # fmt: skip
    try:
        seat.expect(f"claimed {task}")
        with frozen(place):
            for word in ("stopping 1 agent", "killing 1 agent"):
                seat.sendintr()
                seat.expect(word)
            seat.sendintr()
            seat.expect(pexpect.EOF)
        seat.close()
    finally:
        seat.close(force=True)
    assert seat.exitstatus == 128 + signal.SIGINT
    assert seat.before is not None
    assert seat.before.endswith("\x1b[?25h\x1b[?1049l")  # the terminal is as it was, and nothing was said after that
    wait_until(lambda: place.left() == [])
    team.board.recover()
    settled(team.board)
    assert team.board.get(task).status is PENDING


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(NAP)
