"""What psycopg's errors mean to a board: run again, or a finished message with the way out."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from dibs.errors import BoardUnusable, Busy, DibsError, Invalid, NotAllowed
from dibs.store import Collision

_COLLISIONS = (
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.UniqueViolation,
    pg.LockNotAvailable,
)
_UNPREPARED = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)


def is_lost(error: BaseException) -> bool:
    """Is the connection gone, as far as this error tells?"""
    if isinstance(error, pg.OperatorIntervention):
        return not isinstance(error, pg.QueryCanceled)
    if isinstance(error, pg.IdleInTransactionSessionTimeout | pg.ProtocolViolation):
        return True
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate is None or error.sqlstate.startswith("08") or error.sqlstate == "53300"
    return isinstance(error, psycopg.InterfaceError)


def is_unprepared(error: BaseException) -> bool:
    """Has a pooler handed us to a server connection that does not know our prepared statements?"""
    return isinstance(error, _UNPREPARED)


def _reason(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].strip() if text else type(error).__name__


_REFUSALS = (
    # What the server says (in English; other languages get the general hint), and what to do.
    (('database "', "does not exist"), "the server has no such database: make it with createdb, then: dibs init"),
    (("too many ",), "wait, raise max_connections, or put PgBouncer in front: docs/many-machines.md"),
    (("remaining connection slots",), "wait, raise max_connections, or put PgBouncer in front: docs/many-machines.md"),
    (("password authentication failed",), "the password comes from PGPASSWORD or ~/.pgpass; try it with psql"),
    (("no pg_hba.conf entry",), "the server does not let this user in from here: its pg_hba.conf says who may"),
)


def unreachable(error: BaseException, shown: str) -> BoardUnusable:
    reason = _reason(error)
    hint = "check the address, the server and the password (PGPASSWORD or ~/.pgpass), for example with psql"
    for words, way_out in _REFUSALS:
        if all(word in str(error) for word in words):
            hint = way_out
            break
    return BoardUnusable(f"cannot connect to {shown}: {reason}", hint=hint, url=shown)


def translate(error: BaseException, shown: str) -> DibsError:
    """The error to raise instead, for one that came while the connection held."""
    if isinstance(error, _COLLISIONS):
        return Collision(f"others were at the same rows ({_reason(error)}); nothing was changed")
    if isinstance(error, psycopg.DataError):
        return Invalid(f"{shown} cannot hold that: {_reason(error)}; nothing was changed")
    if isinstance(error, pg.InsufficientPrivilege):
        return NotAllowed(
            f"this database user may not do that on {shown}: {_reason(error)}; nothing was changed",
            hint="its owner grants what workers need: see docs/many-machines.md, 'Roles'",
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
    return BoardUnusable(f"{shown} refused: {_reason(error)}; nothing was changed", hint="see: dibs doctor", url=shown)
