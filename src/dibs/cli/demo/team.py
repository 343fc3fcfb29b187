"""`dibs demo`: a team of scripted agents writes a small shop. A lead plans, workers in worktrees write, one is killed.

The agents need no account: they are processes that speak MCP with the official client (`lead`, `coder`). All that is
pretended is their thinking and that they had to find out what to write (`shopcode`). Board, pool, repository, commits,
tests and the SIGKILL are real, and so is the verdict (`team_report`): it comes from the changelog, the agents' own
records, the repository's history, the project's tests in a fresh clone, and the list of processes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time

from dibs.board import TaskBoard
from dibs.cli.demo import project
from dibs.cli.demo.ending import between
from dibs.cli.demo.watching import Watch
from dibs.cli.demo.worker import read_records
from dibs.model import COMPLETED, IN_PROGRESS, Worker
from dibs.pool.pool import AgentPool
from dibs.pool.runners.base import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import BoardTask
    from dibs.pool.results import Results
    from dibs.pool.runners.base import Order

WORKERS = 4
PACE = 2.0
"""Seconds of thought that a task takes, about."""
KILL_AFTER = 5
"""So many tasks are done when one of the workers is killed."""
TOO_LONG = 240.0
LOOK = 0.05
PROMPT = "Write what is missing in this shop. Every test must pass on the branch trunk in the end."


def demo_team(ctx: Context, args: Args, seed: int) -> int:
    from dibs.cli.demo.team_report import document, judge, summary

    workers = between(args.workers, "--workers", WORKERS, 2, 8)
    folder = tempfile.mkdtemp(prefix="dibs-demo-")
    home = project.make(folder)
    with TaskBoard.open(os.path.join(home, ".dibs", "board.db"), create=True, worker=Worker("demo", "system")) as board:
        show = TeamShow(ctx, board, folder, home, workers, seed)
        show.play()
        verdict = judge(show)
        if ctx.json:
            ctx.emit(document(show, verdict))
        else:
            for line in summary(ctx, show, verdict):
                ctx.say(line)
    return 1 if verdict.problems else 0


class Scripted:
    """A runner: the lead and the workers of this demo as commands."""

    name = "scripted"

    def __init__(self, folder: str, seed: int) -> None:
        self._folder = folder
        self._seed = seed

    def check(self) -> None:
        """All that it needs is here."""

    def launch(self, order: Order) -> Launch:
        python = [sys.executable, "-P", "-m"]
        # The notes of servers that die by SIGKILL stay in the demo's own folder.
        env = {"DIBS_RUNTIME_DIR": os.path.join(self._folder, "run")}
        if order.role == "lead":
            return Launch([*python, "dibs.cli.demo.lead", *order.server], env)
        own = [records_of(self._folder, order.name), str(self._seed), str(PACE)]
        return Launch([*python, "dibs.cli.demo.coder", *own, *order.server], env)


def records_of(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.records")


class Accident:
    """A worker that was killed in the middle of a task."""

    def __init__(self, worker: str, task: BoardTask, frozen_at: float, killed_at: float, half: list[str]) -> None:
        self.worker = worker
        self.task = task
        self.frozen_at = frozen_at
        """On the monotonic clock, like the workers' records. From then on it did nothing."""
        self.killed_at = killed_at
        """On the board's clock."""
        self.half = half
        """The files that it had begun to write, by what git says of its worktree."""


class TeamShow:
    """The pool, what is shown of it, and the accident."""

    def __init__(self, ctx: Context, board: TaskBoard, folder: str, home: str, workers: int, seed: int) -> None:
        self.ctx = ctx
        self.board = board
        self.folder = folder
        self.home = home
        self.workers = workers
        self.seed = seed
        self.accident: Accident | None = None
        self.results: Results | None = None
        self.run_name = ""
        self.outputs = ""
        self.problems: list[str] = []
        self.began = board.now()
        self.seconds = 0.0
        self.before = project.run_tests(home)[:2]
        """The project's tests before anybody came: how many ran, how many failed."""
        self._random = random.Random(seed)
        self._stopped = 0
        self._watch = Watch(ctx, workers)

    def play(self) -> None:
        """Run to the end, whatever the end is, and leave no process behind."""
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            if not self._stopped:
                raise BrokenPipeError from None  # nobody reads what we print
            self.ctx.note(f"stopped; what the agents have done so far stays in {self.folder}")
            if self._stopped == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + self._stopped) from None

    async def _main(self) -> None:
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        assert me is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._stop, number, me)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        os.mkdir(os.path.join(self.folder, "run"), 0o700)
        self.began = self.board.now()
        started = time.monotonic()
        try:
            async with asyncio.timeout(TOO_LONG):
                await self._run()
        except TimeoutError:
            self.problems.append(f"the team has not finished after {TOO_LONG:.0f} s")
        finally:
            self._watch.end()
        self.seconds = time.monotonic() - started

    async def _run(self) -> None:
        pool = AgentPool(
            "team",
            self.workers,
            board=self.board.url,
            workspace=self.home,
            agent=Scripted(self.folder, self.seed),
            worktrees=True,
            grace=5.0,
            on_event=self._watch.event,
        )
        async with pool:
            self.outputs, self.run_name = pool.folder, os.path.basename(pool.folder)
            besides = [asyncio.create_task(self._have_an_accident(pool)), asyncio.create_task(self._watch.show(pool))]
            try:
                self.results = await pool.run_team(PROMPT)
            finally:
                for task in besides:
                    task.cancel()
                failures = await asyncio.gather(*besides, return_exceptions=True)
        self.problems += [f"the demo itself failed: {each!r}" for each in failures if isinstance(each, Exception)]

    def _stop(self, number: int, running: asyncio.Task[Any]) -> None:
        self._stopped = self._stopped or number
        self._watch.remark("stopping the agents; what they hold is given back")
        running.cancel()

    def _suspend(self) -> None:
        """Ctrl-Z: the terminal is the shell's while we are stopped. The agents work on."""
        self._watch.pause()
        os.kill(os.getpid(), signal.SIGSTOP)

    # -- the accident

    async def _have_an_accident(self, pool: AgentPool) -> None:
        """When some of the work is done, kill a worker that has written half of something, without warning."""
        while True:
            await asyncio.sleep(LOOK)
            if self.board.counts()[COMPLETED] < KILL_AFTER:
                continue
            busy = [agent for agent in pool.agents if agent.role == "worker" and self.is_editing(agent.name)]
            self._random.shuffle(busy)
            for agent in busy:
                if agent.pid is not None and self._kill_at_work(pool, agent.name, agent.pid):
                    return

    def records(self, name: str) -> list[dict[str, Any]]:
        return read_records(records_of(self.folder, name))

    def is_editing(self, name: str) -> dict[str, Any] | None:
        """The worker's last note, if that says that it has written a part of its task and not all."""
        notes = self.records(name)
        return notes[-1] if notes and notes[-1]["did"] == "editing" else None

    def _kill_at_work(self, pool: AgentPool, name: str, pid: int) -> bool:
        """Freeze it first, to be sure that it is in the middle of a task and not just completing it."""
        if not freeze(pid):
            return False  # it has just ended
        frozen_at = time.monotonic()
        note = self.is_editing(name)
        if note is not None:
            task = self.board.get(note["task"])
            if task.status is IN_PROGRESS and task.token == note["token"]:
                half = project.changed(pool.agent(name).worktree or self.home)
                self.accident = Accident(name, task, frozen_at, self.board.now(), half)
                pool.kill(name)
                self._watch.kill(name, task, half)
                return True
        os.kill(pid, signal.SIGCONT)
        return False


def freeze(pid: int) -> bool:
    """Stop a process, and wait until it has stopped."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    for _ in range(1000):
        state = state_of(pid)
        if state is None or state == "T":
            return state == "T"
        time.sleep(0.001)
    os.kill(pid, signal.SIGCONT)
    return False


def state_of(pid: int) -> str | None:
    """The system's letter for a process: R, S, T (stopped); None if it is gone."""
    try:
        if os.path.isdir("/proc/self"):
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None
    import subprocess

    said = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return said.strip()[:1] or None
