"""Agents that die, hang, misbehave or never start: the board ends right each time, and no process is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import AgentPool
from dibs.model import PENDING
from dibs.pool.runners import Launch, Order
from tests.pool.conftest import Place, Plans, Words, settled, soon, together

ACCIDENTS = {
    "kill": "killed by SIGKILL",
    "exit 3": "exit code 3",
    "say it broke; exit 1": "exit code 1: it broke",
    "exit 0": None,
    "lock src/**; exit 0": None,
    "lock src/**; kill": "killed by SIGKILL",
    "release; exit 0": None,
    "child deaf + sleep; exit 0": None,
    "close; exit 1": "exit code 1",
}


def test_what_an_agent_held_when_it_ended_is_given_back_and_done_by_another(place: Place) -> None:
    together(
        *(_accident(place.beside(f"{n}"), accident, error) for n, (accident, error) in enumerate(ACCIDENTS.items()))
    )


async def _accident(place: Place, accident: str, error: str | None) -> None:
    plans = Plans(worker=[f"claim; {accident}", "work"])
    results = await place.play(plans, 1, tasks=["x", {"description": "y", "paths": ["y.txt"]}])
    assert (results.ending, results[0].runs, len(results[0].tasks)) == ("done", 2, 2), accident
    assert (results[0].status, results[0].exit_code, results[0].error) == ("completed", 0, None), accident
    ended = next(event for event in place.events if event.kind == "agent_ended")
    assert (ended.data["status"], ended.data["error"]) == ("completed" if error is None else "error", error)
    assert "agent_restarts" in place.kinds("worker-1")
    if "release" not in accident:
        released = next(event for event in place.events if event.kind == "agent_released")
        assert len(released.data["tasks"]) == 1
        assert [lock.endswith("src/**") for lock in released.data["locks"]] == [True] * ("lock" in accident)


def test_an_agent_whose_time_is_over_is_ended(place: Place) -> None:
    ways = ["sleep", "stop", "deaf; stop", "close; sleep", "child deaf + sleep; sleep"]
    together(*(_hanging(place.beside(f"{n}"), way) for n, way in enumerate(ways)))


async def _hanging(place: Place, way: str) -> None:
    plans = Plans(worker=[f"claim; {way}", "work"])
    results = await place.play(plans, 1, tasks=["x"], timeout=1.0, stale_timeout=60)
    assert (results.ending, results[0].runs) == ("done", 2), way
    ended = next(event for event in place.events if event.kind == "agent_ended")
    assert (ended.data["status"], ended.data["error"]) == ("timeout", "its time was over after 1 s"), way


def test_an_agent_that_does_not_want_to_end_is_killed(place: Place) -> None:
    results = place.run(Plans(worker="claim; deaf; complete; child deaf + sleep; sleep"), 1, tasks=["x"], grace=0)
    assert (results.ending, results[0].status, results[0].exit_code) == ("done", "completed", -signal.SIGKILL)


def test_restarts_are_limited_and_the_reason_is_said(place: Place) -> None:
    plans = Plans(worker="claim; say no money left; exit 1")
    results = place.run(plans, 1, tasks=["x"], restarts=1)
    assert plans.starts == ["worker-1"] * 2
    assert results.ending == "gave up"
    assert results.why == "1 task is open, and every worker has been given up: exit code 1: no money left"
    assert (results[0].status, results[0].error) == ("error", "exit code 1: no money left")
    assert place.kinds("worker-1").count("agent_gave_up") == 1
    assert place.board.counts()[PENDING] == 1


def test_a_task_that_is_finished_makes_up_for_failures_before(place: Place) -> None:
    plans = Plans(worker=["exit 1", "claim; complete; exit 1", "exit 1", "work"])
    results = place.run(plans, 1, tasks=["x", "y"], restarts=1)
    assert (results.ending, results[0].runs) == ("done", 4)


def test_without_restarts_one_failure_is_enough(place: Place) -> None:
    plans = Plans(worker="exit 1")
    assert place.run(plans, 2, tasks=["x", "y"], restarts=0).ending == "gave up"
    assert sorted(plans.starts) == ["worker-1", "worker-2"]


def _missing(place: Place) -> Words:
    return Words(str(place.path / "nowhere"))


def _not_executable(place: Place) -> Words:
    (place.path / "plain").write_text("#!/bin/sh\n")
    return Words(str(place.path / "plain"))


def _no_interpreter(place: Place) -> Words:
    (place.path / "script").write_text("#!/nowhere/python\n")
    (place.path / "script").chmod(0o755)
    return Words(str(place.path / "script"))


def _directory(place: Place) -> Words:
    return Words(str(place.workspace))


def _no_format(place: Place) -> Words:
    (place.path / "bytes").write_bytes(b"\x7fELF nonsense")
    (place.path / "bytes").chmod(0o755)
    return Words(str(place.path / "bytes"))


def test_a_program_that_cannot_be_started(place: Place) -> None:
    makers = (_missing, _not_executable, _no_interpreter, _directory, _no_format)
    together(*(_never_started(place.beside(make.__name__), make) for make in makers))


async def _never_started(place: Place, make: Callable[[Place], Words]) -> None:
    runner = make(place)
    results = await place.play(runner, 2, tasks=["x"], restarts=0)
    assert results.ending == "gave up"
    assert results.why.startswith("1 task is open, and every worker has been given up: ")
    assert f"{runner.name} could not be started: program: " in results.why
    assert all((r.status, r.exit_code, r.tasks) == ("error", None, []) for r in results)


@pytest.mark.parametrize("argv", [[], ["sh", "-c", "nul\0"], ["sh", "-c", "true", "\udcff"]])
def test_a_runner_that_makes_no_command(place: Place, argv: list[str]) -> None:
    class Odd(Words):
        def __init__(self) -> None:
            super().__init__("odd")
            self._argv = tuple(argv)

    results = place.run(Odd(), 1, tasks=["x"], restarts=0)
    assert results.ending == "gave up"
    if not argv or "\0" in argv[-1]:
        assert "could not be started" in results.why


class Breaking(Plans):
    """A runner with a bug of its own."""

    def launch(self, order: Order) -> Launch:
        if order.name == "worker-2":
            raise KeyError("a bug")
        return super().launch(order)


def test_a_runner_that_raises_leaves_no_process(place: Place) -> None:
    with pytest.raises(KeyError, match="a bug"):
        place.run(Breaking(worker="claim; sleep"), 2, tasks=["x", "y"])
    assert place.left() == []
    settled(place.board)


def test_output_without_end_or_sense_is_kept_and_shown_in_part(place: Place) -> None:
    results = place.run(Plans(worker=["claim; garbage; exit 1", "garbage; work"]), 1, tasks=["x"], tail=True)
    assert results.ending == "done"
    assert len(results[0].output) <= 65_536
    assert "owned" in results[0].output
    assert results[0].output_file is not None
    assert os.path.getsize(results[0].output_file) > 4_000_000
    ended = next(event for event in place.events if event.kind == "agent_ended")
    assert len(ended.data["error"]) < 400


def test_the_last_line_of_an_agent_that_fails_says_why(place: Place) -> None:
    results = place.run(Plans(worker="say first; say last; say ; exit 2"), 1, tasks=["x"], restarts=0)
    assert results[0].error == "exit code 2: last"
    assert results[0].output == "first\nlast\n\n"


@pytest.mark.parametrize("victim", ["agent", "warden"])
def test_an_agent_or_its_warden_is_killed(place: Place, victim: str) -> None:
    async def play() -> None:
        plans = Plans(worker=["child deaf + note below + sleep; claim; sleep", "work"])
        async with place.pool(plans, 1) as pool:
            (task,) = pool.add_tasks(["x"])
            running = asyncio.create_task(pool.run_team())
            await place.noted(f"worker-1 claimed {task}")
            await place.noted("worker-1 below")
            pid = pool.agents[0].pid
            assert pid is not None
            if victim == "agent":
                assert pool.kill("worker-1")
            else:
                os.kill(parent(pid), signal.SIGKILL)
            results = await soon(running)
            assert place.left() == []
            settled(pool.board)
            assert (results.ending, results[0].runs, results[0].tasks) == ("done", 2, [task])
            assert not pool.kill("worker-1")
        ended = next(event for event in place.events if event.kind == "agent_ended")
        assert ended.data["error"] == "killed by SIGKILL"

    asyncio.run(play())


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_children_in_sessions_of_their_own_end_with_the_agent(place: Place) -> None:
    plans = Plans(worker="child deaf + child deaf % sleep + sleep; claim; complete; exit 0")
    results = place.run(plans, 1, tasks=["x"])
    assert (results.ending, results[0].status) == ("done", "completed")


def test_an_agent_that_is_never_the_same_process_for_long(place: Place) -> None:
    """Whoever looks for it among the processes misses it now and then; the warden does not take that for its end."""
    results = place.run(Plans(worker="child hop 1.5; claim; complete"), 1, tasks=["x"], grace=0.5)
    assert results.ending == "done"


def test_the_folder_of_the_run_is_removed_meanwhile(place: Place) -> None:
    """By somebody who clears up: the agents end all the same."""
    import shutil

    async def play() -> None:
        async with place.pool(Plans(worker="claim; sleep"), 1) as pool:
            (task,) = pool.add_tasks(["x"])
            running = asyncio.create_task(pool.run_team())
            await place.noted(f"worker-1 claimed {task}")
            shutil.rmtree(pool.folder)
            pool.stop()
            with pytest.raises((asyncio.CancelledError, OSError)):
                await soon(running)
            assert place.left() == []
            settled(pool.board)

    asyncio.run(play())


def test_all_workers_given_up_end_the_run_while_an_outsider_works_on(place: Place) -> None:
    place_board = place.pool(Plans(worker="exit 1"), 1, restarts=0)

    async def play(pool: AgentPool) -> None:
        async with pool:
            pool.add_tasks(["theirs", "ours"])
            assert pool.board.claim("an-outsider") is not None
            results = await soon(pool.run_team())
            assert results.ending == "gave up"

    asyncio.run(play(place_board))
    assert place.left() == []


def test_a_pipe_in_place_of_its_next_output_does_not_hold_up_the_pool(place: Place) -> None:
    plans = Plans(worker=["command mkfifo $(dirname $DIBS_TEAM)/worker-1.2.log; exit 1", "work"])
    results = place.run(plans, 1, tasks=["x"])
    assert (results.ending, results[0].runs) == ("done", 3)
