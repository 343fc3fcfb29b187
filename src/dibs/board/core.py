"""What all verbs of a board share: the store, and what is kept between two calls. And running a verb again after a
collision."""

from __future__ import annotations

import os
import time

from dibs import limits
from dibs.board.identity import Identity
from dibs.board.lease_tracker import LeaseTracker
from dibs.board.path_names import PathNames
from dibs.board.reaper import Reaper
from dibs.board.token_memory import TokenMemory
from dibs.errors import NotFound
from dibs.model import BoardTask, Worker
from dibs.stores.base import Collision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, ParamSpec, TypeVar

    from dibs.stores.base import Store, Tx

    T = TypeVar("T")
    P = ParamSpec("P")

COLLISIONS = 30
"""So often does a verb run again. Each time it waits a little longer: in all for longer than a server lets a client
that has stopped keep a row."""
LONGEST_PAUSE = 0.6


class Core:
    def __init__(self, store: Store, lease: float | None, worker: Worker | str | None) -> None:
        self.store = store
        self.lease = store.lease if lease is None else limits.seconds(lease, "stale_timeout")
        self.identity = Identity(store, worker)
        self.paths = PathNames(store)
        self.tokens = TokenMemory()
        self.leases = LeaseTracker()
        self.reaper = Reaper()

    def forget(self) -> None:
        """What a transaction that came to nothing had looked at is to be looked at again."""
        self.leases.forget()
        self.reaper.forget()

    def credentials(
        self, task_id: str, worker: Worker | str | None, token: int | None
    ) -> tuple[Worker | None, int | None]:
        """By whom, and under which token, a claim is being used: as given, else as this board remembers it."""
        limits.task_id(task_id)
        caller = self.identity.named(worker)
        if caller is None and token is None:
            return self.identity.default, self.tokens.token(task_id)
        return caller, token

    def now(self) -> float:
        """The board's time."""
        with self.store.read() as tx:
            return tx.now


def fetch(tx: Tx, task_id: str) -> BoardTask:
    """The task with this id, or NotFound."""
    limits.task_id(task_id)
    task = tx.get([task_id]).get(task_id)
    if task is None:
        raise NotFound(f"Task not found: {task_id}", hint="see what there is: dibs list --all", task_id=task_id)
    return task


def retried(verb: Callable[Concatenate[Core, P], T]) -> Callable[Concatenate[Core, P], T]:
    """A verb that runs again from its start when its store says that it collided with others (`store.Collision`):
    nothing had been changed."""

    def run(core: Core, /, *args: P.args, **options: P.kwargs) -> T:
        for number in range(COLLISIONS):
            try:
                return verb(core, *args, **options)
            except Collision:
                core.forget()
                # Not all at the same moment again; the process and the time make no worse a choice than `random`.
                pause = min((1.6**number) * 0.004, LONGEST_PAUSE)
                time.sleep(pause * (0.5 + (os.getpid() * 7919 + time.perf_counter_ns()) % 997 / 997))
        return verb(core, *args, **options)

    run.__name__, run.__qualname__, run.__doc__ = verb.__name__, verb.__qualname__, verb.__doc__
    run.__annotations__, run.__wrapped__ = verb.__annotations__, verb  # type: ignore[attr-defined]
    return run
