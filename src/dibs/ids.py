"""Ids for new tasks."""

from __future__ import annotations

import os


def random_id() -> str:
    """Document 004's kind: eight hexadecimal digits."""
    return os.urandom(4).hex()
