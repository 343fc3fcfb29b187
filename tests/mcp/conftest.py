from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.harness import url as url


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """Where the clients of this test register."""
    made = tmp_path / "run"
    made.mkdir(mode=0o700)
    return made
