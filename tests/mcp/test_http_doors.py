"""Who gets in at `dibs mcp --http`: with a token, under a known name, and not from somebody's web page."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.mcp.http import listen
from dibs.mcp.tokens import drop_token, new_token
from tests.cli.shell import PATIENCE
from tests.mcp.http_server import HANDSHAKE, LEGACY, HttpServer, dibs_command, dibs_environment, read_until

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
JSON = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("doors")
    with HttpServer(folder, None, "--allow-host", "board.example", "--allow-origin", "https://ci.example") as made:
        yield made


def status(server: HttpServer, worker: str = "somebody", **headers: str) -> int:
    """That of a request that gets as far as the SDK, where it lacks a session (400), or is stopped before."""
    return server.request(body=PING, Authorization=f"Bearer {server.token(worker)}", **JSON, **headers)[0]


def test_without_a_token_the_answer_says_how_to_get_one(server: HttpServer) -> None:
    code, headers, answer = server.request(body=PING, **JSON)
    assert code == 401
    assert headers["www-authenticate"].startswith("Bearer")
    assert answer["error"]["data"]["code"] == "unauthorized"
    assert "dibs mcp --new-token NAME" in answer["error"]["data"]["hint"]


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer", "Bearer ", "Basic c29tZWJvZHk6", "", "Bearer \xe9\xff"])
def test_a_wrong_token_is_refused(server: HttpServer, header: str) -> None:
    assert server.request(body=PING, Authorization=header, **JSON)[0] == 401


def test_tokens_come_and_go_while_the_server_runs(server: HttpServer) -> None:
    token, _ = new_token(server.tokens_file, "late")
    assert server.request(body=PING, Authorization=f"Bearer {token}", **JSON)[0] == 400
    drop_token(server.tokens_file, "late")
    assert server.request(body=PING, Authorization=f"Bearer {token}", **JSON)[0] == 401


def test_a_session_belongs_to_the_worker_who_began_it(server: HttpServer) -> None:
    session = server.handshake("owner")
    version = {"Mcp_Session_Id": session, "Mcp_Protocol_Version": HANDSHAKE}
    assert status(server, "owner", **version) == 200
    assert status(server, "thief", **version) == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
def test_a_foreign_host_name_is_refused(server: HttpServer, host: str) -> None:
    code, _, answer = server.request(body=PING, Authorization="Bearer x", Host=host, **JSON)
    assert code in (400, 421)  # a Host that is no host at all is the HTTP parser's to refuse
    assert code == 400 or "--allow-host" in answer["error"]["data"]["hint"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:4711", "LOCALHOST", "[::1]:80", "board.example", "Board.Example:443"]
)
def test_loopback_and_allowed_names_are_let_in_on_any_port(server: HttpServer, host: str) -> None:
    assert status(server, Host=host) == 400


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "https://ci.example.evil", ""]
)
def test_a_foreign_web_page_is_refused(server: HttpServer, origin: str) -> None:
    code, _, answer = server.request(body=PING, Authorization="Bearer x", Host="localhost:2", Origin=origin, **JSON)
    assert code == 403
    assert "--allow-origin" in answer["error"]["data"]["hint"]


def test_pages_of_the_same_host_and_of_allowed_origins_may_call(server: HttpServer) -> None:
    assert status(server, Host="localhost:2", Origin="http://localhost:2") == 400
    assert status(server, Origin="https://ci.example") == 400


def test_a_browser_may_ask_first_for_an_allowed_origin_only(server: HttpServer) -> None:
    ask = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,mcp-session-id"}
    code, headers, _ = server.request("OPTIONS", Origin="https://ci.example", **ask)
    assert code == 200
    assert headers["access-control-allow-origin"] == "https://ci.example"
    assert server.request("OPTIONS", Origin="https://evil.example", **ask)[0] == 403


def test_there_is_nothing_at_other_addresses(server: HttpServer) -> None:
    for path in ("/", "/mcp/", "/mcp/x", "/.well-known/oauth-protected-resource"):
        assert server.request("GET", path=path)[0] == 404


def test_a_request_that_is_too_large_is_refused_said_or_unsaid(server: HttpServer) -> None:
    large = b"x" * (1 << 20)
    auth = f"Bearer {server.token('somebody')}"
    code, _, answer = server.request(body=b"{" + large, Authorization=auth, **JSON)
    assert code == 413
    assert "the limit is 1,048,576" in answer["error"]["message"]
    chunk = b"%x\r\n" % (len(large) + 1) + b"{" + large + b"\r\n0\r\n\r\n"
    assert server.request(body=chunk, Authorization=auth, Transfer_Encoding="chunked", **JSON)[0] == 413


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonl", "application/x-www-form-urlencoded"])
def test_what_is_not_called_json_is_refused_in_our_words(server: HttpServer, kind: str) -> None:
    headers = {"Content_Type": kind} if kind else {}
    code, said, answer = server.request(body=PING, Authorization=f"Bearer {server.token('somebody')}", **headers)
    assert (code, said["content-type"]) == (415, "application/json")
    assert answer["error"]["data"]["code"] == "not_json"
    assert "Content-Type: application/json" in answer["error"]["data"]["hint"]
    assert server.request(body=PING, **headers)[0] == 401, "who has no token learns only that"


def test_json_may_name_its_encoding(server: HttpServer) -> None:
    auth = f"Bearer {server.token('somebody')}"
    kind = "application/json; charset=utf-8"
    assert server.request(body=PING, Authorization=auth, **{**JSON, "Content_Type": kind})[0] == 400


def test_a_damaged_list_of_tokens_is_told_and_lets_nobody_in(server: HttpServer) -> None:
    auth = f"Bearer {server.token('somebody')}"
    file = Path(server.tokens_file)
    good = file.read_text()
    try:
        file.write_text("{")
        code, _, answer = server.request(body=PING, Authorization=auth, **JSON)
        assert (code, answer["error"]["data"]["code"]) == (503, "tokens_unusable")
    finally:
        file.write_text(good)
    assert server.request(body=PING, Authorization=auth, **JSON)[0] == 400


# -- starting and ending


def start(url: str, folder: Path, *args: str) -> tuple[int, str]:
    """The exit code and stderr of a server that cannot start."""
    done = subprocess.run(
        dibs_command(url, "mcp", "--http", *args),
        env=dibs_environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/board.db"
    TaskBoard.open(url, create=True, worker="maker").close()
    code, said = start(url, tmp_path, "--port", "0")
    assert code == 1
    assert "no worker has a token" in said
    assert "dibs mcp --new-token NAME" in said

    new_token(str(tmp_path / "mcp-tokens.json"), "a")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = start(url, tmp_path, "--port", str(taken.getsockname()[1]))
    assert (code, "Address already in use" in said, "--port N" in said) == (1, True, True), said
    for args, words in (
        (("--port", "70000"), "70000 is not a port"),
        (("--port", "0", "--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        (("--port", "0", "--host", "0.0.0.0"), "needs --allow-host NAME"),
        (("--port", "0", "--allow-host", "http://x"), "is not a host"),
        (("--port", "0", "--allow-origin", "*"), "is not an origin"),
    ):
        code, said = start(url, tmp_path, *args)
        assert (code, words in said) == (1, True), said


def test_answers_are_sent_without_delay() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # or asyncio leaves Nagle's algorithm on: 40 ms for every answer


def test_a_server_for_other_machines_warns_that_nothing_is_encrypted(tmp_path: Path) -> None:
    with HttpServer(tmp_path, None, "--host", "0.0.0.0", "--allow-host", "board.example") as server:
        assert status(server, Host="board.example") == 400
        assert status(server, Host=f"0.0.0.0.example:{server.port}") == 421
        code, said = server.end(signal.SIGINT)
    assert code == 0
    assert "not encrypted" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_request_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with HttpServer(tmp_path) as server:  # it has announced itself, and has most of its imports before it
        code, said = server.end(number)
    assert code in (0, 130)
    assert "Traceback" not in said


def test_a_server_ends_at_a_signal_though_streams_are_open_and_a_call_waits(tmp_path: Path) -> None:
    with HttpServer(tmp_path) as server:
        session = server.handshake("a")
        listening = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        with listening, server.calling("a", LEGACY, "claim_task", session, wait_seconds=20) as waiting:
            head = f"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token('a')}\r\n"
            more = f"Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
            listening.sendall((head + more).encode())
            read_until(listening, b"200 OK")
            read_until(waiting, b"200 OK")
            code, said = server.end(signal.SIGTERM)
    assert code == 0
    assert f"serving {server.board_url} at {server.url}" in said
    assert "workers with a token: somebody" in said
    assert "Traceback" not in said
    assert server.announced["board"] == server.board_url
