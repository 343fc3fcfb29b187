"""Writing a dialect's files so that a crash leaves nothing half done.

`commit`: encode what has changed; note in the companion which files are to become what, what the companion said before,
and the changelog's new lines (the *note*); replace the files one by one, each whole; append the lines last. Right
before a file is replaced the guard must still be ours, and the file the one that was read. Right after it the guard
must be ours too; if not, the writer slept in between, and what it overwrote may be another's: it is told so.

`finish`, by the next writer, under the guard: if the lines are in the changelog, the write was finished. If no file has
become what it was to become, nothing was begun, and the companion goes back to what it said. Otherwise the rest of the
files and lines follow. Where somebody has written by hand since, the rows tell whether the write had been made; a file
that is as it was, though one after it has become what it was to become, has been put back by hand, and stays so.
"""

from __future__ import annotations

import os
from binascii import crc32

from dibs import fs
from dibs.errors import Busy, DibsError, OutcomeUnknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    from dibs.dialects.companion import Companion
    from dibs.dialects.eventlog import EventLog
    from dibs.dialects.filetx import DialectTx
    from dibs.errors import BoardUnusable
    from dibs.model import BoardTask
    from dibs.stores.memory import Tables

    class Guard(Protocol):
        """The document's critical section around one read-modify-write."""

        def acquire(self, timeout: float | None = None) -> None: ...

        def confirm(self) -> bool: ...

        def release(self) -> None: ...


class FileWriting:
    """What a store needs besides for this is named here, and filled in by `FileStore` and its dialects."""

    url: str
    folder: str
    durable: bool
    tables: Tables
    companion: Companion
    log: EventLog
    _noted: set[str]
    _unsure: tuple[list[bytes], int] | None
    _printed: tuple[bytes, str] | None = None

    def _encode(self, tx: DialectTx) -> dict[str, bytes | None]:
        """The files that this transaction changes, with their new content (None: removed), in the order of writing."""
        raise NotImplementedError

    def is_own_file(self, path: str) -> bool:
        """Is this a file that this board writes?"""
        raise NotImplementedError

    def _seen(self, path: str) -> bytes | None:
        """The content of a file as this transaction read it; None if there was none."""
        raise NotImplementedError

    def _written(self, files: Mapping[str, bytes | None]) -> None:
        """The files are in place: remember them, so that the next load need not decode what we wrote ourselves."""

    def _load(self, noted: set[str]) -> None:
        raise NotImplementedError

    def unusable(self, error: OSError, so: str = "") -> BoardUnusable:
        raise NotImplementedError

    def commit(self, tx: DialectTx, guard: Guard) -> None:
        files = self._encode(tx)
        undo = {"claims": {i: self.companion.claims.get(i) for i in tx.touched}, "requests": tx.remembered}
        undo["rows"] = {i: [_outline(before), _outline(self.tables.tasks.get(i))] for i, before in tx.touched.items()}
        self.companion.note(self.tables.tasks[i] for i in tx.touched if i in self.tables.tasks)
        self.companion.only(self.tables.tasks)
        lines = self.log.encode(tx.appended)
        if files or lines:
            self.companion.redo = undo | self._redo(files, lines)
        try:
            self.log.require(lines)
            self.companion.save()
            for path, data in files.items():
                self._put_file(path, data, guard, self._seen(path))
            self._written(files)
            self.log.append(lines)
        except OSError as error:
            if isinstance(error, DibsError):
                raise
            raise self._broken(files, error) from error

    def _broken(self, files: Mapping[str, bytes | None], error: OSError) -> DibsError:
        """What to say when the system would not write: the files show whether the change was made all the same."""
        why = f"{error.filename2 or error.filename or self.folder}: {error.strerror or error}"
        if any(_look(path) == data for path, data in files.items()):
            return OutcomeUnknown(
                f"the change was made, but not all of it could be written ({why})",
                hint="the next write finishes it; look before you do it again: dibs list --all",
            )
        return self.unusable(error, "nothing was changed, and nothing is tried again by itself")

    def _put_file(self, path: str, data: bytes | None, guard: Guard, was: bytes | None) -> None:
        name = os.path.relpath(path, self.folder)

        def confirm() -> None:
            if not guard.confirm():
                raise Busy(
                    f"somebody took the guard of {self.url} away while we held it; {name} was not written",
                    hint="nothing is lost; try again, and find out who breaks live locks: dibs doctor",
                )
            if not self._is_as_read(path, was):
                raise Busy(
                    f"somebody changed {name} while we held the guard of {self.url}; it was not written",
                    hint="nothing is lost; try again, and find out who writes without the guard",
                )

        if data is None:
            confirm()
            os.unlink(path)
        else:
            fs.replace_file(path, data, self.durable, confirm)
        if not guard.confirm():
            raise OutcomeUnknown(
                f"{name} was written, but somebody took the guard of {self.url} away while we did:"
                " this may have overwritten what they wrote",
                hint="see what there is now, and do again what is missing: dibs list --all",
            )

    def _is_as_read(self, path: str, was: bytes | None) -> bool:
        """Does a file that we are about to replace still say what it said when we read it?"""
        return fs.read_file(path, follow=False) == was

    def _fingerprint(self, data: bytes | None) -> str | None:
        """Its digest. What was written last is what is replaced next, so that is kept."""
        if data is None:
            return None
        if self._printed is None or self._printed[0] is not data:
            self._printed = data, str(_digest(data))
        return self._printed[1]

    def _redo(self, files: Mapping[str, bytes | None], lines: Sequence[bytes]) -> dict[str, Any]:
        entries = []
        for path, data in files.items():
            entry: dict[str, Any] = {"path": os.path.relpath(path, self.folder)}
            entry["was"] = self._fingerprint(self._seen(path))
            entry["becomes"] = self._fingerprint(data)
            if len(files) > 1 and data is not None:
                entry["content"] = data.decode("utf-8", "surrogateescape")
            entries.append(entry)
        return {"at": self.log.size(), "lines": [line.decode() for line in lines], "files": entries}

    def finish(self, guard: Guard) -> None:
        """Finish a write that was killed half-way: called under the guard, before anything is read."""
        if self.companion.redo is not None:
            self._finish_noted(self.companion.redo, guard)
        if self._unsure is None:
            self.companion.redo = None  # only now: what could not be finished is tried again

    def _finish_noted(self, note: Mapping[str, Any], guard: Guard) -> None:
        try:
            lines = [line.encode() for line in note["lines"] if "\n" not in line]
            begin = int(note["at"])
            if not lines or self.log.holds(lines, begin):
                return  # the lines come last, so everything else is there
            states = []
            for entry in note["files"]:
                path = os.path.normpath(os.path.join(self.folder, entry["path"]))
                content = entry.get("content")
                data = None if content is None else content.encode("utf-8", "surrogateescape")
                if not self.is_own_file(path):
                    return  # a note is only a file, which may have come with a clone
                states.append((path, entry["was"], entry["becomes"], data, _look(path)))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return  # not a note of ours
        for path in [self.companion.path, *(state[0] for state in states)]:
            fs.sweep_drafts(path)  # of whoever was killed: nobody else writes while we have the guard
        done = [_digest(now) == becomes for _, was, becomes, _, now in states if was != becomes]
        left = [_digest(now) == was for _, was, becomes, _, now in states if was != becomes]
        if all(left):
            self._undo_noted(note)  # nothing was begun, and nobody was told that it was done
            return
        if True not in done or True in done[left.index(True) if True in left else len(left) :]:
            self._unsure = lines, begin  # somebody by hand has written since
            return
        for path, was, becomes, data, now in states:
            if _digest(now) == was != becomes:
                self._put_file(path, data, guard, now)
        self.log.complete(lines, begin)

    def _judge_noted(self, lines: list[bytes], begin: int) -> None:
        """A write was killed and then somebody wrote by hand: the rows, read since, tell whether it had been made."""
        note = self.companion.redo or {}
        rows = note.get("rows")
        made = any(
            isinstance(row, list) and len(row) == 2 and row[0] != row[1] == _outline(self.tables.tasks.get(task_id))
            for task_id, row in (rows.items() if isinstance(rows, dict) else ())
        )
        if made:
            self.log.complete(lines, begin)
        else:
            self._undo_noted(note)
            noted, self._noted = self._noted, set()
            self._load(noted)
        self.companion.redo = None

    def _undo_noted(self, note: Mapping[str, Any]) -> None:
        """The companion is written before the files: what it says about a write that never was is not so."""
        claims, requests = note.get("claims"), note.get("requests")
        for key in requests if isinstance(requests, list) else ():
            self.companion.requests.pop(str(key), None)
        for task_id, entry in claims.items() if isinstance(claims, dict) else ():
            self.companion.put_claim(task_id, entry)
            self._noted.add(task_id)


def _look(path: str) -> bytes | None:
    """A file, for comparing; what is no file equals none that we would have written."""
    try:
        return fs.read_file(path, follow=False)
    except OSError:
        return b"\0"


def _outline(task: BoardTask | None) -> list[Any] | None:
    """Of a row what tells whether a change was made to it."""
    return None if task is None else [str(task.status), task.assigned_to, task.token]


def _digest(data: bytes | None) -> str | None:
    """What tells two versions of a file apart. Nobody here is an enemy, and a large file is written for every claim."""
    return None if data is None else f"{len(data)}-{crc32(data):08x}"
