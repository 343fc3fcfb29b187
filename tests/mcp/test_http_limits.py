"""Nobody is shut out of `dibs mcp --http` by those who hold connections open, send slowly, or wait."""

from __future__ import annotations

import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from dibs import TaskBoard
from dibs.mcp.connection_limits import Limits
from dibs.mcp.http import Seats, _application, _config, listen
from dibs.mcp.seat import WAITERS, WAITERS_IN_ALL
from dibs.mcp.tokens import Tokens, new_token
from tests.cli.shell import PATIENCE, environment
from tests.mcp.http_server import MODERN, HttpServer, call, read_until

IDLE = 1200
LOOK = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A request that is answered with 404, whoever asks."""


@contextmanager
def serving(folder: Path, limits: Limits) -> Iterator[tuple[int, str]]:
    """The whole application in this process, with limits of a test: its port, and a token."""
    tokens = str(folder / "t.json")
    token, _ = new_token(tokens, "a")
    board = TaskBoard.open(f"sqlite:{folder}/board.db", create=True, worker="maker")
    with board, running(_application(Seats(board), Tokens(tokens), [], []), limits) as port:
        yield port, token


@contextmanager
def running(app: ASGIApp, limits: Limits) -> Iterator[int]:
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(_config(app, limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def rest(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    got = b""
    try:
        while data := connection.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


@pytest.mark.parametrize("what", ["nothing", "head", "body", "second"])
def test_a_request_that_does_not_arrive_in_time_is_ended(tmp_path: Path, what: str) -> None:
    with serving(tmp_path, Limits(seconds=0.5)) as (port, token), connect(port) as slow:
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode()
        body = b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        if what == "second":
            slow.sendall(LOOK)
            assert b"404" in read_until(slow, b"}}")
        sent = {"nothing": b"", "head": head, "body": head + body, "second": head}[what]
        slow.sendall(sent)
        slow.settimeout(0.05)
        said = b""
        for _ in range(int(PATIENCE / 0.05)):  # a byte now and then does not buy more time
            try:
                said = rest(slow)
                break
            except TimeoutError:
                pass
            try:
                slow.sendall(b"x" if sent else b"")
            except OSError:
                break
        else:
            pytest.fail("it was let go on for ever")
        assert said == b"" or said.startswith(b"HTTP/1.1 408 "), said
        with connect(port) as other:
            other.sendall(LOOK)
            assert b"404" in read_until(other, b"\r\n\r\n")


class Slow:
    """An application whose answer to /wait ends when somebody asks for /go, or its client has gone."""

    def __init__(self) -> None:
        self._go: anyio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self._go = self._go or anyio.Event()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if scope["path"] == "/go":
            self._go.set()
        async with anyio.create_task_group() as both:

            async def leave() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                both.cancel_scope.cancel()

            both.start_soon(leave)
            await self._go.wait()
            await send({"type": "http.response.body", "body": b"ended"})
            both.cancel_scope.cancel()


def asking(stack: ExitStack, port: int, path: str) -> socket.socket:
    connection = stack.enter_context(connect(port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    read_until(connection, b"begun")
    return connection


def test_a_request_that_takes_long_to_answer_is_not_ended() -> None:
    """The limit is for what a client sends, and not for what the server does."""
    with running(Slow(), Limits(seconds=0.3)) as port, ExitStack() as stack:
        waiting = asking(stack, port, "/wait")
        with connect(port) as idle:
            assert rest(idle) == b"", "the time is over, for a connection that was made later"
        asking(stack, port, "/go")
        read_until(waiting, b"ended")


def test_connections_beyond_the_limit_take_the_place_of_those_that_ask_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, Limits(in_all=4, per_peer=4)) as (port, _), ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(4)]
        for connection in idle[1:]:
            connection.sendall(LOOK)
            assert b"404" in read_until(connection, b"}}")
        with connect(port) as late:
            late.sendall(LOOK)
            assert b"404" in read_until(late, b"}}")
            assert rest(idle[0]) == b"", "the first one has asked nothing for longest"
            late.sendall(LOOK)
            assert b"404" in read_until(late, b"}}")


def test_connections_with_a_request_at_work_are_kept_and_one_more_is_refused() -> None:
    with running(Slow(), Limits(in_all=3, per_peer=2)) as port, ExitStack() as stack:
        first, second = (asking(stack, port, "/wait") for _ in range(2))
        with connect(port) as late:
            assert rest(late).startswith(b"HTTP/1.1 503 ")
        first.close()
        refused = b"503"
        while refused:  # until the server has noticed
            with connect(port) as late:
                late.sendall(b"GET /go HTTP/1.1\r\nHost: localhost\r\n\r\n")
                refused = b"" if b"200 OK" in rest_of_answer(late) else refused
        read_until(second, b"ended")


def rest_of_answer(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


@contextmanager
def open_files(soft: int) -> Iterator[None]:
    """What this process, and those that it starts meanwhile, may open."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_idle_connections_shut_nobody_out(tmp_path: Path) -> None:
    """More of them than the server could open files when it was started."""
    count = min(IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 300)
    if count < 600:
        pytest.skip("this process may not open enough files")
    with open_files(512):
        started = HttpServer(tmp_path)
    with open_files(count + 300), started as server, server.board() as board, ExitStack() as stack:
        board.add("x")
        with connect(server.port) as first:  # from the answer on it takes connections
            first.sendall(LOOK)
            read_until(first, b"404")
        for _ in range(count):
            stack.enter_context(connect(server.port))

        async def work() -> None:
            async with server.client("worker") as client:
                assert (await call(client, "claim_task"))["claimed"] is True

        anyio.run(work)


def test_connections_are_fewer_than_the_files_that_may_be_opened() -> None:
    code = """
import resource
from dibs.mcp.connection_limits import Limits
for soft, hard in ((100, 4000), (100, 200), (100, 100)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(*Limits.of_this_process()[:2], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split("\n")[:3] == ["1024 512 4000", "100 50 200", "50 25 100"]


def test_calls_that_wait_leave_room_for_those_that_work(tmp_path: Path) -> None:
    """Sixteen workers, each with as many waiting calls as it may have: what is too much is refused, and said."""
    with HttpServer(tmp_path) as server, ExitStack() as stack:
        names = [f"w{n}" for n in range(16)]
        waiting = [
            stack.enter_context(server.calling(name, MODERN, "claim_task", wait_seconds=45))
            for name in names
            for _ in range(WAITERS)
        ]
        refused = 0
        while refused < len(waiting) - WAITERS_IN_ALL:
            ready = select.select(waiting, [], [], PATIENCE)[0]
            assert ready, f"{refused} calls were refused"
            for each in ready:
                said = rest_of_answer(each)
                if b'"claimed":' in said.replace(b" ", b"").replace(b"\\", b""):
                    assert b"too many calls are waiting on this server" in said
                    refused += 1
                    waiting.remove(each)
                elif not said:
                    waiting.remove(each)

        async def work() -> None:
            async with server.client("other") as client:
                assert (await call(client, "list_tasks"))["total"] == 0
                answer = await call(client, "claim_task", wait_seconds=5)
                assert (answer["claimed"], answer["code"]) == (False, "busy")
                assert (await call(client, "claim_task"))["claimed"] is False

        anyio.run(work)
