"""Ctrl-C, cancellation, `stop`, errors of the caller: everything is ended, and what agents held is given back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import AgentPool
from dibs.model import COMPLETED, IN_PROGRESS, PENDING
from dibs.pool.results import PoolEvent
from tests.pool.conftest import ACTORS, NAP, PATIENCE, Place, Plans, settled, soon

BELOW = "child deaf + sleep; claim"


class Program:
    """A pool in a process of its own, with two tasks on its board."""

    def __init__(self, place: Place, steps: str) -> None:
        self.place = place
        AgentPool(board=place.url, workspace=place.workspace, agent=["true"])._open()
        with place.board as board:
            self.tasks = board.add_many([{"description": "x"}, {"description": "y"}])
        words = [sys.executable, "-P", str(ACTORS / "pooling.py"), place.url, str(place.workspace), steps]
        env = {**os.environ, "POOL_NOTES": str(place.notes)}
        self.process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(NAP)

    def busy(self) -> None:
        """Both agents are in the middle of a task."""
        self.wait_until(lambda: len(list(self.place.notes.glob("* claimed *"))) == 2)

    def gone(self) -> None:
        self.wait_until(lambda: self.place.left() == [])

    def counts(self) -> tuple[int, int]:
        with self.place.board as board:
            counts = board.counts()
            return counts[PENDING], counts[IN_PROGRESS]


@pytest.fixture
def start(place: Place) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def begin(steps: str, where: Place = place) -> Program:
        started.append(Program(where, steps))
        return started[-1]

    yield begin
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()


def test_ctrl_c_ends_everything_and_gives_it_back(start: Callable[..., Program], place: Place) -> None:
    program = start(f"{BELOW}; sleep")
    program.busy()
    program.process.send_signal(signal.SIGINT)
    _, errors = program.process.communicate(timeout=PATIENCE)
    assert program.process.returncode in (-signal.SIGINT, 128 + signal.SIGINT, 1)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert place.left() == []
    assert program.counts() == (2, 0)


def test_a_second_ctrl_c_kills_at_once(start: Callable[..., Program], place: Place) -> None:
    program = start("deaf; claim; sleep")
    program.busy()
    program.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert program.process.poll() is None
    program.process.send_signal(signal.SIGINT)
    program.process.communicate(timeout=3.0)  # less than what agents have to end in
    program.gone()
    with place.board as board:
        board.recover()
    assert program.counts() == (2, 0)


def test_nothing_outlives_the_pool(start: Callable[..., Program], place: Place) -> None:
    """However it dies. Agents that do not want to hear of it are told that the team is over before they are killed."""
    ways = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]
    programs = [start(f"{BELOW}; sleep", place.beside(str(number))) for number in ways]
    last = start("deaf; claim; sleep 2; complete; claim; note heard; sleep", place.beside("last"))
    for program, number in zip(programs, ways, strict=True):
        program.busy()
        program.process.send_signal(number)
    last.wait_until(lambda: last.place.board.counts()[COMPLETED] == 2)
    last.process.kill()
    last.wait_until(lambda: len(list(last.place.notes.glob("* heard"))) == 2)
    for program in [*programs, last]:
        program.process.communicate(timeout=PATIENCE)
        program.gone()
    for program in programs:
        with program.place.board as board:
            board.recover()
            settled(board)
        assert program.counts() == (2, 0)


# -- from inside


async def _interrupted(place: Place, interrupt: Callable[[AgentPool, asyncio.Task[Any]], Any], expected: Any) -> None:
    async with place.pool(Plans(worker=f"{BELOW}; sleep")) as pool:
        ids = pool.add_tasks(["x", "y"])
        running = asyncio.create_task(pool.run_team())
        for n in (1, 2):
            await place.claimed(f"worker-{n}")
        interrupt(pool, running)
        with pytest.raises(expected):
            await soon(running)
        assert place.left() == []
        settled(pool.board)
        assert pool.board.counts()[PENDING] == len(ids)
        assert {agent.state for agent in pool.agents} == {"ended"}


def test_stop(place: Place) -> None:
    asyncio.run(_interrupted(place, lambda pool, _: pool.stop(), asyncio.CancelledError))


def test_cancelling_the_task(place: Place) -> None:
    asyncio.run(_interrupted(place, lambda _, running: running.cancel(), asyncio.CancelledError))


def test_stopping_again_and_again(place: Place) -> None:
    def often(pool: AgentPool, _: object) -> None:
        for delay in range(10):
            asyncio.get_running_loop().call_later(delay / 20, pool.stop)

    asyncio.run(_interrupted(place, often, asyncio.CancelledError))


def test_a_limit_of_time_around_the_run(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="claim; sleep")) as pool:
            pool.add_tasks(["x"])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await pool.run_team()
            assert place.left() == []
            settled(pool.board)

    asyncio.run(play())


def test_stop_without_a_run_does_nothing(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker="work")) as pool:
            pool.stop()
            pool.add_tasks(["x"])
            assert (await soon(pool.run_team())).ending == "done"
            pool.stop()
            await asyncio.sleep(0)

    asyncio.run(play())


def test_an_error_in_the_body_ends_a_run_that_goes_on_beside_it(place: Place) -> None:
    async def play() -> None:
        async with place.pool(Plans(worker=f"{BELOW}; sleep")) as pool:
            pool.add_tasks(["x"])
            running = asyncio.create_task(pool.run_team())
            await place.claimed("worker-1")
            raise ZeroDivisionError
        await running

    with pytest.raises(ZeroDivisionError):
        asyncio.run(play())
    assert place.left() == []
    settled(place.board)


# -- callbacks


def test_a_callback_that_raises_is_logged_and_hurts_nobody(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: PoolEvent) -> None:
        raise ZeroDivisionError(event.kind)

    with caplog.at_level(logging.ERROR, "dibs.pool"):
        assert place.run(Plans(worker="work"), tasks=["x", "y"], on_event=bad).ending == "done"
    assert "run_ended" in caplog.text


def test_an_async_callback_is_waited_for(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def slow(event: PoolEvent) -> None:
        await asyncio.sleep(0.05)
        seen.append(event.kind)
        if event.kind == "run_ended":
            raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "dibs.pool"):
        assert place.run(Plans(worker="work"), tasks=["x"], on_event=slow).ending == "done"
    assert (seen[0], seen[-1]) == ("run_started", "run_ended")
    assert "ZeroDivisionError" in caplog.text


def test_a_slow_callback_only_slows_things_down(place: Place) -> None:
    results = place.run(Plans(worker="work"), tasks=["x", "y"], on_event=lambda _: time.sleep(0.1))
    assert (results.ending, len(results[0].tasks + results[-1].tasks) >= 2) == ("done", True)


def test_a_callback_may_stop_the_run(place: Place) -> None:
    async def play() -> None:
        def stop(event: PoolEvent) -> None:
            if event.kind == "board" and event.data["action"] == "claimed_activity":
                pool.stop()

        async with place.pool(Plans(worker="claim; sleep"), on_event=stop) as pool:
            pool.add_tasks(["x"])
            with pytest.raises(asyncio.CancelledError):
                await soon(pool.run_team())
            assert place.left() == []
            settled(pool.board)

    asyncio.run(play())


def test_what_is_written_down(place: Place) -> None:
    """The folder of a run is for its user's eyes only; outputs are in it."""
    results = place.run(Plans(worker="say hello; work"), 1, tasks=["x"])
    assert results[0].output == "hello\n"
    path = Path(results[0].output_file or "")
    assert path.read_text() == "hello\n"
    assert path.name == "worker-1.1.log"
    assert os.stat(path).st_mode & 0o077 == 0
    assert os.stat(path.parent).st_mode & 0o077 == 0
    assert path.parent.parent == place.workspace / ".dibs" / "team"
