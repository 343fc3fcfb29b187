"""What psycopg's errors mean to a board: run again, or a finished message with the way out."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from dibs.errors import BoardUnusable, Busy, DibsError, Invalid, NotAllowed
from dibs.stores.base import Collision
from dibs.stores.postgres.statements import FASTER

_COLLISIONS = (
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.UniqueViolation,
    pg.LockNotAvailable,
)
_UNPREPARED = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)


def is_lost(error: BaseException) -> bool:
    """Is the connection gone, as far as this error tells?"""
    if isinstance(error, pg.IdleInTransactionSessionTimeout | pg.ProtocolViolation | psycopg.InterfaceError):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    state = error.sqlstate
    # 08: the connection; 53300: no more of them; 57P: an administrator, a crash, or a server that starts or stops.
    return state is None or state.startswith(("08", "57P")) or state == "53300"


def is_unprepared(error: BaseException) -> bool:
    """Has a pooler handed us to a server connection that does not know our prepared statements?"""
    return isinstance(error, _UNPREPARED)


def _reason(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].strip() if text else type(error).__name__


_FULL = "wait, raise max_connections, or put PgBouncer in front: docs/many-machines.md"
_NOBODY = "no server listens there: are host and port right, and does the server run?"
_REFUSALS = (
    # What is said (in English; other languages get the general hint), and what to do.
    (
        ('database "', "does not exist"),
        "the server has no such database; let its administrator run: CREATE DATABASE {database} OWNER {user} ENCODING "
        "'UTF8' TEMPLATE template0; then: dibs init --board {board}",
    ),
    (
        ('role "', "does not exist"),
        "the server knows no such user; let its administrator make it: CREATE ROLE {user} LOGIN PASSWORD '…'",
    ),
    (("the database system is ",), "the server is starting or stopping: wait a moment, then repeat the command"),
    (
        ("too many connections for ",),
        "this role or database has a limit of its own; let its administrator raise it: ALTER ROLE {user} CONNECTION "
        "LIMIT …, or ALTER DATABASE {database} CONNECTION LIMIT …",
    ),
    (("too many ",), _FULL),
    (("remaining connection slots",), _FULL),
    (
        ("password authentication failed",),
        "the password comes from the address, PGPASSWORD or ~/.pgpass, in this order; try it with psql",
    ),
    (
        ("no password supplied",),
        "the server wants a password: no line of ~/.pgpass fits {host}:{port}:{database}:{user} (the file must be "
        "readable by you only: chmod 600), and PGPASSWORD is not set",
    ),
    (
        ("server does not support SSL",),
        "the address asks for encryption, which this server does not offer: leave out sslmode, or have it switched on "
        "there",
    ),
    (("no pg_hba.conf entry",), "the server does not let this user in from here: its pg_hba.conf says who may"),
    (("Connection refused",), _NOBODY),
    (("No such file or directory",), _NOBODY),
    (("timeout expired",), "nothing answers there: are host and port right, and does a firewall let you through?"),
    (("translate host name",), "no host of that name was found: is it spelt right, and does the network work?"),
    (("resolve host",), "no host of that name was found: is it spelt right, and does the network work?"),
    (("Name or service not known",), "no host of that name was found: is it spelt right, and does the network work?"),
)


def unreachable(error: BaseException, shown: str) -> BoardUnusable:
    reason = _reason(error)
    hint = "check the address, the server and the password (PGPASSWORD or ~/.pgpass), for example with psql"
    for words, way_out in _REFUSALS:
        if all(word in str(error) for word in words):
            hint = way_out.format(**_parts(error, shown))
            break
    return BoardUnusable(f"cannot connect to {shown}: {reason}", hint=hint, url=shown)


def _parts(error: BaseException, shown: str) -> dict[str, str]:
    """What was tried, as far as the driver still knows it."""
    from shlex import quote

    tried = getattr(error, "pgconn", None)
    told = {"board": quote(shown)}
    for name, what in (("host", "host"), ("port", "port"), ("database", "db"), ("user", "user")):
        try:
            value = getattr(tried, what).decode()
        except (AttributeError, UnicodeDecodeError, psycopg.Error):
            value = ""
        if name in ("database", "user") and value and not value.replace("_", "a").isalnum():
            value = '"' + value.replace('"', '""') + '"'
        told[name] = value or name.upper()
    return told


def may_not_make(error: BaseException, shown: str, owner: str | None, database: str, user: str) -> NotAllowed:
    """A board cannot be made by this user: who can? `owner` is that of the schema, if there is one."""
    from shlex import quote

    if owner is None:
        hint = (
            f"let the database's owner allow it: GRANT CREATE ON DATABASE {database} TO {user}; or make that user its "
            f"owner: ALTER DATABASE {database} OWNER TO {user}"
        )
    else:
        hint = (
            f"boards are made by the owner of the schema dibs, who is {owner} here; workers use those that are there "
            f"(docs/many-machines.md, 'Roles'); which: dibs boards {quote(shown)}"
        )
    return NotAllowed(
        f"this database user may not make boards at {shown}: {_reason(error)}; nothing was changed",
        hint=hint,
        url=shown,
    )


def translate(error: BaseException, shown: str) -> DibsError:
    """The error to raise instead, for one that came while the connection held."""
    if isinstance(error, _COLLISIONS) or (isinstance(error, pg.InvalidTextRepresentation) and FASTER in str(error)):
        return Collision(f"others were at the same rows ({_reason(error)}); nothing was changed")
    if isinstance(error, psycopg.DataError):
        return Invalid(f"{shown} cannot hold that: {_reason(error)}; nothing was changed")
    if isinstance(error, pg.InsufficientPrivilege):
        return NotAllowed(
            f"this database user may not do that on {shown}: {_reason(error)}; nothing was changed",
            hint="the owner of the schema dibs grants what workers need, by docs/grants.sql: see "
            "docs/many-machines.md, 'Roles'",
            url=shown,
        )
    if isinstance(error, pg.ReadOnlySqlTransaction | pg.FeatureNotSupported):  # the second: when it asks to write
        return BoardUnusable(
            f"{shown} is a read-only standby",
            hint="name the primary; with several hosts in the address add: target_session_attrs=read-write",
            url=shown,
        )
    if isinstance(error, pg.QueryCanceled):
        return Busy(
            f"{shown} took too long and the server stopped it ({_reason(error)}); nothing was changed",
            hint="repeat the command; if it happens again, look at statement_timeout of this database user",
        )
    if isinstance(error, pg.DiskFull):
        return BoardUnusable(
            f"the disk of {shown} is full; nothing was changed", hint="free space on the server, then repeat", url=shown
        )
    hint = "see: dibs doctor"
    if isinstance(error, pg.InternalError_) and "could not open relation" in str(error):
        hint = "the board's tables were replaced, as by a restore: start this again"
    return BoardUnusable(f"{shown} refused: {_reason(error)}; nothing was changed", hint=hint, url=shown)
