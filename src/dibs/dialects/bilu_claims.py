"""What dibs remembers about the tasks of a bilu board: document 002's files have no place for a holder, a time, a
result or a reason, so all of these are in the companion, and concern nobody who does not use dibs.

An entry says what the task was when dibs last wrote about it. It counts in full while the file still has that status.
If it has another, somebody changed the file by hand, and the file wins: a claim that was put back is over, and one
that was finished by hand was finished by its holder. What cannot be seen is a hand that puts a task back and takes it
again before dibs next writes to the board: that claim is still taken to be the one that dibs made.

Of tasks that nobody holds only 500 are remembered (`companion`): those that are blocked, then the latest. For others
the times are those of the file's last change, and the result is in the changelog.
"""

from __future__ import annotations

from dibs.dialects.companion import Companion
from dibs.model import COMPLETED, IN_PROGRESS, PENDING, REVIEW, Blocker, BoardTask, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


class BiluCompanion(Companion):
    def describe(self, task: BoardTask) -> None:
        entry = self.claims.get(task.id)
        if entry is not None:
            try:
                _describe(task, entry)
            except (TypeError, KeyError, ValueError, AttributeError):
                pass  # not an entry of ours: what the file says is enough

    def note(self, tasks: Iterable[BoardTask]) -> None:
        for task in tasks:
            self.claims.pop(task.id, None)
            self.claims[task.id] = _entry(task)  # at the end: the newest are kept longest

    def save(self) -> None:
        blocked = [i for i, entry in self.claims.items() if _is_blocked(entry)]
        for task_id in blocked:  # at the end: why a task is blocked matters longer than how another was done
            self.claims[task_id] = self.claims.pop(task_id)
        super().save()

    def settle(self, tasks: Mapping[str, BoardTask]) -> None:
        """End the claims that the files, read under the guard, no longer know. Otherwise a claim that was put back by
        hand would be matched with whatever hand takes the task next."""
        ended = [
            task
            for task_id, entry in self.claims.items()
            if entry.get("status") == IN_PROGRESS
            and (task := tasks.get(task_id)) is not None
            and task.status is not IN_PROGRESS
        ]
        self.note(ended)


def _entry(task: BoardTask) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "status": str(task.status),
        "created": task.created_at,
        "token": task.token,
        "attempts": task.attempts,
        "by": task.assigned_to,
        "result": task.result,
        "completed": task.completed_at,
    }
    entry = {key: value for key, value in entry.items() if value is not None}
    if task.holder is not None:
        entry |= {"worker": task.holder.as_dict(), "lease": task.lease, "claimed": task.claimed_at}
    if task.blockers:
        entry["blockers"] = [blocker.as_dict() for blocker in task.blockers]
    if task.status is IN_PROGRESS:
        entry["expires"] = task.lease_expires_at
    return entry


def _is_blocked(entry: Mapping[str, Any]) -> bool:
    return any("resolved_at" not in fields for fields in entry.get("blockers", ()))


def _describe(task: BoardTask, entry: Mapping[str, Any]) -> None:
    was = entry["status"]
    same = was == task.status
    created, completed, result = float(entry["created"]), _number(entry.get("completed")), entry.get("result")
    blockers = [_blocker(fields) for fields in entry.get("blockers", ())]
    holder = claim = None
    if "worker" in entry:
        holder = Worker(**entry["worker"])
        claim = (entry["by"], float(entry["lease"]), float(entry["claimed"]), _number(entry.get("expires")))
    # From here on nothing can fail: a row has all of an entry or nothing.
    task.created_at, task.attempts, task.blockers = created, entry.get("attempts") or 0, blockers
    if task.status is IN_PROGRESS and not (same and claim and claim[3]):
        return  # taken by hand
    task.token = entry.get("token")
    if same:
        task.result, task.completed_at = None if result is None else str(result), completed
    finished = was == IN_PROGRESS and task.status in (COMPLETED, REVIEW)
    if claim and task.status is not PENDING and (same or finished):
        task.holder = holder
        task.assigned_to, task.lease, task.claimed_at, expires = claim
        task.lease_expires_at = expires if task.status is IN_PROGRESS else None


def _blocker(fields: Mapping[str, Any]) -> Blocker:
    blocker = Blocker(**fields)
    blocker.raised_at, blocker.resolved_at = _number(blocker.raised_at), _number(blocker.resolved_at)
    return blocker


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
