"""What a pool refuses, and says so before anything is started."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dibs import AgentPool
from dibs.errors import DibsError, Invalid, Unsupported
from tests.pool.conftest import Place, Plans, soon


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"mode": "teem"}, "no mode 'teem'"),
        ({"max_agents": 0}, "max_agents"),
        ({"max_agents": True}, "max_agents"),
        ({"max_agents": 1000}, "max_agents"),
        ({"workers": -1}, "max_agents"),
        ({"restarts": -1}, "restarts"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"stale_timeout": "5"}, "stale_timeout"),
        ({"grace": -1}, "time to wait"),
        ({"board": "sqlite:x.db", "state_dir": "x"}, "board and state_dir"),
        ({"workspace": "/nowhere/at all"}, "no folder"),
        ({"agent": ""}, "empty"),
        ({"agent": []}, "empty"),
        ({"agent": 7}, "no agent"),
        ({"agent": ["x", "{nonsense}"]}, "placeholder"),
        ({"lead_agent": "cloude"}, "did you mean claude"),
    ],
)
def test_what_makes_no_pool(place: Place, given: dict[str, Any], match: str) -> None:
    with pytest.raises(DibsError, match=match):
        AgentPool(**{"agent": ["true"], "workspace": place.workspace, **given})
    assert list(place.workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        ({"board": "memory:"}, Invalid, "in memory"),
        ({"agent": ["no-such-program-at-all"]}, Unsupported, "no program"),
        ({"worktrees": True}, Invalid, "git repository with a commit"),
        ({"folder": "."}, Invalid, "not empty"),
    ],
)
def test_what_cannot_be_opened(
    place: Place, given: dict[str, Any], kind: type[Exception], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.path)

    async def play() -> None:
        pool = AgentPool(**{"agent": ["true"], "workspace": place.workspace, "board": place.url, **given})
        with pytest.raises(kind, match=match):
            async with pool:
                pass
        with pytest.raises(Invalid, match="not open"):
            _ = pool.board

    asyncio.run(play())


def test_what_an_open_pool_refuses(place: Place) -> None:
    async def play() -> None:
        pool = place.pool(Plans(worker="work"))
        for call in (lambda: pool.add_tasks(["x"]), pool.standing):
            with pytest.raises(Invalid, match="not open"):
                call()
        with pytest.raises(Invalid, match="not open"):
            await pool.run_team()
        async with pool:
            with pytest.raises(Invalid, match="takes a list"):
                pool.add_tasks("do it")
            with pytest.raises(DibsError, match="description"):
                pool.add_tasks([{"paths": ["x"]}])
            with pytest.raises(DibsError):
                pool.add_tasks(["fine", ""])
            with pytest.raises(DibsError):
                pool.add_tasks(["fine", 7])  # type: ignore[list-item]
            assert pool.add_tasks([]) == []
            with pytest.raises(Invalid, match="mode parallel"):
                pool.submit("x")
            with pytest.raises(Invalid, match="run belongs to mode parallel"):
                await pool.run()
            with pytest.raises(Invalid, match="no agent"):
                pool.kill("worker-9")
            assert sum(pool.board.counts().values()) == 0
        with pytest.raises(Invalid, match="not open"):
            await pool.run_team()

    asyncio.run(play())


def test_one_run_at_a_time(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="claim; until go; complete"), 1) as pool:
            (task,) = pool.add_tasks(["x"])
            running = asyncio.create_task(pool.run_team())
            await place.noted(f"worker-1 claimed {task}")
            agents = pool.agents
            with pytest.raises(Invalid, match="running already"):
                await pool.run_team()
            assert pool.agents is agents
            place.note("go")
            assert (await soon(running)).ending == "done"

    asyncio.run(play())
