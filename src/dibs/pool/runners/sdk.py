"""The Claude Agent SDK for Python in place of the command `claude`: `sdk_agent` in a process of its own.

It needs the package claude-agent-sdk, which brings a Claude Code of its own (350 MB, so it is an extra of dibs). The
agent gets what the runner `claude` hands over: the same server, hooks and permissions. Unlike `claude -p`, it prints
what the agent says while it says it.

Further arguments are options of Claude Code, and `--cli-path FILE` names another Claude Code than the SDK's own.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

from dibs.errors import Invalid, Unsupported
from dibs.pool.runners.base import Launch, Order
from dibs.pool.runners.claude import ALLOWED, MODE, mcp_file, settings_file
from dibs.pool.runners.presets import Preset, json_file

PACKAGE = "claude_agent_sdk"


class ClaudeSdk(Preset):
    name = "claude-sdk"
    program = "python"
    title = "the Claude Agent SDK"
    install = "pip install 'dibs[sdk]'"

    def __init__(self, model: str | None = None, args: Any = ()) -> None:
        super().__init__(model, args)
        self._options = options_of(self.args)
        self._cli = self._options.pop("cli-path", None)

    def check(self) -> None:
        if find_spec(PACKAGE) is None:
            raise Unsupported("the Claude Agent SDK is not installed here", hint=self.install)
        if self._cli is not None and not os.access(self._cli, os.X_OK):
            raise Unsupported(
                f"--cli-path: {self._cli!r} cannot be run", hint="name the program claude, or leave it out"
            )

    def launch(self, order: Order) -> Launch:
        told = {
            "cwd": order.workspace,
            "model": self.model,
            "permission_mode": MODE,
            "allowed_tools": list(ALLOWED),
            # By its file: the SDK would put the servers' environment onto the command line of Claude Code.
            "mcp_servers": mcp_file(order),
            "settings": settings_file(order),
            "cli_path": self._cli,
            "extra_args": self._options,
        }
        # -P: a folder dibs in the workspace is not this package.
        argv = [sys.executable, "-P", "-m", "dibs.pool.runners.sdk_agent", json_file(order, "options.json", told)]
        return Launch(argv, stdin=order.prompt)


def options_of(args: list[str]) -> dict[str, str | None]:
    """`--max-turns 50 --verbose` as the SDK wants it: {"max-turns": "50", "verbose": None}."""
    options: dict[str, str | None] = {}
    last: str | None = None
    for word in args:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            options[name] = value if equals else None
            last = None if equals else name
        elif last is not None:
            options[last], last = word, None
        else:
            raise Invalid(f"{word!r:.80} belongs to no option", hint="the SDK takes --option, --option VALUE")
    return options
