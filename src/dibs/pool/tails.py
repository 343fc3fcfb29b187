"""What agents print, line by line, as it grows.

    tails = Tails()
    tails.add(path, "worker-1")
    for name, line in tails.fresh(): …          whole lines since the last call
    for name, line in tails.rest(path): …       all that is left of a file to which nothing is added any more

Of a flood only the end is read; a line that is longer than the window is told in parts.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator

WINDOW = 65_536


class Tails:
    def __init__(self) -> None:
        self._files: dict[str, tuple[str, int]] = {}
        self._turn = threading.Lock()

    def add(self, path: str, name: str) -> None:
        self._files.setdefault(path, (name, 0))

    def fresh(self) -> list[tuple[str, str]]:
        with self._turn:
            return [told for path in list(self._files) for told in self._read(path, last=False)]

    def rest(self, path: str) -> list[tuple[str, str]]:
        with self._turn:
            told = list(self._read(path, last=True)) if path in self._files else []
            self._files.pop(path, None)
        return told

    def _read(self, path: str, last: bool) -> Iterator[tuple[str, str]]:
        name, seen = self._files[path]
        try:
            with open(path, "rb", opener=plainly) as file:
                end = file.seek(0, 2)
                start = max(seen, end - WINDOW)
                file.seek(start)
                text = file.read(end - start)
        except OSError:
            return
        whole = text if last or len(text) == WINDOW else text[: text.rfind(b"\n") + 1]
        self._files[path] = (name, start + len(whole))
        for line in whole.removesuffix(b"\n").decode("utf-8", "replace").split("\n") if whole else ():
            yield name, line.rstrip("\r")


def plainly(path: str, flags: int) -> int:
    """Open a file that an agent may have replaced: by a pipe, which would make us wait, or by a link."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a file", path)
    return fd
