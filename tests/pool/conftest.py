"""What the tests of the pool share: agents whose steps a test writes down, places to meet, and a look at /proc."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dibs import AgentPool, TaskBoard
from dibs.model import IN_PROGRESS
from dibs.pool import agents, running
from dibs.pool.results import PoolEvent, Results
from dibs.pool.runners import Launch, Order

ACTORS = Path(__file__).parent / "actors"
PATIENCE = 90.0
"""Seconds after which something has gone wrong, on the slowest machine."""
NAP = 0.02


class Plans:
    """A runner of scripted agents: for each name the steps of its first start, of its second, …; the last for all that
    follow. `worker` stands for all whose name begins so."""

    name = "scripted"

    def __init__(self, **plans: str | Sequence[str]) -> None:
        self._plans = {key: [plan] if isinstance(plan, str) else list(plan) for key, plan in plans.items()}
        self.starts: list[str] = []
        self.prompts: list[str] = []
        self.notes = ""

    def check(self) -> None:
        pass

    def launch(self, order: Order) -> Launch:
        self.starts.append(order.name)
        self.prompts.append(order.prompt)
        key = order.name.replace("-", "_")
        plans = self._plans[key if key in self._plans else order.role]
        steps = plans[min(self.starts.count(order.name), len(plans)) - 1]
        return Launch(self.command(steps), env={"POOL_NOTES": self.notes}, stdin=order.prompt)

    def command(self, steps: str) -> list[str]:
        return [sys.executable, "-P", str(ACTORS / "direct.py"), steps]


class Words:
    """A runner of one command."""

    def __init__(self, *argv: str) -> None:
        self.name = os.path.basename(argv[0])
        self._argv = argv

    def check(self) -> None:
        pass

    def launch(self, order: Order) -> Launch:
        return Launch(self._argv)


class Place:
    """Where a test plays: a workspace with a board beside it, notes by which test and agents meet, and all events."""

    def __init__(self, tmp_path: Path, mark: str) -> None:
        self.path = tmp_path
        self._mark = mark
        self.workspace = tmp_path / "work"
        self.workspace.mkdir()
        self.notes = tmp_path / "notes"
        self.notes.mkdir()
        self.url = f"sqlite:{tmp_path / 'board.db'}"
        self.events: list[PoolEvent] = []

    def pool(self, runner: Any, agents: int = 2, **more: Any) -> AgentPool:
        given: dict[str, Any] = {"workspace": self.workspace, "agent": runner, "max_agents": agents, "grace": 5.0}
        if "state_dir" not in more:
            given["board"] = self.url
        for each in (runner, more.get("lead_agent")):
            if isinstance(each, Plans):
                each.notes = str(self.notes)
        return AgentPool(**{**given, "on_event": self.events.append, **more})

    def beside(self, name: str) -> Place:
        """Another place, for something that goes on at the same time."""
        (self.path / name).mkdir()
        made = Place(self.path / name, "")
        made._mark = f"POOL_NOTES={made.notes}"
        return made

    def run(self, runner: Any, agents: int = 2, **more: Any) -> Results:
        return asyncio.run(self.play(runner, agents, **more))

    async def play(
        self, runner: Any, agents: int = 2, *, tasks: Sequence[Any] = (), lead: str | None = None, **more: Any
    ) -> Results:
        """A team from its beginning to its end; nothing is left of it then."""
        async with self.pool(runner, agents, **more) as pool:
            pool.add_tasks(tasks)
            results: Results = await soon(pool.run_team(lead))
            assert self.left() == []
            settled(pool.board)
            return results

    def kinds(self, agent: str | None = None) -> list[str]:
        """What happened, board and output excepted."""
        return [e.kind for e in self.events if e.kind not in ("board", "output") and agent in (None, e.agent)]

    def note(self, word: str) -> None:
        (self.notes / word).touch()

    async def noted(self, word: str) -> None:
        await until((self.notes / word).exists)

    async def claimed(self, name: str) -> None:
        """Until this agent is in the middle of some task."""
        await until(lambda: list(self.notes.glob(f"{name} claimed *")))

    @property
    def board(self) -> TaskBoard:
        return TaskBoard.open(self.url, worker="somebody")

    def left(self) -> list[int]:
        """Processes that the test has started, itself excepted, and that are not over."""
        mark = self._mark.encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if int(name) != os.getpid() and mark in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if sys.platform != "linux":
        pytest.skip("these tests find processes by /proc")
    made = Place(tmp_path, f"POOL_TEST={tmp_path}")
    for name in [name for name in os.environ if name.startswith("DIBS_") and name != "DIBS_RUNTIME_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POOL_TEST", str(tmp_path))
    monkeypatch.setenv("POOL_NOTES", str(made.notes))
    # What agents' servers note of themselves is of this test alone.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Most of a test's time would be waiting.
    monkeypatch.setattr(running, "PULSE", 0.2)
    monkeypatch.setattr(running, "PATIENCE", 1.0)
    monkeypatch.setattr(agents, "PATIENCE", 1.0)
    yield made
    end = time.monotonic() + PATIENCE / 9
    while (left := made.left()) and time.monotonic() < end:
        time.sleep(NAP)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes are left"


@pytest.fixture
def repository(place: Place) -> Path:
    git(place.workspace, "init", "-q")
    (place.workspace / "sub").mkdir()
    (place.workspace / "sub" / "a.txt").write_text("a\n")
    (place.workspace / ".gitignore").write_text("*.ignored\n")
    git(place.workspace, "add", ".")
    git(place.workspace, "commit", "-qm", "start")
    return place.workspace


def settled(board: TaskBoard) -> None:
    """Nobody holds anything."""
    counts = board.counts()
    assert counts[IN_PROGRESS] == 0, board.status()
    assert board.locks() == []


def together(*plays: Coroutine[Any, Any, Any]) -> list[Any]:
    """Several that have nothing to do with each other, at the same time: most of it is waiting."""

    async def play() -> list[Any]:
        return await asyncio.gather(*plays)

    return asyncio.run(play())


async def soon(awaited: Any) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await awaited


async def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {condition}"
        await asyncio.sleep(NAP)
    return found


# -- git


def git(folder: Path, *words: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def trees(repository: Path) -> list[str]:
    return [
        line.split()[1]
        for line in git(repository, "worktree", "list", "--porcelain").splitlines()
        if line.startswith("worktree ")
    ]


def branches(repository: Path) -> list[str]:
    return git(repository, "branch", "--format=%(refname:short)").splitlines()
