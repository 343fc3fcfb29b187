"""The one transaction over SQL: rows to objects and back, and the verbs of `dibs.stores.base.Tx` as statements of
`queries`.

It knows no connection: it is given a function that runs a statement and returns all rows, one that runs a statement
for many parameter rows, and the time. Who begins and commits, and how that is made exclusive and durable, is the
store's business.
"""

from __future__ import annotations

from dibs.jsontext import dumps
from dibs.model import OPEN, BoardTask, Event, Lock, Message, TaskStatus, Worker
from dibs.rules.paths import literal_prefix, prefix_range
from dibs.stores.rows import (
    KEEP_REQUESTS,
    TASK,
    damaged,
    event_from,
    event_row,
    insert_row,
    lines,
    lock_from,
    lock_row,
    save_row,
    task_from,
    worker_from,
)
from dibs.stores.sqlite import queries as q

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    Rows = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
    Many = Callable[[str, Iterable[tuple[Any, ...]]], None]

_COUNTED = {status: position for position, status in enumerate(TaskStatus)}
_PAGE = 2000


class SqlTx:
    """See `dibs.stores.base.Tx`.

    Changed tasks and new events are gathered and written by `flush`, which every read of those tables calls first: a
    task that changes twice is written once, and each event can name the task's event before it (`previous`), each
    task its newest (`last_event`), which is the history of a task without an index over everybody's events.
    """

    def __init__(self, rows: Rows, many: Many, now: float) -> None:
        self.now = now
        self.changed = False
        self._rows = rows
        self._many = many
        head = rows(q.HEAD, ())
        self._last: int = head[0][0] if head else 0
        try:
            self._tally = [int(n) for n in head[0][1].split()] if head else [0] * len(_COUNTED)
        except (ValueError, AttributeError) as error:
            raise damaged("the newest event", error) from error
        self._was: dict[int, tuple[TaskStatus, str | None]] = {}
        """Of every task that was handed out, its status and `depends_on`, as they are stored or gathered."""
        self._newest: dict[str, int] = {}
        self._new: list[BoardTask] = []
        self._edges: list[tuple[int, Sequence[str]]] = []
        self._dirty: dict[int, BoardTask] = {}
        self._events: list[Event] = []

    def flush(self) -> None:
        """Write what has been gathered: new tasks, changed tasks, events."""
        newest = self._newest
        if self._events:
            last = self._events[-1]
            tally = " ".join(map(str, self._tally))
            rows = []
            for event in self._events:
                previous = None
                if event.task_id is not None:
                    previous = newest[event.task_id] or None
                    newest[event.task_id] = event.seq
                rows.append(event_row(event, previous, tally if event is last else None))
            self._events = []
            self._many(q.APPEND, rows)
        if self._new:
            self._many(q.INSERT, [insert_row(task, newest[task.id]) for task in self._new])
            self._new = []
        if self._dirty:
            self._many(q.SAVE, [save_row(task, newest[task.id]) for task in self._dirty.values()])
            self._dirty = {}
        if self._edges:
            self._many(q.LINK, [(seq, dumps(list(needs))) for seq, needs in self._edges])
            self._edges = []

    # -- tasks

    def _tasks(self, sql: str, values: tuple[Any, ...]) -> list[BoardTask]:
        if self.changed:
            self.flush()
        return self._take(self._rows(sql, values))

    def _take(self, rows: list[tuple[Any, ...]]) -> list[BoardTask]:
        was, newest = self._was, self._newest
        tasks = []
        for row in rows:
            task = task_from(row)
            was[task.seq] = task.status, row[5]
            newest[task.id] = row[-1]
            tasks.append(task)
        return tasks

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        if len(ids) == 1:
            return {task.id: task for task in self._tasks(q.TASK_BY_ID, (ids[0],))}
        found = {task.id: task for task in self._tasks(q.TASKS_BY_ID, (dumps(list(ids)),))} if ids else {}
        return {i: found[i] for i in ids if i in found}

    def ready(
        self,
        reserved: Sequence[str],
        limit: int,
        after: BoardTask | None = None,
        held: Sequence[list[str]] = (),
        *,
        claim: bool = False,
    ) -> list[BoardTask]:
        if self.changed:
            self.flush()
        without = dumps([lines(paths) for paths in held]) if held else None
        rows: list[tuple[Any, ...]] = []
        for kind in reserved:
            found: list[tuple[Any, ...]] = []
            if after is not None:
                # First the rest of the same rank, then the later ranks: each is one range of the index.
                found = self._ready(q.READY_SAME_RANK, (kind, -after.priority, after.seq), without, limit)
            if len(found) < limit:
                rank = -(2**62) if after is None else -after.priority
                found += self._ready(q.READY, (kind, rank), without, limit - len(found))
            rows += found
        if len(rows) > 1:
            rows.sort(key=lambda row: (row[7], row[0]))
        return self._take(rows[:limit])

    def _ready(
        self, query: tuple[str, str], values: tuple[Any, ...], without: str | None, limit: int
    ) -> list[tuple[Any, ...]]:
        if without is None:
            return self._rows(query[0], (*values, limit))
        return self._rows(query[1], (*values, without, limit))

    def due(self, limit: int) -> list[BoardTask]:
        return self._tasks(q.DUE, (self.now, limit))

    def holders(self) -> list[Worker]:
        if self.changed:
            self.flush()
        return [worker_from(row[0]) for row in self._rows(q.HOLDERS, ()) if row[0]]

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        return self._tasks(q.IN_PROGRESS, ()) if name is None else self._tasks(q.IN_PROGRESS_BY, (name,))

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        if len(tasks) == 1:
            return self._tasks(q.DEPENDANTS_OF, (tasks[0].seq,))
        return self._tasks(q.DEPENDANTS, (dumps([t.seq for t in tasks]),))

    def insert(self, tasks: Sequence[BoardTask]) -> None:
        self.flush()
        self.changed = True
        last = self._rows(q.LAST_TASK, ())[0][0] or 0
        for seq, task in enumerate(tasks, last + 1):
            task.seq = seq
            self._tally[_COUNTED[task.status]] += 1
            self._was[seq] = task.status, lines(task.depends_on)
            self._newest[task.id] = 0
            if task.depends_on:
                self._edges.append((seq, task.depends_on))
        self._new += tasks

    def save(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        for task in tasks:
            status, depends_on = self._was[task.seq]
            needs = lines(task.depends_on)
            if status is not task.status:
                self._tally[_COUNTED[status]] -= 1
                self._tally[_COUNTED[task.status]] += 1
            if depends_on != needs:
                self._relink(task, depends_on.split("\n") if depends_on else [])
            self._was[task.seq] = task.status, needs
            self._dirty[task.seq] = task

    def _relink(self, task: BoardTask, before: list[str]) -> None:
        if gone := [need for need in before if need not in task.depends_on]:
            self.flush()
            self._rows(q.UNLINK, (task.seq, dumps(gone)))
        if new := [need for need in task.depends_on if need not in before]:
            self._edges.append((task.seq, new))

    def satisfy(self, task: BoardTask) -> None:
        self.flush()
        self._rows(q.SATISFY, (task.seq,))

    def edges(self) -> list[tuple[str, str]]:
        return [(task, needs) for task, needs in self._rows(q.EDGES, ())]

    # -- locks

    def locks(
        self, patterns: Sequence[str] | None = None, *, name: str | None = None, expired: bool = False
    ) -> list[Lock]:
        if name is not None:
            return [lock_from(row) for row in self._rows(q.LOCKS_BY, (name,))]
        if expired:
            return [lock_from(row) for row in self._rows(q.LOCKS_EXPIRED, (self.now,))]
        if patterns is None:
            return [lock_from(row) for row in self._rows(q.LOCKS, ())]
        found = {}
        for pattern in patterns:
            ancestors, low, high = prefix_range(literal_prefix(pattern))
            for row in self._rows(q.LOCKS_NEAR, (dumps(ancestors), low, high)):
                found[row[0], row[2]] = row
        return [lock_from(found[key]) for key in sorted(found)]

    def save_locks(self, locks: Sequence[Lock]) -> None:
        if locks:
            self.changed = True
            self._many(q.SAVE_LOCK, map(lock_row, locks))

    def drop_locks(self, keys: Sequence[tuple[str, int]]) -> None:
        if keys:
            self.changed = True
            self._many(q.DROP_LOCK, keys)

    # -- changelog

    def last_event(self) -> int:
        return self._last

    def draw(self, n: int) -> list[int]:
        return list(range(self._last + 1, self._last + 1 + n))

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        for event in events:
            self._last += 1
            event.seq = self._last
            event.time = self.now
        self._events += events

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        self.flush()
        if task_id is None:
            page = [event_from(row) for row in self._rows(q.EVENTS[newest], (after, limit))]
            return page[::-1] if newest else page
        found = []
        head = self._rows(q.NEWEST_EVENT, (task_id,))
        number = head[0][0] if head else 0
        while number and number > after:
            row = self._rows(q.EVENT_BEFORE, (number,))[0]
            found.append(event_from(row[:-1]))
            number = row[-1]
            if newest and len(found) == limit:
                break
        found.reverse()
        return found[:limit]

    # -- requests and messages

    def requests(self, key: str | None = None) -> dict[str, tuple[str, float]]:
        rows = self._rows(q.REQUESTS, ()) if key is None else self._rows(q.REQUEST, (key,))
        return {key: (answer, time) for key, answer, time in rows}

    def remember(self, key: str, answer: str) -> None:
        self.changed = True
        self._rows(q.FORGET, (self.now - KEEP_REQUESTS,))
        self._rows(q.REMEMBER, (key, answer, self.now))

    def shift_requests(self, seconds: float) -> None:
        self._rows(q.SHIFT_REQUESTS, (seconds,))

    def post(self, message: Message) -> None:
        self.changed = True
        self._rows(q.POST, (message.seq, message.time, message.sender, message.to, message.content))

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        if name is None:
            rows = self._rows(q.MESSAGES[newest], (after, limit))
        else:
            rows = self._rows(q.MESSAGES_TO[newest], (after, name, name, limit))
        return [Message(*row) for row in (reversed(rows) if newest else rows)]

    def marks(self, reader: str | None = None) -> dict[str, int]:
        return dict(self._rows(q.MARKS, ()) if reader is None else self._rows(q.MARK, (reader,)))

    def set_mark(self, reader: str, seq: int) -> None:
        self.changed = True
        self._rows(q.SET_MARK, (reader, seq))

    # -- looking

    def counts(self) -> dict[str, int]:
        return {status: self._tally[at] for status, at in _COUNTED.items()}

    def is_all_done(self) -> bool:
        counts = self.counts()
        return any(counts.values()) and not any(counts.get(status) for status in OPEN)

    def page(
        self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
    ) -> tuple[list[BoardTask], int]:
        wanted: list[str] = []
        for status in ("in_progress", "review", "pending", "completed", "failed", "cancelled"):
            if status in statuses:
                wanted += ("ready", "waiting") if status == "pending" else (status,)
        where = "".join(f" AND {_filter(name, value)}" for name, value in filters.items())
        values = tuple(filters.values())
        if filters:
            total = sum(
                self._rows(f"SELECT count(*) FROM task WHERE {q.GROUPS[group][0]}{where}", values)[0][0]
                for group in wanted
            )
        else:
            total = sum(n for status, n in self.counts().items() if status in statuses)
        rows: list[tuple[Any, ...]] = []
        for group in wanted:
            if len(rows) >= offset + limit:
                break
            condition, order = q.GROUPS[group]
            parts = ("any", "agent", "human") if group == "ready" else (None,)
            found: list[tuple[Any, ...]] = []
            for part in parts:
                only = "" if part is None else f" AND reserved = '{part}'"
                found += self._rows(
                    f"SELECT {TASK} FROM task WHERE {condition}{only}{where} ORDER BY {order} LIMIT ?",
                    (*values, offset + limit - len(rows)),
                )
            if group == "ready":
                found.sort(key=lambda row: (row[7], row[0]))
            rows += found
        return self._take(rows[offset : offset + limit]), total

    def find(self, prefix: str, limit: int) -> list[str]:
        return [row[0] for row in self._rows(q.FIND, (prefix, prefix + "\x7f", limit))]

    def all_tasks(self) -> Iterator[BoardTask]:
        after = -1
        while rows := self._rows(q.ALL_TASKS, (after, _PAGE)):
            after = rows[-1][0]
            for row in rows:
                yield task_from(row)

    def restore(
        self,
        tasks: Iterable[BoardTask],
        locks: Iterable[Lock],
        messages: Iterable[Message],
        events: Iterable[Event],
        marks: dict[str, int],
        requests: dict[str, tuple[str, float]],
    ) -> None:
        # Over the rows as they come, which may be more than once: nobody keeps a million of them.
        self.changed = True
        number: dict[str, int] = {}
        for task in tasks:
            self._tally[_COUNTED[task.status]] += 1
            self._newest[task.id] = 0
            number[task.id] = task.seq
        edges = [(number[need], task.seq) for task in tasks for need in task.depends_on]
        self._many(q.LINK_NUMBERS, edges)
        self._many(q.APPEND, self._changelog(events))
        self._many(q.INSERT, (insert_row(task, self._newest[task.id]) for task in tasks))
        self._many(q.SAVE_LOCK, map(lock_row, locks))
        self._many(q.POST, ((m.seq, m.time, m.sender, m.to, m.content) for m in messages))
        self._many(q.SET_MARK, marks.items())
        self._many(q.REMEMBER, ((key, answer, time) for key, (answer, time) in requests.items()))

    def _changelog(self, events: Iterable[Event]) -> Iterator[tuple[Any, ...]]:
        """The rows of a restored changelog; the last carries the tally."""
        held: tuple[Event, int | None] | None = None
        for event in events:
            if held is not None:
                yield event_row(*held, None)
            previous = None
            if event.task_id is not None:
                previous = self._newest[event.task_id] or None
                self._newest[event.task_id] = event.seq
            held = event, previous
            self._last = event.seq
        if held is not None:
            yield event_row(*held, " ".join(map(str, self._tally)))


def _filter(name: str, value: str) -> str:
    # The engine folds the case of ASCII only, but does that many times faster than a function of ours.
    return q.SEARCH_FOLDED if name == "search" and not value.isascii() else q.FILTERS[name]


def contains(*values: Any) -> bool:
    """The SQL function of `queries.SEARCH_FOLDED`, for a store to register: (text, what is looked for)."""
    return str(values[1]).casefold() in str(values[0]).casefold()
