"""`taskboard:DIR`, document 004: the tasks in `taskboard.json`, every read-modify-write under an flock on
`taskboard.lock`.

The file is what the document's own program writes, byte for byte: an object with a list of tasks, indented by two, ten
keys each in the document's order. Keys that others added stay. The program it describes rewrites the file in place, so
readers take the lock too (shared); dibs itself replaces the file whole.

A hand-made claim ends when the document says: by a verb, or when it is older than the board's `stale_timeout`.
"""

from __future__ import annotations

import errno
import os

from dibs import fs
from dibs.dialects.filestore import NO_LIMITS, NO_RESERVATIONS
from dibs.dialects.filetx import token_at
from dibs.dialects.jsonboard import JsonBoardStore
from dibs.errors import NoBoard, quoted
from dibs.guards.flock import FlockGuard
from dibs.limits import seconds
from dibs.model import COMPLETED, FAILED, IN_PROGRESS, PENDING, BoardTask, Worker
from dibs.times import FOREVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import Any

    from dibs.clock import Clock
    from dibs.dialects.filewriting import Guard
    from dibs.dialects.jsonlist import JsonList

FILE = "taskboard.json"
_STATUSES = {str(status): status for status in (PENDING, IN_PROGRESS, COMPLETED, FAILED)}


class TaskboardStore(JsonBoardStore):
    dialect = "taskboard"
    document = "004"
    refused = (
        ("paths", "paths", "put them into the description, or keep the board in: dibs init"),
        ("labels", "labels", "put them into the description"),
        ("steps", "steps", "add them as tasks that depend on each other: dibs add --needs ID"),
        ("blockers", "blockers", "give it back with: dibs release ID; or end it with: dibs fail ID 'why'"),
        ("parent", "parents", "say so in the description, or with a dependency: dibs add --needs ID"),
        ("review", "reviews", "add the review as a task that depends on it: dibs add --needs ID"),
        NO_RESERVATIONS,
        NO_LIMITS,
    )
    lacks = frozenset(("blockers",))

    @classmethod
    def of_state_dir(
        cls, state_dir: str | PathLike[str], stale_timeout: float | None, clock: Clock | None
    ) -> TaskboardStore:
        """`TaskBoard(state_dir=…)` as the document has it: the folder is made, and nothing goes stale unless asked."""
        folder = os.path.abspath(os.path.expanduser(os.fspath(state_dir)))
        if stale_timeout is not None:
            seconds(stale_timeout, "stale_timeout")
        os.makedirs(folder, exist_ok=True)
        return cls(folder, place=None, clock=clock, lease=stale_timeout or FOREVER, stale=stale_timeout)

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        if create:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.exists(os.path.join(folder, FILE)):
            raise NoBoard(
                f"there is no {FILE} in {folder}",
                hint=f"make one with: dibs --board {quoted(f'taskboard:{folder}')} init",
            )

    def __init__(self, folder: str, *, stale: float | None = None, **options: Any) -> None:
        self.path = os.path.join(folder, FILE)
        self._stale = stale
        super().__init__(folder, **options)

    def _guard(self) -> Guard:
        return FlockGuard(os.path.join(self.folder, "taskboard.lock"))

    def _reading(self) -> Any:
        return _Reading(os.path.join(self.folder, "taskboard.lock"))

    # -- files to rows

    def adopt(self, rows: Sequence[BoardTask]) -> None:
        """The document's order among equals is that of creation, whatever the order of the list."""
        super().adopt(sorted(rows, key=_creation))

    def update(self, rows: Sequence[BoardTask]) -> None:
        known = self.tables.tasks
        new = [task for task in rows if task.id not in known]
        newest = max(map(_creation, known.values()), default=0.0) if new else 0.0
        moved = any(task.id in known and task.created_at != known[task.id].created_at for task in rows)
        if moved or any(task.created_at < newest for task in new):
            self.adopt([*{**known, **{row.id: row for row in rows}}.values()])
        else:
            super().update(sorted(rows, key=_creation))

    def _row(self, entry: Mapping[str, Any], document: JsonList) -> BoardTask:
        """A task as the file has it; what is missing has the document's default, what makes no sense is refused."""
        task = _plain(entry) or self._checked(entry)
        if task.status is IN_PROGRESS:
            self.held_by_hand(task, lease=self._stale)
        elif task.claimed_at is not None:
            task.token = token_at(task.claimed_at)
            task.holder = Worker(task.assigned_to) if task.assigned_to and task.status is not PENDING else None
        return task

    def _checked(self, entry: Mapping[str, Any]) -> BoardTask:
        word = entry.get("status", "pending")
        status = _STATUSES.get(word) if isinstance(word, str) else None
        if status is None:
            raise self._senseless(entry, "status", "one of " + ", ".join(_STATUSES))
        task = BoardTask(
            self._typed(entry, "id", str, None),
            self._typed(entry, "description", str, "") or "",
            status,
            self._typed(entry, "assigned_to", str, None),
            list(self._typed(entry, "depends_on", list, None) or ()),
            self._typed(entry, "result", str, None),
            self._typed(entry, "priority", int, 0) or 0,
            self._time(entry, "created_at") or 0.0,
            self._time(entry, "claimed_at"),
            self._time(entry, "completed_at"),
        )
        if not all(isinstance(need, str) for need in task.depends_on):
            raise self._senseless(entry, "depends_on", "a list of ids")
        return task

    def _describe(self, task: BoardTask, by_id: Mapping[str, BoardTask]) -> None:
        super()._describe(task, by_id)
        if self._stale is not None and task.status is IN_PROGRESS and task.lease and task.lease > self._stale:
            # The document lets every board with a stale_timeout end every claim that is older, whoever made it. It has
            # no renewals; one counts as a claim.
            since = (task.lease_expires_at or 0.0) - task.lease
            task.lease, task.lease_expires_at = self._stale, max(task.claimed_at or 0.0, since) + self._stale

    def _typed(self, entry: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
        value = entry.get(key, default)
        if value is default or value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise self._senseless(entry, key, "a text" if kind is str else "a list" if kind is list else "a whole number")

    def _time(self, entry: Mapping[str, Any], key: str) -> float | None:
        value = entry.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and -_LATEST < value < _LATEST:
            return float(value)
        raise self._senseless(entry, key, "a time in seconds since 1970")

    def _senseless(self, entry: Mapping[str, Any], key: str, wanted: str) -> Exception:
        return self.damaged(self.path, f"the {key} of task {entry.get('id')!r:.60} must be {wanted}")

    # -- rows to files

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        if task.status not in _STATUSES.values():
            hint = f"end it as failed instead: dibs claim {quoted(task.id)}, then dibs fail {quoted(task.id)} 'why'"
            raise self.cannot("cancelled tasks", hint)
        super().refuse(task, before)

    def _element(self, task: BoardTask) -> dict[str, Any]:
        return task.as_dict()

    def _members(self, task: BoardTask, before: BoardTask, entry: Mapping[str, Any]) -> dict[str, Any]:
        was = before.as_dict()
        return {key: value for key, value in task.as_dict().items() if value != was[key]}


class _Reading:
    """The lock, shared. Who may not write there opens it as it is; without one there is nobody to wait for."""

    def __init__(self, path: str) -> None:
        self._guard = FlockGuard(path, shared=True)
        self._fd = -1

    def __enter__(self) -> None:
        try:
            self._guard.acquire()
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise
            try:
                self._fd = fs.open_regular(self._guard.path, os.O_RDONLY)
            except FileNotFoundError:
                return
            fs.lock_shared(self._fd)

    def __exit__(self, *_: object) -> None:
        self._guard.release()
        if self._fd >= 0:
            os.close(self._fd)


_LATEST = 253_402_300_800.0  # the year 10,000; what is beyond are milliseconds, or nonsense
_KEYS = BoardTask("", "", created_at=0.0).as_dict().keys()
_TYPES = [
    (str, str, str, type(None), list, type(None), int, float, type(None), type(None)),
    (str, str, str, str, list, type(None), int, float, float, type(None)),
    (str, str, str, str, list, str, int, float, float, float),
    (str, str, str, str, list, type(None), int, float, float, float),
]
"""What the values of a pending, a claimed and a finished task are, in nearly every file."""


def _plain(entry: Mapping[str, Any]) -> BoardTask | None:
    """The task, if it is written just as the document's program writes it: quicker than looking at each value."""
    if entry.keys() != _KEYS:
        return None
    values = [entry[key] for key in _KEYS]
    if tuple(map(type, values)) not in _TYPES or not set(map(type, values[4])) <= {str}:
        return None
    status = _STATUSES.get(values[2])
    created, claimed, completed = values[7], values[8] or 0.0, values[9] or 0.0
    if status is None or min(created, claimed, completed) <= -_LATEST or max(created, claimed, completed) >= _LATEST:
        return None
    values[2], values[4] = status, values[4][:]
    return BoardTask(*values)


def _creation(task: BoardTask) -> float:
    return task.created_at
