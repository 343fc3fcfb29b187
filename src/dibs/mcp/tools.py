"""The ten tools: a table of what can be called, and what each does with the board.

A tool is (name, what it is for, its arguments, those that are required, hints for the client, function). The function
gets the call and its checked arguments and returns the answer as a dict. What it refuses it raises; `answer` is the
one place that turns this into a tool's result. The table is written to be short: a client's model reads all of it,
in every conversation.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from dibs import rules
from dibs.errors import Busy, DibsError, Invalid, NotClaimable, NotFound, WrongStatus
from dibs.mcp import answers
from dibs.mcp.arguments import checked, unknown
from dibs.mcp.seat import SLICE, Call, Gone
from dibs.model import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, OPEN, PENDING, REVIEW, BoardTask, Event, TaskStatus

WAIT = 45
"""Clients give up on a call after 60 seconds."""
PAGE, LONGEST_PAGE = 20, 100
MESSAGES, MESSAGES_TEXT = 20, 20_000
LOCKS = 20
LATELY = 200
"""So many events and messages are looked at for the names of workers."""

T = TypeVar("T")
Answer = dict[str, Any]
Arguments = dict[str, Any]


# -- work


def claim_task(call: Call, args: Arguments) -> Answer:
    board, who = call.board, call.worker
    task_id, key = args.get("task_id"), args.get("request_key")
    held = board.held_by(who)
    end = time.monotonic() + args.get("wait_seconds", 0)
    try:
        task = _claim_named(call, task_id, key, end) if task_id else _claim_any(call, key, end)
    except NotClaimable as error:
        _say_once(error)
        shown = answers.refusal(error)
        del shown["success"]
        return {"claimed": False, "message": shown.pop("error"), **shown, **_also(held)}
    if task is not None and key is None:  # with a request key the same call again finds the claim
        call.undo_by(_releasing(call, task))
    if task is None:
        return {"claimed": False, **_nothing(call, args.get("wait_seconds", 0)), **_also(held)}
    return _claimed(call, task, held)


def _releasing(call: Call, task: BoardTask) -> Callable[[], object]:
    note = "the request was cancelled"
    return lambda: call.board.release(task.id, worker=call.worker, token=task.token, note=note)


def _claim_any(call: Call, key: str | None, end: float) -> BoardTask | None:
    task = call.board.claim(call.worker, request_key=key)
    for length in call.until(end) if task is None else ():
        # Waiting only reads; a claim is tried when there is something.
        if call.board.wait(call.worker, length) and not call.gone:
            task = call.board.claim(call.worker, request_key=key)
            if task is not None:
                break
    return task


def _claim_named(call: Call, given: str, key: str | None, end: float) -> BoardTask:
    store = call.board.store
    slices = call.until(end)
    while True:
        mark = store.mark_change()
        try:
            return _by_id(call, given, lambda task_id: _taken(call, task_id, key))
        except NotClaimable as error:
            if not rules.may_pass(error):
                raise
            refused = error
        length = next(slices, None)  # raises `Gone` when nobody waits any more, so that nothing is claimed for nobody
        if length is None:
            raise refused
        store.wait_change(mark, length)


def _taken(call: Call, task_id: str, key: str | None) -> BoardTask:
    task = call.board.claim(call.worker, task_id, request_key=key)
    assert task is not None  # a named task is had or refused
    return task


def _say_once(error: NotClaimable) -> None:
    """That a task is held says it all: that its own paths are held with it is no further reason."""
    why, task_id = error.fields["reasons"], error.fields["task_id"]
    assert isinstance(why, list)
    own = [reason for reason in why if reason["code"] == "path" and reason["task_id"] == task_id]
    error.fields["reasons"] = [reason for reason in why if reason not in own]
    for reason in own:
        error.message = error.message.replace(f"; {reason['text']}", "", 1)


def _claimed(call: Call, task: BoardTask, held: Sequence[BoardTask] = ()) -> Answer:
    needs: list[BoardTask] = []
    before: list[Event] = []
    try:
        with call.board.store.read() as tx:
            needs = list(tx.get(task.depends_on).values())
        if task.attempts > 1:
            before = [e for e in call.board.recent(30, task.id) if e.details and e.action != "renewed_activity"][-3:]
    except DibsError as error:
        _report(error)  # the claim is made, and its answer must not be lost for what only helps
    shown = answers.claimed(task, needs, before, call.seat.kept)
    return {**shown, **_also([other for other in held if other.id != task.id])}


def _also(held: Sequence[BoardTask]) -> Answer:
    """What a worker holds besides: a claim whose answer was lost is found again here."""
    newest = sorted(held, key=lambda task: task.claimed_at or 0, reverse=True)[:PAGE]
    shown: Answer = {"also_holding": [{"task_id": task.id, "token": task.token} for task in newest]} if held else {}
    return {**shown, "also_holding_total": len(held)} if len(held) > PAGE else shown


def _nothing(call: Call, waited: float) -> Answer:
    """Why there is nothing to claim, and what to do about it."""
    counts = call.board.counts()
    open_now = {str(status): counts[status] for status in OPEN if counts[status]}
    if not open_now:
        done = f"all {sum(counts.values())} tasks are closed" if sum(counts.values()) else "the board has no tasks"
        failed = f" ({counts[FAILED]} failed)" if counts[FAILED] else ""
        return {"message": f"Nothing to claim: {done}{failed}. You can stop."}
    some, _ = call.board.tasks([PENDING], limit=3)
    why = {task.id: [reason.text for reason in call.board.reasons(task.id, call.worker)] for task in some}
    waiting = [{"task_id": task_id, "why": texts} for task_id, texts in why.items() if texts]
    standing = ", ".join(f"{number} {rules.spoken(status)}" for status, number in open_now.items())
    after = f" after {waited:g} s of waiting" if waited else ""
    advice = "Others' work may free some: call again with wait_seconds, or stop."
    own = len(call.board.held_by(call.worker))
    if own and own == counts[IN_PROGRESS]:
        advice = "What is in progress is yours: finish that first."
    elif not counts[IN_PROGRESS]:
        advice = "Nobody is working, so waiting alone frees nothing: see what the tasks wait for, or stop."
    message = f"Nothing to claim{after}: {standing}. {advice}"
    return {"message": message, "waiting": waiting} if waiting else {"message": message}


def complete_task(call: Call, args: Arguments) -> Answer:
    board, token, result = call.board, args.get("token"), args.get("result")

    def complete(task_id: str) -> BoardTask:
        call.owned(task_id, "complete", token)
        return board.complete(task_id, result, worker=call.worker, token=token)

    if not args.get("claim_next"):
        return _ended(call, _by_id(call, args["task_id"], complete))
    task = _by_id(call, args["task_id"], board.get)
    call.owned(task.id, "complete", token)
    if rules.is_repeat(task, (COMPLETED, REVIEW), call.worker, token):
        # The answer was lost. What was claimed then is still held, and is the answer again.
        held = sorted(board.held_by(call.worker), key=lambda other: other.claimed_at or 0)
        following, fresh = (held[-1], False) if held else (board.claim(call.worker), True)
    elif task.holder is not None and task.holder.is_same(call.worker) and token in (None, task.token):
        following, fresh = board.finish_claim(task, result, claim_next=True), True
    else:
        task = complete(task.id)
        following, fresh = board.claim(call.worker), True
    if following and fresh:
        call.undo_by(_releasing(call, following))
    shown = _ended(call, task)
    shown["next"] = _claimed(call, following) if following else {"claimed": False, **_nothing(call, 0)}
    return shown


def _ended(call: Call, task: BoardTask) -> Answer:
    call.seat.forget(task.id)
    shown: Answer = {"success": True, "task_id": task.id, "status": str(task.status)}
    if task.status is REVIEW:
        shown["message"] = "It asks for review: somebody else accepts or rejects it."
    return shown


def fail_task(call: Call, args: Arguments) -> Answer:
    def fail(task_id: str) -> BoardTask:
        call.owned(task_id, "fail", args.get("token"))
        return call.board.fail(task_id, args["error"], worker=call.worker, token=args.get("token"))

    return _ended(call, _by_id(call, args["task_id"], fail))


def release_task(call: Call, args: Arguments) -> Answer:
    def release(task_id: str) -> BoardTask:
        call.owned(task_id, "release", args.get("token"))
        return call.board.release(task_id, worker=call.worker, token=args.get("token"), note=args.get("note"))

    return _ended(call, _by_id(call, args["task_id"], release))


# -- tasks


def list_tasks(call: Call, args: Arguments) -> Answer:
    board = call.board
    if "task_id" in args:
        shown = _by_id(call, args["task_id"], lambda task_id: whole_task(call, task_id))
        return {"tasks": [shown], "total": 1, "more": False, "data": answers.DATA}
    limit, offset, search = args.get("limit", PAGE), args.get("offset", 0), args.get("search")
    total: int | None
    if args.get("status") == "ready":
        found = board.ready(call.worker, offset + limit + 1 if search is None else 2**31)
        found = [task for task in found if search is None or search.lower() in task.description.lower()]
        more = len(found) > offset + limit
        total = None if more and search is None else len(found)
        tasks = found[offset : offset + limit]
    else:
        wanted = {"all": list(TaskStatus), "open": list(OPEN)}.get(args.get("status", "all")) or [args["status"]]
        tasks, total = board.tasks(wanted, search=search, limit=limit, offset=offset)
        more = offset + len(tasks) < total
    rows = [answers.row(task) for task in tasks]
    answer: Answer = {"tasks": rows, "total": total, "more": more}
    if more:
        answer["next_offset"] = offset + len(rows)
    if answers.is_cut(rows):
        answer["note"] = answers.CUT
    if args.get("status") == IN_PROGRESS and not offset:
        answer.update(_locks(call))
    return {**answer, "data": answers.DATA} if rows else answer


def _locks(call: Call) -> Answer:
    """The locks that were taken on their own; those of tasks are the tasks' `paths`."""
    held = [lock for lock in call.board.locks() if lock.task_id is None]
    shown: Answer = {"locks": [answers.holding(lock) for lock in held[:LOCKS]]}
    return {**shown, "locks_total": len(held)} if len(held) > LOCKS else shown


def whole_task(call: Call, task_id: str) -> Answer:
    task = call.board.get(task_id)
    why = call.board.reasons(task_id, call.worker)
    return answers.whole(task, why, call.board.recent(10, task_id), call.worker)


_NEW = {"needs": "depends_on"}


def add_tasks(call: Call, args: Arguments) -> Answer:
    definitions = [{_NEW.get(key, key): value for key, value in task.items()} for task in args["tasks"]]
    try:
        ids = call.board.add_many(definitions, worker=call.worker, request_key=args.get("request_key"))
    except NotFound as error:
        raise _unknown_need(args["tasks"], error) from None
    names = {task["name"]: task_id for task, task_id in zip(args["tasks"], ids, strict=True) if task.get("name")}
    return {"success": True, "ids": ids, **({"names": names} if names else {})}


def _unknown_need(tasks: Sequence[Arguments], error: NotFound) -> NotFound:
    """The same error in the words of this call's arguments."""
    need = error.fields.get("task_id")
    for number, task in enumerate(tasks):
        for key, given in (("needs", task.get("needs", ())), ("parent", [task["parent"]] if "parent" in task else ())):
            if need in given:
                return NotFound(
                    f"tasks[{number}].{key}: there is no task {need!r}, neither in this call nor on the board",
                    hint="nothing was added; use the `name` of a task of this call, or a whole id from list_tasks",
                    task_id=need,
                )
    return error


# -- files


def lock_files(call: Call, args: Arguments) -> Answer:
    end = time.monotonic() + args.get("wait_seconds", 0)
    own = {held.pattern for held in call.board.locks(args["paths"]) if held.holder.is_same(call.worker)}

    def lock(wait: float) -> Answer:
        granted = call.board.lock(args["paths"], call.worker, shared=args.get("shared", False), wait=wait)
        fresh = [held.pattern for held in granted if held.pattern not in own]
        if fresh:
            call.undo_by(lambda: call.board.unlock(fresh, call.worker))
        token = max(held.token for held in granted)
        return {"locked": [held.pattern for held in granted], "token": token, **_lease(call, granted[0].expires_at)}

    try:
        return lock(0)
    except Busy as error:
        if not error.conflicts:
            raise
        refused = error
    for length in call.until(end):
        try:
            return lock(length)
        except Busy as error:
            refused = error
    refused.hint += f"; to wait for it: wait_seconds (up to {WAIT})"
    raise refused


def _lease(call: Call, expires_at: float) -> Answer:
    from dibs.times import iso

    shown: Answer = {"lease_expires_at": iso(expires_at)}
    return {**shown, "lease": "renewed for you while this connection lives"} if call.seat.kept else shown


def unlock_files(call: Call, args: Arguments) -> Answer:
    gone = call.board.unlock(args.get("paths"), call.worker)
    return {"success": True, "unlocked": [lock.pattern for lock in gone]}


# -- talk


def send_message(call: Call, args: Arguments) -> Answer:
    sent = call.board.tell(args["content"], args.get("to"), worker=call.worker, request_key=args.get("request_key"))
    shown = {"success": True, "to": sent.to or "everybody", "timestamp": answers.message(sent)["timestamp"]}
    try:
        note = _if_unknown(call, sent.to) if sent.to is not None else ""
    except DibsError as error:
        _report(error)  # it is sent, and the answer must not be lost for what only helps
        note = ""
    return {**shown, "note": note} if note else shown


def _if_unknown(call: Call, name: str) -> str:
    """What to say of a recipient who has left no trace on the board; a slip of the pen would otherwise go unnoticed."""
    with call.board.store.read() as tx:
        seen = {reader.partition("\n")[0] for reader in tx.marks()}
        seen |= {lock.holder.name for lock in tx.locks()}
        seen |= {task.assigned_to for task in tx.in_progress() if task.assigned_to}
        seen |= {message.sender for message in tx.messages(None, 0, LATELY, newest=True)}
        seen |= {event.worker for event in tx.events(tx.last_event() - LATELY, LATELY)}
    if name in seen or name == call.worker.name or call.board.tasks(assigned_to=name, limit=1)[1]:
        return ""
    others = sorted(seen - {call.worker.name, rules.SYSTEM.name})
    near = [other for other in others if other.startswith(name)] or get_close_matches(name, others, 3)
    return f"nobody called {name} has been seen here" + (f"; did you mean {' or '.join(near[:3])}?" if near else "")


def check_messages(call: Call, args: Arguments) -> Answer:
    board, who = call.board, call.worker
    end = time.monotonic() + args.get("wait_seconds", 0)
    mark = board.store.mark_change()
    unread = board.inbox(who, peek=True, limit=MESSAGES)
    for length in call.until(end) if not unread else ():
        board.store.wait_change(mark, min(length, SLICE))
        mark = board.store.mark_change()
        if unread := board.inbox(who, peek=True, limit=MESSAGES):
            break
    if not unread or call.gone:
        return {"messages": [], "more": False}
    size, number = 0, 0
    for given in unread:
        size += len(given.content)
        if number and size > MESSAGES_TEXT:
            break
        number += 1
    taken = board.inbox(who, limit=number)
    call.undo_by(lambda: board.unread(who, taken))
    answer: Answer = {"messages": [answers.message(given) for given in taken]}
    answer["more"] = bool(board.inbox(who, peek=True, limit=1))
    if taken and taken[0].seq > unread[0].seq:  # whoever reads for the first time begins with the newest
        answer["note"] = "older messages, from before you joined, are left out"
    return {**answer, "data": answers.DATA}


def _by_id(call: Call, given: str, act: Callable[[str], T]) -> T:
    """`act` on the task with this id or, if there is none, on the one whose id begins so."""
    try:
        return act(given)
    except NotFound as error:
        if error.fields.get("task_id") != given or (full := call.board.resolve(given)) == given:
            raise
    return act(full)


# -- the table

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

_BY_NAME = {tool[0]: tool for tool in TOOLS}


def schema(tool: Tool) -> dict[str, Any]:
    """A tool's arguments as JSON Schema."""
    made: dict[str, Any] = {"type": "object", "properties": tool[2]}
    return {**made, "required": list(tool[3])} if tool[3] else made


# -- calling


def answer(call: Call, name: str, given: Arguments) -> tuple[Answer, bool]:
    """What a tool says to these arguments, and whether that is an error. Raises only `Gone`."""
    failed = {"claim_task": {"claimed": False}, "lock_files": {"locked": False}}.get(name, {})
    try:
        tool = _known(name)
        shown, is_error = tool[5](call, _arguments(call, tool, given)), False
    except Gone:
        raise
    except DibsError as error:
        if isinstance(error, WrongStatus) and error.fields.get("status") in (CANCELLED, FAILED):
            error.hint = "stop working on it; take other work: dibs claim"  # to put it back is not for its worker
        shown, is_error = {**failed, **answers.refusal(error)}, True
        if name == "claim_task":
            shown["message"] = shown["error"]
        if isinstance(error, Busy) and error.conflicts:
            shown["held_by"] = sorted({lock.holder.name for lock in error.conflicts})
            shown["conflicts"] = [answers.lock(lock) for lock in error.conflicts[: answers.ROW_LIST]]
    except Exception as error:
        _report(error)
        text = f"internal error: {type(error).__name__}: {error}"
        shown, is_error = {**failed, "success": False, "error": text, "code": "internal"}, True
    return {**shown, **_news(call)}, is_error


def _arguments(call: Call, tool: Tool, given: Arguments) -> Arguments:
    try:
        return checked(given, schema(tool), f"{tool[0]}: ")
    except Invalid as error:
        if error.fields.get("missing") == "task_id":
            held = [task.id for task in call.board.held_by(call.worker)]
            more = ", …" if len(held) > answers.ROW_LIST else ""
            error.hint = f"you hold {', '.join(held[: answers.ROW_LIST])}{more}" if held else "you hold no task"
        raise


def _news(call: Call) -> Answer:
    """What the worker lost without ending it; said once, with whatever it calls next."""
    try:
        if call.seat.has_board:
            call.seat.keep()
    except Exception as error:
        _report(error)
    lost = [f"{loss.message}; {answers.in_tools(loss.hint)}" for loss in call.seat.news()]
    return {"lost": lost} if lost else {}


def _report(error: Exception) -> None:
    if os.environ.get("DIBS_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)


def _known(name: str) -> Tool:
    if name not in _BY_NAME:
        raise unknown(f"there is no tool {name!r:.60}", name, _BY_NAME)
    return _BY_NAME[name]
