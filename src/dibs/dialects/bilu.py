"""`bilu:DIR`, document 002: a Markdown file for each task in `board/tasks/`, every write under the lock directory
`storage/lock/`.

DIR is the folder that holds `board/`; the board folder itself will do. The storage folder is the document's:
`.bilu/storage` in the installed layout, where DIR is `.bilu`, and `src/board/storage` in a repository, where DIR is
`src`. Elsewhere it is DIR/storage or DIR/board/storage, whichever is there; DIR/storage if neither is.

Writers wait 10 seconds for the lock (`bilu:DIR?timeout=0`: not at all). Inside it they read the task files that have
changed, write those that must (each whole or not at all, only the lines that change), and give it back. Readers take no
lock; a file that is no text stops them, is named, and is left alone.

The files have no place for who holds a task: INPROGRESS means that somebody does. Who, until when, and with what
result is in dibs' companion, in the storage folder (`bilu_claims`). A task that a hand made INPROGRESS is held by
"somebody", since its file's last change, until a hand or a verb gives it back.

The order of tasks is that of the document's index: by the number that a file's name starts with, then by name. New
tasks are numbered on, unless the board has files and none of them is numbered. Files are never renamed or removed.

The derived files, `default.json` and `records.tsv`, change only by `rebuild`; `check` says when they are stale. A
crash leaves what `filestore` says, and a lock directory that is provably dead.
"""

from __future__ import annotations

import os
import time

from dibs import fs
from dibs.dialects import bilu_index, bilu_text
from dibs.dialects.bilu_claims import BiluCompanion
from dibs.dialects.bilu_rows import blockers, fields, joined, priority, row, word
from dibs.dialects.bilu_words import PRIORITIES, is_stem, link_to, slug
from dibs.dialects.filestore import NO_FAILING, NO_LIMITS, NO_RESERVATIONS, FileStore
from dibs.dialects.filetx import DialectTx
from dibs.errors import BoardUnusable, Busy, Duplicate, Invalid, NoBoard, Unsupported, quoted
from dibs.guards.lockdir import LockDirGuard
from dibs.model import IN_PROGRESS, REVIEW, BoardTask, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dibs.dialects.bilu_index import Finding
    from dibs.dialects.bilu_text import TaskFile
    from dibs.dialects.filewriting import Guard

    Stamp = tuple[int, int, int]

TIMEOUT = 10.0
_SUFFIX = ".md"
_TICK = 100_000_000
_COARSE_TICK = 2_100_000_000
"""Nanoseconds within which two changes of a file may get the same time; the second where times are whole seconds."""


class BiluStore(FileStore):
    dialect = "bilu"
    document = "002"
    parts = ("board", "board/tasks", "board/storage", "storage")
    refused = (
        ("paths", "paths", "name them in the description, or keep the board in: dibs init"),
        ("steps", "steps", "add them as tasks that depend on each other: dibs add --needs ID"),
        ("parent", "parents", "say so with a label or a dependency: dibs add --label NAME --needs ID"),
        NO_FAILING,
        NO_RESERVATIONS,
        NO_LIMITS,
    )

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        folder = root_of(split(folder)[0])
        tasks = os.path.join(folder, "board", "tasks")
        if create:
            os.makedirs(tasks, exist_ok=True)
            os.makedirs(storage_of(folder), exist_ok=True)
        elif not os.path.isdir(tasks):
            raise NoBoard(
                f"there is no board/tasks in {folder}",
                hint=f"make it with: dibs --board {quoted(f'bilu:{folder}')} init",
            )

    def __init__(self, folder: str, **options: Any) -> None:
        folder, self._timeout = split(folder)
        folder = root_of(folder)
        self.tasks_folder = os.path.join(folder, "board", "tasks")
        self.storage = storage_of(folder)
        super().__init__(folder, **options)
        self.companion: BiluCompanion = BiluCompanion(self.storage)
        self._forget()

    def companion_folder(self) -> str:
        return self.storage

    def transaction(self, now: float) -> BiluTx:
        return BiluTx(self, now)

    def _guard(self) -> Guard:
        return LockDirGuard(os.path.join(self.storage, "lock"), timeout=self._timeout)

    # -- files to rows

    def _files(self) -> list[str]:
        # Every file that is replaced changes its folder; what is edited in place is seen at the next look.
        return [self.tasks_folder, self._path_of_board("config.json")]

    def _path_of_board(self, name: str) -> str:
        return os.path.join(self.folder, "board", name)

    def _path(self, stem: str) -> str:
        return os.path.join(self.tasks_folder, stem + _SUFFIX)

    def _forget(self) -> None:
        self._known = False
        self._docs: dict[str, _Doc] = {}
        self._config: bytes | None = None
        self.weights: Mapping[str, int] = PRIORITIES
        self._last: tuple[float, bytes] = (0.0, b"")
        """The place in order of the last task."""
        self._stale = False
        """Must all rows be made anew, for another order or other weights?"""

    def _load(self, noted: set[str]) -> None:
        try:
            self._read_config()
            docs, gone = self._look(noted)
        except BoardUnusable:
            self._noted |= noted  # for the load that succeeds
            raise
        # A writer saves the companion before the files: with a second look it is never older than what we have read.
        noted |= self.companion.load()
        new = sorted((bilu_index.place(stem), stem) for stem in docs if stem not in self._docs)
        again = not self._known or self._stale or bool(gone) or bool(new and new[0][0] < self._last)
        for stem in gone:
            del self._docs[stem]
        self._docs.update(docs)
        if again:
            order = bilu_index.in_order([doc.file for doc in self._docs.values()])
            self.adopt([self._row(file.stem) for file in order])
            self._last = bilu_index.place(order[-1].stem) if order else (0.0, b"")
        else:
            changed = [stem for stem in {**docs, **dict.fromkeys(noted)} if stem in self.tables.tasks]
            fresh = [stem for _, stem in new]
            if changed or fresh:
                self.update([self._row(stem) for stem in (*changed, *fresh)])
            self._last = new[-1][0] if new else self._last
        self._known, self._stale = True, False

    def _look(self, noted: set[str]) -> tuple[dict[str, _Doc], set[str]]:
        """The task files that are new or have changed, and those that have gone; `noted` gets those of which only the
        time has changed. Names that no task can have are left to `check`.

        With ten thousand files this loop is most of what a claim costs.
        """
        changed: dict[str, _Doc] = {}
        docs, present = self._docs, []
        try:
            entries = os.scandir(self.tasks_folder)
        except OSError as error:
            raise self.damaged(self.tasks_folder, error.strerror or str(error)) from None
        with entries:
            for entry in entries:
                name = entry.name
                if name[-3:] != _SUFFIX:
                    continue
                stem = name[:-3]
                known = docs.get(stem)
                try:
                    is_ = entry.stat()
                except FileNotFoundError:
                    continue  # gone since, or a link to nothing
                stamp = (is_.st_mtime_ns, is_.st_size, is_.st_ino)
                if known is None or known.stamp != stamp:
                    if not entry.is_file() or not is_stem(stem):
                        continue
                    data = self._read(entry.path)
                    if data is None:
                        continue
                    if known is None or known.data != data:
                        changed[stem] = _Doc(data, self._parse(stem, data))
                        changed[stem].see(stamp)
                    elif known.see(stamp):
                        noted.add(stem)
                present.append(stem)
        return changed, docs.keys() - present if len(present) - len(changed.keys() - docs) < len(docs) else set()

    def _parse(self, stem: str, data: bytes) -> TaskFile:
        try:
            return bilu_text.parse(stem, data)
        except BoardUnusable as error:
            raise self.damaged(self._path(stem), error.message.removeprefix(f"{link_to(stem)}, ")) from None

    def _read_config(self) -> None:
        data = self._read(self._path_of_board("config.json"))
        if data == self._config:
            return
        weights: Mapping[str, int] = PRIORITIES
        if data is not None:
            try:
                weights = bilu_index.read_config(data).weights
            except BoardUnusable as error:
                raise self.damaged(self._path_of_board("config.json"), error.message) from None
        self._config, self.weights, self._stale = data, weights, True

    def _row(self, stem: str) -> BoardTask:
        doc = self._docs[stem]
        return row(doc.file, self.weights, doc.changed_at)

    def _describe(self, task: BoardTask, by_id: Mapping[str, BoardTask]) -> None:
        super()._describe(task, by_id)
        doc = self._docs[task.id]
        task.blockers = blockers(doc.file.status, task.blockers)
        if task.status is IN_PROGRESS and task.holder is None:
            task.claimed_at = doc.changed_at
            self.held_by_hand(task)
            self.top_token = max(self.top_token, task.token or 0)

    # -- rows to files

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        super().refuse(task, before)
        if task.review and task.status is not REVIEW:
            raise Unsupported(
                "a task of a bilu board cannot ask for a review: document 002 has a status for it, and no more",
                hint="add the review as a task that depends on it: dibs add --needs ID",
                capability="reviews",
            )
        if before is None:
            priority(task.priority, self.weights)

    def shape(self) -> bilu_text.Shape:
        """Of new files: b, unless the board has files of shape a."""
        return "a" if any(doc.file.shape == "a" for doc in self._docs.values()) else "b"

    def _encode(self, tx: DialectTx) -> dict[str, bytes | None]:
        assert isinstance(tx, BiluTx)
        files: dict[str, bytes | None] = {}
        for task_id, before in tx.touched.items():
            task = self.tables.tasks[task_id]
            doc = self._docs.get(task_id)
            data = tx.drafts[task_id] if doc is None else doc.data
            file = bilu_text.parse(task_id, data)
            if before is not None and task.depends_on != before.depends_on:
                titles = {need: self._docs[need].file.title for need in task.depends_on if need in self._docs}
                file.change(depends_on=task.depends_on, titles=titles)
            if doc is None or before is None or word(task) != word(before):
                file.change(status=word(task))
            made = file.render()
            if doc is None or made != data:
                files[self._path(task_id)] = made
        return files

    def commit(self, tx: DialectTx, guard: Guard) -> None:
        self.companion.settle({i: task for i, task in self.tables.tasks.items() if i not in tx.touched})
        super().commit(tx, guard)

    def is_own_file(self, path: str) -> bool:
        folder, name = os.path.split(path)
        return folder == os.path.normpath(self.tasks_folder) and name.endswith(_SUFFIX) and is_stem(name[:-3])

    def _seen(self, path: str) -> bytes | None:
        doc = self._docs.get(_stem_of(path))
        return None if doc is None else doc.data

    def _written(self, files: Mapping[str, bytes | None]) -> None:
        for path, data in files.items():
            stem = _stem_of(path)
            assert data is not None
            known = stem in self._docs
            self._docs[stem] = _Doc(data, bilu_text.parse(stem, data))
            if not known:
                place = bilu_index.place(stem)
                self._stale = self._stale or place < self._last
                self._last = max(place, self._last)

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        taken = [*self.tables.tasks, *(task.id for task in tasks if task.id)]
        numbers = [digits for stem in taken if (digits := bilu_index.number(stem))]
        made: list[str] = []
        highest = max((int(digits) for digits in numbers), default=0)
        width = max((len(digits) for digits in numbers), default=2)
        for task in tasks:
            title = task.description.strip().partition("\n")[0]
            if numbers or not taken:
                highest += 1
                made.append(f"{highest:0{width}d}-{slug(title)}")
            else:
                made.append(slug(title, [*taken, *made]))
        return made

    def takes_id(self, task_id: str) -> bool:
        return is_stem(task_id)

    # -- derived files

    def check(self) -> list[Finding]:
        """What is wrong or stale, read without the lock."""
        tasks, unusable = [], {}
        for name in sorted(os.listdir(self.tasks_folder)):
            path = os.path.join(self.tasks_folder, name)
            if name.endswith(_SUFFIX) and name[0] != "." and os.path.isfile(path):
                stem = name[: -len(_SUFFIX)]
                try:
                    data = self._read(path)
                    if data is not None:
                        tasks.append(bilu_text.parse(stem, data))
                except BoardUnusable as error:
                    unusable[stem] = error
        derived = {
            name: self._read(self._path_of_board(name)) for name in ("config.json", "default.json", "records.tsv")
        }
        return bilu_index.check(
            tasks,
            unusable=unusable,
            config=derived["config.json"],
            index=derived["default.json"],
            records=derived["records.tsv"],
        )

    def rebuild(self, write: bool) -> str | list[str]:
        """The index made from the task files; with `write`, both derived files, under the lock: those that changed."""
        if not write:
            with self.read():
                return self._derived()["default.json"].decode()
        with self.turn:
            guard = self._guard()
            guard.acquire()
            try:
                self._noted |= self.companion.load()
                self.finish(guard)
                self.refresh()
                written = []
                for name, data in self._derived().items():
                    path = self._path_of_board(name)
                    if self._read(path) != data:
                        fs.replace_file(path, data, self.durable, lambda: self._confirm(guard))
                        written.append(path)
                return written
            finally:
                guard.release()

    def _confirm(self, guard: Guard) -> None:
        if not guard.confirm():
            raise Busy(
                f"somebody took the lock of {self.url} away while we held it; the index was not written",
                hint="nothing is lost; try again, and find out who breaks live locks: dibs doctor",
            )

    def _derived(self) -> dict[str, bytes]:
        files = [doc.file for doc in self._docs.values()]
        return {
            "default.json": bilu_index.default_json(files),
            "records.tsv": bilu_index.records_tsv(files, self.folder, self.weights),
        }


class BiluTx(DialectTx):
    _store: BiluStore

    def __init__(self, store: BiluStore, now: float) -> None:
        super().__init__(store, now)
        self.drafts: dict[str, bytes] = {}
        """The files of the tasks that are added."""
        self._shape: bilu_text.Shape | None = None
        self._names: dict[str, str] = {}
        """The ids on the board by their lower case, once a task is to be added."""

    def _put(self, task: BoardTask) -> None:
        if task.id not in self._t.tasks:
            self._store.refuse(task, None)
            self._refuse_twin(task.id)
            self._draft(task)
        super()._put(task)

    def _refuse_twin(self, task_id: str) -> None:
        self._names = self._names or {known.lower(): known for known in self._t.tasks}
        twin = self._names.setdefault(task_id.lower(), task_id)
        if twin != task_id:
            raise Duplicate(
                f"task {task_id} differs from {twin} only by case, and some file systems keep only one of them",
                hint="choose another id",
                task_id=task_id,
            )

    def _draft(self, task: BoardTask) -> None:
        """Make a new task's file, and let the row say what that says."""
        weights = self._store.weights
        self._shape = self._shape or self._store.shape()
        said = fields(task, weights)
        try:
            data = bilu_text.new(task.id, said, self._shape)
        except Invalid:
            data = bilu_text.new(task.id, said, "a")  # whose title may be "Status"
        file = bilu_text.parse(task.id, data)
        task.description, task.labels = joined(file.title, file.description), file.tags
        task.priority, task.review = weights[file.priority], False
        self.drafts[task.id] = data

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            added = self._t.tasks.get(event.task_id or "") if event.action == "added_activity" else None
            if added is not None and event.data is not None:
                # What was added is what its file says, and so must be what the changelog replays.
                event.data["task"] |= {"description": added.description, "priority": added.priority}
        super().append(events)


class _Doc:
    """A task file as it was last read or written."""

    __slots__ = ("changed_at", "data", "file", "stamp")

    def __init__(self, data: bytes, file: TaskFile) -> None:
        self.data = data
        self.file = file
        self.changed_at = time.time()
        self.stamp: Stamp | None = None
        """None: look at its content next time."""

    def see(self, stamp: Stamp) -> bool:
        """It had this stamp right before it was read; is that another time than before?

        If it changed a moment ago it may change again without getting another time: then the stamp proves nothing.
        """
        tick = _COARSE_TICK if stamp[0] % 1_000_000_000 == 0 else _TICK
        self.stamp = stamp if time.time_ns() - stamp[0] > tick else None
        before, self.changed_at = self.changed_at, stamp[0] / 1e9
        return before != self.changed_at


def _stem_of(path: str) -> str:
    return os.path.basename(path)[: -len(_SUFFIX)]


def root_of(folder: str) -> str:
    """The folder that holds `board/`, given that, the board folder itself, or the tasks in it."""
    parent, name = os.path.split(folder)
    if name == "tasks" and os.path.basename(parent) == "board" and os.path.isdir(folder):
        return os.path.dirname(parent)
    here = os.path.isdir(os.path.join(folder, "board", "tasks"))
    return parent if name == "board" and not here and os.path.isdir(os.path.join(folder, "tasks")) else folder


def storage_of(folder: str) -> str:
    installed, repository = os.path.join(folder, "storage"), os.path.join(folder, "board", "storage")
    name = os.path.basename(folder)
    if name == "src" or (name != ".bilu" and not os.path.isdir(installed) and os.path.isdir(repository)):
        return repository
    return installed


def split(folder: str) -> tuple[str, float]:
    """A folder, and how long to wait for the lock."""
    folder, mark, query = folder.partition("?")
    if not mark:
        return folder, TIMEOUT
    key, _, value = query.partition("=")
    try:
        timeout = float(value)
        if key != "timeout" or not 0 <= timeout <= 86_400:
            raise ValueError
    except ValueError:
        raise Invalid(
            f"{query!r:.60} is nothing that a bilu board's URL takes",
            hint="bilu:DIR?timeout=SECONDS, where 0 means not to wait for the lock",
        ) from None
    return folder, timeout
