"""How many round trips to the server the verbs take: where the network is slow, these are what a verb costs. A plain
claim and a plain completion take one, and any other verb five at most while nobody is in its way and nothing is to be
given back or renewed."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.errors import NotClaimable, NotFound, WrongStatus
from dibs.stores.postgres.round_trips import Connection
from dibs.stores.postgres.statements import SHARE, WATERMARKS
from dibs.stores.postgres.store import PostgresStore
from dibs.stores.postgres.tx import PostgresTx
from tests.clocks import HandClock
from tests.contract.people import take
from tests.postgres.desk import ANN, BEN, BOUND, DEAD, EVE, Desk

Verb = Callable[[], object]
Prepare = Callable[[Desk], Verb]


def task_for_ann(desk: Desk, **options: Any) -> BoardTask:
    desk.board.add("x", id="t", **options)
    return take(desk.board, ANN, "t")


def claim(board: TaskBoard, *about: Any, **options: Any) -> None:
    """A claim that must get something."""
    assert board.claim(*about, **options), "the case is not what it says"


def case_claim_with_files(desk: Desk) -> Verb:
    desk.board.add("x", paths=["src/a.py", "docs"])
    return lambda: claim(desk.board, ANN)


def case_claim_of_several(desk: Desk) -> Verb:
    desk.board.add_many([{"description": "x", "paths": [f"{n}.py"]} for n in range(5)])
    return lambda: claim(desk.board, ANN, n=5)


def case_claim_by_a_human(desk: Desk) -> Verb:
    desk.board.add("x", reserved="human")
    return lambda: claim(desk.board, EVE)


def case_claim_by_id(desk: Desk) -> Verb:
    desk.board.add("x", id="t")
    return lambda: claim(desk.board, ANN, "t")


def case_claim_by_id_of_what_one_holds(desk: Desk) -> Verb:
    task_for_ann(desk)
    return lambda: claim(desk.board, ANN, "t")


def case_claim_with_a_request_key(desk: Desk) -> Verb:
    desk.board.add("x")
    return lambda: claim(desk.board, ANN, request_key="k")


def case_claim_with_a_request_key_again(desk: Desk) -> Verb:
    desk.board.add("x")
    desk.board.claim(ANN, request_key="k")
    return lambda: claim(desk.board, ANN, request_key="k")


def case_complete_with_files(desk: Desk) -> Verb:
    task = task_for_ann(desk, paths=["src", "docs"])
    return lambda: task.complete("done")


def case_complete_with_dependants(desk: Desk) -> Verb:
    task = task_for_ann(desk)
    desk.board.add_many([{"description": "y", "depends_on": ["t"], "priority": n} for n in range(20)])
    return lambda: task.complete("done")


def case_complete_with_files_and_dependants(desk: Desk) -> Verb:
    task = task_for_ann(desk, paths=["src", "docs"])
    desk.board.add_many([{"description": "y", "depends_on": ["t"]}] * 20)
    return lambda: task.complete("done")


def case_complete_with_review(desk: Desk) -> Verb:
    task = task_for_ann(desk, review=True)
    return lambda: task.complete("done")


def case_complete_again(desk: Desk) -> Verb:
    task = task_for_ann(desk)
    desk.board.complete("t", "done", token=task.token)
    return lambda: desk.board.complete("t", "done", token=task.token)


def case_complete_without_a_token(desk: Desk) -> Verb:
    task_for_ann(desk)
    return lambda: desk.board.complete("t", "done", worker=ANN)


def case_complete_and_claim(desk: Desk) -> Verb:
    task = task_for_ann(desk)
    desk.board.add("y")
    return lambda: task.complete("done", claim_next=True)


def case_release(desk: Desk) -> Verb:
    return task_for_ann(desk).release


def case_fail(desk: Desk) -> Verb:
    return partial(task_for_ann(desk).fail, "broke")


def case_add(desk: Desk) -> Verb:
    return lambda: desk.board.add("x")


def case_add_with_dependencies(desk: Desk) -> Verb:
    desk.board.add("x", id="t")
    return lambda: desk.board.add("y", ["t"])


def case_add_many_with_dependencies(desk: Desk) -> Verb:
    desk.board.add("x", id="t")
    return lambda: desk.board.add_many([{"description": "y", "depends_on": ["t"]}] * 50)


def case_lock(desk: Desk) -> Verb:
    return lambda: desk.board.lock(["src"], ANN)


def case_lock_again(desk: Desk) -> Verb:
    desk.board.lock(["src"], ANN)
    return lambda: desk.board.lock(["src"], ANN)


def case_unlock(desk: Desk) -> Verb:
    desk.board.lock(["src"], ANN)
    return lambda: desk.board.unlock(None, ANN)


def case_depend(desk: Desk) -> Verb:
    desk.board.add_many([{"description": "x", "id": i} for i in ("t", "u")])
    return lambda: desk.board.depend("t", ["u"])


def case_undepend(desk: Desk) -> Verb:
    desk.board.add_many([{"description": "x", "id": "u"}, {"description": "x", "id": "t", "depends_on": ["u"]}])
    return lambda: desk.board.undepend("t", ["u"])


def case_step(desk: Desk) -> Verb:
    task_for_ann(desk, steps=["one", "two"], paths=["src"])
    return lambda: desk.board.step("t", "done", worker=ANN)


def case_tell(desk: Desk) -> Verb:
    return lambda: desk.board.tell("hello")


def case_inbox(desk: Desk) -> Verb:
    desk.board.inbox(ANN)
    desk.far.tell("hello")
    return lambda: desk.board.inbox(ANN)


def case_renew(desk: Desk) -> Verb:
    return task_for_ann(desk, paths=["src"]).renew


def case_show(desk: Desk) -> Verb:
    desk.board.add("x", id="t")
    return lambda: desk.board.get("t")


CASES: dict[str, Prepare] = {
    name[5:].replace("_", " "): case for name, case in globals().items() if name[:5] == "case_"
}


def count(desk: Desk, prepare: Prepare, what: str) -> int:
    desk.warm()
    verb = prepare(desk)
    desk.settled()
    if not what.startswith("plain"):  # a board whose tasks name files: the fast path is tried only now and then
        desk.board.store._fast_path._misses = 3  # type: ignore[attr-defined]
    trips = desk.trips(verb)
    print(f"round trips: {what}: {trips}")
    return trips


@pytest.mark.parametrize("case", CASES)
def test_a_verb_takes_few_round_trips(desk: Desk, case: str) -> None:
    assert 0 < count(desk, CASES[case], case) <= BOUND


def plain_claim(desk: Desk) -> Verb:
    desk.board.add("x")
    return lambda: claim(desk.board, ANN)


def plain_claim_of_several(desk: Desk) -> Verb:
    desk.board.add_many([{"description": "x"}] * 5)
    return lambda: claim(desk.board, ANN, n=5)


def plain_completion(desk: Desk) -> Verb:
    task = task_for_ann(desk)
    return lambda: task.complete("done")


@pytest.mark.parametrize("prepare", [plain_claim, plain_claim_of_several, plain_completion])
def test_a_plain_claim_and_a_plain_completion_take_one(desk: Desk, prepare: Prepare) -> None:
    assert count(desk, prepare, prepare.__name__) == 1


# -- what comes on top

AND_MORE: dict[str, tuple[Prepare, int]] = {}


def more(number: int) -> Callable[[Prepare], Prepare]:
    """So many round trips more than BOUND it takes (measured)."""

    def noted(prepare: Prepare) -> Prepare:
        AND_MORE[prepare.__name__.replace("_", " ")] = prepare, number
        return prepare

    return noted


@more(1)  # the needs are read after the locks, so the number that came with these is too old
def claim_by_id_with_files_and_needs(desk: Desk) -> Verb:
    desk.board.add("x", id="need", priority=9)
    take(desk.board, ANN, "need").complete()
    desk.board.add("x", ["need"], id="t", paths=["src"])
    return lambda: claim(desk.board, ANN, "t")


@more(1)  # what else there is, and all locks
def claim_beside_held_files(desk: Desk) -> Verb:
    desk.far.lock(["src"], BEN)
    desk.board.add("x", paths=["src/a.py"], priority=1)
    desk.board.add("x", paths=["docs"])
    return lambda: claim(desk.board, ANN)


@more(4)  # where nothing is to be had, the dead are looked for, and tasks once more
def claim_of_what_is_not_there(desk: Desk) -> Verb:
    return lambda: desk.board.claim(ANN, request_key="k")


@more(3)  # likewise
def complete_and_claim_nothing(desk: Desk) -> Verb:
    task = task_for_ann(desk)
    return lambda: task.complete("done", claim_next=True)


@more(1)
def claim_when_the_dead_are_looked_for(desk: Desk) -> Verb:
    desk.board.add("x")
    return after(desk.late, lambda: claim(desk.board, ANN))


@more(4)  # its tasks, its locks, their numbers
def claim_when_somebody_has_died(desk: Desk) -> Verb:
    desk.far.add("x", paths=["src"])
    desk.far.claim(DEAD)
    return after(desk.late, lambda: claim(desk.board, ANN))


@more(2)  # and after these the dead are looked for
def claim_when_a_lease_has_run_out(desk: Desk) -> Verb:
    desk.far.add("x", id="t")
    desk.far.claim(BEN, lease=1)
    desk.far.add("y", priority=-1)
    return after(desk.late, lambda: claim(desk.board, ANN))


@more(4)  # another transaction
def claim_when_what_one_holds_is_renewed(desk: Desk) -> Verb:
    task_for_ann(desk, paths=["src"])
    desk.board.add("x")
    return after(lambda: desk.clock.advance(1000), lambda: claim(desk.board, ANN))


def after(something: Callable[[], object], verb: Verb) -> Verb:
    """What makes the difference happens when all else is settled."""

    def call() -> object:
        something()
        return verb()

    return call


@pytest.mark.parametrize("name", AND_MORE)
def test_what_comes_on_the_way_takes_a_few_more(desk: Desk, name: str) -> None:
    prepare, number = AND_MORE[name]
    assert 0 < count(desk, prepare, name) <= BOUND + number


# -- whatever stands before what a claim can have: as on any other board

MANY = 300
TWIN = Worker("ann", session="another")


def add(board: TaskBoard, number: int, paths: str, **options: Any) -> list[str]:
    """Tasks whose paths have their number in them."""
    return board.add_many([{"description": "x", "paths": [paths.format(n)], **options} for n in range(number)])


def claimed(board: TaskBoard, who: Worker, ids: list[str], lease: float) -> None:
    got = board.claim(who, n=len(ids), lease=lease)
    assert {task.id for task in got} == set(ids)


def held(*patterns: str, paths: str, who: Worker = BEN, priority: int = 3) -> Trouble:
    def trouble(board: TaskBoard, clock: HandClock, number: int) -> None:
        board.lock(patterns, who)
        add(board, number, paths, priority=priority)

    return trouble


def left(paths: str, who: Worker, lease: float, **options: Any) -> Trouble:
    def trouble(board: TaskBoard, clock: HandClock, number: int) -> None:
        claimed(board, who, add(board, number, paths, **options), lease)
        clock.advance(2 if lease < 2 else 0)

    return trouble


Trouble = Callable[[TaskBoard, HandClock, int], None]
TROUBLES: dict[str, Trouble] = {
    "held by wildcards": held("src/*/a*.py", paths="src/m{}/*.py"),
    "held as a whole": held("lib", paths="lib/m{}/*.py"),
    "held by classes": held("app/[a-z]/**", paths="app/x/{}.py"),
    "near classes and free": held("web/[a-f]/**", paths="web/x/{}.py", priority=0),
    "held by a namesake": held("twin", paths="twin/{}.py", who=TWIN),
    "held by the dead": held("grave/?/**", paths="grave/*/{}.py", who=DEAD, priority=0),
    "in work": left("work/{}", BEN, 100_000, priority=10),
    "left by the dead": left("left/{}", DEAD, 100_000, priority=9),
    "spent by the dead": left("spent/{}", DEAD, 100_000, priority=11, max_attempts=0),
    "spent and run out": left("old/{}", BEN, 1, priority=12, max_attempts=0),
}
CALLS: dict[str, Callable[[TaskBoard, BoardTask], Any]] = {
    "claim": lambda board, task: board.claim(ANN),
    "claim several": lambda board, task: board.claim(ANN, n=5),
    "claim by name": lambda board, task: board.claim(ANN, "named"),
    "claim with a key": lambda board, task: board.claim(ANN, request_key="k"),
    "claim many with a key": lambda board, task: board.claim(ANN, n=60, request_key="k"),
    "claim as a human": lambda board, task: board.claim(EVE),
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
        board.add("x", id="ended", paths=["end/c.py"])
        task = take(board, ANN, "ended", lease=100_000)
        for trouble in self.troubles:
            TROUBLES[trouble](far, clock, self.number)
        if self.free:
            far.add("x", id="named", paths=["free/*.py"], priority=-1)
        # Is it time to look for the dead? What others did has no part in that.
        board.core.reaper._reaped = float("-inf") if self.late else clock.wall()
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
        print(f"round trips: {self.call}: {', '.join(self.troubles)}: {trips}")
        assert got == self.elsewhere()
        assert disagreements(desk.board) == []


@pytest.mark.parametrize("free", [True, False], ids=["something free", "nothing free"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_claim_gets_what_it_would_get_on_a_board_in_a_file(desk: Desk, trouble: str, free: bool) -> None:
    Case([trouble], MANY, free, "claim", late=False).check(desk)


@pytest.mark.parametrize("seed", range(24))
def test_and_whatever_comes_together(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    troubles = chance.sample(sorted(TROUBLES), chance.randrange(1, 5))
    number = chance.choice([10, 100, MANY])
    Case(troubles, number, chance.random() < 0.6, chance.choice(sorted(CALLS)), chance.random() < 0.5).check(desk)


# -- watermarks, connections


@pytest.mark.parametrize("files", [[], ["src/{}.py"]], ids=["plain", "with files"])
def test_a_watermark_that_has_fallen_behind_costs_no_more(desk: Desk, files: list[str]) -> None:
    store = desk.board.store
    assert isinstance(store, PostgresStore)
    store.watermark.far = 20
    desk.far.add_many([{"description": "x", "paths": [path.format(n) for path in files]} for n in range(60)])
    raised, counted = set(), []
    for turn in range(60):
        if turn % 2:  # else it is too soon to try again
            store.watermark._tried = float("-inf")
        desk.settled()
        counted.append(desk.trips(lambda: desk.board.claim(ANN)))
        raised.add(store.ask(("SELECT floor FROM dibs.ready_watermark WHERE board = $1", (store.board,)))[0][0][0])
    print(f"round trips: {counted}")
    assert max(counted) <= BOUND
    assert len(raised) > 1


def test_a_watermark_that_cannot_be_raised_takes_nothing_back(desk: Desk) -> None:
    """Somebody is about to make a task ready and takes its time: the claim stands, and the connection goes on."""
    store = desk.board.store
    assert isinstance(store, PostgresStore)
    store.watermark.far = 1
    desk.far.add_many([{"description": "x", "paths": [f"{n}.py"]} for n in range(9)])
    assert len(desk.board.claim(ANN, n=8)) == 8
    with desk.far.store.write() as maker:
        assert isinstance(maker, PostgresTx)
        maker._ask((SHARE, (store.board, WATERMARKS)))
        connection = store.connections.take()
        store.connections.give(connection)
        store.watermark._tried = float("-inf")
        assert desk.board.claim(ANN) is not None
        assert store.connections.take() is connection
        store.connections.give(connection)
    assert disagreements(desk.board) == []


def test_what_is_counted_is_what_the_store_calls_a_trip(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two counts of the same calls: on the wire, and where the store makes them."""
    made: list[int] = []
    trip, commit = Connection.trip, Connection.commit

    def committed(self: Connection, statements: Any, behind: Any) -> Any:
        made.append(len(statements))
        return commit(self, statements, behind)

    def counted(self: Connection, statements: Any) -> Any:
        made.append(len(statements))
        return trip(self, statements)

    call = case_claim_with_files(desk)
    monkeypatch.setattr(Connection, "trip", counted)
    monkeypatch.setattr(Connection, "commit", committed)
    assert desk.trips(call) == len(made)


def test_the_first_calls_of_a_process_keep_the_bound_too(desk: Desk) -> None:
    """A statement that has been sent a few times is prepared, which is no trip of its own."""
    board = desk.another()
    board.add_many([{"description": "x", "paths": ["src"] * (n % 2)} for n in range(20)])
    counted = []
    tasks: list[BoardTask] = []
    claim(board, ANN)  # looks for the dead, and what there is to renew
    for _ in range(18):
        board.core.reaper._reaped = desk.clock.wall()
        counted.append(desk.trips(lambda: tasks.extend(board.claim(ANN, n=1))))
        counted.append(desk.trips(lambda: tasks.pop().complete("done")))
    print(f"round trips: the first calls: {counted}")
    assert max(counted) <= BOUND


@pytest.mark.parametrize("what", ["a look", "a claim of nothing", "a refusal"])
def test_a_transaction_that_changes_nothing_does_not_make_the_connection_forget_its_statements(
    desk: Desk, what: str
) -> None:
    """The driver's own rollback would have the server forget them all: one more trip, and everything planned anew."""
    desk.warm()
    task = task_for_ann(desk)
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
