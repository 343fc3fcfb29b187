"""dibs: the referee for coding agents and people who work on one code base at the same time.

`TaskBoard()` is a board in memory, `TaskBoard.open()` the one of the repository that you are in. Everything is
imported on first use.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board import TaskBoard as TaskBoard
    from dibs.errors import Busy as Busy
    from dibs.errors import DibsError as DibsError
    from dibs.errors import LeaseLost as LeaseLost
    from dibs.errors import NotClaimable as NotClaimable
    from dibs.errors import NotFound as NotFound
    from dibs.model import BoardTask as BoardTask
    from dibs.model import Event as Event
    from dibs.model import Lock as Lock
    from dibs.model import Message as Message
    from dibs.model import TaskStatus as TaskStatus
    from dibs.model import Worker as Worker
    from dibs.pool.pool import AgentPool as AgentPool
    from dibs.pool.results import AgentResult as AgentResult

_HOME = {
    "TaskBoard": "board.task_board",
    "AgentPool": "pool.pool",
    "AgentResult": "pool.results",
    "BoardTask": "model",
    "TaskStatus": "model",
    "Worker": "model",
    "Lock": "model",
    "Event": "model",
    "Message": "model",
    "DibsError": "errors",
    "LeaseLost": "errors",
    "NotClaimable": "errors",
    "NotFound": "errors",
    "Busy": "errors",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dibs' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"dibs.{_HOME[name]}"), name)
    globals()[name] = value
    return value
