"""No interleaving of three processes, with crashes at any step, gives two holders or leaves a lock that nobody gets."""

from __future__ import annotations

import pytest

from tests.guards.models import RENAME, SAFE, UNLINK, FlockModel, LockDirModel, LockFileModel
from tests.guards.search import Model, explore

SOUND: dict[str, Model] = {
    "flock": FlockModel(temporary=False),
    "flock on a file that comes and goes": FlockModel(temporary=True),
    "lock file": LockFileModel(breaking=SAFE),
    "lock directory": LockDirModel(breaking=SAFE),
    "lock directory, dead from the start": LockDirModel(breaking=SAFE, stale=True),
}


@pytest.mark.parametrize("name", SOUND)
def test_there_are_never_two_holders_and_somebody_can_always_acquire(name: str) -> None:
    found = explore(SOUND[name])
    print(f"{name}: {found.states} states")
    assert found.overlap is None, "\n".join(found.overlap or ())
    assert found.wedge is None, "\n".join(found.wedge or ())
    assert found.states > 50


FLAWED: dict[str, Model] = {
    "flock without looking at the path afterwards": FlockModel(temporary=True, checks=False),
    "lock file broken by unlink+create": LockFileModel(breaking=UNLINK),
    "lock file broken by rename, verified, put back": LockFileModel(breaking=RENAME),
    "lock directory broken by unlink+create": LockDirModel(breaking=UNLINK),
    "lock directory broken by rename, verified, put back": LockDirModel(breaking=RENAME),
}


@pytest.mark.parametrize("name", FLAWED)
def test_the_search_finds_two_holders_when_the_safe_break_is_replaced(name: str) -> None:
    found = explore(FLAWED[name])
    assert found.overlap is not None
    print(f"{name}: " + "; ".join(found.overlap))


def test_two_breakers_of_one_dead_lock_are_enough_for_the_flaw() -> None:
    found = explore(LockDirModel(2, 0, breaking=UNLINK, stale=True))
    assert found.overlap is not None
    assert sum("removes what is there" in label for label in found.overlap) == 2
    assert explore(LockDirModel(2, 0, breaking=SAFE, stale=True)).overlap is None


def test_a_directory_that_appears_without_its_pid_can_wedge_which_is_why_ours_appears_whole() -> None:
    found = explore(LockDirModel(whole=False))
    assert found.overlap is None
    assert found.wedge is not None
    assert found.wedge[-2].endswith("makes the directory") or "dies" in found.wedge[-1]


def test_a_holder_that_sleeps_past_the_stale_age_overlaps_which_is_why_it_must_confirm() -> None:
    assert explore(LockFileModel(slow=True)).overlap is not None
