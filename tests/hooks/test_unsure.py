"""When the board is absent, damaged, busy or knows no locks: open hooks let pass and say so, closed ones deny."""

from __future__ import annotations

import json
import os
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


@pytest.mark.parametrize("gone", ["gone", "main/gone/deep", "main/a.py", "main/loop/x"])
def test_a_folder_that_is_gone_switches_nothing_off(bare: Repository, gone: str) -> None:
    bare.dibs("--as", "bob", "init")
    bare.dibs("--as", "bob", "lock", "a.py", DIBS_SESSION="b")
    (bare.main / "a.py").write_text("")
    (bare.main / "loop").symlink_to("loop")
    event = write(bare) | {"cwd": str(bare.folder / gone)}
    assert "a.py is held by bob" in reason("claude", bare.hook("claude", event))
    assert is_silent("claude", bare.hook("claude", write(bare, "b.py") | {"cwd": event["cwd"]}, "--closed"))
    up = claude("Bash", bare.folder / "main/gone/deep", command="rm ../../a.py")
    if gone == "main/gone/deep":
        assert "a.py is held by bob" in reason("claude", bare.hook("claude", up))


@pytest.mark.parametrize("command", ['cd "$X"; rm a.py', "cd -; rm a.py", "$(" * 50 + "rm a.py" + ")" * 50])
def test_a_command_that_writes_nobody_knows_where(bare: Repository, command: str) -> None:
    bare.dibs("--as", "bob", "init")
    heard = bare.hook("claude", claude("Bash", bare.two, command=command))
    assert "this was not checked" in heard.json["systemMessage"]
    why = reason("claude", bare.hook("claude", claude("Bash", bare.two, command=command), "--closed"))
    assert "write that folder out" in why or "nested too deeply" in why


def test_only_closed_hooks_mind_a_file_that_a_variable_names(bare: Repository) -> None:
    bare.dibs("--as", "bob", "init")
    event = claude("Bash", bare.two, command='for f in *.py; do sed -i s/a/b/ "$f"; done')
    assert is_silent("claude", bare.hook("claude", event))
    assert "write the path out" in reason("claude", bare.hook("claude", event, "--closed"))
    harmless = claude("Bash", bare.two, command='cd "$X" && make test 2>&1 | tail -3')
    assert is_silent("claude", bare.hook("claude", harmless, "--closed"))


def test_our_own_folder_may_be_gone(bare: Repository) -> None:
    bare.dibs("--as", "bob", "init")
    bare.dibs("--as", "bob", "lock", "a.py", DIBS_SESSION="b")
    (bare.folder / "mine").mkdir()
    script = f"rmdir {bare.folder}/mine; exec {sys.executable} -m dibs hook claude"
    heard = bare.run("sh", "-c", script, stdin=json.dumps(write(bare)), cwd=bare.folder / "mine")
    assert "a.py is held by bob" in reason("claude", heard)


def test_a_board_that_is_a_pipe_keeps_nobody_waiting(bare: Repository) -> None:
    (bare.main / ".dibs").mkdir()
    os.mkfifo(bare.main / ".dibs" / "board.db")
    heard = bare.hook("claude", write(bare))
    assert "is not a dibs board but a pipe" in heard.json["systemMessage"]
    assert "is not a dibs board but a pipe" in reason("claude", bare.hook("claude", write(bare), "--closed"))


@pytest.mark.parametrize("sent", [b"", b'{"hook_event_name": "PreToolUse", '])
def test_an_event_that_never_comes_keeps_nobody_waiting(bare: Repository, sent: bytes) -> None:
    for flags, expected in (((), b""), (("--closed",), b"was not there within 0.3 s")):
        process = subprocess.Popen(
            [sys.executable, "-m", "dibs", "hook", "claude", *flags],
            cwd=bare.main,
            env=bare.env | {"DIBS_HOOK_WAIT": "0.3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(sent)
        process.stdin.flush()
        assert process.wait(60) == 0
        out, err = process.communicate()
        assert expected in out
        assert bool(err) is not bool(flags)


def test_time_counts_while_a_command_is_looked_at(bare: Repository) -> None:
    bare.dibs("init")
    event = claude("Bash", bare.two, command="cd a;" * 200_000)
    why = reason("claude", bare.hook("claude", event, "--closed", DIBS_HOOK_WAIT="0.3"))
    assert "what it would write was not found out in time" in why or "event was not there within 0.3 s" in why


def test_a_command_that_is_too_long_leaves_doubt(bare: Repository) -> None:
    bare.dibs("init")
    for command in ("echo " + "a" * 1_100_000, ["echo", "a" * 1_100_000]):
        event = claude("Bash", bare.two, command=command)
        assert "more than 1 MiB" in bare.hook("claude", event).json["systemMessage"]
        assert "more than 1 MiB" in reason("claude", bare.hook("claude", event, "--closed"))
    assert is_silent(
        "claude", bare.hook("claude", claude("Bash", bare.two, command="echo " + "a" * 999_000), "--closed")
    )


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
