"""Places: the work tree around a folder, and the home that all worktrees of a repository share."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dibs.places import Place, find_place


def git(where: Path, *arguments: str) -> None:
    settings_ = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, "-C", str(where), *arguments], check=True, capture_output=True, env=settings_)


def make_repository(root: Path) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "-q")
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "deep" / "file").touch()
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def at(place: Place) -> tuple[str | None, str, bool]:
    return place.worktree, place.home, place.is_worktree


@pytest.fixture
def main(tmp_path: Path) -> Path:
    return make_repository(tmp_path.resolve() / "main")


def test_outside_any_repository_the_start_is_its_own_home(tmp_path: Path) -> None:
    start = str(tmp_path.resolve())
    assert at(find_place(start)) == (None, start, False)
    assert at(find_place(start + "/not/there")) == (None, start + "/not/there", False)


@pytest.mark.parametrize("inside", ["", "sub", "sub/deep", "sub/deep/file", "not/there", ".git/hooks"])
def test_the_main_worktree_is_found_from_anywhere_inside(main: Path, inside: str) -> None:
    assert at(find_place(str(main / inside))) == (str(main), str(main), False)


@pytest.mark.parametrize("where", ["linked", "main/.worktrees/linked"])
@pytest.mark.parametrize("inside", ["", "sub/deep", "sub/deep/file"])
def test_a_linked_worktree_shares_the_home_of_the_main_one(main: Path, where: str, inside: str) -> None:
    linked = main.parent / where
    git(main, "worktree", "add", "-q", str(linked))
    assert at(find_place(str(linked / inside))) == (str(linked), str(main), True)


@pytest.mark.parametrize("by_git", [True, False])
def test_a_worktree_that_was_moved_still_belongs_to_its_repository(main: Path, by_git: bool) -> None:
    linked, moved = main.parent / "linked", main.parent / "far" / "away"
    git(main, "worktree", "add", "-q", str(linked))
    moved.parent.mkdir()
    if by_git:
        git(main, "worktree", "move", str(linked), str(moved))
    else:
        linked.rename(moved)
    assert at(find_place(str(moved))) == (str(moved), str(main), True)


def test_a_worktree_is_found_through_a_link_to_a_folder_in_it(main: Path) -> None:
    linked, alias = main.parent / "linked", main.parent / "alias"
    git(main, "worktree", "add", "-q", str(linked))
    alias.symlink_to(linked / "sub")
    assert at(find_place(str(alias / "deep"))) == (str(linked), str(main), True)


def test_a_worktree_with_a_relative_pointer_is_followed(main: Path) -> None:
    linked = main.parent / "linked"
    git(main, "worktree", "add", "-q", str(linked))
    (linked / ".git").write_text("gitdir: ../main/.git/worktrees/linked\n")
    assert at(find_place(str(linked))) == (str(linked), str(main), True)


def test_a_clone_is_not_a_worktree(main: Path) -> None:
    clone = main.parent / "clone"
    git(main, "clone", "-q", str(main), str(clone))
    assert at(find_place(str(clone / "sub"))) == (str(clone), str(clone), False)


def test_worktrees_of_a_bare_repository_meet_in_it(main: Path) -> None:
    bare, one, two = (main.parent / name for name in ("bare.git", "one", "two"))
    git(main, "clone", "-q", "--bare", str(main), str(bare))
    git(bare, "worktree", "add", "-q", str(one))
    git(bare, "worktree", "add", "-q", str(two))
    git(bare, "config", "alias.worktree", "..")  # a key that only looks like core.worktree
    assert at(find_place(str(one))) == (str(one), str(bare), True)
    assert at(find_place(str(two / "sub"))) == (str(two), str(bare), True)


def test_a_folder_that_points_to_a_bare_repository_beside_its_worktrees_has_their_home(main: Path) -> None:
    project = main.parent / "project"
    git(main, "clone", "-q", "--bare", str(main), str(project / ".bare"))
    (project / ".git").write_text("gitdir: ./.bare\n")
    git(project, "worktree", "add", "-q", "feature")
    assert find_place(str(project / "feature")).home == str(project / ".bare")
    assert find_place(str(project)).home == str(project / ".bare")


def test_a_repository_with_its_git_directory_elsewhere_has_one_home(main: Path) -> None:
    tree, linked = main.parent / "tree", main.parent / "linked"
    git(main, "clone", "-q", "--separate-git-dir", str(main.parent / "store"), str(main), str(tree))
    git(tree, "worktree", "add", "-q", str(linked))
    assert find_place(str(tree)).worktree == str(tree)
    assert find_place(str(tree)).home == find_place(str(linked)).home


def test_a_submodule_is_its_own_repository_and_its_worktrees_come_home_to_it(main: Path) -> None:
    super_ = make_repository(main.parent / "super")
    git(super_, "submodule", "add", "-q", str(main), "lib/inner")
    inner, linked = super_ / "lib" / "inner", main.parent / "linked"
    git(inner, "worktree", "add", "-q", str(linked))
    assert (inner / ".git").is_file()
    assert at(find_place(str(inner / "sub"))) == (str(inner), str(inner), False)
    assert at(find_place(str(linked / "sub"))) == (str(linked), str(inner), True)
    assert at(find_place(str(super_ / "lib"))) == (str(super_), str(super_), False)


def test_a_submodule_that_git_lost_track_of_is_still_its_own_home(main: Path) -> None:
    super_ = make_repository(main.parent / "super")
    git(super_, "submodule", "add", "-q", str(main), "inner")
    git(super_, "config", "-f", ".git/modules/inner/config", "--unset", "core.worktree")
    assert at(find_place(str(super_ / "inner"))) == (str(super_ / "inner"), str(super_ / "inner"), False)


def test_a_submodule_inside_a_linked_worktree_is_its_own_repository(main: Path) -> None:
    super_ = make_repository(main.parent / "super")
    git(super_, "submodule", "add", "-q", str(main), "inner")
    git(super_, "commit", "-qm", "inner")
    linked = main.parent / "linked"
    git(super_, "worktree", "add", "-q", str(linked))
    git(linked, "submodule", "update", "-q", "--init")
    inner = linked / "inner"
    assert at(find_place(str(inner))) == (str(inner), str(inner), False)
    assert at(find_place(str(linked))) == (str(linked), str(super_), True)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"gitdir:",
        b"gitdir: ",
        b"gitdir: /not/there\n",
        b"gitdir: .\n",
        b"hello",
        b"\0\xff\xfe",
        b"gitdir: a\0b",
        b"x" * 9999,
    ],
)
def test_a_git_file_that_leads_nowhere_is_no_repository(main: Path, garbage: bytes) -> None:
    (main / "sub" / ".git").write_bytes(garbage)
    assert at(find_place(str(main / "sub" / "deep"))) == (str(main), str(main), False)
    lone = main.parent / "lone"
    lone.mkdir()
    (lone / ".git").write_bytes(garbage)
    assert at(find_place(str(lone))) == (None, str(lone), False)


def test_a_git_file_that_leads_to_a_folder_which_is_no_git_directory_is_no_repository(tmp_path: Path) -> None:
    start = tmp_path.resolve() / "start"
    start.mkdir()
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    (start / ".git").write_text(f"gitdir: {tmp_path}/empty/.git\n")
    assert at(find_place(str(start))) == (None, str(start), False)


def test_a_pipe_or_a_circle_of_links_called_git_is_no_repository(tmp_path: Path) -> None:
    start = tmp_path.resolve()
    os.mkfifo(start / ".git")
    assert find_place(str(start)).worktree is None
    (start / ".git").unlink()
    (start / ".git").symlink_to(".git")
    assert find_place(str(start)).worktree is None


@pytest.mark.parametrize("broken", [b"", b"/not/there", b"\0"])
def test_a_worktree_whose_common_directory_is_lost_is_no_repository(main: Path, broken: bytes) -> None:
    linked = main.parent / "linked"
    git(main, "worktree", "add", "-q", str(linked))
    (main / ".git" / "worktrees" / "linked" / "commondir").write_bytes(broken)
    assert at(find_place(str(linked))) == (None, str(linked), False)


def test_the_environment_of_git_is_not_consulted(main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(main / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(main))
    assert find_place(str(tmp_path)).worktree is None


def test_standing_in_a_bare_repository_is_being_at_its_home(main: Path) -> None:
    bare = main / "vendor" / "bare.git"  # inside of another repository, whose home is another
    git(main, "clone", "-q", "--bare", str(main), str(bare))
    assert at(find_place(str(bare))) == (None, str(bare), False)
    assert at(find_place(str(bare / "hooks"))) == (None, str(bare), False)
    assert at(find_place(str(main / "vendor"))) == (str(main), str(main), False)


def test_a_home_that_is_set_for_the_main_worktree_only_is_found(main: Path) -> None:
    super_ = make_repository(main.parent / "super")
    git(super_, "submodule", "add", "-q", str(main), "inner")
    inner, linked = super_ / "inner", main.parent / "linked"
    git(inner, "worktree", "add", "-q", str(linked))
    git(inner, "sparse-checkout", "set", "sub")  # moves core.worktree into config.worktree
    assert (super_ / ".git" / "modules" / "inner" / "config.worktree").exists()
    assert at(find_place(str(linked))) == (str(linked), str(inner), True)
