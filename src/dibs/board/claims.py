"""Claiming a task, and ending a claim: claim, complete, fail, release."""

from __future__ import annotations

from dibs import limits
from dibs.board import leases
from dibs.board.core import fetch, retried
from dibs.board.endings import end, give_back, history
from dibs.board.token_memory import binding
from dibs.errors import Busy, DibsError, NotClaimable
from dibs.jsontext import dumps, loads
from dibs.model import COMPLETED, FAILED, IN_PROGRESS, REVIEW, BoardTask, Event, Lock, Worker
from dibs.rules import locks as lock_rules
from dibs.rules import tasks as rules
from dibs.rules.lock_index import LockIndex
from dibs.stores.base import Collision
from dibs.worker import is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from dibs.board.core import Core
    from dibs.stores.base import Tx

    T = TypeVar("T")

NEAREST = 16
"""Tasks that a claim keeps from others while it looks for one that can be had."""
WALK = 256
"""Tasks that are looked at together where the best ones cannot be had."""
RACES = 20
"""So often may workers by hand be faster before a claim says so."""


def claim(
    core: Core,
    worker: Worker | str,
    task_id: str | None = None,
    n: int = 1,
    lease: float | None = None,
    request_key: str | None = None,
    wait: float = 0,
) -> list[BoardTask]:
    """See `TaskBoard.claim`; always a list."""
    who = core.identity.required(worker, "a claim needs a worker", 'board.claim("worker-1")')
    limits.integer(n, "n", 1, 10_000)
    if lease is not None:
        lease = limits.seconds(lease, "lease")
    if task_id is not None:
        limits.task_id(task_id)
    limits.wait(wait)
    refusal: list[NotClaimable | Collision] = []

    def once() -> list[BoardTask]:
        if task_id is None and request_key is None and (found := _try_claim(core, who, n, lease)):
            return found
        return _claim_by_transaction(core, who, task_id, n, lease, request_key)

    def attempt() -> list[BoardTask]:
        refusal.clear()
        try:
            return _unraced(once)
        except NotClaimable as error:
            if not rules.may_pass(error):
                raise
            refusal.append(error)
        except Collision as error:  # others are at what there is; whoever can wait does
            refusal.append(error)
        return []

    taken = attempt()
    if not taken and wait > 0:
        taken = leases.until(core, attempt, wait, who)
    if refusal:
        raise refusal[0]
    return taken


def claim_next(core: Core, worker: Worker | str) -> BoardTask | None:
    """Claim the best available task, for whoever has just completed one and must not take a refusal for that one's:
    while others are at all that is left, there is none."""
    try:
        taken = claim(core, worker)
    except (Busy, NotClaimable):
        return None
    return taken[0] if taken else None


# -- the fast path


def _try_claim(core: Core, who: Worker, n: int, lease: float | None) -> list[BoardTask] | None:
    """The plain claim where the store has a fast path for it."""
    length = rules.lease_length(who, lease, core.lease)
    taken = core.store.try_claim(who, rules.reserved_for(who.kind), n, length)
    if taken:
        core.leases.expect(who, length)
        _catch_up(core, who, taken[0].claimed_at or 0.0)
    return taken


def _try_complete(
    core: Core, task_id: str, worker: Worker | str | None, token: int | None, result: str | None
) -> BoardTask | None:
    """The plain completion, likewise."""
    caller, token = core.credentials(task_id, worker, token)
    holder = caller or core.tokens.holder(task_id, token)
    if token is None or holder is None:
        return None
    name, kind = (caller.name, caller.kind) if caller else (None, None)
    done = core.store.try_complete(task_id, name, kind, token, result)
    if done is not None:
        core.tokens.forget(done)
        _catch_up(core, holder, done.completed_at or 0.0)
    return done


def _catch_up(core: Core, who: Worker, now: float) -> None:
    """After a fast path: renew and reap as any other verb does, if it is time. What was done is committed, so this may
    come to nothing."""
    if not (core.leases.is_due(who, now) or core.reaper.is_due(now)):
        return
    try:
        with core.store.write() as tx:
            core.reaper.reap_if_due(tx, alive=who)
            leases.keep_alive(core, tx, who)
    except DibsError:
        core.forget()


# -- claiming by a transaction


@retried
def _claim_by_transaction(
    core: Core, who: Worker, task_id: str | None, n: int, lease: float | None, request_key: str | None
) -> list[BoardTask]:
    with core.store.write() as tx:
        return _claim(core, tx, who, task_id, n, lease, request_key)


def _unraced(attempt: Callable[[], T]) -> T:
    """An attempt whose choice a worker by hand took a moment before it is made again: it sees that now."""
    for _ in range(RACES):
        try:
            return attempt()
        except NotClaimable as error:
            if not error.raced:
                raise
    return attempt()


def _claim(
    core: Core,
    tx: Tx,
    who: Worker,
    task_id: str | None = None,
    n: int = 1,
    lease: float | None = None,
    request_key: str | None = None,
) -> list[BoardTask]:
    key = None if request_key is None else limits.request(f"claim by {who.name} {who.session}", request_key)
    if key is not None and (answer := tx.requests(key)):
        return _claimed_before(tx, loads(answer[key][0]), [task_id, n])
    reaped = core.reaper.sweep(tx)
    if task_id is not None:
        try:
            found = _named(core, tx, who, task_id, reaped)
        except NotClaimable:
            if key is None or not (answer := tx.requests(key)):
                raise
            return _claimed_before(tx, loads(answer[key][0]), [task_id, n])  # made at the same time as this
        if found.status is IN_PROGRESS:  # the same session asks again for what it holds
            leases.keep_alive(core, tx, who)
            return [fetch(tx, task_id)]
        free = [found]
    else:
        free = available(tx, who, n, claim=True)
        if len(free) < n and not reaped and core.reaper.reap(tx, alive=who):  # some have died in the last second
            free = available(tx, who, n, claim=True)
    if key is not None and not free and (answer := tx.requests(key)):
        return _claimed_before(tx, loads(answer[key][0]), [task_id, n])
    taken = [_take(core, tx, task, who, token, lease) for task, token in zip(free, tx.draw(len(free)), strict=True)]
    if key is not None and taken:
        tx.remember(key, dumps([[task_id, n], [[task.id, task.token] for task in taken]]))
    leases.keep_alive(core, tx, who)  # last: a refused claim must not count as a renewal
    return taken


def _take(core: Core, tx: Tx, task: BoardTask, who: Worker, token: int, lease: float | None) -> BoardTask:
    length = rules.lease_length(who, lease, core.lease)
    core.leases.expect(who, length)
    locks = lock_rules.for_task(task, who, token, tx.now, length, core.paths.worktree) if task.paths else []
    event = rules.claim(task, who, token, tx.now, length, locks)
    tx.save([task])
    tx.save_locks(locks)
    tx.append([event])
    return task


def _claimed_before(tx: Tx, answer: Any, asked: list[Any]) -> list[BoardTask]:
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


def _named(core: Core, tx: Tx, who: Worker, task_id: str, reaped: bool) -> BoardTask:
    task = fetch(tx, task_id)
    if task.status is IN_PROGRESS and not rules.is_live(task, tx.now):
        give_back(tx, [task], "its lease ran out")
    elif task.status is IN_PROGRESS and task.holder is not None and is_dead(task.holder):
        give_back(tx, [task], "the holder's process has died")
    if (
        task.status is IN_PROGRESS
        and task.holder
        and who.session
        and task.holder.session == who.session
        and task.holder.is_same(who)
    ):
        return task
    needs = tx.get(task.depends_on)
    against = path_conflicts(tx, task, who)  # last: a store may draw the number of the grant with it
    if against and not reaped and core.reaper.reap(tx):
        against = path_conflicts(tx, task, who)
    why = rules.reasons(task, needs, against, who, tx.now, core.store.satisfied_by)
    if why:
        raise rules.refuse_claim(task, why, who)
    return task


def path_conflicts(tx: Tx, task: BoardTask, who: Worker | None) -> list[Lock]:
    if not task.paths:
        return []
    return lock_rules.conflicts(task.paths, False, tx.locks(task.paths), who, tx.now)


def available(tx: Tx, who: Worker, n: int, claim: bool = False) -> list[BoardTask]:
    """Up to `n` tasks that `who` could claim now, best first. `claim`: keep them from others."""
    reserved = rules.reserved_for(who.kind)
    size = n
    if claim:
        batch = tx.ready(reserved, n, claim=True)
        paths = [path for task in batch for path in task.paths]
        near = LockIndex(tx.locks(paths)) if paths else None
        free = [task for task in batch if _is_free(task, who, near, tx.now)]
        if len(free) == n:
            return free
        size = WALK  # something is in the way, or others are at some of them: look at more at once
    after: BoardTask | None
    held: list[list[str]]
    locks: LockIndex | None = None
    # First without what others are at this moment: if one of them is stopped, that must not stop this claim.
    for keep in (True, False) if claim else (False,):
        free, after, held = [], None, []
        while batch := tx.ready(reserved, NEAREST if keep else size, after, held, claim=keep):
            if locks is None and any(task.paths for task in batch):
                locks = LockIndex(tx.locks(["**"]))
            for task in batch:
                if _is_free(task, who, locks, tx.now):
                    free.append(task)
                    if len(free) == n:
                        return free
                elif task.paths and len(held) < 16 and task.paths not in held:
                    held.append(task.paths)  # paths that many tasks share need not be looked at again
            if keep or len(batch) < size:
                break
            after, size = batch[-1], WALK
    return free


def _is_free(task: BoardTask, who: Worker, locks: LockIndex | None, now: float) -> bool:
    """Could this ready task be given to `who`, as far as other names and these locks are concerned?"""
    if rules.is_anothers(task, who):
        return False
    return (
        not task.paths or locks is None or not lock_rules.conflicts(task.paths, False, locks.to(task.paths), who, now)
    )


# -- ending a claim


@retried
def _with_claim(
    core: Core,
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
    caller, token = core.credentials(task_id, worker, token)
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        token = binding(task, given, token)
        if rules.is_repeat(task, ended, caller, token):
            return task
        over = verb == "release" and rules.could_be_released(task, given)
        if over and rules.was_released(tx.events(0, 30, task.id, newest=True)):
            return task
        if not (unclaimed and rules.may_finish_unclaimed(task, caller, token)):
            rules.require_claim(task, caller, token, tx.now, verb)
        who = caller or task.holder or core.identity.actor()
        end(tx, task, change(tx, task, who))
        leases.keep_alive(core, tx, who)
    # Not before the commit, and only by the claim's own verb: the token is what a late writer is known by.
    core.tokens.forget(task)
    return task


def complete(
    core: Core, task_id: str, result: str | None = None, *, worker: Worker | str | None = None, token: int | None = None
) -> BoardTask:
    """Mark a claimed task as completed (or submit it for review, if it asks for that)."""
    limits.optional_text(result, "result")
    if (done := _try_complete(core, task_id, worker, token, result)) is not None:
        return done

    def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
        return rules.complete(task, who, result, tx.now)

    return _with_claim(core, task_id, worker, token, "complete", (COMPLETED, REVIEW), change, unclaimed=True)


def complete_and_claim(core: Core, task: BoardTask, result: str | None) -> tuple[BoardTask, BoardTask | None]:
    """End a claim and take the best available task, in one transaction unless others are in the way: then what was done
    is saved first. The ended task, and the next."""
    limits.optional_text(result, "result")
    who = task.holder
    assert who is not None
    if (fast := _try_complete(core, task.id, who, task.token, result)) is not None:
        return fast, claim_next(core, who)
    try:
        with core.store.write() as tx:
            done = fetch(tx, task.id)
            if not rules.is_repeat(done, (COMPLETED, REVIEW), who, task.token):
                rules.require_claim(done, who, task.token, tx.now, "complete")
                end(tx, done, rules.complete(done, who, result, tx.now))
            taken = _claim(core, tx, who)
    except (Collision, NotClaimable):
        core.forget()
        return complete(core, task.id, result, worker=who, token=task.token), claim_next(core, who)
    core.tokens.forget(done)
    return done, taken[0] if taken else None


def fail(
    core: Core, task_id: str, error: str, *, worker: Worker | str | None = None, token: int | None = None
) -> BoardTask:
    """Mark a claimed task as failed."""
    limits.text(error, "error")

    def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
        return rules.fail(task, who, error, tx.now)

    return _with_claim(core, task_id, worker, token, "fail", (FAILED,), change, unclaimed=True)


def release(
    core: Core,
    task_id: str,
    *,
    worker: Worker | str | None = None,
    token: int | None = None,
    note: str | None = None,
) -> BoardTask:
    """Give a claimed task back to pending."""
    limits.optional_text(note, "note")

    def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
        return rules.give_back(task, who, tx.now, note, history=history(tx, task))

    return _with_claim(core, task_id, worker, token, "release", (), change)
