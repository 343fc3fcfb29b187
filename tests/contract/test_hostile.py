"""What hostile hands found: reused request keys, forged exports, odd waits, a board full of held paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dibs import BoardTask, LeaseLost, TaskBoard, TaskStatus, holds
from dibs.errors import Busy, Invalid
from dibs.paths import overlaps
from dibs.transfer import dump, load
from tests.clocks import HandClock
from tests.contract.people import ANN, BEN, EVE, LEAD, take

Entries = list[Any]


def snapshot(board: TaskBoard) -> list[str]:
    """Everything that a board holds."""
    return list(dump(board))


# -- many tasks whose paths are held


class Work:
    """What one claim asks of its store and of the path rules."""

    def __init__(self) -> None:
        self.overlaps = self.lock_queries = self.filtered = 0


def work_of_a_claim(board: TaskBoard, tasks: int, monkeypatch: pytest.MonkeyPatch) -> Work:
    board.add_many([{"description": "x", "paths": [f"src/{number}.py"]} for number in range(tasks)])
    board.lock(["src/**"], BEN)
    with board.store.write() as tx:
        kind: Any = type(tx)
    work = Work()
    ready, locks = kind.ready, kind.locks

    def counted_overlaps(a: str, b: str) -> bool:
        work.overlaps += 1
        return overlaps(a, b)

    def counted_ready(tx: Any, reserved: Any, limit: int, after: Any = None, held: Any = (), **how: Any) -> list[BoardTask]:
        found: list[BoardTask] = ready(tx, reserved, limit, after, held, **how)
        work.filtered += len(found) * max(1, len(held))  # each row is compared with each of the held paths
        return found

    def counted_locks(tx: Any, *args: Any, **more: Any) -> Any:
        work.lock_queries += 1
        return locks(tx, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(holds, "overlaps", counted_overlaps)
        patch.setattr(kind, "ready", counted_ready)
        patch.setattr(kind, "locks", counted_locks)
        assert board.claim(ANN) is None
    return work


def test_a_claim_past_thousands_of_held_paths_does_work_in_proportion_to_them(
    board: TaskBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = work_of_a_claim(board, 3000, monkeypatch)
    assert 3000 <= work.overlaps <= 3 * 3000
    assert work.lock_queries < 20
    assert work.filtered <= 3 * 16 * 3000


def test_a_free_task_behind_thousands_of_held_paths_is_found(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "paths": [f"src/{number}.py"]} for number in range(3000)])
    board.add("free", id="free", paths=["docs/a.md"])
    board.lock(["src/**"], BEN)
    assert take(board, ANN).id == "free"
    assert board.claim(ANN) is None


# -- request keys


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


@pytest.mark.parametrize("ending", ["complete", "fail", "release", "block", "cancel", "expiry"])
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


# -- waiting


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


def test_a_wait_of_nothing_is_fine(board: TaskBoard) -> None:
    board.lock(["src/a.py"], BEN)
    assert board.claim(ANN, wait=0) is None
    assert board.wait(ANN, 0) is False
    with pytest.raises(Busy):
        board.lock(["src/a.py"], ANN, wait=0)


# -- forged exports


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


def test_an_honest_export_is_imported_and_works_on(board: TaskBoard, clock: HandClock) -> None:
    source = furnished(clock)
    lines = list(dump(source))
    assert load(board, lines) == 4
    assert [task.id for task in board.tasks()[0]] == [task.id for task in source.tasks()[0]]
    assert board.get("first") == source.get("first")
    assert board.locks() == source.locks()
    board.complete("first", token=source.get("first").token)
    assert take(board, BEN).id == "second"


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
