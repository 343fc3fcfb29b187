"""What the team demo shows while it runs: the views of `dibs team`, and the accident.

    watch = Watch(ctx, workers)
    watch.event(event) …; await watch.show(pool)
    watch.end()                                         the terminal as it was, everything written

Under --json the lines go to stderr.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from dibs.cli.render import number
from dibs.cli.team.lines import Lines
from dibs.cli.team.output import Output
from dibs.cli.team.scene import Watcher
from dibs.cli.team.screen import Screen
from dibs.pool.results import PoolEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.context import Context
    from dibs.model import BoardTask
    from dibs.pool.pool import AgentPool

TICK = 0.2
BEGINNING = "the agents and their MCP servers are starting, which takes some seconds"
PROMISE = "on the way, a worker will be killed with SIGKILL"


class Watch:
    def __init__(self, ctx: Context, workers: int) -> None:
        self._watcher = Watcher(f"dibs demo: a lead and {number(workers, 'worker')} write a small shop")
        self._lost: str | None = None
        """The killed worker's task, until somebody has taken it."""
        self._out = Output(sys.stderr if ctx.json else sys.stdout)
        self._view: Screen | Lines
        if not ctx.json and sys.stdout and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._view = Screen(self._out, self._watcher, ctx.color, sys.stdout.fileno())
        else:
            self._view = Lines(ctx, self._out, self._watcher)

    async def show(self, pool: AgentPool) -> None:
        """Until it is cancelled. The pool is stopped if nobody is left who reads."""
        self._watcher.pool = pool
        self._watcher.remark = BEGINNING
        while True:
            self._view.tick()
            await asyncio.sleep(TICK)
            if self._out.failure is not None or self._out.reader_has_gone():
                pool.stop()
                return

    def end(self) -> None:
        self._watcher.pool = None
        self._view.end()
        if isinstance(self._view, Lines):
            self._out.put("\n")
        self._out.close()

    def remark(self, text: str) -> None:
        self._view.remark(text)

    def pause(self) -> None:
        """Leave the terminal to somebody else for a while."""
        self._view.pause()

    def event(self, event: PoolEvent) -> None:
        self._view.event(event)
        if self._watcher.remark == BEGINNING and event.data.get("action") == "claimed_activity":
            self._watcher.remark = PROMISE
        what = (event.data.get("action"), event.data.get("task_id"))
        if self._lost is not None and what == ("claimed_activity", self._lost):
            self._watcher.remark += f"; {event.agent} took its task"
            self._lost = None

    def kill(self, name: str, task: BoardTask, files: list[str]) -> None:
        text = f"IS KILLED with SIGKILL while it writes {' '.join(files)} for {task.id}"
        self._view.event(PoolEvent("kill", name, time.time(), text))
        self._watcher.remark = f"{name} was killed while it wrote {' '.join(files)}"
        self._lost = task.id
