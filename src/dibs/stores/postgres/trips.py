"""The trips of a transaction: what is sent when, and how events get their numbers. `confirming` adds what is seen to at
the end, `path_locks` the verbs for locks, `tx` the others.

Nothing is sent until something has to be known. The first trip carries the beginning, every trip carries what has been
written since the one before, the last carries the commit.

A claim and a completion are two trips. The first fetches all that may be needed to decide (`PostgresTx.foresee`), and
locks (NO KEY UPDATE) what will surely be decided about; the second holds what was only looked at, sees that it is as it
was, draws the numbers, writes and commits. So an event's number is drawn when everything that it tells of is held:
the numbers of a task's events are in the order in which they happened, and a later claim has the larger token. Until
then an event has a stand-in (`numbers`). Numbers of transactions that came to nothing leave gaps, which mean nothing.

Whoever makes tasks ready shares the board's front gate and sees to it that no front lies above them: see `fronts`.
"""

from __future__ import annotations

from dibs.model import BoardTask, Event, Lock, Message
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import FRONTS
from dibs.stores.postgres.numbers import place_of, stand_in
from dibs.stores.rows import event_row, insert_row, save_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.stores.postgres.links import Link, Row, Statement
    from dibs.stores.postgres.store import PostgresStore

QUIET = "10s"
"""How long the server lets a transaction that writes wait for its client, …"""
LOOKING = "5min"
"""… one that only looks, which stops nobody but the vacuum: a copy may be slow at its other end, …"""
SILENCE = "5s"
"""… and for any sign of life, where it is in the middle of what it sends. A client that hears nothing sends everything
again after 0.2, 0.4, 0.8 … s, which is a sign; between the one after 6 s and the one after 13 it is told from a dead
one."""
_MANY = 100
"""From this many new tasks on they are copied in."""


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
        self.low = 0
        """All that this transaction numbers lies above this."""
        self.last: Event | None = None
        """The newest event of this transaction: by it, it is known again."""
        self.late: list[Event] = []
        """The events that have only stand-ins, in order."""
        self.drawn: Sequence[int] = ()
        """What was drawn the last time."""
        self._now = 0.0
        self._numbers: list[int] = []
        self._foreseen: dict[tuple[str, Any], list[Row]] = {}
        self._relocked: dict[tuple[str, int], Lock | None] = {}
        """The locks that this transaction has saved or dropped."""
        self._newest: dict[str, int] = {}
        self._new: list[BoardTask] = []
        self._dirty: dict[int, BoardTask] = {}
        self._saved: dict[int, BoardTask] = {}
        """All that was saved, also what has been written since."""
        self._events: list[Event] = []
        self._posted: list[Message] = []
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

    @property
    def _wall(self) -> float | None:
        """The tests' time, for statements that else ask the server's clock."""
        return self._store.clock.wall() if self._store.clock else None

    def _ask(self, *reads: Statement, flush: bool = True) -> list[list[Row]]:
        """The answers to these, in one trip with what is waiting to be sent. Without `flush` that waits on."""
        before: list[Statement] = []
        if not self.begun:
            more = (self._store.events, SILENCE) if self._writing else ()
            before = [
                (q.BEGIN[self._writing], ()),
                (q.HEAD[self._writing], (self._wall, QUIET if self._writing else LOOKING, *more)),
            ]
        writes = self._collect() if flush else []
        # The time as it is once everything that was asked for is locked: a lease may have run out while we waited.
        after = [(q.NOW, ())] if self._writing and reads and self._store.clock is None else []
        answers = self._link.trip([*before, *writes, *reads, *after])
        if not self.begun:
            self.begun = True
            self._now, self.xid, self.low = answers[1][0][:3]
        if after:
            self._now = answers.pop()[0][0]
        self._store.saw_time(self._now)
        self._number(writes, answers[len(before) :])
        return answers[len(answers) - len(reads) :] if reads else []

    def _one(self, sql: str, *values: Any) -> list[Row]:
        return self._ask((sql, (self._board, *values)))[0]

    # -- writing

    def _collect(self) -> list[Statement]:
        """What has been gathered, as statements. Many new rows are copied in at once, before anything else."""
        board = self._board
        newest = self._newest
        if not (self._events or self._new or self._dirty or self._pending):
            return []
        events: list[Row] = []
        numbered: list[Row] = []
        for event in self._events:
            previous = None
            if event.task_id is not None:
                previous = newest.get(event.task_id) or None
                newest[event.task_id] = event.seq
            row = (board, *event_row(event, previous, None)[:-1])
            (numbered if event.seq > 0 and (previous or 0) >= 0 else events).append(row)
        fresh = [(board, *insert_row(task, newest[task.id]), self._born.pop(task.seq, 0)) for task in self._new]
        ready = [task for task in (*self._new, *self._dirty.values()) if task.is_ready]
        saved = [(board, *save_row(task, newest[task.id])) for task in self._dirty.values()]
        if self._events and self._events[-1].seq > 0:
            self._link.saw(self._events[-1].seq)
        self._events, self._new, self._dirty = [], [], {}
        gathered, self._pending = self._pending, []
        made: list[Statement] = self._confirmations()
        if len(self.late) == 1:
            made.append((q.DRAW_LATE_ONE, self._store.numbers))
        elif self.late:
            made.append((q.DRAW_LATE, (*self._store.numbers, len(self.late))))
        if len(fresh) >= _MANY:
            if not self.begun:
                self._ask(flush=False)
            self._link.copy("dibs.task", q.TASK_COLUMNS, fresh)
            self._link.copy("dibs.event", q.EVENT_COLUMNS, numbered)
            numbered, fresh = [], []
        made += [(q.APPEND, row) for row in (*numbered, *events)]
        made += [(q.INSERT, row) for row in fresh]
        made += [(q.SAVE, row) for row in saved]
        if ready:
            made += self._fronts(ready)
        return [*made, *gathered]

    def _confirmations(self) -> list[Statement]:
        """What holds, before anything is written, all that was only looked at."""
        raise NotImplementedError

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
        statements = self._collect()
        self._number(statements, self._link.commit(statements, self._store.behind(self.far_front)))

    def _write(self, sql: str, *values: Any) -> None:
        self.changed = True
        self._pending.append((sql, (self._board, *values)))

    # -- numbers

    def next_token(self) -> int:
        return self._numbers[0] if self._numbers else stand_in(len(self.late) + 1)

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        now = self.now
        for event in events:
            event.seq = self.next_token()
            event.time = now
            if self._numbers:
                self._numbers.pop(0)
            else:
                self.late.append(event)
        self._events += events
        if events:
            self.last = events[-1]

    def _number(self, sent: Sequence[Statement], answers: Sequence[Sequence[Row]]) -> None:
        """What a trip has drawn takes the place of the stand-ins."""
        for (sql, _), rows in zip(sent, answers, strict=False):
            if sql in (q.DRAW_LATE_ONE, q.DRAW_LATE):
                self.number([number for numbers, _ in rows for number in numbers])

    def number(self, drawn: Sequence[int]) -> None:
        """Events, tasks, locks and messages get their numbers."""
        self.drawn = drawn
        for event, number in zip(self.late, drawn, strict=True):
            event.seq = number
        self.late = []
        for task in self._saved.values():
            if task.token is not None and task.token < 0:
                task.token = drawn[place_of(task.token) - 1]
        relocked = list(self._relocked.items())
        self._relocked.clear()
        for (pattern, token), lock in relocked:
            if lock is not None and lock.token < 0:
                lock.token = token = drawn[place_of(lock.token) - 1]
            self._relocked[pattern, token] = lock
        for message in self._posted:
            if message.seq < 0:
                message.seq = drawn[place_of(message.seq) - 1]
        for task_id, newest in self._newest.items():
            if newest < 0:
                self._newest[task_id] = drawn[place_of(newest) - 1]
        self._link.saw(drawn[-1])

    def knows(self, found: Sequence[Row]) -> bool:
        """Are these (number, worker, action) the events of this transaction? If so, they give it its numbers."""
        made = self.late or ([self.last] if self.last else [])
        tail = found[len(found) - len(made) :]
        if [row[1:] for row in tail] != [(event.worker, event.action) for event in made]:
            return False
        if self.late:
            self.number([row[0] for row in tail])
        return True

    def last_event(self) -> int:
        newest = int(self._one(q.NEWEST)[0][0])
        return max(newest, self.last.seq if self.last else 0)
