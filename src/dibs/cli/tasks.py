"""Putting tasks on the board and looking at them: add, list, show, ready."""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.errors import quoted
from dibs.limits import STATUS_WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import BoardTask, Event
    from dibs.rules.tasks import Reason

LIMIT = 50
NO_LIMIT = 2**31
SHOWN_EVENTS = 5
_GROUPS = {**STATUS_WORDS, "ready": ("pending",), "waiting": ("pending",), "blocked": ("pending",)}
_WHOLE_PENDING = {"pending", "open", "all"}
"""Words for all pending tasks, ready or not."""
READ_AT_ONCE = 500
_OPTIONS = (
    ("depends_on", "needs"),
    ("paths", "path"),
    ("labels", "label"),
    ("steps", "step"),
    ("parent", "parent"),
    ("reserved", "for_"),
    ("review", "review"),
    ("max_attempts", "max_attempts"),
    ("priority", "priority"),
    ("id", "id"),
)


def add(ctx: Context, args: Args) -> int:
    if args.file is not None:
        return _add_file(ctx, args)
    if not args.description:
        raise UsageError("add: say what is to be done", "dibs add 'what to do'")
    fields: dict[str, Any] = {"description": ctx.text(args.description)}
    for key, option in _OPTIONS:
        if (value := getattr(args, option)) is not None and value != [] and value is not False:
            fields[key] = value
    board = ctx.board
    if args.beside is not None and args.beside[2] in args.description and _is_task(board, args.beside[2]):
        from dibs.cli.args import repeated

        raise UsageError(f"add: unexpected {args.beside[2]!r}, which is a task", repeated(*args.beside))
    task_id = _add_one(ctx, board, fields, args.key)
    if ctx.json:
        from dibs.wire import task_json

        ctx.emit(task_json(board.get(task_id)))
        return 0
    from dibs.cli.render import cut, hint, one_line

    ctx.say(cut(f"added {task_id}: {one_line(fields['description'])}", ctx.width))
    if needs := fields.get("depends_on"):
        with board.store.read() as tx:
            found = tx.get(needs)
        if unmet := [need for need in needs if found[need].status != "completed"]:
            ctx.say(cut(f"  it waits for {', '.join(unmet)}", ctx.width))
        for need in unmet:
            if found[need].status in ("failed", "cancelled"):
                way_out = f"dibs retry {quoted(need)}, or dibs dep {quoted(task_id)} --drop {quoted(need)}"
                ctx.say("\n".join(hint(f"{need} is {found[need].status}: {way_out}", ctx.width)))
    return 0


def _is_task(board: TaskBoard, word: str) -> bool:
    from dibs.errors import DibsError

    try:
        board.get(word)
    except DibsError:
        return False
    return True


def _add_one(ctx: Context, board: TaskBoard, fields: dict[str, Any], key: str | None) -> str:
    from dibs.errors import NotFound

    try:
        return board.add_many([fields], worker=ctx.worker, request_key=key)[0]
    except NotFound:
        # Perhaps they are abbreviated. An id that does not exist at all is an error here too.
        full = dict(fields)
        if "depends_on" in full:
            full["depends_on"] = [board.resolve(need) for need in full["depends_on"]]
        if "parent" in full:
            full["parent"] = board.resolve(full["parent"])
        if full == fields:
            raise
        fields.update(full)
        return board.add_many([fields], worker=ctx.worker, request_key=key)[0]


def _add_file(ctx: Context, args: Args) -> int:
    given = [option for _, option in _OPTIONS if getattr(args, option) not in (None, [], False)]
    if args.description or given:
        what = f"--{given[0].strip('_').replace('_', '-')}" if given else "a description"
        raise UsageError(f"add: --file and {what} do not go together", "write it into the file")
    from dibs.cli.taskfile import add_file

    ids = add_file(ctx.board, args.file, ctx.worker, args.key)
    if ctx.json:
        ctx.emit({"ids": ids, "total": len(ids)})
    else:
        from dibs.cli.render import number

        ctx.say(f"added {number(len(ids), 'task')}; see them: dibs list")
    return 0


# -- lists


def _empty(board: TaskBoard) -> str:
    if "lists of tasks" in getattr(board.store, "lacks", ()):
        return "nothing is held; take a task and its files: dibs acquire ID PATH…"
    return "the board is empty; add a task: dibs add 'what to do'"


def list_tasks(ctx: Context, args: Args) -> int:
    wanted = dict.fromkeys(args.status or (["all"] if args.all else ["open"]))
    statuses = list(dict.fromkeys(status for word in wanted for status in _GROUPS.get(word, (word,))))
    halves = {word == "ready" for word in wanted if word in ("ready", "waiting", "blocked")}
    only = halves.pop() if len(halves) == 1 and not wanted.keys() & _WHOLE_PENDING else None
    if args.mine and args.by is not None:
        raise UsageError("list: --mine and --by do not go together")
    by = ctx.worker.name if args.mine else args.by
    limit = _limit(args)
    offset = args.offset or 0
    if offset < 0:
        raise UsageError("list: --offset must not be negative")
    board = ctx.board
    parent = None if args.parent is None else board.resolve(args.parent)
    filters = {"label": args.label, "assigned_to": by, "parent": parent, "search": args.search}
    total: int | None
    if only is None:
        tasks, total = board.tasks(statuses, **filters, limit=limit, offset=offset)
        more = offset + len(tasks) < total
    else:
        tasks, total, more = _page(ctx, statuses, filters, only, limit, offset)
    kept = board.kept_by_files(tasks, ctx.worker)
    if ctx.json:
        from dibs.wire import page_json

        document = page_json(tasks, total, more)
        for task, shown in zip(tasks, document["tasks"], strict=True):
            shown["ready"] = task.is_ready and task.id not in kept
        ctx.emit(document)
        return 0
    if tasks:
        _print(ctx, tasks, kept)
    filtered = any(value is not None for value in (args.label, by, parent, args.search))
    ctx.say(_summary(board, statuses, filtered, len(tasks), total, offset, more))
    if kept:
        from dibs.cli.render import number

        wait = "waits" if len(kept) == 1 else "wait"
        ctx.say(f"{number(len(kept), 'task')} {wait} for files that somebody else holds; who: dibs locks")
    return 0


def _page(
    ctx: Context, statuses: Sequence[str], filters: dict[str, Any], ready: bool, limit: int, offset: int
) -> tuple[list[BoardTask], int | None, bool]:
    """A page on which pending tasks are only the ready ones, or only the others: (tasks, how many there are if that is
    known, are there more). The board does not tell the two apart, so whole pages are read until this one is full."""
    found: list[BoardTask] = []
    read, total = 0, 1
    while read < total and len(found) <= offset + limit:
        # As many as before: what comes before a page is walked over by the store, so pages of one size would take long.
        batch, total = ctx.board.tasks(statuses, **filters, limit=max(READ_AT_ONCE, read), offset=read)
        if not batch:
            break
        read += len(batch)
        kept = ctx.board.kept_by_files(batch, ctx.worker)
        found += [t for t in batch if t.status != "pending" or (t.is_ready and t.id not in kept) is ready]
    more = len(found) > offset + limit
    return found[offset : offset + limit], None if more else len(found), more


def _summary(
    board: TaskBoard, statuses: Sequence[str], filtered: bool, shown: int, total: int | None, offset: int, more: bool
) -> str:
    """What the list left out, and how to see it."""
    from dibs.cli.render import number

    if total is None:
        return f"{shown:,} shown, there are more; next: --offset {offset + shown}; all: --limit 0"
    if more:
        return f"{shown:,} of {total:,} shown; next: --offset {offset + shown}; all: --limit 0"
    if offset:
        return f"{shown:,} of {total:,} shown, the last ones"
    is_open = set(statuses) == set(_GROUPS["open"])
    if filtered:
        return f"{number(total, 'task')} found" + (" among the open ones; --all looks at all" if is_open else "")
    if not is_open:
        return number(total, "task")
    counts = board.counts()
    closed = sum(n for status, n in counts.items() if status in _GROUPS["closed"])
    if not closed:
        return f"{total:,} open" if total else _empty(board)
    failed = counts["failed"]  # type: ignore[index]
    return f"{total:,} open, {closed:,} closed" + (f" ({failed:,} failed)" if failed else "") + "; --all shows them"


def ready(ctx: Context, args: Args) -> int:
    limit = _limit(args)
    found = ctx.board.ready(ctx.worker, limit + 1)
    tasks, more = found[:limit], len(found) > limit
    if ctx.json:
        from dibs.wire import page_json

        ctx.emit(page_json(tasks, None if more else len(tasks), more))
        return 0
    if not tasks:
        if any(ctx.board.counts().values()):
            ctx.say("nothing to claim now; what stands in the way: dibs list")
        else:
            ctx.say(_empty(ctx.board))
        return 0
    _print(ctx, tasks)
    if more:
        ctx.say(f"the first {limit:,} shown, there are more; all: --all")
    else:
        ctx.say(f"{len(tasks):,} ready; take the first: dibs claim")
    return 0


def _limit(args: Args) -> int:
    limit: int | None = args.limit
    if limit is None:
        return NO_LIMIT if args.all else LIMIT
    if limit < 0:
        raise UsageError("--limit must not be negative")
    return limit or NO_LIMIT


def _print(ctx: Context, tasks: Sequence[BoardTask], held: Collection[str] = ()) -> None:
    from dibs.cli import render

    ctx.say("\n".join(render.tasks(tasks, ctx.width, ctx.color, held)))


# -- one task


def show(ctx: Context, args: Args) -> int:
    board = ctx.board
    task = ctx.by_id(args.id, board.get)
    reasons = board.reasons(task.id, ctx.worker)
    needs = [board.get(need) for need in task.depends_on]
    if ctx.json:
        from dibs.wire import event_json, reason_json, task_json

        document = task_json(task)
        document["blocked_by"] = [reason_json(reason) for reason in reasons]
        document["needs"] = [
            {"id": need.id, "status": str(need.status), "description": need.description} for need in needs
        ]
        document["history"] = [
            {key: value for key, value in event_json(event).items() if key != "data"}
            for event in board.changelog(task_id=task.id)
        ]
        ctx.emit(document)
        return 0

    now = board.now()
    events = board.recent(SHOWN_EVENTS + 1, task.id)
    for line in _sheet(ctx, task, needs, reasons, events, now):
        ctx.say(line)
    return 0


def _sheet(
    ctx: Context,
    task: BoardTask,
    needs: Sequence[BoardTask],
    reasons: Sequence[Reason],
    events: Sequence[Event],
    now: float,
) -> list[str]:
    from dibs.cli.render import BOLD, clock, cut, one_line, paint, safe, status, wrap
    from dibs.cli.words import did
    from dibs.times import FOREVER, ago, span

    width = ctx.width
    label, color = status(task, any(reason.code == "path" for reason in reasons))
    lines = [f"{paint(task.id, BOLD, ctx.color)}  {paint(label, color, ctx.color)}", *wrap(task.description, width)]

    def row(name: str, text: str) -> None:
        wrapped = wrap(text, width, " " * 13)
        lines.append(f"{name + ':':<13}{wrapped[0].lstrip()}")
        lines.extend(wrapped[1:])

    if task.status == "in_progress" and task.lease_expires_at is not None:
        left = task.lease_expires_at - now
        mine = ", you" if task.holder is not None and task.holder.is_same(ctx.worker) else ""
        lease = f"{span(left)} left of its lease" if left > 0 else "its lease has run out"
        if left > FOREVER / 2:
            lease = "until it is given back"
        row(
            "held by",
            f"{task.assigned_to} ({task.holder.kind if task.holder else 'agent'}{mine}), {lease}, token {task.token}",
        )
    elif task.status in ("pending", "in_progress"):
        why = "\n".join(reason.text for reason in reasons)
        row("claimable", f"no, {why}" if why else f"yes: dibs claim {quoted(task.id)}")
    if task.priority:
        row("priority", str(task.priority))
    for number, need in enumerate(needs):
        text = cut(f"{need.id}  {need.status.replace('_', ' ')}  {one_line(need.description)}", width - 13)
        lines.append((" " * 13 if number else f"{'needs:':<13}") + text)
    for number, step in enumerate(task.steps):
        box = {"completed": "[x]", "skipped": "[-]", "in_progress": "[>]"}.get(step.status, "[ ]")
        note = f" ({one_line(step.notes)})" if step.notes else ""
        text = cut(f"{box} {step.id} {one_line(step.title)}{note}", width - 13)
        lines.append((" " * 13 if number else f"{'steps:':<13}") + text)
    for blocker in task.blockers:
        if blocker.is_open:
            row("blocker", f"{blocker.id}: {blocker.reason} (by {blocker.raised_by}; dibs unblock {quoted(task.id)})")
    if task.paths:
        row("files", ", ".join(safe(path) for path in task.paths))
    if task.labels:
        row("labels", ", ".join(safe(label) for label in task.labels))
    if task.parent:
        row("part of", task.parent)
    if task.reserved != "any":
        row("reserved", "for an agent" if task.reserved == "agent" else "for a human")
    if task.review:
        row("review", "somebody else has to accept it")
    if task.attempts > 1 or task.max_attempts is not None:
        row(
            "attempts",
            str(task.attempts)
            + ("" if task.max_attempts is None else f" (may be given back {task.max_attempts} times)"),
        )
    if task.result is not None:
        row("result", task.result)
    made = f" by {task.created_by}" if task.created_by else ""
    if task.created_at:  # not every dialect's file says when
        row("added", f"{clock(task.created_at)}{made}")
    if task.completed_at is not None:
        row("closed" if task.status != "review" else "handed in", clock(task.completed_at))
    if events:
        lines.append("history:")
        if len(events) > SHOWN_EVENTS:
            lines.append(f"  earlier: dibs log --task {quoted(task.id)} --all")
        for event in events[-SHOWN_EVENTS:]:
            details = f": {one_line(event.details)}" if event.details else ""
            lines.append(cut(f"  {ago(event.time, now):<10}  {safe(event.worker)} {did(event)}{details}", width))
    return lines
