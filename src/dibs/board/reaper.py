"""Finding claims and locks that nobody is left to end: their lease has run out, or their holder's process is provably
dead."""

from __future__ import annotations

import time

from dibs.board.endings import drop, give_back
from dibs.model import BoardTask, Lock, Worker
from dibs.rules import tasks as rules
from dibs.worker import boot, is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.base import Tx

SWEEP = 1000
"""Claims, or locks, that are given back by one look at most."""
REAP_EVERY = 1.0
"""Seconds between two looks, by one process, for holders whose process has died. A claim that finds nothing always
looks."""
REAP_SELDOM = 30.0
"""Seconds that are added to that at most, where looking takes long."""


class Reaper:
    def __init__(self) -> None:
        self._reaped = float("-inf")

    def forget(self) -> None:
        """Look for the dead at the next claim."""
        self._reaped = float("-inf")

    def is_due(self, now: float) -> bool:
        return now - self._reaped >= REAP_EVERY or now < self._reaped - REAP_EVERY * 60

    def sweep(self, tx: Tx) -> bool:
        """Give back what has expired, and, now and then, what dead processes held; was it looked for those?"""
        if due := rules.oldest_lease_first(tx.due(SWEEP)):
            give_back(tx, due, "its lease ran out")
        return self.reap_if_due(tx)

    def reap_if_due(self, tx: Tx, alive: Worker | None = None) -> bool:
        if not self.is_due(tx.now):
            return False
        self.reap(tx, alive)
        return True

    def reap(self, tx: Tx, alive: Worker | None = None) -> list[BoardTask | Lock]:
        """Give back the claims and locks whose holder's process is provably dead, and the locks that have run out.
        `alive` is being given tasks right now, so nothing is taken from it."""
        began, here = time.monotonic(), boot()
        gone = {holder.text: holder for holder in tx.holders() if holder != alive and is_dead(holder, here)}
        # Where looking is slow, look less often: it is to take a fiftieth of the time.
        slow = 50 * (time.monotonic() - began)
        self._reaped = tx.now + min(max(0.0, slow - REAP_EVERY), REAP_SELDOM)
        names = sorted({holder.name for holder in gone.values()})
        tasks = [t for name in names for t in tx.in_progress(name) if t.holder and t.holder.text in gone]
        tasks = rules.oldest_lease_first(tasks)[:SWEEP]
        locks = [lock for name in names for lock in tx.locks(name=name) if lock.holder.text in gone]
        locks += [lock for lock in tx.locks(expired=True) if lock.holder.text not in gone]
        give_back(tx, tasks, "the holder's process has died")
        # The locks of those tasks went with them.
        given_back = {task.id for task in tasks}
        loose = sorted((lock for lock in locks if lock.task_id not in given_back), key=lambda x: (x.pattern, x.token))
        drop(tx, loose[:SWEEP], rules.SYSTEM, "expired, or the holder's process has died")
        return [*tasks, *loose[:SWEEP]]
