"""A whole board from one store into another, empty one, and what could not be taken along.

Between two stores of dibs' own the copy is exact, history included (`transfer`). From or to a dialect's files the tasks
are copied as they stand: what the target's format has no place for is left out, task by task, and counted in the
report; a history is not carried into files that have none. Live claims stay with their holders, under new tokens.

The copy is one transaction of the target: all of it or nothing. What was left out is found out twice: by asking the
target's format (`refuse`), and by comparing what its files then say with what the source said.

`rehearse` copies onto a board of the same kind that is thrown away: whoever is to make the target first can so find
out, with nothing made yet, that the copy would fail.
"""

from __future__ import annotations

import os

from dibs import limits, transfer
from dibs.errors import BoardUnusable, DependencyCycle, Invalid, Unsupported
from dibs.ids import random_ids
from dibs.model import (
    CANCELLED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    REVIEW,
    BoardTask,
    Event,
    Lock,
    Message,
    Worker,
)
from dibs.rules import tasks as rules
from dibs.stores.memory import copy_task
from dibs.times import FOREVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from dibs.board import TaskBoard
    from dibs.dialects.filestore import FileStore
    from dibs.stores.base import Tx
    from dibs.transfer import Told

    T = TypeVar("T")


class Report:
    """What was copied, and what was not."""

    def __init__(self) -> None:
        self.tasks = 0
        self.messages = 0
        self.events = 0
        self.exact = False
        self.left_out: dict[str, list[str]] = {}
        """By what the target cannot keep: the tasks (by their ids on the source) that had it; the paths of locks."""
        self.became: dict[str, str] = {}
        """What the tasks in an entry of `left_out` are now, where that is not what they were."""
        self.renamed: dict[str, str] = {}
        self.history_left_out = 0
        self.messages_left_out = 0

    def leave_out(self, what: str, task_id: str) -> None:
        known = self.left_out.setdefault(what, [])
        if not known or known[-1] != task_id:
            known.append(task_id)


class Picture:
    """What a board holds, read in one transaction."""

    def __init__(self, tx: Tx) -> None:
        self.tasks: list[BoardTask] = list(tx.all_tasks())
        self.locks: list[Lock] = [lock for lock in tx.locks() if lock.task_id is None and lock.expires_at > tx.now]
        self.messages: list[Message] = tx.messages(None, 0, 2**31, newest=False)
        self.events = tx.last_event()


def copy(
    source: TaskBoard, target: TaskBoard, who: Worker, told: Told | None = None, *, rehearsed: bool = False
) -> Report:
    """Fill an empty board from another."""
    if is_same(source.url, target.url):
        raise Invalid(
            f"{source.url} and {target.url} are the same board; nothing was copied",
            hint="name another board as the target: dibs copy FROM TO",
        )
    report = Report()
    to_files = is_dialect(target)
    if not is_dialect(source) and not to_files:
        _exactly(source, target, report, told, rehearsed)
        return report
    with source.store.read() as tx:
        picture = Picture(tx)
    _settle_edges(picture.tasks, report)
    for lock in picture.locks:
        report.leave_out("locks", lock.pattern)
    if to_files:
        _into_files(target, picture.tasks, who, source.url, report)
        report.messages_left_out, report.history_left_out = len(picture.messages), picture.events
    else:
        _into_rows(target, picture, who, source.url, report)
        report.history_left_out = max(0, picture.events - len(picture.messages))
    return report


def rehearse(source: TaskBoard, target_url: str, who: Worker, told: Told | None = None) -> None:
    """Raise what copying onto a new board of this kind would raise; nothing is made where the target is to be."""
    from dibs.address import DIALECTS, open_store
    from dibs.board import TaskBoard

    scheme, _, rest = target_url.partition(":")
    if scheme not in DIALECTS:
        if is_dialect(source):
            copy(source, TaskBoard(), who)
        else:
            _refusing(source, lambda: transfer.check_board(source, told))
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="dibs-copy-") as folder:
        place = f"{scheme}:{os.path.join(folder, os.path.basename(os.path.normpath(rest)))}"
        # Who may make such a board is asked where it is really made.
        with TaskBoard(store=open_store(place, create=True, durability="normal", agent="planner-1")) as board:
            copy(source, board, who)


def is_dialect(board: TaskBoard) -> bool:
    return hasattr(board.store, "dialect")


def is_same(one: str, other: str) -> bool:
    """Do two URLs of open boards name one board?"""

    def place(url: str) -> tuple[str, str]:
        scheme, _, path = url.partition(":")
        if scheme == "postgresql":
            return scheme, path  # whose parameters name the board
        return scheme, os.path.realpath(path.partition("?")[0])

    return place(one) == place(other) and not one.startswith("memory:")


def _refusing(source: TaskBoard, act: Callable[[], T]) -> T:
    try:
        return act()
    except Invalid as error:
        for imported, copied in (("nothing was imported", "nothing was copied"), ("an export", "a board")):
            error.message = error.message.replace(imported, copied)
        error.message = error.message.replace("the export", "the board")
        if not error.hint:
            from shlex import quote

            error.hint = (
                f"see where they differ: dibs --board {quote(source.url)} doctor; locks of a task agree again when its "
                "holder ends it (dibs done, dibs release); for the rest go back to a backup"
            )
        raise


def _exactly(source: TaskBoard, target: TaskBoard, report: Report, told: Told | None, rehearsed: bool) -> None:
    try:
        report.tasks = _refusing(source, lambda: transfer.move(source, target, told, checked=rehearsed))
    except Invalid as error:
        with target.store.read() as tx:
            _require_empty(tx)
            if tx.last_event() > 1:  # more than that it was made
                raise Invalid(
                    "the target has a history of its own, and a copy would mix the two; nothing was copied",
                    hint="copy into a board that does not exist yet: dibs copy FROM sqlite:PATH",
                ) from error
        raise
    report.exact = True
    with target.store.read() as tx:
        report.events = tx.last_event()
        report.messages = len(tx.messages(None, 0, 2**31, newest=False))


def _settle_edges(tasks: Sequence[BoardTask], report: Report) -> None:
    """Files that were written by hand may name tasks that are not there; a board of dibs' own cannot."""
    by_id = {task.id: task for task in tasks}
    for task in tasks:
        for need in [need for need in task.depends_on if need not in by_id]:
            task.depends_on.remove(need)
            report.leave_out("dependencies on tasks that are not there", task.id)
        if task.parent is not None and task.parent not in by_id:
            task.parent = None
            report.leave_out("parents that are not there", task.id)
    from dibs.board.add import refuse_circles

    try:
        refuse_circles(tasks)
    except DependencyCycle as error:
        error.message = f"{error.message.replace('would wait', 'wait')}; nothing was copied"
        raise


def _count_unmet(tasks: Sequence[BoardTask], satisfied_by: Sequence[str]) -> None:
    by_id = {task.id: task for task in tasks}
    for task in tasks:
        task.unmet = sum(need not in by_id or by_id[need].status not in satisfied_by for need in task.depends_on)


def _require_empty(tx: Tx) -> None:
    if sum(tx.counts().values()):
        raise Invalid(
            "the target has tasks of its own, and a copy would mix the two; nothing was copied",
            hint="copy into a board that does not exist yet, or has no tasks",
        )


def _rename(
    tasks: Sequence[BoardTask], takes: Callable[[str], bool], new_ids: Callable[[Any], list[str]], report: Report
) -> None:
    """Give ids in the target's style to tasks whose own it cannot hold."""
    strange = [task for task in tasks if not takes(task.id)]
    if not strange:
        return
    kept = {task.id for task in tasks} - {task.id for task in strange}
    fresh = new_ids(strange)
    if kept.intersection(fresh):  # the style's next ids are taken by tasks that came with them: number all anew
        strange = list(tasks)
        fresh = new_ids(strange)
    report.renamed = {task.id: new for task, new in zip(strange, fresh, strict=True) if task.id != new}
    for task in tasks:
        task.id = report.renamed.get(task.id, task.id)
        task.depends_on = [report.renamed.get(need, need) for need in task.depends_on]
        if task.parent is not None:
            task.parent = report.renamed.get(task.parent, task.parent)


# -- into a dialect's files


def _into_files(target: TaskBoard, tasks: Sequence[BoardTask], who: Worker, origin: str, report: Report) -> None:
    store: FileStore = target.store  # type: ignore[assignment]
    before = [copy_task(task) for task in tasks]
    with store.write() as tx:
        _require_empty(tx)
        kept = [task for task in tasks if _fit(task, store.refuse, report)]
        _rename(kept, store.takes_id, store.new_ids, report)
        # A claim's token is its time here, and no two are the same: in order of time, none has to move far for that.
        for task in sorted(kept, key=lambda task: task.claimed_at or 0.0):
            if task.token is not None and task.claimed_at is not None:
                task.token = max(round(task.claimed_at * 1_000_000), store.top_token + 1)
                store.top_token = task.token
        _count_unmet(kept, store.satisfied_by)
        tx.insert(kept)
        tx.append([rules.event("copied_board", who, None, f"{len(kept)} tasks from {origin}")])
    store._forget()
    with store.read() as tx:
        after = {task.id: task for task in tx.all_tasks()}
    now = {report.renamed.get(task.id, task.id): task.id for task in before}
    arrived = [i for i in now if i in after]
    report.tasks = len(arrived)
    for here, there in zip(arrived, [i for i in after if i in now], strict=True):
        if here != there:
            report.leave_out("the order in which they were added", now[here])
    refused = {what: set(ids) for what, ids in report.left_out.items()}
    for task in before:
        found = after.get(report.renamed.get(task.id, task.id))
        if found is not None:
            _compare(task, found, refused, report)
        elif task.id not in refused.get("cancelled tasks", ()):
            report.leave_out("whole tasks", task.id)


_STRIPPED: dict[str, Callable[[BoardTask], object]] = {
    "blockers": lambda task: task.blockers.clear(),
    "labels": lambda task: task.labels.clear(),
    "leases": lambda task: setattr(task, "lease", FOREVER),
    "limits of attempts": lambda task: setattr(task, "max_attempts", None),
    "parents": lambda task: setattr(task, "parent", None),
    "paths": lambda task: task.paths.clear(),
    "priorities": lambda task: setattr(task, "priority", 0),
    "reservations": lambda task: setattr(task, "reserved", "any"),
    "results": lambda task: setattr(task, "result", None),
    "steps": lambda task: task.steps.clear(),
}


def _fit(task: BoardTask, refuse: Callable[[BoardTask, BoardTask | None], None], report: Report) -> bool:
    """Leave out of a task what the target refuses, until it does not; False if that is the whole task.

    A task that was cancelled and can be neither cancelled nor failed on the target stays behind: as a pending one
    somebody would do it.
    """
    tried: set[str] = set()
    given_up = task.status is CANCELLED
    while True:
        try:
            refuse(task, None)
            return True
        except Unsupported as error:
            what = str(error.fields.get("capability"))
            if task.status is REVIEW and what not in _STRIPPED:
                what = "reviews"
            if what in tried:
                raise
            tried.add(what)
            if what == "failed tasks" and given_up:
                report.became["cancelled tasks"] = "left out whole"
                return False
            report.leave_out(what, task.id)
            if what == "cancelled tasks":
                task.status = FAILED
                report.became[what] = "failed"
            elif what == "failed tasks":
                _put_back(task)
                report.became[what] = "pending"
            elif what == "reviews":
                if task.status is REVIEW:
                    task.status = COMPLETED
                    report.became["reviews"] = "completed, where they waited for one"
                task.review = False
            elif what in _STRIPPED:
                _STRIPPED[what](task)
            else:
                raise


def _put_back(task: BoardTask) -> None:
    task.status = PENDING
    task.assigned_to = task.holder = task.claimed_at = task.completed_at = task.lease = task.lease_expires_at = None


_KEPT: dict[str, str] = {
    "description": "descriptions word for word",
    "result": "results",
    "priority": "priorities",
    "depends_on": "dependencies",
    "paths": "paths",
    "labels": "labels",
    "steps": "steps",
    "blockers": "blockers",
    "parent": "parents",
    "reserved": "reservations",
    "max_attempts": "limits of attempts",
    "attempts": "numbers of attempts",
    "created_by": "names of who added them",
    "assigned_to": "names of who had them",
    "created_at": "times of creation",
    "claimed_at": "times of claims",
    "completed_at": "times of completion",
}
_TIMES = ("created_at", "claimed_at", "completed_at")


def _compare(task: BoardTask, found: BoardTask, refused: Mapping[str, set[str]], report: Report) -> None:
    """Report what the target's files do not say, though nobody refused it."""
    put_back = found.status is PENDING and task.status is not PENDING
    for field, what in _KEPT.items():
        was, now = getattr(task, field), getattr(found, field)
        if field == "depends_on":
            was = [report.renamed.get(need, need) for need in was]
        elif field == "parent":
            was = report.renamed.get(was, was)
        elif put_back and field in ("assigned_to", "claimed_at", "completed_at"):
            continue
        if was == now or (not was and not now) or task.id in refused.get(what, ()):
            continue
        if field in _TIMES and was is not None and now is not None and abs(was - now) < 1.0:
            if abs(was - now) > 0.001:  # a claim's time is its token here, and no two are the same
                report.leave_out("fractions of a second", task.id)
            continue
        report.leave_out(what, task.id)


# -- into a board of dibs' own


def _into_rows(target: TaskBoard, picture: Picture, who: Worker, origin: str, report: Report) -> None:
    """Rows, and a history that gives them: each task as it was added, and how it stood when it was copied."""
    tasks = picture.tasks
    _rename(tasks, _is_id, lambda strange: random_ids(len(strange)), report)
    for task in tasks:
        _tidy(task, report)
    _count_unmet(tasks, (COMPLETED,))
    with target.store.write() as tx:
        _require_empty(tx)
        begun = tx.last_event()
        events: list[Event] = []

        def log(event: Event, time: float) -> Event:
            event.seq, event.time = begun + len(events) + 1, time
            events.append(event)
            return event

        if not begun:
            log(rules.event("work_item_created", who, None, "board created"), tx.now)
        log(rules.event("copied_board", who, None, f"{len(tasks)} tasks from {origin}"), tx.now)
        locks = []
        for seq, task in enumerate(tasks, 1):
            task.seq, task.review = seq, task.review or task.status is REVIEW
            log(rules.event("added_activity", who, task, None, task=rules.definition(task)), tx.now)
            held = task.status is IN_PROGRESS
            changed = _standing(task)
            if not changed:
                continue
            event = rules.event("copied_activity", who, task, f"{task.status} on {origin}", set=changed)
            log(event, tx.now)
            if task.token is not None:
                task.token = changed["token"] = event.seq
            if held and task.paths and task.holder is not None:
                from dibs.rules import locks as lock_rules

                own = lock_rules.for_task(
                    task, task.holder, event.seq, task.claimed_at or tx.now, task.lease or 0.0, None
                )
                for lock in own:
                    lock.expires_at = task.lease_expires_at or lock.expires_at
                locks += own
                assert event.data is not None
                event.data["locks"] = [rules.lock_data(lock) for lock in own]
        for message in picture.messages:
            event = rules.event("sent_message", Worker(message.sender), None, message.content, to=message.to)
            message.seq = log(event, message.time).seq
        report.tasks, report.messages, report.events = len(tasks), len(picture.messages), len(events)
        tx.restore(tasks, locks, picture.messages, events, {}, {})


def _is_id(text: str) -> bool:
    try:
        limits.task_id(text)
    except Invalid:
        return False
    return True


def _tidy(task: BoardTask, report: Report) -> None:
    """Files that were written by hand may hold what no verb of dibs accepts."""
    if abs(task.priority) > limits.PRIORITY:
        task.priority = limits.PRIORITY if task.priority > 0 else -limits.PRIORITY
        report.leave_out(f"priorities beyond {limits.PRIORITY:,}", task.id)
    for field in ("depends_on", "paths", "labels"):
        setattr(task, field, list(dict.fromkeys(getattr(task, field))))
    if task.paths:
        from dibs.rules import paths

        usable = []
        for path in task.paths:
            try:
                usable.append(paths.normalise(path))
            except Invalid:
                report.leave_out("paths that are none", task.id)
        task.paths = list(dict.fromkeys(usable))
    for value in (task.description, task.result or ""):
        if len(value) > limits.TEXT_BYTES // 4 and len(value.encode(errors="replace")) > limits.TEXT_BYTES:
            raise BoardUnusable(
                f"task {task.id} has a text of more than {limits.TEXT_BYTES:,} bytes; nothing was copied",
                hint="put the long part into a file in the repository and name the file",
                task_id=task.id,
            )


def _standing(task: BoardTask) -> dict[str, Any]:
    """What distinguishes a task from a new one with its definition."""
    plain = BoardTask(task.id, "", created_at=0.0)
    changed: dict[str, Any] = {}
    for field in ("status", "assigned_to", "result", "claimed_at", "completed_at", "token", "lease",
                  "lease_expires_at", "attempts"):  # fmt: skip
        value = getattr(task, field)
        if value != getattr(plain, field):
            changed[field] = str(value) if field == "status" else value
    if task.holder is not None:
        changed["holder"] = task.holder.as_dict()
    if task.blockers:
        changed["blockers"] = [blocker.as_dict() for blocker in task.blockers]
    return changed
