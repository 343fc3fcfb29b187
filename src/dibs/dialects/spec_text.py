"""Document 003's names and owner files, as pure functions: no disk, no clock.

A lock is a folder whose name says what it locks: `task_name` for `.locks/tasks/`, `file_name` for `.locks/files/`.
Either gives one plain folder name or raises `Invalid`; no name leads out of its folder. The name of a path is the
document's (`/` and `\\` become `__`, `:` becomes `_`), which is not reversible: `a/b` and `a__b` share a name, and so a
lock. dibs records the path in a further line of the owner file, and `collision` and `clashes` tell such pairs apart.

`encode` writes an owner file exactly as the document's printf does. `parse` reads whatever a hand has written and never
fails: lines may be missing, in any order, end in CRLF; lines that it does not know are kept in `extra`. An owner file
that is empty or not there yet parses to an owner without an agent, and such a lock is held all the same: its maker is
between mkdir and printf.
"""

from __future__ import annotations

from dibs.errors import Invalid
from dibs.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_BYTES = 255
"""The longest name of a folder, in bytes, on the file systems in use."""
_KEYS = ("agent", "task", "timestamp", "path")


class Owner(Record):
    """What an owner file says; None is a line that is not there. `path` is dibs' own line, of file locks only."""

    __slots__ = ("agent", "task", "timestamp", "path", "extra")

    def __init__(
        self,
        agent: str | None = None,
        task: str | None = None,
        timestamp: str | None = None,
        path: str | None = None,
        extra: tuple[str, ...] = (),
    ) -> None:
        self.agent = agent
        self.task = task
        self.timestamp = timestamp
        self.path = path
        self.extra = extra


def sanitise(path: str) -> str:
    """The document's rule for the name of a path, and nothing else: `file_name` also refuses what cannot be a name."""
    return path.replace("/", "__").replace("\\", "__").replace(":", "_")


def file_name(path: str) -> str:
    """The folder that locks `path`. The path is taken as it is: bring two spellings of a file to one before."""
    return _folder(sanitise(path), path, "path to lock")


def task_name(task_id: str) -> str:
    """The folder that locks a task: its id, unchanged."""
    if "/" in task_id or "\\" in task_id:
        raise Invalid(f"{task_id!r:.80} is not a task id", hint="an id is the name of a folder: without / and \\")
    return _folder(task_id, task_id, "task id")


def _folder(name: str, given: str, what: str) -> str:
    if name in ("", ".", ".."):
        raise Invalid(f"{given!r} is not a {what}", hint="it would name the folder of the locks, not a lock")
    if "\0" in name:
        raise Invalid(f"{given!r:.80} is not a {what}: it contains a NUL character")
    size = len(_bytes(name, what))
    if size > NAME_BYTES:
        raise Invalid(
            f"the {what} {given[:40]!r}… makes a lock name of {size:,} bytes; the limit is {NAME_BYTES}",
            hint="the document names a lock after the whole path; lock a folder above it",
        )
    return name


def path_of(name: str, owner: Owner) -> str:
    """The path that a file lock is about: the recorded one if it has this name, else the likeliest, a guess."""
    if owner.path is not None and sanitise(owner.path) == name:
        return owner.path
    return name.replace("__", "/")


def collision(path: str, owner: Owner) -> str | None:
    """The other path that the lock named like `path` is recorded for; None if it is the same, or if none is recorded.

    A hand does not record it, and then the lock is taken for what its name says.
    """
    recorded = owner.path
    if recorded is None or _same(recorded) == _same(path) or sanitise(recorded) != sanitise(path):
        return None
    return recorded


def clashes(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of different paths in one request that share a lock, which nobody can take twice."""
    first: dict[str, str] = {}
    found = []
    for path in paths:
        other = first.setdefault(sanitise(path), path)
        if _same(other) != _same(path):
            found.append((other, path))
    return found


def _same(path: str) -> str:
    """Both separators of the document are one: `a\\b` and `a/b` are the same path."""
    return path.replace("\\", "/")


def encode(owner: Owner) -> bytes:
    """The owner file: the document's three lines, dibs' `path:` if there is one, then the lines that others wrote."""
    lines = [f"{key}: {_value(getattr(owner, key) or '', key)}" for key in _KEYS[:3]]
    if owner.path is not None:
        lines.append(f"path: {_value(owner.path, 'path')}")
    lines += [_line(line, "line of an owner file") for line in owner.extra]
    return _bytes("\n".join(lines) + "\n", "owner file")


def parse(data: bytes) -> Owner:
    """What an owner file says, however it was written. Of a repeated line the first counts; the others are kept."""
    owner = Owner()
    extra = []
    for line in data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n"):
        text = line.rstrip("\r")
        key, colon, value = text.partition(":")
        key = key.strip()
        if colon and key in _KEYS and getattr(owner, key) is None:
            # A path may begin or end with blanks; a name or a time may not.
            found = value.removeprefix(" ") if key == "path" else value.strip()
            if found:
                setattr(owner, key, found)
        elif text.strip():
            extra.append(text)
    owner.extra = tuple(extra)
    return owner


def _value(text: str, what: str) -> str:
    if what != "path" and text != text.strip():
        raise Invalid(f"{text!r:.80} is not a value for {what!r}: it begins or ends with a blank")
    return _line(text, f"value for {what!r}")


def _line(text: str, what: str) -> str:
    """Text that stays on its line: a line break in it would forge the next one."""
    if "\n" in text or "\r" in text or "\0" in text:
        raise Invalid(f"{text!r:.80} is not a {what}: it contains a line break or NUL")
    return text


def _bytes(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Invalid(f"the {what} is not valid Unicode text") from None
