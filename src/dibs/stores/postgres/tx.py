"""A transaction on a PostgreSQL board: the verbs of `dibs.stores.base.Tx` as statements.

Nothing is sent until something has to be known. The first round trip carries the beginning; a read carries what was
written before it; the last carries the commit.

How writers that run side by side are kept apart:

- Reads are plain, and every row that is handed out is noted with its version (`xmin`). Whatever is written begins with
  holding those rows and comparing their versions (`VALIDATE_TASKS`, `VALIDATE_LOCKS`). A row that somebody else has
  changed, or is changing, is a `Collision`. Only who holds nothing yet and needs one row waits for it, so nobody waits
  in a circle.
- `ready(claim=True)` and `due` hold what they hand out, and pass over what others hold.
- Whoever asks for locks in order to grant some holds the board's one key for path locks until its transaction ends.
  Plain work never takes it.
- An event's number is drawn when all rows that it tells of have been read. If one of them changes after that, the
  validation fails; if not, every earlier event of that row has a smaller number. So the numbers of a task's events are
  in the order in which they happened, and a later claim has the larger token. Numbers of transactions that came to
  nothing leave gaps, which mean nothing.
- Counters that many lower at once (`satisfy`) are changed relative to what they are, without being read.

A crash, or a connection that breaks, leaves nothing of a transaction that was not committed; what became of one that
was being committed is the store's business.
"""

from __future__ import annotations

from dibs.model import BoardTask, Event, Lock, Message, TaskStatus, Worker
from dibs.rules.paths import literal_prefix, prefix_range
from dibs.stores.postgres import statements as q
from dibs.stores.rows import (
    KEEP_REQUESTS,
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from dibs.stores.postgres.round_trips import Connection, Row, Statement
    from dibs.stores.postgres.store import PostgresStore

QUIET = "10s"
"""How long the server lets a transaction that writes wait for its client, …"""
READING = "5min"
"""… one that only reads, which stops nobody but the vacuum: a copy may be slow at its other end, …"""
SILENCE = "5s"
"""… and for any sign of life, where it is in the middle of what it sends. A client that hears nothing sends everything
again after 0.2, 0.4, 0.8 … s, which is a sign; between the one after 6 s and the one after 13 it is told from a dead
one."""
MANY = 100
"""From this many new tasks on they are copied in."""
_PAGE = 2000
_FIRST_RANK = -(2**31)


def queue_of(task: BoardTask) -> str:
    return "human" if task.reserved == "human" else "open"


def stable_seq_of(answers: Sequence[Sequence[Row]]) -> int:
    """How far the changelog is stable, from the answers to `PostgresStore.stable`."""
    last, first = answers[0][0][0], answers[1][0][0]
    return int(last if first is None else min(last, first))


class PostgresTx:
    """See `dibs.stores.base.Tx`."""

    def __init__(self, store: PostgresStore, connection: Connection, writing: bool) -> None:
        self._store = store
        self._board = store.board
        self._connection = connection
        self._writing = writing
        self._wall = store.clock.wall() if store.clock else None
        """The tests' time, for statements that else ask the server's clock."""
        self._now = 0.0
        self.begun = False
        self.changed = False
        self.xid: str | None = None
        self.last: Event | None = None
        """The newest event of this transaction: by it, it is known again."""
        self.lagging: tuple[str, int] | None = None
        """A queue and rank whose watermark has fallen far behind its first ready task."""
        # What was handed out: of tasks the newest event, the dependencies and the version; of locks the version.
        self._newest: dict[str, int] = {}
        self._needs: dict[int, str | None] = {}
        self._versions: dict[int, int] = {}
        self._lock_versions: dict[tuple[str, int], int] = {}
        # What is held, and what is to be held and validated before anything is written.
        self._held: set[int] = set()
        self._unheld: set[int] = set()
        self._has_path_key = self._wants_path_key = False
        self._renewed: set[tuple[str, int]] = set()
        self._dropped: set[tuple[str, int]] = set()
        # What is to be written.
        self._new: list[BoardTask] = []
        self._dirty: dict[int, BoardTask] = {}
        self._links: tuple[list[str], list[int]] = ([], [])
        self._unlinks: tuple[list[str], list[int]] = ([], [])
        self._events: list[Event] = []
        self._pending: list[Statement] = []
        self._drawn: list[int] = []
        self._spare: list[int] = []
        """A number that was drawn in advance; of no use once more has been read."""

    # -- round trips

    @property
    def now(self) -> float:
        if not self.begun:
            self._trip([])
        return self._now

    def _trip(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """One round trip; the first begins the transaction."""
        before: list[Statement] = []
        if not self.begun:
            settings = (QUIET, SILENCE) if self._writing else (READING,)
            before = [(q.BEGIN[self._writing], ()), (q.HEAD[self._writing], (self._wall, *settings))]
        answers = self._connection.trip([*before, *statements])
        if before:
            self.begun = True
            self.xid, self._now = answers[1][0][:2]
        return answers[len(before) :]

    def _ask(self, *reads: Statement) -> list[list[Row]]:
        """The answers to these, which see what was written."""
        writes = self._collect()
        self._spare = []
        return self._trip([*writes, *reads])[len(writes) :]

    def _one(self, sql: str, *values: Any) -> list[Row]:
        return self._ask((sql, (self._board, *values)))[0]

    def _write(self, sql: str, *values: Any) -> None:
        self.changed = True
        self._pending.append((sql, (self._board, *values)))

    def commit(self) -> None:
        writes = self._collect()
        if not self.begun:
            self._trip([])
        self._connection.commit(writes, self._store.behind(self.lagging))

    # -- writing: validate, number, write

    def _collect(self) -> list[Statement]:
        """The statements for all that is to be written. Numbers that are missing are drawn first, in a round trip that
        also validates."""
        if not self.changed:
            return []
        before = self._validation()
        missing = [event for event in self._events if not event.seq]
        if self._new or missing:
            # Whoever raises a watermark relies on nobody making tasks with numbers drawn before: so the key first.
            tasks = [(q.SHARE, (self._board, q.WATERMARKS)), (q.DRAW_TASKS, (self._store.tasks, len(self._new)))]
            draws = [*(tasks if self._new else []), (q.DRAW, (*self._store.numbers, len(missing)))]
            answers = self._trip([*before, *draws])
            for event, (number,) in zip(missing, answers[-1], strict=True):
                event.seq = number
            for task, (number,) in zip(self._new, answers[-2] if self._new else [], strict=True):
                task.seq = number
            before = []
        return [*before, *self._gathered()]

    def _validation(self) -> list[Statement]:
        """Hold what was only seen, if it is as it was."""
        board = self._board
        made: list[Statement] = []
        if self._unheld:
            seqs = sorted(self._unheld)
            waits = len(seqs) == 1 and not self._held and not self._has_path_key
            made.append((q.VALIDATE_TASKS[waits], (board, seqs, [self._versions[seq] for seq in seqs])))
            self._held |= self._unheld
            self._unheld = set()
        if self._wants_path_key and not self._has_path_key:
            made.append((q.HOLD, (board, q.PATH_LOCKS)))
            self._has_path_key = True
        keys = [key for key in sorted(self._renewed | self._dropped) if key in self._lock_versions]
        if keys:
            versions = [self._lock_versions.pop(key) for key in keys]
            patterns, tokens = [key[0] for key in keys], [key[1] for key in keys]
            renewed = [key in self._renewed for key in keys]
            made.append((q.VALIDATE_LOCKS, (board, tokens, patterns, versions, renewed, self._wall)))
        self._renewed, self._dropped = set(), set()
        return made

    def _gathered(self) -> list[Statement]:
        """What was gathered, as statements. Many new rows are copied in at once, before anything else."""
        board, newest = self._board, self._newest
        events = []
        for event in self._events:
            previous = None
            if event.task_id is not None:
                previous = newest.get(event.task_id) or None
                newest[event.task_id] = event.seq
            events.append((board, *event_row(event, previous, None)[:-1]))
        new = [(board, *insert_row(task, newest.get(task.id, 0))) for task in self._new]
        for task in self._new:
            self._held.add(task.seq)
            self._needs[task.seq] = lines(task.depends_on)
            self._links[0].extend(task.depends_on)
            self._links[1].extend(task.seq for _ in task.depends_on)
        ready = [task for task in (*self._new, *self._dirty.values()) if task.is_ready]
        saved = [(board, *save_row(task, newest[task.id])) for task in self._dirty.values()]
        if events:
            self._connection.saw(self._events[-1].seq)
        if len(new) >= MANY:
            self._connection.copy("dibs.task", q.TASK_COLUMNS, new)
            self._connection.copy("dibs.event", q.EVENT_COLUMNS, events)
            new, events = [], []
        made: list[Statement] = [(q.APPEND, row) for row in events]
        made += [(q.INSERT, row) for row in new]
        made += [(q.SAVE, row) for row in saved]
        for sql, edges in ((q.UNLINK, self._unlinks), (q.LINK, self._links)):
            if edges[0]:
                made.append((sql, (board, *edges)))
        if ready:
            made += self._watermarks(ready)
        made += self._pending
        self._events, self._new, self._dirty, self._pending = [], [], {}, []
        self._links, self._unlinks = ([], []), ([], [])
        return made

    def _watermarks(self, ready: Sequence[BoardTask]) -> list[Statement]:
        lowest: dict[tuple[str, int], int] = {}
        for task in ready:
            key = (queue_of(task), -task.priority)
            lowest[key] = min(task.seq, lowest.get(key, task.seq))
        keys = sorted(lowest)
        values = (self._board, [k[0] for k in keys], [k[1] for k in keys], [lowest[k] for k in keys])
        return [(q.SHARE, (self._board, q.WATERMARKS)), (q.LOWER_WATERMARKS, values)]

    # -- reading tasks

    def _take(self, rows: Iterable[Row], held: bool = False) -> list[BoardTask]:
        """Rows of `statements.ROW` as tasks."""
        tasks = []
        for row in rows:
            task = task_from(row[: q.WIDTH])
            self._newest[task.id] = row[q.WIDTH - 1]
            self._needs[task.seq] = row[5]
            self._versions.setdefault(task.seq, row[q.WIDTH])
            if held:
                self._held.add(task.seq)
            tasks.append(task)
        return tasks

    def _expect(self, tasks: Iterable[BoardTask]) -> None:
        """These must stay as they were handed out."""
        self._unheld.update(task.seq for task in tasks if task.seq not in self._held)

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        if not ids:
            return {}
        found = {task.id: task for task in self._take(self._one(q.TASKS_BY_ID, list(ids)))}
        if self._writing:
            self._expect(found.values())
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
        rank, seq = (_FIRST_RANK, 0) if after is None else (-after.priority, after.seq + 1)
        claim = claim and self._writing
        one = limit == 1
        values = (self._board, rank, seq, ["\n".join(paths) for paths in held], *(() if one else (limit,)))
        # An agent's tasks stand in one queue. A human takes what is the humans' and what is anybody's.
        queues = [("open", True), ("human", False)] if "human" in reserved else [("open", False)]
        found = self._ask(*((q.ready(queue, only_any, claim, one), values) for queue, only_any in queues))
        rows = sorted((row for each in found for row in each), key=lambda row: (row[7], row[0]))[:limit]
        if rows and after is None and rows[0][0] - rows[0][-1] > self._store.watermark.far:
            self.lagging = ("human" if rows[0][20] == "human" else "open", rows[0][7])
        return self._take((row[:-1] for row in rows), held=claim)

    def due(self, limit: int) -> list[BoardTask]:
        return self._take(self._one(q.DUE[self._writing], self._wall, limit), held=self._writing)

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        return self._take(self._one(q.IN_PROGRESS) if name is None else self._one(q.IN_PROGRESS_BY, name))

    def holders(self) -> list[Worker]:
        return [worker_from(row[0]) for row in self._one(q.HOLDERS)]

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        return self._take(self._one(q.DEPENDANTS, [task.seq for task in tasks]))

    def edges(self) -> list[tuple[str, str]]:
        return [(task, needs) for task, needs in self._one(q.EDGES)]

    def all_tasks(self) -> Iterator[BoardTask]:
        after = -1
        while rows := self._one(q.ALL_TASKS, after, _PAGE):
            after = rows[-1][0]
            for row in rows:
                yield task_from(row)

    def page(
        self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
    ) -> tuple[list[BoardTask], int]:
        from dibs.stores.postgres.pages import page

        rows, total = page(self._one, statuses, filters, limit, offset)
        return self._take(rows), total

    def find(self, prefix: str, limit: int) -> list[str]:
        return [row[0] for row in self._one(q.FIND, prefix, prefix + "\x7f", limit)]

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for status, number in self._one(q.COUNTS):
            found[status] = found.get(status, 0) + number
        return found

    def is_all_done(self) -> bool:
        (is_open,), (is_there,) = self._ask((q.ANY_OPEN, (self._board,)), (q.ANY, (self._board,)))
        return bool(is_there[0] and not is_open[0])

    # -- changing tasks

    def insert(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        self._new += tasks

    def save(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        self._expect(tasks)
        for task in tasks:
            before = (self._needs[task.seq] or "").split("\n") if self._needs[task.seq] else []
            for edges, needs in (
                (self._unlinks, [need for need in before if need not in task.depends_on]),
                (self._links, [need for need in task.depends_on if need not in before]),
            ):
                edges[0].extend(needs)
                edges[1].extend(task.seq for _ in needs)
            self._needs[task.seq] = lines(task.depends_on)
            self._dirty[task.seq] = task

    def satisfy(self, task: BoardTask) -> None:
        self._write(q.SHARE, q.WATERMARKS)
        self._write(q.SATISFY, task.seq)

    # -- locks

    def locks(
        self, patterns: Sequence[str] | None = None, *, name: str | None = None, expired: bool = False
    ) -> list[Lock]:
        if name is not None:
            rows = self._one(q.LOCKS_BY, name)
        elif expired:
            rows = self._one(q.LOCKS_EXPIRED, self._wall)
        elif patterns is None:
            rows = self._one(q.LOCKS)
        elif not patterns:
            if self._writing:
                self._ask((q.HOLD, (self._board, q.PATH_LOCKS)))
                self._has_path_key = True
            return []
        else:
            rows = self._locks_near(patterns)
        for row in rows:
            self._lock_versions.setdefault((row[0], row[2]), row[-1])
        return [lock_from(row[:-1]) for row in rows]

    def _locks_near(self, patterns: Sequence[str]) -> list[Row]:
        near: Statement = (q.LOCKS_NEAR, (self._board, *_ranges(patterns)))
        if not self._writing:
            return self._ask(near)[0]
        # Whoever asks is mostly about to grant some, and will need a number for that. The time is asked for again: a
        # lock may have run out while we waited for the key.
        key: Statement = (q.HOLD, (self._board, q.PATH_LOCKS))
        _, rows, [[self._now]], spare = self._ask(
            key, near, (q.NOW, (self._wall,)), (q.DRAW, (*self._store.numbers, 1))
        )
        self._has_path_key = True
        self._spare = [number for (number,) in spare]
        return rows

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            self._wants_path_key = True
            self._renewed.add((lock.pattern, lock.token))
            self._write(q.SAVE_LOCK, *lock_row(lock))

    def drop_locks(self, keys: Sequence[tuple[str, int]]) -> None:
        if keys:
            self._dropped.update(keys)
            ordered = sorted(keys)
            self._write(q.DROP_LOCKS, [key[0] for key in ordered], [key[1] for key in ordered])

    # -- changelog

    def draw(self, n: int) -> list[int]:
        if n > len(self._drawn):
            if not self._drawn:
                self._drawn, self._spare = self._spare, []
            missing = n - len(self._drawn)
            if missing > 0:
                self._drawn += [number for (number,) in self._ask((q.DRAW, (*self._store.numbers, missing)))[0]]
        return self._drawn[:n]

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        now = self.now
        for event in events:
            event.time = now
            event.seq = self._drawn.pop(0) if self._drawn else 0
        self._events += events
        if events:
            self.last = events[-1]

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        if task_id is None:
            rows = self._one(q.EVENTS[newest], after, min(limit, 2**40))
            return [event_from(row) for row in (rows[::-1] if newest else rows)]
        found = [event_from(row) for row in self._one(q.HISTORY, task_id, after, limit if newest else 2**31)]
        return found if newest else found[:limit]

    def last_event(self) -> int:
        return int(self._one(q.NEWEST)[0][0])

    # -- requests and messages

    def requests(self, key: str | None = None) -> dict[str, tuple[str, float]]:
        rows = self._one(q.REQUESTS) if key is None else self._one(q.REQUEST, key)
        return {key: (answer, time) for key, answer, time in rows}

    def remember(self, key: str, answer: str) -> None:
        self._write(q.FORGET, self.now - KEEP_REQUESTS)
        self._write(q.REMEMBER, key, answer, self.now)

    def post(self, message: Message) -> None:
        self._write(q.POST, message.seq, message.time, message.sender, message.to, message.content)

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        limit = min(limit, 2**40)
        if name is None:
            rows = self._one(q.MESSAGES[newest], after, limit)
        else:
            # A reader's mark passes over what it was not given, so it gets only what nothing can come before any more.
            bound = stable_seq_of(self._ask(*self._store.stable))
            rows = self._one(q.MESSAGES_TO[newest], after, limit, name, bound)
        return [Message(*row) for row in (reversed(rows) if newest else rows)]

    def marks(self, reader: str | None = None) -> dict[str, int]:
        if reader is None:
            return dict(self._one(q.MARKS))
        reads: list[Statement] = [(q.MARK, (self._board, reader))]
        if self._writing:  # two who read the same inbox take turns
            reads.insert(0, (q.HOLD, (self._board, q.reader_key(reader))))
        return dict(self._ask(*reads)[-1])

    def set_mark(self, reader: str, seq: int) -> None:
        self._write(q.SET_MARK, reader, seq)

    # -- whole boards

    def restore(
        self,
        tasks: Iterable[BoardTask],
        locks: Iterable[Lock],
        messages: Iterable[Message],
        events: Iterable[Event],
        marks: dict[str, int],
        requests: dict[str, tuple[str, float]],
    ) -> None:
        from dibs.stores.postgres.bulk_load import load

        self.changed = True
        self._ask((q.SHARE, (self._board, q.WATERMARKS)))
        load(self._connection, self._store, tasks, locks, messages, events, marks, requests)


def _ranges(patterns: Sequence[str]) -> tuple[Any, ...]:
    """Where to look for locks that could overlap: prefixes, as the index has them and whole; between what the index is
    to be searched; and the ranges."""
    ancestors: dict[str, None] = {}
    lows, highs = [], []
    for prefix in dict.fromkeys(map(literal_prefix, patterns)):
        above, low, high = prefix_range(prefix)
        ancestors.update(dict.fromkeys(above))
        lows.append(low)
        highs.append(high)
    near = list(ancestors)
    return [p[:600] for p in near], near, min(lows)[:600], max(highs)[:600], lows, highs
