"""Walks over JSON text and says where each part stands, at the speed of the C scanner that `json` uses itself.

A `Reader` knows the shape that documents 000 and 004 share: an object, one of whose members is `tasks`, a list of
objects with ids. Positions are characters. Errors: `BoardUnusable` with line and column, never RecursionError.
"""

from __future__ import annotations

from dibs.errors import BoardUnusable
from dibs.jsontext import Scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Span = tuple[int, int]
    Elements = tuple[list[dict[str, Any]], list[str], list[str], int]

BLANKS = " \t\r\n"


try:
    from _json import make_scanner

    _scan: Callable[[str, int], tuple[Any, int]] = make_scanner(Scanner)  # type: ignore[arg-type]
except ImportError:  # an interpreter without the C half of json
    from json.decoder import JSONDecoder

    _scan = JSONDecoder(parse_constant=Scanner.parse_constant).scan_once  # type: ignore[attr-defined]


class Reader:
    """Walks over a text. Positions are characters; every failure says where."""

    __slots__ = ("text", "name", "escapes")

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.escapes = "\\" in text  # one character, because only that is searched at the speed of memory

    def fail(self, at: int, what: str) -> NoReturn:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        place = f"line {line}, column {column}"
        raise BoardUnusable(
            f"{self.name + ': ' if self.name else ''}{place}: {what}; the file was left as it is",
            hint="mend it in an editor or take it back from version control",
            line=line,
            column=column,
        )

    def skip(self, at: int) -> int:
        text, end = self.text, len(self.text)
        while at < end and text[at] in BLANKS:
            at += 1
        return at

    def expect(self, at: int, character: str) -> int:
        """Pass one character and the blanks behind it."""
        if not self.text.startswith(character, at):
            found = f"not {self.text[at]!r}" if at < len(self.text) else "not the end of the file"
            self.fail(at, f"expected {character!r}, {found}")
        return self.skip(at + 1)

    def value(self, at: int) -> tuple[Any, int]:
        try:
            value, end = _scan(self.text, at)
        except StopIteration as stop:
            self.fail(stop.value, "expected a value")
        except SystemError:
            # The scanner wants to raise json's error, and finds that json is not imported.
            import json.decoder  # noqa: F401

            return self.value(at)
        except RecursionError:
            self.fail(at, "nested too deeply")
        except ValueError as error:
            self.fail(getattr(error, "pos", at), f"not JSON: {getattr(error, 'msg', error)}")
        if self.escapes and _has_half_pairs(value):
            self.fail(at, "half of a surrogate pair is not text")
        return value, end

    def key(self, at: int) -> tuple[str, int]:
        """A key, and where its value starts."""
        if not self.text.startswith('"', at):
            self.expect(at, '"')
        key, end = self.value(at)
        return key, self.expect(self.skip(end), ":")

    def member(self, at: int) -> tuple[str, int, int]:
        key, begin = self.key(at)
        return key, begin, self.value(begin)[1]

    def head(self) -> tuple[int, dict[str, Span], dict[str, Any]]:
        """Up to and with the `[` of tasks: where that ends, the spans of the members before it, and their values."""
        spans: dict[str, Span] = {}
        values: dict[str, Any] = {}
        at = self.expect(self.skip(0), "{")
        while True:
            if self.text.startswith("}", at):
                self.fail(at, "there is no list of tasks")
            key, begin = self.key(at)
            if key in spans:
                self.fail(at, f"the key {key!r:.80} stands twice in one object")
            if key == "tasks":
                if not self.text.startswith("[", begin):
                    self.fail(begin, "tasks is not a list")
                return begin + 1, spans, values
            values[key], end = self.value(begin)
            spans[key] = (begin, end)
            at = self.skip(end)
            if not self.text.startswith("}", at):
                at = self.expect(at, ",")

    def tail(self, start: int) -> tuple[dict[str, Span], dict[str, Any]]:
        """From the `]` of tasks to the end: spans, relative to `start`, and values of the members there."""
        spans: dict[str, Span] = {}
        values: dict[str, Any] = {}
        at = self.expect(start, "]")
        while not self.text.startswith("}", at):
            here = self.expect(at, ",")
            key, begin = self.key(here)
            if key in spans or key == "tasks":
                self.fail(here, f"the key {key!r:.80} stands twice in one object")
            values[key], end = self.value(begin)
            spans[key] = (begin - start, end - start)
            at = self.skip(end)
        at = self.skip(at + 1)
        if at != len(self.text):
            self.fail(at, "text behind the end of the document")
        return spans, values

    def next_element(self, at: int, first: bool) -> int:
        """Where the next element starts, given the end of the last; -1 at the end of the list."""
        begin = self.skip(at)
        if self.text.startswith("]", begin):
            return -1
        if not first:
            begin = self.expect(begin, ",")
        if not self.text.startswith("{", begin):
            self.value(begin)
            self.fail(begin, "a task is not an object")
        return begin

    def element(self, at: int) -> tuple[dict[str, Any], int]:
        """The object that starts here, and where it ends."""
        row, end = self.value(at)
        task_id = row.get("id")
        if type(task_id) is not str or not task_id:
            self.fail(at, "a task has no id" if not task_id else "a task has an id that is not text")
        return row, end

    def elements(self, at: int) -> Elements:
        """All elements from behind `[`: rows, gaps, texts, and where the last one ends."""
        return self._split(at) or self._walk(at)

    def _walk(self, at: int) -> Elements:
        """One element after the other; finds the words for what is wrong."""
        text = self.text
        rows: list[dict[str, Any]] = []
        gaps: list[str] = []
        texts: list[str] = []
        while True:
            begin = self.next_element(at, not rows)
            if begin < 0:
                return rows, gaps, texts, at
            row, end = self.element(begin)
            rows.append(row)
            gaps.append(text[at:begin])
            texts.append(text[begin:end])
            at = end

    def _split(self, at: int) -> Elements | None:
        """The same at once, where the gaps are alike and each has a line break; None where that is not certain.

        The list as a whole is valid JSON. A brace in a string cannot stand beside a gap, since a string holds no line
        break. So a piece that starts with an element and has no braces but its first and last is that element; one
        that has others, nested or in strings, is scanned to see that it ends where the piece does. Then the next
        piece starts with an element too.
        """
        text = self.text
        try:
            first = self.skip(at)
            end = _scan(text, first)[1]
            begin = self.next_element(end, False)
            gap = text[end:begin]
            if begin < 0 or "\n" not in gap:
                return None
            rows, close = _scan(text, at - 1)
            close -= 1
            stop = text.rfind("}", first, close) + 1
            if self.skip(stop) != close:
                return None
            texts = ["{" + piece + "}" for piece in text[first + 1 : stop - 1].split("}" + gap + "{")]
            if len(texts) != len(rows):
                return None
            if text.count("{", first, stop) != len(rows) or text.count("}", first, stop) != len(rows):
                for own in texts:
                    if (own.count("{") > 1 or own.count("}") > 1) and _scan(own, 0)[1] != len(own):
                        return None
            for row in rows:
                if type(row) is not dict or type(row.get("id")) is not str or not row["id"]:
                    return None
        except (BoardUnusable, ValueError, StopIteration, SystemError, RecursionError):
            return None
        if self.escapes:
            for own, row in zip(texts, rows, strict=True):
                if "\\u" in own and _has_half_pairs(row):
                    return None
        gaps = [gap] * len(rows)
        gaps[0] = text[at:first]
        return rows, gaps, texts, stop


def _has_half_pairs(value: Any) -> bool:
    """Does any text in this value hold half of a surrogate pair, which UTF-8 cannot express?"""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                return True
        elif isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False
