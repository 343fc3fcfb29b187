from __future__ import annotations

import pytest

from tests.hooks.repository import Repository


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with two linked worktrees, in which `bob` holds a.py, src/deep and (shared) shared.py."""
    made = Repository(tmp_path_factory.mktemp("repo"))
    made.prepare()
    made.bob("lock", "a.py", "src/deep/**", "note.ipynb")
    made.bob("lock", "--shared", "shared.py")
    return made
