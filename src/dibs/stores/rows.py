"""Rows of the SQL tables as objects, and back. Pure: no connection, no rule."""

from __future__ import annotations

from dibs.errors import BoardUnusable
from dibs.jsontext import dumps, loads
from dibs.model import Blocker, BoardTask, Event, Lock, Step, TaskStatus, Worker
from dibs.rules.paths import literal_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

TASK = (
    "seq, id, description, status, assigned_to, depends_on, result, rank, created_at, claimed_at, completed_at, token, "
    "lease, lease_expires_at, holder, paths, labels, steps, blockers, parent, reserved, review, attempts, "
    "max_attempts, created_by, unmet, last_event"
)
LOCK = "pattern, holder, token, acquired_at, expires_at, lease, shared, task_id, worktree"
EVENT = "seq, time, worker, worker_type, action, task_id, step_id, details, data"

KEEP_REQUESTS = 7 * 86_400.0
"""Seconds for which an answer is remembered for a repeated request key."""
_STATUS = TaskStatus._members
_workers: dict[str, Worker] = {}


def damaged(what: str, error: Exception) -> BoardUnusable:
    return BoardUnusable(
        f"the board is damaged: {what} cannot be read ({error}); it was left as it is",
        hint="keep the file, and save what can be read: dibs export rest.jsonl; see: dibs doctor",
        damaged=True,
    )


def worker_from(text: str) -> Worker:
    """Parsed holders, shared: a busy worker's record is read thousands of times. Nobody changes a Worker."""
    known = _workers.get(text)
    if known is None:
        if len(_workers) > 1000:
            _workers.clear()
        known = _workers[text] = Worker.from_text(text)
    return known


def lines(values: Sequence[str]) -> str | None:
    return "\n".join(values) if values else None


def task_from(row: tuple[Any, ...]) -> BoardTask:
    """A task from a row of `queries.TASK` (whose last column, `last_event`, is the transaction's business).

    Filled directly: the constructor's defaults would cost as much again.
    """
    try:
        return _task_from(row)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(f"task {row[1]!r:.60}", error) from error


def _task_from(row: tuple[Any, ...]) -> BoardTask:
    task = BoardTask.__new__(BoardTask)
    (
        task.seq, task.id, task.description, status, task.assigned_to, depends_on, task.result, rank, task.created_at,
        task.claimed_at, task.completed_at, task.token, task.lease, task.lease_expires_at, holder, paths, labels,
        steps, blockers, task.parent, task.reserved, review, task.attempts, task.max_attempts, task.created_by,
        task.unmet, _,
    ) = row  # fmt: skip
    task.status = _STATUS[status]
    task.priority = -rank
    task.depends_on = depends_on.split("\n") if depends_on else []
    task.holder = worker_from(holder) if holder else None
    task.paths = paths.split("\n") if paths else []
    task.labels = labels.split("\n") if labels else []
    task.steps = [Step(**s) for s in loads(steps)] if steps else []
    task.blockers = [Blocker(**b) for b in loads(blockers)] if blockers else []
    task.review = review == 1
    task._board = None
    return task


def insert_row(task: BoardTask, last_event: int) -> tuple[Any, ...]:
    """The parameters of `queries.INSERT`."""
    return (
        task.seq, task.id, task.description, str(task.status), task.assigned_to, lines(task.depends_on), task.result,
        -task.priority, task.created_at, task.claimed_at, task.completed_at, task.token, task.lease,
        task.lease_expires_at,
        task.holder.text if task.holder else None, lines(task.paths), lines(task.labels),
        dumps([s.as_dict() for s in task.steps]) if task.steps else None,
        dumps([b.as_dict() for b in task.blockers]) if task.blockers else None,
        task.parent, task.reserved, int(task.review), task.attempts, task.max_attempts, task.created_by, task.unmet,
        last_event, len(task.open_blockers) if task.blockers else 0,
    )  # fmt: skip


def save_row(task: BoardTask, last_event: int) -> tuple[Any, ...]:
    """The parameters of `queries.SAVE`."""
    return (
        task.status, task.assigned_to, lines(task.depends_on), task.result, task.claimed_at, task.completed_at,
        task.token,
        task.lease, task.lease_expires_at, task.holder.text if task.holder else None,
        dumps([s.as_dict() for s in task.steps]) if task.steps else None,
        dumps([b.as_dict() for b in task.blockers]) if task.blockers else None,
        len(task.open_blockers) if task.blockers else 0, task.attempts, task.unmet, last_event, task.seq,
    )  # fmt: skip


def lock_from(row: tuple[Any, ...]) -> Lock:
    pattern, holder, token, acquired, expires, lease, shared, task_id, worktree = row
    try:
        return Lock(pattern, worker_from(holder), token, acquired, expires, lease, shared == 1, task_id, worktree)
    except (ValueError, TypeError) as error:
        raise damaged(f"the lock on {pattern!r:.60}", error) from error


def lock_row(lock: Lock) -> tuple[Any, ...]:
    """The parameters of `queries.SAVE_LOCK`."""
    return (
        lock.pattern, lock.holder.text, lock.token, lock.acquired_at, lock.expires_at, lock.lease, int(lock.shared),
        lock.task_id, lock.worktree, literal_prefix(lock.pattern), lock.holder.name,
    )  # fmt: skip


def event_from(row: tuple[Any, ...]) -> Event:
    seq, time, worker, worker_type, action, task_id, step_id, details, data = row
    try:
        return Event(action, worker, worker_type, time, task_id, step_id, details, loads(data) if data else None, seq)
    except (ValueError, TypeError) as error:
        raise damaged(f"event {seq}", error) from error


def event_row(e: Event, previous: int | None, tally: str | None) -> tuple[Any, ...]:
    """The parameters of `queries.APPEND`."""
    data = dumps(e.data) if e.data else None
    return (e.seq, e.time, e.worker, e.worker_type, e.action, e.task_id, e.step_id, e.details, data, previous, tally)
