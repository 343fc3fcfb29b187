"""Looking a dialect's board over: which files it consists of, who holds its guard, and what is wrong in it.

For `dibs doctor` (`parts`) and `dibs check` (`findings`). Takes no guard, waits for nobody, and changes nothing. A
dialect adds to either by overriding `FileStore.report` and `FileStore.check`.
"""

from __future__ import annotations

import os
import time

from dibs.dialects.bilu_index import Finding
from dibs.errors import BoardUnusable, DependencyCycle
from dibs.model import Record
from dibs.times import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from dibs.dialects.filestore import FileStore
    from dibs.guards.holder import Holder

    Kind = Literal["file", "guard", "notes", "changelog"]

AGAIN = 0.2
"""Seconds after which a file or a guard that made no sense is read once more: some programs write in place."""
LONG = 600.0
"""Seconds for which nobody needs to write: whoever has a guard for longer may never give it back."""


class Part(Record):
    """One thing on the disk. `holder` is who has a guard, None if nobody has; `state` is a sentence for people, `about`
    says whom a guard keeps apart, and `stuck` why it will not go away by itself, if it will not."""

    __slots__ = ("kind", "path", "bytes", "holder", "state", "about", "stuck")

    def __init__(
        self,
        kind: Kind,
        path: str,
        bytes: int | None = None,
        holder: Holder | None = None,
        state: str = "",
        about: str = "",
        stuck: str = "",
    ) -> None:
        self.kind: Kind = kind
        self.path = path
        self.bytes = bytes
        self.holder = holder
        self.state = state
        self.about = about
        self.stuck = stuck


def parts(store: FileStore) -> list[Part]:
    """The documented files, the guards with their holders, dibs' own notes and the changelog."""
    found = [_file(path) for path in store._files()]
    found += _guards(store)
    found.append(Part("notes", store.companion.path, _size(store.companion.path), state=_notes(store)))
    if _size(store.log.path) is not None:
        found.append(Part("changelog", store.log.path, _size(store.log.path)))
    return found


def _guards(store: FileStore) -> list[Part]:
    guards: list[Any] = list(store.guards())
    holders: list[Holder | None] = [guard.holder() for guard in guards]
    if any(_stuck(guard, holder) for guard, holder in zip(guards, holders, strict=True)):
        time.sleep(AGAIN)  # its maker may be between making and writing it
        holders = [guard.holder() for guard in guards]
    found = []
    for guard, holder in zip(guards, holders, strict=True):
        is_ours = os.path.dirname(guard.path) == store.companion.folder
        about = "among dibs' own workers" if is_ours else "among all who write"
        state = "held" if holder else "free"
        found.append(Part("guard", guard.path, None, holder, state, about, _stuck(guard, holder)))
    return found


def _stuck(guard: Any, holder: Holder | None) -> str:
    """Why nobody can write, and nothing will change that by itself; empty if something will. A kernel lock ends with
    its process; the other guards are broken by the rule of their document, and never otherwise."""
    from dibs.dialects.workitems_locks import ItemGuard, read
    from dibs.guards import LockDirGuard, LockFileGuard
    from dibs.guards.holder import ALIVE, DEAD, UNKNOWN

    if holder is None or holder.state == DEAD:
        return ""
    is_long = holder.age is None or holder.age > LONG
    if isinstance(guard, LockDirGuard):
        if holder.state == UNKNOWN and (holder.pid is None or is_long):
            return f"{holder.why}, and only a lock whose process is provably gone is broken"
        if holder.state == ALIVE and is_long:
            return f"{holder.why}, though writing takes no time; it may be another process that got its number"
    elif isinstance(guard, LockFileGuard):
        if holder.state == UNKNOWN:
            return holder.why
        if holder.age is not None and holder.age < -LONG:
            return f"{holder.why}, and only its age would end it"
    elif isinstance(guard, ItemGuard):
        lock = read(guard.path)
        if lock is not None and lock.data is None:
            return "it cannot be read, and so it counts as live"
        if lock is not None and holder.state == UNKNOWN and time.time() - lock.since > LONG:
            return holder.why
        ends = lock.record.expires if lock is not None else None
        if ends is not None and ends - time.time() > LONG:
            return f"it ends only in {span(ends - time.time())}, though writing takes no time"
    return ""


def findings(store: FileStore) -> list[Finding]:
    """What keeps the board from being read, else what can never be claimed."""
    try:
        rows = _read(store)
    except BoardUnusable:
        time.sleep(AGAIN)
        try:
            rows = _read(store)
        except BoardUnusable as error:
            return [damage(store, error)]
    found = _doubts(store)
    for task in rows.values():
        for need in task.depends_on:
            if need not in rows:
                text = f"task {task.id} depends on {need}, which is not on the board; it waits for it"
                found.append(Finding(_named(store, None), 0, "warning", text))
    from dibs.board.add import refuse_circles

    try:
        refuse_circles(list(rows.values()))
    except DependencyCycle as error:
        text = error.message.replace("would wait", "wait")
        found.append(Finding(_named(store, None), 0, "error", text))
    return found


def _doubts(store: FileStore) -> list[Finding]:
    """What document 001's files leave open. (The JSON dialects refuse or name theirs when they are read.)"""
    found: list[Finding] = []
    if store.dialect == "workitems":
        from dibs import fs
        from dibs.dialects.progress_check import doubts

        for path in store._files():
            found += doubts(fs.read_file(path) or b"", _named(store, path))
    return found


def damage(store: FileStore, error: BoardUnusable) -> Finding:
    """A file that cannot be used, as a finding: what the message says of the place goes into the place."""
    line, path = error.fields.get("line"), error.fields.get("path")
    named = _named(store, str(path) if path else None)
    text = error.message.removesuffix("; the file was left as it is").removesuffix("; it was left alone")
    for place in (os.path.join(store.folder, named), named):
        for between in (": ", ", ", " cannot be used: "):
            text = text.removeprefix(place + between)
    for between in (": ", ", "):
        text = text.removeprefix(f"line {line}{between}")
    return Finding(named, line if isinstance(line, int) else 0, "error", text)


def _read(store: FileStore) -> dict[str, Any]:
    with store.turn:
        store._forget()
        store.refresh()
        return dict(store.tables.tasks)


def _named(store: FileStore, path: str | None) -> str:
    """A file by its path within the board's folder; without one, the board's only file, or the folder."""
    if path is None:
        files = store._files()
        path = files[0] if len(files) == 1 else store.folder
    inside = os.path.join(store.folder, path)
    return os.path.relpath(inside, store.folder) if inside.startswith(store.folder + os.sep) else path


def _file(path: str) -> Part:
    try:
        count = len(os.listdir(path))
        return Part("file", path, state="1 file" if count == 1 else f"{count:,} files")
    except NotADirectoryError:
        return Part("file", path, _size(path))
    except OSError as error:
        return Part("file", path, state="not there" if not os.path.lexists(path) else str(error.strerror))


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _notes(store: FileStore) -> str:
    """How dibs' own notes stand. Whatever is wrong with them, the documented files decide."""
    from dibs import fs
    from dibs.jsontext import loads

    path = store.companion.path
    try:
        data = fs.read_marker(path, 1 << 26)
    except OSError as error:
        return f"cannot be read ({error.strerror or error}): claims count as made by hand"
    if data is None:
        return "not there: claims count as made by hand"
    try:
        found = loads(data.decode("utf-8"))
        claims = found["claims"]
        live = sum("expires" in entry for entry in claims.values())
        note = found.get("redo")
        is_over = not note or not note["lines"]
        is_over = is_over or store.log.holds([line.encode() for line in note["lines"]], int(note["at"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return "damaged: it is left out of account, and claims count as made by hand"
    ended = len(claims) - live
    state = f"knows {live:,} live and {ended:,} ended claim{'' if ended == 1 else 's'}"
    return state if is_over else f"{state}; a write is under way, or was interrupted: the next one settles it"
