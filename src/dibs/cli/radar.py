"""The overlap radar: overlaps."""

from __future__ import annotations

import os

from dibs import radar
from dibs.places import working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import Lock
    from dibs.radar import Overlap, Part, Survey

_NAME, _BRANCH = 24, 28


def overlaps(ctx: Context, args: Args) -> int:
    found = radar.survey(working_directory(), args.base)
    held = _Held(ctx, found)
    if ctx.json:
        from dibs.wire import lock_json

        ctx.emit(
            {
                "overlaps": [
                    {
                        "path": overlap.path,
                        "worktrees": [_part_json(part) for part in overlap.parts],
                        "holders": [lock_json(lock) for lock in held.of(overlap)],
                    }
                    for overlap in found.overlaps
                ],
                "base": found.base,
                "worktrees": len(found.trees),
                "total": len(found.overlaps),
                "more": False,
                "skipped": [{"worktree": root, "why": why} for root, why in found.skipped],
                "board": held.board,
            }
        )
        return 0
    _print(ctx, found, held)
    return 0


class _Held:
    """Who holds what, on the board, if there is one."""

    def __init__(self, ctx: Context, found: Survey) -> None:
        from dibs.errors import DibsError, NoBoard

        self.board: str | None = None
        self.locks: list[Lock] = []
        self.now = 0.0
        self._prefix = ""
        self._folds = False
        try:
            board = ctx.board
            self.locks, self.now = board.locks(), board.now()
        except NoBoard:
            if ctx.url or os.environ.get("DIBS_BOARD"):
                raise
            return
        except DibsError as error:
            ctx.note(f"dibs: who holds what is not known: {error.message}")
            return
        self.board = board.url
        ground = board.core.paths.ground
        if ground is not None and found.trees:
            self._prefix = ground.prefix(found.trees[0].root)
        self._folds = board.core.paths.case_insensitive

    def of(self, overlap: Overlap) -> list[Lock]:
        from dibs.rules.paths import covers, fold

        path = f"{self._prefix}/{overlap.path}" if self._prefix else overlap.path
        if self._folds:
            path = fold(path)
        return [lock for lock in self.locks if covers(lock.pattern, path)]


def _part_json(part: Part) -> dict[str, object]:
    return {
        "worktree": part.tree.root,
        "branch": part.tree.branch,
        "uncommitted": part.uncommitted,
        "committed": part.committed,
    }


def _print(ctx: Context, found: Survey, held: _Held) -> None:
    from dibs.cli.render import BOLD, cut, hint, number, paint, safe

    names = found.ground.labels([tree.root for tree in found.trees] + [root for root, _ in found.skipped])
    rows = [[_row(part, names) for part in overlap.parts] for overlap in found.overlaps]
    widths = [max((_cells(row[at]) for part in rows for row in part), default=0) for at in (0, 1)]
    for overlap, parts in zip(found.overlaps, rows, strict=True):
        ctx.say(paint(cut(safe(overlap.path), ctx.width), BOLD, ctx.color))
        for row in parts:
            ctx.say(cut(_line(row, widths), ctx.width))
        for lock in held.of(overlap):
            ctx.say(cut(f"  {_holder(lock, held.now)}", ctx.width))
    for root, why in found.skipped:
        ctx.note("\n".join([cut(f"dibs: worktree {safe(names[root])}:", ctx.width), *hint(why, ctx.width)]))
    against = f"compared with {safe(found.base)}" if found.base else "there is no branch to compare commits with"
    if len(found.trees) == 1 and not found.overlaps:
        ctx.say("there is only one worktree, so nothing can overlap")
        return
    several = number(len(found.overlaps), "file") if found.overlaps else "no file"
    verb = "are" if len(found.overlaps) > 1 else "is"
    ctx.say(cut(f"{several} {verb} changed in more than one of {number(len(found.trees), 'worktree')}", ctx.width))
    ctx.say(cut(f"  {against}", ctx.width))


def _row(part: Part, names: dict[str, str]) -> tuple[str, str, str]:
    from dibs.cli.render import cut, safe

    how = ["uncommitted"] * part.uncommitted + ["committed"] * part.committed
    branch = part.tree.branch or f"at {(part.tree.commit or 'nothing')[:9]}"
    return cut(safe(names[part.tree.root]), _NAME), cut(safe(branch), _BRANCH), ", ".join(how)


def _cells(text: str) -> int:
    from dibs.cli.render import cells

    return cells(text)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    from dibs.cli.render import pad

    return f"  {pad(row[0], widths[0])}  {pad(row[1], widths[1])}  {row[2]}"


def _holder(lock: Lock, now: float) -> str:
    from dibs.cli.render import safe
    from dibs.times import remaining

    task = f" for task {lock.task_id}" if lock.task_id else ""
    return f"held by {safe(lock.holder.name)}{task} {remaining(lock.expires_at - now)}"
