"""When the board is absent, damaged, busy or knows no locks: open hooks let pass and say so, closed ones deny."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hooks.repository import Repository, claude, cursor, gemini, is_silent, reason, session

HOLD = """
import sys, apsw
c = apsw.Connection(sys.argv[1])
c.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS x (a)").fetchall()
print("held", flush=True)
sys.stdin.read()
"""
GATE = """
import sys
from dibs import TaskBoard
with TaskBoard.open().store.write() as tx:
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def bare(tmp_path: Path) -> Repository:
    """A repository without a board."""
    made = Repository(tmp_path)
    made.main.mkdir()
    made.git("init", "-q")
    made.two = made.main
    return made


def write(repo: Repository, path: str = "a.py") -> dict[str, object]:
    return claude("Write", repo.two, file_path=str(repo.two / path), content="x")


def test_without_a_board_only_the_start_of_a_session_says_so(bare: Repository) -> None:
    assert is_silent("claude", bare.hook("claude", write(bare)))
    assert is_silent("claude", bare.hook("claude", session("SessionEnd", bare.two, "s", reason="other")))
    start = bare.hook("claude", session("SessionStart", bare.two, "s", source="startup"))
    assert start.code == 0
    assert start.json.keys() == {"systemMessage"}
    assert "there is no board" in start.json["systemMessage"]
    assert "dibs init" in start.err
    why = reason("claude", bare.hook("claude", write(bare), "--closed"))
    assert "there is no board" in why


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\0" * 2000])
def test_a_damaged_board(bare: Repository, damage: bytes) -> None:
    (bare.main / ".dibs").mkdir()
    (bare.main / ".dibs" / "board.db").write_bytes(damage)
    heard = bare.hook("claude", write(bare))
    assert heard.code == 0
    assert heard.json.keys() == {"systemMessage"}
    assert "edits are not checked meanwhile" in heard.json["systemMessage"]
    assert heard.err == heard.json["systemMessage"] + "\n"
    assert "nobody can tell who holds what" in reason("claude", bare.hook("claude", write(bare), "--closed"))
    assert (bare.main / ".dibs" / "board.db").read_bytes() == damage
    look = bare.hook("claude", claude("Bash", bare.two, command="dibs doctor"), "--closed")
    assert (look.code, look.out) == (0, "")


def test_every_client_is_warned_in_its_own_way(bare: Repository) -> None:
    (bare.main / ".dibs").mkdir()
    (bare.main / ".dibs" / "board.db").write_bytes(b"damaged")
    heard = bare.hook("gemini", gemini("write_file", bare.two, file_path="a.py", content="x"))
    assert "edits are not checked" in heard.json["systemMessage"]
    shell = cursor("beforeShellExecution", bare.two, command="rm a.py", cwd=str(bare.two))
    heard = bare.hook("cursor", shell)
    assert heard.out == "{}\n"
    assert "edits are not checked" in heard.err
    assert "nobody can tell" in reason("cursor", bare.hook("cursor", shell, "--closed"))


def test_a_board_that_stays_locked_keeps_nobody_waiting(bare: Repository) -> None:
    bare.dibs("init")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(bare.main / ".dibs" / "board.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        heard = bare.hook("claude", write(bare), DIBS_HOOK_WAIT="0.3")
        assert "did not answer within 0.3 s" in heard.json["systemMessage"]
        closed = bare.hook("claude", write(bare), "--closed", DIBS_HOOK_WAIT="0.3")
        assert "did not answer within 0.3 s" in reason("claude", closed)
        start = bare.hook("claude", session("SessionStart", bare.two, "s"), DIBS_HOOK_WAIT="0.3")
        assert "did not answer" in start.json["systemMessage"]
    finally:
        holder.communicate(timeout=60)


def test_a_verdict_does_not_wait_for_the_renewal(bare: Repository) -> None:
    bare.dibs("--as", "bob", "init")
    bare.dibs("--as", "bob", "lock", "a.py", DIBS_SESSION="b")
    me = {"DIBS_AGENT": "me", "DIBS_SESSION": "m", "DIBS_HOOK_WAIT": "2"}
    bare.dibs("lock", "mine.py", **me)
    soon = (
        "from dibs import TaskBoard; b = TaskBoard.open()\n"
        "with b.store.write() as tx:\n"
        "    lock = tx.locks(name='me')[0]; lock.expires_at -= 3000; tx.save_locks([lock])\n"
    )
    bare.run(sys.executable, "-c", soon)
    writer = subprocess.Popen(
        [sys.executable, "-c", GATE],
        cwd=bare.main,
        env=bare.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"held\n"
    try:
        assert "a.py is held by bob" in reason("claude", bare.hook("claude", write(bare), **me))
        assert is_silent("claude", bare.hook("claude", write(bare, "mine.py"), "--require-lock", **me))
    finally:
        writer.communicate(timeout=60)


def test_a_folder_that_is_gone(bare: Repository) -> None:
    bare.dibs("init")
    event = write(bare) | {"cwd": str(bare.folder / "gone")}
    heard = bare.hook("claude", event)
    assert "No such file or directory" in heard.json["systemMessage"]
    assert "No such file or directory" in reason("claude", bare.hook("claude", event, "--closed"))


@pytest.mark.parametrize("dialect", ["taskboard", "workflow", "workitems", "bilu", "spec"])
def test_boards_in_files_are_asked_like_any_other(bare: Repository, dialect: str) -> None:
    url = f"{dialect}:{bare.main / 'state'}"
    as_planner = (sys.executable, "-m", "dibs", "--board", url, "--as", "planner-1")
    made = bare.run(*as_planner, "init")
    assert made.code == 0, made
    locked = bare.run(*as_planner, "lock", "a.py", DIBS_SESSION="p")
    heard = bare.hook("claude", write(bare), "--closed", DIBS_BOARD=url)
    if locked.code:
        assert is_silent("claude", heard)
    else:
        assert "a.py is held by planner-1" in reason("claude", heard)
