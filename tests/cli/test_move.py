"""`dibs move`: the whole board is at its new place, and nobody works on at the old one unawares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from dibs import TaskBoard
from dibs.errors import BoardMoved
from dibs.stores.sqlite.store import SqliteStore
from tests.cli.shell import Shell


@pytest.fixture
def place(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.ok("init")
    shell.ok("add", "Write the form", "--id", "form", "--path", "src/form.py")
    shell.ok("add", "Write the list", "--id", "list")
    shell.ok("--as", "ann", "claim", "form")
    shell.ok("--as", "ann", "tell", "ben", "hallo")
    return shell


def test_everything_is_at_the_new_place_and_the_old_one_says_where(place: Shell) -> None:
    before = place.ok("list", "--all", "--json").json["tasks"]
    told = place.ok("--as", "ann", "move", ".", "sqlite:new/board.db").out
    there = f"sqlite:{place.folder}/new/board.db"
    assert "moved 2 tasks" in told
    assert f"export DIBS_BOARD={there}" in told
    assert place.ok("--board", there, "list", "--all", "--json").json["tasks"] == before
    assert place.ok("--board", there, "--as", "ben", "inbox", "--json").json["messages"]
    place.ok("--board", there, "--as", "ann", "done", "form", "it is there")
    for command in (["list"], ["--as", "ben", "claim"], ["log"], ["export", "-"], ["init"], ["locks"]):
        refused = place(*command, "--json")
        assert refused.code == 1, command
        assert refused.error["code"] == "board_moved", command
        assert refused.error["to"] == there
        assert f"export DIBS_BOARD={there}" in refused.error["hint"]
        assert "by ann at 20" in refused.error["message"]
    assert place("doctor", "--json").json["findings"][0]["code"] == "board_moved"


def test_whoever_had_the_board_open_cannot_write_to_it_any_more(place: Shell) -> None:
    with TaskBoard.open(f"sqlite:{place.folder}/.dibs/board.db") as board:
        assert len(board.tasks()[0]) == 2
        place.ok("move", ".", "sqlite:new.db")
        for act in (lambda: board.claim("ben"), lambda: board.add("one more"), lambda: board.tell("x", worker="ben")):
            with pytest.raises(BoardMoved, match="moved"):
                act()
    with TaskBoard.open(f"sqlite:{place.folder}/new.db") as board:
        assert board.claim("ben") is not None


def test_a_move_that_fails_leaves_the_board_as_it_was(place: Shell) -> None:
    place.ok("--board", "sqlite:full.db", "init")
    place.ok("--board", "sqlite:full.db", "add", "of its own")
    assert "has tasks of its own" in place("move", ".", "sqlite:full.db").err
    assert place("move", ".", "taskboard:state").code == 1
    assert not (place.folder / "state").exists()
    assert "same board" in place("move", ".", "sqlite:.dibs/board.db").err
    assert place("--board", ".", "move", ".", "sqlite:x.db").code == 2
    place.ok("--as", "ben", "claim", "list")


def test_a_board_in_files_that_others_use_by_hand_is_not_moved(place: Shell) -> None:
    place.ok("--board", "taskboard:state", "init")
    refused = place("move", "taskboard:state", "sqlite:new.db")
    assert refused.code == 1
    assert "dibs copy" in refused.err
    assert not (place.folder / "new.db").exists()


def test_a_mover_that_is_killed_behind_the_copy_leaves_the_old_board_in_use(place: Shell) -> None:
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sys; from dibs.stores.sqlite.store import SqliteStore\n"
            "SqliteStore.retire = lambda self, copy: (copy(), os._exit(9))\n"
            "from dibs.cli import main; main(['move', '.', 'sqlite:new.db'])",
        ],
        cwd=place.folder,
        env=place.environ,
        check=False,
    )
    assert killed.returncode == 9
    place.ok("--as", "ben", "claim", "list")
    assert "has tasks of its own" in place("move", ".", "sqlite:new.db").err
    place.ok("move", ".", "sqlite:newer.db")


def test_no_change_slips_in_between_the_copy_and_the_mark(place: Shell) -> None:
    """Writers queue at the gate from before the copy until the board is marked: none is lost, none is on one only."""
    path = f"{place.folder}/.dibs/board.db"
    code = (
        "import sys; from dibs import TaskBoard; from dibs.errors import BoardMoved\n"
        f"board = TaskBoard.open('sqlite:{path}'); print('ready', flush=True)\n"
        "try:\n  while True: print(board.add('one more'), flush=True)\n"
        "except BoardMoved: pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=place.environ) as writer:
        assert writer.stdout is not None
        seen = [writer.stdout.readline().strip() for _ in range(20)][1:]
        place.ok("move", ".", "sqlite:new.db")
        seen += writer.stdout.read().split()
        assert writer.wait(timeout=60) == 0
    store = SqliteStore(f"{place.folder}/new.db")
    with store.read() as tx:
        assert set(seen) <= {task.id for task in tx.all_tasks()}
    store.close()


@pytest.mark.parametrize("where", [None, "", "sqlite:/tmp/$(touch pwn)'; touch pwn #"])
def test_a_pointer_that_somebody_else_wrote_is_no_command(place: Shell, where: str | None) -> None:
    place.ok("move", ".", "sqlite:new.db")
    connection = apsw.Connection(f"{place.folder}/.dibs/board.db")
    connection.execute("DROP TRIGGER event_of_a_moved_board")
    connection.execute("DROP TRIGGER event_keeps_its_past")
    connection.execute("UPDATE event SET details = ? WHERE seq = (SELECT max(seq) FROM event)", (where,))
    connection.close()
    refused = place("list", "--json")
    assert refused.error["code"] == ("board_moved" if where else "board_unusable")
    if where:
        command = refused.error["hint"].partition(": ")[2]
        told = subprocess.run(
            ["bash", "-c", f'{command}; printf %s "$DIBS_BOARD"'], cwd=place.folder, capture_output=True, check=True
        )
        assert told.stdout.decode() == where
        assert not (place.folder / "pwn").exists()
