"""`workitems:DIR`, document 001: work items in folders of their own, with activities in `progress.yaml`, a lock file for
each activity that somebody holds, and a `changelog.log`.

DIR is one work item's folder, or a folder of such folders, which together are one board. An activity is a task, its
tasks are the steps (`workitems_rows`); who holds it is said by its lock alone (`workitems_locks`), whoever made it.

Claiming: make the lock, then write `progress.yaml` (`in_progress`), then log. Ending: `progress.yaml`, then the lock, then
the log. Renewing and starting a step rewrite the lock only, and no log says so. Whoever writes a `progress.yaml` holds
the work item's own lock, reads the file again inside it, and changes the activities that it is about: what others wrote
about other activities meanwhile stays. If the activity itself has changed, or its lock has, nothing is written.

A crash before anything was written leaves the board as it was, and perhaps a work item's lock that the next writer
knows to be dead. After the claim's lock was made, the next writer finishes the write (`filestore`); a worker by hand sees
a claim whose status has not been written yet, as its own are. After `progress.yaml`, it finishes too; until then a
completed activity may have a lock, which counts for nothing.
"""

from __future__ import annotations

import os

from dibs import fs
from dibs.clock import read as read_clock
from dibs.dialects import activity_lock, progress_yaml, workitems_rows
from dibs.dialects.activity_lock import LockRecord
from dibs.dialects.eventlog import EventLog
from dibs.dialects.filestore import NOBODY, DialectTx, FileStore
from dibs.dialects.isotime import moment, precise, whole
from dibs.dialects.workitems_claims import ItemsCompanion
from dibs.dialects.workitems_locks import SUFFIX, BoardGuard, FoundLock, create, look, read, replace, take_away
from dibs.dialects.workitems_log import ItemsLog
from dibs.errors import BoardUnusable, Busy, Invalid, LeaseLost, NoBoard, Raced
from dibs.model import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, PENDING, BoardTask, Event, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from dibs.dialects.filestore import Guard
    from dibs.dialects.progress_yaml import Progress

FILE = "progress.yaml"
LOG = "changelog.log"
YOUNG = 60.0
"""Seconds for which a lock that cannot be read is taken to be in the making, whatever recovery is asked for."""
_REFUSED = (
    ("priority", "priorities", "activities are taken in the order of the file; make others depend on it: dibs dep"),
    ("paths", "paths", "name them in the description, or keep the board in: dibs init"),
    ("labels", "labels", "put them into the description"),
    ("review", "reviews", "add the review as an activity that depends on it: dibs add --needs ID"),
    ("parent", "parents", "say so with a dependency: dibs add --needs ID; --parent names a work item, such as WI-001"),
)
_QUIET = ("renewed_activity", "renewed_locks")
"""What no changelog of the document tells: that a worker is still at work."""


class Item:
    """A work item's folder, and its `progress.yaml` as it was last read or written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        self.path = os.path.join(folder, FILE)
        self.data: bytes | None = None
        self.id = ""
        self.created_at = 0.0
        self.facts: dict[str, Fact] = {}
        self.locks: dict[str, FoundLock] = {}

    def lock_path(self, its_id: str) -> str:
        return os.path.join(self.folder, "locks", its_id + SUFFIX)

    def take(self, data: bytes, progress: Progress) -> None:
        self.data = data
        self.id = progress.work_item_id
        self.created_at = moment(progress.created) or 0.0
        self.facts = facts_of(progress)


class Fact:
    """What the file says about one activity."""

    __slots__ = ("activity", "blockers")

    def __init__(self, activity: dict[str, Any]) -> None:
        self.activity = activity
        self.blockers: list[dict[str, Any]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and (self.activity, self.blockers) == (other.activity, other.blockers)

    __hash__ = None  # type: ignore[assignment]


def facts_of(progress: Progress) -> dict[str, Fact]:
    facts = {entry["id"]: Fact(entry) for entry in progress.data.get("activities") or ()}
    for entry in progress.data.get("blockers") or ():
        fact = facts.get(entry.get("activity_id"))
        if fact is not None:
            fact.blockers.append(entry)
    return facts


class WorkItemsStore(FileStore):
    dialect = "workitems"
    document = "001"
    met_by = (COMPLETED, CANCELLED)

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        if any(item_folders(folder)):
            return
        if not create:
            raise NoBoard(
                f"there is no {FILE} in {folder}, nor in a folder in it",
                hint=f"make a work item with: dibs --board workitems:{folder} init",
            )
        title = os.path.basename(folder)
        number = _number_of(title)
        if number is None:
            slug = "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in title.lower()).split())
            number = "WI-001"
            folder = os.path.join(folder, f"{number}-{slug}" if slug else number)
        else:
            title = title[len(number) :].strip("-_ ") or title
        os.makedirs(os.path.join(folder, "locks"), exist_ok=True)
        import time

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

    def transaction(self, now: float) -> ItemsTx:
        return ItemsTx(self, now)

    def _guard(self) -> BoardGuard:
        return BoardGuard(self.companion.folder, self.agent, self.clock.wall, self.companion._make_folder)

    def guards(self) -> list[Guard]:
        from dibs.dialects.workitems_locks import ItemGuard

        self._find_items()
        for item in self.items.values():
            item.id = item.id or item.name
        return [
            self._guard(),
            *(ItemGuard(item.lock_path(item.id), self.agent, self.clock.wall) for item in self.items.values()),
        ]

    # -- items

    def _find_items(self) -> None:
        self.items = {
            os.path.basename(folder): self.items.get(os.path.basename(folder)) or Item(folder)
            for folder in item_folders(self.folder)
        }

    def item(self, item_id: str) -> Item:
        """The work item with this id."""
        for item in self.items.values():
            if item.id == item_id:
                return item
        raise Invalid(
            f"there is no work item {item_id!r:.80} here",
            hint="there are: " + ", ".join(sorted(item.id for item in self.items.values())),
        )

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
            hint=f"dibs add --parent {ids[0]} 'what is to be done'; there are: " + ", ".join(ids),
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
        from dibs.dialects.filestore import _stamp

        looked = [super().mark_change(), _stamp(self.companion.folder)]
        for item in self.items.values():
            looked += [_stamp(os.path.join(item.folder, "locks")), _stamp(os.path.join(item.folder, LOG))]
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
            changed.update(_differing(locks, item.locks))
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
        item.take(data, self._parse(item.path, data))
        return set(_differing(item.facts, before))

    def _read(self, path: str) -> bytes:
        try:
            data = fs.read_file(path)
        except OSError as error:
            raise self.damaged(path, error.strerror or str(error)) from None
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

    # -- rows to files

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        for field, what, hint in _REFUSED:
            if getattr(task, field):
                raise self.cannot(what, hint)
        if task.status is FAILED:
            raise self.cannot(
                "failed tasks",
                f"say why it cannot go on: dibs block {task.id} 'why'; or give it back: dibs release {task.id}",
            )
        if task.max_attempts is not None:
            raise self.cannot("limits of attempts", "leave it out; dibs show ID tells how often a task was given back")
        workitems_rows.settle(task)

    def commit(self, tx: DialectTx, guard: Guard) -> None:
        assert isinstance(tx, ItemsTx)
        assert isinstance(guard, BoardGuard)
        self._made, self._begun, self._fresh = [], False, {}
        self._where.update(tx.homes)
        writes = {self._where[i].name for i, task, before in tx.changes() if _is_in_file(task, before)}
        writes |= {self.item(item_id).name for item_id in tx.statuses}
        guard.hold([self.items[name].lock_path(self.items[name].id) for name in writes])
        try:
            super().commit(tx, guard)
        except BaseException:
            if not self._begun:
                # Nothing but locks has been made: give them back, and nothing has happened.
                for path, data in reversed(self._made):
                    take_away(path, data, self.clock.wall())
            raise

    def _encode(self, tx: DialectTx) -> dict[str, bytes | None]:
        assert isinstance(tx, ItemsTx)
        made: dict[str, bytes | None] = {}
        kept: dict[str, bytes | None] = {}
        gone: dict[str, bytes | None] = {}
        offset = self._offset()
        for task_id, task, before in tx.changes():
            item = self._where[task_id]
            path = item.lock_path(task_id)
            lock = self._still(item, task, before, tx.now)
            if task.status is IN_PROGRESS:
                is_new = before is None or before.status is not IN_PROGRESS or before.token != task.token
                data = activity_lock.encode(_record(task, None if is_new else lock, offset))
                if is_new:
                    was_free = before is None or before.status is not IN_PROGRESS
                    if was_free and lock is not None and not lock.record.is_expired(self.clock.wall()):
                        raise _raced(task_id, lock)  # left on an activity that was over, and is open again
                    made[path] = data
                elif lock is not None and data != lock.data and self._may_rewrite(tx, task):
                    kept[path] = data
                else:
                    self._again.add(task_id)
            elif before is not None and before.status is IN_PROGRESS and lock is not None:
                gone[path] = None
        for name in dict.fromkeys(self._where[i].name for i, _, _ in tx.changes()):
            self._tidy(self.items[name], gone, tx)
        return made | self._encode_items(tx) | kept | gone

    def _still(self, item: Item, task: BoardTask, before: BoardTask | None, now: float) -> FoundLock | None:
        """The lock of a claim as it is now, if there is one; raises if it is no longer the one that was looked at."""
        seen = item.locks.get(task.id)
        if seen is None or before is None or before.status is not IN_PROGRESS:
            return seen
        found = read(item.lock_path(task.id))
        if found is not None and found.is_same_claim(seen):
            item.locks[task.id] = found
            return found
        if found is None and seen.data is None:
            return None
        if before.lease_expires_at is not None and before.lease_expires_at <= now:
            raise _raced(task.id, found)
        who = found.record.holder or NOBODY if found is not None else "nobody"
        raise LeaseLost(
            f"you no longer hold task {task.id}: its lock has changed, and {who} holds it now; nothing was changed",
            hint=f"see how it stands: dibs show {task.id}",
            task_id=task.id,
            holder=None if found is None else found.record.holder,
        )

    def _may_rewrite(self, tx: ItemsTx, task: BoardTask) -> bool:
        """A lock is its holder's. One made by hand is left alone, unless its holder acts through dibs now."""
        return self.companion.knows(task) or task.id in tx.acted

    def _tidy(self, item: Item, gone: dict[str, bytes | None], tx: ItemsTx) -> None:
        """Locks that were left on activities that are over, and have ended."""
        now = self.clock.wall()
        for task_id, lock in item.locks.items():
            task = self.tables.tasks.get(task_id)
            if task is not None and task.status in (COMPLETED, CANCELLED) and lock.record.is_expired(now):
                gone.setdefault(item.lock_path(task_id), None)

    def _encode_items(self, tx: ItemsTx) -> dict[str, bytes | None]:
        """The `progress.yaml` of each work item that must change, read again now that its lock is ours."""
        files: dict[str, bytes | None] = {}
        by_item: dict[str, list[tuple[str, BoardTask, BoardTask | None]]] = {}
        for found in tx.changes():
            if _is_in_file(found[1], found[2]):
                by_item.setdefault(self._where[found[0]].name, []).append(found)
        for item_id in tx.statuses:
            by_item.setdefault(self.item(item_id).name, [])
        for name, touched in by_item.items():
            item = self.items[name]
            data = self._read(item.path)
            progress = self._parse(item.path, data)
            facts = item.facts if data == item.data else facts_of(progress)
            changed = False
            for task_id, task, before in touched:
                if before is None:
                    progress.add_activity(workitems_rows.element(task))
                    changed = True
                    continue
                if facts.get(task_id) != item.facts[task_id]:
                    raise self._overtaken(task, before)
                changed |= workitems_rows.apply(progress, task_id, workitems_rows.changes(task, before))
            status = tx.statuses.get(item.id) or workitems_rows.derived(progress)
            if status is not None and status != progress.status:
                progress.set_top("status", status)
                changed = True
            if changed:
                progress.touch(precise(round(tx.now)), tx.who or self.agent)
                self._fresh[item.path] = data, progress
                files[item.path] = progress.render()
        return files

    def _overtaken(self, task: BoardTask, before: BoardTask) -> Exception:
        if task.status is IN_PROGRESS and before.token != task.token:
            return _raced(task.id, None)
        return Busy(
            f"somebody changed activity {task.id} a moment ago; nothing was written",
            hint=f"look at it, and try again: dibs show {task.id}",
            task_id=task.id,
        )

    def _seen(self, path: str) -> bytes | None:
        if path in self._fresh:
            return self._fresh[path][0]
        item = self.items[os.path.basename(os.path.dirname(os.path.dirname(path)))]
        lock = item.locks.get(os.path.basename(path)[: -len(SUFFIX)])
        return None if lock is None else lock.data

    def _put_file(self, path: str, data: bytes | None, guard: Guard, was: bytes | None) -> None:
        if os.path.basename(path) == FILE:
            super()._put_file(path, data, guard, was)
            self._begun = True
            return
        found = read(path)
        seen = None if found is None else found.data
        ours = seen == was
        if data is None:
            if ours and found is not None:
                take_away(path, seen, self.clock.wall())
        elif found is not None and ours and _is_renewal(found, data):
            if not replace(path, data, seen, self.durable):
                self._lost(path)
        elif (found is None or (ours and take_away(path, seen, self.clock.wall()))) and create(
            path, data, self.durable
        ):
            self._made.append((path, data))
        else:
            self._lost(path)

    def _lost(self, path: str) -> None:
        """Somebody else has the lock that was to become ours."""
        if not self._finishing:
            raise _raced(os.path.basename(path)[: -len(SUFFIX)], read(path))

    def _redo(self, files: Mapping[str, bytes | None], lines: Sequence[bytes]) -> dict[str, Any]:
        note = super()._redo(files, lines)
        if isinstance(self.log, ItemsLog):
            note["at"] = self.log.size(lines)
        return note

    def finish(self, guard: Guard) -> None:
        """As `filestore` does it, but holding the locks of the work items, and leaving locks to whoever has them now."""
        assert isinstance(guard, BoardGuard)
        note = self.companion.redo
        self._find_items()
        try:
            lines = [line.encode() for line in (note or {}).get("lines", ())]
            if note is not None and lines and not self.log.holds(lines, int(note["at"])):
                paths = [os.path.normpath(os.path.join(self.folder, entry["path"])) for entry in note["files"]]
                for item in self.items.values():
                    if item.path in paths:
                        self._read_item(item)
                        guard.hold([item.lock_path(item.id)])
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # not a note of ours, as `filestore` will find too
        self._finishing = True
        try:
            super().finish(guard)
        finally:
            self._finishing = False
            self._made, self._begun = [], False

    def _written(self, files: Mapping[str, bytes | None]) -> None:
        for path, data in files.items():
            if os.path.basename(path) == FILE:
                assert data is not None
                _, progress = self._fresh[path]
                item = self.items[os.path.basename(os.path.dirname(path))]
                before = item.facts
                item.take(data, progress)
                # Rows that this call did not write, but that others have written meanwhile.
                self._again.update(i for i in _differing(item.facts, before) if i in self.tables.tasks)
        self._order = [i for i in self.tables.tasks if i in self._where]
        for task in list(self.tables.tasks.values()):
            # A skipped activity is as good as a completed one for those that wait for it, which no rule knows.
            if task.depends_on and (unmet := self._unmet(task, self.tables.tasks)) != task.unmet:
                self.tables.remove(task.id)
                task.unmet = unmet
                self.tables.put(task)

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        taken = [*self.tables.tasks]
        made = []
        for task in tasks:
            item = self.item_for(task)
            if task.parent == item.id:
                task.parent = None
            start = f"{item.id}-A"
            numbers = [i[len(start) :] for i in taken if i.startswith(start)]
            new = f"{start}{max((int(n) for n in numbers if n.isdigit()), default=0) + 1}"
            taken.append(new)
            made.append(new)
        return made

    def takes_id(self, task_id: str) -> bool:
        return all(task_id != item.id for item in self.items.values())


class ItemsTx(DialectTx):
    _store: WorkItemsStore

    def __init__(self, store: WorkItemsStore, now: float) -> None:
        super().__init__(store, now)
        self.homes: dict[str, Item] = {}
        """Where the tasks that this transaction adds belong."""
        self.statuses: dict[str, str] = {}
        """What becomes of work items themselves."""
        self.acted: set[str] = set()
        """Tasks of which an event tells."""
        self.who: str | None = None

    def changes(self) -> Iterator[tuple[str, BoardTask, BoardTask | None]]:
        for task_id, before in self.touched.items():
            yield task_id, self._t.tasks[task_id], before

    def _put(self, task: BoardTask) -> None:
        before = self._t.tasks.get(task.id)
        store = self._store
        if before is None:
            if not store.takes_id(task.id):
                raise Invalid(f"{task.id} is the work item itself; an activity needs another id")
            self.homes[task.id] = store.item_for(task)
        elif before.status is IN_PROGRESS and before.assigned_to == NOBODY and task.status is not IN_PROGRESS:
            self._refuse_young(task.id)
        self._name_steps(task)
        super()._put(task)

    def _name_steps(self, task: BoardTask) -> None:
        """The rules call steps s1, s2 …; the document has ids that no other task of the work item has."""
        known = {step.id for step in task.steps}
        for number, step in enumerate(task.steps, 1):
            if step.id == f"s{number}":
                old, at = step.id, number
                while (new := workitems_rows.step_id(task.id, at)) in known:
                    at += 1
                step.id = new
                known.add(new)
                for event in self.appended:
                    if event.task_id == task.id and event.step_id == old:
                        event.step_id = new

    def _refuse_young(self, task_id: str) -> None:
        lock = self._store._where[task_id].locks.get(task_id)
        age = YOUNG if lock is None else self._store.clock.wall() - lock.since
        if age < YOUNG:
            raise Busy(
                f"the lock of {task_id} was made {age:.0f}s ago and says nothing yet: its maker may be writing it",
                hint=f"recover it when it is older than {YOUNG:.0f}s",
            )

    def append(self, events: Sequence[Event]) -> None:
        self.changed = True
        for event in events:
            if event.task_id is not None:
                self.acted.add(event.task_id)
            if event.worker_type != "system":
                self.who = event.worker
        super().append([event for event in events if event.action not in _QUIET])


def _is_in_file(task: BoardTask, before: BoardTask | None) -> bool:
    return before is None or bool(workitems_rows.changes(task, before))


def _record(task: BoardTask, lock: FoundLock | None, offset: float) -> LockRecord:
    """The lock of a claim; what a worker by hand wrote about itself stays."""
    assert task.holder is not None
    at = next((step for step in task.steps if step.status == "in_progress"), None)

    def by_wall(moment: float | None) -> float | None:
        return None if moment is None else round(moment - offset, 3)

    return LockRecord(
        task.holder.name if lock is None else lock.record.holder,
        ("human" if task.holder.kind == "human" else "agent") if lock is None else lock.record.holder_type,
        task.claimed_at if lock is None else lock.record.acquired,
        by_wall(task.lease_expires_at),
        None if at is None else at.id,
        None if at is None else at.started_at,
        None if at is None else by_wall(at.expires_at),
    )


def _is_renewal(found: FoundLock, data: bytes) -> bool:
    wanted = activity_lock.parse(data)
    return (found.record.holder, found.record.acquired) == (wanted.holder, wanted.acquired)


def _raced(task_id: str, found: FoundLock | None) -> Raced:
    who = (found.record.holder if found is not None else None) or NOBODY
    return Raced(
        f"cannot claim task {task_id}: {who} took it a moment ago",
        hint="take other work",
        task_id=task_id,
        reasons=[{"code": "held", "text": f"held by {who}", "task_id": task_id, "worker": who}],
    )


def _differing(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    for key, value in now.items():
        old = before.get(key)
        if old is not value and (old is None or not _is_same(old, value)):
            yield key
    yield from (key for key in before if key not in now)


def _is_same(old: Any, new: Any) -> bool:
    return bool(old.data == new.data if isinstance(old, FoundLock) else old == new)


# -- folders


def item_folders(folder: str) -> Iterator[str]:
    """The folders of the work items: this one, or those in it, by number and name."""
    if os.path.isfile(os.path.join(folder, FILE)):
        yield folder
        return
    try:
        names = [name for name in os.listdir(folder) if name[0] != "."]
    except OSError:
        return
    for name in sorted(names, key=_place):
        path = os.path.join(folder, name)
        if os.path.isfile(os.path.join(path, FILE)):
            yield path


def _place(name: str) -> tuple[int, str]:
    number = (_number_of(name) or "WI-0")[3:]
    return int(number), name


def _number_of(name: str) -> str | None:
    """`WI-007` of WI-007-search."""
    digits = name[3:].partition("-")[0]
    return f"WI-{digits}" if name.startswith("WI-") and digits.isdigit() and digits.isascii() else None


def create_new(path: str, data: bytes) -> None:
    """A new file, whole; nothing happens if there is one already."""
    create(path, data, durable=True)
