"""`dibs init`."""

from __future__ import annotations

import os

from dibs.address import keep_out_of_git
from dibs.cli.context import clients_board
from dibs.errors import NoBoard
from dibs.limits import new_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context


def init(ctx: Context, args: Args) -> int:
    from dibs.board import TaskBoard

    created = False
    try:
        board = TaskBoard.open(ctx.url, worker=ctx.worker)  # not that of a client around us, as for other commands
    except NoBoard:
        new_name(ctx.worker.name)
        board = TaskBoard.open(ctx.url, create=True, worker=ctx.worker)
        created = True
    try:
        keep_out_of_git(board.url)
        if ctx.json:
            ctx.emit({"board": board.url, "created": created})
            return 0
        from dibs.cli.render import safe
        from dibs.errors import quoted

        url = safe(board.url)
        ctx.say(f"made the board {url}" if created else f"the board is there already: {url}; nothing was changed")
        if named := _must_be_named(ctx, board.url):
            ctx.say(f"  reach it:  export DIBS_BOARD={quoted(named)}")
            if _lacks_password(ctx, named):
                ctx.say("             and let ~/.pgpass or PGPASSWORD provide the password")
        elif not ctx.url and not os.environ.get("DIBS_BOARD") and (told := clients_board(board.url)):
            ctx.say(f"  but {told}")
        if getattr(board.store, "dialect", "") == "spec":
            ctx.say("  take a task and its files: dibs acquire ID PATH…; give both back: dibs done ID")
            return 0
        ctx.say("  add work:  dibs add 'what to do'" + ("" if created else "; look: dibs list"))
        ctx.say("  take work: dibs claim, and when finished: dibs done 'what you did'")
        if not hasattr(board.store, "dialect"):
            ctx.say("  agents:    dibs setup claude (or codex, cursor, gemini, vscode)")
        return 0
    finally:
        board.close()


def _lacks_password(ctx: Context, url: str) -> bool:
    """Did the address as it was given say more than may be shown?"""
    if not url.startswith("postgresql:"):
        return False
    from dibs.stores.postgres.addresses import has_password

    return has_password(ctx.url or "")


def _must_be_named(ctx: Context, url: str) -> str | None:
    """The board's address, if a command that names no board would not find it from here."""
    from dibs.address import open_store
    from dibs.errors import DibsError

    if not ctx.url:
        return None
    named = os.environ.pop("DIBS_BOARD", None)
    try:
        return None if open_store(None).url == url else url
    except DibsError:
        return url
    finally:
        if named is not None:
            os.environ["DIBS_BOARD"] = named
