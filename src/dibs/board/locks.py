"""Verbs for file locks."""

from __future__ import annotations

import time

from dibs import limits
from dibs.board.core import retried
from dibs.board.endings import drop
from dibs.board.leases import heartbeat, keep_alive
from dibs.errors import Busy, Invalid, NotFound, quoted
from dibs.model import Lock, Worker
from dibs.rules import locks as lock_rules
from dibs.rules import tasks as rules
from dibs.stores.base import Collision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board.core import Core


def lock(
    core: Core,
    paths: Sequence[str],
    worker: Worker | str,
    *,
    shared: bool = False,
    lease: float | None = None,
    wait: float = 0,
) -> list[Lock]:
    """Hold files, folders or globs: all of them, or `Busy` and none. Asking again renews. `wait`: seconds to wait
    for others."""
    who = core.identity.required(worker, "a lock needs a worker")
    named = [core.paths.spellings(p) for p in limits.paths(paths)]
    patterns = list(dict.fromkeys(spellings[0] for spellings in named))
    asked = list(dict.fromkeys(p for spellings in named for p in spellings))
    if not patterns:
        raise Invalid("nothing to lock", hint="name a path: dibs lock src/auth.py")
    length = limits.seconds(lease, "lease") if lease is not None else core.lease or rules.LEASES[who.kind]
    tree = core.paths.worktree

    @retried
    def attempt(core: Core) -> list[Lock]:
        with core.store.write() as tx:
            held = tx.locks(asked)
            if (against := lock_rules.conflicts(asked, shared, held, who, tx.now)) and core.reaper.reap(tx):
                held = tx.locks(asked)
                against = lock_rules.conflicts(asked, shared, held, who, tx.now)
            # Stores may hand out more than what overlaps; the changelog must not depend on how much.
            drop(tx, lock_rules.run_out(asked, held, tx.now), rules.SYSTEM, "expired")
            if against:
                raise lock_rules.busy(against, tx.now)
            granted, event = lock_rules.take(patterns, shared, held, who, tx.draw(1)[0], tx.now, length, tree)
            tx.save_locks(granted)
            tx.append([event])
            core.leases.expect(who, length)
            for lock in granted:
                core.leases.expect(lock.holder, length)  # a session that is unknown may ask for what a known one has
            keep_alive(core, tx, who)
            return granted

    end = time.monotonic() + limits.wait(wait)
    while True:
        mark = core.store.mark_change()
        try:
            return attempt(core)
        except Collision:
            raise
        except Busy as error:
            left = end - time.monotonic()
            if left <= 0:
                raise
            heartbeat(core, who)
            soonest = min((lock.expires_at for lock in error.conflicts), default=0.0)
            core.store.wait_change(mark, min(left, max(0.05, soonest - core.now()), 1.0))


@retried
def unlock(core: Core, paths: Sequence[str] | None, worker: Worker | str) -> list[Lock]:
    """Give back locks of this worker: the named ones, or (None) all that were not taken with a task."""
    who = core.identity.required(worker, "unlocking needs a worker")
    with core.store.write() as tx:
        own = [lock for lock in tx.locks(name=who.name) if lock.holder.is_same(who)]
        if paths is None:
            gone = [lock for lock in own if lock.task_id is None]
        else:
            wanted = [core.paths.spellings(p) for p in limits.paths(paths)]
            gone = [lock for lock in own if any(lock.pattern in spellings for spellings in wanted)]
            for spellings in wanted:
                if all(lock.pattern not in spellings for lock in gone):
                    raise _not_held(
                        spellings[0], who, lock_rules.conflicts(spellings, False, tx.locks(spellings), who, tx.now)
                    )
            for lock in gone:
                if lock.task_id is not None:
                    task = quoted(lock.task_id)
                    raise Invalid(
                        f"{lock.pattern} is locked together with task {lock.task_id}",
                        hint=f"it goes with the task: dibs done {task}, or dibs release {task}",
                    )
        drop(tx, gone, who)
        keep_alive(core, tx, who)
    return gone


def locks(core: Core, paths: Sequence[str] | None = None) -> list[Lock]:
    """The live locks: all, or those that overlap one of the paths."""
    patterns = None if paths is None else [name for p in limits.paths(paths) for name in core.paths.spellings(p)]
    with core.store.read() as tx:
        held = [lock for lock in tx.locks(patterns) if lock.expires_at > tx.now]
        return held if patterns is None else lock_rules.conflicts(patterns, False, held, None, tx.now)


def _not_held(path: str, who: Worker, against: Sequence[Lock]) -> NotFound:
    """The error for giving back what one does not hold: says who does."""
    if not against:
        return NotFound(f"{who.name} holds no lock on {path}", hint="see who holds what: dibs locks")
    first = against[0]
    name = first.holder.name
    held = "is held" if first.pattern == path else f"is held, as {first.pattern},"
    if name == who.name:
        return NotFound(
            f"{path} {held} by another session of {name}, not by you",
            hint="see who holds what: dibs locks",
            holder=name,
        )
    return NotFound(
        f"{path} {held} by {name}, not by you",
        hint=f"ask for it: dibs tell {quoted(name)} 'what you need'",
        holder=name,
    )
