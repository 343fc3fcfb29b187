"""Document 001's lock files on the disk, and the guard of a write to `progress.yaml`.

An activity's lock (`locks/ACTIVITY.lock`) is made by linking a draft to its name, so nobody ever sees one of ours
without its content, and of several who try one succeeds. Replacing or removing a lock happens under a second lock (a
kernel lock on `….lock.break`), inside which the lock is read again and must be the one that was judged. A worker by
hand that breaks an expired lock with `rm` takes no second lock: between our look and our rename remain some
microseconds, in which it can lose to us, or we to it; whoever is second finds out by the exclusive creation.

Whoever writes a `progress.yaml` holds `locks/WORK_ITEM.lock` for it, in the format of any other lock, with an end after
60 seconds; workers by hand keep to the same rule. Among dibs' own processes a kernel lock (`.dibs/guard.lock`) makes a
call one step, even over several work items. It is held for as long as any lock of a work item is, and before those are
made they are written into `.dibs/writing`: whoever has the kernel lock and finds one of them on the disk knows that its
maker died, and need not wait for its end.
"""

from __future__ import annotations

import os
import stat
import time

from dibs import fs
from dibs.dialects import activity_lock
from dibs.dialects.activity_lock import LockRecord
from dibs.errors import Busy
from dibs.guards.base import DEFAULT, Guard, private_name, remove, sweep_litter
from dibs.guards.flock import FlockGuard
from dibs.guards.holder import ALIVE, DEAD, UNKNOWN, Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SUFFIX = ".lock"
WRITING = 60.0
"""Seconds after which the lock of a work item ends by itself."""
PATIENCE = 75.0
"""Seconds to wait for the lock of a work item: longer than it lasts if its holder has died."""
SECOND_LOCK = 5.0
_TICK = 100_000_000
_COARSE_TICK = 2_100_000_000
"""Nanoseconds within which two changes of a file may get the same time; the second where times are whole seconds."""
_LONGEST_PAUSE = 0.05
_NO_LINKS = ("EPERM", "EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EMLINK", "EINVAL")

Stamp = tuple[int, int, int]


class FoundLock:
    """A lock as it was read."""

    __slots__ = ("data", "record", "since", "stamp")

    def __init__(self, data: bytes | None, stamp: Stamp) -> None:
        self.data = data
        """None: it cannot be read, and is therefore live."""
        self.record = activity_lock.parse(data or b"")
        self.since = stamp[0] / 1e9
        tick = _COARSE_TICK if stamp[0] % 1_000_000_000 == 0 else _TICK
        # If it changed a moment ago it may change again without getting another time: then look again.
        self.stamp: Stamp | None = stamp if time.time_ns() - stamp[0] > tick else None

    def is_same_claim(self, other: FoundLock | None) -> bool:
        if other is None or self.data is None or other.data is None:
            return False
        mine, theirs = self.record, other.record
        return self.data == other.data or (
            mine.holder is not None and (mine.holder, mine.acquired) == (theirs.holder, theirs.acquired)
        )


def look(folder: str, known: dict[str, FoundLock]) -> dict[str, FoundLock]:
    """The locks in a folder, by the id that they are named after; those that have not changed as they were `known`."""
    found: dict[str, FoundLock] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX) or entry.name[0] == ".":
                    continue
                its_id = entry.name[: -len(SUFFIX)]
                try:
                    is_ = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # given back a moment ago
                stamp = (is_.st_mtime_ns, is_.st_size, is_.st_ino)
                lock = known.get(its_id)
                if lock is None or lock.stamp != stamp:
                    lock = _read(entry.path, stamp)
                if lock is not None:
                    found[its_id] = lock
    except (FileNotFoundError, NotADirectoryError):
        pass
    return found


def _read(path: str, stamp: Stamp) -> FoundLock | None:
    try:
        data = fs.read_marker(path)
    except OSError:
        return FoundLock(None, stamp)
    return None if data is None else FoundLock(data, stamp)


def read(path: str) -> FoundLock | None:
    """The lock of that name, if there is one."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return _read(path, (found.st_mtime_ns, found.st_size, found.st_ino))


# -- making, replacing, removing


def create(path: str, data: bytes, durable: bool) -> bool:
    """Make a lock with its content; False if there is one."""
    if os.path.lexists(path):
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = private_name(path)
    _write_new(draft, data, durable)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _numbers(_NO_LINKS):
            raise
        try:
            _write_new(path, data, durable)
        except FileExistsError:
            return False
    finally:
        remove(draft)
    if durable:
        fs.sync_directory(os.path.dirname(path))
    return True


def replace(path: str, data: bytes, seen: bytes | None, durable: bool) -> bool:
    """Put new content into this very lock; False if it is another one by now, or gone."""
    with _second(path):
        if seen is None or _content(path) != seen:
            return False
        fs.replace_file(path, data, durable)
        return True


def take_away(path: str, seen: bytes | None, now: float) -> bool:
    """Remove this very lock; False if it is another one by now. Gone already: True."""
    with _second(path):
        if not os.path.lexists(path):
            return True
        if _content(path) != seen:
            return False
        done = _move_away(path, seen)
    sweep_litter(path, now)
    return done


def _move_away(path: str, seen: bytes | None) -> bool:
    gone = private_name(path)
    try:
        os.rename(path, gone)
    except FileNotFoundError:
        return True
    right = _content(gone) == seen
    if not right:
        # Somebody without the second lock was faster, and this is a live lock: its holder has it back.
        try:
            os.link(gone, path)
        except OSError:
            pass
    remove(gone)
    return right


def _second(path: str) -> FlockGuard:
    return FlockGuard(path + ".break", temporary=True, timeout=SECOND_LOCK)


def _content(path: str) -> bytes | None:
    try:
        return fs.read_marker(path)
    except OSError:
        return None


def _is_file(path: str) -> bool:
    """Is it a file, or gone? Links are not followed."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True


def _write_new(path: str, data: bytes, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags, 0o666)
    try:
        os.write(fd, data)
        if durable:
            fs.sync_data(fd)
    finally:
        os.close(fd)


def _numbers(names: Sequence[str]) -> list[int]:
    import errno

    return [getattr(errno, name) for name in names if hasattr(errno, name)]


# -- guards


class ItemGuard(Guard):
    """`locks/WORK_ITEM.lock`. `is_left` says of a lock's token that its maker has died."""

    def __init__(
        self,
        path: str,
        holder: str,
        clock: Callable[[], float],
        *,
        before: Callable[[int], None] = lambda token: None,
        is_left: Callable[[str, int | None], bool] = lambda path, token: False,
        timeout: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(path)
        self._holder = holder
        self._clock = clock
        self._before = before
        self._is_left = is_left
        self._timeout = PATIENCE if timeout is None else timeout
        self._sleep = sleep
        self._content = b""
        self._ends = 0.0

    def _take(self, timeout: float | None) -> None:
        limit = self._timeout if timeout is not None and timeout < 0 else timeout
        end = None if limit is None else time.monotonic() + limit
        pause = 0.001
        while not self._create():
            found = read(self.path)
            if found is None:
                continue
            if self._is_over(found):
                take_away(self.path, found.data, self._clock())
                continue
            left = None if end is None else end - time.monotonic()
            if (left is not None and left <= 0) or not _is_file(self.path):  # a link or a folder has no end to wait for
                raise self._busy(found)
            self._sleep(pause if left is None else min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _create(self) -> bool:
        if os.path.lexists(self.path):
            return False
        now = round(self._clock(), 6)
        record = LockRecord(self._holder, "agent", now, now + WRITING)
        self._content, self._ends = activity_lock.encode(record), now + WRITING
        self._before(record.token or 0)
        self._mine()
        if not create(self.path, self._content, durable=False):
            self._not_mine()
            return False
        return True

    def _is_over(self, found: FoundLock) -> bool:
        if found.record.doubt is not None:
            # Whoever made it was killed, or forgot the content: nobody writes to a work item for this long.
            return found.data is not None and self._clock() - found.since > WRITING
        return found.record.is_expired(self._clock()) or self._is_left(self.path, found.record.token)

    def _busy(self, found: FoundLock) -> Busy:
        holder = self._describe(found)
        who = holder.name or "somebody"
        return Busy(
            f"lock busy: {self.path}",
            hint=f"{who} writes to this work item; {holder.why}; try again later",
            path=self.path,
            holder=holder.as_dict(),
        )

    def confirm(self) -> bool:
        return self._owner == os.getpid() and self._clock() < self._ends and _content(self.path) == self._content

    def _release(self) -> None:
        try:
            take_away(self.path, self._content, self._clock())
        except (OSError, Busy):
            pass  # it ends by itself

    def holder(self) -> Holder | None:
        found = read(self.path)
        return None if found is None else self._describe(found)

    def _describe(self, found: FoundLock) -> Holder:
        record = found.record
        if self._is_over(found):
            since = found.since if record.acquired is None else record.acquired
            return Holder(record.holder, state=DEAD, since=since, why="it has ended: the next write goes on")
        if record.doubt is not None:
            why = f"{record.doubt}; it counts as ended {WRITING:.0f}s after it was made"
            return Holder(record.holder, state=UNKNOWN, since=found.since, why=why)
        return Holder(record.holder, state=ALIVE, since=record.acquired, why="it is being written")


class BoardGuard:
    """One step of dibs' own processes: the kernel lock, and the locks of the work items that are written to."""

    def __init__(
        self,
        folder: str,
        holder: str,
        clock: Callable[[], float],
        prepare: Callable[[], None] = lambda: None,
        is_own: Callable[[str], bool] = lambda path: True,
    ) -> None:
        """`prepare` makes the folder; `is_own` says of a path whether it is one of this board's files."""
        self._prepare = prepare
        self._is_own = is_own
        self._flock = FlockGuard(os.path.join(folder, "guard.lock"))
        self.path = self._flock.path
        self._note = os.path.join(folder, "writing")
        self._holder = holder
        self._clock = clock
        self._held: list[ItemGuard] = []
        self._left: set[tuple[str, int]] = set()
        self._noted = ""

    def acquire(self, timeout: float | None = DEFAULT) -> None:
        self._prepare()
        self._flock.acquire(timeout)
        try:
            self._left = self._read_note()
            for path in {path for path, _ in self._left}:
                found = read(path)
                if found is not None and self._is_left(path, found.record.token):
                    take_away(path, found.data, self._clock())
        except BaseException:
            self._flock.release()
            raise

    def hold(self, paths: Sequence[str]) -> None:
        """Hold these locks of work items too."""
        for path in sorted(set(paths) - {guard.path for guard in self._held}):
            guard = ItemGuard(
                path, self._holder, self._clock, before=lambda token, path=path: self._add_note(path, token),  # type: ignore[misc]
                is_left=self._is_left,
            )  # fmt: skip
            guard.acquire()
            self._held.append(guard)

    def confirm(self) -> bool:
        return self._flock.confirm() and all(guard.confirm() for guard in self._held)

    def release(self) -> None:
        try:
            for guard in self._held:
                guard.release()
            # What could not be removed stays noted, so that the next one hears why instead of waiting for its end.
            if (self._held or self._left) and not any(os.path.lexists(guard.path) for guard in self._held):
                self._clear_note()
        finally:
            self._held, self._noted = [], ""
            self._flock.release()

    def holder(self) -> Holder | None:
        return self._flock.holder()

    # -- the note of the locks that are being held

    def _is_left(self, path: str, token: int | None) -> bool:
        return token is not None and (path, token) in self._left

    def _read_note(self) -> set[tuple[str, int]]:
        try:
            data = fs.read_marker(self._note) or b""
        except OSError:
            return set()
        left = set()
        for line in data.decode("utf-8", "surrogateescape").splitlines():
            token, _, path = line.partition(" ")
            # It is only a file, which may have come with a clone: nothing but this board's own locks is removed for it.
            if token.isdigit() and path.endswith(SUFFIX) and self._is_own(path):
                left.add((path, int(token)))
        return left

    def _add_note(self, path: str, token: int) -> None:
        self._noted += f"{token} {path}\n"
        fs.replace_file(self._note, self._noted.encode("utf-8", "surrogateescape"), durable=False, follow=False)

    def _clear_note(self) -> None:
        try:
            os.unlink(self._note)
        except OSError:
            pass  # what it says is about locks that are gone
