"""A claim takes three trips at most also where hundreds of tasks, locks or dead holders stand before what it can have,
in whatever combination; and it gets what it would get on any other board."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.errors import NotClaimable, NotFound
from dibs.stores.postgres.foresight import FEW
from dibs.stores.postgres.keys import FRONTS
from dibs.stores.postgres.statements import SHARE
from dibs.stores.postgres.store import PostgresStore
from dibs.stores.postgres.tx import PostgresTx
from dibs.worker import boot, host, process_start
from tests.clocks import HandClock
from tests.postgres.desk import ANN, BEN, BOUND, DEAD, Desk

MANY = FEW + 50
TWIN = Worker("ann", session="another")
LIVE = Worker("lou", session="l", host=host(), pid=os.getpid(), started=process_start(os.getpid()), boot=boot())


def add(board: TaskBoard, number: int, paths: str, **options: Any) -> list[str]:
    """Tasks whose paths have their number in them."""
    return board.add_many([{"description": "x", "paths": [paths.format(n)], **options} for n in range(number)])


Trouble = Callable[[TaskBoard, HandClock, int], object]


def held_by_wildcards(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["src/*/a*.py"], BEN)
    add(board, number, "src/m{}/*.py", priority=3)


def held_as_a_whole(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["lib"], BEN)
    add(board, number, "lib/m{}/*.py", priority=3)


def held_by_classes(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["app/[a-z]/**"], BEN)
    add(board, number, "app/x/{}.py", priority=3)


def near_classes_and_free(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["web/[a-f]/**"], BEN)
    add(board, number, "web/x/{}.py")


def held_by_a_namesake(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["twin"], TWIN)
    add(board, number, "twin/{}.py", priority=3)


def held_by_somebody_of_this_machine(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["near"], LIVE)
    add(board, number, "near/{}.py", priority=3)


def held_by_the_dead(board: TaskBoard, clock: HandClock, number: int) -> None:
    board.lock(["grave/?/**"], DEAD)
    add(board, number, "grave/*/{}.py")


def in_work(board: TaskBoard, clock: HandClock, number: int) -> None:
    claimed(board, LIVE, add(board, number, "work/{}", priority=10), 100_000)


def left_by_the_dead(board: TaskBoard, clock: HandClock, number: int) -> None:
    claimed(board, DEAD, add(board, number, "left/{}", priority=9), 100_000)


def spent_by_the_dead(board: TaskBoard, clock: HandClock, number: int) -> None:
    claimed(board, DEAD, add(board, number, "spent/{}", priority=11, max_attempts=0), 100_000)


def spent_and_run_out(board: TaskBoard, clock: HandClock, number: int) -> None:
    claimed(board, BEN, add(board, number, "old/{}", priority=12, max_attempts=0), 1)
    clock.advance(2)


def claimed(board: TaskBoard, who: Worker, ids: list[str], lease: float) -> None:
    got = board.claim(who, n=len(ids), lease=lease)
    assert {task.id for task in got} == set(ids)


TROUBLES: dict[str, Trouble] = {
    made.__name__: made
    for made in (
        held_by_wildcards, held_as_a_whole, held_by_classes, near_classes_and_free, held_by_a_namesake,
        held_by_somebody_of_this_machine, held_by_the_dead, in_work, left_by_the_dead, spent_by_the_dead,
        spent_and_run_out,
    )
}  # fmt: skip
CALLS: dict[str, Callable[[TaskBoard, BoardTask], Any]] = {
    "claim": lambda board, task: board.claim(ANN),
    "claim several": lambda board, task: board.claim(ANN, n=5),
    "claim by name": lambda board, task: board.claim(ANN, "named"),
    "claim with a key": lambda board, task: board.claim(ANN, request_key="k"),
    "claim many with a key": lambda board, task: board.claim(ANN, n=60, request_key="k"),
    "claim as a human": lambda board, task: board.claim(Worker("eve", "human", session="e")),
    "complete and claim": lambda board, task: task.complete("done", claim_next=True),
}


class Case:
    """What stands on a board, and what is then called."""

    def __init__(self, troubles: list[str], number: int, free: bool, call: str, late: bool) -> None:
        self.troubles = troubles
        self.number = number
        self.free = free
        self.call = call
        self.late = late

    def prepare(self, board: TaskBoard, far: TaskBoard, clock: HandClock) -> BoardTask:
        for number in range(5):  # the driver prepares statements when it has seen them a few times
            board.add("to warm up", id=f"warm{number}")
            done = board.claim(ANN)
            assert done is not None
            done.complete()
        board.add("x", id="ended", paths=["end/c.py"])
        task = board.claim(ANN, "ended", lease=100_000)
        assert task is not None
        for trouble in self.troubles:
            TROUBLES[trouble](far, clock, self.number)
        if self.free:
            far.add("x", id="named", paths=["free/*.py"], priority=-1)
        # Is it time to look for the dead? What others did has no part in that.
        board._reaped = float("-inf") if self.late else clock.wall()
        return task

    def outcome(self, board: TaskBoard, task: BoardTask) -> list[str]:
        """What the call gets, by paths: ids differ from board to board."""
        try:
            answer = CALLS[self.call](board, task)
        except (NotClaimable, NotFound) as error:
            return [error.code]
        taken = answer if isinstance(answer, list) else [answer] if answer is not None else []
        return [" ".join(each.paths) for each in taken]

    def elsewhere(self) -> list[str]:
        """The same on a board in a file."""
        clock = HandClock()
        with (
            TemporaryDirectory() as folder,
            TaskBoard.open(f"sqlite:{folder}/b.db", create=True, clock=clock, worker=ANN) as board,
            TaskBoard.open(f"sqlite:{folder}/b.db", clock=clock, worker=BEN) as far,
        ):
            return self.outcome(board, self.prepare(board, far, clock))

    def check(self, desk: Desk) -> None:
        task = self.prepare(desk.board, desk.far, desk.clock)
        got: list[str] = []
        trips = desk.trips(lambda: got.extend(self.outcome(desk.board, task)))
        print(f"trips: {self.call}: {', '.join(self.troubles)}: {trips}")
        assert got == self.elsewhere()
        assert 0 < trips <= BOUND
        assert disagreements(desk.board) == []


@pytest.mark.parametrize("free", [True, False], ids=["something free", "nothing free"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_claim_takes_three_trips_whatever_stands_before(desk: Desk, trouble: str, free: bool) -> None:
    Case([trouble], MANY, free, "claim", late=False).check(desk)


@pytest.mark.parametrize("seed", range(24))
def test_and_whatever_comes_together(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    troubles = chance.sample(sorted(TROUBLES), chance.randrange(1, 5))
    number = chance.choice([10, 100, MANY])
    Case(troubles, number, chance.random() < 0.6, chance.choice(sorted(CALLS)), chance.random() < 0.5).check(desk)


@pytest.mark.parametrize("files", [[], ["src/{}.py"]], ids=["short", "long"])
def test_a_front_that_has_fallen_behind_costs_no_trip_more(desk: Desk, files: list[str]) -> None:
    store = desk.board.store
    assert isinstance(store, PostgresStore)
    store.watermark.far = 20
    desk.far.add_many([{"description": "x", "paths": [path.format(n) for path in files]} for n in range(60)])
    raised, counted = set(), []
    for turn in range(60):
        if turn % 2:  # else it is too soon to try again
            store.watermark._tried = float("-inf")
        counted.append(desk.trips(lambda: desk.board.claim(ANN)))
        raised.add(store.ask(("SELECT floor FROM dibs.ready_watermark WHERE board = $1", (store.board,)))[0][0][0])
    print(f"trips: fronts: {counted}")
    assert max(counted) <= BOUND
    assert len(raised) > 1


def test_a_front_that_cannot_be_raised_takes_nothing_back(desk: Desk) -> None:
    """Somebody is about to make a task ready and takes its time: the claim stands, and the connection goes on."""
    store = desk.board.store
    assert isinstance(store, PostgresStore)
    store.watermark.far = 1
    desk.far.add_many([{"description": "x", "paths": [f"{n}.py"]} for n in range(9)])
    assert len(desk.board.claim(ANN, n=8)) == 8
    with desk.far.store.write() as maker:
        assert isinstance(maker, PostgresTx)
        maker._ask((SHARE, (store.board, FRONTS)))
        link = store.connections.take()
        store.connections.give(link)
        store.watermark._tried = float("-inf")
        assert desk.board.claim(ANN) is not None
        assert store.connections.take() is link
        store.connections.give(link)
    assert disagreements(desk.board) == []
