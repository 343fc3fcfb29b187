"""Names of what is held by advisory locks: pairs of the board's number and one of these. Two names with one key only
make their users wait for each other."""

from __future__ import annotations

from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 200
"""So many paths are held one by one in one transaction."""


def _key(kind: str, name: str) -> int:
    value = crc32(f"{kind}\n{name}".encode())
    return value - 2**31  # as the server's int4


EDGES = _key("edges", "")
"""Dependencies between tasks that exist."""
FRONTS = _key("fronts", "")
"""Shared by whoever makes tasks ready; alone by whoever raises a front."""


def reader_key(reader: str) -> int:
    return _key("reader", reader)


def path_keys(prefixes: Sequence[str]) -> tuple[list[int], list[bool]]:
    """For literal prefixes of patterns: the keys to hold, in the order in which everybody takes them, and which of them
    alone (the prefixes) and which shared (the folders above)."""
    held: dict[int, bool] = {}
    for prefix in prefixes:
        parts = prefix.split("/") if prefix else []
        for depth in range(len(parts)):
            held.setdefault(_key("path", "/".join(parts[:depth])), False)
    for prefix in prefixes:
        held[_key("path", prefix)] = True
    keys = sorted(held)
    return keys, [held[key] for key in keys]
