"""The life of a stdio server: it keeps what its worker holds while the client lives, and gives it back at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.mcp.lines import client_name
from dibs.model import BoardTask
from dibs.worker import of_process
from tests.mcp.driving import Agent, add, command, dibs, is_gone, server, servers, serving, surroundings
from tests.processes.harness import PATIENCE, wait_until


def the_task(url: str) -> BoardTask:
    with TaskBoard.open(url) as board:
        return board.tasks()[0][0]


def give(url: str, *tasks: str) -> list[str]:
    with TaskBoard.open(url, worker="maker") as board:
        return board.add_many([{"description": task} for task in tasks])


def actions(url: str) -> list[str]:
    with TaskBoard.open(url) as board:
        return [event.action for event in board.recent(1000)]


# -- the end


def test_a_client_that_closes_gives_everything_back(url: str, runtime: Path) -> None:
    give(url, "one")
    with serving(url, runtime, name="ann") as agent:
        assert agent.call("claim_task")["claimed"]
        agent.call("lock_files", paths=["docs"])
        pid = server(runtime)
    wait_until(lambda: is_gone(pid), "the server ends")
    assert the_task(url).status == "pending"
    with TaskBoard.open(url) as board:
        assert board.locks() == []
        assert "its client has ended" in [event.details for event in board.recent(3)]
    assert servers(runtime) == []


def test_a_killed_client_s_task_is_back_for_the_next_claimant(url: str, runtime: Path) -> None:
    give(url, "one")
    with Agent(url, runtime, name="ann") as agent, serving(url, runtime, name="bob") as bob:
        assert agent.call("claim_task")["claimed"]
        agent.begin("claim_task", wait_seconds=45)
        agent.kill()
        claimed = bob.call("claim_task", wait_seconds=40)
        assert claimed["claimed"] is True
        assert claimed["description"] == "one"
        wait_until(lambda: len(servers(runtime)) == 1, "the server of the killed client ends")
        give(url, "two")
        assert bob.call("claim_task")["claimed"] is True, "nobody else is waiting any more"


def test_a_killed_server_s_task_is_back_at_once(url: str, runtime: Path) -> None:
    give(url, "one")
    with serving(url, runtime, name="ann") as agent:
        assert agent.call("claim_task")["claimed"]
        pid = server(runtime)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid), "the server is dead")
        with TaskBoard.open(url) as board:
            claimed = board.claim("bob")
            assert claimed is not None
            assert "died" in str([event.details for event in board.recent(5)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(url: str, runtime: Path, number: signal.Signals) -> None:
    give(url, "one")
    with serving(url, runtime, name="ann") as agent:
        assert agent.call("claim_task")["claimed"]
        pid = server(runtime)
        agent.begin("claim_task", wait_seconds=40)
        os.kill(pid, number)
        wait_until(lambda: is_gone(pid), "the server ends")
        assert the_task(url).status == "pending"
        assert "released_activity" in actions(url)
        assert servers(runtime) == []


def test_it_ends_when_its_parent_is_gone_though_its_input_stays_open(url: str, runtime: Path) -> None:
    starter = (
        "import subprocess, sys\n"
        "server = subprocess.Popen(sys.argv[1:])\n"
        "print(server.pid, file=sys.stderr, flush=True)\n"
        "server.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starter, *command(url, name="ann")],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=surroundings(runtime),
        start_new_session=True,
    )
    try:
        assert parent.stderr is not None
        pid = int(parent.stderr.readline())
        assert server(runtime) == pid
        parent.kill()
        parent.wait(PATIENCE)
        wait_until(lambda: is_gone(pid), "the server sees that its parent has gone")
    finally:
        try:
            os.killpg(parent.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for stream in (parent.stdin, parent.stderr):
            assert stream is not None
            stream.close()
        parent.wait(PATIENCE)


def test_a_cancelled_claim_takes_nothing(url: str, runtime: Path) -> None:
    with serving(url, runtime, name="ann") as agent:
        waiting = agent.begin("claim_task", wait_seconds=45)
        assert agent.call("check_messages")["messages"] == []
        waiting.cancel()
        with pytest.raises(CancelledError):
            waiting.result(PATIENCE)
        agent.call("check_messages")  # is answered after the cancellation was
        [task_id] = add(agent, "for whoever asks next")
        assert agent.call("check_messages", wait_seconds=1)["messages"] == []
        assert the_task(url).status == "pending"
        assert agent.call("claim_task")["task_id"] == task_id
        assert actions(url).count("claimed_activity") == 1


# -- the life


def test_two_clients_race_for_one_task_and_one_wins(url: str, runtime: Path) -> None:
    with serving(url, runtime, name="ann") as ann, serving(url, runtime, name="bob") as bob:
        for number in range(10):
            [task_id] = give(url, f"race {number}")
            both = [(agent, agent.begin("claim_task")) for agent in (ann, bob)]
            answers = [(agent, future.result(PATIENCE)) for agent, future in both]
            won = [(agent, answer) for agent, answer in answers if answer["claimed"]]
            assert len(won) == 1
            winner, answer = won[0]
            assert answer["task_id"] == task_id
            assert winner.call("complete_task", task_id=task_id, token=answer["token"])["success"]


def test_a_short_lease_is_kept_while_the_client_lives(url: str, runtime: Path) -> None:
    """The claim is made in a shell of the same client, so it also shows that this is the same worker."""
    [task_id] = give(url, "long work")
    with serving(url, runtime, client="claude-code") as agent:
        name = agent.name
        claimed = dibs(runtime, "--board", url, "claim", "--lease", "2s")
        assert claimed["assigned_to"] == name
        token = claimed["token"]
        wait_until(lambda: actions(url).count("renewed_activity") >= 4, "the lease is renewed, again and again")
        task = the_task(url)
        assert (task.status, task.token) == ("in_progress", token)
        assert agent.call("claim_task")["also_holding"] == [{"task_id": task_id, "token": token}]
        assert agent.call("complete_task", task_id=task_id, token=token)["success"]


def test_what_a_shell_of_the_client_ends_is_no_news(url: str, runtime: Path) -> None:
    [first, second] = give(url, "one", "two")
    with serving(url, runtime) as agent:
        assert agent.call("claim_task")["task_id"] == first
        assert dibs(runtime, "--board", url, "done", first, "by hand")["status"] == "completed"
        assert "lost" not in agent.call("check_messages")
        assert agent.call("claim_task")["task_id"] == second
        with TaskBoard.open(url, worker="lead") as board:
            board.cancel(second, "not needed", worker=of_process("boss", "human"))
        told = agent.call("check_messages")
        assert second in told["lost"][0]
        assert "cancelled" in told["lost"][0]
        assert "lost" not in agent.call("check_messages"), "it is said once"


def test_the_client_names_the_worker(url: str, runtime: Path) -> None:
    with serving(url, runtime, "--client", "gemini", client="something else", mode="legacy") as agent:
        wait_until(lambda: servers(runtime), "it registers before it is asked anything")
        assert agent.name.startswith("gemini-")
    with serving(url, runtime, env={"DIBS_AGENT": "worker-1", "DIBS_SESSION": "s1"}) as agent:
        assert agent.name == "worker-1"
        agent.call("lock_files", paths=["a"])
        with TaskBoard.open(url) as board:
            [lock] = board.locks()
            assert (lock.holder.session, lock.holder.pid) == ("s1", server(runtime))


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("claude-code", "claude"), ("codex-mcp-client", "codex"), ("gemini-cli-mcp-client", "gemini"),
        ("cursor-vscode", "cursor"), ("Visual Studio Code", "vscode"), ("My IDE 2", "my-ide-2"),
        ("opencode", "opencode"), ("日本", "agent"),
        ("\x1b[2J" * 50, "2j--2j--2j--2j--2j--2j"), (7, None), (None, None),
    ],
)  # fmt: skip
def test_a_client_s_name_becomes_a_word(said: object, word: str | None) -> None:
    assert client_name({"name": said}) == word
    assert client_name([said]) is None


def test_without_a_board_it_says_so_until_there_is_one(tmp_path: Path, runtime: Path) -> None:
    home = tmp_path / "repo"
    home.mkdir()
    with serving(None, runtime, "--root", str(home), name="ann") as agent:
        refused = agent.call("claim_task")
        assert refused.is_error
        assert refused["code"] == "no_board"
        assert refused["claimed"] is False
        assert "dibs init" in refused["hint"]
        dibs(runtime, "init", cwd=home)
        [task_id] = add(agent, {"description": "one", "paths": ["src/a.py"]})
        assert agent.call("claim_task")["task_id"] == task_id
        assert server(runtime)


# -- the wire


def test_nothing_but_the_protocol_is_on_stdout(url: str, runtime: Path) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    messages: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        "this is not JSON",
        {"jsonrpc": "2.0", "id": 2, "method": "no/such"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "list_tasks", "arguments": [1]}},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "claim_task", "arguments": {}}},
    ]
    process = subprocess.Popen(
        command(url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings(runtime)
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for message in messages:
            process.stdin.write((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")
        process.stdin.flush()
        said: dict[int, Any] = {}
        while not {1, 2, 3, 4} <= said.keys():
            line = json.loads(process.stdout.readline())
            assert line["jsonrpc"] == "2.0"
            said[line.get("id")] = line
        assert said[1]["result"]["serverInfo"]["name"] == "dibs"
        assert said[2]["error"]["code"] == -32601
        assert said[3]["error"]["code"] == -32602
        assert said[4]["result"]["structuredContent"]["claimed"] is False
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""


def test_in_a_terminal_it_says_what_it_is_and_ends(url: str, runtime: Path) -> None:
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            command(url), stdin=theirs, capture_output=True, text=True, timeout=PATIENCE, env=surroundings(runtime)
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (2, "")
    for words in ("a coding client starts", "dibs setup CLIENT", "dibs mcp --http"):
        assert words in " ".join(done.stderr.split())
