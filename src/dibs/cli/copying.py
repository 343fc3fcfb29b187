"""`dibs copy FROM TO`: a whole board into another kind of board, and exactly what did not come along."""

from __future__ import annotations

from dibs import copying
from dibs.address import keep_out_of_git, open_store
from dibs.board import TaskBoard
from dibs.cli.args import UsageError
from dibs.cli.progress import Progress
from dibs.cli.render import cut, number, pad, quoted, safe
from dibs.errors import DibsError, NoBoard, NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.cli.args import Args
    from dibs.cli.context import Context

SHOWN = 5
"""Ids that the text names for each thing that was left out; --json has them all."""


def copy(ctx: Context, args: Args) -> int:
    if ctx.url is not None:
        raise UsageError("copy takes its two boards as words, not by --board", "dibs copy FROM TO")
    used = _used()
    with _source(ctx, getattr(args, "from"), args.to) as source:
        with Progress(ctx, "copying") as progress:
            target, made = _target(ctx, source, args.to, progress)
            with target:
                report = copying.copy(source, target, ctx.worker, progress.tell, rehearsed=made)
        with target:
            if made:
                keep_out_of_git(target.url)
            if ctx.json:
                ctx.emit({**_document(source, target, made, report), "used_here": _used()})
            else:
                for line in _text(source, target, made, report, ctx.width):
                    ctx.say(line)
                now = _used()
                ctx.say("the source is still there, unchanged")
                if now != target.url:
                    ctx.say(f"  to work on the copy: export DIBS_BOARD={quoted(target.url)}")
                if (told := _switched(used, now)) is not None:
                    ctx.say(told)
    return 0


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


def _document(source: TaskBoard, target: TaskBoard, made: bool, report: copying.Report) -> dict[str, Any]:
    return {
        "from": source.url,
        "to": target.url,
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


def _text(source: TaskBoard, target: TaskBoard, made: bool, report: copying.Report, width: int) -> Iterator[str]:
    new = "the new board " if made else ""
    yield f"copied {number(report.tasks, 'task')} from {safe(source.url)}"
    yield f"  to {new}{safe(target.url)}"
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
