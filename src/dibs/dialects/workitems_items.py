"""The folders of document 001's work items: which there are, and what `progress.yaml` and locks said when last read."""

from __future__ import annotations

import os

from dibs.dialects.isotime import moment
from dibs.dialects.workitems_locks import SUFFIX, FoundLock, create

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.dialects.progress_yaml import Progress

FILE = "progress.yaml"
LOG = "changelog.log"


class Item:
    """A work item's folder, and its `progress.yaml` as it was last read or written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        self.path = os.path.join(folder, FILE)
        self.data: bytes | None = None
        self.id = ""
        self.created_at = 0.0
        self.facts: dict[str, Fact] = {}
        self.locks: dict[str, FoundLock] = {}

    def lock_path(self, its_id: str) -> str:
        return os.path.join(self.folder, "locks", its_id + SUFFIX)

    def take(self, data: bytes, progress: Progress) -> None:
        self.data = data
        self.id = progress.work_item_id
        self.created_at = moment(progress.created) or 0.0
        self.facts = facts_of(progress)


class Fact:
    """What the file says about one activity."""

    __slots__ = ("activity", "blockers")

    def __init__(self, activity: dict[str, Any]) -> None:
        self.activity = activity
        self.blockers: list[dict[str, Any]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and (self.activity, self.blockers) == (other.activity, other.blockers)

    __hash__ = None  # type: ignore[assignment]


def facts_of(progress: Progress) -> dict[str, Fact]:
    facts = {entry["id"]: Fact(entry) for entry in progress.data.get("activities") or ()}
    for entry in progress.data.get("blockers") or ():
        fact = facts.get(entry.get("activity_id"))
        if fact is not None:
            fact.blockers.append(entry)
    return facts


def item_folders(folder: str) -> Iterator[str]:
    """The folders of the work items: this one, or those in it, by number and name."""
    if os.path.isfile(os.path.join(folder, FILE)):
        yield folder
        return
    try:
        names = [name for name in os.listdir(folder) if name[0] != "."]
    except OSError:
        return
    for name in sorted(names, key=_place):
        path = os.path.join(folder, name)
        if os.path.isfile(os.path.join(path, FILE)):
            yield path


def _place(name: str) -> tuple[int, str]:
    number = (number_of(name) or "WI-0")[3:]
    return int(number), name


def number_of(name: str) -> str | None:
    """`WI-007` of WI-007-search."""
    digits = name[3:].partition("-")[0]
    return f"WI-{digits}" if name.startswith("WI-") and digits.isdigit() and digits.isascii() else None


def create_new(path: str, data: bytes) -> None:
    """A new file, whole; nothing happens if there is one already."""
    create(path, data, durable=True)
