"""`board.db` is gone and SQLite's files of it are still there: a new board beside them would take in their pages."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.cli.shell import Shell, environment
from tests.processes.harness import Crew
from tests.processes.harness import crew as crew

WRITE_AND_DIE = """
import os, sys
from dibs import TaskBoard
board = TaskBoard.open(sys.argv[1], create=True, worker="w")
for number in range(30):
    board.add(f"old {number}", id=f"old-{number}")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def lost(tmp_path: Path) -> Shell:
    """A folder whose board was killed while it wrote; then somebody removed its main file."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    url = f"sqlite:{folder}/.dibs/board.db"
    ended = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, url], env=environment())
    assert ended.returncode == -signal.SIGKILL
    shutil.copy(folder / ".dibs" / "board.db", tmp_path / "kept.db")
    (folder / ".dibs" / "board.db").unlink()
    return Shell(folder)


def files(shell: Shell) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (shell.folder / ".dibs").iterdir()}


@pytest.mark.parametrize("verb", ["init", "import", "copy"])
def test_nothing_is_made_beside_leftovers_and_the_hint_moves_them_aside(lost: Shell, tmp_path: Path, verb: str) -> None:
    other = f"sqlite:{tmp_path}/other.db"
    with TaskBoard.open(other, create=True, worker="w") as board:
        board.add("new", id="new")
    export = str(tmp_path / "board.jsonl")
    Shell(tmp_path)("--board", other, "export", export)
    words = {
        "init": ["init"],
        "import": ["--board", "sqlite:.dibs/board.db", "import", export],
        "copy": ["copy", other, "sqlite:.dibs/board.db"],
    }[verb]
    before = files(lost)
    result = lost(*words, "--json")
    assert result.code == 1
    assert "board.db-wal, board.db-shm and board.db-sync" in result.error["message"]
    assert "put it back" in result.error["hint"]
    assert files(lost) == before
    command = result.error["hint"].partition(": ")[2]
    shown = shlex.split(command)
    assert (shown[0], shown[2:4]) == ("mkdir", ["&&", "mv"])
    assert not os.path.exists(shown[1])
    subprocess.run(["sh", "-c", command], check=True)
    assert lost(*words).code == 0
    assert "old" not in lost("list", "--all").out
    assert "all is well" in lost("doctor").out


def test_a_board_that_is_put_back_beside_its_leftovers_is_whole(lost: Shell, tmp_path: Path) -> None:
    assert lost("init").code == 1
    shutil.move(tmp_path / "kept.db", lost.folder / ".dibs" / "board.db")
    assert len(lost("list", "--all", "--json").json["tasks"]) == 30
    assert "all is well" in lost("doctor").out


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-sync"])
def test_each_of_them_is_noticed_alone(tmp_path: Path, suffix: str) -> None:
    (tmp_path / ".dibs").mkdir()
    (tmp_path / ".dibs" / f"board.db{suffix}").write_bytes(b"something")
    result = Shell(tmp_path)("init")
    assert result.code == 1
    assert f"board.db{suffix}" in result.err
    assert os.listdir(tmp_path / ".dibs") == [f"board.db{suffix}"]


def test_a_board_that_another_makes_meanwhile_is_no_leftover(tmp_path: Path, crew: Crew) -> None:
    for attempt in range(3):
        url = f"sqlite:{tmp_path}/{attempt}/board.db"
        for maker in crew.at_barrier("make", [(url, f"maker-{number}") for number in range(4)]):
            maker.expect("added")
