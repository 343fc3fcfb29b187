"""The part of YAML that people write by hand, read with the place of every value.

`parse(text)` gives a tree of nodes, `plain(node)` the same as dicts, lists and scalars; `yamlpatch` makes changes in
place. No I/O.

Read are: block and flow collections, plain, quoted and block scalars on one line or several, comments, one leading
`---`. Refused, with the line and the reason, is what says more than it shows or what YAML's versions read differently:
anchors, aliases, merge keys, tags, directives, several documents, `? ` keys, repeated keys, tabs as blanks, raw control
characters, deep nesting. So no input grows in memory beyond a constant times its size, and nothing is ever made of it
but text, numbers, booleans and null. Times stay text.

This is not a general YAML library because a pure one takes ten times as long to read a file, and because what it writes
back is laid out its own way. The tests hold it against one: whatever is accepted here means the same there.
"""

from __future__ import annotations

import re
from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 60
MAX_KEY = 1000  # YAML ends the search for the colon of a simple key at 1024 characters


class YamlError(ValueError):
    """Text that is not YAML, or YAML that is refused. `line` counts from 1."""

    def __init__(self, what: str, line: int) -> None:
        self.what = what
        self.line = line
        super().__init__(f"line {line}: {what}")


class Scalar:
    """One value. `style` is plain, a quote, | or >, or empty: nothing is written, and the place is after the colon."""

    __slots__ = ("start", "end", "last_line", "style", "text", "value", "comment")

    def __init__(
        self, start: int, end: int, last_line: int, style: str, text: str, value: Any, comment: str = ""
    ) -> None:
        self.start = start
        self.end = end
        self.last_line = last_line
        self.style = style
        self.text = text
        self.value = value
        self.comment = comment


class Mapping:
    __slots__ = ("start", "end", "last_line", "column", "flow", "entries")

    def __init__(self, start: int, column: int, flow: bool) -> None:
        self.start = start
        self.end = start
        self.last_line = 0
        self.column = column
        self.flow = flow
        self.entries: dict[Any, Node] = {}


class Sequence:
    """`dashes` holds the first line of each item of a block sequence, `column` the column of its dashes."""

    __slots__ = ("start", "end", "last_line", "column", "flow", "items", "dashes")

    def __init__(self, start: int, column: int, flow: bool) -> None:
        self.start = start
        self.end = start
        self.last_line = 0
        self.column = column
        self.flow = flow
        self.items: list[Node] = []
        self.dashes: list[int] = []


Node = Scalar | Mapping | Sequence

_LINE = re.compile(r"( *)([^\r\n]*)(\r?\n|\Z)")
_BAD_CHARACTER = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|\r(?!\n)"
)
# The lines that make up nearly all of a file: `key: word or words`, no character in it that could mean anything.
_EASY = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*+):(?: ++([A-Za-z0-9_./()+][A-Za-z0-9_./()+-]*+(?: ++[A-Za-z0-9_./()+-]++)*+))?"
    r"(?= *(?: #[^\r\n]*)?(?:\r?\n|\Z))"
)
_DASH = re.compile(r"-(?=[ \r\n]|\Z)")
_BLANKS = re.compile(r" *")
_REST = re.compile(r" *(?:(?:(?<= )|(?<=[\r\n])|^)#[^\r\n]*)?(?=\r?\n|\Z)")
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.|\\\r?\n)*)"', re.DOTALL)
_KEY_COLON = re.compile(r":(?=[ \r\n]|\Z)")
_BLOCK_HEADER = re.compile(r"([|>])(?:([1-9])([+-]?)|([+-])([1-9]?))?( +#[^\r\n]*| *)(?=\r?\n|\Z)")
_FLOW_PLAIN = re.compile(
    r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`]|[\-?:](?=[^\s,\[\]{}]))"
    r"(?:[^\s:,\[\]{}]|:(?=[^\s,\[\]{}])| +(?=[^\s:#,\[\]{}])| +:(?=[^\s,\[\]{}]))*"
)
_MARKER = re.compile(r"(?:---|\.\.\.)(?=[ \r\n]|\Z)")

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,400}\Z")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?\Z")
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX = {"x": 2, "u": 4, "U": 8}
_REFUSED = {
    "&": "an anchor (&) is not supported",
    "*": "an alias (*) is not supported",
    "!": "a tag (!) is not supported",
    "%": "a value cannot start with %",
    "@": "a value cannot start with @",
    "`": "a value cannot start with a backtick",
    "?": "a key that starts with '? ' is not supported",
    "|": "a block scalar needs nothing but its indicators on its first line",
    ">": "a block scalar needs nothing but its indicators on its first line",
    ",": "a value cannot start with a comma",
    "]": "a ] without its [",
    "}": "a } without its {",
    ":": "a colon without a key",
    "-": "a dash where no list item can be",
    "\t": "a tab where only spaces may be",
}


def resolve(text: str) -> Any:
    """What a plain scalar means, by YAML 1.2's core schema; what is not surely a number is text."""
    first = text[:1]
    if first.isalpha():
        if text in _NULLS:
            return None
        return _BOOLS.get(text, text)
    if text in _NULLS:
        return None
    if first in "0123456789+-.":
        if _INT.match(text):
            return int(text)
        if FLOAT.match(text):
            return float(text)
    return text


def parse(text: str) -> Node:
    """The root of the tree; an empty file is an empty scalar."""
    return _Parser(text).document()


def plain(node: Node) -> Any:
    """A fresh copy of what the node says."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.entries.items()}
    return [plain(item) for item in node.items]


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type: 1, 1.0 and true are three things."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(key in b and same(value, b[key]) for key, value in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


class Lines:
    """Where the lines of a text begin and end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts: list[int] = []  # of each line
        self.columns: list[int] = []  # of its first character that is not a space; -1 if it is blank or a comment
        self.ends: list[int] = []  # without the line break
        position = 1 if text[:1] == "\ufeff" else 0
        bad = _BAD_CHARACTER.search(text, position)
        if bad is not None:
            line = text.count("\n", 0, bad.start()) + 1
            raise YamlError(f"the character U+{ord(bad[0]):04X} cannot stand there as it is", line)
        while True:
            match = _LINE.match(text, position)
            assert match is not None
            content = match[2]
            self.starts.append(position)
            self.columns.append(len(match[1]) if content and content[0] != "#" else -1)
            self.ends.append(match.end(2))
            position = match.end()
            if not match[3]:
                break
        self.count = len(self.starts)

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset) - 1


class _Parser(Lines):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.line = 0  # the next line to be looked at
        self.depth = 0

    def fail(self, what: str, line: int | None = None) -> YamlError:
        return YamlError(what, (self.line if line is None else line) + 1)

    def skip(self) -> bool:
        """Move to the next line with content; False at the end."""
        columns = self.columns
        line = self.line
        while line < self.count and columns[line] < 0:
            line += 1
        self.line = line
        return line < self.count

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(f"nested more than {MAX_DEPTH} deep")

    def document(self) -> Node:
        if not self.skip():
            return Scalar(len(self.text), len(self.text), self.count - 1, "empty", "", None)
        start = self.starts[self.line]
        if self.text.startswith("---", start) and self.columns[self.line] == 0:
            rest = _REST.match(self.text, start + 3)
            if rest is None:
                raise self.fail("nothing but a comment may follow '---' on its line")
            self.line += 1
            if not self.skip():
                return Scalar(len(self.text), len(self.text), self.count - 1, "empty", "", None)
        elif self.text.startswith("%", start):
            raise self.fail("a directive (%) is not supported")
        node = self.block(self.columns[self.line], -1)
        if self.skip():
            raise self.fail("this line does not belong to what is above it; is its indentation right?")
        return node

    def block(self, column: int, parent: int) -> Node:
        """The node at `column` of the current line; `parent` is the column that its further lines must exceed."""
        position = self.starts[self.line] + column
        if column == 0 and _MARKER.match(self.text, position):
            raise self.fail("a second document, or the end mark of one, is not supported")
        if _DASH.match(self.text, position):
            return self.sequence(column)
        if _EASY.match(self.text, position) or self.key(position) is not None:
            return self.mapping(column)
        return self.value(position, parent)

    def key(self, position: int) -> tuple[Any, int] | None:
        """The key at `position` and the offset after its colon, or None if no key is there."""
        text = self.text
        end = self.ends[self.line]
        first = text[position]
        if first in "\"'":
            match = (_SINGLE if first == "'" else _DOUBLE).match(text, position, end)
            if match is None:
                return None
            blanks = _BLANKS.match(text, match.end())
            assert blanks is not None
            colon = _KEY_COLON.match(text, blanks.end())
            if colon is None:
                return None
            if match.end() - position > MAX_KEY:
                raise self.fail("a key is too long")
            return self.quoted(match[1], first), colon.end()
        if first in "[{&*!|>%@`,]}#":
            return None
        if first in "-?:" and text[position + 1 : position + 2] in ("", " ", "\r", "\n"):
            return None
        found = _KEY_COLON.search(text, position, end)
        # A search that is cut off at `end` takes it for the end of the text, which is right: the line ends there.
        if found is None:
            return None
        raw = text[position : found.start()]
        if " #" in raw:
            return None
        if "\t" in raw:
            raise self.fail(_REFUSED["\t"])
        if len(raw) > MAX_KEY:
            raise self.fail("a key is too long")
        return resolve(raw.rstrip(" ")), found.end()

    def mapping(self, column: int) -> Mapping:
        self.enter()
        node = Mapping(self.starts[self.line] + column, column, False)
        entries = node.entries
        text, starts, columns, count = self.text, self.starts, self.columns, self.count
        first = True
        while True:
            line = self.line
            position = starts[line] + column
            easy = _EASY.match(text, position)
            following = columns[line + 1] if line + 1 < count else 0
            key: Any
            value: Node
            if easy is not None and 0 <= following <= column and (raw := easy[2]) is not None:
                key = easy[1]
                if key in entries or key in _NULLS or key in _BOOLS:
                    key = self.new_key(resolve(key), entries)
                value = Scalar(easy.start(2), easy.end(2), line, "plain", raw, resolve(raw))
                self.line = line + 1
            else:
                if first is False and column == 0 and _MARKER.match(text, position):
                    raise self.fail("a second document, or the end mark of one, is not supported")
                found = None if _DASH.match(text, position) else self.key(position)
                if found is None:
                    raise self.fail(_REFUSED.get(text[position], "a key and a colon are expected here"))
                key = self.new_key(found[0], entries)
                value = self.after(found[1], column, indentless=True)
            entries[key] = value
            node.end = value.end
            node.last_line = value.last_line
            first = False
            if not self.skip() or columns[self.line] < column:
                break
            if columns[self.line] > column:
                raise self.fail("this line is indented more than the key above it allows")
        self.depth -= 1
        return node

    def new_key(self, key: Any, entries: dict[Any, Node]) -> Any:
        if key == "<<":
            raise self.fail("a merge key (<<) is not supported")
        if key in entries:
            raise self.fail(f"the key {key!r:.60} occurs twice")
        return key

    def sequence(self, column: int) -> Sequence:
        self.enter()
        text, starts, columns = self.text, self.starts, self.columns
        node = Sequence(starts[self.line] + column, column, False)
        while True:
            line = self.line
            node.dashes.append(line)
            value = self.after(starts[line] + column + 1, column, indentless=False)
            node.items.append(value)
            node.end = value.end
            node.last_line = value.last_line
            if not self.skip() or columns[self.line] != column or not _DASH.match(text, starts[self.line] + column):
                break
        if self.line < self.count and columns[self.line] > column:
            raise self.fail("this line is indented more than the list item above it allows")
        self.depth -= 1
        return node

    def after(self, position: int, column: int, *, indentless: bool) -> Node:
        """The value after a colon or a dash that ends at `position`, in a collection at `column`."""
        line = self.line
        rest = _REST.match(self.text, position)
        if rest is not None:
            self.line += 1
            if self.skip():
                below = self.columns[self.line]
                if below > column:
                    return self.block(below, column)
                if below == column and indentless and _DASH.match(self.text, self.starts[self.line] + column):
                    return self.sequence(column)
            return Scalar(position, position, line, "empty", "", None)
        blanks = _BLANKS.match(self.text, position)
        assert blanks is not None
        position = blanks.end()
        if not indentless:  # after a dash a collection may start on the same line
            inner = position - self.starts[line]
            if _DASH.match(self.text, position):
                self.columns[line] = inner
                return self.sequence(inner)
            if _EASY.match(self.text, position) or self.key(position) is not None:
                self.columns[line] = inner
                return self.mapping(inner)
        return self.value(position, column)

    def value(self, position: int, parent: int) -> Node:
        """A scalar or flow collection at `position`; further lines of a plain one are indented more than `parent`."""
        text = self.text
        first = text[position]
        if first in "|>":
            return self.block_scalar(position, parent)
        node: Node
        if first in "\"'":
            node = self.quoted_scalar(position)
        elif first in "[{":
            node = self.flow(position)
        else:
            return self.plain_scalar(position, parent)
        rest = _REST.match(text, node.end)
        if rest is None:
            raise self.fail("something follows the value on its line", node.last_line)
        self.line = node.last_line + 1
        return node

    def plain_scalar(self, position: int, parent: int) -> Scalar:
        text = self.text
        line = self.line
        first = text[position]
        if first in "&*!|>%@`,[]{}\t" or (
            first in "-?:" and text[position + 1 : position + 2] in ("", " ", "\r", "\n")
        ):
            raise self.fail(_REFUSED[first])
        words: list[str] = []
        start = position
        blank = 0
        last = line
        end = start
        while True:
            raw = text[position : self.ends[line]]
            comment = raw.find(" #")
            if comment >= 0:
                raw = raw[:comment]
            raw = raw.rstrip(" ")
            if "\t" in raw:
                raise self.fail(_REFUSED["\t"], line)
            if ": " in raw or raw.endswith(":"):
                raise self.fail("a colon with a blank after it; put the value into quotes", line)
            if words:
                words.append("\n" * blank if blank else " ")
            words.append(raw)
            end = position + len(raw)
            last = line
            blank = 0
            line += 1
            if comment >= 0:
                break
            while line < self.count and not text[self.starts[line] : self.ends[line]].strip(" "):
                blank += 1
                line += 1
            if line >= self.count or self.columns[line] <= parent:
                break
            position = self.starts[line] + self.columns[line]
            if self.columns[line] == 0 and _MARKER.match(text, position):
                raise self.fail("a second document, or the end mark of one, is not supported", line)
        self.line = last + 1
        said = "".join(words)
        return Scalar(start, end, last, "plain", said, resolve(said) if last == self.line_at(start) else said)

    def quoted_scalar(self, position: int) -> Scalar:
        quote = self.text[position]
        match = (_SINGLE if quote == "'" else _DOUBLE).match(self.text, position)
        if match is None:
            raise self.fail(f"the {quote} is never closed", self.line_at(position))
        last = self.line_at(match.end() - 1)
        line = self.line_at(position)
        for further in range(line + 1, last + 1):
            if _MARKER.match(self.text, self.starts[further]):
                raise self.fail("a second document, or the end mark of one, is not supported", further)
        said = self.quoted(match[1], quote)
        return Scalar(position, match.end(), last, quote, said, said)

    def quoted(self, raw: str, quote: str) -> str:
        if "\n" in raw:
            raw = self.folded(raw, quote)
        if quote == "'":
            return raw.replace("''", "'")
        return self.unescaped(raw) if "\\" in raw else raw

    def folded(self, raw: str, quote: str) -> str:
        """Lines of a quoted scalar joined: a line break is a blank, further ones stay. Escapes are left in."""
        lines = raw.replace("\r\n", "\n").split("\n")
        out = [lines[0]]
        breaks = 0
        joined = False  # the line before ended in a backslash
        for number, line in enumerate(lines):
            if number == 0:
                stripped = line
            else:
                stripped = line.lstrip(" \t")
                if not stripped and number < len(lines) - 1:
                    breaks += 1
                    continue
                out.append("\n" * breaks if breaks or joined else " ")
                breaks = 0
                out.append(stripped)
            joined = False
            if number < len(lines) - 1:
                tail = out[-1]
                slashes = len(tail) - len(tail.rstrip("\\"))
                if quote == '"' and slashes % 2:
                    out[-1] = tail[:-1]
                    joined = True
                else:
                    shorter = tail.rstrip(" \t")
                    kept = len(shorter) - len(shorter.rstrip("\\"))
                    if quote == '"' and kept % 2 and shorter != tail:
                        shorter += tail[len(shorter)]  # the blank after a backslash is escaped
                    out[-1] = shorter
        return "".join(out)

    def unescaped(self, raw: str) -> str:
        out: list[str] = []
        position = 0
        while (slash := raw.find("\\", position)) >= 0:
            out.append(raw[position:slash])
            letter = raw[slash + 1 : slash + 2]
            if letter in _HEX:
                digits = raw[slash + 2 : slash + 2 + _HEX[letter]]
                try:
                    if len(digits) < _HEX[letter] or not digits.isalnum():
                        raise ValueError
                    character = chr(int(digits, 16))
                except (ValueError, OverflowError):
                    raise self.fail(f"\\{letter}{digits} is not an escape") from None
                if "\ud800" <= character <= "\udfff":
                    raise self.fail(f"\\{letter}{digits} is half of a character")
                out.append(character)
                position = slash + 2 + _HEX[letter]
            else:
                if letter not in _ESCAPES:
                    raise self.fail(f"\\{letter} is not an escape")
                out.append(_ESCAPES[letter])
                position = slash + 2
        out.append(raw[position:])
        return "".join(out)

    def block_scalar(self, position: int, parent: int) -> Scalar:
        text, starts, ends = self.text, self.starts, self.ends
        header = _BLOCK_HEADER.match(text, position)
        if header is None or parent < 0:
            raise self.fail(_REFUSED["|"])
        chomp = header[3] or header[4] or ""
        given = header[2] or header[5]
        line = self.line + 1
        indent = parent + int(given) if given else 0
        if not given:
            deepest = 0
            probe = line
            while probe < self.count:
                content = text[starts[probe] : ends[probe]]
                if content.strip(" "):
                    indent = len(content) - len(content.lstrip(" "))
                    break
                deepest = max(deepest, len(content))
                probe += 1
            indent = max(indent, parent + 1)
            if deepest > indent:
                raise self.fail(
                    "a blank line of a block scalar is indented more than its first line of text", probe - 1
                )
        pieces: list[str] = []
        breaks = 0
        folded = header[1] == ">"
        previous: str | None = None
        last = self.line
        ended = True  # the last line of text has a line break after it
        while line < self.count:
            content = text[starts[line] : ends[line]]
            if len(content) <= indent and not content.strip(" "):
                if line == self.count - 1:
                    break  # what is after the last line break is no line
                breaks += 1
                line += 1
                continue
            if content[:indent].strip(" "):
                break
            if content.startswith("\t", indent) and not content.strip(" \t"):
                raise self.fail(_REFUSED["\t"], line)
            body = content[indent:]
            if previous is not None:
                if folded and previous[:1] not in (" ", "\t") and body[0] not in " \t":
                    pieces.append("" if breaks else " ")
                else:
                    pieces.append("\n")
            pieces.append("\n" * breaks)
            pieces.append(body)
            previous = body
            breaks = 0
            last = line
            ended = line < self.count - 1
            line += 1
        if previous is not None and chomp != "-" and ended:
            pieces.append("\n")
        if chomp == "+":
            pieces.append("\n" * breaks)
            last += breaks
        self.line = line
        said = "".join(pieces)
        return Scalar(position, ends[last], last, header[1], said, said, header[6].strip(" "))

    def flow(self, position: int) -> Node:
        self.enter()
        text = self.text
        opening = text[position]
        closing = "]" if opening == "[" else "}"
        sequence = Sequence(position, -1, True)
        mapping = Mapping(position, -1, True)
        position = self.flow_space(position + 1)
        while text[position] != closing:
            if opening == "[":
                item = self.flow_value(position)
                sequence.items.append(item)
                position = self.flow_space(item.end)
                if text[position] == ":":
                    raise self.fail("a key inside [ ] needs { } around it", self.line_at(position))
            else:
                key, position = self.flow_key(position)
                self.line = self.line_at(position)
                key = self.new_key(key, mapping.entries)
                position = self.flow_space(position)
                if text[position] in ",}":
                    raise self.fail("a key without a value inside { }", self.line_at(position))
                item = self.flow_value(position)
                mapping.entries[key] = item
                position = self.flow_space(item.end)
            if text[position] == ",":
                position = self.flow_space(position + 1)
            elif text[position] != closing:
                raise self.fail(f"a comma or {closing} is expected", self.line_at(position))
        node = sequence if opening == "[" else mapping
        node.end = position + 1
        node.last_line = self.line_at(position)
        self.depth -= 1
        return node

    def flow_key(self, position: int) -> tuple[Any, int]:
        text = self.text
        line = self.line_at(position)
        quoted = text[position] in "\"'"
        if text[position] in "[{":
            raise self.fail("a key must be one word or text in quotes", line)
        scalar = self.flow_value(position)
        assert isinstance(scalar, Scalar)
        end = scalar.end
        if not quoted:
            while text[end : end + 1] == " ":
                end += 1
        if scalar.last_line != line or text[end : end + 1] != ":" or scalar.end - position > MAX_KEY:
            raise self.fail("a key and a colon are expected here", line)
        if not quoted and text[end + 1 : end + 2] not in (" ", "\n", "\r"):
            raise self.fail("a blank is expected after the colon", line)
        return scalar.value, end + 1

    def flow_value(self, position: int) -> Node:
        text = self.text
        first = text[position]
        if first in "[{":
            return self.flow(position)
        if first in "\"'":
            return self.quoted_scalar(position)
        match = _FLOW_PLAIN.match(text, position)
        line = self.line_at(position)
        if match is None:
            raise self.fail(_REFUSED.get(first, "a value is expected here"), line)
        after = self.flow_space(match.end())
        if text[after] not in ",]}:" or (text[after] == ":" and self.line_at(after) != line):
            raise self.fail("text over several lines inside brackets is not supported", line)
        return Scalar(position, match.end(), line, "plain", match[0], resolve(match[0]))

    def flow_space(self, position: int) -> int:
        """The next character that is not a blank, a line break or in a comment."""
        text = self.text
        size = len(text)
        while position < size:
            character = text[position]
            if character in " \r":
                position += 1
            elif character == "\n":
                position += 1
                if _MARKER.match(text, position):
                    raise self.fail(
                        "a second document, or the end mark of one, is not supported", self.line_at(position)
                    )
            elif character == "#" and text[position - 1] in " \n":
                position = self.ends[self.line_at(position)]
            else:
                return position
        raise self.fail("a bracket is never closed", self.count - 1)
