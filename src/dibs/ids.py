"""Ids for new tasks."""

from __future__ import annotations

import os


def random_ids(number: int) -> list[str]:
    """Document 004's kind: eight hexadecimal digits."""
    return [os.urandom(4).hex() for _ in range(number)]
