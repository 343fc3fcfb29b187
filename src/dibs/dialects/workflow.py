"""`workflow:DIR`, document 000: `board.json` behind the lock file `board.lock`, for planners, workers and integrators.

Every write follows the document's three steps: take the lock (2 s between tries, 5 retries, stale at 60 s), read and
modify with `version` + 1, write and release. dibs adds what the document leaves open: the lock is created exclusively
and broken by one only, the file is replaced whole, and right before that the lock must still be ours and the file still
the one that was read. A failed write gives the lock back, says so, and is not tried again.

Readers wait for the lock as the document asks, and then read whatever parses, with a warning.

Roles come from the name: `planner-…` makes the board, `worker-…` claims and finishes, `integrator-…` accepts and
rejects. A name without a role may do all but make the board. A dependency is met when its work is done, whether or not
it has been integrated yet.

For tests and impatient people the URL takes the document's numbers: `workflow:DIR?pause=0.1&retries=5&stale=60`.
"""

from __future__ import annotations

import os
import sys

from dibs.dialects import workflow_text as text
from dibs.dialects.filestore import NO_LIMITS, NO_RESERVATIONS
from dibs.dialects.jsonboard import JsonBoardStore
from dibs.errors import Invalid, NoBoard, NotAllowed, quoted
from dibs.guards.holder import DEAD
from dibs.guards.lockfile import LockFileGuard
from dibs.model import IN_PROGRESS, BoardTask, Event, Worker
from dibs.worker import role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dibs.dialects.filewriting import Guard
    from dibs.dialects.jsonlist import JsonList

FILE = "board.json"
FIRST_PAUSE = 0.01
"""Most holders are gone in milliseconds, so the first of the document's pauses are shorter; the total is the same."""
_MOST = 1e6
_ROLES = {
    "claimed_activity": ("worker", "claim tasks"),
    "submitted_activity": ("worker", "finish tasks"),
    "accepted_activity": ("integrator", "accept work"),
    "rejected_activity": ("integrator", "send work back"),
    "work_item_created": ("planner", "create the board"),
}


class WorkflowStore(JsonBoardStore):
    dialect = "workflow"
    document = "000"
    refused = (
        ("priority", "priorities", "tasks are taken in the order of the file; make others depend on it: dibs dep"),
        ("labels", "labels", "put them into the description"),
        ("steps", "steps", "add them as tasks that depend on each other: dibs add --needs ID"),
        (
            "blockers",
            "blockers",
            "give it back with a note: dibs release ID 'why'; or let it wait: dibs dep",
        ),
        ("parent", "parents", "say so in the description, or with a dependency: dibs add --needs ID"),
        ("failed", "failed tasks", "give it back with a note: dibs release {id} 'why'"),
        ("cancelled", "cancelled tasks", "give it back with a note: dibs release {id} 'why'"),
        NO_RESERVATIONS,
        NO_LIMITS,
    )
    lacks = frozenset(("blockers",))
    satisfied_by = text.MET

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        folder, _ = split(folder)
        if os.path.exists(os.path.join(folder, FILE)):
            return
        if not create:
            raise NoBoard(
                f"there is no {FILE} in {folder}, and only a planner may create it",
                hint=f"dibs --board {quoted(f'workflow:{folder}')} --as planner-1 init",
            )
        if role_of(agent) != "planner":
            who = f"{agent} is" if agent else "you are"
            raise NotAllowed(
                f"there is no {FILE} in {folder}, and only a planner may create it; {who} not a planner",
                hint=f"dibs --board {quoted(f'workflow:{folder}')} --as planner-1 init",
            )
        os.makedirs(folder, exist_ok=True)

    def __init__(self, folder: str, **options: Any) -> None:
        folder, self._numbers = split(folder)
        self.passed: tuple[str | None, float | None] | None = None
        self.path = os.path.join(folder, FILE)
        super().__init__(folder, **options)

    # -- guard

    def _guard(self) -> Guard:
        return self._lock()

    def _lock(self) -> LockFileGuard:
        numbers: dict[str, Any] = self._numbers
        path = os.path.join(self.folder, "board.lock")
        return LockFileGuard(path, self.agent, first_pause=FIRST_PAUSE, **numbers)

    def _reading(self) -> Any:
        return _Readable(self)

    # -- files to rows

    def _empty(self) -> JsonList:
        project = os.path.dirname(self.folder)
        return text.new(os.path.basename(project), project, self.clock.wall())

    def _load(self, noted: set[str]) -> None:
        if role_of(self.agent) != "planner" and not os.path.exists(self.path):
            raise NoBoard(
                f"there is no {FILE} in {self.folder}, and only a planner may create it",
                hint=f"dibs --board {quoted(f'workflow:{self.folder}')} --as planner-1 init",
            )
        super()._load(noted)

    def _check(self, document: JsonList) -> None:
        text.version(document.top)

    def _row(self, entry: Mapping[str, Any], document: JsonList) -> BoardTask:
        task = text.decode(entry, document.top)
        if task.status is IN_PROGRESS:
            self.held_by_hand(task)
        elif task.assigned_to is not None:
            task.holder = Worker(task.assigned_to)
        return task

    # -- rows to files

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        task.review = True  # every task of this format goes through an integrator
        super().refuse(task, before)

    def refuse_event(self, event: Event) -> None:
        allowed, verb = _ROLES.get(event.action, ("", ""))
        role = role_of(event.worker)
        if not verb or role == allowed or role not in ("planner", "worker", "integrator"):
            return
        article = "an" if role == "integrator" else "a"
        raise NotAllowed(
            f"{event.worker} is {article} {role}, and on a workflow board only {allowed}s {verb}",
            hint=f"act under a name of that role: dibs --as {allowed}-1 …",
        )

    def _element(self, task: BoardTask) -> dict[str, Any]:
        return text.element(task)

    def _members(self, task: BoardTask, before: BoardTask, entry: Mapping[str, Any]) -> dict[str, Any]:
        return text.members(task, before, entry)

    def _finish(self, document: JsonList) -> None:
        if self._data is not None:
            text.bump(document)

    def _written(self, files: Mapping[str, bytes | None]) -> None:
        super()._written(files)
        # A task that is done is enough for those that wait for it, which no rule of the board knows.
        for task in list(self.tables.tasks.values()):
            if task.depends_on and (unmet := self._unmet(task, self.tables.tasks)) != task.unmet:
                self.tables.remove(task.id)
                task.unmet = unmet
                self.tables.put(task)

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        taken = [*self.tables.tasks, *(task.id for task in tasks if task.id)]
        return text.next_ids(taken, len(tasks))


class _Readable:
    """Waiting, as the document asks of readers, for a lock that somebody else holds."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        store, guard = self._store, self._store._lock()
        if store.passed is not None:
            # A command reads several times; it has waited for this very lock, and said so.
            holder = guard.holder()
            if holder is not None and holder.state != DEAD and (holder.name, holder.since) == store.passed:
                return
        holder = guard.wait_readable()
        store.passed = None if holder is None else (holder.name, holder.since)
        if holder is not None and sys.stderr is not None:
            name = holder.name or "somebody"
            print(f"dibs: {guard.path} is still held by {name}; reading all the same", file=sys.stderr)

    def __exit__(self, *_: object) -> None: ...


def split(folder: str) -> tuple[str, dict[str, float | int]]:
    """A folder, and the document's numbers where the URL gives others."""
    folder, mark, query = folder.partition("?")
    numbers: dict[str, float | int] = {}
    for pair in query.split("&") if mark else ():
        key, _, value = pair.partition("=")
        try:
            number = {"pause": float, "retries": int, "stale": float}[key](value)
            if not 0 <= number < _MOST:
                raise ValueError
            numbers[key] = number
        except (KeyError, ValueError):
            raise Invalid(
                f"{pair!r:.60} is nothing that a workflow board's URL takes",
                hint="workflow:DIR?pause=2&retries=5&stale=60, each of them optional",
            ) from None
    return folder, numbers
