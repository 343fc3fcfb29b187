"""Document 002's guard: a lock directory, such as `storage/lock/`, with the files `pid`, `ts` and `cmd` in it.

Acquire: make it; while it exists look again, for 10 seconds or as told (0: do not wait). If its process is provably
dead break it, also when told not to wait; a live or unknown one is never touched. The second line of `cmd` is a record
of our process (start time, boot, host), which proves its death even when its pid is in use again. It is there and not
in a file of its own because those who remove `pid`, `ts`, `cmd` and then the directory, as the document has it, must
find nothing more in it.

Make: build it under a private name, with its content, and rename it to a name that must be free. Nobody sees a lock of
ours without its pid, and a crash leaves either no lock or one that is provably dead. Where the system has no such
rename: `mkdir`, then the files, and a SIGKILL between the two leaves a directory without a pid, which by the document
nobody may remove by himself.

Break: the second lock that keeps breakers apart is in the dead directory itself. With the directory open, so that it
is this one whatever its path comes to name, read the pid; if it is dead, make the symbolic link `break.1` in it, whose
target is our pid. One breaker succeeds, the others wait. If a breaker dies, its link proves that too, and the next one
makes `break.2`, and so on: a link is never removed, except with the directory. The one who has made the last link
looks whether the path still names this directory, renames it to a private name, and removes that. A shell without
flock(1) can do the same: `dibs shell-lib` does, and the two respect each other.

Release: look whether it is ours, rename it away, remove it. Not `rm` and `rmdir` in place: killed in between, they
would leave a directory without a pid. A crash leaves a private directory that nothing reads.

What remains: a worker that breaks by hand (`rm -r` after its own `kill -0`) can remove a lock that was made a moment
ago. `confirm()` before a write notices. And a breaker in a shell that dies and whose pid is in use again at once looks
alive as long as that process runs.

`tests/guards/models.py` has these steps as a model, searched for overlaps and wedges; a change here belongs there too.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time

from dibs import fs
from dibs.errors import Busy
from dibs.guards.base import Guard, private_name, remove, sweep_litter
from dibs.guards.holder import DEAD, UNKNOWN, Holder, look_at, own_record, read_pid, read_record
from dibs.guards.naming import rename_to_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HINT = "If you are sure no bilu process is running, remove the lock directory."
NO_LOCK = "it has no pid in it but other things: perhaps it is no lock, and another path was meant"
LONGEST_PAUSE = 0.1
BREAKING = 0.5
"""Seconds that even a caller who does not wait gives another breaker of a dead lock."""
MOST_BREAKERS = 1000
_SMALL = 64 * 1024


class LockDirGuard(Guard):
    """`cmd` says what we are doing, for others to read; by default it is the command line."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        cmd: str | None = None,
        *,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(os.fspath(path).rstrip("/") or "/")
        self.cmd = cmd
        self.timeout = timeout
        self._clock = clock
        self._steady = steady
        self._sleep = sleep
        self._content = b""
        """What is in our `cmd`: with its nonce the proof that the directory is ours."""

    # -- acquiring

    def _take(self, timeout: float | None) -> None:
        limit = self.timeout if timeout is not None and timeout < 0 else timeout
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        start = self._steady()
        pause = 0.001
        while not self._make():
            found = self._look()
            if found is None:
                continue
            with found:
                if found.state == DEAD and self._break(found):
                    continue
                if limit is not None:
                    patience = max(limit, BREAKING) if found.state == DEAD and found.breakers() else limit
                    left = start + patience - self._steady()
                    if left <= 0 and not found.is_named():
                        continue  # what we have looked at has gone meanwhile
                    if left <= 0:
                        raise self._busy(found)
                    pause = min(pause, left)
            self._sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _make(self) -> bool:
        if os.path.lexists(self.path):
            return False
        draft = private_name(self.path)
        content = self._describe_us()
        os.mkdir(draft)
        try:
            self._fill(draft, content)
            self._content = content
            self._mine()
            try:
                if rename_to_new(draft, self.path):
                    return True
                os.mkdir(self.path)
                try:
                    self._fill(self.path, content)
                except BaseException:
                    remove(self.path)  # nobody else touches it: it is unknown to them
                    raise
            except FileExistsError:
                self._not_mine()
                return False
        finally:
            if os.path.lexists(draft):
                remove(draft)
        return True

    def _describe_us(self) -> bytes:
        said = " ".join(sys.argv) if self.cmd is None else self.cmd
        line = " ".join(said.split())[:1000]
        return f"{line}\n{own_record(os.urandom(8).hex())}\n".encode("utf-8", "surrogateescape")

    def _fill(self, folder: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        for name, data in (
            ("pid", b"%d\n" % os.getpid()),
            ("ts", b"%d\n" % int(self._clock())),
            ("cmd", content),
        ):
            fd = os.open(os.path.join(folder, name), flags, 0o666)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)

    def _busy(self, found: _Found) -> Busy:
        holder = found.holder(self._clock())
        who = f"{holder.told()}; " if holder.pid is not None or holder.name else ""
        hint = NO_LOCK if found.is_foreign() else who + HINT
        return Busy(f"error: lock busy: {self.path}", hint=hint, path=self.path, holder=holder.as_dict())

    # -- judging and breaking

    def _look(self) -> _Found | None:
        try:
            return _Found(self.path)
        except FileNotFoundError:
            return None

    def _break(self, found: _Found) -> bool:
        """Remove this very directory, whose holder is dead; False if somebody else is doing so, or has."""
        mark = f"{os.getpid()} {own_record(os.urandom(8).hex())}"
        name = found.next_link()
        try:
            if name is None or not found.link(name, mark):
                return False
            if _read_link(self.path, name) != mark:
                return False  # the path names another one: somebody without a link has removed this one
            gone = private_name(self.path)
            os.rename(self.path, gone)
            if _read_link(gone, name) != mark:
                # Somebody without a link was faster still, and this is a live lock. Its holder has it back, unless
                # a third has come meanwhile; then `confirm` tells it.
                try:
                    if rename_to_new(gone, self.path):
                        return False
                except OSError:
                    pass
        except OSError:
            return False  # not ours to remove, or it has gone
        remove(gone)
        sweep_litter(self.path, self._clock())
        return True

    # -- holding

    def confirm(self) -> bool:
        if self._owner != os.getpid():
            return False
        try:
            return fs.read_marker(os.path.join(self.path, "cmd")) == self._content
        except OSError:
            return False

    def _release(self) -> None:
        if self.confirm():
            gone = private_name(self.path)
            try:
                os.rename(self.path, gone)
            except FileNotFoundError:
                pass
            else:
                remove(gone)

    def holder(self) -> Holder | None:
        found = self._look()
        if found is None:
            return None
        with found:
            return found.holder(self._clock())


class _Found:
    """A lock directory as it was found, kept open: what is read and made in it is in this one, whatever happens to
    its path."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.pid: int | None = None
        self.record: dict[str, Any] | None = None
        self.cmd = ""
        self.state, self.why = UNKNOWN, "it cannot be read"
        self._path = path
        if os.open not in os.supports_dir_fd:
            if not os.path.lexists(path):
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self._read_files()
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self.fd = os.open(path, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.why = "it is no directory" if error.errno in (errno.ENOTDIR, errno.ELOOP) else self.why
            return
        self._read_files()

    def _read_files(self) -> None:
        self.pid = read_pid(self._read("pid"))
        said, _, rest = self._read("cmd").partition("\n")
        self.cmd, self.record = said, read_record(rest.strip())
        self.state, self.why = look_at(self.pid, self.record)

    def __enter__(self) -> _Found:
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _read(self, name: str) -> str:
        try:
            if self.fd < 0:
                return (fs.read_marker(os.path.join(self._path, name)) or b"").decode("utf-8", "replace")
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return ""
                return os.read(fd, _SMALL).decode("utf-8", "replace")
            finally:
                os.close(fd)
        except OSError:
            return ""

    def is_named(self) -> bool:
        """Does the path still name it? (An open directory's inode is not used again.)"""
        try:
            there = os.lstat(self._path)
        except FileNotFoundError:
            return False
        here = there if self.fd < 0 else os.fstat(self.fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def is_foreign(self) -> bool:
        """Is it something else than a lock directory, and nothing that anybody should be told to remove?"""
        try:
            names = set(os.listdir(self._path if self.fd < 0 else self.fd))
        except OSError:
            return True
        return "pid" not in names and not names <= {"ts", "cmd"}

    def breakers(self) -> bool:
        """Has somebody begun to break it?"""
        try:
            os.readlink("break.1", dir_fd=self.fd)
        except OSError:
            return False
        return True

    def next_link(self) -> str | None:
        """The name of the link that makes us its breaker; None while somebody else is."""
        if self.fd < 0:
            return None
        for number in range(1, MOST_BREAKERS):
            name = f"break.{number}"
            try:
                target = os.readlink(name, dir_fd=self.fd)
            except FileNotFoundError:
                return name
            except OSError:
                return None
            pid, _, record = target.partition(" ")
            if look_at(read_pid(pid), read_record(record))[0] != DEAD:
                return None
        return None

    def link(self, name: str, mark: str) -> bool:
        try:
            os.symlink(mark, name, dir_fd=self.fd)
        except (FileExistsError, FileNotFoundError):
            return False  # another breaker was faster, or has removed the directory
        return True

    def holder(self, now: float) -> Holder:
        since = self._read("ts").strip()
        moment = float(since) if since.isascii() and since.isdigit() and len(since) < 16 else None
        age = None if moment is None else now - moment
        return Holder(self.cmd or None, self.pid, moment, age, self.state, self.why)


def _read_link(folder: str, name: str) -> str | None:
    try:
        return os.readlink(os.path.join(folder, name))
    except OSError:
        return None
