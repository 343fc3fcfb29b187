"""What dibs knows about a dialect's board that concerns only dibs' own workers, in `DIR/.dibs/claims.json`.

For each claim made through dibs: who exactly holds it (session, process, host), its lease and its attempts; further the
answers to request keys, the marks of message readers, the anchor of the clock. An entry counts only as long as the
document's own files still name the same holder and the same claim; what others changed by hand wins. Losing this file
loses no claim and no task: claims go on as if they had been made by hand.

It also holds the note of the last write (`Redo`): which files were to become what, and the changelog's new lines. A
writer leaves the note before it touches the first file and appends the lines after the last, so whoever writes next
can tell an interrupted write from a finished one, and finish it.
"""

from __future__ import annotations

import os

from dibs import fs
from dibs.errors import BoardUnusable
from dibs.jsontext import dumps, loads
from dibs.model import IN_PROGRESS, PENDING, BoardTask, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

FOLDER = ".dibs"
_ENDED = 500
"""Ended claims that are remembered, so that a late or repeated call by their holder gets the right answer; and as many
of tasks that are not there: `git checkout` takes their files away and brings them back."""
_REQUESTS = 1000


class Companion:
    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, FOLDER)
        self.path = os.path.join(self.folder, "claims.json")
        self._data = b""
        self.anchor: tuple[str, float] | None = None
        self.claims: dict[str, dict[str, Any]] = {}
        self.locks: dict[str, dict[str, Any]] = {}
        self.marks: dict[str, int] = {}
        self.requests: dict[str, tuple[str, float]] = {}
        self.redo: dict[str, Any] | None = None
        self._gone: set[str] = set()
        """The tasks with claims that are not on the board now."""

    # -- the file

    def load(self) -> set[str]:
        """Read the file if it has changed; the ids of the tasks about which it says something else than before."""
        try:
            data = fs.read_marker(self.path, 1 << 26) or b""
        except OSError:
            data = b""  # not ours to read: go on as if there were none
        if data == self._data:
            return set()
        self._data, before = data, self.claims
        try:
            found = loads(data.decode("utf-8")) if data else {}
            anchor = found.get("anchor")
            self.anchor = (str(anchor[0]), float(anchor[1])) if anchor else None
            self.claims = {str(i): dict(entry) for i, entry in found.get("claims", {}).items()}
            self.locks = {str(i): entry for i, entry in found.get("locks", {}).items() if _is_claim(entry)}
            self.marks = {str(reader): int(seq) for reader, seq in found.get("marks", {}).items()}
            self.requests = {str(k): (str(a), float(t)) for k, (a, t) in found.get("requests", {}).items()}
            self.redo = found.get("redo")
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError):
            self.anchor, self.claims, self.locks, self.marks, self.requests = None, {}, {}, {}, {}
            self.redo = None
        return {i for i in before.keys() | self.claims.keys() if before.get(i) != self.claims.get(i)}

    def doubt(self) -> None:
        """A write failed half-way: read the file again next time, whatever it says."""
        self._data = b"?"
        self.claims = {}

    def save(self) -> None:
        """Write what is to be known from now on. Not synced: after a power failure claims go on as if by hand."""
        ended = [i for i, entry in self.claims.items() if "expires" not in entry or i in self._gone]
        for task_id in ended[:-_ENDED]:
            del self.claims[task_id]
        for key in list(self.requests)[:-_REQUESTS]:
            del self.requests[key]
        document = {
            "about": "dibs' own notes about claims made through it; the documented files beside this folder decide",
            "anchor": self.anchor,
            "claims": self.claims,
            "locks": self.locks,
            "marks": self.marks,
            "requests": self.requests,
            "redo": self.redo,
        }
        data = dumps(document).encode() + b"\n"
        if data == self._data:
            return
        self._make_folder()
        fs.replace_file(self.path, data, durable=False, follow=False)
        self._data = data

    def _make_folder(self) -> None:
        if os.path.islink(self.folder):
            # Whoever put it there decides where our notes would go, and over what.
            raise BoardUnusable(f"{self.folder} is a link, and dibs keeps its notes only in a folder of its own")
        if not os.path.isdir(self.folder):
            os.makedirs(self.folder, exist_ok=True)
            try:
                with open(os.path.join(self.folder, ".gitignore"), "x", encoding="ascii") as file:
                    file.write("*\n")
            except OSError:
                pass  # there already, or not allowed: git will show the folder, and no more

    # -- claims

    def describe(self, task: BoardTask) -> None:
        """Add to a row that was read from the document's files what is known of its claim."""
        entry = self.claims.get(task.id)
        if entry is None or not _is_claim(entry):
            return
        if task.status is PENDING:
            task.token = entry.get("token")
        elif task.token is not None and entry.get("token") != task.token:
            return  # claimed anew since: the file decides
        elif task.assigned_to is not None and entry.get("by") != task.assigned_to:
            return  # by another
        else:
            self._describe_claim(task, entry)
        task.attempts = int(entry.get("attempts") or 0)

    def _describe_claim(self, task: BoardTask, entry: dict[str, Any]) -> None:
        try:
            holder = Worker(**entry["worker"])
            lease = entry["lease"]
            expires = entry["expires"] if task.status is IN_PROGRESS else None
        except (TypeError, KeyError):
            return  # an ended claim that the files call live again: as if by hand
        task.holder, task.lease, task.lease_expires_at = holder, lease, expires
        task.token, task.assigned_to = entry["token"], entry["by"]
        task.claimed_at = task.token / 1_000_000

    def note(self, tasks: Iterable[BoardTask]) -> None:
        """Remember the claims of rows as they are now."""
        for task in tasks:
            self.claims.pop(task.id, None)
            if task.token is None and not task.attempts:
                continue
            entry: dict[str, Any] = {"token": task.token, "by": task.assigned_to, "attempts": task.attempts}
            if task.holder is not None:
                entry |= {"worker": task.holder.as_dict(), "lease": task.lease}
                if task.status is IN_PROGRESS:
                    entry["expires"] = task.lease_expires_at
            self.claims[task.id] = entry  # at the end: the newest are kept longest

    def put_claim(self, task_id: str, entry: Any) -> None:
        """Put back what was noted earlier; None: nothing was."""
        self.claims.pop(task_id, None)
        if _is_claim(entry):
            self.claims[task_id] = entry

    def only(self, known: Mapping[str, object]) -> None:
        """These are the tasks on the board. Of others no more is kept than of ended claims."""
        self._gone = self.claims.keys() - known.keys()


_LIMIT = 2.0**53
_LATEST = 253_402_300_800.0  # the year 10,000
_NUMBERS = (("token", int, _LIMIT), ("attempts", int, _LIMIT), ("lease", float, _LATEST), ("expires", float, _LATEST))
_TEXTS = ("name", "kind", "role", "session", "host", "started", "boot")


def _is_claim(entry: Any) -> bool:
    """Is this what `note` writes, as far as its types go? Anything else is somebody's accident."""
    if not isinstance(entry, dict) or not isinstance(entry.get("by"), str | None):
        return False
    for key, kind, limit in _NUMBERS:
        value = entry.get(key)
        if value is not None and not (isinstance(value, int | kind) and -limit < value < limit):
            return False
    worker = entry.get("worker")
    return worker is None or (isinstance(entry.get("token"), int) and "by" in entry and _is_worker(worker))


def _is_worker(worker: Any) -> bool:
    return (
        isinstance(worker, dict)
        and worker.keys() <= {*_TEXTS, "pid"}
        and isinstance(worker.get("name"), str)
        and all(isinstance(worker.get(key), str | None) for key in _TEXTS)
        and (worker.get("pid") is None or (isinstance(worker["pid"], int) and 0 < worker["pid"] < 1 << 31))
    )
