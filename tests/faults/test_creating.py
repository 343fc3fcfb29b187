"""Making a board: whole or not at all, by one process or by several at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.processes.harness import Crew, assert_whole, new_seed

STRACE = shutil.which("strace")


def assert_makes_good(folder: Path) -> None:
    """After a creation that died: what is there is a whole board, or no board; and the next creation works."""
    url = f"sqlite:{folder}/board.db"
    if (folder / "board.db").exists():
        with TaskBoard.open(url) as board:
            board.status()
    with TaskBoard.open(url, create=True, worker="next") as board:
        board.add("works")
        actions = [event.action for event in board.changelog()]
        assert actions == ["work_item_created"] + ["added_activity"] * (len(actions) - 1)
    assert_whole(url).close()
    leftovers = {name for name in os.listdir(folder) if not name.startswith("board.db.new-")}
    assert leftovers == {"board.db", "board.db-lock", "board.db-sync"}


def killed_while_creating(folder: Path, crew: Crew, tries: int) -> None:
    seed = new_seed()
    said = crew.start("creations", folder, seed, tries).lines(timeout=60 + tries)
    assert said.pop() == "over"
    killed = made = 0
    for line in said:
        fate, number = line.split()
        at = folder / number
        killed += fate == "killed"
        made += (at / "board.db").exists()
        at.mkdir(exist_ok=True)
        assert_makes_good(at)
    print(f"0 half-made boards in {killed:,} kills ({made:,} boards were complete); seed {seed}")
    assert killed > tries / 4


def test_a_creation_that_is_killed_leaves_a_whole_board_or_none(tmp_path: Path, crew: Crew) -> None:
    killed_while_creating(tmp_path, crew, 40)


@pytest.mark.slow
def test_two_thousand_creations_that_are_killed_leave_a_whole_board_or_none(
    tmp_path: Path, crew: Crew, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_while_creating(tmp_path, crew, 2000)
    with capsys.disabled():
        print(f"\n  {capsys.readouterr().out.strip()}")


CALLS = "openat,pwrite64,fdatasync,fsync,ftruncate,link,linkat,unlink,flock,mkdir,rename"


def killed_before_call(folder: Path, crew: Crew, number: int) -> bool:
    """Create a board and die at the entry of the n-th system call on one of its names; did it come to that?"""
    folder.mkdir()
    strace = [
        STRACE or "strace", "-f", "-qq", "-o", "/dev/null", "-P", str(folder), "-P", f"{folder}/board.db",
        "-P", f"{folder}/board.db-lock", "-P", f"{folder}/board.db-sync", "-P", f"{folder}/board.db-wal",
        "-e", f"trace={CALLS}", "-e", f"inject={CALLS}:signal=KILL:when={number}",
    ]  # fmt: skip
    actor = crew.start("make_one", f"sqlite:{folder}/board.db", before=strace)
    actor.process.wait(60)
    actor.listen()
    return not actor.heard


def killed_at_calls(folder: Path, crew: Crew, step: int) -> None:
    number = died = 1
    while killed_before_call(folder / str(number), crew, number):
        assert_makes_good(folder / str(number))
        died += 1
        number += step
        assert number < 300
    assert number > 6, "strace interrupted nothing: the test shows nothing"
    print(f"0 half-made boards after a death at {died - 1} different system calls")


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_a_creation_that_dies_at_a_call_that_names_the_board_leaves_it_whole_or_not_at_all(
    tmp_path: Path, crew: Crew
) -> None:
    """Linking, opening, the gate, the first transaction: every fourth of the system calls on the final names."""
    killed_at_calls(tmp_path, crew, 4)


@pytest.mark.slow
@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_a_creation_that_dies_at_any_call_that_names_the_board_leaves_it_whole_or_not_at_all(
    tmp_path: Path, crew: Crew
) -> None:
    killed_at_calls(tmp_path, crew, 1)


def test_several_processes_that_create_at_once_share_one_board(tmp_path: Path, crew: Crew) -> None:
    for attempt in range(3):
        url = f"sqlite:{tmp_path}/{attempt}/board.db"
        makers = crew.at_barrier("make", [(url, f"maker-{n}") for n in range(6)])
        added = [maker.expect("added").removeprefix("added ") for maker in makers]
        for maker in makers:
            assert maker.lines() == []
        with assert_whole(url) as board:
            assert sorted(task["id"] for task in board.status()) == sorted(added)
            assert [event.action for event in board.changelog()].count("work_item_created") == 1
        assert sorted(os.listdir(tmp_path / str(attempt))) == ["board.db", "board.db-lock", "board.db-sync"]
