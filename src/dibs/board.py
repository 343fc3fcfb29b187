"""TaskBoard: each verb opens a transaction, fetches the rows that a rule needs, calls the rule, saves, appends the
events.

This module has the opening; the verbs are in its bases: `adding`, `claiming` (and ending a claim), `deciding` (what
people and leads decide, dependencies, steps), `locking` (files), `talking` (messages, changelog), `looking`
(everything that only reads). What they share is in `core` and `leases`.

A verb either returns after its transaction is as durable as the store promises, or raises and has changed nothing
(the one exception is `OutcomeUnknown`, which says so). A crash in the middle of a verb leaves the board as it was
before the verb.

Who acts: verbs take a worker as a `Worker`, or as a name, which then means a worker that lives as long as this
process. A board remembers the tokens of the claims that were made through it, so document 004's `complete(task_id)`
is fenced without saying a token.
"""

from __future__ import annotations

from dibs import rules
from dibs.adding import Adding
from dibs.deciding import Deciding
from dibs.errors import Unsupported
from dibs.locking import Locking
from dibs.looking import Looking
from dibs.talking import Talking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from dibs.clock import Clock
    from dibs.model import Worker
    from dibs.store import Store


class TaskBoard(Adding, Looking, Deciding, Locking, Talking):
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
            raise Unsupported(
                "boards in document 004's files (state_dir) are not built yet",
                hint='use TaskBoard.open("sqlite:PATH", create=True)',
            )
        if store is None:
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
        """The board at a URL (`sqlite:PATH`, a path, `memory:`), or the one that belongs to the working directory."""
        from dibs.address import open_store

        store = open_store(url, create=create, durability=durability, clock=clock)
        try:
            board = cls(stale_timeout=stale_timeout, worker=worker, store=store)
            if create:
                board._begin_changelog()
            return board
        except BaseException:
            store.close()
            raise

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
