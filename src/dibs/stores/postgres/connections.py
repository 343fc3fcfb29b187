"""Connections to the server: made when needed, kept for the next call, one to a thread at a time.

Calling sequence: `connection = connections.take()`, any number of round trips (see `round_trips`), then
`connections.give(connection)`, or `connections.drop(connection)` when its state is in doubt.

This is not psycopg_pool, because that connects in threads of its own: the server's refusal (a wrong password, no such
database) becomes a time-out without a reason, and a forked child has no such threads, and goes on on the parent's
connection. After a fork the child forgets the parent's connections without saying goodbye on them.

Nothing is kept in a session (no SET, no LISTEN, no temporary tables, no session locks), so a pooler that hands out
server connections by transaction is fine. Where a pooler does not carry prepared statements over, the first complaint
turns preparing off (`prepares`).
"""

from __future__ import annotations

import logging
import os
import time
from _thread import allocate_lock
from _weakref import ref
from weakref import WeakValueDictionary

import psycopg
from psycopg import errors as pg

from dibs.errors import BoardUnusable
from dibs.stores.postgres.failures import is_lost, unreachable
from dibs.stores.postgres.round_trips import Connection

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

_all: dict[int, ref[Connections]] = {}


def _after_fork_in_child() -> None:
    for known in list(_all.values()):
        pool = known()
        if pool is not None:
            pool._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Connections:
    def __init__(self, conninfo: str, shown: str) -> None:
        self._conninfo = conninfo
        self._shown = shown
        self._idle: list[Connection] = []
        # Whoever is interrupted between taking and giving back has lost it, and so do we.
        self._busy: WeakValueDictionary[int, Connection] = WeakValueDictionary()
        self._connecting = 0
        """Connections that are being made."""
        self._turn = allocate_lock()
        self._known = False
        self.patience: float | None = None
        """Seconds instead of PATIENCE, also for those who are trying already."""
        self.prepares = True
        _all[id(self)] = ref(self)

    def take_idle(self) -> Connection | None:
        """An idle connection that is alive, as far as can be seen from here."""
        while True:
            with self._turn:
                if not self._idle:
                    return None
                connection = self._idle.pop()
                self._busy[id(connection)] = connection
            try:
                if connection.is_quiet:
                    return connection
            except (OSError, ValueError, psycopg.Error):
                pass
            self.discard(connection)

    def take(self) -> Connection:
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
            connection = self._connect()
            with self._turn:
                self._busy[id(connection)] = connection
        finally:
            with self._turn:
                self._connecting -= 1
        return connection

    def extra(self) -> Connection:
        """A new connection beside the others, if the server has one to spare: it is not tried again."""
        connection = self._connect(patient=False)
        with self._turn:
            self._busy[id(connection)] = connection
        return connection

    def give(self, connection: Connection) -> None:
        """Back, for the next caller."""
        if not connection.is_idle:
            self.drop(connection)
            return
        if connection.is_outgrown:
            self.discard(connection)
            return
        connection.used = time.monotonic()
        with self._turn:
            self._busy.pop(id(connection), None)
            self._idle.append(connection)
            # The last is taken first, so the first is the one that has been idle for longest.
            unused = self._idle.pop(0) if self._idle[0].used < connection.used - UNUSED else None
        if unused is not None:
            unused.close()

    def drop(self, connection: Connection) -> None:
        """Not to be used any more. One that failed may not be alone: the idle ones are as old."""
        with self._turn:
            self._busy.pop(id(connection), None)
            idle, self._idle = self._idle, []
        for each in (connection, *idle):
            each.close()

    def close(self) -> None:
        with self._turn:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def discard(self, connection: Connection) -> None:
        """This one only."""
        with self._turn:
            self._busy.pop(id(connection), None)
        connection.close()

    def _connect(self, patient: bool = True) -> Connection:
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

    def _connect_once(self) -> Connection:
        raw = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            # For the transactions that the driver begins, whatever the database's or the role's setting.
            raw.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            raw.read_only = False
            if raw.info.server_version < 130000:
                raise BoardUnusable(
                    f"{self._shown} is PostgreSQL {raw.info.server_version // 10000}; dibs needs 13 or newer"
                )
            connection = Connection(raw, self.prepares)
        except BaseException:
            raw.close()
            raise
        self._known = True
        return connection

    def _disown(self) -> None:
        """In a forked child: the parent goes on with these connections. A goodbye of ours would end them, so it goes
        nowhere."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            for connection in (*self._idle, *self._busy.values()):
                try:
                    os.dup2(nowhere, connection.raw.fileno())
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
