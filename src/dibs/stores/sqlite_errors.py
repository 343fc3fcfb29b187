"""The engine's errors as ours: what happened to the board, and the way out."""

from __future__ import annotations

import apsw

from dibs.errors import BoardUnusable, Busy, Duplicate

BUSY_MS = 30_000
"""How long to wait for a program that locks the file without the gate (a backup, the sqlite3 shell)."""


def foreign(path: str, what: str) -> BoardUnusable:
    return BoardUnusable(
        f"{path} {what}; it was left as it is",
        hint="name another file with --board, or move this one out of the way yourself if you know what it is",
        path=path,
    )


def translate(error: apsw.Error, path: str) -> Exception:
    """An engine error as one of ours; what is no user's business is returned as it is."""
    kind = type(error)
    if kind is apsw.NotADBError:
        return foreign(path, "is not a dibs board, or is damaged beyond recognition")
    if kind is apsw.CorruptError:
        return BoardUnusable(
            f"the board {path} is damaged ({error}); it was left as it is",
            hint="keep the file, restore the newest export (dibs import) into a new board, and see: dibs doctor",
            path=path,
        )
    if kind is apsw.FullError:
        return BoardUnusable(
            "the disk is full: nothing was changed",
            hint="free some space and run the command again",
            path=path,
        )
    if kind in (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError):
        return BoardUnusable(
            f"cannot write to the board {path} ({error}): nothing was changed",
            hint="check the permissions of its folder",
            path=path,
        )
    if kind is apsw.IOError:
        return BoardUnusable(
            f"the disk failed ({error}): nothing was changed",
            hint="check the disk's health and free space, then look: dibs log",
            path=path,
        )
    if kind is apsw.BusyError:
        return Busy(
            f"another program has kept the board {path} locked for {BUSY_MS // 1000} s: nothing was changed",
            hint="let it finish, then run the command again",
            path=path,
        )
    if kind is apsw.ConstraintError and "task.id" in str(error):
        return Duplicate("a task with that id is already on the board")
    return error
