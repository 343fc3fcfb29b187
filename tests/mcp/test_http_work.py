"""Work over HTTP in both eras of the protocol: the tools, races, cut connections, and a server that is killed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from dibs import TaskBoard
from dibs.mcp.tokens import drop_token
from tests.mcp.http_server import ERAS, LEGACY, MODERN, HttpServer, call, read_until
from tests.processes.harness import wait_until

both_eras = pytest.mark.parametrize("era", ERAS)

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with HttpServer(tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[HttpServer]:
    """For tests that need the board to themselves, or kill the server."""
    with HttpServer(tmp_path) as made:
        yield made


@pytest.fixture
def worker() -> str:
    """A worker whom no other test of this module knows."""
    return f"w{next(_numbers)}"


def add(server: HttpServer, description: str = "work", **more: Any) -> str:
    with server.board() as board:
        return board.add(description, **more)


@both_eras
def test_a_worker_does_its_work(server: HttpServer, worker: str, era: str) -> None:
    async def work() -> None:
        async with server.client(worker, era) as client:
            assert len((await client.list_tools()).tools) == 10
            tasks = [
                {"description": "build", "name": "b", "paths": [f"src/{worker}.py"]},
                {"description": "ship", "needs": ["b"]},
            ]
            build, ship = (await call(client, "add_tasks", tasks=tasks))["ids"]
            claimed = await call(client, "claim_task", task_id=build)
            assert (claimed["claimed"], claimed["task_id"]) == (True, build)
            locked = await call(client, "lock_files", paths=[f"docs/{worker}.md"])
            assert locked["locked"] == [f"docs/{worker}.md"]
            done = await call(client, "complete_task", task_id=build, token=claimed["token"], result="built")
            assert done["success"]
            shown = (await call(client, "list_tasks", task_id=ship))["tasks"][0]
            assert (shown["status"], "cannot_be_claimed" in shown) == ("pending", False)
            with pytest.raises(MCPError, match="Task not found"):
                await client.read_resource("dibs://task/no-such-task")
            await call(client, "send_message", content="hello", to=f"{worker}-friend")
            assert (await call(client, "unlock_files"))["unlocked"] == [f"docs/{worker}.md"]
        async with server.client(f"{worker}-friend", era) as friend:
            messages = (await call(friend, "check_messages"))["messages"]
            assert [(m["from"], m["content"]) for m in messages] == [(worker, "hello")]

    asyncio.run(work())
    with server.board() as board:
        events = [event for event in board.changelog() if event.worker == worker]
        assert {event.worker_type for event in events} == {"agent"}


@both_eras
def test_one_token_is_one_worker_whoever_connects_with_it_and_another_token_is_another(
    server: HttpServer, worker: str, era: str
) -> None:
    task_id = add(server)

    async def work() -> None:
        async with server.client(worker, era) as client:
            claimed = await call(client, "claim_task", task_id=task_id)
        async with server.client(f"{worker}-other", MODERN if era == LEGACY else LEGACY) as other:
            # A token that somebody has read on the board is not the right to use it.
            refused = await call(other, "complete_task", task_id=task_id, token=claimed["token"])
            assert not refused["success"]
            assert worker in refused["error"]
        async with server.client(worker, era) as again:
            seen = await call(again, "claim_task", task_id="no-such-task")
            assert not seen["claimed"]
            held = await call(again, "claim_task", task_id=add(server))
            assert held["also_holding"] == [{"task_id": task_id, "token": claimed["token"]}]
            assert (await call(again, "complete_task", task_id=task_id, token=claimed["token"]))["success"]

    asyncio.run(work())


@both_eras
def test_of_two_workers_who_want_one_task_one_gets_it(server: HttpServer, worker: str, era: str) -> None:
    names = [f"{worker}-a", f"{worker}-b"]

    async def race() -> None:
        async with server.client(names[0], era) as one, server.client(names[1], era) as two:
            for _ in range(10):
                task_id = add(server)
                answers = await asyncio.gather(*(call(c, "claim_task", task_id=task_id) for c in (one, two)))
                assert sorted(answer["claimed"] for answer in answers) == [False, True]
                loser = next(answer for answer in answers if not answer["claimed"])
                assert names[answers[0] is loser] in loser["message"]

    asyncio.run(race())


def test_files_are_named_from_the_root_of_the_repository_wherever_the_server_was_started(tmp_path: Path) -> None:
    below = tmp_path / "repository" / "src"
    below.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", below.parent], check=True)
    url = f"sqlite:{below.parent}/.dibs/board.db"
    TaskBoard.open(url, create=True, worker="maker").close()

    async def lock(server: HttpServer) -> None:
        async with server.client("a") as client:
            assert (await call(client, "lock_files", paths=["src/a.py", "docs"]))["locked"] == ["src/a.py", "docs"]

    with HttpServer(below, url) as server:
        asyncio.run(lock(server))


# -- cut connections


@both_eras
@pytest.mark.parametrize("cut", ["half of the request", "before the answer", "the answer"])
def test_a_call_that_was_cut_and_is_repeated_with_its_key_has_one_effect(
    server: HttpServer, worker: str, era: str, cut: str
) -> None:
    task_id = add(server)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("add_tasks", {"tasks": [{"description": f"one of {worker}"}, {"description": f"two of {worker}"}]}),
        ("claim_task", {"task_id": task_id}),
        ("send_message", {"content": f"from {worker}", "to": f"{worker}-friend"}),
    )
    for tool, arguments in calls:
        part = 0.5 if cut == "half of the request" else 1.0
        with server.calling(worker, era, tool, None, part, **arguments, request_key=f"{worker}-{tool}") as connection:
            if cut == "the answer":
                read_until(connection, b"structuredContent")

    async def again() -> list[dict[str, Any]]:
        async with server.client(worker, era) as client:
            return [await call(client, tool, **args, request_key=f"{worker}-{tool}") for tool, args in calls]

    added, claimed, _ = asyncio.run(again())
    with server.board() as board:
        found, total = board.tasks(search=f" of {worker}")
        assert (total, [task.id for task in found]) == (2, added["ids"])
        assert (claimed["claimed"], board.get(task_id).token) == (True, claimed["token"])
        assert [event.action for event in board.changelog() if event.task_id == task_id].count("claimed_activity") == 1
        assert [message.content for message in board.inbox(f"{worker}-friend")] == [f"from {worker}"]


def end_of(server: HttpServer, worker: str) -> None:
    """Wait until the server has seen what happened to other connections before: it looks at them in turn."""
    for _ in range(2):
        assert server.request("DELETE", Authorization=f"Bearer {server.token(worker)}")[0] >= 400


def test_clients_that_are_cut_off_while_they_wait_are_given_nothing(own_server: HttpServer) -> None:
    server = own_server
    with ExitStack() as waiting:
        for era in ERAS:
            waiting.enter_context(server.calling("unkeyed", era, "claim_task", wait_seconds=40))
            waiting.enter_context(server.calling("keyed", era, "claim_task", wait_seconds=40, request_key=era))
        wait_for_calls(server, 4)
    let_it_look(server)
    task_id = add(server)

    async def take() -> None:
        async with server.client("other") as other:
            assert (await call(other, "claim_task", wait_seconds=5))["task_id"] == task_id

    asyncio.run(take())
    with server.board() as board:
        assert [event.worker for event in board.changelog() if event.task_id == task_id] == ["tester", "other"]


def let_it_look(server: HttpServer) -> None:
    """Return when the server has seen what happened to other connections before: it looks at them in turn."""
    for _ in range(2):
        assert server.request("DELETE", Authorization=f"Bearer {server.token('somebody')}")[0] >= 400


def test_calls_that_their_clients_cancel_are_given_nothing(own_server: HttpServer) -> None:
    server = own_server

    async def give_up() -> str:
        async with server.client("one", LEGACY) as one, server.client("two", MODERN) as two:
            async with anyio.create_task_group() as both:
                for client in (one, two):
                    both.start_soon(partial(call, client, "claim_task", wait_seconds=40))
                await anyio.to_thread.run_sync(wait_for_calls, server, 2)
                both.cancel_scope.cancel()
            for client in (one, two):
                await call(client, "check_messages")
            task_id = add(server)
            async with server.client("other") as other:
                assert (await call(other, "claim_task", wait_seconds=5))["task_id"] == task_id
            return task_id

    task_id = asyncio.run(give_up())
    with server.board() as board:
        assert [event.worker for event in board.changelog() if event.task_id == task_id] == ["tester", "other"]


def wait_for_calls(server: HttpServer, number: int) -> None:
    """Until the first calls of a new server are at work: each has a thread of its own then."""
    threads = Path(f"/proc/{server.process.pid}/task")
    wait_until(lambda: len(list(threads.iterdir())) > number, f"{number} calls at work")


# -- what goes away


def test_claims_outlive_the_server(own_server: HttpServer) -> None:
    server = own_server
    for number in (1, 2):
        add(server, f"task {number}")

    async def work() -> None:
        async with server.client("one", LEGACY) as one, server.client("two", MODERN) as two:
            before = [await call(client, "claim_task", request_key="k") for client in (one, two)]
            server.restart()
            with pytest.raises(MCPError):
                await call(one, "claim_task", request_key="k")  # its session is gone; where there are none, it goes on
            assert await call(two, "claim_task", request_key="k") == before[1]
        async with server.client("one", LEGACY) as one:
            again = await call(one, "claim_task", request_key="k")
            assert (again["task_id"], again["token"]) == (before[0]["task_id"], before[0]["token"])
            assert (await call(one, "complete_task", task_id=again["task_id"], token=again["token"]))["success"]

    asyncio.run(work())
    with server.board() as board:
        assert sorted(str(task.status) for task in board.tasks()[0]) == ["completed", "in_progress"]


@both_eras
def test_a_dropped_token_is_no_good_in_an_open_session_either(server: HttpServer, worker: str, era: str) -> None:
    async def work() -> None:
        async with server.client(worker, era) as client:
            await call(client, "list_tasks")
            drop_token(server.tokens_file, worker)
            with pytest.raises(MCPError, match="dibs mcp --new-token NAME"):
                await call(client, "list_tasks")

    asyncio.run(work())
