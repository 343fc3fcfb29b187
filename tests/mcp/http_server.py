"""`dibs mcp --http` as a real process, and three ways to talk to it: the Python client of the SDK, a plain request, and
a raw connection that can be cut at any byte."""

from __future__ import annotations

import http.client
import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from dibs import TaskBoard
from dibs.mcp.tokens import new_token
from tests.cli.shell import PATIENCE, environment
from tests.processes.harness import path_of

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = (LEGACY, MODERN)
HANDSHAKE = "2025-11-25"
_ACCEPT = "application/json, text/event-stream"


def dibs_command(url: str, *args: str) -> list[str]:
    return [sys.executable, "-m", "dibs", "--board", url, *args]


def dibs_environment(folder: Path) -> dict[str, str]:
    """That of the tests' processes, with the registry of clients in a folder of the test."""
    return environment(DIBS_RUNTIME_DIR=str(folder / "dibs-clients"))


class HttpServer:
    """The server of one board; `restart` gives it another process on the same port."""

    def __init__(self, folder: Path, url: str | None = None, *options: str) -> None:
        self.folder = folder
        self.options = options
        if url is None:
            url = f"sqlite:{folder}/board.db"
            TaskBoard.open(url, create=True, worker="maker").close()
        self.board_url = url
        self.tokens_file = str(path_of(url).with_name("mcp-tokens.json"))
        self._tokens: dict[str, str] = {}
        self.token("somebody")
        self.port = 0
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            dibs_command(self.board_url, "--json", "mcp", "--http", "--port", str(self.port), *self.options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=dibs_environment(self.folder),
            text=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            raise AssertionError(f"the server did not start: {self.process.communicate()[1]}")
        self.announced = json.loads(line)
        self.url = self.announced["url"]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])

    def token(self, worker: str) -> str:
        """The token of a worker, made when first asked for; the running server learns of it by itself."""
        if worker not in self._tokens:
            self._tokens[worker], _ = new_token(self.tokens_file, worker)
        return self._tokens[worker]

    def board(self) -> TaskBoard:
        return TaskBoard.open(self.board_url, worker="tester")

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait: the exit code, and what was said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said

    def restart(self) -> None:
        self.end(signal.SIGKILL)
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    # -- the Python client

    @asynccontextmanager
    async def client(self, worker: str, era: str = MODERN) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.token(worker)}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http_client,
            Client(
                streamable_http_client(self.url, http_client=http_client), mode=era, read_timeout_seconds=PATIENCE
            ) as client,
        ):
            yield client

    # -- plain requests

    def request(
        self, method: str = "POST", body: str | bytes = "", path: str = "/mcp", **headers: str
    ) -> tuple[int, Mapping[str, str], Any]:
        """One request with exactly these headers (`_` in their names for `-`): status, headers, JSON or text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            data = body.encode() if isinstance(body, str) else body
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if "Transfer_Encoding" not in headers and "Content_Length" not in headers:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders()
            try:
                connection.send(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused by the headers alone
            answer = connection.getresponse()
            text = answer.read().decode()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, fields, json.loads(text) if text.startswith("{") else text
        finally:
            connection.close()

    # -- raw connections

    @contextmanager
    def calling(
        self, worker: str, era: str, tool: str, session: str | None = None, part: float = 1.0, **arguments: Any
    ) -> Iterator[socket.socket]:
        """A connection on which a call, or a part of it, was sent and nothing read; leaving the block cuts it."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        headers = {"Authorization": f"Bearer {self.token(worker)}"}
        if era == MODERN:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            headers |= {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        else:
            session = session or self.handshake(worker)
            headers |= {"Mcp-Protocol-Version": HANDSHAKE, "Mcp-Session-Id": session}
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        try:
            message = self._message({"id": 7, "method": "tools/call", "params": params}, headers)
            connection.sendall(message[: int(len(message) * part)])
            yield connection
        finally:
            connection.close()

    def handshake(self, worker: str) -> str:
        """A session of the handshake protocol."""
        headers = {
            "Authorization": f"Bearer {self.token(worker)}",
            "Content_Type": "application/json",
            "Accept": _ACCEPT,
        }
        about = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
        status, fields, text = self.request(body=body, **headers)
        assert status == 200, text
        session = fields["mcp-session-id"]
        done = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
        status, _, text = self.request(body=done, Mcp_Session_Id=session, Mcp_Protocol_Version=HANDSHAKE, **headers)
        assert status == 202, text
        return session

    def _message(self, fields: dict[str, Any], headers: dict[str, str]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", **fields})
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": _ACCEPT,
            "Content-Length": str(len(body)),
            **headers,
        }
        lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", body]).encode()


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes on a raw connection up to a mark."""
    got = b""
    while mark not in got:
        data = connection.recv(65536)
        assert data, f"the server closed the connection after {got!r}"
        got += data
    return got


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's structured answer."""
    answer = await client.call_tool(tool, arguments)
    assert answer.structured_content is not None, answer
    return answer.structured_content
