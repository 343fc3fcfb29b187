"""The part of a transaction that is about locks on paths.

Whoever reads `locks(patterns)` to decide holds the literal prefix of each pattern, and shares the folders above it,
until its transaction ends. Two patterns overlap only if the prefix of one is the other's or above it, so of two who are
about to grant overlapping locks one waits for the other, and sees its lock.

A claim, which passes over task after task, takes their paths in no order, and would run into others who do the same. So
`near` never waits: it takes a task's paths only where nothing is in the way, and if somebody else is about to decide
about them, it says so.
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
        keys, alone = self._keys(patterns)
        is_root = keys is None
        if is_root:
            keys, alone = path_keys([""])
        _, found, drawn = self._ask(
            (q.HOLD_PATHS, (self._board, keys, alone)),
            (q.LOCKS_NEAR[True], (self._board, *where)),
            (q.DRAW, self._store.numbers),
        )
        self._held += len(keys or ())
        self._has_root = self._has_root or is_root
        self._numbers = [row[0] for row in drawn]
        return [lock_from(row) for row in found]

    def near(self, patterns: Sequence[str], *, surely: bool = False) -> tuple[list[Lock], bool | None]:
        if not self._writing:
            return self.locks(patterns), True
        about = tuple(patterns)
        kept = [self._foreseen.pop((part, about), None) for part in ("hold", "near", "number")]
        if surely or self._relocked or self._moved or None in kept:  # what has changed since has later numbers
            kept = list(self._ask(*(statement for _, statement in self._near(patterns, surely))))
        tried, found, drawn = (answer or [] for answer in kept)
        held = tried[0][0]
        if held:
            self._numbers = [row[0] for row in drawn]
            self._has_root = self._has_root or self._tries_root
        locks = [lock_from(row) for row in found]
        return locks, True if held or self._has_root else None if held is False else False

    def _keys(self, patterns: Sequence[str]) -> tuple[list[int] | None, list[bool]]:
        """What to hold for these patterns. None: they would be too many, and the root is to be held instead, since the
        server's table of locks is small, and everybody else's. Who holds the root needs no more."""
        if self._has_root:
            return [], []
        keys, alone = path_keys([literal_prefix(pattern) for pattern in patterns])
        return (None, []) if self._held + len(keys) > MOST else (keys, alone)

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

    def _near(self, patterns: Sequence[str], surely: bool = False) -> list[tuple[tuple[str, Any], Statement]]:
        """What `near(patterns)` asks for: if there are no such locks, or surely, try to hold the paths; look; draw."""
        keys, alone = self._keys(patterns)
        self._tries_root = surely and keys is None
        if self._tries_root:
            keys, alone = path_keys([""])
        self._held += len(keys or ())
        about, where, board = tuple(patterns), self._where(patterns), self._board
        tried = (q.TRY_PATHS, (board, keys or [], alone))
        if not surely:
            tried = (q.TRY_PATHS_IF_FREE, (board, keys or [], alone, *where))
        drawn = (q.DRAW, self._store.numbers) if surely else (q.DRAW_IF_FREE, (board, *where, *self._store.numbers))
        return [
            (("hold", about), tried),
            (("near", about), (q.LOCKS_NEAR[False], (board, *where))),
            (("number", about), drawn),
        ]
