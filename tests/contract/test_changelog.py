"""The changelog: every change has its event, readers miss none and see none twice, replaying gives back the board."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dibs import Event, TaskBoard
from dibs.errors import DibsError
from dibs.replay import replay
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, actions, take
from tests.contract.state import differences


def test_an_event_says_when_who_what_and_on_which_task(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    clock.advance(5)
    take(board, EVE)
    event = list(board.changelog())[-1]
    assert (event.time, event.worker, event.worker_type) == (START + 5, "eve", "human")
    assert (event.action, event.task_id) == ("claimed_activity", "t1")


@pytest.mark.needs("blockers", "reviews")
def test_the_actions_of_a_tasks_life_are_those_of_document_001_in_order(board: TaskBoard) -> None:
    board.add("x", id="t1", review=True)
    take(board, ANN)
    board.release("t1")
    board.block("t1", "why", worker=EVE)
    board.unblock("t1", worker=EVE)
    take(board, ANN).complete("done")
    board.reject("t1", "no", worker=EVE)
    take(board, ANN).complete("done")
    board.accept("t1", worker=EVE)
    assert actions(board, "t1") == [
        "added_activity",
        "claimed_activity",
        "released_activity",
        "blocked",
        "unblocked",
        "claimed_activity",
        "submitted_activity",
        "rejected_activity",
        "claimed_activity",
        "submitted_activity",
        "accepted_activity",
    ]


def test_numbers_grow_strictly(board: TaskBoard, other: TaskBoard) -> None:
    for i in range(10):
        (board, other)[i % 2].add(f"task {i}")
    numbers = [event.seq for event in board.changelog()]
    assert numbers == sorted(set(numbers))


def test_reading_can_go_on_where_it_stopped(board: TaskBoard) -> None:
    for i in range(5):
        board.add(f"task {i}")
    everything = list(board.changelog())
    for position, event in enumerate(everything, 1):
        assert list(board.changelog(after=event.seq)) == everything[position:]


def test_more_events_than_one_page_are_read_in_order(board: TaskBoard) -> None:
    board.add_many([{"description": str(i)} for i in range(1201)])
    added = [event for event in board.changelog() if event.action == "added_activity"]
    assert len(added) == 1201
    assert [e.seq for e in added] == list(range(added[0].seq, added[0].seq + 1201))


def test_one_tasks_events_can_be_asked_for(board: TaskBoard) -> None:
    board.add("x", id="t1")
    board.add("y", id="t2")
    take(board, ANN, "t1")
    assert [event.task_id for event in board.changelog(task_id="t1")] == ["t1", "t1"]
    assert list(board.changelog(task_id="nowhere")) == []


def test_following_sees_what_happens_and_stops_at_the_timeout(board: TaskBoard, other: TaskBoard) -> None:
    board.add("before")
    start = list(board.changelog())[-1].seq
    wanted = 60
    seen: list[Event] = []

    def follow() -> None:
        for event in board.changelog(after=start, follow=True, timeout=30):
            seen.append(event)
            if len(seen) == wanted:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    definitions = [{"description": "x"}] * (wanted // 4)
    writers = [threading.Thread(target=b.add_many, args=(definitions,)) for b in (board, other, board, other)]
    for writer in writers:
        writer.start()
    for thread in (*writers, reader):
        thread.join(30)
    assert [event.seq for event in seen] == list(range(start + 1, start + 1 + wanted))
    assert list(board.changelog(after=seen[-1].seq, follow=True, timeout=0.01)) == []


REFUSED: dict[str, Callable[[TaskBoard], object]] = {
    "add": lambda board: board.add("x", ["nowhere"]),
    "claim": lambda board: board.claim(BEN, "held"),
    "complete": lambda board: board.complete("held", worker=BEN),
    "fail": lambda board: board.fail("held", "boom", worker=BEN),
    "release": lambda board: board.release("held", worker=BEN),
    "renew": lambda board: board.renew("held", worker=BEN),
    "step": lambda board: board.step("held", "start", worker=BEN),
    "cancel": lambda board: board.cancel("held", worker=BEN),
    "block": lambda board: board.block("held", "why", worker=BEN),
    "unblock": lambda board: board.unblock("held", worker=BEN),
    "retry": lambda board: board.retry("held", worker=BEN),
    "accept": lambda board: board.accept("held", worker=BEN),
    "reject": lambda board: board.reject("held", "why", worker=BEN),
    "depend": lambda board: board.depend("free", ["free"], worker=BEN),
    "undepend": lambda board: board.undepend("free", ["held"], worker=BEN),
    "lock": lambda board: board.lock(["other", "src"], BEN),
    "unlock": lambda board: board.unlock(["src"], BEN),
}


@pytest.mark.needs("paths", "steps")
@pytest.mark.parametrize("verb", REFUSED)
def test_a_refused_verb_leaves_neither_event_nor_change(board: TaskBoard, clock: HandClock, verb: str) -> None:
    board.add("x", id="held", paths=["src"], steps=["one"])
    board.add("y", id="free")
    take(board, ANN, "held")
    clock.advance(1800)
    before = (list(board.changelog()), board.status(), board.get("held"), board.locks())
    with pytest.raises(DibsError):
        REFUSED[verb](board)
    assert (list(board.changelog()), board.status(), board.get("held"), board.locks()) == before


@pytest.mark.needs("paths")
def test_a_claim_and_its_event_and_locks_are_one_step(
    board: TaskBoard, other: TaskBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.add("x", id="t1", paths=["src"])
    from dibs.rules import tasks as rules

    def broken(*_: object) -> Event:
        raise ZeroDivisionError

    before = (list(board.changelog()), board.get("t1"))
    monkeypatch.setattr(rules, "claim", broken)
    with pytest.raises(ZeroDivisionError):
        board.claim(ANN)
    monkeypatch.undo()
    assert (list(other.changelog()), other.get("t1"), other.locks()) == (*before, [])
    assert take(board, ANN).id == "t1"


@pytest.mark.needs(
    "blockers",
    "cancelled tasks",
    "labels",
    "limits of attempts",
    "locks",
    "parents",
    "paths",
    "priorities",
    "reservations",
    "reviews",
    "steps",
)
def test_replaying_the_changelog_gives_the_board(board: TaskBoard, other: TaskBoard, clock: HandClock) -> None:
    board.add("plain", id="t1", priority=3, labels=["a"], worker=ANN)
    board.add(
        "with all", ["t1"], id="t2", paths=["src/**"], steps=["one", "two"], review=True, max_attempts=0, parent="t1"
    )
    board.add("human", id="t3", reserved="human")
    board.add("to be blocked", id="t4", paths=["lib"])
    take(board, ANN, "t1").complete("done")
    take(board, ANN, "t2", lease=600)
    board.step("t2", "start", worker=ANN)
    clock.advance(300)
    board.tell("hello", worker=ANN)
    board.step("t2", "done", "note", worker=ANN)
    board.renew("t2", lease=900)
    board.lock(["docs", "etc"], BEN, lease=100)
    board.lock(["docs"], BEN, lease=500)
    board.unlock(["etc"], BEN)
    clock.jump(70_000)
    board.block("t4", "why", worker=EVE)
    board.depend("t3", ["t4"], worker=EVE)
    board.undepend("t3", ["t4"], worker=EVE)
    board.complete("t2", "look", worker=ANN)
    board.reject("t2", "no", worker=EVE)
    board.retry("t2", worker=EVE)
    board.unblock("t4", "because", worker=EVE)
    take(board, BEN, "t4", lease=50)
    board.cancel("t3", "no", worker=EVE)
    clock.advance(60)
    board.recover()
    assert differences(board, replay(other.changelog())) == []


@pytest.mark.needs("labels")
def test_changing_an_event_that_was_read_does_not_change_the_changelog(board: TaskBoard) -> None:
    board.add("x", id="t1", labels=["a"])
    event = next(board.changelog(task_id="t1"))
    assert event.data is not None
    event.data["task"]["labels"].append("b")
    event.action = "nonsense"
    again = next(board.changelog(task_id="t1"))
    assert again.data is not None
    assert (again.action, again.data["task"]["labels"]) == ("added_activity", ["a"])
