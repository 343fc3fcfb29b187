"""A clock whose hands the tests move."""

from __future__ import annotations

from dibs.clock import Clock

START = 1_700_000_000.0
STEADY = 5_000.0


class HandClock(Clock):
    """`advance` is time going by; `jump` is somebody setting the wall clock."""

    def __init__(self, wall: float = START, steady: float = STEADY, boot: str = "boot-1") -> None:
        self._wall = wall
        self._steady = steady
        self._boot = boot

    def wall(self) -> float:
        return self._wall

    def steady(self) -> float:
        return self._steady

    def boot(self) -> str:
        return self._boot

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._steady += seconds

    def jump(self, seconds: float) -> None:
        self._wall += seconds
