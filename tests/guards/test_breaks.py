"""Many processes break dead locks at once, and never two of them come to hold one. (`make test-breaks`: 100,000.)"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.guards.breaks import stress


def seed() -> int:
    made = int(os.environ.get("DIBS_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {made} (repeat with DIBS_TEST_SEED={made})")
    return made


@pytest.mark.parametrize("kind", ["dir", "file"])
def test_no_two_hold_a_lock_whose_dead_holder_several_break(kind: str, tmp_path: Path) -> None:
    done = stress(200, 8, kind, seed=seed(), folder=tmp_path, seconds=30)
    print(done)
    assert done.overlaps == 0
    assert done.breaks > 20


@pytest.mark.parametrize("kind", ["dir", "file"])
def test_the_oracle_notices_when_locks_are_broken_by_unlink_and_create(kind: str, tmp_path: Path) -> None:
    overlaps = 0
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        overlaps += stress(5000, 8, kind, seed=seed(), folder=folder, seconds=15, unsafe=True).overlaps
        if overlaps:
            break
    assert overlaps
