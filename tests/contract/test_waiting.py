"""Waiting: it wakes for what it waits for, keeps what the waiting worker holds, and takes no time that is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dibs import TaskBoard, TaskStatus
from dibs.errors import Busy, Invalid
from tests.clocks import HandClock
from tests.contract.people import ANN, BEN, take
from tests.contract.state import snapshot


def let_time_pass(
    board: TaskBoard, clock: HandClock, monkeypatch: pytest.MonkeyPatch, at_last: Callable[[], object]
) -> None:
    """Waiting for a change becomes ten minutes going by; after twenty of them, something happens."""
    waited = 0

    def wait_change(mark: object, timeout: float) -> bool:
        nonlocal waited
        waited += 1
        assert waited < 100, "waits on although what it waits for has happened"
        clock.advance(600)
        if waited == 20:
            at_last()
        return True

    monkeypatch.setattr(board.store, "wait_change", wait_change)


@pytest.mark.needs("locks", "paths")
@pytest.mark.parametrize("verb", ["claim a named task", "claim any", "lock", "wait"])
def test_whoever_waits_keeps_what_it_holds(
    board: TaskBoard, clock: HandClock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    board.add("mine", id="mine", paths=["lib/mine.py"])
    mine = take(board, ANN, "mine")  # for an hour; the waiting takes more than three
    board.lock(["docs/mine.md"], ANN)
    board.add("wanted", id="wanted", paths=["src/a.py"])
    board.lock(["src/**"], BEN, lease=100_000)
    let_time_pass(board, clock, monkeypatch, lambda: board.unlock(None, BEN))
    if verb == "claim a named task":
        got = board.claim(ANN, "wanted", wait=3000)
        assert got is not None
    elif verb == "claim any":
        got = board.claim(ANN, wait=3000)
        assert got is not None
        assert got.id == "wanted"
    elif verb == "lock":
        assert [lock.pattern for lock in board.lock(["src/b.py"], ANN, wait=3000)] == ["src/b.py"]
    else:
        assert board.wait(ANN, 3000)
    assert clock.wall() >= (mine.lease_expires_at or 0) + 3600
    now = board.get("mine")
    assert (now.status, now.token, now.holder) == (TaskStatus.IN_PROGRESS, mine.token, ANN)
    assert (now.lease_expires_at or 0) > board.now()
    assert {"lib/mine.py", "docs/mine.md"} <= {lock.pattern for lock in board.locks()}
    board.complete("mine", "still mine", token=mine.token)
    assert board.get("mine").status is TaskStatus.COMPLETED


@pytest.mark.needs("locks")
@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1, -0.001, "5", None, True, [], 1e300], ids=repr)
def test_a_time_to_wait_that_is_none_is_refused(board: TaskBoard, wait: Any) -> None:
    board.add("x", id="t1")
    board.lock(["src/a.py"], BEN)
    before = snapshot(board)
    for attempt in (
        lambda: board.claim(ANN, wait=wait),
        lambda: board.claim(ANN, "t1", wait=wait),
        lambda: board.claim(ANN, n=1, wait=wait),
        lambda: board.lock(["src/a.py"], ANN, wait=wait),
        lambda: board.lock(["src/free.py"], ANN, wait=wait),
        lambda: board.wait(ANN, wait),
    ):
        with pytest.raises(Invalid, match="time to wait"):
            attempt()
    assert snapshot(board) == before


@pytest.mark.needs("locks")
def test_a_wait_of_nothing_is_fine(board: TaskBoard) -> None:
    board.lock(["src/a.py"], BEN)
    assert board.claim(ANN, wait=0) is None
    assert board.wait(ANN, 0) is False
    with pytest.raises(Busy):
        board.lock(["src/a.py"], ANN, wait=0)


class TestWaiting:
    """Work that becomes available wakes whoever waits for it."""

    def waiter(
        self, board: TaskBoard, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[], object]:
        """Start `call` on a thread and come back when it sleeps; the answer gives what it returned, once it has."""
        asleep = threading.Event()
        sleep = board.store.wait_change
        answer: list[object] = []

        def noted(mark: int, timeout: float) -> bool:
            asleep.set()
            return sleep(mark, timeout)

        monkeypatch.setattr(board.store, "wait_change", noted)
        thread = threading.Thread(target=lambda: answer.append(call()))
        thread.start()
        assert asleep.wait(10)

        def finish() -> object:
            thread.join(10)
            assert answer, "it still waits"
            return answer[0]

        return finish

    def test_a_new_task_wakes_a_waiting_claim(
        self, board: TaskBoard, other: TaskBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finish = self.waiter(other, lambda: other.claim(BEN, wait=30), monkeypatch)
        task_id = board.add("x", worker=ANN)
        task = finish()
        assert getattr(task, "id", None) == task_id

    def test_a_completed_dependency_wakes_wait(
        self, board: TaskBoard, other: TaskBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        board.add("a", id="a")
        board.add("b", ["a"], id="b")
        take(board, ANN)
        finish = self.waiter(other, lambda: other.wait(BEN, 30), monkeypatch)
        board.complete("a")
        assert finish() is True

    @pytest.mark.needs("locks", "paths")
    def test_a_path_that_is_given_back_wakes_wait(
        self, board: TaskBoard, other: TaskBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        board.add("a", paths=["src"])
        board.lock(["src"], ANN)
        finish = self.waiter(other, lambda: other.wait(BEN, 30), monkeypatch)
        board.unlock(None, ANN)
        assert finish() is True

    def test_an_expired_lease_wakes_wait(
        self, board: TaskBoard, other: TaskBoard, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        board.add("a", id="a")
        take(board, ANN, lease=60)
        finish = self.waiter(other, lambda: other.wait(BEN, 30), monkeypatch)
        clock.advance(60)
        assert finish() is True
        assert board.get("a").status is TaskStatus.PENDING

    def test_waiting_is_bounded(self, board: TaskBoard) -> None:
        begin = time.monotonic()
        assert board.wait(ANN, 0.05) is False
        assert board.claim(ANN, wait=0.05) is None
        assert board.claim(ANN, n=2, wait=0.05) == []
        assert time.monotonic() - begin < 30

    def test_what_is_there_already_is_not_waited_for(self, board: TaskBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        board.add("x")

        def never(mark: int, timeout: float) -> bool:
            raise AssertionError("it slept")

        monkeypatch.setattr(board.store, "wait_change", never)
        assert board.wait(ANN, 30) is True
        assert board.claim(ANN, wait=30) is not None
