"""Document 001's `progress.yaml`: a work item's activities, their tasks, and its blockers; read, and changed in place.

    progress = parse(data)
    progress.set_activity("WI-001-A1", "status", "in_progress")
    progress.touch(now, who)
    data = progress.render()

Rendering what was not changed gives the bytes that were parsed. A change touches the lines that it must: comments, key
order, quoting, indentation, unknown keys and line ends stay. What cannot be read is `BoardUnusable`, with file, line
and reason; what cannot be changed in place without risk is `Unsupported`; bad values are `Invalid`. Nothing here
touches a disk, so a refused change leaves the file alone.
"""

from __future__ import annotations

from dibs.dialects import yamlpatch, yamltext
from dibs.errors import BoardUnusable, Duplicate, Invalid, NotFound, Unsupported
from dibs.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

SCHEMA = 2
MAX_BYTES = 8 * 1024 * 1024

ITEM_STATUSES = ("scoping", "discovery", "planning", "in_progress", "blocked", "review", "abandoned", "done")
STATUSES = ("pending", "in_progress", "completed", "skipped", "blocked", "awaiting_human")
ACTORS = ("agent", "human", "any")

TOP_KEYS = (
    "schema_version",
    "version",
    "last_modified",
    "last_modified_by",
    "work_item_id",
    "title",
    "type",
    "status",
    "created",
    "updated",
    "activities",
    "blockers",
    "artifacts",
)
ACTIVITY_KEYS = ("id", "title", "status", "actor", "depends_on", "completed_by", "completed_at", "tasks")
TASK_KEYS = ("id", "title", "status", "actor", "completed_by", "completed_at", "notes", "deliverables")
BLOCKER_KEYS = (
    "id",
    "activity_id",
    "task_id",
    "description",
    "raised_at",
    "raised_by",
    "resolved_at",
    "resolution",
)
_LISTS = ("depends_on", "deliverables")


class ItemTask(Record):
    """A task of an activity: what dibs calls a step."""

    __slots__ = ("id", "title", "status", "actor", "completed_by", "completed_at", "notes", "deliverables")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.id: str = row["id"]
        self.title = _text(row.get("title")) or self.id
        self.status = _text(row.get("status")) or "pending"
        self.actor = _text(row.get("actor")) or "any"
        self.completed_by = _text(row.get("completed_by"))
        self.completed_at = _text(row.get("completed_at"))
        self.notes = _text(row.get("notes"))
        self.deliverables = _words(row.get("deliverables"))


class Activity(Record):
    """An activity: what dibs calls a task. Times are text, as the file has them."""

    __slots__ = ("id", "title", "status", "actor", "depends_on", "completed_by", "completed_at", "tasks")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.id: str = row["id"]
        self.title = _text(row.get("title")) or self.id
        self.status = _text(row.get("status")) or "pending"
        self.actor = _text(row.get("actor")) or "any"
        self.depends_on = _words(row.get("depends_on"))
        self.completed_by = _text(row.get("completed_by"))
        self.completed_at = _text(row.get("completed_at"))
        self.tasks = [ItemTask(task) for task in row.get("tasks") or ()]


class ItemBlocker(Record):
    __slots__ = BLOCKER_KEYS

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.id: str = row["id"]
        self.activity_id = _text(row.get("activity_id"))
        self.task_id = _text(row.get("task_id"))
        self.description = _text(row.get("description")) or ""
        self.raised_at = _text(row.get("raised_at"))
        self.raised_by = _text(row.get("raised_by"))
        self.resolved_at = _text(row.get("resolved_at"))
        self.resolution = _text(row.get("resolution"))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


class Progress:
    """A parsed file and the changes asked for. Reading sees the changes; `render` writes them."""

    def __init__(self, source: bytes, text: str, root: yamltext.Mapping, data: dict[str, Any], where: str) -> None:
        self._source = source
        self._source_text = text
        self._root = root
        self._data = data
        self._where = where

    # What the file says.

    @property
    def version(self) -> int:
        version = self._data.get("version")
        return version if isinstance(version, int) else 0

    @property
    def work_item_id(self) -> str:
        return str(self._data["work_item_id"])

    @property
    def title(self) -> str:
        return _text(self._data.get("title")) or self.work_item_id

    @property
    def type(self) -> str | None:
        return _text(self._data.get("type"))

    @property
    def status(self) -> str | None:
        return _text(self._data.get("status"))

    @property
    def last_modified(self) -> str | None:
        return _text(self._data.get("last_modified"))

    @property
    def last_modified_by(self) -> str | None:
        return _text(self._data.get("last_modified_by"))

    @property
    def created(self) -> str | None:
        return _text(self._data.get("created"))

    @property
    def updated(self) -> str | None:
        return _text(self._data.get("updated"))

    @property
    def activities(self) -> list[Activity]:
        return [Activity(row) for row in self._data.get("activities") or ()]

    def activity(self, activity_id: str) -> Activity:
        return Activity(self._activity(activity_id))

    @property
    def blockers(self) -> list[ItemBlocker]:
        return [ItemBlocker(row) for row in self._data.get("blockers") or ()]

    @property
    def data(self) -> dict[str, Any]:
        """Everything that the file says, unknown keys too, with the changes so far. Not to be changed by the caller."""
        return self._data

    # Changes.

    def touch(self, now: str, who: str) -> None:
        """What every write does: the version grows by one, and it is said when and by whom."""
        self.set_top("version", self.version + 1)
        self.set_top("last_modified", now)
        self.set_top("last_modified_by", who)
        self.set_top("updated", now)

    def set_top(self, key: str, value: str | int | None) -> None:
        if key in ("activities", "blockers", "artifacts", "work_item_id"):
            raise Invalid(f"{key} is not set as a whole")
        _put(self._data, key, value, TOP_KEYS, ITEM_STATUSES)

    def set_activity(self, activity_id: str, key: str, value: str | Sequence[str] | None) -> None:
        _put(self._activity(activity_id), key, value, ACTIVITY_KEYS, STATUSES)

    def set_depends_on(self, activity_id: str, ids: Sequence[str]) -> None:
        self.set_activity(activity_id, "depends_on", ids)

    def set_task(self, activity_id: str, task_id: str, key: str, value: str | Sequence[str] | None) -> None:
        _put(_find(self._activity(activity_id).get("tasks"), task_id, "task"), key, value, TASK_KEYS, STATUSES)

    def set_blocker(self, blocker_id: str, key: str, value: str | None) -> None:
        _put(_find(self._data.get("blockers"), blocker_id, "blocker"), key, value, BLOCKER_KEYS, ())

    def add_activity(self, fields: Mapping[str, Any]) -> None:
        """The keys are written in the document's order; `tasks` is a list of such mappings."""
        self.add_activities([fields])

    def add_activities(self, several: Sequence[Mapping[str, Any]]) -> None:
        rows = []
        for fields in several:
            row = _row(fields, ACTIVITY_KEYS, STATUSES)
            if (tasks := row.get("tasks")) is not None:
                row["tasks"] = [_row(task, TASK_KEYS, STATUSES) for task in tasks]
                _distinct(row["tasks"], "task")
            rows.append(row)
        _append(self._data, "activities", rows, TOP_KEYS, "activity")

    def add_task(self, activity_id: str, fields: Mapping[str, Any]) -> None:
        _append(self._activity(activity_id), "tasks", [_row(fields, TASK_KEYS, STATUSES)], ACTIVITY_KEYS, "task")

    def add_blocker(self, fields: Mapping[str, Any]) -> None:
        _append(self._data, "blockers", [_row(fields, BLOCKER_KEYS, ())], TOP_KEYS, "blocker")

    def render(self) -> bytes:
        """The file's bytes with the changes, read again and found to say exactly what was meant."""
        try:
            text = yamlpatch.patch(self._source_text, self._root, self._data)
        except yamlpatch.CannotPatch as error:
            raise Unsupported(
                f"{self._where} cannot be changed in place: {error}; it was left as it is",
                hint="write that part of the file in plain block style, one key a line, and try again",
            ) from None
        return self._source if text is self._source_text else text.encode()

    def _activity(self, activity_id: str) -> dict[str, Any]:
        return _find(self._data.get("activities"), activity_id, "activity")


def _find(rows: list[dict[str, Any]] | None, wanted: str, what: str) -> dict[str, Any]:
    for row in rows or ():
        if row["id"] == wanted:
            return row
    raise NotFound(f"there is no {what} {wanted!r:.80} in this work item", task_id=wanted)


def _distinct(rows: list[dict[str, Any]], what: str) -> None:
    if len({row["id"] for row in rows}) != len(rows):
        raise Duplicate(f"two of the {what}s have the same id")


def _append(owner: dict[str, Any], key: str, new: list[dict[str, Any]], order: tuple[str, ...], what: str) -> None:
    rows = owner.get(key)
    taken = {other["id"] for other in rows or ()}
    for row in new:
        if row["id"] in taken:
            raise Duplicate(f"there is already a {what} {row['id']}")
        taken.add(row["id"])
    if rows is None:
        _place(owner, key, new, order)
    else:
        rows.extend(new)


def _row(fields: Mapping[str, Any], order: tuple[str, ...], statuses: tuple[str, ...]) -> dict[str, Any]:
    """A new mapping in the document's order of keys."""
    unknown = [key for key in fields if key not in order]
    if unknown:
        raise Invalid(f"{unknown[0]!r:.60} is not a key of document 001", hint="known: " + ", ".join(order))
    row = {key: _checked(key, fields[key], statuses) for key in order if key in fields}
    if not row.get("id"):
        raise Invalid("an id is needed")
    return row


def _put(row: dict[str, Any], key: str, value: Any, order: tuple[str, ...], statuses: tuple[str, ...]) -> None:
    if key not in order or key in ("id", "tasks"):
        raise Invalid(f"{key!r:.60} cannot be set")
    value = _checked(key, value, statuses)
    if key in row:
        row[key] = value
    elif value is not None and value != []:
        _place(row, key, value, order)


def _place(row: dict[str, Any], key: str, value: Any, order: tuple[str, ...]) -> None:
    """Put a key that is new after the last of those that the document puts before it."""
    if key in row:
        row[key] = value
        return
    earlier = order[: order.index(key)]
    entries = list(row.items())
    place = max((number + 1 for number, (other, _) in enumerate(entries) if other in earlier), default=len(entries))
    entries.insert(place, (key, value))
    row.clear()
    row.update(entries)


def _checked(key: str, value: Any, statuses: tuple[str, ...]) -> Any:
    if key == "tasks":
        if not isinstance(value, list | tuple) or not all(isinstance(task, dict) for task in value):
            raise Invalid("tasks must be a list of mappings")
        return list(value)
    if key in _LISTS:
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise Invalid(f"{key} must be a list of texts")
        return [_checked("", word, ()) or "" for word in value]
    if key in ("version", "schema_version"):
        if isinstance(value, bool) or not isinstance(value, int):
            raise Invalid(f"{key} must be a whole number")
        return int(value)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Invalid(f"{key or 'an entry'} must be text, not {type(value).__name__}")
    value = str(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{key or 'an entry'} is not valid Unicode text") from None
    if key == "status" and statuses and value not in statuses:
        raise Invalid(f"{value!r:.60} is not a status here", hint="one of: " + ", ".join(statuses))
    if key == "actor" and value not in ACTORS:
        raise Invalid(f"{value!r:.60} is not an actor", hint="one of: " + ", ".join(ACTORS))
    return value


def parse(data: bytes, where: str = "progress.yaml") -> Progress:
    """Read a file; `where` names it in errors."""
    if len(data) > MAX_BYTES:
        raise BoardUnusable(f"{where} has {len(data):,} bytes; the limit is {MAX_BYTES:,}", path=where)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BoardUnusable(f"{where}, line {line}: not UTF-8 text", path=where, line=line) from None
    try:
        root = yamltext.parse(text)
    except yamltext.YamlError as error:
        raise BoardUnusable(
            f"{where}, line {error.line}: {error.what}", hint="correct that line", path=where, line=error.line
        ) from None
    if not isinstance(root, yamltext.Mapping):
        raise BoardUnusable(f"{where}: it does not hold the keys of a work item", path=where)
    rows: dict[str, Any] = yamltext.plain(root)
    try:
        _check(rows)
    except ValueError as error:
        raise BoardUnusable(f"{where}: {error}", path=where) from None
    return Progress(data, text, root, rows, where)


def _check(data: dict[str, Any]) -> None:
    """Refuse what this module would have to guess about. Unknown keys and unknown statuses are let be."""
    schema = data.get("schema_version", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema > SCHEMA:
        raise ValueError(f"schema_version is {schema!r:.40}, and {SCHEMA} is the newest that is understood")
    version = data.get("version", 0)
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError(f"version is {version!r:.40}, not a whole number")
    if not isinstance(data.get("work_item_id"), str):
        raise ValueError("there is no work_item_id, or it is not text")
    activities = _rows(data, "activities", "activity")
    for activity in activities:
        depends = activity.get("depends_on") or []
        if not isinstance(depends, str | list) or not all(isinstance(word, str) for word in depends):
            raise ValueError(f"depends_on of {activity['id']} is not a list of ids")
        _rows(activity, "tasks", "task")
    _rows(data, "blockers", "blocker")


def _rows(owner: dict[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    rows = owner.get(key)
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise ValueError(f"{key} is not a list")
    seen = set()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"{what} {number} is not a mapping")
        found = row.get("id")
        if not isinstance(found, str) or not found:
            raise ValueError(f"{what} {number} has no id, or one that is not text (put it into quotes)")
        if found in seen:
            raise ValueError(f"the {what} id {found!r:.80} occurs twice")
        seen.add(found)
    return rows


def new(work_item_id: str, title: str, type: str, now: str, who: str, status: str = "planning") -> bytes:
    """A fresh file for a work item without activities."""
    values: dict[str, Any] = {
        "schema_version": SCHEMA,
        "version": 1,
        "last_modified": now,
        "last_modified_by": who,
        "work_item_id": work_item_id,
        "title": title,
        "type": type,
        "status": status,
        "created": now,
        "updated": now,
    }
    lines = [f"{key}: {yamlpatch.scalar(_checked(key, value, ITEM_STATUSES))}" for key, value in values.items()]
    data = "\n".join([*lines, "activities: []", "blockers: []", "artifacts: {}", ""]).encode()
    return parse(data).render()
