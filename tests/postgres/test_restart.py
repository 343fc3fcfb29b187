"""A server that crashes and comes back: nothing acknowledged is lost, and workers go on by themselves."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from dibs import DibsError, TaskBoard
from tests.postgres.actors import AS_ACTOR, TRANSIENT, Crowd, Tale, assert_whole, board_of, crowd_of
from tests.postgres.server import Server, server_for_test
from tests.processes.harness import Crew, new_seed, wait_until
from tests.processes.harness import crew as crew


@pytest.fixture
def durable() -> Iterator[Server]:
    """One of this test's own, which syncs."""
    server_for_test()  # says what to install, where there is none
    with Server.start(durable=True) as started:
        yield started


def crashed(durable: Server, crew: Crew, processes: int, crashes: int) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    with board_of(durable) as url:
        with TaskBoard.open(url, worker="maker") as board:
            board.add_many([{"description": f"task {n}"} for n in range(2000)])
        crowd = crowd_of(crew, processes, "persist", url, "worker-{n}", seed)
        crowd.go()
        for number in range(crashes):
            heard = len(crowd.actor.heard)
            wait_until(at_work(crowd, heard, 50), "work")
            time.sleep(rng.random() * 0.3)
            if number % 3 == 2:
                durable.kill()
            else:
                durable.stop("immediate")
            time.sleep(rng.random() * 0.5)
            durable.restart("immediate")
        heard = len(crowd.actor.heard)
        wait_until(
            lambda: crowd.actor.listen() and workers(crowd.actor.heard[heard:]) == processes, "all at work again"
        )
        crowd.stop()
        said = crowd.lines()
        tale = Tale(said)
        with assert_whole(url) as board:
            happened = tale.assert_told_by(list(board.changelog()))
    print(
        f"0 of {tale.acknowledged:,} acknowledged calls lost and 0 events without a call in {crashes} crashes of the"
        f" server; {tale.unknown} outcomes unknown ({happened} had happened), {tale.errors} errors: {tale.codes}"
    )
    assert set(tale.codes) <= set(TRANSIENT), tale.codes


def at_work(crowd: Crowd, since: int, calls: int) -> Callable[[], bool]:
    return lambda: crowd.actor.listen() and acks(crowd.actor.heard[since:]) > calls


def acks(lines: list[str]) -> int:
    return sum(line.startswith("ack") for line in lines)


def workers(lines: list[str]) -> int:
    return len({line.split(" ")[1] for line in lines if line.startswith("ack")})


def test_a_crash_of_the_server_loses_nothing_that_was_acknowledged(durable: Server, crew: Crew) -> None:
    crashed(durable, crew, 8, 3)


@pytest.mark.slow
def test_fifty_crashes_of_the_server_lose_nothing(durable: Server, crew: Crew) -> None:
    crashed(durable, crew, 8, 50)


def test_a_server_that_is_away_is_a_clear_error_and_the_board_works_again_afterwards(
    durable: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.stores.postgres.connections.PATIENCE", 2.0)  # it is 20 s
    with board_of(durable) as url, TaskBoard.open(url, worker="worker-1") as board:
        board.add("a task")
        durable.stop("fast")
        started = time.monotonic()
        with pytest.raises(DibsError) as caught:
            board.claim("worker-1")
        with pytest.raises(DibsError):
            TaskBoard.open(url)
        print(f"{type(caught.value).__name__} after {time.monotonic() - started:.1f} s: {caught.value}")
        assert caught.value.code in TRANSIENT
        durable.restart()
        task = board.claim("worker-1")
        assert task is not None
        task.complete("done")
        assert_whole(url).close()


@pytest.mark.parametrize("mode", ["fast", pytest.param("immediate", marks=pytest.mark.slow)])
def test_waiting_and_following_outlive_a_restart(
    durable: Server, crew: Crew, mode: Literal["fast", "immediate"]
) -> None:
    with board_of(durable) as url:
        waiter = crew.start("await_claim", url, "waiter", 60)
        waiter.expect("waiting")
        follower = crew.start("follow", url, "follower", "the end", before=AS_ACTOR)
        follower.expect("following")
        time.sleep(0.5)
        durable.restart(mode)
        with TaskBoard.open(url, worker="maker") as board:
            board.add("work at last")
            found, seconds = waiter.line().split()
            assert found == "True"
            assert float(seconds) < 50
            board.tell("the end")
            there = [event.seq for event in board.changelog()]
        assert [int(line.split()[0]) for line in follower.lines()] == there
        assert_whole(url).close()
