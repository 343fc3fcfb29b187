"""Keeping the fronts near: where the scan for ready tasks begins.

A claimed task leaves a dead entry in the index of ready ones. The vacuum removes it, but not while anybody in the
database holds a snapshot from before, and then every claim would walk over all that were claimed since. So each lane
and rank has a `front`, a number below which nothing is ready, and claims begin there.

Whoever makes a task ready (adds it, gives it back, completes what it waited for) shares the front gate until its
commit, and lowers the front in the same transaction if the task lies below it. Whoever finds that a front has fallen
behind takes the gate alone, so that nobody is about to make a task ready, looks where the first ready one is now, and
raises the front to it. It does not wait long for the gate: fronts are a matter of speed, and somebody will try again.

That is a transaction of its own. Where a claim ends with a commit it is sent behind that, in the same trip (`behind`);
the short claim, which has trips to spare, sends it by itself (`follow`). A crash leaves the front as it was.
"""

from __future__ import annotations

import time

import psycopg

from dibs.stores.postgres import statements as q
from dibs.stores.postgres.keys import FRONTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.postgres.links import Statement
    from dibs.stores.postgres.store import PostgresStore

FAR = 400
"""So many numbers may lie between a front and the first ready task."""
EVERY = 0.2
"""Seconds between two tries of one process."""


class Fronts:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._tried = 0.0
        self.far = FAR

    def behind(self, lane: str, rank: int) -> list[Statement]:
        """What raises a front that was found far behind; nothing if that was tried a moment ago."""
        if time.monotonic() - self._tried < EVERY:
            return []
        self._tried = time.monotonic()
        board = self._store.board
        return [
            # As it stands after the gate has been waited for, whatever the database's own setting.
            (q.BEGIN[True], ()),
            ("SET LOCAL lock_timeout = '100ms'", ()),
            (q.HOLD, (board, FRONTS)),
            (q.raise_front(lane), (board, rank, self._store.tasks, self.far // 2)),
            ("COMMIT", ()),
        ]

    def follow(self, lane: str, rank: int) -> None:
        """Raise a front that was found far behind; now or, if others are at it, another time."""
        raising = self.behind(lane, rank)
        store = self._store
        link = store.links.take_idle() if raising else None
        if link is None:
            return
        try:
            link.trip(raising)
        except psycopg.Error:
            store.abandon(link)
        except BaseException:
            store.links.discard(link)
            raise
        else:
            store.links.give(link)
