"""Agents' processes, for asyncio: started through a warden, waited for, ended with all that they started.

    process = await AgentProcess.start(argv, env=…, cwd=…, stdin=path, output=path)      OSError if it cannot be
    code = await process.wait()          its exit code, minus a signal's number; when nothing below it is left
    process.end(grace) / process.kill_all() / process.kill()

If this process dies, the wardens see the end of their input and end their agents. If a warden dies without a word, what
it leaves is found by the session in its environment (`stragglers`) and killed.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from dibs.errors import Unsupported
from dibs.pool import warden

STARTING = 15.0
"""Seconds in which a process starts, also on a busy machine."""
TRUST = 3.0
"""Seconds that a warden may take longer than it was told to."""
LOST = -signal.SIGKILL if hasattr(signal, "SIGKILL") else 1
"""The exit code of an agent whose warden was killed, and it with it."""


class AgentProcess:
    def __init__(self, process: asyncio.subprocess.Process, pid: int, session: str) -> None:
        self._process = process
        self._session = session
        self.pid = pid
        """Of the agent's own process, not its warden's."""

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: str,
        stdin: str | None = None,
    ) -> AgentProcess:
        """`env` is the whole environment, and has the session that tells this start from others (DIBS_SESSION)."""
        if os.name != "posix":
            raise Unsupported("agents are run as process groups, which this system has not", hint="run it under WSL")
        order = {"argv": list(argv), "env": dict(env), "cwd": cwd, "stdin": stdin, "output": output}
        # A fault of the warden itself is told where the agent's are. Our own stderr may be a pipe that somebody reads
        # to its end, and the screen.
        with open(output, "ab", opener=_privately) as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", warden.__file__,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(STARTING):
                process.stdin.write(json.dumps(order).encode() + b"\n")
                await process.stdin.drain()
                said = json.loads(await process.stdout.readline() or b"{}")
        except BaseException as error:
            # Cancelled, or the warden is gone, or somebody has stopped it: nothing of this start is left.
            if process.returncode is None:
                process.kill()
            await asyncio.to_thread(end_stragglers, env["DIBS_SESSION"])
            if isinstance(error, TimeoutError):
                raise OSError(errno.ETIMEDOUT, "it has not started") from None
            raise
        if "failed" in said:
            await process.wait()
            raise OSError(said["errno"], said["failed"])
        if "started" not in said:
            raise OSError(0, f"the process that looks after the agent has died ({await process.wait()})")
        return cls(process, said["started"], env["DIBS_SESSION"])

    async def wait(self) -> int:
        """The agent's exit code, once nothing that it started is left."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if line:
            return int(json.loads(line)["ended"])
        await asyncio.to_thread(end_stragglers, self._session)
        return LOST

    def end(self, grace: float) -> None:
        """Ask the agent and all that it started to end; what has not after `grace` seconds is killed."""
        self._tell(f"end {grace}")
        self._trust_until(grace + TRUST)

    def kill_all(self) -> None:
        self._tell("kill")
        self._trust_until(TRUST)

    def kill(self) -> None:
        """SIGKILL to the agent's own process."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _trust_until(self, seconds: float) -> None:
        """A warden that does not obey was stopped by somebody. Without it the kernel kills the agent, and `wait` what
        the agent has started."""
        asyncio.get_running_loop().call_later(seconds, self._put_down)

    def _put_down(self) -> None:
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass

    def _tell(self, what: str) -> None:
        pipe = self._process.stdin
        if pipe is not None and not pipe.is_closing():
            pipe.write(what.encode() + b"\n")


def _privately(path: str, flags: int) -> int:
    # An agent could have put a pipe there, to which nobody listens, or a link to a file of the user's.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o600)


def stragglers(session: str) -> list[int]:
    """Processes that were started with this session in their environment. Elsewhere than on Linux none is known."""
    mark = b"DIBS_SESSION=" + session.encode()
    found = []
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue  # another user's, or gone
    return found


def end_stragglers(session: str) -> int:
    """Kill what a dead warden left; how many there were. One that is just becoming another program has, for a moment,
    no environment to be seen, so it takes two looks to be sure that there are none."""
    found: set[int] = set()
    quiet = 0
    for _ in range(40):
        left = stragglers(session)
        quiet = 0 if left else quiet + 1
        if quiet == 2:
            break
        found.update(left)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.03)
    return len(found)
