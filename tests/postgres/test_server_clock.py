"""What holds when the server's wall clock is set: docs/concepts.md, "Clock"."""

from __future__ import annotations

import pytest

from dibs import LeaseLost, TaskBoard
from tests.clocks import HandClock
from tests.postgres.actors import board_of
from tests.postgres.server import Server


def test_a_step_forward_ends_leases_and_the_fence_keeps_the_first_holder_out(server: Server) -> None:
    clock = HandClock()
    with board_of(server) as url, TaskBoard.open(url, clock=clock) as board:
        board.add("x", id="t1")
        first = board.claim("ann", lease=3600)
        assert first is not None
        clock.advance(7200)
        second = board.claim("ben", lease=3600)
        assert second is not None
        assert second.id == "t1"
        with pytest.raises(LeaseLost):
            first.complete("late")
        clock.advance(-7200)
        assert board.claim("ann") is None
        assert second.complete("in time") is None
