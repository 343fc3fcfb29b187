"""YAML text changed in place: `patch(text, root, wanted)` gives the text that says `wanted`, with only those lines
changed that must be.

The tree comes from `yamltext.parse`; `wanted` is what `yamltext.plain` gave, edited: values replaced, keys added, items
added at the end of a list, words put into or taken out of a list of words. What is new is laid out like what is there:
indentation, quoting, flow or block lists, blank lines between items, line ends. The result is read again before it is
returned; if it does not say exactly what was meant, `CannotPatch` is raised and nothing is lost.
"""

from __future__ import annotations

import re

from dibs.dialects.yamltext import FLOAT, Lines, Mapping, Node, Scalar, Sequence, YamlError, parse, plain, same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class CannotPatch(ValueError):
    """A change that cannot be made in place without touching what is not meant."""


# What some version of YAML takes for something other than text when it stands without quotes.
_NOT_TEXT = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|y|n|=|<<|[-+]?\.(?:inf|nan)"
    r"|[-+]?0[xob][0-9a-f_]+|[-+]?[0-9][0-9_,]*(?::[0-9]+)*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?|[-+]?\.[0-9_]+(?:e[-+]?[0-9]+)?)\Z",
    re.IGNORECASE,
)
TIME = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]*)?)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?)?\Z"
)
_WORDS = r"[\w ,./()@+=~^$;!*?<>'%&|\\-]*"
_PLAIN = re.compile(rf"[^\W_]{_WORDS}(?::\w{_WORDS})*\Z")
_MUST_ESCAPE = re.compile(
    r"[^\x20-\x21\x23-\x5b\x5d-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_SHORT = {
    "\0": "\\0", "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r",
    "\x1b": "\\e", '"': '\\"', "\\": "\\\\",
}  # fmt: skip


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02X}" if code < 256 else f"\\u{code:04X}" if code < 65536 else f"\\U{code:08X}"


def scalar(value: Any, like: Node | None = None, *, flow: bool = False, plain_times: bool = False) -> str:
    """The value on one line, so that every YAML reader reads back the same, in the style of `like` where that can be.

    `plain_times` says that the file writes its times without quotes.
    """
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        text = repr(float(value))
        if not FLOAT.match(text):
            raise CannotPatch(f"{text} is not a number that can be written")
        return text if "." in text else text.replace("e", ".0e")
    if not isinstance(value, str):
        raise CannotPatch(f"{type(value).__name__} cannot be written")
    text = str(value)
    style = like.style if isinstance(like, Scalar) else "plain"
    if style == "'" and not _MUST_ESCAPE.search(text.replace('"', "").replace("\\", "")):
        return "'" + text.replace("'", "''") + "'"
    if style != "'" and style != '"' and (_is_plain_time(text, like, plain_times) or _is_plain_text(text, flow)):
        return text
    return '"' + _MUST_ESCAPE.sub(_escape, text) + '"'


def _is_plain_time(text: str, like: Node | None, plain_times: bool) -> bool:
    if not TIME.match(text):
        return False
    return bool(TIME.match(like.text)) if isinstance(like, Scalar) and isinstance(like.value, str) else plain_times


def _is_plain_text(text: str, flow: bool) -> bool:
    """Can it stand without quotes? Only if there is no doubt."""
    if not _PLAIN.match(text) or text[-1] == " " or _NOT_TEXT.match(text) or TIME.match(text):
        return False
    return not (flow and any(mark in text for mark in ",:?"))


class _Patch:
    """The splices (start, end, replacement) that turn one text into another, in the order of their making."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.lines = Lines(text)
        self.eol = "\r\n" if "\r\n" in text else "\n"
        self.splices: list[tuple[int, int, str]] = []
        self.plain_times = False
        self.step = 2  # from a key to the dashes below it
        seen = False
        for node in _walk(root):
            if isinstance(node, Mapping) and not node.flow:
                for child in node.entries.values():
                    if not seen and isinstance(child, Sequence) and not child.flow:
                        self.step = max(0, child.column - node.column)
                        seen = True
                    elif isinstance(child, Scalar) and child.style == "plain" and TIME.match(child.text):
                        self.plain_times = True

    def put(self, start: int, end: int, text: str) -> None:
        self.splices.append((start, end, text))

    def result(self) -> str:
        out: list[str] = []
        position = 0
        for start, end, text in sorted(self.splices, key=lambda splice: splice[:2]):
            if start < position:
                raise CannotPatch("two changes meet in one place")
            out.append(self.text[position:start])
            out.append(text)
            position = end
        out.append(self.text[position:])
        return "".join(out)

    def change(self, node: Node, wanted: Any, column: int, flow: bool) -> None:
        """`column` is that of the key or dash that owns the value; a block below it is indented more."""
        if isinstance(node, Mapping) and isinstance(wanted, dict) and node.entries:
            self.change_mapping(node, wanted)
        elif isinstance(node, Sequence) and isinstance(wanted, list) and node.items:
            self.change_sequence(node, wanted, column)
        elif not same(plain(node), wanted):
            self.replace(node, wanted, column, flow)

    def replace(self, node: Node, wanted: Any, column: int, flow: bool) -> None:
        if not isinstance(node, Scalar) and not (node.flow and not plain(node)):
            raise CannotPatch("a list or mapping cannot be replaced by something else in place")
        if "#" in self.text[node.start : node.end] and not isinstance(node, Scalar):
            raise CannotPatch("there is a comment inside the brackets")
        start = node.start
        if (
            isinstance(wanted, dict | list)
            and wanted
            and not flow
            and (isinstance(wanted, dict) or isinstance(wanted[0], dict))
        ):
            if isinstance(node, Scalar) and node.style != "empty" and node.value is not None:
                raise CannotPatch("a text cannot be replaced by a list or mapping in place")
            while self.text[start - 1] == " ":
                start -= 1
            self.put(start, node.end, "")
            lines = self.block_lines(wanted, column + (self.step if isinstance(wanted, list) else 2), None)
            self.insert(node.last_line, lines)
            return
        text = self.one_line(wanted, node, flow)
        if isinstance(node, Scalar):
            if node.style == "empty":
                text = " " + text
            elif node.comment:
                text += " " + node.comment
        self.put(start, node.end, text)

    def change_mapping(self, node: Mapping, wanted: dict[Any, Any]) -> None:
        missing = [key for key in node.entries if key not in wanted]
        if missing:
            raise CannotPatch(f"the key {missing[0]!r:.60} cannot be removed in place")
        after: dict[Any, list[Any]] = {}
        anchor = next(reversed(node.entries))
        for key in wanted:
            if key in node.entries:
                anchor = key
            else:
                after.setdefault(anchor, []).append(key)
        for key, child in node.entries.items():
            self.change(child, wanted[key], node.column, node.flow)
            for new in after.get(key, ()):
                if node.flow:
                    self.put(
                        child.end, child.end, f", {scalar(new, flow=True)}: {self.one_line(wanted[new], None, True)}"
                    )
                else:
                    self.insert(self.end(child), self.entry_lines(new, wanted[new], node.column))

    def change_sequence(self, node: Sequence, wanted: list[Any], column: int) -> None:
        items = node.items
        if all(isinstance(item, Scalar) for item in items):
            self.change_scalars(node, wanted, column)
            return
        if len(wanted) < len(items):
            raise CannotPatch("an item cannot be removed in place")
        for item, want in zip(items, wanted, strict=False):
            self.change(item, want, node.column, node.flow)
        self.append(node, wanted[len(items) :])

    def change_scalars(self, node: Sequence, wanted: list[Any], column: int) -> None:
        """A list of words: what is common at both ends stays, the rest is replaced, removed or added."""
        old = plain(node)
        if same(old, wanted):
            return
        if node.flow:
            if len(wanted) > len(old) and same(old, wanted[: len(old)]):
                self.append(node, wanted[len(old) :])
                return
            if "#" in self.text[node.start : node.end]:
                raise CannotPatch("there is a comment inside the brackets")
            raw = {
                item.value: self.text[item.start : item.end]
                for item in node.items
                if isinstance(item, Scalar) and isinstance(item.value, str)
            }
            parts = [
                raw.get(w) or self.one_line(w, node.items[0], True)
                if isinstance(w, str)
                else self.one_line(w, None, True)
                for w in wanted
            ]
            self.put(node.start, node.end, "[" + ", ".join(parts) + "]")
            return
        head = 0
        while head < min(len(old), len(wanted)) and same(old[head], wanted[head]):
            head += 1
        tail = 0
        while tail < min(len(old), len(wanted)) - head and same(old[-1 - tail], wanted[-1 - tail]):
            tail += 1
        gone = node.items[head : len(old) - tail]
        new = wanted[head : len(wanted) - tail]
        for item, want in zip(gone, new, strict=False):
            self.change(item, want, node.column, False)
        for number in range(head + len(new), head + len(gone)):
            self.remove_line(node, number)
        if not wanted:
            if node.column == column and self.lines.starts[node.dashes[0]] + column != node.start:
                raise CannotPatch("a nested list cannot be emptied in place")
            self.put_empty(node)
        elif len(new) > len(gone):
            like = node.items[0]
            number = head + len(gone)
            place = node.items[number - 1].last_line if number else node.dashes[0] - 1
            lines = [" " * node.column + "- " + self.one_line(want, like, False) for want in new[len(gone) :]]
            if number == 0:
                start = self.lines.starts[node.dashes[0]]
                self.put(start, start, "".join(line + self.eol for line in lines))
            else:
                self.insert(place, lines)

    def remove_line(self, node: Sequence, number: int) -> None:
        line = node.dashes[number]
        item = node.items[number]
        start = self.lines.starts[line]
        if line == 0 or item.last_line != line or self.text[start : start + node.column].strip(" "):
            raise CannotPatch("this list item cannot be removed in place")
        self.put(self.lines.ends[line - 1], self.lines.ends[line], "")

    def put_empty(self, node: Sequence) -> None:
        """Write [] after the key of a list all of whose lines go."""
        line = node.dashes[0] - 1
        while line >= 0 and self.lines.columns[line] < 0:
            line -= 1
        code = self.text[self.lines.starts[line] : self.lines.ends[line]] if line >= 0 else ""
        match = re.match(r"[^#]*:(?= *(?: #.*)?\Z)", code)
        if match is None:
            raise CannotPatch("this list cannot be emptied in place")
        place = self.lines.starts[line] + match.end()
        self.put(place, place, " []")

    def append(self, node: Sequence, new: list[Any]) -> None:
        if not new:
            return
        like = node.items[-1]
        if node.flow:
            self.put(like.end, like.end, "".join(", " + self.one_line(want, like, True) for want in new))
            return
        gap = 1
        if isinstance(like, Mapping) and not like.flow and like.column > node.column + 1:
            gap = like.column - node.column - 1
        apart = self.blank_between(node)
        lines: list[str] = []
        for want in new:
            if apart:
                lines.append("")
            lines += self.item_lines(want, node.column, gap, like)
        self.insert(self.end(node), lines)

    def end(self, node: Node) -> int:
        """The last line of a node, with the comments below a list that are indented as part of its last item."""
        if isinstance(node, Scalar) or node.flow:
            return node.last_line
        if isinstance(node, Mapping):
            return self.end(next(reversed(node.entries.values())))
        line = self.end(node.items[-1])
        while line + 1 < self.lines.count:
            below = self.text[self.lines.starts[line + 1] : self.lines.ends[line + 1]]
            comment = below.lstrip(" ")
            if not comment.startswith("#") or len(below) - len(comment) <= node.column:
                break
            line += 1
        return line

    def blank_between(self, node: Sequence) -> bool:
        if len(node.items) < 2:
            return False
        lines = self.lines
        between = range(node.items[-2].last_line + 1, node.dashes[-1])
        return any(lines.starts[line] == lines.ends[line] for line in between)

    def insert(self, after: int, lines: list[str]) -> None:
        place = self.lines.ends[after]
        self.put(place, place, "".join(self.eol + line for line in lines))

    def one_line(self, value: Any, like: Node | None, flow: bool) -> str:
        if isinstance(value, list):
            inner = like.items[0] if isinstance(like, Sequence) and like.items else None
            return "[" + ", ".join(self.one_line(item, inner, True) for item in value) + "]"
        if isinstance(value, dict):
            return (
                "{"
                + ", ".join(
                    f"{scalar(k, flow=True)}: {self.one_line(v, _child(like, k), True)}" for k, v in value.items()
                )
                + "}"
            )
        return scalar(value, like, flow=flow, plain_times=self.plain_times)

    def entry_lines(self, key: Any, value: Any, column: int, beside: Node | None = None) -> list[str]:
        """A key and its value as lines; `beside` is a mapping that has been laid out already, to be followed."""
        like = _child(beside, key)
        lead = " " * column + scalar(key) + ":"
        if isinstance(value, dict) and value:
            return [lead, *self.block_lines(value, column + 2, like)]
        if isinstance(value, list) and value:
            in_block = isinstance(like, Sequence) and bool(like.items) and not like.flow
            if in_block or isinstance(value[0], dict):
                step = self.step
                if isinstance(beside, Mapping) and isinstance(like, Sequence) and in_block:
                    step = max(0, like.column - beside.column)
                return [lead, *self.block_lines(value, column + step, like)]
        return [f"{lead} {self.one_line(value, like, False)}"]

    def item_lines(self, value: Any, column: int, gap: int, like: Node | None) -> list[str]:
        if isinstance(value, dict) and value and not (isinstance(like, Mapping) and like.flow):
            lines = self.block_lines(value, column + 1 + gap, like)
            lines[0] = " " * column + "-" + lines[0][column + 1 :]
            return lines
        return [" " * column + "-" + " " * gap + self.one_line(value, like, False)]

    def block_lines(self, value: Any, column: int, like: Node | None) -> list[str]:
        lines: list[str] = []
        if isinstance(value, dict):
            for key, inner in value.items():
                lines += self.entry_lines(key, inner, column, like)
        else:
            inner_like = like.items[-1] if isinstance(like, Sequence) and like.items else None
            for inner in value:
                lines += self.item_lines(inner, column, 1, inner_like)
        return lines


def _child(like: Node | None, key: Any) -> Node | None:
    return like.entries.get(key) if isinstance(like, Mapping) else None


def _walk(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Mapping):
        for child in node.entries.values():
            if not isinstance(child, Scalar):
                yield from _walk(child)
    elif isinstance(node, Sequence):
        for child in node.items:
            if not isinstance(child, Scalar):
                yield from _walk(child)


def patch(text: str, root: Node, wanted: Any) -> str:
    """The text changed in place so that it says `wanted`; raises CannotPatch, and never returns anything else."""
    if same(plain(root), wanted):
        return text
    work = _Patch(text, root)
    work.change(root, wanted, 0, False)
    result = work.result()
    try:
        read = plain(parse(result))
    except YamlError as error:
        raise CannotPatch(f"the changed file would not be readable ({error})") from None
    if not same(read, wanted):
        raise CannotPatch("the changed file would not say what was meant")
    return result
