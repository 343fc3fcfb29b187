"""What the tools for tasks do with the board: claim, complete, fail, give back, list, add.

Each function gets the call and its checked arguments and returns the answer as a dict; what it refuses it raises. What
a call took is given back if nobody waits for its answer any more (`Call.undo_by`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dibs.errors import DibsError, NotClaimable, NotFound
from dibs.mcp import answers
from dibs.mcp.answers import Answer
from dibs.mcp.arguments import Arguments
from dibs.mcp.seat import WAIT, Call, report
from dibs.model import COMPLETED, FAILED, IN_PROGRESS, OPEN, PENDING, REVIEW, BoardTask, Event, TaskStatus
from dibs.pool import notice
from dibs.rules import tasks as rules

PAGE = 20
LOCKS = 20
LOOK = 2.0
"""Seconds after which a wait looks although nothing was written: leases run out, and processes die, in silence."""

T = TypeVar("T")


# -- one's own


def claim_task(call: Call, args: Arguments) -> Answer:
    board, who = call.board, call.worker
    task_id, key = args.get("task_id"), args.get("request_key")
    held = board.held_by(who)
    team = notice.around(who.name)
    patience = args.get("wait_seconds", WAIT if team is not None and not task_id and not team.is_over else 0)
    end = time.monotonic() + patience
    try:
        task = _claim_named(call, task_id, key, end) if task_id else _claim_any(call, key, end)
    except NotClaimable as error:
        shown = answers.refusal(error)
        del shown["success"]
        return {"claimed": False, "message": shown.pop("error"), **shown, **_also(held)}
    if task is not None and key is None:  # with a request key the same call again finds the claim
        call.undo_by(_releasing(call, task))
    if task is None:
        return {"claimed": False, **_nothing(call, patience), **_also(held)}
    return _claimed(call, task, held)


def _releasing(call: Call, task: BoardTask) -> Callable[[], object]:
    note = "the request was cancelled"
    return lambda: call.board.release(task.id, worker=call.worker, token=task.token, note=note)


def _claim_any(call: Call, key: str | None, end: float) -> BoardTask | None:
    store = call.board.store
    mark = store.mark_change()
    task = call.board.claim(call.worker, request_key=key)
    look_at = time.monotonic() + LOOK
    for length in call.until(end) if task is None else ():
        team = notice.around(call.worker.name)
        if team is not None and team.is_over:
            break
        if not store.wait_change(mark, length) and time.monotonic() < look_at:
            continue
        mark, look_at = store.mark_change(), time.monotonic() + LOOK
        # Looking only reads; a claim is tried when there is something.
        if call.board.wait(call.worker, 0) and not call.gone:
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


def _claimed(call: Call, task: BoardTask, held: Sequence[BoardTask] = ()) -> Answer:
    needs: list[BoardTask] = []
    before: list[Event] = []
    try:
        with call.board.store.read() as tx:
            needs = list(tx.get(task.depends_on).values())
        if task.attempts > 1:
            before = [e for e in call.board.recent(30, task.id) if e.details and e.action != "renewed_activity"][-3:]
    except DibsError as error:
        report(error)  # the claim is made, and its answer must not be lost for what only helps
    shown = answers.claimed(task, needs, before, call.seat.kept)
    return {**shown, **_also([other for other in held if other.id != task.id])}


def _also(held: Sequence[BoardTask]) -> Answer:
    """What a worker holds besides: a claim whose answer was lost is found again here."""
    newest = sorted(held, key=lambda task: task.claimed_at or 0, reverse=True)[:PAGE]
    shown: Answer = {"also_holding": [{"task_id": task.id, "token": task.token} for task in newest]} if held else {}
    return {**shown, "also_holding_total": len(held)} if len(held) > PAGE else shown


def _nothing(call: Call, waited: float) -> Answer:
    """Why there is nothing to claim, and what to do about it: in a team that is for the team to say."""
    team = notice.around(call.worker.name)
    answer = _standing(call, waited, None if team is None else team.advice)
    return answer if team is None else {**answer, "team": team.word}


def _standing(call: Call, waited: float, advised: str | None) -> Answer:
    counts = call.board.counts()
    open_now = {str(status): counts[status] for status in OPEN if counts[status]}
    if not open_now:
        done = f"all {sum(counts.values())} tasks are closed" if sum(counts.values()) else "the board has no tasks"
        failed = f" ({counts[FAILED]} failed)" if counts[FAILED] else ""
        return {"message": f"Nothing to claim: {done}{failed}. {advised or 'You can stop.'}"}
    some, _ = call.board.tasks([PENDING], limit=3)
    why = {task.id: [reason.text for reason in call.board.reasons(task.id, call.worker)] for task in some}
    waiting = [{"task_id": task_id, "why": texts} for task_id, texts in why.items() if texts]
    standing = ", ".join(f"{number} {rules.spoken(status)}" for status, number in open_now.items())
    after = f" after {waited:g} s of waiting" if waited else ""
    advice = "Others' work may free some: call again with wait_seconds, or stop."
    own = len(call.board.held_by(call.worker))
    if own and own == counts[IN_PROGRESS]:
        advice = "What is in progress is yours: finish that first."
    elif advised:
        advice = advised
    elif not counts[IN_PROGRESS] and all(lock.holder.is_same(call.worker) for lock in call.board.locks()):
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
        following, fresh = (held[-1], False) if held else (board.claim_next(call.worker), True)
    elif task.holder is not None and task.holder.is_same(call.worker) and token in (None, task.token):
        following, fresh = board.finish_claim(task, result, claim_next=True), True
    else:
        task = complete(task.id)
        following, fresh = board.claim_next(call.worker), True
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
    kept = board.kept_by_files(tasks, call.worker)
    rows = [answers.row(task, kept) for task in tasks]
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


def _by_id(call: Call, given: str, act: Callable[[str], T]) -> T:
    """`act` on the task with this id or, if there is none, on the one whose id begins so."""
    try:
        return act(given)
    except NotFound as error:
        if error.fields.get("task_id") != given or (full := call.board.resolve(given)) == given:
            raise
    return act(full)
