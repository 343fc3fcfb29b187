"""Waiting for a change of the board, and telling those who wait.

Telling: a NOTIFY after a commit, in a transaction of its own, since it takes a lock that all of the server's notifiers
share, and a sync. A process tells only when it has written nothing for half a second: so a busy board costs its workers
nothing, and those who wait find by looking what is left out.

Waiting: on a connection of its own that LISTENs, and by looking now and then: often soon after a change, when others
are likely and not told, and seldom when it is quiet. Through a pooler that hands out connections by transaction, LISTEN
hears nothing, and looking alone is enough.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

import psycopg

from dibs.errors import DibsError
from dibs.stores.postgres import statements as q

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.postgres.round_trips import Connection, Statement
    from dibs.stores.postgres.store import PostgresStore

TELL_AFTER = 0.5
"""Seconds without a change by this process after which the next one is told."""
BUSY = 0.1
QUIET = 1.0
"""Seconds between two looks, soon after a change and long after one."""


class Notifier:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._wrote = float("-inf")
        self._ear: Connection | None = None
        self._deaf_until = float("-inf")
        self._turn = allocate_lock()
        self._last_change = time.monotonic()

    @property
    def _channel(self) -> str:
        return f"dibs_{self._store.board}"

    def call(self) -> list[Statement]:
        """What to send after a commit: nothing, if it has not been quiet."""
        now = time.monotonic()
        before, self._wrote = self._wrote, now
        return [] if now - before < TELL_AFTER else [(q.NOTIFY, (self._channel,))]

    def wait(self, mark: int, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while True:
            if self._store.mark_change() != mark:
                self._last_change = time.monotonic()
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            since = time.monotonic() - self._last_change
            self._listen(min(left, QUIET if since > 5.0 else max(BUSY, since / 5)))

    def _listen(self, seconds: float) -> None:
        """Sleep so long, or until somebody tells."""
        if time.monotonic() < self._deaf_until or not self._turn.acquire(blocking=False):
            time.sleep(seconds)  # the server does not let us listen, or another thread has the ear
            return
        try:
            if self._ear is not None and self._ear.owner != os.getpid():
                self._ear = None  # the parent's, from before a fork
            if self._ear is None:
                self._ear = self._store.connections.extra()  # not an idle one: the next look needs that
                self._ear.trip([(f'LISTEN "{self._channel}"', ())])
            for _ in self._ear.raw.notifies(timeout=seconds, stop_after=1):
                pass
        except (psycopg.Error, DibsError):
            self._deafen()
            self._deaf_until = time.monotonic() + 10.0
            time.sleep(seconds)
        finally:
            self._turn.release()

    def _deafen(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            self._store.connections.discard(ear)

    def close(self) -> None:
        if self._turn.acquire(timeout=2.0):
            try:
                self._deafen()
            finally:
                self._turn.release()
