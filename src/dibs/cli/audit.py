"""Is the board what its changelog says? For `dibs doctor` and `dibs demo`, which have to show it rather than claim it.

Everything is read in one transaction, so a busy board is compared with its own changelog and not with a later one.
"""

from __future__ import annotations

from dibs.model import COMPLETED, BoardTask, Lock, Record, TaskStatus
from dibs.replay import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from dibs.board import TaskBoard
    from dibs.stores.base import Tx

_FOLLOWS = ("_board", "seq", "unmet")
"""Fields of a task that follow from order and from other tasks, and so are in no event."""


def disagreements(board: TaskBoard) -> list[str]:
    """Where the board's state differs from what replaying its changelog gives, as sentences; empty when nowhere."""
    with board.store.read() as tx:
        try:
            state = _replayed(tx)
        except (KeyError, TypeError, ValueError) as error:
            return [f"the changelog cannot be replayed: {error!r}"]
        return [*_tasks(tx, state), *_locks(tx, state)]


def stray_edges(board: TaskBoard) -> list[str]:
    """Where the edges between tasks, by which a task finds those that wait for it, are not what `depends_on` says."""
    with board.store.read() as tx:
        kept = set(tx.edges())
        told = [(task.id, need) for task in tx.all_tasks() for need in task.depends_on]
    missing = [f"task {task} needs {need}, and has no edge to it" for task, need in told if (task, need) not in kept]
    stray = sorted(kept.difference(told))
    return missing + [f"task {task} has an edge to {need}, and does not need it" for task, need in stray]


def _replayed(tx: Tx) -> State:
    state = State()
    after = 0
    while events := tx.events(after, 2000):
        for event in events:
            state.apply(event)
        after = events[-1].seq
    return state


def _tasks(tx: Tx, state: State) -> Iterator[str]:
    fields = [name for name in BoardTask.__slots__ if name not in _FOLLOWS]
    counted: dict[str, int] = {}
    seen = set()
    for task in tx.all_tasks():
        seen.add(task.id)
        counted[task.status] = counted.get(task.status, 0) + 1
        told = state.tasks.get(task.id)
        if told is None:
            yield f"task {task.id} is on the board and not in the changelog"
            continue
        yield from _differing(f"task {task.id}", task, told, fields)
        unmet = sum(need not in state.tasks or state.tasks[need].status is not COMPLETED for need in task.depends_on)
        if task.unmet != unmet:
            yield f"task {task.id} counts {task.unmet} unmet dependencies, by the changelog {unmet}"
    for missing in sorted(state.tasks.keys() - seen):
        yield f"task {missing} is in the changelog and not on the board"
    for status, number in tx.counts().items():
        if number != counted.get(status, 0):
            yield f"the board counts {number} {status} tasks and has {counted.get(status, 0)}"


def _locks(tx: Tx, state: State) -> Iterator[str]:
    """Also those that have run out: a copy of the board would be refused because of them."""
    held = {(lock.pattern, lock.token): lock for lock in tx.locks()}
    for key in sorted(held.keys() | state.locks.keys()):
        lock, told = held.get(key), state.locks.get(key)
        if lock is None or told is None:
            where = "in the changelog and not on the board" if lock is None else "on the board and not in the changelog"
            yield f"the lock on {key[0]} (token {key[1]}) is {where}"
        else:
            yield from _differing(f"the lock on {key[0]} (token {key[1]})", lock, told, Lock.__slots__)


def _differing(what: str, kept: object, told: object, fields: Sequence[str]) -> Iterator[str]:
    for name in fields:
        if (one := getattr(kept, name)) != (other := getattr(told, name)):
            yield f"{what}: {name} is {_plain(one)}, by the changelog {_plain(other)}"


def _plain(value: Any) -> str:
    """A value without the names of dibs' classes."""
    if value is None:
        return "not set"
    if isinstance(value, list):
        return f"[{', '.join(_plain(one) for one in value)}]"
    if isinstance(value, Record):
        return str(value.as_dict())
    return str(value) if isinstance(value, TaskStatus) else repr(value)
