"""A seat notices what its worker lost, and lets nobody wait who has gone."""

from __future__ import annotations

import threading
import time

import pytest

from dibs import TaskBoard
from dibs.mcp import tools
from dibs.mcp.seat import Call, Gone, Seat
from dibs.model import Worker
from tests.clocks import HandClock

ANN = Worker("ann", session="s1")
HOUR = 3600.0


def sit(clock: HandClock | None = None) -> Seat:
    board = TaskBoard(clock=clock)
    return Seat(lambda: board, ANN)


def test_a_worker_that_slept_past_its_lease_is_told_once(clock: HandClock) -> None:
    seat = sit(clock)
    task_id = seat.board.add("long work")
    seat.board.claim(ANN)
    seat.board.lock(["docs"], ANN)
    assert seat.keep() == HOUR
    clock.advance(2 * HOUR)
    assert seat.keep() is None
    task, lock = sorted((loss.message for loss in seat.news()), key=lambda text: "lock" in text)
    assert task_id in task
    assert "its lease ran out, and nobody holds it now" in task
    assert lock == "your lock on docs ran out"
    assert seat.news() == []


def test_keeping_renews_before_a_lease_ends(clock: HandClock) -> None:
    seat = sit(clock)
    seat.board.add("long work")
    seat.board.claim(ANN, lease=60)
    for _ in range(20):
        assert seat.keep() == 60
        clock.advance(10)
    assert seat.news() == []


def test_what_the_worker_ended_itself_is_no_news(clock: HandClock) -> None:
    seat = sit(clock)
    for end in ("complete", "release", "fail", "elsewhere"):
        task_id = seat.board.add(end)
        seat.board.claim(ANN, task_id)
        token = seat.board.get(task_id).token
        seat.keep()
        clock.advance(5)
        if end == "elsewhere":  # given back in a shell, then taken by another
            seat.board.release(task_id, worker=ANN)
            seat.board.claim("bob", task_id)
        elif end == "fail":
            seat.board.fail(task_id, "no", token=token)
        else:
            getattr(seat.board, end)(task_id, token=token)
        seat.keep()
        assert seat.news() == []


def test_whoever_has_gone_is_given_nothing() -> None:
    seat = sit()
    left = threading.Event()
    call = Call(seat, left)
    answers: list[object] = []

    def wait() -> None:
        try:
            with call:
                answers.append(tools.answer(call, "claim_task", {"wait_seconds": 45}))
        except Gone:
            answers.append("gone")

    waiting = threading.Thread(target=wait)
    waiting.start()
    left.set()
    waiting.join(30)
    seat.board.add("too late")
    assert answers == ["gone"]
    assert seat.board.pending_count == 1


def test_closing_waits_for_calls_and_lets_none_begin() -> None:
    seat = sit()
    begun = threading.Event()

    def work() -> None:
        with Call(seat):
            begun.set()
            while not seat.is_closing:
                time.sleep(0.001)
            seat.board.add("finished in time")

    working = threading.Thread(target=work)
    working.start()
    begun.wait(30)
    seat.close(patience=30)
    assert seat.board.pending_count == 1
    working.join(30)
    with pytest.raises(Gone), Call(seat):
        pass


@pytest.mark.parametrize("holder", [Worker("bob"), Worker("ann", session="s2")])
def test_another_s_token_is_not_enough(holder: Worker) -> None:
    seat = sit()
    task_id = seat.board.add("another's")
    seat.board.claim(holder, task_id)
    token = seat.board.get(task_id).token
    for tool, more in (("complete_task", {}), ("complete_task", {"claim_next": True}), ("fail_task", {"error": "x"}),
                       ("release_task", {})):  # fmt: skip
        with Call(seat) as call:
            shown, failed = tools.answer(call, tool, {"task_id": task_id, "token": token, **more})
        assert failed
        assert shown["code"] == "not_holder"
        assert shown["holder"] == holder.name
        assert "token" not in shown
    assert seat.board.get(task_id).holder == holder
