"""Fixtures of the contract suite: every test that asks for a board runs on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import Unsupported
from tests.clocks import HandClock
from tests.contract.stores import CAPABILITIES, HOMES, Home


@pytest.fixture(params=HOMES, ids=lambda kind: kind.name)
def home(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Home]:
    kind: type[Home] = request.param
    for marker in request.node.iter_markers("needs"):
        assert marker.args[0] in CAPABILITIES, f"{marker.args[0]} is not a known capability"
        if marker.args[0] in kind.cannot:
            reason = f"a {kind.name} board cannot have {marker.args[0]}, and says so"
            request.applymarker(pytest.mark.xfail(reason=reason, raises=Unsupported, strict=True))
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
