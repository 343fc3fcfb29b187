"""What all guards share: the `with` statement, and giving back what is held whichever way the process ends.

A guard object belongs to one thread at a time and is not re-entrant. Everything held is known here: the end of the
interpreter gives it back, a forked child forgets it (it is the parent's), and `release_on_signals` has SIGINT, SIGTERM
and SIGHUP give it back before the process dies of them.

Calling sequence for an implementation: `_mine()` *before* the system call that could make the guard ours, so that an
interrupt right after it finds something to give back; `_take` raises `Busy` or returns; `_release` removes what is
provably ours and nothing else; `_forget` drops open files without telling the kernel to unlock.
"""

from __future__ import annotations

import os
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Self

    from dibs.guards.holder import Holder

DEFAULT = -1.0
"""As a time-out: as long as the guard's document says."""

LATEST_ZONE = 12 * 3600.0
"""Seconds that UTC-12, where a time without a zone comes last, is behind UTC."""

_held: list[Guard] = []
_hooked = False


class Guard:
    path: str

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._owner = 0
        """The pid of the process that may hold it through this object; 0 when that is nobody."""
        self._thread = 0

    # -- what a caller uses

    def acquire(self, timeout: float | None = DEFAULT) -> None:
        """Hold it from now on, or raise `Busy` after `timeout` seconds. None waits for ever, 0 does not wait."""
        if self._owner == os.getpid():
            raise RuntimeError(f"{self.path} is held through this object already")
        self._owner = 0
        try:
            self._take(timeout)
        except BaseException:
            self.release()
            raise

    def confirm(self) -> bool:
        """Is it still ours? False also means: write nothing more."""
        raise NotImplementedError

    def release(self) -> None:
        """Give it back; nothing happens if it is not ours, or not any more."""
        if self._owner == os.getpid():
            try:
                self._release()
            finally:
                self._not_mine()
        elif self._owner:
            self._forget()
            self._owner = 0

    def holder(self) -> Holder | None:
        """Who has it now, if anybody has."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # -- what an implementation fills in

    def _take(self, timeout: float | None) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """In a forked child: the parent's guard is none of ours."""

    def _mine(self) -> None:
        """From here on there may be something of ours to give back."""
        _hook()
        self._owner, self._thread = os.getpid(), get_ident()
        if self not in _held:
            _held.append(self)

    def _not_mine(self) -> None:
        self._owner = 0
        if self in _held:
            _held.remove(self)


def private_name(path: str) -> str:
    """A name beside `path` that nobody else uses: for drafts of a marker, and for markers that were moved away."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.dibs-{os.getpid()}-{os.urandom(6).hex()}")


def is_private(name: str) -> bool:
    """Is this the last part of such a name?"""
    return name.startswith(".") and ".dibs-" in name


LITTER_AGE = 3600.0


def sweep_litter(path: str, now: float) -> None:
    """Remove what a crash left under a `private_name` an hour ago or earlier; whoever sleeps that long starts anew."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return
    for each in names:
        if each.startswith(f".{name}.dibs-"):
            full = os.path.join(folder, each)
            try:
                if now - os.lstat(full).st_mtime > LITTER_AGE:
                    remove(full)
            except OSError:
                pass


def remove(path: str) -> None:
    """Remove a marker that was moved to a `private_name`: a file, or a directory of files."""
    try:
        os.unlink(path)
        return
    except FileNotFoundError:
        return
    except OSError:  # EISDIR on Linux, EPERM elsewhere
        pass
    for _ in range(3):  # a breaker that was too late may still put its link into it
        try:
            for name in os.listdir(path):
                os.unlink(os.path.join(path, name))
            os.rmdir(path)
            return
        except OSError:
            pass  # it is out of the way, which is what matters


def _hook() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        import atexit

        atexit.register(_release_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)


def _release_all(thread: int | None = None) -> None:
    for guard in _held[::-1]:
        if thread is None or guard._thread == thread:
            try:
                guard.release()
            except OSError:
                pass  # the process ends; the others still get their turn


def _after_fork() -> None:
    for guard in _held:
        guard._forget()
        guard._owner = 0
    _held.clear()


_chained: dict[int, Any] = {}


def release_on_signals() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP give back what this thread holds before the process dies of them.

    Only in the main thread (elsewhere nothing happens), and only once. A signal that is ignored stays ignored. Where
    there is a handler already it is called and nothing else: if it raises, as Python's own for SIGINT does, `with`
    gives back; if it returns, the program goes on and still needs its guards. What other threads hold is left alone:
    they run on until the very end, and must not do so without their guard.
    """
    import signal

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None or number in _chained:
            continue
        before = signal.getsignal(number)
        if before is signal.SIG_IGN or before is None:
            continue
        try:
            signal.signal(number, _on_signal)
        except ValueError:
            return  # not the main thread
        _chained[number] = before


def _on_signal(number: int, frame: FrameType | None) -> None:
    import signal

    before = _chained.get(number)
    if callable(before):
        before(number, frame)
        return
    # By the default the process dies now, and this thread executes nothing more of its critical section.
    _release_all(get_ident())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
