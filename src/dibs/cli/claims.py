"""Taking work and ending it: claim, renew, release, done, fail, wait. A worker that holds one task need not name it."""

from __future__ import annotations

import os

from dibs.cli.args import UsageError
from dibs.errors import AmbiguousId, NotFound, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import BoardTask, Event
    from dibs.pool.notice import Team

DEFAULT_WAIT = 60.0
RECENT = 500
"""How many entries of the changelog are searched for what became of a worker's last task."""
SHOWN_LINES = 60
"""Lines of a description that a claim shows; `dibs show` has the rest."""
SHORTEST_ABBREVIATION = 3
"""Characters from which the first of several words may be an abbreviated id rather than the beginning of a text."""
TEXTS = {
    "done": ("--result", "what you did"),
    "fail": ("--error", "what went wrong"),
    "release": ("--note", "why"),
}
"""The option that takes a verb's text, and what that text says."""


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
        first = quoted(taken[0].id)
        for line in render.hint(
            f"claimed {len(taken)}; in full: dibs show {first}; when finished: dibs done {first} 'what you did'",
            ctx.width,
            "",
        ):
            ctx.say(line)
    return 0


def _show_claimed(ctx: Context, task: BoardTask) -> None:
    from dibs.cli.render import BOLD, GREEN, hint, paint, safe, wrap
    from dibs.times import FOREVER, lasting

    def some(text: str) -> list[str]:
        lines = wrap(text, ctx.width)
        left = len(lines) - SHOWN_LINES
        return lines if left <= 1 else [*lines[:-left], f"  … {left:,} more lines; whole: dibs show {quoted(task.id)}"]

    ctx.say(f"{paint('claimed', GREEN, ctx.color)} {paint(task.id, BOLD, ctx.color)}")
    lines = some(task.description)
    if task.result:
        lines += ["from before:", *some(task.result)]
    if task.steps:
        lines += ["steps, in this order:"]
        for step in task.steps:
            lines += wrap(
                f"{step.id} {step.title}" + ("" if step.status == "pending" else f" ({step.status})"), ctx.width
            )
    if task.paths:
        lines += wrap("locked for you: " + ", ".join(safe(path) for path in task.paths), ctx.width, "")
    renews = "" if (task.lease or 0) >= FOREVER else "; whatever you change with dibs renews that"
    hints = [f"token {task.token}, yours {lasting(task.lease or 0)}{renews}"]
    if task.steps:
        hints.append(f"after each step: dibs step {quoted(task.id)} done")
    review = "; it goes to review" if task.review else ""
    hints += [
        f"when finished: dibs done {quoted(task.id)} 'what you did'{review}",
        f"if you can't:  dibs release {quoted(task.id)}"
        + ("" if _lacks(ctx, "blockers") else f", or dibs block {quoted(task.id)} 'why'"),
    ]
    if more := sum(other.id != task.id for other in ctx.board.held_by(ctx.worker)):
        hints.append(f"you also hold {more:,} more: dibs list --mine")
    for text in hints:
        lines += hint(text, ctx.width, "")
    for line in lines:
        ctx.say(line)


def _nothing(ctx: Context) -> int:
    counts = ctx.board.counts()
    pending, busy, review = counts["pending"], counts["in_progress"], counts["review"]  # type: ignore[index]
    if not sum(counts.values()):
        message, hint = "the board is empty", "add a task: dibs add 'what to do'"
    elif not pending and not busy and not review:
        message, hint = _all_closed(sum(counts.values())), "what became of them: dibs list --all"
    else:
        parts = [
            f"{pending:,} pending (waiting for others, blocked, reserved, or their files are held)" if pending else "",
            f"{busy:,} in progress" if busy else "",
            f"{review:,} in review" if review else "",
        ]
        message = ", ".join(part for part in parts if part)
        hint = "wait for work: dibs wait --timeout 10m; what stands in the way: dibs list"
        if held := ctx.board.held_by(ctx.worker):
            hint = (
                f"{ctx.worker.name} holds {_named(held)}: go on with that, or finish it: dibs done {quoted(held[0].id)}"
            )
    team = _team(ctx)
    if team is not None:
        hint = team.advice
    if ctx.json:
        more = {} if team is None else {"team": team.word}
        ctx.emit({"claimed": False, "message": f"nothing to claim: {message}", "hint": hint, **more})
    else:
        from dibs.cli import render

        for line in (*render.wrap(f"nothing to claim: {message}", ctx.width, ""), *render.hint(hint, ctx.width)):
            ctx.say(line)
    return 3


def _all_closed(count: int) -> str:
    return "the only task is closed" if count == 1 else f"all {count:,} tasks are closed"


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
    from dibs.times import lasting

    for task in tasks:
        ctx.say(cut(f"renewed {task.id} {lasting(task.lease or 0)}: {one_line(task.description)}", ctx.width))
    return 0


def release(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    if args.all:
        if args.token is not None or (args.words and (_could_be_id(args.words[0]) or args.note is not None)):
            raise UsageError("release: --all goes without ID and --token", "say why with: --note 'why'")
        note = ctx.text(args.words) if args.words else args.note
        ids = board.release_agent_tasks(worker, note=note)
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

    def act(task_id: str, token: int | None, note: str | None) -> BoardTask:
        return board.release(task_id, worker=worker, token=token, note=note)

    return _ended(ctx, _on_task(ctx, "release", args, args.note, act), "released")


def done(ctx: Context, args: Args) -> int:
    board, worker = ctx.board, ctx.worker
    following: list[BoardTask | None] = []
    said: list[str | None] = []

    def act(task_id: str, token: int | None, result: str | None) -> BoardTask:
        said.append(result)
        if not args.next:
            return board.complete(task_id, result, worker=worker, token=token)
        task = board.get(task_id)
        if task.status == "in_progress" and task.holder is not None and task.holder.is_same(worker):
            task.holder = worker  # who claims the next one too, in the same transaction
            task.token = task.token if token is None else token
            following.append(board.finish_claim(task, result, claim_next=True))
        else:
            task = board.complete(task_id, result, worker=worker, token=token)
            following.append(board.claim_next(worker))
        return task

    task = _on_task(ctx, "done", args, args.result, act)
    what = "handed in for review" if task.status == "review" else "completed"
    before = (task.result or None) != (said[-1] or None)  # a repeat: the first answer stands
    if not args.next:
        _ended(ctx, task, what, before)
        if not ctx.json and not _lacks(ctx, "lists of tasks"):
            ctx.say("  next: dibs claim")
        return 0
    then = following[0]
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit({"completed": task_json(task), "next": None if then is None else task_json(then)})
        return 0
    _ended(ctx, task, what, before)
    if then is None:
        _nothing(ctx)
    else:
        _show_claimed(ctx, then)
    return 0


def fail(ctx: Context, args: Args) -> int:
    def act(task_id: str, token: int | None, error: str | None) -> BoardTask:
        if not error:
            ctx.board.get(task_id)  # first of all it must be a task
            raise UsageError("fail: say what went wrong", f"dibs fail {quoted(task_id)} 'what went wrong'")
        return ctx.board.fail(task_id, error, worker=ctx.worker, token=token)

    return _ended(ctx, _on_task(ctx, "fail", args, args.error, act), "failed")


def _lacks(ctx: Context, what: str) -> bool:
    """Has this kind of board no place for that?"""
    return what in getattr(ctx.board.store, "lacks", ())


def _ended(ctx: Context, task: BoardTask, what: str, before: bool = False) -> int:
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(task))
        return 0
    from dibs.cli.render import cut, hint, one_line, wrap

    if before:
        lines = wrap(
            f"{task.id} was already {what}; the result was not changed: dibs show {quoted(task.id)}", ctx.width, ""
        )
        ctx.say("\n".join(lines))
        return 0
    ctx.say(cut(f"{what} {task.id}: {one_line(task.description)}", ctx.width))
    if what in ("completed", "handed in for review"):
        for line in _after_done(ctx, task):
            ctx.say(line)
    if what == "released" and task.status == "failed":
        ctx.say(
            cut(
                f"  it was given back more than {task.max_attempts} times and has failed: dibs show {quoted(task.id)}",
                ctx.width,
            )
        )
    elif what == "failed":
        ctx.say(cut(f"  to put it back: dibs retry {quoted(task.id)}", ctx.width))
    elif what == "handed in for review":
        for line in hint(
            f"somebody else decides: dibs accept {quoted(task.id)}, or dibs reject {quoted(task.id)} 'what is missing'",
            ctx.width,
        ):
            ctx.say(line)
    return 0


def _after_done(ctx: Context, task: BoardTask) -> list[str]:
    """What a worker that is done with a task should know: steps left open, tasks that are ready through it."""
    from dibs.cli.render import one_line, wrap

    lines = []
    if not task.result and not _lacks(ctx, "lists of tasks"):
        lines += wrap("no text was given: whoever goes on from here will not know what was done", ctx.width)
    if left := [step for step in task.steps if step.status not in ("completed", "skipped")]:
        steps = ", ".join(f"{step.id} {one_line(step.title)}" for step in left)
        were = "1 step was" if len(left) == 1 else f"{len(left)} steps were"
        lines += wrap(f"{were} still open: {steps}", ctx.width)
    if task.status == "completed":
        with ctx.board.store.read() as tx:
            ready = [other.id for other in tx.dependants([task]) if other.is_ready]
        if ready:
            more = f" and {len(ready) - 10:,} more" if len(ready) > 10 else ""
            lines += wrap(f"now ready: {', '.join(ready[:10])}{more}", ctx.width)
    return lines


def _team(ctx: Context) -> Team | None:
    """The team that this command's agent belongs to, if it is in one."""
    if not os.environ.get("DIBS_TEAM"):
        return None
    from dibs.pool.notice import around

    return around(ctx.worker.name)


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
            hint=f"say which one: dibs {verb} {quoted(held[0].id)}",
            candidates=[task.id for task in held],
        )
    return held[0]


def _named(held: Sequence[BoardTask]) -> str:
    return ", ".join(task.id for task in held[:10]) + (f" and {len(held) - 10} more" if len(held) > 10 else "")


def _holds_nothing(ctx: Context) -> NotFound:
    worker = ctx.worker
    found = ctx.board.tasks(["in_progress"], assigned_to=worker.name, limit=100)[0]
    expired = [task for task in found if task.holder is not None and task.holder.is_same(worker)]
    if expired:
        first = expired[0]
        return NotFound(
            f"{worker.name} holds no task: the lease of {_named(expired)} ran out",
            hint=f"to go on with it, claim it again first: dibs claim {quoted(first.id)}",
            worker=worker.name,
        )
    if found:
        return NotFound(
            f"this session of {worker.name} holds no task; another session of that name holds {_named(found)}",
            hint="leave that alone, and take other work: dibs claim; sessions are told apart by DIBS_SESSION or what "
            "your client sets",
            worker=worker.name,
        )
    if became := _last_task(ctx):
        return NotFound(
            f"{worker.name} holds no task: {became}",
            hint="stop working on it, and take other work: dibs claim",
            worker=worker.name,
        )
    return NotFound(f"{worker.name} holds no task", hint="take one with: dibs claim", worker=worker.name)


def _last_task(ctx: Context) -> str | None:
    """What became of the task that this worker claimed last, if that was not long ago."""
    from dibs.cli.words import was
    from dibs.model import Worker

    endings: dict[str | None, Event] = {}
    for event in reversed(ctx.board.recent(RECENT)):
        changed = (event.data or {}).get("set", {})
        if event.action == "claimed_activity":
            if event.worker == ctx.worker.name and Worker(**changed["holder"]).is_same(ctx.worker):
                ended = endings.get(event.task_id)
                return f"{event.task_id} {was(ended, ctx.board.now())}" if ended else None
            endings.pop(event.task_id, None)
        elif "status" in changed:
            endings[event.task_id] = event
    return None


def _on_task(
    ctx: Context,
    verb: str,
    args: Args,
    text: str | None,
    act: Callable[[str, int | None, str | None], BoardTask],
) -> BoardTask:
    """Read `[ID] [TEXT...]` and act on that task, as `dibs done --help` describes; `text` is what an option gave.

    A mistyped id must not end the one task that is held: a first word that could be an id is one, or is refused.
    """
    words, token = args.words, args.token
    if text is not None:
        if len(words) > 1:
            raise UsageError(f"{verb}: besides the text there may only be an ID", f"unexpected: {words[1]!r}")
        text = ctx.text([text])
    elif words and not _could_be_id(words[0]):
        text, words = ctx.text(words), []
    elif len(words) > 1:
        text = ctx.text(words[1:])
    if not words:
        held = only_held(ctx, verb)
        return act(held.id, held.token if token is None else token, text)
    first = words[0]
    try:
        return act(first, token, text)
    except NotFound as error:
        if error.fields.get("task_id") != first:
            raise
    if len(words) > 1 and len(first) < SHORTEST_ABBREVIATION:
        raise _unknown(ctx, verb, first)
    try:
        full = ctx.board.resolve(first)
    except NotFound:
        raise _unknown(ctx, verb, first) from None
    return act(full, token, text)


def _unknown(ctx: Context, verb: str, word: str) -> NotFound:
    """The refusal of a first word that could be an id and is none."""
    held = ctx.board.held_by(ctx.worker)
    if not held:
        refusal = _holds_nothing(ctx)
        refusal.message += f" (and no task is called {word})"
        refusal.fields["task_id"] = word
        return refusal
    option, said = TEXTS[verb]
    hint = f"{ctx.worker.name} holds {_named(held)}: dibs {verb} {quoted(held[0].id)} '{said}'"
    if len(held) == 1:
        hint += f"; if {word} begins a text: dibs {verb} {option} '{said}'"
    return NotFound(f"Task not found: {word}", hint=hint, task_id=word)


def _could_be_id(word: str) -> bool:
    from dibs import limits
    from dibs.errors import Invalid

    try:
        limits.task_id(word)
    except Invalid:
        return False
    return True
