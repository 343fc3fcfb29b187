"""Everything that only reads: document 004's `status` and counts, pages of tasks, why a task cannot be claimed,
waiting."""

from __future__ import annotations

from dibs import limits
from dibs.board.claims import available, path_conflicts
from dibs.board.core import fetch
from dibs.board.leases import until
from dibs.board.recovery import recover
from dibs.errors import AmbiguousId, NotFound
from dibs.model import BoardTask, TaskStatus, Worker
from dibs.rules import locks as lock_rules
from dibs.rules import tasks as rules
from dibs.rules.lock_index import LockIndex
from dibs.worker import is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.board.core import Core
    from dibs.stores.base import Tx


def status(core: Core) -> list[dict[str, Any]]:
    """Every task as a dict, in order of creation: document 004's ten keys, times in seconds since the epoch."""
    with core.store.read() as tx:
        return [task.as_dict() for task in tx.all_tasks()]


def is_all_done(core: Core) -> bool:
    """True when there are tasks and none of them is pending, in progress or in review; False on an empty board."""
    with core.store.read() as tx:
        return tx.is_all_done()


def counts(core: Core) -> dict[TaskStatus, int]:
    """How many tasks have each status."""
    with core.store.read() as tx:
        found = tx.counts()
    return {status: found.get(status, 0) for status in TaskStatus}


def get(core: Core, task_id: str) -> BoardTask:
    with core.store.read() as tx:
        return fetch(tx, task_id)


def resolve(core: Core, prefix: str) -> str:
    """The id that a unique prefix stands for."""
    limits.task_id(prefix)
    with core.store.read() as tx:
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
    core: Core,
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
    with core.store.read() as tx:
        return tx.page(wanted, {k: v for k, v in given.items() if v is not None}, limit, offset)


def ready(core: Core, worker: Worker | str | None = None, limit: int = 50) -> list[BoardTask]:
    """What this worker (or an agent, if none is named) could claim now, in the order in which it would get it."""
    who = core.identity.named(worker) or Worker("anyone")
    with core.store.read() as tx:
        found = available(tx, who, limit)
        ended = _ended(tx, who, limit)
    return sorted(found + ended, key=lambda task: (-task.priority, task.seq))[:limit] if ended else found


def _ended(tx: Tx, who: Worker, limit: int) -> list[BoardTask]:
    """Tasks whose lease has run out, as `who` could claim them: a claim gives them back first, a read cannot."""
    ended = tx.due(limit)
    for task in ended:
        rules.give_back(task, rules.SYSTEM, tx.now, None)
    mine = rules.reserved_for(who.kind)
    return [t for t in ended if t.is_ready and t.reserved in mine and not path_conflicts(tx, t, who)]


def reasons(core: Core, task_id: str, worker: Worker | str | None = None) -> list[rules.Reason]:
    """Why this worker (or anyone) cannot claim the task now; empty when it can."""
    with core.store.read() as tx:
        task = fetch(tx, task_id)
        who = core.identity.named(worker)
        conflicts = path_conflicts(tx, task, who)
        return rules.reasons(task, tx.get(task.depends_on), conflicts, who, tx.now, core.store.satisfied_by)


def kept_by_files(core: Core, tasks: Sequence[BoardTask], worker: Worker | str | None = None) -> set[str]:
    """The ids of those tasks that wait for nothing but files which somebody else holds."""
    wanted = [task for task in tasks if task.paths and task.is_ready]
    if not wanted:
        return set()
    who = core.identity.named(worker)
    with core.store.read() as tx:
        near, now = LockIndex(tx.locks()), tx.now
    return {t.id for t in wanted if lock_rules.conflicts(t.paths, False, near.to(t.paths), who, now)}


def held_by(core: Core, worker: Worker | str) -> list[BoardTask]:
    """The live claims of a worker."""
    who = core.identity.named(worker)
    assert who is not None
    with core.store.read() as tx:
        return [
            task
            for task in tx.in_progress(who.name)
            if task.holder and task.holder.is_same(who) and (task.lease_expires_at or tx.now) > tx.now
        ]


def wait(core: Core, worker: Worker | str, timeout: float) -> bool:
    """Block, at most `timeout` seconds, until this worker could claim something; says whether it can."""

    def attempt() -> bool:
        who = core.identity.named(worker) or Worker("anyone")
        with core.store.read() as tx:
            if available(tx, who, 1):
                return True
            stuck = bool(tx.due(1)) or any(is_dead(holder) for holder in tx.holders())
        if stuck:
            recover(core)
        return bool(stuck and ready(core, worker, 1))

    return until(core, attempt, limits.wait(timeout), core.identity.named(worker))
