"""One connection to the server, and the round trips made on it.

    rows, more = connection.trip([(sql, values), (sql, values)])
    connection.commit(last_statements, behind)

A trip sends all its statements at once (libpq's pipeline mode) and then waits for the answers together. It stops at
the first statement that fails, and raises that error; the transaction, if there is one, is then to be rolled back. A
trip that is interrupted (Ctrl-C) leaves answers on their way, so it closes the connection.

Values are text, numbers, None, and lists of these. They are sent as text, and the statement says what they are. A
statement that has been sent a few times is prepared by the server, which saves planning; not behind a pooler, where the
next transaction may be another server connection's.
"""

from __future__ import annotations

import os
import select
from itertools import zip_longest
from zlib import crc32

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from psycopg import abc
    from psycopg.pq.abc import PGresult

    Row = tuple[Any, ...]
    Statement = tuple[str, tuple[Any, ...]]

PREPARE_AFTER = 3
"""The time at which a statement that is sent again and again is prepared."""
GROWTH = 8
"""Times that a board may grow before its plans are made anew."""


class _Known:
    """A statement that was sent before."""

    __slots__ = ("name", "prepared", "sent", "sql", "transformer")

    def __init__(self, sql: str, transformer: abc.Transformer) -> None:
        self.sql = sql.encode()
        # If a pooler that we did not notice hands us another client's, it means the same statement.
        self.name = f"dibs_{crc32(self.sql):08x}_{len(sql)}".encode()
        self.sent = 0
        self.prepared = False
        self.transformer = transformer


class Connection:
    def __init__(self, raw: psycopg.Connection[Row], prepares: bool = True) -> None:
        self.raw = raw
        # Behind a pooler the number that libpq was told is not that of the server's process.
        pid = raw.execute("SELECT pg_backend_pid()").fetchall()[0][0]
        self.pid: int | None = pid if pid == raw.info.backend_pid else None
        self.owner = os.getpid()
        self.used = 0.0
        self._prepares = prepares and self.pid is not None
        self._known: dict[str, _Known] = {}
        self._first = self._last = 0

    def trip(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements, one after the other; the rows of each."""
        results, error = self._send(statements)
        if error is not None:
            raise error
        return self._rows(statements, results)

    def commit(self, statements: Sequence[Statement], behind: Sequence[Statement]) -> list[list[Row]]:
        """The last statements of a transaction, its commit, and what is to be sent behind it: that may fail, and takes
        nothing back. The rows of `statements`."""
        results, error = self._send([*statements, ("COMMIT", ()), *behind])
        answer = results[len(statements)] if len(results) > len(statements) else None
        if answer is None or answer.command_status != b"COMMIT":
            raise error or psycopg.InterfaceError("the server answered a commit with something else")
        if error is not None and not self.is_idle and not self.raw.closed:
            self.roll_back()
        return self._rows(statements, results)

    def roll_back(self) -> None:
        self.raw.pgconn.exec_(b"ROLLBACK")

    def copy(self, table: str, columns: str, rows: Iterable[Row]) -> None:
        """Many new rows, by the server's quickest way."""
        with self.raw.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def close(self) -> None:
        try:
            self.raw.close()
        except Exception:
            pass

    # -- state

    @property
    def is_idle(self) -> bool:
        # Of a closed connection the status is unknown.
        return self.raw.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_quiet(self) -> bool:
        """Has the server said nothing since it was last asked? What it says then is mostly that it has gone."""
        return not _wait(self.raw.pgconn.socket, timeout=0)[0]

    def saw(self, number: int) -> None:
        """The number of an event: so large is the board."""
        self._first = self._first or number
        self._last = number

    @property
    def is_outgrown(self) -> bool:
        """Has the board become another one since the first statement? The server keeps the plans that it made for a
        small one, which read all of it, until its statistics are renewed: a claim then takes 50 ms, not half of one."""
        return self._last > GROWTH * (self._first + 100)

    # -- sending and receiving

    def _send(self, statements: Sequence[Statement]) -> tuple[list[PGresult], psycopg.Error | None]:
        """The result of each statement up to the first that failed, and its error."""
        pgconn = self.raw.pgconn
        asked = [(self._statement(sql), [_written(value) for value in values]) for sql, values in statements]
        expected: list[_Known | None] = []
        """For each result: the statement that it says is prepared, or None where it is the statement's own."""
        try:
            pgconn.enter_pipeline_mode()
            for known, values in asked:
                known.sent += 1
                if self._prepares and known.sent == PREPARE_AFTER:
                    pgconn.send_prepare(known.name, known.sql)
                    expected.append(known)
                if known.prepared:
                    pgconn.send_query_prepared(known.name, values)
                else:
                    pgconn.send_query_params(known.sql, values)
                expected.append(None)
            pgconn.pipeline_sync()
            received = self._receive()
            pgconn.exit_pipeline_mode()
        except BaseException:
            self.close()
            raise
        results: list[PGresult] = []
        for result, prepared in zip_longest(received, expected):
            if result.status in (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED):
                self._prepare_again(expected)
                return results, error_from_result(result)
            if prepared is not None:
                prepared.prepared = True
            else:
                results.append(result)
        return results, None

    def _prepare_again(self, expected: Sequence[_Known | None]) -> None:
        """What was to be prepared behind a statement that failed was not."""
        for known in expected:
            if known is not None and not known.prepared:
                known.sent = 0

    def _statement(self, sql: str) -> _Known:
        known = self._known.get(sql)
        if known is None:
            known = self._known[sql] = _Known(sql, Transformer(self.raw))
        return known

    def _receive(self) -> list[PGresult]:
        """All results up to the one that answers the pipeline's sync."""
        pgconn = self.raw.pgconn
        received: list[PGresult] = []
        unsent = bool(pgconn.flush())
        try:
            while True:
                _, writable = _wait(pgconn.socket, write=unsent)
                if writable:
                    unsent = bool(pgconn.flush())
                pgconn.consume_input()
                while not pgconn.is_busy():
                    result = pgconn.get_result()
                    if result is not None:
                        if result.status == ExecStatus.PIPELINE_SYNC:
                            return received
                        received.append(result)
        except psycopg.OperationalError:
            # A server that ends the connection says why before it does.
            for result in received:
                if result.status == ExecStatus.FATAL_ERROR:
                    raise error_from_result(result) from None
            raise

    def _rows(self, statements: Sequence[Statement], results: Sequence[PGresult]) -> list[list[Row]]:
        rows: list[list[Row]] = []
        for (sql, _), result in zip(statements, results, strict=False):
            if result.status != ExecStatus.TUPLES_OK:
                rows.append([])
                continue
            transformer = self._known[sql].transformer
            transformer.set_pgresult(result, set_loaders=transformer.pgresult is None)
            rows.append(transformer.load_rows(0, result.ntuples, tuple))
        return rows


def _wait(socket: int, *, write: bool = False, timeout: float | None = None) -> tuple[bool, bool]:
    """Wait until there is something to read, or (`write`) room to write; which of them. (`select` knows the first
    1,024 descriptors of a process only.)"""
    if not hasattr(select, "poll"):
        readable, writable, _ = select.select([socket], [socket] if write else [], [], timeout)
        return bool(readable), bool(writable)
    asked = select.poll()
    asked.register(socket, select.POLLIN | (select.POLLOUT if write else 0))
    events = sum(event for _, event in asked.poll(None if timeout is None else timeout * 1000))
    return bool(events & ~select.POLLOUT), bool(events & select.POLLOUT)


def _written(value: Any) -> bytes | None:
    """A value as the server reads it."""
    if value is None:
        return None
    if isinstance(value, list):
        return ("{" + ",".join(map(_element, value)) + "}").encode()
    return _plain(value).encode()


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if not isinstance(value, str):
        return repr(value)
    if "\0" in value:  # the server would see what stands before it
        raise psycopg.DataError("text cannot contain the character NUL")
    return str(value)


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    text = _plain(value)
    if isinstance(value, str):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
