"""What people and leads decide about tasks: retry, cancel, block, unblock, accept, reject, dependencies, steps."""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.errors import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import BoardTask

STEP_VERBS = ("add", "start", "done", "skip")


def retry(ctx: Context, args: Args) -> int:
    return _decide(ctx, args, "put back", lambda task_id: ctx.board.retry(task_id, worker=ctx.worker))


def cancel(ctx: Context, args: Args) -> int:
    reason = ctx.text(args.reason) if args.reason else None
    return _decide(ctx, args, "cancelled", lambda task_id: ctx.board.cancel(task_id, reason, worker=ctx.worker))


def block(ctx: Context, args: Args) -> int:
    reason = ctx.text(args.reason)
    return _decide(ctx, args, "blocked", lambda task_id: ctx.board.block(task_id, reason, worker=ctx.worker))


def unblock(ctx: Context, args: Args) -> int:
    how = ctx.text(args.resolution) if args.resolution else None
    return _decide(
        ctx,
        args,
        "unblocked",
        lambda task_id: ctx.board.unblock(task_id, how, blocker=args.blocker, worker=ctx.worker),
    )


def accept(ctx: Context, args: Args) -> int:
    note = ctx.text(args.note) if args.note else None
    return _decide(ctx, args, "accepted", lambda task_id: ctx.board.accept(task_id, note, worker=ctx.worker))


def reject(ctx: Context, args: Args) -> int:
    note = ctx.text(args.note)
    return _decide(ctx, args, "sent back", lambda task_id: ctx.board.reject(task_id, note, worker=ctx.worker))


def _decide(ctx: Context, args: Args, what: str, verb: Callable[[str], BoardTask]) -> int:
    task = ctx.by_id(args.id, verb)
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(task))
        return 0
    from dibs.cli.render import cut, one_line, status, wrap

    ctx.say(cut(f"{what} {task.id}: {one_line(task.description)}", ctx.width))
    if what == "cancelled":
        for line in _waiting_for(ctx, task):
            ctx.say(line)
    if what == "unblocked" and task.open_blockers:
        left = "; ".join(f"{blocker.id}: {one_line(blocker.reason)}" for blocker in task.open_blockers)
        ctx.say("\n".join(wrap(f"still blocked by {left}", ctx.width)))
        return 0
    following = {
        "blocked": f"when that is resolved: dibs unblock {quoted(task.id)}",
        "cancelled": f"to bring it back: dibs retry {quoted(task.id)}",
    }.get(what, f"it is now {status(task)[0]}")
    ctx.say(cut(f"  {following}", ctx.width))
    return 0


def _waiting_for(ctx: Context, task: BoardTask) -> list[str]:
    """The open tasks that wait for one that will not be done, and how to free them."""
    from dibs.cli.render import hint

    with ctx.board.store.read() as tx:
        waiting = [other.id for other in tx.dependants([task]) if other.status in ("pending", "in_progress", "review")]
    if not waiting:
        return []
    named = [f"{other} (dibs dep {quoted(other)} --drop {quoted(task.id)})" for other in waiting[:5]]
    more = f" and {len(waiting) - 5:,} more" if len(waiting) > 5 else ""
    return hint(f"still waiting for it: {', '.join(named)}{more}", ctx.width)


def dep(ctx: Context, args: Args) -> int:
    board = ctx.board
    task = ctx.by_id(args.id, board.get)
    if args.needs or args.drop:
        drop = [_among(need, task) for need in args.drop]
        # First the new edges, so that the task is never free in between.
        if args.needs:
            task = board.depend(task.id, [board.resolve(need) for need in args.needs], worker=ctx.worker)
        if drop:
            task = board.undepend(task.id, drop, worker=ctx.worker)
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(task))
        return 0
    from dibs.cli.render import cut, one_line

    ctx.say(cut(f"{task.id} {one_line(task.description)}", ctx.width))
    if not task.depends_on:
        ctx.say("  waits for no other task")
        return 0
    ctx.say("  waits for:" if task.unmet else "  waited for:")
    for need in map(board.get, task.depends_on):
        ctx.say(cut(f"  {need.id}  {need.status.replace('_', ' '):<11}  {one_line(need.description)}", ctx.width))
    return 0


def _among(given: str, task: BoardTask) -> str:
    """The dependency of a task that an id, or the beginning of one, names."""
    from dibs.errors import AmbiguousId, NotFound

    found = [need for need in task.depends_on if need == given] or [n for n in task.depends_on if n.startswith(given)]
    if not found:
        raise NotFound(f"task {task.id} does not depend on {given}", hint=f"dibs dep {quoted(task.id)}", task_id=given)
    if len(found) > 1:
        raise AmbiguousId(f"{given} could be {', '.join(found[:5])}", hint="give more of the id", candidates=found)
    return found[0]


def step(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    words = list(args.words)
    given = words.pop(0) if words and words[0] not in STEP_VERBS else None
    verb = words.pop(0) if words else None
    if verb is not None and verb not in STEP_VERBS:
        from dibs.cli.guessing import closest

        near = closest(verb, STEP_VERBS)
        raise UsageError(
            f"step: no verb {verb!r:.60}", f"did you mean {near}?" if near else "one of: " + ", ".join(STEP_VERBS)
        )
    if given is None:
        from dibs.cli.claims import only_held

        held = only_held(ctx, "step")
        given, token = held.id, held.token if args.token is None else args.token
    else:
        token = args.token
    if verb is None:
        if words:
            raise UsageError(f"step: unexpected {words[0]!r:.60}")
        return _show_steps(ctx, ctx.by_id(given, board.get))
    step_id = words.pop(0) if verb != "add" and words and _is_step(words[0]) else None
    text = ctx.text(words) if words else None
    if verb == "add" and not text:
        raise UsageError("step: a step needs a title", f"dibs step {quoted(given)} add 'what to do first'")
    task = ctx.by_id(
        given, lambda task_id: board.step(task_id, verb, text, step_id=step_id, worker=worker, token=token)
    )
    return _show_steps(ctx, task)


def _is_step(word: str) -> bool:
    return word[:1] == "s" and word[1:].isascii() and word[1:].isdigit()


def _show_steps(ctx: Context, task: BoardTask) -> int:
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(task))
        return 0
    from dibs.cli.render import cut, one_line

    ctx.say(cut(f"{task.id} {one_line(task.description)}", ctx.width))
    if not task.steps:
        ctx.say(f"  no steps; add one: dibs step {quoted(task.id)} add 'what to do first'")
    for step in task.steps:
        box = {"completed": "[x]", "skipped": "[-]", "in_progress": "[>]"}.get(step.status, "[ ]")
        note = f" ({one_line(step.notes)})" if step.notes else ""
        ctx.say(cut(f"  {box} {step.id} {one_line(step.title)}{note}", ctx.width))
    if task.status == "in_progress" and task.steps and all(s.status in ("completed", "skipped") for s in task.steps):
        ctx.say(cut(f"  all steps are done; finish the task: dibs done {quoted(task.id)} 'what you did'", ctx.width))
    return 0
