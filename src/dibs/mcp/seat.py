"""A seat: one worker at one board, as the tools see it. Several threads may call from the same seat.

    seat = Seat(open_board, worker)        the board is opened by the first call that needs it
    with Call(seat) as call: …             one request; `call.gone` says that nobody waits for its answer any more
    seat.keep()                            renew what the worker holds; a front that knows it to be alive calls this
    seat.close()                           waiting calls give up; returns when none is left, or after some seconds

A seat notices when its worker lost something without ending it (a lease that ran out while the machine slept, a lead's
decision): `news` has that for the next answer. A crash leaves what the worker held; the board frees it as always.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from dibs.board import TaskBoard
from dibs.errors import Busy, DibsError, LeaseLost, NotFound
from dibs.model import IN_PROGRESS, Worker
from dibs.rules import tasks as rules

WAIT = 45
"""Clients give up on a call after 60 seconds."""
SLICE = 0.5
"""Seconds after which a wait looks whether its client is still there."""

WAITERS = 16
"""So many calls of one seat may wait at the same time; further ones are refused at once, as `busy`."""
WAITERS_IN_ALL = 192
"""The same of all seats of a server. Each takes a thread, and `server.THREADS` must leave some for calls that work."""

_ENDINGS = (
    "completed_activity", "submitted_activity", "failed_activity", "released_activity", "cancelled_activity", "blocked",
)  # fmt: skip


class Gone(Exception):
    """Nobody waits for this answer any more."""


class Seat:
    def __init__(
        self,
        open_board: Callable[[], TaskBoard],
        worker: Worker,
        *,
        kept: bool = False,
        waiters: threading.Semaphore | None = None,
    ) -> None:
        """`kept`: somebody renews its leases, and the answers may say so. `waiters`: shared with other seats."""
        self._open = open_board
        self.worker = worker
        self.kept = kept
        self._board: TaskBoard | None = None
        self._opening = threading.Lock()
        self._turn = threading.Condition()
        self._busy = 0
        self._ending = False
        self._waiting = 0
        self._waiters = waiters or threading.Semaphore(WAITERS)
        self._tasks: dict[str, tuple[int | None, float]] = {}
        self._locks: dict[str, float] = {}
        self._news: list[LeaseLost] = []

    @property
    def board(self) -> TaskBoard:
        if self._board is None:
            with self._opening:
                if self._board is None:
                    self._board = self._open()
        return self._board

    @property
    def has_board(self) -> bool:
        return self._board is not None

    # -- calls

    def begin(self) -> None:
        """A call begins to work; not any more when the seat is being given up."""
        with self._turn:
            if self._ending:
                raise Gone
            self._busy += 1

    def end(self) -> None:
        with self._turn:
            self._busy -= 1
            self._turn.notify_all()

    def close(self, patience: float = 2.0) -> None:
        end = time.monotonic() + patience
        with self._turn:
            self._ending = True
            while self._busy and (left := end - time.monotonic()) > 0:
                self._turn.wait(left)

    @property
    def is_closing(self) -> bool:
        return self._ending

    def may_wait(self) -> bool:
        with self._turn:
            if self._waiting >= WAITERS or not self._waiters.acquire(blocking=False):
                return False
            self._waiting += 1
            return True

    def has_waited(self) -> None:
        with self._turn:
            self._waiting -= 1
        self._waiters.release()

    # -- what the worker holds

    def keep(self) -> float | None:
        """Renew what is held, and notice what was lost; the shortest lease of all, None if nothing is held."""
        board, who = self.board, self.worker
        board.keep(who)
        with board.store.read() as tx:
            now = tx.now
            tasks = [
                t for t in tx.in_progress(who.name) if t.holder and t.holder.is_same(who) and rules.is_live(t, now)
            ]
            locks = [x for x in tx.locks(name=who.name) if x.holder.is_same(who) and x.expires_at > now]
        with self._turn:
            gone = self._tasks.keys() - {task.id for task in tasks}
            run_out = [p for p, end in self._locks.items() if end <= now and all(x.pattern != p for x in locks)]
            before = {task_id: self._tasks[task_id] for task_id in gone}
            self._tasks = {task.id: (task.token, task.claimed_at or now) for task in tasks}
            self._locks = {lock.pattern: lock.expires_at for lock in locks if lock.task_id is None}
        for task_id, (token, since) in before.items():
            self._notice(task_id, token, since, now)
        if run_out:
            self._tell(
                LeaseLost(f"your lock on {', '.join(run_out)} ran out", hint="lock_files again before you go on")
            )
        return min([task.lease or 60.0 for task in tasks] + [lock.lease for lock in locks], default=None)

    def _notice(self, task_id: str, token: int | None, since: float, now: float) -> None:
        """A task is no longer held: is that news to its worker, or did it end the claim itself (in a shell)?"""
        try:
            task = self.board.get(task_id)
        except NotFound:
            self._tell(LeaseLost(f"task {task_id} is no longer on the board", hint="stop working on it; claim_task"))
            return
        if task.token == token and rules.is_live(task, now):
            return  # two looks that overtook each other
        by_itself = (
            event.worker == self.worker.name and event.action in _ENDINGS and event.time >= since - 1
            for event in self.board.recent(30, task_id)
        )
        if not any(by_itself):
            self._tell(rules.lost(task, now))

    def forget(self, task_id: str) -> None:
        """This worker has just ended its claim itself."""
        with self._turn:
            self._tasks.pop(task_id, None)

    def _tell(self, loss: LeaseLost) -> None:
        with self._turn:
            self._news.append(loss)

    def news(self) -> list[LeaseLost]:
        """What the worker lost since it was last told."""
        with self._turn:
            told, self._news = self._news, []
        return told


class Call:
    """One request of a seat."""

    def __init__(self, seat: Seat, left: threading.Event | None = None) -> None:
        """`left` is set when the client has gone without cancelling its request."""
        self.seat = seat
        self._left = left
        self._cancelled = threading.Event()
        self._deciding = threading.Lock()
        self._handed_over = False
        self._undos: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        if self.gone:
            raise Gone
        self.seat.begin()
        return self

    def __exit__(self, *failure: object) -> None:
        self.seat.end()

    @property
    def board(self) -> TaskBoard:
        return self.seat.board

    @property
    def worker(self) -> Worker:
        return self.seat.worker

    # -- an answer that reaches nobody

    def undo_by(self, act: Callable[[], object]) -> None:
        """How to take back what this call has just done, should nobody hear of it."""
        self._undos.append(act)

    def hand_over(self) -> None:
        """The work is done. If nobody waits for the answer any more, it is taken back, and `Gone` raised."""
        with self._deciding:
            self._handed_over = not self.gone
        if not self._handed_over:
            self._take_back()
            raise Gone

    def cancel(self) -> bool:
        """Nobody waits any more; had the answer been handed over? Then it is to be taken back: `take_back`."""
        with self._deciding:
            self._cancelled.set()
            late, self._handed_over = self._handed_over, False
        return late

    def take_back(self) -> None:
        """After the call: what was handed over was not taken."""
        try:
            self.seat.begin()
        except Gone:
            return  # everything is being given back
        try:
            self._take_back()
        finally:
            self.seat.end()

    def _take_back(self) -> None:
        for undo in reversed(self._undos):
            try:
                undo()
            except DibsError:
                pass  # it has ended otherwise

    @property
    def gone(self) -> bool:
        left = self._left is not None and self._left.is_set()
        return left or self._cancelled.is_set() or self.seat.is_closing

    def until(self, end: float) -> Iterator[float]:
        """The slices of a wait until a moment of `time.monotonic`: how long to wait next. Raises `Gone`.

        `Busy` if too many calls wait already: each takes a thread, and others need some, too.
        """
        if end > time.monotonic():
            if not self.seat.may_wait():
                raise Busy(
                    "too many calls are waiting on this server already; this one was refused, and changed nothing",
                    hint="call again in some seconds, or without wait_seconds",
                )
            try:
                while (left := end - time.monotonic()) > 0:
                    if self.gone:
                        raise Gone
                    yield min(left, SLICE)
            finally:
                self.seat.has_waited()
        if self.gone:
            raise Gone

    def owned(self, task_id: str, verb: str, token: int | None) -> None:
        """Refuse what another worker holds, another session of the same name included, though its token be shown. To a
        token of an earlier claim the board says itself what has become of it."""
        task = self.board.get(task_id)
        if token is not None and token != task.token:
            return
        if task.status is IN_PROGRESS and task.holder is not None and not task.holder.is_same(self.worker):
            raise rules.not_holder(task, self.worker, self.board.now(), verb)


def report(error: Exception) -> None:
    """What must not cost a call its answer is shown only to whoever looks for it."""
    if os.environ.get("DIBS_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
