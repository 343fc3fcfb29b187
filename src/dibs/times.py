"""Times as people and JSON read them. Storage and rules use seconds since the epoch."""

from __future__ import annotations

import time


def iso(moment: float) -> str:
    """ISO 8601 UTC with milliseconds, ending in Z."""
    milliseconds = round(moment * 1000)
    whole, rest = divmod(milliseconds, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest:03d}Z"


def span(seconds: float) -> str:
    """A length of time in its two largest units: `45s`, `12m`, `1h 05m`, `3d 4h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s" if minutes < 10 and rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


FOREVER = 100 * 365 * 86_400.0
"""The lease of what does not end by itself."""


def remaining(seconds: float) -> str:
    """How long somebody will have something: `for another 12m unless renewed`, or `until it is given back`."""
    return "until it is given back" if seconds > FOREVER / 2 else f"for another {span(seconds)} unless renewed"


def lasting(lease: float) -> str:
    """How long one has something oneself: `for 1h 00m`, or `until you give it back`."""
    return "until you give it back" if lease > FOREVER / 2 else f"for {span(lease)}"


def ago(moment: float | None, now: float) -> str:
    return "some time ago" if moment is None else f"{span(now - moment)} ago"
