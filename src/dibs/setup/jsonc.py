"""Read JSON with comments and trailing commas, and remember where everything stands. Pure; `jsonedit` changes it."""

from __future__ import annotations

from dibs.jsontext import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEEPEST = 100
BLANKS = " \t\r\n"


class Node:
    """A value and its place in the text; of a container, its items."""

    __slots__ = ("end", "items", "start", "value")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.value: Any = None
        self.items: list[Item] = []


class Item:
    """A member, with its key, or an element: where it starts, and where the comma behind it is, if there is one."""

    __slots__ = ("comma", "key", "node", "start")

    def __init__(self, start: int, key: str | None, node: Node) -> None:
        self.start = start
        self.key = key
        self.node = node
        self.comma: int | None = None


def parse(text: str) -> Node:
    """The document. What is not one raises ValueError, with the line."""
    node = _value(text, skip(text, 1 if text.startswith("\ufeff") else 0), 0)
    if (end := skip(text, node.end)) != len(text):
        raise _error(text, end, "there is something behind the document")
    return node


def skip(text: str, at: int) -> int:
    """Past white space and comments."""
    while True:
        while (c := text[at : at + 1]) and c in BLANKS:
            at += 1
        if text.startswith("//", at):
            at = line_end(text, at)
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            if end < 0:
                raise _error(text, at, "a comment has no end")
            at = end + 2
        else:
            return at


def line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEEPEST:
        raise _error(text, at, "it is nested too deeply")
    first = text[at : at + 1]
    if first in ("{", "["):
        return _container(text, at, depth)
    node = Node(at)
    if first == '"':
        node.end = _string_end(text, at)
    else:
        while (c := text[node.end : node.end + 1]) and c not in ",:]}/" + BLANKS:
            node.end += 1
    try:
        node.value = loads(text[at : node.end])
    except ValueError:
        raise _error(text, at, "a value is expected here") from None
    return node


def _container(text: str, at: int, depth: int) -> Node:
    node = Node(at)
    is_object = text[at] == "{"
    close = "}" if is_object else "]"
    here = skip(text, at + 1)
    while text[here : here + 1] != close:
        if node.items and node.items[-1].comma is None:
            raise _error(text, here, f"a comma or {close} is expected here")
        start, key = here, None
        if is_object:
            key, here = _key(text, here)
        value = _value(text, here, depth + 1)
        item = Item(start, key, value)
        node.items.append(item)
        here = skip(text, value.end)
        if text[here : here + 1] == ",":
            item.comma = here
            here = skip(text, here + 1)
    node.end = here + 1
    values = [item.node.value for item in node.items]
    node.value = {item.key: item.node.value for item in node.items} if is_object else values
    return node


def _key(text: str, at: int) -> tuple[str, int]:
    """A member's name, and where its value starts."""
    if text[at : at + 1] != '"':
        raise _error(text, at, "a name in double quotes or } is expected here")
    end = _string_end(text, at)
    try:
        key = str(loads(text[at:end]))
    except ValueError:
        raise _error(text, at, "this is not a name") from None
    colon = skip(text, end)
    if text[colon : colon + 1] != ":":
        raise _error(text, colon, "a colon is expected here")
    return key, skip(text, colon + 1)


def _string_end(text: str, at: int) -> int:
    end = at + 1
    while (c := text[end : end + 1]) != '"':
        if c in ("", "\n"):
            raise _error(text, at, "a text has no end")
        end += 2 if c == "\\" else 1
    return end + 1


def _error(text: str, at: int, what: str) -> ValueError:
    return ValueError(f"line {text.count(chr(10), 0, at) + 1}: {what}")
