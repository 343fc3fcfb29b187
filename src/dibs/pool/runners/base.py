"""What a runner is told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Order:
    """One start of one agent."""

    __slots__ = ("prompt", "name", "role", "workspace", "folder", "server", "env")

    def __init__(
        self,
        prompt: str,
        *,
        name: str,
        role: str,
        workspace: str,
        folder: str,
        server: Sequence[str],
        env: Mapping[str, str],
    ) -> None:
        self.prompt = prompt
        self.name = name
        self.role = role
        """`lead`, `worker` or `agent`."""
        self.workspace = workspace
        """The directory that the agent works in; will be its working directory."""
        self.folder = folder
        """An empty folder, of this start alone and readable by this user only, for the client's files."""
        self.server = list(server)
        """The command of dibs, to which `mcp --client NAME` or `hook NAME` is added."""
        self.env = dict(env)
        """What the agent's MCP server must find in its environment: DIBS_AGENT, DIBS_SESSION, DIBS_BOARD and others.
        The agent's process has them, too; some clients do not hand their environment on to servers."""


class Launch:
    """A command that is ready to be started."""

    __slots__ = ("argv", "env", "stdin")

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None, stdin: str | None = None) -> None:
        self.argv = list(argv)
        self.env = dict(env or {})
        """Beside the pool's own environment and `Order.env`."""
        self.stdin = stdin
        """What the command reads from its standard input; None: nothing, it is at its end."""


class Runner(Protocol):
    name: str
    """What to call it: `claude`, or the program of a template."""

    def check(self) -> None:
        """Raise `Unsupported`, with what to install, if the program is not here."""

    def launch(self, order: Order) -> Launch:
        """The command for one start. May write files into `order.folder`."""
