"""What a process held that has died is in nobody's way."""

from __future__ import annotations

import sys
import time

import pytest

from dibs import TaskBoard
from tests.processes.harness import assert_whole, python

LOCK_AND_DIE = """
import os, sys
from dibs import TaskBoard
TaskBoard.open(sys.argv[1]).lock(["src/**"], "mayfly")
print("locked", flush=True)
os._exit(0)
"""

CLAIM_AND_DIE = """
import os, sys
from dibs import TaskBoard
task = TaskBoard.open(sys.argv[1]).claim("mayfly", "theirs")
print(task.id, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="death is proved on Linux only")
@pytest.mark.parametrize("script", [LOCK_AND_DIE, CLAIM_AND_DIE], ids=["lock", "claim"])
def test_a_named_task_whose_paths_a_dead_process_holds_is_granted_at_once(url: str, script: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("theirs", id="theirs", paths=["src/a.py"])
        board.add("wanted", id="wanted", paths=["src/a.py"])
        assert len(python(script, url)) == 1
        board.core.reaper._reaped = (
            board.now()
        )  # as if it had looked for the dead just now: who is in the way counts all the same
        assert [lock.holder.name for lock in board.locks()] == ["mayfly"]
        started = time.monotonic()
        task = board.claim("alive", "wanted")
        assert time.monotonic() - started < 30
        assert task is not None
        assert task.assigned_to == "alive"
    assert_whole(url).close()
