"""A board at which somebody works, behind something that counts round trips to the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dibs import BoardTask, TaskBoard, Worker
from dibs.worker import boot, host
from tests.clocks import HandClock
from tests.postgres.proxy import Proxy

ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s1")
EVE = Worker("eve", "human", session="e")
DEAD = Worker("ghost", session="g", host=host(), pid=2**22 + 1, started="1", boot=boot())
BOUND = 5
"""Trips that any verb takes at most while nothing has run out or died, nothing is to be renewed, and nobody is in its
way."""


class Desk:
    """See above."""

    def __init__(self, proxy: Proxy, url: str) -> None:
        self.clock = HandClock()
        self.proxy = proxy
        self.url = url
        self.board = TaskBoard.open(url, clock=self.clock, worker=ANN)
        self.far = TaskBoard.open(url, clock=self.clock, worker=BEN)
        self._opened = [self.board, self.far]

    def another(self) -> TaskBoard:
        """The same board as another process sees it."""
        self._opened.append(TaskBoard.open(self.url, clock=self.clock, worker=ANN))
        return self._opened[-1]

    def warm(self) -> None:
        """What is done once, or once in a while, has been done."""
        for number in range(5):  # the driver prepares statements when it has seen them a few times
            self.board.add("to warm up", id=f"warm{number}", priority=9)
            task = self.board.claim(ANN)
            assert task is not None
            task.complete()

    def settled(self) -> None:
        """It is time neither to look for the dead nor to see what is to be renewed."""
        self.board.core.reaper._reaped = self.clock.wall()
        for who in (ANN, BEN, DEAD, EVE):
            self.board.core.leases.looked(who, self.clock.wall())

    def late(self) -> None:
        """It is time to look for the dead, however slow the last look was."""
        self.clock.advance(2)
        self.board.core.reaper._reaped = float("-inf")

    def trips(self, verb: Callable[[], object]) -> int:
        self.proxy.watch()
        verb()
        return self.proxy.round_trips

    def claimed(self, **options: Any) -> BoardTask:
        self.board.add("x", id="t", **options)
        task = self.board.claim(ANN, "t")
        assert isinstance(task, BoardTask)
        return task

    def close(self) -> None:
        for board in self._opened:
            board.close()
