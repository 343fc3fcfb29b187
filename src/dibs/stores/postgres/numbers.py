"""Numbers of events, drawn by the trip that writes them.

An event's number, which is also the token of a claim, must be drawn when the rows that it tells of are held. To ask
for it would be a trip of its own. So an event is given a stand-in, a negative number that nothing else has; whatever is
written behind the draw (`DRAW`) has SQL that puts the number in its place (`number`, `in_text`); and when the trip is
back, `Trips` puts it into the objects.

Stand-ins begin at a random place, anew in each process: one that stands in the JSON of an event is replaced as text, so
it must be nothing that somebody has written there.
"""

from __future__ import annotations

from os import urandom

_BEGIN = 10**17 + int.from_bytes(urandom(7)) % (8 * 10**17)
_DRAWN = "(current_setting('dibs.numbers')::bigint[])"


def stand_in(place: int) -> int:
    """For the number that will be drawn at this place, counted from 1."""
    return -(_BEGIN + place)


def place_of(value: int) -> int:
    return -value - _BEGIN


def number(value: str) -> str:
    """SQL: a number, or what was drawn for its stand-in."""
    return f"CASE WHEN {value}::bigint < 0 THEN {_DRAWN}[(-{value}::bigint - {_BEGIN})::int] ELSE {value}::bigint END"


def in_text(text: str, value: str) -> str:
    """SQL: a text in which the stand-in `value`, if it is one, is replaced by what was drawn for it."""
    return (
        f"CASE WHEN {value}::bigint < 0 THEN replace({text}::text, ({value}::bigint)::text, ({number(value)})::text) "
        f"ELSE {text}::text END"
    )


def all_in_text(text: str, places: int) -> str:
    """SQL: a text in which the stand-ins of the first places are replaced."""
    for place in range(1, places + 1):
        text = f"replace({text}, '{stand_in(place)}', {_DRAWN}[{place}]::text)"
    return text
