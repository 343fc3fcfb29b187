"""What the first trip of a claim leaves out, and what it brings: never a task less, or a lock less, than the rules
would want to see. Which patterns overlap is for `paths.overlaps` to say."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs import TaskBoard, Worker
from dibs.paths import normalise, overlaps
from dibs.stores.postgres import foresight as f
from dibs.stores.postgres.links import Link
from dibs.stores.postgres.store import PostgresStore
from tests.clocks import HandClock
from tests.postgres.actors import board_of
from tests.postgres.server import Server

ANN, BEN = Worker("ann", session="s1"), Worker("ben", session="s1")
TWIN = Worker("ann", session="s2")
HERE = '"a boot"'

segments = st.sampled_from(
    ["a", "b", "ab", "a0", "a.b", "*", "a*", "?", "[ab]", "[a", "a]", "**", "é", "a'b", 'a"b', "a%", "a\\b"]
)
patterns = st.lists(segments, min_size=1, max_size=4).map("/".join).map(normalise)


@pytest.fixture
def board(server: Server) -> Iterator[TaskBoard]:
    with board_of(server) as url, TaskBoard.open(url, clock=HandClock(), worker=ANN) as made:
        yield made


def store_of(board: TaskBoard) -> PostgresStore:
    store = board.store
    assert isinstance(store, PostgresStore)
    return store


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    held=st.lists(patterns, min_size=1, max_size=4),
    wanted=st.lists(st.lists(patterns, min_size=1, max_size=3), min_size=1, max_size=4),
    holder=st.sampled_from([BEN, TWIN, ANN]),
)
def test_no_free_task_is_left_out_and_no_lock_that_is_in_the_way(
    server: Server, held: list[str], wanted: list[list[str]], holder: Worker
) -> None:
    url = server.url(board=f"f{uuid.uuid4().hex}")
    with TaskBoard.open(url, create=True, clock=HandClock(), worker=BEN) as board:
        ids = board.add_many([{"description": "x", "paths": paths} for paths in wanted])
        board.lock(held, holder)
        tasks = [task for task in board.tasks(limit=100)[0] if task.id in ids]
        free = {
            task.id
            for task in tasks
            if holder.is_same(ANN) or not any(overlaps(p, lock) for p in task.paths for lock in held)
        }
        with board.store.write() as tx:
            tx.foresee(claiming=(ANN, ("any", "agent"), 10), living=lambda: (HERE, []))
            found = tx.ready(("any", "agent"), 10, None, [], who=ANN)
            assert free <= {task.id for task in found}
            for task in found:
                near = {lock.pattern for lock in tx.near(task.paths)}
                assert {lock for lock in held if any(overlaps(p, lock) for p in task.paths)} <= near
        claimed = {task.id for task in board.claim(ANN, n=10)}
        # Of tasks that overlap each other all can be had: the holder is the same.
        assert claimed == free


def test_of_thousands_that_somebody_holds_none_is_fetched(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "paths": [f"src/m{n}/f.py"]} for n in range(3000)])
    free = board.add("y", paths=["docs"], priority=-1)
    board.lock(["src"], BEN)
    with store_of(board).write() as tx:
        tx.foresee(claiming=(ANN, ("any", "agent"), 1), living=lambda: (HERE, []))
        assert [task.id for task in tx.ready(("any", "agent"), 1, None, [], who=ANN)] == [free]


@pytest.mark.parametrize("doubt", [True, False])
def test_what_is_taken_while_one_looks_does_not_make_it_nothing(
    board: TaskBoard, monkeypatch: pytest.MonkeyPatch, doubt: bool
) -> None:
    """A claim's look is several statements. Between the one that finds the best task and the one that tells who holds
    files near it, somebody may have locked those; then what comes behind it has not been looked at."""
    trip = Link.trip
    others = TaskBoard.open(board.url, clock=HandClock(), worker=BEN)
    meanwhile = [lambda: others.lock(["first"], BEN)]

    def interrupted(self: Link, statements: Sequence[Any]) -> list[list[Any]]:
        if not meanwhile or len(statements) < 2 or statements[-1][0] != f.LOCKS_RELATED:
            return trip(self, statements)
        found = trip(self, statements[:-1])
        meanwhile.pop()()
        return found + trip(self, statements[-1:])

    if doubt:
        board.lock(["held/*.py"], BEN)
        board.add("x", paths=["held/?.py"], priority=2)
    board.add_many([{"description": "x", "paths": ["first/x"], "priority": 1}] * (2 * f.NEXT))
    board.add("x", paths=["second/x"])
    monkeypatch.setattr(Link, "trip", interrupted)
    with others:
        task = board.claim(ANN, request_key="thoroughly")
    assert not meanwhile
    assert task is not None
    assert task.paths == ["second/x"]
