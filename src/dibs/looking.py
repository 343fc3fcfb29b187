"""Everything that only reads: document 004's `status` and counts, pages of tasks, why a task cannot be claimed,
waiting."""

from __future__ import annotations

from dibs import holds, limits, rules
from dibs.claiming import Claiming
from dibs.errors import AmbiguousId, NotFound
from dibs.model import COMPLETED, PENDING, BoardTask, TaskStatus, Worker
from dibs.nearby import Near
from dibs.worker import is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


class Looking(Claiming):
    # -- document 004

    def status(self) -> list[dict[str, Any]]:
        """Every task as a dict, in order of creation: document 004's ten keys, times in seconds since the epoch."""
        with self._store.read() as tx:
            return [task.as_dict() for task in tx.all_tasks()]

    @property
    def pending_count(self) -> int:
        return self.counts()[PENDING]

    @property
    def completed_count(self) -> int:
        return self.counts()[COMPLETED]

    @property
    def all_done(self) -> bool:
        """True when there are tasks and none of them is pending, in progress or in review; False on an empty board."""
        with self._store.read() as tx:
            return tx.is_all_done()

    # -- more

    def counts(self) -> dict[TaskStatus, int]:
        """How many tasks have each status."""
        with self._store.read() as tx:
            found = tx.counts()
        return {status: found.get(status, 0) for status in TaskStatus}

    def get(self, task_id: str) -> BoardTask:
        with self._store.read() as tx:
            return self._get(tx, task_id)

    def resolve(self, prefix: str) -> str:
        """The id that a unique prefix stands for."""
        limits.task_id(prefix)
        with self._store.read() as tx:
            found = tx.find(prefix, 6)
        if prefix in found:
            return prefix
        if not found:
            raise NotFound(f"Task not found: {prefix}", hint="see what there is: dibs list --all", task_id=prefix)
        if len(found) > 1:
            shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise AmbiguousId(f"{prefix} could be {shown}", hint="give more of the id", candidates=found)
        return found[0]

    def tasks(
        self,
        statuses: Sequence[TaskStatus | str] | None = None,
        *,
        label: str | None = None,
        assigned_to: str | None = None,
        parent: str | None = None,
        search: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[list[BoardTask], int]:
        """A page of tasks, and how many there are in all. Order: in progress, review, ready, waiting, closed (newest
        first). A limit of 0 is none. Besides statuses, `open`, `closed`, `done` and `all` are known."""
        limit = limits.integer(limit, "limit", 0, 2**31) or 2**31
        limits.integer(offset, "offset", 0, 2**31)
        wanted = list(TaskStatus) if statuses is None else limits.statuses(statuses)
        given = {"label": label, "assigned_to": assigned_to, "parent": parent, "search": search}
        with self._store.read() as tx:
            return tx.page(wanted, {k: v for k, v in given.items() if v is not None}, limit, offset)

    def ready(self, worker: Worker | str | None = None, limit: int = 50) -> list[BoardTask]:
        """What this worker (or an agent, if none is named) could claim now, in the order in which it would get it."""
        who = self._who(worker) or Worker("anyone")
        with self._store.read() as tx:
            return list(self._available(tx, who, limit, claiming=False))

    def reasons(self, task_id: str, worker: Worker | str | None = None) -> list[rules.Reason]:
        """Why this worker (or anyone) cannot claim the task now; empty when it can."""
        with self._store.read() as tx:
            task = self._get(tx, task_id)
            who = self._who(worker)
            conflicts = self._path_conflicts(tx, task, who)
            return rules.reasons(task, tx.get(task.depends_on), conflicts, who, tx.now, self._store.met_by)

    def kept_by_files(self, tasks: Sequence[BoardTask], worker: Worker | str | None = None) -> set[str]:
        """The ids of those tasks that wait for nothing but files which somebody else holds."""
        wanted = [task for task in tasks if task.paths and task.is_ready]
        if not wanted:
            return set()
        who = self._who(worker)
        with self._store.read() as tx:
            near, now = Near(tx.locks()), tx.now
        return {t.id for t in wanted if holds.conflicts(t.paths, False, near.to(t.paths), who, now)}

    def held_by(self, worker: Worker | str) -> list[BoardTask]:
        """The live claims of a worker."""
        who = self._who(worker)
        assert who is not None
        with self._store.read() as tx:
            return [
                task
                for task in tx.in_progress(who.name)
                if task.holder and task.holder.is_same(who) and (task.lease_expires_at or tx.now) > tx.now
            ]

    def wait(self, worker: Worker | str, timeout: float) -> bool:
        """Block, at most `timeout` seconds, until this worker could claim something; says whether it can."""

        def attempt() -> bool:
            if self.ready(worker, 1):
                return True
            with self._store.read() as tx:
                holders = [task.holder for task in tx.in_progress()] + [lock.holder for lock in tx.locks()]
                stuck = bool(tx.due(1)) or any(holder is not None and is_dead(holder) for holder in holders)
            if stuck:
                self.recover()
            return bool(stuck and self.ready(worker, 1))

        return self._until(attempt, limits.wait(timeout), self._who(worker))
