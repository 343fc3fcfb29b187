"""Fixtures of the contract suite: every test that asks for a board runs on every store."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import Unsupported
from tests.clocks import HandClock
from tests.contract.stores import CAPABILITIES, HOMES, Home


@pytest.fixture(scope="module", autouse=True)
def outside_any_repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores on disk note in which worktree a lock is taken; memory has no disk to look at."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("here"))
    yield
    os.chdir(before)


@pytest.fixture(params=HOMES, ids=lambda kind: kind.name)
def home(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Home]:
    kind: type[Home] = request.param
    made = kind(tmp_path, clock)
    yield made
    made.close()


def declared(item: pytest.Item) -> Generator[None]:
    """A test that a store refuses, for want of what it declares that it cannot keep, has failed as expected."""
    try:
        yield
    except Unsupported as error:
        kind: type[Home] = item.callspec.params["home"]  # type: ignore[attr-defined]
        capability = error.fields.get("capability")
        assert capability in CAPABILITIES, f"{capability!r} is not a known capability"
        if capability not in kind.cannot:
            raise
        reason = f"a {kind.name} board cannot keep {capability}, and says so"
        raise pytest.xfail.Exception(reason, pytrace=False) from None  # a thousand tracebacks took minutes to make


pytest_runtest_setup = pytest.hookimpl(declared, wrapper=True)
pytest_runtest_call = pytest.hookimpl(declared, wrapper=True)


@pytest.fixture
def board(home: Home) -> TaskBoard:
    return home.open()


@pytest.fixture
def other(home: Home, board: TaskBoard) -> TaskBoard:
    """The same board as another process would have it open."""
    return home.open()
