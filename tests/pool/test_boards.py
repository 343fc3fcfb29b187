"""Teams on the boards that agents can share: SQLite, document 004's file, PostgreSQL. Claims of every front are kept
while their agent lives, and come back when it dies."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import AgentPool, TaskBoard
from dibs.model import COMPLETED, IN_PROGRESS
from dibs.pool.runners import Launch, Order
from tests.pool.conftest import ACTORS, Place, Plans, settled, soon, together, until
from tests.postgres.server import Server, server_for_test

UNTIL_GO = 'while ! [ -e "$POOL_NOTES/go" ]; do sleep 0.05; done'
DIBS = f"{sys.executable} -P -m dibs"


class Commands(Plans):
    """Agents that use the command; a plan is what they do with a task."""

    name = "commands"

    def command(self, steps: str) -> list[str]:
        return ["sh", str(ACTORS / "commands.sh"), DIBS, steps]

    def launch(self, order: Order) -> Launch:
        made = super().launch(order)
        made.stdin = None
        return made


@pytest.fixture
def server() -> Server:
    """Asked for before `place`, whose environment it must not inherit: it would be taken for a process that is left."""
    return server_for_test()


@pytest.fixture(params=["sqlite", "state_dir", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What to tell the pool. Asked for before `place`, like `server`."""
    if request.param == "state_dir":
        return {"state_dir": tmp_path / "state"}
    if request.param == "postgresql":
        return {"board": server_for_test().url(board=f"t{uuid.uuid4().hex}")}
    return {"board": f"sqlite:{tmp_path / 'board.db'}"}


def test_a_team_with_accidents(where: dict[str, Any], place: Place) -> None:
    plans = Plans(
        lead="add one; add two; until worker-1 hurt; add three", worker=["claim; note hurt; kill", "work 0.05"]
    )
    results = place.run(plans, 2, lead="Plan.", tasks=["zero"], **where)
    assert (results.ending, results.why) == ("done", "all 4 tasks of the board are closed")
    assert len([task for result in results for task in result.tasks]) == 4
    assert results[0].tasks == []


def test_two_teams_with_agents_of_the_same_names(where: dict[str, Any], place: Place) -> None:
    """One of them loses an agent again and again: what the other's agent of that name holds is not given back."""

    async def play() -> None:
        steady = place.pool(Plans(worker="work 0.1"), 2, **where)
        wild = place.pool(Plans(worker=["claim; kill", "claim; complete; claim; kill", "work 0.1"]), 2, **where)
        async with steady, wild:
            ids = steady.add_tasks([f"task {n}" for n in range(24)])
            both = await soon(asyncio.gather(steady.run_team(), wild.run_team()))
            assert [results.ending for results in both] == ["done", "done"]
            settled(steady.board)
            did = [[task for result in results for task in result.tasks] for results in both]
            assert sorted(did[0] + did[1]) == sorted(ids)
            actions = Counter((event.action, event.task_id) for event in steady.board.changelog())
            assert {actions["completed_activity", task] for task in ids} == {1}

    asyncio.run(play())


def test_claims_by_the_command_last_as_long_as_their_agent(server: Server, place: Place) -> None:
    """Longer than the lease: nobody but the pool can know that the agent still works."""
    there: dict[str, dict[str, Any]] = {
        "sqlite": {},
        "state_dir": {"state_dir": place.path / "state"},
        "postgresql": {"board": server.url(board=f"t{uuid.uuid4().hex}")},
    }
    together(*(_long_work(place.beside(kind), where) for kind, where in there.items()))


async def _long_work(place: Place, where: dict[str, Any]) -> None:
    plans = Commands(worker_1=UNTIL_GO, worker_2=["kill -KILL $PPID", "true"])
    async with place.pool(plans, 2, stale_timeout=4.0, **where) as pool:
        ids = pool.add_tasks(["x", "y"])
        running = asyncio.create_task(pool.run_team())
        await until(lambda: pool.board.counts()[COMPLETED] == 1)  # the second has died, come back, and done it
        await asyncio.sleep(4.5)
        held = [task for task in pool.board.tasks([IN_PROGRESS])[0] if task.assigned_to == "worker-1"]
        assert len(held) == 1
        place.note("go")
        results = await soon(running)
        settled(pool.board)
        assert results.ending == "done"
        assert [result.runs for result in results] == [1, 2]
        assert sorted(task for result in results for task in result.tasks) == sorted(ids)
        after = pool.board.changelog(held[0].token or 0, task_id=held[0].id)
        assert [event.action for event in after if event.action == "recovered_activity"] == []


def test_a_claim_by_the_command_comes_back_at_once_when_its_agent_dies(place: Place) -> None:
    """With a lease of an hour: nobody has to wait for that."""

    async def play() -> None:
        async with place.pool(Commands(worker=["kill -KILL $PPID", "true"]), 1, stale_timeout=3600) as pool:
            (task,) = pool.add_tasks(["x"])
            results = await soon(pool.run_team())
            assert (results.ending, results[0].runs, results[0].tasks) == ("done", 2, [task])

    asyncio.run(play())


def test_the_agents_own_servers_have_the_teams_lease(place: Place) -> None:
    """A server, a command and a program find it in their environment; the claim on the board has it."""

    async def play() -> None:
        async with place.pool(Commands(worker=UNTIL_GO), 1, stale_timeout=90) as pool:
            (task,) = pool.add_tasks(["x"])
            running = asyncio.create_task(pool.run_team())
            await place.noted(f"worker-1 claimed {task}")
            assert pool.board.get(task).lease == 90
            place.note("go")
            assert (await soon(running)).ending == "done"

    asyncio.run(play())


def test_a_password_reaches_the_agents_and_nobody_else(server: Server, place: Place) -> None:
    url = server.url(board=f"t{uuid.uuid4().hex}").replace("dibs@", "dibs:open%20sesame@")
    results = place.run(Plans(worker="echo DIBS_BOARD; work"), 1, tasks=["x"], board=url)
    assert (results.ending, results[0].output) == ("done", f"{url}\n")
    assert "sesame" not in repr([event.as_dict() for event in place.events if event.kind != "output"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_two_large_teams_that_lose_agents_all_the_time(place: Place, seed: int) -> None:
    """Whoever is killed whenever: every task is completed once, and nothing is left."""
    import random

    rng = random.Random(seed)

    async def kill(pools: list[AgentPool]) -> None:
        while True:
            await asyncio.sleep(rng.random() / 2)
            pool = rng.choice(pools)
            running = [agent.name for agent in pool.agents if agent.pid]
            if running:
                pool.kill(rng.choice(running))

    async def play() -> None:
        pools = [place.pool(Plans(worker="work 0.1"), 6, restarts=1000) for _ in range(2)]
        async with pools[0], pools[1]:
            ids = pools[0].add_tasks([f"task {n}" for n in range(300)])
            killing = asyncio.create_task(kill(pools))
            async with asyncio.timeout(300):
                both = await asyncio.gather(*(pool.run_team() for pool in pools))
            killing.cancel()
            assert place.left() == []
            settled(pools[0].board)
            assert sorted(task for results in both for result in results for task in result.tasks) == sorted(ids)

    asyncio.run(play())


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that the test may stop; asked for before `place`, like `server`."""
    server_for_test()  # says what to install, where there is none
    with Server.start() as started:
        yield started


async def _away(place: Place, server: Server, seconds: float) -> None:
    """The agents are in the middle of their tasks, and have no need of the board."""
    async with place.pool(Plans(worker="claim; until go; complete; work"), 2, board=server.url(board="away")) as pool:
        ids = pool.add_tasks(["x", "y"])
        running = asyncio.create_task(pool.run_team())
        for n in (1, 2):
            await place.claimed(f"worker-{n}")
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.sleep(seconds)
        assert not running.done()
        await asyncio.to_thread(server.restart)
        place.note("go")
        results = await soon(running)
        assert (results.ending, [result.runs for result in results]) == ("done", [1, 1])
        assert sorted(task for result in results for task in result.tasks) == sorted(ids)


def test_a_server_that_is_away_for_a_moment(own_server: Server, place: Place) -> None:
    asyncio.run(_away(place, own_server, 0.5))


@pytest.mark.slow
def test_a_server_that_is_away_for_longer(own_server: Server, place: Place) -> None:
    asyncio.run(_away(place, own_server, 45))


@pytest.mark.slow
def test_a_team_is_stopped_while_its_server_is_away(own_server: Server, place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="claim; sleep"), 2, board=own_server.url(board="away")) as pool:
            pool.add_tasks(["x", "y"])
            running = asyncio.create_task(pool.run_team())
            for n in (1, 2):
                await place.claimed(f"worker-{n}")
            await asyncio.to_thread(own_server.kill)
            pool.stop()
            await until(lambda: place.left() == [])  # processes first, whatever the board says
            with pytest.raises(asyncio.CancelledError):
                async with asyncio.timeout(60):
                    await running

    asyncio.run(play())


def test_the_board_outlives_its_teams(place: Place) -> None:
    assert place.run(Plans(worker="work"), 1, tasks=["x"]).ending == "done"
    assert place.run(Plans(worker="work"), 1, tasks=["y"]).ending == "done"
    assert sum(TaskBoard.open(place.url).counts().values()) == 2
