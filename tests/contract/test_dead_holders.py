"""What workers hold that have died: it is free for the next claim, all of it, and is not passed over for worse."""

from __future__ import annotations

import os

import pytest

from dibs import TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.worker import boot, host, process_start
from tests.clocks import HandClock
from tests.contract.people import ANN, EVE
from tests.contract.stores import Home

DEAD = Worker("ghost", session="g", host=host(), pid=2**22 + 1, started="1", boot=boot())


@pytest.mark.needs("locks", "paths", "priorities")
@pytest.mark.parametrize("who", [ANN, EVE], ids=lambda who: who.kind)
@pytest.mark.parametrize("next_", [False, True], ids=["claim", "claim_next"])
def test_files_that_only_the_dead_hold_by_a_glob_are_free_for_the_claim_that_finds_nothing_else(
    board: TaskBoard, who: Worker, next_: bool
) -> None:
    board.add_many([{"description": "x", "priority": 9, "paths": [f"w/{n}"]} for n in range(4)])
    board.add("x", id="t", paths=["docs/a.md"])
    held = [board.claim(who) for _ in range(4)]  # this one is at work: it has looked for the dead a moment ago
    board.lock(["docs/*.md"], DEAD)
    last = held[-1]
    assert last is not None
    got = last.complete("done", claim_next=True) if next_ else board.claim(who)
    assert got is not None
    assert got.id == "t"


@pytest.mark.needs("locks", "paths", "priorities")
def test_a_better_task_whose_files_the_dead_hold_is_not_passed_over_for_a_worse(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "priority": 9, "paths": [f"w/{n}"]} for n in range(4)])
    board.add("x", id="better", paths=["docs/a.md"], priority=1)
    for _ in range(4):
        assert board.claim(ANN) is not None
    board.lock(["docs/*.md"], DEAD)
    board.add("x", id="worse")
    assert sorted(task.id for task in board.claim(ANN, n=3)) == ["better", "worse"]


@pytest.mark.needs("limits of attempts")
def test_history_is_told_once_of_a_task_whose_lease_is_over_and_whose_holder_is_dead(
    board: TaskBoard, clock: HandClock
) -> None:
    board.add("x", id="t", max_attempts=0)
    assert board.claim(DEAD, "t", lease=1) is not None
    clock.advance(2)
    assert board.claim(ANN) is None
    assert (board.get("t").result or "").count("claimed_activity") == 1


@pytest.mark.slow_on("workflow")
@pytest.mark.needs("paths")
@pytest.mark.parametrize("many", [199, 200, 201, 700])
def test_however_much_a_process_held_that_has_died_all_of_it_comes_back(
    home: Home, board: TaskBoard, many: int
) -> None:
    """Of very many tasks that somebody on this machine may have left, it is first asked whose they are."""
    board.add_many([{"description": "x", "paths": [f"src/{n}"]} for n in range(many)])
    alive = Worker("alive", session="a", host=host(), pid=os.getpid(), started=process_start(os.getpid()), boot=boot())
    assert len(board.claim(alive, n=many // 2)) == many // 2
    assert len(board.claim(DEAD, n=many)) == many - many // 2
    board.core.reaper._reaped = float("-inf")
    assert len(board.claim(ANN, n=1000)) == many - many // 2
    assert {task.assigned_to for task in board.tasks(["in_progress"], limit=1000)[0]} == {"alive", "ann"}
    assert "histories" in home.cannot or disagreements(board) == []
