"""Mode parallel: prompts, each for an agent of its own, so many at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dibs.errors import Invalid
from dibs.model import COMPLETED
from dibs.pool.results import Results
from tests.pool.conftest import Place, Plans, settled, soon

STAMP = 'command date +%s.%N >> "$POOL_NOTES/$DIBS_AGENT.{}"'
STAMPED = "; ".join([STAMP.format("begin"), "sleep {0}", STAMP.format("end")])


async def _run(
    place: Place, runner: Any, prompts: list[tuple[str, str | None]], agents: int = 3, **more: Any
) -> Results:
    async with place.pool(runner, agents, mode="parallel", **more) as pool:
        for prompt, name in prompts:
            pool.submit(prompt, name)
        results: Results = await soon(pool.run())
        assert place.left() == []
        settled(pool.board)
        return results


def test_no_more_at_a_time_than_asked_for_and_results_in_order(place: Place) -> None:
    plans = Plans(agent=[STAMPED.format(0.15)], agent_1=STAMPED.format(0.8))
    results = asyncio.run(_run(place, plans, [(f"prompt {n}", None) for n in range(1, 10)], 3))
    assert [result.agent for result in results] == [f"agent-{n}" for n in range(1, 10)]
    assert (results.ending, results.why) == ("done", "all 9 agents have completed")
    assert {(r.role, r.status, r.runs, r.exit_code) for r in results} == {("agent", "completed", 1, 0)}
    moments = [(float(path.read_text()), 1) for path in place.notes.glob("*.begin")]
    moments += [(float(path.read_text()), -1) for path in place.notes.glob("*.end")]
    at_once = most = 0
    for _, change in sorted(moments):
        at_once += change
        most = max(most, at_once)
    assert (len(moments), most) == (18, 3)
    assert sorted(plans.prompts) == [f"prompt {n}" for n in range(1, 10)]


def test_each_gets_its_prompt_and_no_team(place: Place) -> None:
    prompts = ["one\ntwo", "x" * 300_000, "  ☃ {braces} $HOME `id` \\ 'quotes\"  "]
    results = asyncio.run(_run(place, Plans(agent="prompt; echo DIBS_TEAM"), [(p, None) for p in prompts]))
    assert [r.output for r in results if len(r.output) < 1000] == [f"{p}\nNone\n" for p in (prompts[0], prompts[2])]
    assert len(results[1].output) == 65_536


def test_names(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(agent="echo DIBS_AGENT", ü="echo DIBS_AGENT"), mode="parallel") as pool:
            assert pool.submit("x", "agent-2") == "agent-2"
            given = [pool.submit("x"), pool.submit("x"), pool.submit("x", "ü"), pool.submit("x", "a+b")]
            assert len({*given, "agent-2"}) == 5
            for bad in ("agent-2", "a b", "ü", "a/b", "..", ".hidden", "", " x", "x\n", "x" * 201):
                with pytest.raises(Invalid):
                    pool.submit("x", bad)
            for empty in ("", " \n"):
                with pytest.raises(Invalid, match="empty"):
                    pool.submit(empty)
            results = await soon(pool.run())
            assert [r.agent for r in results] == ["agent-2", *given]
            assert [r.output.strip() for r in results] == ["agent-2", *given]

    asyncio.run(play())


def test_errors_and_timeouts_are_each_agents_own(place: Place) -> None:
    plans = Plans(
        bad="say oh no; exit 4",
        slow="claim; sleep",
        good="claim; complete; say fine",
        dead="claim; kill",
        idle="exit 0",
    )
    names = ["bad", "slow", "good", "dead", "idle"]

    async def play() -> None:
        async with place.pool(plans, 5, mode="parallel", timeout=3.0) as pool:
            pool.add_tasks(["x", "y", "z"])
            for name in names:
                pool.submit("do it", name)
            results = await soon(pool.run())
            assert results.ending == "gave up"
            assert results.why == "3 of 5 agents did not complete: bad, slow, dead"
            found = [(r.agent, r.status, r.error, r.runs) for r in results]
            assert found == [
                ("bad", "error", "exit code 4: oh no", 1),
                ("slow", "timeout", "its time was over after 3 s", 1),
                ("good", "completed", None, 1),
                ("dead", "error", "killed by SIGKILL", 1),
                ("idle", "completed", None, 1),
            ]
            assert [len(r.tasks) for r in results] == [0, 0, 1, 0, 0]
            settled(pool.board)
            assert pool.board.counts()[COMPLETED] == 1

    asyncio.run(play())


def test_nothing_submitted(place: Place) -> None:
    results = asyncio.run(_run(place, Plans(agent="exit 0"), []))
    assert (results.ending, list(results)) == ("done", [])


def test_a_pool_may_run_again_and_more_may_be_submitted_meanwhile(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(agent="prompt; until go"), 2, mode="parallel") as pool:
            first = pool.submit("first")
            running = asyncio.create_task(pool.run())
            await asyncio.sleep(0.3)
            second = pool.submit("second")
            with pytest.raises(Invalid, match="running already"):
                await pool.run()
            place.note("go")
            assert [(r.agent, r.output) for r in await soon(running)] == [(first, "first\n")]
            assert [(r.agent, r.output) for r in await soon(pool.run())] == [(second, "second\n")]
            assert list(await soon(pool.run())) == []

    asyncio.run(play())


def test_a_long_queue_is_stopped(place: Place) -> None:
    plans = Plans(agent="deaf; note here; sleep")

    async def play() -> None:
        async with place.pool(plans, 2, mode="parallel") as pool:
            for _ in range(20):
                pool.submit("x")
            running = asyncio.create_task(pool.run())
            await place.noted("agent-1 here")
            await place.noted("agent-2 here")
            pool.stop()
            await asyncio.sleep(0.2)
            pool.stop()  # again: at once
            with pytest.raises(asyncio.CancelledError):
                await soon(running)
            assert place.left() == []

    asyncio.run(play())
    assert sorted(plans.starts) == ["agent-1", "agent-2"]


def test_what_belongs_to_teams_is_refused(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(agent="exit 0"), mode="parallel") as pool:
            with pytest.raises(Invalid, match="mode team"):
                await pool.run_team("x")

    asyncio.run(play())
