"""The gate: a lock on `board.db-lock` that one writer at a time has, and the queue in front of it.

Whoever takes it notes in the file who it is and since when. Whoever has to wait for more than a few seconds, because
that process is stopped or hangs, says so on stderr, and gives up after a while with `Busy`. The note only tells: the
lock is the kernel's, and ends with its process.
"""

from __future__ import annotations

import os
import time

from dibs import fs
from dibs.errors import Busy, Invalid

TELL = 3.0
"""Seconds after which whoever waits says for whom."""
PATIENCE = 30.0
"""Seconds after which it gives up, unless `DIBS_GATE_WAIT` says otherwise."""
SHOWN = 80
"""Characters that are shown of a command line."""


def patience() -> float:
    given = os.environ.get("DIBS_GATE_WAIT") or PATIENCE
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        raise Invalid(f"DIBS_GATE_WAIT must be a number of seconds from 0 to 1,000,000, not {given!r:.40}")
    return seconds


class Gate:
    def __init__(self, board: str) -> None:
        self.file = -1
        self.patience = patience()
        self._board = board

    def open(self, path: str) -> None:
        if self.file < 0:
            self.file = fs.open_lock_file(path, alone=True)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def take(self, glances: int = 0, waited: float = 0.0) -> None:
        """Wait for the lock. The caller lets it go with `fs.let_go(gate.file, fs.UNLOCK)`, also if this raises."""
        fs.lock(self.file, glances, lambda: [(TELL - waited, self._tell), (self.patience - waited, self._give_up)])
        note = os.getpid().to_bytes(8, "little") + time.time_ns().to_bytes(8, "little")
        try:
            fs.write_at(self.file, note, 0)
        except OSError:
            pass  # the disk is full: nobody will learn who has it

    def _tell(self) -> None:
        import sys

        if sys.stderr is not None and self.patience > TELL:
            who = Holder(self.file)
            sys.stderr.write(f"dibs: waiting for {who}; {who.hint}. Giving up after {self.patience:g} s\n")

    def _give_up(self) -> None:
        raise self.busy()

    def busy(self) -> Busy:
        who = Holder(self.file)
        return Busy(
            f"waited {self.patience:g} s for {who}: nothing was changed",
            hint=f"{who.hint}; then run the command again, or let it wait longer: DIBS_GATE_WAIT=300",
            path=self._board,
        )


class Holder:
    """Who took the gate last, by its note; has it still."""

    def __init__(self, file: int) -> None:
        note = fs.read_at(file, 16, 0) if file >= 0 else b""
        self.pid = int.from_bytes(note[:8], "little")
        self.since = int.from_bytes(note[8:], "little") / 1e9
        words = _told_of(self.pid, "cmdline").decode("utf-8", "replace").replace("\0", " ").strip()
        self.command = "".join(c if c.isprintable() else "?" for c in words[:SHOWN])
        self.stopped = _told_of(self.pid, "stat").rpartition(b")")[2].strip()[:1] in (b"T", b"t")

    @property
    def seconds(self) -> float:
        return max(0.0, time.time() - self.since)

    def __str__(self) -> str:
        if not self.pid:
            return "another program, which has locked the board"
        from dibs.times import iso, span

        named = f"process {self.pid}" + (f" ({self.command})" if self.command else "")
        state = " and is stopped" if self.stopped else ""
        return f"{named}, which has been writing to the board since {iso(self.since)} ({span(self.seconds)}){state}"

    @property
    def hint(self) -> str:
        if self.stopped:
            return f"let it go on: kill -CONT {self.pid}"
        return f"see what it does: ps -f -p {self.pid}" if self.pid else "see who has it: lsof"


def _told_of(pid: int, what: str) -> bytes:
    """What Linux tells of a process; nothing where it tells nothing."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def look(path: str) -> Holder | None:
    """Who has the gate in this file, if anybody has; None if it can be had, or is not there."""
    try:
        file = fs.open_regular(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if fs.try_lock(file, shared=True):
            return None
        return Holder(file)
    finally:
        os.close(file)
