"""Document 001's way to make a lock file for tools that have no exclusive creation: write it, read it again, and back
off if it says something else.

    look whether it is there · write the content · wait until others have written too · read it again · is it ours?

Two who write at the same moment overwrite each other; the last one stands, and whoever reads its own content holds the
lock. That is only as safe as `settle` is longer than the time between another's look and its write, which nobody can
promise: where the system has exclusive creation, as every one that Python runs on has, use a guard, or `dibs claim`.

A crash leaves the lock, which ends as its content says.
"""

from __future__ import annotations

import os
import time

from dibs import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def write_then_verify(
    path: str, content: bytes, *, settle: float = 0.5, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Try to make the lock file; is it ours? The content must be unlike anybody else's: name the holder and the time.

    A lock that is there already is left alone, and so is one that turns out to be another's.
    """
    if os.path.lexists(path):
        return False
    with open(path, "wb") as file:
        file.write(content)
    sleep(settle)
    return fs.read_marker(path) == content
