"""A transaction on a PostgreSQL board: the verbs of `dibs.store.Tx` as statements, in few trips.

Trips. Nothing is sent until something has to be known. The first trip carries the beginning, every trip carries what
has been written since the one before, the last carries the commit. What a verb is going to ask for can be fetched with
the first trip (`foresee`), so a claim takes two trips (three with files) and a completion two.

Order. Rows that are decided about are locked (NO KEY UPDATE) by the statement that reads them, and an event's number is
drawn after the rows that it tells of: so the numbers of a task's events are in the order in which they happened, and a
later claim has the larger token. Numbers that were drawn before more rows were locked are thrown away. That leaves
gaps in the numbering, which mean nothing.

Path locks. Whoever reads `locks(patterns)` to decide holds the literal prefix of each pattern, and shares the folders
above it, until its transaction ends (`near` does so only where nothing is in the way: a claim that passes over task
after task would otherwise hold them all, in no order, and run into others who do the same). Two patterns overlap only if the prefix of one is the other's or above it, so of
two who are about to grant overlapping locks one waits for the other, and sees its lock.

Fronts. Whoever makes tasks ready shares the board's front gate and sees to it that no front lies above them: see
`fronts`.

A crash, or a connection that breaks, leaves nothing of a transaction that was not committed; what became of one that
was being committed is the store's business.
"""

from __future__ import annotations

from dibs.ids import random_id
from dibs.model import PENDING, BoardTask, Event, Lock, Message, TaskStatus, Worker
from dibs.paths import literal_prefix, prefix_range
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import EDGES, FRONTS, path_keys, reader_key
from dibs.stores.rows import (
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
from dibs.stores.sql import KEEP_REQUESTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from dibs.stores.postgres.links import Link, Row, Statement
    from dibs.stores.postgres.store import PostgresStore

QUIET = "10s"
"""How long the server lets a transaction wait for its client."""
_MANY = 100
"""From this many rows on they are copied in."""
_PAGE = 2000
_FIRST = -(2**31)


def is_ready(task: BoardTask) -> bool:
    return task.status is PENDING and not task.unmet and not task.open_blockers


def lane_of(task: BoardTask) -> str:
    return "human" if task.reserved == "human" else "open"


def bound_of(answers: list[list[Row]]) -> int:
    """How far the changelog is settled, from the answers to `PostgresStore.bound`."""
    last, first = answers[0][0][0], answers[1][0][0]
    return int(last if first is None else min(last, first))


class PostgresTx:
    """See `dibs.store.Tx`."""

    def __init__(self, store: PostgresStore, link: Link, writing: bool) -> None:
        self._store = store
        self._board = store.board
        self._link = link
        self._writing = writing
        self.begun = False
        self.changed = False
        self.xid: str | None = None
        self.last: Event | None = None
        """The newest event of this transaction: by it, it is known again."""
        self._now = 0.0
        self._ahead: list[Statement] = []
        self._numbers: list[int] = []
        self._foreseen: dict[tuple[str, Any], list[Row]] = {}
        self._newest: dict[str, int] = {}
        self._new: list[BoardTask] = []
        self._dirty: dict[int, BoardTask] = {}
        self._events: list[Event] = []
        self._pending: list[Statement] = []
        self._born: dict[int, int] = {}
        self.far_front: tuple[str, int] | None = None
        """A lane and rank whose front has fallen far behind its first ready task."""

    # -- trips

    @property
    def now(self) -> float:
        if not self.begun:
            self._ask(flush=False)
        return self._now

    def _ask(self, *reads: Statement, flush: bool = True) -> list[list[Row]]:
        """The answers to these, in one trip with what is waiting to be sent. Without `flush` that waits on: a task is
        written together with its event."""
        before: list[Statement] = []
        if not self.begun:
            clock = self._store.clock
            head = (q.HEAD[self._writing], (clock.wall() if clock else None, QUIET))
            before = [(q.BEGIN[self._writing], ()), head]
        writes = self._collect() if flush else []
        answers = self._link.trip([*before, *writes, *reads])
        if not self.begun:
            self.begun = True
            self._now, self.xid, _ = answers[1][0]
            self._store.saw_time(self._now)
        return answers[len(answers) - len(reads) :] if reads else []

    def _one(self, sql: str, *values: Any) -> list[Row]:
        return self._ask((sql, (self._board, *values)))[0]

    def foresee(
        self,
        *,
        name: str | None = None,
        ending: str | None = None,
        claiming: tuple[Sequence[str], int] | None = None,
    ) -> None:
        board, clock = self._board, self._store.clock
        wanted: list[tuple[tuple[str, Any], Statement]] = []
        if claiming is not None:
            wanted.append((("due", None), (q.DUE_NOW, (board, clock.wall() if clock else None, 1000))))
            wanted.append((("holders", None), (q.HOLDERS, (board,))))
            wanted.append((("run out", None), (q.LOCKS_RUN_OUT_NOW, (board, clock.wall() if clock else None))))
        if ending is not None:
            wanted.append((("task", ending), (q.TASK_BY_ID[True], (board, ending, *self._store.numbers))))
            wanted.append((("dependants", ending), (q.DEPENDANTS_OF_ID, (board, ending))))
            wanted.append((("locks of", ending), (q.LOCKS_OF_TASK, (board, ending))))
        if name is not None:
            wanted.append((("in progress", name), (q.IN_PROGRESS_BY, (board, name))))
            wanted.append((("locks by", name), (q.LOCKS_BY, (board, name))))
        if claiming is not None and "human" not in claiming[0]:
            key = ("ready", (tuple(claiming[0]), claiming[1]))
            wanted.append((key, self._ready("open", False, claiming[1], None, ())))
            if self._store.expected_paths:
                wanted += self._near(self._store.expected_paths)
        for (key, _), rows in zip(wanted, self._ask(*(statement for _, statement in wanted)), strict=True):
            self._foreseen[key] = rows

    def _near(self, patterns: Sequence[str]) -> list[tuple[tuple[str, Any], Statement]]:
        """What `near(patterns)` asks for: if there are no such locks hold the paths; look; if there are none draw."""
        keys, held = path_keys([literal_prefix(pattern) for pattern in patterns])
        about, where = tuple(patterns), self._where(patterns)
        return [
            (("hold", about), (q.HOLD_PATHS_IF_FREE, (self._board, keys, held, *where))),
            (("near", about), (q.LOCKS_NEAR[False], (self._board, *where))),
            (("number", about), (q.DRAW_IF_FREE, (self._board, *where, *self._store.numbers))),
        ]

    # -- writing

    def _collect(self) -> list[Statement]:
        """What has been gathered, as statements. Many new rows are copied in at once, before anything else."""
        board = self._board
        newest = self._newest
        events = []
        for event in self._events:
            previous = None
            if event.task_id is not None:
                previous = newest.get(event.task_id) or None
                newest[event.task_id] = event.seq
            events.append((board, *event_row(event, previous, None)[:-1]))
        self._events = []
        fresh = [(board, *insert_row(task, newest[task.id]), self._born.pop(task.seq, 0)) for task in self._new]
        ready = [task for task in (*self._new, *self._dirty.values()) if is_ready(task)]
        saved = [(board, *save_row(task, newest[task.id])) for task in self._dirty.values()]
        self._new, self._dirty = [], {}
        gathered, self._pending = self._pending, []
        made: list[Statement] = []
        if max(len(events), len(fresh)) >= _MANY:
            if not self.begun:
                self._ask(flush=False)
            if fresh:
                self._link.copy("dibs.task", q.TASK_COLUMNS, fresh)
            if events:
                self._link.copy("dibs.event", q.EVENT_COLUMNS, events)
            events, fresh = [], []
        made += [(q.APPEND, row) for row in events]
        made += [(q.INSERT, row) for row in fresh]
        made += [(q.SAVE, row) for row in saved]
        if ready:
            made += self._fronts(ready)
        return [*made, *gathered]

    def _fronts(self, ready: Sequence[BoardTask]) -> list[Statement]:
        lowest: dict[tuple[str, int], int] = {}
        for task in ready:
            key = (lane_of(task), -task.priority)
            lowest[key] = min(task.seq, lowest.get(key, task.seq))
        keys = sorted(lowest)
        values = (self._board, [k[0] for k in keys], [k[1] for k in keys], [lowest[k] for k in keys])
        return [(q.SHARE, (self._board, FRONTS)), (q.ADD_FRONTS, values), (q.LOWER_FRONTS, values)]

    def commit(self) -> None:
        """The last trip."""
        told = self._store.changed()
        self._ask(("COMMIT", ()), *([] if told is None else [told]))

    def _write(self, sql: str, *values: Any) -> None:
        self.changed = True
        self._pending.append((sql, (self._board, *values)))

    # -- numbers

    def next_token(self) -> int:
        if not self._numbers:
            self._draw(1)
        return self._numbers[0]

    def _draw(self, count: int) -> None:
        wanted: list[Statement] = [(q.DRAW, self._store.numbers)]
        if count > 1:
            wanted.append((q.DRAW_MORE, (self._store.events, count - 1)))
        self._numbers += [row[0] for answer in self._ask(*wanted, flush=False) for row in answer]

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        now = self.now
        if len(self._numbers) < len(events):
            self._draw(len(events) - len(self._numbers))
        for event in events:
            event.seq = self._numbers.pop(0)
            event.time = now
        self._events += events
        if events:
            self.last = events[-1]

    def last_event(self) -> int:
        newest = int(self._one(q.NEWEST)[0][0])
        return max(newest, self.last.seq if self.last else 0)

    # -- tasks

    def _take(self, rows: Iterable[Row]) -> list[BoardTask]:
        tasks = []
        for row in rows:
            task = task_from(row)
            self._newest[task.id] = row[-1]
            tasks.append(task)
        return tasks

    def _numbered(self, rows: Sequence[Row]) -> list[BoardTask]:
        """Rows with the number that was drawn once they were locked."""
        if rows:
            self._numbers = [row[-1] for row in rows if row[-1] is not None]
        return self._take(row[:-1] for row in rows)

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        if not ids:
            return {}
        if len(ids) == 1:
            rows = None if self.changed else self._foreseen.pop(("task", ids[0]), None)
            if rows is None:
                more = self._store.numbers if self._writing else ()
                rows = self._one(q.TASK_BY_ID[self._writing], ids[0], *more)
            return {task.id: task for task in self._numbered(rows)}
        rows = self._one(q.TASKS_BY_ID[self._writing], list(ids))
        if rows:
            self._numbers = []
        found = {task.id: task for task in self._take(rows)}
        return {i: found[i] for i in ids if i in found}

    def again(self, task: BoardTask) -> BoardTask | None:
        rows = None if self.changed else self._foreseen.pop(("task", task.id), None)
        if rows is None:
            more = self._store.numbers if self._writing else ()
            rows = self._one(q.TASK_AGAIN[self._writing], task.seq, task.id, *more)
        found = self._numbered(rows)
        return found[0] if found and found[0].seq == task.seq else None

    def ready(
        self, reserved: Sequence[str], limit: int, after: BoardTask | None, held: Sequence[list[str]]
    ) -> list[BoardTask]:
        without = [text for paths in held if (text := lines(paths))]
        rows = None
        if after is None and not held and not self.changed:
            rows = self._foreseen.pop(("ready", (tuple(reserved), limit)), None)
        lanes = [("open", "human" in reserved)] + [("human", False)] * ("human" in reserved)
        if rows is None:
            asked = self._ask(*(self._ready(lane, only, limit, after, without) for lane, only in lanes))
            rows = [row for answer in asked for row in answer]
        rows.sort(key=lambda row: (row[7], row[0]))
        rows = rows[:limit]
        if rows and after is None and rows[0][0] - rows[0][-1] > self._store.fronts.far:
            first = rows[0]
            self.far_front = ("human" if first[20] == "human" else "open", first[7])
        return self._numbered([row[:-1] for row in rows])

    def _ready(
        self, lane: str, only_any: bool, limit: int, after: BoardTask | None, without: Sequence[str]
    ) -> Statement:
        rank, seq = (_FIRST, 0) if after is None else (-after.priority, after.seq + 1)
        values = (self._board, limit, rank, seq, list(without))
        if not self._writing:
            return q.ready(lane, only_any, False), values
        # From two lanes the rows are mixed, and their numbers would be out of order.
        draws = after is None and not without and lane == "open" and not only_any
        return q.ready(lane, only_any, True), (*values, *self._store.numbers, draws)

    def due(self, limit: int) -> list[BoardTask]:
        rows = None if self.changed else self._foreseen.pop(("due", None), None)
        if rows is None:
            rows = self._one(q.DUE[self._writing], self.now, limit)
        if rows:
            self._numbers = []
            self._foreseen = {}
        return self._take(rows)

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        if name is None:
            return self._take(self._one(q.IN_PROGRESS))
        rows = self._foreseen.pop(("in progress", name), None)
        if rows is None:
            return self._take(self._one(q.IN_PROGRESS_BY, name))
        # What this transaction has changed since counts as it is now.
        tasks = self._take(row for row in rows if row[0] not in self._dirty)
        return tasks + [t for t in self._dirty.values() if t.status == "in_progress" and t.assigned_to == name]

    def holders(self) -> list[Worker]:
        rows = self._foreseen.pop(("holders", None), None)
        if rows is None:
            rows = self._one(q.HOLDERS)
        return [worker_from(row[0]) for row in rows]

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        if len(tasks) == 1 and (rows := self._foreseen.pop(("dependants", tasks[0].id), None)) is not None:
            return self._take(rows)
        return self._take(self._one(q.DEPENDANTS[self._writing], [task.seq for task in tasks]))

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return [random_id() for _ in tasks]

    def insert(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        # The gate first: whoever raises a front relies on nobody making tasks with numbers drawn before.
        _, drawn, first, more = self._ask(
            (q.SHARE, (self._board, FRONTS)),
            (q.DRAW_MORE, (self._store.tasks, len(tasks))),
            (q.DRAW, self._store.numbers),
            (q.DRAW_MORE, (self._store.events, len(tasks) - 1)),
        )
        self._numbers = [row[0] for row in (*first, *more)]
        for task, (seq,) in zip(tasks, drawn, strict=True):
            task.seq = seq
            self._newest[task.id] = 0
        self._new += tasks

    def save(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        for task in tasks:
            self._dirty[task.seq] = task

    def link(self, edges: Sequence[tuple[BoardTask, BoardTask]]) -> None:
        if edges:
            self._edges(q.LINK, edges, 1)

    def unlink(self, edges: Sequence[tuple[BoardTask, BoardTask]]) -> None:
        if edges:
            self._edges(q.UNLINK, edges, -1)

    def _edges(self, sql: str, edges: Sequence[tuple[BoardTask, BoardTask]], by: int) -> None:
        unwritten = {task.seq for task in self._new}
        counted: dict[int, int] = {}
        for _, needs in edges:
            if needs.seq in unwritten:
                self._born[needs.seq] = self._born.get(needs.seq, 0) + by
            else:
                counted[needs.seq] = counted.get(needs.seq, 0) + by
        self._write(sql, [needs.seq for _, needs in edges], [task.seq for task, _ in edges])
        if counted:
            seqs = sorted(counted)
            self._write(q.COUNT_DEPENDANTS, seqs, [counted[seq] for seq in seqs])

    def freeze_edges(self) -> None:
        self._ask((q.HOLD, (self._board, EDGES)))

    # -- locks

    def locks(self, patterns: Sequence[str] | None = None, name: str | None = None) -> list[Lock]:
        if name is not None:
            rows = None if self.changed and self._pending else self._foreseen.pop(("locks by", name), None)
            return [lock_from(row) for row in (self._one(q.LOCKS_BY, name) if rows is None else rows)]
        if patterns is None:
            return [lock_from(row) for row in self._one(q.LOCKS)]
        if not patterns:
            return []
        where = self._where(patterns)
        if not self._writing:
            return [lock_from(row) for row in self._one(q.LOCKS_NEAR[False], *where)]
        keys, held = path_keys([literal_prefix(pattern) for pattern in patterns])
        _, found, drawn = self._ask(
            (q.HOLD_PATHS, (self._board, keys, held)),
            (q.LOCKS_NEAR[True], (self._board, *where)),
            (q.DRAW, self._store.numbers),
        )
        self._numbers = [row[0] for row in drawn]
        return [lock_from(row) for row in found]

    def near(self, patterns: Sequence[str]) -> tuple[list[Lock], bool]:
        if not self._writing:
            return self.locks(patterns), True
        about = tuple(patterns)
        kept = [self._foreseen.pop((part, about), None) for part in ("hold", "near", "number")]
        if self._pending or None in kept:
            kept = list(self._ask(*(statement for _, statement in self._near(patterns))))
        held, found, drawn = (answer or [] for answer in kept)
        if held:
            self._numbers = [row[0] for row in drawn]
        return [lock_from(row) for row in found], bool(held)

    def _where(self, patterns: Sequence[str]) -> tuple[list[str], list[str], list[str], list[str]]:
        """Where to look for locks that could overlap: prefixes, as the index has them and whole, and ranges of them."""
        ancestors: dict[str, None] = {}
        lows, highs = [], []
        for prefix in dict.fromkeys(map(literal_prefix, patterns)):
            above, low, high = prefix_range(prefix)
            ancestors.update(dict.fromkeys(above))
            lows.append(low)
            highs.append(high)
        near = list(ancestors)
        return [p[:600] for p in near], near, lows, highs

    def own_locks(self, task: BoardTask) -> list[Lock]:
        rows = None if self._pending else self._foreseen.pop(("locks of", task.id), None)
        return [lock_from(row) for row in (self._one(q.LOCKS_OF_TASK, task.id) if rows is None else rows)]

    def run_out(self) -> list[Lock]:
        rows = self._foreseen.pop(("run out", None), None)
        return [lock_from(row) for row in (self._one(q.LOCKS_RUN_OUT, self.now) if rows is None else rows)]

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            self._write(q.SAVE_LOCK, *lock_row(lock))

    def drop_locks(self, locks: Sequence[Lock]) -> None:
        if locks:
            self._write(q.DROP_LOCKS, [lock.pattern for lock in locks], [lock.token for lock in locks])

    # -- changelog

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        if task_id is None:
            rows = self._one(q.EVENTS[newest], after, min(limit, 2**40))
            return [event_from(row) for row in (rows[::-1] if newest else rows)]
        found = [event_from(row) for row in self._one(q.HISTORY, task_id, after, limit if newest else 2**31)]
        return found if newest else found[:limit]

    # -- requests and messages

    def recall(self, key: str) -> str | None:
        rows = self._one(q.RECALL, key)
        return rows[0][0] if rows else None

    def remember(self, key: str, answer: str) -> None:
        self._write(q.FORGET, self.now - KEEP_REQUESTS)
        self._write(q.REMEMBER, key, answer, self.now)

    def shift_requests(self, seconds: float) -> None:
        """The database's clock is the board's: it is not corrected."""

    def post(self, messages: Sequence[Message]) -> None:
        for m in messages:
            self._write(q.POST, m.seq, m.time, m.sender, m.to, m.content)

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        # A reader's mark passes over what it was not given, so it is given only what nothing can come before any more.
        bound = bound_of(self._ask(*self._store.bound))
        limit = min(limit, 2**40)
        if name is None:
            rows = self._one(q.MESSAGES[newest], after, bound, limit)
        else:
            rows = self._one(q.MESSAGES_TO[newest], after, bound, limit, name)
        return [Message(*row) for row in (reversed(rows) if newest else rows)]

    def mark(self, reader: str) -> int:
        reads: list[Statement] = [(q.MARK, (self._board, reader))]
        if self._writing:  # two who read the same inbox take turns
            reads.insert(0, (q.HOLD, (self._board, reader_key(reader))))
        rows = self._ask(*reads)[-1]
        return rows[0][0] if rows else 0

    def set_mark(self, reader: str, seq: int) -> None:
        self._write(q.SET_MARK, reader, seq)

    def marks(self) -> dict[str, int]:
        return dict(self._one(q.MARKS))

    def requests(self) -> dict[str, tuple[str, float]]:
        return {key: (answer, time) for key, answer, time in self._one(q.REQUESTS)}

    # -- looking

    def counts(self) -> dict[str, int]:
        return dict(self._one(q.COUNTS))

    def page(
        self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
    ) -> tuple[list[BoardTask], int]:
        from dibs.stores.postgres.pages import page

        rows, total = page(self._one, statuses, filters, limit, offset)
        return self._take(rows), total

    def find(self, prefix: str, limit: int) -> list[str]:
        return [row[0] for row in self._one(q.FIND, prefix, prefix + "\x7f", limit)]

    def all_tasks(self) -> Iterator[BoardTask]:
        after = -1
        while rows := self._one(q.ALL_TASKS, after, _PAGE):
            after = rows[-1][0]
            yield from self._take(rows)

    # -- filling

    def restore(
        self,
        tasks: Iterable[BoardTask],
        locks: Iterable[Lock],
        messages: Iterable[Message],
        events: Iterable[Event],
        marks: dict[str, int],
        requests: dict[str, tuple[str, float]],
    ) -> None:
        from dibs.stores.postgres.filling import fill

        self.changed = True
        self._ask((q.SHARE, (self._board, FRONTS)))
        fill(self._link, self._store, list(tasks), locks, messages, list(events), marks, requests)
