"""Makes the pictures of this folder: runs dibs in a terminal of 80 columns and draws what is on it.

    python docs/pictures/make.py            all of them
    python docs/pictures/make.py demo       those of `dibs demo`: while it runs (team.svg), what it leaves (demo.svg)
    python docs/pictures/make.py list       that of `dibs list`

Needs nothing but dibs and the standard library, and a system with pseudo-terminals. `terminal` knows what is on the
screen.
"""

from __future__ import annotations

import copy
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
from collections.abc import Iterator
from html import escape
from pathlib import Path
from unicodedata import east_asian_width

from terminal import PLAIN, Screen, Style

from dibs import TaskBoard, Worker
from dibs.clock import Clock

HERE = Path(__file__).parent
COLUMNS, ROWS = 80, 50
TABLE = 30
"""Rows of the terminal in which a live table is drawn: no more than a picture needs."""


# -- running


def typed(command: str) -> str:
    """A command as it stands after the prompt."""
    return f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n"


def run(words: list[str], folder: Path, environ: dict[str, str], rows: int = ROWS) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
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
SHADES = {"█": 1, "▒": 0.5, "░": 0.25}
"""What progress bars consist of, and how much of the colour is to be seen. Fonts draw these each in its own way."""
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
    """(column, text, style) of the pieces of a line that are drawn in one go: of one style, without two blanks.

    A piece is either all of one shade or without shades.
    """
    runs: list[tuple[int, str, Style]] = []
    text = ""
    for column, (character, style) in enumerate([*line, (" ", PLAIN), (" ", PLAIN)]):
        if text and (style != runs[-1][2] or (character == " " and text[-1] == " ") or _shades(character, text[-1])):
            runs[-1] = (runs[-1][0], text.rstrip(), runs[-1][2])
            text = ""
        if not text and character.strip():
            runs.append((column, "", style))
        if text or character.strip():
            text += character
    return runs


def _shades(character: str, last: str) -> bool:
    """Does a shade begin or end here?"""
    return character != last and (character in SHADES or last in SHADES)


def _text(column: int, y: int, text: str, style: Style) -> str:
    color = PAINT.get(style.color, DIM if style.dim else "")
    if text[0] in SHADES:
        place = (
            f'x="{MARGIN + column * WIDE:.1f}" y="{y - SIZE + 1}" width="{len(text) * WIDE:.1f}" height="{HIGH - 4}"'
        )
        return f'<rect {place} fill="{color or TEXT}" fill-opacity="{SHADES[text[0]]}"/>'
    paint = (f' fill="{color}"' if color else "") + (' font-weight="bold"' if style.bold else "")
    # The length is given, so that columns stand under each other whatever the font is.
    cells = sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
    length = f' textLength="{cells * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"' if cells > 1 else ""
    return f'<text x="{MARGIN + column * WIDE:.1f}" y="{y}"{length}{paint}>{escape(text, quote=False)}</text>'


# -- the pictures

Pictures = Iterator[tuple[str, str, Screen]]
"""Name, title and screen of some pictures."""


def demo(folder: Path, environ: dict[str, str]) -> Pictures:
    """Both pictures are of one run, and tell the same story."""
    # What the demo keeps is not kept here: its folder is in ours, and named as if it were where it usually is.
    output = run(["demo", "--seed", "7"], folder, environ | {"TMPDIR": str(folder)}, TABLE)
    output = output.replace(str(folder), "/tmp")
    screen = Screen(COLUMNS, TABLE)
    screen.feed(typed("dibs demo"))
    chosen, most = None, 0
    for piece in re.split(rf"(?<=\x1b\[{TABLE};1H)", output):  # where the cursor waits after each frame of the table
        screen.feed(piece)
        if (score := story(screen.text)) and score >= most:
            chosen, most = copy.deepcopy(screen), score
    if chosen is None:
        sys.exit("no moment of this run shows what the picture is about; make it again")
    yield "team", "dibs demo: a lead and four workers write a small shop; one of them has just been killed", chosen
    yield "demo", "dibs demo: what the team has done, and the proof that nothing was lost or done twice", screen


def story(table: str) -> int:
    """How well a table shows that one was killed, another one has its task, and the others work on; 0: not at all."""
    if not all(part in table for part in ("killed by SIGKILL", "took its task", "locks: ", " to all: ")):
        return 0
    return 2 * len(re.findall(r"^worker-\d.*  working  ", table, re.MULTILINE)) + ("IS KILLED" in table)


class Past(Clock):
    """A clock that stands some minutes before now."""

    minutes = 0.0

    def wall(self) -> float:
        return time.time() - 60 * self.minutes

    def boot(self) -> str:
        return ""


def list_(folder: Path, environ: dict[str, str]) -> Pictures:
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
    screen = Screen(COLUMNS, ROWS)
    for words in (["list"], ["show", "login"], ["show", "e2e"]):
        screen.feed(typed(f"dibs {' '.join(words)}"))
        screen.feed(run(words, folder, environ) + "\r\n")
    yield "list", "dibs list and dibs show on a small board", screen


MAKERS = {"demo": demo, "list": list_}


def main() -> None:
    strange = ("DIBS_", "CLAUDE", "CODEX", "GEMINI", "COLUMNS", "NO_COLOR")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(strange)}
    environ |= {"TERM": "xterm-256color", "LOGNAME": "alice", "LC_ALL": "C.UTF-8"}
    if unknown := [name for name in sys.argv[1:] if name not in MAKERS]:
        sys.exit(f"no such pictures: {' '.join(unknown)}; there are: {' '.join(MAKERS)}")
    for maker in sys.argv[1:] or MAKERS:
        with tempfile.TemporaryDirectory() as made:
            command = Path(made) / "bin" / "dibs"
            command.parent.mkdir()
            command.write_text(f"#!{sys.executable}\nimport sys\nfrom dibs.cli import main\n\nsys.exit(main())\n")
            command.chmod(0o755)
            folder = Path(made) / "shop"
            folder.mkdir()
            path = f"{command.parent}:{environ['PATH']}"
            for name, title, screen in MAKERS[maker](folder, environ | {"PATH": path}):
                (HERE / f"{name}.svg").write_text(svg(screen, title))
                print(f"made {name}.svg")


if __name__ == "__main__":
    main()
