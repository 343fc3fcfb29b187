"""The stores under contract. A new one joins by adding its `Home` to `HOMES`, with what it `cannot` keep.

A test says with `pytest.mark.needs` which capabilities it needs; it is left out on a store that lacks one of
them. `test_incapabilities` asks every store for every capability: what is declared is refused, and nothing else is.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dibs import BoardTask, TaskBoard, TaskStatus
from dibs.address import open_store
from dibs.clock import Clock
from dibs.stores.memory import MemoryStore
from tests.clocks import START, STEADY
from tests.postgres.server import server_for_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dibs.stores.base import Store

CAPABILITIES = frozenset(
    (
        "blockers",
        "cancelled tasks",
        "failed tasks",
        "histories",
        "labels",
        "limits of attempts",
        "locks",
        "parents",
        "paths",
        "priorities",
        "reservations",
        "reviews",
        "steps",
    )
)
"""What a format may have no place for."""


class Home:
    """A place where one board lives. Opening it again gives what another process would see."""

    name = ""
    cannot: frozenset[str] = frozenset()
    ids = r"[0-9a-f]{8}"
    """What ids look like that the board gives."""
    reviews_all = False
    """Does all work go through a review, whether asked for or not?"""
    priority = 0
    """What a task has that asks for none."""
    priorities: tuple[int, ...] = (1, 3, 5)
    """Some that it can keep, the most urgent last: one where all are alike."""
    other_ids: frozenset[str] = frozenset()
    """Ids that every board accepts, but for those whose tasks are files that other systems could not hold."""
    plain_text = False
    """Are tasks text files, without control characters?"""
    steps = "s{number}"
    """What the ids of steps look like."""
    skips = False
    """Is a cancelled task as good as a completed one for those that depend on it?"""
    largest = 100_000
    """The most tasks that a test about many uses here: fewer where the whole file is written for every claim."""
    has_gaps = False
    """May numbers of events be left out?"""
    minds_the_clock = True
    """Does the store notice jumps of this machine's clock? Not one whose time is the database's."""
    machine_examples = 50
    """How many the state machine tries here: fewer where one costs more."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock
        self._opened: list[TaskBoard] = []

    def open(self, **options: Any) -> TaskBoard:
        board = self._open(options)
        self._opened.append(board)
        return board

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        raise NotImplementedError

    def step(self, task_id: str, number: int) -> str:
        """The id of a task's step."""
        return self.steps.format(task=task_id, number=number)

    def bare(self) -> Store:
        """The store without a board's first event, as an import wants it."""
        raise NotImplementedError

    def close(self) -> None:
        for board in self._opened:
            board.close()


class MemoryHome(Home):
    name = "memory"

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._store = MemoryStore(clock)

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        return TaskBoard(store=self._store, **options)

    def bare(self) -> Store:
        return self._store


class SqliteHome(Home):
    """Without syncing, which makes no difference to the contract; `tests/processes` and `tests/faults` sync."""

    name = "sqlite"

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        return TaskBoard.open(self._url, create=True, durability="normal", clock=self.clock, **options)

    @property
    def _url(self) -> str:
        return f"sqlite:{self.folder / 'board.db'}"

    def bare(self) -> Store:
        return open_store(self._url, create=True, durability="normal", clock=self.clock)


class ServersClock(Clock):
    """The clock of a database server, as far as a test's clock tells: one that nobody sets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wall(self) -> float:
        return START - STEADY + self._clock.steady()


class PostgresHome(Home):
    """A board of its own in one database of the run's server: a database for each would cost more than most tests."""

    name = "postgres"
    machine_examples = 8
    minds_the_clock = False
    has_gaps = True

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, ServersClock(clock))
        self._url = server_for_test().url(board=f"t{uuid.uuid4().hex}")
        self._bare: list[Store] = []

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        return TaskBoard.open(self._url, create=True, clock=self.clock, **options)

    def bare(self) -> Store:
        store = open_store(self._url, create=True, clock=self.clock)
        self._bare.append(store)
        return store

    def close(self) -> None:
        super().close()
        for store in self._bare:
            store.close()


class DialectHome(Home):
    """A board in a document's own files. Without syncing, as above."""

    board: type[TaskBoard] = TaskBoard

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        return self.board.open(self._url, create=True, durability="normal", clock=self.clock, **options)

    @property
    def _url(self) -> str:
        return f"{self.name}:{self.folder / 'board'}"

    def bare(self) -> Store:
        self.open().close()
        return open_store(self._url, durability="normal", clock=self.clock)


class TaskboardHome(DialectHome):
    name = "taskboard"
    cannot = frozenset(
        ("blockers", "cancelled tasks", "histories", "labels", "limits of attempts", "locks", "parents", "paths",
         "reservations", "reviews", "steps")
    )  # fmt: skip


class Integrated(TaskBoard):
    """On a workflow board all work goes through an integrator; here he integrates at once, unless a test is about
    reviews."""

    reviewed: ClassVar[set[str]] = set()

    def add(self, description: str, *args: Any, **options: Any) -> str:
        task_id = super().add(description, *args, **options)
        self.reviewed.update([task_id] if options.get("review") else [])
        return task_id

    def add_many(self, definitions: Sequence[Mapping[str, Any]], **options: Any) -> list[str]:
        ids = super().add_many(definitions, **options)
        self.reviewed.update(i for i, fields in zip(ids, definitions, strict=True) if fields.get("review"))
        return ids

    def complete(self, task_id: str, *args: Any, **options: Any) -> BoardTask:
        task = super().complete(task_id, *args, **options)
        waits = task.status is TaskStatus.REVIEW and task_id not in self.reviewed
        return self.accept(task_id, worker="integrator-1") if waits else task

    def finish_claim(self, task: BoardTask, *args: Any, **options: Any) -> BoardTask | None:
        following = super().finish_claim(task, *args, **options)
        if task.status is TaskStatus.REVIEW and task.id not in self.reviewed:
            task._adopt(self.accept(task.id, worker="integrator-1"))
        return following


class WorkflowHome(DialectHome):
    name = "workflow"
    board = Integrated
    ids = r"task-[0-9]{3}"
    priorities = (0,)
    reviews_all = True
    cannot = frozenset(
        (
            "blockers",
            "cancelled tasks",
            "failed tasks",
            "histories",
            "labels",
            "limits of attempts",
            "locks",
            "parents",
            "priorities",
            "reservations",
            "steps",
        )
    )

    @property
    def _url(self) -> str:
        return f"workflow:{self.folder / '.workflow'}?pause=0.01"

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        if not (self.folder / ".workflow").exists():
            Integrated.reviewed.clear()
            TaskBoard.open(self._url, create=True, worker="planner-1", clock=self.clock).close()
        return super()._open(options)


class BiluHome(DialectHome):
    name = "bilu"
    largest = 2_000
    ids = r"[0-9]{2,}-[a-z0-9-]+"
    priority = 5
    other_ids = frozenset(("CON",))
    plain_text = True
    cannot = frozenset(
        (
            "failed tasks",
            "histories",
            "limits of attempts",
            "locks",
            "parents",
            "paths",
            "priorities",
            "reservations",
            "reviews",
            "steps",
        )
    )

    @property
    def _url(self) -> str:
        return f"bilu:{self.folder / '.bilu'}"


class WorkItemsHome(DialectHome):
    """A folder of work items, in which there is one."""

    name = "workitems"
    ids = r"WI-001-A[0-9]+"
    priorities = (0,)
    steps = "{task}-T{number}"
    skips = True
    largest = 300
    cannot = frozenset(
        (
            "failed tasks",
            "histories",
            "labels",
            "limits of attempts",
            "locks",
            "parents",
            "paths",
            "priorities",
            "reviews",
        )
    )


HOMES: tuple[type[Home], ...] = (
    MemoryHome,
    SqliteHome,
    PostgresHome,
    TaskboardHome,
    WorkflowHome,
    BiluHome,
    WorkItemsHome,
)
