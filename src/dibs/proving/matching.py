"""For which tools a client asks a hook: what setup wants it asked for, and whether a matcher says so. Pure."""

from __future__ import annotations

from dibs.setup.clients import CLIENTS

_GONE = ("MultiEdit",)
"""Tools that setup names for old versions; nobody misses them."""
_ALIASES = {("codex", "apply_patch"): ("Edit", "Write")}
_QUANTIFIERS = 6


def edit_tools(client: str) -> list[tuple[str, str]]:
    """Event and tool, for everything with which a client can write; an event without tools has an empty one."""
    found = []
    for event, matcher, _ in CLIENTS[client].events:
        if matcher:
            found += [(event, tool) for tool in matcher.strip("^$()").split("|") if tool not in _GONE]
        elif event == "beforeShellExecution":
            found.append((event, ""))
    return found


def covered(client: str, matcher: object, tool: str) -> bool:
    """Is a hook with this matcher asked for this tool? One that cannot be judged is taken for one that is not."""
    if matcher is None or matcher in ("", "*"):
        return True
    if not isinstance(matcher, str) or not tool:
        return False
    return any(_matches(client, matcher, name) for name in (tool, *_ALIASES.get((client, tool), ())))


def _matches(client: str, matcher: str, tool: str) -> bool:
    if client == "claude" and all(c.isalnum() or c in "_-|, " for c in matcher):
        return tool in [name.strip() for name in matcher.replace(",", "|").split("|")]
    if not _is_tame(matcher):
        return False
    import re

    try:
        return re.search(matcher, tool) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _is_tame(matcher: str) -> bool:
    """Is it an expression that cannot keep us busy for long?"""
    repeats = sum(matcher.count(sign) for sign in "*+?{")
    return len(matcher) <= 500 and repeats <= _QUANTIFIERS and not any(sign in matcher for sign in (")*", ")+", "){"))
