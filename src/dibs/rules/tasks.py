"""What may happen to a task, and what then changes. Every rule of the contract is here or in `holds`, once.

Each function takes rows that a transaction handed out, the caller, and the board's time; it either raises and has
changed nothing, or changes the rows and returns the event that records it. No I/O, no clock, no store: the board
fetches the rows, saves what was changed and appends the events, in one transaction.

Replaying: an event's `data` holds the new values of the fields that changed (`set`), so that the changelog alone
gives back the board's tasks and locks (`replay`). Fields that follow from others (`unmet`) are left out.

Leases: a claim lasts `lease` seconds after the last verb of its holder. When it has run out the claim is over,
whether or not somebody has swept it: the holder's next verb gets `LeaseLost`. A task is given back early only on
proof that its holder's process is dead (`board` asks `worker.is_dead`).
"""

from __future__ import annotations

from dibs.errors import Invalid, LeaseLost, NotClaimable, NotHolder, WrongStatus, quoted
from dibs.model import (
    CANCELLED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    REVIEW,
    Blocker,
    BoardTask,
    Event,
    Lock,
    Record,
    Step,
    Worker,
)
from dibs.times import ago, remaining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LEASES = {"agent": 3600.0, "human": 28_800.0, "system": 3600.0}
STEP_LEASES = {"agent": 1800.0, "human": 14_400.0, "system": 1800.0}

SYSTEM = Worker("dibs", "system")


class Reason(Record):
    """Why a task cannot be claimed now."""

    __slots__ = ("code", "text", "task_id", "worker", "path", "until")

    def __init__(
        self,
        code: str,
        text: str,
        task_id: str | None = None,
        worker: str | None = None,
        path: str | None = None,
        until: float | None = None,
    ) -> None:
        self.code = code
        self.text = text
        self.task_id = task_id
        self.worker = worker
        self.path = path
        self.until = until


def event(action: str, who: Worker, task: BoardTask | None = None, details: str | None = None, /, **data: Any) -> Event:
    return Event(
        action, who.name, who.kind, task_id=task.id if task else None, details=details or None, data=data or None
    )


def definition(task: BoardTask) -> dict[str, Any]:
    """What was asked for, as the event that adds the task records it: defaults are left out."""
    wanted: dict[str, Any] = {"id": task.id, "description": task.description, "created_at": task.created_at}
    for field in ("depends_on", "priority", "paths", "labels", "parent", "review", "max_attempts", "created_by"):
        if value := getattr(task, field):
            wanted[field] = value
    if task.max_attempts == 0:
        wanted["max_attempts"] = 0
    if task.reserved != "any":
        wanted["reserved"] = task.reserved
    if task.steps:
        wanted["steps"] = [s.as_dict() for s in task.steps]
    return wanted


def add(task: BoardTask, who: Worker, now: float) -> Event:
    task.created_at = now
    task.created_by = who.name
    return event("added_activity", who, task, task=definition(task))


# -- who may


def lost(task: BoardTask, now: float) -> LeaseLost:
    """The error for a caller whose claim on `task` is over: says who holds it now."""
    ended = "its lease ran out" if task.lease_expires_at and task.lease_expires_at <= now else "that claim is over"
    live = is_live(task, now)
    if live:
        present = f"{task.assigned_to} took it {ago(task.claimed_at, now)}"
        hint = f"stop working on it and take other work: dibs claim; what happened: dibs log --task {quoted(task.id)}"
    elif task.status in (PENDING, IN_PROGRESS):
        present = "nobody holds it now"
        hint = f"claim it again before you go on: dibs claim {quoted(task.id)}"
    else:
        present = f"it is {spoken(task.status)}"
        hint = f"see what happened: dibs show {quoted(task.id)}"
    return LeaseLost(
        f"you no longer hold task {task.id}: {ended}, and {present}; nothing was changed",
        hint=hint,
        task_id=task.id,
        status=str(task.status),
        holder=task.assigned_to if live else None,
    )


def require_claim(task: BoardTask, caller: Worker | None, token: int | None, now: float, verb: str) -> None:
    """Let the holder of a live claim pass: known by its name, and by its token or else its session.

    A token is a fence and no secret: everybody can read it in the changelog. So it never makes up for another name, and
    errors do not hand it to whoever is refused. Who gives neither name nor token is not checked.
    """
    if token is not None and (task.token is None or token > task.token):
        raise Invalid(
            f"task {task.id} has never had a claim with token {token}",
            hint=f"the token of the present claim, if it is yours: dibs show {quoted(task.id)}",
            task_id=task.id,
        )
    if token is not None and (task.token != token or task.status is not IN_PROGRESS):
        swept = task.status is FAILED and task.holder is None  # given back too often, and not by its holder
        if task.token == token and task.status is not PENDING and not swept:
            raise wrong_status(task, verb)
        raise lost(task, now)
    if task.status is not IN_PROGRESS:
        raise wrong_status(task, verb)
    if caller is not None and task.holder is not None:
        same = task.holder.is_same(caller) if token is None else task.holder.name == caller.name
        if not same:
            raise not_holder(task, caller, now, verb)
    if task.lease_expires_at is not None and task.lease_expires_at <= now:
        raise lost(task, now)


def not_holder(task: BoardTask, caller: Worker, now: float, verb: str) -> NotHolder:
    until = " " + remaining((task.lease_expires_at or now) - now)
    namesake = task.holder is not None and task.holder.name == caller.name
    hint = f"take other work with: dibs claim; or ask: dibs tell {quoted(task.assigned_to or '')} 'what you need'"
    if namesake and caller.kind == "human":
        hint = (
            "if you claimed it in another terminal, finish it there; if that is closed, give everything of yours back "
            f"with: dibs recover --worker {quoted(caller.name)}"
        )
    elif namesake:
        hint = "that is another session under your name: leave it alone, and take other work with: dibs claim"
    return NotHolder(
        f"task {task.id} is held by {task.assigned_to}{' in another session' * namesake}{until}; "
        f"{caller.name} cannot {verb} it",
        hint=hint,
        task_id=task.id,
        holder=task.assigned_to,
    )


# What to do about a task whose status does not allow a verb: by verb where that matters, else by status.
_WAY_OUT = {
    ("accept", PENDING): "it has not been handed in; see how it stands: dibs show {id}",
    ("reject", PENDING): "it has not been handed in; see how it stands: dibs show {id}",
    ("release", PENDING): "nobody holds it, so there is nothing to give back",
    ("recover", PENDING): "nobody holds it, so there is nothing to give back",
    ("renew", PENDING): "nobody holds it; to work on it: dibs claim {id}",
    ("retry", PENDING): "it is back already; to take it: dibs claim {id}",
    ("retry", COMPLETED): "completed work stays completed; for more of it: dibs add 'what is left to do'",
    ("accept", IN_PROGRESS): "it has not been handed in; see who works on it: dibs show {id}",
    ("reject", IN_PROGRESS): "it has not been handed in; see who works on it: dibs show {id}",
    PENDING: "claim it first: dibs claim {id}",
    IN_PROGRESS: "see who works on it: dibs show {id}",
    REVIEW: "it waits for somebody's decision; see: dibs show {id}",
    COMPLETED: "nothing is left to do; for follow-up work: dibs add 'what is to be done'",
    FAILED: "it can be put back with: dibs retry {id}",
    CANCELLED: "it can be put back with: dibs retry {id}",
}


def spoken(status: str) -> str:
    return "in review" if status == REVIEW else status.replace("_", " ")


def wrong_status(task: BoardTask, verb: str) -> WrongStatus:
    hint = _WAY_OUT.get((verb, task.status)) or _WAY_OUT[task.status]
    return WrongStatus(
        f"cannot {verb} task {task.id}: it is {spoken(task.status)}",
        hint=hint.format(id=quoted(task.id)),
        task_id=task.id,
        status=str(task.status),
    )


# -- claiming


def reserved_for(kind: str) -> tuple[str, ...]:
    """The reservations that a worker of this kind may take."""
    return ("any", "human") if kind == "human" else ("any", "agent")


def lease_length(worker: Worker, asked: float | None, board_lease: float | None) -> float:
    return asked or board_lease or LEASES[worker.kind]


def claim(task: BoardTask, worker: Worker, token: int, now: float, lease: float, locks: Sequence[Lock]) -> Event:
    """Give a pending, unblocked task to a worker. The caller has looked at dependencies, reservation and paths."""
    task.status = IN_PROGRESS
    task.assigned_to = worker.name
    task.holder = worker
    task.token = token
    task.claimed_at = now
    task.lease = lease
    task.lease_expires_at = now + lease
    task.completed_at = None
    task.attempts += 1
    changed = {
        "status": "in_progress",
        "assigned_to": worker.name,
        "holder": worker.as_dict(),
        "token": token,
        "claimed_at": now,
        "lease": lease,
        "lease_expires_at": task.lease_expires_at,
        "completed_at": None,
        "attempts": task.attempts,
    }
    if locks:
        return event("claimed_activity", worker, task, set=changed, locks=[lock_data(lock) for lock in locks])
    return event("claimed_activity", worker, task, set=changed)


def lock_data(lock: Lock) -> dict[str, Any]:
    return lock.as_dict() | {"holder": lock.holder.as_dict()}


def reasons(
    task: BoardTask,
    needs: Mapping[str, BoardTask],
    conflicts: Sequence[Lock],
    worker: Worker | None,
    now: float,
    satisfied_by: Sequence[str] = (COMPLETED,),
) -> list[Reason]:
    """Everything that keeps `worker` (or anyone) from claiming the task now; empty when nothing does."""
    found: list[Reason] = []
    if is_live(task, now):
        left = remaining((task.lease_expires_at or now) - now)
        who = f"{task.assigned_to} (your name)" if worker and worker.name == task.assigned_to else task.assigned_to
        found.append(
            Reason("held", f"held by {who} {left}", task.id, task.assigned_to,
                   until=task.lease_expires_at)
        )  # fmt: skip
    elif task.status not in (PENDING, IN_PROGRESS):
        found.append(Reason(str(task.status), f"it is {spoken(task.status)}", task.id))
    for need in task.depends_on:
        other = needs.get(need)
        if other is None:  # only files that were written by hand can name a task that is not there
            drop = f"dibs dep {quoted(task.id)} --drop {quoted(need)}"
            text = f"waits for {need}, which is not on the board; to drop the edge: {drop}"
            found.append(Reason("dependency", text, need))
            continue
        if other.status in satisfied_by:
            continue
        text = f"waits for {need} ({spoken(other.status)})"
        if other.status in (FAILED, CANCELLED):
            text += f": dibs retry {quoted(need)}, or drop the edge: dibs dep {quoted(task.id)} --drop {quoted(need)}"
        found.append(Reason("dependency", text, need))
    for blocker in task.open_blockers:
        found.append(Reason("blocker", f"blocked by {blocker.raised_by}: {blocker.reason}", task.id, blocker.raised_by))
    if worker is not None and is_anothers(task, worker):
        found.append(Reason("assigned", f"assigned to {task.assigned_to}", task.id, task.assigned_to))
    if worker is not None and task.reserved not in reserved_for(worker.kind):
        found.append(
            Reason("reserved", f"reserved for {'an agent' if task.reserved == 'agent' else 'a human'}", task.id)
        )
    for lock in conflicts:
        if lock.task_id == task.id:
            continue  # that its holder has its files goes without saying
        what = f" for task {lock.task_id}" if lock.task_id else ""
        found.append(
            Reason("path",
                   f"{lock.pattern} is held by {lock.holder.name}{what} {remaining(lock.expires_at - now)}",
                   lock.task_id, lock.holder.name, lock.pattern, lock.expires_at)
        )  # fmt: skip
    return found


def is_anothers(task: BoardTask, worker: Worker) -> bool:
    """Has somebody put another's name on a task that nobody holds? Only files that are written by hand have such."""
    return task.status is PENDING and task.assigned_to is not None and task.assigned_to != worker.name


def refuse_claim(task: BoardTask, why: Sequence[Reason], worker: Worker) -> NotClaimable:
    hint = "take other work with: dibs claim"
    if why[0].code == "held" and task.holder is not None and task.holder.is_same(worker):
        hint = f"if that claim is yours, go on with it; when finished: dibs done {quoted(task.id)} 'what you did'"
    elif why[0].code in _WAY_OUT:
        hint = _WAY_OUT[why[0].code].format(id=quoted(task.id))
    return NotClaimable(
        f"cannot claim task {task.id}: " + "; ".join(r.text for r in why),
        hint=hint,
        task_id=task.id,
        reasons=[r.as_dict() for r in why],
    )


def may_pass(refused: NotClaimable) -> bool:
    """Could waiting help? What others hold or have yet to do may pass; a reservation or a closed task does not."""
    why = refused.fields["reasons"]
    assert isinstance(why, list)
    return all(reason["code"] in ("held", "dependency", "blocker", "path") for reason in why)


def renew(task: BoardTask, now: float, lease: float | None) -> Event:
    task.lease = lease or task.lease or LEASES["agent"]
    task.lease_expires_at = now + task.lease
    changed: dict[str, Any] = {"lease": task.lease, "lease_expires_at": task.lease_expires_at}
    for step in task.steps:
        if step.status == "in_progress" and task.holder is not None:
            step.expires_at = now + STEP_LEASES[task.holder.kind]
            changed["steps"] = [s.as_dict() for s in task.steps]
    return event("renewed_activity", task.holder or SYSTEM, task, set=changed)


def may_finish_unclaimed(task: BoardTask, caller: Worker | None, token: int | None) -> bool:
    """Document 004 lets a bare `complete(id)` or `fail(id)`, by nobody in particular, end a task that nobody holds."""
    return task.status is PENDING and caller is None and token is None


def is_live(task: BoardTask, now: float) -> bool:
    """Is somebody's claim on the task in force?"""
    return task.status is IN_PROGRESS and task.lease_expires_at is not None and task.lease_expires_at > now


def oldest_lease_first(tasks: Sequence[BoardTask]) -> list[BoardTask]:
    """The order in which leases that have run out are given back. Stores hand out those that ended together as they
    find them."""
    return sorted(tasks, key=lambda task: (task.lease_expires_at or 0, task.seq))


def could_be_released(task: BoardTask, token: int | None) -> bool:
    """Is the claim with this token over, with no claim since? (Giving back too often fails the task.)"""
    return token is not None and task.token == token and task.holder is None and task.status in (PENDING, FAILED)


def was_released(history: Sequence[Event]) -> bool:
    """Did its holder, or a person, give the last claim back? One that was swept is lost."""
    ends = [event for event in history if event.action in _CLAIM_ENDS or _blocks_a_claim(event)]
    return bool(ends) and ends[-1].action != "recovered_activity" and ends[-1].worker != SYSTEM.name


_CLAIM_ENDS = ("released_activity", "recovered_activity", "failed_activity")


def _blocks_a_claim(event: Event) -> bool:
    return event.action == "blocked" and (event.data is None or "status" in event.data.get("set", {}))


def is_repeat(task: BoardTask, ended: Sequence[str], caller: Worker | None, token: int | None) -> bool:
    """The same verb again by the same claim: answer as before, change nothing."""
    if task.status not in ended:
        return False
    if token is not None:
        return task.token == token
    return caller is None or (task.holder is not None and task.holder.is_same(caller))


def complete(task: BoardTask, who: Worker, result: str | None, now: float) -> Event:
    """End the work: completed, or to review when the task asks for it."""
    task.status = REVIEW if task.review else COMPLETED
    task.result = result
    task.lease_expires_at = None
    task.completed_at = now
    action = "submitted_activity" if task.review else "completed_activity"
    changed = {"status": str(task.status), "result": result, "lease_expires_at": None, "completed_at": now}
    return event(action, who, task, result, set=changed)


def fail(task: BoardTask, who: Worker, error: str, now: float) -> Event:
    task.status = FAILED
    task.result = error
    task.lease_expires_at = None
    task.completed_at = now
    changed = {"status": "failed", "result": error, "lease_expires_at": None, "completed_at": now}
    return event("failed_activity", who, task, error, set=changed)


def give_back(
    task: BoardTask,
    who: Worker,
    now: float,
    why: str | None,
    action: str = "released_activity",
    history: Sequence[Event] = (),
) -> Event:
    """End a claim without a result. More often than `max_attempts` fails the task, with the history as its result."""
    spent = task.max_attempts is not None and task.attempts > task.max_attempts
    _clear_claim(task)
    if not spent:
        task.status = PENDING
        return event(action, who, task, why, set={"status": "pending", **_CLEARED, "result": task.result})
    times = "once" if task.attempts == 1 else f"{task.attempts} times"
    lines = [f"given back {times}, more than max_attempts={task.max_attempts}; last: {why or 'released'}"]
    for past in history:
        lines.append(
            f"{ago(past.time, now)} {past.action} by {past.worker}" + (f": {past.details}" if past.details else "")
        )
    result = "\n".join(lines)[:8000]
    task.status = FAILED
    task.result = result
    task.completed_at = now
    changed = {"status": "failed", **_CLEARED, "result": result, "completed_at": now}
    return event("failed_activity", who, task, lines[0], set=changed)


_CLEARED: dict[str, Any] = {"assigned_to": None, "holder": None, "claimed_at": None, "lease": None,
                            "lease_expires_at": None, "completed_at": None}  # fmt: skip


def _clear_claim(task: BoardTask) -> None:
    # The token stays: it is what a late writer's token is compared with, and repeats are known by it.
    for field, value in _CLEARED.items():
        setattr(task, field, value)


# -- what people and leads decide


def cancel(task: BoardTask, who: Worker, reason: str | None, now: float) -> Event:
    if task.status not in (PENDING, IN_PROGRESS, REVIEW):
        raise wrong_status(task, "cancel")
    _refuse_over_holder(task, who, now, "cancel")
    _clear_claim(task)
    task.status = CANCELLED
    task.completed_at = now
    task.result = reason
    changed = {"status": "cancelled", **_CLEARED, "result": reason, "completed_at": now}
    return event("cancelled_activity", who, task, reason, set=changed)


def _refuse_over_holder(task: BoardTask, who: Worker, now: float, verb: str) -> None:
    """A task in someone's hands is theirs, except for a person or a lead, who may decide over it."""
    if (
        is_live(task, now)
        and task.holder
        and not task.holder.is_same(who)
        and who.kind != "human"
        and who.role not in ("lead", "planner")
    ):
        raise not_holder(task, who, now, verb)


def retry(task: BoardTask, who: Worker) -> Event:
    if task.status not in (FAILED, CANCELLED):
        raise wrong_status(task, "retry")
    _clear_claim(task)
    task.status = PENDING
    task.result = None
    task.attempts = 0
    return event("retried_activity", who, task, set={"status": "pending", **_CLEARED, "result": None, "attempts": 0})


def accept(task: BoardTask, who: Worker, note: str | None, now: float) -> Event:
    if task.status is not REVIEW:
        raise wrong_status(task, "accept")
    if who.kind != "human" and task.holder is not None and task.holder.is_same(who):
        raise NotHolder(
            f"task {task.id} waits for review, and {who.name}, who did it, cannot accept it",
            hint="a person or another worker decides; take other work meanwhile: dibs claim",
            task_id=task.id,
        )
    task.status = COMPLETED
    task.completed_at = now
    return event("accepted_activity", who, task, note, set={"status": "completed", "completed_at": now})


def reject(task: BoardTask, who: Worker, note: str, now: float, history: Sequence[Event] = ()) -> Event:
    if task.status is not REVIEW:
        raise wrong_status(task, "reject")
    task.result = f"rejected by {who.name}: {note}"
    return give_back(task, who, now, note, "rejected_activity", history)


def block(task: BoardTask, who: Worker, reason: str, now: float) -> Event:
    """Record why the work cannot go on. A claimed task goes back to pending, without counting as an attempt."""
    if task.status not in (PENDING, IN_PROGRESS):
        raise wrong_status(task, "block")
    _refuse_over_holder(task, who, now, "block")
    task.blockers.append(Blocker(f"b{len(task.blockers) + 1}", reason, who.name, now))
    changed: dict[str, Any] = {"blockers": [b.as_dict() for b in task.blockers]}
    if task.status is IN_PROGRESS:
        _clear_claim(task)
        task.status = PENDING
        task.attempts -= 1
        changed |= {"status": "pending", **_CLEARED, "attempts": task.attempts}
    return event("blocked", who, task, reason, set=changed)


def unblock(task: BoardTask, who: Worker, blocker_id: str | None, resolution: str | None, now: float) -> Event:
    open_ = [b for b in task.open_blockers if blocker_id is None or b.id == blocker_id]
    if not open_:
        named = f" {blocker_id}" if blocker_id else ""
        raise WrongStatus(
            f"task {task.id} has no open blocker{named}", hint=f"dibs show {quoted(task.id)}", task_id=task.id
        )
    for blocker in open_:
        blocker.resolved_at = now
        blocker.resolved_by = who.name
        blocker.resolution = resolution
    return event("unblocked", who, task, resolution, set={"blockers": [b.as_dict() for b in task.blockers]})


def depend(task: BoardTask, who: Worker, needs: Sequence[BoardTask]) -> Event:
    """Add dependencies. The caller has looked for cycles."""
    if task.status not in (PENDING, FAILED, CANCELLED):
        raise wrong_status(task, "add a dependency to")
    task.depends_on = task.depends_on + [n.id for n in needs]
    task.unmet += sum(n.status is not COMPLETED for n in needs)
    named = ", ".join(n.id for n in needs)
    return event("added_dependency", who, task, f"needs {named}", set={"depends_on": task.depends_on})


def undepend(task: BoardTask, who: Worker, dropped: Sequence[str], needs: Mapping[str, BoardTask]) -> Event:
    """Drop dependencies, also on what is not on the board (as files that were written by hand may have them)."""
    task.depends_on = [i for i in task.depends_on if i not in dropped]
    task.unmet -= sum(i not in needs or needs[i].status is not COMPLETED for i in dropped)
    named = ", ".join(dropped)
    return event("dropped_dependency", who, task, f"no longer needs {named}", set={"depends_on": task.depends_on})


# -- steps, strictly in order


def step_add(task: BoardTask, who: Worker, title: str) -> Event:
    if task.status not in (PENDING, IN_PROGRESS):
        raise wrong_status(task, "add a step to")
    task.steps.append(Step(f"s{len(task.steps) + 1}", title))
    return _step_event("added_task", who, task, task.steps[-1], title)


def step_is(task: BoardTask, verb: str, step_id: str | None) -> bool:
    """Has the named step already the status that the verb would give it?"""
    wanted = {"start": "in_progress", "done": "completed", "skip": "skipped"}.get(verb)
    return any(step.id == step_id and step.status == wanted for step in task.steps)


def step_change(task: BoardTask, who: Worker, verb: str, step_id: str | None, note: str | None, now: float) -> Event:
    """`start`, `done` or `skip` a step: the named one, which must be the next, or simply the next."""
    waiting = [s for s in task.steps if s.status not in ("completed", "skipped")]
    if not task.steps:
        raise WrongStatus(
            f"task {task.id} has no steps", hint=f"add one: dibs step {quoted(task.id)} add TITLE", task_id=task.id
        )
    if step_id is not None and all(s.id != step_id for s in task.steps):
        raise WrongStatus(
            f"task {task.id} has no step {step_id!r:.60}", hint="its steps: " + ", ".join(s.id for s in task.steps)
        )
    if not waiting or (step_id is not None and all(s.id != step_id for s in waiting)):
        raise WrongStatus(f"step {step_id or 'after the last'} of task {task.id} is already done", task_id=task.id)
    step = waiting[0]
    if step_id is not None and step.id != step_id:
        raise WrongStatus(
            f"step {step_id} of task {task.id} has to wait: {step.id} ({step.title}) comes first",
            hint=f"dibs step {quoted(task.id)} done {quoted(step.id)}",
            task_id=task.id,
        )
    if verb == "start":
        step.status = "in_progress"
        step.started_at = now
        step.expires_at = now + STEP_LEASES[who.kind]
        return _step_event("claimed_task", who, task, step, note)
    step.status = "completed" if verb == "done" else "skipped"
    step.notes = note
    step.expires_at = None
    step.completed_by = who.name
    step.completed_at = now
    return _step_event(f"{step.status}_task", who, task, step, note or step.title)


def _step_event(action: str, who: Worker, task: BoardTask, step: Step, details: str | None) -> Event:
    made = event(action, who, task, details, set={"steps": [s.as_dict() for s in task.steps]})
    made.step_id = step.id
    return made
