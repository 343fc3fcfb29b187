"""What an agent and a whole run came to, and what happened on the way."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    OnEvent = Callable[["PoolEvent"], Any]
    """Called in the pool's event loop; what it raises is logged and does not hurt the run. May be async."""

COMPLETED, ERROR, TIMEOUT, STOPPED = "completed", "error", "timeout", "stopped"

DONE = "done"
"""Every task of the board is closed, and the lead has ended."""
STUCK = "stuck"
"""Tasks are left that none of these agents can take, and nobody works on what they wait for."""
GAVE_UP = "gave up"
"""There is work, and every agent has failed more often than it may."""


class AgentResult:
    """What became of one agent, over all its runs."""

    __slots__ = (
        "agent",
        "role",
        "status",
        "output",
        "error",
        "duration",
        "tasks",
        "unfinished",
        "runs",
        "exit_code",
        "output_file",
        "worktree",
        "branch",
    )

    def __init__(
        self,
        agent: str,
        role: str,
        status: str,
        *,
        output: str = "",
        error: str | None = None,
        duration: float = 0.0,
        tasks: Iterable[str] = (),
        unfinished: Iterable[str] = (),
        runs: int = 0,
        exit_code: int | None = None,
        output_file: str | None = None,
        worktree: str | None = None,
        branch: str | None = None,
    ) -> None:
        self.agent = agent
        self.role = role
        """`lead`, `worker`, or (mode parallel) `agent`."""
        self.status = status
        """How its last run ended: completed, error, timeout; stopped, if somebody stopped the team meanwhile."""
        self.output = output
        """The end of what its last run printed; all of it is in `output_file`."""
        self.error = error
        self.duration = duration
        """Seconds that its process lived, over all runs."""
        self.tasks = list(tasks)
        """The tasks that it completed, or handed in for review, in order."""
        self.unfinished = list(unfinished)
        """Tasks that it claimed and did not complete: given back, failed, perhaps done by somebody else since."""
        self.runs = runs
        self.exit_code = exit_code
        self.output_file = output_file
        self.worktree = worktree
        self.branch = branch

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return f"<AgentResult {self.agent} {self.status}, {len(self.tasks)} done, {self.duration:.1f} s>"


class Results(list[AgentResult]):
    """The results of a run, the lead's first; how it ended (`ending`: done, stuck, gave up), in words: `why`."""

    def __init__(self, results: Iterable[AgentResult], ending: str, why: str, seconds: float) -> None:
        super().__init__(results)
        self.ending = ending
        self.why = why
        self.seconds = seconds


class PoolEvent:
    """Something that happened in a run.

    kind             agent  data
    run_started      -      board, folder, agents (names), mode
    agent_started    yes    pid, run, output_file, worktree, branch
    agent_ended      yes    run, status, exit_code, error, seconds
    agent_released   yes    tasks (ids), locks (patterns): given back because their holder has ended
    agent_restarts   yes    run, after (seconds), why
    agent_gave_up    yes    why
    output           yes    text: a line that it printed (only if the pool was asked to `tail`)
    board            maybe  seq, action, task_id, worker, details: an event of the board's changelog, by whoever;
                            of a message also `to` (None: everybody), of a claim and a new task `description`
    waiting          -      (nothing): the team can do nothing until workers outside of it have finished
    board_away       -      (nothing): the board cannot be reached, and the run goes on as far as it can
    run_ended        -      ending, why, seconds
    """

    __slots__ = ("kind", "agent", "time", "text", "data")

    def __init__(self, kind: str, agent: str | None, time: float, text: str, **data: Any) -> None:
        self.kind = kind
        self.agent = agent
        self.time = time
        """Seconds since the epoch, on the pool's clock."""
        self.text = text
        """One line for people."""
        self.data = data

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "agent": self.agent, "time": self.time, "text": self.text, **self.data}

    def __repr__(self) -> str:
        return f"<PoolEvent {self.kind} {self.agent or ''} {self.text!r}>"
