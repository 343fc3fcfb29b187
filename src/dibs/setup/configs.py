"""Our entries in a client's configuration: put in, brought up to date, taken out. Text in, text out.

A text of None is a file that is not there. What cannot be understood raises ValueError; an entry called dibs that setup
did not write raises `Foreign`, and stays.
"""

from __future__ import annotations

from dibs.setup import commands
from dibs.setup.blocks import HASH, Block, find, put, take_out
from dibs.setup.clients import Client, handlers
from dibs.setup.jsonc import parse
from dibs.setup.jsonedit import END, Style, insert, quoted, remove, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Foreign(ValueError):
    """There is an entry of our name that somebody else wrote."""


# -- MCP servers in JSON


def add_server(text: str | None, client: Client, entry: dict[str, Any]) -> str:
    if text is None:
        return _new({client.section: {"dibs": entry}})
    path = (client.section, "dibs")
    there = _server(text, client)
    if there is None:
        return insert(text, path, entry)
    if not commands.is_server(there, client.name):
        raise Foreign(f"there is a server called dibs in {client.section} that dibs setup did not write")
    wanted = {**there, **entry}
    return text if wanted == there else replace(text, path, wanted)


def drop_server(text: str, client: Client) -> str | None:
    there = _server(text, client)
    return remove(text, (client.section, "dibs")) if commands.is_server(there, client.name) else text


def _server(text: str, client: Client) -> Any:
    section = _object(parse(text).value, "the document").get(client.section, {})
    return _object(section, client.section).get("dibs")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _new(document: dict[str, Any]) -> str:
    return Style("").render(document, "") + "\n"


# -- MCP servers in TOML


def add_server_toml(text: str | None, client: Client, entry: dict[str, Any]) -> str:
    before = _toml(text or "")
    there = before.get(client.section, {}).get("dibs")
    if isinstance(there, dict) and "env_vars" in there:
        entry = {key: value for key, value in entry.items() if key != "env_vars"}  # somebody may have added to it
    block = Block(HASH, client.name, _table(client, entry))
    ours = None if text is None else find(text, HASH)
    if there is not None and ours is None:
        if there in (entry, {key: value for key, value in entry.items() if key != "env_vars"}):
            return text or ""
        raise Foreign(f"there is a table [{client.section}.dibs] that dibs setup did not write")
    if ours is not None:
        # Whatever else somebody has set for our server stays.
        block.lines = _table(client, entry) + [line for line in ours.lines if not _is_our_line(line, client)]
    after = put(text, block)
    _prove(before, _toml(after), client, {**(there or {}), **entry})
    return after


def drop_server_toml(text: str, client: Client) -> str | None:
    if find(text, HASH) is None:
        return text
    after = take_out(text, HASH)
    _prove(_toml(text), _toml(after or ""), client, None)
    return after


def _table(client: Client, entry: dict[str, Any]) -> list[str]:
    lists = [f"{key} = [{', '.join(map(quoted, entry[key]))}]" for key in ("args", "env_vars") if key in entry]
    return [f"[{client.section}.dibs]", f"command = {quoted(entry['command'])}", *lists]


def _is_our_line(line: str, client: Client) -> bool:
    return line.strip() == f"[{client.section}.dibs]" or line.partition("=")[0].strip() in ("command", "args")


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text.removeprefix("\ufeff"))


def _prove(before: dict[str, Any], after: dict[str, Any], client: Client, entry: dict[str, Any] | None) -> None:
    """Nothing but our table may differ."""

    def others(document: dict[str, Any]) -> dict[str, Any]:
        servers = {name: value for name, value in document.get(client.section, {}).items() if name != "dibs"}
        rest = {name: value for name, value in document.items() if name != client.section}
        return {**rest, **({client.section: servers} if servers else {})}

    if others(before) != others(after) or after.get(client.section, {}).get("dibs") != entry:
        raise ValueError(
            "the lines behind the block of dibs belong to its table, or to another one; give them a header of their own"
        )


# -- hooks


def add_hooks(text: str | None, client: Client, entries: dict[str, dict[str, Any]]) -> str:
    flat = client.name == "cursor"
    if text is None:
        document: dict[str, Any] = {"hooks": {event: [entry] for event, entry in entries.items()}}
        return _new({**document, "version": 1} if flat else document)
    if flat and "version" not in _object(parse(text).value, "the document"):
        raise ValueError('it has no "version", so Cursor does not read it; put "version": 1 in')
    for event, entry in entries.items():
        text = _add_hook(text, client, event, entry)
    stale = [place for place in _places(text, client) if place[1] not in entries]
    for place in reversed(stale):
        text = remove(text, place) or _new({})
    return text


def _add_hook(text: str, client: Client, event: str, entry: dict[str, Any]) -> str:
    places = [place for place in _places(text, client) if place[1] == event]
    if not places:
        return insert(text, ("hooks", event, END), entry)
    for place in reversed(places[1:]):
        text = remove(text, place) or _new({})
    # In a group that somebody else's command shares, only the command is ours.
    there = _at(text, places[0])
    wanted = {**there, **(entry if len(places[0]) == 3 else handlers(entry)[0])}
    if there.get("failClosed") and "failClosed" not in entry:
        del wanted["failClosed"]
    return text if wanted == there else replace(text, places[0], wanted)


def drop_hooks(text: str, client: Client) -> str | None:
    made = [item.key for item in parse(text).items] == ["hooks", "version"]
    left: str | None = text
    while left is not None and (place := next(_places(left, client), None)) is not None:
        left = remove(left, place)
    if made and left is not None and parse(left).value == {"version": 1} and "/" not in left:
        return None  # `version` stands behind `hooks` only in a file that setup made
    return left


def _places(text: str, client: Client) -> Iterator[tuple[str | int, ...]]:
    """Where our hooks are: the whole entry, or the command in a group that others share."""
    events = _object(_object(parse(text).value, "the document").get("hooks", {}), "hooks")
    for event, entries in events.items():
        for at, entry in enumerate(entries if isinstance(entries, list) else ()):
            ours = [n for n, each in enumerate(handlers(entry)) if commands.is_hook(each.get("command"), client.name)]
            if ours and len(ours) == len(handlers(entry)):
                yield "hooks", event, at
            else:
                yield from (("hooks", event, at, "hooks", n) for n in ours)


def _at(text: str, place: tuple[str | int, ...]) -> Any:
    value = parse(text).value
    for key in place:
        value = value[key]
    return value


def remarks(client: Client, mcp: str | None, hooks: str | None) -> list[str]:
    """Settings in these files that bear on our hooks."""
    if client.name == "codex" and mcp is not None:
        document = _toml(mcp)
        features = document.get("features", {})
        off = [key for key in ("hooks", "codex_hooks") if features.get(key) is False]
        said = [f"[features] {key} = false in {client.mcp} keeps Codex from running hooks" for key in off]
        if set(document.get("hooks", {})) - {"state"}:
            said.append(f"there are hooks in {client.mcp}, too; Codex runs both, and says so when it starts")
        return said
    if client.name == "claude" and hooks is not None and parse(hooks).value.get("disableAllHooks") is True:
        return [f'"disableAllHooks" in {client.hooks} keeps Claude Code from running hooks']
    return []
