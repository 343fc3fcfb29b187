"""Claude Code, without a person: `claude -p`, the prompt on its standard input.

Read from `claude --help` of 2.1.325 and the changelog up to 2.1.240 (github.com/anthropics/claude-code, 5cfc0a1), and
tried with 2.1.325 against a server of our own in place of the model's. Its manual was not at hand.

- The prompt comes on stdin: one argument cannot be longer than 128 KiB on Linux.
- `--mcp-config` adds servers to the user's and the project's; under the same name it wins (since 2.0.30), so what
  `dibs setup claude` wrote gives no second server. Not `--strict-mcp-config`: the user's other servers are wanted.
- `--settings` adds to the user's and the project's settings, hooks included. Whether a hook that is in two of them runs
  twice was not found out; its answer is the same.
- `acceptEdits` lets it edit files in its folder; whatever would ask beyond that is denied, as nobody is there. Rules
  that deny, in anybody's settings, stay stronger than what is allowed here.
"""

from __future__ import annotations

from dibs.pool.runners.base import Launch, Order
from dibs.pool.runners.presets import GIT, LOOKS, Preset, hooks, json_file, servers

ALLOWED = ("mcp__dibs", *(f"Bash(git {verb} *)" for verb in GIT), "Bash(git status)", "Bash(git diff)", "Bash(git log)")
"""All tools of the server dibs, and git as far as it stays here."""
DENIED = tuple(f"Bash(git {verb} *--output*)" for verb in LOOKS)
"""Stronger than what is allowed, here and in anybody's settings."""
MODE = "acceptEdits"
TOOL = 300_000
"""Milliseconds for one call of a tool: claim_task waits up to 45 s, and the default is a minute."""


class Claude(Preset):
    name = "claude"
    program = "claude"
    title = "Claude Code"
    install = "install it: curl -fsSL https://claude.ai/install.sh | bash, or npm install -g @anthropic-ai/claude-code"

    def launch(self, order: Order) -> Launch:
        argv = [self._command(), "-p", "--mcp-config", mcp_file(order), "--settings", settings_file(order)]
        argv += ["--permission-mode", MODE, "--allowedTools", ",".join(ALLOWED)]
        if self.model is not None:
            argv += ["--model", self.model]
        return Launch([*argv, *self.args], stdin=order.prompt)


def mcp_file(order: Order) -> str:
    """The server. Its tools are what the agent is there for, so they are not put off until it searches for tools."""
    entry = {**servers(order, "claude")["dibs"], "alwaysLoad": True, "timeout": TOOL}
    return json_file(order, "mcp.json", {"mcpServers": {"dibs": entry}})


def settings_file(order: Order) -> str:
    return json_file(order, "settings.json", {"hooks": hooks(order, "claude"), "permissions": {"deny": DENIED}})
