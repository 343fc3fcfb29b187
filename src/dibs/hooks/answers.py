"""What a hook says, in each client's own form: a denial, a warning, a session's first words, or nothing. Pure.

All of it goes to stdout as one JSON document with exit code 0, which every client documents. Exit code 2 with a reason
on stderr is documented too, but Claude Code has let edits through after it, and cannot tell it from an interpreter that
did not find its script. There is no answer that allows: that would also answer the user's own permission prompt.

Nothing to say is empty stdout, except for Cursor: there a hook that prints nothing can count as broken, and what it was
asked about as denied. `{}` is a document without a decision.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.hooks.events import Event

    Answer = dict[str, Any] | None


def silence(event: Event) -> Answer:
    return {} if event.client == "cursor" else None


def deny(event: Event, reason: str) -> Answer:
    if event.client == "cursor":
        return {"permission": "deny", "user_message": reason, "agent_message": reason}
    if event.client == "gemini":
        return {"decision": "deny", "reason": reason}
    return _specific(event, permissionDecision="deny", permissionDecisionReason=reason)


def warn(event: Event, text: str) -> Answer:
    """A remark for the user that decides nothing."""
    return {} if event.client == "cursor" else {"systemMessage": text}


def prime(event: Event, text: str) -> Answer:
    """What the agent is to know from the start."""
    if event.client == "cursor":
        return {"additional_context": text}
    return _specific(event, additionalContext=text)


def _specific(event: Event, **fields: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event.name, **fields}}
