"""A full disk: the call says so, nothing is acknowledged or damaged, and all is well when there is space again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import BoardUnusable
from tests.processes.harness import assert_whole

SIZE = 3 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", disk], capture_output=True, text=True, check=False
    )
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"root in CI must be able to mount a small file system: {done.stderr}")
        pytest.skip(f"this root cannot mount: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> Path:
    """Use up the last byte."""
    ballast = disk / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                pass
    return ballast


def test_a_full_disk_refuses_each_call_and_works_again_when_freed(small_disk: Path) -> None:
    url = f"sqlite:{small_disk}/board.db"
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.add_many([{"description": f"task {n}"} for n in range(300)])
        claimed = board.claim("w")
        assert claimed is not None
        ballast = fill(small_disk)
        acknowledged: list[str] = []
        refused: list[str] = []
        for _ in range(400):
            try:
                acknowledged.append(board.add("x" * 5000))
            except BoardUnusable as error:
                refused.append(str(error))
                if len(refused) == 20:
                    break
        assert len(refused) == 20, "the disk never filled: the test shows nothing"
        assert all("the disk is full: nothing was changed (free some space" in text for text in refused), refused[0]
        pending = board.pending_count
        assert pending == 299 + len(acknowledged)
        for verb in (lambda: board.claim("w", n=100), lambda: board.complete(claimed.id, "r" * 60_000, worker="w")):
            with pytest.raises(BoardUnusable, match="the disk is full"):
                verb()
        assert board.get(claimed.id).status == "in_progress"

        ballast.unlink()
        acknowledged.append(board.add("afterwards"))
        claimed.complete("done")
    with assert_whole(url) as board:
        assert board.pending_count == 299 + len(acknowledged)
        assert {task["id"] for task in board.status()} >= set(acknowledged)
        assert board.completed_count == 1


def look(url: str) -> None:
    with TaskBoard.open(url, worker="w") as board:
        assert len(board.status()) == 1


def add_much(url: str) -> None:
    with TaskBoard.open(url, worker="w") as board:
        for _ in range(100):
            board.add("y" * 60_000)


def test_a_board_can_be_opened_and_read_on_a_full_disk_or_says_why_not(small_disk: Path) -> None:
    url = f"sqlite:{small_disk}/board.db"
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.add("a task")
    ballast = fill(small_disk)
    said: list[str] = []
    for use in (look, add_much):
        try:
            use(url)
        except BoardUnusable as error:
            said.append(str(error))
    assert said, "100 large tasks found room on a full disk: the test shows nothing"
    assert all("disk" in text for text in said), said
    ballast.unlink()
    with assert_whole(url) as board:
        board.add("afterwards")


def test_creating_on_a_full_disk_leaves_nothing(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(BoardUnusable) as caught:
        TaskBoard.open(f"sqlite:{small_disk}/board.db", create=True, worker="maker")
    assert "disk" in str(caught.value)
    assert os.listdir(small_disk) == ["ballast"]
    (small_disk / "ballast").unlink()
    with TaskBoard.open(f"sqlite:{small_disk}/board.db", create=True, worker="maker") as board:
        board.add("afterwards")
    assert_whole(f"sqlite:{small_disk}/board.db").close()
