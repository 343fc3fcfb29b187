"""Moving leases when the wall clock has jumped (see `dibs.clock`): for the stores that keep their own time."""

from __future__ import annotations

from dibs.model import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from dibs.stores.base import Tx

    class ClockedTx(Tx, Protocol):
        def shift_requests(self, seconds: float) -> None:
            """Let remembered answers be as old as they were."""


def move_leases(tx: ClockedTx, shift: float) -> None:
    """Move everything that would expire by `shift` seconds, and say so in the changelog."""
    tasks = tx.in_progress()
    for task in tasks:
        if task.lease_expires_at is not None:
            task.lease_expires_at += shift
        for step in task.steps:
            if step.expires_at is not None:
                step.expires_at += shift
    if tasks:
        tx.save(tasks)
    locks = tx.locks()
    for lock in locks:
        lock.expires_at += shift
    tx.save_locks(locks)
    tx.shift_requests(shift)
    tx.append([Event("adjusted_clock", "dibs", "system", data={"shift": shift})])
