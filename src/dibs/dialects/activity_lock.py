"""The record in document 001's activity locks (`locks/ID.lock`): its seven keys, encoded and parsed without a disk.

`encode` writes the document's layout. `acquired` is exact to the microsecond, because it is the claim's token; the
other times are whole seconds, an end rounded up, so that a worker who reads the file by hand finds the document's form
and never an end before the real one.

`parse` never raises. Whoever finds a lock asks `is_expired`, and doubt means that the lock is live: content that cannot
be read, no `expires`, or one that is no time. An `expires` without a time zone ends when it is past in every zone.
"""

from __future__ import annotations

import math

from dibs.dialects import isotime
from dibs.guards.base import LATEST_ZONE
from dibs.jsontext import dumps, loads
from dibs.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEYS = ("holder", "holder_type", "acquired", "expires", "task_id", "task_acquired", "task_expires")

ACTIVITY_SECONDS = {"human": 8 * 3600.0, "agent": 3600.0}
TASK_SECONDS = {"human": 4 * 3600.0, "agent": 1800.0}

MAX_BYTES = 64 * 1024


def activity_seconds(kind: str) -> float:
    """How long an activity is held without renewal; whoever is no human is held to an agent's terms."""
    return ACTIVITY_SECONDS.get(kind, ACTIVITY_SECONDS["agent"])


def task_seconds(kind: str) -> float:
    return TASK_SECONDS.get(kind, TASK_SECONDS["agent"])


class LockRecord(Record):
    """Who holds an activity, since when, until when, and the task that they are at. Seconds since the epoch.

    `holder` is None when the content could not be read, `doubt` says why, and such a lock is live.
    """

    __slots__ = ("holder", "holder_type", "acquired", "expires", "task_id", "task_acquired", "task_expires", "doubt")

    def __init__(
        self,
        holder: str | None,
        holder_type: str = "agent",
        acquired: float | None = None,
        expires: float | None = None,
        task_id: str | None = None,
        task_acquired: float | None = None,
        task_expires: float | None = None,
        doubt: str | None = None,
    ) -> None:
        self.holder = holder
        self.holder_type = holder_type
        self.acquired = acquired
        self.expires = expires
        self.task_id = task_id
        self.task_acquired = task_acquired
        self.task_expires = task_expires
        self.doubt = doubt

    @property
    def is_readable(self) -> bool:
        return self.holder is not None

    @property
    def token(self) -> int | None:
        """The claim's token: its time in microseconds."""
        return None if self.acquired is None else round(self.acquired * 1_000_000)

    def is_expired(self, now: float) -> bool:
        """The document's rule, `expires < now`; False in doubt."""
        return self.expires is not None and self.expires < now

    def is_task_expired(self, now: float) -> bool:
        return self.task_expires is not None and self.task_expires < now


def encode(record: LockRecord) -> bytes:
    values = (
        record.holder,
        record.holder_type,
        None if record.acquired is None else isotime.precise(record.acquired),
        _end(record.expires),
        record.task_id,
        None if record.task_acquired is None else isotime.whole(record.task_acquired),
        _end(record.task_expires),
    )
    lines = ",\n".join(f'  "{key}": {dumps(value)}' for key, value in zip(KEYS, values, strict=True))
    return f"{{\n{lines}\n}}\n".encode()


def _end(at: float | None) -> str | None:
    return None if at is None else isotime.whole(math.ceil(at))


def parse(data: bytes) -> LockRecord:
    """What a lock's content says; if nothing can be read from it, a record without a holder that says why."""
    if not data.strip(b" \t\r\n\0"):
        return LockRecord(None, doubt="the lock is empty: its maker has not written it yet, or stopped before it did")
    if len(data) > MAX_BYTES:
        return LockRecord(None, doubt="the lock is too large to be one")
    try:
        found = loads(data.decode())
    except (ValueError, RecursionError) as error:
        return LockRecord(None, doubt=f"the lock is not JSON: {error!s:.120}")
    if not isinstance(found, dict):
        return LockRecord(None, doubt="the lock is not a JSON object")
    return _from_dict(found)


def _from_dict(found: dict[str, Any]) -> LockRecord:
    holder = found.get("holder")
    if not isinstance(holder, str) or not holder:
        return LockRecord(None, doubt="the lock names no holder")
    kind = found.get("holder_type")
    task = found.get("task_id")
    record = LockRecord(
        holder,
        kind if isinstance(kind, str) else "agent",
        isotime.moment(found.get("acquired")),
        isotime.moment(found.get("expires"), LATEST_ZONE),
        task if isinstance(task, str) else None,
        isotime.moment(found.get("task_acquired")),
        isotime.moment(found.get("task_expires"), LATEST_ZONE),
    )
    if record.expires is None:
        record.doubt = (
            f"its expires is no time: {found.get('expires')!r:.60}" if "expires" in found else "it has no expires"
        )
    return record
