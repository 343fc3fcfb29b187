"""`dibs mcp`: find out how to serve, and hand over to `dibs.mcp`."""

from __future__ import annotations

import os
import signal

from dibs.cli.args import UsageError
from dibs.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.cli.context import Context

_HTTP_ONLY = ("host", "port", "allow_host", "allow_origin", "tokens")


def mcp(ctx: Context, args: Args) -> int:
    root = args.root or (os.environ.get("CLAUDE_PROJECT_DIR") if args.client == "claude" else None)
    if root:
        # Claude Code names the project; its desktop app starts servers elsewhere.
        try:
            os.chdir(root)
        except OSError as error:
            raise Invalid(f"cannot work in {root}: {error.strerror}", hint="--root takes a folder") from None
    if ctx.human:
        raise UsageError("mcp: its worker is an agent; --human does not go with it")

    def open_board(agent: str | None = None) -> TaskBoard:
        from dibs.address import open_store
        from dibs.board import TaskBoard
        from dibs.worker import stale_timeout

        try:
            store = open_store(ctx.url, agent=agent or ctx.as_name)
            return TaskBoard(store=store, stale_timeout=stale_timeout())
        except Exception as error:
            ctx.explain(error)
            raise

    if args.http or args.new_token is not None or args.drop_token is not None:
        if args.http:
            # Until the server has its own handlers, which takes a second of imports, SIGTERM ends it as Ctrl-C does.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        from dibs.cli.serving_http import serve_http

        with open_board() as board:
            return serve_http(ctx, args, board)
    for name in _HTTP_ONLY:
        if getattr(args, name) not in (None, [], ()):
            raise UsageError(f"mcp: --{name.replace('_', '-')} goes with --http")
    if os.isatty(0):
        raise UsageError(
            "mcp: this is a server that a coding client starts and talks to; there is nothing to type here",
            "connect a client, which then starts it: dibs setup CLIENT; over the network: dibs mcp --http",
        )
    from dibs.mcp.stdio import serve

    serve(open_board, args.client, ctx.as_name or os.environ.get("DIBS_AGENT") or None)
    return 0
