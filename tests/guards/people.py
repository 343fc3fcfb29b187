"""What the tests of the guards share: a process that holds something, a shell, and signals for both."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dibs

SOURCES = Path(dibs.__file__).resolve().parents[1]
LIBRARY = SOURCES / "dibs" / "shell" / "board_lock.sh"
PATIENCE = 30.0
NOBODY = 4_194_305
"""A pid beyond the largest that Linux gives."""

_IMPORTS = "import os, sys, time; from dibs.guards import FlockGuard, LockFileGuard, LockDirGuard, release_on_signals; "


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DIBS_", "CLAUDE", "CODEX", "GEMINI"))}
    return kept | {"PYTHONPATH": str(SOURCES)}


class Process:
    """A process group of its own, whose output is read line by line."""

    def __init__(self, command: list[str], cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=cwd,
            env=environment(),
            start_new_session=True,
        )
        self.pid = self._process.pid

    def expect(self, line: str) -> None:
        out = self._process.stdout
        assert out is not None
        assert select.select([out], [], [], PATIENCE)[0], f"waited in vain for {line!r}"
        said = out.readline().strip()
        assert said == line, (said, self._process.stderr.read() if self._process.stderr and not said else "")

    def signal(self, number: int) -> None:
        """To the whole group, as a terminal does on Ctrl-C."""
        os.killpg(self.pid, number)

    def end(self, number: int | None = None, *, only: bool = False, patience: float = PATIENCE) -> int:
        """Its exit code, after this signal (to its group, unless `only` to itself)."""
        if number is not None:
            os.kill(self.pid, number) if only else self.signal(number)
        return self._process.wait(patience)

    def finish(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, out, err

    def close(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


class Python:
    def __init__(self) -> None:
        self.started: list[Process] = []

    def __call__(self, code: str) -> Process:
        return self.start([sys.executable, "-c", _IMPORTS + code])

    def start(self, command: list[str], cwd: Path | None = None) -> Process:
        self.started.append(Process(command, cwd))
        return self.started[-1]


@pytest.fixture
def python() -> Iterator[Python]:
    made = Python()
    yield made
    for process in made.started:
        process.close()


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.005)
