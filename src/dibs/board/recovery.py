"""Cleaning up after workers that are gone: giving back what one holds, what has expired, what nobody is alive for."""

from __future__ import annotations

from dibs import limits
from dibs.board.core import fetch, retried
from dibs.board.endings import drop, give_back
from dibs.board.reaper import SWEEP
from dibs.errors import Busy, Invalid, NotHolder, WrongStatus, quoted
from dibs.model import IN_PROGRESS, BoardTask, Worker
from dibs.rules import tasks as rules
from dibs.times import FOREVER
from dibs.worker import is_alive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board.core import Core


@retried
def release_agent_tasks(core: Core, agent_id: str | Worker, *, note: str | None = None) -> list[str]:
    """Give back every task and lock of a worker, for whoever cleans up after it; the ids of the tasks. A worker
    that is a process is told apart from another process in the same session."""
    limits.optional_text(note, "note")
    worker = agent_id if isinstance(agent_id, Worker) else None
    name = agent_id.name if isinstance(agent_id, Worker) else limits.name(agent_id)
    with core.store.write() as tx:

        def is_its(task: BoardTask) -> bool:
            return task.holder is not None and (worker is None or _is_part_of(task.holder, worker))

        # Only those: other sessions of that name are at work on theirs.
        tasks = [task for task in tx.in_progress(name) if is_its(task)]
        give_back(tx, tasks, note or f"all tasks of {name} released", core.identity.actor(worker), "released_activity")
        # The locks of tasks go with these.
        locks = [
            lock
            for lock in tx.locks(name=name)
            if lock.task_id is None and (worker is None or _is_part_of(lock.holder, worker))
        ]
        drop(tx, locks, core.identity.actor(worker), note)
    return [task.id for task in tasks]


def recover(core: Core, *, name: str | None = None, task_id: str | None = None, everyone: bool = False) -> list[str]:
    """Give back what expired leases and dead processes hold; or what a worker that is known to be gone left, by its
    name or by the task; or (`everyone`, on a board where nothing expires) all that nobody is provably alive for.
    The ids of the tasks."""
    if name is not None:
        with core.store.read() as tx:
            holders = [t.holder for t in tx.in_progress(name)] + [lock.holder for lock in tx.locks(name=name)]
        for holder in holders:
            _refuse_alive(holder)
        return release_agent_tasks(core, name, note=f"recovered: {name} is gone")
    if task_id is not None:
        return _recover_task(core, task_id)
    if everyone:
        return _recover_everyone(core)
    return _recover_all(core)


@retried
def _recover_all(core: Core) -> list[str]:
    done = []
    with core.store.write() as tx:
        while due := rules.oldest_lease_first(tx.due(SWEEP)):
            give_back(tx, due, "its lease ran out")
            done += [task.id for task in due]
        while freed := core.reaper.reap(tx):
            done += [task.id for task in freed if isinstance(task, BoardTask)]
    return sorted(done)


@retried
def _recover_task(core: Core, task_id: str) -> list[str]:
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        if task.status is not IN_PROGRESS:
            raise rules.wrong_status(task, "recover")
        _refuse_alive(task.holder)
        give_back(tx, [task], "recovered: its holder is gone", core.identity.actor())
    return [task_id]


def _recover_everyone(core: Core) -> list[str]:
    """Each by itself: what cannot be given back now does not keep the others."""
    if (core.store.lease or 0) < FOREVER:
        raise Invalid(
            "on this board what is left behind comes back by itself when its lease ends",
            hint="give back what one worker or task holds: dibs recover --worker NAME, or --task ID",
        )
    with core.store.read() as tx:
        tasks, locks = tx.in_progress(), tx.locks()
    done = []
    for task in tasks:
        try:
            done += _recover_task(core, task.id)
        except (Busy, NotHolder, WrongStatus):
            pass  # alive, in the making, or given back meanwhile
    for lock in locks:
        try:
            with core.store.write() as tx:
                still = [x for x in tx.locks([lock.pattern]) if (x.pattern, x.token) == (lock.pattern, lock.token)]
                left = [x for x in still if not is_alive(x.holder)]
                drop(tx, left, core.identity.actor(), "recovered: nobody is left who holds it")
        except Busy:
            pass
    return done


def _is_part_of(holder: Worker, worker: Worker) -> bool:
    """Is what this holder has the worker's? Not if both are processes, and not the same one."""
    apart = None not in (holder.pid, worker.pid) and (holder.pid, holder.started) != (worker.pid, worker.started)
    return holder.is_same(worker) and not apart


def _refuse_alive(holder: Worker | None) -> None:
    if holder is not None and is_alive(holder):
        raise NotHolder(
            f"{holder.name} is not gone: its process {holder.pid} is running; nothing was given back",
            hint=f"let it finish, or ask it: dibs tell {quoted(holder.name)} 'what you need'",
            holder=holder.name,
            pid=holder.pid,
        )
