"""What the views write to: a descriptor, from a thread of its own.

    out = Output(sys.stdout)
    out.put("text\\n")
    out.failure, out.reader_has_gone()      # looked at now and then
    out.close()                             # waits until everything is written

A reader may pause: `| less`, or Ctrl-S on a terminal. A write then blocks for minutes, and a team that waited for it
would not look after its agents meanwhile. The thread is a daemon and writes by the descriptor, not through
`sys.stdout`, so that an end by force does not wait for the reader.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

MOST = 20_000
"""Pieces that may wait for a reader; what can be left out (`may_drop`) is left out from there on."""


class Output:
    def __init__(self, stream: TextIO | None) -> None:
        self.failure: OSError | None = None
        """Why nothing more is written."""
        self.dropped = 0
        self.encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        self._descriptor = -1 if stream is None else stream.fileno()
        self._waiting: deque[str] = deque()
        self._writing = False
        self._ended = stream is None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def fancy(self) -> bool:
        """Can it show more than ASCII?"""
        return "utf" in self.encoding

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._writing

    def put(self, text: str, *, may_drop: bool = False) -> None:
        with self._changed:
            if self._ended or self.failure is not None or not text:
                return
            if may_drop and len(self._waiting) >= MOST:
                self.dropped += 1
                return
            self._waiting.append(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="dibs-output", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until everything is written (or can't be); False when the time is over first."""
        with self._changed:
            return self._changed.wait_for(lambda: self.failure is not None or self.is_idle, timeout)

    def close(self) -> None:
        self.drain()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def reader_has_gone(self) -> bool:
        """Has the other end of a pipe been closed? To write and see would take until there is something to write."""
        if self._descriptor < 0 or self.failure is not None or not hasattr(select, "poll"):
            return False
        look = select.poll()
        look.register(self._descriptor, 0)
        return any(found & select.POLLERR for _, found in look.poll(0))

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                text = "".join(self._waiting)
                self._waiting.clear()
                self._writing = True
            try:
                self._write_all(memoryview(text.encode(self.encoding, "backslashreplace")))
            except OSError as error:
                with self._changed:
                    self.failure = error
                    self._waiting.clear()
                    self._writing = False
                    self._changed.notify_all()
                return

    def _write_all(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # somebody who shares the descriptor has made it so
                select.select([], [self._descriptor], [], 1.0)
