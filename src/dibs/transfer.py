"""A whole board as JSON lines, and back: tasks, locks, messages, changelog, read marks and request keys, each exactly
as it is.

The first line says what this is: `{"dibs": 1, "tasks": N, "events": N}`; then one object a line, `{"task": {…}}`,
`{"lock": {…}}`, `{"message": {…}}`, `{"event": {…}}`, `{"reader": …}`, `{"request": …}`; the last is `{"end": N}`
with the number of lines before it, so that a cut file is noticed. Numbers and times are kept to the last digit, so a
restored board continues the same changelog with the same tokens.

`load` fills an empty board, all or nothing.
"""

from __future__ import annotations

from itertools import pairwise

from dibs import limits
from dibs.adding import refuse_circles
from dibs.errors import DibsError, Invalid
from dibs.jsontext import dumps, loads
from dibs.model import COMPLETED, Blocker, BoardTask, Event, Lock, Message, Step, TaskStatus, Worker
from dibs.replay import replay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from dibs.board import TaskBoard
    from dibs.store import Tx

FORMAT = 1
HIGHEST = 2**53
"""No number of a task or an event is larger: JSON readers elsewhere keep integers up to here exactly."""


def dump(board: TaskBoard) -> Iterator[str]:
    """The lines of an export, without line ends, from one consistent state."""
    with board.store.read() as tx:
        number = 0
        for number, line in enumerate(_lines(tx), 1):  # noqa: B007 - counted for the last line
            yield dumps(line)
        yield dumps({"end": number})


def _lines(tx: Tx) -> Iterator[dict[str, Any]]:
    yield {"dibs": FORMAT, "tasks": sum(tx.counts().values()), "events": tx.last_event()}
    for task in tx.all_tasks():
        yield {"task": _task(task)}
    for lock in tx.locks():
        yield {"lock": {**lock.as_dict(), "holder": lock.holder.as_dict()}}
    for message in tx.messages(None, 0, 2**62, newest=False):
        yield {"message": message.as_dict()}
    after = 0
    while events := tx.events(after, 2000):
        after = events[-1].seq
        for event in events:
            yield {"event": event.as_dict()}
    for reader, mark in tx.marks().items():
        yield {"reader": reader, "mark": mark}
    for key, (answer, time) in tx.requests().items():
        yield {"request": key, "answer": answer, "time": time}


def _task(task: BoardTask) -> dict[str, Any]:
    fields = {
        name: value
        for name in BoardTask.__slots__
        if name != "_board" and (value := getattr(task, name)) is not None and value is not False and value != []
    }
    fields["status"] = str(task.status)
    if task.holder:
        fields["holder"] = task.holder.as_dict()
    if task.steps:
        fields["steps"] = [step.as_dict() for step in task.steps]
    if task.blockers:
        fields["blockers"] = [blocker.as_dict() for blocker in task.blockers]
    return fields


def load(board: TaskBoard, lines: Iterable[str]) -> int:
    """Fill an empty board from an export; the number of tasks."""
    tasks: list[BoardTask] = []
    locks: list[Lock] = []
    messages: list[Message] = []
    events: list[Event] = []
    marks: dict[str, int] = {}
    requests: dict[str, tuple[str, float]] = {}
    number = 0
    ended = False
    for number, line in enumerate(lines, 1):
        if ended:
            raise Invalid(f"line {number} comes after the end of the export")
        try:
            entry = loads(line)
            if number == 1:
                if not isinstance(entry, dict) or entry.get("dibs") != FORMAT:
                    raise Invalid(
                        "this is not an export of dibs, or one of a newer version",
                        hint="write one with: dibs export FILE",
                    )
            elif "task" in entry:
                tasks.append(_read_task(entry["task"]))
            elif "event" in entry:
                events.append(Event(**entry["event"]))
            elif "lock" in entry:
                locks.append(Lock(**{**entry["lock"], "holder": Worker(**entry["lock"]["holder"])}))
            elif "message" in entry:
                messages.append(Message(**entry["message"]))
            elif "reader" in entry:
                marks[entry["reader"]] = entry["mark"]
            elif "request" in entry:
                requests[entry["request"]] = (entry["answer"], entry["time"])
            elif "end" in entry:
                ended = entry["end"] == number - 1
                if not ended:
                    raise Invalid(f"the export should have {entry['end'] + 1} lines, and ends at line {number}")
            else:
                raise Invalid("unknown kind of line")
        except Invalid as error:
            error.message = f"line {number}: {error.message}; nothing was imported"
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise Invalid(f"line {number} is not a line of an export ({error}); nothing was imported") from error
    if not ended:
        raise Invalid(
            f"the export is cut off after line {number}; nothing was imported", hint="export again: dibs export FILE"
        )
    try:
        _check(tasks, locks, events)
        _check_rest(events, messages, marks, requests)
    except DibsError as error:
        raise Invalid(f"{error.message}; nothing was imported", hint=error.hint) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"this is not an export that dibs wrote ({error}); nothing was imported") from error
    with board.store.write() as tx:
        begun = tx.last_event()  # 1 if the board was made by `dibs init`, whose event then stands for the export's own
        if sum(tx.counts().values()) or begun > 1 or (begun and events and events[0].action != "work_item_created"):
            raise Invalid(
                "this board has a history of its own, and an import would mix the two; nothing was imported",
                hint="import into a board file that does not exist yet: dibs --board sqlite:PATH import FILE",
            )
        try:
            tx.restore(tasks, locks, messages, events[begun:], marks, requests)
        except DibsError:
            raise
        except Exception as error:
            raise Invalid(f"this is not an export that dibs wrote ({error}); nothing was imported") from error
    return len(tasks)


def _read_task(fields: dict[str, Any]) -> BoardTask:
    fields = dict(fields)
    fields["status"] = TaskStatus(fields["status"])
    if "holder" in fields:
        fields["holder"] = Worker(**fields["holder"])
    fields["steps"] = [Step(**step) for step in fields.get("steps", ())]
    fields["blockers"] = [Blocker(**blocker) for blocker in fields.get("blockers", ())]
    return BoardTask(**fields)


def _check(tasks: list[BoardTask], locks: list[Lock], events: list[Event]) -> None:
    """Refuse what no board can have written: the changelog must give exactly these tasks and locks."""
    ids = {task.id for task in tasks}
    if len(ids) < len(tasks) or len({task.seq for task in tasks}) < len(tasks):
        raise Invalid("the export names a task twice")
    for task in tasks:
        limits.task_id(task.id)
        limits.integer(task.seq, "seq", 1, HIGHEST)
        for need in task.depends_on:
            if need not in ids:
                raise Invalid(f"task {task.id} depends on {need}, which the export does not have")
    refuse_circles(tasks)
    for event in events:
        limits.integer(event.seq, "seq", 1, HIGHEST)
    if any(a.seq >= b.seq for a, b in pairwise(events)):
        raise Invalid("the export's changelog is out of order")
    state = replay(events)
    by_id = {task.id: task for task in tasks}
    if state.tasks.keys() != ids:
        raise Invalid("the export's changelog has other tasks than the export")
    for task in tasks:
        replayed = state.tasks[task.id]
        replayed.seq = task.seq
        task.unmet = replayed.unmet = sum(by_id[need].status is not COMPLETED for need in task.depends_on)
        if replayed != task:
            raise Invalid(f"task {task.id} is not what the export's changelog says")
    if {(lock.pattern, lock.token): lock for lock in locks} != state.locks:
        raise Invalid("the export's locks are not what its changelog says")


def _check_rest(
    events: list[Event], messages: list[Message], marks: dict[str, int], requests: dict[str, tuple[str, float]]
) -> None:
    for event in events:
        _number(event.time, "an event's time")
        limits.text(event.worker, "an event's worker")
        limits.kind(event.worker_type)
        limits.text(event.action, "an event's action")
        limits.optional_text(event.task_id, "an event's task")
        limits.optional_text(event.step_id, "an event's step")
        limits.optional_text(event.details, "an event's details")
        data: object = event.data
        if not isinstance(data, dict | None):
            raise Invalid(f"event {event.seq} is not one that dibs writes")
    for message in messages:
        limits.integer(message.seq, "a message's seq", 1, HIGHEST)
        _number(message.time, "a message's time")
        limits.name(message.sender, "sender")
        limits.text(message.content, "a message")
        if message.to is not None:
            limits.name(message.to, "recipient")
    for reader, mark in marks.items():
        limits.text(reader, "a reader")
        limits.integer(mark, "a read mark", 0, HIGHEST)
    for key, (answer, time) in requests.items():
        limits.text(key, "a request key")
        _number(time, "a request's time")
        entry = loads(limits.text(answer, "a remembered answer"))
        if not isinstance(entry, list) or len(entry) != 2:
            raise Invalid("a remembered answer is not one that dibs writes")


def _number(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(f"{what} must be a number, not {value!r:.40}")
