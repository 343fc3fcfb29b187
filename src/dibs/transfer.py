"""A whole board as JSON lines, and back: tasks, locks, messages, changelog, read marks and request keys, each exactly
as it is.

The first line says what this is: `{"dibs": 1, "tasks": N, "events": N}`; then one object a line, `{"task": {…}}`,
`{"lock": {…}}`, `{"message": {…}}`, `{"event": {…}}`, `{"reader": …}`, `{"request": …}`; the last is `{"end": N}`
with the number of lines before it, so that a cut file is noticed. Numbers and times are kept to the last digit, so a
restored board continues the same changelog with the same tokens.

`load` fills an empty board from an export, `move` from another board, all or nothing. Neither holds the whole board
in memory if the target's store can help it: what is to come in is gone over several times (`Rows`), first to check it
(`check`), then to write it.
"""

from __future__ import annotations

from dibs import limits
from dibs.board.add import refuse_circles
from dibs.errors import DibsError, Invalid
from dibs.jsontext import dumps, loads
from dibs.model import COMPLETED, Blocker, BoardTask, Event, Lock, Message, Step, TaskStatus, Worker
from dibs.replay import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Protocol, TypeVar

    from dibs.board import TaskBoard
    from dibs.stores.base import Tx

    T = TypeVar("T")
    Told = Callable[[str, int, int], object]
    """Is told what is being done, how many rows are done, and of how many."""

    class Rows(Protocol):
        """What a board holds. Tasks and events may be gone over as often as one likes, and are not kept."""

        counts: tuple[int, int]
        """How many tasks and events, as far as that is known beforehand."""
        locks: list[Lock]
        messages: list[Message]
        marks: dict[str, int]
        requests: dict[str, tuple[str, float]]

        def tasks(self) -> Iterator[BoardTask]: ...

        def events(self) -> Iterator[Event]: ...


FORMAT = 1
STEP = 5_000
"""Rows between two words about how far it has come."""
HIGHEST = 2**53
"""No number of a task or an event is larger: JSON readers elsewhere keep integers up to here exactly."""


def dump(board: TaskBoard) -> Iterator[str]:
    """The lines of an export, without line ends, from one consistent state: take them without delay, for a transaction
    is open meanwhile."""
    with board.store.read() as tx:
        yield from lines_of(Board(tx))


def lines_of(rows: Rows) -> Iterator[str]:
    number = 0
    for number, line in enumerate(_lines(rows), 1):  # noqa: B007 - counted for the last line
        yield dumps(line)
    yield dumps({"end": number})


def _lines(rows: Rows) -> Iterator[dict[str, Any]]:
    tasks, events = rows.counts
    yield {"dibs": FORMAT, "tasks": tasks, "events": events}
    for task in rows.tasks():
        yield {"task": task_fields(task)}
    for lock in rows.locks:
        yield {"lock": {**lock.as_dict(), "holder": lock.holder.as_dict()}}
    for message in rows.messages:
        yield {"message": message.as_dict()}
    for event in rows.events():
        yield {"event": event.as_dict()}
    for reader, mark in rows.marks.items():
        yield {"reader": reader, "mark": mark}
    for key, (answer, time) in rows.requests.items():
        yield {"request": key, "answer": answer, "time": time}


def _events(tx: Tx) -> Iterator[Event]:
    after = 0
    while events := tx.events(after, 2000):
        after = events[-1].seq
        yield from events


def task_fields(task: BoardTask) -> dict[str, Any]:
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


# -- what comes in


class Board:
    """The rows of a board, as one transaction of its store sees them."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.counts = sum(tx.counts().values()), tx.last_event()
        self.locks = tx.locks()
        self.messages = tx.messages(None, 0, 2**62, newest=False)
        self.marks = tx.marks()
        self.requests = tx.requests()

    def tasks(self) -> Iterator[BoardTask]:
        return iter(self._tx.all_tasks())

    def events(self) -> Iterator[Event]:
        return _events(self._tx)


class Export:
    """The rows of an export. All are read and checked at once, and again when they are asked for: `lines` must give
    them anew each time."""

    def __init__(self, lines: Iterable[str], told: Told | None = None) -> None:
        self._lines = list(lines) if iter(lines) is lines else lines  # an iterator gives them only once
        self.counts = 0, 0
        self.locks: list[Lock] = []
        self.messages: list[Message] = []
        self.marks: dict[str, int] = {}
        self.requests: dict[str, tuple[str, float]] = {}
        number = 0
        ended = False
        for number, line in enumerate(_counted(self._lines, "reading", 0, told), 1):
            if ended:
                raise Invalid(f"line {number} comes after the end of the export; nothing was imported")
            try:
                ended = self._read(number, loads(line))
            except Invalid as error:
                error.message = f"line {number}: {error.message}; nothing was imported"
                raise
            except (ValueError, TypeError, KeyError) as error:
                raise Invalid(f"line {number} is not a line of an export ({error}); nothing was imported") from error
        if not ended:
            raise Invalid(
                f"the export is cut off after line {number}; nothing was imported",
                hint="export again: dibs export FILE",
            )
        self.unmet = check(self, told)

    def _read(self, number: int, entry: Any) -> bool:
        """Take in what is small, and look at the rest. Is it the last line?"""
        tasks, events = self.counts
        if number == 1:
            if not isinstance(entry, dict) or entry.get("dibs") != FORMAT:
                raise Invalid(
                    "this is not an export of dibs, or one of a newer version", hint="write one with: dibs export FILE"
                )
        elif "task" in entry:
            _read_task(entry["task"])
            self.counts = tasks + 1, events
        elif "event" in entry:
            Event(**entry["event"])
            self.counts = tasks, events + 1
        elif "lock" in entry:
            self.locks.append(Lock(**{**entry["lock"], "holder": Worker(**entry["lock"]["holder"])}))
        elif "message" in entry:
            self.messages.append(Message(**entry["message"]))
        elif "reader" in entry:
            self.marks[entry["reader"]] = entry["mark"]
        elif "request" in entry:
            self.requests[entry["request"]] = (entry["answer"], entry["time"])
        elif "end" in entry:
            if entry["end"] != number - 1:
                raise Invalid(f"the export should have {entry['end'] + 1} lines, and ends at line {number}")
            return True
        else:
            raise Invalid("unknown kind of line")
        return False

    def tasks(self) -> Iterator[BoardTask]:
        return (_read_task(fields) for fields in self._all("task"))

    def events(self) -> Iterator[Event]:
        return (Event(**fields) for fields in self._all("event"))

    def _all(self, kind: str) -> Iterator[dict[str, Any]]:
        other = '{"event":' if kind == "task" else '{"task":'  # as dibs writes them: not worth parsing
        for number, line in enumerate(self._lines):
            if number and not line.startswith(other):
                entry = loads(line)
                if kind in entry:
                    yield entry[kind]


# -- taking it in


def load(board: TaskBoard, lines: Iterable[str] | Export, told: Told | None = None) -> int:
    """Fill an empty board from an export; the number of tasks."""
    export = lines if isinstance(lines, Export) else Export(lines, told)
    return _fill(board, export, export.unmet, told)


def move(source: TaskBoard, target: TaskBoard, told: Told | None = None, *, checked: bool = False) -> int:
    """Fill an empty board from another one; the number of tasks. `checked`: `check_board` was happy with it."""
    with source.store.read() as tx:
        rows = Board(tx)
        return _fill(target, rows, None if checked else check(rows, told), told)


def check_board(source: TaskBoard, told: Told | None = None) -> None:
    """Raise what `move` would raise about the source."""
    with source.store.read() as tx:
        check(Board(tx), told)


def _fill(board: TaskBoard, rows: Rows, unmet: dict[str, int] | None, told: Told | None) -> int:
    tasks: Iterable[BoardTask] = _Again(lambda: _settled(_counted(rows.tasks(), "tasks", rows.counts[0], told), unmet))
    events: Iterable[Event] = _Again(lambda: _counted(rows.events(), "changelog", rows.counts[1], told))
    first = next(rows.events(), None)
    if not getattr(board.store, "streams", False):
        # It would take them all into memory in any case, and some servers end a transaction that waits so long.
        tasks, events = list(tasks), list(events)
        if told is not None:
            told("writing", 0, 0)
    with board.store.write() as tx:
        begun = tx.last_event()  # 1 if the board was made by `dibs init`, whose event then stands for the export's own
        is_other = begun == 1 and first is not None and first.action != "work_item_created"
        if begun > 1 or is_other or any(tx.counts().values()):
            raise Invalid(
                "this board has a history of its own, and an import would mix the two; nothing was imported",
                hint="import into a board that does not exist yet: dibs --board sqlite:PATH import FILE (or postgresql://…?board=NEW)",
            )
        if begun:
            events = events[1:] if isinstance(events, list) else _Again(_all_but_one(events))
        try:
            tx.restore(tasks, rows.locks, rows.messages, events, rows.marks, rows.requests)
        except DibsError:
            raise
        except Exception as error:
            if _is_trouble(error):
                raise
            raise Invalid(f"this is not an export that dibs wrote ({error}); nothing was imported") from error
    return rows.counts[0]


def _is_trouble(error: Exception) -> bool:
    """Does it come from a server, and is about something else than the rows? Its store then says what it means."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("psycopg")]
    return bool(kinds) and not {"IntegrityError", "DataError"}.intersection(kinds)


class _Again:
    """Rows that are read anew each time somebody goes over them."""

    def __init__(self, read: Callable[[], Iterable[Any]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())


def _all_but_one(rows: Iterable[T]) -> Callable[[], Iterator[T]]:
    def read() -> Iterator[T]:
        rest = iter(rows)
        next(rest, None)
        return rest

    return read


def _settled(tasks: Iterable[BoardTask], unmet: dict[str, int] | None) -> Iterator[BoardTask]:
    """With the numbers of unmet dependencies that were counted, rather than those that were written down."""
    for task in tasks:
        if unmet is not None:
            task.unmet = unmet.get(task.id, 0)
        yield task


def _counted(rows: Iterable[T], what: str, total: int, told: Told | None) -> Iterable[T]:
    if told is None:
        return rows
    return _telling(rows, what, total, told)


def _telling(rows: Iterable[T], what: str, total: int, told: Told) -> Iterator[T]:
    for number, row in enumerate(rows):
        if number % STEP == 0:
            told(what, number, total)
        yield row


def _read_task(fields: dict[str, Any]) -> BoardTask:
    fields = dict(fields)
    fields["status"] = TaskStatus(fields["status"])
    if "holder" in fields:
        fields["holder"] = Worker(**fields["holder"])
    fields["steps"] = [Step(**step) for step in fields.get("steps", ())]
    fields["blockers"] = [Blocker(**blocker) for blocker in fields.get("blockers", ())]
    return BoardTask(**fields)


# -- checking it


def check(rows: Rows, told: Told | None = None) -> dict[str, int]:
    """Refuse what no board can have written: the changelog must give exactly these tasks and locks. Says how many
    dependencies of each task that has some are unmet."""
    try:
        unmet = _check(rows, told)
        _check_rest(rows.messages, rows.marks, rows.requests)
        return unmet
    except DibsError as error:
        raise Invalid(f"{error.message}; nothing was imported", hint=error.hint) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"this is not an export that dibs wrote ({error}); nothing was imported") from error


def _check(rows: Rows, told: Told | None) -> dict[str, int]:
    state = State()
    last = 0
    for event in _counted(rows.events(), "checking the changelog", rows.counts[1], told):
        limits.integer(event.seq, "seq", 1, HIGHEST)
        if event.seq <= last:
            raise Invalid("the export's changelog is out of order")
        last = event.seq
        check_event(event)
        state.apply(event)
    numbers: set[int] = set()
    ids: set[str] = set()
    unmet: dict[str, int] = {}
    waiting: list[BoardTask] = []
    for task in _counted(rows.tasks(), "checking the tasks", rows.counts[0], told):
        limits.integer(task.seq, "seq", 1, HIGHEST)
        if limits.task_id(task.id) in ids or task.seq in numbers:
            raise Invalid("the export names a task twice")
        ids.add(task.id)
        numbers.add(task.seq)
        replayed = state.tasks.get(task.id)
        if replayed is None:
            raise Invalid("the export's changelog has other tasks than the export")
        missing = next((need for need in task.depends_on if need not in state.tasks), None)
        if missing is not None:
            raise Invalid(f"task {task.id} depends on {missing}, which the export does not have")
        replayed.seq = task.seq
        task.unmet = replayed.unmet = sum(state.tasks[need].status is not COMPLETED for need in task.depends_on)
        if replayed != task:
            raise Invalid(f"task {task.id} is not what the export's changelog says")
        if task.depends_on:
            unmet[task.id] = task.unmet
            waiting.append(task)
    if state.tasks.keys() != ids:
        raise Invalid("the export's changelog has other tasks than the export")
    refuse_circles(waiting)
    if {(lock.pattern, lock.token): lock for lock in rows.locks} != state.locks:
        raise Invalid("the export's locks are not what its changelog says")
    return unmet


def check_event(event: Event) -> None:
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


def check_message(message: Message) -> None:
    limits.integer(message.seq, "a message's seq", 1, HIGHEST)
    _number(message.time, "a message's time")
    limits.name(message.sender, "sender")
    limits.text(message.content, "a message")
    if message.to is not None:
        limits.name(message.to, "recipient")


def _check_rest(messages: list[Message], marks: dict[str, int], requests: dict[str, tuple[str, float]]) -> None:
    for message in messages:
        check_message(message)
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
