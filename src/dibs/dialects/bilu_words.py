"""Document 002's vocabulary: statuses, priorities, kinds and ids, their tolerant spellings, and what they mean on a
board. Pure functions.
"""

from __future__ import annotations

from dibs.errors import Invalid, Unsupported
from dibs.limits import task_id
from dibs.model import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, PENDING, REVIEW, Record, TaskStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STATUSES = ("BACKLOG", "TODO", "INPROGRESS", "BLOCKED", "DONE", "REVIEW", "ARCHIVED", "CANCELLED")
PRIORITIES = {"CRITICAL": 10, "HIGH": 8, "MEDIUM": 5, "LOW": 3, "TRIVIAL": 1}
KINDS = ("task", "bug", "feature", "improvement")

_STATUS_OF = {name.lower(): name for name in STATUSES} | {"canceled": "CANCELLED"}
_PLAIN = {"TODO": PENDING, "INPROGRESS": IN_PROGRESS, "REVIEW": REVIEW, "DONE": COMPLETED, "CANCELLED": CANCELLED}
_DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))))
"""Names that Windows keeps for itself, with any extension."""


class State(Record):
    """What a file's status means on a board. A backlog task is pending but not claimable, a blocked one is pending
    with an open blocker, an archived one is completed and not shown."""

    __slots__ = ("status", "blocked", "backlog", "archived")

    def __init__(
        self, status: TaskStatus, *, blocked: bool = False, backlog: bool = False, archived: bool = False
    ) -> None:
        self.status = status
        self.blocked = blocked
        self.backlog = backlog
        self.archived = archived


def state_of(status: str) -> State:
    """What this canonical status means on a board."""
    if status == "BLOCKED":
        return State(PENDING, blocked=True)
    if status == "BACKLOG":
        return State(PENDING, backlog=True)
    if status == "ARCHIVED":
        return State(COMPLETED, archived=True)
    return State(_PLAIN[status])


def status_of(state: State) -> str:
    """The status that says this. A blocker outranks the backlog, for it is what somebody waits for; a flag that the
    status does not know (a blocked task in progress) is not written."""
    if state.status is PENDING:
        return "BLOCKED" if state.blocked else "BACKLOG" if state.backlog else "TODO"
    if state.status is COMPLETED:
        return "ARCHIVED" if state.archived else "DONE"
    if state.status is FAILED:
        raise Unsupported(
            "a bilu board has no status for a failed task",
            hint="release it (TODO), block it (BLOCKED) or cancel it (CANCELLED)",
        )
    return {IN_PROGRESS: "INPROGRESS", REVIEW: "REVIEW", CANCELLED: "CANCELLED"}[state.status]


def weight_of(priority: str, weights: Mapping[str, int] = PRIORITIES) -> int:
    return weights[priority]


def priority_of(weight: int, weights: Mapping[str, int] = PRIORITIES) -> str:
    """The priority with this weight; Invalid when none has it."""
    for name, its in weights.items():
        if its == weight:
            return name
    choices = ", ".join(f"{its} ({name})" for name, its in weights.items())
    raise Invalid(f"a bilu board has no priority {weight}", hint=f"use one of {choices}")


def read_status(text: str) -> str | None:
    """The canonical status meant by this spelling ("In progress", "to-do", "canceled"), or None."""
    return _STATUS_OF.get("".join(c for c in text.lower() if c not in " -_\t"))


def read_priority(text: str) -> str | None:
    return name if (name := text.upper()) in PRIORITIES else None


def read_kind(text: str) -> str | None:
    return name if (name := text.lower()) in KINDS else None


def is_stem(text: str) -> bool:
    """Whether a task may have this id here: a task id that is a file name on every system."""
    try:
        task_id(text)
    except Invalid:
        return False
    return not (text.endswith(".") or text.lower().endswith(".md") or text.lower().partition(".")[0] in _DEVICES)


def slug(title: str, taken: Iterable[str] = ()) -> str:
    """An id for a new task with this title, differing by more than case from those taken."""
    from unicodedata import normalize

    plain = normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = "".join(c if c.isalnum() else " " for c in plain).split()
    stem = "-".join(words)[:60].rstrip("-")
    stem = stem if is_stem(stem) else f"task-{stem}".rstrip("-")
    used = {other.lower() for other in taken}
    if stem not in used:
        return stem
    n = 2
    while f"{stem}-{n}" in used:
        n += 1
    return f"{stem}-{n}"


def link_to(stem: str) -> str:
    """The path by which index files and messages name a task's file."""
    return f"board/tasks/{stem}.md"
