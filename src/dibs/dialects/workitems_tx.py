"""A transaction on work items: steps get the document's ids, and no changelog tells of renewals."""

from __future__ import annotations

from dibs.dialects import workitems_rows
from dibs.dialects.filestore import NOBODY
from dibs.dialects.filetx import DialectTx
from dibs.errors import Busy, Invalid
from dibs.model import IN_PROGRESS, BoardTask, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs.dialects.workitems_items import Item
    from dibs.dialects.workitems_reading import ItemsReading


YOUNG = 60.0
"""Seconds for which a lock that cannot be read is taken to be in the making, whatever recovery is asked for."""
_QUIET = ("renewed_activity", "renewed_locks")
"""What no changelog of the document tells: that a worker is still at work."""


class ItemsTx(DialectTx):
    _store: ItemsReading

    def __init__(self, store: ItemsReading, now: float) -> None:
        super().__init__(store, now)
        self.homes: dict[str, Item] = {}
        """Where the tasks that this transaction adds belong."""
        self.statuses: dict[str, str] = {}
        """What becomes of work items themselves."""
        self.acted: set[str] = set()
        """Tasks of which an event tells."""
        self.who: str | None = None

    def changes(self) -> Iterator[tuple[str, BoardTask, BoardTask | None]]:
        for task_id, before in self.touched.items():
            yield task_id, self._t.tasks[task_id], before

    def _put(self, task: BoardTask) -> None:
        before = self._t.tasks.get(task.id)
        store = self._store
        if before is None:
            if not store.takes_id(task.id):
                raise Invalid(f"{task.id} is the work item itself; an activity needs another id")
            self.homes[task.id] = store.item_for(task)
        elif before.status is IN_PROGRESS and before.assigned_to == NOBODY and task.status is not IN_PROGRESS:
            self._refuse_young(task.id)
        self._name_steps(task)
        super()._put(task)

    def _name_steps(self, task: BoardTask) -> None:
        """The rules call steps s1, s2 …; the document has ids that no other task of the work item has."""
        known = {step.id for step in task.steps}
        for number, step in enumerate(task.steps, 1):
            if step.id == f"s{number}":
                old, at = step.id, number
                while (new := workitems_rows.step_id(task.id, at)) in known:
                    at += 1
                step.id = new
                known.add(new)
                for event in self.appended:
                    if event.task_id == task.id and event.step_id == old:
                        event.step_id = new

    def _refuse_young(self, task_id: str) -> None:
        lock = self._store._where[task_id].locks.get(task_id)
        age = YOUNG if lock is None else self._store.clock.wall() - lock.since
        if age < YOUNG:
            raise Busy(
                f"the lock of {task_id} was made {age:.0f}s ago and says nothing yet: its maker may be writing it",
                hint=f"recover it when it is older than {YOUNG:.0f}s",
            )

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        for event in events:
            if event.task_id is not None:
                self.acted.add(event.task_id)
            if event.worker_type != "system":
                self.who = event.worker
        super().append([event for event in events if event.action not in _QUIET])
