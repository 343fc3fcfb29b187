"""`dibs overlaps`: files that are changed in several worktrees at once, found with real git, touching nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, width
from tests.worktrees.repos import WHO, commit, git, new_board, template, worktree

FILE = "src/app.py"


@pytest.fixture
def shell(main: Path) -> Shell:
    return Shell(main, **WHO, GIT_CONFIG_GLOBAL=os.devnull)


def paths(shell: Shell, *words: str, **more: Any) -> dict[str, list[tuple[str, str | None, str]]]:
    """For each file, the worktrees that change it: their folder's name, their branch, and how."""
    found = shell.ok("overlaps", "--json", *words, **more).json
    assert found["total"] == len(found["overlaps"])
    assert found["more"] is False
    how = {(True, False): "uncommitted", (False, True): "committed", (True, True): "both"}
    return {
        overlap["path"]: [
            (Path(part["worktree"]).name, part["branch"], how[part["uncommitted"], part["committed"]])
            for part in overlap["worktrees"]
        ]
        for overlap in found["overlaps"]
    }


def test_changes_of_every_kind_are_found_in_every_worktree(main: Path, shell: Shell) -> None:
    one, two = worktree(main, "../one", "feature/one"), worktree(main, "../zoo/two", "two")
    (main / FILE).write_text("not staged\n")
    (one / FILE).write_text("staged\n")
    git(one, "add", FILE)
    commit(two, FILE)
    (one / "new.txt").write_text("untracked\n")
    (two / "new.txt").write_text("untracked\n")
    for tree in (one, two):
        (tree / "junk.log").write_text("ignored\n")
        (tree / ".gitignore").write_text("*.log\n")
    (one / "README.md").write_text("only here\n")
    commit(two, "src/deep/util.py")
    (two / "src/deep/util.py").write_text("and again\n")
    git(one, "mv", "src/deep/util.py", "src/deep/better.py")  # counts on both names
    (main / "src/deep/better.py").write_text("also\n")
    assert paths(shell) == {
        ".gitignore": [("one", "feature/one", "uncommitted"), ("two", "two", "uncommitted")],
        "new.txt": [("one", "feature/one", "uncommitted"), ("two", "two", "uncommitted")],
        FILE: [("main", "main", "uncommitted"), ("one", "feature/one", "uncommitted"), ("two", "two", "committed")],
        "src/deep/better.py": [("main", "main", "uncommitted"), ("one", "feature/one", "uncommitted")],
        "src/deep/util.py": [("one", "feature/one", "uncommitted"), ("two", "two", "both")],
    }
    # From anywhere in the repository, and by a hook of git, whose environment names one worktree.
    assert list(paths(shell, cwd=two / "src")) == list(paths(shell))
    assert list(paths(shell, GIT_DIR=str(main / ".git"), GIT_INDEX_FILE=str(main / ".git/index"))) == list(paths(shell))


def test_nothing_is_changed_by_looking(main: Path, shell: Shell) -> None:
    trees = [main, worktree(main, "../one"), worktree(main, "../two")]
    for tree in trees:
        (tree / FILE).write_text("changed\n")
        os.utime(tree / "README.md", (1, 1))  # git would like to note that it has not changed

    def state() -> dict[str, tuple[int, bytes]]:
        files = (path for path in main.parent.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    assert list(paths(shell)) == [FILE]
    assert state() == before


def test_a_worktree_inside_another_is_no_change_of_the_outer_one(main: Path, shell: Shell) -> None:
    inner = worktree(main, ".trees/inner", "inner")
    beside = worktree(main, "../beside", "beside")
    (beside / ".trees").mkdir()
    (beside / ".trees" / "inner").write_text("a file of that name\n")
    for tree in (main, inner):
        (tree / FILE).write_text("changed\n")
    assert paths(shell) == {FILE: [("main", "main", "uncommitted"), ("inner", "inner", "uncommitted")]}


def test_only_what_is_ahead_of_the_base_counts(main: Path, shell: Shell) -> None:
    one, two = worktree(main, "../one", "one"), worktree(main, "../two", "two")
    commit(main, FILE, "on main, after they branched\n")
    commit(one, FILE, "on one\n")
    assert paths(shell) == {}
    commit(two, FILE, "on two\n")
    assert paths(shell) == {FILE: [("one", "one", "committed"), ("two", "two", "committed")]}
    assert paths(shell, "--base", "two") == {FILE: [("main", "main", "committed"), ("one", "one", "committed")]}


@pytest.mark.parametrize("branch", ["main", "master", "trunk"])
def test_the_base_is_the_main_branch_by_whatever_name(main: Path, shell: Shell, branch: str) -> None:
    git(main, "branch", "-m", branch)
    one, two = worktree(main, "../one", "one"), worktree(main, "../two", "two")
    commit(one, FILE)
    commit(two, FILE)
    found = shell.ok("overlaps", "--json", cwd=one).json
    assert (found["base"], found["total"]) == (branch, 1)
    assert f"compared with {branch}" in shell.ok("overlaps").out


def test_the_branch_of_the_origin_counts_wherever_it_is_further(main: Path, tmp_path: Path) -> None:
    git(main, "checkout", "-qb", "develop")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(main), str(clone))
    shell = Shell(clone)
    commit(clone, "local.txt")  # develop is ahead here …
    one = worktree(clone, "../one", "one")
    commit(main, "remote.txt")  # … and there
    git(clone, "fetch", "-q")
    git(clone, "worktree", "add", "-q", "-b", "two", "../two", "origin/develop")
    assert paths(shell) == {}
    commit(one, FILE)
    commit(tmp_path / "two", FILE)
    assert list(paths(shell)) == [FILE]
    assert shell.ok("overlaps", "--json").json["base"] == "develop"


def test_who_holds_a_file_is_said_with_the_task_and_until_when(main: Path, shell: Shell) -> None:
    new_board(main)
    one, two = worktree(main, "../one", "one"), worktree(main, "../two", "two")
    for tree in (one, two):
        (tree / FILE).write_text("changed\n")
        (tree / "README.md").write_text("changed\n")
    task = shell.add("rework it", "--path", "src/**")
    shell.ok("claim", task)
    shell.ok("lock", "docs", "--as", "bob", cwd=one)
    found = {
        overlap["path"]: overlap["holders"] for overlap in shell.ok("overlaps", "--json", cwd=two).json["overlaps"]
    }
    assert found["README.md"] == []
    (holder,) = found[FILE]
    assert (holder["holder"], holder["task_id"], holder["pattern"]) == ("worker-1", task, "src/**")
    assert holder["expires_at"].endswith("Z")
    lines = shell.ok("overlaps").out.splitlines()
    at = lines.index(FILE)
    assert lines[at + 1].split() == ["one", "one", "uncommitted"]
    assert lines[at + 2].split() == ["two", "two", "uncommitted"]
    assert lines[at + 3].startswith(f"  held by worker-1 for task {task} for another")
    assert lines[-2:] == ["2 files are changed in more than one of 3 worktrees", "  compared with main"]


def test_case_does_not_count_where_it_does_not_count(main: Path, shell: Shell) -> None:
    git(main, "config", "core.ignorecase", "true")
    new_board(main)
    one, two = worktree(main, "../one"), worktree(main, "../two")
    (one / "Notes.txt").write_text("x\n")
    (two / "notes.TXT").write_text("x\n")
    shell.ok("lock", "NOTES.txt")
    (overlap,) = shell.ok("overlaps", "--json").json["overlaps"]
    assert overlap["path"] == "Notes.txt"
    assert [lock["holder"] for lock in overlap["holders"]] == ["worker-1"]


def test_a_worktree_that_cannot_be_looked_at_is_reported_and_the_others_are_shown(main: Path, shell: Shell) -> None:
    one, two, broken, gone = (worktree(main, f"../{name}", name) for name in ("one", "two", "broken", "gone"))
    for tree in (one, two, broken):
        (tree / FILE).write_text("changed\n")
    (main / ".git" / "worktrees" / "broken" / "index").write_bytes(b"no index")
    gone.rename(main.parent / "elsewhere")
    found = shell.ok("overlaps", "--json").json
    assert [Path(part["worktree"]).name for part in found["overlaps"][0]["worktrees"]] == ["one", "two"]
    assert sorted(Path(skipped["worktree"]).name for skipped in found["skipped"]) == ["broken", "gone"]
    assert all(skipped["why"] for skipped in found["skipped"])
    shown = shell.ok("overlaps")
    assert "dibs: worktree broken:\n" in shown.err
    assert "dibs: worktree gone:\n" in shown.err
    assert "1 file is changed in more than one of 3 worktrees" in shown.out


def test_heads_without_a_branch_without_a_commit_and_without_a_common_history(main: Path, shell: Shell) -> None:
    detached, stranger = worktree(main, "../detached"), worktree(main, "../stranger")
    commit(detached, FILE)
    git(stranger, "checkout", "-q", "--orphan", "unborn")  # everything is staged, nothing is committed
    git(stranger, "rm", "-rqf", ".")
    (stranger / "README.md").write_text("another\n")
    (main / "README.md").write_text("changed\n")
    (main / FILE).write_text("changed\n")
    assert paths(shell) == {
        "README.md": [("main", "main", "uncommitted"), ("stranger", "unborn", "uncommitted")],
        FILE: [("main", "main", "uncommitted"), ("detached", None, "committed")],
    }
    assert f"at {git(detached, 'rev-parse', 'HEAD')[:9]}" in shell.ok("overlaps").out
    commit(stranger, "lonely.txt")
    (stranger / "README.md").write_text("again\n")
    found = shell.ok("overlaps", "--json").json
    assert [Path(skipped["worktree"]).name for skipped in found["skipped"]] == ["stranger"]
    assert "no history in common" in found["skipped"][0]["why"]
    assert [overlap["path"] for overlap in found["overlaps"]] == ["README.md", FILE]  # its uncommitted changes count


def test_a_repository_without_any_commit_has_nothing_to_compare_with(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "new")
    shell = Shell(tmp_path / "new")
    found = shell.ok("overlaps", "--json").json
    assert found["overlaps"] == []
    assert found["base"] is None
    assert "there is only one worktree, so nothing can overlap" in shell.ok("overlaps").out


def test_bare_repositories_submodules_and_git_directories_elsewhere(main: Path, source: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(main, "clone", "-q", "--bare", str(main), str(bare))
    apart = tmp_path / "apart"
    git(main, "clone", "-q", "--separate-git-dir", str(tmp_path / "store"), str(main), str(apart))
    git(main, "submodule", "add", "-q", str(source), "inner")
    for where, name in ((bare, "bare"), (apart, "apart"), (main / "inner", "inner")):
        one, two = worktree(where, tmp_path / f"{name}-one", "one"), worktree(where, tmp_path / f"{name}-two", "two")
        trees = [one, two] if where == bare else [where, one, two]
        for tree in trees:
            (tree / FILE).write_text("changed\n")
        found = Shell(trees[0]).ok("overlaps", "--json").json
        assert [part["worktree"] for part in found["overlaps"][0]["worktrees"]] == [str(tree) for tree in trees]
        assert found["skipped"] == []
    seen = Shell(tmp_path / "apart-one").ok("overlaps", "--json").json  # from there, git cannot tell
    assert [skipped["worktree"] for skipped in seen["skipped"]] == [str(tmp_path / "store")]


def test_output_fits_the_screen_and_no_name_can_forge_it(main: Path, shell: Shell) -> None:
    one = worktree(main, "../\x1b[2J" + "long-name-of-a-worktree-" * 4, "branch-" + "x" * 90)
    two = worktree(main, "../two", "two")
    strange = ["evil\x1b[31m\nheld by nobody", "ü" * 60 + "日本" * 20, "app/[id]/page.tsx", "-rf", "two  blanks"]
    for tree in (one, two):
        for name in strange:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text("x\n")
        with open(os.path.join(os.fsencode(tree), b"not-\xff-text"), "wb"):
            pass
    out = shell.ok("overlaps").out
    assert "\x1b" not in out
    assert not any(line.startswith("held by nobody") for line in out.splitlines())
    assert max(map(width, out.splitlines())) <= 80
    found = shell.ok("overlaps", "--json").json
    assert {overlap["path"] for overlap in found["overlaps"]} == {*strange, "not-\udcff-text"}


def test_what_cannot_be_asked_for_is_said(main: Path, shell: Shell, tmp_path: Path) -> None:
    for base in ("nowhere", "-x", "main..", ""):
        refused = shell("overlaps", f"--base={base}", "--json")
        assert refused.code in (1, 2), base
        assert refused.error["hint"]
    assert "git branch" in shell("overlaps", "--base", "nowhere").err
    plain = tmp_path / "plain"
    plain.mkdir()
    refused = shell("overlaps", "--json", cwd=plain, GIT_CEILING_DIRECTORIES=str(tmp_path))
    assert (refused.code, refused.error["code"]) == (1, "invalid")
    assert "no git repository" in refused.error["message"]
    no_git = shell("overlaps", "--json", PATH=str(plain))
    assert (no_git.code, no_git.error["code"]) == (1, "unsupported")
    missing = shell("overlaps", "--json", "--board", str(plain))
    assert missing.error["code"] == "no_board"


def test_a_board_that_cannot_be_read_does_not_keep_the_overlaps_back(main: Path, shell: Shell) -> None:
    new_board(main)
    board = main / ".dibs" / "board.db"
    board.write_bytes(b"not a board, and long enough to see that" * 50)
    for suffix in ("-wal", "-shm"):
        Path(f"{board}{suffix}").unlink(missing_ok=True)
    one = worktree(main, "../one")
    for tree in (main, one):
        (tree / FILE).write_text("changed\n")
    shown = shell.ok("overlaps", "--json")
    assert shown.json["board"] is None
    assert [overlap["path"] for overlap in shown.json["overlaps"]] == [FILE]
    assert "who holds what is not known" in shown.err


def test_fifty_worktrees(tmp_path: Path) -> None:
    main = template(tmp_path / "main")
    for number in range(50):
        tree = worktree(main, f"../w{number}")
        if number % 10 == 0:
            (tree / FILE).write_text("changed\n")
    assert len(paths(Shell(main))[FILE]) == 5
