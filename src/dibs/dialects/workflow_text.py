"""Document 000's `board.json`: what its members mean to dibs, and what dibs writes into them. Pure functions over a
`JsonList`; the guard, the version check and the roles are the store's.

    document = jsonlist.parse(data, earlier, name=path)
    version(document.top)                            # refused unless it is a whole number
    task = decode(document.rows[at], document.top)
    document.replace(at, members(task, before, document.rows[at]))
    document.append(element(task))
    bump(document)

The top level has `version` (+1 on every write), `project`, `project_folder`, `created_at`, `tasks`. A task is `open`,
`claimed`, `done` or `integrated`, which dibs calls pending, in progress, in review and completed: every task of this
format is reviewed.

* description: the title, the description and the verification, as far as the task has them, in paragraphs; the last
  begins with `Verification: `. A task that has none of them is described by its id. New text is divided in the same
  way, so it reads back as it was given. A worker thus sees how the work will be verified without a field of its own.
* paths: the deliverables. result: the note, which is a rejection's reason or what the worker said it did.
* `done_at` is when the worker was done and stays so when the work is integrated; the document has no time for that.
* Times have an offset. A claim's is written to the microsecond, since the claim's token is that time in microseconds;
  the others to the second. Times that others wrote are read with any offset or none (UTC), at any precision.

Members are written only if their value changes; keys that dibs does not know, and their order, stay.
"""

from __future__ import annotations

import time

from dibs.dialects import jsonlist
from dibs.dialects.isotime import moment
from dibs.errors import BoardUnusable, Invalid, Unsupported, quoted
from dibs.model import COMPLETED, IN_PROGRESS, PENDING, REVIEW, BoardTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from dibs.dialects.jsonlist import JsonList

STATUSES = {"open": PENDING, "claimed": IN_PROGRESS, "done": REVIEW, "integrated": COMPLETED}
WORDS = {status: word for word, status in STATUSES.items()}
MET = (REVIEW, COMPLETED)
"""The statuses in which a dependency no longer keeps a task from being claimed."""

_PREFIX = "task-"
_VERIFICATION = "\n\nVerification: "


def new(project: str, folder: str, now: float) -> JsonList:
    """The document that a planner begins with."""
    return jsonlist.new(
        {"version": 1, "project": project, "project_folder": folder, "created_at": stamp(now), "tasks": []}
    )


def version(top: Mapping[str, Any]) -> int:
    value = top.get("version")
    if type(value) is not int or value < 0:
        said = "is missing" if value is None else f"is {value!r:.60}"
        raise BoardUnusable(f"the version {said}, and must be a whole number; the file was left as it is")
    return value


def bump(document: JsonList) -> int:
    """Count this write, as every writer must; the new version."""
    document.set_top("version", version(document.top) + 1)
    return version(document.top)


def decode(row: Mapping[str, Any], top: Mapping[str, Any] | None = None) -> BoardTask:
    """The task that an element describes. What is missing counts as empty; what makes no sense is refused."""
    word = row.get("status", "open")
    status = STATUSES.get(word) if isinstance(word, str) else None
    if status is None:
        raise _senseless(row, "status", "one of " + ", ".join(STATUSES))
    claimed_at = _time(row, "claimed_at")
    return BoardTask(
        row["id"],
        _description(row),
        status,
        _text(row, "claimed_by"),
        _texts(row, "depends_on"),
        _text(row, "note"),
        created_at=moment((top or {}).get("created_at")) or 0.0,
        claimed_at=claimed_at,
        completed_at=_time(row, "done_at"),
        token=None if claimed_at is None else round(claimed_at * 1_000_000),
        paths=_texts(row, "deliverables"),
        review=True,
    )


def members(task: BoardTask, before: BoardTask, row: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be set in an element now that `before` has become `task`; empty if nothing that it holds changed."""
    found: dict[str, Any] = {}
    if task.status is not before.status:
        found["status"] = _word(task)
    if task.assigned_to != before.assigned_to:
        found["claimed_by"] = task.assigned_to
    if task.claimed_at != before.claimed_at:
        found["claimed_at"] = None if task.claimed_at is None else stamp(task.claimed_at, precise=True)
    if task.completed_at != before.completed_at and not (task.status is COMPLETED and row.get("done_at")):
        found["done_at"] = None if task.completed_at is None else stamp(task.completed_at)
    if task.depends_on != before.depends_on:
        found["depends_on"] = list(task.depends_on)
    if task.paths != before.paths:
        found["deliverables"] = list(task.paths)
    if task.result != before.result:
        found["note"] = task.result
    if task.description != before.description:
        parts = _divided(task.description)
        found |= {key: parts.get(key) for key in ("title", "description", "verification")}
    # A member that others left out says as much as null.
    return {key: value for key, value in found.items() if value is not None or key in row}


def element(task: BoardTask) -> dict[str, Any]:
    """A new task, in the order in which the document names the members."""
    parts = _divided(task.description)
    made: dict[str, Any] = {"id": task.id}
    made |= {key: parts[key] for key in ("title", "description") if key in parts}
    made |= {
        "status": _word(task),
        "depends_on": list(task.depends_on),
        "deliverables": list(task.paths),
        "verification": parts.get("verification"),
        "claimed_by": task.assigned_to,
        "claimed_at": None if task.claimed_at is None else stamp(task.claimed_at, precise=True),
        "done_at": None if task.completed_at is None else stamp(task.completed_at),
    }
    if task.result is not None:
        made["note"] = task.result
    return made


def next_ids(taken: Iterable[str], count: int = 1) -> list[str]:
    """Free ids, counted on from the highest and as wide as the widest: task-001, task-002 … task-1000."""
    highest, width = 0, 3
    for task_id in taken:
        digits = task_id[len(_PREFIX) :]
        if task_id.startswith(_PREFIX) and digits.isascii() and digits.isdigit() and len(digits) <= 18:
            highest, width = max(highest, int(digits)), max(width, len(digits))
    return [f"{_PREFIX}{number:0{width}d}" for number in range(highest + 1, highest + count + 1)]


def stamp(at: float, *, precise: bool = False, offset: int | None = None) -> str:
    """`2026-02-11T14:30:05+09:00`, to the microsecond if `precise`. The offset, in seconds, is this machine's."""
    try:
        seconds, micros = divmod(round(at * 1_000_000), 1_000_000) if precise else (int(at // 1), 0)
        if offset is None:
            offset = time.localtime(seconds).tm_gmtoff
        offset -= offset % 60  # before there were time zones, offsets had seconds
        shown = time.gmtime(seconds + offset)
        if not 0 < shown.tm_year < 10_000:
            raise ValueError
    except (OverflowError, ValueError, OSError):
        raise Invalid(f"{at} is not a time that a calendar has") from None
    hours, minutes = divmod(abs(offset) // 60, 60)
    fraction = f".{micros:06d}" if micros else ""
    zone = f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"
    return f"{shown.tm_year:04d}" + time.strftime("-%m-%dT%H:%M:%S", shown) + fraction + zone


def _word(task: BoardTask) -> str:
    if task.status not in WORDS:
        raise Unsupported(
            f"a workflow board (document 000) has no {task.status} tasks",
            hint=f"give it back for others instead: dibs release {quoted(task.id)}",
            dialect="workflow",
        )
    return WORDS[task.status]


def _description(row: Mapping[str, Any]) -> str:
    said = [text for key in ("title", "description") if (text := _text(row, key))]
    verification = _text(row, "verification")
    return ("\n\n".join(said) or row["id"]) + (_VERIFICATION + verification if verification else "")


def _divided(text: str) -> dict[str, str]:
    """A description as title, description and verification: a title is one line, a verification one line at the end."""
    made = {}
    body, found, verification = text.rpartition(_VERIFICATION)
    if not body or not verification or "\n" in verification:
        body, found = text, ""
    title, _, rest = body.partition("\n\n")
    if "\n" in title or not title or (body != title and not rest):
        made["description"] = body
    else:
        made["title"] = title
        if rest:
            made["description"] = rest
    if found:
        made["verification"] = verification
    return made


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _senseless(row, key, "text or null")


def _texts(row: Mapping[str, Any], key: str) -> list[str]:
    value = row.get(key)
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return list(value)
    raise _senseless(row, key, "a list of texts")


def _time(row: Mapping[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    at = moment(value)
    if at is None:
        raise _senseless(row, key, "an ISO 8601 time such as 2026-02-11T14:30:05+09:00, or null")
    return at


def _senseless(row: Mapping[str, Any], key: str, wanted: str) -> BoardUnusable:
    return BoardUnusable(
        f"task {row['id']!r:.80}: its {key} is {row.get(key)!r:.80}, and must be {wanted}; the file was left as it is",
        hint="mend it in an editor, under the board's lock",
        task_id=row["id"],
    )
