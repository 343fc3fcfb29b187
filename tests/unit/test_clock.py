"""The board's time: what a lease has left is measured by the steady clock, whatever the wall clock does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.clock import JUMP, Clock, boot_id, read
from tests.clocks import START, HandClock


def test_the_first_reading_takes_the_wall_clock_and_an_anchor() -> None:
    clock = HandClock()
    now, anchor, shift = read(clock, None, "boot-1")
    assert (now, shift) == (START, 0.0)
    assert anchor == ("boot-1", START - 5_000)


def test_time_that_goes_by_is_measured_without_a_new_anchor() -> None:
    clock = HandClock()
    _, anchor, _ = read(clock, None, "boot-1")
    clock.advance(1234.5)
    assert read(clock, anchor, "boot-1") == (START + 1234.5, None, 0.0)


@pytest.mark.parametrize("jump", [JUMP, 5.0, 1e9, -JUMP, -5.0, -1e9])
def test_a_jump_moves_the_anchor_and_says_by_how_much(jump: float) -> None:
    clock = HandClock()
    _, anchor, _ = read(clock, None, "boot-1")
    clock.advance(100)
    clock.jump(jump)
    now, moved, shift = read(clock, anchor, "boot-1")
    assert now == clock.wall()
    assert shift == pytest.approx(jump)
    assert moved == ("boot-1", clock.wall() - clock.steady())
    again, moved_again, shift_again = read(clock, moved, "boot-1")
    assert (again, moved_again, shift_again) == (clock.wall(), None, 0.0)


@pytest.mark.parametrize("drift", [0.5, 1.9, -0.5, -1.9])
def test_a_small_disagreement_is_the_steady_clocks_to_decide(drift: float) -> None:
    clock = HandClock()
    _, anchor, _ = read(clock, None, "boot-1")
    clock.jump(drift)
    assert read(clock, anchor, "boot-1") == (START, None, 0.0)


def test_after_a_reboot_the_wall_clock_is_taken_as_it_is() -> None:
    clock = HandClock()
    _, anchor, _ = read(clock, None, "boot-1")
    after = HandClock(wall=START + 500, steady=3.0, boot="boot-2")
    assert read(after, anchor, "boot-2") == (START + 500, ("boot-2", START + 497), 0.0)


def test_without_a_boot_id_there_is_no_anchor() -> None:
    clock = HandClock(boot="")
    assert read(clock, None, "") == (START, None, 0.0)
    clock.jump(1e6)
    assert read(clock, ("boot-1", 0.0), "") == (START + 1e6, None, 0.0)


moves = st.lists(
    st.tuples(st.sampled_from(["advance", "jump"]), st.floats(-1e6, 1e6).map(lambda x: round(x, 3))), max_size=30
)


@given(moves)
def test_a_lease_that_is_moved_with_the_clock_keeps_what_it_had_left(steps: list[tuple[str, float]]) -> None:
    clock = HandClock()
    now, anchor, _ = read(clock, None, "boot-1")
    expires = now + 10_000.0
    begun = clock.steady()
    for kind, amount in steps:
        clock.advance(abs(amount)) if kind == "advance" else clock.jump(amount)
        now, moved, shift = read(clock, anchor, "boot-1")
        anchor = moved or anchor
        expires += shift
        assert expires - now == pytest.approx(10_000.0 - (clock.steady() - begun), abs=0.01)
        assert abs(now - clock.wall()) < JUMP + 0.01


def test_the_systems_steady_clock_never_goes_back_and_its_boot_stays() -> None:
    clock = Clock()
    readings = [clock.steady() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.boot() == boot_id() == clock.boot()
    assert clock.wall() > START
