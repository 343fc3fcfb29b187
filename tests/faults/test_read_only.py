"""A board on a disk that is mounted for reading only: it can be read, and whoever writes is told why not."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import BoardUnusable
from tests.cli.shell import Shell
from tests.processes.harness import Crew


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", disk], capture_output=True, text=True, check=False)
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"root in CI must be able to mount a small file system: {done.stderr}")
        pytest.skip(f"this root cannot mount: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def read_everything(disk: Path) -> None:
    url = f"sqlite:{disk}/board.db"
    with TaskBoard.open(url, worker="w") as board:
        assert [task["id"] for task in board.status()] == ["one"]
        assert board.get("one").description == "a task"
        assert not board.store.wait_change(board.store.mark_change(), 0)
        for write in (lambda: board.add("x"), lambda: board.claim("w"), lambda: board.tell("x")):
            with pytest.raises(BoardUnusable, match="mounted for reading only: nothing was changed"):
                write()
    shell = Shell(disk.parent)
    for words in (["list"], ["show", "one"], ["log"], ["locks"], ["export", "-"], ["wait", "--timeout", "0"]):
        result = shell("--board", url, *words)
        assert result.code == 0, result
    report = shell("--board", url, "--json", "doctor").json
    assert [finding["code"] for finding in report["findings"]] == ["read_only"]
    assert report["file"]["integrity"]["ok"]


def test_a_board_that_was_closed_is_read(disk: Path) -> None:
    with TaskBoard.open(f"sqlite:{disk}/board.db", create=True, worker="maker") as board:
        board.add("a task", id="one")
    make_read_only(disk)
    before = sorted(os.listdir(disk))
    read_everything(disk)
    assert sorted(os.listdir(disk)) == before


def test_what_a_killed_writer_left_in_the_wal_is_read_too(disk: Path, crew: Crew) -> None:
    with TaskBoard.open(f"sqlite:{disk}/board.db", create=True, worker="maker") as board:
        reader = crew.start("read_slowly", board.url)
        reader.expect("inside")
        board.add("a task", id="one")
    reader.send(signal.SIGKILL)
    reader.process.wait()
    assert os.path.getsize(disk / "board.db-wal") > 0
    make_read_only(disk)
    read_everything(disk)


def test_a_wal_without_its_index_is_said_to_be_in_the_way(disk: Path, crew: Crew) -> None:
    test_what_a_killed_writer_left_in_the_wal_is_read_too(disk, crew)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    (disk / "board.db-shm").unlink()
    make_read_only(disk)
    result = Shell(disk.parent)("--board", f"sqlite:{disk}/board.db", "list")
    assert result.code == 1
    assert "was not closed" in result.err
    assert "cp -a" in result.err
