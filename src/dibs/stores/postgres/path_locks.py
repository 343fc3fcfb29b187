"""The part of a transaction that is about locks on paths.

Whoever grants locks holds the literal prefix of each pattern, and shares the folders above it, until its transaction
ends. Two patterns overlap only if the prefix of one is the other's or above it, so of two who are about to grant
overlapping locks one has to wait for the other, or to begin anew, and sees its lock.

`locks(patterns)` holds the paths from then on. A claim, which passes over task after task, would take their paths in no
order, and run into others who do the same. So `near` only looks, mostly at what came with the first trip; when locks
are granted there, their paths are held at the end, and it is seen that nothing has come near them since (`confirming`).
"""

from __future__ import annotations

from dibs.model import BoardTask, Lock
from dibs.nearby import Near
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.confirming import Confirming, where
from dibs.stores.rows import lock_from, lock_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def _order(lock: Lock) -> tuple[str, int]:
    return lock.pattern, lock.token


class PathLocks(Confirming):
    def locks(self, patterns: Sequence[str] | None = None, name: str | None = None) -> list[Lock]:
        if name is not None:
            rows = self._foreseen.pop(("locks by", name), None)
            if rows is None:
                return [lock_from(row) for row in self._one(q.LOCKS_BY, name)]
            # What this transaction has changed since counts as it is now.
            kept: dict[tuple[str, int], Lock | None] = {(row[0], row[2]): lock_from(row) for row in rows}
            kept |= {key: lock for key, lock in self._relocked.items() if lock is None or lock.holder.name == name}
            return [lock for key in sorted(kept) if (lock := kept[key]) is not None]
        if patterns is None:
            return [lock_from(row) for row in self._one(q.LOCKS)]
        if not patterns:
            return []
        if not self._writing:
            return [lock_from(row) for row in self._one(q.LOCKS_NEAR[False], *where(patterns))]
        keys, alone = self._keys(patterns)
        _, found = self._ask(
            (q.HOLD_PATHS, (self._board, keys, alone)),
            (q.LOCKS_NEAR[True], (self._board, *where(patterns))),
        )
        self._held_patterns.update(patterns)
        return [lock_from(row) for row in found]

    def near(self, patterns: Sequence[str]) -> list[Lock]:
        if not self._writing:
            if self._near_index is None:  # whoever looks at tasks looks at many
                self._near_index = Near(self.locks())
            return sorted(self._near_index.to(patterns), key=_order)
        unknown = [pattern for pattern in patterns if pattern not in self._near_known]
        if unknown:
            found = self._one(q.LOCKS_NEAR[False], *where(unknown))
            self._knows_near(unknown, [lock_from(row) for row in found])
        # What this transaction has changed since counts as it is now.
        seen = [lock for lock in self._seen_near(patterns) if (lock.pattern, lock.token) not in self._relocked]
        return sorted(seen + [lock for lock in self._relocked.values() if lock is not None], key=_order)

    def own_locks(self, task: BoardTask) -> list[Lock]:
        rows = None if self._relocked else self._foreseen.pop(("locks of", task.id), None)
        if rows is None and self._near_known.issuperset(task.paths):
            return [lock for lock in self.near(task.paths) if lock.task_id == task.id]
        return [lock_from(row) for row in (self._one(q.LOCKS_OF_TASK, task.id) if rows is None else rows)]

    def still(self, locks: Sequence[Lock]) -> list[Lock]:
        kept = []
        for lock in locks:
            key = (lock.pattern, lock.token)
            now = self._relocked.get(key, lock)
            if now is not None:
                kept.append(now)
            if key not in self._relocked:
                self._lock_stays(lock)
        return kept

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            self._saves_lock(lock)
            self._relocked[lock.pattern, lock.token] = lock
            self._write(q.SAVE_LOCK, *lock_row(lock))

    def drop_locks(self, locks: Sequence[Lock]) -> None:
        if locks:
            self._relocked |= {(lock.pattern, lock.token): None for lock in locks}
            self._write(q.DROP_LOCKS, [lock.pattern for lock in locks], [lock.token for lock in locks])
