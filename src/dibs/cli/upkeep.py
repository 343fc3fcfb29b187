"""Looking after a board: recover what the dead have left, and carry a whole board out and in again."""

from __future__ import annotations

import os
import sys

from dibs import fs, transfer
from dibs.address import DIALECTS, keep_out_of_git, masked, open_store
from dibs.board import TaskBoard
from dibs.cli.args import UsageError
from dibs.cli.context import write
from dibs.cli.progress import Progress
from dibs.cli.render import cut, number, one_line, safe
from dibs.copying import copy, is_dialect
from dibs.errors import BoardUnusable, DibsError, Invalid, NoBoard, Unsupported, quoted
from dibs.stores.rows import damaged
from dibs.stores.sqlite.store import side_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.dialects.filestore import FileStore


def recover(ctx: Context, args: Args) -> int:
    with TaskBoard.open(ctx.url, worker=ctx.worker) as board:
        with board.store.read() as tx:
            before, held = tx.last_event(), tx.locks()
        if sum(map(bool, (args.worker, args.task, args.all))) > 1:
            raise UsageError("recover: give one of --worker, --task and --all")
        named = board.resolve(args.task) if args.task else None
        ids = board.recover(name=args.worker, task_id=named, everyone=args.all)
        tasks = [board.get(task_id) for task_id in ids]
        why: dict[str | None, str] = {}
        # Locks that came with a task go with it, and have no event of their own.
        given = set(ids)
        freed = dict.fromkeys((lock.pattern, lock.token) for lock in held if lock.task_id in given)
        for event in board.changelog(before):
            if event.task_id in given:
                why.setdefault(event.task_id, event.details or "")
            elif event.action == "unlocked_files":
                freed |= dict.fromkeys((pattern, token) for pattern, token in (event.data or {}).get("unlocks", ()))
        locks = [pattern for pattern, _ in freed]
    if ctx.json:
        from dibs.wire import task_json

        given_back = [task_json(task) | {"why": why.get(task.id)} for task in tasks]
        ctx.emit({"tasks": given_back, "locks": locks, "total": len(ids), "more": False})
        return 0
    for task in tasks:
        state = "pending again" if task.status == "pending" else task.status.replace("_", " ")
        ctx.say(cut(f"{task.id}  {state}: {one_line(task.description)}", ctx.width))
        ctx.say(cut(f"    {one_line(why.get(task.id, ''))}", ctx.width))
    for pattern in locks:
        ctx.say(cut(f"{safe(pattern)}  no longer locked", ctx.width))
    if not tasks and not locks:
        whose = f"{safe(args.worker)} holds nothing" if args.worker else "nobody who is gone holds anything"
        ctx.say(f"nothing to recover: {whose}")
    else:
        ctx.say(f"given back: {number(len(tasks), 'task')}, {number(len(locks), 'lock')}")
    return 0


# -- export


def export(ctx: Context, args: Args) -> int:
    try:
        return _export(ctx, args)
    except BoardUnusable as error:
        if not error.fields.get("damaged"):
            raise
        return _save_rest(ctx, args, error)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, DibsError) or not ctx.board.url.startswith("sqlite:"):
            raise
        return _save_rest(ctx, args, damaged("what is on it", error))


def _save_rest(ctx: Context, args: Args, error: BoardUnusable) -> int:
    """Of a board that is damaged, export what can still be read."""
    from dibs.salvage import Salvage

    path = str(error.fields.get("path") or ctx.board.url.removeprefix("sqlite:"))
    try:
        rest = Salvage(path)
    except Exception:
        raise error from None
    if not any(rest.counts):
        raise error
    try:
        transfer.check(rest)
        usable = True
    except DibsError:
        usable = False
    if args.file in (None, "-"):
        for line in rest.lines():
            write(sys.stdout, line + "\n")
    else:
        _refuse_parts(_parts(path), args.file, args.force)
        _write_file(rest.lines(), args.file, args.force)
    tasks, events = rest.counts
    gone = ", ".join(number(count, kind[:-1]) for kind, count in rest.lost.items() if count)
    ctx.note(f"dibs: {safe(error.message)}")
    ctx.note(f"dibs: exported what could be read: {number(tasks, 'task')}, {number(events, 'event')}")
    ctx.note(f"dibs: lost is at least: {gone}" if gone else "dibs: nothing was found to be lost")
    if not usable:
        ctx.note("dibs: that is for reading only: dibs import will refuse it")
    return 1


def _export(ctx: Context, args: Args) -> int:
    if args.file in (None, "-"):
        for line in _kept(_exportable(ctx)[0]):
            write(sys.stdout, line)
        return 0
    _refuse_target(ctx.board, args.file, args.force)
    board, left_out = _exportable(ctx)
    lines = _write_file(transfer.dump(board), args.file, args.force)
    if ctx.json:
        document = {"file": os.path.abspath(args.file), "board": ctx.board.url, "lines": lines}
        ctx.emit(document | ({"left_out": left_out} if left_out else {}))
    else:
        ctx.say(f"wrote {number(lines, 'line')} to {safe(args.file)}")
        new = _beside(ctx.board.url)
        told = f"  to restore it: dibs --board {quoted(new)} import {quoted(safe(args.file))}"
        ctx.say(told if new.startswith("postgresql:") else cut(told, ctx.width))
    return 0


def _kept(board: TaskBoard) -> Iterator[str]:
    """The lines of an export, all read before the first is given: whoever pages through them may take hours, and the
    board's transaction must not."""
    from tempfile import TemporaryFile, gettempdir

    with TemporaryFile("w+", encoding="ascii", newline="\n") as kept:
        try:
            kept.writelines(line + "\n" for line in transfer.dump(board))
            kept.seek(0)
        except OSError as error:
            if isinstance(error, DibsError):
                raise
            raise Invalid(
                f"cannot keep the export in {gettempdir()} until it is read: {error.strerror or error}",
                hint="export to a file: dibs export FILE; or name a folder with more space in TMPDIR",
            ) from error
        yield from kept


def _beside(url: str) -> str:
    """Where an export of this board could be restored, beside it: an example."""
    if not url.startswith("postgresql:"):
        return "sqlite:new.db"
    from dibs.stores.postgres.addresses import beside

    return beside(url, "new")


def _exportable(ctx: Context) -> tuple[TaskBoard, dict[str, list[str]]]:
    """The board or, of one in a dialect's files, a copy with a history that gives its tasks; and what that lacks."""
    if not is_dialect(ctx.board):
        return ctx.board, {}
    copied = TaskBoard()
    report = copy(ctx.board, copied, ctx.worker)
    if not ctx.json:
        for what, ids in report.left_out.items():
            named = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
            ctx.note(f"dibs: left out: {what}: {safe(named)}")
        for before, after in report.renamed.items():
            ctx.note(f"dibs: {safe(before)} is {after} in the export")
    return copied, report.left_out


def _write_file(export: Iterator[str], path: str, force: bool) -> int:
    """Write an export under another name, make it durable, then give it its name: whole, or not at all."""
    draft = f"{path}.tmp-{os.getpid()}"
    lines = 0
    try:
        with open(draft, "x", encoding="ascii", newline="\n") as file:
            for line in export:
                file.write(line + "\n")
                lines += 1
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(draft, path)
        else:
            _name_new(draft, path)
        fs.sync_directory(os.path.dirname(path))
    except OSError as error:
        if isinstance(error, DibsError):
            raise
        raise Invalid(
            f"cannot write {masked(path)}: {error.strerror or error}; nothing was exported",
            hint="name a file that you may create",
        ) from error
    finally:
        try:
            os.unlink(draft)
        except OSError:
            pass  # renamed, or never made
    return lines


def _refuse_target(board: TaskBoard, path: str, force: bool) -> None:
    if is_dialect(board):
        store: FileStore = board.store  # type: ignore[assignment]
        parts: list[str] = [part.path for part in store.report()]
    else:
        parts = _parts(board.url.removeprefix("sqlite:"))
    _refuse_parts(parts, path, force)


def _parts(own: str) -> list[str]:
    return [own, own + "-wal", own + "-shm", *side_files(own)]


def _refuse_parts(parts: list[str], path: str, force: bool) -> None:
    if os.path.realpath(path) in [os.path.realpath(part) for part in parts]:
        raise Invalid(f"{path} belongs to the board itself", hint="export to another file: dibs export board.jsonl")
    if os.path.isdir(path):
        raise Invalid(
            f"{path} is a folder", hint=f"name a file: dibs export {quoted(os.path.join(path, 'board.jsonl'))}"
        )
    if os.path.lexists(path) and not force:
        raise _exists(path)


def _exists(path: str) -> Invalid:
    return Invalid(f"{path} exists already; nothing was exported", hint="name another file, or replace it with --force")


def _name_new(draft: str, path: str) -> None:
    """Give a file its name unless somebody else has taken that in the meantime."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise _exists(path) from None
        os.replace(draft, path)


# -- import


def import_(ctx: Context, args: Args) -> int:
    _refuse_dialect(ctx, args.file)
    if args.file == "-":
        if sys.stdin is None:
            raise Invalid("there is no stdin to read an export from")
        return _import(ctx, sys.stdin)
    try:
        with open(args.file, encoding="utf-8") as file:
            return _import(ctx, file)
    except OSError as error:
        if isinstance(error, DibsError):
            raise
        raise Invalid(
            f"cannot read {masked(args.file)}: {error.strerror or error}",
            hint="give an export: dibs import board.jsonl",
        ) from error


def _refuse_dialect(ctx: Context, file: str) -> None:
    """An export is a history, for which no dialect has a place. Nothing is made, and nothing read, to find that out."""
    named = ctx.url or os.environ.get("DIBS_BOARD") or ""
    dialect, colon, _ = named.partition(":")
    if not colon or dialect not in DIALECTS:
        try:
            named = ctx.board.url
        except NoBoard:
            return
        if not is_dialect(ctx.board):
            return
        dialect = named.partition(":")[0]
    raise Unsupported(
        f"an export is a whole history, and a {dialect} board has no place for one; nothing was imported",
        hint=f"import it into another board, then copy that: dibs --board sqlite:new.db import {quoted(file)}, "
        f"dibs copy sqlite:new.db {quoted(named)}",
        capability="histories",
    )


def _import(ctx: Context, file: TextIO) -> int:
    if not file.seekable():
        from tempfile import TemporaryFile

        # It is gone over several times, and may be larger than memory.
        with TemporaryFile("w+", encoding="utf-8", newline="") as kept:
            kept.writelines(_text(file))
            return _import(ctx, kept)
    made = False
    with Progress(ctx, "importing") as progress:
        export = transfer.Export(_Lines(file), progress.tell)  # before a board is made, which would stay behind empty
        try:
            board = ctx.board
        except NoBoard:
            # Not `TaskBoard.open`, which would begin a changelog: this board's is in the export.
            board, made = TaskBoard(store=open_store(ctx.url, create=True)), True
        try:
            tasks = transfer.load(board, export, progress.tell)
        except BaseException:
            if made:
                board.close()
            raise
    try:
        with board.store.read() as tx:
            events = tx.last_event()
        url = board.url
        if made:
            keep_out_of_git(url)
    finally:
        if made:
            board.close()
    if ctx.json:
        ctx.emit({"board": url, "created": made, "tasks": tasks, "last_event": events})
    else:
        new = "the new board " if made else ""
        ctx.say(f"imported {number(tasks, 'task')}, and the changelog up to {events:,}, into {new}{safe(url)}")
    return 0


class _Lines:
    """The lines of a file, from its beginning each time."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        return _text(self._file)


def _text(file: TextIO) -> Iterator[str]:
    try:
        for line in file:  # noqa: UP028 - `yield from` closes a file of which not every line was wanted
            yield line
    except UnicodeDecodeError:
        raise Invalid("the file is not text in UTF-8, so it is no export; nothing was imported") from None
