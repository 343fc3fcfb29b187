"""`dibs copy FROM TO`: a whole board into another kind of board, and exactly what did not come along.
`dibs move FROM TO`: the same between boards that hold everything, and the old one says where it went."""

from __future__ import annotations

from contextlib import closing

from dibs import copying
from dibs.address import DIALECTS, keep_out_of_git, kind_of, open_store
from dibs.board import TaskBoard
from dibs.cli.args import UsageError
from dibs.cli.progress import Progress
from dibs.cli.render import cut, number, pad, safe
from dibs.errors import DibsError, NoBoard, NotAllowed, Unsupported, quoted
from dibs.rules import tasks as rules
from dibs.stores.sqlite.store import SqliteStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import Event

SHOWN = 5
"""Ids that the text names for each thing that was left out; --json has them all."""


def copy(ctx: Context, args: Args) -> int:
    _refuse_board_option(ctx, "copy")
    used = _used()
    with _source(ctx, getattr(args, "from"), args.to) as source, Progress(ctx, "copying") as progress:
        target, made = _target(ctx, source, args.to, progress)
        with target:
            report = copying.copy(source, target, ctx.worker, progress.tell, rehearsed=made)
    from_url, to_url = source.url, target.url
    if made:
        keep_out_of_git(to_url)
    if ctx.json:
        ctx.emit({**_document(from_url, to_url, made, report), "used_here": _used()})
        return 0
    for line in _text("copied", from_url, to_url, made, report, ctx.width):
        ctx.say(line)
    now = _used()
    ctx.say("the source is still there, unchanged")
    if now != to_url:
        ctx.say(f"  to work on the copy: export DIBS_BOARD={quoted(to_url)}")
    if (told := _switched(used, now)) is not None:
        ctx.say(told)
    return 0


def move(ctx: Context, args: Args) -> int:
    """Copy with everybody else locked out of the source, then mark that as moved, so that nobody works on there."""
    _refuse_board_option(ctx, "move")
    with _source(ctx, getattr(args, "from"), args.to) as source, Progress(ctx, "moving") as progress:
        if not isinstance(source.store, SqliteStore) or kind_of(args.to) in DIALECTS:
            raise Unsupported(
                "a board is moved from SQLite, into SQLite or PostgreSQL; nothing was moved",
                hint=f"copy it (dibs copy {quoted(source.url)} {quoted(args.to)}), then tell its workers where to go",
            )
        target, made = _target(ctx, source, args.to, progress)
        report = copying.Report()

        def fill() -> Event:
            nonlocal report
            report = copying.copy(source, target, ctx.worker, progress.tell, rehearsed=made)
            return rules.event("moved_board", ctx.worker, None, target.url)

        # The source is read through its own connection while this one keeps everybody out.
        with target, closing(SqliteStore(source.store.path)) as store:
            store.retire(fill)
    if made:
        keep_out_of_git(target.url)
    if ctx.json:
        ctx.emit({**_document(source.url, target.url, made, report), "moved": True})
        return 0
    for line in _text("moved", source.url, target.url, made, report, ctx.width):
        ctx.say(line)
    ctx.say("every command on the old board now names the new one; its file is kept")
    if _used() != target.url:
        ctx.say(f"  to go on: export DIBS_BOARD={quoted(target.url)}")
    return 0


def _refuse_board_option(ctx: Context, verb: str) -> None:
    if ctx.url is not None:
        raise UsageError(f"{verb} takes its two boards as words, not by --board", f"dibs {verb} FROM TO")


def _used() -> str | None:
    """The board that dibs uses in this folder when none is named."""
    try:
        store = open_store(None)
    except DibsError:
        return None
    store.close()
    return store.url


def _switched(before: str | None, now: str | None) -> str | None:
    """What has changed for whoever works here, by a board that was not there before."""
    if now is None or now == before:
        return None
    told = f"dibs in this folder now uses {safe(now)}"
    if before is None:
        return told
    rest = "before it used" if before.startswith("sqlite:") else "workers by hand still use"
    return f"{told}; {rest} {safe(before)}"


def _source(ctx: Context, url: str, to: str) -> TaskBoard:
    try:
        return TaskBoard(store=open_store(url, agent=ctx.worker.name))
    except NoBoard as error:
        from dibs.dialects.discover import at

        found = at(url) if ":" not in url else None
        if "url" in error.fields:
            raise  # one in a database, which has said where to look
        error.hint = "name a board that is there: dibs copy FROM TO"
        if found is not None:
            meant = f"{found[0]}:{found[1]}"
            error.hint = f"there is another board: dibs copy {quoted(meant)} {quoted(to)}"
        raise


def _target(ctx: Context, source: TaskBoard, url: str, progress: Progress) -> tuple[TaskBoard, bool]:
    """The board to fill, and whether it is made for this. Before it is made, the copy is tried elsewhere."""
    name = ctx.worker.name
    try:
        return TaskBoard(store=open_store(url, agent=name)), False
    except NoBoard:
        copying.rehearse(source, url, ctx.worker, progress.tell)
    try:
        # Not `TaskBoard.open`, which would begin a changelog: this board's begins with the copy.
        return TaskBoard(store=open_store(url, create=True, agent=name)), True
    except NotAllowed as error:
        if url.startswith("workflow:"):
            error.hint = f"copy as a planner: dibs --as planner-1 copy {quoted(source.url)} {quoted(url)}"
        raise


def _document(source: str, target: str, made: bool, report: copying.Report) -> dict[str, Any]:
    return {
        "from": source,
        "to": target,
        "created": made,
        "tasks": report.tasks,
        "exact": report.exact,
        "left_out": [
            {"what": what, "count": len(ids), "ids": ids, "became": report.became.get(what)}
            for what, ids in report.left_out.items()
        ],
        "renamed": report.renamed,
        "history": {"copied": report.events if report.exact else 0, "left_out": report.history_left_out},
        "messages": {"copied": report.messages, "left_out": report.messages_left_out},
    }


def _text(verb: str, source: str, target: str, made: bool, report: copying.Report, width: int) -> Iterator[str]:
    new = "the new board " if made else ""
    yield f"{verb} {number(report.tasks, 'task')} from {safe(source)}"
    yield f"  to {new}{safe(target)}"
    if report.exact:
        told = number(report.messages, "message")
        yield f"  exactly: claims, locks, {told}, and the changelog up to {report.events:,}"
        return
    if report.left_out:
        yield "left out:"
        first = max(map(len, report.left_out))
        counts = max(len(f"{len(ids):,}") for ids in report.left_out.values())
        for what, ids in report.left_out.items():
            named = ", ".join(map(safe, ids[:SHOWN])) + (", …" if len(ids) > SHOWN else "")
            became = report.became.get(what)
            now = f" ({became})" if became and " " in became else f" (now {became})" if became else ""
            yield cut(f"  {pad(what, first)}  {len(ids):>{counts},}{now}: {named}", width)
    else:
        yield "all that dibs knows of the tasks was copied"
    if report.renamed:
        yield f"{number(len(report.renamed), 'task')} got another id:"
        for before, after in list(report.renamed.items())[:SHOWN]:
            yield cut(f"  {safe(before)} is {safe(after)}", width)
        if len(report.renamed) > SHOWN:
            yield f"  and {len(report.renamed) - SHOWN:,} more: --json lists them"
    yield from _rest(report)


def _rest(report: copying.Report) -> Iterator[str]:
    if report.messages:
        yield f"messages: {report.messages:,} copied"
    elif report.messages_left_out:
        yield f"messages: none copied, {report.messages_left_out:,} stay on the source"
    if report.history_left_out:
        entries = "1 entry" if report.history_left_out == 1 else f"{report.history_left_out:,} entries"
        yield f"history: {entries} of the changelog stay{'s' * (report.history_left_out == 1)} on the source"
