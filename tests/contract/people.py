"""Workers with known sessions, so that tests say who is who."""

from __future__ import annotations

from dibs import BoardTask, TaskBoard, Worker


def agent(name: str, session: str | None = "s1") -> Worker:
    return Worker(name, session=session)


def human(name: str) -> Worker:
    return Worker(name, "human", session="s1")


ANN = agent("ann")
BEN = agent("ben")
EVE = human("eve")
LEAD = Worker("lead", role="lead", session="s1")


def take(board: TaskBoard, worker: Worker | str = ANN, task_id: str | None = None, **options: float) -> BoardTask:
    """A claim that must succeed."""
    task = board.claim(worker, task_id, lease=options.get("lease"))
    assert task is not None
    return task


def actions(board: TaskBoard, task_id: str | None = None) -> list[str]:
    return [event.action for event in board.changelog(task_id=task_id)]


def ascii_start(value: object) -> str:
    """A short name for a parameter that may be long or unprintable."""
    return ascii(value)[:16]
