"""The proxy does to connections what it says: otherwise the tests that stand behind it show nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres.proxy import Fault, How, Proxy
from tests.postgres.server import server_for_test
from tests.processes.harness import wait_until


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    server = server_for_test()
    url = server.new_database()
    yield url
    server.execute(f'DROP DATABASE "{url.rpartition("/")[2]}" WITH (FORCE)')


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    with Proxy(database) as made:
        yield made


@pytest.fixture
def notes(database: str) -> Iterator[psycopg.Connection]:
    """A connection around the proxy, and an empty table."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS note")
        connection.execute("CREATE TABLE note (words text)")
        yield connection


def words(connection: psycopg.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT words FROM note ORDER BY words")]


def nobody_writes(connection: psycopg.Connection) -> None:
    """Wait until the server has heard of the ends of all other connections."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: connection.execute(others).fetchall() == [(0,)], "the other sessions' ends")


def test_what_passes_is_unchanged_and_its_round_trips_are_counted(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.watch()
        rows = connection.execute("SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) AS n").fetchall()
        assert (len(rows), rows[-1]) == (5000, (5000, "x" * 1000))
        assert proxy.round_trips == 1
        connection.execute("SELECT %s::text", ["with a parameter"])
        assert proxy.round_trips == 2
        with connection.transaction():
            connection.execute("SELECT 3")
        assert proxy.round_trips == 5, "begin, select, commit"
        with connection.pipeline():
            for number in range(10):
                connection.execute("SELECT %s", [number])
        assert proxy.round_trips < 9, "a pipeline is one burst, or a few"
        assert [m.text for m in proxy.log if m.kind == "Q"][:1] == [
            "SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) AS n"
        ]


def test_prepared_statements_are_known_by_their_text(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        for _ in range(2):
            connection.execute("SELECT %s + 41", [1], prepare=True)
        proxy.watch()
        connection.execute("SELECT %s + 41", [1], prepare=True)
        assert "P" not in {message.kind for message in proxy.log}
        fault = proxy.arm(Fault("client", kind="E", text="+ 41"))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT %s + 41", [1], prepare=True)
        assert fault.struck == 1


@pytest.mark.parametrize("how", ["reset", "close"])
def test_cut_before_a_statement_arrives(proxy: Proxy, notes: psycopg.Connection, how: How) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.execute("INSERT INTO note VALUES ('first')")
        fault = proxy.arm(Fault("client", text="INSERT INTO note", how=how))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO note VALUES ('second')")
        assert fault.struck == 1
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.execute("INSERT INTO note VALUES ('third')")
    nobody_writes(notes)
    assert words(notes) == ["first", "third"]


@pytest.mark.parametrize("how", ["reset", "close", "half"])
def test_cut_between_the_commit_and_its_answer(proxy: Proxy, notes: psycopg.Connection, how: How) -> None:
    with psycopg.connect(proxy.url) as connection:
        connection.execute("INSERT INTO note VALUES ('kept')")
        fault = proxy.arm(Fault("server", kind="C", text="COMMIT", how=how))
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        assert fault.struck == 1
    assert words(notes) == ["kept"]


def test_cut_between_a_statement_that_commits_by_itself_and_its_answer(proxy: Proxy, notes: psycopg.Connection) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.arm(Fault("server", kind="Z", text="I"))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO note VALUES (%s)", ["kept"])
    assert words(notes) == ["kept"]


def test_cut_before_the_commit_arrives(proxy: Proxy, notes: psycopg.Connection) -> None:
    with psycopg.connect(proxy.url) as connection:
        connection.execute("INSERT INTO note VALUES ('lost')")
        proxy.arm(Fault("client", text="COMMIT"))
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    nobody_writes(notes)
    assert words(notes) == []


def test_cut_in_the_middle_of_a_result(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        fault = proxy.arm(Fault("server", 50, kind="D", inside=True))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT repeat('x', 100) FROM generate_series(1, 1000)")
        assert fault.struck_at is not None
        assert fault.struck_at.kind == "D"
        assert sum(message.kind == "D" for message in proxy.log) == 50


def test_cut_after_a_number_of_bytes(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        fault = proxy.arm(Fault("server", after_bytes=10_000))
        connection.execute("SELECT repeat('x', 9000)")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT repeat('x', 9000)")
        assert fault.struck == 1


def test_a_fault_can_strike_again_and_also_while_connecting(proxy: Proxy) -> None:
    fault = proxy.arm(Fault("server", kind="R", times=3))
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.url)
    psycopg.connect(proxy.url).close()
    assert fault.struck == 3


def test_half_a_cut_leaves_the_server_with_an_open_transaction(proxy: Proxy, notes: psycopg.Connection) -> None:
    with psycopg.connect(proxy.url) as connection:
        connection.execute("INSERT INTO note VALUES ('in the air')")
        proxy.arm(Fault("client", text="SELECT", how="half"))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert sessions(notes) == ["idle in transaction"]
    proxy.close()
    nobody_writes(notes)
    assert words(notes) == []


def sessions(connection: psycopg.Connection) -> list[str]:
    query = "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    return [row[0] for row in connection.execute(query)]


def test_silence_acknowledges_nothing(proxy: Proxy, notes: psycopg.Connection) -> None:
    """The client's kernel hears of no packet's arrival, and gives up by itself when it was told how long to try."""
    with psycopg.connect(f"{proxy.url}?tcp_user_timeout=800") as connection:
        connection.execute("INSERT INTO note VALUES ('in the air')")
        fault = proxy.arm(Fault("client", text="SELECT", how="silence"))
        # The first packet may still have been acknowledged: the second one is not.
        unanswered = threading.Thread(target=refused, args=(connection,), daemon=True)
        unanswered.start()
        wait_until(lambda: fault.struck, "the silence")
        assert sessions(notes) == ["idle in transaction"]
        more = socket.socket(fileno=socket.dup(connection.pgconn.socket))
        more.setblocking(False)
        more.send(b"S\0\0\0\4")
        unanswered.join(30)
        assert not unanswered.is_alive()
        more.close()


def refused(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_a_network_that_is_cut_and_healed_goes_on_where_it_was(proxy: Proxy, notes: psycopg.Connection) -> None:
    answers: list[tuple[int]] = []
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        connection.execute("SELECT 1")
        proxy.cut_off()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"{proxy.url}?connect_timeout=2")

        def ask() -> None:
            answers.extend(connection.execute("SELECT 42").fetchall())

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(0.5)
        assert asking.is_alive()
        proxy.heal()
        asking.join(30)
        assert answers == [(42,)]
    psycopg.connect(proxy.url).close()


def test_delay_and_swallowed_messages(proxy: Proxy, notes: psycopg.Connection) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.delay = 0.05
        started = time.monotonic()
        connection.execute("SELECT 1")
        assert time.monotonic() - started >= 0.05
        proxy.delay = 0.0
        connection.execute("LISTEN news")
        proxy.swallowed = frozenset("A")
        notes.execute("NOTIFY news")
        wait_until(lambda: "A" in {message.kind for message in proxy.log}, "the server's notification")
        connection.execute("SELECT 1")
        assert list(connection.notifies(timeout=0)) == []


def test_nothing_is_left_of_a_closed_proxy(database: str) -> None:
    with Proxy(database) as proxy, psycopg.connect(proxy.url) as connection:
        connection.execute("SELECT 1")
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("proxy")]
        assert len(threads) == 2
        assert proxy.open_connections == 1
        proxy.close()
        assert not any(thread.is_alive() for thread in threads)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port))
