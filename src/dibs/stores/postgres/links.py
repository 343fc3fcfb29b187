"""Connections to the server: made when needed, kept for the next call, one to a thread at a time.

Calling sequence: `link = links.take()`, any number of `link.trip([...])`, then `links.give(link)`, or
`links.drop(link)` when its state is in doubt. A trip sends all its statements at once and waits for the answers
together. `link.run(...)` is a trip of one statement, of the few that are run again and again (see `prepared`).

This is not psycopg_pool, because that connects in threads of its own: the server's refusal (a wrong password, no such
database) becomes a time-out without a reason, and a forked child has no such threads, and goes on on the parent's
connection. After a fork the child forgets the parent's connections without saying goodbye on them.

Nothing is kept in a session (no SET, no LISTEN, no temporary tables, no session locks), so a pooler that hands out
server connections by transaction is fine. Statements are prepared by the server, which saves planning; where a pooler
does not carry them over, the first complaint turns that off (`prepares`).
"""

from __future__ import annotations

import logging
import os
import select
import time
from _thread import allocate_lock
from _weakref import ref
from itertools import count
from weakref import WeakValueDictionary
from zlib import crc32

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper

from dibs.errors import BoardUnusable
from dibs.stores.postgres.failures import is_lost, unreachable
from dibs.stores.postgres.prepared import Prepared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from psycopg.abc import PQGen

    Row = tuple[Any, ...]
    Statement = tuple[str, tuple[Any, ...]]

MOST = 32
"""Connections that one store has at most; more threads take turns."""
UNUSED = 60.0
"""Seconds after which a connection is closed that only a moment with more threads had needed."""
PATIENCE = 20.0
"""Seconds for which a server that was reachable before is tried again."""
DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "client_encoding": "utf8",
    "application_name": "dibs",
}
"""What a connection is made with unless the address says otherwise: one that is cut off is noticed in 20 s or so."""

# The driver warns of connections that end; what that means is said by us.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_LEARNING = 5
"""Times after which a statement is sent alone. The driver has it prepared at the fourth."""
_GROWTH = 8
"""Times that a board may grow before its plans are made anew."""
_IDLE = psycopg.pq.TransactionStatus.IDLE
_FAILED = psycopg.pq.TransactionStatus.INERROR
_TUPLES = psycopg.pq.ExecStatus.TUPLES_OK
_all: dict[int, ref[Links]] = {}


def _after_fork_in_child() -> None:
    for known in list(_all.values()):
        links = known()
        if links is not None:
            links._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Pipeline(psycopg.Pipeline):
    """The driver's, without the Flush that it sends behind the last Sync: that would stop the server's clock for idle
    transactions, and a worker that is paused could hold its rows for ever. (A test sees that the clock runs.)"""

    def _exit_gen(self) -> PQGen[None]:
        return self._sync_gen()


def _has_come(socket: int) -> bool:
    """Is there something to read? `select` knows the first 1,024 descriptors of a process only."""
    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    asked = select.poll()
    asked.register(socket, select.POLLIN)
    return bool(asked.poll(0))


class Link:
    """One connection."""

    __slots__ = (
        "_alone",
        "_cursor",
        "_first",
        "_last",
        "_names",
        "_prepared",
        "_sure",
        "__weakref__",
        "connection",
        "owner",
        "pid",
        "used",
    )

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self.connection = connection
        # Behind a pooler the number that libpq was told is not that of the server's process.
        pid = connection.execute("SELECT pg_backend_pid()").fetchall()[0][0]
        self.pid: int | None = pid if pid == connection.info.backend_pid else None
        if self.pid is None:
            # The driver numbers its statements. Where a pooler does not keep them apart (PgBouncer before 1.21), we
            # would come to server connections that know another client's under our number, and run that.
            connection.prepare_threshold = None
        self.owner = os.getpid()
        self.used = 0.0
        self._cursor = connection.cursor()
        self._prepared: dict[str, Prepared] = {}
        self._names = count(1)
        self._alone: dict[str, int] = {}
        self._sure = 0
        """Of the statements that the driver has numbered, those below this are prepared."""
        self._first = self._last = 0

    def trip(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements, one after the other, in one trip; the rows of each."""
        execute = self.connection.execute
        self._sure = self.connection._prepared._prepared_idx
        if len(statements) == 1:
            sql = statements[0][0]
            if self._is_learnt(sql):
                return [_rows(self._cursor.execute(*statements[0]))]
            self._alone[sql] = self._alone.get(sql, 0) + 1
        self.connection._pipeline = _Pipeline(self.connection)
        try:
            with self.connection.pipeline():
                cursors = [execute(sql, values) for sql, values in statements]
        except IndexError as error:
            # A refusal in answer to the Sync (a commit that failed) is one more answer than the driver expects.
            _close(self.connection)
            raise psycopg.OperationalError("the server refused at the end") from error
        except psycopg.OperationalError as error:
            # A refusal may come before the answer to the Sync, and then the driver cannot leave its pipeline; nor can
            # it when a signal's exception comes while it waits. That is what matters; the connection is of no use now.
            cause = error.__context__
            if cause is not None and not (isinstance(cause, psycopg.Error) and is_lost(cause)):
                _close(self.connection)
                raise cause from None
            raise
        return [_rows(cursor) for cursor in cursors]

    def _is_learnt(self, sql: str) -> bool:
        """Has a statement been sent alone so often that it is not the one that the server is asked to prepare? Only in
        a pipeline does that take no trip of its own."""
        return self._alone.get(sql, 0) >= _LEARNING

    def run(self, sql: str, values: tuple[Any, ...]) -> list[Row]:
        """One of the few statements that are run again and again, alone."""
        if not self._is_learnt(sql) or self.connection.prepare_threshold is None:
            return self.trip([(sql, values)])[0]
        if (known := self._prepared.get(sql)) is not None:
            try:
                return known.run(values)
            except pg.InvalidSqlStatementName:
                # The driver has the server forget all statements after a transaction that failed. Nothing was run.
                self._prepared.clear()
        # Behind a pooler that hides what it is, a name that another client made would mean the same statement.
        name = f"dibs_{crc32(sql.encode()):08x}_{next(self._names)}"
        _, rows = self.trip([(f"PREPARE {name} AS {sql}", ()), (sql, values)])
        self._prepared[sql] = Prepared(self.connection, name)
        return rows

    def saw(self, number: int) -> None:
        """The number of an event: so large is the board."""
        self._first = self._first or number
        self._last = number

    @property
    def is_outgrown(self) -> bool:
        """Has the board become another one since the first statement? The server keeps the plans that it made for a
        small one, which read all of it, until its statistics are renewed: a claim then takes 50 ms, not half of one."""
        return self._last > _GROWTH * (self._first + 100)

    def commit(self, statements: Sequence[Statement], behind: Sequence[Statement]) -> list[list[Row]]:
        """The last statements of a transaction, its commit, and what is to be sent behind it: that may fail, and takes
        nothing back. The rows of each."""
        cursors: list[psycopg.Cursor[Row]] = []
        self._sure = self.connection._prepared._prepared_idx
        self.connection._pipeline = _Pipeline(self.connection)
        try:
            with self.connection.pipeline():
                for sql, values in (*statements, ("COMMIT", ()), *behind):
                    cursors.append(self.connection.execute(sql, values))
        except psycopg.Error as error:
            cause = error.__context__
            if cause is not None and not (isinstance(cause, psycopg.Error) and is_lost(cause)):
                _close(self.connection)  # as in `trip`
                raise cause from None
            answer = cursors[len(statements)].pgresult if len(cursors) > len(statements) else None
            if answer is None or answer.command_status != b"COMMIT":
                raise
            if not self.is_idle and not self.connection.closed:
                self.roll_back()
        else:
            answer = cursors[len(statements)].pgresult
            if answer is None or answer.command_status != b"COMMIT":
                raise psycopg.InterfaceError("the server answered a commit with something else")
        return [_rows(cursor) for cursor in cursors[: len(statements)]]

    def roll_back(self) -> None:
        if self.connection.pgconn.transaction_status == _FAILED:
            # What the driver was about to have prepared in the trip that failed may not have been, and it takes it for
            # prepared. It would have the server forget all statements, once; the next time it forgets to do that.
            known = self.connection._prepared._names
            for key in [key for key, name in known.items() if int(name.rpartition(b"_")[2]) >= self._sure]:
                del known[key]
        self.connection.pgconn.exec_(b"ROLLBACK")

    @property
    def is_quiet(self) -> bool:
        """Has the server said nothing since it was last asked? What it says then is mostly that it has gone."""
        return not _has_come(self.connection.pgconn.socket)

    def copy(self, table: str, columns: str, rows: Iterable[Row]) -> None:
        """Many new rows, by the server's quickest way."""
        with self.connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    @property
    def is_idle(self) -> bool:
        # Of a closed connection the status is unknown.
        return self.connection.pgconn.transaction_status == _IDLE


def _rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    # Asking for `description` would make an object for every column.
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.status == _TUPLES else []


class Links:
    def __init__(self, conninfo: str, shown: str) -> None:
        self._conninfo = conninfo
        self._shown = shown
        self._idle: list[Link] = []
        # Whoever is interrupted between taking and giving back has lost it, and so do we.
        self._busy: WeakValueDictionary[int, Link] = WeakValueDictionary()
        self._connecting = 0
        """Connections that are being made."""
        self._turn = allocate_lock()
        self._known = False
        self.patience: float | None = None
        """Seconds instead of PATIENCE, also for those who are trying already."""
        self.prepares = True
        _all[id(self)] = ref(self)

    def take_idle(self) -> Link | None:
        """An idle connection that is alive, as far as can be seen from here."""
        while True:
            with self._turn:
                if not self._idle:
                    return None
                link = self._idle.pop()
                self._busy[id(link)] = link
            try:
                if link.is_quiet:
                    return link
            except (OSError, ValueError, psycopg.Error):
                pass
            self.discard(link)

    def take(self) -> Link:
        """An idle connection, or a new one."""
        while True:
            if (known := self.take_idle()) is not None:
                return known
            with self._turn:
                if len(self._busy) + self._connecting < MOST:
                    self._connecting += 1
                    break
            time.sleep(0.005)
        try:
            link = self._connect()
            with self._turn:
                self._busy[id(link)] = link
        finally:
            with self._turn:
                self._connecting -= 1
        return link

    def extra(self) -> Link:
        """A new connection beside the others, if the server has one to spare: it is not tried again."""
        link = self._connect(patient=False)
        with self._turn:
            self._busy[id(link)] = link
        return link

    def give(self, link: Link) -> None:
        """Back, for the next caller."""
        if not link.is_idle:
            self.drop(link)
            return
        if link.is_outgrown:
            self.discard(link)
            return
        link.used = time.monotonic()
        with self._turn:
            self._busy.pop(id(link), None)
            self._idle.append(link)
            # The last is taken first, so the first is the one that has been idle for longest.
            unused = self._idle.pop(0) if self._idle[0].used < link.used - UNUSED else None
        if unused is not None:
            _close(unused.connection)

    def drop(self, link: Link) -> None:
        """Not to be used any more. One that failed may not be alone: the idle ones are as old."""
        with self._turn:
            self._busy.pop(id(link), None)
            idle, self._idle = self._idle, []
        for each in (link, *idle):
            _close(each.connection)

    def close(self) -> None:
        with self._turn:
            idle, self._idle = self._idle, []
        for link in idle:
            _close(link.connection)

    def discard(self, link: Link) -> None:
        """This one only."""
        with self._turn:
            self._busy.pop(id(link), None)
        _close(link.connection)

    def _connect(self, patient: bool = True) -> Link:
        begun = time.monotonic()
        pause = 0.05
        while True:
            try:
                return self._connect_once()
            except psycopg.Error as error:
                patience = PATIENCE if self.patience is None else self.patience
                if not patient or time.monotonic() >= begun + patience * self._known or not _may_pass(error):
                    raise unreachable(error, self._shown) from error
            time.sleep(pause)
            pause = min(pause * 1.7, 1.0)

    def _connect_once(self) -> Link:
        connection = psycopg.connect(
            self._conninfo,
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            prepare_threshold=3 if self.prepares else None,
        )
        try:
            # For the transactions that the driver begins, whatever the database's or the role's setting.
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only = False
            # Every number as the widest, so that a statement is prepared once and not for each size of its values.
            connection.adapters.register_dumper(int, Int8Dumper)
            if connection.info.server_version < 130000:
                raise BoardUnusable(
                    f"{self._shown} is PostgreSQL {connection.info.server_version // 10000}; dibs needs 13 or newer"
                )
            link = Link(connection)
        except BaseException:
            _close(connection)
            raise
        self._known = True
        return link

    def _disown(self) -> None:
        """In a forked child: the parent goes on with these connections. A goodbye of ours would end them, so it goes
        nowhere."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            for link in (*self._idle, *self._busy.values()):
                try:
                    os.dup2(nowhere, link.connection.fileno())
                except (OSError, psycopg.Error):
                    pass  # closed already
        finally:
            os.close(nowhere)
        self._idle, self._busy, self._connecting = [], WeakValueDictionary(), 0
        self._turn = allocate_lock()

    def __del__(self) -> None:
        _all.pop(id(self), None)
        self.close()


def _may_pass(error: psycopg.Error) -> bool:
    """Could a server that refuses now be back in a moment? Not one that knows us and says no."""
    return is_lost(error) and not isinstance(error, pg.InvalidAuthorizationSpecification | pg.InvalidCatalogName)


def _close(connection: psycopg.Connection[Any]) -> None:
    try:
        connection.close()
    except Exception:
        pass
