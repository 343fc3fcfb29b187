"""A marked block in a text file of lines: Markdown, TOML, shell.

    text = put(text, block)         at the end, or in the place of the block that is there
    text = put(text, block, 1)      behind the first line
    text = take_out(text, kind)     None when the file held nothing else

`take_out` undoes `put` to the byte. At the end a block brings the line end before it along, whether that ends a last
line that had none or makes an empty line. Behind the first line it brings the one after it, unless the file ends there.
Only in a file that it fills alone does it begin at the first byte, and so a file that was there, empty, stays.

Marks in a fenced block of code, or indented, as Markdown that tells about dibs may show them, are none. Behind a fence
that nobody closes all is code, to the end: there the block goes before that fence.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Kind:
    """How the first and the last line of a block are written."""

    __slots__ = ("after", "before", "has_fences")

    def __init__(self, before: str, after: str, has_fences: bool = False) -> None:
        self.before = before
        self.after = after
        self.has_fences = has_fences

    def first(self, words: str) -> str:
        return f"{self.before} dibs:begin {words}".rstrip() + self.after

    @property
    def last(self) -> str:
        return f"{self.before} dibs:end{self.after}"


MARKDOWN = Kind("<!--", " -->", has_fences=True)
HASH = Kind("#", "")
_BOM = "\ufeff"


class Block:
    """The lines of a block, without its marks; `words` stand in its first mark."""

    __slots__ = ("kind", "lines", "words")

    def __init__(self, kind: Kind, words: str, lines: Sequence[str]) -> None:
        self.kind = kind
        self.words = words
        self.lines = list(lines)

    def text(self, newline: str) -> str:
        return newline.join([self.kind.first(self.words), *self.lines, self.kind.last])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and (self.words, self.lines) == (other.words, other.lines)

    __hash__ = None  # type: ignore[assignment]


def find(text: str, kind: Kind) -> Block | None:
    """The block in a text. A mark without its other half, or two blocks, raise ValueError."""
    place = _place(text, kind)
    if place is None:
        return None
    first, *lines = text[place[0] : place[1]].replace("\r\n", "\n").split("\n")
    words = first.strip()[len(f"{kind.before} dibs:begin") : len(first.strip()) - len(kind.after)]
    return Block(kind, words.strip(), lines[:-1])


def put(text: str | None, block: Block, behind_line: int = 0) -> str:
    newline = "\r\n" if "\r\n" in (text or "") else "\n"
    if text is None:
        return block.text(newline) + newline
    place = _place(text, block.kind)
    if place is not None:
        start, end = place
        return text[:start] + block.text(_newline(text, start, end)) + text[end:]
    if not behind_line:
        end = _end(text, block.kind)
        return text[:end] + newline + block.text(newline) + newline + text[end:]
    at = text.find("\n") + 1
    return text[:at] + block.text(newline) + newline + text[at:] if at else text + newline + block.text(newline)


def take_out(text: str, kind: Kind, behind_line: int = 0) -> str | None:
    place = _place(text, kind)
    if place is None:
        return text
    start, end = place
    newline = _newline(text, start, end)
    following = len(newline) if text.startswith(newline, end) else 0
    if start == 0 and end + following == len(text):
        return None
    kept, rest = text[:start], text[end + following :]
    if (following == 0 or not behind_line) and kept.endswith(newline):
        without = kept.removesuffix(newline)
        # What somebody has written behind it since must not run into the line before it.
        kept = without if not rest or without in ("", _BOM) or without.endswith("\n") else kept
    return kept + rest


def _newline(text: str, start: int, end: int) -> str:
    """The line end that a block was written with."""
    return "\r\n" if "\r\n" in text[start:end] else "\n"


def _place(text: str, kind: Kind) -> tuple[int, int] | None:
    """From the first mark to the end of the last one, its line end not included."""
    begins, ends = [], []
    for at, line, fence in _lines(text, kind):
        bare = line.rstrip() if kind.has_fences else line.strip()
        if fence is not None:
            continue
        if bare.startswith(f"{kind.before} dibs:begin") and bare.endswith(kind.after):
            begins.append(at)
        elif bare == kind.last:
            ends.append(at + len(line.rstrip("\r\n")))
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        raise ValueError(f"it needs exactly one line '{kind.before} dibs:begin …' and one '{kind.last}' behind it")
    return begins[0], ends[0]


def _end(text: str, kind: Kind) -> int:
    """Where the text ends, or the fence begins that is open there."""
    inside = None
    for _, _, fence in _lines(text, kind):
        inside = fence
    return len(text) if inside is None else inside


def _lines(text: str, kind: Kind) -> Iterator[tuple[int, str, int | None]]:
    """Each line, where it begins, and where the fence begins that it is in; a closing fence is in none."""
    at, mark, opened = 0, "", None
    for line in text.split("\n"):
        start = at + (1 if at == 0 and line.startswith(_BOM) else 0)
        found = _fence(text[start : at + len(line)]) if kind.has_fences else ""
        if opened is None:
            mark, opened = found, start if found else None
        elif found.startswith(mark) and text[start : at + len(line)].strip() == found:
            opened = None
        yield start, text[start : at + len(line)], opened
        at += len(line) + 1


def _fence(line: str) -> str:
    """The sign that opens or closes a fence, as CommonMark has it: three or more, indented by three at most."""
    bare = line.lstrip(" ")
    sign = bare[:1]
    length = len(bare) - len(bare.lstrip(sign)) if sign in ("`", "~") else 0
    if length < 3 or len(line) - len(bare) > 3 or (sign == "`" and "`" in bare[length:]):
        return ""
    return bare[:length]
