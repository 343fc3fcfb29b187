"""Locks on files: lock, unlock, locks."""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.errors import Busy, Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board import TaskBoard
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
    from dibs.cli.render import cells, cut, safe
    from dibs.errors import quoted
    from dibs.times import lasting

    for held in granted:
        how = " with others" if held.shared else ""
        ctx.say(cut(f"locked {safe(held.pattern)}{how} {lasting(held.lease)}", ctx.width))
    # As they were given, which is what they are called from here.
    given = " ".join(quoted(path) for path in dict.fromkeys(args.path))
    literal = given.isprintable() and cells(given) < 50 and not any(path.startswith("-") for path in args.path)
    ctx.say("  give back: dibs unlock " + (given if literal else "--all"))
    return 0


def acquire(ctx: Context, args: Args) -> int:
    """Document 003's conflict flow; stdout says ACQUIRED or BUSY, for shells, and stderr why."""
    if (args.id is None) == (args.file is None):
        raise UsageError("acquire: give a task and its files, or --file")
    wanted = [(args.id, list(args.path))] if args.file is None else _candidates(args.file)
    got = ctx.board.acquire(wanted, ctx.worker, retry=2.0 if args.retry is None else args.retry)
    if ctx.json:
        from dibs.wire import lock_json, task_json

        ctx.emit(
            {
                "acquired": bool(got),
                "task": task_json(got.task) if got.task else None,
                "locks": [lock_json(lock) for lock in got.locks],
                "conflicts": [conflict.as_dict() for conflict in got.conflicts],
            }
        )
        return 0 if got else 3
    from dibs.cli.render import one_line

    for conflict in got.conflicts:
        ctx.note(f"dibs: {one_line(conflict.text)}")
    named = f" {got.task.id}" if got.task and args.file is not None else ""
    ctx.say(f"ACQUIRED{named}" if got else "BUSY")
    return 0 if got else 3


def _candidates(path: str) -> list[tuple[str, list[str]]]:
    import sys

    try:
        if path == "-":
            lines = sys.stdin.readlines() if sys.stdin is not None else []
        else:
            with open(path, encoding="utf-8") as file:
                lines = file.readlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read {path}: {error}", hint="a task and its files a line, parted by blanks") from error
    return [(words[0], words[1:]) for line in lines if (words := line.split()) and not words[0].startswith("#")]


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
    held = [lock for lock in board.locks(args.path or None) if args.worker in (None, lock.holder.name)]
    if ctx.json:
        from dibs.wire import lock_json

        tree = board.core.paths.worktree
        shown = [lock_json(lock) | {"here": lock.worktree is not None and lock.worktree == tree} for lock in held]
        ctx.emit({"locks": shown, "total": len(shown), "more": False})
        return 0
    if held:
        for line in _table(ctx, held, board):
            ctx.say(line)
    from dibs.cli.render import number, safe

    where = " on these paths" if args.path else ""
    where += f" by {safe(args.worker)}" if args.worker is not None else ""
    ctx.say(f"{number(len(held), 'lock')}{where}" if held else f"nothing is locked{where}")
    return 0


def _table(ctx: Context, held: Sequence[Lock], board: TaskBoard) -> list[str]:
    from dibs.cli.render import DIM, safe, table
    from dibs.times import FOREVER, span

    now = board.now()
    ground = board.core.paths.ground
    trees = dict.fromkeys(lock.worktree for lock in held if lock.worktree is not None)
    names = ground.labels(trees) if ground is not None else {}
    rows: list[list[Cell]] = []
    for lock in held:
        how: Cell = ("shared", DIM) if lock.shared else ""
        left = lock.expires_at - now
        shown = "no end" if left > FOREVER / 2 else span(left)
        where = safe(names.get(lock.worktree or "", "-" if names else ""))
        rows.append([safe(lock.holder.name), lock.task_id or "", shown, how, where, safe(lock.pattern)])
    header = ("HOLDER", "TASK", "LEFT", "", "IN", "FILES")
    return table(header, rows, ctx.width, caps=(20, -20, 9, 6, 18), right=(2,), color=ctx.color)
