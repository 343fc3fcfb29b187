"""A command as a process group of its own: started, waited for, signalled, ended with everything that it started.

`Signals` turns INT, TERM and HUP to this process into a list that the waiting loop reads, and wakes it. `Child` is the
command. Where there is a terminal it becomes the terminal's foreground group, as under a shell, so that interactive
commands work, Ctrl-C reaches them, and Ctrl-Z stops them together with us. On Linux the command is sent SIGTERM if
this process dies without a word (SIGKILL): the board then gives the task to somebody else, and two should not work
on it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any, Self

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class Signals:
    """`with Signals() as signals`: `received` holds the numbers of the signals that asked us to end, in order."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: list[tuple[int, Any]] = []

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        if sys.platform != "win32":
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
            self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            self._before.append((signal.SIGCHLD, signal.signal(signal.SIGCHLD, lambda number, frame: None)))
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # Whoever started us with a signal ignored (nohup, a background job of a script) meant that.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before.append((number, signal.signal(number, self._note)))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        if sys.platform != "win32":
            signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)

    def wake(self) -> None:
        """End a `wait` from another thread."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            pass  # it is full of reasons to wake up already

    def wait(self, timeout: float | None) -> None:
        """Sleep until a signal, a child's change, a `wake`, or the time-out."""
        if sys.platform == "win32":
            time.sleep(min(0.1, 0.1 if timeout is None else timeout))
            return
        if select.select([self._reader], [], [], timeout)[0]:
            os.read(self._reader, 4096)


class Child:
    def __init__(self, command: Sequence[str], environ: Mapping[str, str], stdout: int | None = None) -> None:
        """Start the command; `OSError` if it cannot be started. `stdout` is a descriptor to use in place of ours."""
        self._terminal = _open_terminal()
        share = os.isatty(0) and os.isatty(1) and self._is_ours()
        how: dict[str, Any]
        if sys.platform == "win32":
            how = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        else:
            how = {"process_group": 0, "preexec_fn": _before_exec(self._terminal if share else None)}
        try:
            self._process = subprocess.Popen(command, env=dict(environ), stdout=stdout, **how)
        except BaseException:
            if share and self._terminal is not None:
                _set_foreground(self._terminal, os.getpgrp())
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code if the command has ended (minus the signal's number if a signal ended it)."""
        if sys.platform == "win32":
            return self._process.poll()
        if self._process.returncode is not None:
            return self._process.returncode
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            self._stopped(os.WSTOPSIG(status))
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._take_terminal()
        return self._process.returncode

    def signal(self, number: int) -> None:
        """Send a signal to the command and all that it started (which may have ended already)."""
        if sys.platform == "win32":
            self._process.terminate()
            return
        for each in (number, signal.SIGCONT):  # a stopped process notices nothing until it continues
            try:
                os.killpg(self.pid, each)
            except (ProcessLookupError, PermissionError):
                return

    def end_group(self, deadline: float) -> None:
        """After the command's own end: wait for what it started until `deadline` (monotonic), then kill it."""
        if sys.platform == "win32":
            return
        while self._has_group():
            if time.monotonic() >= deadline:
                self.signal(signal.SIGKILL)
                return
            time.sleep(0.02)

    def _has_group(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def close(self) -> None:
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    # -- the terminal

    def _is_ours(self) -> bool:
        """Is our process group in the foreground of the terminal?"""
        try:
            return self._terminal is not None and os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:
            return False

    def _stopped(self, number: int) -> None:
        """The command was stopped: by Ctrl-Z, or because it wants the terminal, or by somebody."""
        if self._terminal is None:
            return
        if number in (signal.SIGTTIN, signal.SIGTTOU) and self._is_ours():
            self._give_terminal()
        elif number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            self._take_terminal()
            # Stop our whole job, so that the shell notices. (Nothing happens where no shell could continue it.)
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            if self._is_ours():
                self._give_terminal()
        else:
            return
        self.signal(signal.SIGCONT)

    def _give_terminal(self) -> None:
        if self._terminal is not None:
            _set_foreground(self._terminal, self.pid)

    def _take_terminal(self) -> None:
        if self._terminal is None:
            return
        try:
            theirs = os.tcgetpgrp(self._terminal) == self.pid
        except OSError:
            return  # the terminal has gone
        if theirs:
            _set_foreground(self._terminal, os.getpgrp())


def _open_terminal() -> int | None:
    if sys.platform == "win32":
        return None
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _set_foreground(terminal: int, group: int) -> None:
    # The kernel stops a background process that does this, unless it ignores SIGTTOU.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, group)
    except OSError:
        pass  # the terminal has gone, or the group has ended
    finally:
        signal.signal(signal.SIGTTOU, before)


def _before_exec(terminal: int | None) -> Any:
    """What the new process does between fork and exec. Everything that it needs is loaded before the fork."""
    parent = os.getpid()
    prctl: Any = None
    if sys.platform == "linux":
        try:
            import ctypes

            prctl = ctypes.CDLL(None, use_errno=True).prctl
        except (ImportError, OSError, AttributeError):
            pass

    def prepare() -> None:
        if terminal is not None:
            _set_foreground(terminal, os.getpid())
        if prctl is not None:
            prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)

    return prepare
