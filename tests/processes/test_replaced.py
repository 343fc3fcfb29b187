"""A board's file that is moved away or replaced while it is open: nobody works on in a file without a name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import NoBoard
from tests.processes.harness import environment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".dibs"


def made(folder: Path, *ids: str) -> TaskBoard:
    board = TaskBoard.open(f"sqlite:{folder}/board.db", create=True)
    for task_id in ids:
        board.add(f"task {task_id}", id=task_id)
    return board


def test_a_board_that_is_gone_is_said_to_be(folder: Path) -> None:
    board = made(folder, "t1")
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(NoBoard):
        board.claim("ann")
    with pytest.raises(NoBoard):
        board.counts()
    folder.with_name("elsewhere").rename(folder)
    assert board.claim("ann") is not None


def test_a_board_in_its_place_is_worked_on(folder: Path) -> None:
    board = made(folder, "old")
    board.claim("ann")
    shutil.rmtree(folder)
    fresh = made(folder, "new")
    task = board.claim("ann")
    assert task is not None
    assert task.id == "new"
    assert fresh.get("new").assigned_to == "ann"
    board.close()
    assert fresh.complete("new", token=task.token).status == "completed"


def test_closing_the_old_one_leaves_the_log_of_the_new_one_alone(folder: Path) -> None:
    board = made(folder, "old")
    board.claim("ann")
    shutil.rmtree(folder)
    other = subprocess.run(
        [sys.executable, "-c",
         "import os, sys; from dibs import TaskBoard; b = TaskBoard.open(sys.argv[1], create=True); "
         "b.add('x', id='new'); b.claim('ben'); os.kill(os.getpid(), 9)", f"sqlite:{folder}/board.db"],
        env=environment(), check=False,
    )  # fmt: skip
    assert other.returncode == -9
    assert os.path.getsize(folder / "board.db-wal") > 0
    board.close()
    assert os.path.getsize(folder / "board.db-wal") > 0
    with TaskBoard.open(f"sqlite:{folder}/board.db") as fresh:
        assert fresh.get("new").assigned_to == "ben"
