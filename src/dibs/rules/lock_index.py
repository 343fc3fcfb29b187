"""Many locks, and which of them could overlap some patterns. With a thousand of each, comparing all with all takes
seconds; two patterns overlap only if the literal prefix of one is the other's, or above it.
"""

from __future__ import annotations

from dibs.rules.paths import literal_prefix, prefix_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dibs.model import Lock


class LockIndex:
    def __init__(self, locks: Iterable[Lock]) -> None:
        self._by_prefix: dict[str, list[Lock]] = {}
        for lock in locks:
            self._by_prefix.setdefault(literal_prefix(lock.pattern), []).append(lock)
        self._prefixes = sorted(self._by_prefix)

    def to(self, patterns: Sequence[str]) -> list[Lock]:
        from _bisect import bisect_left

        found: dict[str, list[Lock]] = {}
        for pattern in patterns:
            ancestors, low, high = prefix_range(literal_prefix(pattern))
            below = self._prefixes[bisect_left(self._prefixes, low) : bisect_left(self._prefixes, high)]
            found.update((p, self._by_prefix[p]) for p in (*ancestors, *below) if p in self._by_prefix)
        return [lock for locks in found.values() for lock in locks]
