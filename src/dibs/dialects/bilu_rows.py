"""What a task file of document 002 is as a row of the board, and what of a row goes into a file. Pure functions.

* description: the title; below it, after a blank line, the description. Text whose first paragraph has several lines
  is kept whole in the description, with its first line as the title too; a description that begins with its title is
  therefore the whole text. So what is added reads back as it was given, but for blanks around it and line ends.
* priority: the weight of the file's priority; 0, which is what a task has that asks for none, is MEDIUM.
* labels: the tags. The kind, the free body of shape b and any other section are the file's own.
* blockers: BLOCKED and BACKLOG are pending with an open blocker. Who raised it and why is not in the file
  (`bilu_claims` may know); without that the reason is that the file says so. Resolving the last one makes it TODO.
"""

from __future__ import annotations

from dibs.dialects.bilu_markdown import BLANK
from dibs.dialects.bilu_words import PRIORITIES, State, priority_of, state_of, status_of
from dibs.dialects.filestore import NOBODY
from dibs.errors import Invalid, Unsupported
from dibs.model import COMPLETED, IN_PROGRESS, PENDING, REVIEW, Blocker, BoardTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dibs.dialects.bilu_text import TaskFile

BACKLOG = "backlog"
"""The id of the blocker that a task in the backlog has."""


def row(file: TaskFile, weights: Mapping[str, int], changed_at: float) -> BoardTask:
    """The task as its file has it. The document has no times; that of the file's last change is the nearest."""
    state = state_of(file.status)
    ended = state.status not in (PENDING, IN_PROGRESS)
    return BoardTask(
        file.stem,
        joined(file.title, file.description),
        state.status,
        depends_on=list(file.depends_on),
        priority=weights[file.priority],
        created_at=changed_at,
        completed_at=changed_at if ended else None,
        labels=list(file.tags),
    )


def fields(task: BoardTask, weights: Mapping[str, int]) -> dict[str, Any]:
    """What goes into the file of a new task."""
    title, description = divided(task.description)
    return {
        "title": title,
        "description": description,
        "status": word(task),
        "priority": priority(task.priority, weights),
        "tags": task.labels,
        "depends_on": task.depends_on,
    }


def word(task: BoardTask) -> str:
    """The status that a file says of this row, unless it says ARCHIVED."""
    blockers = task.open_blockers
    backlog = any(blocker.id == BACKLOG for blocker in blockers)
    return status_of(State(task.status, blocked=len(blockers) > backlog, backlog=backlog))


def priority(weight: int, weights: Mapping[str, int] = PRIORITIES) -> str:
    if weight == 0:
        return "MEDIUM"
    try:
        return priority_of(weight, weights)
    except Invalid as error:
        raise Unsupported(error.message, hint=error.hint, capability="priorities") from None


def blockers(status: str, known: Sequence[Blocker]) -> list[Blocker]:
    """The blockers of a task whose file has this status, from those that it had when dibs last wrote about it."""
    state = state_of(status)
    if state.status in (COMPLETED, REVIEW) or status == "CANCELLED":
        return list(known)
    kept = [blocker for blocker in known if not blocker.is_open or state.blocked or (state.backlog and _waits(blocker))]
    if state.blocked and all(_waits(blocker) or not blocker.is_open for blocker in kept):
        kept.append(Blocker(f"b{len(kept) + 1}", "its file says BLOCKED", NOBODY))
    if state.backlog and not any(blocker.is_open for blocker in kept):
        kept.append(Blocker(BACKLOG, "it is in the backlog", NOBODY))
    return kept


def _waits(blocker: Blocker) -> bool:
    return blocker.id == BACKLOG


def joined(title: str, description: str) -> str:
    if not description:
        return title
    if description.partition("\n")[0].strip(BLANK) == title:
        return description
    return f"{title}\n\n{description}"


def divided(text: str) -> tuple[str, str]:
    """Title and description; the reverse of `joined`."""
    text = text.replace("\r\n", "\n").strip(BLANK)
    title, _, rest = text.partition("\n")
    title = title.strip(BLANK)
    below = rest[1:]
    if not rest:
        return title, ""
    if rest[0] == "\n" and below.strip(BLANK) and joined(title, below) == text:
        first = below.partition("\n")[0].strip(BLANK)
        if first and first != title:
            return title, below
    return title, text
