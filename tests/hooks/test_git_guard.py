"""The pre-commit check with real commits: what others hold stays out, from every worktree and every kind of commit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.shell import Result
from tests.hooks.repository import Repository


@pytest.fixture
def guarded(tmp_path: Path) -> Repository:
    """A repository whose pre-commit hook is dibs, in which `bob` holds a.py and src/deep."""
    made = Repository(tmp_path)
    made.prepare()
    install(made)
    made.bob("lock", "a.py", "src/deep")
    made.env["DIBS_AGENT"] = "me"
    made.env["DIBS_SESSION"] = "m"
    return made


def install(repo: Repository, *flags: str) -> None:
    hook = repo.main / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {sys.executable} -m dibs hook git {' '.join(flags)}\n")
    hook.chmod(0o755)


def commit(repo: Repository, *words: str, cwd: Path | str | None = None, **env: str) -> Result:
    return repo.try_git("commit", "-qm", "more", *words, cwd=cwd or repo.two, **env)


def change(repo: Repository, *paths: str) -> None:
    for path in paths:
        target = repo.two / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("new\n")
        repo.git("add", path, cwd=repo.two)


def test_a_file_that_another_worker_holds_is_not_committed(guarded: Repository) -> None:
    change(guarded, "a.py", "b.py")
    refused = commit(guarded)
    assert refused.code == 1
    assert "nothing was committed" in refused.err
    assert "a.py is held by bob" in refused.err
    assert f"in the worktree {guarded.one}" in refused.err
    assert "dibs tell bob" in refused.err
    assert "b.py is" not in refused.err
    assert "no-verify" not in refused.err
    assert guarded.git("log", "--format=%s", cwd=guarded.two) == "first\n"


def test_own_files_and_free_ones_are_committed_in_silence(guarded: Repository) -> None:
    guarded.dibs("lock", "b.py", cwd=guarded.two)
    change(guarded, "b.py", "src/d.py", "new file.py")
    done = commit(guarded)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_holder_commits(guarded: Repository) -> None:
    change(guarded, "a.py")
    assert commit(guarded, DIBS_AGENT="bob", DIBS_SESSION="bobs").code == 0


def test_deleting_and_both_ends_of_a_rename(guarded: Repository) -> None:
    guarded.git("rm", "-q", "a.py", cwd=guarded.two)
    assert "a.py is held by bob" in commit(guarded).err
    guarded.git("reset", "-q", "--hard", cwd=guarded.two)
    guarded.git("mv", "b.py", "src/deep/b.py", cwd=guarded.two)
    assert "src/deep/b.py is held by bob" in commit(guarded).err
    guarded.git("reset", "-q", "--hard", cwd=guarded.two)
    guarded.git("mv", "src/deep/c.py", "c.py", cwd=guarded.two)
    assert "src/deep/c.py is held by bob" in commit(guarded).err


def test_a_submodule_that_git_is_told_to_ignore(guarded: Repository) -> None:
    guarded.two = guarded.main
    guarded.git("clone", "-q", str(guarded.main), str(guarded.folder / "source"))
    guarded.add_submodule(guarded.folder / "source", "lib")
    assert commit(guarded).code == 0
    guarded.git("commit", "-q", "--allow-empty", "-m", "second", cwd=guarded.main / "lib")
    guarded.git("add", "lib")
    guarded.git("config", "diff.ignoreSubmodules", "all")
    guarded.bob("lock", "lib", cwd=guarded.main)
    refused = commit(guarded)
    assert refused.code == 1
    assert "lib is held by bob" in refused.err


def test_a_partial_commit_is_judged_by_what_it_takes(guarded: Repository) -> None:
    change(guarded, "a.py", "b.py")
    assert commit(guarded, "b.py").code == 0
    assert commit(guarded, "a.py").code == 1
    assert commit(guarded, "-a").code == 1


def test_from_a_subfolder_and_from_the_main_worktree(guarded: Repository) -> None:
    change(guarded, "src/deep/c.py")
    assert "src/deep/c.py is held by bob" in commit(guarded, cwd=guarded.two / "src" / "deep").err
    (guarded.main / "a.py").write_text("new\n")
    assert "a.py is held by bob" in commit(guarded, "-a", cwd=guarded.main).err


def test_an_initial_commit(tmp_path: Path) -> None:
    repo = Repository(tmp_path)
    repo.main.mkdir()
    repo.git("init", "-q")
    repo.dibs("init")
    install(repo)
    (repo.main / ".git" / "info" / "exclude").write_text(".dibs\n")
    (repo.main / "a.py").write_text("x")
    repo.git("add", ".")
    repo.bob("lock", "a.py", cwd=repo.main)
    assert "a.py is held by bob" in commit(repo, cwd=repo.main).err
    repo.bob("unlock", "--all", cwd=repo.main)
    assert commit(repo, cwd=repo.main).code == 0


def test_require_lock(guarded: Repository) -> None:
    install(guarded, "--require-lock")
    change(guarded, "b.py", "free.py")
    guarded.dibs("lock", "b.py", cwd=guarded.two)
    refused = commit(guarded)
    assert refused.code == 1
    assert "you have not locked free.py" in refused.err
    guarded.dibs("lock", "free.py", cwd=guarded.two)
    assert commit(guarded).code == 0


def test_a_board_that_cannot_be_read_is_said_and_decides_as_asked(guarded: Repository) -> None:
    change(guarded, "b.py")
    board = guarded.main / ".dibs" / "board.db"
    board.write_bytes(b"damaged")
    install(guarded, "--closed")
    refused = commit(guarded)
    assert refused.code == 1
    assert "not committed, because nobody can tell" in refused.err
    install(guarded)
    done = commit(guarded)
    assert done.code == 0
    assert "this commit was not checked" in done.err


def test_without_a_board_commits_are_nobodys_business(tmp_path: Path) -> None:
    repo = Repository(tmp_path)
    repo.main.mkdir()
    repo.git("init", "-q")
    (repo.main / "a.py").write_text("x")
    repo.git("add", ".")
    install(repo, "--closed")
    refused = commit(repo, cwd=repo.main)
    assert refused.code == 1
    assert "there is no board" in refused.err
    install(repo)
    done = commit(repo, cwd=repo.main)
    assert (done.code, done.err) == (0, "")


def test_an_agents_shell_is_known_by_its_clients_session(guarded: Repository) -> None:
    shell = {"CLAUDE_CODE_SESSION_ID": "s-1"}
    guarded.env.pop("DIBS_AGENT")
    guarded.env.pop("DIBS_SESSION")
    guarded.dibs("--as", "anne", "lock", "b.py", cwd=guarded.two, **shell)
    change(guarded, "b.py")
    assert "b.py is held by anne" in commit(guarded).err
    assert commit(guarded, **shell).code == 0
