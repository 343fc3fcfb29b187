"""What a third pair of hostile eyes found on PostgreSQL: each was wrong once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from dibs import Busy, TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.stores.postgres import links as links_module
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.connections import Connections
from dibs.stores.postgres.round_trips import Connection
from tests.postgres.server import Server


@pytest.fixture
def url(server: Server) -> str:
    made = server.new_database() + "?board=web"
    TaskBoard.open(made, create=True, worker="maker").close()
    return made


def test_releasing_a_worker_does_not_take_the_locks_of_what_it_has_just_claimed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks and the locks of a name are read by two statements; a claim may be committed between them."""
    with TaskBoard.open(url, worker="cleaner") as cleaner, TaskBoard.open(url) as other:
        other.add("edit", id="T", paths=["src/a.py"])
        whole = Connection.trip

        def split(link: Connection, statements: Any) -> Any:
            at = next((n for n, (sql, _) in enumerate(statements) if sql == q.LOCKS_BY), None)
            if not at or monkeypatched:
                return whole(link, statements)
            monkeypatched.append(True)
            first = whole(link, statements[:at])
            assert other.claim(Worker("agent", session="two"), "T") is not None
            return first + whole(link, statements[at:])

        monkeypatched: list[bool] = []
        monkeypatch.setattr(Connection, "trip", split)
        assert cleaner.release_agent_tasks("agent") == []
        assert monkeypatched
        assert [lock.pattern for lock in other.locks()] == ["src/a.py"]
        with pytest.raises(Busy):
            other.lock(["src/a.py"], "thief")


def test_what_is_claimed_is_numbered_after_what_freed_it(url: str) -> None:
    with TaskBoard.open(url, worker="w1") as first, TaskBoard.open(url, worker="w2") as second:
        first.claim("w1")
        first.add("one", id="T1", paths=["a"])
        first.claim("w1", lease=0.3)
        time.sleep(0.4)
        second.lock(["a"], "w2")
        second.unlock(None, "w2")
        assert first.claim("w1", lease=60) is not None
        assert [event.action for event in first.recent(2)] == ["recovered_activity", "claimed_activity"]
        assert disagreements(first) == []


@pytest.mark.parametrize("task_id", [None, "T"])
def test_one_request_key_at_the_same_time_has_one_answer(
    url: str, task_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TaskBoard.open(url) as one, TaskBoard.open(url) as two:
        one.add("edit", id="T")
        commit = Connection.commit

        def late(link: Connection, *rest: Any) -> Any:
            time.sleep(0.5)
            return commit(link, *rest)

        answers: dict[str, Any] = {}
        worker = Worker("r")

        def ask(name: str, board: TaskBoard) -> None:
            task = board.claim(worker, task_id, request_key="k")
            answers[name] = None if task is None else (task.id, task.token)

        monkeypatch.setattr(Connection, "commit", late)
        threads = [threading.Thread(target=ask, args=args) for args in (("one", one), ("two", two))]
        threads[0].start()
        time.sleep(0.2)
        threads[1].start()
        for thread in threads:
            thread.join()
        assert answers["one"] == answers["two"] != None  # noqa: E711


def test_whoever_waits_is_not_sent_away_by_somebody_in_the_middle_of_a_change(url: str) -> None:
    with TaskBoard.open(url) as board, TaskBoard.open(url) as other:
        board.add("edit", paths=["a"])
        paused = other.store.write()
        tx = paused.__enter__()
        tx.locks(["a"])
        done = threading.Timer(4.0, lambda: paused.__exit__(None, None, None))
        done.start()
        try:
            assert board.claim("w", wait=30) is not None
        finally:
            done.join()


def test_waiting_on_a_full_server_does_not_cost_the_connection_that_works(own_server: Server) -> None:
    url = own_server.new_database()
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.claim("w")
        own_server.execute("ALTER ROLE dibs CONNECTION LIMIT 1")
        assert board.claim("w", wait=1.0) is None
        board.add("one")
        assert board.claim("w") is not None


def test_a_role_that_rounds_numbers_writes_exact_times(own_server: Server) -> None:
    url = own_server.new_database()
    with TaskBoard.open(url, create=True, worker="maker") as board:
        own_server.execute("ALTER ROLE dibs SET extra_float_digits = 0")
        with TaskBoard.open(url) as rounding:
            for number in range(20):
                rounding.add(f"task {number}", paths=["a"] if number % 2 else [])
                task = rounding.claim("w")
                assert task is not None
                task.complete("done")
        assert disagreements(board) == []


def test_behind_a_pooler_nothing_is_prepared(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PgBouncer before 1.21 would let one client run what another has prepared under the same number."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda info: -1))
    with TaskBoard.open(url) as board:
        for number in range(8):
            board.add(f"task {number}")
        for _ in range(8):
            assert board.claim("w") is not None
        names = [link.raw._prepared._names for link in board.store.connections._idle]  # type: ignore[attr-defined]
        assert names
        assert not any(names)


def test_a_refusal_is_told_also_where_the_driver_cannot_leave_its_pipeline(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's answer to the Sync may come later than its refusal."""

    @contextmanager
    def stumbling(self: psycopg.Connection[Any]) -> Iterator[None]:
        try:
            yield
            raise psycopg.errors.InsufficientPrivilege("permission denied for schema dibs")
        except psycopg.Error:
            raise psycopg.OperationalError("cannot exit pipeline mode while busy")  # noqa: B904

    links = Connections(server.url(), "it")
    link = links.take()
    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "pipeline", stumbling)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            link.trip([("SELECT 1", ())])
    assert link.raw.closed
    links.drop(link)


def test_connections_of_a_busy_moment_are_not_kept_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty threads at once, once, and the server would lack thirty connections for as long as the process lives."""
    links = Connections(server.url(), "x")
    burst = [links.take() for _ in range(3)]
    for each in burst:
        links.give(each)
    assert len(connections._idle) == 3
    monkeypatch.setattr(links_module, "UNUSED", 0.0)
    for _ in range(5):
        used = links.take()
        links.give(used)
    assert connections._idle == [used]
    assert [each.connection.closed for each in burst] == [each is not used for each in burst]
    links.close()
