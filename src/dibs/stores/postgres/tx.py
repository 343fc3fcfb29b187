"""A transaction on a PostgreSQL board: the verbs of `dibs.store.Tx` as statements, in few trips (`trips`).

What a verb is going to ask for can be fetched with the first trip (`foresee`), so a claim takes two trips, or three
with files, and a completion two.

A crash, or a connection that breaks, leaves nothing of a transaction that was not committed; what became of one that
was being committed is the store's business.
"""

from __future__ import annotations

from dibs.ids import random_id
from dibs.model import BoardTask, Event, Lock, Message, TaskStatus, Worker
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import EDGES, FRONTS, reader_key
from dibs.stores.postgres.path_locks import PathLocks
from dibs.stores.rows import event_from, lines, task_from, worker_from
from dibs.stores.sql import KEEP_REQUESTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from dibs.stores.postgres.links import Row, Statement

_PAGE = 2000
_FIRST = -(2**31)


def _lanes(reserved: Sequence[str]) -> list[tuple[str, bool]]:
    """Where a worker of some kind finds its tasks: the lane, and whether only what anybody may take."""
    return [("open", True), ("human", False)] if "human" in reserved else [("open", False)]


def bound_of(answers: list[list[Row]]) -> int:
    """How far the changelog is settled, from the answers to `PostgresStore.bound`."""
    last, first = answers[0][0][0], answers[1][0][0]
    return int(last if first is None else min(last, first))


class PostgresTx(PathLocks):
    """See `dibs.store.Tx`."""

    passes_over = True

    def foresee(
        self,
        *,
        name: str | None = None,
        ending: str | None = None,
        claiming: tuple[Sequence[str], int] | None = None,
        taking: str | None = None,
        key: str | None = None,
        reaping: bool = False,
    ) -> None:
        board, numbers, clock = self._board, self._store.numbers, self._store.clock
        wall = clock.wall() if clock else None
        wanted: list[tuple[tuple[str, Any], Statement]] = []
        if key is not None:
            wanted.append((("answer", key), (q.RECALL, (board, key))))
        if claiming is not None or taking is not None:
            wanted.append((("due", None), (q.DUE_NOW, (board, wall, 1000))))
        if reaping:
            wanted.append((("holders", None), (q.HOLDERS, (board,))))
            wanted.append((("run out", None), (q.LOCKS_RUN_OUT_NOW, (board, wall))))
        if taking is not None:
            wanted.append((("needs", taking), (q.NEEDS_OF_ID, (board, taking))))
        if ending is not None or taking is not None:
            task_id = ending or taking
            wanted.append((("task", task_id), (q.TASK_BY_ID[True], (board, task_id, *numbers))))
        if ending is not None:
            wanted.append((("dependants", ending), (q.DEPENDANTS_OF_ID, (board, ending))))
            wanted.append((("locks of", ending), (q.LOCKS_OF_TASK, (board, ending))))
        if name is not None:
            wanted += self._held_by(name)
        if claiming is not None:
            reserved, limit = claiming
            for lane, only in _lanes(reserved):
                found = self._ready(lane, only, limit, None, (), "free" if len(_lanes(reserved)) > 1 else "some")
                wanted.append((("ready", (lane, only, limit)), found))
            if expected := self._store.expected_paths:  # once: another thread may change it
                wanted += self._near(expected)
        for (about, _), rows in zip(wanted, self._ask(*(statement for _, statement in wanted)), strict=True):
            self._foreseen[about] = rows
        self._moved = False

    def _held_by(self, name: str) -> list[tuple[tuple[str, Any], Statement]]:
        return [
            (("in progress", name), (q.IN_PROGRESS_BY, (self._board, name))),
            (("locks by", name), (q.LOCKS_BY, (self._board, name))),
        ]

    def _was_foreseen(self, about: tuple[str, Any]) -> list[Row] | None:
        """What was fetched before, if this transaction has changed no task since."""
        rows = self._foreseen.pop(about, None)
        return None if self._moved else rows

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
        needs = self._needs(ids)
        if len(ids) == 1 and needs is None:
            rows = self._was_foreseen(("task", ids[0]))
            if rows is None:
                more = self._store.numbers if self._writing else ()
                rows = self._one(q.TASK_BY_ID[self._writing], ids[0], *more)
            return {task.id: task for task in self._numbered(rows)}
        rows = needs
        if rows is None:
            rows = self._one(q.TASKS_BY_ID[self._writing], list(ids))
            if rows:
                self._numbers = []
        found = {task.id: task for task in self._take(rows)}
        return {i: found[i] for i in ids if i in found}

    def _needs(self, ids: Sequence[str]) -> list[Row] | None:
        """What the task that is being taken waits for, if it is this and was fetched before."""
        for about, rows in self._foreseen.items():
            if about[0] == "needs" and about[1] not in ids and {row[1] for row in rows} == set(ids):
                return self._was_foreseen(about)
        return None

    def again(self, task: BoardTask) -> BoardTask | None:
        rows = self._was_foreseen(("task", task.id))
        if rows is None:
            more = self._store.numbers if self._writing else ()
            rows = self._one(q.TASK_AGAIN[self._writing], task.seq, task.id, *more)
        found = self._numbered(rows)
        return found[0] if found and found[0].seq == task.seq else None

    def ready(
        self,
        reserved: Sequence[str],
        limit: int,
        after: BoardTask | None,
        held: Sequence[list[str]],
        *,
        look: bool = False,
    ) -> list[BoardTask]:
        without = [text for paths in held if (text := lines(paths))]
        lanes = _lanes(reserved)
        answers: list[list[Row] | None] = [None]
        if after is None and not without and not look:
            answers = [self._was_foreseen(("ready", (lane, only, limit))) for lane, only in lanes]
        for way in self._ways(len(lanes), look, after is not None):
            if None in answers:
                asked = [self._ready(lane, only, limit, after, without, way) for lane, only in lanes]
                answers = list(self._ask(*asked))
            rows = [row for answer in answers for row in answer or ()]
            if rows:
                break
            answers = [None]  # nothing in any lane: wait for those who are at something
        rows.sort(key=lambda row: (row[7], row[0]))
        rows = rows[:limit]
        if rows and after is None and rows[0][0] - rows[0][-1] > self._store.fronts.far:
            first = rows[0]
            self.far_front = ("human" if first[20] == "human" else "open", first[7])
        if look:
            return self._take(row[:-2] for row in rows)
        return self._numbered([row[:-1] for row in rows])

    def _ways(self, lanes: int, look: bool, goes_on: bool) -> tuple[str, ...]:
        """How to look for ready tasks, one after the other until something is found (see `statements.ready`). Whoever
        holds some already waits for no others."""
        if look or not self._writing:
            return ("no",)
        if goes_on:
            return ("free",)
        return ("some",) if lanes == 1 else ("free", "some")

    def _ready(
        self,
        lane: str,
        only_any: bool,
        limit: int,
        after: BoardTask | None,
        without: Sequence[str],
        way: str,
    ) -> Statement:
        rank, seq = (_FIRST, 0) if after is None else (-after.priority, after.seq + 1)
        values = (self._board, limit, rank, seq, list(without))
        if way == "no":
            return q.ready(lane, only_any, "no"), values
        # From two lanes the rows are mixed, and their numbers would be out of order.
        draws = after is None and not without and lane == "open" and not only_any
        return q.ready(lane, only_any, way), (*values, *self._store.numbers, draws)

    def due(self, limit: int) -> list[BoardTask]:
        rows = self._was_foreseen(("due", None))
        if rows is None:
            rows = self._one(q.DUE[self._writing], self.now, limit)
        if rows:
            self._numbers = []
        return self._take(rows)

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        if name is None:
            return self._take(self._one(q.IN_PROGRESS))
        rows = self._foreseen.pop(("in progress", name), None)
        if rows is None:
            # Whoever asks what a worker works on will ask for its locks next.
            rows, self._foreseen["locks by", name] = self._ask(*(statement for _, statement in self._held_by(name)))
        # What this transaction has changed since counts as it is now.
        tasks = self._take(row for row in rows if row[0] not in self._saved)
        return tasks + [t for t in self._saved.values() if t.status == "in_progress" and t.assigned_to == name]

    def holders(self) -> tuple[list[Worker], float]:
        rows = self._foreseen.pop(("holders", None), None)
        if rows is None:
            # Whoever asks for them will ask for locks that have run out next.
            asked = (q.HOLDERS, (self._board,)), (q.LOCKS_RUN_OUT, (self._board, self.now))
            rows, self._foreseen["run out", None] = self._ask(*asked)
        ((texts, seconds),) = rows
        return [worker_from(text) for text in texts], seconds

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        if len(tasks) == 1 and (rows := self._foreseen.pop(("dependants", tasks[0].id), None)) is not None:
            return self._take(rows)
        return self._take(self._one(q.DEPENDANTS[self._writing], [task.seq for task in tasks]))

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return [random_id() for _ in tasks]

    def insert(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = self._moved = True
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
        self.changed = self._moved = True
        for task in tasks:
            self._dirty[task.seq] = self._saved[task.seq] = task

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

    # -- changelog

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        if task_id is None:
            rows = self._one(q.EVENTS[newest], after, min(limit, 2**40))
            return [event_from(row) for row in (rows[::-1] if newest else rows)]
        found = [event_from(row) for row in self._one(q.HISTORY, task_id, after, limit if newest else 2**31)]
        return found if newest else found[:limit]

    # -- requests and messages

    def recall(self, key: str) -> str | None:
        rows = self._foreseen.pop(("answer", key), None)
        if rows is None:
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
        found: dict[str, int] = {}
        for status, number in self._one(q.COUNTS):
            found[status] = found.get(status, 0) + number
        return found

    def is_all_done(self) -> bool:
        (is_open,), (is_there,) = self._ask((q.ANY_OPEN, (self._board,)), (q.ANY, (self._board,)))
        return bool(is_there[0] and not is_open[0])

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
            for row in rows:
                yield task_from(row)

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
        fill(self._link, self._store, tasks, locks, messages, events, marks, requests)
