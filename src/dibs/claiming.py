"""Claiming, and ending a claim: claim, complete, fail, release, renew."""

from __future__ import annotations

import os

from dibs import holds, limits, rules
from dibs.core import retried
from dibs.errors import Busy, DibsError, Invalid, NotClaimable
from dibs.jsontext import dumps, loads
from dibs.model import COMPLETED, FAILED, IN_PROGRESS, REVIEW, BoardTask, Event, Lock, Worker
from dibs.nearby import Near
from dibs.recovering import Recovering
from dibs.store import Collision
from dibs.worker import is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar, overload

    from dibs.store import Tx

    T = TypeVar("T")

WALK = 256
"""Tasks that are looked at together where the best ones cannot be had."""
RACES = 20
"""So often may workers by hand be faster before a claim says so."""


class Claiming(Recovering):
    if TYPE_CHECKING:

        @overload
        def claim(
            self,
            worker: Worker | str,
            task_id: str | None = None,
            *,
            lease: float | None = None,
            request_key: str | None = None,
            wait: float = 0,
        ) -> BoardTask | None: ...

        @overload
        def claim(
            self,
            worker: Worker | str,
            task_id: None = None,
            *,
            n: int,
            lease: float | None = None,
            request_key: str | None = None,
            wait: float = 0,
        ) -> list[BoardTask]: ...

    def claim(
        self,
        worker: Worker | str,
        task_id: str | None = None,
        *,
        n: int | None = None,
        lease: float | None = None,
        request_key: str | None = None,
        wait: float = 0,
    ) -> BoardTask | list[BoardTask] | None:
        """Claim the best available task, or the named one, or up to `n`. Nothing available: None (or an empty list).

        With `wait`, block up to that many seconds for something to become available. A named task that cannot be
        claimed raises `NotClaimable`, which says by what.
        """
        who = self._who(worker)
        if who is None:
            raise Invalid("a claim needs a worker", hint='board.claim("worker-1")')
        if n is not None:
            limits.integer(n, "n", 1, 10_000)
        if lease is not None:
            lease = limits.seconds(lease, "lease")
        if task_id is not None:
            limits.task_id(task_id)
        limits.wait(wait)
        refusal: list[NotClaimable | Collision] = []

        def once() -> list[BoardTask]:
            if task_id is None and request_key is None and (found := self._try_claim(who, n or 1, lease)):
                return found
            return self._claim_by_transaction(who, task_id, n or 1, lease, request_key)

        def attempt() -> list[BoardTask]:
            refusal.clear()
            try:
                return self._unraced(once)
            except NotClaimable as error:
                if not rules.may_pass(error):
                    raise
                refusal.append(error)
            except Collision as error:  # others are at what there is; whoever can wait does
                refusal.append(error)
            return []

        taken = attempt()
        if not taken and wait > 0:
            taken = self._until(attempt, wait, who)
        if refusal:
            raise refusal[0]
        for task in taken:
            self._hand_out(task)
        if n is not None:
            return taken
        return taken[0] if taken else None

    @retried
    def _claim_by_transaction(
        self, who: Worker, task_id: str | None, n: int, lease: float | None, request_key: str | None
    ) -> list[BoardTask]:
        with self._store.write() as tx:
            return self._claim(tx, who, task_id, n, lease, request_key)

    def _try_claim(self, who: Worker, n: int, lease: float | None) -> list[BoardTask] | None:
        """The plain claim where the store has a fast path for it."""
        length = rules.lease_length(who, lease, self._lease)
        taken = self._store.try_claim(who, rules.reserved_for(who.kind), n, length)
        if taken:
            self._look_again(who, length)
            self._catch_up(who, taken[0].claimed_at or 0.0)
        return taken

    def _try_complete(
        self, task_id: str, worker: Worker | str | None, token: int | None, result: str | None
    ) -> BoardTask | None:
        """The plain completion, likewise."""
        caller, token = self._credentials(task_id, worker, token)
        holder = self._holder(task_id, caller, token)
        if token is None or holder is None:
            return None
        name, kind = (caller.name, caller.kind) if caller else (None, None)
        done = self._store.try_complete(task_id, name, kind, token, result)
        if done is not None:
            self._forget(done)
            self._catch_up(holder, done.completed_at or 0.0)
        return done

    def _catch_up(self, who: Worker, now: float) -> None:
        """After a fast path: renew and reap as any other verb does, if it is time. What was done is committed, so this
        may come to nothing."""
        if not (self._is_look_due(who, now) or self._is_reaping_due(now)):
            return
        try:
            with self._store.write() as tx:
                self._reap_if_due(tx, alive=who)
                self._keep_alive(tx, who)
        except DibsError:
            self._forget_looks()

    def _unraced(self, attempt: Callable[[], T]) -> T:
        """An attempt whose choice a worker by hand took a moment before it is made again: it sees that now."""
        for _ in range(RACES):
            try:
                return attempt()
            except NotClaimable as error:
                if not error.raced:
                    raise
        return attempt()

    def _is_ours(self, task: BoardTask) -> bool:
        """Was this claim made by this process, as far as it says? A forked child inherits the object, not the claim."""
        return task.holder is None or task.holder.pid in (None, os.getpid())

    def _hand_out(self, task: BoardTask) -> None:
        task._board = self
        if task.token is not None:
            self._tokens[task.id] = task.token, task.holder

    def _forget(self, task: BoardTask) -> None:
        """A claim was ended by its own verb, and that is committed."""
        if task.token is not None and self._tokens.get(task.id, (None, None))[0] == task.token:
            del self._tokens[task.id]

    def _claim(
        self,
        tx: Tx,
        who: Worker,
        task_id: str | None,
        n: int,
        lease: float | None,
        request_key: str | None,
        after: Callable[[], object] = lambda: None,
    ) -> list[BoardTask]:
        """Claim within a transaction, after something else has been done in it."""
        key = None if request_key is None else limits.request(f"claim by {who.name} {who.session}", request_key)
        after()
        if key is not None and (answer := tx.requests(key)):
            return self._claimed_before(tx, loads(answer[key][0]), [task_id, n])
        reaped = self._sweep(tx)
        if task_id is not None:
            try:
                found = self._named(tx, who, task_id, reaped)
            except NotClaimable:
                if key is None or not (answer := tx.requests(key)):
                    raise
                return self._claimed_before(tx, loads(answer[key][0]), [task_id, n])  # made at the same time as this
            if found.status is IN_PROGRESS:  # the same session asks again for what it holds
                self._keep_alive(tx, who)
                return [self._get(tx, task_id)]
            free = [found]
        else:
            free = self._available(tx, who, n, claim=True)
            if not free and not reaped and self._reap(tx, alive=who):  # holders have died in the last second
                free = self._available(tx, who, n, claim=True)
        if key is not None and not free and (answer := tx.requests(key)):
            return self._claimed_before(tx, loads(answer[key][0]), [task_id, n])
        taken = [self._take(tx, task, who, token, lease) for task, token in zip(free, tx.draw(len(free)), strict=True)]
        if key is not None and taken:
            tx.remember(key, dumps([[task_id, n], [[task.id, task.token] for task in taken]]))
        self._keep_alive(tx, who)  # last: a refused claim must not count as a renewal
        return taken

    def _take(self, tx: Tx, task: BoardTask, who: Worker, token: int, lease: float | None) -> BoardTask:
        length = rules.lease_length(who, lease, self._lease)
        self._look_again(who, length)
        locks = holds.for_task(task, who, token, tx.now, length, self._worktree()) if task.paths else []
        event = rules.claim(task, who, token, tx.now, length, locks)
        tx.save([task])
        tx.save_locks(locks)
        tx.append([event])
        return task

    def _claimed_before(self, tx: Tx, answer: Any, asked: list[Any]) -> list[BoardTask]:
        """The claim that this request key got, if it still holds."""
        before, claims = answer
        if before != asked:
            raise limits.key_was_used()
        tasks = tx.get([task_id for task_id, _ in claims])
        for task_id, token in claims:
            task = tasks[task_id]
            if task.token != token or not rules.is_live(task, tx.now):
                raise rules.lost(task, tx.now)
        return list(tasks.values())

    def _named(self, tx: Tx, who: Worker, task_id: str, reaped: bool) -> BoardTask:
        task = self._get(tx, task_id)
        if task.status is IN_PROGRESS and not rules.is_live(task, tx.now):
            self._give_back(tx, [task], "its lease ran out")
        elif task.status is IN_PROGRESS and task.holder is not None and is_dead(task.holder):
            self._give_back(tx, [task], "the holder's process has died")
        if (
            task.status is IN_PROGRESS
            and task.holder
            and who.session
            and task.holder.session == who.session
            and task.holder.is_same(who)
        ):
            return task
        conflicts = self._path_conflicts(tx, task, who)
        if conflicts and not reaped and self._reap(tx):
            conflicts = self._path_conflicts(tx, task, who)
        why = rules.reasons(task, tx.get(task.depends_on), conflicts, who, tx.now, self._store.satisfied_by)
        if why:
            raise rules.refuse_claim(task, why, who)
        return task

    def _path_conflicts(self, tx: Tx, task: BoardTask, who: Worker | None) -> list[Lock]:
        if not task.paths:
            return []
        return holds.conflicts(task.paths, False, tx.locks(task.paths), who, tx.now)

    def _available(self, tx: Tx, who: Worker, n: int, claim: bool = False) -> list[BoardTask]:
        """Up to `n` tasks that `who` could claim now, best first. `claim`: keep them from others."""
        reserved = rules.reserved_for(who.kind)
        size = n
        if claim:
            batch = tx.ready(reserved, n, claim=True)
            paths = [path for task in batch for path in task.paths]
            near = Near(tx.locks(paths)) if paths else None
            free = [task for task in batch if _is_free(task, who, near, tx.now)]
            if len(free) == n:
                return free
            size = WALK  # something is in the way, or others are at some of them: look at more at once
        free = []
        after: BoardTask | None = None
        held: list[list[str]] = []
        locks: Near | None = None
        while batch := tx.ready(reserved, size, after, held):
            if locks is None and any(task.paths for task in batch):
                locks = Near(tx.locks(["**"]))
            for task in batch:
                if _is_free(task, who, locks, tx.now):
                    free.append(task)
                    if len(free) == n:
                        return free
                elif task.paths and len(held) < 16 and task.paths not in held:
                    held.append(task.paths)  # paths that many tasks share need not be looked at again
            if len(batch) < size:
                break
            after, size = batch[-1], WALK
        return free

    # -- ending a claim

    @retried
    def _with_claim(
        self,
        task_id: str,
        worker: Worker | str | None,
        token: int | None,
        verb: str,
        ended: Sequence[str],
        change: Callable[[Tx, BoardTask, Worker], Event],
        unclaimed: bool = False,
    ) -> BoardTask:
        """The common shape of a holder's verbs: fetch, let repeats pass, check the claim, change, save, log."""
        given = token
        caller, token = self._credentials(task_id, worker, token)
        with self._store.write() as tx:
            task = self._get(tx, task_id)
            token = self._remembered(task, given, token)
            if rules.is_repeat(task, ended, caller, token):
                return task
            over = verb == "release" and rules.could_be_released(task, given)
            if over and rules.was_released(tx.events(0, 30, task.id, newest=True)):
                return task
            if not (unclaimed and rules.may_finish_unclaimed(task, caller, token)):
                rules.require_claim(task, caller, token, tx.now, verb)
            who = caller or task.holder or self._actor()
            self._end(tx, task, change(tx, task, who))
            self._keep_alive(tx, who)
        # Not before the commit, and only by the claim's own verb: the token is what a late writer is known by.
        self._forget(task)
        return task

    def complete(
        self, task_id: str, result: str | None = None, *, worker: Worker | str | None = None, token: int | None = None
    ) -> BoardTask:
        """Mark a claimed task as completed (or submit it for review, if it asks for that)."""
        limits.optional_text(result, "result")

        if (done := self._try_complete(task_id, worker, token, result)) is not None:
            return done

        def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
            return rules.complete(task, who, result, tx.now)

        return self._with_claim(task_id, worker, token, "complete", (COMPLETED, REVIEW), change, unclaimed=True)

    def finish_claim(self, task: BoardTask, result: str | None, *, claim_next: bool) -> BoardTask | None:
        """`BoardTask.complete`: the claimed object itself is brought up to date; with `claim_next` both steps are one
        transaction, unless others are in the way: then what was done is saved first."""
        if not claim_next or task.holder is None:
            task._adopt(self.complete(task.id, result, token=task.token))
            return None
        limits.optional_text(result, "result")
        who = task.holder
        if (fast := self._try_complete(task.id, who, task.token, result)) is not None:
            task._adopt(fast)
            return self._claim_next(who)
        done: list[BoardTask] = []

        def end() -> None:
            now = self._get(tx, task.id)
            done.append(now)
            if not rules.is_repeat(now, (COMPLETED, REVIEW), who, task.token):
                rules.require_claim(now, who, task.token, tx.now, "complete")
                self._end(tx, now, rules.complete(now, who, result, tx.now))

        try:
            with self._store.write() as tx:
                taken = self._claim(tx, who, None, 1, None, None, end)
        except (Collision, NotClaimable):
            self._forget_looks()
            task._adopt(self.complete(task.id, result, worker=who, token=task.token))
            return self._claim_next(who)
        task._adopt(done[0])
        self._forget(task)
        for other in taken:
            self._hand_out(other)
        return taken[0] if taken else None

    def _claim_next(self, worker: Worker | str) -> BoardTask | None:
        """Claim the best available task, for whoever has just completed one and must not take a refusal for that one's:
        while others are at all that is left, there is none."""
        try:
            return self.claim(worker)
        except (Busy, NotClaimable):
            return None

    def fail(
        self, task_id: str, error: str, *, worker: Worker | str | None = None, token: int | None = None
    ) -> BoardTask:
        """Mark a claimed task as failed."""
        limits.text(error, "error")

        def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
            return rules.fail(task, who, error, tx.now)

        return self._with_claim(task_id, worker, token, "fail", (FAILED,), change, unclaimed=True)

    def release(
        self, task_id: str, *, worker: Worker | str | None = None, token: int | None = None, note: str | None = None
    ) -> BoardTask:
        """Give a claimed task back to pending."""
        limits.optional_text(note, "note")

        def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
            return rules.give_back(task, who, tx.now, note, history=self._history(tx, task))

        return self._with_claim(task_id, worker, token, "release", (), change)

    @retried
    def renew(
        self,
        task_id: str,
        *,
        worker: Worker | str | None = None,
        token: int | None = None,
        lease: float | None = None,
    ) -> BoardTask:
        """Start a claim's lease, and that of its locks, anew."""
        limits.task_id(task_id)
        if lease is not None:
            lease = limits.seconds(lease, "lease")
        given = token
        caller, token = self._credentials(task_id, worker, token)
        with self._store.write() as tx:
            task = self._get(tx, task_id)
            token = self._remembered(task, given, token)
            locks = self._locks_of(tx, task)
            rules.require_claim(task, caller, token, tx.now, "renew")
            self._renew(tx, task, locks, lease)
            if task.holder is not None:
                self._keep_alive(tx, task.holder)
        return task


def _is_free(task: BoardTask, who: Worker, locks: Near | None, now: float) -> bool:
    """Could this ready task be given to `who`, as far as other names and these locks are concerned?"""
    if rules.is_anothers(task, who):
        return False
    return not task.paths or locks is None or not holds.conflicts(task.paths, False, locks.to(task.paths), who, now)
