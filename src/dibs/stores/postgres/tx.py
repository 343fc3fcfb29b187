"""A transaction on a PostgreSQL board: the verbs of `dibs.store.Tx` as statements, in few trips. Those that find tasks
are in `foreseeing`, those about locks in `path_locks`; `confirming` sees to the end, `trips` to what is sent when.

A crash, or a connection that breaks, leaves nothing of a transaction that was not committed; what became of one that
was being committed is the store's business.
"""

from __future__ import annotations

from dibs.ids import random_id
from dibs.model import BoardTask, Event, Lock, Message, TaskStatus
from dibs.stores.postgres import foresight as f
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.foreseeing import Foreseeing
from dibs.stores.postgres.keys import EDGES, FRONTS, reader_key
from dibs.stores.postgres.numbers import all_in_text, put_in_text
from dibs.stores.rows import event_from, task_from
from dibs.stores.sql import KEEP_REQUESTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dibs.stores.postgres.links import Row, Statement

_PAGE = 2000
_FEW = 50
"""So many stand-ins are replaced in one text by the server."""


def bound_of(answers: list[list[Row]]) -> int:
    """How far the changelog is settled, from the answers to `PostgresStore.bound`."""
    last, first = answers[0][0][0], answers[1][0][0]
    return int(last if first is None else min(last, first))


class PostgresTx(Foreseeing):
    """See `dibs.store.Tx`."""

    # -- changing tasks

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
            self._dirty[task.seq] = self._saved[task.seq] = task
            self._expects(task)

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

    def edges(self) -> list[tuple[str, str]]:
        return [(task, needs) for task, needs in self._one(q.EDGES)]

    def freeze_edges(self) -> None:
        self._ask((q.HOLD, (self._board, EDGES)))

    # -- changelog

    def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
        if task_id is None:
            rows = self._one(q.EVENTS[newest], after, min(limit, 2**40))
            return [event_from(row) for row in (rows[::-1] if newest else rows)]
        if newest and after == 0 and limit <= f.HISTORY_LENGTH:
            self._see_all()
            told = [event_from(row) for row in self._foreseen.get(("histories", None), ()) if row[5] == task_id]
            if told:
                return told[-limit:]
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
        if len(self.late) > _FEW:
            self._ask()
            answer = put_in_text(answer, self.drawn)
        self._write(q.REMEMBER.format(answer=all_in_text("$3::text", len(self.late))), key, answer, self.now)

    def shift_requests(self, seconds: float) -> None:
        """The database's clock is the board's: it is not corrected."""

    def post(self, messages: Sequence[Message]) -> None:
        self._posted += messages
        for m in messages:
            self._write(q.POST, m.seq, m.time, m.sender, m.to, m.content)

    def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
        limit = min(limit, 2**40)
        if name is None:
            rows = self._one(q.MESSAGES[newest], after, limit)
        else:
            # A reader's mark passes over what it was not given, so it gets only what nothing can come before any more.
            bound = bound_of(self._ask(*self._store.bound))
            rows = self._one(q.MESSAGES_TO[newest], after, limit, name, bound)
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
