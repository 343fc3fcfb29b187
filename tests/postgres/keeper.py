"""The process that keeps one PostgreSQL server of the tests: it makes the data folder, runs the server as its child,
and removes both when the last process that uses them is gone.

A user is a connection to the keeper. The first is handed over when the keeper is started, further ones come through
the socket `keeper` in its folder. The kernel closes the connections of a process that dies, however it dies, so no
count can be wrong: when none is left the keeper stops the server at once, removes the folder and ends. It says one
line of JSON to each new user, and answers each line (`stop MODE`, `kill`, `start`) with one. A user leaves by closing
its side; its other side is closed when it is out, which for the last one is after everything is removed. A user whom
the keeper has greeted is counted, and one who came too late is not greeted.

Should the keeper itself be killed, on Linux the server is told by the kernel and shuts down; the folder then stays.
Root may not run PostgreSQL: then initdb and the server run as `nobody`, or as the first other user there is.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUPERUSER = "postgres"
PATIENCE = 60.0
"""Seconds for what takes a fraction of one."""
STOPPING = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PORTS = range(20000, 30000)
"""Outside the range from which systems take ports for outgoing connections, so that a restart finds its port free."""
LONGEST_TEMPORARY = 60
"""A socket's path has room for about a hundred bytes."""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    # In the data folder, as segments in /dev/shm would outlive a server that is killed.
    "dynamic_shared_memory_type": "mmap",
    "log_line_prefix": "%m [%p] %q%a ",
    "timezone": "UTC",
}
FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
# Only the tests' role may come by TCP, which other users of the machine can reach; the superuser is behind the folder's
# permissions.
ACCESS = f"local all all trust\nhost all {SUPERUSER} 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _IPC_RMID = 1, 36, 0
_LIBC = ctypes.CDLL(None, use_errno=True)


class Broken(RuntimeError):
    """The server did not do as it was told."""


def unprivileged() -> tuple[int, int] | None:
    """Uid and gid for the server, when they must not be our own. They need an entry in the list of users."""
    if os.geteuid() != 0:
        return None
    users = sorted((user for user in pwd.getpwall() if user.pw_uid), key=lambda user: user.pw_name != "nobody")
    if not users:
        raise Broken("root may not run PostgreSQL, and there is no other user on this system")
    return users[0].pw_uid, users[0].pw_gid


class Cluster:
    """A data folder and the server on it, which is a child of this process."""

    def __init__(self, programs: Path, durable: bool) -> None:
        self.programs = programs
        self.settings = SETTINGS if durable else SETTINGS | FAST
        self.identity = unprivileged()
        short = self.identity is None and len(tempfile.gettempdir()) <= LONGEST_TEMPORARY
        # The folder for temporary files of root may be closed to the other user.
        self.folder = Path(tempfile.mkdtemp(prefix="dibs-pg-", dir=None if short else "/tmp"))
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.port = 0
        self.server: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        self.log.touch()
        if self.identity:
            os.chown(self.folder, *self.identity)
            os.chown(self.log, *self.identity)
        making = self._run(
            "initdb", "--pgdata", self.data, "--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8",
            "--locale", "C", "--no-sync",
        )  # fmt: skip
        if making.wait(PATIENCE):
            raise self._broken("initdb failed")
        (self.data / "pg_hba.conf").write_text(ACCESS)
        for port in random.SystemRandom().sample(PORTS, 20):
            self.port = port
            if self._start():
                return
        raise self._broken("the server did not start, on 20 ports")

    def start(self) -> None:
        """On the port that it had."""
        if not self._start():
            raise self._broken("the server did not start again")

    def _start(self) -> bool:
        settings = self.settings | {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.server = self._run("postgres", "-D", self.data, *options, preexec_fn=_die_with(os.getpid()))
        deadline = time.monotonic() + PATIENCE
        while self.server.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def _run(
        self, program: str, *args: object, preexec_fn: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        uid, gid = self.identity or (None, None)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self.programs / program, *map(str, args)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**kept, "LC_ALL": "C"},
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
                preexec_fn=preexec_fn,
            )

    def _is_ready(self) -> bool:
        """As pg_ctl sees it: the eighth line of the pid file, if it is this server's."""
        lines = self._pid_file()
        return len(lines) >= 8 and self.server is not None and lines[0] == str(self.server.pid) and lines[7] == "ready"

    def _pid_file(self) -> list[str]:
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except OSError:
            return []

    def stop(self, mode: str) -> None:
        if self.server is None or self.server.poll() is not None:
            return
        self.server.send_signal(STOPPING[mode])
        try:
            self.server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End every process of the server by SIGKILL, as a power failure does."""
        family = []
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGSTOP)  # so that it starts no more of them
            family = _children(self.server.pid)
            self.server.kill()
            self.server.wait()
        # Of a server that was killed alone, what it had started is ours on Linux. An initdb is ours, too.
        family = sorted({*family, *_children(os.getpid())})
        for pid in family:
            _quietly(os.kill, pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while not all(map(_is_gone, family)):
            if time.monotonic() > deadline:
                raise Broken(f"processes of the server survived being killed: {family}")
            time.sleep(0.005)
        lines = self._pid_file()
        if len(lines) >= 7 and lines[6]:
            # The block of shared memory by which a server knows that another lives, and which only a server removes.
            _LIBC.shmctl(int(lines[6].split()[1]), _IPC_RMID, None)

    def remove(self) -> None:
        try:
            self.stop("immediate")
            self.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _broken(self, what: str) -> Broken:
        return Broken(f"{what}: {self.log.read_text(errors='replace')[-2000:]}")


def _die_with(keeper: int) -> Callable[[], None] | None:
    """What makes the server shut down when the keeper is killed. It runs after the change of user, which would undo
    it."""
    if sys.platform != "linux":
        return None

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT))
        if os.getppid() != keeper:
            os._exit(1)

    return ask


def _children(parent: int) -> list[int]:
    if sys.platform != "linux":
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid, ppid in map(str.split, table.splitlines()) if int(ppid) == parent]
    found = []
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                # After the name, which may hold anything: state, then parent.
                state = Path("/proc", process, "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(state[1]) == parent:
                found.append(int(process))
    return found


def _is_gone(pid: int) -> bool:
    """Also reaps it: on Linux the orphans of the server are ours."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


def _quietly(action: Callable[..., object], *args: object) -> None:
    try:
        action(*args)
    except OSError:
        pass


class Keeper:
    """Greets users, does what they say, and returns when the last one has left."""

    def __init__(self, cluster: Cluster, first: socket.socket) -> None:
        self.cluster = cluster
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.door.bind(str(cluster.folder / "keeper"))
        self.door.listen(64)
        self.users = selectors.DefaultSelector()
        self.users.register(self.door, selectors.EVENT_READ)
        self.count = 0
        self._greet(first)

    def serve(self) -> socket.socket:
        """Until the last user leaves, whose connection is returned."""
        while True:
            for key, _ in self.users.select():
                user = key.fileobj
                assert isinstance(user, socket.socket)
                if user is self.door:
                    self._greet(user.accept()[0])
                    continue
                order = _line(user)
                if order:
                    self._obey(user, order)
                    continue
                self.users.unregister(user)
                self.count -= 1
                if self.count == 0:
                    self.door.close()
                    return user
                user.close()

    def _greet(self, user: socket.socket) -> None:
        self.count += 1
        self.users.register(user, selectors.EVENT_READ)
        server = self.cluster.server
        say(user, {"folder": str(self.cluster.folder), "port": self.cluster.port, "keeper": os.getpid(),
                   "pid": server.pid if server else 0, "programs": str(self.cluster.programs)})  # fmt: skip

    def _obey(self, user: socket.socket, order: str) -> None:
        verb, _, mode = order.partition(" ")
        try:
            if verb == "start":
                self.cluster.start()
            elif verb == "kill":
                self.cluster.kill()
            else:
                self.cluster.stop(mode)
        except Broken as error:
            say(user, {"error": str(error)})
        else:
            say(user, {"pid": self.cluster.server.pid if self.cluster.server else 0})


def say(user: socket.socket, words: dict[str, Any]) -> None:
    # Who is gone hears nothing, and is seen to be gone at the next reading.
    _quietly(user.sendall, json.dumps(words).encode() + b"\n")


def _line(user: socket.socket) -> str:
    """One order; users wait for the answer before they give another. Empty when the user has left."""
    heard = b""
    while not heard.endswith(b"\n"):
        try:
            more = user.recv(4096)
        except OSError:
            more = b""
        if not more:
            return ""
        heard += more
    return heard.decode().strip()


def main(connection: str, programs: str, durable: str) -> None:
    # Nobody's child: whoever started the keeper may leave before others do.
    if os.fork():
        os._exit(0)
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    first = socket.socket(fileno=int(connection))
    cluster = last = None
    try:
        cluster = Cluster(Path(programs), durable == "durable")
        cluster.create()
        last = Keeper(cluster, first).serve()
    except Exception as error:
        # Said to the first user, who waits for it; nobody looks at the keeper's own output.
        say(first, {"error": str(error) or repr(error)})
    finally:
        if cluster:
            cluster.remove()
    if last:
        last.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
