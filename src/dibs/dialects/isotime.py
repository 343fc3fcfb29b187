"""ISO 8601 times as other programs write them into shared files, to seconds since the epoch and back."""

from __future__ import annotations

import time

_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def moment(text: object, unzoned: float = 0.0) -> float | None:
    """The moment that the text names, exact to the microsecond; None if it names none.

    A time without a zone is taken for UTC plus `unzoned` seconds.
    """
    if not isinstance(text, str) or not 16 <= len(text) <= 60 or not text.isascii():
        return None
    if text[4] + text[7] + text[13] != "--:" or text[10] not in "Tt ":
        return None
    try:
        year, month, day = _number(text[:4]), _number(text[5:7]), _number(text[8:10])
        hour, minute = _number(text[11:13]), _number(text[14:16])
        rest = text[16:]
        second = micros = 0
        if rest[:1] == ":":
            second, rest = _number(rest[1:3], 2), rest[3:]
            if rest[:1] in (".", ","):
                digits = rest[1:].rstrip("Zz ") if rest[-1] in "Zz" else rest[1:].partition("+")[0].partition("-")[0]
                rest = rest[1 + len(digits) :]
                digits = digits.rstrip(" ")
                _number(digits)
                micros = int(digits[:6].ljust(6, "0"))
        offset = _offset(rest.removeprefix(" "))
    except ValueError:
        return None
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] or hour > 23 or minute > 59 or second > 60:
        return None
    if month == 2 and day == 29 and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    # Days since the epoch, counted in years that begin in March, so that the leap day is a year's last.
    from_march = year - (month < 3)
    days = 365 * from_march + from_march // 4 - from_march // 100 + from_march // 400
    days += (153 * ((month + 9) % 12) + 2) // 5 + day - 719469
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - (-unzoned if offset is None else offset)
    return (seconds * 1_000_000 + micros) / 1_000_000


def _number(digits: str, size: int = 0) -> int:
    if not digits.isdigit() or (size and len(digits) != size):  # int() would also take blanks, signs and underscores
        raise ValueError
    return int(digits)


def _offset(zone: str) -> int | None:
    """Seconds east of UTC; None if the zone is not given."""
    if not zone:
        return None
    if zone in ("Z", "z"):
        return 0
    minutes = zone[3:].removeprefix(":")
    east = _number(zone[1:3], 2) * 3600 + (_number(minutes, 2) * 60 if minutes else 0)
    if zone[0] not in "+-" or zone.endswith(":"):
        raise ValueError
    return east if zone[0] == "+" else -east


def whole(at: float) -> str:
    """To the second, as people and shell scripts write it: 2026-01-24T10:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at // 1))


def precise(at: float) -> str:
    """To the microsecond where that says more than the second: 2026-01-24T10:00:00.000250Z."""
    seconds = at // 1
    micros = round((at - seconds) * 1_000_000)  # not of the product: from 2106 on that is too coarse to hold them
    if micros == 1_000_000:
        seconds, micros = seconds + 1, 0
    if not micros:
        return whole(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}Z"
