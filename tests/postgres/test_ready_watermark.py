"""The watermark, where the scan for ready tasks begins: never above one that is ready, and never so far behind that
claims walk over what others have claimed long ago."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from dibs import TaskBoard, Worker
from dibs.stores.postgres import ready_watermark
from dibs.stores.postgres.fast_path import CLAIM
from dibs.stores.postgres.round_trips import Connection
from dibs.stores.postgres.statements import HOLDERS, ready
from dibs.stores.postgres.store import PostgresStore
from dibs.stores.postgres.tx import PostgresTx
from tests.clocks import HandClock
from tests.postgres.actors import board_of
from tests.postgres.server import Server
from tests.processes.harness import new_seed, wait_until

BELOW = """
SELECT task.id, task.seq, mark.floor FROM dibs.task LEFT JOIN dibs.ready_watermark AS mark ON mark.board = task.board
    AND mark.queue = CASE WHEN reserved = 'human' THEN 'human' ELSE 'open' END AND mark.rank = task.rank
WHERE task.board = %s AND status = 'pending' AND unmet = 0 AND open_blockers = 0
    AND (mark.floor IS NULL OR mark.floor > task.seq)
"""
THREADS = 4
ROUNDS = 60


def store_of(board: TaskBoard) -> PostgresStore:
    store = board.store
    assert isinstance(store, PostgresStore)
    return store


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watermarks follow whenever they are found behind at all."""
    monkeypatch.setattr(ready_watermark, "EVERY", 0.0)
    monkeypatch.setattr(ready_watermark, "FAR", 0)


@pytest.fixture
def url(server: Server) -> str:
    return server.url(board=f"f{uuid.uuid4().hex}")


class Hand:
    """A thread that does whatever changes what is ready."""

    def __init__(self, url: str, number: int, seed: str) -> None:
        self.name = f"hand-{number}"
        self.who = Worker(self.name, "human" if number == 0 else "agent", session="s")
        self.board = TaskBoard.open(url, worker=self.who)
        self.random = random.Random(f"{seed} {number}")
        self.held: list[Any] = []
        self.calls: list[Callable[[], object]] = [
            self.add, self.add, self.claim, self.claim, self.complete, self.release, self.fail_and_retry,
            self.block_and_unblock, self.raise_watermark, self.wait_for_held,
        ]  # fmt: skip

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.random.choice(self.calls)()

    def add(self) -> None:
        reserved = self.random.choice(["any", "agent", "human"])
        priority = self.random.choice([-1, 0, 0, 1])
        self.board.add_many(
            [{"description": "x", "priority": priority, "reserved": reserved}] * self.random.choice((1, 3))
        )

    def claim(self) -> None:
        self.held += self.board.claim(self.who, n=self.random.choice((1, 1, 2)))

    def take(self) -> Any:
        return self.held.pop(self.random.randrange(len(self.held))) if self.held else None

    def complete(self) -> None:
        if task := self.take():
            task.complete("done")

    def release(self) -> None:
        if task := self.take():
            task.release()

    def fail_and_retry(self) -> None:
        if task := self.take():
            task.fail("broke")
            self.board.retry(task.id)

    def block_and_unblock(self) -> None:
        if task := self.take():
            self.board.block(task.id, "why", worker=self.who)
            self.board.unblock(task.id, worker=self.who)

    def wait_for_held(self) -> None:
        """A task that becomes ready when another is completed, and lies behind others then."""
        if task := self.take():
            self.board.add("y", [task.id], self.random.choice([-1, 0, 1]))
            task.complete("done")

    def raise_watermark(self) -> None:
        store_of(self.board).watermark.follow(self.random.choice(["open", "human"]), self.random.choice([-1, 0, 1]))

    def finish(self) -> None:
        for task in self.held:
            task.complete("done")


def run_together(calls: list[Callable[[], None]]) -> None:
    failed: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.usefixtures("at_once")
def test_no_ready_task_ever_lies_below_its_watermark(server: Server, url: str) -> None:
    seed = str(new_seed())
    over = threading.Event()
    with TaskBoard.open(url, create=True, worker="maker") as board:
        number = store_of(board).board
        hands = [Hand(url, n, seed) for n in range(THREADS)]
        working = threading.Semaphore(0)

        def work(hand: Hand) -> Callable[[], None]:
            def run() -> None:
                try:
                    hand.run(ROUNDS)
                finally:
                    working.release()

            return run

        def watch() -> None:
            with psycopg.connect(server.url(), autocommit=True) as connection:
                while not over.is_set():
                    assert connection.execute(BELOW, [number]).fetchall() == []
                    if over.wait(0.005):
                        break

        def end() -> None:
            for _ in hands:
                working.acquire()
            over.set()

        try:
            run_together([*(work(hand) for hand in hands), watch, end])
            with psycopg.connect(server.url(), autocommit=True) as connection:
                assert connection.execute(BELOW, [number]).fetchall() == []
                raised = connection.execute(
                    "SELECT max(floor) FROM dibs.ready_watermark WHERE board = %s", [number]
                ).fetchall()
            assert raised[0][0] > 1, "no watermark was ever raised"
            for hand in hands:
                hand.finish()
            # Everything that is open can be had by claiming.
            eve, ann = Worker("eve", "human"), Worker("ann")
            while taken := board.claim(eve, n=50) or board.claim(ann, n=50):
                for task in taken:
                    task.complete("done")
            assert board.pending_count == 0
        finally:
            for hand in hands:
                hand.board.close()


@pytest.mark.usefixtures("at_once")
def test_a_watermark_is_not_raised_over_what_is_about_to_be_ready(server: Server, url: str) -> None:
    """The gate: whoever raises waits (and gives up, and leaves the watermark) while somebody is about to commit."""
    with TaskBoard.open(url, create=True, worker="maker") as board, TaskBoard.open(url) as other:
        board.add_many([{"description": "x", "id": f"t{n}"} for n in range(5)])
        taken = board.claim("ann", n=5)
        store = store_of(other)
        with board.store.write() as tx:
            task = tx.get(["t2"])["t2"]
            task.status = type(task.status)("pending")
            task.assigned_to = task.holder = None
            tx.save([task])
            tx.last_event()  # sends what was written
            store.watermark.follow("open", 0)
        assert [task.id for task in board.ready()] == ["t2"]
        again = other.claim("ben")
        assert again is not None
        assert again.id == "t2"
        assert len(taken) == 5
        store.watermark.follow("open", 0)
        with psycopg.connect(server.url()) as connection:
            low = connection.execute(
                "SELECT floor FROM dibs.ready_watermark WHERE board = %s", [store.board]
            ).fetchall()
        assert low == [(6,)]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_who_raises_a_watermark_sees_what_was_committed_while_it_waited(
    server: Server, url: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever isolation the database gives to those who ask for none."""
    trip = Connection.trip

    def patient(self: Connection, statements: Any) -> Any:
        """Who raises a watermark waits for as long as the test needs."""
        waits = [(sql.replace("'100ms'", "'60s'"), values) for sql, values in statements]
        return trip(self, waits)

    monkeypatch.setattr(Connection, "trip", patient)
    name = f"r{uuid.uuid4().hex[:20]}"
    option = f"-c default_transaction_isolation={level}".replace("d c", "d\\ c").replace("e r", "e\\ r")
    strict = f"{url}&application_name={name}&options={quote(option)}"
    with TaskBoard.open(url, create=True, worker="maker") as board, TaskBoard.open(strict) as other:
        board.add_many([{"description": "x", "id": f"t{n}"} for n in range(5)])
        assert len(board.claim("ann", n=5)) == 5
        raising = threading.Thread(target=lambda: store_of(other).watermark.follow("open", 0))
        with board.store.write() as tx:
            task = tx.get(["t2"])["t2"]
            task.status = type(task.status)("pending")
            task.assigned_to = task.holder = None
            tx.save([task])
            tx.last_event()  # sends what was written, and so shares the gate
            raising.start()
            with psycopg.connect(server.admin_url(), autocommit=True) as watch:
                wait_until(lambda: watch.execute(WAITS, [name]).fetchall() == [(1,)], "the gate to be waited for")
        raising.join()
        assert [task.id for task in board.ready()] == ["t2"]
        again = board.claim("ben")
        assert again is not None
        assert again.id == "t2"


WAITS = "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"


def test_a_watermark_follows_the_first_ready_task_of_each_queue_and_rank(server: Server, url: str) -> None:
    with TaskBoard.open(url, create=True, worker="maker") as board:
        store = store_of(board)
        kinds = [("any", 0), ("human", 0), ("any", 7)]
        for reserved, priority in kinds:
            board.add_many([{"description": "x", "reserved": reserved, "priority": priority}] * 3)
        assert floors_of(server, store) == {("open", 0): 1, ("human", 0): 4, ("open", -7): 7}
        board.claim("ann", n=4)
        store.watermark.follow("open", 0)
        assert floors_of(server, store)["open", 0] == 1, "it is not far behind, and what is written stays for a while"
        store.watermark.far = 0
        for queue, rank in (("open", 0), ("human", 0), ("open", -7)):
            store.watermark._tried = float("-inf")
            store.watermark.follow(queue, rank)
        assert floors_of(server, store) == {("open", 0): 2, ("human", 0): 4, ("open", -7): 10}
        board.release_agent_tasks("ann")
        assert floors_of(server, store) == {("open", 0): 1, ("human", 0): 4, ("open", -7): 7}


def floors_of(server: Server, store: PostgresStore) -> dict[tuple[str, int], int]:
    with psycopg.connect(server.url()) as connection:
        asked = "SELECT queue, rank, floor FROM dibs.ready_watermark WHERE board = %s"
        return {(queue, rank): floor for queue, rank, floor in connection.execute(asked, [store.board])}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The statements that are sent, with their values."""
    found: list[tuple[str, Any]] = []
    trip = Connection.trip

    def noted(self: Connection, statements: Any) -> Any:
        found.extend(statements)
        return trip(self, statements)

    monkeypatch.setattr(Connection, "trip", noted)
    return found


def entries(url: str, statement: str, values: Any) -> dict[str, int]:
    """How many entries of each index of tasks a statement reads, dead ones included; what it does is undone."""
    with psycopg.connect(url.partition("?")[0], cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(statement.encode(), values)
        read = connection.execute(READ).fetchall()
        connection.rollback()
    return dict(read)


READ = """
SELECT relname::text, pg_stat_get_xact_tuples_returned(indexrelid) FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'dibs.task'::regclass AND pg_stat_get_xact_tuples_returned(indexrelid) > 0
"""


@pytest.mark.parametrize("way", ["fast", "long"])
@pytest.mark.parametrize("follows", [True, False], ids=["watermarks follow", "watermarks stay"])
def test_while_a_snapshot_is_held_claims_do_not_walk_over_dead_entries(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: list[tuple[str, Any]], follows: bool, way: str
) -> None:
    """With watermarks that stay where they were it is seen that they would."""
    monkeypatch.setattr(ready_watermark, "EVERY", 0.0)
    with board_of(server) as url, TaskBoard.open(url, worker="maker") as board:
        store = store_of(board)
        store.watermark.far = 50 if follows else 10**9
        if way == "long":
            monkeypatch.setattr(store, "try_claim", lambda *about: None)
        board.add_many([{"description": "x"}] * 3000)
        board.claim("ann")
        board.claim("ann")
        looked = claim_in(sent, way)
        before = entries(url, *looked)
        with psycopg.connect(url.partition("?")[0]) as holding:
            holding.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            holding.execute("SELECT count(*) FROM dibs.task")
            for _ in range(40):
                assert len(board.claim("ann", n=60)) == 60
            sent.clear()
            board.claim("ann")
            after = entries(url, *claim_in(sent, way))
            holding.rollback()
    print(f"{way}: entries read before: {before}; after 2400 claims under a held snapshot: {after}")
    if follows:
        assert sum(after.values()) < 300
    else:
        assert after["task_ready_open"] > 2000


def test_holders_are_not_looked_for_at_every_claim(url: str, clock: HandClock, sent: list[tuple[str, Any]]) -> None:
    """The index of what is in progress has dead entries, too, while a snapshot is held, and that look reads it all."""
    with TaskBoard.open(url, create=True, worker="maker", clock=clock) as board:
        board.add_many([{"description": "x", "paths": [f"{n}.py"]} for n in range(20)])
        for _ in range(20):
            task = board.claim("ann")  # the long way: it has files
            assert task is not None
            task.complete("done")
        assert looks(sent) == 1
        clock.advance(1000)
        board.claim("ann")
        assert looks(sent) == 2


@pytest.mark.parametrize(("seconds", "seldom"), [(0, 1), (0.19, 10), (2, 31), (1000, 31)])
def test_where_the_look_for_holders_is_slow_it_is_made_less_often(
    url: str, clock: HandClock, monkeypatch: pytest.MonkeyPatch, seconds: float, seldom: int
) -> None:
    looks, past = [], [0.0]

    def slow(self: PostgresTx) -> list[Worker]:
        looks.append(clock.wall())
        past[0] += seconds
        return holders(self)

    holders, monotonic = PostgresTx.holders, time.monotonic
    monkeypatch.setattr(PostgresTx, "holders", slow)
    monkeypatch.setattr("dibs.board.reaper.time.monotonic", lambda: monotonic() + past[0])
    with TaskBoard.open(url, create=True, worker="maker", clock=clock) as board:
        board.add_many([{"description": "x", "paths": [f"{n}.py"]} for n in range(40)])
        for _ in range(35):
            board.claim("ann")
            clock.advance(1)
    assert seldom <= looks[1] - looks[0] <= seldom + 2  # the machine may be slow, too


def test_what_else_waits_is_no_part_of_the_look(server: Server, url: str) -> None:
    """The first trip of a claim may wait for a task that somebody else is at."""
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.add("x", id="t1")
        store = store_of(board)
        with psycopg.connect(server.url()) as other:
            other.execute("SELECT 1 FROM dibs.task WHERE board = %s FOR UPDATE", [store.board])
            threading.Timer(1.0, other.rollback).start()
            began = time.monotonic()
            assert board.claim("ann", "t1") is not None
            waited = time.monotonic() - began
        assert waited > 0.9
        assert board.core.reaper._reaped - board.now() < 1


def test_who_was_idle_looks_no_more_often_afterwards(url: str, clock: HandClock, sent: list[tuple[str, Any]]) -> None:
    with TaskBoard.open(url, create=True, worker="maker", clock=clock) as board:
        for _ in range(5):
            assert board.claim("ann") is None
        board.add_many([{"description": "x", "paths": [f"{n}.py"]} for n in range(10)])
        task = board.claim("ann")
        sent.clear()
        while task is not None and task.id != board.tasks(limit=100)[0][-1].id:
            task = task.complete("done", claim_next=True)
        assert looks(sent) <= 1


def looks(sent: list[tuple[str, Any]]) -> int:
    """How often it was looked who holds anything, and so who of them is dead."""
    return sum(statement == HOLDERS for statement, _ in sent)


def claim_in(sent: list[tuple[str, Any]], way: str) -> tuple[str, Any]:
    """The last statement that looked for ready tasks."""
    if way == "fast":
        return next(pair for pair in reversed(sent) if pair[0] == CLAIM)
    return next(pair for pair in reversed(sent) if pair[0] == ready("open", False, True, True))
