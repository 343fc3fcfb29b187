"""Document 001's activities as rows, and changes of rows as changes of `progress.yaml`. Pure: no disk, no clock.

An activity is a task, its tasks are the steps. Who holds it is in its lock file, not here: a lock that is there makes
an open activity claimed, whatever status the file gives it, and `in_progress` without a lock means that nobody holds it
(the next holder goes on at the first step that is not done).

`blocked` and `awaiting_human` are a pending task with an open blocker. Where `blockers` has no entry that says why, or
the status is no word of the document, the row has a blocker made up here, whose id is that word; unblocking it writes
`pending`. The file has no place for who resolved a blocker, which the changelog tells.

Only what differs between a row before and after is written (`changes`), so whatever else the file says stays.
"""

from __future__ import annotations

from dibs.dialects.isotime import moment, precise
from dibs.dialects.progress_yaml import ITEM_STATUSES
from dibs.model import CANCELLED, COMPLETED, IN_PROGRESS, PENDING, Blocker, BoardTask, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dialects.progress_yaml import Activity, ItemBlocker, Progress

    Change = tuple[str, str, str, Any]
    """What to set: `activity`, `task` or `blocker`, its id, key, value; or `+task`, `+blocker` and a mapping."""

WAITING = ("blocked", "awaiting_human")
CLOSED = ("completed", "skipped")
_STATUSES = {"pending": PENDING, "in_progress": PENDING, "completed": COMPLETED, "skipped": CANCELLED}
_WHY = {"blocked": "blocked, and progress.yaml does not say why", "awaiting_human": "awaiting a human"}
_STEP_STATUSES = ("in_progress", "completed", "skipped")


def row(activity: Activity, blockers: Sequence[ItemBlocker], created_at: float) -> BoardTask:
    """The activity as the file has it, held by nobody."""
    status = _STATUSES.get(activity.status, PENDING)
    task = BoardTask(
        activity.id,
        activity.title,
        status,
        activity.completed_by if status is COMPLETED else None,
        list(dict.fromkeys(activity.depends_on)),
        created_at=created_at,
        completed_at=moment(activity.completed_at) if status in (COMPLETED, CANCELLED) else None,
        reserved=activity.actor if activity.actor in ("agent", "human") else "any",
    )
    task.steps = [
        Step(
            step.id,
            step.title,
            step.status if step.status in _STEP_STATUSES else "pending",
            step.notes,
            completed_by=step.completed_by if step.status in CLOSED else None,
            completed_at=moment(step.completed_at) if step.status in CLOSED else None,
        )
        for step in activity.tasks
    ]
    task.blockers = [_blocker(found, activity.id) for found in blockers]
    if status is PENDING and activity.status not in _STATUSES and not task.open_blockers:
        why = _WHY.get(activity.status, "its status is no word of document 001")
        task.blockers.append(Blocker(activity.status, why))
    return task


def _blocker(found: ItemBlocker, activity_id: str) -> Blocker:
    resolved = moment(found.resolved_at)
    if found.resolved_at is not None and resolved is None:
        resolved = 0.0  # resolved, at a time that cannot be read
    return Blocker(
        short(activity_id, found.id), found.description or "blocked", found.raised_by, moment(found.raised_at),
        found.resolution, None, resolved,
    )  # fmt: skip


def short(activity_id: str, blocker_id: str) -> str:
    """`WI-001-A1-B2` is what dibs calls b2; other ids are kept as they are."""
    number = blocker_id.removeprefix(f"{activity_id}-B")
    return f"b{number}" if number != blocker_id and number.isdigit() else blocker_id


def step_id(task_id: str, number: int) -> str:
    return f"{task_id}-T{number}"


def settle(task: BoardTask) -> None:
    """Take out of a row what the files have no place for, so that everybody reads the same row."""
    task.blockers = [b for b in task.blockers if b.is_open or not _is_made_up(b)]
    for blocker in task.blockers:
        blocker.resolved_by = None
    for step in task.steps:
        if step.status == "in_progress" and task.status is not IN_PROGRESS:
            step.status = "pending"
        if step.status == "pending":
            step.started_at = step.expires_at = None


def _is_made_up(blocker: Blocker) -> bool:
    return blocker.raised_at is None and blocker.raised_by is None


def word(task: BoardTask) -> str:
    """The status that the file is to have."""
    if task.status is not PENDING:
        return {IN_PROGRESS: "in_progress", COMPLETED: "completed", CANCELLED: "skipped"}[task.status]
    waits = task.open_blockers
    made_up = [blocker.id for blocker in waits if _is_made_up(blocker)]
    return made_up[0] if made_up else "blocked" if waits else "pending"


def changes(task: BoardTask, before: BoardTask) -> list[Change]:
    """What has to be set in the file."""
    found: list[Change] = []
    is_new_claim = task.status is IN_PROGRESS and task.token != before.token
    if is_new_claim or word(task) != word(before):
        found.append(("activity", task.id, "status", word(task)))
    if task.depends_on != before.depends_on:
        found.append(("activity", task.id, "depends_on", task.depends_on))
    done, was_done = _ending(task), _ending(before)
    found += [("activity", task.id, key, done[key]) for key in done if done[key] != was_done[key]]
    old_steps = {step.id: step for step in before.steps}
    for step in task.steps:
        if (old := old_steps.get(step.id)) is None:
            found.append(("+task", task.id, "", new_step(step)))
        elif step != old:
            found += _step_changes(step, old)
    old_blockers = {blocker.id: blocker for blocker in before.blockers}
    for blocker in task.blockers:
        known = old_blockers.get(blocker.id)
        if known is None:
            found.append(("+blocker", task.id, blocker.id, _new_blocker(task.id, blocker)))
        elif blocker.resolved_at != known.resolved_at:
            found.append(("blocker", blocker.id, "resolved_at", _time(blocker.resolved_at)))
            found.append(("blocker", blocker.id, "resolution", blocker.resolution))
    return found


def _ending(task: BoardTask) -> dict[str, str | None]:
    return {
        "completed_by": task.assigned_to if task.status is COMPLETED else None,
        "completed_at": _time(task.completed_at) if task.status in (COMPLETED, CANCELLED) else None,
    }


def _step_changes(step: Step, old: Step) -> list[Change]:
    wanted: dict[str, Any] = {}
    is_done, was_done = step.status in CLOSED, old.status in CLOSED
    if is_done != was_done or (is_done and step.status != old.status):
        wanted["status"] = step.status if is_done else "pending"
    elif old.status == "in_progress" and step.status == "pending":
        wanted["status"] = "pending"  # what is in the lock alone goes with the lock
    if step.completed_by != old.completed_by:
        wanted["completed_by"] = step.completed_by
    if step.completed_at != old.completed_at:
        wanted["completed_at"] = _time(step.completed_at)
    if step.notes != old.notes:
        wanted["notes"] = step.notes
    return [("task", step.id, key, value) for key, value in wanted.items()]


def _time(at: float | None) -> str | None:
    return None if at is None else precise(at)


def element(task: BoardTask) -> dict[str, Any]:
    """A new activity, in the document's keys."""
    made: dict[str, Any] = {
        "id": task.id,
        "title": task.description,
        "status": word(task),
        "actor": task.reserved,
        "depends_on": list(task.depends_on),
        **_ending(task),
    }
    if task.steps:
        made["tasks"] = [new_step(step) for step in task.steps]
    return made


def new_step(step: Step) -> dict[str, Any]:
    done = step.status in CLOSED
    made: dict[str, Any] = {"id": step.id, "title": step.title, "status": step.status if done else "pending"}
    made |= {"completed_by": step.completed_by, "completed_at": _time(step.completed_at)}
    return made | ({"notes": step.notes} if step.notes is not None else {})


def _new_blocker(task_id: str, blocker: Blocker) -> dict[str, Any]:
    return {
        "id": f"{task_id}-B{blocker.id[1:]}",
        "activity_id": task_id,
        "task_id": None,
        "description": blocker.reason,
        "raised_at": _time(blocker.raised_at),
        "raised_by": blocker.raised_by,
        "resolved_at": _time(blocker.resolved_at),
        "resolution": blocker.resolution,
    }


def apply(progress: Progress, task_id: str, wanted: Sequence[Change]) -> bool:
    """Set what has to be set; was anything of it new to the file?"""
    changed = False
    activity = next(entry for entry in progress.data["activities"] if entry["id"] == task_id)
    steps = {step["id"]: step for step in activity.get("tasks") or ()}
    blockers = {entry["id"]: entry for entry in progress.data.get("blockers") or ()}
    for what, its_id, key, value in wanted:
        if what == "activity":
            if activity.get(key) != value and not (not value and not activity.get(key)):
                progress.set_activity(task_id, key, value)
                changed = True
        elif what == "task":
            if steps[its_id].get(key) != value:
                progress.set_task(task_id, its_id, key, value)
                changed = True
        elif what == "blocker":
            full = its_id if its_id in blockers else f"{task_id}-B{its_id[1:]}"
            if full in blockers and blockers[full].get(key) != value:
                progress.set_blocker(full, key, value)
                changed = True
        elif what == "+task":
            progress.add_task(task_id, value)
            changed = True
        else:
            number = 1
            while value["id"] in blockers:  # another activity's, or what a hand left
                number += 1
                value = value | {"id": f"{task_id}-B{number}"}
            progress.add_blocker(value)
            changed = True
    return changed


def derived(progress: Progress) -> str | None:
    """The work item's status after a change of its activities.

    All that is left is blocked: `blocked`. Nothing is left: `review`. Something is being worked on, or there is work
    again after either of these: `in_progress`. Otherwise, and when it was abandoned, it stays.
    """
    now = progress.status
    words = [str(entry.get("status") or "pending") for entry in progress.data.get("activities") or ()]
    left = [each for each in words if each not in CLOSED]
    if not words or now == "abandoned" or (now is not None and now not in ITEM_STATUSES):
        return now
    if not left:
        return now if now in ("review", "done") else "review"
    if all(each in WAITING for each in left):
        return "blocked"
    if now in ("blocked", "review", "done") or "in_progress" in left:
        return "in_progress"
    return now
