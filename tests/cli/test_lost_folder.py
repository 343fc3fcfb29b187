"""Commands in a working directory that is gone: a plain error, and nothing is changed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.shell import PATIENCE, Result, Shell, environment


def in_a_lost_folder(shell: Shell, *words: str) -> Result:
    script = 'mkdir lost && cd lost && rmdir ../lost && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "dibs", *words],
        cwd=shell.folder,
        env=environment(DIBS_AGENT="worker-1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "words",
    [["list"], ["claim"], ["add", "x"], ["lock", "a.py"], ["init"], ["--board", "here.db", "list"], ["run", "true"]],
    ids=" ".join,
)
def test_a_lost_working_directory_is_a_plain_error(shell: Shell, words: list[str]) -> None:
    refused = in_a_lost_folder(shell, *words)
    assert refused.code == 1, refused
    assert refused.err.startswith("dibs: ")
    assert "working directory" in refused.err
    assert "internal error" not in refused.err


@pytest.mark.parametrize("words", [["lock", "a.py"], ["add", "x", "--path", "a.py"]], ids=" ".join)
def test_a_path_from_a_lost_working_directory_is_a_plain_error_on_a_named_board(shell: Shell, words: list[str]) -> None:
    before = shell.ok("export").out
    refused = in_a_lost_folder(shell, "--board", f"sqlite:{shell.folder}/.dibs/board.db", *words)
    assert refused.code == 1, refused
    assert "working directory no longer exists" in refused.err
    assert "internal error" not in refused.err
    assert shell.ok("export").out == before
