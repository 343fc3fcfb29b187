"""Document 001's changelog (`changelog.log`): one JSON object a line, append-only; an event's number is its line's.

`encode` and `parse` are pure. `append` adds whole lines with one write in append mode, which the kernel orders among
all writers, so lines by dibs and by others do not mix. A crash can leave a last line without its end: `read_from` stops
before it, and the next `append` ends it first, in the same write, so that it spoils nothing but itself. If a writer is
killed between that look and our write, our first line continues its half line: seen afterwards, and appended again.
A line that is no event of the document is skipped, and still counts as a line.
"""

from __future__ import annotations

import errno
import os
import time

from dibs import fs
from dibs.dialects import isotime
from dibs.errors import Invalid
from dibs.jsontext import dumps, loads
from dibs.model import Event
from dibs.wire import event_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOKS = 20
_BETWEEN_LOOKS = 0.005

FIELDS = ("timestamp", "worker", "worker_type", "action", "activity_id", "task_id", "details")

_APPEND = os.O_RDWR | os.O_APPEND


def encode(event: Event) -> bytes:
    """The event as a line, without its end: the document's fields that are set, and no others."""
    line = event_json(event)
    return dumps({key: line[key] for key in FIELDS if key in line}).encode()


def parse(line: bytes) -> Event | None:
    """The event that a line says, or None: torn, foreign, blank. `data`, where dibs added it, is kept."""
    try:
        found = loads(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    at = isotime.moment(found.get("timestamp"))
    worker, kind, action = found.get("worker"), found.get("worker_type"), found.get("action")
    if at is None or not isinstance(worker, str) or not isinstance(kind, str) or not isinstance(action, str):
        return None
    activity, task, details, data = (found.get(key) for key in ("activity_id", "task_id", "details", "data"))
    if not isinstance(activity, str | None) or not isinstance(task, str | None):
        return None
    if not isinstance(details, str | None):
        details = dumps(details)  # others put an object here; it is for people to read
    return Event(action, worker, kind, at, activity, task, details, data if isinstance(data, dict) else None)


def parse_all(lines: Sequence[bytes], before: int = 0) -> tuple[list[Event], list[int]]:
    """The events of these lines, numbered, and the numbers of the lines skipped; `before` lines precede them."""
    events: list[Event] = []
    skipped: list[int] = []
    for number, line in enumerate(lines, before + 1):
        event = parse(line)
        if event is None:
            skipped.append(number)
        else:
            event.seq = number
            events.append(event)
    return events, skipped


def append(path: str, lines: Sequence[bytes], durable: bool) -> None:
    """Append lines (given without their ends), all in one write; the file is made if there is none.

    Raises `OSError` if the disk took only part of them; what it took is ended by the next append.
    """
    if not lines:
        return
    for line in lines:
        if b"\n" in line:
            raise Invalid("a changelog line cannot contain a line break")
    fd = fs.open_regular(path, _APPEND | os.O_CREAT, alone=True)
    try:
        is_new = not os.fstat(fd).st_size
        stands = _put(fd, path, b"".join((b"\n" if _is_torn(fd) else b"", *(line + b"\n" for line in lines))))
        while not stands:
            stands = _put(fd, path, lines[0] + b"\n")
        if durable:
            fs.sync_data(fd)
    finally:
        os.close(fd)
    if durable and is_new:
        fs.sync_directory(os.path.dirname(path))


def require(path: str) -> None:
    """Raise the `OSError` that `append` would: for whoever has to know before it writes anything else."""
    try:
        os.close(fs.open_regular(path, _APPEND, alone=True))
    except FileNotFoundError:
        pass


def _put(fd: int, path: str, data: bytes) -> bool:
    """Append in one write. False: the first line continues one that was left without its end, and cannot be read."""
    written = os.write(fd, data)
    if written != len(data):
        # Writing the rest now could put another worker's line between the halves.
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be appended", path)
    start = os.lseek(fd, 0, os.SEEK_CUR) - written
    return data[:1] == b"\n" or start == 0 or fs.read_at(fd, 1, start - 1) == b"\n"


def _is_torn(fd: int) -> bool:
    """Does the file end in a line without its end that nobody is writing just now?

    A long line grows while it is written, so one look is not enough. If the answer is wrong all the same, because a
    writer was slow, there is a blank line more, which is skipped.
    """
    before = -1
    for _ in range(_LOOKS):
        size = os.fstat(fd).st_size
        if size == 0 or fs.read_at(fd, 1, size - 1) == b"\n":
            return False
        if size == before:
            return True
        before = size
        time.sleep(_BETWEEN_LOOKS)
    return True


def read_from(path: str, offset: int) -> tuple[list[bytes], int]:
    """The lines that begin at `offset` or later, without their ends, and the offset to go on from.

    A last line without an end is left for the next time. Without a file, or in a shorter one: no lines, same offset.
    """
    try:
        fd = fs.open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return [], offset
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        parts: list[bytes] = []
        while part := os.read(fd, 1 << 20):
            parts.append(part)
    finally:
        os.close(fd)
    data = b"".join(parts)
    end = data.rfind(b"\n") + 1
    return (data[: end - 1].split(b"\n") if end else []), offset + end
