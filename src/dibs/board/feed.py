"""Reading the changelog, and following it as it grows."""

from __future__ import annotations

import time

from dibs.model import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.board.core import Core


def recent(core: Core, limit: int = 50, task_id: str | None = None) -> list[Event]:
    """The last events, of the board or of one task, oldest first."""
    with core.store.read() as tx:
        if task_id is not None:
            return tx.events(0, 2**31, task_id)[-limit:]
        return tx.events(0, limit, newest=True)


def changelog(
    core: Core, after: int = 0, *, task_id: str | None = None, follow: bool = False, timeout: float | None = None
) -> Iterator[Event]:
    """The events after a number, in order, none missed and none twice; `follow` goes on as they happen (until
    `timeout`)."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        mark = core.store.mark_change()
        while True:
            bound = core.store.stable_seq()
            with core.store.read() as tx:
                batch = tx.events(after, 500, task_id)
            if bound is not None:
                batch = [event for event in batch if event.seq <= bound]
            yield from batch
            if not batch:
                break
            after = batch[-1].seq
        if not follow:
            return
        left = 3600.0 if end is None else end - time.monotonic()
        if left <= 0:
            return
        core.store.wait_change(mark, left)
