"""What the stand-ins for clients share: strict reading of arguments, a small MCP client, hooks run as clients do.

A stand-in checks what it was handed as the real client documents it, and refuses (exit code 2) whatever that does not
know. Then it claims a task and completes it through the configured server, tries to edit a file that another worker
holds and one of its own, and prints all that it saw as one line of JSON.

It speaks the protocol itself: the official client, with which the other agents of these tests speak, takes a second to
import, and there are many stand-ins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

HELD, OWN = "held.txt", "own.txt"


def refuse(why: str) -> NoReturn:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(2)


def options(words: Sequence[str], known: Mapping[str, int], aliases: Mapping[str, str]) -> dict[str, list[str]]:
    """The options in `words`, each with its values; positional words under "". `known` says how many values an option
    takes; -1 stands for all up to the next option."""
    found: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            found.setdefault("", []).append(word)
            continue
        name, equals, value = word.partition("=")
        name = aliases.get(name, name)
        if name not in known:
            refuse(f"unknown option '{word}'")
        values = [value] if equals else []
        wanted = known[name]
        while rest and (wanted == -1 or len(values) < wanted) and not rest[0].startswith("-"):
            values.append(rest.pop(0))
        if (wanted > 0 and len(values) != wanted) or (wanted == -1 and not values):
            refuse(f"option '{name}' argument missing")
        found.setdefault(name, []).extend(values)
    return found


def only(found: Mapping[str, object], allowed: Iterable[str], where: str) -> None:
    if unknown := set(found) - set(allowed):
        refuse(f"{where}: unknown keys {sorted(unknown)}")


def read_json(path: str) -> dict[str, Any]:
    """A file of this start: readable by this user alone."""
    if os.stat(path).st_mode & 0o077:
        refuse(f"{path} can be read by others")
    with open(path, encoding="utf-8") as file:
        value = json.load(file)
    if not isinstance(value, dict):
        refuse(f"{path} is not an object")
    return value


def prompt() -> str:
    said = sys.stdin.buffer.read().decode("utf-8")
    if not said.strip():
        refuse("no prompt on stdin")
    return said


class Server:
    """The configured server, as a client starts it: with little of the environment but what the configuration adds."""

    def __init__(self, command: str, args: Sequence[str], env: Mapping[str, str]) -> None:
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "SHELL", "TERM", "USER") if name in os.environ}
        self._process = subprocess.Popen(
            [command, *args], env={**kept, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        about = {"name": "stand-in", "version": "1"}
        self._ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about})
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._ask("tools/call", {"name": tool, "arguments": arguments})["structuredContent"]
        assert isinstance(answer, dict)
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._send({"id": 1, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if said.get("id") == 1 and "method" not in said:
                if "result" not in said:
                    refuse(f"{method}: {said['error']}")
                return dict(said["result"])
        refuse(f"the server ended during {method}")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


def _work(server: Server) -> dict[str, Any]:
    claimed = server.call("claim_task", {})
    if not claimed["claimed"]:
        return {"claimed": claimed}
    # While the server lives: the hooks find it by the client's process, which is this one.
    edits = {name: edit(name) for name in (HELD, OWN)}
    done = {"task_id": claimed["task_id"], "token": claimed["token"], "result": "by a stand-in"}
    return {"claimed": claimed, "edits": edits, "completed": server.call("complete_task", done)}


_HOOKS: list[tuple[str, Any]] = []


def edit(name: str) -> str:
    """What the hooks say to an edit: "allowed", or why not."""
    for line, event in _HOOKS:
        done = subprocess.run(
            line, shell=True, input=json.dumps(event(name)).encode(), capture_output=True, timeout=60, check=False
        )
        if done.returncode != 0:
            refuse(f"the hook failed: {done.stderr.decode()}")
        if done.stdout.strip():
            return done.stdout.decode()
    return "allowed" if _HOOKS else "not asked"


def act(entry: Mapping[str, Any], env: Mapping[str, str], hooks: Sequence[tuple[str, Any]], **seen: Any) -> NoReturn:
    """Do the agent's work, and report. `hooks`: command lines, each with what makes the event for an edit of a file."""
    _HOOKS[:] = hooks
    server = Server(entry["command"], entry.get("args", []), env)
    report = _work(server)
    server.close()
    ours = {name: value for name, value in os.environ.items() if name.startswith("DIBS_")}
    print(json.dumps({**report, **seen, "argv": sys.argv[1:], "env": ours, "cwd": os.getcwd()}))
    sys.exit(0)


def hook_lines(settings: Mapping[str, Any], event: str, tool: str) -> list[str]:
    """The commands for an event and a tool, in the form that Claude Code, Codex and Gemini CLI share."""
    import re

    lines = []
    for group in settings.get("hooks", {}).get(event, []):
        only(group, ("matcher", "hooks"), "a hook's group")
        for handler in group["hooks"]:
            only(handler, ("type", "command", "timeout", "name"), "a hook")
            if handler["type"] != "command":
                refuse(f"a hook of type {handler['type']}")
            if re.search(group.get("matcher", ""), tool):
                lines.append(handler["command"])
    return list(dict.fromkeys(lines))
