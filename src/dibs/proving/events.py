"""The events that clients send to their hooks, as each documents them, and what a denial looks like in return. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Event = dict[str, Any]

_PATCHERS = ("apply_patch", "ApplyPatch")
_FIELDS: dict[str, dict[str, object]] = {
    "Edit": {"old_string": "a", "new_string": "b", "replace_all": False},
    "StrReplace": {"old_string": "a", "new_string": "b"},
    "replace": {"old_string": "a", "new_string": "b"},
    "NotebookEdit": {"new_source": "b\n"},
    "EditNotebook": {"new_string": "b\n"},
    "Delete": {},
}
"""What tools get besides a path; others get the new content."""
_PATHS = {"NotebookEdit": "notebook_path", "EditNotebook": "target_notebook", "StrReplace": "path", "Delete": "path"}
SHELLS = {
    "claude": ("PreToolUse", "Bash"),
    "codex": ("PreToolUse", "Bash"),
    "gemini": ("BeforeTool", "run_shell_command"),
    "cursor": ("beforeShellExecution", ""),
}
STARTS = {"claude": "SessionStart", "codex": "SessionStart", "gemini": "SessionStart", "cursor": "sessionStart"}


def attempt(client: str, session: str, root: str, path: str, event: str, tool: str) -> Event:
    """A tool, or a shell, is about to write to a path, which is relative to the root."""
    common = _common(client, session, root, event)
    line = f"echo b > {path}"
    if not tool:
        return {**common, "command": line, "sandbox": False}
    if (event, tool) == SHELLS[client]:
        fields: Event = {"command": line}
    elif tool in _PATCHERS:
        fields = {"command": f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch"}
    else:
        fields = {_PATHS.get(tool, "file_path"): f"{root}/{path}", **_FIELDS.get(tool, {"content": "b\n"})}
    return {**common, "tool_name": tool, "tool_input": fields, **_call(client)}


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
