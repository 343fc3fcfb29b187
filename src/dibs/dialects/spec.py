"""`spec:DIR`, document 003: a space of locks, `.locks/tasks/ID/` and `.locks/files/NAME/`, folders with an `owner`.

`mkdir` is the lock. There is no list of tasks: any id can be claimed by whoever makes its folder first, and a task that
is finished is one that nobody holds. Claiming and locking make folders, finishing and unlocking remove them; the file
locks that a worker took while it held one task go with that task.

dibs makes a folder together with its owner file where the system can (`guards.naming`), so no crash leaves one without
the other; elsewhere, and by hand, a folder without an owner is held: its maker is between the two steps. Removing moves
the folder out of the way first, so nobody ever sees half of it. What is taken from a dead worker is handed over: the
folder stays, and its owner becomes another (`spec_folders`). A worker by hand that was faster is found out by `mkdir`
itself, or by the owner: what was taken for the same call is given back, and the caller hears who has it.

Nothing expires. What a worker left behind is given back by `recover`, which the orchestrator calls, or when the
worker's process is provably dead.
"""

from __future__ import annotations

import os
import stat

from dibs.dialects import spec_folders
from dibs.dialects.filestore import NOBODY, FileStore
from dibs.dialects.filetx import DialectTx, token_at
from dibs.dialects.isotime import moment, precise
from dibs.dialects.spec_text import Owner, encode, file_name, parse, path_of, sanitise, task_name
from dibs.errors import Busy, NoBoard, NotClaimable, Unsupported, quoted
from dibs.guards.base import is_private, private_name, remove, sweep_litter
from dibs.guards.flock import FlockGuard
from dibs.guards.naming import rename_to_new
from dibs.model import COMPLETED, IN_PROGRESS, PENDING, BoardTask, Lock, Worker
from dibs.times import FOREVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from dibs.dialects.filewriting import Guard

LOCKS = ".locks"
YOUNG = 60.0
"""Seconds for which a folder without an owner is taken to be in the making, whatever recovery is asked for."""
_GLOB = "*?["


class SpecStore(FileStore):
    dialect = "spec"
    document = "003"
    parts = (LOCKS, f"{LOCKS}/tasks", f"{LOCKS}/files")
    lacks = frozenset(("blockers", "lists of tasks"))

    def new_ids(self, tasks: Sequence[BoardTask]) -> NoReturn:
        raise self.cannot(
            "lists of tasks",
            "claim any id as it is: dibs claim ID; a list of tasks needs another board: dibs init",
        )

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        root = os.path.join(folder, LOCKS)
        if create:
            for kind in ("tasks", "files"):
                os.makedirs(os.path.join(root, kind), exist_ok=True)
        elif not os.path.isdir(root):
            raise NoBoard(
                f"there is no {LOCKS} in {folder}", hint=f"make it with: dibs --board {quoted(f'spec:{folder}')} init"
            )

    def __init__(self, folder: str, **options: Any) -> None:
        self.root = os.path.join(folder, LOCKS)
        super().__init__(folder, **{**options, "lease": FOREVER})
        self.lock_tasks: dict[str, str | None] = {}
        """The task for which each path is locked."""
        self.lock_names: dict[str, str] = {}
        """The folder of each lock that was found: a worker by hand may call a file otherwise, `./a` for example."""
        self._guesses: dict[str, str] = {}
        """The paths that were only guessed from the names of locks, and those names."""
        self._loaded: dict[str, bytes | None] = {}
        """The owner files, as they were loaded."""
        self._made: list[tuple[str, bytes, bytes | None]] = []
        """The folders that this commit has made or taken over: their owner files now, and before."""
        self._locks_before: dict[str, Any] = {}
        self._finishing = False

    def companion_folder(self) -> str:
        return os.path.join(self.folder, LOCKS)

    def transaction(self, now: float) -> SpecTx:
        return SpecTx(self, now)

    def _guard(self) -> Guard:
        # Among dibs' own workers, so that a call sees and takes several folders as one step; by hand, mkdir decides.
        self.companion._make_folder()
        return self.guards()[0]

    def guards(self) -> list[Guard]:
        return [FlockGuard(os.path.join(self.companion.folder, "guard.lock"))]

    def _files(self) -> list[str]:
        return [os.path.join(self.root, kind) for kind in ("tasks", "files")]

    def _forget(self) -> None:
        """Every load looks at every folder: there are few."""

    def place_of(self, kind: str, name: str) -> str:
        return os.path.join(self.root, kind, name)

    # -- folders to rows

    def _load(self, noted: set[str]) -> None:
        self._loaded = {}
        self.adopt([self._row(*found) for found in self._owners("tasks")])
        self.lock_tasks, self.lock_names, self._guesses = {}, {}, {}
        for name, owner, since in self._owners("files"):
            path = self._path_of(name, owner)
            at = moment(owner.timestamp) if owner.timestamp else None
            since = since if at is None else at
            holder = Worker(owner.agent or NOBODY)
            known = self.companion.locks.get(name)
            if known is not None and known.get("by") == holder.name and known.get("token") == token_at(since):
                holder = _worker(known.get("worker"), holder)
            lock = Lock(path, holder, token_at(since), since, since + FOREVER, FOREVER)
            self.tables.locks[path, lock.token] = lock
            self.lock_tasks[path] = owner.task
            self.lock_names[path] = name
            self.top_token = max(self.top_token, lock.token)

    def _path_of(self, name: str, owner: Owner) -> str:
        """The path that a lock is about, as the board calls it. A hand does not record it, and may have named it
        absolutely."""
        path = path_of(name, owner)
        if path == owner.path:
            return path.removeprefix("./")
        place = self.place or self.folder
        inner = name.removeprefix(sanitise(os.path.join(place, ""))).removeprefix(sanitise("./"))
        path = spec_folders.existing(place, inner) or path_of(inner, owner)
        self._guesses[path] = inner
        return path

    def recognise(self, patterns: Sequence[str]) -> None:
        """Many paths have the name of one lock. Where the path was only guessed, the one that is asked for is meant."""
        for path, name in list(self._guesses.items()):
            for pattern in patterns:
                wanted = sanitise(pattern)
                if name == wanted or (name.startswith(wanted + "__") and not path.startswith(pattern + "/")):
                    self._rename(path, pattern if name == wanted else f"{pattern}/{name[len(wanted) + 2 :]}")
                    break

    def _rename(self, path: str, better: str) -> None:
        locks = self.tables.locks
        for lock in [lock for lock in locks.values() if lock.pattern == path]:
            del locks[path, lock.token]
            lock.pattern = better
            locks[better, lock.token] = lock
        for known in (self.lock_tasks, self.lock_names, self._guesses):
            known[better] = known.pop(path)  # type: ignore[assignment]

    def _row(self, name: str, owner: Owner, since: float) -> BoardTask:
        at = moment(owner.timestamp) if owner.timestamp else None
        at = since if at is None else at
        task = BoardTask(name, name, IN_PROGRESS, owner.agent, created_at=at, claimed_at=at)
        self.held_by_hand(task)
        return task

    def _owners(self, kind: str) -> Iterator[tuple[str, Owner, float]]:
        """Every lock of a kind: its name, what its owner file says, and when it was made."""
        folder = os.path.join(self.root, kind)
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return
        for name in names:
            if is_private(name):
                continue
            try:
                found = os.lstat(os.path.join(folder, name))
                if stat.S_ISDIR(found.st_mode):
                    path = self._owner_path(kind, name)
                    content = self._loaded[path] = spec_folders.seen(path)
                    yield name, parse(content or b""), found.st_mtime
            except FileNotFoundError:
                continue  # given back a moment ago

    def owner(self, kind: str, name: str) -> Owner:
        return parse(spec_folders.seen(self._owner_path(kind, name)) or b"")  # in doubt it is held, by somebody

    # -- rows to folders

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        if task.status not in (IN_PROGRESS, PENDING, COMPLETED):
            raise self.cannot(f"{task.status} tasks", f"give it back instead: dibs release {quoted(task.id)}")
        for field, what in (("blockers", "blockers"), ("steps", "steps")):
            if getattr(task, field):
                raise self.cannot(what, f"give it back instead: dibs release {quoted(task.id)}")
        if task.depends_on:
            raise self.cannot("dependencies", "take the tasks in that order; a list of tasks needs another board")
        if task.status is IN_PROGRESS and task.lease != FOREVER:
            raise self.cannot("leases", "leave it out: nothing expires here; what is left behind: dibs recover")
        if task.status is IN_PROGRESS:
            task_name(task.id)

    def _encode(self, tx: DialectTx) -> dict[str, bytes | None]:
        assert isinstance(tx, SpecTx)
        files: dict[str, bytes | None] = {}
        ended, taken_over = [], []
        for task_id, before in tx.touched.items():
            task, path = self.tables.tasks[task_id], self._owner_path("tasks", task_id)
            was_held = before is not None and before.status is IN_PROGRESS
            if task.status is IN_PROGRESS and (before is None or before.token != task.token):
                files[path] = encode(Owner(task.assigned_to, task.id, precise(task.claimed_at or 0.0)))
                taken_over += [task_id] if was_held else []
            elif was_held and task.status is not IN_PROGRESS:
                ended.append(task_id)
        made = {(lock.pattern, lock.token) for lock in tx.made}
        over = [
            held
            for key, held in self.tables.locks.items()
            if key not in made and self.lock_tasks.get(held.pattern) in ended + taken_over
        ]
        locks: dict[str, Any] = {self.lock_name(lock): None for lock in tx.dropped + over}
        gone = [self._owner_path("files", name) for name in locks]
        for lock in tx.made:
            name = file_name(lock.pattern)
            files[self._owner_path("files", name)] = encode(self._owner_of(lock, tx))
            locks[name] = {"token": lock.token, "by": lock.holder.name, "worker": lock.holder.as_dict()}
        self._locks_before = {name: self.companion.locks.get(name) for name in locks}
        self._note_locks(locks)
        # What is taken from the dead in this very write is not gone. Tasks last: one that is still held tells whose the
        # files are.
        files |= {path: None for path in gone if path not in files}
        return files | {self._owner_path("tasks", task_id): None for task_id in ended}

    def _note_locks(self, locks: Mapping[str, Any]) -> None:
        for name, entry in locks.items():
            self.companion.locks.pop(name, None)
            if entry is not None:
                self.companion.locks[name] = entry

    def _redo(self, files: Mapping[str, bytes | None], lines: Sequence[bytes]) -> dict[str, Any]:
        return {"locks": self._locks_before, **super()._redo(files, lines)}

    def _undo_noted(self, note: Mapping[str, Any]) -> None:
        super()._undo_noted(note)
        locks = note.get("locks")
        self._note_locks(locks if isinstance(locks, dict) else {})

    def lock_name(self, lock: Lock) -> str:
        return self.lock_names.get(lock.pattern) or file_name(lock.pattern)

    def _owner_path(self, kind: str, name: str) -> str:
        return os.path.join(self.place_of(kind, name), "owner")

    def _owner_of(self, lock: Lock, tx: SpecTx) -> Owner:
        own = tx.in_progress(lock.holder.name)
        held = [task.id for task in own if task.holder is not None and task.holder.is_same(lock.holder)]
        task = held[0] if len(held) == 1 else None
        return Owner(lock.holder.name, task, precise(lock.token / 1_000_000), lock.pattern)

    def is_own_file(self, path: str) -> bool:
        place, name = os.path.split(path)
        return name == "owner" and os.path.dirname(place) in map(os.path.normpath, self._files())

    def _seen(self, path: str) -> bytes | None:
        return self._loaded.get(path)

    def commit(self, tx: DialectTx, guard: Guard) -> None:
        self._made = []
        try:
            super().commit(tx, guard)
        except (Busy, NotClaimable):
            # Refused before anything was removed. Nobody may finish this: its removals may look begun if a hand makes
            # them, and the rest would be given to somebody who was told that it got nothing.
            self._give_up_made()
            self._undo_noted(self.companion.redo or {})
            self.companion.redo = None
            self.companion.save()
            raise
        except BaseException:
            self._give_up_made()
            raise

    def _give_up_made(self) -> None:
        for folder, content, was in reversed(self._made):
            if was is None:
                spec_folders.take_away(folder, content)
            else:
                spec_folders.hand_over(folder, was, content)

    def finish(self, guard: Guard) -> None:
        note, self._finishing = self.companion.redo or {}, True
        try:
            super().finish(guard)
        finally:
            self._finishing = False
        try:
            paths = [os.path.normpath(os.path.join(self.folder, entry["path"])) for entry in note["files"]]
        except (KeyError, TypeError):
            return  # there is none, or not one of ours
        for path in filter(self.is_own_file, paths):
            sweep_litter(os.path.dirname(path), self.clock.wall())

    def _put_file(self, path: str, data: bytes | None, guard: Guard, was: bytes | None) -> None:
        """A lock comes and goes as a whole, its owner file with it."""
        folder = os.path.dirname(path)
        if data is None:
            spec_folders.take_away(folder, was)
        elif self._finishing and was is None:
            pass  # of a request that died, and perhaps removed by hand since: nobody was told that they have it
        elif not self._take(folder, data, was) and not self._finishing:
            self._refuse_raced(folder)

    def _take(self, folder: str, content: bytes, was: bytes | None) -> bool:
        """Make a lock, or take over that of a dead worker; False if somebody has it."""
        done = self._make(folder, content) if was is None else spec_folders.hand_over(folder, content, was)
        if done:
            self._made.append((folder, content, was))
        return done

    def _refuse_raced(self, folder: str) -> NoReturn:
        kind, name = os.path.basename(os.path.dirname(folder)), os.path.basename(folder)
        owner = self.owner(kind, name)
        who = owner.agent or NOBODY
        if kind == "files":
            raise _busy(path_of(name, owner), who, "took it a moment ago")
        error = NotClaimable(
            f"cannot claim task {name}: {who} took it a moment ago",
            hint="take other work",
            task_id=name,
            reasons=[{"code": "held", "text": f"held by {who}", "task_id": name, "worker": who}],
        )
        error.raced = True
        raise error

    def _make(self, folder: str, content: bytes) -> bool:
        """Make a lock; False if somebody has it."""
        if os.path.lexists(folder):
            return False
        draft = private_name(folder)
        os.makedirs(draft)
        try:
            spec_folders.write_owner(draft, content)
            try:
                if not rename_to_new(draft, folder):
                    os.mkdir(folder)
                    spec_folders.write_owner(folder, content)
            except FileExistsError:
                return False
        finally:
            if os.path.lexists(draft):
                remove(draft)
        return True


class SpecTx(DialectTx):
    """Locks only: any id is a task that can be claimed, and none is in a list until somebody holds it."""

    _store: SpecStore

    def __init__(self, store: SpecStore, now: float) -> None:
        super().__init__(store, now)
        self.made: list[Lock] = []
        self.dropped: list[Lock] = []

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        found = super().get(ids)
        for task_id in ids:
            if task_id not in found:
                found[task_id] = BoardTask(task_id, task_id, created_at=self.now)
        return found

    def find(self, prefix: str, limit: int) -> list[str]:
        return super().find(prefix, limit) or [prefix]

    def ready(self, *_: object, **__: object) -> NoReturn:
        raise self._no_list("name the task: dibs claim ID; or try several: dibs acquire --file FILE")

    def _no_list(self, hint: str) -> Unsupported:
        return self._store.cannot("lists of tasks", hint)

    def save_locks(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            if lock.shared:
                raise self._store.cannot("shared locks", "take it alone, or not at all")
            if lock.lease != FOREVER:
                raise self._store.cannot("leases", "leave it out: nothing expires here")
            if any(mark in lock.pattern for mark in _GLOB):
                raise self._store.cannot("patterns", "name each file; a worker by hand sees only names")
            self._refuse_namesake(lock)
            if (lock.pattern, lock.token) not in self._t.locks:
                self.made.append(lock)
        super(DialectTx, self).save_locks(locks)

    def locks(
        self, patterns: Sequence[str] | None = None, *, name: str | None = None, expired: bool = False
    ) -> list[Lock]:
        self._store.recognise(patterns or ())
        return super().locks(patterns, name=name, expired=expired)

    def _refuse_namesake(self, lock: Lock) -> None:
        """Two paths can have one name, and then one lock."""
        name = file_name(lock.pattern)
        for other in self._t.locks.values():
            if other.pattern != lock.pattern and self._store.lock_name(other) == name:
                raise _busy(lock.pattern, other.holder.name, f"holds {other.pattern}, which has the same lock name")

    def drop_locks(self, keys: Sequence[tuple[str, int]]) -> None:
        for key in keys:
            if (lock := self._t.locks.get(key)) is not None:
                self._refuse_young(lock.holder, self._store.place_of("files", self._store.lock_name(lock)))
                self.dropped.append(lock)
        super().drop_locks(keys)

    def _put(self, task: BoardTask) -> None:
        before = self._t.tasks.get(task.id)
        if before is not None and before.holder is not None and task.status is PENDING:
            self._refuse_young(before.holder, self._store.place_of("tasks", task.id))
        super()._put(task)

    def _refuse_young(self, holder: Worker, folder: str) -> None:
        if holder.name != NOBODY:
            return
        try:
            age = self._store.clock.wall() - os.lstat(folder).st_mtime
        except FileNotFoundError:
            return
        if age < YOUNG:
            raise Busy(
                f"{folder} was made {age:.0f}s ago and has no owner yet: its maker may be writing it",
                hint=f"recover it when it is older than {YOUNG:.0f}s",
            )


def _worker(fields: Mapping[str, Any] | None, otherwise: Worker) -> Worker:
    try:
        return Worker(**fields) if fields else otherwise
    except TypeError:
        return otherwise


def _busy(path: str, who: str, why: str) -> Busy:
    error = Busy(
        f"{path}: {who} {why}; nothing was locked",
        hint=f"work on something else, or ask: dibs tell {quoted(who)} 'what you need'",
        path=path,
    )
    now = 0.0
    error.conflicts = [Lock(path, Worker(who), 0, now, now, FOREVER)]
    return error
