from __future__ import annotations

from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with an empty board, and `dibs` in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    TaskBoard.open(f"sqlite:{folder}/.dibs/board.db", create=True, durability="normal").close()
    return Shell(folder)
