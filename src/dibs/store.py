"""What a board needs from the place where it lives: order, exclusion and durability, nothing else.

A `Store` gives out transactions; a `Tx` reads and writes rows. Neither knows a rule: which task may be claimed, what a
completed task does to its dependants, whose lock conflicts with whose, is decided in `rules` by `board`.

Calling sequence: `with store.write() as tx:` runs alone, or as if alone, from its first read to its commit. Leaving
the block commits, and returns only when the commit is as durable as the store promises; an exception rolls back, and
nothing of the block is seen by anyone, ever. `with store.read() as tx:` sees one consistent state and changes nothing.

As if alone: on a store whose writers run side by side, rows that `get`, `again`, `ready`, `due`, `dependants`, `still`
and `locks(patterns)` hand out stay as they are until the transaction ends, and nobody else grants a lock that overlaps
patterns which `locks` or `near` was asked about and on which this transaction does. What the other verbs hand out is a
look: before anything is decided about such a row, it is fetched again by one of the above. A store may keep that by
seeing at the end that it was so. Where it was not, or cannot be kept, the store raises `Collision`, and the verb runs
again from its start (`core.retried`).

A crash at any point leaves either all of a transaction or none of it, its events included.
"""

from __future__ import annotations

from dibs.errors import Busy


class Collision(Busy):
    """Others were at the same rows in another order. Nothing was changed; the same again may well succeed."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Protocol

    from dibs.model import BoardTask, Event, Lock, Message, TaskStatus, Worker

    Living = Callable[[], tuple[str, Sequence[str]]]

    class Tx(Protocol):
        """Rows in, rows out. Every verb is plural; rows handed out are the caller's to change and then `save`."""

        @property
        def now(self) -> float:
            """The board's time. It stands still within the transaction, unless that has to wait for others: then it is
            the time at which it has what it waited for. A jump of the wall clock moves leases with it."""

        def foresee(
            self,
            *,
            name: str | None = None,
            ending: str | None = None,
            holders: bool = False,
            claiming: tuple[Worker, Sequence[str], int] | None = None,
            taking: str | None = None,
            key: str | None = None,
            reaping: bool = False,
            living: Living | None = None,
            is_gone: Callable[[Worker], bool] | None = None,
            thorough: bool = False,
        ) -> None:
            """A hint, at the start of a writing verb, of what it will ask for: what the worker of this name holds; the
            task that is to end, with what hangs on it, and (`holders`) what its holder holds; the best ready tasks for
            a worker, its reservations and their number, or the task that is to be taken, with the locks near them; the
            answer to a request key; what was left behind (see there, also for `living` and `is_gone`). A store that is
            a network away fetches it in one trip, but for what is needed seldom, unless this is to be `thorough`;
            others need not listen."""

        def next_token(self) -> int:
            """The number that the next appended event will have, larger than any event, claim or lock so far. Where
            numbers are drawn last, this stands for it until the transaction ends: rows and events that were handed to
            the transaction then have the number itself."""

        def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
            """The tasks with these ids; ids that are not on the board are missing from the answer."""

        def again(self, task: BoardTask) -> BoardTask | None:
            """The present state of a task that an earlier transaction handed out."""

        passes_over: bool
        """Does `ready` leave out tasks that another transaction is at, unless it finds no other? Then it may also hand
        out fewer than there are, but none only if there is none."""

        def ready(
            self,
            reserved: Sequence[str],
            limit: int,
            after: BoardTask | None,
            held: Sequence[list[str]],
            *,
            who: Worker | None = None,
            look: bool = False,
        ) -> list[BoardTask]:
            """Pending tasks with nothing unmet and no open blocker, best first (priority, then age).

            Only those reserved for one of `reserved`, only those behind `after` in that order, and none whose
            `paths` equal one of `held` (path lists that the caller has already found to be held). A store may leave
            out what the worker `who` could not be given. `look`: only to look, but also at what others are
            at.
            """

        def due(self, limit: int) -> list[BoardTask]:
            """Tasks in progress whose lease has run out, oldest lease first."""

        def in_progress(self, name: str | None = None) -> list[BoardTask]:
            """Tasks in progress, all or those assigned to a worker of that name. A look."""

        def left_behind(
            self, is_gone: Callable[[Worker], bool], living: Living
        ) -> tuple[list[BoardTask], list[Lock], float]:
            """The tasks in progress and the locks whose holder is gone, the locks that have run out, and the seconds
            that it took to find them. A look. `living` tells what the record of a holder must contain to be gone, and
            which of those records are not, to spare a store that is a network away from asking about them all."""

        def freeze_edges(self) -> None:
            """Nobody else adds or drops dependencies between tasks that exist, until this transaction ends."""

        def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
            """The tasks that name one of these in `depends_on`, whatever their status."""

        def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
            """Ids for new tasks, in the style of the board; random ones may be taken already, the caller looks."""

        def insert(self, tasks: Sequence[BoardTask]) -> None:
            """New tasks, in order; sets each `seq`. The ids are new and the dependencies exist: the caller has
            looked."""

        def save(self, tasks: Sequence[BoardTask]) -> None:
            """Write back tasks that this transaction handed out."""

        def link(self, edges: Sequence[tuple[BoardTask, BoardTask]]) -> None:
            """Add (task, needs) edges, for `dependants`; `depends_on` itself is saved with the task."""

        def unlink(self, edges: Sequence[tuple[BoardTask, BoardTask]]) -> None:
            """Remove such edges."""

        def edges(self) -> Iterable[tuple[str, str]]:
            """All such edges, by the ids of both; or by a number, where there is no such task."""

        def locks(self, patterns: Sequence[str] | None = None, name: str | None = None) -> list[Lock]:
            """At least those locks that could overlap one of the patterns; or, as a look, all, or a worker name's.
            Expired ones included."""

        def near(self, patterns: Sequence[str]) -> list[Lock]:
            """The same locks, without waiting for others who are deciding about these paths. If locks are saved on
            these patterns, that is as if they had been handed out by `locks(patterns)`; else it was a look."""

        def own_locks(self, task: BoardTask) -> list[Lock]:
            """The locks that came with the claim of a task, which this transaction was handed."""

        def still(self, locks: Sequence[Lock]) -> list[Lock]:
            """Those of some locks from a look that are there now, and stay so."""

        def save_locks(self, locks: Sequence[Lock]) -> None:
            """Insert or replace, by pattern and token."""

        def drop_locks(self, locks: Sequence[Lock]) -> None: ...

        def append(self, events: Sequence[Event]) -> None:
            """Append to the changelog: sets `seq` (strictly growing) and `time` on each."""

        def recall(self, key: str) -> str | None:
            """What `remember` stored under a request key."""

        def remember(self, key: str, answer: str) -> None: ...

        def shift_requests(self, seconds: float) -> None:
            """The clock jumped: let remembered answers be as old as they were."""

        def post(self, messages: Sequence[Message]) -> None:
            """Store messages whose `seq` and `time` are those of their event."""

        def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
            """Up to `limit` messages after a number, the first or the newest of them, oldest first: all, or those to
            that name and to everybody else. With a name, none that an earlier one could still come before."""

        def mark(self, reader: str) -> int:
            """The number of the last message that this reader was given; 0 if none."""

        def set_mark(self, reader: str, seq: int) -> None: ...

        def counts(self) -> dict[str, int]:
            """How many tasks have each status; statuses without tasks may be missing."""

        def is_all_done(self) -> bool:
            """Are there tasks, and none of them open?"""

        def page(
            self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
        ) -> tuple[list[BoardTask], int]:
            """A page of tasks and how many there are: in progress, review, ready, waiting, then closed (newest first).

            `filters` may hold `label`, `assigned_to`, `parent` (equal) and `search` (substring of the description).
            """

        def find(self, prefix: str, limit: int) -> list[str]:
            """Ids that start with a prefix."""

        def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
            """Up to `limit` events numbered above `after`, the first or the newest of them, in order."""

        def last_event(self) -> int: ...

        def all_tasks(self) -> Iterable[BoardTask]:
            """Every task, in order of `seq`, without holding them all in memory where the store can help it."""

        def marks(self) -> dict[str, int]: ...

        def requests(self) -> dict[str, tuple[str, float]]: ...

        def restore(
            self,
            tasks: Iterable[BoardTask],
            locks: Iterable[Lock],
            messages: Iterable[Message],
            events: Iterable[Event],
            marks: dict[str, int],
            requests: dict[str, tuple[str, float]],
        ) -> None:
            """Fill an empty board with rows exactly as they are, numbers and times included."""

    class Quick(Protocol):
        """Answers None where the case is not the common one; nothing has changed then, and the long way decides."""

        @property
        def now(self) -> float:
            """About the board's time, without asking for it."""

        def claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> list[BoardTask] | None:
            """Up to `n` of the best ready tasks, if nothing is due, and they ask for no files. An empty list is not the
            last word either: it was tried in vain, and the long way decides."""

        def complete(
            self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None
        ) -> BoardTask | None:
            """End a live claim by its token (and by the caller's name and kind, if known), if the task has no files, no
            dependants and no review."""

    class Store(Protocol):
        url: str
        """The board's address, as `TaskBoard.open` takes it."""

        place: str | None
        """The folder that relative lock paths belong to, where there is one."""

        lease: float | None
        """How long claims last on this board unless the caller says otherwise; None: by the worker's kind."""

        met_by: tuple[TaskStatus, ...]
        """The statuses at which a task counts as done for those that depend on it."""

        quick: Quick | None
        """The common cases of claim and complete without a transaction in between, where trips are what costs."""

        def write(self) -> AbstractContextManager[Tx]: ...

        def read(self) -> AbstractContextManager[Tx]: ...

        def mark_change(self) -> int:
            """A number that grows with every commit of any process; to be read before looking, then waited on."""

        def wait_change(self, mark: int, timeout: float) -> bool:
            """Sleep until a commit after `mark`, or the time-out; says whether there was one. Burns no CPU."""

        def settled(self) -> int | None:
            """The number up to which the changelog is final, for readers that come after this call: no event with a
            number up to it can appear any more. None: that holds for all that is there."""

        def close(self) -> None:
            """Give back files and memory. Closing twice is fine; using the store afterwards opens it again."""
