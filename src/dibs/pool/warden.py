"""The warden: a small process around each agent's process, so that nothing below it outlives it or the pool.

Run as a file (`python -I -S warden.py`), with nothing but the standard library: it starts in milliseconds and stays
small. It is told what to run by one line of JSON on its standard input, and says what happens in lines of JSON on its
standard output:

    in    {"argv": […], "env": {…}, "cwd": "…", "stdin": "path" or null, "output": "path"}
    out   {"started": PID}                                or {"failed": "why", "errno": N}, and that is all
    in    end SECONDS                                     ask the agent to end; after so long it is killed
    in    kill                                            kill everything now
    out   {"ended": CODE, "left": N}                      minus a signal's number; N processes had to be ended after

The end of its input is the end of the pool, and means `end`. On Linux it adopts whatever the agent's processes leave
behind when they end (PR_SET_CHILD_SUBREAPER), also what has put itself into a session of its own; elsewhere it knows
the agent's process group only. If the warden itself is killed, the kernel kills the agent's own process (Linux).
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time

GRACE = 5.0
"""Seconds to end in, when the pool is gone and nobody says how long."""
LINGER = 2.0
"""Seconds for what is left when the agent's own process has ended."""
TICK = 0.05

_SUBREAPER, _PDEATHSIG = 36, 1


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            pass


def start(order: dict[str, object]) -> int:
    """The pid of the command, which is a process group of its own. `OSError` if it cannot be started."""
    reader, writer = os.pipe()  # closed by a successful exec; else it carries the errno
    warden = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        with os.fdopen(reader, "rb") as said:
            failure = said.read()
        if failure:
            os.waitpid(pid, 0)
            where, number = failure.split(b" ", 1)
            raise OSError(int(number), os.strerror(int(number)), os.fsdecode(where))
        return pid
    where = b"."
    try:
        os.setpgid(0, 0)
        _prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != warden:
            os._exit(1)
        argv, env = order["argv"], order["env"]
        assert isinstance(argv, list)
        assert isinstance(env, dict)
        where = b"stdin"
        given = os.open(str(order["stdin"] or os.devnull), os.O_RDONLY)
        where = b"output"
        careful = os.O_NOFOLLOW | os.O_NONBLOCK  # no link, and no pipe to which nobody listens
        output = os.open(str(order["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND | careful, 0o600)
        os.dup2(given, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        where = b"directory"
        os.chdir(str(order["cwd"]))
        env = {**env, "PWD": os.getcwd()}
        if "DIBS_PROCESS" in env:
            env["DIBS_PROCESS"] += f"\t{os.getpid()}\t{started(os.getpid())}"
        where = b"program"
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(each, signal.SIG_DFL)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(writer, where + b" %d" % (error.errno or errno.EIO))
    except Exception:  # a NUL where none can be, no program at all
        os.write(writer, where + b" %d" % errno.EINVAL)
    finally:
        os._exit(127)


def started(pid: int) -> str:
    """When a process started, as `dibs.worker` has it; nothing where that is not in /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def descendants() -> list[int]:
    """Every process below this one, zombies excepted; on other systems than Linux none is known."""
    below: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            below.setdefault(int(fields[1]), []).append(int(name))
            if fields[0] in (b"Z", b"X"):
                dead.add(int(name))
    found: list[int] = []
    look = [os.getpid()]
    while look:
        children = below.get(look.pop(), [])
        look += children
        found += [pid for pid in children if pid not in dead]
    return found


class Warden:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.left = 0
        self._deadline: float | None = None

    def run(self, wakeup: int) -> None:
        """Until nothing is left below us."""
        listening = [0, wakeup]
        heard = b""
        while True:
            if not self._reap() and not self._group():
                return
            if self.code is not None and self._deadline is None:
                self.left = len(self._group())
                self._end(LINGER)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._signal(signal.SIGKILL)
            for each in select.select(listening, [], [], None if self._deadline is None else TICK)[0]:
                said = os.read(each, 4096)
                if each == wakeup:
                    continue
                heard += said
                *lines, heard = heard.split(b"\n")
                for line in lines:
                    self._obey(line)
                if not said:  # the pool is gone
                    listening.remove(0)
                    self._end(GRACE)

    def _obey(self, line: bytes) -> None:
        word, _, seconds = line.partition(b" ")
        self._end(float(seconds) if word == b"end" else 0.0)

    def _end(self, grace: float) -> None:
        """Ask everything to end, and set the time at which it is killed; an earlier time stays."""
        at = time.monotonic() + grace
        if self._deadline is None or at < self._deadline:
            self._deadline = at
        self._signal(signal.SIGTERM)

    def asked(self) -> None:
        """SIGTERM to this process."""
        self._end(GRACE)

    def _reap(self) -> bool:
        """Take note of what has ended; are there children left? Looking at /proc alone could miss one that is forked
        meanwhile; on Linux whoever loses its parent becomes our child, so without children nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)

    def _group(self) -> list[int]:
        """What is left below us; elsewhere than on Linux, whether something is."""
        if os.path.isdir("/proc/self"):
            return descendants()
        try:
            os.killpg(self.pid, 0)
        except OSError:
            return []
        return [self.pid]

    def _signal(self, number: int) -> None:
        """To the agent's group, and to whatever has left it."""
        for each in (number, signal.SIGCONT):  # a stopped process notices nothing until it continues
            if self.code is None or not os.path.isdir("/proc/self"):
                _try(os.killpg, self.pid, each)
            for pid in descendants():
                if pid != self.pid:
                    _try(os.kill, pid, each)


def _try(send: object, pid: int, number: int) -> None:
    assert callable(send)
    try:
        send(pid, number)
    except OSError:
        pass  # it has ended meanwhile, or is not ours to end


def say(**what: object) -> None:
    try:
        os.write(1, json.dumps(what).encode() + b"\n")
    except OSError:
        pass  # the pool is gone


def main() -> None:
    reader, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    parts = [b""]
    while not parts[-1].endswith(b"\n"):  # not buffered: what follows, after our answer, is for `select`
        parts.append(os.read(0, 65536))
        if not parts[-1]:
            return
    line = b"".join(parts)
    _prctl(_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        pid = start(json.loads(line))
    except OSError as error:
        say(failed=f"{error.filename}: {error.strerror}", errno=error.errno)
        return
    warden = Warden(pid)
    signal.signal(signal.SIGTERM, lambda *_: warden.asked())
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    say(started=pid)
    warden.run(reader)
    say(ended=warden.code, left=warden.left)


if __name__ == "__main__":
    main()
