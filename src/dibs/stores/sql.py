"""The one transaction over SQL: rows to objects and back, and the verbs of `dibs.store.Tx` as statements of
`queries`.

It knows no connection: it is given a function that runs a statement and returns all rows, one that runs a statement
for many parameter rows, and the time. Who begins and commits, and how that is made exclusive and durable, is the
store's business.
"""

from __future__ import annotations

from dibs.jsontext import dumps, loads
from dibs.model import Blocker, BoardTask, Event, Lock, Message, Step, TaskStatus, Worker
from dibs.paths import literal_prefix, prefix_range
from dibs.stores import queries as q

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    Rows = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
    Many = Callable[[str, Iterable[tuple[Any, ...]]], None]

_STATUS = TaskStatus._members
_COUNTED = {status: position for position, status in enumerate(_STATUS.values())}
_PAGE = 2000
KEEP_REQUESTS = 7 * 86_400.0
"""Seconds for which an answer is remembered for a repeated request key."""

_workers: dict[str, Worker] = {}


def _worker(text: str) -> Worker:
    """Parsed holders, shared: a busy worker's record is read thousands of times. Nobody changes a Worker."""
    known = _workers.get(text)
    if known is None:
        if len(_workers) > 1000:
            _workers.clear()
        known = _workers[text] = Worker.from_text(text)
    return known


def _lines(values: Sequence[str]) -> str | None:
    return "\n".join(values) if values else None


def task_from(row: tuple[Any, ...]) -> BoardTask:
    """A task from a row of `queries.TASK`. Filled directly: the constructor's defaults would cost as much again."""
    task = BoardTask.__new__(BoardTask)
    (
        task.seq, task.id, task.description, status, task.assigned_to, depends_on, task.result, rank, task.created_at,
        task.claimed_at, task.completed_at, task.token, task.lease, task.lease_expires_at, holder, paths, labels,
        steps, blockers, task.parent, task.reserved, review, task.attempts, task.max_attempts, task.created_by,
        task.unmet,
    ) = row  # fmt: skip
    task.status = _STATUS[status]
    task.priority = -rank
    task.depends_on = depends_on.split("\n") if depends_on else []
    task.holder = _worker(holder) if holder else None
    task.paths = paths.split("\n") if paths else []
    task.labels = labels.split("\n") if labels else []
    task.steps = [Step(**s) for s in loads(steps)] if steps else []
    task.blockers = [Blocker(**b) for b in loads(blockers)] if blockers else []
    task.review = review == 1
    task._board = None
    return task


def row_of(task: BoardTask) -> tuple[Any, ...]:
    """The parameters of `queries.INSERT`."""
    return (
        task.seq, task.id, task.description, str(task.status), task.assigned_to, _lines(task.depends_on), task.result,
        -task.priority, task.created_at, task.claimed_at, task.completed_at, task.token, task.lease,
        task.lease_expires_at,
        task.holder.text if task.holder else None, _lines(task.paths), _lines(task.labels),
        dumps([s.as_dict() for s in task.steps]) if task.steps else None,
        dumps([b.as_dict() for b in task.blockers]) if task.blockers else None,
        task.parent, task.reserved, int(task.review), task.attempts, task.max_attempts, task.created_by, task.unmet,
        len(task.open_blockers) if task.blockers else 0,
    )  # fmt: skip


def _changes_of(task: BoardTask) -> tuple[Any, ...]:
    """The parameters of `queries.SAVE`."""
    return (
        task.status, task.assigned_to, _lines(task.depends_on), task.result, task.claimed_at, task.completed_at,
        task.token,
        task.lease, task.lease_expires_at, task.holder.text if task.holder else None,
        dumps([s.as_dict() for s in task.steps]) if task.steps else None,
        dumps([b.as_dict() for b in task.blockers]) if task.blockers else None,
        len(task.open_blockers) if task.blockers else 0, task.attempts, task.unmet, task.seq,
    )  # fmt: skip


def _lock_from(row: tuple[Any, ...]) -> Lock:
    pattern, holder, token, acquired, expires, lease, shared, task_id, worktree = row
    return Lock(pattern, _worker(holder), token, acquired, expires, lease, shared == 1, task_id, worktree)


def _lock_row(lock: Lock) -> tuple[Any, ...]:
    return (
        lock.pattern, lock.holder.text, lock.token, lock.acquired_at, lock.expires_at, lock.lease, int(lock.shared),
        lock.task_id, lock.worktree, literal_prefix(lock.pattern), lock.holder.name,
    )  # fmt: skip


def _event_from(row: tuple[Any, ...]) -> Event:
    seq, time, worker, worker_type, action, task_id, step_id, details, data = row
    return Event(action, worker, worker_type, time, task_id, step_id, details, loads(data) if data else None, seq)


def _event_row(e: Event) -> tuple[Any, ...]:
    data = dumps(e.data) if e.data else None
    return (e.seq, e.time, e.worker, e.worker_type, e.action, e.task_id, e.step_id, e.details, data, None)


class SqlTx:
    """See `dibs.store.Tx`."""

    def __init__(self, rows: Rows, many: Many, now: float) -> None:
        self.now = now
        self.changed = False
        self._rows = rows
        self._many = many
        self._status: dict[int, TaskStatus] = {}
        head = rows(q.HEAD, ())
        self._last: int = head[0][0] if head else 0
        self._tally = [int(n) for n in head[0][1].split()] if head else [0] * len(_COUNTED)
        self._unwritten: list[Event] = []

    # -- tasks

    def _take(self, rows: list[tuple[Any, ...]]) -> list[BoardTask]:
        status = self._status
        tasks = []
        for row in rows:
            task = task_from(row)
            status[task.seq] = task.status
            tasks.append(task)
        return tasks

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        if len(ids) == 1:
            rows = self._rows(q.TASK_BY_ID, (ids[0],))
        else:
            rows = self._rows(q.TASKS_BY_ID, (dumps(list(ids)),)) if ids else []
        found = {task.id: task for task in self._take(rows)}
        return found if len(ids) == 1 else {i: found[i] for i in ids if i in found}

    def again(self, task: BoardTask) -> BoardTask | None:
        found = self._take(self._rows(q.TASK_AGAIN, (task.seq, task.id)))
        return found[0] if found else None

    def ready(
        self, reserved: Sequence[str], limit: int, after: BoardTask | None, held: Sequence[list[str]]
    ) -> list[BoardTask]:
        rank, seq = (-after.priority, after.seq) if after else (-(2**62), 0)
        rows: list[tuple[Any, ...]] = []
        for kind in reserved:
            if held:
                rows += self._rows(q.READY_FREE, (kind, rank, seq, dumps([_lines(p) for p in held]), limit))
            else:
                rows += self._rows(q.READY_ONE, (kind, rank, seq, limit))
        if len(rows) > 1:
            rows.sort(key=lambda row: (row[7], row[0]))
        return self._take(rows[:limit])

    def due(self, limit: int) -> list[BoardTask]:
        return self._take(self._rows(q.DUE, (self.now, limit)))

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        return self._take(self._rows(q.IN_PROGRESS, ()) if name is None else self._rows(q.IN_PROGRESS_BY, (name,)))

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        if len(tasks) == 1:
            return self._take(self._rows(q.DEPENDANTS_OF, (tasks[0].seq,)))
        return self._take(self._rows(q.DEPENDANTS, (dumps([t.seq for t in tasks]),)))

    def insert(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        last = self._rows(q.LAST_TASK, ())[0][0] or 0
        for seq, task in enumerate(tasks, last + 1):
            task.seq = seq
            self._tally[_COUNTED[task.status]] += 1
            self._status[seq] = task.status
        self._many(q.INSERT, map(row_of, tasks))

    def save(self, tasks: Sequence[BoardTask]) -> None:
        self.changed = True
        for task in tasks:
            before = self._status[task.seq]
            if before is not task.status:
                self._tally[_COUNTED[before]] -= 1
                self._tally[_COUNTED[task.status]] += 1
                self._status[task.seq] = task.status
        if len(tasks) == 1:
            self._rows(q.SAVE, _changes_of(tasks[0]))
        else:
            self._many(q.SAVE, map(_changes_of, tasks))

    def link(self, edges: Sequence[tuple[BoardTask, BoardTask]]) -> None:
        if edges:
            self.changed = True
            self._many(q.LINK, [(needs.seq, task.seq) for task, needs in edges])

    def unlink(self, edges: Sequence[tuple[BoardTask, BoardTask]]) -> None:
        if edges:
            self.changed = True
            self._many(q.UNLINK, [(needs.seq, task.seq) for task, needs in edges])

    # -- locks

    def locks(self, patterns: Sequence[str] | None = None, name: str | None = None) -> list[Lock]:
        if name is not None:
            return [_lock_from(row) for row in self._rows(q.LOCKS_BY, (name,))]
        if patterns is None:
            return [_lock_from(row) for row in self._rows(q.LOCKS, ())]
        found = {}
        for pattern in patterns:
            ancestors, low, high = prefix_range(literal_prefix(pattern))
            for row in self._rows(q.LOCKS_NEAR, (dumps(ancestors), low, high)):
                found[row[0], row[2]] = row
        return [_lock_from(found[key]) for key in sorted(found)]

    def save_locks(self, locks: Sequence[Lock]) -> None:
        if locks:
            self.changed = True
            self._many(q.SAVE_LOCK, map(_lock_row, locks))

    def drop_locks(self, locks: Sequence[Lock]) -> None:
        if locks:
            self.changed = True
            self._many(q.DROP_LOCK, [(lock.pattern, lock.token) for lock in locks])

    # -- changelog

    def last_event(self) -> int:
        return self._last

    def next_token(self) -> int:
        return self._last + 1

    def append(self, events: Sequence[Event]) -> None:
        # Written at the end: only then is the tally known that the last of them carries.
        self.changed = True
        for e in events:
            self._last += 1
            e.seq = self._last
            e.time = self.now
        self._unwritten += events

    def events(self, after: int, limit: int, task_id: str | None = None) -> list[Event]:
        self.flush()
        if task_id is None:
            return [_event_from(row) for row in self._rows(q.EVENTS, (after, limit))]
        return [_event_from(row) for row in self._rows(q.EVENTS_OF, (after, task_id, limit))]

    # -- requests and messages

    def recall(self, key: str) -> str | None:
        rows = self._rows(q.RECALL, (key,))
        return rows[0][0] if rows else None

    def remember(self, key: str, answer: str) -> None:
        self.changed = True
        self._rows(q.FORGET, (self.now - KEEP_REQUESTS,))
        self._rows(q.REMEMBER, (key, answer, self.now))

    def post(self, messages: Sequence[Message]) -> None:
        self.changed = True
        self._many(q.POST, [(m.seq, m.time, m.sender, m.to, m.content) for m in messages])

    def messages(self, name: str | None, after: int, limit: int) -> list[Message]:
        if name is None:
            rows = self._rows(q.MESSAGES, (after, limit))
        else:
            rows = self._rows(q.MESSAGES_TO, (after, name, name, limit))
        return [Message(*row) for row in reversed(rows)]

    def mark(self, reader: str) -> int:
        rows = self._rows(q.MARK, (reader,))
        return rows[0][0] if rows else 0

    def set_mark(self, reader: str, seq: int) -> None:
        self.changed = True
        self._rows(q.SET_MARK, (reader, seq))

    # -- looking

    def counts(self) -> dict[str, int]:
        return {status: self._tally[at] for status, at in _COUNTED.items()}

    def page(
        self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
    ) -> tuple[list[BoardTask], int]:
        wanted: list[str] = []
        for status in ("in_progress", "review", "pending", "completed", "failed", "cancelled"):
            if status in statuses:
                wanted += ("ready", "waiting") if status == "pending" else (status,)
        where = "".join(f" AND {q.FILTERS[name]}" for name in filters)
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
                    f"SELECT {q.TASK} FROM task WHERE {condition}{only}{where} ORDER BY {order} LIMIT ?",
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

    def marks(self) -> dict[str, int]:
        return dict(self._rows(q.MARKS, ()))

    def requests(self) -> dict[str, tuple[str, float]]:
        return {key: (answer, time) for key, answer, time in self._rows(q.REQUESTS, ())}

    def restore(
        self,
        tasks: Iterable[BoardTask],
        locks: Iterable[Lock],
        messages: Iterable[Message],
        events: Iterable[Event],
        marks: dict[str, int],
        requests: dict[str, tuple[str, float]],
    ) -> None:
        self.changed = True
        kept = list(tasks)
        for task in kept:
            self._tally[_COUNTED[task.status]] += 1
        number = {task.id: task.seq for task in kept}
        self._many(q.INSERT, map(row_of, kept))
        self._many(q.LINK, ((number[need], task.seq) for task in kept for need in task.depends_on))
        self._many(q.SAVE_LOCK, map(_lock_row, locks))
        self._many(q.POST, ((m.seq, m.time, m.sender, m.to, m.content) for m in messages))
        self._unwritten = list(events)
        self._last = self._unwritten[-1].seq if self._unwritten else 0
        self.flush()
        self._many(q.SET_MARK, marks.items())
        self._many(q.REMEMBER, ((key, answer, time) for key, (answer, time) in requests.items()))

    def flush(self) -> None:
        """Write what has waited: the events, the last one with the tally."""
        rows = [_event_row(e) for e in self._unwritten]
        if rows:
            rows[-1] = (*rows[-1][:-1], " ".join(map(str, self._tally)))
            self._unwritten = []
            self._many(q.APPEND, rows)
