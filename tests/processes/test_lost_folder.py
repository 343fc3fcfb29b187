"""A worker whose working directory is gone is told so, and gets nothing."""

from __future__ import annotations

from pathlib import Path

from tests.processes.harness import IN_A_FILE, assert_whole, python

WORK_IN_A_LOST_FOLDER = """
import os, sys
from dibs import TaskBoard
from dibs.errors import Invalid
board = TaskBoard.open(sys.argv[1])
os.mkdir(sys.argv[2])
os.chdir(sys.argv[2])
os.rmdir(sys.argv[2])
for attempt in (
    lambda: board.lock(["a.py"], "me"),
    lambda: board.add("x", paths=["a.py"]),
    lambda: board.locks(["a.py"]),
    lambda: TaskBoard.open(),
):
    try:
        attempt()
        print("granted")
    except Invalid as error:
        print(error.message)
"""


@IN_A_FILE
def test_a_lost_working_directory_is_named_as_what_is_wrong(url: str, tmp_path: Path) -> None:
    said = python(WORK_IN_A_LOST_FOLDER, url, tmp_path / "lost")
    assert said == ["the working directory no longer exists"] * 4
    with assert_whole(url) as board:
        assert board.status() == []
        assert board.locks() == []
