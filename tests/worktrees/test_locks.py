"""`dibs locks` says in which worktree each lock was taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, width
from tests.worktrees.repos import git, new_board, worktree


@pytest.fixture
def shell(main: Path) -> Shell:
    return Shell(main, DIBS_BOARD=new_board(main))


def test_worktrees_clones_and_folders_outside_are_told_apart(main: Path, shell: Shell) -> None:
    linked, clone, plain = worktree(main, "../feature-login"), main.parent / "copy", main.parent / "plain"
    git(main, "clone", "-q", str(main), str(clone))
    plain.mkdir()
    for number, folder in enumerate((main / "src", linked, clone / "src", plain)):
        shell.ok("lock", f"{number}", cwd=folder)
    lines = shell.ok("locks").out.splitlines()
    assert [line.split()[0::2] for line in lines[:1]] == [["HOLDER", "IN"]]
    shown = [line[lines[0].index("IN") : lines[0].index("FILES")].strip() for line in lines[1:-1]]
    assert sorted(shown) == ["-", "clone copy", "feature-login", "main"]
    told = {lock["pattern"]: lock for lock in shell.ok("locks", "--json", cwd=linked / "src").json["locks"]}
    assert told["src/0"]["worktree"] == str(main)
    assert told["1"]["worktree"] == str(linked)
    assert told["src/2"]["worktree"] == str(clone)
    assert told["3"]["worktree"] is None
    assert {pattern for pattern, lock in told.items() if lock["here"]} == {"1"}


def test_worktrees_of_one_name_are_shown_with_the_folder_above(main: Path, shell: Shell) -> None:
    for path in ("../a/fix", "../b/fix", "../trees/main"):
        shell.ok("lock", path.replace("/", "-")[3:], cwd=worktree(main, path))
    shell.ok("lock", "x")
    out = shell.ok("locks").out
    for name in (" a/fix ", " b/fix ", " trees/main ", " main "):
        assert name in out


def test_a_worktree_that_is_gone_keeps_its_name_and_strange_names_fit_the_screen(main: Path, shell: Shell) -> None:
    gone = worktree(main, "../short-lived")
    shell.ok("lock", "a", cwd=gone)
    git(main, "worktree", "remove", str(gone))
    long = worktree(main, "../\x1b[31m" + "a-very-long-name" * 4)
    shell.ok("lock", "b/" + "c" * 90, "--as", "somebody-with-a-long-name", cwd=long)
    out = shell.ok("locks").out
    assert "short-lived" in out
    assert "\x1b" not in out
    assert max(map(width, out.splitlines())) <= 80


def test_outside_of_git_there_is_no_such_column(tmp_path: Path) -> None:
    shell = Shell(tmp_path, DIBS_BOARD=new_board(tmp_path))
    shell.ok("lock", "a")
    assert shell.ok("locks").out.splitlines()[0].split() == ["HOLDER", "LEFT", "FILES"]
    assert shell.ok("locks", "--json").json["locks"][0]["here"] is False
