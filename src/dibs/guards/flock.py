"""Document 004's guard: a kernel lock (`flock`) on an open file, such as `taskboard.lock`.

    open the file · flock · is the path still this file? · … · unlock, close

The check after the lock matters where somebody removes or replaces the file: the lock of a file that has lost its name
excludes nobody. Because of it even the file may come and go (`temporary`), as the side files of the other guards do:
only the holder removes it, and those who waited for the old file find out and start again.

A crash leaves nothing: the kernel unlocks. The file stays, empty.
`tests/guards/models.py` has these steps as a model, searched for overlaps.
"""

from __future__ import annotations

import os
import time

from dibs import fs
from dibs.errors import Busy
from dibs.guards.base import Guard
from dibs.guards.holder import ALIVE, UNKNOWN, Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_PAUSE = 0.05


class FlockGuard(Guard):
    """`shared=True` is for readers: any number of them, or one that has it alone. The default time-out is none."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shared: bool = False,
        temporary: bool = False,
        timeout: float | None = None,
        steady: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(path)
        self.shared = shared
        self._temporary = temporary and not shared
        self._timeout = timeout
        self._steady = steady
        self._sleep = sleep
        self._fd = -1

    def _take(self, timeout: float | None) -> None:
        limit = self._timeout if timeout is not None and timeout < 0 else timeout
        end = None if limit is None else self._steady() + limit
        while True:
            fd = fs.open_lock_file(self.path)
            try:
                self._lock(fd, end)
                if self._is_named(fd):
                    self._fd = fd
                    self._mine()
                    return
            except BaseException:
                self._fd = -1
                os.close(fd)
                raise
            os.close(fd)

    def _lock(self, fd: int, end: float | None) -> None:
        if end is None:
            (fs.lock_shared if self.shared else fs.lock)(fd)
            return
        pause = 0.001
        while not fs.try_lock(fd, self.shared):
            left = end - self._steady()
            if left <= 0:
                raise self._busy()
            self._sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _is_named(self, fd: int) -> bool:
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        here = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def _busy(self) -> Busy:
        found = self.holder()
        who = found.why if found is not None and found.pid is not None else "another process holds it"
        return Busy(
            f"lock busy: {self.path}",
            hint=f"{who}; wait longer, or try again later",
            path=self.path,
            holder=found.as_dict() if found is not None else None,
        )

    def confirm(self) -> bool:
        return self._fd >= 0 and self._owner == os.getpid() and self._is_named(self._fd)

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if self._temporary and self._is_named(fd):
                os.unlink(self.path)
        except OSError:
            pass  # Windows does not remove what is open
        finally:
            fs.unlock(fd)  # said aloud, for a forked child may have the file open too
            os.close(fd)

    def _forget(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def holder(self) -> Holder | None:
        """From the kernel's table of locks where there is one, else only whether somebody has it."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}" if os.name != "nt" else ""
        try:
            with open("/proc/locks", encoding="ascii", errors="replace") as table:
                lines = [line.split() for line in table]
        except OSError:
            lines = []
        for fields in lines:
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:
                pid = int(fields[4]) if fields[4].isdigit() and fields[4] != "0" else None
                command = _command(pid)
                named = f" ({command})" if command else ""
                why = f"process {pid}{named} has it" if pid else "the kernel says that it is locked"
                return Holder(name=command, pid=pid, state=ALIVE, why=why)
        return self._tried()

    def _tried(self) -> Holder | None:
        if self._owner == os.getpid():
            return Holder(pid=self._owner, state=ALIVE, why="this process has it")
        try:
            fd = os.open(self.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return None
        try:
            # A shared try: it hinders no reader, and a writer for as long as a system call takes.
            if fs.try_lock(fd, shared=True):
                fs.unlock(fd)
                return None
        finally:
            os.close(fd)
        return Holder(state=UNKNOWN, why="it is locked; by whom, the system does not say")


def _command(pid: int | None) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() or None
    except OSError:
        return None
