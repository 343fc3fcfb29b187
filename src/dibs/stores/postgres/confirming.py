"""What a transaction sees to at its end, because it had only looked before.

To lock whatever a verb may need would keep others from it; to lock it when it is known what is needed would be a trip
more. So tasks and locks that were looked at are handed out as they were, and noted here. The trip that writes then
begins with holding them, and fails if anything is not as it was: a task has another event, a lock or a lease has
ended, somebody holds new files near those that are to be granted. The server's refusal is a `Collision` (see
`failures`), and the verb begins anew.

Everybody holds tasks first, then paths, then locks. It does not wait for a task: mostly somebody is changing it. It
waits for paths, in the order that all take them in, if it holds none yet; and for locks, since whoever holds those
waits for nothing else.

    self._looks(task, last_event)    a task was handed out from a look
    self._expects(task)              it is decided about: it must stay as it was
    self._lock_stays(lock)           the same for a lock
    self._saves_lock(lock)           it goes on, or is granted, given what `near` had shown (`_seen_near`)
"""

from __future__ import annotations

from dibs.model import IN_PROGRESS, BoardTask, Lock
from dibs.nearby import Near
from dibs.paths import literal_prefix, prefix_range
from dibs.stores.postgres import confirmations as c
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import MOST, path_keys
from dibs.stores.postgres.trips import Trips

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.stores.postgres.links import Link, Statement
    from dibs.stores.postgres.store import PostgresStore


def where(patterns: Sequence[str]) -> tuple[Any, ...]:
    """Where to look for locks that could overlap: prefixes, as the index has them and whole; between what the index is
    to be searched; and the ranges."""
    ancestors: dict[str, None] = {}
    lows, highs = [], []
    for prefix in dict.fromkeys(map(literal_prefix, patterns)):
        above, low, high = prefix_range(prefix)
        ancestors.update(dict.fromkeys(above))
        lows.append(low)
        highs.append(high)
    near = list(ancestors)
    return [p[:600] for p in near], near, min(lows)[:600], max(highs)[:600], lows, highs


class Confirming(Trips):
    def __init__(self, store: PostgresStore, link: Link, writing: bool) -> None:
        super().__init__(store, link, writing)
        self._looked: dict[str, BoardTask] = {}
        """Tasks from looks, by id."""
        self._was: dict[int, tuple[int, int, int | None]] = {}
        """How they were: the newest event, how many they waited for, the token of the claim."""
        self._expected: dict[int, bool] = {}
        """Those that must be as they were, and whether their lease must not have run out."""
        self._locks_stay: dict[tuple[str, int], tuple[float, bool]] = {}
        """The same for locks, by pattern and token: when they end, and whether that must be later than now."""
        self._grants: list[str] = []
        self._renewals: list[str] = []
        self._near_known: set[str] = set()
        """Patterns near which all locks are known."""
        self._near_locks: dict[tuple[str, int], Lock] = {}
        self._near_index: Near | None = None
        self._held = 0
        self._held_patterns: set[str] = set()
        self._has_root = False
        """Are all paths held, because they were too many?"""

    # -- tasks

    def _looks(self, task: BoardTask, last_event: int) -> None:
        token = task.token if task.status is IN_PROGRESS else None
        self._looked[task.id] = task
        self._was[task.seq] = (last_event, task.unmet, token)

    def _expects(self, task: BoardTask) -> None:
        """A lease that is to go on must not have run out: somebody may have taken it for over."""
        was = self._was.get(task.seq)
        if was is not None:
            goes_on = task.status is IN_PROGRESS and task.token == was[2] and task.seq in self._dirty
            self._expected[task.seq] = goes_on or self._expected.get(task.seq, False)

    # -- locks

    def _lock_stays(self, lock: Lock) -> None:
        self._locks_stay.setdefault((lock.pattern, lock.token), (lock.expires_at, False))

    def _saves_lock(self, lock: Lock) -> None:
        """A lock is granted (it has no number yet) or goes on: its paths are to be held, unless they are already."""
        key = (lock.pattern, lock.token)
        if lock.pattern in self._held_patterns:
            return
        if lock.token < 0:
            self._grants.append(lock.pattern)
        elif key in self._locks_stay:
            self._locks_stay[key] = (self._locks_stay[key][0], True)
            self._renewals.append(lock.pattern)

    def _knows_near(self, patterns: Sequence[str], locks: Sequence[Lock]) -> None:
        self._near_known.update(patterns)
        for lock in locks:
            self._near_locks.setdefault((lock.pattern, lock.token), lock)
        self._near_index = None

    def _seen_near(self, patterns: Sequence[str]) -> list[Lock]:
        """The locks near some patterns, as they were looked at."""
        if self._near_index is None:
            self._near_index = Near(self._near_locks.values())
        return self._near_index.to(patterns)

    def _keys(self, patterns: Sequence[str]) -> tuple[list[int], list[bool]]:
        """What to hold for these patterns. Where they would be too many it is the root, since the server's table of
        locks is small, and everybody else's. Who holds the root needs no more."""
        if self._has_root:
            return [], []
        keys, alone = path_keys([literal_prefix(pattern) for pattern in patterns])
        if self._held + len(keys) > MOST:
            self._has_root = True
            keys, alone = path_keys([""])
        self._held += len(keys)
        return keys, alone

    # -- at the end

    def _confirmations(self) -> list[Statement]:
        board, wall = self._board, self._wall
        made: list[Statement] = []
        if self._expected:
            seqs = sorted(self._expected)
            was = [self._was[seq] for seq in seqs]
            live = [self._expected[seq] for seq in seqs]
            made.append((c.CONFIRM_TASKS, (board, seqs, [w[0] for w in was], [w[1] for w in was], live, wall)))
        if self._grants or self._renewals:
            hold = c.TRY_PATHS if self._held else q.HOLD_PATHS
            keys, alone = self._keys([*self._grants, *self._renewals])
            if keys:
                made.append((hold, (board, keys, alone)))
        if self._locks_stay:
            names, ends = list(self._locks_stay), list(self._locks_stay.values())
            values = ([n[0] for n in names], [n[1] for n in names], [e[0] for e in ends], [e[1] for e in ends])
            made.append((c.CONFIRM_LOCKS, (board, *values, wall)))
        if self._grants:
            # What this transaction has granted or renewed itself, in an earlier trip, is there as it left it.
            seen = self._seen_near(self._grants) + [lock for lock in self._relocked.values() if lock is not None]
            known = ([x.pattern for x in seen], [x.token for x in seen], [x.expires_at for x in seen])
            made.append((c.CONFIRM_GRANTS, (board, *where(self._grants), *known)))
        # From now on they are held, and what is written behind this changes some of them.
        for seq in (*self._expected, *self._saved):
            self._was.pop(seq, None)
        self._held_patterns.update(self._grants, self._renewals)
        self._expected, self._locks_stay, self._grants, self._renewals = {}, {}, [], []
        return made
