"""Stands in for Claude Code 2.1.325: `claude -p`, and the stream-json protocol that the Agent SDK speaks with it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.pool.standins.acting import act, hook_lines, only, options, prompt, read_json, refuse

KNOWN = {
    "--print": 0, "--verbose": 0, "--strict-mcp-config": 0,
    "--model": 1, "--permission-mode": 1, "--settings": 1, "--setting-sources": 1, "--output-format": 1,
    "--input-format": 1, "--max-turns": 1, "--system-prompt": 1, "--append-system-prompt": 1,
    "--mcp-config": -1, "--allowedTools": -1, "--disallowedTools": -1, "--add-dir": -1,
}  # fmt: skip
ALIASES = {"-p": "--print", "--allowed-tools": "--allowedTools", "--disallowed-tools": "--disallowedTools"}
MODES = ("acceptEdits", "auto", "bypassPermissions", "manual", "default", "dontAsk", "plan")
SERVER = ("type", "command", "args", "env", "timeout", "alwaysLoad")
SESSION = "5f1c9f0e-0000-4000-8000-000000000000"


def main() -> None:
    if sys.argv[1:] == ["-v"]:
        print("2.1.325 (Claude Code)")
        return
    given = options(sys.argv[1:], KNOWN, ALIASES)
    streaming = given.get("--input-format") == ["stream-json"]
    if not streaming and "--print" not in given:
        refuse("a stand-in has no interactive mode")
    if given.get("--permission-mode", ["default"])[-1] not in MODES:
        refuse("no such permission mode")
    if streaming:
        import tests.pool.standins.stream as stream

        said = stream.begin()
    elif "" in given:
        refuse("the prompt is an argument: that has a limit")
    else:
        said = prompt()
    rules = [rule for value in given.get("--allowedTools", []) for rule in value.split(",")]
    if "mcp__dibs" not in rules:
        refuse("mcp__dibs__claim_task requires approval, and nobody is there")
    if given.get("--permission-mode") != ["acceptEdits"]:
        refuse("an edit requires approval, and nobody is there")
    entry = servers(given)["dibs"]
    settings = read_json(given["--settings"][-1])
    only(settings, ("hooks", "permissions"), "settings")

    def event(name: str) -> dict[str, Any]:
        return {
            "session_id": SESSION, "transcript_path": "/nowhere", "cwd": os.getcwd(), "permission_mode": "acceptEdits",
            "hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_use_id": "toolu_01",
            "tool_input": {"file_path": os.path.join(os.getcwd(), name), "old_string": "a", "new_string": "b"},
        }  # fmt: skip

    if "CLAUDECODE" in os.environ:
        refuse("Claude Code cannot be launched inside another Claude Code session.")
    session = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": SESSION, "CLAUDE_PROJECT_DIR": os.getcwd()}
    os.environ.update(session)
    hooks = [(line, event) for line in hook_lines(settings, "PreToolUse", "Edit")]
    env = {**os.environ, **entry.get("env", {})}
    if streaming:
        stream.answer(entry, env, hooks, said, model=given.get("--model"))
    act(entry, env, hooks, prompt=said, model=given.get("--model"), rules=rules)


def servers(given: dict[str, list[str]]) -> dict[str, Any]:
    """Those of the project, and of --mcp-config, which win."""
    found: dict[str, Any] = {}
    if "--strict-mcp-config" not in given and os.path.exists(".mcp.json"):
        with open(".mcp.json", encoding="utf-8") as file:
            found |= json.load(file)["mcpServers"]
    for path in given.get("--mcp-config", []):
        config = read_json(path)
        only(config, ("mcpServers",), path)
        for name, entry in config["mcpServers"].items():
            only(entry, SERVER, f"the server {name}")
            if "${" in json.dumps(entry):
                refuse("a variable in the server's entry, which would be replaced")
            found[name] = entry
    return found


if __name__ == "__main__":
    main()
