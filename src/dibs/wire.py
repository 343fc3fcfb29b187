"""Tasks, events, locks and messages as the JSON that leaves dibs: the CLI, the MCP tools and the web page all use
these.

Times become ISO 8601 UTC. Only an event's `data`, which is for replaying, is left as it is stored.
"""

from __future__ import annotations

from dibs.model import IN_PROGRESS
from dibs.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.errors import DibsError
    from dibs.model import BoardTask, Event, Lock, Message
    from dibs.rules.tasks import Reason


def _iso(moment: float | None) -> str | None:
    return None if moment is None else iso(moment)


def task_json(task: BoardTask) -> dict[str, Any]:
    """Document 004's ten keys, then ours. The token is there while the task is in progress."""
    held = task.status is IN_PROGRESS
    return {
        **task.as_dict(),
        "created_at": iso(task.created_at),
        "claimed_at": _iso(task.claimed_at),
        "completed_at": _iso(task.completed_at),
        "token": task.token if held else None,
        "lease_expires_at": _iso(task.lease_expires_at) if held else None,
        "paths": list(task.paths),
        "labels": list(task.labels),
        "steps": [readable(step.as_dict()) for step in task.steps],
        "blockers": [readable(blocker.as_dict()) for blocker in task.blockers],
        "parent": task.parent,
        "reserved": task.reserved,
        "review": task.review,
        "attempts": task.attempts,
        "max_attempts": task.max_attempts,
        "created_by": task.created_by,
    }


def page_json(tasks: Sequence[BoardTask], total: int | None, more: bool) -> dict[str, Any]:
    """A list of tasks. `total` is None where counting them all would cost more than the list."""
    return {"tasks": [task_json(task) for task in tasks], "total": total, "more": more}


def reason_json(reason: Reason) -> dict[str, Any]:
    """Why a task cannot be claimed now."""
    return dict(readable(reason.as_dict()))


def event_json(event: Event) -> dict[str, Any]:
    """A line of the changelog, as document 001 writes it: our task is its activity, our step its task."""
    line: dict[str, Any] = {
        "timestamp": iso(event.time),
        "worker": event.worker,
        "worker_type": event.worker_type,
        "action": event.action,
    }
    for key, value in (("activity_id", event.task_id), ("task_id", event.step_id), ("details", event.details)):
        if value is not None:
            line[key] = value
    line["seq"] = event.seq
    if event.data:
        line["data"] = event.data
    return line


def lock_json(lock: Lock) -> dict[str, Any]:
    return {
        "pattern": lock.pattern,
        "holder": lock.holder.name,
        "holder_type": lock.holder.kind,
        "shared": lock.shared,
        "token": lock.token,
        "acquired_at": iso(lock.acquired_at),
        "expires_at": iso(lock.expires_at),
        "task_id": lock.task_id,
        "worktree": lock.worktree,
    }


def message_json(message: Message) -> dict[str, Any]:
    return {
        "from": message.sender,
        "to": message.to,
        "content": message.content,
        "timestamp": iso(message.time),
        "seq": message.seq,
    }


def error_json(error: DibsError) -> dict[str, Any]:
    return {"error": readable(error.as_dict())}


def readable(value: Any) -> Any:
    """A copy in which every moment (`…_at`, `until`) is ISO 8601."""
    if isinstance(value, dict):
        return {
            key: iso(item) if isinstance(item, float) and (key.endswith("_at") or key == "until") else readable(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
