"""A PostgreSQL server of the tests' own, and one that all processes of a test run share.

    with Server.start() as server:          # for a bench, or a test that stops and kills it
        url = server.new_database()
    url = shared_server().url(board="t1")   # one for the whole run; started when first asked for

The server belongs to a keeper process (see `keeper`), which removes it with its data when the last process that uses it
has closed it or died, by SIGKILL too. `url` is for the role that owns the databases and is no superuser; `admin_url` is
for the superuser. Without `durable` nothing is synced, which makes no difference but to a machine that loses power.

Processes of one run meet in a folder (`meet_in`): who holds the lock on `postgres.lock` there may join the server whose
keeper is named in `postgres.json`, or start one if that one does not greet. What a crash leaves there is a name of a
keeper that is gone, and a lock that the kernel has released.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode
from weakref import WeakSet

from tests.postgres import binaries
from tests.postgres.binaries import NoServer
from tests.postgres.keeper import SUPERUSER

ROLE = "dibs"
DATABASE = "dibs"
"""What is there from the start: this database, of this role."""
PATIENCE = 120.0
"""Seconds to wait for the keeper. It gives up before that."""
ROOT = Path(__file__).resolve().parents[2]


class Server:
    """One user's connection to a keeper, and what it said about its server."""

    def __init__(self, connection: socket.socket, shared: bool = False) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")
        self.shared = shared
        try:
            told = self._hear()
        except BaseException:
            self._drop()
            raise
        self.folder = Path(told["folder"])
        """Holds the sockets of the server and of the keeper, the data and the log."""
        self.programs = Path(told["programs"])
        self.host = "127.0.0.1"
        self.port: int = told["port"]
        self.keeper_pid: int = told["keeper"]
        self.pid: int = told["pid"]
        """The server's first process."""
        _in_use.add(self)

    @classmethod
    def start(cls, durable: bool = False, programs: Path | None = None) -> Self:
        """A new server, for the caller alone."""
        programs = programs or binaries.folder()
        ours, its = socket.socketpair()
        with its:
            command = [sys.executable, "-m", "tests.postgres.keeper", str(its.fileno()), str(programs)]
            subprocess.run(
                [*command, "durable" if durable else "fast"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                pass_fds=[its.fileno()],
                start_new_session=True,
                check=True,
            )
        server = cls(ours)
        try:
            server.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")
            server.new_database(DATABASE)
        except BaseException:
            server.close()
            raise
        return server

    @classmethod
    def join_or_start(cls, meeting: Path) -> Self:
        """The server of the processes that meet in this folder."""
        note = meeting / "postgres.json"
        with _locked(meeting / "postgres.lock"):
            server = cls._join(note)
            if server is None:
                server = cls.start()
                note.write_text(json.dumps({"door": str(server.folder / "keeper")}))
            server.shared = True
            return server

    @classmethod
    def _join(cls, note: Path) -> Self | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(json.loads(note.read_text())["door"])
            return cls(connection)
        except (OSError, ValueError):
            # There was none yet, or its last user is leaving or has left.
            connection.close()
            return None

    def url(self, database: str = DATABASE, **parameters: str) -> str:
        """By TCP, as an ordinary role."""
        asked = f"?{urlencode(parameters)}" if parameters else ""
        return f"postgresql://{ROLE}@{self.host}:{self.port}/{quote(database)}{asked}"

    def socket_url(self, database: str = DATABASE, role: str = ROLE, **parameters: str) -> str:
        """By the Unix socket in the server's folder."""
        where = {"host": str(self.folder), "port": str(self.port), **parameters}
        return f"postgresql://{role}@/{quote(database)}?{urlencode(where, safe='/')}"

    def admin_url(self, database: str = "postgres") -> str:
        return self.socket_url(database, SUPERUSER)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement of the superuser, outside any transaction; the rows, if there are any."""
        import psycopg

        with psycopg.connect(self.admin_url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, name: str | None = None) -> str:
        """An empty database, and its URL."""
        name = name or f"d{uuid.uuid4().hex}"
        self.execute(f'CREATE DATABASE "{name}" OWNER {ROLE}')
        return self.url(name)

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """As `pg_ctl stop` does. The data stay, for `restart`."""
        self._order(f"stop {mode}")

    def kill(self) -> None:
        """End all its processes by SIGKILL."""
        self._order("kill")

    def restart(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Start it on the same data and port, after stopping it if it runs."""
        self._order(f"stop {mode}")
        self._order("start")

    def _order(self, order: str) -> None:
        if self.shared:
            raise RuntimeError("other processes use this server: a test that stops it starts one of its own")
        self._connection.sendall(f"{order}\n".encode())
        self.pid = self._hear()["pid"]

    def _hear(self) -> dict[str, Any]:
        self._connection.settimeout(PATIENCE)
        line = self._answers.readline()
        if not line:
            raise Gone("the keeper of the PostgreSQL server has ended")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise RuntimeError(f"no PostgreSQL server: {told['error']}")
        return told

    def log(self) -> str:
        """What the server has written, for the report of a failure."""
        return (self.folder / "log").read_text(errors="replace")

    def close(self) -> None:
        """Leave. Returns when that is done, which for the last user is when server and data are gone."""
        if self._connection.fileno() < 0:
            return
        try:
            self._connection.settimeout(PATIENCE)
            self._connection.shutdown(socket.SHUT_WR)
            while self._answers.readline():
                pass
        except ConnectionError:
            pass  # the keeper was killed
        finally:
            self._drop()

    def _drop(self) -> None:
        self._answers.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


class Gone(ConnectionError):
    """The keeper went away before it answered."""


_in_use: WeakSet[Server] = WeakSet()
_meeting: Path | None = None
_shared: Server | None = None
_one_at_a_time = threading.Lock()


def meet_in(folder: Path) -> None:
    """Where the processes of this run find each other's server. Without it, this process has one for itself."""
    global _meeting
    _meeting = folder


def shared_server() -> Server:
    """The server of this run, started when first asked for. `close_shared_server` is the other end of it."""
    global _shared
    with _one_at_a_time:
        if _shared is None:
            _shared = Server.join_or_start(_meeting) if _meeting else Server.start()
        return _shared


def close_shared_server() -> None:
    global _shared
    with _one_at_a_time:
        leaving, _shared = _shared, None
    if leaving:
        leaving.close()


def server_for_test() -> Server:
    """The shared server; where there is none to start, the test skips on a laptop and fails in CI."""
    import pytest

    try:
        return shared_server()
    except NoServer as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_after_fork() -> None:
    """A forked child uses URLs. With a copy of a connection it would keep the server alive for as long as it lives."""
    global _shared, _one_at_a_time
    _shared, _one_at_a_time = None, threading.Lock()
    for server in list(_in_use):
        server._drop()


os.register_at_fork(after_in_child=_forget_after_fork)
