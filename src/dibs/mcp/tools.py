"""The ten tools: a table of what can be called, and calling it. What they do is in `work` and `sharing`.

A tool is (name, what it is for, its arguments, those that are required, hints for the client, function). The function
gets the call and its checked arguments and returns the answer as a dict. What it refuses it raises; `answer` is the
one place that turns this into a tool's result. The table is written to be short: a client's model reads all of it,
in every conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dibs.errors import BoardMoved, BoardUnusable, Busy, DibsError, Invalid, OutcomeUnknown, WrongStatus
from dibs.mcp import answers
from dibs.mcp.answers import Answer
from dibs.mcp.arguments import Arguments, checked, unknown
from dibs.mcp.seat import WAIT, Call, Gone, report
from dibs.mcp.sharing import check_messages, lock_files, send_message, unlock_files
from dibs.mcp.work import PAGE, add_tasks, claim_task, complete_task, fail_task, list_tasks, release_task
from dibs.model import CANCELLED, FAILED, TaskStatus

LONGEST_PAGE = 100

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_YES = {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}


def _said(kind: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    return {**kind, **more, "description": description}


_ID = _TEXT
_TOKEN = _said(_WHOLE, "from claim_task")
_KEY = _said(_TEXT, "any unique text; repeating the call with it has no second effect")
_SECONDS = {"type": "number", "minimum": 0, "maximum": WAIT}
_STATUSES = ("all", "open", "ready", *(str(status) for status in TaskStatus))

READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"destructiveHint": False, "openWorldHint": False}
REPEATS = {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False}

Tool = tuple[str, str, dict[str, dict[str, Any]], tuple[str, ...], dict[str, bool], Callable[[Call, Arguments], Answer]]

TOOLS: tuple[Tool, ...] = (
    (
        "claim_task",
        "Take the best available task, or task_id. It is yours alone, its files are locked. Keep the token. "
        "claimed=false says why.",
        {
            "task_id": _ID,
            "wait_seconds": _said(_SECONDS, "wait for one"),
            "request_key": _KEY,
        },
        (), WRITES, claim_task,
    ),
    (
        "complete_task",
        "Finish your task. success=false: you no longer hold it, stop working on it.",
        {
            "task_id": _ID,
            "result": _said(_TEXT, "what you did, for others"),
            "token": _TOKEN,
            "claim_next": _said(_YES, "also claim the next, in `next`"),
        },
        ("task_id",), REPEATS, complete_task,
    ),
    (
        "fail_task",
        "End your task as failed: nobody could do it. What depends on it stays blocked.",
        {"task_id": _ID, "error": _said(_TEXT, "why"), "token": _TOKEN},
        ("task_id", "error"), REPEATS, fail_task,
    ),
    (
        "release_task",
        "Give your task back unfinished, for others.",
        {"task_id": _ID, "note": _said(_TEXT, "why, what is done"), "token": _TOKEN},
        ("task_id",), REPEATS, release_task,
    ),
    (
        "list_tasks",
        "The board: in progress (with locks), ready, waiting, closed. With task_id: one task whole, why it can't be "
        "claimed.",
        {
            "task_id": _ID,
            "status": {"enum": list(_STATUSES)},
            "search": _said(_TEXT, "in descriptions"),
            "limit": _said(_WHOLE, f"default {PAGE}", minimum=1, maximum=LONGEST_PAGE),
            "offset": {**_WHOLE, "minimum": 0},
        },
        (), READS, list_tasks,
    ),
    (
        "add_tasks",
        "Add tasks, all or none. Answers ids, in order.",
        {
            "tasks": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "description": _said(_TEXT, "whole work order"),
                        "name": _said(_TEXT, "to refer to it in this call"),
                        "needs": _said(_TEXTS, "names or ids to be completed first"),
                        "priority": _said(_WHOLE, "higher first"),
                        "paths": _said(_TEXTS, "files, folders, globs that a claim locks"),
                        "labels": _TEXTS,
                        "steps": _TEXTS,
                        "parent": _said(_TEXT, "name or id"),
                        "reserved": {"enum": ["any", "agent", "human"]},
                        "review": _said(_YES, "somebody else must accept it"),
                        "max_attempts": _WHOLE,
                    },
                    "required": ["description"],
                },
            },
            "request_key": _KEY,
        },
        ("tasks",), WRITES, add_tasks,
    ),
    (
        "lock_files",
        "Lock files, folders or globs (src/auth/**) before you edit them: all or none. Again renews.",
        {
            "paths": _TEXTS,
            "shared": _said(_YES, "for reading: others may share it"),
            "wait_seconds": _SECONDS,
        },
        ("paths",), REPEATS, lock_files,
    ),
    (
        "unlock_files",
        "Give back locks of yours.",
        {"paths": _said(_TEXTS, "default: all but those of your tasks")},
        (), REPEATS, unlock_files,
    ),
    (
        "send_message",
        "Tell a worker, or everybody.",
        {"content": _TEXT, "to": _said(_TEXT, "worker; default everybody"), "request_key": _KEY},
        ("content",), WRITES, send_message,
    ),
    (
        "check_messages",
        "Your unread messages; they then count as read.",
        {"wait_seconds": _SECONDS},
        (), WRITES, check_messages,
    ),
)  # fmt: skip

_STAYS = "what you hold stays yours until its lease ends; try again in a minute"
"""Said when the server of a board cannot be reached."""

_BY_NAME = {tool[0]: tool for tool in TOOLS}


def schema(tool: Tool) -> dict[str, Any]:
    """A tool's arguments as JSON Schema."""
    made: dict[str, Any] = {"type": "object", "properties": tool[2]}
    return {**made, "required": list(tool[3])} if tool[3] else made


# -- calling


def answer(call: Call, name: str, given: Arguments) -> tuple[Answer, bool]:
    """What a tool says to these arguments, and whether that is an error. Raises only `Gone`."""
    is_away = False
    failed = {"claim_task": {"claimed": False}, "lock_files": {"locked": False}}.get(name, {})
    try:
        tool = _known(name)
        shown, is_error = tool[5](call, _arguments(call, tool, given)), False
    except Gone:
        raise
    except DibsError as error:
        if isinstance(error, WrongStatus) and error.fields.get("status") in (CANCELLED, FAILED):
            error.hint = "stop working on it; take other work: dibs claim"  # to put it back is not for its worker
        if isinstance(error, BoardUnusable | BoardMoved | OutcomeUnknown):
            is_away = True
            if str(error.fields.get("url", "")).startswith("postgresql:"):
                error.hint = f"{_STAYS}; {error.hint}"
        shown, is_error = {**failed, **answers.refusal(error)}, True
        if name == "claim_task":
            shown["message"] = shown["error"]
        if isinstance(error, Busy) and error.conflicts:
            shown["held_by"] = sorted({lock.holder.name for lock in error.conflicts})
            shown["conflicts"] = [answers.lock(lock) for lock in error.conflicts[: answers.ROW_LIST]]
    except Exception as error:
        report(error)
        text = f"internal error: {type(error).__name__}: {error}"
        shown, is_error = {**failed, "success": False, "error": text, "code": "internal"}, True
    return {**shown, **_news(call, is_away)}, is_error


def _arguments(call: Call, tool: Tool, given: Arguments) -> Arguments:
    try:
        return checked(given, schema(tool), f"{tool[0]}: ")
    except Invalid as error:
        if error.fields.get("missing") == "task_id":
            held = [task.id for task in call.board.held_by(call.worker)]
            more = ", …" if len(held) > answers.ROW_LIST else ""
            error.hint = f"you hold {', '.join(held[: answers.ROW_LIST])}{more}" if held else "you hold no task"
        raise


def _news(call: Call, is_away: bool) -> Answer:
    """What the worker lost without ending it; said once, with whatever it calls next. A board that is away is not asked
    a second time: that would take as long again."""
    try:
        if call.seat.has_board and not is_away:
            call.seat.keep()
    except Exception as error:
        report(error)
    lost = [f"{loss.message}; {answers.in_tools(loss.hint)}" for loss in call.seat.news()]
    return {"lost": lost} if lost else {}


def _known(name: str) -> Tool:
    if name not in _BY_NAME:
        raise unknown(f"there is no tool {name!r:.60}", name, _BY_NAME)
    return _BY_NAME[name]
