"""The trips of a transaction: what is sent when, and how events get their numbers. `tx` adds the verbs, `path_locks`
those for locks.

Nothing is sent until something has to be known. The first trip carries the beginning, every trip carries what has been
written since the one before, the last carries the commit.

Rows that are decided about are locked (NO KEY UPDATE) by the statement that reads them, and an event's number is drawn
after the rows that it tells of: so the numbers of a task's events are in the order in which they happened, and a later
claim has the larger token. Numbers that were drawn before more rows were locked are thrown away. That leaves gaps in
the numbering, which mean nothing.

Whoever makes tasks ready shares the board's front gate and sees to it that no front lies above them: see `fronts`.
"""

from __future__ import annotations

from dibs.model import BoardTask, Event, Lock
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import FRONTS
from dibs.stores.rows import event_row, insert_row, save_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.stores.postgres.links import Link, Row, Statement
    from dibs.stores.postgres.store import PostgresStore

QUIET = "10s"
"""How long the server lets a transaction wait for its client."""
_MANY = 100
"""From this many rows on they are copied in."""


def lane_of(task: BoardTask) -> str:
    return "human" if task.reserved == "human" else "open"


class Trips:
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
        self._numbers: list[int] = []
        self._draws = 0
        self._foreseen: dict[tuple[str, Any], list[Row]] = {}
        self._held = 0
        self._has_root = False
        self._tries_root = False
        """Are all paths held, because they were too many?"""
        self._moved = False
        """Has a task been changed since things were foreseen?"""
        self._relocked: dict[tuple[str, int], Lock | None] = {}
        """The locks that this transaction has saved or dropped."""
        self._newest: dict[str, int] = {}
        self._new: list[BoardTask] = []
        self._dirty: dict[int, BoardTask] = {}
        self._saved: dict[int, BoardTask] = {}
        """All that was saved, also what has been written since."""
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
        # The time as it is once everything that was asked for is locked: a lease may have run out while we waited.
        after = [(q.NOW, ())] if self._writing and reads and self._store.clock is None else []
        answers = self._link.trip([*before, *writes, *reads, *after])
        if not self.begun:
            self.begun = True
            self._now, self.xid = answers[1][0][:2]
        if after:
            self._now = answers.pop()[0][0]
        self._store.saw_time(self._now)
        return answers[len(answers) - len(reads) :] if reads else []

    def _one(self, sql: str, *values: Any) -> list[Row]:
        return self._ask((sql, (self._board, *values)))[0]

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
        if self._events:
            self._link.saw(self._events[-1].seq)
        self._events = []
        fresh = [(board, *insert_row(task, newest[task.id]), self._born.pop(task.seq, 0)) for task in self._new]
        ready = [task for task in (*self._new, *self._dirty.values()) if task.is_ready]
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
        if not self.begun:
            self._ask(flush=False)
        self._link.commit(self._collect(), self._store.told())

    def _write(self, sql: str, *values: Any) -> None:
        self.changed = True
        self._pending.append((sql, (self._board, *values)))

    # -- numbers

    def next_token(self) -> int:
        if not self._numbers:
            self._draw(1)
        return self._numbers[0]

    def _draw(self, count: int) -> None:
        """More numbers. The first draw tells readers, by a lock, and what is drawn later is larger; so the rest need
        none, of which the server has few. Whoever comes again and again gets more each time."""
        self._draws += 1
        count = max(count, min(1 << self._draws >> 2, 256))
        wanted: list[Statement] = [] if self._draws > 1 else [(q.DRAW, self._store.numbers)]
        if count > len(wanted):
            wanted.append((q.DRAW_MORE, (self._store.events, count - len(wanted))))
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
