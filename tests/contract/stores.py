"""The stores under contract. A new one joins by adding its `Home` to `HOMES`, with what it `cannot` do.

A test names what it needs with `@pytest.mark.needs("locks")`; on a store that cannot, the same test must end in
`Unsupported`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dibs import TaskBoard
from dibs.clock import Clock
from dibs.stores.memory import MemoryStore

CAPABILITIES = frozenset(
    (
        "blockers",
        "cancelling",
        "changelog",
        "edges",
        "locks",
        "messages",
        "requests",
        "reservation",
        "review",
        "steps",
        "tokens",
    )
)


class Home:
    """A place where one board lives. Opening it again gives what another process would see."""

    name = ""
    cannot: frozenset[str] = frozenset()
    machine_percent = 100
    """How many of the profile's examples the state machine tries here: fewer where one costs more."""

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


class SqliteHome(Home):
    """Without syncing, which makes no difference to the contract; `tests/processes` and `tests/faults` sync."""

    name = "sqlite"

    def _open(self, options: dict[str, Any]) -> TaskBoard:
        path = self.folder / "board.db"
        return TaskBoard.open(f"sqlite:{path}", create=True, durability="normal", clock=self.clock, **options)


HOMES: tuple[type[Home], ...] = (MemoryHome, SqliteHome)
