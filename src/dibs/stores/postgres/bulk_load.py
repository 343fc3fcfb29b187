"""Filling an empty board with rows as they are: copied in, a stream for each table, in the caller's transaction.

Tasks and events are gone over as they come, tasks twice, and never held together: of each task the memory keeps
its number and its newest event. All reading happens inside a COPY, because a server ends transactions that wait for
their client (`tx.QUIET`), and whoever provides the rows may need a while for the first.
"""

from __future__ import annotations

from dibs.stores.postgres import statements as q
from dibs.stores.postgres.tx import queue_of
from dibs.stores.rows import LOCK, event_row, insert_row, lock_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dibs.model import BoardTask, Event, Lock, Message
    from dibs.stores.postgres.round_trips import Connection, Row
    from dibs.stores.postgres.store import PostgresStore


def load(
    connection: Connection,
    store: PostgresStore,
    tasks: Iterable[BoardTask],
    locks: Iterable[Lock],
    messages: Iterable[Message],
    events: Iterable[Event],
    marks: dict[str, int],
    requests: dict[str, tuple[str, float]],
) -> None:
    """`tasks` can be gone over again and again; the rest once."""
    board = store.board
    newest: dict[str, int] = {}
    last = 0

    def changelog() -> Iterator[Row]:
        nonlocal last
        for event in events:
            previous = None
            if event.task_id is not None:
                previous = newest.get(event.task_id)
                newest[event.task_id] = event.seq
            last = event.seq
            yield (board, *event_row(event, previous, None)[:-1])

    number: dict[str, int] = {}
    edges: list[tuple[str, int]] = []

    def wanted() -> Iterator[Row]:
        for task in tasks:
            number[task.id] = task.seq
            edges.extend((need, task.seq) for need in task.depends_on)
        return ((board, number[need], seq) for need, seq in edges)

    dependants: dict[int, int] = {}
    watermarks: dict[tuple[str, int], int] = {}

    def rows() -> Iterator[Row]:
        for need, _ in edges:
            dependants[number[need]] = dependants.get(number[need], 0) + 1
        for task in tasks:
            if task.is_ready:
                key = (queue_of(task), -task.priority)
                watermarks[key] = min(task.seq, watermarks.get(key, task.seq))
            yield (board, *insert_row(task, newest.get(task.id, 0)), dependants.get(task.seq, 0))

    connection.copy("dibs.event", q.EVENT_COLUMNS, changelog())
    connection.copy("dibs.dependency", "board, needs, task", _begun(wanted))
    connection.copy("dibs.task", f"{q.TASK_COLUMNS}, dependants", rows())
    connection.copy("dibs.lock", f"board, {LOCK}, prefix, worker", ((board, *lock_row(lock)) for lock in locks))
    posted = ((board, m.seq, m.time, m.sender, m.to, m.content) for m in messages)
    connection.copy("dibs.message", "board, seq, time, sender, recipient, content", posted)
    connection.copy("dibs.reader", "board, name, mark", ((board, name, mark) for name, mark in marks.items()))
    kept = ((board, key, answer, time) for key, (answer, time) in requests.items())
    connection.copy("dibs.request", "board, key, answer, time", kept)
    keys = sorted(watermarks)
    values = (board, [k[0] for k in keys], [k[1] for k in keys], [watermarks[k] for k in keys])
    connection.trip([(q.LOWER_WATERMARKS, values)])
    if number:
        connection.trip([(q.SET_NUMBERS, (store.tasks, max(number.values())))])
    if last:
        connection.trip([(q.SET_NUMBERS, (store.events, last))])


def _begun(rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows, with the first step towards them not taken before somebody asks for one."""
    yield from rows()
