"""A board that is removed, or that freezes, under a team: no process is left, nobody waits for ever, and it is said."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import string
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dibs import AgentPool, TaskBoard
from dibs.errors import Busy, NoBoard
from dibs.pool import agents, running
from dibs.pool import pool as pools
from dibs.pool.standing import look
from tests.pool.conftest import ACTORS, PATIENCE, Place, Plans, soon, until
from tests.postgres.proxy import Proxy
from tests.postgres.server import server_for_test

ALL = frozenset(string.printable)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Asked for before `place`, whose environment the server must not inherit: it would be taken for what is left."""
    with Proxy(server_for_test().url(board=f"t{uuid.uuid4().hex}")) as made:
        yield made


# -- removed


@pytest.mark.parametrize("then", ["until go; complete", "sleep"])
def test_a_board_that_is_removed_ends_the_run_with_an_error_for_every_agent(
    place: Place, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Agents that need it end by themselves; those that do not are ended, after a while."""
    monkeypatch.setattr(agents, "TRIES", 1)
    monkeypatch.setattr(running, "AWAY", 0.5 if then == "sleep" else 600.0)
    folder = place.path / "there"

    async def play() -> None:
        async with place.pool(Plans(worker=f"claim; {then}"), 2, board=f"sqlite:{folder / 'board.db'}") as pool:
            pool.add_tasks(["x", "y"])
            run = asyncio.create_task(pool.run_team())
            for n in (1, 2):
                await place.claimed(f"worker-{n}")
            shutil.rmtree(folder)
            place.note("go")
            with pytest.raises(NoBoard, match="there is no board at "):
                await soon(run)
            assert place.left() == []
            assert [agent.state for agent in pool.agents] == ["ended"] * 2
            for agent in pool.agents:
                assert "there is no board at " in (agent.error or "")
        assert then != "sleep" or place.kinds().count("board_away") == 1

    asyncio.run(play())
    assert not folder.exists()


def test_what_agents_of_a_queue_did_is_not_lost_with_the_board(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "TRIES", 1)
    folder = place.path / "there"

    async def play() -> None:
        plans = Plans(agent="note is here; until go; say it is done")
        where = f"sqlite:{folder / 'board.db'}"
        async with place.pool(plans, 1, mode="parallel", board=where) as pool:
            pool.submit("Do it.")
            run = asyncio.create_task(pool.run())
            await place.noted("agent-1 is here")
            shutil.rmtree(folder)
            place.note("go")
            results = await soon(run)
            assert (results.ending, results.why) == ("done", "all 1 agents have completed")
            (result,) = results
            assert (result.status, result.output) == ("completed", "it is done\n")
            assert "there is no board at " in (result.error or "")

    asyncio.run(play())


# -- frozen


async def _at_work(place: Place, pool: AgentPool) -> asyncio.Task[object]:
    pool.add_tasks(["x", "y"])
    run: asyncio.Task[object] = asyncio.create_task(pool.run_team())
    for n in (1, 2):
        await place.claimed(f"worker-{n}")
    return run


def test_a_server_that_is_frozen_does_not_keep_a_team_that_is_stopped(
    proxy: Proxy, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes everything, and answers nothing."""
    monkeypatch.setattr(agents, "GIVING", 0.5)
    monkeypatch.setattr(pools, "CLOSING", 1.2)

    async def play() -> None:
        async with place.pool(Plans(worker="claim; sleep"), 2, board=proxy.url) as pool:
            run = await _at_work(place, pool)
            proxy.swallowed = ALL
            pool.stop()
            with pytest.raises(asyncio.CancelledError):
                await soon(run)
            assert place.left() == []
            for agent in pool.agents:
                assert agent.error is not None
                assert agent.error.endswith("comes back by itself: the board does not answer")

    async def bounded() -> None:
        await soon(play())

    asyncio.run(bounded())


def test_a_server_that_stays_frozen_is_not_waited_for_without_end(
    proxy: Proxy, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "GIVING", 0.5)
    monkeypatch.setattr(pools, "CLOSING", 1.2)
    looks = []

    def counted(*given: Any) -> Any:
        looks.append(given)
        return look(*given)

    monkeypatch.setattr(running, "look", counted)

    async def play() -> None:
        async with place.pool(Plans(worker="claim; sleep"), 2, board=proxy.url) as pool:
            run = await _at_work(place, pool)
            monkeypatch.setattr(running, "AWAY", 1.0)
            before = len(looks)
            await until(lambda: len(looks) > before + 1)  # one that knows of it
            proxy.swallowed = ALL
            with pytest.raises(Busy, match="the board has not answered for 1 s"):
                await soon(run)
            assert place.left() == []

    async def bounded() -> None:
        await soon(play())

    asyncio.run(bounded())


def test_a_team_that_stood_still_itself_asks_once_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a Ctrl-Z of ten minutes, an answer that was on its way seems to have taken as long."""
    monkeypatch.setattr(running, "AWAY", 1.0)
    looks = []

    def slow_once(*given: Any) -> Any:
        looks.append(given)
        if len(looks) == 2:
            time.sleep(2.0)
        return look(*given)

    monkeypatch.setattr(running, "look", slow_once)
    results = place.run(Plans(worker="claim; command sleep 1; complete"), 1, tasks=["x"])
    assert results.ending == "done"
    assert len(looks) > 2


@pytest.mark.slow
def test_the_command_on_a_frozen_server_ends_with_one_ctrl_c_and_says_what_it_does_not_know(
    proxy: Proxy, place: Place
) -> None:
    """About twenty seconds: for giving back, for asking how the board stands, for closing it."""
    with TaskBoard.open(proxy.url, create=True) as board:
        board.add("x")
    agent = shlex.join([sys.executable, "-P", str(ACTORS / "direct.py"), "claim; sleep"])
    team = subprocess.Popen(
        [sys.executable, "-m", "dibs", "--board", proxy.url, "team", "-n", "1", "--agent", agent],
        cwd=place.workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        asyncio.run(place.claimed("worker-1"))
        proxy.swallowed = ALL
        team.send_signal(signal.SIGINT)
        out, err = team.communicate(timeout=PATIENCE)
    finally:
        team.kill()
    assert (team.returncode, place.left()) == (128 + signal.SIGINT, [])
    assert "Traceback" not in err
    assert "what the agents held comes back by itself" in " ".join(out.split())
    assert "How the board stands is not known." in out
    assert "What the agents printed is kept:" in out
