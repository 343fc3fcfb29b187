"""What the tests with real processes share: starting actors, talking to them, and the oracle for a whole board.

An actor is a process of its own that runs one function of `actors`; it speaks in lines on its standard output and is
told things in lines on its standard input. A crew is all actors of a test: none survives it.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import apsw
import pytest

import dibs
from dibs import TaskBoard
from dibs.model import BoardTask
from dibs.replay import replay
from tests.nowhere import NO_CLIENTS
from tests.variants import variants

PATIENCE = 60.0
"""Seconds after which a test stops waiting for what should take a fraction of one."""
ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(dibs.__file__).resolve().parents[1]
_OURS = ("DIBS_", "CLAUDE", "CODEX", "GEMINI", "PYTEST", "COV_")


def environment() -> dict[str, str]:
    """The environment of an actor: that of the tests without what would name a worker, a session or a board."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    ours = {"PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **ours, "DIBS_RUNTIME_DIR": NO_CLIENTS}


def new_seed() -> int:
    """The seed of a random run: `DIBS_TEST_SEED`, else a fresh one. Printed, and so part of every failure's report."""
    seed = int(os.environ.get("DIBS_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {seed} (repeat with DIBS_TEST_SEED={seed})")
    return seed


class Actor:
    """One process; `heard` holds the lines that it has said and nobody has taken yet."""

    def __init__(
        self, role: str, *args: object, before: Sequence[str] = (), start_line: int | None = None, **more: Any
    ) -> None:
        command = [*before, sys.executable, "-m", "tests.processes.actors", role, *map(str, args)]
        self.name = f"{role} {' '.join(map(str, args))}"
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if start_line is None else start_line,
            stdout=subprocess.PIPE,
            cwd=more.pop("cwd", "/"),
            env=environment(),
            start_new_session=True,
            **more,
        )
        assert self.process.stdout is not None
        self._out = self.process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._rest = b""
        self._over = False
        self.heard: list[str] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def listen(self) -> bool:
        """Take in what the pipe holds; False when its other end is closed."""
        while not self._over:
            try:
                data = os.read(self._out, 1 << 16)
            except BlockingIOError:
                return True
            self._over = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.heard += [line.decode() for line in lines]
        return False

    def line(self, timeout: float = PATIENCE) -> str:
        """The next line."""
        end = time.monotonic() + timeout
        while not self.heard and self.listen() and not self.heard:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{self.name} said nothing for {timeout} s")
            select.select([self._out], [], [], left)
        if not self.heard:
            raise AssertionError(f"{self.name} ended ({self.process.wait(PATIENCE)}) without another word")
        return self.heard.pop(0)

    def expect(self, *words: str, timeout: float = PATIENCE) -> str:
        """The next line, which must begin with one of the words."""
        line = self.line(timeout)
        assert line.split(" ")[0] in words, f"{self.name} said {line!r} instead of {words}"
        return line

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lines(self, timeout: float = PATIENCE) -> list[str]:
        """Everything that it still says, to its end, which must be a good one."""
        end = time.monotonic() + timeout
        while self.listen():
            left = end - time.monotonic()
            assert left > 0, f"{self.name} has not ended after {timeout} s; heard so far: {self.heard[-5:]}"
            select.select([self._out], [], [], left)
        code = self.process.wait(PATIENCE)
        assert code == 0, f"{self.name} ended with {code}; last heard: {self.heard[-5:]}"
        taken, self.heard = self.heard, []
        return taken

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; what it said before stays in `heard`."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self.listen()

    def close(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)  # and what it has forked
        except ProcessLookupError:
            pass
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Crew:
    """The actors of one test."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors:
            actor.close()

    def start(self, role: str, *args: object, **more: Any) -> Actor:
        actor = Actor(role, *args, **more)
        self.actors.append(actor)
        return actor

    def at_barrier(self, role: str, argument_lists: Sequence[Sequence[object]]) -> list[Actor]:
        """Start one actor for each list of arguments; when all are ready, let all go at once."""
        hold, release = os.pipe()
        try:
            actors = [self.start(role, *args, start_line=hold) for args in argument_lists]
            for actor in actors:
                actor.expect("ready")
        finally:
            os.close(hold)
            os.close(release)  # the end of their input is the starting shot: one system call for all
        return actors


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as made:
        yield made


def in_a_file(folder: Path) -> str:
    """A new, empty board."""
    address = f"sqlite:{folder}/board.db"
    TaskBoard.open(address, create=True, worker="maker").close()
    return address


@pytest.fixture
def url(tmp_path: Path) -> str:
    return in_a_file(tmp_path)


IN_A_FILE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""For tests about what SQLite has: its files, its gate, its clock. The others run on every store."""
SLOW_ON_POSTGRES = pytest.mark.parametrize("url", variants(["sqlite", "postgres"], quick=["sqlite"]), indirect=True)


def on_postgres(url: str) -> bool:
    return url.startswith("postgresql:")


class Herd(Protocol):
    """Actors that do the same, and began together."""

    def listen(self) -> bool:
        """Take in what they have said; False when all have ended."""

    def lines(self, timeout: float = PATIENCE) -> list[str]:
        """Everything that they have said, when all have ended well."""


class Separate:
    """Interpreters of their own."""

    def __init__(self, actors: Sequence[Actor]) -> None:
        self._actors = actors

    def listen(self) -> bool:
        open_ = [actor for actor in self._actors if actor.listen()]
        return bool(open_)

    def lines(self, timeout: float = PATIENCE) -> list[str]:
        return [line for actor in self._actors for line in actor.lines(timeout)]


def at_once(crew: Crew, size: int, role: str, url: str, *args: object) -> Herd:
    """So many actors; `{n}` in an argument is the actor's number. On PostgreSQL, whose time is the server's, they have
    wrong clocks."""
    if on_postgres(url):
        from tests.postgres.actors import crowd_of

        crowd = crowd_of(crew, size, role, url, *args)
        crowd.go()
        return crowd
    numbered = [[url, *(str(arg).replace("{n}", str(n)) for arg in args)] for n in range(size)]
    return Separate(crew.at_barrier(role, numbered))


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:"))


def wait_until(true: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"not within {timeout} s: {what}"
        time.sleep(0.002)


def waits_for_lock(pid: int) -> bool:
    """Is this process blocked in `flock`, according to the kernel's table of locks?"""
    return any(
        "->" in line and f" {pid} " in line and "FLOCK" in line for line in Path("/proc/locks").read_text().splitlines()
    )


# -- the oracle


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    """What a connection of its own, without any of our code, reads from the file."""
    connection = apsw.Connection(str(path_of(url)), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(30_000)
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def assert_whole(url: str) -> TaskBoard:
    """Nothing about this board is damaged or contradictory: file, counts, dependencies, changelog. Returns it, open."""
    if on_postgres(url):
        from tests.postgres.actors import assert_whole as assert_whole_on_postgres

        return assert_whole_on_postgres(url)
    assert rows(url, "PRAGMA integrity_check") == [("ok",)]
    board = TaskBoard.open(url, worker="inspector")
    tasks = assert_counts(board)
    numbers = {task.id: task.seq for task in tasks.values()}
    edges = {(numbers[need], task.seq) for task in tasks.values() for need in task.depends_on}
    assert set(rows(url, "SELECT needs, task FROM dependency")) == edges
    assert_replays(board, tasks)
    return board


def assert_counts(board: TaskBoard) -> dict[str, BoardTask]:
    """What the board counts is there: tasks of each status, and what each still waits for."""
    tasks = {task.id: task for task in everything(board)}
    counted: dict[str, int] = {}
    for task in tasks.values():
        counted[task.status] = counted.get(task.status, 0) + 1
        unmet = sum(tasks[need].status != "completed" for need in task.depends_on)
        assert task.unmet == unmet, f"{task.id} counts {task.unmet} unmet dependencies and has {unmet}"
    assert {status: n for status, n in board.counts().items() if n} == counted
    return tasks


def everything(board: TaskBoard) -> list[BoardTask]:
    with board.store.read() as tx:
        return list(tx.all_tasks())


def assert_replays(board: TaskBoard, tasks: dict[str, BoardTask]) -> None:
    """The changelog has no gap, gives each token once, and gives back the board when replayed."""
    events = list(board.changelog())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    state = replay(events)
    assert state.tasks.keys() == tasks.keys()
    fields = [name for name in BoardTask.__slots__ if name not in ("_board", "seq", "unmet")]
    for task_id, task in tasks.items():
        other = state.tasks[task_id]
        differing = {n: (getattr(task, n), getattr(other, n)) for n in fields if getattr(task, n) != getattr(other, n)}
        assert not differing, f"task {task_id}: (board, replayed) {differing}"
    now = board.now()
    live = {(lock.pattern, lock.token): lock for lock in board.locks()}
    assert live == {key: lock for key, lock in state.locks.items() if lock.expires_at > now}


def assert_acyclic(board: TaskBoard) -> None:
    waiting = {task.id: set(task.depends_on) for task in everything(board)}
    while free := [task_id for task_id, needs in waiting.items() if not needs]:
        for task_id in free:
            del waiting[task_id]
        for needs in waiting.values():
            needs.difference_update(free)
    assert not waiting, f"a circle among {sorted(waiting)}"


def python(script: str, *args: object, cwd: Path | str = "/") -> list[str]:
    """Run a script in a process of its own, which must end well; the lines that it says."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
