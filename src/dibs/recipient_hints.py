"""Who has been seen on a board.

The fronts ask after a message was sent. A slip of the pen would otherwise go unnoticed: a message may well be for
somebody who comes later, so the board takes any name. The board asks for a worker whose name could not be chosen today.
"""

from __future__ import annotations

from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board import TaskBoard
    from dibs.model import Worker
    from dibs.stores.base import Store, Tx

LATELY = 200
"""So many events and messages are looked at for the names of workers."""
LONG_AGO = 10_000
"""And so many for one name."""


def if_unknown(board: TaskBoard, name: str, who: Worker) -> str:
    """A remark on a name that the sender `who` may have misspelt; nothing where it is known."""
    with board.store.read() as tx:
        seen = _seen(tx, LATELY)
    if name in seen or name == who.name or board.tasks(assigned_to=name, limit=1)[1]:
        return ""
    from difflib import get_close_matches

    others = sorted(seen - {who.name, rules.SYSTEM.name})
    near = [other for other in others if other.startswith(name)] or get_close_matches(name, others, 3)
    return f"nobody called {name} has been seen here lately" + (
        f"; did you mean {' or '.join(near[:3])}?" if near else ""
    )


def is_known(store: Store, name: str) -> bool:
    """Has a worker of this name been on the board?"""
    with store.read() as tx:
        return name in _seen(tx, LONG_AGO)


def _seen(tx: Tx, latest: int) -> set[str]:
    seen = {reader.partition("\n")[0] for reader in tx.marks()}
    seen |= {lock.holder.name for lock in tx.locks()}
    seen |= {task.assigned_to for task in tx.in_progress() if task.assigned_to}
    seen |= {message.sender for message in tx.messages(None, 0, latest, newest=True)}
    seen |= {event.worker for event in tx.events(0, latest, newest=True)}
    return seen
