"""One name for each file: from every worktree, from every folder in it, and by every way that leads there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import Invalid, NoBoard
from tests.cli.shell import Shell
from tests.processes.harness import environment, python
from tests.worktrees.conftest import Name
from tests.worktrees.repos import WHO, copy, git, new_board, worktree

FILE = "src/app.py"


def outside(main: Path) -> Path:
    return worktree(main, "../beside")


def inside(main: Path) -> Path:
    return worktree(main, ".trees/inner")


def with_glob_characters(main: Path) -> Path:
    return worktree(main, "../w[1]*/te?st")


def with_relative_pointers(main: Path) -> Path:
    """As `worktree.useRelativePaths` of git 2.48 makes it."""
    linked = worktree(main, "../relative")
    (linked / ".git").write_text("gitdir: ../main/.git/worktrees/relative\n")
    (main / ".git" / "worktrees" / "relative" / "gitdir").write_text("../../../../relative/.git\n")
    git(main, "config", "extensions.relativeWorktrees", "true")
    return linked


def moved_by_git(main: Path) -> Path:
    git(main, "worktree", "move", str(worktree(main, "../old")), "../moved")
    return main.parent / "moved"


def moved_by_hand(main: Path) -> Path:
    """Its repository has not been told where it is now."""
    return worktree(main, "../old").rename(main.parent / "moved")


def beside_pruned_ones(main: Path) -> Path:
    shutil.rmtree(worktree(main, "../lost"))
    linked = worktree(main, "../kept")
    git(main, "worktree", "prune")
    worktree(main, "../gone").rename(main.parent / "hidden")
    return linked


@pytest.mark.parametrize(
    "make",
    [
        outside,
        inside,
        with_glob_characters,
        with_relative_pointers,
        moved_by_git,
        moved_by_hand,
        beside_pruned_ones,
    ],
)
def test_every_worktree_has_one_board_and_one_name_for_a_file(
    main: Path, make: Callable[[Path], Path], name: Name
) -> None:
    linked = make(main)
    new_board(main)
    for tree in (main, linked):
        assert name(tree, FILE) == FILE
        assert name(tree / "src", "app.py") == FILE
        assert name(tree / "src" / "deep", "../app.py") == FILE
        assert name(tree / "src", "../src/./deep/..//app.py") == FILE
        assert name(tree / "src", "new/file.py") == "src/new/file.py"
        assert name(tree / "src", "*.py") == "src/*.py"
        for other in (main, linked):
            assert name(tree, other / FILE) == FILE
            assert name(tree, os.path.relpath(other / FILE, tree)) == FILE
            assert name(tree, f"{other}/src/*.py") == "src/*.py"
            assert name(tree, os.path.relpath(other, tree) + "/src/**") == "src/**"
            assert name(tree / "src", other) == "**"
    with TaskBoard.open() as board:
        assert board.url == f"sqlite:{main}/.dibs/board.db"


def test_a_repository_without_a_main_worktree(main: Path, name: Name) -> None:
    bare = main.parent / "project" / ".bare"
    git(main, "clone", "-q", "--bare", str(main), str(bare))
    (bare.parent / ".git").write_text("gitdir: ./.bare\n")
    one, two = worktree(bare, "../one"), worktree(bare, "../two")
    new_board(bare)
    for tree in (one, two):
        assert name(tree / "src", "app.py") == FILE
        assert name(tree, one / FILE) == name(tree, two / FILE) == FILE
    assert name(bare / "hooks", two / FILE) == FILE
    assert name(bare, "src/app.py") == FILE


def test_a_repository_whose_git_directory_is_elsewhere(main: Path, name: Name) -> None:
    tree, store = main.parent / "tree", main.parent / "store"
    git(main, "clone", "-q", "--separate-git-dir", str(store), str(main), str(tree))
    linked = worktree(tree, "../linked")
    Shell(linked).ok("init")
    for root in (tree, linked):
        assert name(root / "src", "app.py") == FILE
        assert name(root, tree / FILE) == name(root, linked / FILE) == FILE


@pytest.fixture
def other_mount(main: Path) -> Iterator[Path]:
    there = [Path(place) for place in ("/dev/shm", "/var/tmp") if os.access(place, os.W_OK)]
    others = [place for place in there if place.stat().st_dev != main.stat().st_dev]
    if not others:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=others[0]) as folder:
        yield Path(folder)


def test_a_worktree_on_another_file_system(main: Path, other_mount: Path, name: Name) -> None:
    linked = worktree(main, other_mount / "linked")
    new_board(main)
    assert name(linked / "src", "app.py") == name(main, linked / FILE) == name(linked, main / FILE) == FILE


def test_links_lead_to_the_name_of_the_real_file(main: Path, name: Name) -> None:
    linked = worktree(main, "../linked")
    new_board(main)
    for tree in (main, linked):
        (tree / "folder").symlink_to("src/deep")
        (tree / "file.py").symlink_to(FILE)
        (tree / "out").symlink_to("/etc")
        (tree / "dangling").symlink_to("not/yet")
        (tree / "across").symlink_to((linked if tree == main else main) / "src")
        root = main.parent / f"link to {tree.name}"
        root.symlink_to(tree)
        for start in (tree, root, root / "src", tree / "folder"):
            assert name(start, tree / "folder" / "util.py") == "src/deep/util.py"
            assert name(start, root / FILE) == FILE
            assert name(start, f"{root}/src/*.py") == "src/*.py"
            assert name(start, tree / "file.py") == FILE
            assert name(start, tree / "dangling") == "not/yet"
            assert name(start, tree / "across" / "app.py") == FILE
            assert name(start, tree / "out") == "out"  # the link is ours, what it leads to is not
            with pytest.raises(Invalid, match="outside the repository"):
                name(start, tree / "out" / "passwd")
        assert name(root / "src", "app.py") == FILE
        assert name(tree / "folder", "util.py") == "src/deep/util.py"
        assert name(tree / "folder", "../app.py") == FILE  # the disk knows the real folder's parent


# -- hooks of git, which are told where they are by their environment


def hook(main: Path, event: str, command: str) -> None:
    path = main / ("hooks" if (main / "hooks").is_dir() else ".git/hooks") / event
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def test_the_environment_of_a_git_hook_changes_no_name(main: Path) -> None:
    linked = worktree(main, "../linked")
    url = new_board(main)
    shell = Shell(main)
    log = main.parent / "log"
    hook(main, "pre-commit", f'env | grep ^GIT_ > {log}; cd src && exec "$DIBS_PYTHON" -m dibs lock app.py ../new')
    (linked / FILE).write_text("changed\n")
    subprocess.run(
        ["git", "commit", "-qam", "from a hook"],
        cwd=linked,
        env=shell.environ | WHO | {"DIBS_PYTHON": sys.executable, "GIT_CONFIG_GLOBAL": os.devnull},
        check=True,
        capture_output=True,
    )
    assert "GIT_INDEX_FILE=" in log.read_text()
    with TaskBoard.open(url) as board:
        held = board.locks()
        assert sorted(lock.pattern for lock in held) == ["new", FILE]
        assert {lock.worktree for lock in held} == {str(linked)}
    held_here = shell.ok(
        "locks", "--json", cwd=linked, GIT_DIR=str(main / ".git"), GIT_WORK_TREE=str(main), GIT_PREFIX="src/"
    ).json["locks"]
    assert [lock["here"] for lock in held_here] == [True, True]


# -- other repositories, inside and outside of ours


def test_a_submodule_has_a_board_of_its_own_and_to_the_board_above_it_is_a_folder(
    main: Path, source: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(main, "submodule", "add", "-q", str(source), "lib/inner")
    git(main, "commit", "-qm", "inner")
    linked = worktree(main, "../linked")
    git(linked, "submodule", "update", "-q", "--init")
    new_board(main)
    inner, far = main / "lib" / "inner", worktree(main / "lib" / "inner", "../../../far")
    for folder in (inner, inner / "src", far, linked / "lib" / "inner"):
        with pytest.raises(NoBoard):
            name(folder, "x")

    monkeypatch.setenv("DIBS_BOARD", str(main))
    # Each of these is one file of the superproject, or that file in another worktree.
    for folder, path in (
        (main, f"lib/inner/{FILE}"),
        (inner / "src", "app.py"),
        (far / "src", "app.py"),
        (linked / "lib" / "inner" / "src", "app.py"),
        (linked, inner / FILE),
        (inner, linked / "lib" / "inner" / FILE),
    ):
        assert name(folder, path) == f"lib/inner/{FILE}"
    assert name(inner, f"../../{FILE}") == FILE
    assert name(main, "lib/inner") == "lib/inner"

    monkeypatch.delenv("DIBS_BOARD")
    new_board(inner)
    for folder in (inner / "src", far / "src"):
        assert name(folder, "app.py") == FILE
    with pytest.raises(Invalid, match="outside the repository"):
        name(inner, main / FILE)


def test_somebody_elses_repository_inside_of_ours_is_a_folder_of_ours(
    main: Path, source: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = worktree(main, "../linked")
    for tree in (main, linked):
        copy(source, tree / "vendor" / "other")
    new_board(main)
    with pytest.raises(NoBoard):
        name(main / "vendor" / "other", "x")
    monkeypatch.setenv("DIBS_BOARD", str(main))
    for tree in (main, linked):
        assert name(tree, f"vendor/other/{FILE}") == f"vendor/other/{FILE}"
        assert name(tree / "vendor" / "other" / "src", "app.py") == f"vendor/other/{FILE}"


def test_a_folder_of_repositories_keeps_their_files_apart_and_their_worktrees_together(
    source: Path, tmp_path: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path.resolve() / "work"
    one, two = copy(source, work / "one"), copy(source, work / "two")
    linked = worktree(one, "../one-feature")
    monkeypatch.setenv("DIBS_BOARD", new_board(work))
    assert name(one / "src", "app.py") == name(linked / "src", "app.py") == name(work, one / FILE) == f"one/{FILE}"
    assert name(two / "src", "app.py") == name(work, f"two/{FILE}") == f"two/{FILE}"
    assert name(work, "notes.txt") == "notes.txt"


def test_a_board_in_a_folder_of_a_repository_names_files_as_the_repository_does(main: Path, name: Name) -> None:
    new_board(main / "src")
    assert name(main / "src" / "deep", "util.py") == "src/deep/util.py"


# -- clones


def test_a_clone_has_no_board_until_it_makes_one(main: Path, name: Name) -> None:
    new_board(main)
    clone = main.parent / "clone"
    nested = main / ".clones" / "one"
    for target in (clone, nested):
        git(main, "clone", "-q", str(main), str(target))
        with pytest.raises(NoBoard):
            name(target / "src", "app.py")
        url = new_board(target)
        assert name(target / "src", "app.py") == FILE
        with TaskBoard.open() as board:
            assert board.url == url


def test_a_clone_with_the_board_of_another_names_files_from_its_own_root(
    main: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = main.parent / "clone"
    git(main, "clone", "-q", str(main), str(clone))
    linked = worktree(clone, "../linked")
    plain = main.parent / "plain"
    plain.mkdir()
    monkeypatch.setenv("DIBS_BOARD", new_board(main))
    for tree in (clone, linked):
        assert name(tree, FILE) == FILE
        assert name(tree / "src", "app.py") == FILE
        assert name(tree / "src" / "deep", "../*.py") == "src/*.py"
        assert name(tree, clone / FILE) == name(tree, linked / FILE) == name(tree, main / FILE) == FILE
        with TaskBoard.open() as board:
            assert board.lock([FILE], "w")[0].worktree == str(tree)
            board.unlock(None, "w")
    with pytest.raises(Invalid, match="outside the repository"):
        name(main, clone / FILE)
    # A folder that is in no repository says nothing: the board's home counts.
    assert name(plain, FILE) == FILE
    with pytest.raises(Invalid, match="outside the repository"):
        name(plain, "../plain/x")


def test_a_clone_that_lies_inside_ours_is_still_a_clone(
    main: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested, sibling = main / ".clones" / "one", main / ".clones" / "two"
    git(main, "clone", "-q", str(main), str(nested))
    git(main, "remote", "add", "origin", "https://example.org/team/project.git")
    git(main, "clone", "-q", str(main), str(sibling))
    git(sibling, "remote", "set-url", "origin", "https://example.org/team/project.git/")
    monkeypatch.setenv("DIBS_BOARD", new_board(main))
    for clone in (nested, sibling):
        assert name(clone / "src", "app.py") == name(main, clone / FILE) == FILE


def test_a_board_in_no_repository_serves_worktrees_and_clones_alike(
    main: Path, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, clone, boards = worktree(main, "../linked"), main.parent / "clone", main.parent / "boards"
    git(main, "clone", "-q", str(main), str(clone))
    boards.mkdir()
    url = f"sqlite:{boards}/team.db"
    TaskBoard.open(url, create=True, durability="normal").close()
    monkeypatch.setenv("DIBS_BOARD", url)
    for tree in (main, linked, clone):
        assert name(tree / "src", "app.py") == FILE


def test_a_working_directory_that_was_deleted_is_named_as_what_is_wrong(main: Path) -> None:
    linked = worktree(main, "../linked")
    url = new_board(main)
    shell = Shell(main)
    script = 'cd "$1" && rm -r "$1" && "$2" -m dibs $3 lock src/app.py'
    for named in ("", f"--board {url}"):
        linked.mkdir(exist_ok=True)
        done = subprocess.run(
            ["sh", "-c", script, "sh", str(linked), sys.executable, named],
            env=shell.environ,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "the working directory no longer exists" in done.stderr
        assert "cd DIR" in done.stderr


def test_one_file_has_one_lock_name_from_every_worktree_and_by_every_spelling(tmp_path: Path) -> None:
    main = tmp_path / "main"
    nested, beside = main / ".trees" / "inner", tmp_path / "w1"
    (main / "src").mkdir(parents=True)
    (main / "src" / "a.py").write_text("pass\n")
    who = {f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "first"],
        ["worktree", "add", "-q", ".trees/inner"],
        ["worktree", "add", "-q", "../w1"],
    ):
        env = environment() | who | {"GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *words], cwd=main, env=env, check=True, capture_output=True)
    TaskBoard.open(f"sqlite:{main}/.dibs/board.db", create=True, worker="maker", durability="normal").close()
    places: list[tuple[Path, str]] = [
        (main, "src/a.py"),
        (main / "src", "a.py"),
        (main, ".trees/inner/src/a.py"),
        (main, "../w1/src/a.py"),
        (main, str(nested / "src" / "a.py")),
        (main, str(beside / "src" / "a.py")),
        (nested, "src/a.py"),
        (nested / "src", "a.py"),
        (nested, "../../src/a.py"),
        (nested, str(main / "src" / "a.py")),
        (nested, str(nested / "src" / "a.py")),
        (nested, "../../../w1/src/a.py"),
        (beside, "src/a.py"),
        (beside, "../main/src/a.py"),
        (beside, "../main/.trees/inner/src/a.py"),
        (beside, str(nested / "src" / "a.py")),
    ]
    every = [str(tmp_path)]  # one process tries them all as a second and, afterwards, as the first worker
    for folder, path in places:
        every += [str(folder), path]
    script = """
import os, sys
from dibs import Busy, TaskBoard
places = list(zip(sys.argv[2::2], sys.argv[3::2]))
os.chdir(places[0][0])
board = TaskBoard.open(worker="maker")
board.lock([places[0][1]], "first")
for folder, path in places:
    os.chdir(folder)
    with TaskBoard.open(worker="maker") as here:
        try:
            print("granted", here.lock([path], "second")[0].pattern)
        except Busy as error:
            print("busy", error.conflicts[0].pattern)
        board.unlock(None, "first")
        print([lock.pattern for lock in board.lock([path], "first")])
"""
    assert python(script, *every) == ["busy src/a.py", "['src/a.py']"] * len(places)
