"""Entries of the changelog in plain words. The names that programs read are in docs/concepts.md."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.model import Event

DID = {
    "work_item_created": "made the board",
    "added_activity": "added",
    "claimed_activity": "claimed",
    "renewed_activity": "renewed",
    "completed_activity": "completed",
    "submitted_activity": "handed in",
    "accepted_activity": "accepted",
    "rejected_activity": "sent back",
    "failed_activity": "failed",
    "released_activity": "released",
    "recovered_activity": "gave back",
    "cancelled_activity": "cancelled",
    "retried_activity": "put back",
    "added_dependency": "changed",
    "dropped_dependency": "changed",
    "added_task": "added step",
    "claimed_task": "started step",
    "completed_task": "finished step",
    "skipped_task": "skipped step",
    "locked_files": "locked",
    "unlocked_files": "unlocked",
    "renewed_locks": "renewed locks",
    "sent_message": "told everybody",
    "adjusted_clock": "moved the leases with the clock",
}
"""What somebody did; other actions are words already."""

_WAS = {"recovered_activity": "given back", "released_activity": "given back"}


def did(event: Event) -> str:
    """`claimed`, `finished step s1`, `told bob`."""
    word = DID.get(event.action, event.action.replace("_", " "))
    if event.action == "sent_message" and event.data and event.data.get("to"):
        from dibs.cli.render import safe

        return f"told {safe(event.data['to'])}"
    return f"{word} {event.step_id}" if event.step_id else word


def was(event: Event, now: float) -> str:
    """`was cancelled by bob 3s ago`, for the end of a claim."""
    from dibs.times import ago

    word = _WAS.get(event.action, DID.get(event.action, event.action))
    why = f": {' '.join(event.details.split())[:200]}" if event.details else ""
    return f"was {word} by {event.worker} {ago(event.time, now)}{why}"
