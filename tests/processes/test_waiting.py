"""`wait` wakes when another process makes work available, and costs next to nothing until then."""

from __future__ import annotations

import time

import pytest

from dibs import TaskBoard
from tests.processes.harness import Actor, Crew, assert_whole, python

TIMEOUT = 30.0


def assert_woken(actor: Actor) -> None:
    found, seconds = actor.line().split()
    assert found == "True"
    assert float(seconds) < TIMEOUT / 2


@pytest.mark.parametrize("role", ["await_work", "await_claim"])
def test_waiting_ends_when_another_process_adds_work_and_burns_no_cpu(url: str, crew: Crew, role: str) -> None:
    waiter = crew.start(role, url, "waiter", TIMEOUT)
    waiter.expect("waiting")
    before = waiter.cpu_seconds()
    time.sleep(2.0)
    used = waiter.cpu_seconds() - before
    assert not waiter.heard
    adder = crew.start("add", url, "work at last")
    adder.expect("ready")
    adder.tell()
    adder.expect("added")
    assert_woken(waiter)
    assert used < 0.2, f"two seconds of waiting took {used:.2f} s of CPU"


def test_waiting_ends_when_a_dependency_is_completed(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        first = board.claim("other", board.add("first"))
        assert first is not None
        board.add("second", depends_on=[first.id])
        waiter = crew.start("await_work", url, "waiter", TIMEOUT)
        waiter.expect("waiting")
        first.complete()
        assert_woken(waiter)


def test_waiting_ends_when_a_path_is_unlocked(url: str, crew: Crew) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.lock(["src/**"], "other")
        board.add("in there", paths=["src/a.py"])
        waiter = crew.start("await_work", url, "waiter", TIMEOUT)
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
