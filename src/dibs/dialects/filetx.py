"""A transaction on a dialect's board: the one in memory, with the files' view of tokens and the format's limits; and
its beginning and end, the *turn*: one at a time in a process, under the document's guard if it writes.
"""

from __future__ import annotations

from dibs.clock import read as read_clock
from dibs.errors import DibsError
from dibs.model import IN_PROGRESS, BoardTask, Event, Lock, Message
from dibs.stores.clock_jump import move_leases
from dibs.stores.memory import MemoryTx, entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import NoReturn

    from dibs.dialects.filestore import FileStore


def token_at(moment: float) -> int:
    """A claim's token on a board without numbers of its own: when it was made, in microseconds."""
    return round(moment * 1_000_000)


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

    def draw(self, n: int) -> list[int]:
        first = max(token_at(self.now), self._store.top_token + 1)
        return list(range(first, first + n))

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

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        found = [e for e in self._store.log.events(after) if task_id is None or e.task_id == task_id]
        return found[-limit:] if newest else found[:limit]

    def post(self, message: Message) -> None:
        """A message is its event."""

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        sent = [
            Message(e.worker, e.details or "", (e.data or {}).get("to"), e.time, e.seq)
            for e in self._store.log.events(after)
            if e.action == "sent_message"
        ]
        found = [m for m in sent if name is None or m.to == name or (m.to is None and m.sender != name)]
        return found[-limit:] if newest else found[:limit]

    def set_mark(self, reader: str, seq: int) -> None:
        self._assign(self._store.companion.marks, reader, seq)

    def marks(self, reader: str | None = None) -> dict[str, int]:
        return entries(self._store.companion.marks, reader)

    def remember(self, key: str, answer: str) -> None:
        self.remembered.append(key)
        self._assign(self._store.companion.requests, key, (answer, self.now))

    def requests(self, key: str | None = None) -> dict[str, tuple[str, float]]:
        return entries(self._store.companion.requests, key)


class Turn:
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


class Read(Turn):
    def __enter__(self) -> DialectTx:
        store = self._store
        store.take_turn()
        try:
            with store._reading() if store.patient else Nothing():
                store.refresh()
            now, _, shift = self._now()
            return store.transaction(now - shift)
        except BaseException as error:
            store.turn.release()
            self._raise(error)

    def __exit__(self, *_: object) -> None:
        self._store.turn.release()


class Write(Turn):
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


class Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
