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


def ago(moment: float | None, now: float) -> str:
    return "some time ago" if moment is None else f"{span(now - moment)} ago"
