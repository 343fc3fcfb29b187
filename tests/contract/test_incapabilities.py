"""Every store is asked for everything that a format may have no place for: it does it, or says plainly that it cannot,
changes nothing, and names the nearest thing that it can."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dibs import TaskBoard
from dibs.errors import Unsupported
from tests.contract.people import ANN, EVE
from tests.contract.state import everything
from tests.contract.stores import CAPABILITIES, Home


def _claimed(board: TaskBoard) -> str:
    task = board.add("held")
    board.claim(ANN, task)
    return task


def _prepare(board: TaskBoard, capability: str) -> Callable[[], object]:
    """What asks for the capability, on a board that is ready for it."""
    if capability in ("failed tasks", "cancelled tasks"):
        task = _claimed(board)
        return (
            (lambda: board.fail(task, "no", worker=ANN))
            if capability == "failed tasks"
            else (lambda: board.cancel(task, "no", worker=ANN))
        )
    if capability == "blockers":
        task = board.add("x")
        return lambda: board.block(task, "why", worker=EVE)
    if capability == "parents":
        task = board.add("x")
        return lambda: board.add("part", parent=task)
    if capability == "histories":
        from dibs import transfer

        other = TaskBoard.open("memory:", create=True)
        other.add("x")
        return lambda: transfer.load(board, transfer.dump(other))
    asked: dict[str, Callable[[], object]] = {
        "labels": lambda: board.add("x", labels=["red"]),
        "limits of attempts": lambda: board.add("x", max_attempts=3),
        "locks": lambda: board.lock(["src/a.py"], ANN),
        "paths": lambda: board.add("x", paths=["src/a.py"]),
        "priorities": lambda: board.add("x", priority=7),
        "reservations": lambda: board.add("x", reserved="human"),
        "reviews": lambda: board.add("x", review=True),
        "steps": lambda: board.add("x", steps=["one"]),
    }
    return asked[capability]


@pytest.mark.parametrize("capability", sorted(CAPABILITIES))
def test_a_store_does_it_or_says_that_it_cannot(home: Home, capability: str) -> None:
    board = TaskBoard(store=home.bare()) if capability == "histories" else home.open()
    ask = _prepare(board, capability)
    if capability not in home.cannot:
        ask()
        return
    before = everything(board)
    with pytest.raises(Unsupported) as caught:
        ask()
    assert caught.value.fields["capability"] == capability
    assert home.name in caught.value.message
    assert caught.value.hint
    assert everything(board) == before
    assert everything(home.open()) == before
