"""The events that clients send to their hooks, as each documents them, and what a denial looks like in return. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Event = dict[str, Any]

EDITS = {
    "claude": ("PreToolUse", "Edit"),
    "codex": ("PreToolUse", "apply_patch"),
    "gemini": ("BeforeTool", "write_file"),
    "cursor": ("preToolUse", "Write"),
}
"""The event and the tool with which an edit is attempted."""
SHELLS = {
    "claude": ("PreToolUse", "Bash"),
    "codex": ("PreToolUse", "Bash"),
    "gemini": ("BeforeTool", "run_shell_command"),
    "cursor": ("beforeShellExecution", ""),
}
STARTS = {"claude": "SessionStart", "codex": "SessionStart", "gemini": "SessionStart", "cursor": "sessionStart"}


def edit(client: str, session: str, root: str, path: str) -> Event:
    """`path` is relative to the root."""
    name, tool = EDITS[client]
    full = f"{root}/{path}"
    if client == "codex":
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch"
        fields: Event = {"command": patch}
    elif client == "claude":
        fields = {"file_path": full, "old_string": "a", "new_string": "b", "replace_all": False}
    else:
        fields = {"file_path": full, "content": "b\n"}
    return {**_common(client, session, root, name), "tool_name": tool, "tool_input": fields, **_call(client)}


def shell(client: str, session: str, root: str, path: str) -> Event:
    name, tool = SHELLS[client]
    line = f"echo b > {path}"
    if not tool:
        return {**_common(client, session, root, name), "command": line, "sandbox": False}
    return {**_common(client, session, root, name), "tool_name": tool, "tool_input": {"command": line}, **_call(client)}


def start(client: str, session: str, root: str) -> Event:
    more = {"is_background_agent": False, "composer_mode": "agent"} if client == "cursor" else {"source": "startup"}
    return {**_common(client, session, root, STARTS[client]), **more}


def _common(client: str, session: str, root: str, name: str) -> Event:
    event: Event = {"hook_event_name": name, "cwd": root}
    if client == "cursor":
        ids = {"conversation_id": session, "generation_id": session, "session_id": session}
        return {**event, **ids, "cursor_version": "2.0.0", "workspace_roots": [root], "model": "m", "user_email": None}
    event = {**event, "session_id": session, "transcript_path": None}
    if client == "codex":
        return {**event, "turn_id": session, "model": "m", "permission_mode": "default"}
    return {**event, "transcript_path": "", **({"permission_mode": "default"} if client == "claude" else {})}


def _call(client: str) -> Event:
    return {} if client == "gemini" else {"tool_use_id": "prove"}


# -- answers


def denial(client: str, answer: Any) -> str | None:
    """The reason that a hook's answer gives for refusing; None if it does not refuse."""
    if not isinstance(answer, dict):
        return None
    if client == "cursor":
        refused, reason = answer.get("permission") == "deny", answer.get("agent_message")
    elif client == "gemini":
        refused, reason = answer.get("decision") in ("deny", "block"), answer.get("reason")
    else:
        specific = answer.get("hookSpecificOutput")
        specific = specific if isinstance(specific, dict) else {}
        refused = specific.get("permissionDecision") == "deny" and specific.get("hookEventName") == "PreToolUse"
        reason = specific.get("permissionDecisionReason")
    return str(reason or "") if refused else None


def allows(client: str, answer: Any) -> bool:
    """Does an answer decide for the user, where it should have been silent?"""
    if not isinstance(answer, dict):
        return False
    specific = answer.get("hookSpecificOutput")
    decision = specific.get("permissionDecision") if isinstance(specific, dict) else None
    return decision in ("allow", "ask") or answer.get("permission") == "allow" or answer.get("decision") == "allow"


def first_words(client: str, answer: Any) -> str:
    """What the agent is told when a session starts."""
    if not isinstance(answer, dict):
        return ""
    specific = answer.get("hookSpecificOutput")
    told = answer.get("additional_context") if client == "cursor" else None
    told = specific.get("additionalContext") if isinstance(specific, dict) else told
    return told if isinstance(told, str) else ""
