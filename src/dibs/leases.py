"""Keeping leases true: giving back what has expired or whose holder is dead, renewing what its holder still works on,
and what follows when a claim ends.

A claim ends by its holder's verb, by expiry, or on proof of death; `_end` is the one place that lets its locks go and
its dependants know.
"""

from __future__ import annotations

import time

from dibs import holds, jsontext, rules
from dibs.core import Core, retried
from dibs.errors import Invalid
from dibs.model import COMPLETED, IN_PROGRESS, BoardTask, Event, Lock, Worker
from dibs.worker import boot, is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from dibs.store import Tx

    T = TypeVar("T")

SWEEP = 1000
"""Claims, or locks, that are given back by one look at most."""
REAP_EVERY = 1.0
"""Seconds between two looks, by one process, for holders whose process has died. A claim that finds nothing always
looks."""
REAP_SELDOM = 30.0
"""Seconds that are added to that at most, where looking takes long."""

FRESH = 0.95
"""The part of a lease that must be left for it not to be renewed: a verb right after another adds no event."""

KEEP = 0.67
"""The part of a lease that must be left for `keep` not to renew it: it is asked far more often than leases are long."""

REMEMBERED = 1000
"""Workers of which it is remembered when it was last looked what they hold, and that they were alive."""


class Leases(Core):
    def _sweep(self, tx: Tx, may_reap: bool) -> bool:
        """Give back what has expired, and, now and then, what dead processes held; was it looked for those?"""
        due = rules.oldest_lease_first(tx.due(SWEEP))
        if due:
            self._give_back(tx, due, "its lease ran out")
        if not may_reap or not self._is_reaping_due(tx.now):
            return False
        self._reap(tx)
        return True

    def _living(self) -> tuple[str, list[str]]:
        """What the record of a holder contains whose death could be proved here, and the records of those that are
        known to be alive now."""
        began, here = time.monotonic(), boot()
        self._alive = {text: holder for text, holder in self._alive.items() if not is_dead(holder, here)}
        self._seeing = time.monotonic() - began
        return jsontext.dumps(here), list(self._alive)

    def _is_gone(self, holder: Worker) -> bool:
        """Is a holder's process provably dead? If not, and it is one of here, it is known to be alive for now."""
        here = boot()
        dead = is_dead(holder, here)
        if holder.boot == here and not dead:
            if len(self._alive) >= REMEMBERED:
                self._alive.clear()
            self._alive[holder.text] = holder
        return dead

    def _is_reaping_due(self, now: float) -> bool:
        return now - self._reaped >= REAP_EVERY or now < self._reaped - REAP_EVERY * 60

    def _is_reaping_soon(self) -> bool:
        """Whether to `foresee` it in any case. Not at every claim: where the dead rows of a database pile up, it reads
        all of those, too."""
        quick = self._store.quick
        return quick is None or self._is_reaping_due(quick.now)

    def _reap(self, tx: Tx, alive: Worker | None = None) -> list[BoardTask | Lock]:
        """Give back the claims and locks whose holder's process is provably dead, and the locks that have run out.
        `alive` is being given tasks right now, so nothing is taken from it."""
        known: dict[str, bool] = {}

        def is_gone(holder: Worker) -> bool:
            if holder.text not in known:
                known[holder.text] = holder != alive and self._is_gone(holder)
            return known[holder.text]

        looked, locks, seconds = tx.left_behind(is_gone, self._living)
        seconds += self._seeing
        # Where looking is slow, look less often: it is to take a fiftieth of the time.
        self._reaped = tx.now + min(max(0.0, 50 * seconds - REAP_EVERY), REAP_SELDOM)
        tasks = [
            task
            for task in tx.get([task.id for task in looked[:SWEEP]]).values()
            if task.status is IN_PROGRESS and task.holder and is_gone(task.holder)
        ]
        self._give_back(tx, tasks, "the holder's process has died")
        # The locks of those tasks went with them.
        locks = [lock for lock in tx.still(locks[:SWEEP]) if lock.expires_at <= tx.now or is_gone(lock.holder)]
        self._drop(tx, locks, rules.SYSTEM, "expired, or the holder's process has died")
        return [*tasks, *locks]

    def _give_back(
        self,
        tx: Tx,
        tasks: Sequence[BoardTask],
        why: str,
        who: Worker = rules.SYSTEM,
        action: str = "recovered_activity",
    ) -> None:
        for task in tasks:
            reason = f"{why} (held by {task.assigned_to})" if action == "recovered_activity" else why
            event = rules.give_back(task, who, tx.now, reason, action, self._history(tx, task))
            self._end(tx, task, event)

    def _history(self, tx: Tx, task: BoardTask) -> list[Event]:
        """The last events of a task that has used up its attempts; nothing is fetched for any other."""
        if task.max_attempts is None or task.attempts <= task.max_attempts:
            return []
        return tx.events(0, 30, task.id, newest=True)

    def _end(self, tx: Tx, task: BoardTask, event: Event) -> None:
        """Save a task after a change of status, with what follows for its locks and its dependants."""
        tx.save([task])
        tx.append([event])
        if task.status is IN_PROGRESS:
            return
        if task.paths:
            tx.drop_locks(tx.own_locks(task))
        if task.status is COMPLETED and event.data and event.data["set"].get("status") == COMPLETED:
            waiting = tx.dependants([task])
            for other in waiting:
                other.unmet -= 1
            if waiting:
                tx.save(waiting)

    def _keep_alive(self, tx: Tx, who: Worker, due: bool | None = None) -> None:
        """Any verb of a worker renews what it holds. It looks what that is every twentieth of its shortest lease, or
        when it was foreseen that this is `due`."""
        if not (self._is_look_due(who, tx.now) if due is None else due):
            return
        tasks = [t for t in tx.in_progress(who.name) if _is_held(t.holder, who, t.lease_expires_at, tx.now)]
        locks = [lock for lock in tx.locks(name=who.name) if _is_held(lock.holder, who, lock.expires_at, tx.now)]
        self._looked(who, tx.now, 60.0)
        for lease in [task.lease for task in tasks] + [lock.lease for lock in locks]:
            self._look_again(who, lease or 60.0)
        ids = [task.id for task in tasks if (task.lease_expires_at or 0) - tx.now < FRESH * (task.lease or 0)]
        found = tx.get(ids) if ids else {}
        stale = tx.still([
            lock
            for lock in locks
            if lock.task_id in found or (lock.task_id is None and lock.expires_at - tx.now < FRESH * lock.lease)
        ])  # fmt: skip
        # Only now is it certain what is held: with the tasks' rows, their locks, and the time at which we have both.
        old = [
            task
            for task in found.values()
            if task.status is IN_PROGRESS and _is_held(task.holder, who, task.lease_expires_at, tx.now)
        ]
        renewed = {task.id for task in old}
        stale = [
            lock
            for lock in stale
            if _is_held(lock.holder, who, lock.expires_at, tx.now) and (lock.task_id is None or lock.task_id in renewed)
        ]
        loose = [lock for lock in stale if lock.task_id is None]
        events = [rules.renew(task, tx.now, None) for task in old]
        holds.renew(stale, tx.now)
        if loose:
            events.append(rules.event("renewed_locks", who, None, locks=[rules.lock_data(lock) for lock in loose]))
        if events:
            tx.save(old)
            tx.save_locks(stale)
            tx.append(events)

    @retried
    def keep(self, worker: Worker | str) -> bool:
        """Renew what a worker holds, for a front that knows it to be alive; does it hold anything? Nothing is written
        while more than two thirds of every lease are left."""
        who = self._who(worker)
        if who is None:
            raise Invalid("only a worker's leases can be kept")
        with self._store.read() as tx:
            tasks = [t for t in tx.in_progress(who.name) if _is_held(t.holder, who, t.lease_expires_at, tx.now)]
            locks = [lock for lock in tx.locks(name=who.name) if _is_held(lock.holder, who, lock.expires_at, tx.now)]
            left = [((task.lease_expires_at or 0) - tx.now, task.lease or 0) for task in tasks]
            left += [(lock.expires_at - tx.now, lock.lease) for lock in locks]
        if any(rest < KEEP * whole for rest, whole in left):
            self._renewed.pop((who.name, who.session), None)
            with self._store.write() as tx:
                self._keep_alive(tx, who)
        return bool(left)

    def _until(self, attempt: Callable[[], T], timeout: float, who: Worker | None) -> T:
        """Repeat an attempt after every change of the board, until it gives something or the time is over.

        Whoever waits is alive: what it holds meanwhile is renewed.
        """
        end = time.monotonic() + timeout
        while True:
            mark = self._store.mark_change()
            found = attempt()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            if who is not None:
                self._heartbeat(who)
            # Expiry and death make work available without any commit, so look once a second all the same.
            self._store.wait_change(mark, min(left, 1.0))

    def _is_look_due(self, who: Worker, now: float) -> bool:
        """Is it time to look what this worker holds, and to renew it?"""
        looked, often = self._renewed.get((who.name, who.session), (float("-inf"), 60.0))
        return not 0 <= now - looked < often

    def _foresees_look(self, who: Worker | None) -> bool | None:
        """Is it time to look what a worker holds? Surely for one that is not known (None). Where the store knows about
        what time it is, that is decided now. None: it is to be seen when it is known."""
        quick = self._store.quick
        if quick is None:
            return None
        return who is None or self._is_look_due(who, quick.now)

    @retried
    def _heartbeat(self, who: Worker) -> None:
        if self._is_look_due(who, self.now()):
            with self._store.write() as tx:
                self._keep_alive(tx, who)

    def _look_again(self, who: Worker, lease: float) -> None:
        """This worker holds something with such a lease: look often enough to renew it."""
        looked, often = self._renewed.get((who.name, who.session), (float("-inf"), 60.0))
        self._looked(who, looked, min(often, lease / 20))

    def _looked(self, who: Worker, when: float, often: float) -> None:
        if len(self._renewed) >= REMEMBERED:
            self._renewed.clear()  # most have gone; for the others it is looked once more
        self._renewed[who.name, who.session] = when, often

    def _locks_of(self, tx: Tx, task: BoardTask) -> list[Lock]:
        """The locks that came with a claim which is to go on: nobody takes them for run out from now on."""
        return [lock for lock in tx.locks(task.paths) if lock.task_id == task.id] if task.paths else []

    def _renew(self, tx: Tx, task: BoardTask, locks: list[Lock], lease: float | None = None) -> None:
        """Start a lease anew. The caller has looked at the claim after it fetched the locks."""
        event = rules.renew(task, tx.now, lease)
        if task.holder is not None:
            self._look_again(task.holder, task.lease or 60.0)
        if locks:
            holds.renew(locks, tx.now, task.lease)
            tx.save_locks(locks)
        tx.save([task])
        tx.append([event])

    def _drop(self, tx: Tx, locks: Sequence[Lock], who: Worker, why: str | None = None) -> None:
        if locks:
            tx.drop_locks(locks)
            tx.append([holds.dropped(locks, who, why)])


def _is_held(holder: Worker | None, who: Worker, expires: float | None, now: float) -> bool:
    return holder is not None and holder.is_same(who) and expires is not None and expires > now
