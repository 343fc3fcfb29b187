"""A board that lives in a document's own files: what the dialects share.

A transaction is the one in memory (`stores.memory`), on rows that were read from the files, and a guard. Writing:
acquire the document's guard, finish what a killed writer left (`companion`), read the files if they have changed, let
the board run its rule, refuse what the format cannot hold, write the files that must change (each whole or not at
all: `filewriting`), append to the changelog, release. Reading takes no guard unless the document asks for it.

A dialect fills in `_guard`, `_files`, `_load`, `_encode` and `refuse`. It holds codec and policy only: no rule is
written here or in a dialect, and nothing outside the documented files decides anything that others must keep to.

A crash before the first file is renamed leaves the board as it was. After it, the next writer finds the note of the
write and finishes it. A guard left behind is dealt with by the document's own rule for that guard.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from dibs import fs
from dibs.clock import Clock
from dibs.dialects.companion import Companion
from dibs.dialects.eventlog import EventLog
from dibs.dialects.filetx import DialectTx, Nothing, Read, Write, token_at
from dibs.dialects.filewriting import FileWriting
from dibs.errors import BoardUnusable, Unsupported, quoted
from dibs.ids import random_ids
from dibs.model import (
    COMPLETED,
    IN_PROGRESS,
    BoardTask,
    Event,
    Lock,
    TaskStatus,
    Worker,
)
from dibs.stores.memory import Tables
from dibs.times import FOREVER
from dibs.worker import login_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from dibs.dialects.bilu_index import Finding
    from dibs.dialects.filewriting import Guard
    from dibs.dialects.inspection import Part


NOBODY = "somebody"
"""Who holds what the files do not say who holds."""

POLL = 0.05
"""Seconds between two looks at the files by somebody who waits for a change."""


_LONG_AGO = 1_700_000_000.0
"""From when on what does not end is reckoned, if it is older or does not say how old it is."""

AHEAD = 86_400.0
"""Seconds by which a claim's time may be ahead of our clock. Later times are somebody's mistake: they do not count."""


NO_RESERVATIONS = ("reserved", "reservations", "say in the description who should take it")
NO_LIMITS = ("max_attempts", "limits of attempts", "leave it out; dibs show ID tells how often a task was given back")
NO_FAILING = (
    "failed", "failed tasks", "say why it cannot go on: dibs block {id} 'why'; or give it back: dibs release {id}"
)  # fmt: skip


class FileStore(FileWriting):
    dialect = ""
    """The scheme of the board's URL, and the dialect's name in messages."""
    document = ""
    """The number of the document that specifies it."""
    parts: tuple[str, ...] = ()
    """The folders in the board's own that are written to, which must not lead out of the repository."""
    refused: tuple[tuple[str, str, str], ...] = ()
    """What the format has no place for: a field of a task or a status, what that is called, and what to do instead."""
    lacks: frozenset[str] = frozenset()
    """What hints must not suggest, because the format has no place for it: "blockers", "lists of tasks"."""
    satisfied_by: tuple[TaskStatus, ...] = (COMPLETED,)
    """Statuses at which a task counts as done for those that depend on it."""
    patient = True
    """Do readers keep to the document and wait for whoever writes? The doctor does not: it has to tell who that is."""

    def __init__(
        self,
        folder: str,
        *,
        place: str | None,
        clock: Clock | None = None,
        durable: bool = True,
        lease: float | None = None,
        agent: str | None = None,
    ) -> None:
        self.url = f"{self.dialect}:{folder}"
        self.folder = folder
        self.place = place
        self.lease = lease
        self.agent = agent or os.environ.get("DIBS_AGENT") or login_name(os.environ)
        self.durable = durable
        self.clock = clock or Clock()
        self.boot = self.clock.boot()
        self.tables = Tables()
        self.companion = Companion(self.companion_folder())
        self.log = self._open_log()
        self.turn = allocate_lock()
        self._process = os.getpid()
        self.top_token = 0
        self._noted: set[str] = set()
        self._unsure: tuple[list[bytes], int] | None = None
        """The changelog lines, and where they belong, of a noted write that only the rows can tell was made."""

    # -- what a dialect fills in

    @classmethod
    def require(cls, folder: str, *, create: bool, agent: str | None) -> None:
        """Raise `NoBoard` if there is no such board in the folder and none is to be made."""
        raise NotImplementedError

    def _guard(self) -> Guard:
        """A new guard, not yet acquired."""
        raise NotImplementedError

    def _files(self) -> list[str]:
        """The paths whose change means that the board may have changed."""
        raise NotImplementedError

    def _load(self, noted: set[str]) -> None:
        """Bring `tables` in line with the files (`adopt` or `update`); do nothing if they have not changed.

        `noted` are tasks about whose claims the companion says something new. Damaged files raise `BoardUnusable` and
        are left alone.
        """
        raise NotImplementedError

    def refuse(self, task: BoardTask, before: BoardTask | None) -> None:
        """Raise `cannot(…)` if the format cannot hold what has become of this task."""
        for field, what, hint in self.refused:
            if task.status == field or _asks_for(task, field):
                raise self.cannot(what, hint.format(id=quoted(task.id)))

    def refuse_event(self, event: Event) -> None:
        """Raise if whoever is named may not do this on such a board."""

    def _reading(self) -> Nothing | Any:
        """A context in which files may be read by somebody who holds no guard."""
        return Nothing()

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return random_ids(len(tasks))

    def takes_id(self, task_id: str) -> bool:
        """Can a task have this id here?"""
        return True

    def companion_folder(self) -> str:
        return self.folder

    def _open_log(self) -> EventLog:
        return EventLog(os.path.join(self.companion.folder, "changelog.log"), self.durable)

    # -- what a dialect may use

    def cannot(self, what: str, hint: str) -> Unsupported:
        """The error for something that would have to bind everybody, and that the format has no place for."""
        return Unsupported(
            f"a {self.dialect} board cannot keep {what}: document {self.document} has no place for them",
            hint=hint,
            capability=what,
        )

    def _read(self, path: str) -> bytes | None:
        """One of the document's files; None if there is none. A link is not followed: a claim would write to whatever
        it leads to."""
        try:
            return fs.read_file(path, follow=False)
        except OSError as error:
            raise self.damaged(path, error.strerror or str(error)) from None

    def damaged(self, path: str, why: str) -> BoardUnusable:
        return BoardUnusable(
            f"{path} cannot be used: {why}; it was left alone",
            hint="put it right by hand, or bring it back from version control; then: dibs check",
            path=path,
        )

    def unusable(self, error: OSError, so: str = "") -> BoardUnusable:
        """What the system would not do."""
        path = str(error.filename2 or error.filename or self.folder)  # of a rename: what was to be replaced
        return BoardUnusable(
            f"{path}: {error.strerror or error}{'; ' + so if so else ''}",
            hint="see that the folder is there, that you may write to it and that the disk has room; then: dibs doctor",
            path=path,
        )

    def held_by_hand(self, task: BoardTask, kind: str = "agent", lease: float | None = None) -> None:
        """Complete a row that the files call claimed: everything that the companion may know better."""
        task.holder = Worker(task.assigned_to or NOBODY, kind)
        task.assigned_to = task.holder.name
        task.claimed_at = task.claimed_at if task.claimed_at is not None else 0.0
        task.token = token_at(task.claimed_at)
        task.lease = lease or FOREVER
        since = task.claimed_at if lease else max(task.claimed_at, _LONG_AGO)
        task.lease_expires_at = since + task.lease

    def adopt(self, rows: Sequence[BoardTask]) -> None:
        """These are all the tasks there are, oldest first."""
        tables = self.tables = Tables()
        self.top_token = 0
        by_id = {task.id: task for task in rows}
        for seq, task in enumerate(rows, 1):
            task.seq = seq
            self._describe(task, by_id)
            for need in task.depends_on:
                tables.dependants.setdefault(need, {})[task.id] = None
        tables.fill(rows)
        tables.last_task = len(rows)
        self._take_locks(rows)

    def update(self, rows: Sequence[BoardTask]) -> None:
        """These tasks have changed, or are new; every other is as it was."""
        tables = self.tables
        affected: dict[str, None] = {}
        for task in rows:
            before = tables.tasks.get(task.id)
            if before is None:
                tables.last_task += 1
                task.seq = tables.last_task
            else:
                task.seq = before.seq
                for need in before.depends_on:
                    tables.dependants.get(need, {}).pop(task.id, None)
            for need in task.depends_on:
                tables.dependants.setdefault(need, {})[task.id] = None
            if before is None or before.status is not task.status:
                affected.update(tables.dependants.get(task.id, {}))
            tables.put(task)
        for task in rows:
            tables.remove(task.id)
            self._describe(task, tables.tasks | {task.id: task} if task.id in task.depends_on else tables.tasks)
            tables.put(task)
        for task_id in affected:
            waiting = tables.remove(task_id)
            assert waiting is not None
            waiting.unmet = self._unmet(waiting, tables.tasks)
            tables.put(waiting)
        self._take_locks(tables.tasks.values())

    def _describe(self, task: BoardTask, by_id: Mapping[str, BoardTask]) -> None:
        task.unmet = self._unmet(task, by_id)
        self.companion.describe(task)
        if task.token is not None and self.top_token < task.token < token_at(self.clock.wall() + AHEAD):
            self.top_token = task.token

    def _unmet(self, task: BoardTask, by_id: Mapping[str, BoardTask]) -> int:
        if not task.depends_on:
            return 0
        needs = dict.fromkeys(task.depends_on)  # a hand may have written one twice
        return sum((other := by_id.get(need)) is None or other.status not in self.satisfied_by for need in needs)

    def _take_locks(self, rows: Iterable[BoardTask]) -> None:
        """The locks that come with claims: the paths of the tasks in progress."""
        locks = self.tables.locks = {}
        for task in rows:
            if task.paths and task.status is IN_PROGRESS and task.holder is not None and task.token is not None:
                for path in task.paths:
                    locks[path, task.token] = Lock(
                        path, task.holder, task.token, task.claimed_at or 0.0, task.lease_expires_at or 0.0,
                        task.lease or FOREVER, task_id=task.id,
                    )  # fmt: skip

    # -- the store

    def take_turn(self) -> None:
        """One transaction at a time. A forked child has its parent's store as some thread left it: it starts anew."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self.turn = allocate_lock()
            self.log = self._open_log()
            self.companion.doubt()
            self._forget()
        self.turn.acquire()

    def transaction(self, now: float) -> DialectTx:
        return DialectTx(self, now)

    def write(self) -> Write:
        return Write(self)

    def read(self) -> Read:
        return Read(self)

    def refresh(self) -> None:
        """Read whatever has changed since the last time."""
        noted = self.companion.load() | self._noted
        self._noted = set()
        unsure, self._unsure = self._unsure, None
        self._load(noted)
        if unsure is not None:
            self._judge_noted(*unsure)

    def _forget(self) -> None:
        """Decode everything at the next load."""
        raise NotImplementedError

    def try_claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> None:
        """Files have no fast path."""

    def try_complete(self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None) -> None:
        """As `try_claim`."""

    def stable_seq(self) -> int | None:
        return None

    def mark_change(self) -> int:
        return hash(tuple(fs.stamp(path) for path in (*self._files(), self.companion.path, self.log.path)))

    def wait_change(self, mark: int, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while self.mark_change() == mark:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL, left))
        return True

    def close(self) -> None:
        """Nothing stays open between two transactions."""

    # -- looking it over: nothing here takes a guard, waits, or changes anything

    def guards(self) -> list[Guard]:
        """The guards whose holders `dibs doctor` names, none of them acquired."""
        return [self._guard()]

    def report(self) -> list[Part]:
        """What is on the disk; a dialect adds its own markers."""
        from dibs.dialects.inspection import parts

        return parts(self)

    def check(self) -> list[Finding]:
        """What is wrong with the files; a dialect that can tell more overrides it."""
        from dibs.dialects.inspection import findings

        return findings(self)

    def rebuild(self, write: bool) -> str | list[str]:
        """The derived files as text or, with `write`, written under the guard: their paths."""
        raise Unsupported(
            f"a {self.dialect} board has nothing to rebuild: document {self.document} derives no file from others",
            hint="to look its files over: dibs check",
            capability="derived files",
        )


def _asks_for(task: BoardTask, field: str) -> bool:
    """Is this field of a task, if it is one, other than for a task that asks for nothing?"""
    value = getattr(task, field, None)
    if field == "max_attempts":
        return value is not None
    return value != "any" if field == "reserved" else bool(value)
