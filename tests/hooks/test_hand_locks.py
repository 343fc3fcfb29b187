"""Locks that somebody made by hand, as document 003 has it, stand in the way of an edit too."""

from __future__ import annotations

import os

import pytest

from tests.hooks.repository import Repository, claude, is_silent, reason


@pytest.mark.parametrize("spelling", ["src/__init__.py", "./src/__init__.py", "{main}/src/__init__.py"])
def test_an_edit_of_what_a_hand_has_locked_is_denied(repo: Repository, spelling: str) -> None:
    repo.dibs("--board", "spec:spec", "init")
    (repo.main / "src" / "__init__.py").touch()
    lock = repo.main / "spec" / ".locks" / "files" / spelling.format(main=repo.main).replace("/", "__")
    lock.mkdir()
    (lock / "owner").write_text("agent: hand\ntask: T1\ntimestamp: 2026-11-16T02:00:00Z\n")
    board = {"DIBS_BOARD": f"spec:{repo.main}/spec"}

    def edit(path: str) -> dict[str, object]:
        return claude("Edit", repo.main, file_path=str(repo.main / path), old_string="a", new_string="b")

    denied = repo.hook("claude", edit("src/__init__.py"), cwd=repo.main, **board)
    assert "hand" in reason("claude", denied)
    assert "src/__init__.py" in reason("claude", denied)
    assert is_silent("claude", repo.hook("claude", edit("src/d.py"), cwd=repo.main, **board))
    os.unlink(lock / "owner")
    lock.rmdir()
    assert is_silent("claude", repo.hook("claude", edit("src/__init__.py"), cwd=repo.main, **board))
