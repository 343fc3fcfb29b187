"""The view for terminals: one live table, drawn in place.

    screen = Screen(out, watcher, color)
    screen.tick()       # four times a second; draws what has changed
    screen.pause(); screen.tick()       # around a stop of the process (Ctrl-Z)
    screen.end()        # the terminal as it was

It uses the terminal's alternate screen, as pagers do: a change of size, or a key that is pressed, cannot leave parts of
an old table behind, and what stood on the terminal before is there again afterwards. Only lines that differ are
written. A process that is killed with SIGKILL leaves the table standing; the command `reset` takes it away.
"""

from __future__ import annotations

import os
import time

from dibs.cli.team.frame import Frame
from dibs.cli.team.news import News

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.team.output import Output
    from dibs.cli.team.scene import Watcher
    from dibs.pool import PoolEvent

WIDEST = 120
ALL_EVERY = 2.0
"""Seconds after which every line is written again, over whatever a pressed key has left."""

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[H\x1b[J\x1b[?25h\x1b[?1049l"  # erased, for terminals that have no other screen


class Screen:
    gap = ""

    def __init__(self, out: Output, watcher: Watcher, color: bool, descriptor: int = 1) -> None:
        self._out = out
        self._watcher = watcher
        self._news = News(watcher)
        self._color = color
        self._descriptor = descriptor
        self._on = False
        self._size = (0, 0)
        self._shown: list[str] = []
        self._whole = 0.0

    def event(self, event: PoolEvent) -> None:
        if event.kind == "output":
            self._watcher.printed(event.agent or "", event.text)
            return
        for second, who, text, bad in self._news.of(event):
            self._watcher.tell(second, who, text, bad)

    def remark(self, text: str) -> None:
        self._watcher.remark = text
        self.tick()

    def tick(self) -> None:
        for second, who, text, bad in self._news.rest():
            self._watcher.tell(second, who, text, bad)
        if not self._is_in_front():
            self._on = False  # a shell has the terminal now; begin anew when we have it again
            return
        if not self._out.is_idle:
            return  # the terminal is slow, or stopped with Ctrl-S: the next frame will do
        self._draw()

    def pause(self) -> None:
        """Leave the terminal to somebody else. The next `tick` takes it again."""
        if self._on:
            self._on = False
            self._out.put(_LEAVE)
            self._out.drain(0.5)

    def end(self) -> None:
        self.pause()

    def _draw(self) -> None:
        size = self._terminal()
        text = ""
        if not self._on:
            self._on, self._size, text = True, (0, 0), _ENTER
        now = time.monotonic()
        width, height = size
        frame = Frame(min(WIDEST, width) - 1, height, color=self._color, encoding=self._out.encoding)
        lines = frame.lines(self._watcher.look())
        if size != self._size:
            self._size, self._shown = size, []
            text += "" if text else "\x1b[2J"
        if now - self._whole >= ALL_EVERY:
            self._whole, self._shown = now, []
        parts = []
        for at, line in enumerate(lines):
            if at >= len(self._shown) or self._shown[at] != line:
                parts.append(f"\x1b[{at + 1};1H{line}\x1b[K")
        if len(lines) < height and len(lines) != len(self._shown):
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._shown = lines
        if parts or text:
            # The cursor waits below: there a terminal shows the ^C that is pressed.
            self._out.put(f"{text}{''.join(parts)}\x1b[{height};1H")

    def _terminal(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _is_in_front(self) -> bool:
        """Is our job in the foreground? In the background (`bg`) nothing is drawn over the shell's lines."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except (OSError, AttributeError):
            return True  # not our controlling terminal: nobody else's job
