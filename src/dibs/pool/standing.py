"""How a board stands for a team: what there is to do, who holds what, and whether it can go on.

standing = look(board, names)         cheap enough for twice a second, also on a large board
standing.is_finished, standing.holding, …
has_moved(board, standing)            was it perhaps true at no moment? A look is several reads
why_stuck(board)                      in words, for a board on which nothing moves
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from dibs.board import TaskBoard
from dibs.errors import Unsupported, quoted
from dibs.model import (
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    OPEN,
    PENDING,
    REVIEW,
    BoardTask,
    Lock,
    Message,
    TaskStatus,
    Worker,
)
from dibs.rules import tasks as rules

MESSAGES = 5
READY = 64
"""Ready tasks are counted up to here: more agents than this are not started at once."""

_LINKS = {"dependency": "", "path": "waits: "}
"""What joins a task and the reason why it cannot be claimed."""

_ANYONE = Worker("anyone-of-the-team")


class Standing:
    def __init__(
        self,
        counts: dict[TaskStatus, int],
        ready: int,
        claims: list[BoardTask],
        locks: list[Lock],
        messages: list[Message],
        sessions: Mapping[str, str],
        mark: int,
    ) -> None:
        self.counts = counts
        self.ready = ready
        """Tasks that an agent could claim now, up to `READY`."""
        self.claims = claims
        """Live claims, by whoever."""
        self.locks = locks
        self.messages = messages
        """The newest."""
        self.mark = mark
        """The board's change mark before the look."""
        self.holding: dict[str, list[BoardTask]] = {name: [] for name in sessions}
        """Agents of the team, and the tasks that they hold."""
        self.others: list[BoardTask] = []
        """Live claims of workers who are not of the team, whatever their names."""
        for task in claims:
            name = task.assigned_to or ""
            mine = name in sessions and (task.holder is None or task.holder.session in (None, sessions[name]))
            (self.holding[name] if mine else self.others).append(task)

    def __repr__(self) -> str:
        return f"<Standing {self.completed} of {self.total} completed, {self.ready} ready, {len(self.claims)} claimed>"

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def open(self) -> int:
        return sum(self.counts[status] for status in OPEN)

    @property
    def completed(self) -> int:
        return self.counts[COMPLETED]

    @property
    def above(self) -> int:
        """Live claims of the agent that this very team was started by: it waits for us, not we for it."""
        own = os.environ.get("DIBS_SESSION")
        return sum(own is not None and t.holder is not None and t.holder.session == own for t in self.others)

    @property
    def is_finished(self) -> bool:
        return self.open == self.above


def look(board: TaskBoard, sessions: Mapping[str, str]) -> Standing:
    """`sessions` are those of the team's agents, by their names: another team may have agents of the same names."""
    mark = board.store.mark_change()
    counts = board.counts()
    ready = len(board.ready(_ANYONE, READY)) if counts[PENDING] or counts[IN_PROGRESS] else 0
    with board.store.read() as tx:
        now = tx.now
        claims = [task for task in tx.in_progress() if rules.is_live(task, now)] if counts[IN_PROGRESS] else []
        locks = [lock for lock in tx.locks() if lock.expires_at > now]
    try:
        messages = board.messages(MESSAGES)
    except Unsupported:
        messages = []
    return Standing(counts, ready, claims, locks, messages, sessions, mark)


def workers_of(board: TaskBoard, sessions: Collection[str]) -> list[Worker]:
    """Who holds something in these sessions. An agent may act under other names than its own, too (`dibs --as`)."""
    with board.store.read() as tx:
        holders = [task.holder for task in tx.in_progress()] + [lock.holder for lock in tx.locks()]
    found = {(h.name, h.kind, h.session) for h in holders if h is not None and h.session in sessions}
    return [Worker(name, kind, session=session) for name, kind, session in sorted(found, key=str)]


def kept_by_others(board: TaskBoard, sessions: Mapping[str, str]) -> list[str]:
    """Tasks that wait for files which workers outside of the team hold, and who that is, in words: they will be given
    back, or run out."""
    own = set(sessions.values())
    others = {(lock.holder.name, lock.pattern) for lock in board.locks() if lock.holder.session not in own}
    tasks = board.tasks([PENDING], limit=200)[0] if others else []
    return [
        f"{task.id} ({reason.worker} holds {reason.path})"
        for task in tasks
        for reason in board.reasons(task.id, _ANYONE)
        if reason.code == "path" and (reason.worker, reason.path) in others
    ]


def has_moved(board: TaskBoard, standing: Standing) -> bool:
    """Did a change come between the reads, or a lease run out? Then nothing follows from what each of them saw."""
    return bool(board.ready(_ANYONE, 1)) or board.store.mark_change() != standing.mark


def why_stuck(board: TaskBoard) -> str:
    """What the tasks that are left wait for."""
    counts = board.counts()
    left = [f"{counts[status]} {rules.spoken(status)}" for status in OPEN if counts[status]]
    tasks, _ = board.tasks([PENDING, REVIEW], limit=3)
    parts = []
    for task in tasks:
        if task.status is REVIEW:
            parts.append(f"{task.id} waits for somebody to accept it: dibs accept {quoted(task.id)}")
            continue
        reasons = board.reasons(task.id, _ANYONE)
        parts += [f"{task.id} {_LINKS.get(reason.code, 'is ')}{reason.text}" for reason in reasons[:1]]
    failed = f" ({counts[FAILED]} failed)" if counts[FAILED] else ""
    return f"{' and '.join(left)} cannot go on{failed}: {'; '.join(parts) or 'see dibs list'}"
