"""The board: `TaskBoard`, and the modules of its verbs. Importing one of them does not import the others."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board.task_board import TaskBoard as TaskBoard

__all__ = ["TaskBoard"]


def __getattr__(name: str) -> object:
    if name != "TaskBoard":
        raise AttributeError(f"module 'dibs.board' has no attribute {name!r}")
    from dibs.board.task_board import TaskBoard

    globals()[name] = TaskBoard
    return TaskBoard
