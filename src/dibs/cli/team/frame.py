"""A scene as lines for a terminal of a given size. No input and output: `screen` shows them.

What there is no room for is left out in this order: blank lines, older events and messages, locks, agents that have
nothing to do. No line is ever wider than asked for, whatever the texts hold.
"""

from __future__ import annotations

from dibs.cli.render import BOLD, DIM, GREEN, RED, YELLOW, cells, cut, one_line, pad, paint
from dibs.cli.team.scene import ENDED, FAILS, RESTARTS, RUNNING, TIMED_OUT, WAITING, WORKING
from dibs.times import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.team.scene import Row, Scene

NARROW = 60
"""Columns below which an agent's state and the number of its tasks are left out."""
SPAN = 32
"""Columns below which it is not said for how long an agent has done what it does."""
NAME = 16
STATE = 9
_RANKS = (WORKING, FAILS, TIMED_OUT, RESTARTS, RUNNING, WAITING, ENDED)
"""Whom to show if there is not room for all."""
_COLORS = {WORKING: GREEN, FAILS: RED, TIMED_OUT: RED, RESTARTS: YELLOW, WAITING: DIM, ENDED: DIM}


class Frame:
    def __init__(self, width: int, height: int, *, color: bool, encoding: str) -> None:
        self.width = max(16, width)
        self.height = max(4, height)
        self._color = color
        self._encoding = encoding
        self._fancy = "utf" in encoding
        self._full, self._half, self._empty = ("█", "▒", "░") if self._fancy else ("#", "+", ".")

    def lines(self, scene: Scene) -> list[str]:
        lines = [self._title(scene), self._bar(scene), self._tally(scene)]
        gap = 1 if self.height >= 18 else 0
        below = self._below(scene)
        least = min(len(below), max(1, self.height // 4)) + (2 * gap)
        last = 1 + gap if scene.remark else 0
        room = max(1, self.height - len(lines) - least - last)
        lines += [""] * gap + self._agents(scene, room - gap)
        free = self.height - len(lines) - last - gap
        if free > 0 and below:
            lines += [""] * gap + self._chosen(scene, free)
        if scene.remark:
            lines += [""] * gap
            lines.append(paint(self._fit(scene.remark, self.width), BOLD, self._color))
        return lines[: self.height]

    # -- texts

    def _clean(self, text: str) -> str:
        """A text of somebody's on one line, without anything that a terminal would obey or this one can't show."""
        text = one_line(text[:2000])
        return text if self._fancy else text.encode(self._encoding, "replace").decode(self._encoding)

    def _cut(self, text: str, width: int) -> str:
        if width <= 0:
            return ""
        short = cut(text, width)
        return short if self._fancy else short.replace("…", ".")

    def _fit(self, text: str, width: int) -> str:
        return self._cut(self._clean(text), width)

    def _dim(self, text: str) -> str:
        return paint(text, DIM, self._color)

    # -- parts

    def _title(self, scene: Scene) -> str:
        clock = span(scene.seconds)
        room = self.width - len(clock) - 1
        title = pad(self._fit(scene.title, room), room + 1)
        return paint(title, BOLD, self._color) + self._dim(clock)

    def _bar(self, scene: Scene) -> str:
        if not scene.wanted:
            return self._dim(self._fit("no tasks yet", self.width))
        text = f"  {scene.done:,} of {scene.wanted:,} done"
        size = max(4, self.width - len(text))
        full = min(size, size * scene.done // scene.wanted)
        half = min(size - full, -(-size * scene.tasks("in_progress") // scene.wanted))
        bar = paint(self._full * full, GREEN, self._color) + self._half * half
        return bar + self._dim(self._empty * (size - full - half)) + self._cut(text, self.width - size)

    def _tally(self, scene: Scene) -> str:
        line, used = "", 0
        for text, bad in scene.tally():
            gap = 3 if used else 0
            if used + gap + len(text) > self.width:
                break
            line += " " * gap + (paint(text, RED, self._color) if bad else text)
            used += gap + len(text)
        return line

    def _agents(self, scene: Scene, room: int) -> list[str]:
        rows = scene.rows
        wide = self.width >= NARROW
        header = wide and room > len(rows)
        rest: list[Row] = []
        if len(rows) > room:
            order = {state: rank for rank, state in enumerate(_RANKS)}
            ranks = [-1 if row.leads else order.get(row.state, 9) for row in rows]
            first = sorted(range(len(rows)), key=lambda at: (ranks[at], at))[: max(0, room - 1)]
            rest = [row for at, row in enumerate(rows) if at not in first]
            rows = [rows[at] for at in sorted(first)]
        name = min(NAME, self.width // 2, max((cells(self._named(row)) for row in rows), default=0))
        name = max(len("AGENT"), name)
        lines = [self._header(name)] if header and rows else []
        lines += [self._row(row, name, wide) for row in rows]
        if rest:
            states = [row.state for row in rest]
            parts = [f"{states.count(state)} {state}" for state in _RANKS if state in states]
            lines.append(self._dim(self._fit(f"and {len(rest)} more: {', '.join(parts)}", self.width)))
        return lines

    def _named(self, row: Row) -> str:
        run = f" #{row.run}" if row.run > 1 else ""
        return self._fit(row.name, NAME - len(run)) + run

    def _header(self, name: int) -> str:
        room = self.width - name - STATE - 4 - 16
        words = f"{pad('AGENT', name)}  {pad('STATE', STATE)}  {pad('TASK', room)}{'FOR':>9}{'DONE':>7}"
        return self._dim(words)

    def _row(self, row: Row, name: int, wide: bool) -> str:
        color = _COLORS.get(row.state, "")
        since = span(row.seconds) if row.state not in (ENDED, WAITING) else ""
        line = pad(self._cut(self._named(row), name), name) + "  "
        if not wide:
            since = since.rjust(8) if self.width >= SPAN else ""
            room = max(0, self.width - name - 2 - len(since))
            alone = row.state in (WORKING, RUNNING)  # says itself what it does
            text = row.text if alone else f"{row.state}: {row.text}" if row.text else row.state
            said = pad(self._fit(text, room), room)
            said = said if row.state == WORKING else paint(said, color or DIM, self._color)
            return line + said + self._dim(since)
        room = self.width - name - STATE - 4 - 16
        text = pad(self._fit(row.text, room), room)
        line += paint(pad(row.state, STATE), color, self._color) + "  "
        line += text if row.state == WORKING else paint(text, RED if color == RED else DIM, self._color)
        return line + self._dim(f"{since:>9}{row.done or '':>7}")

    # -- what happens

    def _below(self, scene: Scene) -> list[str]:
        """Everything that could stand below the agents."""
        return self._locks(scene) + self._messages(scene, 3) + self._output(scene, 8) + self._events(scene, 12)

    def _chosen(self, scene: Scene, room: int) -> list[str]:
        """What does stand there: something of each kind, and then as many events as there is room for."""
        locks = self._locks(scene) if room >= 3 else []
        left = room - len(locks)
        messages = self._messages(scene, min(3, left // 3))
        left -= len(messages)
        gap = [""] if left >= 8 and (locks or messages) else []
        left -= len(gap)
        output = self._output(scene, (left + 1) // 2)
        events = self._events(scene, min(12, left - len(output)))
        return locks + messages + gap + output + events

    def _locks(self, scene: Scene) -> list[str]:
        if not scene.locks:
            return []
        count = f"{len(scene.locks):,} {'lock' if len(scene.locks) == 1 else 'locks'}: "
        held = ", ".join(f"{self._clean(pattern)} ({self._clean(who)})" for pattern, who in scene.locks[:20])
        return [self._dim(count) + self._cut(held, self.width - len(count))]

    def _messages(self, scene: Scene, most: int) -> list[str]:
        lines = []
        for sender, to, text in scene.messages[-most:] if most > 0 else []:
            head = self._cut(f"{self._clean(sender)} to {self._clean(to or 'all')}: ", self.width // 2)
            lines.append(self._dim(head) + self._fit(text, self.width - cells(head)))
        return lines

    def _output(self, scene: Scene, most: int) -> list[str]:
        lines = []
        for who, text in scene.output[-most:] if most > 0 else []:
            head = self._cut(f"{self._clean(who)} | ", self.width // 2)
            lines.append(self._dim(head) + self._fit(text, self.width - cells(head)))
        return lines

    def _events(self, scene: Scene, most: int) -> list[str]:
        shown: Sequence[tuple[float, str, str, bool]] = scene.events[-most:] if most > 0 else []
        moments = [span(second) for second, _, _, _ in shown]
        names = [self._fit(who, NAME if self.width >= NARROW else 10) for _, who, _, _ in shown]
        first, second = max(map(len, moments), default=0), max(map(cells, names), default=0)
        lines = []
        for moment, name, (_, _, text, bad) in zip(moments, names, shown, strict=True):
            head = moment.rjust(first) + "  "
            said = self._cut(f"{pad(name, second)}  {self._clean(text)}", self.width - len(head))
            lines.append(self._dim(head) + (paint(said, RED, self._color) if bad else said))
        return lines
