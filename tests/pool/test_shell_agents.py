"""Agents that are shell scripts and work by the command `dibs`: what they leave undone comes back, and what they
break keeps nobody from an end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from dibs import AgentPool, TaskBoard
from dibs.model import COMPLETED, IN_PROGRESS, PENDING

PATIENCE = 60.0


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    here = Path(sys.executable).parent  # where the command dibs is
    path.write_text(f'#!/bin/sh\nPATH="{here}:$PATH"\n{text}', "utf-8")
    path.chmod(0o755)
    return str(path)


def run(
    folder: Path, worker: str, *, tasks: list[str], lead: str | None = None, **options: object
) -> tuple[object, AgentPool]:
    async def main() -> tuple[object, AgentPool]:
        agent = script(folder, "worker.sh", worker)
        lead_agent = None if lead is None else script(folder, "lead.sh", lead)
        pool = AgentPool(workspace=folder, agent=[agent], lead_agent=lead_agent and [lead_agent], **options)  # type: ignore[arg-type]
        async with pool, asyncio.timeout(PATIENCE):
            pool.add_tasks(tasks)
            return await pool.run_team("plan" if lead else None), pool

    return asyncio.run(main())


def test_work_that_is_added_on_the_way_home_is_done(tmp_path: Path) -> None:
    worker = "dibs claim; dibs done --result ok; [ -e once ] || { touch once; sleep 1; dibs add more; }\n"
    results, _ = run(tmp_path, worker, tasks=["one"], max_agents=1)
    with TaskBoard.open(f"sqlite:{tmp_path}/.dibs/board.db") as board:
        assert board.counts()[COMPLETED] == 2
    assert results.ending == "done"  # type: ignore[attr-defined]


def test_a_lead_whose_workers_are_all_given_up_is_not_left_waiting(tmp_path: Path) -> None:
    results, _ = run(tmp_path, "exit 1\n", tasks=["one"], lead="sleep 600\n", restarts=0, grace=0.2)
    assert results.ending == "gave up"  # type: ignore[attr-defined]


def test_what_an_agent_took_under_another_name_comes_back_when_it_ends(tmp_path: Path) -> None:
    worker = "[ -e once ] || { touch once; dibs --as helper claim; exit 0; }\ndibs claim && dibs done --result ok\n"
    results, _ = run(tmp_path, worker, tasks=["one"], max_agents=1)
    assert results.ending == "done"  # type: ignore[attr-defined]


def test_a_warden_that_is_stopped_does_not_keep_a_team(tmp_path: Path) -> None:
    results, _ = run(
        tmp_path, "kill -STOP $PPID; dibs claim; sleep 600\n", tasks=["one"], max_agents=1, timeout=1.0, restarts=0
    )
    assert results.ending == "gave up"  # type: ignore[attr-defined]
    with TaskBoard.open(f"sqlite:{tmp_path}/.dibs/board.db") as board:
        assert (board.counts()[PENDING], board.counts()[IN_PROGRESS]) == (1, 0)


def test_an_output_that_became_a_pipe_stops_nobody(tmp_path: Path) -> None:
    worker = 'for log in .dibs/team/*/worker-1.1.log; do rm "$log"; mkfifo "$log"; done; dibs claim; exit 3\n'
    results, _ = run(tmp_path, worker, tasks=["one"], max_agents=1, restarts=0)
    assert results.ending == "gave up"  # type: ignore[attr-defined]


def test_a_team_within_a_team_does_not_wait_for_whoever_started_it(tmp_path: Path) -> None:
    with TaskBoard.open(f"sqlite:{tmp_path}/.dibs/board.db", create=True) as board:
        board.add("outer", id="outer")
    worker = (
        "dibs claim outer\n"
        "dibs add inner\n"
        "dibs team --agents 1 --agent 'sh -c \"dibs claim && dibs done --result ok\"' > inner.txt 2>&1\n"
        "dibs done outer 'the inner team is done'\n"
    )
    results, _ = run(tmp_path, worker, tasks=[], max_agents=1)
    assert results.ending == "done", (tmp_path / "inner.txt").read_text()  # type: ignore[attr-defined]
    with TaskBoard.open(f"sqlite:{tmp_path}/.dibs/board.db") as board:
        assert board.counts()[COMPLETED] == 2


def test_what_commands_claimed_is_free_when_the_pool_and_its_agents_are_killed(tmp_path: Path) -> None:
    """An agent without a server of its own: its commands name the agent's process, whose death anybody can see."""

    async def main() -> None:
        agent = script(tmp_path, "worker.sh", "dibs claim; echo ready; sleep 600\n")
        async with AgentPool(workspace=tmp_path, agent=[agent], max_agents=1) as pool, asyncio.timeout(PATIENCE):
            pool.add_tasks(["one"])
            running = asyncio.create_task(pool.run_team())
            while not pool.agents or "ready" not in pool.agent("worker-1").output():
                await asyncio.sleep(0.05)
            (task,) = pool.board.tasks([IN_PROGRESS])[0]
            assert task.holder is not None
            assert task.holder.pid == pool.agent("worker-1").pid
            with TaskBoard.open(pool.board.url) as other:
                assert other.recover() == []
                os.kill(task.holder.pid or 0, signal.SIGKILL)
                while other.get(task.id).status is IN_PROGRESS and other.recover() == []:
                    await asyncio.sleep(0.05)
                pool.stop()
            await asyncio.wait([running])

    asyncio.run(main())
