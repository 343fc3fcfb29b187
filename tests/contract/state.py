"""Comparing a board with what its changelog replays to."""

from __future__ import annotations

from dibs import BoardTask, TaskBoard
from dibs.replay import State
from dibs.transfer import dump

FOLLOWS_FROM_OTHERS = ("_board", "seq", "unmet")


def fields(task: BoardTask) -> dict[str, object]:
    return {name: getattr(task, name) for name in BoardTask.__slots__ if name not in FOLLOWS_FROM_OTHERS}


def everything(board: TaskBoard) -> list[object]:
    """All that can be asked of a board, for seeing that nothing has changed."""
    return [
        [fields(task) for task in board.tasks(limit=100_000)[0]],
        [repr(lock) for lock in board.locks()],
        [repr(event) for event in board.changelog()],
        [repr(message) for message in board.messages()],
    ]


def differences(board: TaskBoard, state: State) -> list[str]:
    """What the replayed state has otherwise than the board; nothing, if every change had its event.

    Locks that have run out bind nobody, and stores drop them when they please: only live ones are compared.
    """
    found = []
    tasks = {task.id: task for task in board.tasks(limit=100_000)[0]}
    if sorted(tasks) != sorted(state.tasks):
        found.append(f"tasks: board {sorted(tasks)}, replay {sorted(state.tasks)}")
    for task_id in tasks.keys() & state.tasks.keys():
        real, replayed = fields(tasks[task_id]), fields(state.tasks[task_id])
        found += [
            f"{task_id}.{name}: board {real[name]!r}, replay {replayed[name]!r}"
            for name in real
            if real[name] != replayed[name]
        ]
    now = board.now()
    real_locks = {(lock.pattern, lock.token): lock for lock in board.locks()}
    replayed_locks = {key: lock for key, lock in state.locks.items() if lock.expires_at > now}
    for key in sorted(real_locks.keys() | replayed_locks.keys()):
        if real_locks.get(key) != replayed_locks.get(key):
            found.append(f"lock {key}: board {real_locks.get(key)!r}, replay {replayed_locks.get(key)!r}")
    return found


def snapshot(board: TaskBoard) -> list[str]:
    """Everything that a board holds."""
    return list(dump(board))


def patterns(board: TaskBoard) -> list[str]:
    return sorted(lock.pattern for lock in board.locks())
