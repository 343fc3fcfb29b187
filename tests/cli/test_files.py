"""File locks from the command line, also from several worktrees of one repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE, Shell, environment


def git(*words: str, cwd: Path) -> None:
    names = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(
        ["git", *words],
        cwd=cwd,
        check=True,
        capture_output=True,
        env=environment(**names, GIT_CONFIG_GLOBAL="/dev/null"),
    )


@pytest.fixture
def repository(tmp_path: Path) -> Shell:
    """A real repository with a second worktree beside it, and a board."""
    main = tmp_path / "main"
    main.mkdir()
    git("init", "-q", cwd=main)
    (main / "src").mkdir()
    (main / "src" / "auth.py").write_text("pass\n")
    git("add", "-A", cwd=main)
    git("commit", "-qm", "first", cwd=main)
    git("worktree", "add", "-q", "../second", cwd=main)
    shell = Shell(main)
    shell.ok("init")
    return shell


def test_worktrees_share_the_board_and_its_paths(repository: Shell) -> None:
    second = repository.folder.parent / "second"
    repository.ok("lock", "auth.py", cwd=repository.folder / "src")
    held = repository.ok("locks", "--json", cwd=second).json["locks"]
    assert [lock["pattern"] for lock in held] == ["src/auth.py"]
    busy = repository("lock", "src/*.py", "--as", "bob", "--json", cwd=second)
    assert busy.code == 1
    assert busy.error["code"] == "busy"
    assert busy.error["conflicts"][0]["holder"] == "worker-1"
    assert busy.error["conflicts"][0]["expires_at"].endswith("Z")
    task = repository.add("edit it", "--path", "src/**")
    assert repository("claim", task, "--as", "bob", cwd=second).code == 1
    assert repository("claim", "--as", "bob", cwd=second).code == 3
    repository.ok("unlock", "src/auth.py", cwd=second)
    assert repository.ok("claim", "--as", "bob", "--json", cwd=second).json["id"] == task


def test_a_board_keeps_itself_out_of_git(repository: Shell) -> None:
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=repository.folder, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


def test_all_or_none(shell: Shell) -> None:
    shell.ok("lock", "a", "--as", "bob")
    refused = shell("lock", "b", "a", "c")
    assert refused.code == 1
    assert "a is held by bob" in refused.err
    assert "nothing was locked" in refused.err
    assert len(shell.ok("locks", "--json").json["locks"]) == 1


def test_shared_locks(shell: Shell) -> None:
    shell.ok("lock", "docs/**", "--shared")
    assert shell.ok("lock", "docs/a.md", "--shared", "--as", "bob", "--json").json["locks"][0]["shared"] is True
    assert shell("lock", "docs/a.md", "--as", "carl").code == 1
    assert shell.ok("locks").out.count("shared") == 2


def test_unlock(shell: Shell) -> None:
    shell.ok("lock", "a", "b")
    assert shell("unlock").code == 2
    assert shell("unlock", "a", "--all").code == 2
    assert shell("unlock", "a", "--as", "bob", "--json").error["code"] == "not_found"
    assert [lock["pattern"] for lock in shell.ok("unlock", "a", "--json").json["unlocked"]] == ["a"]
    assert "unlocked b" in shell.ok("unlock", "--all").out
    assert "nothing to unlock" in shell.ok("unlock", "--all").out
    assert "nothing is locked" in shell.ok("locks").out


def test_the_lock_of_a_task_goes_with_the_task(shell: Shell) -> None:
    task = shell.add("x", "--path", "src/**")
    shell.ok("claim")
    refused = shell("unlock", "src/**")
    assert refused.code == 1
    assert f"dibs done {task}" in refused.err
    held = shell.ok("locks", "src/a.py", "--json").json["locks"]
    assert [(lock["task_id"], lock["holder"], lock["holder_type"]) for lock in held] == [(task, "worker-1", "agent")]
    assert shell.ok("locks", "docs", "--json").json["locks"] == []
    shell.ok("done")
    assert shell.ok("locks", "--json").json == {"locks": [], "total": 0, "more": False}


def test_waiting_for_a_lock(shell: Shell) -> None:
    shell.ok("lock", "a", "--as", "bob")
    assert shell("lock", "a", "--wait", "0.1").code == 1
    waiting = subprocess.Popen(
        [sys.executable, "-m", "dibs", "lock", "a", "--wait", "50"], cwd=shell.folder, env=shell.environ
    )
    shell.ok("unlock", "a", "--as", "bob")
    assert waiting.wait(PATIENCE) == 0
    assert "worker-1" in shell.ok("locks").out
