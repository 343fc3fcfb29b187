"""Dead locks broken by many processes at once, with an oracle of its own for overlaps.

    python -m tests.guards.breaks --breaks 100000 --processes 8 [--kind dir|file] [--seed N] [--folder DIR] [--unsafe]

Each process acquires the one lock, enters the critical section, and leaves half of the times a dead lock behind: with
a pid that nobody has, with or without a record; with a pid that is in use again (the record proves the reuse); with an
old or a missing ts. Some are left by processes that really die, and some breakers die in the middle of breaking.

The oracle is a file made with O_EXCL on entering and removed on leaving: two in the section at once, and one of them
fails to make it. `--unsafe` breaks by unlink+create instead, to see that the oracle notices. Exit code 1 on an overlap.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from dibs.errors import Busy
from dibs.guards import LockDirGuard, LockFileGuard
from dibs.guards.base import Guard, remove
from dibs.guards.holder import own_record
from dibs.guards.lockfile import encode
from dibs.jsontext import dumps, loads

NOBODY = 4_194_305
"""A pid beyond the largest that Linux gives: dead, now and always."""
REAL = 0.01
"""How often the holder, or a breaker, really dies."""
STEPS = ("rename", "symlink", "link", "unlink", "rmdir", "mkdir")


class Outcome(NamedTuple):
    tries: int
    breaks: int
    overlaps: int
    deaths: int
    seconds: float
    seed: int


class Counters:
    """Numbers that each process adds to in its own row, and all can read."""

    NAMES = ("tries", "breaks", "overlaps", "deaths")

    def __init__(self, processes: int) -> None:
        self._map = mmap.mmap(-1, processes * 32)
        self._size = processes

    def add(self, row: int, name: str) -> None:
        offset = row * 32 + self.NAMES.index(name) * 8
        (value,) = struct.unpack_from("q", self._map, offset)
        struct.pack_into("q", self._map, offset, value + 1)

    def total(self, name: str) -> int:
        column = self.NAMES.index(name) * 8
        return sum(struct.unpack_from("q", self._map, row * 32 + column)[0] for row in range(self._size))


class Worker:
    def __init__(self, row: int, kind: str, folder: Path, counters: Counters, seed: int, unsafe: bool) -> None:
        self.row, self.kind, self.folder, self.counters = row, kind, folder, counters
        self.unsafe = unsafe
        self.random = random.Random(seed * 1000 + row)
        self.path = str(folder / "lock")
        self.guard = self._guard()
        breaks: Any = self.guard._break  # type: ignore[attr-defined]

        def counted(found: Any) -> bool:
            if unsafe:
                remove(self.path)
                done = True
            else:
                done = breaks(found)
            if done:
                counters.add(row, "breaks")
            return bool(done)

        self.guard._break = counted  # type: ignore[attr-defined]

    def _guard(self) -> Guard:
        if self.kind == "file":
            return LockFileGuard(self.path, f"worker-{self.row}", retries=1, pause=0.0002)
        return LockDirGuard(self.path, "stress", sleep=lambda seconds: time.sleep(min(seconds, 0.004)))

    def run(self, breaks: int, until: float) -> None:
        while self.counters.total("breaks") < breaks and time.monotonic() < until:
            if self.unsafe and self.counters.total("overlaps"):
                return  # shown; from here on anything may happen
            if self.random.random() < REAL:
                self._die_for_real()
            else:
                self._once()

    def _once(self) -> None:
        try:
            self.guard.acquire(1 if self.unsafe else 60)
        except Busy:
            if not self.unsafe:
                raise
            return
        self.counters.add(self.row, "tries")
        self._critical_section()
        if self.random.random() < 0.5:
            self._leave_dead()
        self.guard.release()

    def _critical_section(self) -> None:
        oracle = self.folder / "oracle"
        try:
            os.close(os.open(oracle, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            self.counters.add(self.row, "overlaps")
            return
        if self.random.random() < 0.2:
            os.sched_yield()
        try:
            os.unlink(oracle)
        except FileNotFoundError:
            self.counters.add(self.row, "overlaps")

    # -- dying

    def _leave_dead(self) -> None:
        """Make our lock that of a dead holder, in one step for all who look."""
        draft = str(self.folder / f"draft-{self.row}")
        if self.kind == "file":
            old = encode("worker-dead", time.time() - self.random.uniform(61, 1e6))
            Path(draft).write_bytes(self.random.choice([old, b"{}", b"", b'{"agent": "x", "ts": "soon"}']))
            self._put(draft, self.path)
            return
        how = self.random.choice(["no record", "record", "reused"])
        pid = os.getppid() if how == "reused" else NOBODY
        record = loads(own_record("dead")) | {"pid": pid, "started": "1"}
        # The pid first: together with our record it is a contradiction, and nobody's proof.
        Path(draft).write_text(f"{pid}\n")
        self._put(draft, f"{self.path}/pid")
        Path(draft).write_text("by hand\n" if how == "no record" else f"dead\n{dumps(record)}\n")
        self._put(draft, f"{self.path}/cmd")

    def _put(self, draft: str, path: str) -> None:
        try:
            os.replace(draft, path)
        except FileNotFoundError:  # only where breaking is unsafe: our lock was taken from us
            pass

    def _die_for_real(self) -> None:
        """A process that ends by SIGKILL at its n-th step, before or after it, or with the lock in its hands."""
        self.counters.add(self.row, "deaths")
        step, before = self.random.randrange(12), self.random.random() < 0.5
        child = os.fork()
        if child == 0:
            try:
                _kill_at(step, before)
                guard = self._guard()
                guard.acquire(0.05)
            except (Busy, OSError):
                pass
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        if self.kind == "file":
            self._age()

    def _age(self) -> None:
        """Time passes for a lock file that the dead child may have left."""
        marker = Path(self.path)
        try:
            left = marker.read_bytes()
            if f'"worker-{self.row}"'.encode() in left:
                draft = self.folder / f"draft-{self.row}"
                draft.write_bytes(encode("worker-dead", time.time() - 100))
                os.replace(draft, marker)
        except FileNotFoundError:
            pass


def _kill_at(step: int, before: bool) -> None:
    left = step

    def dying(call: Any) -> Any:
        def act(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0 and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **more)
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return act

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))


def stress(
    breaks: int,
    processes: int,
    kind: str = "dir",
    *,
    seed: int,
    folder: Path,
    seconds: float = 1e9,
    unsafe: bool = False,
) -> Outcome:
    counters = Counters(processes)
    started = time.monotonic()
    children = []
    for row in range(processes):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                Worker(row, kind, folder, counters, seed, unsafe).run(breaks, started + seconds)
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert unsafe or codes == [0] * processes, f"a worker failed: {codes} (seed {seed})"
    if not unsafe:
        # Nothing is wedged, whatever lies there now.
        last = Worker(0, kind, folder, counters, seed, False)
        last.guard.acquire(10)
        last.guard.release()
    total = counters.total
    spent = time.monotonic() - started
    return Outcome(total("tries"), total("breaks"), total("overlaps"), total("deaths"), spent, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--breaks", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kind", choices=("dir", "file"))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", help="where to (default: shared memory, for it has the most races)")
    parser.add_argument("--unsafe", action="store_true")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    base = given.folder or ("/dev/shm" if os.path.isdir("/dev/shm") else None)
    overlaps = 0
    for kind in [given.kind] if given.kind else ["dir", "file"]:
        folder = Path(tempfile.mkdtemp(prefix="dibs-breaks-", dir=base))
        try:
            done = stress(given.breaks, given.processes, kind, seed=seed, folder=folder, unsafe=given.unsafe)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        overlaps += done.overlaps
        print(
            f"lock {kind}: {done.tries:,} tries, {done.breaks:,} breaks of dead locks, {done.deaths:,} killed,"
            f" {done.overlaps:,} overlaps; {given.processes} processes, {done.seconds:.1f} s, seed {done.seed}",
            flush=True,
        )
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
