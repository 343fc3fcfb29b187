"""What there is to see of a team at one moment, taken from the pool. Plain data; the views draw it.

    watcher = Watcher(pool)
    watcher.note(event)             # for every event of the pool
    scene = watcher.look()          # as often as one likes; the board is asked twice a second at most

Texts in a `Scene` are as they came, from agents and boards: a view makes them safe.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from dibs.errors import DibsError
from dibs.model import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, PENDING, REVIEW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from dibs.model import BoardTask
    from dibs.pool import PoolEvent

ASK_EVERY = 0.5
"""Seconds between two looks at the board."""
PATIENCE = 0.15
"""Seconds that a look waits for the board's answer before it shows the last one again."""
LATE = 2.0
"""Seconds without an answer that are worth a remark."""
READY = 64
"""The pool counts ready tasks up to here."""
REMEMBERED = 100
"""Events and lines of output that are kept for a screen."""

WAITING, RUNNING, WORKING, RESTARTS = "waiting", "running", "working", "restarts"
ENDED, FAILS, TIMED_OUT = "ended", "failed", "timed out"


class Row:
    """One agent."""

    __slots__ = ("name", "run", "state", "text", "seconds", "done", "leads")

    def __init__(
        self, name: str, run: int, state: str, text: str, seconds: float, done: int, leads: bool = False
    ) -> None:
        self.name = name
        self.run = run
        self.state = state
        self.text = text
        """Its task, or why it is in this state."""
        self.seconds = seconds
        """For how long it has had this task, or has been in this state."""
        self.done = done
        """Tasks that it has completed."""
        self.leads = leads


class Scene:
    __slots__ = (
        "title",
        "seconds",
        "counts",
        "total",
        "ready",
        "rows",
        "locks",
        "messages",
        "events",
        "output",
        "remark",
    )

    def __init__(
        self,
        title: str,
        seconds: float,
        *,
        counts: Mapping[str, int] | None = None,
        total: int = 0,
        ready: int = 0,
        rows: Iterable[Row] = (),
        locks: Iterable[tuple[str, str]] = (),
        messages: Iterable[tuple[str, str | None, str]] = (),
        events: Iterable[tuple[float, str, str, bool]] = (),
        output: Iterable[tuple[str, str]] = (),
        remark: str = "",
    ) -> None:
        self.title = title
        self.seconds = seconds
        self.counts = dict(counts or {})
        self.total = total
        self.ready = ready
        self.rows = list(rows)
        self.locks = list(locks)
        """(pattern, who holds it)"""
        self.messages = list(messages)
        """(from, to, text), the newest last; to None: everybody."""
        self.events = list(events)
        """(second, who, what, is it bad?), the newest last."""
        self.output = list(output)
        """(who, line), the newest last; only with --tail."""
        self.remark = remark
        """What must be said now: that it is stopping, that the board can't be read."""

    def tasks(self, status: str) -> int:
        return self.counts.get(status, 0)

    @property
    def wanted(self) -> int:
        """Tasks that are to be done, or have been."""
        return self.total - self.tasks(CANCELLED)

    @property
    def done(self) -> int:
        return self.tasks(COMPLETED)

    def tally(self) -> list[tuple[str, bool]]:
        """The counts in words, and whether that is bad: `4 in progress`, `9 ready`; only what there is."""
        many = self.ready >= READY
        pending = self.tasks(PENDING)
        parts = (
            (self.tasks(FAILED), "failed", True),
            (self.tasks(IN_PROGRESS), "in progress", False),
            (self.ready, "or more ready" if many else "ready", False),
            (pending, "pending", False) if many else (max(0, pending - self.ready), "waiting", False),
            (self.tasks(REVIEW), "in review", False),
            (self.tasks(CANCELLED), "cancelled", False),
        )
        found = [(f"{count:,} {word}", bad) for count, word, bad in parts if count]
        return found or ([("nothing is left to do", False)] if self.total else [])


class Watcher:
    """Looks at a pool. `remark` may be set by whoever has something to say."""

    def __init__(self, title: str, pool: Any = None) -> None:
        self.title = title
        self.pool = pool
        self.remark = ""
        self.started = time.time()
        self._began = time.monotonic()
        self._asked = float("-inf")
        self._asking: threading.Thread | None = None
        self._standing: Any = None
        self._earlier: int | None = None
        """The last message that was there before this run."""
        self._unread = ""
        self._since: dict[tuple[str, int | None], float] = {}
        """A claim (task and token) to when it was first seen here: the board may live by another clock."""
        self._held: dict[str, float] = {}
        """An agent to when it was last seen with a task."""
        self._events: deque[tuple[float, str, str, bool]] = deque(maxlen=REMEMBERED)
        self._output: deque[tuple[str, str]] = deque(maxlen=REMEMBERED)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def moment(self, event: PoolEvent) -> float:
        """The second of the run at which something happened."""
        return max(0.0, event.time - self.started)

    def tell(self, second: float, who: str, text: str, bad: bool = False) -> None:
        self._events.append((second, who, text, bad))

    def printed(self, who: str, line: str) -> None:
        self._output.append((who, line))

    def look(self) -> Scene:
        scene = Scene(self.title, self.seconds, events=self._events, output=self._output)
        if self.pool is None:
            scene.remark = self.remark
            return scene
        self._ask()
        scene.remark = self.remark or self._unread
        holding: Mapping[str, list[BoardTask]] = {}
        if self._standing is not None:
            there = self._standing
            scene.counts, scene.total, scene.ready = dict(there.counts), there.total, there.ready
            scene.locks = [(lock.pattern, lock.holder.name) for lock in there.locks]
            newest = sorted(there.messages, key=lambda message: message.seq)
            if self._earlier is None:
                self._earlier = newest[-1].seq if newest else 0
            new = [message for message in newest if message.seq > self._earlier]
            scene.messages = [(message.sender, message.to, message.content) for message in new]
            holding = there.holding
        now = time.time()
        scene.rows = [self._row(agent, holding.get(agent.name, []), now) for agent in self.pool.agents]
        return scene

    def _ask(self) -> None:
        """Ask the board, in a thread: it may be far away, and a view must not stand still for it."""
        now = time.monotonic()
        if self._asking is None and now - self._asked >= ASK_EVERY:
            self._asked = now
            self._asking = threading.Thread(target=self._inquire, args=(self.pool,), name="asking", daemon=True)
            self._asking.start()
        if self._asking is None:
            return
        self._asking.join(PATIENCE)  # most answer at once
        if self._asking.is_alive():
            if now - self._asked > LATE:
                self._unread = "the board does not answer"
            return
        self._asking = None
        if self._standing is not None:
            held = {(task.id, task.token) for tasks in self._standing.holding.values() for task in tasks}
            self._since = {claim: self._since.get(claim, now) for claim in held}

    def _inquire(self, pool: Any) -> None:
        try:
            self._standing, self._unread = pool.standing(), ""
        except (DibsError, OSError) as error:  # the next look may work; the run goes by its own looks
            self._unread = f"the board cannot be read now: {getattr(error, 'message', error)}"

    def _row(self, agent: Any, held: list[BoardTask], now: float) -> Row:
        state, text = _state(agent)
        seconds = max(0.0, now - agent.since)
        if state == RUNNING and agent.name in self._held:
            seconds = min(seconds, time.monotonic() - self._held[agent.name])
        if held and state == RUNNING:
            self._held[agent.name] = time.monotonic()
            first = held[0]
            state = WORKING
            more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
            text = f"{first.id}{more}: {first.description}"
            seconds = time.monotonic() - self._since.get((first.id, first.token), time.monotonic())
        return Row(agent.name, agent.run, state, text, seconds, len(agent.tasks), agent.role == "lead")


def _state(agent: Any) -> tuple[str, str]:
    """A word for an agent's state, and what there is to say about it as long as it has no task."""
    if agent.state == "running":
        return RUNNING, "leads" if agent.role == "lead" else "looks for work"
    if agent.state == "restarting":
        return RESTARTS, agent.error or "it has ended without finishing a task"
    if agent.state == "ended":
        if agent.status == "timeout":
            return TIMED_OUT, agent.error or ""
        if agent.status == "error" or agent.is_given_up:
            return FAILS, agent.error or "given up: it ends without finishing a task"
        return ENDED, ""
    return WAITING, "starts when there is work for it"
