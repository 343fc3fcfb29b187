"""`dibs mcp --http`, and the tokens of those who may call it: what is said, and where the tokens are."""

from __future__ import annotations

import os

from dibs.address import keep_out_of_git
from dibs.cli.args import UsageError
from dibs.cli.render import safe
from dibs.errors import quoted
from dibs.mcp.tokens import Tokens, drop_token, new_token, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.mcp.http import Ready


def serve_http(ctx: Context, args: Args, board: TaskBoard) -> int:
    """Serve until a signal comes, or make or drop a token and end."""
    path = place(board.store, args.tokens)
    if args.new_token is not None and args.drop_token is not None:
        raise UsageError("mcp: give one of --new-token and --drop-token")
    if args.new_token is not None:
        return _new(ctx, args.new_token, path)
    if args.drop_token is not None:
        return _drop(ctx, args.drop_token, path)
    from dibs.mcp.http import serve

    if board.store.place is not None and args.root is None:
        os.chdir(board.store.place)  # clients elsewhere name files from the root of the repository

    def announce(ready: Ready) -> None:
        if ctx.json:
            ctx.emit({"url": ready.url, "board": board.url, "workers": ready.workers})
            ctx.flush()
        ctx.note(f"serving {safe(board.url)} at {ready.url}")
        ctx.note(f"workers with a token: {safe(', '.join(ready.workers))}")
        if ready.warning:
            ctx.note(ready.warning)

    serve(board, Tokens(path), args.host, args.port, args.allow_host or (), args.allow_origin or (), announce)
    return 0


def _new(ctx: Context, name: str, path: str) -> int:
    token, replaced = new_token(path, name)
    keep_out_of_git(f"sqlite:{path}")  # it looks at the folder only, and a dialect's notes have one of that name
    if ctx.json:
        ctx.emit({"worker": name, "token": token, "file": path, "replaced": replaced})
    else:
        ctx.say(token)
    ctx.flush()
    if replaced:
        ctx.note(f"the earlier token of {safe(name)} is no good any more")
    # Not the token itself: stderr is what ends up in logs.
    ctx.note(f"whoever sends this token is the worker {safe(name)}; it is shown only now, on stdout")
    ctx.note("next: dibs mcp --http serves the board; give the client its URL and the header")
    ctx.note("  Authorization: Bearer TOKEN")
    ctx.note(f"to take it back: dibs mcp --drop-token {quoted(name)}")
    return 0


def _drop(ctx: Context, name: str, path: str) -> int:
    drop_token(path, name)
    if ctx.json:
        ctx.emit({"worker": name, "dropped": True, "file": path})
    else:
        ctx.say(f"{safe(name)} has no token any more; what it holds stays until its leases end")
    return 0
