"""Verbs for file locks, and where paths belong."""

from __future__ import annotations

import os
import time

from dibs import holds, limits, rules
from dibs.errors import Busy, Invalid, NotFound
from dibs.model import Lock, Worker
from dibs.paths import find_place, normalise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from dibs.store import Store, Tx

    T = TypeVar("T")


class Locking:
    if TYPE_CHECKING:
        _store: Store
        _lease: float | None

        def _who(self, worker: Worker | str | None) -> Worker | None: ...
        def _reap(self, tx: Tx) -> bool: ...
        def _keep_alive(self, tx: Tx, who: Worker) -> None: ...

    def _pattern(self, path: str) -> str:
        """A path as given, from wherever we are, as the pattern under which every worktree knows it."""
        home = self._store.place
        if not isinstance(path, str):
            raise Invalid(f"a path must be text, not {type(path).__name__}")
        if home is None:
            return normalise(path)
        here = os.getcwd()
        tree = self._worktree()
        if tree is not None:
            return normalise(path, root=tree, cwd=here, roots=(home,))
        inside = here == home or here.startswith(home + os.sep)
        return normalise(path, root=home, cwd=here if inside else home)

    def _worktree(self) -> str | None:
        """The git worktree of this board's repository that the process stands in."""
        home = self._store.place
        if home is None:
            return None
        place = find_place(os.getcwd())
        return place.worktree if place.worktree is not None and place.home == home else None

    def lock(
        self,
        paths: Sequence[str],
        worker: Worker | str,
        *,
        shared: bool = False,
        lease: float | None = None,
        wait: float = 0,
    ) -> list[Lock]:
        """Hold files, folders or globs: all of them, or `Busy` and none. Asking again renews. `wait`: seconds to wait for others."""
        who = self._who(worker)
        if who is None:
            raise Invalid("a lock needs a worker")
        patterns = [self._pattern(p) for p in limits.texts(paths, "paths")]
        if not patterns:
            raise Invalid("nothing to lock", hint="name a path: dibs lock src/auth.py")
        length = limits.seconds(lease, "lease") if lease is not None else self._lease or rules.LEASES[who.kind]
        tree = self._worktree()

        def attempt() -> list[Lock]:
            with self._store.write() as tx:
                held = tx.locks(patterns)
                if holds.conflicts(patterns, shared, held, who, tx.now) and self._reap(tx):
                    held = tx.locks(patterns)
                granted, event = holds.take(patterns, shared, held, who, tx.next_token(), tx.now, length, tree)
                tx.drop_locks([lock for lock in held if lock.expires_at <= tx.now])
                tx.save_locks(granted)
                tx.append([event])
                self._keep_alive(tx, who)
                return granted

        end = time.monotonic() + wait
        while True:
            mark = self._store.mark_change()
            try:
                return attempt()
            except Busy as error:
                left = end - time.monotonic()
                if left <= 0:
                    raise
                soonest = min((lock.expires_at for lock in error.conflicts), default=0.0)
                self._store.wait_change(mark, min(left, max(0.05, soonest - time.time()), 1.0))

    def unlock(self, paths: Sequence[str] | None, worker: Worker | str) -> list[Lock]:
        """Give back locks of this worker: the named ones, or (None) all that were not taken with a task."""
        who = self._who(worker)
        if who is None:
            raise Invalid("unlocking needs a worker")
        with self._store.write() as tx:
            own = [lock for lock in tx.locks(name=who.name) if lock.holder.is_same(who)]
            if paths is None:
                gone = [lock for lock in own if lock.task_id is None]
            else:
                wanted = [self._pattern(p) for p in limits.texts(paths, "paths")]
                gone = [lock for lock in own if lock.pattern in wanted]
                for pattern in wanted:
                    if all(lock.pattern != pattern for lock in gone):
                        raise NotFound(f"{who.name} holds no lock on {pattern}", hint="see who holds what: dibs locks")
                for lock in gone:
                    if lock.task_id is not None:
                        raise Invalid(
                            f"{lock.pattern} is locked together with task {lock.task_id}",
                            hint=f"it is given back with the task: dibs done {lock.task_id}, or dibs release {lock.task_id}",
                        )
            self._drop(tx, gone, who)
            self._keep_alive(tx, who)
        return gone

    def _drop(self, tx: Tx, locks: Sequence[Lock], who: Worker, why: str | None = None) -> None:
        if locks:
            tx.drop_locks(locks)
            tx.append([holds.dropped(locks, who, why)])

    def locks(self, paths: Sequence[str] | None = None) -> list[Lock]:
        """The live locks: all, or those that overlap one of the paths."""
        patterns = None if paths is None else [self._pattern(p) for p in paths]
        with self._store.read() as tx:
            held = [lock for lock in tx.locks(patterns) if lock.expires_at > tx.now]
            return held if patterns is None else holds.conflicts(patterns, False, held, None, tx.now)

    def _until(self, attempt: Callable[[], T], timeout: float) -> T:
        """Repeat an attempt after every change of the board, until it gives something or the time is over."""
        end = time.monotonic() + timeout
        while True:
            mark = self._store.mark_change()
            found = attempt()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            # Expiry and death make work available without any commit, so look once a second all the same.
            self._store.wait_change(mark, min(left, 1.0))
