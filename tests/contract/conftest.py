"""Fixtures of the contract suite: every test that asks for a board runs on every store that can keep what it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.clocks import HandClock
from tests.contract.stores import CAPABILITIES, HOMES, Home


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lacking = {item for item in items if named_by("needs", item, CAPABILITIES) & store_of(item).cannot}
    config.hook.pytest_deselected(items=[item for item in items if item in lacking])
    items[:] = [item for item in items if item not in lacking]
    for item in items:
        if store_of(item).name in named_by("slow_on", item, {kind.name for kind in HOMES}):
            item.add_marker(pytest.mark.slow)


def store_of(item: pytest.Item) -> type[Home]:
    """The home of the board that a test asks for; that of nowhere, which can do everything, if it asks for none."""
    asked: object = item.callspec.params.get("home") if hasattr(item, "callspec") else None
    return asked if isinstance(asked, type) and issubclass(asked, Home) else Home


def named_by(mark: str, item: pytest.Item, known: Set[str]) -> set[str]:
    """The words of all marks of this name: of the test, its parameters, its class and its module."""
    words = {word for found in item.iter_markers(mark) for word in found.args}
    if words - known:
        raise pytest.UsageError(f"{item.nodeid}: {mark} names {sorted(words - known)}; known are {sorted(known)}")
    return words


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


@pytest.fixture
def board(home: Home) -> TaskBoard:
    return home.open()


@pytest.fixture
def other(home: Home, board: TaskBoard) -> TaskBoard:
    """The same board as another process would have it open."""
    return home.open()
