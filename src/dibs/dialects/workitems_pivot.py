"""Document 001's scope revision of a work item: between `pivot_started` and `pivot_completed` completed activities may
be reset, and new ones are added as always.

    start(board, "WI-001", "why") · reset(board, "WI-001-A1") … · done(board, "WI-001")

The changelog tells whether a pivot is under way; meanwhile the work item's status is `planning`. Each call is one
transaction of the board.
"""

from __future__ import annotations

from dibs import limits
from dibs.board.core import fetch
from dibs.dialects.workitems import WorkItemsStore
from dibs.dialects.workitems_tx import ItemsTx
from dibs.errors import Unsupported, WrongStatus, quoted
from dibs.model import CANCELLED, COMPLETED, PENDING, BoardTask, Event, Worker
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board import TaskBoard

STARTED, COMPLETED_PIVOT = "pivot_started", "pivot_completed"


def start(board: TaskBoard, item_id: str, note: str | None = None, *, worker: Worker | str | None = None) -> None:
    """Begin to revise the scope of a work item."""
    _turn(board, item_id, note, worker, starting=True)


def done(board: TaskBoard, item_id: str, note: str | None = None, *, worker: Worker | str | None = None) -> None:
    """The scope is revised: work goes on."""
    _turn(board, item_id, note, worker, starting=False)


def reset(board: TaskBoard, activity_id: str, *, worker: Worker | str | None = None) -> BoardTask:
    """Put a completed or skipped activity, and all its steps, back to pending."""
    store = _store(board)
    who = board.core.identity.actor(worker)
    with store.write() as tx:
        assert isinstance(tx, ItemsTx)
        task = fetch(tx, activity_id)
        item = store.item_of(activity_id)
        if not _is_under_way(store, item.id):
            raise WrongStatus(
                f"activity {activity_id} can be reset only while the scope of {item.id} is being revised",
                hint=f"dibs pivot start {quoted(item.id)} 'why'",
                task_id=activity_id,
            )
        lock = item.locks.get(activity_id)
        if task.status not in (COMPLETED, CANCELLED) or (
            lock is not None and not lock.record.is_expired(store.clock.wall())
        ):
            raise WrongStatus(
                f"activity {activity_id} cannot be reset: it is {rules.spoken(task.status)}"
                + (f", and {lock.record.holder or 'somebody'} still has its lock" if lock is not None else ""),
                hint=f"see how it stands: dibs show {quoted(activity_id)}",
                task_id=activity_id,
            )
        task.status, task.result, task.completed_at = PENDING, None, None
        task.assigned_to = task.holder = task.claimed_at = task.lease = task.lease_expires_at = None
        for step in task.steps:
            step.status, step.notes = "pending", None
            step.completed_by = step.completed_at = step.started_at = step.expires_at = None
        tx.save([task])
        tx.append([rules.event("reset_activity", who, task)])
    return task


def _turn(board: TaskBoard, item_id: str, note: str | None, worker: Worker | str | None, starting: bool) -> None:
    limits.optional_text(note, "note")
    store = _store(board)
    who = board.core.identity.actor(worker)
    with store.write() as tx:
        assert isinstance(tx, ItemsTx)
        item = store.item(item_id)
        if _is_under_way(store, item_id) is starting:
            how = "already" if starting else "not"
            raise WrongStatus(
                f"the scope of {item_id} is {how} being revised",
                hint=f"dibs pivot {'done' if starting else 'start'} {quoted(item_id)}",
            )
        closed = [store.tables.tasks[i].status in (COMPLETED, CANCELLED) for i in item.facts]
        tx.statuses[item_id] = "planning" if starting else "review" if closed and all(closed) else "in_progress"
        action = STARTED if starting else COMPLETED_PIVOT
        tx.append([Event(action, who.name, who.kind, details=note, data={"work_item": item_id})])


def _store(board: TaskBoard) -> WorkItemsStore:
    store: object = board.store
    if not isinstance(store, WorkItemsStore):
        raise Unsupported(
            f"a pivot is for the work items of document 001, and this is {board.url}",
            hint="add what is new, and cancel what is no longer wanted: dibs add, dibs cancel",
            capability="pivots",
        )
    return store


def _is_under_way(store: WorkItemsStore, item_id: str) -> bool:
    from dibs.dialects import changelog_lines

    lines, _ = changelog_lines.read_from(store.log_path(item_id), 0)
    turns = [
        e.action for line in lines if (e := changelog_lines.parse(line)) and e.action in (STARTED, COMPLETED_PIVOT)
    ]
    return bool(turns) and turns[-1] == STARTED
