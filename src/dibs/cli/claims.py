"""Taking work and ending it: claim, renew, release, done, fail, wait. A worker that holds one task need not name it."""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.errors import AmbiguousId, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import BoardTask

DEFAULT_WAIT = 60.0
SHORTEST_ABBREVIATION = 3
"""Characters from which the first of several words may be an abbreviated id rather than the beginning of a text."""


def claim(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    if args.id is not None:
        if args.count is not None:
            raise UsageError("claim: give an ID or --count, not both")

        def named(task_id: str) -> BoardTask | None:
            return board.claim(worker, task_id, lease=args.lease, request_key=args.key, wait=args.wait or 0)

        task = ctx.by_id(args.id, named)
        taken = [task] if task else []
    else:
        count = 1 if args.count is None else args.count
        taken = board.claim(worker, n=count, lease=args.lease, request_key=args.key, wait=args.wait or 0)
    if not taken:
        return _nothing(ctx)
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(taken[0]) if args.count is None else {"tasks": [task_json(task) for task in taken]})
    elif len(taken) == 1:
        _show_claimed(ctx, taken[0])
    else:
        from dibs.cli import render

        for line in render.tasks(taken, ctx.width, ctx.color):
            ctx.say(line)
        ctx.say(f"claimed {len(taken)}; in full: dibs show ID; when finished: dibs done ID 'what you did'")
    return 0


def _show_claimed(ctx: Context, task: BoardTask) -> None:
    from dibs.cli.render import BOLD, GREEN, paint, safe, wrap
    from dibs.times import span

    ctx.say(f"{paint('claimed', GREEN, ctx.color)} {paint(task.id, BOLD, ctx.color)}")
    lines = wrap(task.description, ctx.width)
    if task.result:
        lines += ["from before:", *wrap(task.result, ctx.width)]
    if task.steps:
        lines += ["steps, in this order:"]
        for step in task.steps:
            lines += wrap(
                f"{step.id} {step.title}" + ("" if step.status == "pending" else f" ({step.status})"), ctx.width
            )
    if task.paths:
        lines += wrap("locked for you: " + ", ".join(safe(path) for path in task.paths), ctx.width, "")
    for hint in (
        f"token {task.token}, yours for {span(task.lease or 0)}; whatever you change with dibs renews that",
        f"when finished: dibs done {task.id} 'what you did'",
        f"if you can't:  dibs release {task.id}, or dibs block {task.id} 'why'",
    ):
        lines += wrap(hint, ctx.width, "")
    for line in lines:
        ctx.say(line)


def _nothing(ctx: Context) -> int:
    from dibs.cli.render import number

    counts = ctx.board.counts()
    pending, busy, review = counts["pending"], counts["in_progress"], counts["review"]  # type: ignore[index]
    if not sum(counts.values()):
        message, hint = "the board is empty", "add a task: dibs add 'what to do'"
    elif not pending and not busy and not review:
        message, hint = f"all {number(sum(counts.values()), 'task')} are closed", "what became of them: dibs list --all"
    else:
        parts = [
            f"{pending:,} pending (waiting for others, blocked, reserved, or their files are held)" if pending else "",
            f"{busy:,} in progress" if busy else "",
            f"{review:,} in review" if review else "",
        ]
        message = ", ".join(part for part in parts if part)
        hint = "wait for work: dibs wait --timeout 10m; what stands in the way: dibs list"
        if held := ctx.board.held_by(ctx.worker):
            hint = f"{ctx.worker.name} holds {_named(held)}: go on with that, or finish it: dibs done {held[0].id}"
    if ctx.json:
        ctx.emit({"claimed": False, "message": f"nothing to claim: {message}", "hint": hint})
    else:
        from dibs.cli.render import wrap

        for line in (*wrap(f"nothing to claim: {message}", ctx.width, ""), *wrap(hint, ctx.width)):
            ctx.say(line)
    return 3


def renew(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    if args.id is not None:
        tasks = [
            ctx.by_id(args.id, lambda task_id: board.renew(task_id, worker=worker, token=args.token, lease=args.lease))
        ]
    else:
        held = board.held_by(worker)
        if not held:
            raise _holds_nothing(ctx)
        if args.token is not None and len(held) > 1:
            raise UsageError("renew: --token needs the ID", f"you hold {_named(held)}")
        tasks = [
            board.renew(
                task.id, worker=worker, token=task.token if args.token is None else args.token, lease=args.lease
            )
            for task in held
        ]
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit({"tasks": [task_json(task) for task in tasks]} if args.id is None else task_json(tasks[0]))
        return 0
    from dibs.cli.render import cut, one_line
    from dibs.times import span

    for task in tasks:
        ctx.say(cut(f"renewed {task.id} for {span(task.lease or 0)}: {one_line(task.description)}", ctx.width))
    return 0


def release(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    if args.all:
        if args.id is not None or args.token is not None:
            raise UsageError("release: --all goes without ID and --token")
        ids = board.release_agent_tasks(worker, note=args.note)
        if ctx.json:
            ctx.emit({"released": ids})
        else:
            from dibs.cli.render import number, safe, wrap

            named = f": {', '.join(ids)}" if ids else ""
            for line in wrap(
                f"released {number(len(ids), 'task')} and all locks of {safe(worker.name)}{named}", ctx.width, ""
            ):
                ctx.say(line)
        return 0
    if args.id is None:
        held = only_held(ctx, "release")
        task = board.release(
            held.id, worker=worker, token=held.token if args.token is None else args.token, note=args.note
        )
    else:
        task = ctx.by_id(
            args.id, lambda task_id: board.release(task_id, worker=worker, token=args.token, note=args.note)
        )
    return _ended(ctx, task, "released")


def done(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    following: list[BoardTask | None] = []

    def act(task_id: str, token: int | None, result: str | None) -> BoardTask:
        if not args.next:
            return board.complete(task_id, result, worker=worker, token=token)
        task = board.get(task_id)
        if task.status == "in_progress" and task.holder is not None and task.holder.is_same(worker):
            task.holder = worker  # who claims the next one too, in the same transaction
            task.token = task.token if token is None else token
            following.append(board.finish_claim(task, result, claim_next=True))
        else:
            task = board.complete(task_id, result, worker=worker, token=token)
            following.append(board.claim(worker))
        return task

    task = _on_task(ctx, "done", args, args.result, act)
    what = "handed in for review" if task.status == "review" else "completed"
    if not args.next:
        return _ended(ctx, task, what)
    then = following[0]
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit({"completed": task_json(task), "next": None if then is None else task_json(then)})
        return 0
    _ended(ctx, task, what)
    if then is None:
        _nothing(ctx)
    else:
        _show_claimed(ctx, then)
    return 0


def fail(ctx: Context, args: Args) -> int:
    def act(task_id: str, token: int | None, error: str | None) -> BoardTask:
        if not error:
            raise UsageError("fail: say what went wrong", f"dibs fail {task_id} 'what went wrong'")
        return ctx.board.fail(task_id, error, worker=ctx.worker, token=token)

    return _ended(ctx, _on_task(ctx, "fail", args, args.error, act), "failed")


def _ended(ctx: Context, task: BoardTask, what: str) -> int:
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(task))
        return 0
    from dibs.cli.render import cut, one_line, wrap

    ctx.say(cut(f"{what} {task.id}: {one_line(task.description)}", ctx.width))
    if what == "released" and task.status == "failed":
        ctx.say(
            cut(
                f"  it was given back more than {task.max_attempts} times and has failed: dibs show {task.id}",
                ctx.width,
            )
        )
    elif what == "failed":
        ctx.say(cut(f"  to put it back: dibs retry {task.id}", ctx.width))
    elif what == "handed in for review":
        for line in wrap(f"somebody else decides: dibs accept {task.id}, or dibs reject {task.id} NOTE", ctx.width):
            ctx.say(line)
    return 0


def wait(ctx: Context, args: Args) -> int:
    timeout = DEFAULT_WAIT if args.timeout is None else args.timeout
    found = ctx.board.wait(ctx.worker, timeout)
    if ctx.json:
        ctx.emit({"ready": found})
    elif found:
        ctx.say("there is something to claim: dibs claim")
    else:
        from dibs.times import span

        ctx.say(f"nothing to claim after {span(timeout)}")
    return 0 if found else 3


# -- which task is meant


def only_held(ctx: Context, verb: str) -> BoardTask:
    """The one task that the worker holds."""
    held = ctx.board.held_by(ctx.worker)
    if not held:
        raise _holds_nothing(ctx)
    if len(held) > 1:
        raise AmbiguousId(
            f"{ctx.worker.name} holds {len(held)} tasks: {_named(held)}",
            hint=f"say which one: dibs {verb} {held[0].id}",
            candidates=[task.id for task in held],
        )
    return held[0]


def _named(held: Sequence[BoardTask]) -> str:
    return ", ".join(task.id for task in held[:10]) + (f" and {len(held) - 10} more" if len(held) > 10 else "")


def _holds_nothing(ctx: Context) -> NotFound:
    worker = ctx.worker
    others, total = ctx.board.tasks(["in_progress"], assigned_to=worker.name, limit=3)
    if others:
        named = ", ".join(task.id for task in others) + (", …" if total > len(others) else "")
        return NotFound(
            f"this session of {worker.name} holds no task; another session, or an expired claim, has {named}",
            hint="take one with: dibs claim; sessions are told apart by DIBS_SESSION or what your client sets",
            worker=worker.name,
        )
    return NotFound(f"{worker.name} holds no task", hint="take one with: dibs claim", worker=worker.name)


def _on_task(
    ctx: Context,
    verb: str,
    args: Args,
    text: str | None,
    act: Callable[[str, int | None, str | None], BoardTask],
) -> BoardTask:
    """Read `[ID] [TEXT...]` and act on that task, as `dibs done --help` describes; `text` is what an option gave.

    No text may end the wrong task: a first word that is no id, but looks like one, or comes from a worker that holds
    none or several, is refused.
    """
    words, token = args.words, args.token

    def on_held(task: BoardTask, text: str | None) -> BoardTask:
        return act(task.id, task.token if token is None else token, text)

    if text is not None:
        if len(words) > 1:
            raise UsageError(f"{verb}: besides the text there may only be an ID", f"unexpected: {words[1]!r}")
        text = ctx.text([text])
        if words:
            return ctx.by_id(words[0], lambda task_id: act(task_id, token, text))
        return on_held(only_held(ctx, verb), text)
    if not words:
        return on_held(only_held(ctx, verb), None)
    first, rest = words[0], words[1:]
    if _could_be_id(first):
        text = ctx.text(rest) if rest else None
        try:
            return act(first, token, text)
        except NotFound as error:
            if error.fields.get("task_id") != first:
                raise
        if not rest or len(first) >= SHORTEST_ABBREVIATION:
            try:
                full = ctx.board.resolve(first)
            except NotFound:
                pass
            else:
                return act(full, token, text)
        words = [first, text] if text else [first]
    held = ctx.board.held_by(ctx.worker)
    if len(held) == 1 and not (_could_be_id(first) and any(c.isdigit() for c in first)):
        return on_held(held[0], ctx.text(words))
    if not held and not _could_be_id(first):
        raise _holds_nothing(ctx)
    hint = f"see what there is: dibs list --all; if it is the beginning of your text: dibs {verb} ID 'TEXT'"
    if held:
        hint = f"{ctx.worker.name} holds {_named(held)}: dibs {verb} {held[0].id} 'TEXT'"
    raise NotFound(f"Task not found: {first}", hint=hint, task_id=first)


def _could_be_id(word: str) -> bool:
    from dibs import limits
    from dibs.errors import Invalid

    try:
        limits.task_id(word)
    except Invalid:
        return False
    return True
