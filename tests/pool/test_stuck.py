"""Boards that cannot go on: the run says so and ends; and boards that only look so: it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from dibs import AgentPool, TaskBoard
from dibs.model import COMPLETED, PENDING, REVIEW, Worker
from dibs.pool import running
from dibs.pool.standing import kept_by_others
from tests.pool.conftest import Place, Plans, settled, soon, until


def test_a_task_that_waits_for_a_failed_one(place: Place) -> None:
    tasks = [{"id": "one", "description": "x"}, {"id": "two", "description": "y", "depends_on": ["one"]}]
    results = place.run(Plans(worker="claim; fail; work"), 1, tasks=tasks)
    assert (results.ending, results[0].tasks) == ("stuck", [])
    assert results.why.startswith("1 pending cannot go on (1 failed): two ")
    assert "one" in results.why


def test_a_worker_that_gives_a_task_up_has_time_to_add_another(place: Place) -> None:
    """Nothing can be claimed when it has failed; what it adds a moment later can."""
    tasks = [{"id": "one", "description": "x"}, {"id": "two", "description": "y", "depends_on": ["one"]}]
    results = place.run(Plans(worker="claim one; fail; sleep 1; add instead; work"), 1, tasks=tasks)
    assert (results.ending, len(results[0].tasks), results[0].unfinished) == ("stuck", 1, ["one"])
    assert place.board.counts()[COMPLETED] == 1


def test_what_a_worker_of_ours_takes_up_at_the_last_moment_is_not_stuck(place: Place) -> None:
    """It holds the files that the task wants, and takes its time."""
    plans = Plans(worker="lock src/**; sleep 2; claim x; complete")
    paths = [f"{place.workspace}/src/a.py"]
    results = place.run(plans, 1, tasks=[{"id": "x", "description": "x", "paths": paths}])
    assert (results.ending, results[0].tasks, results[0].runs) == ("done", ["x"], 1)


def test_a_task_for_people(place: Place) -> None:
    results = place.run(Plans(worker="work"), 1, tasks=["x", {"id": "p", "description": "y", "reserved": "human"}])
    assert results.ending == "stuck"
    assert results.why.startswith("1 pending cannot go on: p ")
    assert "human" in results.why
    assert len(results[0].tasks) == 1


def test_nothing_but_tasks_for_people_starts_nobody(place: Place) -> None:
    plans = Plans(worker="work")
    assert place.run(plans, 1, tasks=[{"description": "y", "reserved": "human"}]).ending == "stuck"
    assert plans.starts == []


def test_a_task_in_review(place: Place) -> None:
    results = place.run(Plans(worker="work"), 1, tasks=[{"id": "r", "description": "x", "review": True}])
    assert results.ending == "stuck"
    assert results.why.endswith("r waits for somebody to accept it: dibs accept r")
    assert results[0].tasks == ["r"]
    assert place.board.counts()[REVIEW] == 1


def test_a_task_in_review_that_is_rejected_is_done_again(place: Place) -> None:
    """While something else goes on."""

    async def play() -> None:
        plans = Plans(
            worker_1="claim r; until worker-2 claimed x; complete; work", worker_2="claim x; until go; complete"
        )
        async with place.pool(plans, 2) as pool:
            pool.add_tasks([{"id": "r", "description": "r", "review": True}, {"id": "x", "description": "x"}])
            running = asyncio.create_task(pool.run_team())
            await place.noted("worker-2 claimed x")
            await until(lambda: pool.board.counts()[REVIEW])
            pool.board.reject("r", "not good enough", worker="critic")
            await until(lambda: pool.board.counts()[REVIEW])
            pool.board.accept("r", worker="critic")
            place.note("go")
            results = await soon(running)
            assert results.ending == "done"
            assert sorted(task for result in results for task in result.tasks) == ["r", "x"]

    asyncio.run(play())


def _outsider() -> Worker:
    return Worker("an-outsider", "human", session="elsewhere")


async def _locked(place: Place, holder: Worker, lease: float | None) -> None:
    async with place.pool(Plans(worker="work"), 1) as pool:
        pool.add_tasks([{"id": "x", "description": "x", "paths": ["a.txt"]}])
        pool.board.lock(["**"], holder, lease=lease)
        running = asyncio.create_task(pool.run_team())
        await asyncio.sleep(2.5)
        assert pool.board.counts()[PENDING] or lease
        if lease is None:
            assert not running.done()
            assert f"waits for others to finish x ({holder.name} holds **)" in [event.text for event in place.events]
            pool.board.unlock(["**"], holder)
        results = await soon(running)
        assert (results.ending, results[0].tasks) == ("done", ["x"])


def test_files_that_an_outsider_gives_back_later(place: Place) -> None:
    asyncio.run(_locked(place, _outsider(), None))


def test_files_that_an_outsider_never_gives_back_are_free_when_the_lease_is_over(place: Place) -> None:
    asyncio.run(_locked(place, _outsider(), 1.5))


def test_files_of_another_team_with_a_worker_of_the_same_name(place: Place) -> None:
    asyncio.run(_locked(place, Worker("worker-1", "agent", session="another team's"), None))


@pytest.mark.parametrize("how", ["given back", "run out"])
def test_files_that_come_back_between_two_looks(place: Place, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Nothing was ready when they were held, and nobody holds them a moment later."""
    looks: list[str] = []

    def come_back_first(board: TaskBoard, sessions: Mapping[str, str]) -> list[str]:
        if not looks and how == "given back":
            board.unlock(["**"], _outsider())
        elif not looks:
            board.lock(["**"], _outsider(), lease=0.3)
        while not looks and board.locks():
            time.sleep(0.1)
        looks.append(how)
        return kept_by_others(board, sessions)

    async def play() -> None:
        async with place.pool(Plans(worker="work"), 1) as pool:
            pool.add_tasks([{"id": "x", "description": "x", "paths": ["a.txt"]}])
            pool.board.lock(["**"], _outsider())
            results = await soon(asyncio.create_task(pool.run_team()))
            assert (results.ending, [result.tasks for result in results]) == ("done", [["x"]])

    monkeypatch.setattr(running, "kept_by_others", come_back_first)
    asyncio.run(play())
    assert looks


def test_files_that_an_idle_worker_of_ours_keeps(place: Place) -> None:
    """It sits there, and its lock is what the work waits for: it is ended, and the work goes on."""
    plans = Plans(
        worker_1=["claim one; lock src/**; complete; note idle; sleep", "work"],
        worker_2=["until worker-1 idle; claim two; complete; work", "work"],
    )
    tasks: list[dict[str, Any]] = [
        {"id": "one", "description": "x"},
        {"id": "two", "description": "y"},
        {"id": "three", "description": "z", "paths": [f"{place.workspace}/src/a.py"], "depends_on": ["two"]},
    ]

    async def play() -> None:
        async with place.pool(plans, 2) as pool:
            pool.add_tasks(tasks)
            results = await soon(pool.run_team())
            settled(pool.board)
            assert results.ending == "done"
            assert sorted(task for result in results for task in result.tasks) == ["one", "three", "two"]
            # By the pool; or by the other worker, if that was still there to see that the holder's process has died.
            released = [(e.agent, e.data["locks"]) for e in place.events if e.kind == "agent_released"]
            swept = [e for e in pool.board.changelog() if e.action == "unlocked_files" and e.worker_type == "system"]
            assert ("worker-1", ["work/src/**"]) in released or swept

    asyncio.run(play())


def test_somebody_else_finishes_what_the_rest_waits_for(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="work"), 2) as pool:
            one, two = pool.add_tasks(
                [{"id": "a", "description": "x"}, {"id": "b", "description": "y", "depends_on": ["a"]}]
            )
            theirs = pool.board.claim(_outsider(), one)
            assert theirs is not None
            running = asyncio.create_task(pool.run_team())
            await asyncio.sleep(1.5)
            assert not running.done()
            theirs.complete("by hand")
            results = await soon(running)
            assert (results.ending, [r.tasks for r in results]) == ("done", [[two]])

    asyncio.run(play())


def test_somebody_else_who_dies_with_a_claim(place: Place) -> None:
    """Provably: the claim comes back long before its lease is over."""
    import subprocess
    import sys

    async def play() -> None:
        async with place.pool(Plans(worker="work"), 1) as pool:
            (task,) = pool.add_tasks(["x"])
            await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", "import sys, dibs; dibs.TaskBoard.open(sys.argv[1]).claim('one')", place.url],
                check=True,
            )
            results = await soon(pool.run_team())
            assert (results.ending, results[0].tasks) == ("done", [task])

    asyncio.run(play())


def test_a_task_that_has_used_up_its_attempts(place: Place) -> None:
    tasks = [{"id": "x", "description": "x", "max_attempts": 1}]
    results = place.run(Plans(worker="claim; exit 1"), 1, tasks=tasks, restarts=5)
    assert results.ending in ("done", "stuck")
    assert results[0].runs <= 2


def test_workers_given_up_are_not_waited_for(place: Place) -> None:
    """One is given up, the other does it all."""
    results = place.run(Plans(worker_1="exit 1", worker_2="work 0.3"), 2, tasks=["a", "b", "c", "d"], restarts=0)
    assert results.ending == "done"
    assert [(r.agent, r.status, len(r.tasks)) for r in results] == [
        ("worker-1", "error", 0),
        ("worker-2", "completed", 4),
    ]


@pytest.mark.parametrize("mode", ["blocked", "cancelled"])
def test_what_people_decide_meanwhile(place: Place, mode: str) -> None:
    async def play() -> AgentPool:
        async with place.pool(Plans(worker="claim x; complete; work"), 1) as pool:
            pool.add_tasks([{"id": "x", "description": "x"}, {"id": "y", "description": "y"}])
            if mode == "blocked":
                pool.board.block("y", "not yet", worker=_outsider())
            else:
                pool.board.cancel("y", "no need", worker=_outsider())
            results = await soon(pool.run_team())
            assert results.ending == ("stuck" if mode == "blocked" else "done")
            assert pool.board.counts()[COMPLETED] == 1
            return pool

    asyncio.run(play())
