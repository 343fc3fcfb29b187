"""What a fourth pair of hostile eyes found on PostgreSQL: each was wrong once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

import psycopg
import pytest

from dibs import TaskBoard
from dibs.stores.postgres import links, quick
from dibs.stores.postgres.connections import Connections
from dibs.stores.postgres.store import PostgresStore
from tests.postgres.server import Server


@pytest.fixture
def url(server: Server) -> str:
    made = server.new_database() + "?board=web"
    TaskBoard.open(made, create=True, worker="maker").close()
    return made


def warm(board: TaskBoard) -> None:
    """Until the short ways are prepared."""
    board.add_many([{"description": "to warm up"} for _ in range(40)])
    while (task := board.claim("w")) is not None:
        task.complete()


def test_text_is_utf8_whatever_the_address_says(url: str) -> None:
    with TaskBoard.open(url + "&client_encoding=LATIN1", worker="w") as board:
        warm(board)
        board.add("the façade", id="T")
        task = board.claim("w")
        assert task is not None
        task.complete("a façade")
    with TaskBoard.open(url) as other:
        seen = other.get("T")
        assert (seen.description, seen.result) == ("the façade", "a façade")


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
    """By the long way the same task is claimed anew, under the same name: the stamp of the first claim goes."""
    with TaskBoard.open(url) as board:
        assert isinstance(board.store, PostgresStore)
        warm(board)
        board.add("edit", id="T")
        task = board.claim("w")
        assert task is not None
        with board.store.read() as tx:
            ((stamp,),) = tx._ask(("SELECT stamp FROM dibs.task WHERE id = $1", ("T",)))[0]
        assert stamp is not None
        found = quick.BY_STAMP, (board.store.board, "w", stamp)
        task.renew()
        assert len(board.store.ask(found)[0]) == 1
        task.release()
        assert board.claim("w", "T") is not None
        assert board.store.ask(found)[0] == []


def test_there_are_never_more_connections_than_may_be(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST", 4)
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
        link = connect(self, *words, **more)
        made.append(link.raw.fileno())
        return link

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
