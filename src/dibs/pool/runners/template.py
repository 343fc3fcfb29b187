"""Any command as an agent: a line or a list of words, with placeholders.

    Template("my-agent --task {prompt_file} --mcp {mcp_config}")
    Template(["aider", "--message-file", "{prompt_file}", "--model", "{model}"], model="…")

    {prompt}       the prompt itself, as one argument (Linux: up to 128 KiB)
    {prompt_file}  a file with the prompt
    {name} {role}  who the agent is: worker-3, worker
    {workspace}    its working directory
    {model}        the model that was asked for
    {mcp_config}   a JSON file {"mcpServers": {"dibs": …}}, the form that most clients read

`{{` and `}}` are braces. A line is split into words as a shell does, but no shell runs it. Where neither {prompt} nor
{prompt_file} occurs, the prompt comes on the standard input.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from shutil import which

from dibs.errors import Invalid, Unsupported
from dibs.pool.runners.base import Launch, Order
from dibs.pool.runners.presets import json_file, private_file, servers, words

PLACEHOLDERS = ("prompt", "prompt_file", "name", "role", "workspace", "model", "mcp_config")
LONGEST = 128 * 1024
"""Bytes of one argument on Linux, with the NUL behind it."""

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Template:
    def __init__(self, command: str | Sequence[str], model: str | None = None, args: Iterable[str] = ()) -> None:
        self._words = _split(command)
        self._args = words(args)
        self._model = model
        self._used = {name for word in self._words for name in _placeholders(word)}
        if "model" in self._used and model is None:
            raise Invalid("the command has {model}, and no model was given", hint="give one, or leave {model} out")
        if model is not None and "model" not in self._used:
            raise Invalid("a model was given, and the command has no {model}", hint="say where it belongs: {model}")
        self.name = os.path.basename(self._words[0]) or self._words[0]
        program = self._words[0]
        if os.path.dirname(program) and not _placeholders(program):
            # ./agent.sh is that of the folder that the team is started in, also for agents in worktrees of their own.
            self._words[0] = os.path.abspath(_filled(program, {})).replace("{", "{{").replace("}", "}}")

    def check(self) -> None:
        program = self._words[0]
        if _placeholders(program):
            return
        program = _filled(program, {})
        if which(program) is not None:
            return
        if os.path.dirname(program) and os.path.isfile(program):
            fault, hint = f"{program} is not executable", f"make it so: chmod +x {shlex.quote(program)}"
        elif os.path.dirname(program):
            fault, hint = f"there is no file {program}", "is the name right? a relative one counts from this folder"
        else:
            fault = f"there is no program {program!r}"
            hint = "install it, or name it by its absolute path; a command of several words is one string or a list"
            if os.path.isfile(program):
                hint = f"did you mean ./{program}?"
        raise Unsupported(f"the agent's command cannot be run: {fault}", hint=hint)

    def launch(self, order: Order) -> Launch:
        values = {"name": order.name, "role": order.role, "workspace": order.workspace, "prompt": order.prompt}
        if self._model is not None:
            values["model"] = self._model
        if "prompt_file" in self._used:
            there = order.env.get("DIBS_PROMPT_FILE")
            values["prompt_file"] = there or private_file(order, "prompt.txt", order.prompt)
        if "mcp_config" in self._used:
            values["mcp_config"] = json_file(order, "mcp.json", {"mcpServers": servers(order, "")})
        argv = [*(_filled(word, values) for word in self._words), *self._args]
        for word in argv:
            _check_length(word)
        on_stdin = not self._used & {"prompt", "prompt_file"}
        return Launch(argv, stdin=order.prompt if on_stdin else None)


def _split(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        try:
            found = shlex.split(command)
        except ValueError as error:
            raise Invalid(
                f"the agent's command cannot be split into words: {str(error).lower()}: {command!r:.200}",
                hint="quote as in a shell: 'my-agent --say \"it is done\" {prompt_file}'; or give a list of words",
            ) from None
    else:
        found = words(command)
    if not found or not found[0].strip():
        raise Invalid(
            "the agent's command is empty", hint="name a client (claude, codex, gemini, claude-sdk) or a command"
        )
    return found


def _placeholders(word: str) -> list[str]:
    """Those in a word; Invalid for what is none."""
    found = []
    for match in _PART.finditer(word):
        name = match[1]
        if name is None and match[0] in "{}":
            raise Invalid(f"a single {match[0]!r} in {word!r:.200}", hint="a brace is written twice: {{ and }}")
        if name is not None:
            if name not in PLACEHOLDERS:
                raise Invalid(f"no placeholder {{{name:.40}}} in {word!r:.200}", hint=_meant(name))
            found.append(name)
    return found


def _meant(name: str) -> str:
    known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
    near = get_close_matches(name.strip().lower().replace("-", "_"), PLACEHOLDERS, 1)
    return (
        f"{f'did you mean {{{near[0]}}}? ' if near else ''}there are {known}; braces are written twice: {{{{ and }}}}"
    )


def _filled(word: str, values: dict[str, str]) -> str:
    return _PART.sub(lambda match: match[0][0] if match[1] is None else values[match[1]], word)


def _check_length(word: str) -> None:
    """What no system hands over must not fail at the start of every agent, with a message of the system's."""
    if "\0" in word:
        raise Invalid("an argument of the agent's command holds a NUL", hint="hand the prompt over in {prompt_file}")
    size = len(os.fsencode(word)) + 1
    if sys.platform == "linux" and size > LONGEST:
        raise Invalid(
            f"an argument of the agent's command has {size} bytes, and Linux takes {LONGEST}",
            hint="use {prompt_file} in place of {prompt}, or neither: then the prompt comes on the standard input",
        )
