"""A claim gets the best task that can be had, also where the same call has set free what is worse, and where a human
chooses from two queues: as on a board in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, Worker
from dibs.board.claims import WALK
from tests.clocks import HandClock
from tests.postgres.desk import ANN, BEN, DEAD, Desk

EVE = Worker("eve", "human", session="e")
MANY = WALK + 20


def complete_and_claim(board: TaskBoard) -> BoardTask | None:
    task = board.claim(ANN, "ended")
    assert task is not None
    return task.complete("done", claim_next=True)


def waits_for_the_ended(board: TaskBoard, far: TaskBoard, clock: HandClock, paths: list[str]) -> None:
    board.add("x", id="ended", priority=-5)
    board.add("x", id="freed", depends_on=["ended"], paths=paths)


def is_run_out(board: TaskBoard, far: TaskBoard, clock: HandClock, paths: list[str]) -> None:
    far.claim(BEN, far.add("x", id="freed", paths=paths), lease=1)
    clock.advance(2)


def is_of_the_dead(board: TaskBoard, far: TaskBoard, clock: HandClock, paths: list[str]) -> None:
    far.claim(DEAD, far.add("x", id="freed", paths=paths))
    board.core.reaper._reaped = float("-inf")


FREED = {
    "waits": (waits_for_the_ended, complete_and_claim),
    "run out": (is_run_out, lambda board: board.claim(ANN)),
    "dead": (is_of_the_dead, lambda board: board.claim(ANN)),
}


@pytest.mark.parametrize("paths", [[], ["src/z*.py"]], ids=["without files", "its files are held"])
@pytest.mark.parametrize("how", FREED)
def test_what_is_set_free_does_not_come_before_what_is_better(
    desk: Desk, tmp_path: Path, how: str, paths: list[str]
) -> None:
    free, call = FREED[how]

    def prepared(board: TaskBoard, far: TaskBoard, clock: HandClock) -> None:
        free(board, far, clock, paths)
        far.lock(["src/*a.py"], BEN)
        far.add("x", id="held", paths=["src/a*.py"], priority=5)
        far.add("x", id="best", priority=4)

    check(desk, tmp_path, prepared, call)


@pytest.mark.parametrize("number", [12, MANY])
@pytest.mark.parametrize("others", ["o/{}", "h/b{}"], ids=["others are free", "others are held"])
@pytest.mark.parametrize("queue", ["human", "any"])
@pytest.mark.parametrize("n", [None, 2], ids=["one", "two"])
def test_a_human_gets_the_best_of_both_queues(
    desk: Desk, tmp_path: Path, queue: str, others: str, number: int, n: int | None
) -> None:
    other = "any" if queue == "human" else "human"

    def prepared(board: TaskBoard, far: TaskBoard, clock: HandClock) -> None:
        far.lock(["h/[a-c]*/**"], BEN)
        rows: list[dict[str, Any]] = [
            {"id": f"held{k}", "paths": [f"h/a{k}"], "reserved": queue} for k in range(number)
        ]
        rows.append({"id": "best", "paths": ["h/z"], "reserved": queue})
        far.add_many([{"description": "x", "priority": 5, **row} for row in rows])
        far.add_many(
            [
                {"id": f"other{k}", "description": "x", "paths": [others.format(k)], "reserved": other}
                for k in range(number)
            ]
        )

    check(desk, tmp_path, prepared, lambda board: board.claim(EVE, n=n) if n else board.claim(EVE))


def check(
    desk: Desk,
    folder: Path,
    prepared: Callable[[TaskBoard, TaskBoard, HandClock], None],
    call: Callable[[TaskBoard], BoardTask | list[BoardTask] | None],
) -> None:
    def got(board: TaskBoard) -> list[str]:
        answer = call(board)
        taken = answer if isinstance(answer, list) else [answer] if answer is not None else []
        return [task.id for task in taken]

    clock = HandClock()
    with (
        TaskBoard.open(f"sqlite:{folder}/b.db", create=True, clock=clock, worker=ANN) as board,
        TaskBoard.open(f"sqlite:{folder}/b.db", clock=clock, worker=BEN) as far,
    ):
        prepared(board, far, clock)
        wanted = got(board)
    assert wanted[0] == "best"
    desk.warm()
    prepared(desk.board, desk.far, desk.clock)
    assert got(desk.board) == wanted
