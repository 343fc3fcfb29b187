"""Who is behind a hook event, and what stands in the way of what they are about to write.

A lock stands in the way if it overlaps the path, has not run out, belongs to somebody else, and that somebody is not
provably dead; that others only share it makes no difference, for an edit wants the file alone. This is the same rule by
which the lock itself would be granted. Only reads.
"""

from __future__ import annotations

import os

from dibs import clients, limits
from dibs.errors import Invalid
from dibs.model import Worker
from dibs.rules import locks as lock_rules
from dibs.rules.paths import covers
from dibs.worker import is_alive, is_dead, role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board.core import Core
    from dibs.hooks.events import Event
    from dibs.model import Lock

EXEMPT = (".git", ".dibs")
"""Folders that nobody has to lock."""


class Identity:
    """The worker that an event's client works for, and whether that is its MCP server's, which then looks after it."""

    __slots__ = ("served", "session", "worker")

    def __init__(self, worker: Worker, session: str | None = None, served: bool = False) -> None:
        self.worker = worker
        self.session = session
        self.served = served

    def owns(self, lock: Lock) -> bool:
        """Sessions of clients are unique, so a shell of the same one that goes by another name is the same worker."""
        holder = lock.holder
        return holder.is_same(self.worker) or (self.session is not None and holder.session == self.session)


class Conflict:
    """A path, by its name on the board, that somebody else holds."""

    __slots__ = ("left", "lock", "name")

    def __init__(self, name: str, lock: Lock, left: float) -> None:
        self.name = name
        self.lock = lock
        self.left = left


def who(event: Event, board: str, given: str | None = None) -> Identity:
    """The worker of the client's MCP server, else the one named by `given` or DIBS_AGENT, else one for this session."""
    name = given or os.environ.get("DIBS_AGENT", "").strip() or None
    served = clients.around(board)
    if served is None and event.client == "cursor" and name is None:
        served = clients.beside("cursor", event.roots, board)
    if served is not None and given in (None, served.name):
        return Identity(served, event.session, served=True)
    session = os.environ.get("DIBS_SESSION") or event.session
    made = Worker(name or clients.worker_name(event.client, event.session or ""), role=role_of(name), session=session)
    return Identity(limits.worker(made), event.session)


def names(board: Core, paths: Sequence[str]) -> list[list[str]]:
    """The paths by their names on the board, each with its other spelling where case does not count; those outside the
    repository are left out."""
    found: dict[str, list[str]] = {}
    for path in paths:
        try:
            spellings = board.paths.spellings(path if path.isprintable() else "".join(map(_printable, path)))
        except Invalid:
            continue
        found.setdefault(spellings[0], spellings)
    return list(found.values())


def outside(board: Core, paths: Sequence[str]) -> list[str]:
    """Those of the paths that have no name on the board."""
    return [path for path in paths if not names(board, [path])]


def _printable(c: str) -> str:
    """A control character cannot be part of a lock's name; `?` matches it."""
    return c if c.isprintable() else "?"


def conflicts(board: Core, wanted: Sequence[Sequence[str]], me: Identity) -> list[Conflict]:
    found = []
    with board.store.read() as tx:
        for spellings in wanted:
            for lock in lock_rules.conflicts(spellings, False, tx.locks(spellings), None, tx.now):
                if not me.owns(lock) and not is_dead(lock.holder):
                    found.append(Conflict(spellings[0], lock, lock.expires_at - tx.now))
    return found


def holders(board: Core, me: Identity) -> list[Worker]:
    """This worker, and whoever else holds something for the same session of a client, under another name; but not a
    process that is alive and will give back by itself."""
    found = {(me.worker.name, me.worker.session): me.worker}
    with board.store.read() as tx:
        named = [task.holder for task in tx.in_progress()] + [lock.holder for lock in tx.locks()]
    for holder in named:
        if holder is not None and me.session is not None and holder.session == me.session and not is_alive(holder):
            found.setdefault((holder.name, holder.session), holder)
    return list(found.values())


def unlocked(board: Core, wanted: Sequence[Sequence[str]], me: Identity) -> list[str]:
    """Those of the names that this worker does not hold for itself, by a lock or with a task."""
    found = []
    with board.store.read() as tx:
        for spellings in wanted:
            if spellings[0].partition("/")[0] in EXEMPT:
                continue
            near = [lock for lock in tx.locks(spellings) if lock.expires_at > tx.now]
            own = [lock for lock in near if not lock.shared and me.owns(lock)]
            if not any(covers(lock.pattern, name) for lock in own for name in spellings):
                found.append(spellings[0])
    return found
