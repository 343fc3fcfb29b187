"""`dibs pivot`: revising the scope of a work item (document 001)."""

from __future__ import annotations

from dibs.cli.render import safe
from dibs.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context


def pivot(ctx: Context, args: Args) -> int:
    from dibs.dialects import workitems_pivot

    its_id = args.id
    note = ctx.text(args.note) if args.note else None
    if args.verb == "start":
        workitems_pivot.start(ctx.board, its_id, note, worker=ctx.worker)
        said = f"the scope of {safe(its_id)} is being revised"
    elif args.verb == "done":
        workitems_pivot.done(ctx.board, its_id, note, worker=ctx.worker)
        said = f"the scope of {safe(its_id)} is revised"
    elif args.verb == "reset":
        its_id = workitems_pivot.reset(ctx.board, its_id, worker=ctx.worker).id
        said = f"reset {safe(its_id)}: it is pending again"
    else:
        raise Invalid(f"{args.verb!r:.40} is nothing that a pivot does", hint="dibs pivot start|reset|done ID")
    if ctx.json:
        ctx.emit({"pivot": args.verb, "id": its_id})
    else:
        ctx.say(said)
    return 0
