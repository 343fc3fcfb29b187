"""How many trips to the server the verbs take: a claim and a completion never more than three, and in the common case
one. Where the network is slow, trips are what a verb costs."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.errors import Busy, NotClaimable, WrongStatus
from dibs.stores.postgres.round_trips import Connection
from tests.contract.people import take
from tests.postgres.desk import ANN, BEN, BOUND, DEAD, Desk

Verb = Callable[[], object]
CLAIMS: dict[str, Callable[[Desk], Verb]] = {}
COMPLETIONS: dict[str, Callable[[Desk], Verb]] = {}
OTHERS: dict[str, Callable[[Desk], Verb]] = {}


def shape(of: dict[str, Callable[[Desk], Verb]]) -> Callable[[Callable[[Desk], Verb]], Callable[[Desk], Verb]]:
    """A way to call a verb, named by its function: it prepares the board and returns the call."""

    def named(prepare: Callable[[Desk], Verb]) -> Callable[[Desk], Verb]:
        of[prepare.__name__.replace("_", " ")] = prepare
        return prepare

    return named


@shape(CLAIMS)
def plain(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x")
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def several(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add_many([{"description": "x"}] * 5)
    return lambda: got(desk.board.claim(ANN, n=5))


@shape(CLAIMS)
def by_a_human(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x", reserved="human")
    return lambda: got(desk.board.claim(Worker("eve", "human")))


@shape(CLAIMS)
def first_of_a_process(desk: Desk) -> Verb:
    desk.board.add("x")
    board = desk.another()
    return lambda: got(board.claim(ANN))


@shape(CLAIMS)
def first_of_a_worker(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x")
    return lambda: got(desk.board.claim(Worker("new", session="n")))


@shape(CLAIMS)
def with_files(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x", paths=["src/a.py", "docs"])
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def with_files_first_of_a_process(desk: Desk) -> Verb:
    desk.board.add("x", paths=["src/a.py", "docs"])
    board = desk.another()
    return lambda: got(board.claim(ANN))


@shape(CLAIMS)
def with_files_that_somebody_holds(desk: Desk) -> Verb:
    desk.warm()
    desk.far.lock(["src"], BEN)
    desk.board.add("x", paths=["src/a.py"], priority=1)
    desk.board.add("x", paths=["docs"], id="free")
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def when_there_is_nothing(desk: Desk) -> Verb:
    desk.warm()
    return lambda: desk.board.claim(ANN)


@shape(CLAIMS)
def of_a_human_when_there_is_nothing(desk: Desk) -> Verb:
    desk.warm()
    return lambda: desk.board.claim(Worker("eve", "human", session="s1"))


@shape(CLAIMS)
def with_a_request_key_when_there_is_nothing(desk: Desk) -> Verb:
    desk.warm()
    return lambda: desk.board.claim(ANN, request_key="k")


@shape(CLAIMS)
def with_the_completion_before_when_there_is_nothing(desk: Desk) -> Verb:
    task = desk.claimed()
    return lambda: task.complete("done", claim_next=True)


@shape(CLAIMS)
def when_the_dead_are_looked_for(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x")
    desk.late()
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def when_somebody_has_died(desk: Desk) -> Verb:
    desk.warm()
    desk.far.add("x")
    desk.far.claim(DEAD)
    desk.late()
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def when_a_lease_has_run_out(desk: Desk) -> Verb:
    desk.warm()
    desk.far.add("x", id="t")
    desk.far.claim(BEN, lease=1)
    desk.far.add("y", priority=-1)
    desk.late()
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def when_it_is_time_to_look_what_one_holds(desk: Desk) -> Verb:
    desk.claimed()
    desk.board.add("x")
    desk.clock.advance(100)
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def when_what_one_holds_is_to_be_renewed(desk: Desk) -> Verb:
    desk.claimed()
    desk.board.add("x")
    desk.clock.advance(1000)
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def when_files_that_one_holds_are_to_be_renewed(desk: Desk) -> Verb:
    desk.claimed(paths=["src"])
    desk.board.add("x")
    desk.clock.advance(1000)
    return lambda: got(desk.board.claim(ANN))


@shape(CLAIMS)
def by_name(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x", id="t")
    return lambda: got(desk.board.claim(ANN, "t"))


@shape(CLAIMS)
def by_name_first_of_a_process(desk: Desk) -> Verb:
    desk.board.add("x", id="t")
    board = desk.another()
    return lambda: got(board.claim(ANN, "t"))


@shape(CLAIMS)
def by_name_with_files_and_needs(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x", id="need", priority=9)
    desk.board.claim(ANN, "need")
    desk.board.complete("need")
    desk.board.add("x", ["need"], id="t", paths=["src"])
    return lambda: got(desk.board.claim(ANN, "t"))


@shape(CLAIMS)
def by_name_what_one_holds_already(desk: Desk) -> Verb:
    desk.claimed()
    return lambda: got(desk.board.claim(ANN, "t"))


@shape(CLAIMS)
def with_a_request_key(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x")
    return lambda: got(desk.board.claim(ANN, request_key="k"))


@shape(CLAIMS)
def with_a_request_key_again(desk: Desk) -> Verb:
    desk.board.add("x")
    desk.board.claim(ANN, request_key="k")
    return lambda: got(desk.board.claim(ANN, request_key="k"))


@shape(CLAIMS)
def with_the_completion_before(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    desk.board.add("y")
    return lambda: got(task.complete("done", claim_next=True))


@shape(CLAIMS)
def with_the_completion_before_and_files(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed(paths=["src"])
    desk.board.add("y", paths=["src"])
    return lambda: got(task.complete("done", claim_next=True))


@shape(COMPLETIONS)
def as_usual(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def of_one_with_files(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed(paths=["src", "docs"])
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def of_one_that_others_wait_for(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    desk.board.add_many([{"description": "y", "depends_on": ["t"]}] * 20)
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def of_one_with_all(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed(paths=["src", "docs"])
    desk.board.add_many([{"description": "y", "depends_on": ["t"], "priority": n} for n in range(20)])
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def to_a_review(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed(review=True)
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def by_another_process_with_the_token(desk: Desk) -> Verb:
    task = desk.claimed(paths=["src"])
    board = desk.another()
    return lambda: board.complete("t", "done", worker=ANN, token=task.token)


@shape(COMPLETIONS)
def by_another_process_without_a_token(desk: Desk) -> Verb:
    desk.claimed()
    board = desk.another()
    return lambda: board.complete("t", "done", worker=ANN)


@shape(COMPLETIONS)
def when_one_should_look_what_else_one_holds(desk: Desk) -> Verb:
    task = desk.claimed()
    desk.clock.advance(100)
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def when_what_else_one_holds_is_to_be_renewed(desk: Desk) -> Verb:
    desk.board.add("x", id="other")
    desk.board.claim(ANN, "other")
    task = desk.claimed()
    desk.clock.advance(1000)
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def when_other_files_are_to_be_renewed(desk: Desk) -> Verb:
    desk.board.add("x", id="other", paths=["src"])
    desk.board.claim(ANN, "other")
    desk.board.lock(["docs"], ANN)
    task = desk.claimed()
    desk.clock.advance(1000)
    return lambda: task.complete("done")


@shape(COMPLETIONS)
def again(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    desk.board.complete("t", "done", token=task.token)
    return lambda: desk.board.complete("t", "done", token=task.token)


@shape(OTHERS)
def add(desk: Desk) -> Verb:
    desk.warm()
    return lambda: desk.board.add("x")


@shape(OTHERS)
def add_a_hundred_that_need_one(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x", id="t")
    return lambda: desk.board.add_many([{"description": "y", "depends_on": ["t"]}] * 100)


@shape(OTHERS)
def release(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    return lambda: task.release()


@shape(OTHERS)
def fail(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    return lambda: task.fail("broke")


@shape(OTHERS)
def renew(desk: Desk) -> Verb:
    desk.warm()
    task = desk.claimed()
    return lambda: task.renew()


@shape(OTHERS)
def lock(desk: Desk) -> Verb:
    desk.warm()
    return lambda: desk.board.lock(["src"], ANN)


@shape(OTHERS)
def unlock(desk: Desk) -> Verb:
    desk.warm()
    desk.board.lock(["src"], ANN)
    return lambda: desk.board.unlock(None, ANN)


@shape(OTHERS)
def depend(desk: Desk) -> Verb:
    desk.warm()
    desk.board.add("x", id="t")
    desk.board.add("x", id="u")
    return lambda: desk.board.depend("t", ["u"])


@shape(OTHERS)
def tell(desk: Desk) -> Verb:
    desk.warm()
    return lambda: desk.board.tell("hello")


@shape(OTHERS)
def inbox(desk: Desk) -> Verb:
    desk.warm()
    desk.far.tell("hello")
    return lambda: desk.board.inbox(ANN)


@shape(OTHERS)
def show(desk: Desk) -> Verb:
    desk.board.add("x", id="t")
    return lambda: desk.board.get("t")


def got(answer: object) -> None:
    assert answer, "the shape is not what it says"


def count(desk: Desk, prepare: Callable[[Desk], Verb], what: str) -> int:
    trips = desk.trips(prepare(desk))
    print(f"trips: {what}: {trips}")
    return trips


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_takes_three_trips_at_most(desk: Desk, name: str) -> None:
    assert 0 < count(desk, CLAIMS[name], f"claim {name}") <= BOUND


@pytest.mark.parametrize("name", COMPLETIONS)
def test_a_completion_takes_three_trips_at_most(desk: Desk, name: str) -> None:
    assert 0 < count(desk, COMPLETIONS[name], f"complete {name}") <= BOUND


# -- everything at once

TROUBLES: dict[str, Callable[[Desk], object]] = {
    "files are held": lambda desk: desk.far.lock(["src"], BEN),
    "files are held by a glob": lambda desk: desk.far.lock(["s*/[ab].py", "docs/*.md"], BEN),
    "files are held by the dead": lambda desk: desk.far.lock(["src/a.py"], DEAD),
    "somebody has died": lambda desk: [desk.far.claim(DEAD, desk.far.add("x", paths=["lib"], priority=5))],
    "many have died": lambda desk: desk.far.claim(DEAD, n=len(desk.far.add_many([{"description": "x"}] * 30))),
    "leases have run out": lambda desk: desk.far.claim(
        BEN, n=len(desk.far.add_many([{"description": "x", "paths": [f"old/{n}"]} for n in range(5)])), lease=1
    ),
    "attempts are used up": lambda desk: [
        desk.far.claim(BEN, desk.far.add("x", max_attempts=0), lease=1) for _ in range(3)
    ],
    "one holds more": lambda desk: [
        desk.board.lock(["mine"], ANN),
        desk.board.claim(ANN, desk.board.add("x", paths=["own/a", "own/b"])),
    ],
    "humans have work": lambda desk: desk.far.add("x", reserved="human", priority=9),
}
READY = [["src/a.py"], ["src/b.py", "docs/x.md"], ["src/*.py"], ["docs"], ["lib"], []]
CALLS: dict[str, Callable[[Desk, BoardTask], Any]] = {
    "claim": lambda desk, task: desk.board.claim(ANN),
    "claim several": lambda desk, task: desk.board.claim(ANN, n=4),
    "claim by name": lambda desk, task: desk.board.claim(ANN, "named"),
    "claim with a key": lambda desk, task: desk.board.claim(ANN, request_key="k"),
    "claim as a human": lambda desk, task: desk.board.claim(Worker("eve", "human", session="e")),
    "complete": lambda desk, task: desk.board.complete(task.id, "done", token=task.token),
    "complete and claim": lambda desk, task: task.complete("done", claim_next=True),
}


@pytest.mark.parametrize("seed", range(40))
def test_no_claim_or_completion_takes_more_whatever_comes_together(desk: Desk, seed: int) -> None:
    """Nobody else is at the board at that moment; what has fallen due comes in any combination."""
    chance = random.Random(seed)
    desk.board.add("x", id="ended", paths=chance.choice([[], ["end/c.py"]]), priority=99)
    task = desk.board.claim(ANN, "ended", lease=100_000)
    assert task is not None
    desk.board.add_many([{"description": "y", "depends_on": ["ended"], "paths": chance.choice(READY)}] * 2)
    for trouble in chance.sample(sorted(TROUBLES), chance.randrange(2, 6)):
        with suppress(Busy):  # one may be in the other's way
            TROUBLES[trouble](desk)
    desk.board.add("x", id="named", paths=chance.choice(READY))
    for paths in chance.sample(READY, chance.randrange(len(READY))):
        desk.board.add("x", paths=paths, priority=chance.randrange(3))
    if chance.random() < 0.5:
        desk.warm()
    desk.clock.advance(chance.choice([0, 2, 300, 2000]))
    name = chance.choice(sorted(CALLS))

    def call() -> None:
        try:
            CALLS[name](desk, task)
        except NotClaimable:
            assert name == "claim by name"

    trips = desk.trips(call)
    print(f"trips: seed {seed}: {name}: {trips}")
    assert 0 < trips <= BOUND
    assert disagreements(desk.board) == []


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_common_verb_takes_many(desk: Desk, name: str) -> None:
    assert 0 < count(desk, OTHERS[name], name) <= 6


@pytest.mark.parametrize("prepare", [plain, several, as_usual], ids=lambda prepare: prepare.__name__)
def test_the_common_claim_and_completion_take_one(desk: Desk, prepare: Callable[[Desk], Verb]) -> None:
    assert count(desk, prepare, f"common {prepare.__name__}") == 1


def test_what_is_counted_is_what_the_store_calls_a_trip(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two counts of the same calls: on the wire, and where the store makes them."""
    made: list[int] = []
    trip, commit = Connection.trip, Connection.commit

    def committed(self: Connection, statements: Any, told: Any) -> Any:
        made.append(len(statements))
        return commit(self, statements, told)

    def counted(self: Connection, statements: Any) -> Any:
        made.append(len(statements))
        return trip(self, statements)

    call = with_files(desk)
    monkeypatch.setattr(Connection, "trip", counted)
    monkeypatch.setattr(Connection, "commit", committed)
    assert desk.trips(call) == len(made)


def test_the_first_calls_of_a_process_keep_the_bound_too(desk: Desk) -> None:
    """The driver asks the server to prepare a statement when it has seen it a few times, which is a trip of its own."""
    board = desk.another()
    board.add_many([{"description": "x", "paths": ["src"] * (n % 2)} for n in range(20)])
    counted = []
    tasks: list[BoardTask] = []
    for _ in range(20):
        counted.append(desk.trips(lambda: tasks.extend(board.claim(ANN, n=1))))
        counted.append(desk.trips(lambda: tasks.pop().complete("done")))
    print(f"trips: the first calls: {counted}")
    assert max(counted) <= BOUND


@pytest.mark.parametrize("what", ["a look", "a claim of nothing", "a refusal"])
def test_a_transaction_that_changes_nothing_does_not_make_the_connection_forget_its_statements(
    desk: Desk, what: str
) -> None:
    """The driver answers a ROLLBACK with DEALLOCATE ALL: one more trip, and the server plans everything anew."""
    desk.warm()
    task = desk.claimed()
    desk.board.complete("t", token=task.token)
    desk.proxy.watch()
    if what == "a look":
        desk.board.get("t")
    elif what == "a claim of nothing":
        assert desk.board.claim(ANN) is None
    else:
        with pytest.raises(WrongStatus):
            desk.board.release("t", worker=ANN)
    assert not [message for message in desk.proxy.log if message.text.startswith("DEALLOCATE")]


@pytest.mark.parametrize("by", ["its object", "its id"])
def test_a_worker_that_has_gone_quiet_makes_nobody_elses_completions_longer(desk: Desk, by: str) -> None:
    with TaskBoard.open(desk.url, clock=desk.clock) as board:
        for number in range(6):
            board.add("x", id=f"t{number}")
        take(board, Worker("quiet", session="q")).complete()
        for _ in range(2):
            desk.clock.advance(3600)
            first, second = take(board, ANN), take(board, ANN)
            verb: Verb = first.complete if by == "its object" else partial(board.complete, first.id)
            assert desk.trips(verb) == 1
            second.complete()
