"""Who has been seen on a board: what to say of a recipient who has left no trace there.

Called by the fronts after a message was sent. A slip of the pen would otherwise go unnoticed: a message may well be for
somebody who comes later, so the board takes any name.
"""

from __future__ import annotations

from dibs import rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.board import TaskBoard
    from dibs.model import Worker

LATELY = 200
"""So many events and messages are looked at for the names of workers."""


def if_unknown(board: TaskBoard, name: str, who: Worker) -> str:
    """A remark on a name that the sender `who` may have misspelt; nothing where it is known."""
    with board.store.read() as tx:
        seen = {reader.partition("\n")[0] for reader in tx.marks()}
        seen |= {lock.holder.name for lock in tx.locks()}
        seen |= {task.assigned_to for task in tx.in_progress() if task.assigned_to}
        seen |= {message.sender for message in tx.messages(None, 0, LATELY, newest=True)}
        seen |= {event.worker for event in tx.events(0, LATELY, newest=True)}
    if name in seen or name == who.name or board.tasks(assigned_to=name, limit=1)[1]:
        return ""
    from difflib import get_close_matches

    others = sorted(seen - {who.name, rules.SYSTEM.name})
    near = [other for other in others if other.startswith(name)] or get_close_matches(name, others, 3)
    return f"nobody called {name} has been seen here lately" + (
        f"; did you mean {' or '.join(near[:3])}?" if near else ""
    )
