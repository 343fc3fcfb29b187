"""Request keys: reused for something else it is refused, and that of a claim that has ended says so."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import LeaseLost, TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.errors import Invalid
from tests.clocks import HandClock
from tests.contract.people import ANN, BEN, LEAD, take
from tests.contract.state import snapshot
from tests.contract.stores import Home


def test_a_claims_key_that_is_reused_for_another_id_is_refused(board: TaskBoard) -> None:
    board.add("x", id="t1")
    board.add("y", id="t2")
    board.claim(ANN, "t1", request_key="k")
    before = snapshot(board)
    for other in ("t2", None):
        with pytest.raises(Invalid, match="key was used before"):
            board.claim(ANN, other, request_key="k")
    assert snapshot(board) == before
    again = board.claim(ANN, "t1", request_key="k")
    assert again == board.get("t1")


def test_a_claims_key_that_is_reused_for_another_number_is_refused(board: TaskBoard) -> None:
    for number in range(4):
        board.add("x", id=f"t{number}")
    first = board.claim(ANN, n=2, request_key="k")
    before = snapshot(board)
    for n in (1, 3):
        with pytest.raises(Invalid, match="key was used before"):
            board.claim(ANN, n=n, request_key="k")
    with pytest.raises(Invalid, match="key was used before"):
        board.claim(ANN, "t0", request_key="k")
    assert snapshot(board) == before
    assert board.claim(ANN, n=2, request_key="k") == first


@pytest.mark.parametrize(
    "other",
    [
        {"description": "another"},
        {"description": "x", "priority": 5},
        {"description": "x", "id": "t9"},
        {"description": "x", "paths": ["src/a.py"]},
        {"description": "x", "labels": ["new"]},
        {"description": "x", "review": True},
        {"description": "x", "max_attempts": 0},
        {"description": "x", "steps": ["one"]},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_an_adds_key_that_is_reused_for_another_task_is_refused(board: TaskBoard, other: dict[str, Any]) -> None:
    first = board.add("x", request_key="k")
    before = snapshot(board)
    with pytest.raises(Invalid, match="key was used before"):
        board.add_many([other], request_key="k")
    with pytest.raises(Invalid, match="key was used before"):
        board.add_many([{"description": "x"}, other], request_key="k")
    assert snapshot(board) == before
    assert board.add("x", request_key="k") == first


@pytest.mark.parametrize(
    "ending",
    [
        "complete",
        pytest.param("fail", marks=pytest.mark.needs("failed tasks")),
        "release",
        pytest.param("block", marks=pytest.mark.needs("blockers")),
        pytest.param("cancel", marks=pytest.mark.needs("cancelled tasks")),
        "expiry",
    ],
)
def test_the_key_of_a_claim_that_has_ended_says_that_it_is_lost(
    board: TaskBoard, clock: HandClock, ending: str
) -> None:
    board.add("x", id="t1")
    task = board.claim(ANN, "t1", request_key="k")
    assert task is not None
    if ending == "complete":
        task.complete("done")
    elif ending == "fail":
        task.fail("boom")
    elif ending == "release":
        task.release()
    elif ending == "block":
        board.block("t1", "why", worker=ANN)
    elif ending == "cancel":
        board.cancel("t1", "why", worker=LEAD)
    else:
        clock.advance(3601)
    before = snapshot(board)
    with pytest.raises(LeaseLost):
        board.claim(ANN, "t1", request_key="k")
    assert snapshot(board) == before


def test_a_key_whose_task_somebody_else_has_now_is_lost(board: TaskBoard) -> None:
    board.add("x", id="t1")
    task = board.claim(ANN, request_key="k")
    assert task is not None
    task.release()
    taken = take(board, BEN)
    with pytest.raises(LeaseLost):
        board.claim(ANN, request_key="k")
    assert board.get("t1") == taken


@pytest.mark.parametrize("n", [49, 60, 1200])
def test_the_answer_to_a_request_key_has_the_tokens_of_many_claims(home: Home, board: TaskBoard, n: int) -> None:
    board.add_many([{"description": "x"}] * (n + 5))
    got = board.claim(ANN, n=n, request_key="k")
    again = board.claim(ANN, n=n, request_key="k")
    assert [(task.id, task.token) for task in again] == [(task.id, task.token) for task in got]
    assert all((task.token or 0) > 0 for task in got)
    assert len({task.token for task in got}) == n
    assert "histories" in home.cannot or disagreements(board) == []


def test_the_answer_to_a_request_key_has_the_token_although_many_leases_ran_out(
    board: TaskBoard, clock: HandClock
) -> None:
    board.add_many([{"description": "x"}] * 60)
    board.claim(Worker("ben", session="s"), n=60, lease=1)
    clock.advance(2)
    got = board.claim(ANN, request_key="k")
    again = board.claim(ANN, request_key="k")
    assert got is not None
    assert again is not None
    assert (again.id, again.token) == (got.id, got.token)
