"""Finding and making schema and boards, and listing the boards of a database.

`make` runs in one transaction, alone, and does nothing that has been done already. So whoever may only use a board can
call it on one that exists.
"""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from dibs.errors import BoardUnusable, DibsError, NoBoard
from dibs.stores.postgres import schema as s
from dibs.stores.postgres.addresses import parse
from dibs.stores.postgres.connections import Connections
from dibs.stores.postgres.failures import may_not_make, translate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.postgres.round_trips import Connection, Row

# One pass over all tasks: a look for each board would cost more from a few boards on.
BOARDS = """
SELECT b.name, b.created_at, coalesce(t.open, 0), coalesce(t.tasks, 0),
    (SELECT e.time FROM dibs.event e WHERE e.board = b.id ORDER BY e.seq DESC LIMIT 1)
FROM dibs.board b LEFT JOIN (
    SELECT board, count(*) AS tasks,
        count(*) FILTER (WHERE status IN ('pending', 'in_progress', 'review')) AS open
    FROM dibs.task GROUP BY board
) t ON t.board = b.id
ORDER BY b.name
"""
SOME_NAMES = "SELECT name FROM dibs.board ORDER BY id DESC LIMIT 1000"


# Whose the schema is, if it is there and somebody else's.
OWNER = """
SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace
WHERE nspname = 'dibs' AND pg_get_userbyid(nspowner) <> current_user
"""
WHO = """
SELECT (SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace WHERE nspname = 'dibs'),
    quote_ident(current_database()), quote_ident(current_user)
"""


def find(connection: Connection, name: str, shown: str) -> int:
    """The number of a board, once the schema is known to be one that this version can use."""
    if not connection.trip([(s.FIND, ())])[0][0][0]:
        raise NoBoard(
            f"there is no board at {shown}: this database has none yet",
            hint=f"make one with: {_init(shown)}",
            url=shown,
        )
    version, rows = (answer for answer in connection.trip([(s.VERSION, ()), (s.BOARD, (name,))]))
    _refuse_newer(version[0][0], shown)
    if version[0][0] < len(s.MIGRATIONS):
        raise BoardUnusable(
            f"{shown} was made by an older dibs (schema {version[0][0]}; this one wants {len(s.MIGRATIONS)})",
            hint=f"as the owner of the schema, bring it up to date: {_init(shown)}",
            url=shown,
        )
    if not rows:
        near = _near(connection, name)
        meant = f"did you mean {near}? " if near else ""
        raise NoBoard(
            f"there is no board named {name} in that database ({shown})",
            hint=f"{meant}see which there are: dibs boards {_quoted(shown)}; or make it: {_init(shown)}",
            url=shown,
        )
    return int(rows[0][0])


def make(connection: Connection, name: str, shown: str) -> None:
    """The schema, up to date, and the board."""
    encoding = connection.trip([(s.ENCODING, ())])[0][0][0]
    if encoding != "UTF8":
        raise BoardUnusable(
            f"the database of {shown} has the encoding {encoding}, which cannot hold every text",
            hint="make one with: CREATE DATABASE work ENCODING 'UTF8' TEMPLATE template0",
            url=shown,
        )
    if connection.trip([(s.FIND, ())])[0][0][0]:
        version, rows = connection.trip([(s.VERSION, ()), (s.BOARD, (name,))])
        _refuse_newer(version[0][0], shown)
        if version[0][0] == len(s.MIGRATIONS) and rows:
            return
    with connection.raw.transaction():
        connection.trip([(s.MAKING, ())])
        # What is made belongs to whoever owns the rest, also if a superuser makes it: the owner grants and backs up.
        if owner := connection.trip([(OWNER, ())])[0]:
            _run(connection, f"SET LOCAL ROLE {owner[0][0]}")
        _run(connection, s.BEGIN)
        version = connection.trip([(s.VERSION, ())])[0]
        _refuse_newer(version[0][0] or 0, shown)
        for number in range(version[0][0] or 0, len(s.MIGRATIONS)):
            _run(connection, s.MIGRATIONS[number])
            connection.trip([(s.APPLIED, (number + 1,))])
        if not connection.trip([(s.BOARD, (name,))])[0]:
            board = connection.trip([(s.MAKE_BOARD, (name,))])[0][0][0]
            _run(connection, s.SEQUENCES.format(board=board))


def refused(connection: Connection, error: psycopg.Error, shown: str) -> DibsError:
    """What to raise when `make` was not allowed to: it knows who is."""
    if not isinstance(error, pg.InsufficientPrivilege):
        return translate(error, shown)
    try:
        owner, database, user = connection.trip([(WHO, ())])[0][0]
    except psycopg.Error:
        return translate(error, shown)
    return may_not_make(error, shown, owner, database, user)


def listed(url: str) -> tuple[str, list[Row]]:
    """What may be shown of an address, and `boards` of its database; whichever board it names need not be there."""
    address = parse(url)
    pool = Connections(address.conninfo, address.shown)
    connection = pool.take()
    try:
        return address.shown, boards(connection, address.shown)
    except psycopg.Error as error:
        raise translate(error, address.shown) from error
    finally:
        pool.give(connection)
        pool.close()


def boards(connection: Connection, shown: str) -> list[Row]:
    """(name, made, open tasks, tasks, time of the last event) of every board, by name."""
    if not connection.trip([(s.FIND, ())])[0][0][0]:
        return []
    _refuse_newer(connection.trip([(s.VERSION, ())])[0][0][0] or 0, shown)
    return connection.trip([(BOARDS, ())])[0]


def _near(connection: Connection, name: str) -> str | None:
    """The board whose name is most like one that is not there."""
    from difflib import get_close_matches

    names = [row[0] for row in connection.trip([(SOME_NAMES, ())])[0]]
    same = [other for other in names if other.casefold() == name.casefold()]
    return next(iter(same or get_close_matches(name, names, 1)), None)


def _run(connection: Connection, script: str) -> None:
    """Several statements at once, without values."""
    with psycopg.ClientCursor(connection.raw) as cursor:
        cursor.execute(script.encode())


def _refuse_newer(version: int, shown: str) -> None:
    if version > len(s.MIGRATIONS):
        raise BoardUnusable(
            f"{shown} was made by a newer dibs (schema {version}; this one knows {len(s.MIGRATIONS)}); "
            "it was left as it is",
            hint="upgrade: pip install --upgrade 'dibs[postgres]'",
            url=shown,
        )


def _quoted(shown: str) -> str:
    from shlex import quote

    return quote(shown)


def _init(shown: str) -> str:
    return f"dibs init --board {_quoted(shown)}"
