"""The part of a transaction that is about finding tasks: what the first trip fetches (`foresee`), and the verbs that
are answered from it.

What was fetched counts as this transaction has changed it since, so nothing has to be asked again: a task that has been
given back, or waited for the one that is just completed, is ready like those that were found ready.

Mostly the best ready task can be had, and nothing else is due. What is needed otherwise (what follows when its files
are held, or nothing is left; what the dead hold; the history of tasks that have used up their attempts) costs the
server more than the claim itself, so it is fetched when the first of it is asked for, all at once (`_see_all`). It
comes with the first trip if that is likely, or if the short way was tried in vain: then there is no trip to spare.
"""

from __future__ import annotations

import time

from dibs.model import IN_PROGRESS, BoardTask, Lock, Worker
from dibs.store import Collision
from dibs.stores.postgres import foresight as f
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.path_locks import PathLocks
from dibs.stores.queries import TASK
from dibs.stores.rows import lines, lock_from, task_from, worker_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from dibs.store import Living
    from dibs.stores.postgres.links import Row, Statement

    Wanted = list[tuple[tuple[str, Any], Statement]]

_FIRST = -(2**31)
_WIDTH = len(TASK.split(", "))


def _lanes(reserved: Sequence[str]) -> list[tuple[str, bool]]:
    """Where a worker of some kind finds its tasks: the lane, and whether only what anybody may take."""
    return [("open", True), ("human", False)] if "human" in reserved else [("open", False)]


def _order(task: BoardTask) -> tuple[int, int]:
    return -task.priority, task.seq


def _row_order(row: Row) -> tuple[int, int]:
    return row[7], row[0]


def _is_due(task: BoardTask, now: float) -> bool:
    return task.status is IN_PROGRESS and task.lease_expires_at is not None and task.lease_expires_at <= now


class _Ready:
    """What is known of the ready tasks: the best that nobody is at; a look at the first ones, if there was doubt about
    the files of those; whether that is all that could be had; and whether the server was sure that some could be."""

    def __init__(self, free: list[BoardTask], ahead: list[BoardTask], wanted: int, is_all: bool, is_sure: bool) -> None:
        self.free = free
        self.ahead = ahead
        self.is_all = is_all
        self.is_sure = is_sure
        self.candidates = list(free)
        self.horizon: tuple[int, int] | None = None
        """Of what comes behind this, only a part is known; None: all is."""
        for of_humans in (False, True):
            lane = [_order(task) for task in free if (task.reserved == "human") is of_humans]
            if len(lane) < wanted:
                continue  # it passed over the rest, because others are at it
            last = max(lane)
            self.candidates += [t for t in ahead if (t.reserved == "human") is of_humans and _order(t) > last]
            if not is_all:
                self.horizon = min(last, self.horizon or last)


class Foreseeing(PathLocks):
    passes_over = True
    _known_ready: _Ready | None = None
    _claiming: tuple[Worker, Sequence[str], int] | None = None
    _reaping = False
    _has_left = False
    """Has the first trip fetched what may have been left behind?"""
    _living: Living | None = None
    """To be asked who lives when the rest is fetched; None: it has been, or there is none."""
    _is_gone: Callable[[Worker], bool] | None = None
    _here: str | None = None
    _presumed: Sequence[str] | None = None
    """The holders that were taken for alive when it was looked for ready tasks (None: all), of those with `_here` in
    their record."""

    def foresee(
        self,
        *,
        name: str | None = None,
        ending: str | None = None,
        holders: bool = False,
        claiming: tuple[Worker, Sequence[str], int] | None = None,
        taking: str | None = None,
        key: str | None = None,
        reaping: bool = False,
        living: Living | None = None,
        is_gone: Callable[[Worker], bool] | None = None,
        thorough: bool = False,
    ) -> None:
        board, wall = self._board, self._wall
        wanted: Wanted = []
        if key is not None:
            wanted.append((("answer", key), (q.RECALL, (board, key))))
        if claiming is not None or taking is not None:
            wanted.append((("due", None), (f.DUE_NOW, (board, wall, 1000))))
        if taking is not None:
            wanted.append((("needs", taking), (f.NEEDS_OF_ID, (board, taking))))
        for task_id in filter(None, (ending, taking)):
            wanted.append((("task", task_id), (f.TASK_BY_ID, (board, task_id))))
        if ending is not None:
            wanted.append((("dependants", ending), (f.DEPENDANTS_OF_ID, (board, ending))))
            wanted.append((("locks of", ending), (q.LOCKS_OF_TASK, (board, ending))))
        if name is not None:
            wanted += self._held_by(name)
        if holders:
            wanted.append((("in progress beside", ending), (f.IN_PROGRESS_BESIDE, (board, ending))))
            wanted.append((("locks beside", ending), (f.LOCKS_BESIDE, (board, ending))))
        if claiming is not None or taking is not None:
            self._claiming, self._reaping, self._living, self._is_gone = claiming, reaping, living, is_gone
            if thorough:
                wanted += self._everything()
            else:
                if claiming is not None:
                    who, reserved, limit = claiming
                    wanted += self._ready_by(("free",), reserved, limit, (), who)
                if reaping and living is not None:
                    wanted += self._left(*living(), 0, f.LEFT_TASKS_IF_FEW)
                    self._has_left = True
                wanted.append(self._near_all())
        self._fetch(wanted)
        if claiming is not None:
            self._known_ready = self._found_ready(claiming[2], is_all=thorough)
        if claiming is not None or taking is not None:
            self._knows_paths(self._known_ready)
        if holders and (rows := self._foreseen["task", ending]):
            self._foreseen["in progress", rows[0][4]] = self._foreseen.pop(("in progress beside", ending))
            self._foreseen["locks by", rows[0][4]] = self._foreseen.pop(("locks beside", ending))

    def _everything(self) -> Wanted:
        """All that a claim may need, once: the best ready tasks, what is left if others are at all of them, what
        follows if there is doubt; what may have been left behind; what befell those that have used up their
        attempts."""
        living, self._living = self._living, None
        here, alive = living() if living is not None else ("", ())
        self._here, self._presumed = here, alive
        wanted: Wanted = []
        limit = 0
        if self._claiming is not None:
            who, reserved, limit = self._claiming
            wanted += self._all_ready(reserved, limit, (), who)
        if not self._has_left:
            wanted += self._left(here, alive, limit, f.LEFT_TASKS)
        elif gone := self._gone():
            wanted.append((("left by", None), (f.TASKS_OF, (self._board, gone, 1000))))
        wanted.append((("histories", None), (f.HISTORIES, (self._board,))))
        return [*wanted, self._near_all()]

    def _left(self, here: str, alive: Sequence[str], limit: int, tasks: str) -> Wanted:
        """What may have been left behind, if it is time to look, or fewer were found than this."""
        values = (self._board, here, list(alive), self._reaping, limit)
        return [
            (("left tasks", None), (tasks, values)),
            (("left locks", None), (f.LEFT_LOCKS, (*values, self._wall))),
        ]

    def _see_all(self) -> bool:
        """Fetch what the first trip did not, if it did not; was it fetched now? Also tasks whose paths are known to be
        held: by whom is dead, perhaps."""
        if self._living is None:
            return False
        self._fetch(self._everything())
        if self._claiming is not None:
            self._known_ready = self._found_ready(self._claiming[2], is_all=True)
        self._knows_paths(self._known_ready)
        return True

    def _gone(self) -> list[str]:
        """Who has gone of those whose tasks were too many to be fetched."""
        known, is_gone = self._foreseen.get(("left tasks", None)), self._is_gone
        holders = known[0][_WIDTH + 1] if known else None
        return [text for text in holders or () if is_gone is not None and is_gone(worker_from(text))]

    def _fetch(self, wanted: Wanted) -> None:
        for (about, _), rows in zip(wanted, self._ask(*(statement for _, statement in wanted)), strict=True):
            self._foreseen[about] = rows

    def _ready_by(
        self, ways: Sequence[str], reserved: Sequence[str], limit: int, without: Sequence[str], who: Worker | None
    ) -> Wanted:
        return [
            ((way, lane), self._ready(lane, only, limit, None, without, way, who))
            for way in ways
            for lane, only in _lanes(reserved)
        ]

    def _all_ready(self, reserved: Sequence[str], limit: int, without: Sequence[str], who: Worker | None) -> Wanted:
        """All that could be had of the ready tasks."""
        asker = (who.name, who.session) if who is not None else (None, None)
        return [
            (("none", None), (f.FOUND_NONE, ())),
            *self._ready_by(("free", "rest"), reserved, limit, without, who),
            (("doubt", None), (f.DOUBT, (self._board, self._wall, *asker))),
            *self._ready_by(("ahead", "next"), reserved, limit, without, who),
        ]

    def _near_all(self) -> tuple[tuple[str, Any], Statement]:
        """The locks near all paths of which word was left."""
        return ("near", None), (f.LOCKS_RELATED, (self._board,))

    def _found_ready(self, limit: int, is_all: bool) -> _Ready:
        """What has just been fetched."""
        found: dict[str, list[Row]] = {"free": [], "rest": [], "next": [], "ahead": []}
        for way, lane in [about for about in self._foreseen if about[0] in found]:
            found[way] += self._foreseen.pop((way, lane))
        best = sorted(found["free"] + found["rest"], key=_row_order)
        self._note_front(best)
        rows = {row[0]: row for row in (*best, *found["next"])}
        free = sorted(self._current(list(rows.values())), key=_order)
        is_sure = any(row[_WIDTH + 1] for row in found["ahead"])
        if (doubt := self._foreseen.pop(("doubt", None), None)) and doubt[0][0] == "false":
            is_sure = bool(free)
        return _Ready(free, sorted(self._take_look(found["ahead"]), key=_order), limit, is_all, is_sure)

    def _knows_paths(self, ready: _Ready | None) -> None:
        """A trip has fetched all locks near the paths of the tasks that it found."""
        locks = [lock_from(row) for row in self._foreseen.pop(("near", None))]
        noted = ("due", "left tasks", "left by", "task", "dependants")
        paths = [row[15] for (about, _), rows in self._foreseen.items() if about in noted for row in rows]
        tasks = [*ready.free, *ready.ahead] if ready else []
        patterns = [pattern for text in paths if text for pattern in text.split("\n")]
        self._knows_near([*patterns, *(pattern for task in tasks for pattern in task.paths)], locks)

    def _held_by(self, name: str) -> Wanted:
        return [
            (("in progress", name), (q.IN_PROGRESS_BY, (self._board, name))),
            (("locks by", name), (q.LOCKS_BY, (self._board, name))),
        ]

    # -- tasks

    def _take(self, rows: Iterable[Row]) -> list[BoardTask]:
        tasks = []
        for row in rows:
            task = task_from(row[:_WIDTH])
            self._newest[task.id] = row[_WIDTH - 1]
            tasks.append(task)
        return tasks

    def _current(self, rows: Sequence[Row]) -> list[BoardTask]:
        """Tasks as this transaction has left them, where it has changed them since."""
        return [self._saved.get(row[0]) or self._take([row])[0] for row in rows]

    def _take_look(self, rows: Sequence[Row]) -> list[BoardTask]:
        """Tasks that are not held, but for those that this transaction has changed since."""
        tasks = self._current(rows)
        if self._writing:
            for task in tasks:
                if task.seq not in self._saved:
                    self._looks(task, self._newest[task.id])
        return tasks

    def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
        if not ids:
            return {}
        rows = self._foreseen.pop(("task", ids[0]), None) if len(ids) == 1 else None
        if rows is None:
            rows = self._needs(ids)
        if rows is None:
            if self._writing and (known := self._known(ids)) is not None:
                return known
            rows = self._one(q.TASKS_BY_ID[self._writing], list(ids))
        found = {task.id: task for task in self._current(rows)}
        return {i: found[i] for i in ids if i in found}

    def _known(self, ids: Sequence[str]) -> dict[str, BoardTask] | None:
        """Tasks that this transaction has changed, or looked at: those are seen to at the end. None if there are
        others."""
        known = {task.id: task for task in self._saved.values()}
        known = {i: task for i in ids if (task := known.get(i) or self._looked.get(i)) is not None}
        if len(known) < len(set(ids)):
            return None
        for task in known.values():
            self._expects(task)
        return known

    def _needs(self, ids: Sequence[str]) -> list[Row] | None:
        """What the task that is being taken waits for, if it is this and was fetched before."""
        for about, rows in self._foreseen.items():
            if about[0] == "needs" and about[1] not in ids and {row[1] for row in rows} == set(ids):
                return rows
        return None

    def again(self, task: BoardTask) -> BoardTask | None:
        rows = self._foreseen.pop(("task", task.id), None)
        if rows is None:
            rows = self._one(q.TASK_AGAIN[self._writing], task.seq, task.id)
        found = self._current(rows)
        return found[0] if found and found[0].seq == task.seq else None

    def ready(
        self,
        reserved: Sequence[str],
        limit: int,
        after: BoardTask | None,
        held: Sequence[list[str]],
        *,
        who: Worker | None = None,
        look: bool = False,
    ) -> list[BoardTask]:
        known = self._known_ready
        if known is not None and look and known.is_all:
            if known.is_sure:  # and yet it could not be had, by what was fetched behind it in the same trip
                raise Collision("others were faster", hint="try again in a moment")
            return self._now_ready(known.ahead, reserved, None, held)[:limit]
        while not look:
            if known is not None:
                found = self._now_ready(known.candidates, reserved, after, held)
                if known.horizon is not None and self._living is not None:
                    found = [task for task in found if _order(task) <= known.horizon]
                if found or (known.is_all and self._living is None):
                    return found[:limit]
            if not self._see_all():
                break
            known = self._known_ready
        return self._ask_ready(reserved, limit, after, held, who, look)

    def _now_ready(
        self, known: Sequence[BoardTask], reserved: Sequence[str], after: BoardTask | None, held: Sequence[list[str]]
    ) -> list[BoardTask]:
        """Of some tasks, and of those that this transaction has made ready, those that are ready now."""
        tasks = [task for task in known if task.seq not in self._saved]
        tasks += [task for task in self._saved.values() if task.is_ready and task.reserved in reserved]
        begin = _order(after) if after else (_FIRST, 0)
        return sorted([task for task in tasks if _order(task) > begin and task.paths not in held], key=_order)

    def _ask_ready(
        self,
        reserved: Sequence[str],
        limit: int,
        after: BoardTask | None,
        held: Sequence[list[str]],
        who: Worker | None,
        look: bool,
    ) -> list[BoardTask]:
        without = [text for paths in held if (text := lines(paths))]
        if look or not self._writing:
            asked = [self._ready(lane, only, limit, after, without, "no", who) for lane, only in _lanes(reserved)]
            rows = sorted((row for rows in self._ask(*asked) for row in rows), key=_row_order)
            return self._take_look(rows[:limit])
        if after is None:
            wanted = self._all_ready(reserved, limit, without, who)
        else:  # whoever holds some already waits for no others
            wanted = [
                (("free", lane), self._ready(lane, only, limit, after, without, "free", who))
                for lane, only in _lanes(reserved)
            ]
        self._fetch([*wanted, self._near_all()])
        found = self._found_ready(limit, is_all=after is None)
        self._knows_paths(found)
        if after is not None:
            return found.free
        self._known_ready = found
        return self._now_ready(found.candidates, reserved, None, held)[:limit]

    def _note_front(self, rows: Sequence[Row]) -> None:
        if rows:
            first = min(rows, key=_row_order)
            if first[0] - first[_WIDTH] > self._store.fronts.far:
                self.far_front = ("human" if first[20] == "human" else "open", first[7])

    def _ready(
        self,
        lane: str,
        only_any: bool,
        limit: int,
        after: BoardTask | None,
        without: Sequence[str],
        way: str,
        who: Worker | None,
    ) -> Statement:
        rank, seq = (_FIRST, 0) if after is None else (-after.priority, after.seq + 1)
        one = limit == 1
        if way == "next":
            return f.ready(lane, only_any, way, one), (self._board, who.name if who is not None else None)
        values = (
            self._board,
            rank,
            seq,
            list(without),
            self._wall,
            who.name if who is not None else None,
            self._here,
            list(self._presumed or ()),
            who.session if who is not None else None,
            *(() if one else (limit,)),
        )
        return f.ready(lane, only_any, way, one), values

    def due(self, limit: int) -> list[BoardTask]:
        rows = self._foreseen.pop(("due", None), None)
        if rows is None:
            rows = self._one(q.DUE[self._writing], self.now, limit)
        return [task for task in self._current(rows) if _is_due(task, self.now) or task.seq not in self._saved]

    def in_progress(self, name: str | None = None) -> list[BoardTask]:
        if name is None:
            return self._take_look(self._one(q.IN_PROGRESS))
        rows = self._foreseen.pop(("in progress", name), None)
        if rows is None:
            # Whoever asks what a worker works on will ask for its locks next.
            rows, self._foreseen["locks by", name] = self._ask(*(statement for _, statement in self._held_by(name)))
        tasks = self._take_look([row for row in rows if row[0] not in self._saved])
        return tasks + [t for t in self._saved.values() if t.status is IN_PROGRESS and t.assigned_to == name]

    def left_behind(
        self, is_gone: Callable[[Worker], bool], living: Living
    ) -> tuple[list[BoardTask], list[Lock], float]:
        known = self._foreseen.get(("left tasks", None))
        if (known is None or not known[0][_WIDTH]) and self._see_all():
            known = self._foreseen.get(("left tasks", None))
        if known is None or not known[0][_WIDTH]:
            self._reaping = True
            self._fetch([*self._left(*living(), 0, f.LEFT_TASKS), self._near_all()])
            self._knows_paths(None)
        rows, locks = self._foreseen["left tasks", None], self._foreseen.pop(("left locks", None))
        seconds = rows[-1][_WIDTH + 2]
        began = time.monotonic()
        if rows[0][_WIDTH + 1] is not None:
            if self._gone():
                self._see_all()
            rows = self._foreseen.pop(("left by", None), [])
        del self._foreseen["left tasks", None]
        looked = self._take_look([row for row in rows if row[0]])
        tasks = [t for t in looked if t.status is IN_PROGRESS and t.holder and is_gone(t.holder)]
        found = [lock for lock in map(lock_from, locks) if lock.expires_at <= self.now or is_gone(lock.holder)]
        return tasks, found, seconds + time.monotonic() - began

    def drop_locks(self, locks: Sequence[Lock]) -> None:
        super().drop_locks(locks)
        if any(self._was_presumed(lock) for lock in locks):
            self._known_ready = None  # it does not know of those whose paths these were

    def _was_presumed(self, lock: Lock) -> bool:
        """Was this taken for held when it was looked for ready tasks?"""
        is_own = self._claiming is not None and lock.holder.is_same(self._claiming[0])
        lived = self._presumed is None or lock.holder.text in self._presumed
        return lived and lock.expires_at > self.now and not is_own

    def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        if len(tasks) == 1 and (known := self._foreseen.pop(("dependants", tasks[0].id), None)) is not None:
            return self._current(known)
        return self._take(self._one(q.DEPENDANTS[self._writing], [task.seq for task in tasks]))
