"""Group commit: one sync of the WAL stands for everybody who has committed before it began.

The file `board.db-sync` holds two counters of eight bytes and a flag: how many commits there have been, how many of
them are known to be on the disk, and whether a sync has failed. A writer, still inside the gate, adds one to the
first (`count_commit`). It has announced that before the commit (`announce_commit`): who is killed in between leaves a
commit that the next caller counts (`settle_commit`). Outside the gate it waits for its number (`wait_for`): where a
sync is under way it waits for its end (a shared lock on the file, so that all who wait go on at once); if the second
counter has reached its number, that is all. Else it locks the file alone, notes the first counter, syncs the WAL once,
and stores what it noted as the second. No call returns before its commit is on the disk, but the next writer works
while the disk does.

On a disk that takes its time, writers would fall into two groups that sync by turns: those whom the last sync covered
are just making their next commits when the next sync begins without them. So whoever is about to sync first waits for
them a little (`_gather`): until a part of what the last sync took has passed since that ended, and not at all where
syncing is quick. Nobody holds the lock meanwhile, or those waited for could not learn that they are done. The file
holds, for that, what had been synced before the last sync, how long that took, when it ended, and which processes made
the last commits; where that is wrong or missing, a sync begins a little earlier or later, and no more.

What a crash leaves: a counter of synced commits that is too low, which costs one sync more. Only the difference of
the two counters means anything, and a second counter that is ahead of the first is not believed, so a lost, old or
overwritten file does no harm. A failed sync raises `OutcomeUnknown`; since the
kernel reports it once and may have dropped the unwritten pages, the flag makes the next writer, whichever process it
is, write the whole WAL into the database (`write_through`) before anything later is acknowledged. (Who is killed by
SIGKILL while its sync fails, in the kernel, leaves no flag.)

The first counter also tells waiting processes that something has changed, and from the last commits' processes a writer
sees whether there is a crowd, or it gets more than its share (`should_queue`): then it is to queue at the gate, which
is fair, instead of slipping in, which is quick.
"""

from __future__ import annotations

import os
import time

from dibs import fs
from dibs.errors import BoardUnusable, OutcomeUnknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

_COMMITTED, _SYNCED, _FLAG, _ANNOUNCED, _WRITERS = 0, 8, 16, 48, 64
"""Where in the file: the counters, the flag, behind it three numbers on the last sync, and the ring of writers."""
_HIGHEST = 2**62
"""Where the counters begin anew; only a damaged file gets there."""
_RING = 256
"""So many of the last commits are known by their process."""
_write = getattr(os, "pwrite", fs.write_at)
_FINE, _FAILED = 0, (1).to_bytes(8, "little")

SLOW = 300
"""Microseconds from which a sync is worth waiting for company."""
PATIENCE = 0.7
"""The part of a sync's time, from its end, for which the next one waits at most."""
GLANCE = 0.00005
"""Seconds between two looks at whether they have come."""
STUCK = 3.0
"""Seconds after which whoever waits for another's sync, which may be stopped in it, syncs by itself."""
GLANCES = 30
"""Looks at whether a quick sync has ended before one falls asleep."""
SHARES = 16
"""So many commits of a process are between two looks at who made the last ones."""
FAIR = 1.25
"""So many times its share counts as no more than that: of few commits, some have more by chance."""
CROWD = 8
"""More writers than this queue: among many, luck would not be evened out soon enough."""


class _Stuck(Exception):
    pass


def _until_stuck() -> fs.Alarms:
    return [(STUCK, _give_up)]


def _give_up() -> None:
    raise _Stuck


class GroupCommit:
    """Of one opening of the board: whoever waits for the disk keeps the files open until it need not any more."""

    def __init__(self, board: str, sync: Callable[[int], object], turn: LockType) -> None:
        self._turn = turn
        """Held while a thread of this process waits for the disk; a fork takes it first."""
        self._board = board
        self._sync = sync
        self._file = self._wal = -1
        self._is_slow = True
        """Is the disk, as far as this process knows? It takes a look at what others have found."""
        self._counted = 0
        self.should_queue = False
        """Are there many writers, or did this process make more of the last commits than others?"""

    @property
    def is_open(self) -> bool:
        return self._file >= 0

    def open(self, path: str) -> None:
        if self._file < 0:
            self._file = fs.open_lock_file(path, alone=True)

    def close(self) -> None:
        self.close_wal()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def close_wal(self) -> None:
        """The WAL belongs to the connection: with the last one it goes, and a later one makes another."""
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1

    def committed(self) -> int:
        return self._numbers(_COMMITTED, 1)[0]

    def announce_commit(self) -> int:
        """The number of the commit that is about to be made; the caller has the gate."""
        number = _after(self.committed())
        self._put(number, _ANNOUNCED)
        return number

    def count_commit(self, number: int) -> None:
        """The commit that was announced has been made; the caller has the gate."""
        me = os.getpid().to_bytes(4, "little")
        fs.write_at(self._file, me, _WRITERS + 4 * (number % _RING))
        fs.write_at(self._file, _bytes(number), _COMMITTED)
        self._counted += 1
        if self._counted % SHARES == 0:
            last = self._writers(0, number)
            many = len(set(last))
            self.should_queue = many > CROWD or last.count(me) * many > FAIR * len(last)

    def settle_commit(self) -> int:
        """The number of the last commit, for a caller that has the gate and tells of what it found; one that was
        announced, and perhaps made, and not counted, is counted now."""
        number = self.committed()
        if self._numbers(_ANNOUNCED, 1)[0] == _after(number):
            number = _after(number)
            self._put(number, _COMMITTED)
        return number

    def _put(self, number: int, offset: int) -> None:
        """For a caller that has not committed anything."""
        try:
            fs.write_at(self._file, _bytes(number), offset)
        except OSError as error:
            raise BoardUnusable(
                f"cannot write beside the board ({error.strerror}); nothing was changed",
                hint="check the disk's health and free space, then repeat the command",
                path=self._board,
            ) from error

    def wait_for(self, number: int, write_through: Callable[[], None]) -> None:
        """Return when the commit with this number, and so all before it, is on the disk.

        `write_through` writes the WAL into the database and syncs that; it is needed after a failed sync only.
        """
        if self._is_synced(number):
            return
        with self._turn:
            if self._wal < 0:
                try:
                    self._wal = os.open(self._board + "-wal", os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
                except FileNotFoundError:
                    return  # the last connection was closed meanwhile: that wrote everything into the database
            try:
                if self._is_slow:
                    self._wait_for_a_sync()
                    if self._is_synced(number):
                        return
                    self._gather()
                try:  # before the lock is taken: an interruption just behind that must not leave it locked
                    if not fs.try_lock(self._file):
                        self._wait_for_a_sync()
                        if self._is_synced(number):
                            return
                        fs.lock(self._file, 0, _until_stuck)
                    self._sync_up_to(number, write_through)
                finally:
                    fs.let_go(self._file, fs.UNLOCK)
            except _Stuck:
                if self._numbers(_FLAG, 1)[0] != _FINE:
                    write_through()
                self._sync_wal()

    def _is_synced(self, number: int) -> bool:
        committed, synced = self._numbers(_COMMITTED, 2)
        return number <= synced <= committed

    def _wait_for_a_sync(self) -> None:
        """Return when no sync is under way."""
        try:
            fs.lock_shared(self._file, 0 if self._is_slow else GLANCES, _until_stuck)
        finally:
            fs.let_go(self._file, fs.UNLOCK)

    def _sync_up_to(self, number: int, write_through: Callable[[], None]) -> None:
        """Sync, unless somebody else has; the caller has the lock."""
        reached, synced, flag = self._numbers(_COMMITTED, 3)
        if number <= synced <= reached:
            return
        began = time.monotonic_ns()
        if flag != _FINE:
            write_through()
        self._sync_wal()
        ended = time.monotonic_ns()
        took = (ended - began) // 1000
        self._is_slow = took >= SLOW
        fs.write_at(self._file, _bytes(reached, _FINE, synced, took, ended // 1000), _SYNCED)

    def _gather(self) -> None:
        """Wait a little for those whom the last sync covered: they are about to commit again."""
        synced, _, before, took, ended = self._numbers(_SYNCED, 5)
        self._is_slow = took >= SLOW
        end = ended + int(PATIENCE * min(took, 1_000_000))
        # A time that is yet to come is that of another start of the machine.
        if not self._is_slow or not 0 < synced - before < _RING // 2 or not ended <= time.monotonic_ns() // 1000 < end:
            return
        missing = set(self._writers(before, synced))
        seen = synced
        while True:
            committed, now_synced = self._numbers(_COMMITTED, 2)
            missing.difference_update(self._writers(seen, committed))
            # Where the second counter has moved, somebody has not waited any longer.
            if not missing or now_synced != synced or time.monotonic_ns() // 1000 >= end:
                return
            seen = committed
            time.sleep(GLANCE)

    def _writers(self, after: int, until: int) -> list[bytes]:
        """The processes that made the commits after one number and up to another, as far as they are still known."""
        first = max(after + 1, until - _RING + 1)
        ring = fs.read_at(self._file, 4 * _RING, _WRITERS) if first <= until else b""
        return [ring[4 * (n % _RING) : 4 * (n % _RING) + 4] for n in range(first, until + 1)]

    def _numbers(self, offset: int, count: int) -> list[int]:
        """As many counters behind each other, from one look."""
        data = fs.read_at(self._file, 8 * count, offset)
        return [int.from_bytes(data[8 * at : 8 * at + 8], "little") for at in range(count)]

    def _sync_wal(self) -> None:
        try:
            self._sync(self._wal)
        except OSError as error:
            _write(self._file, _FAILED, _FLAG)  # first, and in C: whoever waits for a bad disk may press Ctrl-C
            raise OutcomeUnknown(
                f"the disk did not confirm the write ({error.strerror or error})",
                hint="look at what happened (dibs log) before repeating it; check the disk's health and free space",
                path=self._board,
            ) from error


def _after(number: int) -> int:
    """The next number, which is never 0."""
    return number % _HIGHEST + 1


def _bytes(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)
