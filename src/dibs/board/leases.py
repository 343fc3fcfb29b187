"""Keeping leases true: renewing what its holder still works on, and waiting without losing it."""

from __future__ import annotations

import time

from dibs import limits
from dibs.board.core import fetch, retried
from dibs.board.token_memory import binding
from dibs.model import BoardTask, Lock, Worker
from dibs.rules import locks as lock_rules
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from dibs.board.core import Core
    from dibs.stores.base import Tx

    T = TypeVar("T")

FRESH = 0.95
"""The part of a lease that must be left for it not to be renewed: a verb right after another adds no event."""
KEEP = 0.67
"""The part of a lease that must be left for `keep` not to renew it: it is asked far more often than leases are long."""


def keep_alive(core: Core, tx: Tx, who: Worker) -> None:
    """Any verb of a worker renews what it holds, if it is time to look what that is."""
    if not core.leases.is_due(who, tx.now):
        return
    tasks, locks = _held_by(tx, who)
    core.leases.looked(who, tx.now)
    for lease in [task.lease for task in tasks] + [lock.lease for lock in locks]:
        core.leases.expect(who, lease or 60.0)
    old = [task for task in tasks if (task.lease_expires_at or 0) - tx.now < FRESH * (task.lease or 0)]
    renewed = {task.id for task in old}
    loose = [lock for lock in locks if lock.task_id is None and lock.expires_at - tx.now < FRESH * lock.lease]
    stale = [lock for lock in locks if lock.task_id in renewed] + loose
    events = [rules.renew(task, tx.now, None) for task in old]
    lock_rules.renew(stale, tx.now)
    if loose:
        events.append(rules.event("renewed_locks", who, None, locks=[rules.lock_data(lock) for lock in loose]))
    if events:
        tx.save(old)
        tx.save_locks(stale)
        tx.append(events)


@retried
def keep(core: Core, worker: Worker | str) -> bool:
    """Renew what a worker holds, for a front that knows it to be alive; does it hold anything? Nothing is written while
    more than two thirds of every lease are left."""
    who = core.identity.required(worker, "only a worker's leases can be kept")
    with core.store.read() as tx:
        tasks, locks = _held_by(tx, who)
        left = [((task.lease_expires_at or 0) - tx.now, task.lease or 0) for task in tasks]
        left += [(lock.expires_at - tx.now, lock.lease) for lock in locks]
    if any(rest < KEEP * whole for rest, whole in left):
        core.leases.forget(who)
        with core.store.write() as tx:
            keep_alive(core, tx, who)
    return bool(left)


@retried
def heartbeat(core: Core, who: Worker) -> None:
    """Renew what a worker holds, if it is time to look what that is."""
    if core.leases.is_due(who, core.now()):
        with core.store.write() as tx:
            keep_alive(core, tx, who)


@retried
def renew(
    core: Core,
    task_id: str,
    *,
    worker: Worker | str | None = None,
    token: int | None = None,
    lease: float | None = None,
) -> BoardTask:
    """Start a claim's lease, and that of its locks, anew."""
    limits.task_id(task_id)
    if lease is not None:
        lease = limits.seconds(lease, "lease")
    given = token
    caller, token = core.credentials(task_id, worker, token)
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        locks = locks_of(tx, task)
        rules.require_claim(task, caller, binding(task, given, token), tx.now, "renew")
        extend(core, tx, task, locks, lease)
        if task.holder is not None:
            keep_alive(core, tx, task.holder)
    return task


def locks_of(tx: Tx, task: BoardTask) -> list[Lock]:
    """The locks that came with a claim which is to go on: nobody takes them for run out from now on."""
    return [lock for lock in tx.locks(task.paths) if lock.task_id == task.id] if task.paths else []


def extend(core: Core, tx: Tx, task: BoardTask, locks: list[Lock], lease: float | None = None) -> None:
    """Start the lease of a claim and of its locks anew."""
    event = rules.renew(task, tx.now, lease)
    if task.holder is not None:
        core.leases.expect(task.holder, task.lease or 60.0)
    if locks:
        lock_rules.renew(locks, tx.now, task.lease)
        tx.save_locks(locks)
    tx.save([task])
    tx.append([event])


def until(core: Core, attempt: Callable[[], T], timeout: float, who: Worker | None) -> T:
    """Repeat an attempt after every change of the board, until it gives something or the time is over.

    Whoever waits is alive: what it holds meanwhile is renewed.
    """
    end = time.monotonic() + timeout
    while True:
        mark = core.store.mark_change()
        found = attempt()
        left = end - time.monotonic()
        if found or left <= 0:
            return found
        if who is not None:
            heartbeat(core, who)
        # Expiry and death make work available without any commit, so look once a second all the same.
        core.store.wait_change(mark, min(left, 1.0))


def _held_by(tx: Tx, who: Worker) -> tuple[list[BoardTask], list[Lock]]:
    """The live claims and locks of a worker."""
    tasks = [t for t in tx.in_progress(who.name) if _is_held(t.holder, who, t.lease_expires_at, tx.now)]
    locks = [lock for lock in tx.locks(name=who.name) if _is_held(lock.holder, who, lock.expires_at, tx.now)]
    return tasks, locks


def _is_held(holder: Worker | None, who: Worker, expires: float | None, now: float) -> bool:
    return holder is not None and holder.is_same(who) and expires is not None and expires > now
