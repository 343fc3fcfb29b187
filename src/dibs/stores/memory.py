"""A board in this process' memory: for tests, for single processes, and as the transaction that the file dialects
work on.

Rows are copied on the way in and on the way out, so a caller that changes a row and then fails has changed nothing. A
write transaction applies its changes at once and notes how to undo each; leaving the block by an exception undoes
them in reverse. One transaction runs at a time; a read waits for a write to end.
"""

from __future__ import annotations

import time
from _thread import allocate_lock
from bisect import bisect_left, insort

from dibs.clock import Clock
from dibs.clock import read as read_clock
from dibs.errors import Duplicate
from dibs.ids import random_ids
from dibs.model import (
    CLOSED,
    COMPLETED,
    IN_PROGRESS,
    OPEN,
    PENDING,
    REVIEW,
    Blocker,
    BoardTask,
    Event,
    Lock,
    Message,
    Step,
    TaskStatus,
    Worker,
)
from dibs.stores.clock_jump import move_leases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Any, TypeVar

    T = TypeVar("T")


def copy_task(task: BoardTask) -> BoardTask:
    made = BoardTask.__new__(BoardTask)
    for name in BoardTask.__slots__:
        setattr(made, name, getattr(task, name))
    made.depends_on = list(task.depends_on)
    made.paths = list(task.paths)
    made.labels = list(task.labels)
    made.steps = [Step(**s.as_dict()) for s in task.steps]
    made.blockers = [Blocker(**b.as_dict()) for b in task.blockers]
    made._board = None
    return made


def copy_lock(lock: Lock) -> Lock:
    return Lock(**{name: getattr(lock, name) for name in Lock.__slots__})


def copy_event(event: Event) -> Event:
    made = Event(**{name: getattr(event, name) for name in Event.__slots__})
    made.data = copy_json(event.data)
    return made


def copy_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copy_json(entry) for key, entry in value.items()}
    return [copy_json(entry) for entry in value] if isinstance(value, list) else value


class Tables:
    """The rows, and the orders in which they are asked for."""

    def __init__(self) -> None:
        self.tasks: dict[str, BoardTask] = {}
        self.ready: dict[str, list[tuple[int, int, str]]] = {"any": [], "agent": [], "human": []}
        self.working: dict[str, None] = {}
        self.counts: dict[str, int] = dict.fromkeys(TaskStatus, 0)
        self.dependants: dict[str, dict[str, None]] = {}
        self.locks: dict[tuple[str, int], Lock] = {}
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.marks: dict[str, int] = {}
        self.requests: dict[str, tuple[str, float]] = {}
        self.last_task = 0
        self.commits = 0
        self.anchor: tuple[str, float] | None = None

    def put(self, task: BoardTask) -> None:
        """Store this row, in place of the one with its id."""
        self.remove(task.id)
        self.tasks[task.id] = task
        self.counts[task.status] += 1
        if task.is_ready:
            insort(self.ready[task.reserved], (-task.priority, task.seq, task.id))
        if task.status is IN_PROGRESS:
            self.working[task.id] = None

    def fill(self, rows: Iterable[BoardTask]) -> None:
        """Store many rows in tables that are empty: sorted once instead of row by row."""
        for task in rows:
            self.tasks[task.id] = task
            self.counts[task.status] += 1
            if task.is_ready:
                self.ready[task.reserved].append((-task.priority, task.seq, task.id))
            elif task.status is IN_PROGRESS:
                self.working[task.id] = None
        for order in self.ready.values():
            order.sort()

    def remove(self, task_id: str) -> BoardTask | None:
        task = self.tasks.pop(task_id, None)
        if task is not None:
            self.counts[task.status] -= 1
            if task.is_ready:
                order = self.ready[task.reserved]
                del order[bisect_left(order, (-task.priority, task.seq, task.id))]
            self.working.pop(task_id, None)
        return task


class MemoryTx:
    """See `dibs.stores.base.Tx`."""

    def __init__(self, tables: Tables, now: float) -> None:
        self.now = now
        self.changed = False
        self._t = tables
        self._undo: list[Callable[[], Any]] = []

    def roll_back(self) -> None:
        for step in reversed(self._undo):
            step()
        self._undo.clear()

    def _assign(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set or (None) delete an entry of a plain table, undoably."""
        self.changed = True
        before = table.get(key)
        self._undo.append(lambda: table.pop(key, None) if before is None else table.__setitem__(key, before))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    # -- tasks

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        return {i: copy_task(self._t.tasks[i]) for i in ids if i in self._t.tasks}

    def ready(
        self,
        reserved: Sequence[str],
        limit: int,
        after: BoardTask | None = None,
        held: Sequence[list[str]] = (),
        *,
        claim: bool = False,
    ) -> list[BoardTask]:
        found: list[tuple[int, int, str]] = []
        for kind in reserved:
            order = self._t.ready[kind]
            start = bisect_left(order, (-after.priority, after.seq + 1, "")) if after else 0
            taken = 0
            for key in order[start:] if held else order[start : start + limit]:
                if taken == limit:
                    break
                if self._t.tasks[key[2]].paths not in held:
                    found.append(key)
                    taken += 1
        found.sort()
        return [copy_task(self._t.tasks[key[2]]) for key in found[:limit]]

    def due(self, limit: int) -> list[BoardTask]:
        working = (self._t.tasks[i] for i in self._t.working)
        late = [t for t in working if t.lease_expires_at is not None and t.lease_expires_at <= self.now]
        late.sort(key=lambda t: t.lease_expires_at or 0)
        return [copy_task(t) for t in late[:limit]]

    def holders(self) -> list[Worker]:
        found = [self._t.tasks[i].holder for i in self._t.working] + [lock.holder for lock in self._t.locks.values()]
        return list({holder.text: holder for holder in found if holder is not None}.values())

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        working = (self._t.tasks[i] for i in self._t.working)
        return [copy_task(t) for t in working if name is None or t.assigned_to == name]

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        ids: dict[str, None] = {}
        for task in tasks:
            ids.update(self._t.dependants.get(task.id, {}))
        return [copy_task(self._t.tasks[i]) for i in ids]

    def insert(self, tasks: Sequence[BoardTask]) -> None:
        tables, before = self._t, self._t.last_task
        self._undo.append(lambda: setattr(tables, "last_task", before))
        for task in tasks:
            if task.id in tables.tasks:
                raise Duplicate(f"task {task.id} is already on the board")
            tables.last_task += 1
            task.seq = tables.last_task
            self._put(task)

    def save(self, tasks: Sequence[BoardTask]) -> None:
        for task in tasks:
            self._put(task)

    def _put(self, task: BoardTask) -> None:
        self.changed = True
        tables, before = self._t, self._t.tasks.get(task.id)
        tables.put(copy_task(task))
        self._undo.append(lambda: tables.remove(task.id) if before is None else tables.put(before))
        known = before.depends_on if before else []
        for need in known:
            if need not in task.depends_on:
                left = {i: None for i in tables.dependants.get(need, {}) if i != task.id}
                self._assign(tables.dependants, need, left or None)
        for need in task.depends_on:
            if need not in known:
                self._assign(tables.dependants, need, {**tables.dependants.get(need, {}), task.id: None})

    def satisfy(self, task: BoardTask) -> None:
        for waiting in self.dependants([task]):
            waiting.unmet -= 1
            self._put(waiting)

    def edges(self) -> list[tuple[str, str]]:
        return [(task, needs) for needs, tasks in self._t.dependants.items() for task in tasks]

    # -- locks

    def locks(
        self, patterns: Sequence[str] | None = None, *, name: str | None = None, expired: bool = False
    ) -> list[Lock]:
        held = (self._t.locks[key] for key in sorted(self._t.locks))
        return [
            copy_lock(lock)
            for lock in held
            if (name is None or lock.holder.name == name) and not (expired and lock.expires_at > self.now)
        ]

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            self._assign(self._t.locks, (lock.pattern, lock.token), copy_lock(lock))

    def drop_locks(self, keys: Sequence[tuple[str, int]]) -> None:
        for key in keys:
            self._assign(self._t.locks, key, None)

    # -- changelog

    def last_event(self) -> int:
        return self._t.events[-1].seq if self._t.events else 0

    def draw(self, n: int) -> list[int]:
        return list(range(self.last_event() + 1, self.last_event() + 1 + n))

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        log, before = self._t.events, len(self._t.events)
        self._undo.append(lambda: log.__delitem__(slice(before, None)))
        for event in events:
            event.seq = self.last_event() + 1
            event.time = self.now
            log.append(copy_event(event))

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        start = bisect_left(self._t.events, after + 1, key=lambda e: e.seq)
        rows = reversed(self._t.events[start:]) if newest else self._t.events[start:]
        found = (e for e in rows if task_id is None or e.task_id == task_id)
        page = [copy_event(e) for _, e in zip(range(limit), found, strict=False)]
        return page[::-1] if newest else page

    # -- requests and messages

    def requests(self, key: str | None = None) -> dict[str, tuple[str, float]]:
        return entries(self._t.requests, key)

    def remember(self, key: str, answer: str) -> None:
        self._assign(self._t.requests, key, (answer, self.now))

    def shift_requests(self, seconds: float) -> None:
        for key, (answer, moment) in self.requests().items():
            self._assign(self._t.requests, key, (answer, moment + seconds))

    def post(self, message: Message) -> None:
        self._post([message])

    def _post(self, messages: Iterable[Message]) -> None:
        self.changed = True
        posted, before = self._t.messages, len(self._t.messages)
        self._undo.append(lambda: posted.__delitem__(slice(before, None)))
        posted.extend(messages)

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        start = bisect_left(self._t.messages, after + 1, key=lambda m: m.seq)
        found = [
            Message(m.sender, m.content, m.to, m.time, m.seq)
            for m in self._t.messages[start:]
            if name is None or m.to == name or (m.to is None and m.sender != name)
        ]
        return found[-limit:] if newest else found[:limit]

    def marks(self, reader: str | None = None) -> dict[str, int]:
        return entries(self._t.marks, reader)

    def set_mark(self, reader: str, seq: int) -> None:
        self._assign(self._t.marks, reader, seq)

    # -- looking

    def counts(self) -> dict[str, int]:
        return dict(self._t.counts)

    def is_all_done(self) -> bool:
        counts = self.counts()
        return any(counts.values()) and not any(counts.get(status) for status in OPEN)

    def page(
        self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
    ) -> tuple[list[BoardTask], int]:
        found = [t for t in self._t.tasks.values() if t.status in statuses and _matches(t, filters)]
        found.sort(key=_listing_order)
        return [copy_task(t) for t in found[offset : offset + limit]], len(found)

    def find(self, prefix: str, limit: int) -> list[str]:
        return sorted(i for i in self._t.tasks if i.startswith(prefix))[:limit]

    def all_tasks(self) -> Iterator[BoardTask]:
        for task in sorted(self._t.tasks.values(), key=lambda t: t.seq):
            yield copy_task(task)

    def restore(
        self,
        tasks: Iterable[BoardTask],
        locks: Iterable[Lock],
        messages: Iterable[Message],
        events: Iterable[Event],
        marks: dict[str, int],
        requests: dict[str, tuple[str, float]],
    ) -> None:
        kept = [copy_task(t) for t in tasks]
        tables, before = self._t, self._t.last_task
        self._undo.append(lambda: setattr(tables, "last_task", before))
        tables.last_task = max((t.seq for t in kept), default=before)
        self.save(kept)
        self.save_locks(list(locks))
        self._post(messages)
        log, length = tables.events, len(tables.events)
        self._undo.append(lambda: log.__delitem__(slice(length, None)))
        log.extend(events)
        for reader, seq in marks.items():
            self.set_mark(reader, seq)
        for key, answer in requests.items():
            self._assign(tables.requests, key, answer)


def entries(table: dict[str, T], key: str | None) -> dict[str, T]:
    """All entries in the order of their keys, or the one with this key, if it is there."""
    keys = sorted(table) if key is None else [key] if key in table else []
    return {key: table[key] for key in keys}


def _matches(task: BoardTask, filters: dict[str, str]) -> bool:
    for name, value in filters.items():
        if name == "label":
            if value not in task.labels:
                return False
        elif name == "search":
            if value.casefold() not in task.description.casefold():
                return False
        elif getattr(task, name) != value:
            return False
    return True


_GROUP = {IN_PROGRESS: 0, REVIEW: 1, PENDING: 2} | {status: 4 + at for at, status in enumerate(CLOSED)}


def _listing_order(task: BoardTask) -> tuple[float, ...]:
    if task.status is IN_PROGRESS:
        return (0, task.lease_expires_at or 0)
    if task.status in CLOSED:
        return (_GROUP[task.status], -(task.completed_at or 0))
    waiting = task.status is PENDING and not task.is_ready
    return (3 if waiting else _GROUP[task.status], -task.priority, task.seq)


class MemoryStore:
    lease: float | None = None
    satisfied_by: tuple[TaskStatus, ...] = (COMPLETED,)

    def __init__(self, clock: Clock | None = None, place: str | None = None) -> None:
        self.url = "memory:"
        self.place = place
        self._clock = clock or Clock()
        self._boot = self._clock.boot()
        self._tables = Tables()
        self._turn = allocate_lock()

    def write(self) -> _Turn:
        return _Turn(self, writing=True)

    def read(self) -> _Turn:
        return _Turn(self, writing=False)

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return random_ids(len(tasks))

    def try_claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> None:
        """Not worth a path of its own: a transaction costs nothing here."""

    def try_complete(self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None) -> None:
        """As `try_claim`."""

    def stable_seq(self) -> int | None:
        return None

    def mark_change(self) -> int:
        return self._tables.commits

    def wait_change(self, mark: int, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while self._tables.commits == mark:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(0.01, left))
        return True

    def close(self) -> None:
        """Nothing to give back: the board lives as long as this object."""


class _Turn:
    __slots__ = ("_store", "_tx", "_writing")

    def __init__(self, store: MemoryStore, writing: bool) -> None:
        self._store = store
        self._writing = writing

    def __enter__(self) -> MemoryTx:
        store, tables = self._store, self._store._tables
        store._turn.acquire()
        now, moved, shift = read_clock(store._clock, tables.anchor, store._boot)
        if not self._writing:
            self._tx = MemoryTx(tables, now - shift)
            return self._tx
        tx = self._tx = MemoryTx(tables, now)
        if moved:
            before = tables.anchor
            tx._undo.append(lambda: setattr(tables, "anchor", before))
            tables.anchor = moved
        if shift:
            move_leases(tx, shift)
        return tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self._tx.roll_back()
            elif self._tx.changed:
                self._store._tables.commits += 1
        finally:
            self._store._turn.release()
