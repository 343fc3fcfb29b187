"""TaskBoard: each verb opens a transaction, fetches the rows that a rule needs, calls the rule, saves, appends the
events.

This module has the opening; the verbs are in its bases: `adding`, `claiming` (and ending a claim), `deciding` (what
people and leads decide, dependencies, steps), `locking` (files), `acquiring` (a task and its files), `talking`
(messages, changelog), `looking` (everything that only reads). What they share is in `core` and `leases`.

A verb either returns after its transaction is as durable as the store promises, or raises and has changed nothing
(the one error that knows no better is `OutcomeUnknown`, which says so; an interrupt, too, may come between the commit
and the answer). A crash in the middle of a verb leaves the board as it was before the verb.

Who acts: verbs take a worker as a `Worker`, or as a name, which then means a worker that lives as long as this
process. A board remembers the tokens of the claims that were made through it, so document 004's `complete(task_id)`
is fenced without saying a token.
"""

from __future__ import annotations

from dibs import rules
from dibs.acquiring import Acquiring
from dibs.adding import Adding
from dibs.core import retried
from dibs.deciding import Deciding
from dibs.talking import Talking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from dibs.clock import Clock
    from dibs.model import Worker
    from dibs.store import Store


class TaskBoard(Adding, Acquiring, Deciding, Talking):
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
        super().__init__(store, stale_timeout, worker)

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
                board._begin_changelog()
            return board
        except BaseException:
            store.close()
            raise

    @retried
    def _begin_changelog(self) -> None:
        with self._store.write() as tx:
            if tx.last_event() == 0:
                tx.append([rules.event("work_item_created", self._actor(), None, "board created")])

    @property
    def url(self) -> str:
        return self._store.url

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
