"""What dibs remembers about a work item's activities beside what document 001's files say: who exactly holds a claim,
and what has no place in them: a task's result, when it was added, when its steps were begun.

An entry counts while the files still tell of the same claim: the lock has the same holder and the same `acquired`, or
the activity ended as the entry says. The `expires` of the lock decides when the claim ends; the entry only adds the
fraction of a second that the lock, in whole seconds, leaves out.
"""

from __future__ import annotations

from dibs.dialects.companion import Companion
from dibs.model import IN_PROGRESS, PENDING, BoardTask, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

SAME_END = 3.0
"""Seconds by which a lock's end may differ from the exact one: it is in whole seconds, and by the wall clock."""


class ItemsCompanion(Companion):
    def describe(self, task: BoardTask) -> None:
        entry = self.claims.get(task.id)
        if entry is not None:
            try:
                _describe(task, entry)
            except (TypeError, KeyError, ValueError, AttributeError):
                pass  # not an entry of ours: what the files say is enough

    def knows(self, task: BoardTask) -> bool:
        """Was this very claim made through dibs?"""
        entry = self.claims.get(task.id)
        return entry is not None and entry.get("token") == task.token and "expires" in entry

    def note(self, tasks: Iterable[BoardTask]) -> None:
        for task in tasks:
            self.claims.pop(task.id, None)
            entry: dict[str, Any] = {
                "status": str(task.status),
                "created": task.created_at,
                "token": task.token,
                "by": task.assigned_to,
                "attempts": task.attempts,
                "result": task.result,
                "completed": task.completed_at,
            }
            if started := {step.id: step.started_at for step in task.steps if step.started_at is not None}:
                entry["started"] = started
            entry = {key: value for key, value in entry.items() if value is not None}
            if task.holder is not None:
                entry |= {"worker": task.holder.as_dict(), "lease": task.lease}
            if task.status is IN_PROGRESS:
                entry["expires"] = task.lease_expires_at
            self.claims[task.id] = entry  # at the end: the newest are kept longest


def _describe(task: BoardTask, entry: Mapping[str, Any]) -> None:
    task.created_at = float(entry["created"])
    for step in task.steps:
        if step.status == "completed" and step.completed_by is not None:
            step.started_at = entry.get("started", {}).get(step.id)
    if task.status is PENDING:
        task.token = entry.get("token")
        task.attempts = int(entry.get("attempts", 0))
        return
    if entry.get("by") != task.assigned_to:
        return  # by another
    if task.status is IN_PROGRESS:
        if entry.get("token") != task.token:
            return  # claimed anew since: the lock decides
        if abs(float(entry["expires"]) - (task.lease_expires_at or 0.0)) <= SAME_END:
            task.lease, task.lease_expires_at = entry["lease"], entry["expires"]
    else:
        if entry["status"] != task.status and entry["status"] != IN_PROGRESS:
            return
        task.token = entry.get("token")
        task.lease = entry.get("lease")
        if entry["status"] == task.status:
            task.result = entry.get("result")
            if task.completed_at is not None and abs(entry["completed"] - task.completed_at) < 1:
                task.completed_at = entry["completed"]
    task.attempts = int(entry.get("attempts", 0))
    if "worker" in entry:
        task.holder = Worker(**entry["worker"])
        task.claimed_at = None if task.token is None else task.token / 1_000_000
