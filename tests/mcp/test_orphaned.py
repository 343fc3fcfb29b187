"""A client that is killed, though a wrapper it started outlives it and something still holds its pipe open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.mcp.driving import surroundings
from tests.processes.harness import PATIENCE, wait_until

CLIENT = """
import json, subprocess, sys, time
wrapper = json.loads(sys.argv[1])
server = subprocess.Popen([*wrapper], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
keeper = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, pass_fds=[server.stdin.fileno()])
print(keeper.pid, server.pid, flush=True)
def send(number, method, **params):
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\\n"
    server.stdin.write(line.encode())
    server.stdin.flush()
    server.stdout.readline()
send(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "x", "version": "1"})
send(2, "tools/call", name="claim_task", arguments={})
print("claimed", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("shell", [["sh", "-c", '"$@"; true', "sh"], ["bash", "-ec", '"$@"; true', "bash"]])
def test_its_claim_comes_back(tmp_path: Path, shell: list[str]) -> None:
    import json

    url = f"sqlite:{tmp_path}/board.db"
    with TaskBoard.open(url, create=True, worker="lead", durability="normal") as board:
        board.add("x", id="t1")
        words = [*shell, sys.executable, "-m", "dibs", "--board", url, "mcp", "--client", "x"]
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, json.dumps(words)],
            env=surroundings(tmp_path / "run"), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert client.stdout is not None
        keeper, _ = map(int, client.stdout.readline().split())
        try:
            assert client.stdout.readline() == "claimed\n"
            assert board.get("t1").status == "in_progress"
            client.kill()
            client.wait(PATIENCE)
            wait_until(lambda: board.get("t1").status == "pending", "the claim is given back")
        finally:
            os.kill(keeper, signal.SIGKILL)
            client.kill()
            client.wait(PATIENCE)
            client.stdout.close()
