"""A board that lives in a document's own files: what the dialects share.

A transaction is the one in memory (`stores.memory`), on rows that were read from the files, and a guard. Writing:
acquire the document's guard, finish what a killed writer left (`companion`), read the files if they have changed, let
the board run its rule, refuse what the format cannot hold, write the files that must change (each whole or not at
all), append to the changelog, release. Reading takes no guard unless the document asks for it.

A dialect fills in `_guard`, `_files`, `_load`, `_encode` and `refuse`. It holds codec and policy only: no rule is
written here or in a dialect, and nothing outside the documented files decides anything that others must keep to.

A crash before the first file is renamed leaves the board as it was. After it, the next writer finds the note of the
write and finishes it. A guard left behind is dealt with by the document's own rule for that guard.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from binascii import crc32

from dibs import fs
from dibs.clock import Clock
from dibs.clock import read as read_clock
from dibs.dialects.companion import Companion
from dibs.dialects.eventlog import EventLog
from dibs.errors import BoardUnusable, Busy, DibsError, OutcomeUnknown, Unsupported
from dibs.ids import random_id
from dibs.model import (
    COMPLETED,
    IN_PROGRESS,
    BoardTask,
    Event,
    Lock,
    Message,
    TaskStatus,
    Worker,
)
from dibs.stores.memory import MemoryTx, Tables
from dibs.stores.shift import move_leases
from dibs.times import FOREVER
from dibs.worker import login_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, NoReturn, Protocol

    from dibs.dialects.bilu_index import Finding
    from dibs.dialects.inspection import Part

    class Guard(Protocol):
        """The document's critical section around one read-modify-write."""

        def acquire(self, timeout: float | None = None) -> None: ...

        def confirm(self) -> bool: ...

        def release(self) -> None: ...


NOBODY = "somebody"
"""Who holds what the files do not say who holds."""

POLL = 0.05
"""Seconds between two looks at the files by somebody who waits for a change."""


_LONG_AGO = 1_700_000_000.0
"""From when on what does not end is reckoned, if it is older or does not say how old it is."""

_LAST_TOKEN = 2**53
"""The last token that a time keeps when it is written as seconds and read again. Later times are somebody's mistake."""


def token_at(moment: float) -> int:
    """A claim's token on a board without numbers of its own: when it was made, in microseconds."""
    return round(moment * 1_000_000)


class FileStore:
    dialect = ""
    """The scheme of the board's URL, and the dialect's name in messages."""
    document = ""
    """The number of the document that specifies it."""
    lacks: frozenset[str] = frozenset()
    """What hints must not suggest, because the format has no place for it: "blockers", "lists of tasks"."""
    met_by: tuple[TaskStatus, ...] = (COMPLETED,)
    """Statuses at which a task counts as done for those that depend on it."""
    patient = True
    """Do readers keep to the document and wait for whoever writes? The doctor does not: it has to tell who that is."""

    def __init__(
        self,
        folder: str,
        *,
        place: str | None,
        clock: Clock | None = None,
        durable: bool = True,
        lease: float | None = None,
        agent: str | None = None,
    ) -> None:
        self.url = f"{self.dialect}:{folder}"
        self.folder = folder
        self.place = place
        self.lease = lease
        self.agent = agent or os.environ.get("DIBS_AGENT") or login_name(os.environ)
        self.durable = durable
        self.clock = clock or Clock()
        self.boot = self.clock.boot()
        self.tables = Tables()
        self.companion = Companion(self.companion_folder())
        self.log = self._open_log()
        self.turn = allocate_lock()
        self._process = os.getpid()
        self.top_token = 0
        self._noted: set[str] = set()
        self._unsure: tuple[list[bytes], int] | None = None
        """The changelog lines, and where they belong, of a noted write that only the rows can tell was made."""

    # -- what a dialect fills in

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        """Raise `NoBoard` if there is no such board in the folder and none is to be made."""
        raise NotImplementedError

    def _guard(self) -> Guard:
        """A new guard, not yet acquired."""
        raise NotImplementedError

    def _files(self) -> list[str]:
        """The paths whose change means that the board may have changed."""
        raise NotImplementedError

    def _load(self, noted: set[str]) -> None:
        """Bring `tables` in line with the files (`adopt` or `update`); do nothing if they have not changed.

        `noted` are tasks about whose claims the companion says something new. Damaged files raise `BoardUnusable` and
        are left alone.
        """
        raise NotImplementedError

    def _encode(self, tx: DialectTx) -> dict[str, bytes | None]:
        """The files that this transaction changes, with their new content (None: removed), in the order of writing."""
        raise NotImplementedError

    def _seen(self, path: str) -> bytes | None:
        """The content of a file as this transaction read it; None if there was none."""
        raise NotImplementedError

    def _written(self, files: Mapping[str, bytes | None]) -> None:
        """The files are in place: remember them, so that the next load need not decode what we wrote ourselves."""

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        """Raise `cannot(…)` if the format cannot hold what has become of this task."""

    def refuse_event(self, event: Event) -> None:
        """Raise if whoever is named may not do this on such a board."""

    def _reading(self) -> _Nothing | Any:
        """A context in which files may be read by somebody who holds no guard."""
        return _Nothing()

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return [random_id() for _ in tasks]

    def takes_id(self, task_id: str) -> bool:
        """Can a task have this id here?"""
        return True

    def companion_folder(self) -> str:
        return self.folder

    def _open_log(self) -> EventLog:
        return EventLog(os.path.join(self.companion.folder, "changelog.log"), self.durable)

    # -- what a dialect may use

    def cannot(self, what: str, hint: str) -> Unsupported:
        """The error for something that would have to bind everybody, and that the format has no place for."""
        return Unsupported(
            f"a {self.dialect} board cannot keep {what}: document {self.document} has no place for them",
            hint=hint,
            capability=what,
        )

    def damaged(self, path: str, why: str) -> BoardUnusable:
        return BoardUnusable(
            f"{path} cannot be used: {why}; it was left alone",
            hint="put it right by hand, or bring it back from version control; then: dibs check",
            path=path,
        )

    def unusable(self, error: OSError, so: str = "") -> BoardUnusable:
        """What the system would not do."""
        path = str(error.filename2 or error.filename or self.folder)  # of a rename: what was to be replaced
        return BoardUnusable(
            f"{path}: {error.strerror or error}{'; ' + so if so else ''}",
            hint="see that the folder is there, that you may write to it and that the disk has room; then: dibs doctor",
            path=path,
        )

    def held_by_hand(self, task: BoardTask, kind: str = "agent", lease: float | None = None) -> None:
        """Complete a row that the files call claimed: everything that the companion may know better."""
        task.holder = Worker(task.assigned_to or NOBODY, kind)
        task.assigned_to = task.holder.name
        task.claimed_at = task.claimed_at if task.claimed_at is not None else 0.0
        task.token = token_at(task.claimed_at)
        task.lease = lease or FOREVER
        since = task.claimed_at if lease else max(task.claimed_at, _LONG_AGO)
        task.lease_expires_at = since + task.lease

    def adopt(self, rows: Sequence[BoardTask]) -> None:
        """These are all the tasks there are, oldest first."""
        tables = self.tables = Tables()
        self.top_token = 0
        by_id = {task.id: task for task in rows}
        for seq, task in enumerate(rows, 1):
            task.seq = seq
            self._describe(task, by_id)
            for need in task.depends_on:
                tables.dependants.setdefault(need, {})[task.id] = None
        tables.fill(rows)
        tables.last_task = len(rows)
        self._take_locks(rows)

    def update(self, rows: Sequence[BoardTask]) -> None:
        """These tasks have changed, or are new; every other is as it was."""
        tables = self.tables
        affected: dict[str, None] = {}
        for task in rows:
            before = tables.tasks.get(task.id)
            if before is None:
                tables.last_task += 1
                task.seq = tables.last_task
            else:
                task.seq = before.seq
                for need in before.depends_on:
                    tables.dependants.get(need, {}).pop(task.id, None)
            for need in task.depends_on:
                tables.dependants.setdefault(need, {})[task.id] = None
            if before is None or before.status is not task.status:
                affected.update(tables.dependants.get(task.id, {}))
            tables.put(task)
        for task in rows:
            tables.remove(task.id)
            self._describe(task, tables.tasks | {task.id: task} if task.id in task.depends_on else tables.tasks)
            tables.put(task)
        for task_id in affected:
            waiting = tables.remove(task_id)
            assert waiting is not None
            waiting.unmet = self._unmet(waiting, tables.tasks)
            tables.put(waiting)
        self._take_locks(tables.tasks.values())

    def _describe(self, task: BoardTask, by_id: Mapping[str, BoardTask]) -> None:
        task.unmet = self._unmet(task, by_id)
        self.companion.describe(task)
        if task.token is not None and self.top_token < task.token < _LAST_TOKEN:
            self.top_token = task.token

    def _unmet(self, task: BoardTask, by_id: Mapping[str, BoardTask]) -> int:
        if not task.depends_on:
            return 0
        needs = dict.fromkeys(task.depends_on)  # a hand may have written one twice
        return sum((other := by_id.get(need)) is None or other.status not in self.met_by for need in needs)

    def _take_locks(self, rows: Iterable[BoardTask]) -> None:
        """The locks that come with claims: the paths of the tasks in progress."""
        locks = self.tables.locks = {}
        for task in rows:
            if task.paths and task.status is IN_PROGRESS and task.holder is not None and task.token is not None:
                for path in task.paths:
                    locks[path, task.token] = Lock(
                        path, task.holder, task.token, task.claimed_at or 0.0, task.lease_expires_at or 0.0,
                        task.lease or FOREVER, task_id=task.id,
                    )  # fmt: skip

    # -- the store

    def take_turn(self) -> None:
        """One transaction at a time. A forked child has its parent's store as some thread left it: it starts anew."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self.turn = allocate_lock()
            self.log = self._open_log()
            self.companion.doubt()
            self._forget()
        self.turn.acquire()

    def transaction(self, now: float) -> DialectTx:
        return DialectTx(self, now)

    def write(self) -> _Write:
        return _Write(self)

    def read(self) -> _Read:
        return _Read(self)

    def refresh(self) -> None:
        """Read whatever has changed since the last time."""
        noted = self.companion.load() | self._noted
        self._noted = set()
        unsure, self._unsure = self._unsure, None
        self._load(noted)
        if unsure is not None:
            self._judge_noted(*unsure)

    def _forget(self) -> None:
        """Decode everything at the next load."""
        raise NotImplementedError

    def mark_change(self) -> int:
        return hash(tuple(_stamp(path) for path in (*self._files(), self.companion.path, self.log.path)))

    def wait_change(self, mark: int, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while self.mark_change() == mark:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL, left))
        return True

    def close(self) -> None:
        """Nothing stays open between two transactions."""

    # -- looking it over: nothing here takes a guard, waits, or changes anything

    def guards(self) -> list[Guard]:
        """The guards whose holders `dibs doctor` names, none of them acquired."""
        return [self._guard()]

    def report(self) -> list[Part]:
        """What is on the disk; a dialect adds its own markers."""
        from dibs.dialects.inspection import parts

        return parts(self)

    def check(self) -> list[Finding]:
        """What is wrong with the files; a dialect that can tell more overrides it."""
        from dibs.dialects.inspection import findings

        return findings(self)

    def rebuild(self, write: bool) -> str | list[str]:
        """The derived files as text or, with `write`, written under the guard: their paths."""
        raise Unsupported(
            f"a {self.dialect} board has nothing to rebuild: document {self.document} derives no file from others",
            hint="to look its files over: dibs check",
            capability="derived files",
        )

    # -- writing

    def commit(self, tx: DialectTx, guard: Guard) -> None:
        files = self._encode(tx)
        undo = {"claims": {i: self.companion.claims.get(i) for i in tx.touched}, "requests": tx.remembered}
        undo["rows"] = {i: [_outline(before), _outline(self.tables.tasks.get(i))] for i, before in tx.touched.items()}
        self.companion.note(self.tables.tasks[i] for i in tx.touched if i in self.tables.tasks)
        self.companion.forget(self.tables.tasks)
        lines = self.log.encode(tx.appended)
        if files or lines:
            self.companion.redo = undo | self._redo(files, lines)
        try:
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
            if fs.read_file(path) != was:
                raise Busy(
                    f"somebody changed {name} while we held the guard of {self.url}; it was not written",
                    hint="nothing is lost; try again, and find out who writes without the guard",
                )

        if data is None:
            confirm()
            os.unlink(path)
        else:
            fs.replace_file(path, data, self.durable, confirm)

    def _redo(self, files: Mapping[str, bytes | None], lines: Sequence[bytes]) -> dict[str, Any]:
        entries = []
        for path, data in files.items():
            entry: dict[str, Any] = {"path": os.path.relpath(path, self.folder)}
            entry["was"] = _digest(self._seen(path))
            entry["becomes"] = _digest(data)
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
            lines = [line.encode() for line in note["lines"]]
            begin = int(note["at"])
            if not lines or self.log.holds(lines, begin):
                return  # the lines come last, so everything else is there
            states = []
            for entry in note["files"]:
                path = os.path.normpath(os.path.join(self.folder, entry["path"]))
                content = entry.get("content")
                data = None if content is None else content.encode("utf-8", "surrogateescape")
                states.append((path, entry["was"], entry["becomes"], data, _look(path)))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return  # not a note of ours
        if not any(_digest(now) == becomes for _, _, becomes, _, now in states):
            if any(_digest(now) != was for _, was, _, _, now in states):
                self._unsure = lines, begin  # somebody by hand has written since
            else:
                self._undo_noted(note)  # nothing was begun, and nobody was told that it was done
            return
        for path, was, becomes, data, now in states:
            if _digest(now) == was != becomes and path.startswith(self.folder + os.sep):
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


class DialectTx(MemoryTx):
    """The transaction in memory, with the files' view of tokens and the format's limits."""

    def __init__(self, store: FileStore, now: float) -> None:
        super().__init__(store.tables, now)
        self._store = store
        self.touched: dict[str, BoardTask | None] = {}
        """The rows that were written, as they were before."""
        self.appended: list[Event] = []
        self.remembered: list[str] = []
        """The request keys that were answered."""

    def next_token(self) -> int:
        return max(token_at(self.now), self._store.top_token + 1)

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return self._store.new_ids(tasks)

    def _put(self, task: BoardTask) -> None:
        before = self._t.tasks.get(task.id)
        if task.status is IN_PROGRESS and task.token is not None and (before is None or before.token != task.token):
            task.claimed_at = task.token / 1_000_000  # what the file will say
            self._store.top_token = max(self._store.top_token, task.token)
        task.created_by = None  # no document has a place for it, and two readers must see the same row
        self._store.refuse(task, before)
        self.touched.setdefault(task.id, before)
        super()._put(task)

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            if lock.task_id is None:
                self._no_locks()
        super().save_locks(locks)

    def _no_locks(self) -> NoReturn:
        raise self._store.cannot("locks", "keep them on a board of dibs' own: dibs init")

    def restore(self, *rows: object) -> NoReturn:
        raise self._store.cannot(
            "histories", "import into a board of dibs' own, then copy that: dibs copy sqlite:PATH " + self._store.url
        )

    # -- changelog and messages: in a file of lines, read only when asked for

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        for event in events:
            self._store.refuse_event(event)
            event.time = self.now
            self.appended.append(event)
            if event.action == "sent_message":
                event.seq = self.last_event()

    def last_event(self) -> int:
        return self._store.log.count() + len(self.appended)

    def events(self, after: int, limit: int, task_id: str | None = None) -> list[Event]:
        found = (e for e in self._store.log.events(after) if task_id is None or e.task_id == task_id)
        return [event for _, event in zip(range(limit), found, strict=False)]

    def post(self, messages: Sequence[Message]) -> None:
        """Messages are their events."""

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        sent = [
            Message(e.worker, e.details or "", (e.data or {}).get("to"), e.time, e.seq)
            for e in self._store.log.events(after)
            if e.action == "sent_message"
        ]
        found = [m for m in sent if name is None or m.to == name or (m.to is None and m.sender != name)]
        return found[-limit:] if newest else found[:limit]

    def mark(self, reader: str) -> int:
        return self._store.companion.marks.get(reader, 0)

    def set_mark(self, reader: str, seq: int) -> None:
        self._assign(self._store.companion.marks, reader, seq)

    def marks(self) -> dict[str, int]:
        return dict(sorted(self._store.companion.marks.items()))

    def recall(self, key: str) -> str | None:
        known = self._store.companion.requests.get(key)
        return known[0] if known else None

    def remember(self, key: str, answer: str) -> None:
        self.remembered.append(key)
        self._assign(self._store.companion.requests, key, (answer, self.now))

    def requests(self) -> dict[str, tuple[str, float]]:
        return dict(sorted(self._store.companion.requests.items()))


class _Turn:
    def __init__(self, store: FileStore) -> None:
        self._store = store

    def _now(self) -> tuple[float, tuple[str, float] | None, float]:
        store = self._store
        return read_clock(store.clock, store.companion.anchor, store.boot)

    def _raise(self, error: BaseException) -> NoReturn:
        """As it is; but what the system said about a file is one of our errors too."""
        if isinstance(error, OSError) and not isinstance(error, DibsError):
            raise self._store.unusable(error) from error
        raise error


class _Read(_Turn):
    def __enter__(self) -> DialectTx:
        store = self._store
        store.take_turn()
        try:
            with store._reading() if store.patient else _Nothing():
                store.refresh()
            now, _, shift = self._now()
            return store.transaction(now - shift)
        except BaseException as error:
            store.turn.release()
            self._raise(error)

    def __exit__(self, *_: object) -> None:
        self._store.turn.release()


class _Write(_Turn):
    def __enter__(self) -> DialectTx:
        store = self._store
        store.take_turn()
        try:
            guard = self._guard = store._guard()
            guard.acquire()
            try:
                store._noted |= store.companion.load()
                store.finish(guard)
                store.refresh()
                return self._begin()
            except BaseException:
                guard.release()
                raise
        except BaseException as error:
            store.turn.release()
            self._raise(error)

    def _begin(self) -> DialectTx:
        store = self._store
        now, moved, shift = self._now()
        tx = self._tx = store.transaction(now)
        if moved:
            before = store.companion.anchor
            tx._undo.append(lambda: setattr(store.companion, "anchor", before))
            store.companion.anchor = moved
        if shift:
            move_leases(tx, shift)
        return tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._store
        try:
            try:
                if kind is not None:
                    self._tx.roll_back()
                elif self._tx.changed:
                    try:
                        store.commit(self._tx, self._guard)
                    except BaseException as trouble:
                        # Whatever was written or not, the files say how things stand: read them again.
                        store._forget()
                        store.companion.doubt()
                        self._raise(trouble)
            finally:
                self._guard.release()
        finally:
            store.turn.release()


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _look(path: str) -> bytes | None:
    """A file, for comparing; what is no file equals none that we would have written."""
    try:
        return fs.read_file(path)
    except OSError:
        return b"\0"


def _outline(task: BoardTask | None) -> list[Any] | None:
    """Of a row what tells whether a change was made to it."""
    return None if task is None else [str(task.status), task.assigned_to, task.token]


def _digest(data: bytes | None) -> str | None:
    """What tells two versions of a file apart. Nobody here is an enemy, and a large file is written for every claim."""
    return None if data is None else f"{len(data)}-{crc32(data):08x}"
