"""`dibs init`."""

from __future__ import annotations

import os

from dibs.errors import NoBoard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context


def init(ctx: Context, args: Args) -> int:
    from dibs.board import TaskBoard

    created = False
    try:
        board = ctx.board
    except NoBoard:
        board = TaskBoard.open(ctx.url, create=True, worker=ctx.worker)
        created = True
    try:
        if created:
            keep_out_of_git(board.url)
        if ctx.json:
            ctx.emit({"board": board.url, "created": created})
            return 0
        from dibs.cli.render import safe

        url = safe(board.url)
        ctx.say(f"made the board {url}" if created else f"the board is there already: {url}; nothing was changed")
        ctx.say("  add work:  dibs add 'what to do'" + ("" if created else "; look: dibs list"))
        ctx.say("  take work: dibs claim, and when finished: dibs done 'what you did'")
        return 0
    finally:
        if created:
            board.close()


def keep_out_of_git(url: str) -> None:
    """A board is state, not source: its folder ignores itself, and nothing outside it is touched."""
    folder = os.path.dirname(url.removeprefix("sqlite:"))
    if url.startswith("sqlite:") and os.path.basename(folder) == ".dibs":
        try:
            with open(os.path.join(folder, ".gitignore"), "x", encoding="ascii") as file:
                file.write("*\n")
        except OSError:
            pass  # there already, or not allowed: git will show the folder, and no more
