"""What a terminal shows after some output, for pictures of it.

    screen = Screen(80, 24)
    screen.feed(output)         # as often as one likes
    screen.lines, screen.text

It understands the few sequences that dibs uses (colours, moving the cursor, clearing, the alternate screen) and refuses
any other with a ValueError, so that no picture is wrong.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import east_asian_width


class Style(NamedTuple):
    color: str = ""
    bold: bool = False
    dim: bool = False


PLAIN = Style()
COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b(.)|([\x00-\x1a\x1c-\x1f])|([^\x00-\x1f]+)", re.DOTALL)


class Screen:
    """What a terminal shows after some output, with everything that has scrolled away above it.

    While a program uses the alternate screen, as pagers do, that is what it shows, and nothing scrolls there.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.lines: list[list[tuple[str, Style]]] = [[]]
        self.row = self.column = 0
        self.style = PLAIN
        self._main: tuple[list[list[tuple[str, Style]]], int, int] | None = None
        """Lines and cursor of the main screen, while the alternate one is shown."""

    @property
    def text(self) -> str:
        return "\n".join("".join(character for character, _ in line).rstrip() for line in self.lines)

    def feed(self, output: str) -> None:
        at = 0
        for found in _SEQUENCE.finditer(output):
            if found.start() != at:
                raise ValueError(f"cannot read the terminal output at {output[at : at + 20]!r}")
            at = found.end()
            numbers, letter, other, control, text = found.groups()
            if text:
                for character in text:
                    self._put(character)
            elif control:
                self._control(control)
            elif letter:
                self._sequence(numbers, letter)
            else:
                raise ValueError(f"unknown terminal sequence: escape {other!r}")
        if at != len(output):
            raise ValueError(f"cannot read the terminal output at {output[at : at + 20]!r}")

    def _put(self, character: str) -> None:
        wide = 2 if east_asian_width(character) in "WF" else 1
        if self.column + wide > self.columns:
            self._control("\r")
            self._control("\n")
        line = self.lines[self.row]
        line.extend([(" ", PLAIN)] * (self.column + wide - len(line)))
        line[self.column] = (character, self.style)
        if wide == 2:
            line[self.column + 1] = ("", self.style)
        self.column += wide

    def _control(self, character: str) -> None:
        if character == "\n":
            if self._main is not None and self.row == self.rows - 1:
                raise ValueError("the alternate screen scrolls, which takes its first line away")
            self._go(self.row + 1)
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character != "\a":
            raise ValueError(f"unknown control character {character!r}")

    def _go(self, row: int) -> None:
        self.row = row
        self.lines.extend([] for _ in range(row + 1 - len(self.lines)))

    def _sequence(self, numbers: str, letter: str) -> None:
        if numbers.startswith("?"):
            self._switch(numbers + letter)
            return
        values = [int(n or 0) for n in numbers.split(";")] if numbers else []
        count = max(1, values[0]) if values else 1
        if letter == "m":
            self._paint(values or [0])
        elif letter == "A":
            self.row = max(0, len(self.lines) - self.rows, self.row - count)
        elif letter == "B":
            self.row = min(len(self.lines) - 1, self.row + count)
        elif letter == "C":
            self.column = min(self.columns - 1, self.column + count)
        elif letter == "D":
            self.column = max(0, self.column - count)
        elif letter == "E":
            self.row, self.column = min(len(self.lines) - 1, self.row + count), 0
        elif letter == "F":
            self.row, self.column = max(0, self.row - count), 0
        elif letter == "G":
            self.column = min(self.columns, count) - 1
        elif letter == "H" and self._main is not None and len(values) in (0, 2):
            row, column = values or (1, 1)
            self._go(min(self.rows, max(1, row)) - 1)
            self.column = min(self.columns, max(1, column)) - 1
        elif letter == "K" and values in ([], [0]):
            del self.lines[self.row][self.column :]
        elif letter == "K" and values == [2]:
            self.lines[self.row].clear()
        elif letter == "J" and values in ([], [0]):
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        elif letter == "J" and values == [2] and self._main is not None:
            self.lines = [[] for _ in range(self.row + 1)]
        else:
            raise ValueError(f"unknown terminal sequence {numbers}{letter}")

    def _switch(self, mode: str) -> None:
        if mode == "?1049h" and self._main is None:
            self._main = (self.lines, self.row, self.column)
            self.lines, self.row, self.column = [[]], 0, 0
        elif mode == "?1049l" and self._main is not None:
            self.lines, self.row, self.column = self._main
            self._main = None
        elif mode not in ("?25h", "?25l"):  # the cursor, shown or hidden: it is not drawn
            raise ValueError(f"unknown terminal sequence {mode}")

    def _paint(self, values: list[int]) -> None:
        for value in values:
            if value == 0:
                self.style = PLAIN
            elif value == 1:
                self.style = self.style._replace(bold=True)
            elif value == 2:
                self.style = self.style._replace(dim=True)
            elif value == 22:
                self.style = self.style._replace(bold=False, dim=False)
            elif 30 <= value <= 37 or 90 <= value <= 97:
                self.style = self.style._replace(color=COLORS[value % 10])
            elif value == 39:
                self.style = self.style._replace(color="")
            else:
                raise ValueError(f"unknown colour {value}")
