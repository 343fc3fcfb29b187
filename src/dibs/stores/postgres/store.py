"""A board in a PostgreSQL database, shared by workers on any number of machines.

Address: `postgresql://user@host:port/database?board=NAME`, with whatever else libpq understands behind the `?`. Without
a name the board is `main`. A password is better kept in `~/.pgpass` or PGPASSWORD; one in the address is used, and
shown nowhere.

Writing: transactions run side by side and validate at their commit what they have read (see `tx`). The plain claim and
completion are single statements (`fast_path`). Time is the database's; the clocks of the machines play no part.

Losing the connection. Before the commit was sent, nothing has happened: the verb runs again (`store.Collision`), on a
new connection. While the commit was under way, the server is asked what became of the transaction, by its number; it
is then taken as done, or runs again, or, if the server cannot tell within a few seconds, `OutcomeUnknown` says so.

What a crash leaves: of a client, a transaction that the server rolls back (at once when it sees the connection end,
after 10 s when it hears nothing); of the server, what was committed, as durable as its `synchronous_commit` makes it.
"""

from __future__ import annotations

import time

import psycopg
from psycopg import errors as pg

from dibs.clock import Clock
from dibs.errors import BoardUnusable, Invalid, OutcomeUnknown
from dibs.ids import random_ids
from dibs.model import COMPLETED, TaskStatus
from dibs.stores.base import Collision
from dibs.stores.postgres import provision
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.addresses import parse
from dibs.stores.postgres.connections import Connections
from dibs.stores.postgres.failures import is_lost, is_unprepared, translate
from dibs.stores.postgres.fast_path import FastPath
from dibs.stores.postgres.notify import Notifier
from dibs.stores.postgres.ready_watermark import ReadyWatermark
from dibs.stores.postgres.tx import PostgresTx, stable_seq_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import NoReturn

    from dibs.model import BoardTask, Worker
    from dibs.stores.postgres.round_trips import Connection, Statement

LOOK_FOR = 5.0
"""Seconds for which a commit whose answer did not come is looked for."""


class PostgresStore:
    lease: float | None = None
    satisfied_by: tuple[TaskStatus, ...] = (COMPLETED,)
    streams = True
    """Does `restore` go over its rows instead of keeping them?"""

    def __init__(self, url: str, *, create: bool = False, clock: Clock | None = None, place: str | None = None) -> None:
        address = parse(url)
        self.url = address.shown
        self.name = address.board
        self.place = place
        self.clock = clock
        self.connections = Connections(address.conninfo, address.shown)
        self.board = self._open(create)
        self.events = f"dibs.event_{self.board}"
        self.tasks = f"dibs.task_{self.board}"
        self.numbers = (self.events, self.board << 40)
        """What `statements.drawn` wants: the sequence, and the gate by which readers are told."""
        self.stable: tuple[Statement, ...] = ((q.LAST_NUMBER, (self.events,)), (q.IN_FLIGHT, (self.board,)))
        self.watermark = ReadyWatermark(self)
        self._fast_path = FastPath(self)
        self._notifier = Notifier(self)

    def _open(self, create: bool) -> int:
        connection = self.connections.take()
        try:
            if create:
                provision.make(connection, self.name, self.url)
            return provision.find(connection, self.name, self.url)
        except psycopg.Error as error:
            raise (provision.refused(connection, error, self.url) if create else translate(error, self.url)) from error
        finally:
            self.connections.give(connection)

    def close(self) -> None:
        self._notifier.close()
        self.connections.close()

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return random_ids(len(tasks))

    def try_claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> list[BoardTask] | None:
        return self._fast_path.claim(who, reserved, n, lease)

    def try_complete(
        self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None
    ) -> BoardTask | None:
        return self._fast_path.complete(task_id, name, kind, token, result)

    # -- transactions

    def write(self) -> _Turn:
        return _Turn(self, writing=True)

    def read(self) -> _Turn:
        return _Turn(self, writing=False)

    def lost(self, connection: Connection, error: BaseException) -> Collision:
        """A connection that broke before anything was committed on it."""
        self.connections.drop(connection)
        if is_unprepared(error):
            self.connections.prepares = False
        return Collision(
            f"the connection to {self.url} was lost ({str(error).strip().splitlines()[0][:200]}); nothing was changed",
            hint="repeat the command; if that happens every time, and a pooler stands between, see its log",
            url=self.url,
        )

    def fail(self, connection: Connection, error: BaseException) -> NoReturn:
        """Raise what an error of the driver means; the transaction, if there was one, is over."""
        if is_lost(error) or is_unprepared(error) or connection.raw.closed:
            raise self.lost(connection, error) from error
        self.abandon(connection)
        raise translate(error, self.url) from error

    def abandon(self, connection: Connection) -> None:
        """Roll back and give the connection back."""
        try:
            if not connection.is_idle and not connection.raw.closed:
                connection.roll_back()
        except psycopg.Error:
            pass
        self.connections.give(connection)

    def ask(self, *statements: Statement) -> list[list[tuple[object, ...]]]:
        """Statements outside any transaction, each by itself."""
        for last in (False, True):
            connection = self.connections.take()
            try:
                answers = connection.trip(statements)
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                self.connections.discard(connection)
                raise
            except psycopg.Error as error:
                try:
                    self.fail(connection, error)
                except Collision:
                    if last:
                        raise
                    continue
            self.connections.give(connection)
            return answers
        raise AssertionError

    def find_out(self, tx: PostgresTx, connection: Connection, error: BaseException) -> None:
        """The connection broke while a transaction was being committed: returns if it was, raises `Collision` if it was
        not, and `OutcomeUnknown` if there is no telling."""
        self.connections.drop(connection)
        end = time.monotonic() + LOOK_FOR
        while time.monotonic() < end:
            try:
                fate = self._fate(tx)
            except Collision:
                fate = None  # that connection broke as well
            except BoardUnusable:
                break
            if fate == "committed":
                return
            if fate == "aborted":
                raise self.lost(connection, error) from error
            if fate == "another":
                break
            time.sleep(0.1)
        raise OutcomeUnknown(
            f"the connection to {self.url} was lost while a change was being saved, and the server does not tell "
            "whether it was",
            hint="see what is on the board: dibs log; a repeated call with the same request key or token does no harm",
            url=self.url,
        ) from error

    def _fate(self, tx: PostgresTx) -> str | None:
        """What became of a transaction. A server that has lost its newest past in a failover gives its number to
        another, or does not know it yet."""
        connection = self.connections.take()
        try:
            fate = connection.trip([(q.FATE, (tx.xid,))])[0][0][0]
            if fate == "committed" and tx.last is not None:
                last = tx.last
                is_ours = connection.trip([(q.IS_OURS, (self.board, last.seq, last.worker, last.action))])[0]
                fate = "committed" if is_ours else "another"
        except pg.InvalidParameterValue:
            fate = "aborted"  # a number from the future
        except psycopg.Error as error:
            self.fail(connection, error)
        self.connections.give(connection)
        return str(fate) if fate is not None else None

    # -- following and waiting

    def stable_seq(self) -> int | None:
        return stable_seq_of(self.ask(*self.stable))

    def mark_change(self) -> int:
        answers = self.ask(*self.stable, (q.NEWEST, (self.board,)))
        newest = int(str(answers[2][0][0]))
        # Grows with every commit that is seen, in whatever order; numbers that were drawn for nothing do not count.
        return newest + min(stable_seq_of(answers[:2]), newest)

    def wait_change(self, mark: int, timeout: float) -> bool:
        return self._notifier.wait(mark, timeout)

    def behind(self, lagging: tuple[str, int] | None) -> list[Statement]:
        """What to send behind a commit: that those who wait wake, and that a watermark follows that lags. Both are one
        transaction; if the key of watermarks cannot be had, whoever waits finds out by looking."""
        raising = self.watermark.behind(*lagging) if lagging is not None else []
        return [*raising[:1], *self._notifier.call(), *raising[1:]]

    def tell(self, connection: Connection) -> None:
        """Wake those who wait. It is no part of what was committed, and may fail."""
        told = self._notifier.call()
        if told:
            try:
                connection.trip(told)
            except psycopg.Error:
                pass


class _Turn:
    """`with store.write() as tx` and `with store.read() as tx`."""

    __slots__ = ("_connection", "_store", "_tx", "_writing")

    def __init__(self, store: PostgresStore, writing: bool) -> None:
        self._store = store
        self._writing = writing

    def __enter__(self) -> PostgresTx:
        self._connection = self._store.connections.take()
        self._tx = PostgresTx(self._store, self._connection, self._writing)
        return self._tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store, connection, tx = self._store, self._connection, self._tx
        if isinstance(error, UnicodeEncodeError):
            store.abandon(connection)
            raise Invalid("that is not valid Unicode text") from error
        if isinstance(error, psycopg.Error):
            store.fail(connection, error)
        if kind is not None or not tx.changed:
            store.abandon(connection)
            return
        try:
            tx.commit()
        except psycopg.Error as problem:
            if not (is_lost(problem) or connection.raw.closed):
                store.fail(connection, problem)
            if tx.xid is None:
                raise store.lost(connection, problem) from problem
            store.find_out(tx, connection, problem)
            return
        except BaseException:
            store.connections.drop(connection)
            raise
        store.connections.give(connection)


def open_postgres(url: str, *, create: bool, clock: Clock | None) -> PostgresStore:
    """The store, with lock paths belonging to the repository that we stand in."""
    from dibs.places import find_place, working_directory

    place = find_place(working_directory())
    return PostgresStore(url, create=create, clock=clock, place=place.home if place.worktree is not None else None)
