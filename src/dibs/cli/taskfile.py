"""`dibs add --file`: thousands of tasks from JSON lines or one JSON array, in one transaction. Errors name the line."""

from __future__ import annotations

import sys

from dibs import limits
from dibs.errors import DibsError, Duplicate, Invalid, NotFound
from dibs.jsontext import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.board import TaskBoard
    from dibs.model import Worker

_ALIASES = (("needs", "depends_on"), ("for", "reserved"))
"""The names of the options of `dibs add`, which work here too."""
_PLURALS = (("path", "paths"), ("label", "labels"), ("step", "steps"))

Entry = tuple[str, "dict[str, Any]"]


def add_file(board: TaskBoard, path: str, worker: Worker, request_key: str | None) -> list[str]:
    """Add what the file holds, all or nothing; the ids in its order."""
    return add_entries(board, path, read(path), worker, request_key)


def add_entries(
    board: TaskBoard, path: str, entries: list[Entry], worker: Worker, request_key: str | None = None
) -> list[str]:
    """The same with what has been read from the file already."""
    name = "stdin" if path == "-" else path
    if not entries:
        raise Invalid(f"{name} holds no task", hint="one JSON object or string a line, or one JSON array")
    definitions = [fields for _, fields in entries]
    try:
        return board.add_many(definitions, worker=worker, request_key=request_key)
    except DibsError as error:
        raise _located(board, entries, error, name) from error


def read(path: str) -> list[Entry]:
    """(where it stands, definition) for each task of a file; `-` is stdin."""
    if path == "-":
        if sys.stdin is None:
            raise Invalid("there is no stdin to read tasks from")
        data = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            data = file.read()
    name = "stdin" if path == "-" else path
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{name}, line {line}: not UTF-8 text; nothing was added") from None
    if text.lstrip()[:1] == "[":
        return _array(text, name)
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                entries.append((f"line {number}", _definition(loads(line))))
            except (ValueError, RecursionError) as error:
                why = error.message if isinstance(error, DibsError) else f"not a JSON object or string ({error})"
                raise Invalid(
                    f"{name}, line {number}: {why}; nothing was added",
                    hint='a line is {"description": "…", "priority": 1, …} or "…"',
                    line=number,
                ) from None
    return entries


def _array(text: str, name: str) -> list[Entry]:
    try:
        values = loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{name}: not a JSON array ({error}); nothing was added") from None
    entries = []
    for number, value in enumerate(values, 1):
        try:
            entries.append((f"entry {number}", _definition(value)))
        except Invalid as error:
            raise Invalid(f"{name}, entry {number}: {error.message}; nothing was added", hint=error.hint) from None
    return entries


def _definition(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        return {"description": value}
    if isinstance(value, dict):
        for alias, name in _ALIASES:
            if alias in value and name not in value:
                value[name] = value.pop(alias)
        for single, name in _PLURALS:
            if single in value:
                raise Invalid(f"a task has no {single!r}; did you mean {name}, a list?")
        return value
    raise Invalid(f"a task is a JSON object or string, not {type(value).__name__}")


def _located(board: TaskBoard, entries: list[Entry], error: DibsError, name: str) -> DibsError:
    """The error with the place in the file that it is about, found by looking again."""
    wanted = error.fields.get("task_id")
    seen: set[object] = set()
    for where, fields in entries:
        if isinstance(error, Invalid):
            try:
                limits.new_task(fields, board.core.paths.pattern)
            except Invalid as again:
                again.message = f"{name}, {where}: {again.message}; nothing was added"
                return again
        elif isinstance(error, NotFound):
            if wanted in (fields.get("depends_on") or ()) or wanted == fields.get("parent"):
                error.message = f"{name}, {where}: {error.message}; nothing was added"
                return error
        elif isinstance(error, Duplicate) and wanted is not None and fields.get("id") == wanted:
            # Twice in the file: the second is the one to point at, unless the board had it before.
            if wanted in seen or "twice" not in error.message:
                error.message = f"{name}, {where}: {error.message}; nothing was added"
                return error
            seen.add(wanted)
    return error
