"""Stands in for Codex 0.166.0: `codex exec … -`."""

from __future__ import annotations

import os
import sys
import tomllib
from typing import Any

from tests.pool.standins.acting import act, hook_lines, only, options, prompt, refuse

KNOWN = {
    "--config": 1, "--cd": 1, "--model": 1, "--sandbox": 1, "--color": 1, "--add-dir": 1, "--output-last-message": 1,
    "--skip-git-repo-check": 0, "--json": 0, "--ephemeral": 0, "--dangerously-bypass-hook-trust": 0,
}  # fmt: skip
ALIASES = {"-c": "--config", "-C": "--cd", "-m": "--model", "-s": "--sandbox", "-o": "--output-last-message"}
SERVER = (
    "command", "args", "env", "env_vars", "cwd", "enabled", "required", "startup_timeout_sec", "tool_timeout_sec",
    "default_tools_approval_mode", "enabled_tools", "disabled_tools",
)  # fmt: skip
HANDED_ON = ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")
"""What a server gets of Codex's environment without being named."""


def main() -> None:
    if sys.argv[1:2] != ["exec"]:
        refuse("a stand-in has no interactive mode")
    given = options(sys.argv[2:], KNOWN, ALIASES)
    if given.get("") != ["-"]:
        refuse(f"the prompt is to be read from stdin: {given.get('')}")
    if given.get("--sandbox", ["read-only"])[-1] not in ("read-only", "workspace-write", "danger-full-access"):
        refuse("no such sandbox")
    if given.get("--color", ["auto"])[-1] not in ("always", "never", "auto"):
        refuse("no such colour")
    os.chdir(given["--cd"][-1])
    if "--skip-git-repo-check" not in given and not os.path.exists(".git"):
        refuse("Not inside a trusted directory and --skip-git-repo-check was not specified.")
    config = overrides(given.get("--config", []))
    entry = config["mcp_servers"]["dibs"]
    only(entry, SERVER, "mcp_servers.dibs")
    if entry.get("default_tools_approval_mode") != "approve":
        refuse("user cancelled MCP tool call")  # what exec does with a call that wants approval
    if not entry.get("enabled", True):
        refuse("the server is switched off")
    names = (*HANDED_ON, *entry.get("env_vars", ()))
    env = {name: os.environ[name] for name in names if name in os.environ} | entry.get("env", {})

    def event(name: str) -> dict[str, Any]:
        patch = f"*** Begin Patch\n*** Update File: {name}\n@@\n-a\n+b\n*** End Patch\n"
        return {
            "session_id": "019a-33", "turn_id": "turn-1", "transcript_path": None, "cwd": os.getcwd(),
            "hook_event_name": "PreToolUse", "model": "m", "permission_mode": "default", "tool_name": "apply_patch",
            "tool_input": {"command": patch}, "tool_use_id": "call-1",
        }  # fmt: skip

    trusted = "--dangerously-bypass-hook-trust" in given
    hooks = [(line, event) for line in hook_lines(config, "PreToolUse", "apply_patch")] if trusted else []
    writable = config.get("sandbox_workspace_write", {}).get("writable_roots")
    act(entry, env, hooks, prompt=prompt(), model=given.get("--model"), sandbox=given["--sandbox"], writable=writable)


def overrides(given: list[str]) -> dict[str, Any]:
    """The values, TOML each; Codex would take what is none as a plain string, which is never what is meant here."""
    config: dict[str, Any] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals:
            refuse(f"Invalid override (missing '='): {each}")
        table = config
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
        try:
            table[last] = tomllib.loads(f"_x_ = {value}")["_x_"]
        except tomllib.TOMLDecodeError as error:
            refuse(f"not TOML: {each}: {error}")
    return config


if __name__ == "__main__":
    main()
