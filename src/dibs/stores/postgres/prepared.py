"""A statement that is run again and again: prepared by the server, sent and read without the driver's cursor.

    …"PREPARE dibs_1 AS SELECT …"                       # by whatever way; it can share a trip with another statement
    claim = Prepared(connection, "dibs_1")
    rows = claim.run(values)

A cursor does the same, and asks at every call what is known after the first: how each value is written and each column
read, and whether the statement has been prepared. That is nearly a third of what a claim costs its client. So this is
for the few statements that matter, outside of transactions, and not behind a pooler, where a session is not ours.

Values are text, numbers and None, written as text; the statement says what they are. Errors are the driver's. What was
interrupted is in doubt, as with a cursor, and so is the connection.
"""

from __future__ import annotations

import psycopg
from psycopg.adapt import Transformer
from psycopg.generators import execute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    Row = tuple[Any, ...]

_TUPLES = psycopg.pq.ExecStatus.TUPLES_OK


class Prepared:
    __slots__ = ("_connection", "_knows", "_name", "_transformer")

    def __init__(self, connection: psycopg.Connection[Row], name: str) -> None:
        self._connection = connection
        self._name = name.encode()
        self._transformer = Transformer(connection)
        self._knows = False
        """How the columns are read."""

    def run(self, values: Sequence[str | float | None]) -> list[Row]:
        self._connection.pgconn.send_query_prepared(self._name, [_written(value) for value in values])
        running: PQGen[list[PGresult]] = execute(self._connection.pgconn)
        result = self._connection.wait(running)[-1]
        if result.status != _TUPLES:
            raise psycopg.errors.error_from_result(result)
        self._transformer.set_pgresult(result, set_loaders=not self._knows)
        self._knows = True
        rows: list[Row] = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows


def _written(value: str | float | None) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        return repr(value).encode()
    if "\0" in value:  # the server would see what stands before it
        raise psycopg.DataError("text cannot contain the character NUL")
    return value.encode()
