"""The changelog and messages: log, tell, inbox."""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.errors import DibsError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import Event, Message

LIMIT = 50
MOST_MESSAGES = 1000


def log(ctx: Context, args: Args) -> int:
    board = ctx.board
    task_id = None if args.task is None else ctx.by_id(args.task, board.get).id
    limit = args.limit
    if limit is not None and limit < 0:
        raise UsageError("log: --limit must not be negative")
    if limit is None:
        limit = 0 if args.all or ctx.json else LIMIT
    after = args.after or 0
    by = args.worker
    if limit and args.after is None and not args.all:
        events = board.recent(limit, task_id) if by is None else _last_of(board.changelog(task_id=task_id), by, limit)
        if events and events[0].seq > 1 and task_id is None and by is None and not ctx.json:
            _say_cut(ctx, f"the last {len(events):,}, up to number {events[-1].seq:,}; all: dibs log --all")
        elif len(events) == limit and not ctx.json:
            _say_cut(ctx, f"the last {len(events):,}; all: the same with --all")
        _print(ctx, events)
        after = events[-1].seq if events else 0
        if not args.follow:
            return 0
        limit = 0
    shown = 0
    for event in board.changelog(after, task_id=task_id, follow=args.follow):
        if by is not None and event.worker != by:
            continue
        if limit and shown == limit:
            _say_cut(ctx, f"{shown:,} shown, there are more; next: --after {after}")
            break
        _print(ctx, [event])
        shown, after = shown + 1, event.seq
        if args.follow:
            ctx.flush()
    return 0


def _last_of(events: Iterable[Event], worker: str, most: int) -> list[Event]:
    from collections import deque

    return list(deque((event for event in events if event.worker == worker), most))


def _say_cut(ctx: Context, text: str) -> None:
    """What was left out: part of the output for people, a remark beside the JSON lines."""
    if ctx.json:
        ctx.note(f"dibs: {text}")
    else:
        ctx.say(text)


def _print(ctx: Context, events: Iterable[Event]) -> None:
    if ctx.json:
        from dibs.wire import event_json

        for event in events:
            ctx.emit(event_json(event))
        return
    import time

    from dibs.cli.render import DIM, cut, one_line, pad, paint, safe
    from dibs.cli.words import did

    for event in events:
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(event.time))
        what = did(event)
        if event.task_id:
            what += f" of {event.task_id}" if event.step_id else f" {event.task_id}"
        details = f": {one_line(event.details)}" if event.details else ""
        number = f"{event.seq:>6}  {when}"
        text = f"  {pad(cut(safe(event.worker), 20), 10)}  {what}{details}"
        ctx.say(paint(number, DIM, ctx.color) + (text if ctx.is_endless else cut(text, ctx.width - len(number))))


def tell(ctx: Context, args: Args) -> int:
    words = list(args.words)
    if args.all and not words:
        raise UsageError("tell: the message is missing", "dibs tell --all 'what to say'")
    if not words:
        raise UsageError("tell: NAME and the message are missing", "dibs tell worker-2 'what to say'")
    name = None if args.all else words.pop(0)
    if not words:
        raise UsageError("tell: the message is missing", f"dibs tell {quoted(name or '')} 'what to say'")
    to = None if name == "all" else name
    message = ctx.board.tell(ctx.text(words), to, worker=ctx.worker)
    note = "" if to is None else _remark(ctx, to)
    if ctx.json:
        from dibs.wire import message_json

        ctx.emit(message_json(message) | ({"note": note} if note else {}))
    else:
        from dibs.cli.render import cut, safe, wrap

        ctx.say(cut(f"told {'everybody' if to is None else safe(to)}", ctx.width))
        for line in wrap(note, ctx.width) if note else ():
            ctx.say(line)
    return 0


def _remark(ctx: Context, to: str) -> str:
    from dibs.recipient_hints import if_unknown

    try:
        return if_unknown(ctx.board, to, ctx.worker)
    except DibsError:
        return ""  # it is sent, whatever comes of what only helps


def inbox(ctx: Context, args: Args) -> int:
    messages = _receive(ctx, args.peek, args.wait or 0)
    more = len(messages) >= MOST_MESSAGES
    if ctx.json:
        from dibs.wire import message_json

        ctx.emit({"messages": [message_json(message) for message in messages], "more": more})
    else:
        from dibs.cli.render import BOLD, clock, cut, paint, safe, wrap

        for message in messages:
            to = "" if message.to is not None else " to everybody"
            rest = f"{to}, {clock(message.time)}:"
            sender = cut(safe(message.sender), ctx.width - len(rest))
            ctx.say(paint(sender, BOLD, ctx.color) + rest)
            for line in wrap(message.content, ctx.width):
                ctx.say(line)
        if more:
            ctx.say(f"{len(messages):,} shown, there may be more: dibs inbox again, or dibs log --all")
        if not messages:
            ctx.say("no new messages")
    return 3 if args.wait and not messages else 0


def _receive(ctx: Context, peek: bool, wait: float) -> list[Message]:
    board, worker = ctx.board, ctx.worker
    last = board.recent(1) if wait else []
    messages = board.inbox(worker, peek=peek, limit=MOST_MESSAGES)
    if messages or not wait:
        return messages
    for event in board.changelog(last[-1].seq if last else 0, follow=True, timeout=wait):
        if event.action == "sent_message" and (messages := board.inbox(worker, peek=peek, limit=MOST_MESSAGES)):
            break
    return messages
