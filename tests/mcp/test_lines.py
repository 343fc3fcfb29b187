"""`dibs mcp` speaks the protocol itself. What it says is what the official SDK's server says, in both eras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.mcp import lines
from tests.processes.harness import PATIENCE, environment

PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "x", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
}


def opening(version: str = "2025-11-25") -> dict[str, Any]:
    info = {"name": "x", "version": "1"}
    return {"method": "initialize", "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": info}}


REQUESTS: tuple[dict[str, Any], ...] = (
    {"method": "tools/list"},
    {"method": "resources/list"},
    {"method": "resources/templates/list"},
    {"method": "prompts/list"},
    {"method": "prompts/get", "params": {"name": "work"}},
    {"method": "prompts/get", "params": {"name": "work", "arguments": {"focus": "the parser"}}},
    {"method": "prompts/get", "params": {"name": "play"}},
    {"method": "tools/call", "params": {"name": "list_tasks", "arguments": {}}},
    {"method": "tools/call", "params": {"name": "list_tasks"}},
    {"method": "tools/call", "params": {"name": "no_such_tool", "arguments": {}}},
    {"method": "tools/call", "params": {"name": "claim_task", "arguments": {"wrong": 1}}},
    {"method": "tools/call", "params": {"name": 5}},
    {"method": "tools/call", "params": {"name": "list_tasks", "arguments": [1]}},
    {"method": "tools/call", "params": {}},
    {"method": "resources/read", "params": {"uri": "dibs://board"}},
    {"method": "resources/read", "params": {"uri": "dibs://task/nope"}},
    {"method": "resources/read", "params": {"uri": "dibs://other"}},
    {"method": "resources/read", "params": {}},
    {"method": "no/such/method"},
    {"method": "logging/setLevel", "params": {"level": "info"}},
)
NOISE = ("garbage", "[]", '{"jsonrpc":"2.0"}', "", '{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')


def enveloped(requests: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return [{**each, "params": {**each.get("params", {}), "_meta": META}} for each in requests]


INITIALIZED = {"method": "notifications/initialized"}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "the handshake": [opening(), INITIALIZED, {"method": "ping"}, *REQUESTS],
    "an old handshake": [opening("2024-11-05"), INITIALIZED, *REQUESTS[:3]],
    "a version that nobody knows": [opening("1999-01-01")],
    "every request for itself": enveloped(({"method": "server/discover"}, {"method": "ping"}, *REQUESTS)),
    "no discovery": enveloped(REQUESTS[7:9]),
}


def talk(command: list[str], requests: list[dict[str, Any]]) -> dict[int, Any]:
    """The answers by the requests' numbers."""
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True, encoding="utf-8"
    )
    assert server.stdin
    assert server.stdout
    answers: dict[int, Any] = {}
    try:
        for number, request in enumerate(requests, 1):
            is_request = not request["method"].startswith("notifications/")
            identity = {"id": number} if is_request else {}
            for line in (NOISE[number % len(NOISE)], json.dumps({"jsonrpc": "2.0", **identity, **request})):
                server.stdin.write(line + "\n")
            server.stdin.flush()
            if is_request:
                answer = json.loads(server.stdout.readline())
                answers[answer.pop("id")] = answer
        assert answers.keys() == {n for n, r in enumerate(requests, 1) if not r["method"].startswith("notifications/")}
    finally:
        server.stdin.close()
        server.wait(PATIENCE)
        server.stdout.close()
    return answers


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_the_server_says_what_the_official_sdk_says(conversation: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/board.db"
    with TaskBoard.open(url, create=True) as board:
        board.add("Build the parser", id="parser", paths=["src/parser.py"])
    requests = CONVERSATIONS[conversation]
    ours = talk([sys.executable, "-m", "dibs", "--board", url, "--as", "bot", "mcp"], requests)
    theirs = talk([sys.executable, "-m", "tests.mcp.sdk_server", url, "bot"], requests)
    for number in theirs:
        assert ours[number] == theirs[number], requests[number - 1]


class Asked:
    """A connection whose answers are kept; nothing here needs a board."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.connection = lines.Connection(self._nobody, lambda line: self.sent.append(json.loads(line)))

    @staticmethod
    def _nobody(_: str | None) -> Any:
        return None

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        self.connection.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return self.sent.pop()


def test_a_connection_begins_with_a_handshake_or_with_a_version() -> None:
    ask = Asked()
    refused = ask("tools/list")["error"]
    assert (refused["code"], "initialize" in refused["message"]) == (-32602, True)
    assert ask("ping")["result"] == {}
    assert "result" in ask("initialize", **opening()["params"])
    assert ask("tools/list", _meta=META)["error"]["code"] == -32600


def test_a_connection_without_a_handshake_stays_without() -> None:
    ask = Asked()
    wrong = ask("server/discover", _meta={**META, f"{PREFIX}protocolVersion": "2027-01-01"})["error"]
    assert (wrong["code"], wrong["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2027-01-01"})
    assert "result" in ask("server/discover", _meta=META)
    assert ask("initialize", **opening()["params"])["error"]["code"] == -32022
    assert ask("tools/list")["error"]["code"] == -32602
    lacking = {f"{PREFIX}protocolVersion": "2026-07-28"}
    assert "clientCapabilities" in ask("tools/list", _meta=lacking)["error"]["message"]


def test_a_client_may_fall_back_to_the_handshake_when_its_version_is_unknown() -> None:
    ask = Asked()
    assert "error" in ask("server/discover", _meta={**META, f"{PREFIX}protocolVersion": "2027-01-01"})
    assert ask("initialize", **opening()["params"])["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[" * 100_000, b'{"id":1}', b'{"id":true,"method":"ping"}', b"12", b"\n"]
)
def test_what_is_no_request_gets_no_answer(line: bytes) -> None:
    ask = Asked()
    ask.connection.receive(line)
    assert ask.sent == []


def test_bytes_that_are_no_text_do_not_cost_a_request_its_answer() -> None:
    ask = Asked()
    ask.connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}')
    assert ask.sent[0]["error"]["code"] == -32602


def test_a_server_is_light(tmp_path: Path) -> None:
    """Of every agent there is one, so nothing heavy is imported."""
    code = "import sys; import dibs.mcp.stdio, dibs.mcp.lines; print([m for m in sys.modules if m in sys.argv])"
    heavy = ["mcp", "mcp_types", "anyio", "asyncio", "pydantic", "psycopg", "starlette", "httpx", "logging"]
    found = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
