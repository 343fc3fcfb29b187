"""Paths of tasks: a claim locks them, for as long as it lasts; a task whose paths others hold is passed over."""

from __future__ import annotations

import pytest

from dibs import Busy, NotClaimable, TaskBoard
from dibs.errors import Invalid
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, take
from tests.contract.state import patterns

pytestmark = pytest.mark.needs("paths")


def test_a_claim_locks_the_tasks_paths_under_its_token_and_lease(board: TaskBoard) -> None:
    board.add("x", id="t1", paths=["src/auth/**", "docs/auth.md"])
    task = take(board, ANN, lease=60)
    locks = board.locks()
    assert sorted(lock.pattern for lock in locks) == ["docs/auth.md", "src/auth/**"]
    for lock in locks:
        assert (lock.holder, lock.token, lock.expires_at, lock.task_id) == (ANN, task.token, START + 60, "t1")
    with pytest.raises(Busy, match="for task t1"):
        board.lock(["src/auth/login.py"], BEN)


@pytest.mark.needs("locks", "priorities")
def test_a_task_whose_paths_others_hold_is_skipped(board: TaskBoard, other: TaskBoard) -> None:
    board.add("x", id="t1", paths=["src/auth/**"], priority=9)
    board.add("y", id="t2", paths=["src/web/**"])
    board.lock(["src/auth/login.py"], BEN)
    assert take(other, ANN).id == "t2"
    assert other.claim(ANN) is None
    with pytest.raises(NotClaimable, match=r"src/auth/login\.py is held by ben"):
        other.claim(ANN, "t1")
    board.unlock(None, BEN)
    assert take(other, ANN).id == "t1"


@pytest.mark.needs("locks")
def test_a_shared_lock_keeps_others_from_the_task_too(board: TaskBoard) -> None:
    board.add("x", paths=["src"])
    board.lock(["src"], BEN, shared=True)
    assert board.claim(ANN) is None
    assert board.claim(BEN) is not None


@pytest.mark.needs("locks")
def test_tasks_whose_paths_overlap_are_not_worked_on_by_two(board: TaskBoard) -> None:
    board.add("x", id="t1", paths=["src/**"])
    board.add("y", id="t2", paths=["src/a.py"])
    take(board, ANN)
    assert board.claim(BEN) is None
    assert take(board, ANN).id == "t2"
    board.complete("t1")
    with pytest.raises(Busy):
        board.lock(["src/a.py"], BEN)
    board.lock(["src/b.py"], BEN)


@pytest.mark.needs("locks")
def test_several_claims_take_their_locks_too(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "paths": [f"src/{i}"], "id": f"t{i}"} for i in range(4)])
    board.lock(["src/1"], BEN)
    assert [task.id for task in board.claim(ANN, n=3)] == ["t0", "t2", "t3"]
    assert patterns(board) == ["src/0", "src/1", "src/2", "src/3"]


@pytest.mark.needs("locks", "priorities")
def test_many_held_tasks_in_front_do_not_hide_the_free_one_behind(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "paths": [f"src/{i % 7}/{i}"]} for i in range(150)])
    board.add("free", id="free", priority=-1)
    board.lock(["src"], BEN)
    assert take(board, ANN).id == "free"


@pytest.mark.needs("locks")
@pytest.mark.parametrize("ending", ["complete", "fail", "release", "cancel", "block", "expiry"])
def test_the_locks_go_when_the_claim_does(board: TaskBoard, clock: HandClock, ending: str) -> None:
    board.add("x", id="t1", paths=["src"])
    task = take(board, ANN, lease=60)
    board.lock(["docs"], BEN)
    if ending == "expiry":
        clock.advance(60)
    else:
        more = {"fail": ["boom"], "block": ["why"]}.get(ending, [])
        getattr(board, ending)("t1", *more, worker=ANN)
    assert patterns(board) == ["docs"]
    board.lock(["src"], BEN)
    assert task.token is not None


@pytest.mark.needs("locks")
def test_an_own_lock_on_the_same_path_outlives_the_claim(board: TaskBoard) -> None:
    board.add("x", id="t1", paths=["src"])
    board.lock(["src"], ANN)
    take(board, ANN).complete()
    assert patterns(board) == ["src"]


def test_renewing_a_claim_renews_its_locks(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1", paths=["src"])
    take(board, ANN, lease=60)
    clock.advance(50)
    board.renew("t1", lease=500)
    assert board.locks()[0].expires_at == START + 550
    assert board.locks()[0].lease == 500


@pytest.mark.needs("locks")
def test_a_claim_that_cannot_lock_changes_nothing(board: TaskBoard) -> None:
    board.add("x", id="t1", paths=["free", "held"])
    board.lock(["held"], BEN)
    before = board.get("t1")
    assert board.claim(ANN) is None
    assert board.get("t1") == before
    assert patterns(board) == ["held"]


def test_a_lock_that_came_with_a_task_goes_with_it(board: TaskBoard) -> None:
    board.add("x", id="t1", paths=["src"])
    take(board, ANN)
    with pytest.raises(Invalid, match="t1"):
        board.unlock(["src"], ANN)
    assert board.unlock(None, ANN) == []
    assert patterns(board) == ["src"]
