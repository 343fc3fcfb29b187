"""The watermark of ready tasks: where the scan for them begins.

A claimed task leaves a dead entry in the index of ready ones. The vacuum removes it, but not while anybody in the
database holds a snapshot from before, and then every claim would walk over all that were claimed since. So each queue
and rank has a watermark, a number below which nothing is ready, and claims begin there.

Whoever makes a task ready (adds it, gives it back, completes what it waited for) shares the key of watermarks until its
commit, and lowers the watermark in the same transaction if the task lies below it. Whoever finds that a watermark lags
takes the key alone, so that nobody is about to make a task ready, looks where the first ready one is now, and raises
the watermark to it. It does not wait long for the key: this is a matter of speed, and somebody will try again.

That is a transaction of its own. Behind a commit it is sent in the same round trip (`behind`); the fast path sends it
by itself (`follow`). A crash leaves the watermark as it was.
"""

from __future__ import annotations

import time

import psycopg

from dibs.stores.postgres import statements as q

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.postgres.round_trips import Statement
    from dibs.stores.postgres.store import PostgresStore

FAR = 400
"""So many numbers may lie between a watermark and the first ready task."""
EVERY = 0.2
"""Seconds between two tries of one process."""


class ReadyWatermark:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._tried = 0.0
        self.far = FAR

    def behind(self, queue: str, rank: int) -> list[Statement]:
        """What raises a watermark that was found far behind; nothing if that was tried a moment ago."""
        if time.monotonic() - self._tried < EVERY:
            return []
        self._tried = time.monotonic()
        board = self._store.board
        return [
            # As it stands after the key has been waited for, whatever the database's own setting.
            (q.BEGIN[True], ()),
            ("SET LOCAL lock_timeout = '100ms'", ()),
            (q.HOLD, (board, q.WATERMARKS)),
            (q.raise_watermark(queue), (board, rank, self._store.tasks, self.far // 2)),
            ("COMMIT", ()),
        ]

    def follow(self, queue: str, rank: int) -> None:
        """Raise a watermark that was found far behind; now or, if others are at it, another time."""
        raising = self.behind(queue, rank)
        store = self._store
        connection = store.connections.take_idle() if raising else None
        if connection is None:
            return
        try:
            connection.trip(raising)
        except psycopg.Error:
            store.abandon(connection)
        except BaseException:
            store.connections.discard(connection)
            raise
        else:
            store.connections.give(connection)
