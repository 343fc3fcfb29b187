"""Document 001's work items read from the disk: from folders, files and locks to the rows of a board.

The locks are read before the files, and the companion once more after them, so that a reader without a guard sees an
activity that is being finished as held or as finished, never as free.
"""

from __future__ import annotations

import os
import time

from dibs.clock import read as read_clock
from dibs.dialects import progress_yaml, workitems_rows
from dibs.dialects.eventlog import EventLog
from dibs.dialects.filestore import FileStore
from dibs.dialects.isotime import whole
from dibs.dialects.opening import refuse_leading_out
from dibs.dialects.workitems_claims import ItemsCompanion
from dibs.dialects.workitems_items import FILE, LOG, Item, create_new, item_folders, number_of
from dibs.dialects.workitems_locks import SUFFIX, BoardGuard, FoundLock, look
from dibs.dialects.workitems_log import ItemsLog
from dibs.errors import BoardUnusable, Busy, Invalid, NoBoard, quoted
from dibs.limits import task_id
from dibs.model import CANCELLED, COMPLETED, IN_PROGRESS, PENDING, BoardTask, Event, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from dibs.dialects.filewriting import Guard
    from dibs.dialects.progress_yaml import Progress


SETTLING = 5.0
"""Seconds to wait for a file that makes no sense while somebody holds its work item's lock."""


class ItemsReading(FileStore):
    log: Any
    dialect = "workitems"
    document = "001"
    satisfied_by = (COMPLETED, CANCELLED)

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        if any(item_folders(folder)):
            return
        if not create:
            raise NoBoard(
                f"there is no {FILE} in {folder}, nor in a folder in it",
                hint=f"make a work item with: dibs --board {quoted(f'workitems:{folder}')} init",
            )
        title = os.path.basename(folder)
        number = number_of(title)
        if number is None:
            slug = "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in title.lower()).split())
            number = "WI-001"
            folder = os.path.join(folder, f"{number}-{slug}" if slug else number)
        else:
            title = title[len(number) :].strip("-_ ") or title
        refuse_leading_out(folder, os.path.dirname(folder))
        os.makedirs(os.path.join(folder, "locks"), exist_ok=True)
        from dibs.worker import login_name

        who = agent or os.environ.get("DIBS_AGENT") or login_name(os.environ)
        data = progress_yaml.new(number, title, "feature", whole(time.time()), who)
        create_new(os.path.join(folder, FILE), data)

    def __init__(self, folder: str, **options: Any) -> None:
        self.items: dict[str, Item] = {}
        self.is_single = os.path.isfile(os.path.join(folder, FILE))
        super().__init__(folder, **options)
        self.companion: ItemsCompanion = ItemsCompanion(self.companion_folder())
        self._forget()

    def _open_log(self) -> Any:
        if self.is_single:
            return EventLog(os.path.join(self.folder, LOG), self.durable, native=True)
        return ItemsLog(self.companion.folder, self.durable, self._logs, self._log_of)

    def _guard(self) -> BoardGuard:
        return BoardGuard(
            self.companion.folder, self.agent, self.clock.wall, self.companion._make_folder, self.is_own_file
        )

    def guards(self) -> list[Guard]:
        from dibs.dialects.workitems_locks import ItemGuard

        self._find_items()
        paths = [item.lock_path(item.id or number_of(item.name) or item.name) for item in self.items.values()]
        return [self._guard(), *(ItemGuard(path, self.agent, self.clock.wall) for path in paths)]

    # -- items

    def _find_items(self) -> None:
        self.items = {
            os.path.basename(folder): self.items.get(os.path.basename(folder)) or Item(folder)
            for folder in item_folders(self.folder)
        }
        for item in self.items.values():
            for folder in (item.folder, os.path.join(item.folder, "locks")):
                if folder != self.folder:
                    refuse_leading_out(folder, self.folder)

    def is_own_file(self, path: str) -> bool:
        self._find_items()
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        is_lock = name.endswith(SUFFIX)
        return (is_lock or name == FILE) and any(
            folder == os.path.realpath(os.path.dirname(item.lock_path("") if is_lock else item.path))
            for item in self.items.values()
        )

    def item(self, item_id: str) -> Item:
        """The work item with this id."""
        for item in self.items.values():
            if item.id == item_id:
                return item
        raise Invalid(
            f"there is no work item {item_id!r:.80} here",
            hint="there are: " + ", ".join(sorted(item.id for item in self.items.values())),
        )

    def item_of(self, task_id: str) -> Item:
        """The work item that an activity on the board belongs to."""
        return self._where[task_id]

    def log_path(self, item_id: str) -> str:
        return os.path.join(self.item(item_id).folder, LOG)

    def item_for(self, task: BoardTask) -> Item:
        """Where a new activity belongs: its id or its parent says so, or there is only one work item."""
        named = [
            item
            for item in self.items.values()
            if task.id.startswith(f"{item.id}-A") or (not task.id and task.parent == item.id)
        ]
        if named:
            return max(named, key=lambda item: len(item.id))
        if len(self.items) == 1:
            return next(iter(self.items.values()))
        ids = [item.id for item in self.items.values()]
        raise Invalid(
            "there are several work items here; say which one the activity belongs to",
            hint=f"dibs add --parent {quoted(ids[0])} 'what is to be done'; there are: " + ", ".join(ids),
        )

    def _logs(self) -> dict[str, str]:
        if not self.items:
            self._find_items()
        return {name: os.path.join(item.folder, LOG) for name, item in self.items.items()}

    def _log_of(self, event: Event) -> str:
        """The name of the work item whose changelog tells of the event; empty: dibs' own tells it."""
        if event.task_id is not None:
            where = self._where.get(event.task_id)
            return where.name if where is not None else ""
        if event.action == "work_item_created":
            return next(iter(self.items), "")
        wanted = (event.data or {}).get("work_item")
        return next((name for name, item in self.items.items() if item.id == wanted), "")

    # -- files to rows

    def _files(self) -> list[str]:
        self._find_items()
        return [item.path for item in self.items.values()]

    def mark_change(self) -> int:
        from dibs.fs import stamp

        looked = [super().mark_change(), stamp(self.companion.folder)]
        for item in self.items.values():
            looked += [stamp(os.path.join(item.folder, "locks")), stamp(os.path.join(item.folder, LOG))]
        return hash(tuple(looked))

    def _forget(self) -> None:
        self.items = {}
        self._where: dict[str, Item] = {}
        self._order: list[str] = []
        self._again: set[str] = set()
        """Rows to read again, though their files may not have changed."""
        self._made: list[tuple[str, bytes]] = []
        self._begun = False
        self._fresh: dict[str, tuple[bytes, Progress]] = {}
        self._finishing = False

    def _load(self, noted: set[str]) -> None:
        self._find_items()
        changed = set(noted) | self._again
        where: dict[str, Item] = {}
        for item in self.items.values():
            # The locks first: an activity that was finished in between is then seen as finished, not as free.
            locks = look(os.path.join(item.folder, "locks"), item.locks)
            changed.update(differing(locks, item.locks))
            item.locks = locks
            changed |= self._read_item(item)
            for activity_id in item.facts:
                if activity_id in where:
                    other = where[activity_id].path
                    raise self.damaged(item.path, f"activity {activity_id} is in {other} too")
                where[activity_id] = item
        # A writer saves the companion before the files: with a second look it is never older than what we have read.
        changed |= self.companion.load()
        order = list(where)
        offset = self._offset()
        if order[: len(self._order)] != self._order:
            self.adopt([self._row(where[i], i, offset) for i in order])
        else:
            known = len(self._order)
            rows = [i for i in order[:known] if i in changed] + order[known:]
            if rows:
                self.update([self._row(where[i], i, offset) for i in rows])
        self._where, self._order, self._again = where, order, set()

    def _read_item(self, item: Item) -> set[str]:
        """Read its file if it has changed; the activities of which it says something else than before."""
        data = self._read(item.path)
        if data == item.data:
            return set()
        before = item.facts
        data, progress = self._parse_settled(item, data)
        item.take(data, progress)
        for activity_id in item.facts:
            try:
                task_id(activity_id)
            except Invalid:
                raise self.damaged(item.path, f"{activity_id!r:.60} is no id: letters, digits, . _ - only") from None
        return set(differing(item.facts, before))

    def _parse_settled(self, item: Item, data: bytes) -> tuple[bytes, Progress]:
        """A worker by hand may be writing the file in place, holding the work item's lock: half a file is no news."""
        end = time.monotonic() + SETTLING
        while True:
            try:
                return data, self._parse(item.path, data)
            except BoardUnusable:
                if time.monotonic() > end or not os.path.lexists(item.lock_path(item.id or number_of(item.name) or "")):
                    raise
            time.sleep(0.05)
            data = self._read(item.path)

    def _read(self, path: str) -> bytes:
        data = super()._read(path)
        if data is None:
            raise Busy(f"{path} went away while it was looked for", hint="try again")
        return data

    def _parse(self, path: str, data: bytes) -> Progress:
        try:
            return progress_yaml.parse(data, path)
        except BoardUnusable as error:
            error.message += "; it was left alone"
            raise

    def _offset(self) -> float:
        """Seconds by which the board's time is ahead of the wall clock, by which locks end."""
        now, _, shift = read_clock(self.clock, self.companion.anchor, self.boot)
        return 0.0 if shift else round(now - self.clock.wall(), 3)

    def _row(self, item: Item, activity_id: str, offset: float) -> BoardTask:
        fact = item.facts[activity_id]
        task = workitems_rows.row(
            progress_yaml.Activity(fact.activity),
            [progress_yaml.ItemBlocker(entry) for entry in fact.blockers],
            item.created_at,
        )
        lock = item.locks.get(activity_id)
        if lock is not None and task.status is PENDING:
            self._hold(task, lock, offset)
        elif task.status is COMPLETED and task.assigned_to is not None:
            task.holder = Worker(task.assigned_to)
        return task

    def _hold(self, task: BoardTask, lock: FoundLock, offset: float) -> None:
        record = lock.record
        task.status = IN_PROGRESS
        task.assigned_to = record.holder
        task.claimed_at = record.acquired if record.acquired is not None else lock.since
        kind = record.holder_type if record.holder_type in ("human", "system") else "agent"
        self.held_by_hand(task, kind)
        if record.expires is not None:
            task.lease_expires_at = record.expires + offset
            task.lease = max(1.0, record.expires - (task.claimed_at or 0.0))
        for step in task.steps:
            if step.id == record.task_id and step.status not in workitems_rows.CLOSED:
                step.status = "in_progress"
                step.started_at = record.task_acquired
                step.expires_at = None if record.task_expires is None else record.task_expires + offset


def differing(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    for key, value in now.items():
        old = before.get(key)
        if old is not value and (old is None or not is_same(old, value)):
            yield key
    yield from (key for key in before if key not in now)


def is_same(old: Any, new: Any) -> bool:
    return bool(old.data == new.data if isinstance(old, FoundLock) else old == new)
