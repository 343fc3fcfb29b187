"""The part of a transaction that is about locks on paths.

Whoever reads `locks(patterns)` to decide holds the literal prefix of each pattern, and shares the folders above it,
until its transaction ends. Two patterns overlap only if the prefix of one is the other's or above it, so of two who are
about to grant overlapping locks one waits for the other, and sees its lock.

`near` does so only where nothing is in the way: a claim that passes over task after task would otherwise hold the paths
of them all, in no order, and run into others who do the same.
"""

from __future__ import annotations

from dibs.model import BoardTask, Lock
from dibs.paths import literal_prefix, prefix_range
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import MOST, path_keys
from dibs.stores.postgres.trips import Trips
from dibs.stores.rows import lock_from, lock_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.stores.postgres.links import Statement


class PathLocks(Trips):
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
        where = self._where(patterns)
        if not self._writing:
            return [lock_from(row) for row in self._one(q.LOCKS_NEAR[False], *where)]
        keys, held = self._keys(patterns)
        _, found, drawn = self._ask(
            (q.HOLD_PATHS, (self._board, keys, held)),
            (q.LOCKS_NEAR[True], (self._board, *where)),
            (q.DRAW, self._store.numbers),
        )
        self._numbers = [row[0] for row in drawn]
        return [lock_from(row) for row in found]

    def near(self, patterns: Sequence[str]) -> tuple[list[Lock], bool]:
        if not self._writing:
            return self.locks(patterns), True
        about = tuple(patterns)
        kept = [self._foreseen.pop((part, about), None) for part in ("hold", "near", "number")]
        if self._relocked or None in kept:
            kept = list(self._ask(*(statement for _, statement in self._near(patterns))))
        held, found, drawn = (answer or [] for answer in kept)
        if held:
            self._numbers = [row[0] for row in drawn]
        return [lock_from(row) for row in found], bool(held) or self._has_root

    def _keys(self, patterns: Sequence[str]) -> tuple[list[int], list[bool]]:
        """What to hold for these patterns. A transaction that would hold very many holds the root instead: the server's
        table of locks is small, and everybody else's."""
        if self._has_root:
            return [], []
        keys, held = path_keys([literal_prefix(pattern) for pattern in patterns])
        self._held += len(keys)
        if self._held > MOST:
            self._has_root = True
            keys, held = path_keys([""])
        return keys, held

    def _where(self, patterns: Sequence[str]) -> tuple[Any, ...]:
        """Where to look for locks that could overlap: prefixes, as the index has them and whole; between what the index
        is to be searched; and the ranges."""
        ancestors: dict[str, None] = {}
        lows, highs = [], []
        for prefix in dict.fromkeys(map(literal_prefix, patterns)):
            above, low, high = prefix_range(prefix)
            ancestors.update(dict.fromkeys(above))
            lows.append(low)
            highs.append(high)
        near = list(ancestors)
        return [p[:600] for p in near], near, min(lows)[:600], max(highs)[:600], lows, highs

    def own_locks(self, task: BoardTask) -> list[Lock]:
        rows = None if self._relocked else self._foreseen.pop(("locks of", task.id), None)
        return [lock_from(row) for row in (self._one(q.LOCKS_OF_TASK, task.id) if rows is None else rows)]

    def run_out(self) -> list[Lock]:
        rows = None if self._relocked else self._foreseen.pop(("run out", None), None)
        return [lock_from(row) for row in (self._one(q.LOCKS_RUN_OUT, self.now) if rows is None else rows)]

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            self._relocked[lock.pattern, lock.token] = lock
            self._write(q.SAVE_LOCK, *lock_row(lock))

    def drop_locks(self, locks: Sequence[Lock]) -> None:
        if locks:
            self._relocked |= {(lock.pattern, lock.token): None for lock in locks}
            self._write(q.DROP_LOCKS, [lock.pattern for lock in locks], [lock.token for lock in locks])

    def _near(self, patterns: Sequence[str]) -> list[tuple[tuple[str, Any], Statement]]:
        """What `near(patterns)` asks for: if there are no such locks hold the paths; look; if there are none draw."""
        keys, held = self._keys(patterns)
        about, where = tuple(patterns), self._where(patterns)
        return [
            (("hold", about), (q.HOLD_PATHS_IF_FREE, (self._board, keys, held, *where))),
            (("near", about), (q.LOCKS_NEAR[False], (self._board, *where))),
            (("number", about), (q.DRAW_IF_FREE, (self._board, *where, *self._store.numbers))),
        ]
