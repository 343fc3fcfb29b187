"""What can still be read of a damaged SQLite board, as an export that can be imported.

Each row is read by its number, past pages and rows that cannot be. If the changelog is whole, tasks and locks follow
from it. If not, tasks are as their rows say, or as the rest of the changelog says where the row is lost too; an event
at the end of the changelog says so of each task that the rest does not explain. The damaged file is only read.
"""

from __future__ import annotations

import os

import apsw

from dibs import limits, transfer
from dibs.errors import DibsError
from dibs.jsontext import dumps
from dibs.model import BoardTask, Event, Lock, Message
from dibs.replay import State
from dibs.stores.rows import EVENT, TASK, event_from, task_from
from dibs.stores.sqlite.store import for_reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

AT_ONCE = 500
SMALLEST_ROW = 16
"""Bytes that a row needs at least: a bound for how many there can be."""
_BAD = (apsw.Error, DibsError, ValueError, TypeError, KeyError, AttributeError)


class Salvage:
    """The rows that could be read (`transfer.Rows`), and at least how many of each kind could not."""

    def __init__(self, path: str) -> None:
        self.lost = {"tasks": 0, "events": 0, "messages": 0}
        self.marks: dict[str, int] = {}  # with the messages before them in doubt, whoever reads begins anew
        self.requests: dict[str, tuple[str, float]] = {}
        self._path = path
        name, flags = for_reading(path)
        connection = apsw.Connection(name, flags=flags)
        try:
            # Or the engine would read nothing of a file that is too short, or of which an index is not defined well.
            connection.execute("PRAGMA writable_schema = ON").fetchall()
            tasks = list(self._read(connection, "tasks", TASK, "task", _task))
            events = list(self._read(connection, "events", EVENT, "event", _event))
            columns = "sender, content, recipient, time, seq"
            self.messages = list(self._read(connection, "messages", columns, "message", _message))
        finally:
            connection.close()
        state = self._replay(events)
        self._events = events
        self._tasks = self._settle({task.id: task for task in tasks}, state)
        for event in events:
            if event.task_id is not None and event.task_id not in state.tasks:
                event.details = f"task {event.task_id}: {event.details or ''}"
                event.task_id = None
        self.locks: list[Lock] = list(state.locks.values())
        self.counts = len(self._tasks), len(events)

    def tasks(self) -> Iterator[BoardTask]:
        return iter(self._tasks)

    def events(self) -> Iterator[Event]:
        return iter(self._events)

    def lines(self) -> Iterator[str]:
        return transfer.lines_of(self)

    def _read(
        self, connection: apsw.Connection, kind: str, columns: str, table: str, made: Callable[[Any], T]
    ) -> Iterator[T]:
        """The rows in order; who reads them one by one gets past a page that is damaged."""
        after, missed, last = 0, 0, os.path.getsize(self._path) // SMALLEST_ROW
        try:
            last = int(str(connection.execute(f"SELECT max(seq) FROM {table}").fetchall()[0][0] or 0))
        except _BAD:
            pass  # then nobody knows how many there were behind the last one that can be read
        while after < last:
            sql = f"SELECT {columns} FROM {table} WHERE seq > ? AND seq <= ? ORDER BY seq"
            try:
                rows = [made(row) for row in connection.execute(sql, (after, after + AT_ONCE)).fetchall()]
            except _BAD:
                rows = []
                for number in range(after + 1, after + AT_ONCE + 1):
                    try:
                        found = [made(row) for row in connection.execute(sql, (number - 1, number)).fetchall()]
                    except _BAD:
                        missed += 1
                        continue
                    rows += found
                    if found:
                        self.lost[kind] += missed
                        missed = 0
            yield from rows
            after += AT_ONCE
        self.lost[kind] += missed > 0

    def _replay(self, events: list[Event]) -> State:
        while True:
            state, bad = State(), 0
            for event in events:
                try:
                    state.apply(event)
                except _BAD:
                    event.data = None  # it builds on what is lost; that it happened is still told
                    bad += 1
            if not bad:
                return state
            self.lost["events"] += bad

    def _settle(self, rows: dict[str, BoardTask], state: State) -> list[BoardTask]:
        """The tasks in order; where the changelog does not give them, it is told."""
        whole = not self.lost["events"]
        numbers = {task.seq for task in rows.values()}
        free = (number for number in range(1, 2**53) if number not in numbers)
        found: dict[str, BoardTask] = {}
        for task_id in dict.fromkeys([*state.tasks, *([] if whole else rows)]):
            row, told = rows.get(task_id), state.tasks.get(task_id)
            task = told if told is not None and (whole or row is None) else row
            assert task is not None
            task.seq = next(free) if row is None else row.seq
            found[task_id] = task
        done = {task_id for task_id, task in found.items() if task.status == "completed"}
        for task in found.values():
            needs = [need for need in task.depends_on if need in found]
            told = state.tasks.get(task.id)
            task.unmet = sum(need not in done for need in needs)
            if told is not None:
                told.seq, told.unmet = task.seq, task.unmet
            if needs != task.depends_on or told != task:
                task.depends_on = needs
                self._tell_of(task, state)
        return sorted(found.values(), key=lambda task: task.seq)

    def _tell_of(self, task: BoardTask, state: State) -> None:
        last = self._events[-1] if self._events else None
        data = {"task": transfer.task_fields(task)}
        event = Event("repaired_work_item", "dibs", "system", last.time if last else task.created_at, task.id)
        event.details, event.data, event.seq = "as it was found on a damaged board", data, last.seq + 1 if last else 1
        state.apply(event)
        self._events.append(event)


def _task(row: Any) -> BoardTask:
    task = task_from(row)
    limits.task_id(task.id)
    limits.text(task.description, "description")
    dumps(transfer.task_fields(task))
    return task


def _event(row: Any) -> Event:
    event = event_from(row)
    transfer.check_event(event)
    dumps(event.as_dict())
    return event


def _message(row: Any) -> Message:
    message = Message(*row)
    transfer.check_message(message)
    dumps(message.as_dict())
    return message
