"""File systems that do not tell `A` from `a`: two spellings of one file are one lock."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import Busy, TaskBoard
from dibs.rules.paths import case_insensitive
from tests.cli.shell import Shell
from tests.worktrees.conftest import Name
from tests.worktrees.repos import copy, git, new_board, worktree


@pytest.fixture
def folding(main: Path) -> Path:
    """A repository as git makes it on a file system that folds case, with a board."""
    git(main, "config", "core.ignoreCase", "true")
    new_board(main)
    return main


def test_spellings_that_differ_in_case_are_one_lock_from_every_worktree(folding: Path) -> None:
    linked = worktree(folding, "../linked")
    shell = Shell(folding)
    assert "locked src/app.py" in shell.ok("lock", "SRC/App.py").out
    refused = shell("lock", "src/app.py", "--as", "bob", cwd=linked)
    assert refused.code == 1
    assert "src/app.py is held by worker-1" in refused.err
    assert len(shell.ok("locks", "Src/APP.py", "--json", cwd=linked).json["locks"]) == 1
    shell.ok("unlock", "src/APP.PY", cwd=linked)
    assert shell.ok("locks", "--json").json["total"] == 0


def test_a_task_that_names_its_files_in_capitals_excludes_a_lock_in_small_letters(folding: Path) -> None:
    shell = Shell(folding)
    task = shell.add("write it", "--path", "Docs/**")
    assert shell.ok("show", task, "--json").json["paths"] == ["docs/**"]
    shell.ok("claim")
    assert shell("lock", "dOCS/Index.md", "--as", "bob").code == 1


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("SRC/[A-Z]*.PY", "src/[a-z]*.py"),
        ("src/[0-Z]x", "src/[0-Za-z]x"),
        ("App/[ID]/Page.tsx", "app/[id]/page.tsx"),
        ("e\u0301t\u00c9", "\u00e9t\u00e9"),  # composed or not, as macOS has it
        ("STRA\u00dfE", "strasse"),
    ],
)
def test_patterns_and_letters_of_all_kinds_fold(folding: Path, name: Name, given: str, known: str) -> None:
    assert name(folding, given) == known


def test_a_class_still_excludes_what_it_matched(folding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folding)
    with TaskBoard.open() as board:
        board.lock(["src/[A-M]*.py"], "first")
        board.lock(["src/test.py"], "second")
        for spelling in ("src/App.py", "src/app.py", "SRC/APP.PY"):
            with pytest.raises(Busy):
                board.lock([spelling], "second")


def test_where_case_counts_it_counts(main: Path, name: Name) -> None:
    git(main, "config", "core.ignorecase", "false")
    new_board(main)
    assert name(main, "SRC/App.py") == "SRC/App.py"
    assert name(main, "e\u0301") == "e\u0301"
    for value in ("false", "0", "no"):
        git(main, "config", "core.ignorecase", value)
        assert name(main, "A") == "A"
    git(main, "config", "core.ignorecase", "true")
    git(main, "config", "other.ignorecase", "false")
    assert name(main, "A") == "a"


def test_a_lock_that_was_taken_before_names_were_folded_still_binds_and_can_be_given_back(main: Path) -> None:
    git(main, "config", "core.ignorecase", "false")
    new_board(main)
    shell = Shell(main)
    shell.ok("lock", "README.md")
    git(main, "config", "core.ignorecase", "true")
    assert shell("lock", "README.md", "--as", "bob").code == 1
    assert shell.ok("locks", "README.md", "--json").json["total"] == 1
    shell.ok("unlock", "README.md")
    assert shell.ok("locks", "--json").json["total"] == 0
    shell.ok("lock", "README.md", "--as", "bob")


# -- a file system that really folds


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("folding")
    if os.name == "nt" or not hasattr(os, "geteuid"):
        pytest.skip("mounting needs a Unix")
    if case_insensitive(str(folder)):
        yield folder
        return
    if os.geteuid() != 0 or shutil.which("mke2fs") is None:
        pytest.skip("making a file system that folds case needs root and mke2fs")
    image, point = folder / "image", folder / "mount"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "casefold", "-E", "encoding=utf8", str(image)]
    for command in (make, ["mount", "-o", "loop", str(image), str(point)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this machine has no file system that folds case: {' '.join(done.stderr.split())[:100]}")
    try:
        work = point / "Work"
        work.mkdir()
        subprocess.run(["chattr", "+F", str(work)], check=True)
        yield work
    finally:
        subprocess.run(["umount", str(point)], check=True)


def test_on_a_file_system_that_folds_git_says_so_and_dibs_folds(
    mount: Path, source: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = mount / "Main"
    git(mount, "clone", "-q", str(source), str(main))
    assert git(main, "config", "core.ignorecase").strip() == "true"
    new_board(main)
    other = mount / "mAIN"
    for folder, path in ((main, "SRC/App.py"), (main / "SRC", "APP.PY"), (main, other / "src" / "App.py")):
        assert name(folder, path) == "src/app.py"
    plain = mount / "Plain"
    plain.mkdir()
    new_board(plain)
    assert name(plain, "Notes/A.TXT") == "notes/a.txt"
    copy(source, plain / "Sub")
    monkeypatch.setenv("DIBS_BOARD", str(plain))
    assert name(plain / "sub" / "SRC", "App.py") == "sub/src/app.py"
