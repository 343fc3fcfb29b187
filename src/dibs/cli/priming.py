"""`dibs prime`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context


def prime(ctx: Context, args: Args) -> int:
    from dibs.priming import COUNTED, lines, look

    state = look(ctx.board, ctx.worker)
    if not ctx.json:
        ctx.say(lines(state))
        return 0
    from dibs.wire import lock_json

    others = [lock_json(lock) for lock in state.others[:COUNTED]]
    ctx.emit(
        {
            "text": lines(state),
            "worker": ctx.worker.name,
            "board": ctx.board.url,
            "counts": state.counts,
            "ready": state.ready,
            "ready_more": state.ready == COUNTED,
            "holding": [{"id": t.id, "description": t.description, "paths": t.paths} for t in state.holding],
            "locked": [lock.pattern for lock in state.locked],
            "held_by_others": {"locks": others, "total": len(state.others), "more": len(others) < len(state.others)},
            "unread": state.unread,
            "unread_more": state.unread == COUNTED,
        }
    )
    return 0
