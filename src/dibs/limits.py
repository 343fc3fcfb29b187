"""What input a board accepts: the limits, and the checks that enforce them. Pure functions; each returns the clean
value or raises `Invalid`."""

from __future__ import annotations

from dibs.errors import Invalid
from dibs.model import KINDS, RESERVED, BoardTask, Step, TaskStatus, Worker
from dibs.rules.paths import braces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TEXT_BYTES = 64 * 1024
ID_LENGTH = 128
NAME_LENGTH = 200
LIST_LENGTH = 10_000
PRIORITY = 2**31 - 1
LONGEST_LEASE = 366 * 86_400.0

_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def text(value: object, what: str, *, empty: bool = False) -> str:
    """Free text: valid Unicode without NUL, at most 64 KiB as UTF-8."""
    if not isinstance(value, str):
        raise Invalid(f"{what} must be text, not {type(value).__name__}")
    if not empty and not value.strip():
        raise Invalid(f"{what} is empty", hint="say in a sentence what is meant")
    if len(value) > TEXT_BYTES // 4 or not value.isascii():
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise Invalid(f"{what} is not valid Unicode text") from None
        if size > TEXT_BYTES:
            raise Invalid(
                f"{what} has {size:,} bytes; the limit is {TEXT_BYTES:,}",
                hint="put the long part into a file in the repository and name the file",
            )
    if "\0" in value:
        raise Invalid(f"{what} contains a NUL character")
    return value


def optional_text(value: object, what: str) -> None:
    """Free text, empty text or none at all."""
    if value is not None:
        text(value, what, empty=True)


def task_id(value: object) -> str:
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= ID_LENGTH
        or not _ID_CHARACTERS.issuperset(value)
        or value[0] in ".-"
    ):
        raise Invalid(
            f"{value!r:.80} is not a task id",
            hint="an id has 1 to 128 of the characters A-Z a-z 0-9 . _ - and starts with a letter, digit or _",
        )
    return value


def name(value: object, what: str = "worker name") -> str:
    """A name or label on one line: no control characters, no blanks around it."""
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= NAME_LENGTH
        or not value.isprintable()
        or value != value.strip()
    ):
        raise Invalid(
            f"{value!r:.80} is not a {what}",
            hint=f"use 1 to {NAME_LENGTH} printable characters without blanks at the ends",
        )
    text(value, what)
    return value


def is_plain_name(value: str) -> bool:
    """Does a shell read this name as one word, as it stands? Letters and digits of any language, and . _ - @ + : /"""
    rest = value
    for mark in "._-@+:/":
        rest = rest.replace(mark, "")
    return (rest.isalnum() or not rest) and (value[0].isalnum() or value[0] == "_")


def new_name(value: str, what: str = "worker name") -> str:
    """A name that a worker may take from now on. Boards have older ones, which are any text on one line (`name`)."""
    if not is_plain_name(name(value, what)):
        raise Invalid(
            f"{value!r:.80} cannot be a new {what}: a shell would not read it as one plain word",
            hint="use letters, digits and . _ - @ + : / and begin with a letter, a digit or _; a name that the board "
            "knows already goes on working there",
        )
    return value


def request(verb: str, key: object) -> str:
    """A request key as it is remembered: what was asked for and the caller's key."""
    return f"{verb} {name(key, 'request key')}"


def fingerprint(asked: object) -> int:
    """What tells one request from another under the same key."""
    from binascii import crc32

    from dibs.jsontext import dumps

    return crc32(dumps(asked).encode())


def choice(value: object, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise Invalid(f"{value!r:.80} is not a {what}", hint="one of: " + ", ".join(allowed))
    return str(value)


def kind(value: object) -> str:
    return choice(value, KINDS, "kind of worker")


def worker(value: Worker) -> Worker:
    """A worker made by hand. One that was written before was checked then, and nobody changes a Worker."""
    if not value._checked:
        name(value.name)
        kind(value.kind)
        if value.session is not None:
            name(value.session, "session")
        optional_text(value.role, "role")
        optional_text(value.host, "host")
        value._checked = True
    return value


def key_was_used() -> Invalid:
    return Invalid(
        "this request key was used before, for another request; nothing was changed",
        hint="a key belongs to one request and its repetitions: use a new one",
    )


def wait(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_LEASE:
        raise Invalid(f"a time to wait must be a number of seconds from 0 to {LONGEST_LEASE:,.0f}, not {value!r:.40}")
    return float(value)


def integer(value: object, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(f"{what} must be a whole number from {least:,} to {most:,}, not {value!r:.40}")
    return value


def seconds(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_LEASE:
        raise Invalid(f"{what} must be a number of seconds from above 0 to {LONGEST_LEASE:,.0f}, not {value!r:.40}")
    return float(value)


def texts(value: object, what: str) -> list[str]:
    """A list without repetitions."""
    return list(dict.fromkeys(listed(value, what)))


def paths(value: object) -> list[str]:
    """Paths and patterns, with their braces written out."""
    return list(dict.fromkeys(one for path in texts(value, "paths") for one in braces(path)))


STATUS_WORDS: dict[str, tuple[str, ...]] = {
    "open": ("pending", "in_progress", "review"),
    "closed": ("completed", "failed", "cancelled"),
    "all": tuple(TaskStatus),
    "done": ("completed",),
}


def statuses(value: object) -> list[TaskStatus]:
    """Statuses by their names, or by a word for several."""
    found: list[str] = []
    for word in listed(value, "statuses"):
        plain = word.lower().replace("-", "_").replace(" ", "_")
        if plain in ("ready", "waiting", "blocked"):
            raise Invalid(f"{word!r} is not a status, but what becomes of pending tasks", hint="ask board.ready()")
        found += STATUS_WORDS.get(plain) or [choice(plain, tuple(TaskStatus), "status of tasks")]
    return [TaskStatus(each) for each in dict.fromkeys(found)]


def listed(value: object, what: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise Invalid(
            f"{what} must be a list, not {type(value).__name__}", hint=f"for one, write [{str(value)[:40]!r}]"
        )
    if len(value) > LIST_LENGTH:
        raise Invalid(f"{what} has {len(value):,} entries; the limit is {LIST_LENGTH:,}")
    for entry in value:
        if not isinstance(entry, str):
            raise Invalid(f"{what} must be a list of texts; {entry!r:.60} is not text")
    return list(value)


_FIELDS = frozenset(
    (
        "id",
        "description",
        "depends_on",
        "priority",
        "paths",
        "labels",
        "steps",
        "parent",
        "reserved",
        "review",
        "max_attempts",
    )
)


def new_task(fields: Mapping[str, Any], path: Any) -> BoardTask:
    """A pending task from its definition; `path` turns a path as given into its canonical pattern."""
    unknown = fields.keys() - _FIELDS
    if unknown:
        raise Invalid(f"a task has no {sorted(unknown)[0]!r:.60}", hint="known: " + ", ".join(sorted(_FIELDS)))
    if "description" not in fields:
        raise Invalid("a task needs a description")
    description = text(fields["description"], "description")
    if len(fields) == 1:  # the common case of adding thousands
        return BoardTask("", description, created_at=0.0)
    given = fields.get("id")
    most = fields.get("max_attempts")
    parent = fields.get("parent")
    reserved = fields.get("reserved")
    review = fields.get("review", False)
    if not isinstance(review, bool):
        raise Invalid(f"review must be true or false, not {review!r:.40}")
    steps = []
    for number, step in enumerate(listed(fields.get("steps"), "steps"), 1):
        steps.append(Step(f"s{number}", text(step, "step title")))
    return BoardTask(
        "" if given is None else task_id(given),
        description,
        depends_on=[task_id(i) for i in texts(fields.get("depends_on"), "depends_on")],
        priority=integer(fields.get("priority") or 0, "priority", -PRIORITY, PRIORITY),
        created_at=0.0,
        paths=list(dict.fromkeys(path(p) for p in paths(fields.get("paths")))),
        labels=[name(label, "label") for label in texts(fields.get("labels"), "labels")],
        steps=steps,
        parent=None if parent is None else task_id(parent),
        reserved="any" if reserved is None else choice(reserved, RESERVED, "kind that a task is reserved for"),
        review=review,
        max_attempts=None if most is None else integer(most, "max_attempts", 0, 1_000_000),
    )
