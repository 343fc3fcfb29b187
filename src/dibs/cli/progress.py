"""How far a long command has come: on a terminal a line that moves, otherwise a line every few seconds, on stderr.

    with Progress(ctx, "copying") as progress:
        copy(…, progress.tell)

The first seconds pass in silence, and under --json all of them. At the end the moving line is gone.
"""

from __future__ import annotations

import sys
from time import monotonic

from dibs.cli.context import write
from dibs.cli.render import cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from dibs.cli.context import Context

SILENCE = 1.0
MOVING, LINES = 0.1, 5.0
"""Seconds between two words on a terminal, and elsewhere."""


class Progress:
    def __init__(self, ctx: Context, what: str) -> None:
        self._what = what
        self._quiet = ctx.json or sys.stderr is None
        self._moves = not self._quiet and sys.stderr.isatty()
        self._width = ctx.width
        self._next = monotonic() + (SILENCE if self._moves else LINES)
        self._shown = False

    def tell(self, part: str, done: int, total: int) -> None:
        """`part` is being worked on; `done` rows of it are ready, of `total` (0: nobody knows)."""
        if self._quiet or monotonic() < self._next:
            return
        self._next = monotonic() + (MOVING if self._moves else LINES)
        far = f" {done:,} of {total:,} ({min(100, done * 100 // total)}%)" if total else f" {done:,}" if done else " …"
        text = cut(f"dibs: {self._what}: {part}{far}", self._width - 1)
        write(sys.stderr, f"\r\x1b[K{text}" if self._moves else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._shown and self._moves:
            write(sys.stderr, "\r\x1b[K")
            sys.stderr.flush()
