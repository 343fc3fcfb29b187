"""What a client's files say about dibs: the MCP server, the hooks, and what keeps them from being used. Runs nothing.

Nothing in these files is trusted: they may be of any size and content, and `trusted` says which entries may be run.
Everything else is left alone, and told.
"""

from __future__ import annotations

import errno
import os

from dibs import fs
from dibs.proving.matching import covered, edit_tools
from dibs.proving.running import SAFELY
from dibs.proving.trusted import FLAGS, foreign_hook, foreign_server
from dibs.setup import commands
from dibs.setup.advice import is_our_skill
from dibs.setup.clients import CLIENTS, handlers
from dibs.setup.jsonc import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from dibs.setup.clients import Client

LARGEST = 1 << 20
"""Bytes; no client's configuration is longer."""
_CODEX_PASSES = (
    "HOME", "LOGNAME", "PATH", "SHELL", "USER", "__CF_USER_TEXT_ENCODING", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ",
)  # fmt: skip
"""All that Codex hands on to a server, besides what its entry names."""


class Server:
    """An MCP server's entry, with the client's variables put in. `passes`: the variables that it gets; None is all."""

    __slots__ = ("argv", "cwd", "env", "passes")

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str, passes: Sequence[str] | None) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.passes = passes

    def environment(self, around: Mapping[str, str]) -> dict[str, str]:
        """What the server's environment is, if `around` is the client's."""
        handed_on = around if self.passes is None else (*self.passes, "DIBS_RUNTIME_DIR")  # the trial's own folder
        kept = {name: around[name] for name in handed_on if name in around}
        return {**kept, **self.env, **SAFELY}


class Hook:
    """One command under an event. `limit`: the seconds that the client gives it."""

    __slots__ = ("argv", "event", "limit", "line", "matcher")

    def __init__(self, event: str, matcher: object, line: str, argv: list[str], limit: float | None) -> None:
        self.event = event
        self.matcher = matcher
        self.line = line
        self.argv = argv
        self.limit = limit

    @property
    def requires_lock(self) -> bool:
        return "--require-lock" in self.argv

    @property
    def name(self) -> str | None:
        """The worker that it is told to be."""
        return option_of(self.argv, "--as")


class Found:
    """What one client's files say. `faults` are reasons why something of ours that is there cannot work; `remarks` are
    what else there is to say; `unreadable` are files that tell nothing, which setup would refuse, and why."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.server: Server | None = None
        self.hooks: list[Hook] = []
        self.faults: list[str] = []
        self.remarks: list[str] = []
        self.unreadable: dict[str, str] = {}
        self.calls: list[list[str]] = []
        """Every command of ours, also one that is not to be run."""
        self.has_server = False
        self.has_hooks = False
        self.has_skill = False

    @property
    def is_set_up(self) -> bool:
        return self.has_server or self.has_hooks

    @property
    def flags(self) -> list[str]:
        """The options of hooks that are in force."""
        return flags_of(word for call in self.calls for word in call)

    @property
    def board(self) -> str | None:
        """The board that the server, or a hook, is told to use."""
        return next((board for call in self.calls if (board := board_of(call)) is not None), None)

    def on(self, event: str, tool: str) -> list[Hook]:
        """The hooks that the client asks when a tool is about to run."""
        return [hook for hook in self.hooks if hook.event == event and covered(self.client, hook.matcher, tool)]

    def asked(self, tools: Iterable[tuple[str, str]]) -> list[tuple[Hook, str, str]]:
        """Every different command that is asked for one of these, with the first event and tool that it serves."""
        found: dict[tuple[str, float | None], tuple[Hook, str, str]] = {}
        for event, tool in tools:
            for hook in self.on(event, tool):
                found.setdefault((hook.line, hook.limit), (hook, event, tool))
        return list(found.values())

    def missing(self) -> list[str]:
        """Tools that write and for which nobody is asked, `EVENT` itself where it has none."""
        wanted = edit_tools(self.client)
        return [tool or event for event, tool in wanted if not self.on(event, tool)]


def read(name: str, root: str) -> Found:
    client, found = CLIENTS[name], Found(name)
    paths = dict.fromkeys((client.mcp, *client.hook_files))
    documents = {path: _document(root, path, found) for path in paths}
    _read_server(client, root, documents, found)
    for path in paths if client.enforces else ():
        if path in client.hook_files or path.endswith(".toml"):  # Codex also reads hooks in its config.toml
            _read_hooks(client, root, path, documents[path], found)
    if found.has_hooks:
        found.faults += _switched_off(client, documents)
    found.has_skill = _has_skill(root, client.skill)
    return found


def flags_of(words: Iterable[str]) -> list[str]:
    given = set(words)
    return [flag for flag in FLAGS if flag in given]


def board_of(argv: Sequence[str]) -> str | None:
    return option_of(argv, "--board")


def option_of(argv: Sequence[str], name: str) -> str | None:
    """The value that a command line gives an option."""
    for at, word in enumerate(argv):
        if word == name and argv[at + 1 :]:
            return argv[at + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def named_board(root: str) -> tuple[str, str] | None:
    """A client's file that tells its server which board to use, and that board."""
    for name, client in CLIENTS.items():
        found = read(name, root)
        if found.server is not None and (board := board_of(found.server.argv)) is not None:
            return client.mcp, board
    return None


# -- files


def _document(root: str, path: str, found: Found) -> dict[str, Any]:
    full = os.path.join(root, path)
    try:
        if os.path.getsize(full) > LARGEST:
            found.unreadable[path] = f"is too large to be a configuration ({os.path.getsize(full):,} bytes)"
            return {}
        data = fs.read_file(full) or b""
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            found.unreadable[path] = f"cannot be read: {error.strerror or error}"
        return {}
    try:
        text = data.decode("utf-8-sig")
        value = _parsed(path, text) if text.strip() else {}
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        return value
    except (ValueError, RecursionError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)[:200]
        found.unreadable[path] = f"cannot be understood: {why}"
        return {}


def _has_skill(root: str, path: str) -> bool:
    full = os.path.join(root, path)
    try:
        data = fs.read_file(full) if os.path.getsize(full) <= LARGEST else None
    except OSError:
        return False
    return is_our_skill((data or b"").decode("utf-8", "replace"))


def _parsed(path: str, text: str) -> Any:
    if path.endswith(".toml"):
        import tomllib

        return tomllib.loads(text)
    return parse(text).value


# -- the server


def _read_server(client: Client, root: str, documents: Mapping[str, dict[str, Any]], found: Found) -> None:
    section = documents[client.mcp].get(client.section)
    entry = section.get("dibs") if isinstance(section, dict) else None
    if entry is None:
        return
    found.has_server = True
    argv = commands.server_argv(entry)
    found.calls += [argv] if argv else []
    if argv is None and isinstance(entry, dict) and any(isinstance(entry.get(key), str) for key in ("url", "httpUrl")):
        found.remarks.append(f"the server dibs in {client.mcp} is reached over HTTP, which was not tried")
        return
    if argv is None:
        found.faults.append(f"the server dibs in {client.mcp} has no command, or arguments that are not text")
        return
    if client.name == "codex" and entry.get("enabled") is False:
        found.faults.append(f"the server dibs is switched off in {client.mcp}: enabled = false")
    found.faults += _refused_servers(client, documents)
    argv = [_expanded(word, client.name, root) for word in argv]
    env = entry.get("env") or {}
    if not isinstance(env, dict) or not all(isinstance(value, str | int | float) for value in env.values()):
        found.faults.append(f"the environment of the server dibs in {client.mcp} is not made of names and texts")
        return
    settings = {str(key): _expanded(str(value), client.name, root) for key, value in env.items()}
    given = entry.get("cwd")
    cwd = os.path.join(root, _expanded(given, client.name, root)) if isinstance(given, str) else root
    open_ones = [text for text in (*argv, *settings.values(), cwd) if "${" in text and client.name != "codex"]
    if open_ones:
        found.faults.append(
            f"the server dibs in {client.mcp} needs something that only the client knows: {open_ones[0]}"
        )
        return
    why = foreign_server(argv, settings, cwd, root)
    if why:
        found.faults.append(f"the server dibs in {client.mcp} was not tried: {why}")
        return
    passes = None
    if client.name == "codex":
        named = entry.get("env_vars")
        passes = [
            *_CODEX_PASSES,
            *(each for each in (named if isinstance(named, list) else ()) if isinstance(each, str)),
        ]
    found.server = Server(argv, settings, cwd, passes)


def _refused_servers(client: Client, documents: Mapping[str, dict[str, Any]]) -> list[str]:
    """Settings beside the entry that keep the client from starting it."""
    found = []
    for path, document in documents.items():
        if client.name == "claude" and _lists(document, "disabledMcpjsonServers"):
            found.append(f'the server dibs is among "disabledMcpjsonServers" in {path}')
        if client.name == "gemini" and _lists(_table(document, "mcp"), "excluded"):
            found.append(f'the server dibs is among "mcp.excluded" in {path}')
    return found


def _lists(settings: Mapping[str, Any], key: str) -> bool:
    value = settings.get(key)
    return isinstance(value, list) and "dibs" in value


def _expanded(text: str, client: str, root: str) -> str:
    """A text with the variables that a client puts in; those that it does not know stay."""
    if client == "codex" or "$" not in text:
        return text
    import re

    def editor(match: re.Match[str]) -> str:
        name = match[1]
        known = {
            "workspaceFolder": root,
            "workspaceFolderBasename": os.path.basename(root),
            "userHome": os.path.expanduser("~"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        return os.environ.get(name[4:], "") if name.startswith("env:") else known.get(name, match[0])

    def shell(match: re.Match[str]) -> str:
        name, _, default = (match[1] or match[2]).partition(":-")
        return os.environ.get(name) or default or match[0]

    if client in ("cursor", "vscode"):
        return re.sub(r"\$\{([^{}]+)\}", editor, text)
    plain = r"|\$(\w+)" if client == "gemini" else r"|(?!)(\w)"
    return re.sub(r"\$\{([^{}]+)\}" + plain, shell, text)


# -- hooks


def _read_hooks(client: Client, root: str, path: str, document: Mapping[str, Any], found: Found) -> None:
    events = document.get("hooks")
    for event, entries in events.items() if isinstance(events, dict) else ():
        for entry in entries if isinstance(entries, list) else ():
            for handler in handlers(entry):
                _read_hook(client, root, path, str(event), entry, handler, found)


def _read_hook(
    client: Client, root: str, path: str, event: str, entry: Any, handler: Mapping[str, Any], found: Found
) -> None:
    line = handler.get("command")
    argv = commands.hook_argv(line)
    if not isinstance(line, str) or not commands.calls_hook(argv, client.name):
        return
    found.has_hooks = True
    found.calls.append(argv)
    why = foreign_hook(line, argv, client.name, root)
    if why is None and handler.get("type", "command") != "command":
        why = f"its type is {handler.get('type')!r:.40}"
    if why is not None:
        _once(found.faults, f"a hook in {path} was not tried: {why}")
        return
    for key, says in (("async", "does not wait for it"), ("if", "asks it only now and then")):
        if handler.get(key):
            _once(found.faults, f'with "{key}" in {path} the client {says}')
    limit = handler.get("timeout")
    if not isinstance(limit, int | float) or isinstance(limit, bool) or limit <= 0:
        limit = None
    elif client.name == "gemini":
        limit /= 1000
    found.hooks.append(Hook(event, entry.get("matcher"), line, argv, limit))


def _once(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)


def _switched_off(client: Client, documents: Mapping[str, dict[str, Any]]) -> list[str]:
    """Settings that keep the client from running our hooks."""
    found = []
    for path, document in documents.items():
        features, config = (_table(document, key) for key in ("features", "hooksConfig"))
        if client.name == "claude" and document.get("disableAllHooks") is True:
            found.append(f'"disableAllHooks" in {path}')
        elif client.name == "codex" and False in (features.get("hooks"), features.get("codex_hooks")):
            found.append(f"[features] hooks = false in {path}")
        elif path == ".codex/hooks.json" and set(document) - {"hooks", "description"}:
            found.append(f"a key beside hooks and description in {path}")
        elif client.name == "gemini" and (config.get("enabled") is False or _lists(config, "disabled")):
            found.append(f'"hooksConfig" in {path}')
        elif client.name == "cursor" and path == client.hooks and document.get("version") != 1:
            found.append(f'that there is no "version": 1 in {path}')
    return [f"{each} keeps {client.title} from running the hook" for each in found]


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}
