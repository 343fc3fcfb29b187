"""The board's state from its changelog alone.

Every event carries the new values of what it changed, so replaying is assignment, not a second set of rules. Used by
`dibs doctor` and by the tests to show that no state changes without its event. `seq` and `unmet` are not replayed:
they follow from order and from the other tasks.
"""

from __future__ import annotations

from dibs.model import IN_PROGRESS, Blocker, BoardTask, Event, Lock, Step, TaskStatus, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class State:
    """What `replay` rebuilds."""

    def __init__(self) -> None:
        self.tasks: dict[str, BoardTask] = {}
        self.locks: dict[tuple[str, int], Lock] = {}

    def apply(self, event: Event) -> None:
        data = event.data or {}
        if "task" in data:
            self._set(BoardTask(data["task"]["id"], ""), data["task"])
        if "set" in data and event.task_id is not None:
            self._set(self.tasks[event.task_id], data["set"])
        for fields in data.get("locks", ()):
            lock = Lock(**{**fields, "holder": Worker(**fields["holder"])})
            self.locks[lock.pattern, lock.token] = lock
        for pattern, token in data.get("unlocks", ()):
            self.locks.pop((pattern, token), None)
        if "shift" in data:
            for task in self.tasks.values():
                if task.status is IN_PROGRESS and task.lease_expires_at is not None:
                    task.lease_expires_at += data["shift"]
                    for step in task.steps:
                        step.expires_at = None if step.expires_at is None else step.expires_at + data["shift"]
            for lock in self.locks.values():
                lock.expires_at += data["shift"]

    def _set(self, task: BoardTask, fields: dict[str, Any]) -> None:
        self.tasks[task.id] = task
        for name, value in fields.items():
            setattr(task, name, _READ[name](value) if value is not None and name in _READ else value)
        # Locks that came with a claim live and die with it.
        own = [key for key, lock in self.locks.items() if lock.task_id == task.id]
        for key in own:
            if task.status is not IN_PROGRESS:
                del self.locks[key]
            elif "lease_expires_at" in fields:
                self.locks[key].lease = task.lease or 0.0
                self.locks[key].expires_at = task.lease_expires_at or 0.0


_READ: dict[str, Any] = {
    "status": TaskStatus,
    "holder": lambda fields: Worker(**fields),
    "steps": lambda steps: [Step(**step) for step in steps],
    "blockers": lambda blockers: [Blocker(**blocker) for blocker in blockers],
}


def replay(events: Iterable[Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state
