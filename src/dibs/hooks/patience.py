"""An answer in time, whatever the board does: a client waits for its hooks, and its user for the client.

    answered = limit(seconds, late)     from now on; `late` answers in our place when the time is over
    if answered(): write the answer     False: too late, `late` is about to end the process

A thread is what can end a wait inside SQLite or for a file lock. It ends the whole process: a hook has nothing to clean
up, and a transaction that is cut off is undone.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 2.0


def seconds() -> float:
    """How long a hook waits for the board: `DIBS_HOOK_WAIT`, else two seconds."""
    try:
        given = float(os.environ.get("DIBS_HOOK_WAIT", ""))
    except ValueError:
        return SECONDS
    return given if 0 < given <= 600 else SECONDS


def limit(wait: float, late: Callable[[], int]) -> Callable[[], bool]:
    over = allocate_lock()
    over.acquire()
    turn = allocate_lock()

    def watch() -> None:
        if not over.acquire(timeout=wait) and turn.acquire(blocking=False):
            code = 0
            try:
                code = late()
            finally:
                os._exit(code)

    def answered() -> bool:
        mine = turn.acquire(blocking=False)
        over.release()
        return mine

    start_new_thread(watch, ())
    return answered
