"""Rules for locks on path patterns: who conflicts with whom, taking, renewing, giving back. Pure, like `rules`.

A request is granted whole or not at all. A lock whose lease has run out binds nobody. A worker never conflicts with
itself, so asking again renews; asking again exclusively for what is held shared is granted if nobody else shares it.
"""

from __future__ import annotations

from dibs.errors import Busy, quoted
from dibs.model import BoardTask, Lock, Worker
from dibs.rules.paths import overlaps
from dibs.rules.tasks import event, lock_data
from dibs.times import remaining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.model import Event


def conflicts(
    patterns: Sequence[str], shared: bool, held: Sequence[Lock], worker: Worker | None, now: float
) -> list[Lock]:
    """The live locks of others that overlap one of the patterns, unless both sides share."""
    return [
        lock
        for lock in held
        if lock.expires_at > now
        and not (shared and lock.shared)
        and not (worker is not None and lock.holder.is_same(worker))
        and any(overlaps(pattern, lock.pattern) for pattern in patterns)
    ]


def run_out(patterns: Sequence[str], held: Sequence[Lock], now: float) -> list[Lock]:
    """The locks that overlap one of the patterns and bind nobody any more."""
    return [
        lock for lock in held if lock.expires_at <= now and any(overlaps(pattern, lock.pattern) for pattern in patterns)
    ]


def for_task(task: BoardTask, worker: Worker, token: int, now: float, lease: float, worktree: str | None) -> list[Lock]:
    """The locks that come with a claim: its paths, exclusively, under its token and lease."""
    return [
        Lock(pattern, worker, token, now, now + lease, lease, task_id=task.id, worktree=worktree)
        for pattern in task.paths
    ]


def take(
    patterns: Sequence[str],
    shared: bool,
    held: Sequence[Lock],
    worker: Worker,
    token: int,
    now: float,
    lease: float,
    worktree: str | None,
) -> tuple[list[Lock], Event]:
    """All patterns or none: (locks granted, event). Raises `Busy` naming every conflict."""
    against = conflicts(patterns, shared, held, worker, now)
    if against:
        raise busy(against, now)
    own = {
        lock.pattern: lock
        for lock in held
        if lock.task_id is None and lock.expires_at > now and lock.holder.is_same(worker)
    }
    granted = []
    for pattern in patterns:
        lock = own.get(pattern)
        if lock is None:
            lock = Lock(pattern, worker, token, now, now + lease, lease, shared, worktree=worktree)
        else:
            lock.shared = lock.shared and shared
            lock.lease = lease
            lock.expires_at = now + lease
        granted.append(lock)
    return granted, event("locked_files", worker, None, ", ".join(patterns), locks=[lock_data(x) for x in granted])


def busy(against: Sequence[Lock], now: float) -> Busy:
    first = against[0]
    task = f" for task {first.task_id}" if first.task_id else ""
    more = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
    error = Busy(
        f"{first.pattern} is held by {first.holder.name}{task} {remaining(first.expires_at - now)}{more}; "
        "nothing was locked",
        hint=f"work on something else, or ask: dibs tell {quoted(first.holder.name)} 'what you need'",
        conflicts=[{**lock_data(lock), "holder": lock.holder.name} for lock in against],
    )
    error.conflicts = list(against)
    return error


def renew(locks: Sequence[Lock], now: float, lease: float | None = None) -> None:
    for lock in locks:
        lock.lease = lease or lock.lease
        lock.expires_at = now + lock.lease


def dropped(locks: Sequence[Lock], who: Worker, why: str | None = None) -> Event:
    """The event for locks that are given back or have run out."""
    named = ", ".join(lock.pattern for lock in locks)
    return event(
        "unlocked_files",
        who,
        None,
        f"{named}: {why}" if why else named,
        unlocks=[[lock.pattern, lock.token] for lock in locks],
    )
