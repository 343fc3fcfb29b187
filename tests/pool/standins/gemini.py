"""Stands in for Gemini CLI 0.61.0 without a terminal: the prompt on stdin."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from typing import Any

from tests.pool.standins.acting import act, hook_lines, only, options, prompt, read_json, refuse

KNOWN = {
    "--model": 1, "--prompt": 1, "--approval-mode": 1, "--output-format": 1, "--include-directories": 1, "--policy": 1,
    "--skip-trust": 0, "--yolo": 0, "--debug": 0,
}  # fmt: skip
ALIASES = {"-m": "--model", "-p": "--prompt", "-o": "--output-format", "-y": "--yolo", "-d": "--debug"}
SERVER = ("command", "args", "env", "cwd", "timeout", "trust", "includeTools", "excludeTools", "description")
SECRET = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL|CREDS|PRIVATE|CERT")


def main() -> None:
    given = options(sys.argv[1:], KNOWN, ALIASES)
    if given.get("--approval-mode", ["default"])[-1] not in ("default", "auto_edit", "yolo", "plan"):
        refuse("Invalid approval mode")
    if given.get("--output-format", ["text"])[-1] not in ("text", "json", "stream-json"):
        refuse("Invalid output format")
    if "--prompt" in given or "" in given:
        refuse("the prompt is an argument: that has a limit")
    if os.environ.get("GEMINI_CLI_TRUST_WORKSPACE") != "true":
        refuse("FatalUntrustedWorkspaceError: Gemini CLI is not running in a trusted directory")
    for name in ("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"):
        if name in os.environ:
            refuse(f"Security Warning: Skipping the file of {name}: it is not owned by root")
    users = read_json(os.path.join(os.environ["GEMINI_CLI_HOME"], ".gemini", "settings.json"))
    entry, env = server(users)
    if given.get("--approval-mode") != ["auto_edit"]:
        refuse("an edit requires approval, and nobody is there")
    rules = policies(given.get("--policy", []))
    if not any(rule.get("mcpName") == "dibs" and rule["decision"] == "allow" for rule in rules):
        refuse("Tool execution denied by policy.")

    def event(name: str) -> dict[str, Any]:
        return {
            "session_id": "gem-1", "transcript_path": "/nowhere", "cwd": os.getcwd(), "hook_event_name": "BeforeTool",
            "timestamp": "2026-11-16T02:00:00.000Z", "tool_name": "replace",
            "tool_input": {"file_path": os.path.join(os.getcwd(), name), "old_string": "a", "new_string": "b"},
        }  # fmt: skip

    hooks = [(line, event) for line in hook_lines(users, "BeforeTool", "replace")]
    act(entry, env, hooks, prompt=prompt(), model=given.get("--model"), settings=users, policies=given["--policy"])


def server(users: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The entry that counts, the project's before the user's; and the environment of its process."""
    entry = users["mcpServers"]["dibs"]
    try:
        with open(os.path.join(".gemini", "settings.json"), encoding="utf-8") as file:
            entry = json.load(file).get("mcpServers", {}).get("dibs", entry)
    except FileNotFoundError:
        pass
    only(entry, SERVER, "the server dibs")
    if "$" in json.dumps(entry):
        refuse("a variable in the server's entry, which would be replaced")
    env = {name: value for name, value in os.environ.items() if not SECRET.search(name.upper())}
    return entry, {**env, "GEMINI_CLI": "1", **entry.get("env", {})}


RULE = ("toolName", "mcpName", "commandPrefix", "commandRegex", "decision", "priority", "modes")


def policies(paths: list[str]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for path in paths:
        files = [path] if os.path.isfile(path) else [os.path.join(path, name) for name in os.listdir(path)]
        for file in files:
            with open(file, "rb") as opened:
                document = tomllib.load(opened)
            only(document, ("rule",), file)
            for rule in document["rule"]:
                only(rule, RULE, file)
                if not 0 <= rule["priority"] <= 999 or rule["decision"] not in ("allow", "deny", "ask_user"):
                    refuse(f"{file}: not a rule: {rule}")
                rules.append(rule)
    return rules


if __name__ == "__main__":
    main()
