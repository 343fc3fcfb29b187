"""Locks on files: lock, unlock, locks."""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.errors import Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.render import Cell
    from dibs.model import Lock


def lock(ctx: Context, args: Args) -> int:
    try:
        granted = ctx.board.lock(args.path, ctx.worker, shared=args.shared, lease=args.lease, wait=args.wait or 0)
    except Busy as error:
        if error.conflicts and args.wait:
            from dibs.times import span

            error.message += f", after {span(args.wait)} of waiting"
        elif error.conflicts:
            error.hint += "; or wait for it: --wait 2m"
        raise
    if ctx.json:
        from dibs.wire import lock_json

        ctx.emit({"locks": [lock_json(lock) for lock in granted]})
        return 0
    from dibs.cli.render import cells, cut, quoted, safe
    from dibs.times import span

    for held in granted:
        how = " with others" if held.shared else ""
        ctx.say(cut(f"locked {safe(held.pattern)}{how} for {span(held.lease)}", ctx.width))
    # As they were given, which is what they are called from here.
    given = " ".join(quoted(path) for path in dict.fromkeys(args.path))
    literal = given.isprintable() and cells(given) < 50 and not any(path.startswith("-") for path in args.path)
    ctx.say("  give back: dibs unlock " + (given if literal else "--all"))
    return 0


def unlock(ctx: Context, args: Args) -> int:
    if bool(args.path) == args.all:
        raise UsageError("unlock: give either paths or --all")
    gone = ctx.board.unlock(args.path or None, ctx.worker)
    if ctx.json:
        from dibs.wire import lock_json

        ctx.emit({"unlocked": [lock_json(lock) for lock in gone]})
        return 0
    from dibs.cli.render import cut, safe

    for lock in gone:
        ctx.say(cut(f"unlocked {safe(lock.pattern)}", ctx.width))
    if not gone:
        ctx.say("there was nothing to unlock")
    return 0


def locks(ctx: Context, args: Args) -> int:
    board = ctx.board
    held = board.locks(args.path or None)
    if ctx.json:
        from dibs.wire import lock_json

        ctx.emit({"locks": [lock_json(lock) for lock in held], "total": len(held), "more": False})
        return 0
    if held:
        for line in _table(ctx, held, board.now()):
            ctx.say(line)
    from dibs.cli.render import number

    where = " on these paths" if args.path else ""
    ctx.say(f"{number(len(held), 'lock')}{where}" if held else f"nothing is locked{where}")
    return 0


def _table(ctx: Context, held: Sequence[Lock], now: float) -> list[str]:
    from dibs.cli.render import DIM, safe, table
    from dibs.times import span

    rows: list[list[Cell]] = []
    for lock in held:
        how: Cell = ("shared", DIM) if lock.shared else ""
        rows.append([safe(lock.holder.name), lock.task_id or "", span(lock.expires_at - now), how, safe(lock.pattern)])
    return table(
        ("HOLDER", "TASK", "LEFT", "", "FILES"), rows, ctx.width, caps=(20, -20, 9, 6), right=(2,), color=ctx.color
    )
