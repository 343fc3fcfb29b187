"""Where output goes, and what happens when it cannot go there: pipes, terminals, closed descriptors, full disks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from dibs.cli import main
from tests.cli.shell import PATIENCE, Shell

DIBS = f"{shlex.quote(sys.executable)} -m dibs"


def terminal(shell: Shell, *words: str, columns: int = 80, **environ: str) -> str:
    """What the command prints on a terminal."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "dibs", *words],
        cwd=str(shell.folder),
        env={**shell.environ, "TERM": "xterm-256color", **environ},
        encoding="utf-8",
        dimensions=(40, columns),
        timeout=PATIENCE,
    )
    out: str = child.read()
    child.close()
    return out


def test_colours_on_a_terminal_only(shell: Shell) -> None:
    shell.add("something")
    assert "\x1b[32mready" in terminal(shell, "list")
    assert "\x1b" not in shell.ok("list").out
    assert "\x1b" not in terminal(shell, "list", "--no-color")
    assert "\x1b" not in terminal(shell, "list", NO_COLOR="1")
    assert "\x1b" in terminal(shell, "list", NO_COLOR="")
    assert "\x1b" not in terminal(shell, "list", TERM="dumb")
    assert "\x1b" not in terminal(shell, "list", "--json")


@pytest.mark.parametrize("columns", [40, 60, 80, 132, 200])
def test_the_width_of_the_terminal_is_used_and_kept(shell: Shell, columns: int) -> None:
    shell.add("word " * 100)
    shell.ok("lock", "some/path/" + "x" * 100)
    for view in ("list", "ready", "locks", "log", "claim"):
        plain = re.sub("\x1b\\[[0-9;]*m", "", terminal(shell, view, columns=columns))
        longest = max(map(len, plain.splitlines()))
        assert longest <= columns
    assert max(map(len, shell.ok("list").out.splitlines())) <= 80
    assert max(map(len, shell.ok("list", COLUMNS="60").out.splitlines())) <= 60


def test_the_session_of_a_terminal_is_the_workers(shell: Shell) -> None:
    """Two terminals of one login are two workers."""
    task = shell.add("x")
    assert f"claimed {task}" in re.sub("\x1b\\[[0-9;]*m", "", terminal(shell, "claim"))
    assert "in another session" in terminal(shell, "done", task)
    assert shell.status(task) == "in_progress"


def test_a_reader_that_goes_away_ends_the_command_quietly(shell: Shell) -> None:
    shell.ok("add", "--file", "-", stdin="\n".join('"' + "x" * 500 + '"' for _ in range(2000)))
    for command in ("list --limit 0", "list --limit 0 --json", "log --all", "log --all --json"):
        process = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {DIBS} {command} | head -c 10"],
            cwd=shell.folder,
            env=shell.environ,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert process.stderr == b"", command
        assert len(process.stdout) == 10
        assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error(shell: Shell) -> None:
    task = shell.add("x")
    for command, environ in (("claim", {}), ("show {task}", {"PYTHONUNBUFFERED": "1"}), ("list --json", {})):
        process = subprocess.run(
            ["bash", "-c", f"{DIBS} {command.format(task=task)} > /dev/full"],
            cwd=shell.folder,
            env=shell.environ | environ,
            capture_output=True,
            check=False,
        )
        assert process.returncode == 1
        assert process.stderr.startswith(b"dibs: the output could not be written"), process
        assert process.stderr.count(b"\n") == 1
    assert shell.status(task) == "in_progress"


def test_closed_descriptors_do_no_harm(shell: Shell) -> None:
    task = shell.add("x")
    for redirect, command in ((">&-", "claim"), ("2>&-", "claim nosuch"), (">&- 2>&- <&-", "done"), ("<&-", "list")):
        process = subprocess.run(
            ["bash", "-c", f"{DIBS} {command} {redirect}"],
            cwd=shell.folder,
            env=shell.environ,
            capture_output=True,
            check=False,
        )
        assert process.returncode == (1 if "nosuch" in command else 0), (command, process)
        assert b"Traceback" not in process.stderr
    assert shell.status(task) == "completed"
    assert shell("add", "-").code == 1


def test_an_encoding_that_lacks_characters_does_not_stop_a_command(shell: Shell) -> None:
    shell.add("日本語 " * 40)
    for encoding in ("ascii", "latin-1"):
        result = shell.ok("list", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert "\\u65e5" in result.out
    assert "日" in shell.ok("list").out
    assert shell.ok("list", "--json").out.isascii()


def test_an_error_is_two_lines_and_nothing_on_stdout(shell: Shell) -> None:
    result = shell("show", "nosuch")
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines() == ["dibs: Task not found: nosuch", "  see what there is: dibs list --all"]
    assert shell("show", "nosuch", "--json").error == {
        "code": "not_found",
        "message": "Task not found: nosuch",
        "hint": "see what there is: dibs list --all",
        "task_id": "nosuch",
    }


def test_json_by_the_environment(shell: Shell) -> None:
    task = shell.add("x")
    assert shell.ok("show", task, DIBS_JSON="1").json["id"] == task
    assert shell("show", "nosuch", DIBS_JSON="1").error["code"] == "not_found"
    for off in ("", "0", "false"):
        assert shell.ok("show", task, DIBS_JSON=off).out.startswith(task)


def test_an_internal_error_is_one_line_and_says_how_to_see_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("surprise")

    monkeypatch.setattr("dibs.cli.tasks.list_tasks", broken)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIBS_JSON", raising=False)
    monkeypatch.delenv("DIBS_DEBUG", raising=False)
    assert main(["list"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "dibs: internal error: RuntimeError: surprise"
    assert "DIBS_DEBUG=1" in err
    assert "Traceback" not in err
    monkeypatch.setenv("DIBS_DEBUG", "1")
    assert main(["list"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dibs.cli.tasks.list_tasks", interrupted)
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 130
    assert capsys.readouterr() == ("", "")


def test_no_board_says_how_to_make_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for command in ("list", "claim", "done", "log", "locks", "inbox"):
        result = shell(command)
        assert result.code == 1
        assert "dibs init" in result.err
        assert shell(command, "--json").error["code"] == "no_board"
    assert not (tmp_path / ".dibs").exists()


def test_a_board_that_is_none_is_left_alone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    result = shell("list", "--board", "notes.txt")
    assert result.code == 1
    assert "left as it is" in result.err
    assert path.read_text() == "my notes\n"
    assert shell("list", "--board", "postgresql://nowhere/x").code == 1
