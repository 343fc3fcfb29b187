"""Drives `dibs mcp` as coding clients do: the real command as a process, the official client in front of it.

    with serving(url, runtime) as agent:         a client in this process; `agent.call("claim_task")` is a dict
    with Agent(url, runtime) as agent: …         the same, in a process of its own that a test may kill

`runtime` is the folder for the registry of clients (DIBS_RUNTIME_DIR); workers that share it are on one machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mcp_types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters

from tests.processes.harness import PATIENCE, environment, wait_until

MODERN, LEGACY = "auto", "legacy"
"""How a client begins: with `server/discover` (2026-07-28), or with the handshake of 2025-11-25."""


class Answer(dict[str, Any]):
    """A tool's structured answer."""

    def __init__(self, result: mcp_types.CallToolResult) -> None:
        assert isinstance(result.structured_content, dict)
        super().__init__(result.structured_content)
        self.is_error = result.is_error
        assert isinstance(result.content[0], mcp_types.TextContent)
        self.text = result.content[0].text
        assert json.loads(self.text) == self, "the text says something else than the structure"


class Driven:
    """A connected client, for tests that do not speak async."""

    def __init__(self, client: Client, portal: BlockingPortal, runtime: Path) -> None:
        self.client = client
        self.runtime = runtime
        self._portal = portal

    def begin(self, tool: str, **arguments: Any) -> Future[Answer]:
        """A call whose answer is not waited for; cancelling it cancels the request."""

        async def call() -> Answer:
            return Answer(await self.client.call_tool(tool, arguments))

        return self._portal.start_task_soon(call)

    def call(self, tool: str, **arguments: Any) -> Answer:
        return self.begin(tool, **arguments).result(PATIENCE)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Another method of the client: `ask("list_tools")`."""
        return self._portal.call(getattr(self.client, method), *arguments)

    @property
    def name(self) -> str:
        """The worker that this client is."""
        said = self.ask("read_resource", "dibs://board").contents[0].text
        return str(json.loads(said)["you"])


def command(url: str | None, *options: str, name: str | None = None) -> list[str]:
    where = [] if url is None else ["--board", url]
    return [sys.executable, "-m", "dibs", *where, *(["--as", name] if name else []), "mcp", *options]


def surroundings(runtime: Path, **more: str) -> dict[str, str]:
    return {**environment(), "DIBS_RUNTIME_DIR": str(runtime / "dibs-clients"), **more}


@contextmanager
def serving(
    url: str | None,
    runtime: Path,
    *options: str,
    name: str | None = None,
    mode: str = MODERN,
    cwd: Path | str = "/",
    env: Mapping[str, str] | None = None,
    client: str | None = None,
) -> Iterator[Driven]:
    words = command(url, *options, name=name)
    about = mcp_types.Implementation(name=client, version="1") if client else None
    server = StdioServerParameters(
        command=words[0], args=words[1:], env=surroundings(runtime, **(env or {})), cwd=str(cwd)
    )
    with start_blocking_portal() as portal:
        connecting = Client(server, mode=mode, client_info=about, read_timeout_seconds=PATIENCE)
        failure: Exception | None = None
        with portal.wrap_async_context_manager(connecting) as connected:
            try:
                yield Driven(connected, portal, runtime)
            except Exception as error:  # the client would wrap it three times
                failure = error
        if failure is not None:
            raise failure


def servers(runtime: Path) -> list[int]:
    """The pids of the servers that have registered."""
    folder = runtime / "dibs-clients"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [int(name.rpartition(".")[2]) for name in names if not name.endswith(".new")]


def server(runtime: Path) -> int:
    """The pid of the only server, which may be about to register."""
    wait_until(lambda: servers(runtime), "the server registers itself")
    [pid] = servers(runtime)
    return pid


def state_of(pid: int) -> str:
    """The kernel's letter for a process: R, S, T (stopped), Z (dead); X if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_gone(pid: int) -> bool:
    return state_of(pid) in "ZX"


def dibs(runtime: Path, *words: str, cwd: Path | str = "/", check: bool = True, **env: str) -> dict[str, Any]:
    """A `dibs --json` command run from this process, which is the client's; its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "--json", *words],
        env=surroundings(runtime, **env),
        cwd=cwd,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout or done.stderr)
    return answer


class Agent:
    """A client in a process of its own."""

    def __init__(self, url: str, runtime: Path, *options: str, name: str | None = None) -> None:
        self.runtime = runtime
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mcp.agent", *command(url, *options, name=name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings(runtime),
            start_new_session=True,
        )
        assert self._line() == "connected"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def begin(self, tool: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([tool, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self.begin(tool, **arguments)
        line = self._line()
        assert line, "the client has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """SIGKILL to the client alone: its server learns of it as it would of a crash."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """End politely."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass


def ids(answer: Mapping[str, Any]) -> list[str]:
    return [task["id"] for task in answer["tasks"]]


def add(agent: Driven, *tasks: str | Mapping[str, Any]) -> Sequence[str]:
    """Add tasks; their ids."""
    wanted = [{"description": task} if isinstance(task, str) else dict(task) for task in tasks]
    answer = agent.call("add_tasks", tasks=wanted)
    assert answer["success"], answer
    return [str(task_id) for task_id in answer["ids"]]
