"""JSON text in the style of its surroundings. `encode` writes a value as `json.dumps` does; a `Style` is how an object
was found to be written, so that a new member looks like its neighbours. No I/O, no parsing.

Errors: `Invalid` for what JSON or UTF-8 cannot hold.
"""

from __future__ import annotations

from dibs.errors import Invalid
from dibs.jsontext import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

try:
    from _json import encode_basestring as _quote
    from _json import encode_basestring_ascii as _quote_ascii
except ImportError:  # an interpreter without the C half of json
    from json.encoder import encode_basestring as _quote
    from json.encoder import encode_basestring_ascii as _quote_ascii


class Style:
    """How an element is written: what stands behind `{`, between members, between key and value, before `}`."""

    __slots__ = ("opening", "comma", "colon", "closing", "ascii", "line", "unit")

    def __init__(self, opening: str, comma: str, colon: str, closing: str, ascii: bool) -> None:
        self.opening = opening
        self.comma = comma
        self.colon = colon
        self.closing = closing
        self.ascii = ascii
        self.line = line_of(opening)
        self.unit = unit_of(self.line, line_of(closing) or "")

    def value(self, value: Any, inline: bool = False) -> str:
        return encode(value, None if inline else self.line, self.unit, self.colon, self.ascii)

    def member(self, key: str, value: Any) -> str:
        return encode(key, None, "", "", self.ascii) + self.colon + self.value(value)

    def element(self, mapping: Mapping[str, Any]) -> str:
        members = self.comma.join([self.member(key, value) for key, value in mapping.items()])
        return "{" + self.opening + members + self.closing + "}"


def line_of(blanks: str) -> str | None:
    """The last line break in these blanks with the indentation behind it; None where all is on one line."""
    at = blanks.rfind("\n")
    if at < 0:
        return None
    return blanks[at - 1 if at and blanks[at - 1] == "\r" else at :]


def unit_of(inner: str | None, outer: str) -> str:
    """One level of indentation, from the line of a member and that of the brace that closes its object."""
    inner, outer = (inner or "").lstrip("\r\n"), outer.lstrip("\r\n")
    return inner[len(outer) :] if inner.startswith(outer) else "  "


def encode(value: Any, line: str | None, unit: str, colon: str, ascii: bool) -> str:
    """JSON as `json.dumps` writes it; over several lines if `line`, the break before this value's members, is given."""
    try:
        return _write(value, line, unit, colon, _quote_ascii if ascii else _quote)
    except RecursionError:
        raise Invalid("the value is nested too deeply") from None


def _write(value: Any, line: str | None, unit: str, colon: str, quote: Callable[[str], str]) -> str:
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Invalid("half of a surrogate pair is not text") from None
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value.bit_length() > 14_000:  # Python itself refuses to read back more than 4,300 digits
            raise Invalid("the number is too long")
        return int.__repr__(value)
    if isinstance(value, float):
        if value - value != 0:
            raise Invalid(f"{value} cannot be written as JSON")
        return float.__repr__(value)
    inner = None if line is None else line + unit
    if isinstance(value, (list, tuple)):
        brackets = "[]"
        parts = [_write(entry, inner, unit, colon, quote) for entry in value]
    elif isinstance(value, dict):
        brackets = "{}"
        parts = []
        for key, entry in value.items():
            if not isinstance(key, str):
                raise Invalid(f"{key!r:.80} cannot be a key in JSON")
            parts.append(_write(key, None, "", "", quote) + colon + _write(entry, inner, unit, colon, quote))
    else:
        raise Invalid(f"{type(value).__name__} cannot be written as JSON")
    if not parts:
        return brackets
    if line is None:
        return brackets[0] + (", " if colon != ":" else ",").join(parts) + brackets[1]
    assert inner is not None
    return brackets[0] + inner + ("," + inner).join(parts) + line + brackets[1]


def same(old: Any, value: Any) -> bool:
    """Would these be written alike? 1, 1.0 and true are equal in Python and not the same."""
    if old is value:
        return True
    try:
        return bool(old == value) and dumps(old) == dumps(value)
    except (ValueError, TypeError, RecursionError):
        return False
