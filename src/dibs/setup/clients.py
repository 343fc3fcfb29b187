"""What each coding client reads, and where: MCP servers, hooks, advice, skills. And what is configured there now.

    CLIENTS["claude"].mcp_command(root)         the argv of the configured server, or None
    CLIENTS["claude"].hook_commands(root)       {"PreToolUse": [argv], …}, those of dibs only
    CLIENTS["claude"].enforces                  whether it can be asked before an edit at all

Reading runs nothing, and takes what the files say: also an entry that somebody wrote by hand. A file that cannot be
understood raises ValueError.
"""

from __future__ import annotations

import os

from dibs import fs
from dibs.setup import commands
from dibs.setup.jsonc import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_CLAUDE = (
    ("PreToolUse", "Edit|Write|MultiEdit|NotebookEdit|Bash", 10),
    ("SessionStart", "", 10),
    ("SessionEnd", "", 5),
)
_CODEX = (("PreToolUse", "^(apply_patch|Bash)$", 10), ("SessionStart", "", 10), ("SessionEnd", "", 3))
_GEMINI = (
    ("BeforeTool", "^(write_file|replace|run_shell_command)$", 10_000),
    ("SessionStart", "", 10_000),
    ("SessionEnd", "", 5_000),
)
_CURSOR = (
    ("preToolUse", "Write|StrReplace|Edit|MultiEdit|Delete|EditNotebook|ApplyPatch", 10),
    ("beforeShellExecution", "", 10),
    ("sessionStart", "", 10),
    ("sessionEnd", "", 5),
)
"""Events, what they are asked for, and how long a hook may take: in seconds, of Gemini in milliseconds."""

_HANDED_ON = ("DIBS_BOARD", "DIBS_AGENT", "DIBS_KIND", "DIBS_SESSION", "DIBS_RUNTIME_DIR", "XDG_RUNTIME_DIR")
"""Codex gives its servers hardly any variables but those that their entry names."""


class Client:
    """A coding client. Paths are relative to the root of the worktree."""

    __slots__ = ("events", "hooks", "mcp", "name", "rooted", "section", "skill", "steps", "title", "typed")

    def __init__(
        self,
        name: str,
        title: str,
        mcp: str,
        section: str,
        hooks: str,
        events: Sequence[tuple[str, str, int]],
        skill: str,
        steps: Sequence[str],
        *,
        typed: bool = False,
        rooted: bool = False,
    ) -> None:
        self.name = name
        self.title = title
        self.mcp = mcp
        self.section = section
        self.hooks = hooks
        self.events = events
        self.skill = skill
        self.steps = steps
        self.typed = typed
        self.rooted = rooted

    @property
    def enforces(self) -> bool:
        """Does dibs have a hook that this client asks before an edit? Otherwise what it tells is advice."""
        return bool(self.hooks)

    def server(self, words: Sequence[str], board: str | None) -> dict[str, Any]:
        entry = commands.server(words, self.name, self.rooted, board)
        if self.name == "codex":
            entry["env_vars"] = list(_HANDED_ON)
        return {"type": "stdio", **entry} if self.typed else entry

    def hook_entries(self, words: Sequence[str], flags: Sequence[str], board: str | None) -> dict[str, dict[str, Any]]:
        """For each event the one entry that setup writes."""
        line = commands.hook(words, self.name, flags, board)
        return {event: self._hook(line, event, matcher, limit, flags) for event, matcher, limit in self.events}

    def _hook(self, line: str, event: str, matcher: str, limit: int, flags: Sequence[str]) -> dict[str, Any]:
        if self.name == "cursor":
            entry: dict[str, Any] = {"command": line, "timeout": limit}
            if matcher:
                entry["matcher"] = matcher
            if "--closed" in flags and event in ("preToolUse", "beforeShellExecution"):
                entry["failClosed"] = True
            return entry
        named = {"name": "dibs"} if self.name == "gemini" else {}
        handler = {"type": "command", **named, "command": line, "timeout": limit}
        return {"matcher": matcher, "hooks": [handler]} if matcher else {"hooks": [handler]}

    def advice_files(self, root: str) -> list[str]:
        """The files in which the advice may stand; the first is where it belongs now."""
        if self.name == "claude":
            return _claude_files(root)
        if self.name == "gemini":
            return _gemini_files(root)
        return ["AGENTS.md"]

    # -- what is configured

    def mcp_command(self, root: str) -> list[str] | None:
        """The argv of the server called dibs, with the client's variables put in; None if there is none."""
        document = _read_toml(root, self.mcp) if self.mcp.endswith(".toml") else _read_json(root, self.mcp)
        section = document.get(self.section)
        argv = commands.server_argv(section.get("dibs")) if isinstance(section, dict) else None
        return None if argv is None else [word.replace("${workspaceFolder}", root) for word in argv]

    def hook_commands(self, root: str) -> dict[str, list[list[str]]]:
        """For each event the argv of every hook that calls dibs for this client."""
        found: dict[str, list[list[str]]] = {}
        for path in self.hook_files:
            events = _read_json(root, path).get("hooks")
            for event, entries in events.items() if isinstance(events, dict) else ():
                for entry in entries if isinstance(entries, list) else ():
                    for handler in handlers(entry):
                        argv = commands.hook_argv(handler.get("command"))
                        if commands.calls_hook(argv, self.name):
                            found.setdefault(event, []).append(argv)
        return found

    def is_set_up(self, root: str) -> bool:
        """Is something of dibs in the client's files, as far as they can be read? If not, it may be."""
        try:
            return self.mcp_command(root) is not None or bool(self.hook_commands(root))
        except (ValueError, RecursionError):
            return True

    @property
    def hook_files(self) -> tuple[str, ...]:
        """Where the client reads hooks of a project: where setup writes them, and where a team may keep them."""
        if not self.hooks:
            return ()
        return (self.hooks, ".claude/settings.json") if self.name == "claude" else (self.hooks,)


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude", "Claude Code", ".mcp.json", "mcpServers", ".claude/settings.local.json", _CLAUDE,
            ".claude/skills/dibs/SKILL.md",
            ("restart Claude Code here, approve the server dibs when asked (or in /mcp), and look at /hooks",),
            typed=True,
        ),
        Client(
            "codex", "Codex", ".codex/config.toml", "mcp_servers", ".codex/hooks.json", _CODEX,
            ".agents/skills/dibs/SKILL.md",
            ("restart Codex here; it reads .codex/ only in a project that you trust",
             "review and trust the hooks in Codex: /hooks; until then they do not run"),
        ),
        Client(
            "cursor", "Cursor", ".cursor/mcp.json", "mcpServers", ".cursor/hooks.json", _CURSOR,
            ".cursor/skills/dibs/SKILL.md",
            ("restart Cursor, trust the workspace, and switch the server dibs on in Settings > MCP if it is off",),
            typed=True, rooted=True,
        ),
        Client(
            "gemini", "Gemini CLI", ".gemini/settings.json", "mcpServers", ".gemini/settings.json", _GEMINI,
            ".gemini/skills/dibs/SKILL.md",
            ("restart Gemini CLI here; where folder trust is on, it reads .gemini/ only in a trusted folder",),
        ),
        Client(
            "vscode", "VS Code", ".vscode/mcp.json", "servers", "", (),
            ".github/skills/dibs/SKILL.md",
            ("in VS Code, start the server dibs (MCP: List Servers) and trust it when asked",
             "for VS Code this is advice only; to guard commits: dibs setup git"),
            typed=True, rooted=True,
        ),
    )
}  # fmt: skip


def handlers(entry: Any) -> list[dict[str, Any]]:
    """The commands of an entry under an event: some clients group them, others list them plainly."""
    if not isinstance(entry, dict):
        return []
    grouped = entry.get("hooks")
    return [each for each in (grouped if isinstance(grouped, list) else [entry]) if isinstance(each, dict)]


def _claude_files(root: str) -> list[str]:
    """Claude Code reads CLAUDE.md, at the root or in .claude/; where there is none, or that imports it, AGENTS.md.

    A CLAUDE.md is never made here: it would keep Claude Code from reading the AGENTS.md that is there or will be.
    """
    main, folder, shared = "CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md"
    there = [path for path in (main, folder) if os.path.exists(os.path.join(root, path))]
    if any({"@AGENTS.md", "@./AGENTS.md"} & set(_read_text(root, path).split()) for path in there):
        return [shared, main, folder]
    first = there[0] if there else shared
    return [first, *(path for path in (main, folder, shared) if path != first)]


def _gemini_files(root: str) -> list[str]:
    """Gemini CLI reads GEMINI.md, unless its settings name other files; where AGENTS.md is one, that is shared."""
    try:
        context = _read_json(root, ".gemini/settings.json").get("context")
    except ValueError:
        context = None
    given = context.get("fileName") if isinstance(context, dict) else None
    named = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    names = [name for name in named if isinstance(name, str) and name and os.path.basename(name) == name]
    names = names or ["GEMINI.md"]
    there = [name for name in names if os.path.exists(os.path.join(root, name))]
    first = "AGENTS.md" if "AGENTS.md" in names else (there or names)[0]
    return [first, *(name for name in dict.fromkeys([*names, "GEMINI.md", "AGENTS.md"]) if name != first)]


def _read_text(root: str, path: str) -> str:
    try:
        return (fs.read_file(os.path.join(root, path)) or b"").decode("utf-8", "replace")
    except OSError:
        return ""


def _read_json(root: str, path: str) -> dict[str, Any]:
    text = _read_text(root, path)
    value = parse(text).value if text.strip() else {}
    return value if isinstance(value, dict) else {}


def _read_toml(root: str, path: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(_read_text(root, path).removeprefix("\ufeff"))
