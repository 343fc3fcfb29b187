"""`wait` wakes when another process makes work available, and costs next to nothing until then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.postgres.actors import board_of
from tests.postgres.bouncer import bouncer
from tests.postgres.proxy import Proxy
from tests.postgres.server import server_for_test
from tests.processes.harness import SLOW_ON_POSTGRES, Actor, Crew, assert_whole, in_a_file, on_postgres, python

TIMEOUT = 30.0


def assert_woken(actor: Actor) -> None:
    found, seconds = actor.line().split()
    assert found == "True"
    assert float(seconds) < TIMEOUT / 2


@dataclass
class Way:
    """How the processes of a test reach a board; `url` is its address without anything between."""

    url: str
    address: str


@pytest.fixture(params=["sqlite", "listening", "deaf", "pgbouncer"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    """A file; PostgreSQL with notifications; without, as if they were lost; through PgBouncer."""
    if request.param == "sqlite":
        url = in_a_file(tmp_path)
        yield Way(url, url)
        return
    server = server_for_test()
    with board_of(server) as url:
        if request.param == "listening":
            yield Way(url, url)
        elif request.param == "deaf":
            with Proxy(url) as proxy:
                proxy.swallowed = frozenset("A")
                yield Way(url, proxy.url)
        else:
            with bouncer(server, url, tmp_path) as address:
                yield Way(url, address)


@pytest.mark.parametrize("role", ["await_work", "await_claim"])
def test_waiting_ends_when_another_process_adds_work_and_burns_no_cpu(way: Way, crew: Crew, role: str) -> None:
    waiter = crew.start(role, way.address, "waiter", TIMEOUT)
    waiter.expect("waiting")
    adder = crew.start("add", way.address, "work at last")
    adder.expect("ready")
    asleep, most = (1.0, 0.3) if on_postgres(way.url) else (2.0, 0.2)
    if on_postgres(way.url):
        time.sleep(1.0)  # until it has its connections
    before = waiter.cpu_seconds()
    time.sleep(asleep)
    used = waiter.cpu_seconds() - before
    assert not waiter.heard
    adder.tell()
    adder.expect("added")
    committed = time.monotonic()
    assert_woken(waiter)
    late = time.monotonic() - committed
    assert used < most, f"{asleep} seconds of waiting took {used:.2f} s of CPU"
    print(f"woken {late * 1000:.0f} ms after the other process had committed; {used / asleep:.0%} of a CPU before")
    assert_whole(way.url).close()


def test_waiting_ends_when_a_dependency_is_completed(way: Way, crew: Crew) -> None:
    with TaskBoard.open(way.address, worker="maker") as board:
        first = board.claim("other", board.add("first"))
        assert first is not None
        board.add("second", depends_on=[first.id])
        waiter = crew.start("await_work", way.address, "waiter", TIMEOUT)
        waiter.expect("waiting")
        first.complete()
        assert_woken(waiter)


def test_waiting_ends_when_a_path_is_unlocked(way: Way, crew: Crew) -> None:
    with TaskBoard.open(way.address, worker="maker") as board:
        board.lock(["src/**"], "other")
        board.add("in there", paths=["src/a.py"])
        waiter = crew.start("await_work", way.address, "waiter", TIMEOUT)
        waiter.expect("waiting")
        board.unlock(None, "other")
        assert_woken(waiter)


def test_waiting_ends_when_a_lease_runs_out(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("slow work")
        board.claim("other", lease=0.5)
        waiter = crew.start("await_work", url, "waiter", TIMEOUT)
        waiter.expect("waiting")
        assert_woken(waiter)


@pytest.mark.parametrize("role", ["await_work", "await_claim"])
def test_waiting_ends_when_the_holder_is_killed(url: str, crew: Crew, role: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("the only one")
    holder = crew.start("carry", url, "holder", 3600)
    holder.expect("claimed")
    waiter = crew.start(role, url, "waiter", TIMEOUT)
    waiter.expect("waiting")
    holder.kill()
    assert_woken(waiter)


@pytest.mark.parametrize("role", ["await_work", "await_claim"])
def test_waiting_ends_when_whoever_locked_the_path_is_killed(url: str, crew: Crew, role: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("in there", paths=["src/a.py"])
    holder = crew.start("grip", url, "holder", "src/**")
    holder.expect("locked")
    waiter = crew.start(role, url, "waiter", TIMEOUT)
    waiter.expect("waiting")
    holder.kill()
    assert_woken(waiter)


def test_waiting_in_vain_ends_at_its_time(url: str, crew: Crew) -> None:
    waiter = crew.start("await_work", url, "waiter", 0.3)
    waiter.expect("waiting")
    found, seconds = waiter.line().split()
    assert found == "False"
    assert 0.3 <= float(seconds) < 10


WAIT_LONGER_THAN_THE_LEASE = """
import sys
from dibs import TaskBoard
from dibs.errors import DibsError
board = TaskBoard.open(sys.argv[1], worker="waiter")
mine = board.claim("waiter", "mine", lease=1.5)
board.lock(["docs/mine.md"], "waiter", lease=1.5)
print("waiting", flush=True)
try:
    if sys.argv[2] == "claim":
        board.claim("waiter", "wanted", wait=4)
    elif sys.argv[2] == "lock":
        board.lock(["src/b.py"], "waiter", wait=4)
    else:
        board.wait("waiter", 4)
except DibsError as error:
    print(error.code)
print(sorted(lock.pattern for lock in board.locks() if lock.holder.name == "waiter"))
mine.complete("in time")
print(board.get("mine").status)
"""


@SLOW_ON_POSTGRES
@pytest.mark.parametrize("verb", ["claim", "lock", "wait"])
def test_whoever_waits_past_its_lease_still_holds_what_it_held(url: str, verb: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("mine", id="mine", paths=["lib/mine.py"])
        board.add("wanted", id="wanted", paths=["src/a.py"])
        board.lock(["src/**"], "other")
        said = python(WAIT_LONGER_THAN_THE_LEASE, url, verb)
    refused = {"claim": ["not_claimable"], "lock": ["busy"], "wait": []}[verb]
    assert said == ["waiting", *refused, "['docs/mine.md', 'lib/mine.py']", "completed"]
    assert_whole(url).close()
