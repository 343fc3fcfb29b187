"""A task and the files that it needs, one after another, and the next task where that does not work out: document
003's way of handling conflicts, as one call.

On a board whose tasks name their `paths` a plain `claim` does this in one step; `acquire` is for boards that have no
list of tasks, and for callers that know better which files they will touch.

A crash in the middle leaves the task lock, and perhaps some file locks, as any crash of a holder does: they are given
back when the holder is known to be dead, or by `recover`.
"""

from __future__ import annotations

import time

from dibs import limits
from dibs.board.claims import claim, release
from dibs.board.locks import lock
from dibs.errors import Busy, NotClaimable
from dibs.model import BoardTask, Lock, Record, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board.core import Core

PAUSE = 0.1


class Conflict(Record):
    """A task that was passed over, and why."""

    __slots__ = ("task_id", "text", "path", "holder")

    def __init__(self, task_id: str, text: str, path: str | None = None, holder: str | None = None) -> None:
        self.task_id = task_id
        self.text = text
        self.path = path
        self.holder = holder


class Acquired(Record):
    """What `acquire` got: a task with its locks, or nothing; and everything that stood in the way."""

    __slots__ = ("task", "locks", "conflicts")

    def __init__(self, task: BoardTask | None, locks: list[Lock], conflicts: list[Conflict]) -> None:
        self.task = task
        self.locks = locks
        self.conflicts = conflicts

    def __bool__(self) -> bool:
        return self.task is not None


def acquire(
    core: Core, candidates: Sequence[tuple[str, Sequence[str]]], worker: Worker | str, retry: float
) -> Acquired:
    """See `TaskBoard.acquire`."""
    who = core.identity.required(worker, "acquiring needs a worker")
    limits.wait(retry)
    conflicts: list[Conflict] = []
    for task_id, paths in candidates:
        try:
            task = next(iter(claim(core, who, task_id)), None)
        except NotClaimable as error:
            reasons = error.fields.get("reasons")
            first = reasons[0] if isinstance(reasons, list) and reasons else {}
            conflicts.append(Conflict(task_id, error.message, first.get("path"), first.get("worker")))
            continue
        if task is None:
            continue
        try:
            locks = _lock_soon(core, list(paths), who, retry) if paths else []
        except Busy as error:
            release(core, task.id, worker=who, token=task.token, note=error.message)
            at = error.conflicts[0] if error.conflicts else None
            path, holder = (at.pattern, at.holder.name) if at else (None, None)
            conflicts.append(Conflict(task_id, error.message, path, holder))
            continue
        except BaseException:
            release(core, task.id, worker=who, token=task.token)
            raise
        return Acquired(task, locks, conflicts)
    return Acquired(None, [], conflicts)


def _lock_soon(core: Core, paths: list[str], who: Worker, retry: float) -> list[Lock]:
    end = time.monotonic() + retry
    while True:
        try:
            return lock(core, paths, who)
        except Busy:
            if time.monotonic() >= end:
                raise
            time.sleep(PAUSE)
