"""The TypeScript clients drive `dibs mcp` over stdio and HTTP: `sdk`, which knows the handshake protocol, and `client`,
its successor, which knows both eras."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from dibs.model import PENDING
from dibs.worker import is_dead
from tests.mcp.http_server import HANDSHAKE, LEGACY, MODERN, HttpServer
from tests.mcp.typescript_client import TypeScriptClient, require_node
from tests.processes.harness import wait_until

CLIENTS = [("sdk", LEGACY), ("client", LEGACY), ("client", MODERN)]

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    require_node()
    with HttpServer(tmp_path_factory.mktemp("typescript")) as made:
        yield made


@pytest.fixture
def worker() -> str:
    """A worker whom no other test of this module knows."""
    return f"ts{next(_numbers)}"


def connect(server: HttpServer, transport: str, sdk: str, era: str, worker: str) -> TypeScriptClient:
    if transport == "stdio":
        return TypeScriptClient.on_stdio(server.folder, sdk, era, server.board_url, worker)
    return TypeScriptClient(server.folder, sdk, era, url=server.url, token=server.token(worker))


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("sdk", "era"), CLIENTS)
def test_a_typescript_client_works_and_is_told_when_it_lost_its_task(
    server: HttpServer, worker: str, sdk: str, era: str, transport: str
) -> None:
    with server.board() as board, connect(server, transport, sdk, era, worker) as client:
        first, second = board.add("first"), board.add("second")
        assert client.answer()["version"] in (None, HANDSHAKE if era == LEGACY else MODERN)
        client.tell(tools=True)
        assert {"claim_task", "complete_task", "fail_task", "list_tasks"} <= set(client.answer()["tools"])
        claimed = client.call("claim_task", task_id=first)
        assert (claimed["claimed"], claimed["description"]) == (True, "first")
        assert client.call("complete_task", task_id=first, token=claimed["token"], result="done")["success"]
        assert board.get(first).status == "completed"

        stale = client.call("claim_task", task_id=second)["token"]
        board.release(
            second, worker=worker, token=stale
        )  # by the same worker, in a shell that the client knows nothing of
        assert board.claim("rival", second) is not None
        refused = client.call("complete_task", task_id=second, token=stale)
        assert (refused["success"], "rival" in refused["error"]) == (False, True)
        assert board.get(second).assigned_to == "rival"
        client.close()


@pytest.mark.parametrize(("sdk", "era"), CLIENTS)
def test_what_a_killed_client_held_is_free_again(server: HttpServer, worker: str, sdk: str, era: str) -> None:
    with server.board() as board, connect(server, "stdio", sdk, era, worker) as client:
        task_id = board.add("left behind")
        client.answer()
        assert client.call("claim_task", task_id=task_id)["claimed"]
        holder = board.get(task_id).holder
        assert holder is not None
        client.kill()
        wait_until(lambda: board.get(task_id).status is PENDING, "the task is free")
        wait_until(lambda: is_dead(holder), "the server is gone")


def test_of_typescript_clients_that_want_one_task_one_gets_it(server: HttpServer, worker: str) -> None:
    with server.board() as board, ExitStack() as open_clients:
        task_id = board.add("wanted by all")
        kinds = [("stdio", "sdk", LEGACY), ("http", "sdk", LEGACY), ("http", "client", MODERN)]
        clients = [
            open_clients.enter_context(connect(server, *kind, f"{worker}-{number}"))
            for number, kind in enumerate(kinds)
        ]
        for client in clients:
            client.answer()
        for client in clients:
            client.tell(call="claim_task", arguments={"task_id": task_id})
        answers = [client.answer()["result"] for client in clients]
        assert sorted(answer["claimed"] for answer in answers) == [False, False, True]
        holder = board.get(task_id).assigned_to
        assert holder == f"{worker}-{[answer['claimed'] for answer in answers].index(True)}"
        assert all(holder in answer["message"] for answer in answers if not answer["claimed"])


@pytest.mark.parametrize(("sdk", "era"), CLIENTS)
def test_a_client_with_a_wrong_token_is_told_how_to_get_one(
    server: HttpServer, tmp_path: Path, sdk: str, era: str
) -> None:
    with TypeScriptClient(tmp_path, sdk, era, url=server.url, token="wrong") as client:
        refused = client.answer()["refused"]
    assert "401" in refused or "dibs mcp --new-token" in refused, refused
