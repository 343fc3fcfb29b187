"""The pages of the documentation, read as far as the tests need it: fenced blocks, sections, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("python", "sh", "bash", "console")
"""The languages of blocks that are executed."""

_FENCE = re.compile(r"^(```+)\s*(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_HEADING = re.compile(r"^(#+) (.+)$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    page: Path
    line: int
    """The line of the opening fence, from 1."""
    language: str
    text: str
    not_run: str | None
    """Why the block is not executed, if it says so."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    found = []
    before = ""
    opened: tuple[str, str, int, str | None] | None = None
    inside: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                why = _NOT_RUN.match(before)
                opened = (fence[1], fence[2], number, why[1] if why else None)
                inside = []
        elif fence and fence[1] == opened[0] and not fence[2]:
            found.append(Block(page, opened[2], opened[1], "\n".join(inside) + "\n", opened[3]))
            opened = None
        else:
            inside.append(line)
        before = line
    if opened is not None:
        raise AssertionError(f"{page}: the fence of line {opened[2]} is never closed")
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    text = page.read_text()
    for block in blocks(page):
        text = text.replace(block.text, "\n", 1) if block.text.strip() else text
    return text


def sections(page: Path) -> dict[str, str]:
    """What stands under each heading, up to the next heading; blocks included."""
    found: dict[str, str] = {}
    heading = ""
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        match = None if fenced else _HEADING.match(line)
        if match:
            heading = match[2]
            assert heading not in found, f"{page}: two headings {heading!r}"
            found[heading] = ""
        else:
            found[heading] = found.get(heading, "") + line + "\n"
    return found


def anchor(heading: str) -> str:
    """The anchor under which GitHub and others know a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))
