"""The engine's errors as ours: what happened to the board, and the way out."""

from __future__ import annotations

import os

import apsw

from dibs import fs
from dibs.errors import BoardMoved, BoardUnusable, Busy, DibsError, Duplicate, OutcomeUnknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BUSY_MS = 30_000
"""How long to wait for a program that locks the file without the gate (a backup, the sqlite3 shell)."""


def foreign(path: str, what: str) -> BoardUnusable:
    return BoardUnusable(
        f"{path} {what}; it was left as it is",
        hint="name another file with --board, or move this one out of the way yourself if you know what it is",
        path=path,
    )


def second_name(path: str) -> BoardUnusable:
    from shlex import quote

    return BoardUnusable(
        f"{path} is a hard link: the same file has another name, perhaps in a copy that was made with cp -al. "
        "Whoever works under one name would lose what is written under the other; nothing was changed",
        hint=f"find the other: find / -xdev -samefile {quote(path)}; then let the copy be a real one (cp -a)",
        path=path,
    )


def read_only(path: str) -> BoardUnusable:
    return BoardUnusable(
        f"the board {path} is on a disk that is mounted for reading only: nothing was changed",
        hint="read it here, or work on a copy: dibs copy FROM TO",
        path=path,
    )


def moved(path: str, last: list[tuple[Any, ...]]) -> BoardUnusable | BoardMoved:
    """`last` is the last event, which says where to."""
    from shlex import quote

    from dibs.times import iso

    if not last or not last[0][0]:
        return foreign(path, "was moved, and does not say where to")
    to, worker, when = last[0]
    return BoardMoved(
        f"the board {path} was moved to {to} by {worker} at {iso(when)}; nothing was changed here",
        hint=f"if you trust that address, work there: export DIBS_BOARD={quote(to)}",
        path=path,
        to=to,
    )


def leftover(path: str, left: list[str]) -> BoardUnusable:
    from shlex import quote

    *names, last = [os.path.basename(file) for file in left]
    listed = f"{', '.join(names)} and {last}" if names else last
    number = 1
    while os.path.lexists(aside := f"{path}.left-{number}"):
        number += 1
    name = os.path.basename(path)
    them, are = ("them", "are") if names else ("it", "is")
    return BoardUnusable(
        f"{path} is not there, but {listed} of an earlier board {are}; "
        f"nothing was made, for a new board would mix with {them}",
        hint=f"if {name} was lost by mistake, put it back beside {them}; if not, move {them} aside and try again: "
        f"mkdir {quote(aside)} && mv {' '.join(map(quote, left))} {quote(aside)}",
        path=path,
    )


def unconfirmed(error: Exception, path: str) -> OutcomeUnknown:
    """Whatever goes wrong after a commit, or in the middle of it."""
    if isinstance(error, OutcomeUnknown):
        return error
    why = error.strerror or error if isinstance(error, OSError) and not isinstance(error, DibsError) else error
    return OutcomeUnknown(
        f"the change was made, but it is not certain that it is on the disk ({why})",
        hint="look at what happened (dibs log) before repeating it; check the disk's health and free space",
        path=path,
    )


def translate(error: apsw.Error | OSError, path: str) -> Exception:
    """An error before a commit as one of ours; what is no user's business is returned as it is."""
    if isinstance(error, DibsError):
        return error
    if isinstance(error, OSError):
        return BoardUnusable(
            f"cannot lock or read the files of the board {path} ({error.strerror or error}): nothing was changed",
            hint="check the disk's health and free space, then run the command again",
            path=path,
        )
    kind = type(error)
    if kind is apsw.NotADBError:
        return foreign(path, "is not a dibs board, or is damaged beyond recognition")
    if kind is apsw.CorruptError:
        return BoardUnusable(
            f"the board {path} is damaged ({error}); it was left as it is",
            hint="keep the file, restore the newest export (dibs import) into a new board, and see: dibs doctor; "
            "without an export, save what can be read: dibs export rest.jsonl",
            path=path,
            damaged=True,
        )
    if kind is apsw.FullError:
        return BoardUnusable(
            "the disk is full: nothing was changed",
            hint="free some space and run the command again",
            path=path,
        )
    if kind in (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError):
        from shlex import quote

        if fs.is_read_only(path):
            return BoardUnusable(
                f"the board {path} was not closed, and cannot be read on a read-only disk ({error})",
                hint=f"copy its folder to another disk, and read it there: cp -a {quote(os.path.dirname(path))} COPY",
                path=path,
            )
        own = (path, path + "-wal", path + "-shm")
        file = next((name for name in own if os.path.exists(name) and not os.access(name, os.W_OK)), None)
        return BoardUnusable(
            f"cannot write to {file or f'the board {path}'} ({error}): nothing was changed",
            hint=f"let its owner give you permission: chmod u+w {quote(file)}"
            if file
            else "check the permissions of its folder",
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
    if kind is apsw.ConstraintError and "the board was moved" in str(error):
        from shlex import quote

        return BoardMoved(
            f"the board {path} was moved while it was open here; nothing was changed",
            hint=f"see where it is now: dibs --board {quote(path)} list",
            path=path,
        )
    if kind is apsw.ConstraintError and "task.id" in str(error):
        return Duplicate("a task with that id is already on the board")
    return error
