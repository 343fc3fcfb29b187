"""Numbers of events, drawn by the trip that writes them.

An event's number, which is also the token of a claim, must be drawn when the rows that it tells of are held. To ask
for it would be a trip of its own. So an event is given a stand-in, a negative number that nothing else has; whatever is
written behind the draw (`DRAW_LATE`) has SQL that puts the number in its place (`number`, `in_text`); and when the trip
is back, `Trips` puts it into the objects.

Stand-ins begin at a random place, anew in each process: one that stands in the JSON of an event is replaced as text, so
it must be nothing that somebody has written there.

Between the statements the numbers lie in settings of the transaction, `dibs.numbers0` and so on, so many in each and
all of one width: ten thousand in one would be copied at every use.
"""

from __future__ import annotations

from os import urandom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EACH = 500
"""Numbers in one setting."""
WIDTH = 13
"""The digits of the largest."""
_BEGIN = 10**17 + int.from_bytes(urandom(7)) % (8 * 10**17)


def stand_in(place: int) -> int:
    """For the number that will be drawn at this place, counted from 1."""
    return -(_BEGIN + place)


def place_of(value: int) -> int:
    return -value - _BEGIN


def _drawn(place: str) -> str:
    """SQL: what was drawn at a place, counted from 0."""
    return (
        f"substr(current_setting('dibs.numbers' || ({place}) / {EACH}), ({WIDTH} * (({place}) % {EACH}) + 1)::int, "
        f"{WIDTH})::bigint"
    )


def number(value: str) -> str:
    """SQL: a number, or what was drawn for its stand-in."""
    place = f"-{value}::bigint - {_BEGIN + 1}"
    return f"CASE WHEN {value}::bigint < 0 THEN {_drawn(place)} ELSE {value}::bigint END"


def in_text(text: str, value: str) -> str:
    """SQL: a text in which the stand-in `value`, if it is one, is replaced by what was drawn for it."""
    return (
        f"CASE WHEN {value}::bigint < 0 THEN replace({text}::text, ({value}::bigint)::text, ({number(value)})::text) "
        f"ELSE {text}::text END"
    )


def all_in_text(text: str, places: int) -> str:
    """SQL: a text in which the stand-ins of the first places are replaced."""
    for place in range(places):
        text = f"replace({text}, '{stand_in(place + 1)}', ({_drawn(str(place))})::text)"
    return text


def put_in_text(text: str, drawn: Sequence[int]) -> str:
    """The same when the numbers are known."""
    import re

    def known(found: re.Match[str]) -> str:
        place = place_of(int(found[0]))
        return str(drawn[place - 1]) if 0 < place <= len(drawn) else found[0]

    return re.sub(r"-\d{18}", known, text)
