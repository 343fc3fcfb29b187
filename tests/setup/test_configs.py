"""A client's entries go into any configuration and come out again, also after the client has written it anew."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.setup import configs
from dibs.setup.clients import CLIENTS
from dibs.setup.jsonc import parse
from tests.setup.layouts import BLANKS, documents

NAMES = st.sampled_from(["claude", "codex", "gemini", "vscode"])
DIBS = ["/opt/my tools/dibs"]


def add(text: str | None, name: str, words: list[str] = DIBS) -> str:
    client = CLIENTS[name]
    text = configs.add_server(text, client, client.server(words, None))
    return configs.add_hooks(text, client, client.hook_entries(words, [], None)) if client.enforces else text


def drop(text: str, name: str) -> str | None:
    client = CLIENTS[name]
    left = configs.drop_server(text, client)
    return configs.drop_hooks(left, client) if client.enforces and left is not None else left


def refused(text: str, name: str) -> bool:
    """Does the configuration have something else where ours belongs?"""
    document = parse(text).value
    sections = {"mcpServers": dict, "servers": dict, "mcp_servers": dict, "hooks": dict}
    wrong = [key for key in (CLIENTS[name].section, "hooks") if not isinstance(document.get(key, {}), sections[key])]
    events = document.get("hooks", {})
    asked = [event for event, _, _ in CLIENTS[name].events]
    return bool(wrong) or any(not isinstance(events.get(event, []), list) for event in asked)


@given(documents(), NAMES)
def test_in_and_out_again(text: str, name: str) -> None:
    if refused(text, name):
        if CLIENTS[name].enforces:
            with pytest.raises(ValueError, match="is not an"):
                add(text, name)
        return
    changed = add(text, name)
    assert add(changed, name) == changed
    assert drop(changed, name) == text
    moved = add(changed, name, ["/elsewhere/python", "-m", "dibs"])
    assert moved.count("/elsewhere/python") == 1 + len(CLIENTS[name].events)
    assert "/opt/my tools" not in moved
    assert drop(moved, name) == text


@given(documents(BLANKS), NAMES, st.sampled_from([None, 2, "\t"]))
def test_out_of_a_file_that_the_client_has_written_anew(text: str, name: str, indent: Any) -> None:
    if refused(text, name):
        return
    rewritten = json.dumps(parse(add(text, name)).value, indent=indent)
    left = drop(rewritten, name)
    before = parse(text).value
    after = {} if left is None else json.loads(left)
    assert full(after) == full(before)


@given(NAMES)
def test_a_new_file_goes_away(name: str) -> None:
    assert drop(add(None, name), name) is None


def full(value: Any) -> Any:
    """A value without members that hold nothing: whose those were is not to be told from a file written anew."""
    if not isinstance(value, dict):
        return value
    inner = {key: full(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item not in ({}, [])}
