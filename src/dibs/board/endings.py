"""What follows when a claim or a lock ends, whoever ends it: its locks go, its dependants learn of it, the changelog
has it. `end` is the one place for that."""

from __future__ import annotations

from dibs.model import COMPLETED, IN_PROGRESS, BoardTask, Event, Lock, Worker
from dibs.rules import locks as lock_rules
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.stores.base import Tx


def end(tx: Tx, task: BoardTask, event: Event) -> None:
    """Save a task after a change of status, with what follows for its locks and its dependants."""
    tx.save([task])
    tx.append([event])
    if task.status is IN_PROGRESS:
        return
    if task.token is not None:
        tx.drop_locks([(pattern, task.token) for pattern in task.paths])
    if task.status is COMPLETED and event.data and event.data["set"].get("status") == COMPLETED:
        tx.satisfy(task)


def give_back(
    tx: Tx, tasks: Sequence[BoardTask], why: str, who: Worker = rules.SYSTEM, action: str = "recovered_activity"
) -> None:
    for task in tasks:
        reason = f"{why} (held by {task.assigned_to})" if action == "recovered_activity" else why
        end(tx, task, rules.give_back(task, who, tx.now, reason, action, history(tx, task)))


def history(tx: Tx, task: BoardTask) -> list[Event]:
    """The last events of a task that has used up its attempts; nothing is fetched for any other."""
    if task.max_attempts is None or task.attempts <= task.max_attempts:
        return []
    return tx.events(0, 30, task.id, newest=True)


def drop(tx: Tx, locks: Sequence[Lock], who: Worker, why: str | None = None) -> None:
    if locks:
        tx.drop_locks([(lock.pattern, lock.token) for lock in locks])
        tx.append([lock_rules.dropped(locks, who, why)])
