"""The fast path of `dibs.stores.postgres.fast_path` does what the rules do: the same calls on two boards, of which one
has only the long way, leave the same rows in every table."""

from __future__ import annotations

import gc
import json
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import dict_row

from dibs import TaskBoard, Worker
from dibs.errors import DibsError
from dibs.stores.postgres.connections import MOST
from dibs.stores.postgres.failures import is_lost
from dibs.stores.postgres.fast_path import CLAIM, COMPLETE
from dibs.stores.postgres.round_trips import Connection
from dibs.worker import boot, host, process_start
from tests.clocks import HandClock
from tests.contract.test_differential import Call, call, plain
from tests.postgres.server import Server, server_for_test
from tests.searching import examples

ODD = 'Zoë "the\\fox" \' $1 %s {0} 🦊'
RESULTS = [
    None,
    "",
    " ",
    "done",
    "said \"no\" \\ and \\u0041, 'it''s'",
    "line\r\n\ttab \x01\x1f\x7f\u2028 end",
    "ünï 🎉 \U0010ffff",
    "$1 %s {} ${x}",
    "null",
    "x" * 65_000,
]
DEAD = Worker("ghost", session="g", host=host(), pid=2**22 + 1, started="1", boot=boot())
"""Lives as long as a process that is not there."""
WORKERS = [
    Worker("ann", session="s1"),
    Worker("ann", session="s2"),
    Worker("ann"),
    Worker("ben", "system", role="lead"),
    Worker(ODD, role='a "role"\n\\', session="ß\\'"),
    Worker("eve", "human"),
    DEAD,
]


class Side:
    """A board, used by two processes (as far as the board can tell), with or without the fast path."""

    def __init__(self, server: Server, fast: bool) -> None:
        url = server.url(board=f"q{uuid.uuid4().hex}")
        self.clock = HandClock()
        self.boards = [TaskBoard.open(url, create=True, clock=self.clock, worker=WORKERS[0])]
        self.boards.append(TaskBoard.open(url, clock=self.clock))
        self.counts = {"claim": 0, "complete": 0}
        for board in self.boards:
            store: Any = board.store
            store.try_claim = self._counted("claim", store.try_claim if fast else lambda *about: None)
            store.try_complete = self._counted("complete", store.try_complete if fast else lambda *about: None)
        self.number = board_number(self.boards[0])
        self.events: list[int] = []
        self.places: dict[int, int] = {}
        self.connection = psycopg.connect(server.url(), autocommit=True, row_factory=dict_row)
        with self.boards[0].store.write() as tx:
            for who in WORKERS:
                tx.set_mark(who.name, 1)  # readers from before names were limited
        self.look()

    def _counted(self, verb: str, short: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*about: Any) -> Any:
            found = short(*about)
            self.counts[verb] += bool(found)
            return found

        return counted

    def taken(self, verb: str) -> int:
        """How often the fast path was enough."""
        return self.counts[verb]

    def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        asked = f"SELECT * FROM dibs.{table} WHERE board = {self.number} ORDER BY {order}"
        return [{k: v for k, v in row.items() if k != "board"} for row in self.connection.execute(asked.encode())]

    def look(self) -> dict[str, list[dict[str, Any]]]:
        """Every row of the board. Numbers of events (so also tokens) and of tasks are told by their place: gaps mean
        nothing."""
        events = self.rows("event", "seq")
        tasks = self.rows("task", "seq")
        self.events = [row["seq"] for row in events]
        self.places = {seq: place for place, seq in enumerate(self.events, 1)}
        at = {row["seq"]: place for place, row in enumerate(tasks, 1)}
        self.check_watermarks(tasks)
        for row in events:
            row["seq"], row["previous"] = self.places[row["seq"]], self.places.get(row["previous"])
            row["data"] = plain(json.loads(row["data"] or "null"), self.places)
        for row in tasks:
            del row["claim_mark"]  # random, and only for whoever lost the answer
            row["seq"] = at[row["seq"]]
            row["token"], row["last_event"] = self.places.get(row["token"]), self.places[row["last_event"]]
            row["holder"] = json.loads(row["holder"] or "null")
        edges = [{key: at[seq] for key, seq in row.items()} for row in self.rows("dependency", "needs, task")]
        locks = self.rows("lock", "token, pattern")
        for row in locks:
            row["token"], row["holder"] = self.places[row["token"]], json.loads(row["holder"])
        return {"events": events, "tasks": tasks, "edges": edges, "locks": locks}

    def check_watermarks(self, tasks: Sequence[dict[str, Any]]) -> None:
        floors = {(row["queue"], row["rank"]): row["floor"] for row in self.rows("ready_watermark", "queue, rank")}
        for task in tasks:
            if task["status"] == "pending" and not task["unmet"] and not task["open_blockers"]:
                queue = "human" if task["reserved"] == "human" else "open"
                assert floors[queue, task["rank"]] <= task["seq"], f"{task['id']} lies below its watermark"

    def ask(self, via: int, verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The answer, or the error, in comparable form."""
        if verb == "advance":
            return self.clock.advance(*args)
        if options.get("token") is not None:
            place = options["token"]
            number = self.events[place - 1] if place <= len(self.events) else 10**9 + place
            options = {**options, "token": number}
        # The fast path looks for the dead after it has claimed, the long way before; and a slow machine seldom does.
        for board in self.boards:
            board.core.reaper._reaped = self.clock.wall()
        try:
            return getattr(self.boards[via], verb)(*args, **options)
        except DibsError as error:
            return error.code, error.message, error.hint, error.fields

    def plain(self, answer: Any) -> Any:
        return plain(answer, self.places)

    def close(self) -> None:
        self.connection.close()
        for board in self.boards:
            board.close()


def board_number(board: TaskBoard) -> int:
    number = board.store.board  # type: ignore[attr-defined]
    assert isinstance(number, int)
    return number


@contextmanager
def two_sides(server: Server) -> Iterator[tuple[Side, Side]]:
    """One that takes the fast path where it can, and one that never does."""
    fast = Side(server, True)
    try:
        long = Side(server, False)
        try:
            yield fast, long
        finally:
            long.close()
    finally:
        fast.close()


def same(sides: Sequence[Side], via: int, verb: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Call both, and compare everything; the answer of the first."""
    answers = [side.ask(via, verb, args, dict(options)) for side in sides]
    if verb == "advance":
        return None
    said = f"after {verb}{args}{options} through board {via}"
    fast, long = (side.look() for side in sides)
    for table in fast:
        assert fast[table] == long[table], f"{table} {said}"
    first, second = (side.plain(answer) for side, answer in zip(sides, answers, strict=True))
    assert first == second, said
    return answers[0]


ids = st.sampled_from([f"t{number}" for number in range(7)])
workers = st.sampled_from(WORKERS)
results = st.sampled_from(RESULTS)
lease = st.sampled_from([None, 0.1, 50, 500.25, 5000])
new_task = call(
    "add",
    st.sampled_from(["text", "ünï 🎉 'quoted' \\"]),
    st.lists(ids, max_size=1),
    st.sampled_from([0, 0, 1, -1, 2**31 - 1]),
    id=ids,
    paths=st.sampled_from([[], [], [], ["src/a.py"], ["src/**", "docs"]]),
    reserved=st.sampled_from(["any", "any", "agent", "human"]),
    review=st.sampled_from([False, False, True]),
    max_attempts=st.sampled_from([None, None, 0, 1]),
    steps=st.sampled_from([[], ["one", "two"]]),
)
calls = st.one_of(
    call("claim", workers, lease=lease),
    call("claim", workers, n=st.integers(1, 4), lease=lease),
    call("claim", workers, n=st.integers(1, 4)),
    call("complete", ids, results, worker=st.none() | workers, token=st.none() | st.integers(1, 40)),
    call("complete", ids, results, worker=workers),
    call("complete", ids, results),
    call("release", ids),
    call("fail", ids, st.just("broke")),
    call("accept", ids, worker=workers),
    call("retry", ids, worker=workers),
    call("block", ids, st.just("no key"), worker=workers),
    call("unblock", ids),
    call("lock", st.sampled_from([["src/a.py"], ["docs/x.md"]]), workers, lease=lease),
    call("depend", ids, st.lists(ids, min_size=1, max_size=1)),
    st.tuples(st.just("advance"), st.tuples(st.sampled_from([0.1, 1 / 3, 2, 40, 300, 6000])), st.just({})),
    new_task,
)
steps = st.tuples(st.integers(0, 1), calls)


@examples(25)
@given(tasks=st.lists(new_task, min_size=3, max_size=7), sequence=st.lists(steps, min_size=5, max_size=25))
def test_any_calls_leave_the_same_rows_by_either_way(tasks: list[Call], sequence: list[tuple[int, Call]]) -> None:
    with two_sides(server_for_test()) as sides:
        for via, (verb, args, options) in [*((0, task) for task in tasks), *sequence]:
            same(sides, via, verb, args, options)


@examples(25)
@given(
    tasks=st.lists(st.tuples(st.integers(-1, 1), st.booleans(), st.booleans()), min_size=4, max_size=9),
    shifts=st.lists(st.tuples(workers, st.integers(1, 3), results, st.booleans()), min_size=2, max_size=6),
)
def test_shifts_of_claiming_and_completing_leave_the_same_rows(
    tasks: list[tuple[int, bool, bool]], shifts: list[tuple[Worker, int, str | None, bool]]
) -> None:
    """As workers do: claim some, complete what was given, by its token."""
    with two_sides(server_for_test()) as sides:
        for number, (priority, review, path) in enumerate(tasks):
            more = {"id": f"t{number}", "review": review, "paths": ["src"] * path}
            same(sides, 0, "add", ("text", None, priority), more)
        for who, n, result, names_itself in shifts:
            answers = [side.ask(0, "claim", (who,), {"n": n}) for side in sides]
            looks = [side.look() for side in sides]
            assert looks[0] == looks[1], f"after a claim of {n} by {who}"
            for task in answers[0]:
                place = sides[0].places[task.token]
                by = {"worker": who} if names_itself else {}
                same(sides, 0, "complete", (task.id, result), {"token": place, **by})


# -- which way is taken


def warm(side: Side, who: Worker) -> None:
    """After this, nothing but what it asks for is due with a claim of this worker."""
    board = side.boards[0]
    board.add("to warm up", id="warm")
    assert board.claim(who, "warm") is not None
    board.complete("warm", worker=who)
    side.counts.update(claim=0, complete=0)


ANN = WORKERS[0]


@pytest.mark.parametrize("result", RESULTS, ids=[str(n) for n in range(len(RESULTS))])
@pytest.mark.parametrize("who", [ANN, WORKERS[3], WORKERS[4]], ids=["ann", "ben", "odd"])
def test_the_common_claim_and_completion_are_short_whatever_the_text(
    server: Server, who: Worker, result: str | None
) -> None:
    with two_sides(server) as sides:
        for side in sides:
            warm(side, who)
            side.boards[0].add_many([{"description": "common", "id": f"t{n}"} for n in range(4)])
        same(sides, 0, "claim", (who,), {"lease": 0.7})
        same(sides, 0, "claim", (who,), {"n": 3})
        places = {row["id"]: row["token"] for row in sides[0].look()["tasks"]}
        for n in range(4):
            by = {"worker": who} if n % 2 else {}
            same(sides, 0, "complete", (f"t{n}", result), {"token": places[f"t{n}"], **by})
        assert sides[0].taken("claim") == 2
        assert sides[0].taken("complete") == 4
        assert sides[1].taken("claim") == sides[1].taken("complete") == 0


Prepare = Callable[[TaskBoard, HandClock], object]
CLAIMS: dict[str, tuple[Prepare, Worker, dict[str, Any], bool]] = {
    "a plain task": (lambda b, c: b.add("x", id="t"), ANN, {}, True),
    "the best of several": (lambda b, c: [b.add("x", id="l"), b.add("x", None, 5, id="h")], ANN, {}, True),
    "one for agents": (lambda b, c: b.add("x", id="t", reserved="agent"), ANN, {}, True),
    "one that wants a review": (lambda b, c: b.add("x", id="t", review=True), ANN, {}, True),
    "one that others wait for": (lambda b, c: [b.add("x", id="t"), b.add("y", ["t"], id="u")], ANN, {}, True),
    "one that was given back": (lambda b, c: given_back(b), ANN, {}, True),
    "as many as there are": (
        lambda b, c: b.add_many([{"description": "x", "id": f"t{n}"} for n in range(3)]),
        ANN,
        {"n": 3},
        True,
    ),
    "nothing": (lambda b, c: None, ANN, {}, False),
    "only blocked ones": (lambda b, c: [b.add("x", id="t"), b.block("t", "why")], ANN, {}, False),
    "only one that waits": (
        lambda b, c: [b.add("x", id="t"), b.claim(WORKERS[3]), b.add("y", ["t"], id="u")],
        ANN,
        {},
        False,
    ),
    "one with files": (lambda b, c: b.add("x", id="t", paths=["src"]), ANN, {}, False),
    "one with files behind a plain one": (
        lambda b, c: [b.add("x", None, 1, id="t"), b.add("y", id="f", paths=["src"])],
        ANN,
        {"n": 2},
        False,
    ),
    "one whose files are locked, before a plain one": (
        lambda b, c: [b.add("x", None, 1, id="f", paths=["src"]), b.add("y", id="t"), b.lock(["src"], WORKERS[3])],
        ANN,
        {},
        False,
    ),
    "only one for humans": (lambda b, c: b.add("x", id="t", reserved="human"), ANN, {}, False),
    "a human": (lambda b, c: b.add("x", id="t"), WORKERS[5], {}, False),
    "while a lease has run out": (
        lambda b, c: [b.add("x", id="t"), b.claim(WORKERS[3], lease=0.2), b.add("y", id="u"), later(c, 0.3)],
        ANN,
        {},
        False,
    ),
    "by name": (lambda b, c: b.add("x", id="t"), ANN, {"task_id": "t"}, False),
    "with a request key": (lambda b, c: b.add("x", id="t"), ANN, {"request_key": "k"}, False),
    "for the first time": (lambda b, c: b.add("x", id="t"), Worker("new"), {}, True),
    "after a second, when the dead are looked for": (
        lambda b, c: [b.add("x", id="t"), later(c, 1.0)],
        ANN,
        {},
        True,
    ),
    "more than there are, while a dead process holds one": (
        lambda b, c: [b.add("x", id="t"), b.claim(DEAD, lease=500), b.add("y", id="u")],
        ANN,
        {"n": 2},
        False,
    ),
}


def later(clock: HandClock, seconds: float) -> object:
    clock.advance(seconds)
    return None


def given_back(board: TaskBoard) -> object:
    board.add("x", id="t", max_attempts=3)
    board.claim(WORKERS[3], "t")
    return board.release("t", worker=WORKERS[3])


@pytest.mark.parametrize("shape", CLAIMS)
def test_claims_by_shape(server: Server, shape: str) -> None:
    prepare, who, options, short = CLAIMS[shape]
    with two_sides(server) as sides:
        for side in sides:
            warm(side, ANN)
            prepare(side.boards[0], side.clock)
        looks = [side.look() for side in sides]
        assert looks[0] == looks[1]
        before = sides[0].taken("claim")
        same(sides, 0, "claim", (who,), options)
        assert sides[0].taken("claim") - before == short
        same(sides, 0, "claim", (who,), options)


def claimed(board: TaskBoard, who: Worker = ANN, **options: Any) -> object:
    board.add("x", id="t", **options)
    task = board.claim(who, "t")
    assert task is not None
    return task


COMPLETIONS: dict[str, tuple[Callable[[TaskBoard, HandClock], object], dict[str, Any], bool]] = {
    "by its holder": (lambda b, c: claimed(b), {"worker": ANN, "tokened": 1}, True),
    "by its holder, without the token": (lambda b, c: claimed(b), {"worker": ANN}, False),
    "by nobody in particular, on the board that claimed": (lambda b, c: claimed(b), {}, True),
    "by another session of the name, with the token": (
        lambda b, c: claimed(b),
        {"worker": WORKERS[1], "tokened": 1},
        True,
    ),
    "by another session of the name, without": (lambda b, c: claimed(b), {"worker": WORKERS[1]}, False),
    "by somebody else, with the token": (lambda b, c: claimed(b), {"worker": WORKERS[3], "tokened": 1}, False),
    "by the token alone": (lambda b, c: claimed(b), {"tokened": 1}, True),
    "by an old token": (lambda b, c: claimed(b), {"token": 1, "worker": ANN}, False),
    "by a token from the future": (lambda b, c: claimed(b), {"token": 30, "worker": ANN}, False),
    "with files": (lambda b, c: claimed(b, paths=["src"]), {"tokened": 1}, False),
    "to a review": (lambda b, c: claimed(b, review=True), {"tokened": 1}, False),
    "with somebody waiting": (lambda b, c: [claimed(b), b.add("y", ["t"], id="u")], {"tokened": 1}, False),
    "with nobody waiting any more": (
        lambda b, c: [claimed(b), b.add("y", ["t"], id="u"), b.undepend("u", ["t"])],
        {"tokened": 1},
        True,
    ),
    "too late": (lambda b, c: [claimed(b), later(c, 3600.0)], {"tokened": 1}, False),
    "just in time": (lambda b, c: [claimed(b), later(c, 59.0)], {"tokened": 1}, True),
    "when a renewal is due": (
        lambda b, c: [b.add("z", id="other"), b.claim(ANN, "other", lease=100), claimed(b), later(c, 30)],
        {"tokened": 1},
        True,
    ),
    "what is completed": (lambda b, c: [claimed(b), b.complete("t", "done")], {"tokened": 1}, False),
    "what was given back": (lambda b, c: [claimed(b), b.release("t")], {"tokened": 1}, False),
    "what nobody holds": (lambda b, c: b.add("x", id="t"), {}, False),
}


@pytest.mark.parametrize("shape", COMPLETIONS)
def test_completions_by_shape(server: Server, shape: str) -> None:
    prepare, options, short = COMPLETIONS[shape]
    with two_sides(server) as sides:
        for side in sides:
            warm(side, ANN)
            prepare(side.boards[0], side.clock)
        looks = [side.look() for side in sides]
        assert looks[0] == looks[1]
        options = dict(options)
        if options.pop("tokened", False):
            options["token"] = next(row["token"] for row in looks[0]["tasks"] if row["id"] == "t")
        before = sides[0].taken("complete")
        same(sides, 0, "complete", ("t", "done"), options)
        assert sides[0].taken("complete") - before == short
        same(sides, 0, "complete", ("t", "done"), options)


def test_a_completion_by_token_through_another_process_renews_what_its_holder_still_has(server: Server) -> None:
    """Whatever way it goes, it is a verb of the holder."""
    with two_sides(server) as sides:
        for side in sides:
            for name in ("t", "other"):
                side.boards[0].add("x", id=name)
                side.boards[0].claim(ANN, name, lease=1000)
            side.clock.advance(500)
            looks = side.look()
        token = next(row["token"] for row in looks["tasks"] if row["id"] == "t")
        same(sides, 1, "complete", ("t", "done"), {"token": token})


@pytest.mark.parametrize("holds", ["a lock", "a task"])
def test_what_a_process_held_that_has_died_is_free_for_the_claim_that_finds_out(server: Server, holds: str) -> None:
    """What the claim has looked at beforehand, because the best task wanted those files last time, is not true any
    more when it has given back what the dead held."""
    with two_sides(server) as sides, subprocess.Popen(["sleep", "600"]) as process:
        try:
            mortal = Worker("mortal", "agent", None, "m", host(), process.pid, process_start(process.pid), boot())
            for side in sides:
                warm(side, ANN)
                board = side.boards[0]
                if holds == "a lock":
                    board.lock(["src/a"], mortal)
                else:
                    board.add("x", id="its", paths=["src/a"], priority=-1)
                    assert board.claim(mortal, "its") is not None
                board.add("x", id="t", paths=["src/a", "src/b"])
            assert same(sides, 0, "claim", (ANN,), {}) is None
        finally:
            process.kill()
        process.wait()
        same(sides, 0, "advance", (2.0,), {})
        task = same(sides, 0, "claim", (ANN,), {})
        assert task is not None
        assert task.id == "t"


# -- statements that are prepared


def prepared(connection: Connection) -> list[str]:
    return [row[0] for row in connection.raw.execute("SELECT statement FROM pg_prepared_statements").fetchall()]


def test_what_is_run_often_is_prepared_once_by_each_connection(server: Server) -> None:
    with learned(server) as (board, connection):
        assert {CLAIM, COMPLETE} <= set(prepared(connection))
        before = len(prepared(connection))
        for _ in range(5):
            work(board)
        assert len(prepared(connection)) == before


def test_statements_hand_on_values_and_errors_as_they_are_prepared_or_not(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        connection = Connection(raw)
        sql = "SELECT $1::text, $2::bigint, $3::float8, $4::text, $5::text[]"
        texts = [*(result for result in RESULTS if result is not None), ODD]
        for text in texts:
            values = (text, 2**62, 0.1 + 0.2, None, [text, None, "", "NULL"])
            assert connection.trip([(sql, values)]) == [[(*values,)]]
        assert sql in prepared(connection)
        with pytest.raises(psycopg.DataError):  # which the server would read up to there
            connection.trip([(sql, ("cut\0off", 1, 1.0, None, []))])
        assert connection.trip([("SELECT $1::text", ("still there",))]) == [[("still there",)]]


def test_a_statement_that_fails_ends_its_trip_and_not_the_connection(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        connection = Connection(raw)
        for _ in range(5):
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                connection.trip([("SELECT $1::bigint", ("no number",)), ("SELECT 1", ())])
            assert connection.trip([("SELECT $1::bigint", (7,)), ("SELECT 1 WHERE false", ())]) == [[(7,)], []]
        connection.raw.execute("DEALLOCATE ALL")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            connection.trip([("SELECT $1::bigint", (7,))])


def test_a_prepared_statement_of_a_lost_connection_fails_as_a_lost_connection(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        connection = Connection(raw)
        for _ in range(4):
            connection.trip([("SELECT 1", ())])
        server.execute(f"SELECT pg_terminate_backend({connection.pid})")
        for _ in range(2):
            with pytest.raises(psycopg.Error) as caught:
                connection.trip([("SELECT 1", ())])
            assert is_lost(caught.value) or raw.closed


@contextmanager
def learned(server: Server) -> Iterator[tuple[TaskBoard, Connection]]:
    """A board with tasks, and its only connection, which has its statements prepared."""
    with TaskBoard.open(server.url(board=f"q{uuid.uuid4().hex}"), create=True, worker="ann") as board:
        board.add_many([{"description": f"task {n}"} for n in range(50)])
        for _ in range(4):
            work(board)
        store: Any = board.store
        (connection,) = store.connections._idle
        yield board, connection


def work(board: TaskBoard) -> None:
    task = board.claim("ann")
    assert task is not None
    task.complete("done")


@pytest.mark.parametrize("how", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_where_the_server_has_forgotten_statements_nothing_is_prepared_any_more(server: Server, how: str) -> None:
    with learned(server) as (board, connection):
        connection.raw.execute(how.encode())
        for _ in range(5):
            work(board)
        assert board.completed_count == 9
        store: Any = board.store
        assert not store.connections.prepares
        assert [prepared(each) for each in store.connections._idle] == [[]]


def test_a_transaction_that_failed_costs_neither_connection_nor_preparation(server: Server) -> None:
    with learned(server) as (board, connection):
        before = prepared(connection)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.trip([("BEGIN", ()), ("SELECT 1 / 0", ())])
        connection.roll_back()
        work(board)
        store: Any = board.store
        assert store.connections._idle == [connection]
        assert prepared(connection) == before


def test_a_claim_that_takes_nothing_wakes_nobody(server: Server) -> None:
    with learned(server) as (board, _), psycopg.connect(server.url(), autocommit=True) as ear:
        board.claim("ann", n=50)
        store: Any = board.store
        ear.execute(f"LISTEN dibs_{store.board}".encode())
        store._notifier._wrote = float("-inf")
        for n in (None, 2, 30):
            store._fast_path._misses = 0
            assert not board.claim("ann") if n is None else not board.claim("ann", n=n)
        assert list(ear.notifies(timeout=0.3)) == []
        board.add("something")
        assert len(list(ear.notifies(timeout=5, stop_after=1))) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connection_that_an_interrupted_call_has_dropped_is_not_waited_for(server: Server) -> None:
    with TaskBoard.open(server.url(board=f"q{uuid.uuid4().hex}"), create=True, worker="ann") as board:
        store: Any = board.store
        for _ in range(MOST + 1):
            store.connections.take()  # and never given back
        gc.collect()
        assert len(store.connections._busy) == 0


def test_a_connection_that_ends_as_soon_as_it_is_made_is_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []

    def made(connection: psycopg.Connection[Any], prepares: bool) -> Connection:
        if not ended:
            ended.append(connection.info.backend_pid)
            server.execute(f"SELECT pg_terminate_backend({ended[0]})")
        return Connection(connection, prepares)

    with TaskBoard.open(server.url(board=f"q{uuid.uuid4().hex}"), create=True, worker="ann") as board:
        store: Any = board.store
        store.connections.close()
        monkeypatch.setattr("dibs.stores.postgres.connections.Connection", made)
        board.add("x")
        assert ended
        assert board.pending_count == 1


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (psycopg.errors.AdminShutdown, True),
        (psycopg.errors.CrashShutdown, True),
        (psycopg.errors.CannotConnectNow, True),
        (psycopg.errors.ConnectionFailure, True),
        (psycopg.errors.TooManyConnections, True),
        (psycopg.errors.IdleInTransactionSessionTimeout, True),
        (psycopg.InterfaceError, True),
        (psycopg.OperationalError, True),
        (psycopg.errors.QueryCanceled, False),
        (psycopg.errors.DeadlockDetected, False),
        (psycopg.errors.LockNotAvailable, False),
        (psycopg.errors.DiskFull, False),
        (psycopg.errors.UniqueViolation, False),
        (KeyError, False),
    ],
)
def test_which_errors_tell_that_the_connection_is_gone(error: type[Exception], lost: bool) -> None:
    assert is_lost(error()) is lost
