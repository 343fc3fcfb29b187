"""The connections of a process: how many it makes and keeps, and what a lost, refused or busy one costs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

import psycopg
import pytest

from dibs import TaskBoard, Worker
from dibs.stores.postgres import connections as module
from dibs.stores.postgres import fast_path
from dibs.stores.postgres.connections import Connections
from dibs.stores.postgres.store import PostgresStore
from tests.postgres.actors import warm
from tests.postgres.server import Server


class Late(Exception):
    pass


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_exception_from_a_signal_reaches_the_program(url: str, alarm: None) -> None:
    with TaskBoard.open(url, worker="w") as board, psycopg.connect(url.partition("?")[0]) as other:
        board.add("edit", id="T")
        other.execute("SELECT FROM dibs.task FOR UPDATE")
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Late):
            board.claim("w", "T")
        other.rollback()
        assert board.claim("w", "T") is not None, "the board goes on"


def test_a_claim_that_was_lost_is_not_found_again_in_somebody_elses(url: str) -> None:
    """By the long way the same task is claimed anew, under the same name: the mark of the first claim goes."""
    with TaskBoard.open(url) as board:
        assert isinstance(board.store, PostgresStore)
        warm(board)
        board.add("edit", id="T")
        task = board.claim("w")
        assert task is not None
        with board.store.read() as tx:
            ((mark,),) = tx._ask(("SELECT claim_mark FROM dibs.task WHERE id = $1", ("T",)))[0]
        assert mark is not None
        found = fast_path.BY_MARK, (board.store.board, "w", mark)
        task.renew()
        assert len(board.store.ask(found)[0]) == 1
        task.release()
        assert board.claim("w", "T") is not None
        assert board.store.ask(found)[0] == []


def test_there_are_never_more_connections_than_may_be(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 4)
    connect, now, most, turn = Connections._connect, [0], [0], threading.Lock()

    def counted(self: Connections, *words: Any, **more: Any) -> Any:
        with turn:
            now[0] += 1
            most[0] = max(most[0], now[0])
        return connect(self, *words, **more)

    with TaskBoard.open(url, worker="w") as board:
        monkeypatch.setattr(Connections, "_connect", counted)
        barrier = threading.Barrier(16)

        def add() -> None:
            barrier.wait()
            board.add("one of many")

        threads = [threading.Thread(target=add) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(board.status()) == 16
    assert 0 < most[0] <= 4


def test_many_open_files_do_not_make_connections_useless(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    connect = Connections._connect

    def counted(self: Connections, *words: Any, **more: Any) -> Any:
        connection = connect(self, *words, **more)
        made.append(connection.raw.fileno())
        return connection

    with ExitStack() as files:
        try:
            while files.enter_context(open(os.devnull, "rb")).fileno() < 1030:
                pass
        except OSError:
            pytest.skip("this process may not open 1,030 files: ulimit -n 2048")
        monkeypatch.setattr(Connections, "_connect", counted)
        with TaskBoard.open(url, worker="w") as board:
            for number in range(10):
                board.add(f"task {number}")
    assert len(made) == 1
    assert made[0] > 1024


def test_waiting_on_a_full_server_does_not_cost_the_connection_that_works(own_server: Server) -> None:
    url = own_server.new_database()
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.claim("w")
        own_server.execute("ALTER ROLE dibs CONNECTION LIMIT 1")
        assert board.claim("w", wait=1.0) is None
        board.add("one")
        assert board.claim("w") is not None


def test_behind_a_pooler_nothing_is_prepared(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PgBouncer before 1.21 would let one client run what another has prepared under the same name."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda info: -1))
    with TaskBoard.open(url) as board:
        for number in range(8):
            board.add(f"task {number}")
        for _ in range(8):
            assert board.claim("w") is not None
        (connection,) = board.store.connections._idle  # type: ignore[attr-defined]
        assert connection.trip([("SELECT count(*) FROM pg_prepared_statements", ())]) == [[(0,)]]


def test_connections_of_a_busy_moment_are_not_kept_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty threads at once, once, and the server would lack thirty connections for as long as the process lives."""
    connections = Connections(server.url(), "x")
    burst = [connections.take() for _ in range(3)]
    for each in burst:
        connections.give(each)
    assert len(connections._idle) == 3
    monkeypatch.setattr(module, "UNUSED", 0.0)
    for _ in range(5):
        used = connections.take()
        connections.give(used)
    assert connections._idle == [used]
    assert [each.raw.closed for each in burst] == [each is not used for each in burst]
    connections.close()


def test_a_connection_that_was_ended_while_idle_costs_nothing(server: Server, url: str) -> None:
    ann = Worker("ann", session="ann")
    with TaskBoard.open(url, worker=ann) as board:
        board.add("x", id="T")
        looks: list[Callable[[], Any]] = [board.counts, board.status, lambda: board.ready(ann), lambda: board.get("T")]
        for look in (*looks, board.locks):
            before = look()
            for connection in board.store.connections._idle:  # type: ignore[attr-defined]
                server.execute(f"SELECT pg_terminate_backend({connection.pid})")
            time.sleep(0.1)
            assert look() == before
