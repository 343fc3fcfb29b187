"""Makes the pictures of this folder: runs dibs in a terminal of 80 columns and draws what is on it in the end.

    python docs/pictures/make.py            all of them
    python docs/pictures/make.py demo       one

Needs nothing but dibs and the standard library, and a system with pseudo-terminals. It understands the few terminal
sequences that dibs uses (colours, moving the cursor, clearing) and refuses any other, so that no picture is wrong.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from html import escape
from pathlib import Path
from typing import NamedTuple
from unicodedata import east_asian_width

from dibs import TaskBoard, Worker
from dibs.clock import Clock

HERE = Path(__file__).parent
COLUMNS, ROWS = 80, 50


# -- the terminal


class Style(NamedTuple):
    color: str = ""
    bold: bool = False
    dim: bool = False


PLAIN = Style()
COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b(.)|([\x00-\x1a\x1c-\x1f])|([^\x00-\x1f]+)", re.DOTALL)


class Screen:
    """What a terminal shows after some output, with everything that has scrolled away above it."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines: list[list[tuple[str, Style]]] = [[]]
        self.row = self.column = 0
        self.style = PLAIN

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
            self.row += 1
            while len(self.lines) <= self.row:
                self.lines.append([])
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character != "\a":
            raise ValueError(f"unknown control character {character!r}")

    def _sequence(self, numbers: str, letter: str) -> None:
        if numbers.startswith("?"):
            if letter not in "hl":
                raise ValueError(f"unknown terminal sequence {numbers}{letter}")
            return  # the cursor is shown or hidden
        values = [int(n or 0) for n in numbers.split(";")] if numbers else []
        count = max(1, values[0]) if values else 1
        if letter == "m":
            self._paint(values or [0])
        elif letter == "A":
            self.row = max(0, len(self.lines) - ROWS, self.row - count)
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
        elif letter == "K" and values in ([], [0]):
            del self.lines[self.row][self.column :]
        elif letter == "K" and values == [2]:
            self.lines[self.row].clear()
        elif letter == "J" and values in ([], [0]):
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        else:
            raise ValueError(f"unknown terminal sequence {numbers}{letter}")

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


def typed(command: str) -> str:
    """A command as it stands after the prompt."""
    return f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n"


def run(words: list[str], folder: Path, environ: dict[str, str]) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        ["dibs", *words],
        cwd=folder,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not piece:
            break
        output += piece
    os.close(ours)
    if process.wait():
        sys.exit(f"dibs {' '.join(words)} ended with {process.returncode}:\n{output.decode()}")
    return output.decode()


# -- the drawing

SIZE, WIDE, HIGH = 14, 8.4, 20
MARGIN, BAR = 18, 34
BACKGROUND, FRAME, TEXT, DIM = "#161b22", "#3d444d", "#d5dbe3", "#8b949e"
PAINT = {
    "black": "#6e7681",
    "red": "#ff7b72",
    "green": "#7ee787",
    "yellow": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#f0f6fc",
}
FONT = "ui-monospace, 'SF Mono', SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def svg(screen: Screen, title: str) -> str:
    """The screen in a window of its own, which looks the same on a light and on a dark page."""
    lines = screen.lines
    while lines and not any(character.strip() for character, _ in lines[-1]):
        lines = lines[:-1]
    width = round(screen.columns * WIDE + 2 * MARGIN)
    height = BAR + len(lines) * HIGH + MARGIN
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="9" '
        f'fill="{BACKGROUND}" stroke="{FRAME}"/>',
    ]
    for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        drawn.append(f'<circle cx="{MARGIN + 4 + 20 * number}" cy="18" r="5.5" fill="{color}"/>')
    drawn.append(f'<g font-family="{FONT}" font-size="{SIZE}" fill="{TEXT}" xml:space="preserve">')
    for row, line in enumerate(lines):
        y = BAR + row * HIGH + SIZE
        drawn += [_text(start, y, text, style) for start, text, style in _runs(line)]
    return "\n".join([*drawn, "</g>", "</svg>", ""])


def _runs(line: list[tuple[str, Style]]) -> list[tuple[int, str, Style]]:
    """(column, text, style) of the pieces of a line that are drawn in one go: of one style, without two blanks."""
    runs: list[tuple[int, str, Style]] = []
    text = ""
    for column, (character, style) in enumerate([*line, (" ", PLAIN), (" ", PLAIN)]):
        if text and (style != runs[-1][2] or (character == " " and text.endswith(" "))):
            runs[-1] = (runs[-1][0], text.rstrip(), runs[-1][2])
            text = ""
        if not text and character.strip():
            runs.append((column, "", style))
        if text or character.strip():
            text += character
    return runs


def _text(column: int, y: int, text: str, style: Style) -> str:
    color = PAINT.get(style.color, DIM if style.dim else "")
    paint = (f' fill="{color}"' if color else "") + (' font-weight="bold"' if style.bold else "")
    # The length is given, so that columns stand under each other whatever the font is.
    cells = sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
    length = f' textLength="{cells * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"' if cells > 1 else ""
    return f'<text x="{MARGIN + column * WIDE:.1f}" y="{y}"{length}{paint}>{escape(text, quote=False)}</text>'


# -- the pictures


def demo(folder: Path, environ: dict[str, str]) -> Screen:
    screen = Screen(COLUMNS)
    screen.feed(typed("dibs demo"))
    screen.feed(run(["demo", "--seed", "7"], folder, environ))
    return screen


class Past(Clock):
    """A clock that stands some minutes before now."""

    minutes = 0.0

    def wall(self) -> float:
        return time.time() - 60 * self.minutes

    def boot(self) -> str:
        return ""


def list_(folder: Path, environ: dict[str, str]) -> Screen:
    clock = Past()
    alice = Worker("alice", "human")
    with TaskBoard.open(str(folder / ".dibs" / "board.db"), create=True, clock=clock, worker=alice) as board:
        clock.minutes = 95
        board.add_many(
            [
                {"id": "schema", "description": "Set up the schema", "priority": 5},
                {
                    "id": "login",
                    "description": "Write the login endpoint",
                    "priority": 4,
                    "depends_on": ["schema"],
                    "paths": ["src/login/**", "migrations/0007_sessions.sql"],
                    "steps": ["the handler", "limit the rate by address", "tests"],
                    "labels": ["auth"],
                },
                {"id": "form", "description": "Write the login form", "priority": 3, "paths": ["web/login.html"]},
                {"id": "licence", "description": "Choose a licence", "priority": 1, "review": True},
                {"id": "readme", "description": "Explain the set-up in the README"},
                {"id": "cache", "description": "Cache sessions in the API server", "paths": ["src/session.py"]},
                {"id": "reader", "description": "Try the form with a screen reader", "reserved": "human"},
                {"id": "e2e", "description": "Test login end to end", "priority": 2, "depends_on": ["login", "form"]},
                {"id": "deploy", "description": "Deploy to staging", "priority": 2, "depends_on": ["e2e"]},
                {"id": "mail", "description": "Send the welcome mail"},
            ]
        )
        claude, codex = Worker("claude-1", session="one"), Worker("codex-2", session="two")
        clock.minutes = 80
        board.claim(claude, "schema")
        clock.minutes = 66
        board.complete("schema", "three tables, one migration", worker=claude)
        board.claim(codex, "licence")
        clock.minutes = 61
        board.complete("licence", "MIT", worker=codex)
        board.block("mail", "waits for the SMTP password", worker=alice)
        clock.minutes = 24
        board.claim(claude, "login")
        clock.minutes = 9
        board.claim(codex, "form")
        board.step("login", "done", "POST /login", worker=claude)
        board.step("login", "start", worker=claude)
    screen = Screen(COLUMNS)
    for words in (["list"], ["show", "login"], ["show", "e2e"]):
        screen.feed(typed(f"dibs {' '.join(words)}"))
        screen.feed(run(words, folder, environ) + "\r\n")
    return screen


PICTURES = {
    "demo": (demo, "dibs demo: worker processes drain a board, one of them is killed, nothing is lost"),
    "list": (list_, "dibs list and dibs show on a small board"),
}


def main() -> None:
    strange = ("DIBS_", "CLAUDE", "CODEX", "GEMINI", "COLUMNS", "NO_COLOR")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(strange)}
    environ |= {"TERM": "xterm-256color", "LOGNAME": "alice", "LC_ALL": "C.UTF-8"}
    for name in sys.argv[1:] or PICTURES:
        make, title = PICTURES[name]
        with tempfile.TemporaryDirectory() as made:
            command = Path(made) / "bin" / "dibs"
            command.parent.mkdir()
            command.write_text(f"#!{sys.executable}\nimport sys\nfrom dibs.cli import main\n\nsys.exit(main())\n")
            command.chmod(0o755)
            folder = Path(made) / "shop"
            folder.mkdir()
            picture = svg(make(folder, environ | {"PATH": f"{command.parent}:{environ['PATH']}"}), title)
        (HERE / f"{name}.svg").write_text(picture)
        print(f"made {name}.svg")


if __name__ == "__main__":
    main()
