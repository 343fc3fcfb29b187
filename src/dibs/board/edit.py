"""Verbs that change what a task is: what it depends on."""

from __future__ import annotations

from dibs import limits
from dibs.board.core import fetch, retried
from dibs.board.leases import keep_alive
from dibs.errors import DependencyCycle, NotFound, quoted
from dibs.model import BoardTask, Worker
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board.core import Core
    from dibs.stores.base import Tx


@retried
def depend(core: Core, task_id: str, needs: Sequence[str], *, worker: Worker | str | None = None) -> BoardTask:
    """Make a task wait for others. Unknown ids and cycles are refused; edges that exist already are left as they
    are."""
    limits.task_id(task_id)
    wanted = [limits.task_id(need) for need in limits.texts(needs, "needs")]
    who = core.identity.actor(worker)
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        new = [need for need in wanted if need not in task.depends_on]
        known = tx.get(new)
        for need in new:
            if need not in known:
                raise NotFound(f"Task not found: {need}", hint="see what there is: dibs list --all", task_id=need)
        _refuse_cycle(tx, task, list(known.values()))
        if new:
            event = rules.depend(task, who, list(known.values()))
            tx.save([task])
            tx.append([event])
        keep_alive(core, tx, who)
    return task


@retried
def undepend(core: Core, task_id: str, needs: Sequence[str], *, worker: Worker | str | None = None) -> BoardTask:
    """Drop dependencies of a task."""
    who = core.identity.actor(worker)
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        dropped = [limits.task_id(need) for need in limits.texts(needs, "needs")]
        for need in dropped:
            if need not in task.depends_on:
                raise NotFound(
                    f"task {task_id} does not depend on {need}", hint=f"dibs show {quoted(task_id)}", task_id=task_id
                )
        dropped = list(dict.fromkeys(dropped))
        others = tx.get(dropped)
        if dropped:
            event = rules.undepend(task, who, dropped, others)
            tx.save([task])
            tx.append([event])
        keep_alive(core, tx, who)
    return task


def _refuse_cycle(tx: Tx, task: BoardTask, needs: Sequence[BoardTask]) -> None:
    """Walk from what is to be needed, along what that needs; meeting `task` would close a circle. A level at a time,
    without recursion."""
    if any(other.id == task.id for other in needs):
        raise DependencyCycle(f"task {task.id} cannot wait for itself", hint="name another task", task_id=task.id)
    seen = {other.id for other in needs}
    level = list(needs)
    while level:
        if task.id in seen:
            first = needs[0].id
            raise DependencyCycle(
                f"task {task.id} cannot wait for {first}: {first} already waits for {task.id}, directly or not",
                hint=f"dibs show {quoted(first)}",
                task_id=task.id,
            )
        further = {need for other in level for need in other.depends_on} - seen
        seen |= further
        level = list(tx.get(sorted(further)).values())
