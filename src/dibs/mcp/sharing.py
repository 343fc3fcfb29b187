"""What the tools for files and messages do with the board: lock, unlock, tell, read.

Each function gets the call and its checked arguments and returns the answer as a dict; what it refuses it raises. What
a call locked or marked as read is undone if nobody waits for its answer any more (`Call.undo_by`).
"""

from __future__ import annotations

import time

from dibs.errors import Busy, DibsError
from dibs.mcp import answers
from dibs.mcp.answers import Answer
from dibs.mcp.arguments import Arguments
from dibs.mcp.seat import SLICE, WAIT, Call, report
from dibs.recipient_hints import if_unknown

MESSAGES, MESSAGES_TEXT = 20, 20_000


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
        note = if_unknown(call.board, sent.to, call.worker) if sent.to is not None else ""
    except DibsError as error:
        report(error)  # it is sent, and the answer must not be lost for what only helps
        note = ""
    return {**shown, "note": note} if note else shown


def check_messages(call: Call, args: Arguments) -> Answer:
    board, who = call.board, call.worker
    end = time.monotonic() + args.get("wait_seconds", 0)
    mark = board.store.mark_change()
    unread = board.inbox(who, peek=True, limit=1)
    for length in call.until(end) if not unread else ():
        board.store.wait_change(mark, min(length, SLICE))
        mark = board.store.mark_change()
        if unread := board.inbox(who, peek=True, limit=1):
            break
    if not unread or call.gone:
        return {"messages": [], "more": False}
    taken = board.inbox(who, limit=MESSAGES, most_text=MESSAGES_TEXT)
    call.undo_by(lambda: board.unread(who, taken))
    answer: Answer = {"messages": [answers.message(given) for given in taken]}
    answer["more"] = bool(board.inbox(who, peek=True, limit=1))
    return {**answer, "data": answers.DATA}
