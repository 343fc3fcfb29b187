from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.worktrees import repos

Name = Callable[[Path, "str | Path"], str]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repos.template(tmp_path_factory.mktemp("template") / "main")


@pytest.fixture
def main(source: Path, tmp_path: Path) -> Path:
    """A repository of one's own, without a board."""
    return repos.copy(source, tmp_path.resolve() / "main")


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Name:
    """What the board that belongs to a folder (or DIBS_BOARD) calls a path that is given there."""
    for variable in ("DIBS_BOARD", "GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(variable, raising=False)

    def ask(folder: Path, path: str | Path) -> str:
        monkeypatch.chdir(folder)
        with TaskBoard.open() as board:
            taken = board.lock([str(path)], "asker", lease=60)
            board.unlock([str(path)], "asker")
            return taken[0].pattern

    return ask
