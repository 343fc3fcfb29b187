"""What `dibs check` finds in document 001's `progress.yaml`: values that are missing or no words of the document, and
keys that look misspelt. All of it is read in a defined way, so these are warnings. Pure: bytes in, findings out.

Keys of other tools are fine. One is named only if it looks like a key of the document that is missing beside it.
"""

from __future__ import annotations

from dibs.dialects import yamltext
from dibs.dialects.bilu_index import Finding
from dibs.dialects.progress_yaml import ACTIVITY_KEYS, ACTORS, BLOCKER_KEYS, STATUSES, TASK_KEYS, TOP_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ALIKE = 0.8
"""How much of two keys must be the same for one to be taken for the other."""


def doubts(data: bytes, file: str) -> list[Finding]:
    """In the order of the file, which is one that `progress_yaml.parse` accepts."""
    text = data.decode()
    root = yamltext.parse(text)
    found = [Finding(file, text.count("\n", 0, node.start) + 1, "warning", what) for node, what in _item(root)]
    return sorted(found, key=lambda finding: finding.line)


def _item(root: yamltext.Node) -> Iterator[tuple[yamltext.Node, str]]:
    if not isinstance(root, yamltext.Mapping):
        return
    yield from _misspelt(root, "the work item", TOP_KEYS)
    for activity in _rows(root, "activities"):
        name = f"activity {_id(activity)}"
        yield from _misspelt(activity, name, ACTIVITY_KEYS)
        yield from _words(activity, name, "it counts as blocked")
        for task in _rows(activity, "tasks"):
            yield from _misspelt(task, f"task {_id(task)}", TASK_KEYS)
            yield from _words(task, f"task {_id(task)}", "it is read as pending")
    for blocker in _rows(root, "blockers"):
        yield from _misspelt(blocker, f"blocker {_id(blocker)}", BLOCKER_KEYS)


def _rows(owner: yamltext.Mapping, key: str) -> Iterator[yamltext.Mapping]:
    rows = owner.entries.get(key)
    if isinstance(rows, yamltext.Sequence):
        yield from (row for row in rows.items if isinstance(row, yamltext.Mapping))


def _id(row: yamltext.Mapping) -> str:
    return str(yamltext.plain(row.entries["id"]))


def _words(row: yamltext.Mapping, name: str, strange: str) -> Iterator[tuple[yamltext.Node, str]]:
    """Its status and its actor, where they are not of the document."""
    status, actor = row.entries.get("status"), row.entries.get("actor")
    word = None if status is None else yamltext.plain(status)
    if status is None or word in (None, ""):
        yield row.entries["id"], f"{name} has no status; it is read as pending"
    elif word not in STATUSES:
        yield status, f"the status {word!r:.60} of {name} is no word of document 001; {strange}"
    if actor is not None and (word := yamltext.plain(actor)) not in (None, *ACTORS):
        yield actor, f"the actor {word!r:.60} of {name} is no word of document 001; it is read as any"


def _misspelt(row: yamltext.Mapping, name: str, known: tuple[str, ...]) -> Iterator[tuple[yamltext.Node, str]]:
    missing = [key for key in known if key not in row.entries]
    for key, node in row.entries.items():
        if key not in known:
            from difflib import get_close_matches

            if meant := get_close_matches(str(key).lower(), missing, 1, ALIKE):
                yield node, f"{name} has a key {key!r:.60}, which document 001 does not know; was {meant[0]} meant?"
