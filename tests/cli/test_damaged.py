"""Damaged boards: `doctor` and `export` give a clear answer whatever is wrong, and what can be read is saved."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from dibs import TaskBoard
from tests.cli.shell import Shell

PAGE = 2048


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with TaskBoard.open(f"sqlite:{tmp_path}/board.db", create=True, worker="maker", durability="normal") as board:
        board.add_many([{"description": f"task {n} " + "x" * n, "id": f"t{n}", "labels": ["a"]} for n in range(100)])
        board.add("with steps", id="steps", steps=["one", "two"], depends_on=["t99"], paths=["lib/a.py"])
        for number in range(40):
            task = board.claim("w", f"t{number}")
            assert task is not None
            if number % 3:
                task.complete("done")
        board.lock(["src/**"], "w")
        board.tell("hello")
    return Shell(tmp_path)


def board_of(shell: Shell, name: str = "board.db") -> list[str]:
    return ["--board", f"sqlite:{shell.folder / name}"]


def root(path: Path, table: str) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(
            str(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()[0][0])
        )
    finally:
        connection.close()


def restored(shell: Shell) -> TaskBoard:
    """The board that is made from what could be saved, and is sound."""
    result = shell(*board_of(shell), "export", "rest.jsonl")
    assert result.code == 1
    assert "exported what could be read" in result.err
    assert shell(*board_of(shell, "new.db"), "import", "rest.jsonl").code == 0
    assert "all is well" in shell(*board_of(shell, "new.db"), "doctor").out
    return TaskBoard.open(f"sqlite:{shell.folder}/new.db", worker="w")


def test_lost_tasks_come_back_from_the_changelog(shell: Shell) -> None:
    path = shell.folder / "board.db"
    at = (root(path, "task") - 1) * PAGE
    with TaskBoard.open(f"sqlite:{path}") as board:
        before = board.status()
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"\0" * PAGE)
    with restored(shell) as board:
        assert board.status() == before


def test_tasks_outlive_their_lost_changelog(shell: Shell) -> None:
    path = shell.folder / "board.db"
    at = (root(path, "event") - 1) * PAGE
    with TaskBoard.open(f"sqlite:{path}") as board:
        before = board.status()
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"\0" * PAGE)
    with restored(shell) as board:
        assert board.status() == before
        assert {event.action for event in board.changelog()} == {"repaired_work_item"}


def test_a_file_that_is_cut_off_gives_what_it_still_has(shell: Shell) -> None:
    path = shell.folder / "board.db"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size * 3 // 4)
    with restored(shell) as board:
        assert 0 < len(board.status()) <= 101


def test_a_text_that_is_no_text_is_named(shell: Shell) -> None:
    path = shell.folder / "board.db"
    content = path.read_bytes()
    assert content.count(b"with steps") >= 2  # in the task and in its event
    path.write_bytes(content.replace(b"with steps", b"with \xffteps"))
    for words in (["doctor"], ["show", "steps"], ["export", "-"]):
        result = shell(*board_of(shell), *words)
        assert result.code == 1, words
        assert "damaged" in result.out + result.err
    with restored(shell) as board:
        assert len(board.status()) == 100


def damage(content: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    data, size = bytearray(content), len(content)
    if seed % 4 == 0:
        for _ in range(chance.choice([1, 5, 50])):
            data[chance.randrange(100, size)] = chance.randrange(256)
    elif seed % 4 == 1:
        at = chance.randrange(1, size // PAGE) * PAGE
        data[at : at + PAGE] = chance.randbytes(PAGE)
    elif seed % 4 == 2:
        del data[chance.randrange(PAGE, size) :]
    else:
        at = chance.randrange(1, size // PAGE) * PAGE
        data[at : at + PAGE] = b"\0" * PAGE
    return bytes(data)


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 120), marks=pytest.mark.slow)], ids=["few", "many"])
def test_no_random_damage_ends_in_an_internal_error(
    shell: Shell, seeds: range, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shell.folder / "board.db"
    content = path.read_bytes()
    saved = 0
    for seed in seeds:
        path.write_bytes(damage(content, seed))
        for words in (["doctor"], ["export", f"{seed}.jsonl"]):
            result = shell(*board_of(shell), *words)
            assert result.code in (0, 1), (seed, result)
            assert "internal error" not in result.err, (seed, result)
        saved += (shell.folder / f"{seed}.jsonl").exists()
    with capsys.disabled():
        print(f"\n  {len(seeds)} damaged boards, 0 internal errors, {saved} exports")
