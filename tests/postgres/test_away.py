"""The server is away for a while: what `dibs run` and an agent's tools do and say then."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.mcp.seat import Call, Seat
from dibs.mcp.tools import answer
from dibs.model import Worker
from dibs.stores.postgres.connections import Connections
from dibs.stores.postgres.round_trips import Connection
from tests.cli.shell import PATIENCE, Shell
from tests.postgres.server import Server
from tests.processes.harness import wait_until

UNTIL_TOLD = """
import os, pathlib, sys, time
pathlib.Path("begun").touch()
while not os.path.exists("told"):
    time.sleep(0.02)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def url(own_server: Server) -> str:
    made = own_server.new_database() + "?board=web"
    with TaskBoard.open(made, create=True, worker="maker") as board:
        board.add("a task", id="t")
    return made


def begin(folder: Path, url: str, code: int, *options: str) -> subprocess.Popen[str]:
    """`dibs run` of a command that ends, with this code, when there is a file `told`."""
    shell = Shell(folder)
    command = [sys.executable, "-m", "dibs", "--board", url, "--as", "ann", "run", *options]
    running = subprocess.Popen(
        [*command, "--", sys.executable, "-c", UNTIL_TOLD, str(code)],
        cwd=folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((folder / "begun").exists, "the command has begun")
    return running


@pytest.mark.parametrize(
    ("code", "options", "verb", "then"),
    [
        (0, (), "done t 'exit 0'", "completed"),
        (7, (), "release t", "pending"),
        (7, ("--fail",), "fail t 'command exited with 7'", "failed"),
    ],
)
def test_a_run_that_cannot_save_its_end_says_how_it_ended_and_what_to_do(
    own_server: Server, url: str, tmp_path: Path, code: int, options: tuple[str, ...], verb: str, then: str
) -> None:
    running = begin(tmp_path, url, code, "--lease", "20", *options)
    own_server.stop()
    (tmp_path / "told").touch()
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1
    err = " ".join(err.split())
    assert f"the command exited with {code}, but for t that could not be saved: cannot connect to {url}" in err
    own_server.restart()
    with TaskBoard.open(url) as board:
        token = board.get("t").token
        again = f"dibs --as ann {verb} --token {token}"
        assert again in err
        Shell(tmp_path).ok("--board", url, *shlex.split(again)[1:])
        assert board.get("t").status == then


def test_a_run_outlasts_a_restart_of_the_server(own_server: Server, url: str, tmp_path: Path) -> None:
    running = begin(tmp_path, url, 0)
    own_server.stop()
    (tmp_path / "told").touch()
    time.sleep(2)
    assert running.poll() is None, "it has given up at once"
    own_server.restart()
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    assert "command exited with 0; t is completed" in err


def test_a_tool_tries_a_server_that_is_away_once_and_says_what_becomes_of_the_claims(
    own_server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.stores.postgres.connections.PATIENCE", 0.5)  # it is 20 s
    failed: list[Exception] = []
    connect = Connections._connect

    def counted(links: Connections, patient: bool = True) -> Connection:
        try:
            return connect(links, patient)
        except Exception as error:
            failed.append(error)
            raise

    monkeypatch.setattr(Connections, "_connect", counted)
    seat = Seat(lambda: TaskBoard.open(url), Worker("ann"))
    with Call(seat) as call:
        assert answer(call, "claim_task", {})[0]["claimed"]
    own_server.stop()
    for tool in ("claim_task", "complete_task", "list_tasks"):
        failed.clear()
        with Call(seat) as call:
            told, is_error = answer(call, tool, {"task_id": "t"})
        assert is_error
        assert told["code"] == "board_unusable"
        assert "what you hold stays yours until its lease ends; try again" in told["hint"]
        assert len(failed) == 1, tool
    own_server.restart()
    with Call(seat) as call:
        assert answer(call, "complete_task", {"task_id": "t"})[0]["success"]
    seat.board.close()
