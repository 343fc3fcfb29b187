"""A JSON document whose `tasks` member is a list of objects, as text that can be edited without being rewritten.

Documents 000 and 004 keep a board in one such file, which other programs and people write too. Decoding it and dumping
it again would cost a whole file for each claim and would lose how the others wrote it. So a `JsonList` keeps each
element's own text beside its decoded form: a change re-encodes the members that changed, in the style found around
them, and every other byte stays: key order, unknown keys, numbers as written, indentation, the final newline. What is
in the form of `json.dumps(…, indent=2)` stays in exactly that form.

    board = parse(data)                          # decode everything: about the cost of json.loads
    board.replace(board.index["a1"], {"status": "completed"})
    data = board.render()
    newer = parse(other_data, board)             # decode only what differs from `board`
    newer.changed_from(board)                    # the indices to look at again

`rows`, `top` and `index` are for reading; change them by `replace`, `append`, `remove` and `set_top`. An operation that
raises has changed nothing. Work on a `copy` when the change may still be given up.

Parsing with an earlier document is exact, not a guess. Elements are objects, so where one ends does not depend on what
follows, and a reader that stands right behind an element knows nothing else about what came before it. Hence a run of
elements whose text (with the gaps between them) equals a run of the earlier text decodes to the same rows; whatever
does not is decoded, and too many differences, or any error, lead to a full parse, which also finds the words for it.

Errors: `BoardUnusable` for a document that cannot be used, with line and column; `Invalid` for a value that JSON
cannot hold. Nothing here touches a file.
"""

from __future__ import annotations

from itertools import accumulate

from dibs.dialects.jsonreader import Reader
from dibs.dialects.jsonstyle import Style, encode, line_of, same, unit_of
from dibs.errors import BoardUnusable, Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.dialects.jsonreader import Span


def parse(data: bytes, earlier: JsonList | None = None, *, name: str = "") -> JsonList:
    """Read a document. `earlier`, an older state of the same file, only makes it faster. `name` is for messages."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        Reader(before, name).fail(len(before), "not UTF-8")
    if earlier is not None:
        try:
            found = _reparse(text, earlier, name)
        except BoardUnusable:
            found = None
        if found is not None:
            return found
    return _parse(text, name)


def new(top: Mapping[str, Any]) -> JsonList:
    """A document with these members, as `json.dumps(top, indent=2)` writes it; `tasks` is added if missing."""
    return _parse(encode({**top, "tasks": top.get("tasks", [])}, "\n", "  ", ": ", True), "")


class JsonList:
    """The document: `rows` (the decoded elements of `tasks`), `top` (the other members), and how they were written."""

    __slots__ = (
        "top",
        "rows",
        "_name",
        "_head",
        "_before",
        "_gaps",
        "_texts",
        "_trail",
        "_tail",
        "_after",
        "_index",
        "_ascii",
        "_text",
        "_offsets",
        "_stamp",
        "_since",
    )

    def __init__(self, name: str) -> None:
        self.top: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self._name = name
        # The text is the head, up to `[` of tasks; for each element a gap and its text; the trail; the tail, from `]`.
        self._head = ""
        self._before: dict[str, Span] = {}  # where the values of the members in the head are
        self._gaps: list[str] = []
        self._texts: list[str] = []
        self._trail = ""
        self._tail = ""
        self._after: dict[str, Span] = {}  # the same for the tail
        self._index: dict[str, int] | None = None
        self._ascii = True  # are characters outside ASCII written as escapes? They are, unless somebody has not
        self._text: str | None = None
        self._offsets: list[int] | None = None
        # A stamp names this state without keeping it alive: a parsed document remembers what it was compared with.
        self._stamp = object()
        self._since: tuple[object, list[int]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def index(self) -> dict[str, int]:
        """Where each id is."""
        if self._index is None:
            self._index = {row["id"]: at for at, row in enumerate(self.rows)}
        return self._index

    @property
    def text(self) -> str:
        if self._text is None:
            pieces = [""] * (2 * len(self._texts))
            pieces[0::2] = self._gaps
            pieces[1::2] = self._texts
            self._text = "".join([self._head, *pieces, self._trail, self._tail])
        return self._text

    def render(self) -> bytes:
        return self.text.encode()

    def copy(self) -> JsonList:
        """The same document, to be changed apart from this one."""
        made = JsonList(self._name)
        for slot in self.__slots__:
            setattr(made, slot, getattr(self, slot))
        made.top = self.top.copy()
        made.rows = self.rows.copy()
        made._gaps = self._gaps.copy()
        made._texts = self._texts.copy()
        made._index = None if self._index is None else self._index.copy()
        return made

    def changed_from(self, earlier: JsonList) -> list[int]:
        """The indices of elements that `earlier` has not, or has with another text. One that moved has not changed."""
        if self._stamp is earlier._stamp:
            return []
        if self._since is not None and self._since[0] is earlier._stamp:
            return self._since[1]
        known, texts = earlier.index, earlier._texts
        found = []
        for at, (row, text) in enumerate(zip(self.rows, self._texts, strict=True)):
            there = known.get(row["id"])
            if there is None or texts[there] != text:
                found.append(at)
        return found

    def gone_from(self, earlier: JsonList) -> list[str]:
        """The ids that `earlier` has and this document has not."""
        return [] if self._stamp is earlier._stamp else [i for i in earlier.index if i not in self.index]

    def replace(self, at: int, mapping: Mapping[str, Any]) -> None:
        """Set these members of an element. The others stay as they are, and so does each whose value is the same."""
        text = self._texts[at]
        members, style = self._element(at)
        row = self.rows[at]
        pieces: list[str] = []
        done = 0
        for key, (begin, end) in members.items():
            if key in mapping and not same(row[key], mapping[key]):
                old = text[begin:end]
                inline = old[0] in "[{" and len(old) > 2 and "\n" not in old
                pieces += (text[done:begin], style.value(mapping[key], inline))
                done = end
        pieces.append(text[done:end])
        pieces += [style.comma + style.member(key, value) for key, value in mapping.items() if key not in members]
        pieces.append(text[end:])
        if (written := "".join(pieces)) != text:
            self._put(at, written)

    def append(self, mapping: Mapping[str, Any]) -> int:
        """Add an element, written as its neighbour is; its index."""
        if self.rows:
            style = self._element(len(self.rows) - 1)[1]
            gap = self._gaps[-1] if len(self.rows) > 1 else self._next_gap(style)
            trail = self._trail
        else:
            style, gap, trail = self._first_style()
        self._put(len(self.rows), style.element(mapping), gap)
        self._trail = trail
        return len(self.rows) - 1

    def remove(self, at: int) -> None:
        """Take an element out."""
        row = self.rows.pop(at)
        del self._texts[at]
        # The first gap has no comma, so the second element's gap goes when the first element does.
        del self._gaps[1 if at == 0 and len(self._gaps) > 1 else at]
        if not self.rows:
            self._trail = ""
        if self._index is not None and at == len(self.rows):
            del self._index[row["id"]]
        else:
            self._index = None
        self._touched()

    def set_top(self, key: str, value: Any) -> None:
        """Set a member of the document itself; a new one is written last."""
        if key == "tasks":
            raise Invalid("the list of tasks is not set as a whole")
        if key in self.top and same(self.top[key], value):
            return
        opening = self._opening()
        line = line_of(opening)
        written = encode(value, line, unit_of(line, ""), self._colon(), self._ascii)
        decoded, _ = Reader(written, self._name).value(0)
        if key in self._before:
            begin, end = self._before[key]
            self._head = self._head[:begin] + written + self._head[end:]
            self._before = Reader(self._head, self._name).head()[1]
        else:
            if key in self._after:
                begin, end = self._after[key]
                self._tail = self._tail[:begin] + written + self._tail[end:]
            else:
                end = max([1, *(end for _, end in self._after.values())])
                comma = "," + opening if line else ", " if self._colon() != ":" else ","
                member = comma + encode(key, None, "", "", self._ascii) + self._colon() + written
                self._tail = self._tail[:end] + member + self._tail[end:]
            self._after = Reader(self._tail, self._name).tail(0)[0]
        self.top[key] = decoded
        self._touched()

    def _put(self, at: int, text: str, gap: str | None = None) -> None:
        """Store an element's new text, as a new element if it comes with a gap."""
        row, _ = Reader(text, self._name).element(0)
        if self.index.get(row["id"], at) != at:
            raise Invalid(f"the id {row['id']!r:.80} is on the board already")
        if gap is None:
            del self.index[self.rows[at]["id"]]
            self.rows[at] = row
            self._texts[at] = text
        else:
            self.rows.append(row)
            self._texts.append(text)
            self._gaps.append(gap)
        self.index[row["id"]] = at
        self._touched()

    def _touched(self) -> None:
        self._text = self._offsets = self._since = None
        self._stamp = object()

    def _places(self) -> list[int]:
        """Where the gap before each element starts in the text, and where the last element ends."""
        if self._offsets is None:
            gaps, texts = self._gaps, self._texts
            lengths = [len(gap) + len(text) for gap, text in zip(gaps, texts, strict=True)]
            self._offsets = list(accumulate(lengths, initial=len(self._head)))
        return self._offsets

    def _element(self, at: int) -> tuple[dict[str, Span], Style]:
        """Where the values of an element's members are in its text, and how it is written."""
        text = self._texts[at]
        reader = Reader(text, self._name)
        members: dict[str, Span] = {}
        comma = colon = None
        opening = text[1 : reader.skip(1)]
        pos = 1 + len(opening)
        while True:
            key, begin, end = reader.member(pos)
            if key in members:
                where = self._places()[at] + len(self._gaps[at]) + pos
                Reader(self.text, self._name).fail(where, f"the key {key!r:.80} stands twice in one object")
            members[key] = (begin, end)
            if colon is None:
                colon = text[text.rindex('"', pos, begin) + 1 : begin]
            following = reader.skip(end)
            if text[following] == "}":
                break
            pos = reader.skip(following + 1)
            comma = text[end:pos]
        closing = text[end:-1]
        if comma is None:
            comma = "," + opening if "\n" in opening else ", " if colon != ":" else ","
        return members, Style(opening, comma, colon, closing, self._ascii)

    def _first_style(self) -> tuple[Style, str, str]:
        """How the first element of an empty list is written: style, gap before and blanks behind it."""
        line, colon = line_of(self._opening()), self._colon()
        if line is None:
            return Style("", "," if colon == ":" else ", ", colon, "", self._ascii), "", ""
        unit = unit_of(line, "")
        outer, inner = line + unit, line + unit + unit
        return Style(inner, "," + inner, colon, outer, self._ascii), outer, line

    def _next_gap(self, style: Style) -> str:
        lead = self._gaps[0]
        return "," + (line_of(lead) or ("" if style.comma == "," else " "))

    def _opening(self) -> str:
        """The blanks between the document's `{` and its first key."""
        begin = self._head.index("{") + 1
        return self._head[begin : self._head.index('"', begin)]

    def _colon(self) -> str:
        """What stands between the key `tasks` and its value."""
        return self._head[self._head.rindex('"') + 1 : -1]


def _parse(text: str, name: str) -> JsonList:
    reader = Reader(text, name)
    if text.startswith("\ufeff"):
        reader.fail(0, "starts with a byte order mark")
    made = JsonList(name)
    start, made._before, made.top = reader.head()
    made._head = text[:start]
    made.rows, made._gaps, made._texts, end = reader.elements(start)
    _finish(made, reader, end)
    made._text = text
    made._ascii = text.isascii()
    made._index = {row["id"]: at for at, row in enumerate(made.rows)}
    if len(made._index) != len(made.rows):
        seen: set[str] = set()
        for at, row in enumerate(made.rows):
            if row["id"] in seen:
                where = made._places()[at] + len(made._gaps[at])
                reader.fail(where, f"a second task with the id {row['id']!r:.80}")
            seen.add(row["id"])
    return made


def _finish(made: JsonList, reader: Reader, end: int) -> None:
    """Read what stands behind the last element."""
    close = reader.skip(end)
    made._trail = reader.text[end:close]
    made._after, values = reader.tail(close)
    made._tail = reader.text[close:]
    for key in made._after:
        if key in made._before:
            reader.fail(close + made._after[key][0], f"the key {key!r:.80} stands twice in one object")
    made.top.update(values)


def _reparse(text: str, earlier: JsonList, name: str) -> JsonList | None:
    """The document, taking from `earlier` every run of elements that is the same text; None if that does not pay."""
    old = earlier.text
    if text == old:
        same = earlier.copy()
        same._name = name
        same._since = None
        return same
    reader = Reader(text, name)
    made = JsonList(name)
    if text.startswith(earlier._head):
        at, made._before = len(earlier._head), earlier._before
        made.top = {key: earlier.top[key] for key in made._before}
    else:
        at, made._before, made.top = reader.head()
    made._head = text[:at]
    rows, gaps, texts = made.rows, made._gaps, made._texts
    places, count = earlier._places(), len(earlier.rows)
    changed: list[int] = []
    limit = 32 + count // 8
    there = 0  # the element of `earlier` that would be next if nothing had changed
    replaced = True  # so far, has each element taken the place of one with its id?
    while True:
        # At the start of the list no comma precedes an element, elsewhere one does: only like may follow like.
        if (there == 0) == (not rows):
            until = _run(text, at, old, places, there)
            if until == there and there + 1 < count and there and _run(text, at, old, places, there + 1) > there + 1:
                there += 1  # this one was taken out, the next ones follow
                replaced = False
                limit -= 1
                continue
            if until > there:
                rows += earlier.rows[there:until]
                gaps += earlier._gaps[there:until]
                texts += earlier._texts[there:until]
                at += places[until] - places[there]
                there = until
        begin = reader.next_element(at, not rows)
        if begin < 0:
            break
        if limit <= len(changed):
            return None
        row, end = reader.element(begin)
        changed.append(len(rows))
        if there >= count or earlier.rows[there]["id"] != row["id"] or there != len(rows):
            replaced = False
        rows.append(row)
        gaps.append(text[at:begin])
        texts.append(text[begin:end])
        at = end
        # An element that was put in leaves the one that stood here to come next.
        if there < count and not (there and _run(text, at, old, places, there) > there):
            there += 1
    _finish(made, reader, at)
    made._text = text
    made._ascii = text.isascii()
    if replaced and len(rows) == count:
        made._index = earlier.index.copy()
    elif len(made.index) != len(rows):
        return None
    changed = [at for at in changed if not _stood(earlier, made, at)]
    made._since = (earlier._stamp, changed)
    return made


def _stood(earlier: JsonList, made: JsonList, at: int) -> bool:
    """Does `earlier` have this element, with the same text, somewhere?"""
    there = earlier.index.get(made.rows[at]["id"])
    return there is not None and earlier._texts[there] == made._texts[at]


def _run(text: str, at: int, old: str, places: list[int], start: int) -> int:
    """The end of the longest run of elements, from `start` on, whose old text also stands at `at`. Steps double and
    then halve: what is compared grows with what is equal, so many small changes do not each cost a whole file."""
    base, last = at - places[start], len(places) - 1
    low, step = start, 1
    while low < last:
        high = min(low + step, last)
        if not text.startswith(old[places[low] : places[high]], base + places[low]):
            break
        low, step = high, step * 2
    else:
        return low
    high -= 1
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(old[places[low] : places[middle]], base + places[low]):
            low = middle
        else:
            high = middle - 1
    return low
