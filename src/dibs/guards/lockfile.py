"""Document 000's guard: a lock file, such as `.workflow/board.lock`, with the holder's name and a time in it.

    {"agent": "worker-w1", "ts": "2026-02-11T14:30:00.000000+00:00"}

Acquire: create it; while it exists look again every 2 seconds, 5 times; then read `ts`. Older than 60 seconds, or no
readable `ts`: break it and create ours. Recent: `Busy`, with the document's words. The document knows no other death
than age, so a holder that is provably dead is waited for like any other.

Create: a draft with the content, then `link` it to its name: nobody ever sees a lock of ours without its content.

Break: under a second lock, a kernel lock on `board.lock.break`, read the marker again; if it is the one that was
judged, rename it to a private name, look whether that moved the right one, remove it. Release: under the second lock
too, for ours may be stale by now; if it is ours, remove it. Without the
second lock two breakers of one stale lock both win: the slower one removes the faster one's new lock. A crash leaves
at any step a marker that grows stale, or files that nothing reads; the kernel ends the second lock.

What remains: a worker that breaks by hand (`rm board.lock`) takes no second lock and can remove a lock that was made a
moment ago, and a holder that sleeps longer than 60 seconds is broken rightfully. Therefore ask `confirm()` immediately
before the write that counts, and once more after it: a pause between the first answer and the write can have
overwritten what another rightly wrote, and only the second answer tells.

`tests/guards/models.py` has these steps as a model, searched for overlaps and wedges; a change here belongs there too.
"""

from __future__ import annotations

import errno
import os
import time

from dibs import fs
from dibs.errors import Busy
from dibs.guards.base import DEFAULT, LATEST_ZONE, Guard, private_name, remove, sweep_litter
from dibs.guards.flock import FlockGuard
from dibs.guards.holder import ALIVE, DEAD, UNKNOWN, Holder
from dibs.jsontext import dumps, loads
from dibs.times import ago, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BUSY = "Board is locked by another agent. Cannot proceed."
SECOND_LOCK = 5.0
"""Seconds to wait for the second lock. It is held for microseconds, unless its holder was stopped."""
RACES = 1000
"""So often may the lock go away between two looks before we say that others are faster."""
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


class _Marker:
    """A lock file as it was found. Two readings are equal if nobody has touched it in between."""

    __slots__ = ("data", "stamp", "agent", "ts", "has_zone")

    def __init__(self, data: bytes, stamp: tuple[int, int]) -> None:
        self.data = data
        self.stamp = stamp
        self.agent, self.ts, self.has_zone = parse(data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Marker) and (self.data, self.stamp) == (other.data, other.stamp)

    __hash__ = None  # type: ignore[assignment]


class LockFileGuard(Guard):
    """`agent` is the holder's name for others to read, `<role>-<unique-id>` in the document. With `first_pause` the
    first looks come sooner, each pause twice the one before; how long one waits in all stays the same."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        agent: str,
        *,
        retries: int = 5,
        pause: float = 2.0,
        stale: float = 60.0,
        first_pause: float | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(path)
        self.agent = agent
        self.retries = retries
        self.pause = pause
        self.stale = stale
        self._first_pause = first_pause or pause
        self._clock = clock
        self._sleep = sleep
        self._content = b""
        self._since = 0.0

    # -- acquiring

    def _take(self, timeout: float | None) -> None:
        waited = self._wait(timeout, self._create)
        if waited is not None:
            raise self._busy(waited)

    def wait_readable(self, timeout: float | None = DEFAULT) -> Holder | None:
        """For readers: wait while the lock exists, break it if it is stale. None: read. Else: it is still held,
        recently; the document does not say more, and a reader may try its luck."""
        return self._wait(timeout, lambda: not os.path.lexists(self.path))

    def _wait(self, timeout: float | None, succeeded: Callable[[], bool]) -> Holder | None:
        """Until `succeeded`, by the document's steps; who is in the way when the time is over."""
        usual = self.retries * self.pause
        limit = usual if timeout is not None and timeout < 0 else timeout
        judge_at = usual if limit is None else min(usual, limit)
        waited, vanished, pause = 0.0, 0, self._first_pause
        malformed: _Marker | None = None
        while not succeeded():
            trouble = ""
            try:
                marker = self._read(self.path)
            except OSError as error:
                marker, trouble = None, f"it cannot be read: {error.strerror}"
            unsure = marker is not None and marker.ts is None and marker != malformed
            malformed = marker if marker is not None and marker.ts is None else None
            if waited < judge_at:
                waited += self._nap(min(pause, judge_at - waited))
                pause = min(pause * 2, self.pause)
            elif trouble:
                return Holder(state=UNKNOWN, why=trouble)
            elif marker is None:
                vanished += 1
                if limit is not None and vanished > RACES:
                    return Holder(state=UNKNOWN, why="others are faster each time")
            elif unsure and (limit is None or limit >= usual):
                # Its maker may be between creating and writing it. The same emptiness after a pause is its end.
                self._nap(self.pause)
            elif not unsure and self._is_dead(marker):
                try:
                    self._break(marker)
                except Busy:
                    return Holder(marker.agent, state=UNKNOWN, why="somebody is removing it, and has not finished")
                if succeeded():
                    return None
                # Somebody was faster, and has made a new lock, which is waited for like the old one.
                waited = 0.0 if limit is None or limit >= usual else waited
            elif limit is not None and waited >= limit:
                return self._describe(marker)
            else:
                waited += self._nap(self.pause if limit is None else min(self.pause, limit - waited))
        return None

    def _nap(self, seconds: float) -> float:
        self._sleep(seconds)
        return seconds

    def _create(self) -> bool:
        if os.path.lexists(self.path):
            return False
        now = self._clock()
        content = encode(self.agent, now)
        draft = private_name(self.path)
        _write_new(draft, content)
        try:
            self._content, self._since = content, now
            self._mine()
            try:
                os.link(draft, self.path)
            except FileExistsError:
                self._not_mine()
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                try:
                    _write_new(self.path, content)
                except FileExistsError:
                    self._not_mine()
                    return False
        finally:
            remove(draft)
        return True

    def _busy(self, holder: Holder) -> Busy:
        is_past = holder.since is not None and holder.since <= self._clock()
        has = "has it" + (f", taken {ago(holder.since, self._clock())}" if is_past else "")
        return Busy(
            BUSY,
            hint=f"{self.path}: {holder.name or 'somebody'} {has}; {holder.why}; try again later",
            path=self.path,
            holder=holder.as_dict(),
        )

    # -- judging and breaking

    def _read(self, path: str) -> _Marker | None:
        data = fs.read_marker(path)
        if data is None:
            return None
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return _Marker(data, (found.st_ino, found.st_mtime_ns))

    def _is_dead(self, marker: _Marker) -> bool:
        return marker.ts is None or self._clock() - marker.ts > self.stale

    def _break(self, judged: _Marker) -> bool:
        """Remove this very marker; False if somebody else has done so, or it is another one by now."""
        with FlockGuard(self.path + ".break", temporary=True, timeout=SECOND_LOCK):
            if self._read(self.path) != judged or not self._is_dead(judged):
                return False
            done = self._move_away(judged.data)
        sweep_litter(self.path, self._clock())
        return done

    def _move_away(self, content: bytes) -> bool:
        gone = private_name(self.path)
        try:
            os.rename(self.path, gone)
        except FileNotFoundError:
            return False
        right = fs.read_marker(gone) == content
        if not right:
            # Somebody without the second lock was faster, and this is a live lock. Its holder has it back, unless
            # a third has come meanwhile; then `confirm` tells it.
            try:
                os.link(gone, self.path)
            except OSError:
                pass
        remove(gone)
        return right

    # -- holding

    def confirm(self) -> bool:
        if self._owner != os.getpid() or self._clock() - self._since > self.stale:
            return False  # never had, or so old that anybody may be removing it at this moment
        try:
            return fs.read_marker(self.path) == self._content
        except OSError:
            return False

    def _release(self) -> None:
        second = FlockGuard(self.path + ".break", temporary=True, timeout=SECOND_LOCK)
        try:
            second.acquire()
        except OSError:
            pass  # the disk is full, perhaps; the lock must go even so
        try:
            if fs.read_marker(self.path) == self._content:
                os.unlink(self.path)
        except OSError:
            pass  # it is no file of ours any more
        finally:
            second.release()

    def holder(self) -> Holder | None:
        try:
            marker = self._read(self.path)
        except OSError as error:
            return Holder(state=UNKNOWN, why=f"it cannot be read: {error.strerror}")
        return None if marker is None else self._describe(marker)

    def _describe(self, marker: _Marker) -> Holder:
        if marker.ts is None:
            return Holder(marker.agent, state=DEAD, why="it has no readable ts, and counts as malformed")
        age = self._clock() - marker.ts
        if age > self.stale:
            state, why = DEAD, f"its ts is {span(age)} old, and it is stale after {span(self.stale)}"
        elif not marker.has_zone:
            state, why = ALIVE, f"its ts has no time zone; it is stale in all of them in {span(self.stale - age)}"
        elif age < -self.stale:
            state, why = ALIVE, f"its ts lies {span(-age)} in the future"
        else:
            state, why = ALIVE, f"its ts is {span(age)} old; it is stale after {span(self.stale)}"
        return Holder(marker.agent, since=marker.ts, age=age, state=state, why=why)


# -- the content


def encode(agent: str, now: float) -> bytes:
    """The document's two keys, laid out as there. The microseconds make it a name that no other lock has."""
    micro = round(now * 1_000_000)
    whole, rest = divmod(micro, 1_000_000)
    ts = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest:06d}+00:00"
    return f'{{\n  "agent": {dumps(agent)},\n  "ts": {dumps(ts)}\n}}\n'.encode()


def parse(data: bytes) -> tuple[str | None, float | None, bool]:
    """(agent, ts in seconds since the epoch, whether that says its zone); None where it is missing or unreadable.

    A time without a zone is the latest that it can mean, so that its lock is stale only when it is so in every zone. A
    number is taken for seconds (or milliseconds) since the epoch: not what the document says, but nobody who meant it
    so should lose a lock that is a second old.
    """
    try:
        found = loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None, None, True
    if not isinstance(found, dict):
        return None, None, True
    agent = found.get("agent")
    return (agent if isinstance(agent, str) else None), *_moment(found.get("ts"))


def _moment(ts: object) -> tuple[float | None, bool]:
    if isinstance(ts, int | float) and not isinstance(ts, bool):
        number = float(ts) if abs(ts) < 1e18 else float("nan")
        return (None if number != number else number / 1000 if number > 1e11 else number), True
    if not isinstance(ts, str):
        return None, True
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(ts.strip())
        if found.tzinfo is not None:
            return found.timestamp(), True
        return found.replace(tzinfo=UTC).timestamp() + LATEST_ZONE, False
    except (ValueError, OverflowError, OSError):
        return None, True


def _write_new(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        os.unlink(path)  # half a marker would be taken for somebody's
        raise
    finally:
        os.close(fd)
