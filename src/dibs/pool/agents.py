"""One agent of a run: its starts and restarts, what it holds, what it did.

    agent = Agent("worker-1", "worker", runner)
    await agent.live(house, prompt)      one start, to its end; what it held is given back when this returns
    agent.end(grace), agent.kill_all()   from outside: `live` then returns soon

Each start has a session of its own, so what a dead start held can never be taken for the next one's. If the pool dies
meanwhile, the wardens end the agents, and their servers give everything back; what remains, leases and the proof of
their processes' death free.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from dibs.board import TaskBoard
from dibs.errors import DibsError
from dibs.pool.processes import AgentProcess
from dibs.pool.results import COMPLETED, ERROR, STOPPED, TIMEOUT, AgentResult
from dibs.pool.runners import Launch, Order, Runner
from dibs.pool.standing import workers_of
from dibs.pool.tails import Tails, plainly

WAITING, RUNNING, RESTARTING, ENDED = "waiting", "running", "restarting", "ended"

TAIL = 65_536
"""So many bytes of the end of an agent's output go into its result."""
PATIENCE = 5.0
"""Seconds to end in, for an agent whose time is over."""
TRIES = 5
"""How often giving back is tried, when the board is busy or its disk is full."""
GIVING = 12.0
"""Seconds that it may take, altogether."""

_FOREIGN = (
    "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_PROJECT_DIR",
    "CODEX_THREAD_ID", "GEMINI_SESSION_ID", "GEMINI_CLI",
    "DIBS_AGENT", "DIBS_KIND", "DIBS_SESSION", "DIBS_BOARD", "DIBS_TEAM", "DIBS_STALE_TIMEOUT", "DIBS_PROMPT_FILE",
    "DIBS_PROCESS", "DIBS_TASK", "DIBS_TASK_ID", "DIBS_TASK_JSON", "DIBS_TOKEN", "DIBS_JSON",
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip
"""Of a coding client, a worker or a git hook that the pool itself runs in; its agents are others, and elsewhere."""


class House(Protocol):
    """What the pool provides to its agents."""

    server: list[str]
    timeout: float | None
    tails: Tails | None

    @property
    def board(self) -> TaskBoard: ...

    def next_start(self, agent: Agent) -> tuple[str, str]: ...

    def owe(self, session: str, note: str) -> None: ...

    def environment(self, agent: Agent) -> dict[str, str]: ...

    def place(self, agent: Agent) -> Awaitable[str]: ...

    def tell(self, kind: str, agent: str | None, text: str, **data: Any) -> None: ...

    def call(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]: ...


class Agent:
    def __init__(self, name: str, role: str, runner: Runner) -> None:
        self.name = name
        self.role = role
        self.runner = runner
        self.state = WAITING
        self.since = time.time()
        self.run = 0
        self.pid: int | None = None
        self.session = ""
        self.output_file: str | None = None
        self.worktree: str | None = None
        self.branch: str | None = None
        self.status: str | None = None
        self.error: str | None = None
        self.exit_code: int | None = None
        self.tasks: list[str] = []
        self.begun: dict[str, None] = {}
        """Tasks that it claimed, in order."""
        self.done_in_run = 0
        """Tasks that were closed in this start, one way or another."""
        self.failures = 0
        """Starts in a row that closed nothing."""
        self.not_before = 0.0
        """On the monotonic clock: not started again sooner."""
        self.seconds = 0.0
        self.is_given_up = False
        self.is_placing = False
        """Its worktree is being made."""
        self._process: AgentProcess | None = None
        self._ending: float | None = None

    @property
    def is_running(self) -> bool:
        return self.state == RUNNING

    def become(self, state: str) -> None:
        self.state = state
        self.since = time.time()

    # -- one start

    async def live(self, house: House, prompt: Callable[[], str]) -> None:
        """`prompt` is asked for when it is known where the agent works."""
        self.run += 1
        self.session, stem = house.next_start(self)
        self.done_in_run = 0
        self.status = self.error = self.exit_code = None
        self._ending = None
        self._is_stopped = False
        self.become(RUNNING)
        began = time.monotonic()
        try:
            self._process = await self._start(house, prompt, stem)
        except (OSError, DibsError, ValueError) as error:
            self.status, self.error = ERROR, f"{self.runner.name} could not be started: {_plain(error)}"
        else:
            self.pid = self._process.pid
            place = {"worktree": self.worktree, "branch": self.branch}
            house.tell(
                "agent_started", self.name, f"{self.name} has started ({self.runner.name}, process {self.pid})",
                pid=self.pid, run=self.run, output_file=self.output_file, **place,
            )  # fmt: skip
            await self._attend(house, self._process)
        finally:
            self._process = self.pid = None
            self.seconds += time.monotonic() - began
        await self._give_back(house)
        if house.tails is not None and self.output_file is not None:
            for name, line in await house.call(house.tails.rest, self.output_file):
                house.tell("output", name, line)
        self.become(ENDED)
        house.tell(
            "agent_ended", self.name, f"{self.name} has ended: {self.error or self.status}",
            run=self.run, status=self.status, exit_code=self.exit_code, error=self.error,
            seconds=round(time.monotonic() - began, 3),
        )  # fmt: skip

    async def _start(self, house: House, prompt: Callable[[], str], stem: str) -> AgentProcess:
        self.is_placing = True
        try:
            workspace = await house.place(self)
        finally:
            self.is_placing = False
        self.output_file = f"{stem}.log"
        if house.tails is not None:
            house.tails.add(self.output_file, self.name)
        launch, env = await house.call(self._prepare, house, prompt(), workspace, stem)
        process = await AgentProcess.start(
            launch.argv,
            env=env,
            cwd=workspace,
            output=self.output_file,
            stdin=None if launch.stdin is None else os.path.join(stem, "stdin"),
        )
        if self._ending is not None:  # asked to end while it was being started
            process.end(self._ending)
        return process

    def _prepare(self, house: House, prompt: str, workspace: str, stem: str) -> tuple[Launch, dict[str, str]]:
        os.makedirs(stem, 0o700)
        prompt_file = os.path.join(stem, "prompt")
        _write(prompt_file, prompt)
        own = {**house.environment(self), "DIBS_PROMPT_FILE": prompt_file}
        order = Order(
            prompt, name=self.name, role=self.role, workspace=workspace, folder=stem, server=house.server, env=own
        )
        launch = self.runner.launch(order)
        if launch.stdin is not None:
            _write(os.path.join(stem, "stdin"), launch.stdin)
        inherited = {k: v for k, v in os.environ.items() if k not in _FOREIGN}
        return launch, {**inherited, **own, **launch.env}

    async def _attend(self, house: House, process: AgentProcess) -> None:
        waiting = asyncio.ensure_future(process.wait())
        try:
            async with asyncio.timeout(house.timeout):
                code = await asyncio.shield(waiting)
        except TimeoutError:
            self.status, self.error = TIMEOUT, f"its time was over after {house.timeout:g} s"
            process.end(PATIENCE)
            code = await waiting
        except asyncio.CancelledError:
            process.kill_all()  # the loop is being shut down; the warden does the rest
            raise
        self.exit_code = code
        if self.status is None and self._is_stopped:
            self.status = STOPPED
        elif self.status is None and (code == 0 or self._ending is not None):
            self.status = COMPLETED
        elif self.status is None:
            ended = f"exit code {code}" if code > 0 else f"killed by {_signal_name(-code)}"
            last = self.output(4096).strip().splitlines()
            self.status, self.error = ERROR, f"{ended}: {last[-1][:300]}" if last else ended

    async def _give_back(self, house: House) -> None:
        """Whatever this start still holds is free for others. Its servers may have done so already."""
        why = self.error or ("the team has stopped it" if self._ending is not None else "by itself")
        note = f"its process has ended ({why})"[:500]
        tasks: list[str] = []
        locks: list[str] = []
        failure: Exception | None = None
        try:
            async with asyncio.timeout(GIVING):
                for tried in range(TRIES):
                    try:
                        tasks, locks = await house.call(release, house.board, self.session, note)
                        failure = None
                        break
                    except (DibsError, OSError) as error:
                        failure = error
                        await asyncio.sleep(0.2 * 2**tried)
        except TimeoutError as error:  # the board's server is away; whoever waits for our end does not wait for that
            failure = failure or error
        if failure is not None:
            house.owe(self.session, note)
            more = f"what it held could not be given back now, and comes back by itself: {_plain(failure)}"
            self.error = f"{self.error}; {more}" if self.error else more
        if tasks or locks:
            what = ", ".join([*tasks, *locks])
            house.tell("agent_released", self.name, f"given back: {what}", tasks=tasks, locks=locks)

    # -- from outside

    def end(self, grace: float, *, is_stopped: bool = False) -> None:
        """It is to end, and that is no fault of its own: the work is over, or somebody stops the team."""
        self._ending = grace
        self._is_stopped = is_stopped
        if self._process is not None:
            self._process.end(grace)

    def kill_all(self) -> None:
        self._ending = 0.0
        if self._process is not None:
            self._process.kill_all()

    def kill(self) -> bool:
        """SIGKILL to the agent's own process, as an accident would have it."""
        if self._process is None:
            return False
        self._process.kill()
        return True

    def output(self, most: int = TAIL) -> str:
        """The end of what the last start has printed so far."""
        try:
            with open(self.output_file or os.devnull, "rb", opener=plainly) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return ""

    def __repr__(self) -> str:
        return f"<Agent {self.name} {self.state}, {len(self.tasks)} done>"

    def result(self) -> AgentResult:
        status, error = self.status or COMPLETED, self.error
        if self.is_given_up and status == COMPLETED:
            status, error = ERROR, error or "ended without finishing a task, again and again"
        return AgentResult(
            self.name,
            self.role,
            status,
            output=self.output(),
            error=error,
            duration=round(self.seconds, 3),
            tasks=self.tasks,
            unfinished=[task for task in self.begun if task not in self.tasks],
            runs=self.run,
            exit_code=self.exit_code,
            output_file=self.output_file,
            worktree=self.worktree,
            branch=self.branch,
        )


def release(board: TaskBoard, session: str, note: str) -> tuple[list[str], list[str]]:
    """Give back everything that is held in a session, under whatever name; the tasks, and the locks without one."""
    loose = [lock.pattern for lock in board.locks() if lock.task_id is None and lock.holder.session == session]
    tasks = [id for worker in workers_of(board, [session]) for id in board.release_agent_tasks(worker, note=note)]
    return tasks, loose


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _plain(error: Exception) -> str:
    if isinstance(error, DibsError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    if isinstance(error, TimeoutError):
        return "the board does not answer"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
