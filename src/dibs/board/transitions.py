"""Verbs by which people and leads decide about tasks (retry, cancel, accept, reject, block, unblock), and steps."""

from __future__ import annotations

from dibs import limits
from dibs.board.core import fetch, retried
from dibs.board.endings import end, history
from dibs.board.leases import extend, keep_alive, locks_of
from dibs.board.token_memory import binding
from dibs.errors import Invalid
from dibs.model import IN_PROGRESS, BoardTask, Event, Worker
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.board.core import Core
    from dibs.stores.base import Tx


_STEP_VERBS = {"add": "add a step to", "start": "start a step of", "done": "finish a step of", "skip": "skip a step of"}


@retried
def _decide(
    core: Core, task_id: str, worker: Worker | str | None, change: Callable[[Tx, BoardTask, Worker], Event]
) -> BoardTask:
    limits.task_id(task_id)
    who = core.identity.actor(worker)
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        end(tx, task, change(tx, task, who))
        keep_alive(core, tx, who)
    return task


def retry(core: Core, task_id: str, *, worker: Worker | str | None = None) -> BoardTask:
    """Put a failed or cancelled task back to pending, with its attempts forgotten."""
    return _decide(core, task_id, worker, lambda tx, task, who: rules.retry(task, who))


def cancel(core: Core, task_id: str, reason: str | None = None, *, worker: Worker | str | None = None) -> BoardTask:
    """Take a task off the table. Only a person, a lead or its holder cancels a task that somebody holds."""
    limits.optional_text(reason, "reason")
    return _decide(core, task_id, worker, lambda tx, task, who: rules.cancel(task, who, reason, tx.now))


def accept(core: Core, task_id: str, note: str | None = None, *, worker: Worker | str | None = None) -> BoardTask:
    """Pass a task in review: it is completed."""
    limits.optional_text(note, "note")
    return _decide(core, task_id, worker, lambda tx, task, who: rules.accept(task, who, note, tx.now))


def reject(core: Core, task_id: str, note: str, *, worker: Worker | str | None = None) -> BoardTask:
    """Send a task in review back to pending, with a note for whoever takes it next."""
    limits.text(note, "note")
    return _decide(
        core, task_id, worker, lambda tx, task, who: rules.reject(task, who, note, tx.now, history(tx, task))
    )


def block(core: Core, task_id: str, reason: str, *, worker: Worker | str | None = None) -> BoardTask:
    """Record why a task cannot go on; a claimed one goes back to pending, and nobody can claim it until it is
    unblocked."""
    limits.text(reason, "reason")
    return _decide(core, task_id, worker, lambda tx, task, who: rules.block(task, who, reason, tx.now))


def unblock(
    core: Core,
    task_id: str,
    resolution: str | None = None,
    *,
    blocker: str | None = None,
    worker: Worker | str | None = None,
) -> BoardTask:
    """Resolve one open blocker, or all."""
    limits.optional_text(resolution, "resolution")
    return _decide(core, task_id, worker, lambda tx, task, who: rules.unblock(task, who, blocker, resolution, tx.now))


@retried
def step(
    core: Core,
    task_id: str,
    verb: str,
    text: str | None = None,
    *,
    step_id: str | None = None,
    worker: Worker | str | None = None,
    token: int | None = None,
) -> BoardTask:
    """`add` a step (`text` is its title), or `start`, finish (`done`) or `skip` the next one (`text` is a note)."""
    limits.task_id(task_id)
    limits.choice(verb, ("add", "start", "done", "skip"), "step verb")
    if text is not None:
        limits.text(text, "step text", empty=verb != "add")
    elif verb == "add":
        raise Invalid("a step needs a title")
    given = token
    caller, token = core.credentials(task_id, worker, token)
    with core.store.write() as tx:
        task = fetch(tx, task_id)
        token = binding(task, given, token)
        who = caller or task.holder or core.identity.actor()
        locks = locks_of(tx, task) if task.status is IN_PROGRESS else []
        if verb != "add" or task.status is IN_PROGRESS:
            rules.require_claim(task, caller, token, tx.now, _STEP_VERBS[verb])
        if rules.step_is(task, verb, step_id):
            return task
        if verb == "add":
            event = rules.step_add(task, who, text or "")
        else:
            event = rules.step_change(task, who, verb, step_id, text, tx.now)
        tx.append([event])
        if task.status is IN_PROGRESS:
            extend(core, tx, task, locks)
        else:
            tx.save([task])
        keep_alive(core, tx, who)
    return task
