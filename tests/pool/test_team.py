"""A team, from its beginning to its end: who is started when, what they are told, what comes out of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.errors import Invalid
from dibs.model import COMPLETED, Worker
from dibs.pool import running
from dibs.pool.standing import look
from tests.pool.conftest import Place, Plans, settled, soon, until


def test_workers_do_every_task_once_and_go_home(place: Place) -> None:
    plans = Plans(worker="work 0.05")
    results = place.run(plans, 3, tasks=[f"task {n}" for n in range(9)])
    assert (results.ending, results.why) == ("done", "all 9 tasks of the board are closed")
    assert sorted(task for result in results for task in result.tasks) == sorted(t.id for t in place.board.tasks()[0])
    assert [(r.agent, r.role, r.status, r.error, r.exit_code, r.runs) for r in results] == [
        (f"worker-{n}", "worker", "completed", None, 0, 1) for n in (1, 2, 3)
    ]
    assert all(0 < r.duration <= results.seconds + 1 for r in results)
    assert sorted(plans.starts) == ["worker-1", "worker-2", "worker-3"]
    assert place.kinds()[0] == "run_started"
    assert place.kinds()[-1] == "run_ended"
    assert Counter(place.kinds())["agent_started"] == Counter(place.kinds())["agent_ended"] == 3
    actions = Counter(e.data["action"] for e in place.events if e.kind == "board")
    assert (actions["claimed_activity"], actions["completed_activity"]) == (9, 9)


def test_no_more_workers_are_started_than_there_is_work_for(place: Place) -> None:
    plans = Plans(worker="work 0.1")
    results = place.run(plans, 8, tasks=["x", "y"])
    assert (results.ending, sorted(plans.starts), len(results)) == ("done", ["worker-1", "worker-2"], 2)


def test_workers_that_end_when_nothing_is_left_are_started_again_when_there_is(place: Place) -> None:
    tasks = [{"id": "a", "description": "a"}] + [
        {"id": b, "description": b, "depends_on": [a]} for a, b in zip("abcd", "bcde", strict=True)
    ]
    results = place.run(Plans(worker="claim; complete"), 1, tasks=tasks)
    assert (results.ending, results[0].tasks, results[0].runs) == ("done", list("abcde"), 5)


def test_workers_wait_while_the_lead_plans(place: Place) -> None:
    """Nothing is to be done for a while, twice; the workers stay, and each runs once."""
    lead = "add first; until goes; until goes; add second; add third; until go on; add last"

    async def play() -> None:
        plans = Plans(lead=lead, worker="work")
        async with place.pool(plans, 2) as pool:
            running = asyncio.create_task(pool.run_team("Plan it."))
            await until(lambda: pool.board.counts()[COMPLETED] == 1)
            worker = next(agent for agent in pool.agents if agent.run and agent.role == "worker")
            await asyncio.sleep(1.5)  # longer than the pool's pulse
            assert worker.state == "running"
            place.note("goes")
            await until(lambda: pool.board.counts()[COMPLETED] == 3)
            assert not running.done()
            place.note("go on")
            results = await soon(running)
            settled(pool.board)
            assert place.left() == []
        assert (results.ending, results.why) == ("done", "all 4 tasks of the board are closed")
        assert [(r.agent, r.role) for r in results][:2] == [("lead", "lead"), ("worker-1", "worker")]
        assert {r.runs for r in results} == {1}
        assert results[0].tasks == []
        assert sum(len(r.tasks) for r in results) == 4

    asyncio.run(play())


def test_what_lead_and_workers_are_told(place: Place) -> None:
    plans = Plans(lead="prompt; add x", worker="prompt; work")
    results = place.run(plans, 3, lead="Build the\nthing.")
    lead, worker = results
    assert "You are lead, the lead of a team of up to 3 workers" in lead.output
    assert "Build the\nthing." in lead.output
    assert "You are worker-1, a worker in a team led by lead." in worker.output
    assert "worktree" not in worker.output
    assert plans.prompts[0] + "\n" == lead.output


def test_a_prompt_of_ones_own(place: Place) -> None:
    results = place.run(Plans(worker="prompt; work"), 1, tasks=["x"], worker_prompt="Do as you like. ☃\udcff")
    assert results.ending == "done"
    assert results[0].output.startswith("Do as you like. ☃")


def test_what_agents_find_in_their_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_JSON", "1")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "somebody else's")
    names = ["DIBS_" + name for name in ("AGENT", "KIND", "BOARD", "STALE_TIMEOUT", "JSON")]
    names += ["CLAUDE_CODE_SESSION_ID", "DIBS_SESSION"]
    steps = "; ".join(f"echo {name}" for name in names)
    results = place.run(Plans(worker=f"{steps}; pwd; work"), 1, tasks=["x"], stale_timeout=77)
    *said, session, cwd = results[0].output.splitlines()
    assert said == ["worker-1", "agent", place.url, "77", "None", "None"]
    assert session
    assert cwd == str(place.workspace)


def test_a_lease_is_as_long_as_the_time_an_agent_has(place: Place) -> None:
    results = place.run(Plans(worker="echo DIBS_STALE_TIMEOUT; work"), 1, tasks=["x"], timeout=33)
    assert results[0].output == "33\n"


def test_a_board_that_is_named_from_another_folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.path)
    assert place.run(Plans(worker="work"), 1, tasks=["x"], board="sqlite:relative.db").ending == "done"
    assert (place.path / "relative.db").exists()


def test_without_a_board_the_workspace_gets_one(place: Place) -> None:
    assert place.run(Plans(worker="work"), 1, tasks=["x"], board=None).ending == "done"
    assert list((place.workspace / ".dibs").glob("*.db"))


def test_a_lead_that_fails_before_it_has_added_anything(place: Place) -> None:
    results = place.run(Plans(lead="say no idea; exit 1", worker="work"), lead="Plan.")
    assert results.ending == "gave up"
    assert results.why == "the lead ended before it had added a task: exit code 1: no idea"
    assert [(r.agent, r.status, r.runs) for r in results] == [("lead", "error", 1)]


def test_a_lead_that_fails_leaves_its_tasks_to_the_workers(place: Place) -> None:
    results = place.run(Plans(lead="add x; claim; exit 1", worker="work"), lead="Plan.")
    assert results.ending == "done"
    assert [r.status for r in results] == ["error", "completed"]


def test_a_lead_whose_time_is_over(place: Place) -> None:
    results = place.run(Plans(lead="add x; sleep", worker="work"), lead="Plan.", timeout=1.5)
    assert (results.ending, results[0].status) == ("done", "timeout")


def test_a_lead_of_another_kind(place: Place) -> None:
    results = place.run(Plans(worker="work"), lead="Plan.", lead_agent=Plans(lead="add x; say planned"))
    assert (results.ending, results[0].output) == ("done", "planned\n")


def test_a_lead_that_adds_nothing(place: Place) -> None:
    results = place.run(Plans(lead="exit 0", worker="work"), lead="Plan.")
    assert (results.ending, results.why, len(results)) == ("done", "the board has no tasks", 1)


def test_a_board_without_tasks_and_no_lead(place: Place) -> None:
    results = place.run(Plans(worker="work"))
    assert (results.ending, results.why, list(results)) == ("done", "the board has no tasks", [])


def test_failed_tasks_are_closed_and_said(place: Place) -> None:
    results = place.run(Plans(worker="claim; fail; work"), 1, tasks=["x", "y"])
    assert results.ending == "done"
    assert results.why == "all 2 tasks of the board are closed, 1 of them failed or cancelled"
    assert len(results[0].tasks) == 1


def test_tasks_may_be_added_while_agents_work(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="work 0.2"), 2) as pool:
            first = pool.add_tasks(["x"])
            running = asyncio.create_task(pool.run_team())
            await place.noted(f"worker-1 claimed {first[0]}")
            second = pool.add_tasks([{"description": "y", "depends_on": first}, "z"])
            results = await soon(running)
            assert sorted(t for r in results for t in r.tasks) == sorted(first + second)

    asyncio.run(play())


def test_a_pool_may_run_again(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="say run; work"), 1) as pool:
            for _ in range(3):
                (task,) = pool.add_tasks(["x"])
                results = await soon(pool.run_team())
                assert (results.ending, results[0].status, results[0].tasks) == ("done", "completed", [task])
                assert results[0].output == "run\n"

    asyncio.run(play())


def test_looking_at_a_team_at_work(place: Place) -> None:
    async def play() -> None:
        plans = Plans(
            worker_1="say one; say two; claim; until go; complete; work", worker_2="claim; until go; complete"
        )
        async with place.pool(plans, 2, tail=True) as pool:
            with pytest.raises(Invalid, match="no agent"):
                pool.tail("worker-1")
            ids = pool.add_tasks(["x", "y", {"description": "z", "reserved": "human"}, "w"])
            running = asyncio.create_task(pool.run_team())
            await until(lambda: len(pool.standing().claims) == 2)
            standing = pool.standing()
            assert {len(standing.holding[name]) for name in ("worker-1", "worker-2")} == {1}
            assert (standing.total, standing.ready, standing.open) == (4, 1, 4)
            assert pool.tail("worker-1", 1) == ["two"]
            first = pool.agent("worker-1")
            assert (first.state, first.run, first.role) == ("running", 1, "worker")
            assert first.pid is not None
            place.note("go")
            results = await soon(running)
            assert results.ending == "stuck"
            assert ids[2] in results.why
            assert first.state != "running"
            assert first.pid is None

    asyncio.run(play())
    told = [event.text for event in place.events if event.kind == "output"]
    assert told == ["one", "two"]


def test_every_line_is_told_whole_and_once(place: Place) -> None:
    """Also one that is printed in two parts, and those that are printed last, or before a restart."""
    steps = "say first; part be; sleep 0.5; part gin; sleep 0.5; say ning; claim; say last words; exit 1"
    place.run(Plans(worker=[steps, "work; say good; part bye"]), 1, tasks=["x"], tail=True)
    told = [event.text for event in place.events if event.kind == "output"]
    assert told == ["first", "beginning", "last words", "good", "bye"]


def test_no_worker_is_started_twice_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end all the time, most of them while the pool looks at the board; each start notes its begin and end."""

    def slowly(*given: Any) -> Any:
        time.sleep(0.2)
        return look(*given)

    monkeypatch.setattr(running, "look", slowly)
    stamp = 'command echo "$DIBS_SESSION {}" >> "$POOL_NOTES/$DIBS_AGENT"'
    begins, ends = stamp.format("begins"), stamp.format("ends")
    plans = Plans(worker=[f"{begins}; claim; complete; {ends}", f"{begins}; claim; sleep 1.6; complete; {ends}"])
    results = place.run(plans, 4, tasks=["x"] * 10)
    assert (results.ending, sum(len(result.tasks) for result in results)) == ("done", 10)
    for result in results:
        words = [line.split()[1] for line in (place.notes / result.agent).read_text().splitlines()]
        assert words.count("begins") == result.runs
        assert words == (["begins", "ends"] * result.runs)[: len(words)]


# -- two teams


def test_two_teams_share_a_board_with_agents_of_the_same_names(place: Place) -> None:
    async def play() -> None:
        pools = [place.pool(Plans(worker="work 0.02"), 2, folder=place.path / side / "out") for side in ("a", "b")]
        async with pools[0], pools[1]:
            ids = pools[0].add_tasks([f"task {n}" for n in range(20)])
            both = await soon(asyncio.gather(*(pool.run_team() for pool in pools)))
            assert place.left() == []
            settled(pools[0].board)
        assert [results.ending for results in both] == ["done", "done"]
        did = [[task for result in results for task in result.tasks] for results in both]
        assert sorted(did[0] + did[1]) == sorted(ids)

    asyncio.run(play())
    claims = Counter(
        e.data["task_id"] for e in place.events if e.kind == "board" and e.data["action"] == "claimed_activity"
    )
    assert set(claims.values()) == {2}  # both teams have heard of each, once


def test_what_another_team_does_is_not_ours(place: Place) -> None:
    """A worker of the same name, of another session, has claimed before we began, and completes while we work."""
    other = Worker("worker-1", "agent", session="another team's")

    async def play() -> None:
        async with place.pool(Plans(worker="claim; until go; complete; work"), 1) as pool:
            theirs, ours = pool.add_tasks(["theirs", "ours"])
            pool.board.claim(other, theirs)
            pool.board.lock(["a.txt"], other)
            running = asyncio.create_task(pool.run_team())
            await place.noted(f"worker-1 claimed {ours}")
            pool.board.complete(theirs, worker=other)
            place.note("go")
            results = await soon(running)
            assert (results.ending, results[0].tasks) == ("done", [ours])
            assert [lock.holder.session for lock in pool.board.locks()] == ["another team's"]

    asyncio.run(play())


def test_what_another_team_holds_is_not_given_back(place: Place) -> None:
    other = Worker("worker-1", "agent", session="another team's")

    async def play() -> None:
        async with place.pool(Plans(worker=["claim; kill", "work"]), 1) as pool:
            theirs, ours = pool.add_tasks(["theirs", "ours"])
            pool.board.claim(other, theirs)
            running = asyncio.create_task(pool.run_team())
            await until(lambda: pool.board.get(ours).status is COMPLETED)
            task = pool.board.get(theirs)
            assert task.holder is not None
            assert task.holder.session == "another team's"
            assert not running.done()
            pool.board.complete(theirs, worker=other)
            assert (await soon(running)).ending == "done"

    asyncio.run(play())


def test_a_folder_of_ones_own(place: Place) -> None:
    results = place.run(Plans(worker="work"), 1, tasks=["x"], folder=place.path / "my run")
    assert Path(results[0].output_file or "").parent == place.path / "my run"


def test_document_004s_board_in_a_folder(place: Place) -> None:
    results = place.run(Plans(worker="work"), 2, tasks=["x", "y"], state_dir=place.path / "state")
    assert results.ending == "done"
    assert (place.path / "state" / "taskboard.json").exists()
    board = TaskBoard(state_dir=place.path / "state")
    assert board.all_done
