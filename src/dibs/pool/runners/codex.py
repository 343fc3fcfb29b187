"""Codex, without a person: `codex exec … -`, the prompt on its standard input.

Read from the sources at github.com/openai/codex, 343074d of 2026-08-22 (0.150.0-alpha): exec/src/cli.rs,
utils/cli/src/config_override.rs, config/src/mcp_types.rs, core/src/mcp_tool_call.rs, protocol/src/permissions.rs,
hooks/src/engine/discovery.rs; and tried with 0.166.0 against a server of our own in place of the model's.

- `-c KEY=VALUE` takes a TOML value, is stronger than every configuration file, and is merged with them key by key: so
  the server dibs of a project's `.codex/config.toml` gets this command, and is not a second one.
- Servers get hardly any of Codex's environment but what `env_vars` names; the values stay out of the command line.
- `exec` never asks, so a tool call that would want approval is cancelled: dibs' tools are approved by configuration.
- `required`: it ends with an error if the server does not come up, rather than working without a board.
- The sandbox lets it write in its folder, and not in the git directory. In a linked worktree of the team it has to
  commit, so that worktree's git directory and the one that it shares are writable there
  (github.com/openai/codex/issues/7071 and 23661: each has to be named by itself).
- Hooks run only if the user has trusted them in `/hooks`, each by its place and contents. That is the user's word to
  give; ours are handed over only with `--dangerously-bypass-hook-trust` among the further arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.places import find_place
from dibs.pool.runners.base import Launch, Order
from dibs.pool.runners.presets import Preset, hooks, server
from dibs.setup.clients import CLIENTS

STARTUP, TOOL = 60, 300
"""Seconds for the server to come up (the default was 10, now 30), and for one tool: claim_task waits up to 45."""
_IDENTITY = ("DIBS_AGENT", "DIBS_KIND", "DIBS_SESSION")
"""Given by value, too: an entry of the user's may have an `env` of its own, which is stronger than `env_vars`."""
_UNTRUSTED = "--dangerously-bypass-hook-trust"


class Codex(Preset):
    name = "codex"
    program = "codex"
    title = "Codex"
    install = "install it: npm install -g @openai/codex, or brew install --cask codex"

    def launch(self, order: Order) -> Launch:
        argv = [self._command(), "exec", "--cd", order.workspace, "--skip-git-repo-check"]
        argv += ["--sandbox", "workspace-write", "--color", "never"]
        for key, value in self._settings(order).items():
            argv += ["-c", f"{key}={toml(value)}"]
        if self.model is not None:
            argv += ["--model", self.model]
        return Launch([*argv, *self.args, "-"], stdin=order.prompt)

    def _settings(self, order: Order) -> dict[str, Any]:
        ours = server(order, "codex")
        names = [*order.env, *CLIENTS["codex"].server(order.server, None)["env_vars"]]
        settings: dict[str, Any] = {
            "mcp_servers.dibs.command": ours["command"],
            "mcp_servers.dibs.args": ours["args"],
            "mcp_servers.dibs.env_vars": list(dict.fromkeys(names)),
            **{f"mcp_servers.dibs.env.{name}": order.env[name] for name in _IDENTITY if name in order.env},
            "mcp_servers.dibs.cwd": order.workspace,
            "mcp_servers.dibs.enabled": True,
            "mcp_servers.dibs.required": True,
            "mcp_servers.dibs.default_tools_approval_mode": "approve",
            "mcp_servers.dibs.startup_timeout_sec": STARTUP,
            "mcp_servers.dibs.tool_timeout_sec": TOOL,
        }
        if writable := git_directories(order.workspace):
            settings["sandbox_workspace_write.writable_roots"] = writable
        if _UNTRUSTED in self.args:
            settings |= {f"hooks.{event}": entries for event, entries in hooks(order, "codex").items()}
        return settings


def git_directories(workspace: str) -> list[str]:
    """What a commit in a linked worktree writes to; nothing for any other folder."""
    place = find_place(workspace)
    if not place.is_worktree or place.worktree is None or place.common is None:
        return []
    with open(os.path.join(place.worktree, ".git"), "rb") as file:
        own = os.fsdecode(file.read(1 << 16)).rstrip("\r\n").removeprefix("gitdir: ")
    return [os.path.realpath(os.path.join(place.worktree, own)), place.common]


def toml(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    assert isinstance(value, Sequence)
    return "[" + ", ".join(map(toml, value)) + "]"


def _escaped(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    return c if c.isprintable() else f"\\U{ord(c):08x}"
