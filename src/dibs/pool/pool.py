"""AgentPool: agents that are real commands, sharing one board.

    async with AgentPool(mode="team", max_agents=4) as pool:
        pool.add_tasks(["Implement …", {"description": "Test …", "paths": ["tests/**"]}])
        results = await pool.run_team(lead_prompt="Break down and coordinate …")

    async with AgentPool(mode="parallel", max_agents=3) as pool:
        pool.submit("Summarise src/a.py"); pool.submit("Summarise src/b.py")
        results = await pool.run()

The pool keeps the leases of its agents while their processes live, gives back what they held the moment they end,
starts failed workers again within limits, and leaves no process behind: not when it ends, not on Ctrl-C, not when it
is killed itself (`warden`). Everything that is worth knowing afterwards is on the board and in the run's folder.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self

from dibs import limits
from dibs.board import TaskBoard
from dibs.errors import Invalid, NoBoard
from dibs.model import Worker
from dibs.places import find_place
from dibs.pool import prompts
from dibs.pool.agents import Agent, release
from dibs.pool.notice import VARIABLE, Notice
from dibs.pool.results import PoolEvent, Results
from dibs.pool.runners import Runner, make_runner
from dibs.pool.standing import Standing, look
from dibs.pool.tails import Tails
from dibs.pool.threads import in_thread
from dibs.pool.worktrees import GitError, Worktrees
from dibs.worker import PROCESS, boot, host

MODES = ("team", "parallel")
CLOSING = 5.0
"""Seconds for closing the board."""
MOST = 64
"""Agents in one pool. More is a mistake, or many machines."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.pool.results import OnEvent

_log = logging.getLogger("dibs.pool")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,38}[A-Za-z0-9])?")


class AgentPool:
    def __init__(
        self,
        mode: str = "team",
        max_agents: int = 4,
        *,
        board: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        agent: str | Sequence[str] | Runner = "claude",
        lead_agent: str | Sequence[str] | Runner | None = None,
        model: str | None = None,
        agent_args: Sequence[str] = (),
        worker_prompt: str | None = None,
        workers: int | None = None,
        timeout: float | None = None,
        stale_timeout: float | None = None,
        worktrees: bool = False,
        restarts: int = 2,
        grace: float = 10.0,
        on_event: OnEvent | None = None,
        tail: bool = False,
        folder: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise Invalid(f"there is no mode {mode!r:.40}", hint=f"modes: {', '.join(MODES)}")
        if board is not None and state_dir is not None:
            raise Invalid("board and state_dir both say where the board is", hint="give one of them")
        if name is not None and not _NAME.fullmatch(name):
            raise Invalid(
                f"{name!r:.60} cannot be the name of a team",
                hint="letters, digits and - _ . in between, at most 40: ci-8",
            )
        self.mode = mode
        self._names = "" if name is None else f"{name}-"
        """What its agents' names begin with."""
        self.max_agents = limits.integer(max_agents if workers is None else workers, "max_agents", 1, MOST)
        self.timeout = None if timeout is None else limits.seconds(timeout, "timeout")
        self.stale_timeout = timeout if stale_timeout is None else limits.seconds(stale_timeout, "stale_timeout")
        self.restarts = limits.integer(restarts, "restarts", 0, 1000)
        self.grace = limits.wait(grace)
        self.workspace = os.path.realpath(workspace or os.curdir)
        if not os.path.isdir(self.workspace):
            raise Invalid(
                f"there is no folder {self.workspace}", hint="workspace is the folder that the agents work in"
            )
        self.runner = make_runner(agent, model=model, args=agent_args)
        self.lead_runner = self.runner if lead_agent is None else make_runner(lead_agent, model=model, args=agent_args)
        self.worker_prompt = worker_prompt
        self.tails = Tails() if tail else None
        self.id = f"{time.strftime('%m%d-%H%M')}-{secrets.token_hex(4)}"
        """What tells this pool from all others: in its agents' sessions, its branches, its folder's name."""
        self.agents: list[Agent] = []
        self.server = [os.path.abspath(sys.executable), "-P", "-m", "dibs"]
        self._on_event = on_event
        self._url = board
        self._state_dir = state_dir
        self._wants_worktrees = worktrees
        self._given_folder = folder
        self._board: TaskBoard | None = None
        self._trees: Worktrees | None = None
        self._notice: Notice | None = None
        self._submitted: list[tuple[str, str]] = []
        self._running: asyncio.Task[Any] | None = None
        self._starts: dict[str, int] = {}
        self._calls = 0
        self._turn = threading.Condition()
        self._owed: list[tuple[str, str]] = []
        self._callbacks: set[asyncio.Future[Any]] = set()

    # -- opening and closing

    async def __aenter__(self) -> Self:
        await in_thread(self._open)  # a server may take its time to answer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._running
        if running is not None and running is not asyncio.current_task():
            running.cancel()  # a run that nobody waits for any more
            await asyncio.wait([running])
        if self._callbacks:
            await asyncio.wait(list(self._callbacks))
        try:
            await in_thread(self.close, within=CLOSING)
        except TimeoutError:
            _log.warning("the board does not answer; it is left as it is")

    def _open(self) -> None:
        self.runner.check()
        self.lead_runner.check()
        self._board = _open_board(self._url, self._state_dir, self.workspace, self.stale_timeout)
        try:
            self._make_folder()
            if self._wants_worktrees:
                trees = os.path.join(self.folder, "worktrees")
                self._trees = Worktrees(self.workspace, trees, f"dibs/{self.id}")
        except BaseException:
            self.close()
            raise

    def _make_folder(self) -> None:
        """A folder of this run alone, that only this user can read: outputs and configurations are in it."""
        if self._given_folder is not None:
            self.folder = os.path.realpath(self._given_folder)
            os.makedirs(self.folder, 0o700, exist_ok=True)
            if os.listdir(self.folder):
                raise Invalid(f"{self.folder} is not empty", hint="give every run a new folder, or none")
            return
        home = os.path.join(find_place(self.workspace).home, ".dibs", "team")
        os.makedirs(home, 0o700, exist_ok=True)
        for folder in (os.path.dirname(home), home):
            try:
                with open(os.path.join(folder, ".gitignore"), "x", encoding="ascii") as file:
                    file.write("*\n")
            except FileExistsError:
                pass
        self.folder = os.path.join(home, self.id)
        os.mkdir(self.folder, 0o700)

    def close(self) -> None:
        """Returns when no call is at the board any more, or after some seconds."""
        with self._turn:
            self._turn.wait_for(lambda: not self._calls, CLOSING - 1)
        if self._board is not None:
            self._board.close()
            self._board = None

    @property
    def board(self) -> TaskBoard:
        if self._board is None:
            raise Invalid("the pool is not open", hint="use it as: async with AgentPool(…) as pool")
        return self._board

    # -- what there is to do

    def add_tasks(self, tasks: Sequence[str | Mapping[str, Any]]) -> list[str]:
        """Put tasks on the board, all or none; their ids. Also while agents work."""
        if isinstance(tasks, str):
            raise Invalid("add_tasks takes a list", hint=f"add_tasks([{tasks!r:.60}])")
        made = [{"description": task} if isinstance(task, str) else task for task in tasks]
        for task in made:
            if not isinstance(task, Mapping):
                raise Invalid(f"{task!r:.60} is no task", hint="a task is a text, or a dict with a description")
        return self.board.add_many(made)

    def submit(self, prompt: str, name: str | None = None) -> str:
        """For mode parallel: a prompt that an agent of its own is given when `run` comes to it; the agent's name."""
        if self.mode != "parallel":
            raise Invalid("submit belongs to mode parallel", hint="in a team: pool.add_tasks([…]), pool.run_team(…)")
        if not prompt.strip():
            raise Invalid("the prompt is empty")
        taken = {other for other, _ in self._submitted}
        names = (f"{self._names}agent-{number}" for number in count(1))
        free = (each for each in names if each not in taken)
        chosen = next(free) if name is None else limits.new_name(name, "agent's name")
        if chosen in taken or os.sep in chosen or chosen.startswith("."):
            raise Invalid(f"{chosen!r:.60} cannot be the name of another agent", hint="give each a name of its own")
        self._submitted.append((chosen, prompt))
        return chosen

    # -- running

    async def run_team(self, lead_prompt: str | None = None) -> Results:
        """Lead and workers, until the board is done or cannot go on. Without a lead's prompt there are workers only."""
        if self.mode != "team":
            raise Invalid("run_team belongs to mode team", hint="in mode parallel: pool.submit(prompt), pool.run()")
        from dibs.pool.running import TeamRun

        leader = f"{self._names}lead"
        lead = None if lead_prompt is None else Agent(leader, "lead", self.lead_runner)
        numbers = range(1, self.max_agents + 1)
        workers = [Agent(f"{self._names}worker-{n}", "worker", self.runner) for n in numbers]
        asked = "" if lead_prompt is None else prompts.lead(leader, self.max_agents, lead_prompt)
        return await self._run(TeamRun(self, lead, asked, workers))

    async def run(self) -> Results:
        """All that was submitted, `max_agents` at a time; results in the order of submission."""
        if self.mode != "parallel":
            raise Invalid("run belongs to mode parallel", hint="in a team: await pool.run_team(lead_prompt=…)")
        from dibs.pool.running import ParallelRun

        self._refuse_second()
        submitted, self._submitted = self._submitted, []
        return await self._run(ParallelRun(self, [(Agent(name, "agent", self.runner), p) for name, p in submitted]))

    def _refuse_second(self) -> None:
        if self._running is not None:
            raise Invalid("the pool is running already", hint="one run at a time; a second pool may share the board")

    async def _run(self, run: Any) -> Results:
        self._refuse_second()
        self.agents = run.agents
        lead = next((agent.name for agent in self.agents if agent.role == "lead"), None)
        self._notice = Notice(os.path.join(self.folder, "team.json"), lead)
        self._running = asyncio.current_task()
        self.resume()
        try:
            result: Results = await run.play()
            return result
        finally:
            self._running = None

    def stop(self) -> None:
        """End everything; the run raises `asyncio.CancelledError` when nothing is left. A second time: at once."""
        if self._running is not None:
            self._running.cancel()

    # -- looking

    def standing(self) -> Standing:
        return look(self.board, {agent.name: agent.session for agent in self.agents})

    def agent(self, name: str) -> Agent:
        for agent in self.agents:
            if agent.name == name:
                return agent
        names = ", ".join(agent.name for agent in self.agents)
        raise Invalid(f"there is no agent {name!r:.60}", hint=f"agents: {names}" if names else "none has been started")

    def tail(self, name: str, lines: int = 20) -> list[str]:
        """The last lines that an agent has printed."""
        return self.agent(name).output().splitlines()[-lines:]

    def kill(self, name: str) -> bool:
        """SIGKILL to an agent's own process, as an accident would have it; was it running?"""
        return self.agent(name).kill()

    # -- for its agents and runs

    def post(self, *, planning: bool = False, over: bool = False) -> None:
        assert self._notice is not None
        try:
            self._notice.post(planning=planning, over=over)
        except OSError as error:  # somebody has cleared the folder away, which agents take for the end
            _log.warning("%s cannot be written: %s", self._notice.path, error.strerror)

    def next_start(self, agent: Agent) -> tuple[str, str]:
        """For a start of an agent: its session, and what its files begin with. Never the same twice."""
        number = self._starts[agent.name] = self._starts.get(agent.name, 0) + 1
        return f"team-{self.id}-{agent.name}-{number}", os.path.join(self.folder, f"{agent.name}.{number}")

    def prompt(self, agent: Agent) -> str:
        if self.worker_prompt is not None:
            return self.worker_prompt
        lead = next((other.name for other in self.agents if other.role == "lead"), None)
        return prompts.worker(agent.name, lead, agent.branch)

    def environment(self, agent: Agent) -> dict[str, str]:
        assert self._notice is not None
        url = self.board.url
        if url.startswith("postgresql:"):  # shown without its password, which the agents need
            url = self._url or os.environ.get("DIBS_BOARD") or url
        env = {
            "DIBS_AGENT": agent.name,
            "DIBS_KIND": "agent",
            "DIBS_SESSION": agent.session,
            "DIBS_BOARD": url,
            PROCESS: f"{host()}\t{boot()}",  # completed by the warden
        }
        if self.mode == "team":
            env[VARIABLE] = self._notice.path
        if self.stale_timeout is not None:
            env["DIBS_STALE_TIMEOUT"] = f"{self.stale_timeout:g}"
        return env

    def owe(self, session: str, note: str) -> None:
        """What a start of an agent held could not be given back: the board was out of reach."""
        self._owed.append((session, note))

    @property
    def is_in_debt(self) -> bool:
        """Is there something that an ended agent held, and that could not be given back?"""
        return bool(self._owed)

    async def pay(self) -> None:
        """Give back what is owed, now that the board can be read again."""
        while self._owed:
            await self.call(release, self.board, *self._owed[0])
            self._owed.pop(0)

    async def place(self, agent: Agent) -> str:
        """The directory that an agent works in; its worktree is made when it is first needed."""
        if self._trees is None or agent.role == "lead":
            return self.workspace
        try:
            agent.worktree, agent.branch = await self.call(self._trees.make, agent.name)
        except GitError as error:
            raise Invalid(f"its worktree could not be made: {error}") from None
        assert agent.worktree is not None
        return agent.worktree

    def interrupt(self) -> None:
        """What is being prepared for agents that are not to come is ended."""
        if self._trees is not None:
            self._trees.stop()

    def resume(self) -> None:
        if self._trees is not None:
            self._trees.begin()

    def tidy(self) -> None:
        """After a run: worktrees in which nothing was done go, the others stay."""
        if self._trees is not None:
            kept = self._trees.tidy()
            for agent in self.agents:
                if agent.name not in kept:
                    agent.worktree = agent.branch = None

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Something that may block, in a thread."""
        return await in_thread(self._counted, function, *arguments)

    def _counted(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._turn:
            self._calls += 1
        try:
            return function(*arguments)
        finally:
            with self._turn:
                self._calls -= 1
                self._turn.notify_all()

    def tell(self, kind: str, agent: str | None, text: str, **data: Any) -> None:
        if self._on_event is None:
            return
        try:
            answer = self._on_event(PoolEvent(kind, agent, time.time(), text, **data))
            if inspect.isawaitable(answer):
                callback = asyncio.ensure_future(_logged(answer))
                self._callbacks.add(callback)
                callback.add_done_callback(self._callbacks.discard)
        except Exception:
            _log.exception("on_event failed for %s", kind)


async def _logged(answer: Awaitable[Any]) -> None:
    try:
        await answer
    except Exception:
        _log.exception("on_event failed")


def _open_board(
    url: str | None, state_dir: str | os.PathLike[str] | None, workspace: str, stale: float | None
) -> TaskBoard:
    """The board that was named, or that of the workspace; made if it is not there."""
    who = Worker("team", "system")
    if state_dir is not None:
        return TaskBoard(state_dir=state_dir, stale_timeout=stale, worker=who)
    given = url or os.environ.get("DIBS_BOARD") or _board_of(workspace)
    if given.partition(":")[0] == "memory":
        raise Invalid(
            "agents are processes of their own and cannot reach a board in memory",
            hint="leave board out, or name a file: board='sqlite:board.db'",
        )
    try:
        return TaskBoard.open(given, worker=who, stale_timeout=stale)
    except NoBoard:
        return TaskBoard.open(given, create=True, worker=who, stale_timeout=stale)


def _board_of(workspace: str) -> str:
    from dibs.address import default_path, find
    from dibs.dialects.discover import discover

    path = find(workspace)
    found = None if path else discover(workspace)
    return f"{found[0]}:{found[1]}" if found else f"sqlite:{path or default_path(workspace)}"
