"""`workitems:DIR`, document 001: work items in folders of their own, with activities in `progress.yaml`, a lock file
for each activity that somebody holds, and a `changelog.log`.

DIR is one work item's folder, or a folder of such folders, which together are one board. An activity is a task, its
tasks are the steps (`workitems_rows`); who holds it is said by its lock alone (`workitems_locks`), whoever made it.

Claiming: make the lock, then write `progress.yaml` (`in_progress`), then log. Ending: `progress.yaml`, then the lock,
then the log. Renewing and starting a step rewrite the lock only, and no log says so. Whoever writes a `progress.yaml`
holds the work item's own lock, reads the file again inside it, and changes the activities that it is about: what
others wrote about other activities meanwhile stays. If the activity itself has changed, or its lock has, nothing is
written.

A crash before anything was written leaves the board as it was, and perhaps a work item's lock that the next writer
knows to be dead. After the claim's lock was made, the next writer finishes the write (`filestore`); a worker by hand
sees a claim whose status has not been written yet, as its own are. After `progress.yaml`, it finishes too; until then
a completed activity may have a lock, which counts for nothing.
"""

from __future__ import annotations

import os

from dibs.dialects import activity_lock, workitems_rows
from dibs.dialects.activity_lock import LockRecord
from dibs.dialects.filestore import NO_FAILING, NO_LIMITS, NOBODY
from dibs.dialects.filetx import DialectTx
from dibs.dialects.isotime import precise
from dibs.dialects.workitems_items import FILE, Item, facts_of
from dibs.dialects.workitems_locks import SUFFIX, BoardGuard, FoundLock, create, read, replace, take_away
from dibs.dialects.workitems_reading import ItemsReading, differing
from dibs.dialects.workitems_tx import ItemsTx
from dibs.errors import Busy, LeaseLost, NotClaimable, OutcomeUnknown, quoted
from dibs.model import CANCELLED, COMPLETED, IN_PROGRESS, BoardTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dibs.dialects.filewriting import Guard


class WorkItemsStore(ItemsReading):
    refused = (
        ("priority", "priorities", "activities are taken in the order of the file; make others depend on it: dibs dep"),
        ("paths", "paths", "name them in the description, or keep the board in: dibs init"),
        ("labels", "labels", "put them into the description"),
        ("review", "reviews", "add the review as an activity that depends on it: dibs add --needs ID"),
        (
            "parent",
            "parents",
            "say so with a dependency: dibs add --needs ID; --parent names a work item (WI-001)",
        ),
        NO_FAILING,
        NO_LIMITS,
    )

    def transaction(self, now: float) -> ItemsTx:
        return ItemsTx(self, now)

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        super().refuse(task, before)
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
        except BaseException as error:
            if not self._begun and not isinstance(error, OutcomeUnknown):
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
            hint=f"see how it stands: dibs show {quoted(task.id)}",
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
            added = [workitems_rows.element(task) for _, task, before in touched if before is None]
            progress.add_activities(added)
            changed = bool(added)
            for task_id, task, before in touched:
                if before is None:
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
            hint=f"look at it, and try again: dibs show {quoted(task.id)}",
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
        elif self._finishing and found is None:
            pass  # of a claim that died, and perhaps removed by hand since: nobody was told that they have it
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
        if not self.is_single:
            note["at"] = self.log.size(lines)
        return note

    def finish(self, guard: Guard) -> None:
        """As `filestore` does it, but with the locks of the work items, and leaving locks to whoever has them now."""
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
                self._again.update(i for i in differing(item.facts, before) if i in self.tables.tasks)
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


def _raced(task_id: str, found: FoundLock | None) -> NotClaimable:
    who = (found.record.holder if found is not None else None) or NOBODY
    error = NotClaimable(
        f"cannot claim task {task_id}: {who} took it a moment ago",
        hint="take other work",
        task_id=task_id,
        reasons=[{"code": "held", "text": f"held by {who}", "task_id": task_id, "worker": who}],
    )
    error.raced = True
    return error
