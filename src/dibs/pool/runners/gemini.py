"""Gemini CLI, without a person: the prompt on its standard input, which alone makes it end after one.

Read from the documentation and sources at github.com/google-gemini/gemini-cli, 5411f11 of 2026-08-21 (0.56.0-nightly):
docs/cli/headless.md, docs/cli/trusted-folders.md, docs/reference/configuration.md and policy-engine.md,
packages/cli/src/config/settings.ts and config.ts, packages/core/src/policy/config.ts, tools/mcp-client.ts and
services/environmentSanitization.ts; and tried with 0.61.0 against a server of our own in place of the model's.

- The prompt comes on stdin and not with `-p`: an argument is limited to 128 KiB, and both would be joined.
- There is no option for a server, only settings files: the machine's, which must be root's (0.61.0), the user's and the
  project's. So each start gets a home of its own (GEMINI_CLI_HOME), in which the user's settings have the server and
  the hooks added, and all else is a link to the user's real files.
- Of one server the strongest layer's entry counts, whole: where `dibs setup gemini` was run, that is the project's. It
  is as good, for servers get Gemini's environment (but for what looks secret); unless it names another board or worker.
- Hooks of all layers run, the same command once.
- `auto_edit` lets it edit unasked; the rest is denied, as nobody is there, but for dibs' tools and git, by a policy of
  the user's rank. `--policy` replaces the user's folder of policies, so that is named, too; what `policyPaths` in
  settings names is not read.
- Git in its shell does not see the user's configuration, and so not who commits (0.61.0), nor any hooks; it does see
  what the variables GIT_CONFIG_… say.
- A folder that is not trusted gets no servers, no hooks, and no start: whoever starts a team there trusts it. By the
  variable and not by `--skip-trust`, which comes too late for the project's own settings (0.61.0).
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from dibs.errors import Invalid
from dibs.places import find_place
from dibs.pool.runners.base import Launch, Order
from dibs.pool.runners.presets import GIT, LOOKS, Preset, hooks, json_file, private_file, server
from dibs.setup.commands import server_argv
from dibs.setup.jsonc import parse

TOOL = 300_000
"""Milliseconds for one call of a tool."""
_HOME, _TRUST = "GEMINI_CLI_HOME", "GEMINI_CLI_TRUST_WORKSPACE"


class Gemini(Preset):
    name = "gemini"
    program = "gemini"
    title = "Gemini CLI"
    install = "install it: npm install -g @google/gemini-cli"

    def launch(self, order: Order) -> Launch:
        _check_project(order)
        real = os.path.join(os.environ.get(_HOME) or os.path.expanduser("~"), ".gemini")
        argv = [self._command(), "--approval-mode", "auto_edit", "--output-format", "text"]
        argv += ["--policy", private_file(order, "policy.toml", POLICY)]
        if os.path.isdir(policies := os.path.join(real, "policies")):
            argv += ["--policy", policies]
        if self.model is not None:
            argv += ["--model", self.model]
        env = {_HOME: home(order, real), _TRUST: "true", **committer(order.workspace)}
        return Launch([*argv, *self.args], env, order.prompt)


POLICY = f"""\
[[rule]]
toolName = "*"
mcpName = "dibs"
decision = "allow"
priority = 1

[[rule]]
toolName = "run_shell_command"
commandPrefix = [{", ".join(f'"git {verb}"' for verb in GIT)}]
decision = "allow"
priority = 1

[[rule]]
toolName = "run_shell_command"
commandRegex = "git ({"|".join(LOOKS)}) .*--output"
decision = "deny"
priority = 2
"""
"""What runs unasked. The priorities are the lowest: what the user's own policies deny stays denied."""


def home(order: Order, real: str) -> str:
    """A home for one start: the user's, with our server and hooks in its settings."""
    top = os.path.join(order.folder, "home")
    folder = os.path.join(top, ".gemini")
    os.makedirs(folder, 0o700)
    if os.path.isdir(real):
        for name in os.listdir(real):
            if name != "settings.json":
                os.symlink(os.path.join(real, name), os.path.join(folder, name))
    json_file(order, os.path.join("home", ".gemini", "settings.json"), settings(order, _read(real)))
    return top


def settings(order: Order, users: dict[str, Any]) -> dict[str, Any]:
    ours = {**server(order, "gemini"), "timeout": TOOL}
    events = _table(users, "hooks")
    for event, entries in hooks(order, "gemini").items():
        before = events.get(event)
        events[event] = [*(before if isinstance(before, list) else []), *entries]
    return {**users, "mcpServers": {**_table(users, "mcpServers"), "dibs": ours}, "hooks": events}


def committer(workspace: str) -> dict[str, str]:
    """Whoever commits in this folder, for git below Gemini CLI. Not by GIT_AUTHOR_NAME: with AUTH in it, that is taken
    for a secret and held back."""
    env = os.environ
    try:
        count = range(int(env.get("GIT_CONFIG_COUNT") or 0))
        given = [(env[f"GIT_CONFIG_KEY_{number}"], env[f"GIT_CONFIG_VALUE_{number}"]) for number in count]
        said = subprocess.check_output(
            ["git", "var", "GIT_AUTHOR_IDENT"], cwd=workspace, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        name, _, rest = os.fsdecode(said).partition(" <")
    except (subprocess.CalledProcessError, OSError, ValueError, KeyError):
        return {}  # git knows nobody, or is not there: the agent will be told
    # What the user's environment says comes later, and wins.
    pairs = [("user.name", name), ("user.email", rest.partition(">")[0]), *given]
    made = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made


def _table(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return dict(value) if isinstance(value, dict) else {}


def _read(real: str) -> dict[str, Any]:
    """The user's settings, none if there are none. What cannot be read must not be left out silently."""
    path = os.path.join(real, "settings.json")
    try:
        with open(path, encoding="utf-8-sig") as file:
            return _document(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise Invalid(
            f"your settings of Gemini CLI cannot be read: {path}: {error}",
            hint="repair that file; Gemini CLI would not start with it either",
        ) from None


def _check_project(order: Order) -> None:
    """The project's server wins over ours. It works for this agent on this board, unless it names others."""
    root = find_place(order.workspace).worktree or order.workspace
    path = os.path.join(root, ".gemini", "settings.json")
    try:
        with open(path, encoding="utf-8-sig") as file:
            entry = _table(_table(_document(file.read()), "mcpServers"), "dibs")
    except (OSError, ValueError, RecursionError):
        return  # there is none; or Gemini CLI says what is wrong with it
    argv = server_argv(entry) or []
    named = {name: value for name, value in _table(entry, "env").items() if name.startswith("DIBS_")}
    if "--board" in argv:
        named["DIBS_BOARD"] = "".join(map(str, argv[argv.index("--board") + 1 :][:1]))
    others = sorted(name for name, value in named.items() if value != order.env.get(name))
    if others:
        raise Invalid(
            f"the server dibs in {path} is for another worker or board: it sets {', '.join(others)}",
            hint="let it find out by itself: dibs setup gemini",
        )


def _document(text: str) -> dict[str, Any]:
    value = parse(text).value if text.strip() else {}
    return value if isinstance(value, dict) else {}
