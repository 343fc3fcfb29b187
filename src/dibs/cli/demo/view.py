"""What the demo shows while it runs: on a terminal one screen that changes in place, elsewhere a line for each event.

Plain ANSI, the terminal's own colours, nothing wider than 80 columns; ASCII where the terminal can't do more.
"""

from __future__ import annotations

import os
import sys

from dibs.cli.render import BOLD, DIM, GREEN, RED, cut, pad, paint
from dibs.model import COMPLETED, IN_PROGRESS, PENDING
from dibs.rules.paths import overlaps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from dibs.cli.context import Context
    from dibs.model import BoardTask
    from dibs.replay import State

WIDEST = 80
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Scene:
    """The state of the show, at one moment. The tasks and locks come from replaying the changelog as it grows."""

    def __init__(self, state: State, workers: Sequence[str], started: float, title: str, promise: str) -> None:
        self.state = state
        self.title = title
        self.promise = promise
        """What is shown until something worth telling happens."""
        self.workers = workers
        self.started = started
        self.now = started
        self.killed: dict[str, str] = {}
        """Worker to the task that it was killed at."""
        self.gone: set[str] = set()
        """Workers that have found nothing left to do."""
        self.happened: list[tuple[float, str]] = []
        """What is worth telling, with its second."""

    @property
    def tasks(self) -> list[BoardTask]:
        return list(self.state.tasks.values())

    @property
    def done(self) -> int:
        return sum(task.status is COMPLETED for task in self.tasks)

    def at_work(self, worker: str) -> BoardTask | None:
        for task in self.tasks:
            if task.status is IN_PROGRESS and task.assigned_to == worker:
                return task
        return None

    def waiting(self) -> tuple[int, int, int]:
        """Of the tasks that nobody has: (could be claimed now, wait for other tasks, wait for a file)."""
        ready = tasks = files = 0
        held = [lock.pattern for lock in self.state.locks.values()]
        for task in self.tasks:
            if task.status is not PENDING:
                continue
            if any(self.state.tasks[need].status is not COMPLETED for need in task.depends_on):
                tasks += 1
            elif any(overlaps(mine, theirs) for mine in task.paths for theirs in held):
                files += 1
            else:
                ready += 1
        return ready, tasks, files

    def tell(self, moment: float, text: str) -> None:
        self.happened.append((max(0.0, moment - self.started), text))


LATE = 0.3
"""Seconds after which nothing that happened is still unknown to us."""


class Lines:
    """For pipes and logs: a line when a task is done or something worth telling happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._done: set[str] = set()
        self._told = -1
        self._news: list[tuple[float, str]] = []
        """What is not printed yet: something older may still turn up."""

    def show(self, scene: Scene) -> None:
        if self._told < 0:
            self._told = 0
            self._print(0.0, f"{scene.title}, {len(scene.tasks)} tasks")
        self._news += scene.happened[self._told :]
        self._told = len(scene.happened)
        done = [task for task in scene.tasks if task.status is COMPLETED and task.id not in self._done]
        for task in sorted(done, key=lambda task: task.completed_at or 0):
            self._done.add(task.id)
            second = max(0.0, (task.completed_at or scene.now) - scene.started)
            self._news.append(
                (second, f"{len(self._done):2}/{len(scene.tasks)}  {task.assigned_to}  {task.description}")
            )
        self._tell(scene.now - scene.started - LATE)

    def _tell(self, until: float) -> None:
        self._news.sort(key=lambda told: told[0])
        while self._news and self._news[0][0] <= until:
            self._print(*self._news.pop(0))

    def _print(self, second: float, text: str) -> None:
        self._stream.write(f"{second:5.1f} s  {cut(text, WIDEST - 9)}\n")
        self._stream.flush()

    def end(self) -> None:
        self._tell(float("inf"))
        self._stream.write("\n")


class Screen:
    """For terminals: the whole scene, drawn over the one before."""

    def __init__(self, ctx: Context, stream: TextIO) -> None:
        self._ctx = ctx
        self._stream = stream
        self._height = 0
        fancy = "utf" in (getattr(stream, "encoding", "") or "").lower()
        self._full, self._half, self._empty = ("█", "▒", "░") if fancy else ("#", "+", ".")

    def show(self, scene: Scene) -> None:
        width = min(WIDEST, self._ctx.width) - 1  # the last column would make some terminals wrap
        try:
            rows = os.get_terminal_size(self._stream.fileno()).lines
        except OSError:
            rows = 24
        self._draw(self._frame(scene, width, max(10, rows)))

    def _draw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._height}A" if self._height else _HIDE_CURSOR
        rest = "\x1b[J" if self._height > len(lines) else ""
        self._stream.write(up + "".join(f"\r{line}\x1b[K\n" for line in lines) + rest)
        self._stream.flush()
        self._height = len(lines)

    def end(self) -> None:
        """Take the screen away again, so that the summary stands in its place."""
        up = f"\x1b[{self._height}A" if self._height else ""
        self._stream.write(f"{up}\r\x1b[J{_SHOW_CURSOR}")
        self._stream.flush()
        self._height = 0

    def _frame(self, scene: Scene, width: int, rows: int) -> list[str]:
        color = self._ctx.color
        title = f"dibs demo: {scene.title}"
        clock = f"{scene.now - scene.started:.1f} s"
        lines = [paint(pad(cut(title, width - 8), width - len(clock)), BOLD, color) + paint(clock, DIM, color), ""]
        lines += self._progress(scene, width)
        lines.append("")
        told = scene.happened[-3:]
        room = max(2, rows - len(lines) - 6)
        for worker in scene.workers[:room]:
            lines.append(self._worker(scene, worker, width))
        if len(scene.workers) > room:
            lines.append(paint(f"and {len(scene.workers) - room} more", DIM, color))
        lines.append("")
        for second, text in told:
            lines.append(paint(f"{second:5.1f} s  ", DIM, color) + cut(text, width - 9))
        if not told:
            lines.append(paint(cut(scene.promise, width), DIM, color))
        return lines

    def _progress(self, scene: Scene, width: int) -> list[str]:
        color = self._ctx.color
        total, done = len(scene.tasks), scene.done
        working = sum(task.status is IN_PROGRESS for task in scene.tasks)
        text = f"  {done:{len(str(total))}} of {total} done"
        size = max(10, width - len(text) - 2)
        full = size * done // total
        half = size * (done + working) // total - full
        bar = paint(self._full * full, GREEN, color) + self._half * half
        bar += paint(self._empty * (size - full - half), DIM, color)
        ready, tasks, files = scene.waiting()
        parts = [
            f"{working} in work",
            f"{ready} ready",
            f"{tasks} waiting for other tasks",
            f"{files} waiting for a file",
        ]
        return [bar + text, cut("   ".join(parts), width)]

    def _worker(self, scene: Scene, worker: str, width: int) -> str:
        color = self._ctx.color
        name = pad(cut(worker, 10), 12)
        if worker in scene.killed:
            text = f"killed (SIGKILL) while at work on {scene.killed[worker]}"
            return name + paint(cut(text, width - 12), RED, color)
        task = scene.at_work(worker)
        if task is None:
            text = "nothing left to do" if worker in scene.gone else "looking for work"
            return name + paint(cut(text, width - 12), DIM, color)
        since = f"{max(0.0, scene.now - (task.claimed_at or scene.now)):.1f} s"
        room = width - 12 - 7
        what = pad(cut(task.description, room * 3 // 5), room * 3 // 5 + 1)
        files = pad(cut(" ".join(task.paths), room - len(what)), room - len(what))
        return name + what + paint(files + since.rjust(7), DIM, color)


def choose(ctx: Context) -> Screen | Lines:
    if ctx.json:
        return Lines(sys.stderr)
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Screen(ctx, sys.stdout)
    return Lines(sys.stdout)
