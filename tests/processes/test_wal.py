"""The write-ahead log stays small, whoever writes and reads."""

from __future__ import annotations

import os
import time

import pytest

from tests.processes.harness import IN_A_FILE, Crew, assert_whole, path_of

pytestmark = IN_A_FILE

LIMIT = 40 * 1024 * 1024


def size_of(path: str) -> int:
    """The last process to close the board removes the file, at any moment."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("readers", [0, 3])
def test_the_wal_stays_bounded_over_five_thousand_transactions(url: str, crew: Crew, readers: int) -> None:
    wal = f"{path_of(url)}-wal"
    looking = [crew.start("look", url, f"reader-{n}") for n in range(readers)]
    for reader in looking:
        reader.expect("ready")
    writers = crew.at_barrier("chatter", [(url, f"writer-{n}", 420) for n in range(4)])
    largest = 0
    working = set(writers)
    while working:
        for writer in list(working):
            if not writer.listen():
                working.discard(writer)
        largest = max(largest, size_of(wal))
        time.sleep(0.002)
    for writer in writers:
        assert writer.lines() == ["done"]
    for reader in looking:
        reader.tell()
        reader.expect("looked")
        reader.lines()
    assert 0 < largest < LIMIT, f"the WAL grew to {largest / 1e6:.0f} MB"
    assert size_of(wal) < LIMIT
    with assert_whole(url) as board:
        assert board.completed_count == 4 * 420
    print(f"largest WAL in {4 * 420 * 3:,} transactions: {largest / 1e6:.1f} MB")
