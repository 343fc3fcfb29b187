"""Threads of one process share a board."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from dibs import Busy, TaskBoard, Worker
from dibs.errors import DependencyCycle
from tests.contract.people import EVE
from tests.contract.stores import Home

WORKERS = 8
TASKS = 500


def run(*targets: object) -> None:
    """All at once, from a barrier; an exception in any is the test's."""
    barrier = threading.Barrier(len(targets))
    problems: list[BaseException] = []

    def guarded(target: object) -> None:
        try:
            barrier.wait(30)
            target()  # type: ignore[operator]
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if problems:
        raise problems[0]


@pytest.mark.slow_on("bilu", "workitems")
def test_eight_threads_drain_the_board_and_no_task_is_taken_twice(
    home: Home, board: TaskBoard, other: TaskBoard
) -> None:
    if home.name == "workflow":
        pytest.skip("waits 50 ms for the document's lock here, and seven others are before it")
    some = home.priorities
    board.add_many([{"description": "x", "priority": some[i % len(some)]} for i in range(TASKS)])
    taken: list[str] = []
    tokens: list[int | None] = []

    def drain(number: int) -> None:
        mine = (board, other)[number % 2]
        while task := mine.claim(Worker(f"worker-{number}", session="s")):
            taken.append(task.id)
            tokens.append(task.token)
            task.complete("done")

    run(*(lambda n=n: drain(n) for n in range(WORKERS)))
    assert len(taken) == TASKS
    assert Counter(taken).most_common(1)[0][1] == 1
    assert len(set(tokens)) == TASKS
    assert board.completed_count == TASKS
    actions = Counter(event.action for event in board.changelog())
    assert (actions["claimed_activity"], actions["completed_activity"]) == (TASKS, TASKS)


def test_of_two_threads_that_close_a_circle_one_is_refused(board: TaskBoard, other: TaskBoard) -> None:
    for i in range(20):
        board.add_many([{"description": "a", "id": f"a{i}"}, {"description": "b", "id": f"b{i}"}])
        refused: list[str] = []

        def depend(mine: TaskBoard, task_id: str, need: str, refused: list[str] = refused) -> None:
            try:
                mine.depend(task_id, [need], worker=EVE)
            except DependencyCycle:
                refused.append(task_id)

        run(
            lambda i=i, depend=depend: depend(board, f"a{i}", f"b{i}"),
            lambda i=i, depend=depend: depend(other, f"b{i}", f"a{i}"),
        )
        assert len(refused) == 1


@pytest.mark.needs("locks")
def test_of_eight_threads_that_want_one_path_one_gets_it(board: TaskBoard, other: TaskBoard) -> None:
    for i in range(10):
        winners: list[int] = []

        def lock(number: int, i: int = i, winners: list[int] = winners) -> None:
            try:
                (board, other)[number % 2].lock(
                    [f"free-{number}-{i}", f"src/{i}"], Worker(f"worker-{number}", session="s")
                )
            except Busy:
                return
            winners.append(number)

        run(*(lambda n=n, lock=lock: lock(n) for n in range(WORKERS)))
        assert len(winners) == 1
        assert len(board.locks([f"src/{i}"])) == 1
    assert len(board.locks()) == 20


def test_reading_while_others_write_never_sees_half_a_change(board: TaskBoard, other: TaskBoard) -> None:
    board.add_many([{"description": "x"} for _ in range(60)])
    done = threading.Event()

    def work() -> None:
        try:
            while task := board.claim("worker-1"):
                task.complete("done")
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            assert sum(other.counts().values()) == 60
            for row in other.status():
                assert (row["status"] == "pending") == (row["assigned_to"] is None)

    run(work, read)
    assert board.completed_count == 60
