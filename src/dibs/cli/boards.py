"""`dibs boards`: the boards of a PostgreSQL database."""

from __future__ import annotations

import os

from dibs.address import POSTGRES, kind_of, open_store, refuse_unknown_kind
from dibs.cli.args import UsageError
from dibs.cli.render import clock, number, safe, table
from dibs.errors import Unsupported, quoted
from dibs.stores.postgres import addresses
from dibs.stores.postgres.addresses import public
from dibs.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.render import Cell

_NEXT = "name the database: dibs boards postgresql://USER@HOST/DATABASE"


def boards(ctx: Context, args: Args) -> int:
    url = _database(ctx, args.url)
    try:
        from dibs.stores.postgres import provision
    except ImportError:
        open_store(url)  # which says what to install
        raise
    shown, rows = provision.listed(url)
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "board": addresses.beside(url, name),
            "open": waiting,
            "tasks": tasks,
            "created_at": iso(made),
            "changed_at": None if changed is None else iso(changed),
        }
        for name, made, waiting, tasks, changed in rows
    ]
    if ctx.json:
        ctx.emit({"boards": found, "total": len(found), "more": False})
        return 0
    if not found:
        ctx.say(f"there is no board in {safe(addresses.beside(url, addresses.MAIN))} yet")
        ctx.say(f"  make one: dibs init --board {quoted(shown)}")
        return 0
    cells: list[list[Cell]] = [
        [safe(name), f"{waiting:,}", f"{tasks:,}", clock(made), "" if changed is None else clock(changed)]
        for name, made, waiting, tasks, changed in rows
    ]
    header = ("BOARD", "OPEN", "TASKS", "MADE", "LAST CHANGE")
    for line in table(header, cells, ctx.width, caps=(-40, 12, 12, 16), right=(1, 2), color=ctx.color):
        ctx.say(line)
    ctx.say(number(len(found), "board"))
    return 0


def _database(ctx: Context, given: str | None) -> str:
    """The address whose database is meant: as a word, by --board or by DIBS_BOARD."""
    if given is not None and ctx.url is not None:
        raise UsageError("boards takes one address, as a word or by --board", "dibs boards URL")
    url = given or ctx.url or os.environ.get("DIBS_BOARD") or None
    if url is None:
        raise Unsupported(
            "dibs boards lists the boards of a PostgreSQL database, and none was named here",
            hint=f"{_NEXT}, or set DIBS_BOARD; which board this folder uses: dibs doctor",
        )
    if kind_of(url) not in POSTGRES:
        if ":" in url and kind_of(url) is None:
            refuse_unknown_kind(url)
        raise Unsupported(
            f"dibs boards lists the boards of a PostgreSQL database; {public(url)} is one board, and not in such",
            hint=f"{_NEXT}; to look at this one: dibs --board {quoted(public(url))} list",
        )
    return url
