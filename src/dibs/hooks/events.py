"""A coding client's hook event, read into one form. Pure: nothing is opened, and nothing raises but `ValueError`.

Every client sends one JSON object on stdin. Claude Code, Codex and Gemini CLI name the event in `hook_event_name`, the
tool in `tool_name` and its arguments in `tool_input`; Cursor does the same in camelCase, and has an event of its own
for shells whose `command` is not wrapped. Where an event is not known, or a tool does not write, there are no paths.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

EDIT, START, END, OTHER = "edit", "start", "end", "other"

_KINDS = {
    "pretooluse": EDIT,
    "beforetool": EDIT,
    "beforeshellexecution": EDIT,
    "sessionstart": START,
    "sessionend": END,
}
_EDITORS = frozenset(
    (
        *("edit", "write", "multiedit", "notebookedit"),  # Claude Code
        *("write_file", "replace"),  # Gemini CLI
        *("strreplace", "delete", "editnotebook"),  # Cursor, besides Write
    )
)
_PATCHERS = frozenset(("apply_patch", "applypatch"))
_SHELLS = frozenset(("bash", "shell", "run_shell_command"))
_PATHS = ("file_path", "notebook_path", "path", "target_notebook")
_FOLDERS = ("workdir", "dir_path", "directory", "working_directory", "cwd")


class Event:
    """What a client told us: `kind` is EDIT, START, END or OTHER; `paths` are what an EDIT would write, absolute.
    `doubt` says why it may write more than that, and so does `unnamed` where only closed hooks mind."""

    __slots__ = ("client", "doubt", "folder", "kind", "name", "paths", "reason", "roots", "session", "unnamed")

    def __init__(self, client: str, name: str, kind: str, session: str | None, folder: str) -> None:
        self.client = client
        self.name = name
        self.kind = kind
        self.session = session
        self.folder = folder
        self.roots: list[str] = []
        self.paths: list[str] = []
        self.reason = ""
        self.doubt = ""
        self.unnamed = ""


def read(client: str, document: Any, here: str) -> Event:
    """The event that a client's document describes; `here` is our own working directory, for one that names none."""
    event = head(client, document, here)
    find_paths(event, document)
    return event


def head(client: str, document: Any, here: str) -> Event:
    """The event without its paths, which can take a while to find."""
    if not isinstance(document, dict):
        raise ValueError("the event is not a JSON object")
    if "cursor_version" in document:
        client = "cursor"  # it also runs the hooks that are set up for Claude Code
    name = _text(document.get("hook_event_name"))
    kind = _KINDS.get(name.lower(), OTHER)
    session = _text(document.get("session_id")) or _text(document.get("conversation_id"))
    roots = [_local(root) for root in _list(document.get("workspace_roots")) if _text(root)]
    folder = _text(document.get("cwd")) or (roots[0] if roots else here)
    event = Event(client, name, kind, session if _is_name(session) else None, os.path.join(here, folder))
    event.roots = roots
    event.reason = _text(document.get("reason"))
    return event


def find_paths(event: Event, document: Mapping[str, Any]) -> None:
    if event.kind == EDIT:
        event.doubt = "what it would write was not found out in time"
        try:
            event.paths, doubt, event.unnamed = _paths(document, event.folder)
        except TooLong as error:
            doubt = str(error)
        event.doubt = doubt


class TooLong(Exception):
    """A command that is not looked at."""


def _paths(document: Mapping[str, Any], folder: str) -> tuple[list[str], str, str]:
    tool = _text(document.get("tool_name")).lower()
    given = document.get("tool_input")
    fields: Mapping[str, Any] = given if isinstance(given, dict) else {}
    if not tool and "command" in document:  # Cursor's beforeShellExecution
        return _shell(document["command"], folder)
    if tool in _SHELLS:
        chosen = next((value for key in _FOLDERS if (value := _text(fields.get(key)))), "")
        return _shell(fields.get("command"), os.path.join(folder, chosen))
    if tool in _PATCHERS:
        from dibs.hooks import patches

        text = given if isinstance(given, str) else _patch(fields)
        return [os.path.join(folder, path) for path in patches.paths(text)], "", ""
    if tool in _EDITORS:
        edits = [edit for edit in _list(fields.get("edits")) if isinstance(edit, dict)]
        found = [_text(each.get(key)) for each in (fields, *edits) for key in _PATHS]
        return list(dict.fromkeys(os.path.join(folder, path) for path in found if path)), "", ""
    return [], "", ""


def _shell(command: object, folder: str) -> tuple[list[str], str, str]:
    """A command line, or (as Codex once had it) a program and its arguments."""
    from dibs.hooks.shellwrites import LONGEST, look

    words = [word for word in _list(command) if isinstance(word, str)]
    if (len(command) if isinstance(command, str) else sum(map(len, words))) > LONGEST:
        raise TooLong(f"the command has more than {LONGEST >> 20} MiB, too much to look for what it writes")
    walk = look(command if isinstance(command, str) else words, folder)
    return list(dict.fromkeys(walk.found)), walk.doubt, walk.unnamed


def _patch(fields: Mapping[str, Any]) -> str:
    from dibs.hooks.patches import is_patch

    for key in ("command", "input", "patch"):
        value = fields.get(key)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and is_patch(text):
                return text
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) and "\0" not in value else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_name(session: str) -> bool:
    """Would a board take this as a session?"""
    return 0 < len(session) <= 200 and session.isprintable() and session == session.strip()


def _local(root: str) -> str:
    """A workspace folder as Cursor gives it on Windows: /C:/Users/me."""
    return root[1:] if os.name == "nt" and root[:1] == "/" and root[2:3] == ":" else root
