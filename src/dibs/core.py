"""What all of a board's verbs share: the store, who acts, where paths belong, fetching a task, running again after a
collision."""

from __future__ import annotations

import os
import time

from dibs import limits
from dibs.errors import Invalid, NotFound
from dibs.model import PENDING, BoardTask, Worker
from dibs.paths import fold, normalise
from dibs.places import Ground, working_directory
from dibs.store import Collision
from dibs.worker import from_environment, of_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, ParamSpec, TypeVar

    from dibs.store import Store, Tx

    T = TypeVar("T")
    P = ParamSpec("P")
    C = TypeVar("C", bound="Core")

COLLISIONS = 12
"""So often does a verb run again. Each time it waits a little longer, about three seconds in all."""


def retried(verb: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """A verb that runs again from its start when its store says that it collided with others (`store.Collision`):
    nothing had been changed."""

    def run(self: C, /, *args: P.args, **options: P.kwargs) -> T:
        for number in range(COLLISIONS):
            try:
                return verb(self, *args, **options)
            except Collision:
                self._forget_looks()
                # Not all at the same moment again; the process and the time make no worse a choice than `random`.
                time.sleep((1.6**number) * 0.004 * (0.5 + (os.getpid() * 7919 + time.perf_counter_ns()) % 997 / 997))
        return verb(self, *args, **options)

    run.__name__, run.__qualname__, run.__doc__ = verb.__name__, verb.__qualname__, verb.__doc__
    run.__annotations__, run.__wrapped__ = verb.__annotations__, verb  # type: ignore[attr-defined]
    return run


class Core:
    def __init__(self, store: Store, lease: float | None, worker: Worker | str | None) -> None:
        self._store = store
        self._lease = store.lease if lease is None else limits.seconds(lease, "stale_timeout")
        self._known: dict[tuple[int, str], Worker] = {}
        self._old_names: set[str] = set()
        self._tokens: dict[str, tuple[int, Worker | None]] = {}
        """The claims that this board handed out: by task, the token and the holder."""
        self._renewed: dict[tuple[str, str | None], tuple[float, float]] = {}
        self._reaped = float("-inf")
        self._found_nothing = False
        self._alive: dict[str, Worker] = {}
        """Holders on this machine that were alive when it was last looked, by their record."""
        self._seeing = 0.0
        """Seconds that it took to see that."""
        self._environment: Worker | None = None
        self._known_ground: Ground | None = None
        self._default = self._who(worker)

    def _forget_looks(self) -> None:
        """What a transaction that came to nothing had looked at is to be looked at again."""
        self._renewed.clear()
        self._reaped = float("-inf")

    @property
    def store(self) -> Store:
        """Where the board lives, for tools that look below its verbs."""
        return self._store

    # -- who

    def _who(self, worker: Worker | str | None) -> Worker | None:
        if worker is None:
            return None
        if isinstance(worker, Worker):
            known = limits.worker(worker)
        elif (os.getpid(), worker) in self._known:
            known = self._known[os.getpid(), worker]
        else:
            known = self._known[os.getpid(), worker] = of_process(limits.name(worker))
        if not limits.is_plain_name(known.name) and known.name not in self._old_names:
            self._admit(known.name)
        return known

    def _admit(self, name: str) -> None:
        """Let a worker go on under a name that could not be chosen today, if it has been on this board before."""
        from dibs.acquaintance import is_known

        if not is_known(self._store, name):
            limits.new_name(name)
        self._old_names.add(name)

    def _actor(self, worker: Worker | str | None = None) -> Worker:
        """Whoever the changelog is to name: the given worker, the board's, or the one that the environment names.

        A program that does not say for whom it acts is not taken for a human, who may decide over others' claims.
        """
        who = self._who(worker) or self._default or self._environment
        if who is None:
            who = from_environment()
            if who.kind == "human" and not os.environ.get("DIBS_KIND"):
                who.kind = "agent"
            limits.new_name(who.name)
            self._environment = who
        return who

    def _credentials(
        self, task_id: str, worker: Worker | str | None, token: int | None
    ) -> tuple[Worker | None, int | None]:
        """By whom, and under which token, a claim is being used: as given, else as this board remembers it."""
        limits.task_id(task_id)
        caller = self._who(worker)
        if caller is None and token is None:
            return self._default, self._tokens.get(task_id, (None, None))[0]
        return caller, token

    def _holder(self, task_id: str, caller: Worker | None, token: int | None) -> Worker | None:
        """Whose claim that is, as far as this board knows."""
        known, holder = self._tokens.get(task_id, (None, None))
        return caller or (holder if known == token else None)

    def _remembered(self, task: BoardTask, given: int | None, token: int | None) -> int | None:
        """The token to go by. One that only this board remembers, of a claim that was given back with none after it,
        says nothing any more; if there is a newer claim, it is what tells the late writer."""
        if given is None and task.status is PENDING and task.token == token:
            return None
        return token

    # -- where

    def _pattern(self, path: str) -> str:
        """A path as given, from wherever we are, as the pattern under which every worktree knows it."""
        return self._spellings(path)[0]

    def _spellings(self, path: str) -> list[str]:
        """That pattern and, where it is folded, the one that whoever does not fold would have made of the path."""
        if not isinstance(path, str):
            raise Invalid(f"a path must be text, not {type(path).__name__}")
        ground = self._ground()
        if ground is None:
            return [normalise(path)]
        name = ground.name(path, working_directory())
        if self._folds() and (folded := normalise(fold(name))) != name:
            return [folded, name]
        return [name]

    def _ground(self) -> Ground | None:
        """How files are named on this board; None where there is no disk to look at."""
        if self._known_ground is None and self._store.place is not None:
            self._known_ground = Ground(self._store.place)
        return self._known_ground

    def _folds(self) -> bool:
        """Do names that differ in case name one file? In a dialect's files, names are as people write them."""
        ground = self._ground()
        return ground is not None and not hasattr(self._store, "dialect") and ground.folds

    def _worktree(self) -> str | None:
        """The git worktree of this board's repository, or the clone of it, that the process stands in."""
        ground = self._ground()
        return None if ground is None else ground.worktree(working_directory())

    # -- rows and changes

    def now(self) -> float:
        """The board's time."""
        with self._store.read() as tx:
            return tx.now

    def _get(self, tx: Tx, task_id: str) -> BoardTask:
        limits.task_id(task_id)
        task = tx.get([task_id]).get(task_id)
        if task is None:
            raise NotFound(f"Task not found: {task_id}", hint="see what there is: dibs list --all", task_id=task_id)
        return task
