"""Every test with a `url` runs on every store that processes share, unless it is marked `IN_A_FILE`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.actors import board_of
from tests.postgres.server import server_for_test
from tests.processes.harness import crew as crew
from tests.processes.harness import in_a_file


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new, empty board."""
    if request.param == "sqlite":
        yield in_a_file(tmp_path)
    else:
        with board_of(server_for_test()) as made:
            yield made
