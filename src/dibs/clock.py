"""The board's time: a wall clock that cannot end a lease early.

Leases are stored as wall-clock moments, because people read them. But wall clocks jump: somebody sets the date, a
virtual machine resumes, NTP steps. So a store remembers an *anchor*, the distance between the wall clock and the
machine's steady clock (which counts from boot, through sleep, and never jumps), and takes its time from the steady
clock. When the wall clock is found to have jumped, the next writer moves the anchor and, in the same transaction,
every live lease by the same distance: each keeps exactly the time that it had left.
"""

from __future__ import annotations

import os
import time

JUMP = 2.0
"""Seconds of disagreement from which the wall clock counts as having jumped."""

_STEADY_ID = getattr(time, "CLOCK_BOOTTIME", None)


_INITIAL = "time:[4026531834]"
"""The time namespace in which a machine boots. Others (`unshare -T`, some containers) share boot id and pids with it,
but their steady clock and the start times of processes are moved."""


def boot_id() -> str:
    """What tells this boot of this machine, and a time namespace in it, from every other; empty where the platform
    cannot say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().decode("ascii").strip()
    except OSError:
        return ""
    try:
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        return boot
    return boot if namespace == _INITIAL else f"{boot} {namespace}"


class Clock:
    """The system's clocks. Tests replace it by one whose hands they move."""

    def wall(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic() if _STEADY_ID is None else time.clock_gettime(_STEADY_ID)

    def boot(self) -> str:
        return boot_id()


def read(clock: Clock, anchor: tuple[str, float] | None, boot: str) -> tuple[float, tuple[str, float] | None, float]:
    """(the board's time, the new anchor if it must be stored, seconds by which leases must move).

    Without a boot id there is nothing to anchor to, after a reboot the old anchor means nothing: the wall clock is
    taken as it is.
    """
    wall = clock.wall()
    if not boot:
        return wall, None, 0.0
    steady = clock.steady()
    if anchor is None or anchor[0] != boot:
        return wall, (boot, wall - steady), 0.0
    expected = steady + anchor[1]
    jump = wall - expected
    if -JUMP < jump < JUMP:
        return expected, None, 0.0
    return wall, (boot, wall - steady), jump
