"""Exports: an honest one is imported and works on; a forged one is refused, and leaves the board empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.errors import Invalid
from dibs.transfer import dump, load
from tests.clocks import HandClock
from tests.contract.people import ANN, BEN, EVE, take
from tests.contract.state import snapshot

Entries = list[Any]


def furnished(clock: HandClock) -> TaskBoard:
    """A board in memory with a bit of everything."""
    board = TaskBoard.open("memory:", create=True, clock=clock)
    board.add("first", id="first", labels=["a"], paths=["src/**"], steps=["one", "two"], priority=3)
    board.add("second", id="second", depends_on=["first"])
    board.add("third", id="third", depends_on=["second"], review=True, max_attempts=2)
    board.add("fourth", id="fourth", request_key="k")
    board.block("fourth", "why not", worker=EVE)
    board.claim(ANN, "first", request_key="c")
    board.step("first", "start", worker=ANN)
    board.lock(["docs/a.md"], BEN, shared=True)
    board.tell("hello", "ben", worker=ANN)
    board.inbox(BEN)
    return board


def entries(clock: HandClock) -> Entries:
    return [json.loads(line) for line in dump(furnished(clock))]


def written(lines: Entries) -> list[str]:
    """The lines of an export whose counts are right, whatever else was done to it."""
    kept = [line for line in lines if not (isinstance(line, dict) and "end" in line)]
    return [json.dumps(line) for line in [*kept, {"end": len(kept)}]]


def only(lines: Entries, kind: str, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = [line[kind] for line in lines if kind in line][number]
    return found


def the_task(lines: Entries, task_id: str) -> dict[str, Any]:
    return next(line["task"] for line in lines if line.get("task", {}).get("id") == task_id)


def without(lines: Entries, unwanted: Callable[[dict[str, Any]], bool]) -> None:
    lines[:] = [line for line in lines if not unwanted(line)]


def close_a_circle(lines: Entries) -> None:
    """In the tasks and, so that the two agree, in the changelog."""
    the_task(lines, "first")["depends_on"] = ["third"]
    event = next(line["event"] for line in lines if line.get("event", {}).get("task_id") == "first")
    event["data"]["task"]["depends_on"] = ["third"]


FORGERIES: dict[str, Callable[[Entries], object]] = {
    "a task is completed": lambda x: the_task(x, "second").update(status="completed"),
    "a status that is none": lambda x: the_task(x, "second").update(status="nearly"),
    "a claimed task is pending": lambda x: the_task(x, "first").update(status="pending"),
    "another token": lambda x: the_task(x, "first").update(token=1),
    "no token": lambda x: the_task(x, "first").pop("token"),
    "another holder": lambda x: the_task(x, "first")["holder"].update(name="mallory"),
    "a longer lease": lambda x: the_task(x, "first").update(lease_expires_at=9e9),
    "another description": lambda x: the_task(x, "first").update(description="rm -rf"),
    "a dependency less": lambda x: the_task(x, "second").pop("depends_on"),
    "a dependency on nothing": lambda x: the_task(x, "second").update(depends_on=["nowhere"]),
    "a dependency on itself": lambda x: the_task(x, "second").update(depends_on=["second"]),
    "a circle": close_a_circle,
    "a blocker less": lambda x: the_task(x, "fourth").pop("blockers"),
    "no changelog": lambda x: without(x, lambda line: "event" in line),
    "the claim's event is gone": lambda x: without(
        x, lambda line: line.get("event", {}).get("action") == "claimed_activity"
    ),
    "an added task's event is gone": lambda x: without(
        x, lambda line: line.get("event", {}).get("action") == "added_activity"
    ),
    "a task is gone": lambda x: without(x, lambda line: line.get("task", {}).get("id") == "third"),
    "a task twice": lambda x: x.insert(2, x[1]),
    "two tasks with one number": lambda x: the_task(x, "second").update(seq=the_task(x, "first")["seq"]),
    "an event twice": lambda x: x.insert(-1, {"event": only(x, "event", -1)}),
    "a huge number of a task": lambda x: the_task(x, "fourth").update(seq=2**63),
    "a huge number of an event": lambda x: only(x, "event", -1).update(seq=2**63),
    "a negative number of a task": lambda x: the_task(x, "first").update(seq=-1),
    "no number of an event": lambda x: only(x, "event").update(seq=0),
    "a lock is gone": lambda x: without(x, lambda line: "lock" in line),
    "a lock on more": lambda x: only(x, "lock").update(pattern="**"),
    "a lock's other holder": lambda x: only(x, "lock")["holder"].update(name="mallory"),
    "a lock's other token": lambda x: only(x, "lock").update(token=99),
    "a lock for longer": lambda x: only(x, "lock").update(expires_at=9e9),
    "a lock that nobody took": lambda x: x.insert(-1, {"lock": {**only(x, "lock"), "pattern": "etc"}}),
    "a lock that is shared by claim": lambda x: only(x, "lock", -1).update(shared="yes"),
    "a field that no task has": lambda x: the_task(x, "first").update(colour="red"),
    "a task that is a list": lambda x: x[1].update(task=[]),
    "a line that is a number": lambda x: x.insert(1, 5),
    "an id that is a number": lambda x: the_task(x, "fourth").update(id=7),
    "an id that is a path": lambda x: the_task(x, "fourth").update(id="../../etc"),
    "a priority that is text": lambda x: the_task(x, "first").update(priority="high"),
    "a description that is a number": lambda x: the_task(x, "first").update(description=5),
    "dependencies that are a number": lambda x: the_task(x, "second").update(depends_on=3),
    "labels that are text": lambda x: the_task(x, "first").update(labels="a"),
    "paths that are an object": lambda x: the_task(x, "first").update(paths={"src/**": 1}),
    "steps that are numbers": lambda x: the_task(x, "first").update(steps=[1, 2]),
    "a holder that is text": lambda x: the_task(x, "first").update(holder="ann"),
    "a time that is text": lambda x: the_task(x, "first").update(created_at="yesterday"),
    "a number that is text": lambda x: the_task(x, "first").update(seq="1"),
    "an event's number that is text": lambda x: only(x, "event").update(seq="1"),
    "an event's time that is text": lambda x: only(x, "event", 1).update(time="now"),
    "an event's worker that is a list": lambda x: only(x, "event", 1).update(worker=["ann"]),
    "an event's data that is a list": lambda x: only(x, "event", 1).update(data=[1]),
    "an event's data that is text": lambda x: only(x, "event", 1).update(data="task"),
    "a lock's end that is text": lambda x: only(x, "lock").update(expires_at="soon"),
    "a lock's holder that is text": lambda x: only(x, "lock").update(holder="ann"),
    "a message that is text": lambda x: x.insert(-1, {"message": "hello"}),
    "a message's number that is text": lambda x: only(x, "message").update(seq="one"),
    "a message's content that is a list": lambda x: only(x, "message").update(content=["hello"]),
    "a message's huge number": lambda x: only(x, "message").update(seq=2**63),
    "a read mark that is text": lambda x: next(line for line in x if "reader" in line).update(mark="all"),
    "a reader without a mark": lambda x: next(line for line in x if "reader" in line).pop("mark"),
    "a request's answer that is a list": lambda x: next(line for line in x if "request" in line).update(answer=[1]),
    "a request's answer that is no answer": lambda x: next(line for line in x if "request" in line).update(answer="x"),
    "a request's time that is text": lambda x: next(line for line in x if "request" in line).update(time="now"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_export_is_refused_and_leaves_the_board_empty(
    board: TaskBoard, clock: HandClock, forgery: str
) -> None:
    lines = entries(clock)
    FORGERIES[forgery](lines)
    before = snapshot(board)
    with pytest.raises(Invalid, match="nothing was imported") as caught:
        load(board, written(lines))
    assert "history of its own" not in caught.value.message
    assert snapshot(board) == before
    assert board.counts() == TaskBoard().counts()


@pytest.mark.needs("histories")
def test_a_forged_count_of_unmet_dependencies_is_not_believed(board: TaskBoard, clock: HandClock) -> None:
    lines = entries(clock)
    the_task(lines, "second")["unmet"] = 0
    the_task(lines, "fourth")["unmet"] = 7
    try:
        load(board, written(lines))
    except Invalid:
        assert sum(board.counts().values()) == 0
    else:
        assert (board.get("second").unmet, board.get("fourth").unmet) == (1, 0)
        assert board.claim(BEN) is None


@pytest.mark.needs("histories")
def test_an_honest_export_is_imported_and_works_on(board: TaskBoard, clock: HandClock) -> None:
    source = furnished(clock)
    lines = list(dump(source))
    assert load(board, lines) == 4
    assert [task.id for task in board.tasks()[0]] == [task.id for task in source.tasks()[0]]
    assert board.get("first") == source.get("first")
    assert board.locks() == source.locks()
    board.complete("first", token=source.get("first").token)
    assert take(board, BEN).id == "second"


@pytest.mark.needs("cancelled tasks", "failed tasks", "histories")
def test_an_honest_export_of_many_kinds_of_ends_is_imported(board: TaskBoard) -> None:
    clock = HandClock()  # of its own: a jump would be an event on the other board too
    source = furnished(clock)
    source.complete("first", token=source.get("first").token)
    source.unblock("fourth", "resolved", worker=EVE)
    clock.advance(100_000)
    clock.jump(5000)
    take(source, ANN, "second", lease=5).fail("boom")
    take(source, ANN, "fourth", lease=5)
    clock.advance(10)
    source.recover()
    source.cancel("third", "no", worker=EVE)
    source.retry("second", worker=EVE)
    assert load(board, list(dump(source))) == 4
    assert [(t.id, t.status, t.unmet) for t in board.tasks()[0]] == [
        (t.id, t.status, t.unmet) for t in source.tasks()[0]
    ]
