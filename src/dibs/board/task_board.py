"""`TaskBoard`: a board and its verbs.

The class is a facade. Each verb is a function of one of the modules beside it, which opens a transaction, fetches the
rows that a rule needs, calls the rule, saves, and appends the events:

    add  claims (and ending a claim)  leases  recovery  locks  acquire (a task and its files)  edit (dependencies)
    transitions (what people and leads decide, steps)  messages  queries (everything that only reads)  feed (changelog)

What they share, and what a board keeps between two calls, is in `core`.

A verb either returns after its transaction is as durable as the store promises, or raises and has changed nothing
(the one error that knows no better is `OutcomeUnknown`, which says so; an interrupt, too, may come between the commit
and the answer). A crash in the middle of a verb leaves the board as it was before the verb.

Who acts: verbs take a worker as a `Worker`, or as a name, which then means a worker that lives as long as this
process. A board remembers the tokens of the claims that were made through it, so document 004's `complete(task_id)`
is fenced without saying a token.
"""

from __future__ import annotations

import os

from dibs.board import acquire as _acquire
from dibs.board import add as _add
from dibs.board import claims as _claims
from dibs.board import edit as _edit
from dibs.board import feed as _feed
from dibs.board import leases as _leases
from dibs.board import locks as _locks
from dibs.board import messages as _messages
from dibs.board import queries as _queries
from dibs.board import recovery as _recovery
from dibs.board import transitions as _transitions
from dibs.board.core import Core, retried
from dibs.model import COMPLETED, PENDING
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Concatenate, ParamSpec, Self, TypeVar, overload

    from dibs.board.acquire import Acquired
    from dibs.clock import Clock
    from dibs.model import BoardTask, Worker
    from dibs.stores.base import Store

    T = TypeVar("T")
    P = ParamSpec("P")


def _verb(function: Callable[Concatenate[Core, P], T]) -> Callable[Concatenate[TaskBoard, P], T]:
    """A function of the core as a method of the board."""

    def method(board: TaskBoard, /, *args: P.args, **options: P.kwargs) -> T:
        return function(board.core, *args, **options)

    method.__name__, method.__doc__, method.__annotations__ = (
        function.__name__,
        function.__doc__,
        function.__annotations__,
    )
    method.__wrapped__ = function  # type: ignore[attr-defined]
    return method


class TaskBoard:
    def __init__(
        self,
        state_dir: str | PathLike[str] | None = None,
        stale_timeout: float | None = None,
        *,
        worker: Worker | str | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        if state_dir is not None:
            from dibs.dialects.taskboard import TaskboardStore

            store = TaskboardStore.of_state_dir(state_dir, stale_timeout, clock)
        elif store is None:
            from dibs.stores.memory import MemoryStore

            store = MemoryStore(clock)
        self.core = Core(store, stale_timeout, worker)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        create: bool = False,
        worker: Worker | str | None = None,
        stale_timeout: float | None = None,
        durability: str = "full",
        clock: Clock | None = None,
    ) -> TaskBoard:
        """The board at a URL (`sqlite:PATH`, a path, `memory:`, `DIALECT:FOLDER`), or the one that belongs to the
        working directory."""
        from dibs.address import open_store

        agent = worker if isinstance(worker, str) or worker is None else worker.name
        store = open_store(url, create=create, durability=durability, clock=clock, agent=agent)
        try:
            board = cls(stale_timeout=stale_timeout, worker=worker, store=store)
            if create:
                begin_changelog(board.core)
            return board
        except BaseException:
            store.close()
            raise

    @property
    def url(self) -> str:
        return self.core.store.url

    @property
    def store(self) -> Store:
        """Where the board lives, for tools that look below its verbs."""
        return self.core.store

    def close(self) -> None:
        self.core.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- tasks

    add = _verb(_add.add)
    add_many = _verb(_add.add_many)

    if TYPE_CHECKING:

        @overload
        def claim(
            self,
            worker: Worker | str,
            task_id: str | None = None,
            *,
            lease: float | None = None,
            request_key: str | None = None,
            wait: float = 0,
        ) -> BoardTask | None: ...

        @overload
        def claim(
            self,
            worker: Worker | str,
            task_id: None = None,
            *,
            n: int,
            lease: float | None = None,
            request_key: str | None = None,
            wait: float = 0,
        ) -> list[BoardTask]: ...

    def claim(
        self,
        worker: Worker | str,
        task_id: str | None = None,
        *,
        n: int | None = None,
        lease: float | None = None,
        request_key: str | None = None,
        wait: float = 0,
    ) -> BoardTask | list[BoardTask] | None:
        """Claim the best available task, or the named one, or up to `n`. Nothing available: None (or an empty list).

        With `wait`, block up to that many seconds for something to become available. A named task that cannot be
        claimed raises `NotClaimable`, which says by what.
        """
        taken = _claims.claim(self.core, worker, task_id, 1 if n is None else n, lease, request_key, wait)
        for task in taken:
            self._hand_out(task)
        if n is not None:
            return taken
        return taken[0] if taken else None

    def claim_next(self, worker: Worker | str) -> BoardTask | None:
        """Claim the best available task, for whoever has just completed one; None also where others are at all that is
        left."""
        return self._hand_out(_claims.claim_next(self.core, worker))

    def finish_claim(self, task: BoardTask, result: str | None, *, claim_next: bool) -> BoardTask | None:
        """`BoardTask.complete`: the claimed object itself is brought up to date; with `claim_next` both steps are one
        transaction, unless others are in the way."""
        if not claim_next or task.holder is None:
            task._adopt(self.complete(task.id, result, token=task.token))
            return None
        done, following = _claims.complete_and_claim(self.core, task, result)
        task._adopt(done)
        return self._hand_out(following)

    def _is_ours(self, task: BoardTask) -> bool:
        """Was this claim made by this process, as far as it says? A forked child inherits the object, not the claim."""
        return task.holder is None or task.holder.pid in (None, os.getpid())

    def _hand_out(self, task: BoardTask | None) -> BoardTask | None:
        """A claim that can act by itself, and whose token is remembered."""
        if task is not None:
            task._board = self
            self.core.tokens.remember(task)
        return task

    complete = _verb(_claims.complete)
    fail = _verb(_claims.fail)
    release = _verb(_claims.release)
    renew = _verb(_leases.renew)
    keep = _verb(_leases.keep)

    def acquire(
        self, candidates: Sequence[tuple[str, Sequence[str]]], worker: Worker | str, *, retry: float = 2.0
    ) -> Acquired:
        """The first of these (task id, paths) that can be had whole: the task first, then its files. Files that others
        hold are tried again for `retry` seconds; then everything of that task is given back, and the next one's turn
        comes."""
        got = _acquire.acquire(self.core, candidates, worker, retry)
        self._hand_out(got.task)
        return got

    recover = _verb(_recovery.recover)
    release_agent_tasks = _verb(_recovery.release_agent_tasks)

    retry = _verb(_transitions.retry)
    cancel = _verb(_transitions.cancel)
    accept = _verb(_transitions.accept)
    reject = _verb(_transitions.reject)
    block = _verb(_transitions.block)
    unblock = _verb(_transitions.unblock)
    step = _verb(_transitions.step)
    depend = _verb(_edit.depend)
    undepend = _verb(_edit.undepend)

    # -- files

    lock = _verb(_locks.lock)
    unlock = _verb(_locks.unlock)
    locks = _verb(_locks.locks)

    # -- messages and the changelog

    tell = _verb(_messages.tell)
    inbox = _verb(_messages.inbox)
    unread = _verb(_messages.unread)
    recent = _verb(_feed.recent)
    changelog = _verb(_feed.changelog)
    messages = _verb(_messages.messages)

    # -- reading

    status = _verb(_queries.status)
    counts = _verb(_queries.counts)
    get = _verb(_queries.get)
    resolve = _verb(_queries.resolve)
    tasks = _verb(_queries.tasks)
    ready = _verb(_queries.ready)
    reasons = _verb(_queries.reasons)
    kept_by_files = _verb(_queries.kept_by_files)
    held_by = _verb(_queries.held_by)
    wait = _verb(_queries.wait)
    now = _verb(Core.now)

    @property
    def pending_count(self) -> int:
        return self.counts()[PENDING]

    @property
    def completed_count(self) -> int:
        return self.counts()[COMPLETED]

    @property
    def all_done(self) -> bool:
        """True when there are tasks and none of them is pending, in progress or in review; False on an empty board."""
        return _queries.is_all_done(self.core)


@retried
def begin_changelog(core: Core) -> None:
    with core.store.write() as tx:
        tx.locks([])  # of two who make the same board at the same time, one waits here, and sees the other's
        if tx.last_event() == 0:
            tx.append([rules.event("work_item_created", core.identity.actor(), None, "board created")])
