"""The contract between the board and the place where it lives: order, exclusion and durability, nothing else.

A `Store` gives out transactions. A `Tx` reads and writes rows. Neither knows a rule: which task may be claimed, what a
completed task does to its dependants, whose lock conflicts with whose is decided by the board, in pure functions.

    with store.write() as tx:      # runs as if alone, from its first read to its commit
        task = tx.get([task_id])[task_id]
        event = rules.complete(task, who, result, tx.now)
        tx.save([task])
        tx.append([event])
    # committed here, and as durable as the store promises; an exception rolls everything back

`with store.read() as tx:` sees one consistent state and changes nothing.

Reads are plain; nothing is locked by reading, with three exceptions that keep busy workers out of each other's way:
`ready(claim=True)` and `due` hand out rows that no other transaction is changing, and keep them; `locks(patterns)` of a
writing transaction makes others who ask for a grant wait until it ends. On a store whose writers take turns (memory,
SQLite, files) that is true without any effort.

Validation: a transaction may save only rows that it was handed. At its commit, every row that `get` handed out, and
every task or lock that it changes, must still be as it was handed out. If not, two writers have met: the store raises
`Collision`, nothing has changed, and the verb runs again from its start (`retried`). A store whose writers take turns
never raises it.

A read sees what the transaction itself has written.

A crash at any point leaves all of a transaction or none of it, its events included. A connection that is lost during
the commit, with no way to learn what became of it, is `OutcomeUnknown`.
"""

from __future__ import annotations

from dibs.errors import Busy


class Collision(Busy):
    """Another writer changed the same rows first. Nothing was changed; the same call may well succeed."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Protocol

    from dibs.model import BoardTask, Event, Lock, Message, TaskStatus, Worker

    class Tx(Protocol):
        """Rows in, rows out. Rows that are handed out are copies: change them, then `save`."""

        @property
        def now(self) -> float:
            """The board's time. It stands still within a transaction that waits for nobody."""

        # -- reading tasks

        def get(self, ids: Sequence[str]) -> dict[str, BoardTask]:
            """The tasks with these ids. Ids that are not on the board are missing from the answer."""

        def ready(
            self,
            reserved: Sequence[str],
            limit: int,
            after: BoardTask | None = None,
            held: Sequence[list[str]] = (),
            *,
            claim: bool = False,
        ) -> list[BoardTask]:
            """Up to `limit` pending tasks with nothing unmet and no open blocker, best first (priority, then age).

            Only those reserved for one of `reserved`, behind `after` in that order, and without those whose `paths`
            equal one of `held`. `claim`: leave out what other transactions are about to claim, and keep the rest
            from them. So with `claim` fewer may be found than there are; without, none is missing."""

        def due(self, limit: int) -> list[BoardTask]:
            """Tasks in progress whose lease has run out, oldest lease first, but for those that another transaction is
            changing."""

        def in_progress(self, name: str | None = None) -> list[BoardTask]:
            """Tasks in progress: all, or those assigned to a worker of that name."""

        def holders(self) -> list[Worker]:
            """Whoever holds a task or a lock, each once."""

        def all_tasks(self) -> Iterable[BoardTask]:
            """Every task, in order of `seq`, without holding them all in memory where the store can help it."""

        def page(
            self, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
        ) -> tuple[list[BoardTask], int]:
            """A page of tasks and how many there are: in progress, review, ready, waiting, then closed (newest first).

            `filters` may hold `label`, `assigned_to`, `parent` (equal) and `search` (substring of the description)."""

        def find(self, prefix: str, limit: int) -> list[str]:
            """Ids that start with a prefix."""

        def counts(self) -> dict[str, int]:
            """How many tasks have each status; statuses without tasks may be missing."""

        def is_all_done(self) -> bool:
            """Are there tasks, and none of them open?"""

        def dependants(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
            """The tasks that name one of these in `depends_on`, whatever their status."""

        def edges(self) -> Iterable[tuple[str, str]]:
            """(task, needs) for every dependency, by id, as the store's own index has them: `doctor` compares it with
            the tasks. A number stands for a task that does not exist."""

        # -- changing tasks

        def insert(self, tasks: Sequence[BoardTask]) -> None:
            """New tasks, in order; sets each `seq`."""

        def save(self, tasks: Sequence[BoardTask]) -> None:
            """Write back tasks that this transaction handed out. Their edges follow `depends_on`."""

        def satisfy(self, task: BoardTask) -> None:
            """A saved task was completed: whatever depends on it has one unmet dependency less. (A counter that many
            writers lower at once; nobody has to read it first.)"""

        # -- locks

        def locks(
            self, patterns: Sequence[str] | None = None, *, name: str | None = None, expired: bool = False
        ) -> list[Lock]:
            """Locks, ordered by pattern and token: at least those that could overlap one of the patterns, whether they
            have run out or not (and with no pattern none); or all, or one worker name's, or those that have run out."""

        def save_locks(self, locks: Sequence[Lock]) -> None:
            """Insert or replace, by pattern and token. New ones are granted after asking `locks(patterns)`."""

        def drop_locks(self, keys: Sequence[tuple[str, int]]) -> None:
            """Remove locks by (pattern, token); those that are gone already don't matter."""

        # -- changelog

        def draw(self, n: int) -> list[int]:
            """The numbers that the next `n` appended events will have: larger than the number of any event so far. The
            token of a claim or lock is the number of its event."""

        def append(self, events: Sequence[Event]) -> None:
            """Append to the changelog. Sets `time` and the growing `seq` of each, at the commit at the latest."""

        def events(self, after: int, limit: int, task_id: str | None = None, *, newest: bool = False) -> list[Event]:
            """Up to `limit` events numbered above `after`, the first or the newest of them, in order."""

        def last_event(self) -> int: ...

        # -- requests and messages

        def requests(self, key: str | None = None) -> dict[str, tuple[str, float]]:
            """What `remember` stored, and when: under all request keys, or under one (perhaps nothing)."""

        def remember(self, key: str, answer: str) -> None: ...

        def post(self, message: Message) -> None:
            """Store a message whose `seq` and `time` are those of its event."""

        def messages(self, name: str | None, after: int, limit: int, newest: bool) -> list[Message]:
            """Up to `limit` messages after a number, the first or the newest of them, oldest first: all, or those to
            that name and to everybody else. With a name, none that an earlier one could still come before."""

        def marks(self, reader: str | None = None) -> dict[str, int]:
            """The number of the last message that each reader was given: of all readers, or of one (perhaps none)."""

        def set_mark(self, reader: str, seq: int) -> None: ...

        # -- whole boards

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

    class Store(Protocol):
        url: str
        """The board's address, as `TaskBoard.open` takes it."""

        place: str | None
        """The folder that relative lock paths belong to, where there is one."""

        lease: float | None
        """How long claims last on this board unless the caller says otherwise; None: by the worker's kind."""

        satisfied_by: tuple[TaskStatus, ...]
        """The statuses at which a task counts as done for those that depend on it."""

        def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
            """Ids for new tasks, in the style of the board. They may be taken already: look before using them."""

        def write(self) -> AbstractContextManager[Tx]: ...

        def read(self) -> AbstractContextManager[Tx]: ...

        def try_claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> list[BoardTask] | None:
            """A plain claim in one step: `n` of the best ready tasks, where nothing is due and they name no files. None
            (also: fewer than `n` are to be had): nothing was changed, and the transaction decides. A store without
            such a fast path always answers None."""

        def try_complete(
            self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None
        ) -> BoardTask | None:
            """A plain completion in one step, by the token of a live claim (and its holder's name and kind, if known),
            where the task has no files, no dependants and no review. None as for `try_claim`."""

        def mark_change(self) -> int:
            """A number that grows with every commit of any process; read it before looking, then wait on it."""

        def wait_change(self, mark: int, timeout: float) -> bool:
            """Sleep until a commit after `mark`, or the time-out; says whether there was one. Burns no CPU."""

        def stable_seq(self) -> int | None:
            """The number up to which the changelog is final, for readers that come after this call: no event with a
            number up to it can appear any more. None: that holds for all that is there."""

        def close(self) -> None:
            """Give back files and memory. Closing twice is fine; using the store afterwards opens it again."""
