"""Agents' processes for asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dibs.pool.processes import LOST, AgentProcess, end_stragglers, stragglers
from tests.pool.conftest import PATIENCE, Place, soon, until


async def start(place: Place, *argv: str, session: str = "s-1") -> AgentProcess:
    env = {**os.environ, "DIBS_SESSION": session}
    return await AgentProcess.start(argv, env=env, cwd=str(place.workspace), output=str(place.path / "output"))


def test_from_start_to_end(place: Place) -> None:
    async def play() -> None:
        process = await start(place, "sh", "-c", "echo $$; exit 3")
        assert await soon(process.wait()) == 3
        assert (place.path / "output").read_text() == f"{process.pid}\n"
        assert place.left() == []
        process.end(1)  # too late, which is no matter
        process.kill_all()
        process.kill()

    asyncio.run(play())


def test_what_cannot_be_started_is_an_error_of_the_system(place: Place) -> None:
    async def play() -> None:
        for _ in range(3):
            with pytest.raises(FileNotFoundError, match="program: No such file"):
                await start(place, "/nowhere/at/all")
        assert place.left() == []

    asyncio.run(play())


def test_ending_and_killing(place: Place) -> None:
    async def play() -> None:
        polite = await start(place, "sleep", "60")
        polite.end(30)
        deaf = await start(place, "sh", "-c", "trap '' TERM; touch deaf; sleep 60; sleep 60")
        await until((place.workspace / "deaf").exists)
        deaf.end(0.2)
        own = await start(place, "sh", "-c", "sleep 60 & sleep 60")
        own.kill()
        every = await start(place, "sh", "-c", "sleep 60 & sleep 60")
        every.kill_all()
        codes = await soon(asyncio.gather(*(each.wait() for each in (polite, deaf, own, every))))
        assert codes == [-signal.SIGTERM, -signal.SIGKILL, -signal.SIGKILL, codes[3]]
        assert codes[3] in (-signal.SIGTERM, -signal.SIGKILL)
        assert place.left() == []

    asyncio.run(play())


def test_many_at_once(place: Place) -> None:
    async def play() -> None:
        started = await asyncio.gather(*(start(place, "sh", "-c", f"exit {n}", session=f"s-{n}") for n in range(20)))
        assert await soon(asyncio.gather(*(each.wait() for each in started))) == list(range(20))

    asyncio.run(play())


def test_a_cancelled_start_leaves_nothing(place: Place) -> None:
    async def play() -> None:
        for moment in range(8):
            starting = asyncio.create_task(start(place, "sleep", "60"))
            await asyncio.sleep(moment * 0.01)
            starting.cancel()
            try:
                process = await starting
            except asyncio.CancelledError:
                continue
            process.kill_all()
            await soon(process.wait())
        await until(lambda: place.left() == [])
        await asyncio.sleep(0.3)  # until asyncio has noticed, too

    asyncio.run(play())


def test_a_lost_warden_is_noticed_and_what_it_left_is_killed(place: Place) -> None:
    async def play() -> None:
        process = await start(place, "sh", "-c", "setsid sleep 60 & touch here; sleep 60", session="lost")
        other = await start(place, "sleep", "60", session="lost-not")
        await until((place.workspace / "here").exists)
        warden = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(warden, signal.SIGKILL)
        assert await soon(process.wait()) == LOST
        assert stragglers("lost") == []
        assert stragglers("lost-not") == [other.pid]
        other.kill_all()
        await soon(other.wait())

    asyncio.run(play())


def test_stragglers_are_found_by_their_session_alone(place: Place) -> None:
    env = {**os.environ, "DIBS_SESSION": "found"}
    strays = [subprocess.Popen(["sleep", "60"], env=env, start_new_session=True) for _ in range(3)]
    try:
        end = time.monotonic() + PATIENCE
        while sorted(stragglers("found")) != sorted(stray.pid for stray in strays):  # in the midst of exec it has none
            assert time.monotonic() < end
        assert stragglers("foun") == []
        end_stragglers("found")
        assert [stray.wait(PATIENCE) for stray in strays] == [-signal.SIGKILL] * 3
        assert end_stragglers("found") == 0
    finally:
        for stray in strays:
            stray.kill()
            stray.wait()


def test_not_even_this_process_is_taken_for_a_straggler(place: Place) -> None:
    code = "import dibs.pool.processes as p; print(p.end_stragglers('mine'))"
    env = {**os.environ, "DIBS_SESSION": "mine"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n")
