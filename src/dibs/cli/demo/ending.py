"""What the three demos share: their numbers' limits, the lines of a verdict, and how to call dibs from here."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from dibs.cli.args import UsageError
from dibs.cli.render import GREEN, RED, cut, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def between(given: int | None, option: str, default: int, least: int, most: int) -> int:
    if given is not None and not least <= given <= most:
        raise UsageError(f"demo: {option} is a number from {least} to {most:,}")
    return default if given is None else given


def mark(found: Sequence[tuple[str, Sequence[str]]], color: bool, width: int) -> list[str]:
    """Lines with a tick for what is true, and the problems instead of it where there are any."""
    fancy = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    yes, no = ("✓", "✗") if fancy else ("ok", "NOT OK")
    lines = []
    for text, problems in found:
        if not problems:
            lines.append(f"{paint(yes, GREEN, color)} {cut(text, width - len(yes) - 1)}")
        for problem in problems[:5]:
            lines.append(f"{paint(no, RED, color)} {cut(problem, width - len(no) - 1)}")
    return lines


def program() -> str:
    """How to call dibs from any folder: `dibs` if the shell would find this one, else by the path it was called by."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        python = shutil.which("python")
        return "python -m dibs" if python == sys.executable else f"{shlex.quote(sys.executable)} -m dibs"
    found = shutil.which("dibs")
    if found and os.path.realpath(found) == os.path.realpath(called):
        return "dibs"
    return shlex.quote(os.path.abspath(called))
