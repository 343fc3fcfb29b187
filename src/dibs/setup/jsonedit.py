"""Change a JSON text in place, and leave every byte that is not concerned alone.

    text = insert(text, ("mcpServers", "dibs"), value)      a member, with the objects above it if they are missing
    text = insert(text, ("hooks", "Stop", -1), value)       an element at the end of an array
    text = replace(text, ("mcpServers", "dibs"), value)     another value in the same place
    text = remove(text, ("mcpServers", "dibs"))             None when nothing of the document is left

`remove` undoes `insert` to the byte. A comma goes directly behind the last neighbour, and the new item, with the
neighbour's white space before it, behind that line's comments; removal takes out just these. A container that would
become empty goes along, unless it was there before: into a container that is there, and empty, an item is put with
exactly one blank before it, which nothing else here writes.
"""

from __future__ import annotations

from dibs.setup.jsonc import BLANKS, Item, Node, line_end, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Path = tuple[str | int, ...]

END = -1
"""As the last part of a path: behind the last element."""
_THERE = " "


def insert(text: str, path: Path, value: Any) -> str:
    """Put a value where there is none yet. Containers that are missing on the way are made, except the outermost."""
    node = parse(text)
    depth = 0
    while depth < len(path) - 1 and (item := _item(node, path[depth])) is not None:
        node = item.node
        depth += 1
    for key in reversed(path[depth + 1 :]):
        value = [value] if key == END else {key: value}
    wanted = list if path[depth] == END else dict
    if not isinstance(node.value, wanted):
        where = " > ".join(map(str, path[:depth])) or "the document"
        raise ValueError(f"{where} is not {'an array' if wanted is list else 'an object'}")
    return _put(text, node, None if path[depth] == END else str(path[depth]), value)


def replace(text: str, path: Path, value: Any) -> str:
    node = _find(text, path)[-1][1].node
    style = Style(text)
    on_one_line = "\n" not in text[node.start : node.end]
    new = style.render(value, None if on_one_line else style.indent(text, node.start))
    return text[: node.start] + new + text[node.end :]


def remove(text: str, path: Path) -> str | None:
    """The text without an item, and without the containers that came with it; None if those are all of it."""
    chain = _find(text, path)
    while _goes_along(text, *chain[-1]):
        if len(chain) == 1:
            root = chain[0][0]
            around = text[: root.start] + text[root.end :]
            if not around.lstrip("\ufeff").strip(BLANKS):
                return None
            break
        chain.pop()
    container, item = chain[-1]
    wanted = _without(parse(text).value, path[: len(chain)])
    for start in (item.start - len(_lead(text, item.start)), item.start):
        # A comment to the end of the line, before the item, must not swallow what follows it.
        result = _take_out(text, container, item, start)
        if _reads(result, wanted):
            return result
    raise ValueError(f"{' > '.join(map(str, path))} cannot be taken out without changing something else")


def _goes_along(text: str, container: Node, item: Item) -> bool:
    """Would the container hold nothing without this item, and did it come with it?"""
    end = item.node.end if item.comma is None else item.comma + 1
    before, behind = text[container.start + 1 : item.start], text[end : container.end - 1]
    return len(container.items) == 1 and before != _THERE and not (before + behind).strip(BLANKS)


def _without(value: Any, path: Path) -> Any:
    copied = value.copy()
    if len(path) == 1:
        del copied[path[0]]
    else:
        copied[path[0]] = _without(value[path[0]], path[1:])
    return copied


def _reads(text: str, wanted: Any) -> bool:
    try:
        return bool(parse(text).value == wanted)
    except ValueError:
        return False


def _take_out(text: str, container: Node, item: Item, start: int) -> str:
    if item.comma is not None:
        return text[:start] + text[item.node.end : item.comma] + text[item.comma + 1 :]
    place = next(at for at, each in enumerate(container.items) if each is item)
    before = container.items[place - 1].comma if place else None
    kept = text[:start] if before is None else text[:before] + text[before + 1 : start]
    return kept + text[item.node.end :]


def _put(text: str, node: Node, key: str | None, value: Any) -> str:
    style = Style(text)
    if not node.items:
        at = node.start + 1
        return text[:at] + _THERE + style.item(key, value, style.inside(text, node.start)) + text[at:]
    last = node.items[-1]
    lead = _lead(text, last.start)
    behind = last.node.end if last.comma is None else last.comma + 1
    at = _end_of_comments(text, behind)
    if "\n" not in lead and "//" in text[behind:at]:
        lead = style.newline + (style.indent(text, last.start) or "")
    new = lead + style.item(key, value, lead.rpartition("\n")[2] if "\n" in lead else None)
    if last.comma is None:
        return text[:behind] + "," + text[behind:at] + new + text[at:]
    return text[:at] + new + "," + text[at:]


def _lead(text: str, at: int) -> str:
    """The white space before a place."""
    return text[len(text[:at].rstrip(BLANKS)) : at]


def _end_of_comments(text: str, at: int) -> int:
    """The end of the comments that follow on the same line."""
    end = at
    while True:
        while text[at : at + 1] in (" ", "\t"):
            at += 1
        if text.startswith("//", at):
            return line_end(text, at)
        stop = text.index("*/", at + 2) + 2 if text.startswith("/*", at) else at
        if stop == at or "\n" in text[at:stop]:
            return end
        at = end = stop


def _find(text: str, path: Path) -> list[tuple[Node, Item]]:
    """The containers along a path, each with its item that leads on."""
    node, found = parse(text), []
    for key in path:
        item = _item(node, key)
        if item is None:
            raise KeyError(path)
        found.append((node, item))
        node = item.node
    return found


def _item(node: Node, key: str | int) -> Item | None:
    if isinstance(key, int):
        return node.items[key] if isinstance(node.value, list) and 0 <= key < len(node.items) else None
    # Of several members of one name, readers take the last.
    return next((item for item in reversed(node.items) if item.key == key), None)


# -- layout


class Style:
    """How a text is laid out: its line ends and its indentation. An indentation of None: all on one line."""

    def __init__(self, text: str) -> None:
        self.newline = "\r\n" if "\r\n" in text else "\n"
        indented = (line[: len(line) - len(line.lstrip(" \t"))] for line in text.split("\n") if line.strip())
        self.unit = next((blanks for blanks in indented if blanks), "  ")

    def indent(self, text: str, at: int) -> str | None:
        """That of the line of a place; None in a text of one line."""
        if "\n" not in text.strip(BLANKS):
            return None
        line = text[text.rfind("\n", 0, at) + 1 :]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def inside(self, text: str, at: int) -> str | None:
        """That of what is in the container at a place."""
        indent = self.indent(text, at)
        return None if indent is None else indent + self.unit

    def item(self, key: str | None, value: Any, indent: str | None) -> str:
        shown = self.render(value, indent)
        return shown if key is None else f"{quoted(key)}: {shown}"

    def render(self, value: Any, indent: str | None) -> str:
        if not isinstance(value, dict | list):
            return {True: "true", False: "false", None: "null"}[value] if _is_word(value) else _scalar(value)
        keys = list(value) if isinstance(value, dict) else [None] * len(value)
        items = list(value.values()) if isinstance(value, dict) else value
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        flat = indent is None or (not any(isinstance(item, dict | list) for item in items) and not any(keys))
        deeper = None if flat or indent is None else indent + self.unit
        parts = [self.item(key, item, deeper) for key, item in zip(keys, items, strict=True)]
        if flat:
            return opening + ", ".join(parts) + closing
        lines = f",{self.newline}{deeper}".join(parts)
        return f"{opening}{self.newline}{deeper}{lines}{self.newline}{indent}{closing}"


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _scalar(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """A string as JSON and TOML both write it, readable."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(named.get(c) or (c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in text) + '"'
