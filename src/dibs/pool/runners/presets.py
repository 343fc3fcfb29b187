"""What the runners of known clients share: finding the program, and the files that tell it of dibs.

    class Claude(Preset): …            a subclass says which words make its client do one prompt and end
    servers(order, "claude")           {"dibs": {"command": …, "args": …, "env": …}}, the form that most clients read
    hooks(order, "claude")             the hook entries, by event
    private_file(order, "mcp.json", …) written, for this user alone; its path

Everything goes into the order's folder. A crash leaves that folder and nothing else; no file of the user's or the
project's is touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from shutil import which
from typing import Any

from dibs.errors import Invalid, Unsupported
from dibs.jsontext import dumps
from dibs.pool.runners.base import Launch, Order
from dibs.setup.clients import CLIENTS

GIT = ("status", "diff", "log", "show", "add", "mv", "rm", "commit", "merge")
"""What agents may do with git without being asked: all that stays in their worktree and reaches nobody else."""
LOOKS = ("diff", "log", "show")
"""Those of them that take `--output=FILE`, which writes anywhere: with it they are denied. Clients compare text, so a
shell's quotes can hide the option (`--out''put`): this stops what is tried, not whoever is set on it."""


class Preset:
    """A client that dibs knows. `model` and `args` are the user's; `args` come last, so they have the last word."""

    name: str
    program: str
    title: str
    install: str
    """The command that the client's documentation tells to install it with."""

    def __init__(self, model: str | None = None, args: Iterable[str] = ()) -> None:
        self.model = model
        self.args = words(args)
        if model is not None and (not model.strip() or model.startswith("-") or "\0" in model):
            raise Invalid(f"{model!r:.80} is no model", hint=f"name it as {self.title} does, or leave it out")

    def check(self) -> None:
        if which(self.program) is None:
            raise Unsupported(
                f"{self.title} is not installed here: there is no {self.program} on the PATH",
                hint=f"{self.install}; then run {self.program} once and log in",
            )

    def launch(self, order: Order) -> Launch:
        raise NotImplementedError

    def _command(self) -> str:
        return which(self.program) or self.program


def words(args: Iterable[str]) -> list[str]:
    """Further arguments, one word each. A plain string would be taken apart into letters."""
    if isinstance(args, str):
        raise Invalid(
            f"further arguments are a list, not a string: {args!r:.80}", hint='one word each: ["--max-turns", "50"]'
        )
    found: list[Any] = list(args)
    for word in found:
        if not isinstance(word, str) or "\0" in word:
            raise Invalid(f"{word!r:.80} is not an argument", hint="further arguments are strings without NUL")
    return found


def private_file(order: Order, name: str, text: str) -> str:
    """Write a file of this start; nobody but this user can read it, for a board's URL may hold a password."""
    path = os.path.join(order.folder, name)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def json_file(order: Order, name: str, value: Mapping[str, Any]) -> str:
    return private_file(order, name, dumps(value) + "\n")


def server(order: Order, client: str) -> dict[str, Any]:
    """The command of the agent's MCP server, and the environment that makes it this agent's."""
    known = CLIENTS.get(client)
    argv = [*order.server, "mcp", "--client", client] if known else [*order.server, "mcp"]
    return {"command": argv[0], "args": argv[1:], "env": literal(order.env)}


def servers(order: Order, client: str) -> dict[str, dict[str, Any]]:
    return {"dibs": {"type": "stdio", **server(order, client)}}


def literal(env: Mapping[str, str]) -> dict[str, str]:
    """Those values that are safe in a configuration. Clients put variables in for `$NAME`, some of them twice, and a
    password may hold a `$`; such a value reaches the server with the process's environment, which has them all."""
    return {name: value for name, value in env.items() if "$" not in value}


def hooks(order: Order, client: str) -> dict[str, list[dict[str, Any]]]:
    """The hooks by which the client asks dibs before an edit, also where the project has them already: whether the
    client will run those, we cannot know, and a second one only says the same again."""
    entries = CLIENTS[client].hook_entries(order.server, (), None)
    return {event: [entry] for event, entry in entries.items()}
