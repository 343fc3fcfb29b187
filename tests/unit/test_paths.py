"""Paths: one name for one file, overlap that misses nothing, and the home that all worktrees share."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dibs import paths
from dibs.errors import Invalid
from dibs.paths import (
    case_insensitive,
    covers,
    fold,
    is_pattern,
    literal_prefix,
    normalise,
    overlaps,
    prefix_range,
)
from dibs.places import Place, find_place

# normalise, without a disk


@pytest.mark.parametrize(
    ("given_path", "name"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//auth/", "src/auth"),
        ("src/./auth/../a.py", "src/a.py"),
        ("src/..", "**"),
        (".", "**"),
        ("./**", "**"),
        ("**", "**"),
        ("**/**/x", "**/x"),
        ("src/**", "src/**"),
        ("src/*/", "src/*"),
        ("src/*/../b", "src/b"),
        ("src/*/../../b", "b"),
        ("a**b", "a**b"),
        ("[x", "[x"),
        ("...", "..."),
        (" ", " "),
        ("-rf", "-rf"),
        ("~/x", "~/x"),
        ("a b/ü/日本/🎉", "a b/ü/日本/🎉"),
        ("app/[id]/page.tsx", "app/[id]/page.tsx"),
        ("x" * 4096, "x" * 4096),
    ],
)
def test_a_repo_relative_spelling_becomes_its_canonical_name(given_path: str, name: str) -> None:
    assert normalise(given_path) == name


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "\0",
        "a\0b",
        "a\nb",
        "a\rb",
        "a\tb",
        "a\x1b[31mb",
        "a\x7fb",
        "a\x85b",
        "a\u2028b",
        "a\udcffb",
        "a\U0010ffffb",
        "x" * 4097,
        "..",
        "../x",
        "a/../../x",
        "*/../../x",
        "a/**/../x",
    ],
)
def test_a_name_that_no_board_can_hold_is_refused_with_a_way_out(bad: str, tmp_path: Path) -> None:
    for root in (None, str(tmp_path)):
        with pytest.raises(Invalid) as caught:
            normalise(bad, root=root, cwd=str(tmp_path))
        assert caught.value.code == "invalid"
        assert caught.value.hint
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 500


def test_an_absolute_path_needs_a_root() -> None:
    with pytest.raises(Invalid, match="absolute"):
        normalise("/etc/passwd")


def test_something_that_is_not_text_is_refused() -> None:
    with pytest.raises(Invalid, match="must be text, not int"):
        normalise(7)  # type: ignore[arg-type]


def test_a_backslash_is_part_of_the_name_except_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert normalise("a\\b") == "a\\b"
    monkeypatch.setattr(os, "sep", "\\")
    assert normalise("a\\b\\*.py") == "a/b/*.py"


# normalise, with a disk


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "src" / "auth").mkdir(parents=True)
    (root / "src" / "auth" / "login.py").touch()
    (root / "docs").mkdir()
    return root


@pytest.mark.parametrize(
    ("cwd", "given_path", "name"),
    [
        ("", "src/auth/login.py", "src/auth/login.py"),
        ("", "src/new/file.py", "src/new/file.py"),
        ("src", "auth/login.py", "src/auth/login.py"),
        ("src", "../docs", "docs"),
        ("src", "..", "**"),
        ("src", ".", "src"),
        ("src", "./**", "src/**"),
        ("src", "../**", "**"),
        ("src", "../*", "*"),
        ("src/auth", "*/../login.py", "src/auth/login.py"),
        ("src/auth", "*/../../x", "src/x"),
        ("docs", "../src/a[!b]?/x", "src/a[!b]?/x"),
        ("..", "repo/src", "src"),
        ("..", "repo", "**"),
    ],
)
def test_a_relative_path_is_read_from_the_working_directory(repo: Path, cwd: str, given_path: str, name: str) -> None:
    assert normalise(given_path, root=str(repo), cwd=str(repo / cwd)) == name


def test_the_process_working_directory_is_the_default(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "src")
    assert normalise("auth", root=str(repo)) == "src/auth"
    assert normalise("auth", root="..") == "src/auth"


def test_a_working_directory_that_was_removed_is_reported_not_raised(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "gone").mkdir()
    monkeypatch.chdir(repo / "gone")
    (repo / "gone").rmdir()
    try:
        with pytest.raises(Invalid, match="working directory"):
            normalise("x", root=str(repo))
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize("tail", ["", "/", "//.", "/src/.."])
def test_the_root_by_any_spelling_is_everything(repo: Path, tail: str) -> None:
    assert normalise(f"{repo}{tail}", root=str(repo)) == "**"


def test_the_file_system_root_can_be_the_root(repo: Path) -> None:
    assert normalise(f"{repo}/*.py", root="/") == f"{repo}/*.py"[1:]
    assert normalise("/", root="/") == "**"


@pytest.mark.parametrize("outside", ["..", "../x", "/etc/passwd", "/", "/**", "/*/x", "../repository/x"])
def test_a_path_outside_the_repository_is_refused_and_names_the_repository(repo: Path, outside: str) -> None:
    with pytest.raises(Invalid, match="outside the repository") as caught:
        normalise(outside, root=str(repo), cwd=str(repo))
    assert str(repo) in caught.value.message
    assert "inside" in caught.value.hint


def test_a_repository_whose_name_begins_like_another_is_another(repo: Path) -> None:
    with pytest.raises(Invalid):
        normalise(f"{repo}2/x", root=str(repo))


def test_links_to_folders_give_one_name(repo: Path) -> None:
    (repo / "alias").symlink_to("src/auth")
    (repo.parent / "elsewhere").symlink_to(repo)
    spellings = [
        "alias/login.py",
        "docs/../alias/login.py",
        f"{repo.parent}/elsewhere/alias/login.py",
        f"{repo}/src/auth/login.py",
    ]
    assert {normalise(s, root=str(repo), cwd=str(repo)) for s in spellings} == {"src/auth/login.py"}
    assert normalise("alias", root=str(repo), cwd=str(repo)) == "src/auth"
    assert normalise("alias/*.py", root=str(repo), cwd=str(repo)) == "src/auth/*.py"
    assert (
        normalise("login.py", root=f"{repo.parent}/elsewhere", cwd=f"{repo.parent}/elsewhere/alias")
        == "src/auth/login.py"
    )


def test_the_parent_of_a_linked_folder_is_the_parent_of_its_target(repo: Path) -> None:
    (repo / "alias").symlink_to("src/auth")
    assert normalise("alias/../a.py", root=str(repo), cwd=str(repo)) == "src/a.py"
    assert normalise("alias/*/../../a.py", root=str(repo), cwd=str(repo)) == "src/a.py"


def test_a_link_to_a_file_is_the_file_it_leads_to(repo: Path) -> None:
    (repo / "AGENTS.md").touch()
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    assert normalise("CLAUDE.md", root=str(repo), cwd=str(repo)) == "AGENTS.md"


def test_a_link_out_of_the_repository_keeps_its_name_but_leads_nowhere(repo: Path) -> None:
    (repo / "out").symlink_to("/etc")
    assert normalise("out", root=str(repo), cwd=str(repo)) == "out"
    for beyond in ("out/passwd", "out/*", "out/../etc/passwd", "out/.."):
        with pytest.raises(Invalid, match="outside"):
            normalise(beyond, root=str(repo), cwd=str(repo))


def test_links_in_a_circle_or_a_very_long_chain_raise_nothing_else(repo: Path) -> None:
    (repo / "loop").symlink_to("loop")
    normalise("loop/x", root=str(repo), cwd=str(repo))
    for i in range(1500):
        (repo / f"l{i}").symlink_to(f"l{i + 1}")
    with contextlib.suppress(Invalid):  # some versions of realpath recurse along the chain, some do not
        normalise("l0/x", root=str(repo), cwd=str(repo))


def test_a_path_in_another_worktree_has_the_same_name_as_in_this_one(repo: Path) -> None:
    other = repo.parent / "other"
    other.mkdir()
    nested = repo / ".worktrees" / "feature"
    nested.mkdir(parents=True)
    roots = (str(other), str(nested))
    for top in (repo, other, nested):
        assert normalise(f"{top}/src/*.py", root=str(repo), roots=roots) == "src/*.py"
        assert normalise("src/a.py", root=str(repo), cwd=str(top), roots=roots) == "src/a.py"
    assert normalise("../../src/a.py", root=str(repo), cwd=str(nested), roots=roots) == "src/a.py"


def test_glob_characters_in_the_folders_above_the_root_are_plain_names(tmp_path: Path) -> None:
    root = tmp_path / "[x]*" / "re?po"
    (root / "src").mkdir(parents=True)
    assert normalise(f"{root}/src/*.py", root=str(root)) == "src/*.py"
    assert normalise("*.py", root=str(root), cwd=str(root / "src")) == "src/*.py"


def test_a_working_directory_with_a_newline_in_its_name_is_refused(repo: Path) -> None:
    (repo / "a\nb").mkdir()
    with pytest.raises(Invalid, match="control"):
        normalise("x", root=str(repo), cwd=str(repo / "a\nb"))


HOSTILE = st.text(st.sampled_from("ab*?[]!-./\\~ \n\0é\udc80\U0010ffff"), max_size=30) | st.text(max_size=30)


@given(HOSTILE, st.booleans())
@settings(max_examples=500, deadline=None)
def test_any_text_is_either_refused_or_named_once_and_for_all(text: str, with_root: bool) -> None:
    where = {"root": "/nowhere/repo", "cwd": "/nowhere/repo/sub"} if with_root else {}
    try:
        name = normalise(text, **where)  # type: ignore[arg-type]
    except Invalid:
        return
    assert normalise(name) == name
    assert not name.startswith("/")
    assert ".." not in name.split("/")
    if with_root:
        assert normalise(name, root="/nowhere/repo", cwd="/nowhere/repo") == name
        assert normalise("/nowhere/repo/" + name, root="/nowhere/repo") == name


# patterns


@pytest.mark.parametrize("p", ["*", "**", "a/?", "a*", "[ab]", "x/[!a]", "[]]", "[[]", "[a-z]x", "[!]]"])
def test_globs_are_patterns(p: str) -> None:
    assert is_pattern(p)


@pytest.mark.parametrize("p", ["", "a", "a/b.py", "[", "[a", "[]", "[!]", "a]", "[a/b]", "a\\b", "{a,b}"])
def test_everything_else_is_literal(p: str) -> None:
    assert not is_pattern(p)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("src/auth", "src/auth"),
        ("src/auth", "src/auth/login.py"),
        ("src/*", "src/a/b"),
        ("src/**", "src"),
        ("src/**", "src/a/b"),
        ("**", "a"),
        ("**/x", "x"),
        ("**/x", "a/b/x/y"),
        ("a/**/b", "a/b"),
        ("a/**/b/**/c", "a/1/b/2/b/3/c/4"),
        ("**/a/a/b", "a/a/a/b"),
        ("a**b", "ab"),
        ("a**b", "aXXb"),
        ("***", "x"),
        ("*.py", ".py"),
        ("a?c", "abc"),
        ("[a-c]x", "bx"),
        ("[c-a]x", "bx"),
        ("[!a-c]x", "dx"),
        ("[]x]", "]"),
        ("[!]x]", "a"),
        ("[a-]", "-"),
        ("[[]id]", "[id]"),
        ("[x", "[x"),
        ("a/[x/b]", "a/[x/b]/c"),
        ("app/[id]/*.tsx", "app/[id]/page.tsx"),
        ("app/[...slug]", "app/[...slug]/page.tsx"),
    ],
)
def test_a_pattern_covers_what_it_matches_and_all_below(pattern: str, path: str) -> None:
    assert covers(pattern, path)
    assert overlaps(pattern, path)
    assert overlaps(path, pattern)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("src/auth", "src/authority"),
        ("src/auth", "src"),
        ("src/*", "src"),
        ("**/x", "a/b"),
        ("*", ""),
        ("a/**/b", "a/c"),
        ("a?c", "ac"),
        ("*.py", "a.pyc"),
        ("[!a]x", "ax"),
        ("[+-0]", "/"),
        ("src/a", "src/A"),
        ("[ab]", "[ba]"),
        ("i", "[id]"),
    ],
)
def test_a_pattern_covers_nothing_else(pattern: str, path: str) -> None:
    assert not covers(pattern, path)


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [
        ("src/auth/**", "src/auth/login.py", True),
        ("src/auth/**", "src/auth", True),
        ("src", "src/*.py", True),
        ("src/*.py", "src/a*", True),
        ("src/*.py", "src/*.js", False),
        ("src/*.py", "src/*.js/x", False),
        ("**/*.py", "src/*.js", True),  # a folder src/x.js may hold a .py file
        ("a/*/c", "a/b/*", True),
        ("a/*/c", "a/b/d", False),
        ("a/**/x", "b/**/x", False),
        ("a*b*c", "a*d*c", True),
        ("a*b", "a*c", False),
        ("*a?", "b", False),
        ("?", "*", True),
        ("[a-f]x", "[f-k]?", True),
        ("[a-e]x", "[f-k]?", False),
        ("[!a]", "[!b]", True),
        ("[!a]", "a", False),
        ("[!a]", "[a]", False),
        ("[!a]*", "[a]", True),  # both cover a file that is called [a]
        ("app/[id]", "app/[id]", True),
        ("app/[id]", "app/[*", True),
        ("app/[id]", "app/x", False),
        ("[!\x01-.0-\U0010ffff]", "?", False),  # no character is left
    ],
)
def test_overlap_is_computed_on_patterns(a: str, b: str, met: bool) -> None:
    assert overlaps(a, b) is met
    assert overlaps(b, a) is met


TIDY = ["a", "b", "*", "**", "?", "[ab]", "[!a]", "[a-b]", "[!ab]"]
ODD = [*TIDY, "[]a]", "[", "]", "-", "!"]


def segments_of(tokens: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(tokens), min_size=1, max_size=3).map("".join).filter(lambda s: s != "**")


def matches_segment(segment: str, name: str) -> bool:
    """The same rule written another way: the standard library's, plus a segment's own spelling."""
    return segment == name or fnmatch.fnmatchcase(name, segment)


def may_be_read_backwards(segment: str) -> bool:
    """Ranges such as [b-a] mean nothing to fnmatch; here they mean [a-b]."""
    return "-" in segment.replace("a-b", "") and "[" in segment


# Two tidy segments of three tokens with a common name have one of at most four characters, or their own
# spelling; c stands for every character that they do not mention.
NAMES = ["".join(name) for size in range(1, 5) for name in itertools.product("abc", repeat=size)]


@given(segments_of(TIDY), segments_of(TIDY))
@settings(max_examples=1000, deadline=None)
def test_two_segments_overlap_exactly_when_some_name_fits_both(x: str, y: str) -> None:
    common = [n for n in (*NAMES, x, y) if matches_segment(x, n) and matches_segment(y, n)]
    assert overlaps(x, y) == overlaps(y, x) == bool(common)


@given(segments_of(ODD), segments_of(ODD), st.text("ab[]!-", min_size=1, max_size=4))
@settings(max_examples=1000, deadline=None)
def test_segments_with_stray_brackets_overlap_wherever_a_name_fits_both(x: str, y: str, name: str) -> None:
    assume(not may_be_read_backwards(x) and not may_be_read_backwards(y))
    assert overlaps(x, y) == overlaps(y, x)
    for n in (name, x, y):
        if matches_segment(x, n) and matches_segment(y, n):
            assert overlaps(x, y)


@given(segments_of(ODD), st.text("ab[]!-", min_size=1, max_size=5))
@settings(max_examples=600, deadline=None)
def test_a_segment_covers_a_name_exactly_when_it_matches_it(segment: str, name: str) -> None:
    assume(not may_be_read_backwards(segment))
    assert covers(segment, name) == matches_segment(segment, name)


SMALL = st.lists(
    st.sampled_from(["a", "b", "ab", "*", "**", "?", "a*", "*b", "[ab]", "[!a]"]), min_size=1, max_size=3
).map("/".join)
# Written one after the other, two patterns of three segments fit in six; these names satisfy every pair.
PATHS = ["/".join(p) for depth in range(1, 7) for p in itertools.product(["a", "b", "ab"], repeat=depth)]


def matches(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    if not pattern:
        return True  # what is left of the path lies below the match
    if pattern[0] == "**":
        return any(matches(pattern[1:], path[i:]) for i in range(len(path) + 1))
    return bool(path) and matches_segment(pattern[0], path[0]) and matches(pattern[1:], path[1:])


COVERED: dict[str, frozenset[str]] = {}


def covered(pattern: str) -> frozenset[str]:
    if pattern not in COVERED:
        steps = tuple(pattern.split("/"))
        COVERED[pattern] = frozenset(p for p in PATHS if matches(steps, tuple(p.split("/"))))
    return COVERED[pattern]


@given(SMALL, SMALL)
@settings(max_examples=400, deadline=None)
def test_two_patterns_overlap_exactly_when_some_path_is_covered_by_both(a: str, b: str) -> None:
    assert overlaps(a, b) == overlaps(b, a) == bool(covered(a) & covered(b))


@given(SMALL)
@settings(max_examples=150, deadline=None)
def test_a_pattern_covers_exactly_the_paths_that_it_matches_or_lies_above(pattern: str) -> None:
    assert {p for p in PATHS if covers(pattern, p)} == covered(pattern)


WIDE = st.lists(st.text("ab*?[]!-.0é日", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


@given(WIDE | SMALL)
@settings(deadline=None)
def test_every_pattern_overlaps_itself_everything_and_what_lies_below_it(p: str) -> None:
    assert overlaps(p, p)
    assert overlaps(p, "**")
    assert overlaps(p, p + "/x")
    assert covers(p, p)
    assert covers(p, p + "/x")


@given(WIDE | SMALL, WIDE | SMALL)
@settings(deadline=None)
def test_a_covered_path_is_an_overlap_and_a_folder_widens_it(a: str, b: str) -> None:
    if covers(a, b):
        assert overlaps(a, b)
    if overlaps(a + "/x", b):
        assert overlaps(a, b)


@pytest.mark.parametrize(
    ("p", "prefix"),
    [
        ("src/auth/*.py", "src/auth"),
        ("**", ""),
        ("", ""),
        ("a/b", "a/b"),
        ("a/**/b", "a"),
        ("a/[x/b", "a/[x/b"),
        ("app/[id]/x", "app"),
    ],
)
def test_the_literal_prefix_ends_before_the_first_glob(p: str, prefix: str) -> None:
    assert literal_prefix(p) == prefix


def test_the_range_of_a_prefix_is_its_ancestors_and_its_descendants() -> None:
    assert prefix_range("src/auth") == (["", "src", "src/auth"], "src/auth/", "src/auth0")
    assert "src/auth/" <= "src/auth/~\U0010fffe" < "src/auth0"
    assert not "src/auth/" <= "src/auth.py" < "src/auth0"
    assert not "src/auth/" <= "src/authority" < "src/auth0"


@given(st.text(max_size=20))
@settings(deadline=None)
def test_the_range_of_no_prefix_holds_every_name(text: str) -> None:
    ancestors, low, high = prefix_range("")
    assert ancestors == [""]
    assert "\U0010ffff" in text or low <= text < high


@given(WIDE | SMALL, WIDE | SMALL)
@settings(max_examples=1000, deadline=None)
def test_an_index_lookup_by_prefix_misses_no_overlap(a: str, b: str) -> None:
    ancestors, low, high = prefix_range(literal_prefix(a))
    other = literal_prefix(b)
    if overlaps(a, b):
        assert other in ancestors or low <= other < high


@given(WIDE, WIDE)
@settings(deadline=None)
def test_the_order_of_names_is_the_order_of_their_bytes(a: str, b: str) -> None:
    assert (a < b) == (a.encode() < b.encode())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("a/" * 2000 + "*.py", "a/" * 2000 + "*.js"),
        ("**/a/" * 800 + "x", "a/" * 2000 + "y"),
        ("**/" + "a/" * 1000 + "b", "a/" * 2000 + "c"),
        ("**/" + "*a*/" * 1000 + "b", "a/" * 2000 + "c"),
        ("**/" + "[!b]/" * 800 + "b", "a/" * 2000 + "c"),
        ("*/" * 2000 + "x", "?/" * 2000 + "y"),
        ("*a" * 2000 + "b", "a" * 4000),
        ("*" + "?" * 2000 + "b", "a" * 4000),
        ("a*" * 2000, "*a" * 2000 + "b"),
        ("[" * 4000, "[" * 3999 + "x"),
        ("[ab]" * 1000, "[bc]" * 1000),
        ("*" + "[ab]" * 600 + "c", "[ab]" * 1000),
        ("*" + "".join(map(chr, range(0x4E00, 0x5E00))), "".join(map(chr, range(0x4E00, 0x5DFF)))),
    ],
)
def test_long_and_hostile_patterns_are_decided_without_blowing_up(a: str, b: str) -> None:
    began = time.process_time()
    overlaps(a, b)
    covers(a, b)
    literal_prefix(a)
    prefix_range(b)
    assert time.process_time() - began < 5  # the product of the lengths is quick; an exponential never ends


# places


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


def test_one_file_has_one_name_from_every_worktree(main: Path) -> None:
    linked = main / ".claude" / "worktrees" / "one"
    git(main, "worktree", "add", "-q", str(linked))
    place = find_place(str(linked / "sub"))
    assert place.worktree is not None
    in_linked = normalise("deep/file", root=place.worktree, cwd=str(linked / "sub"), roots=(place.home,))
    in_main = normalise("deep/file", root=str(main), cwd=str(main / "sub"))
    assert in_linked == in_main == "sub/deep/file"


# case


def test_a_case_sensitive_file_system_is_recognised_and_nothing_is_created(tmp_path: Path) -> None:
    (tmp_path / "Name").touch()
    expected = (tmp_path / "nAME").exists()
    assert case_insensitive(str(tmp_path)) is expected
    assert os.listdir(tmp_path) == ["Name"]


def test_an_empty_or_missing_folder_is_judged_by_the_one_above_or_by_the_platform(tmp_path: Path) -> None:
    (tmp_path / "Name" / "1").mkdir(parents=True)
    assert case_insensitive(str(tmp_path / "Name" / "1")) is (tmp_path / "nAME").exists()
    assert case_insensitive(str(tmp_path / "missing")) is (sys.platform in ("darwin", "win32"))


def test_two_hard_links_or_a_link_that_differ_in_case_are_two_names(tmp_path: Path) -> None:
    (tmp_path / "ab").touch()
    if (tmp_path / "AB").exists():
        pytest.skip("this file system folds case: the two names cannot exist")
    os.link(tmp_path / "ab", tmp_path / "AB")
    assert not case_insensitive(str(tmp_path))
    (tmp_path / "AB").unlink()
    (tmp_path / "AB").symlink_to("ab")
    assert not case_insensitive(str(tmp_path))


def test_a_file_system_that_folds_case_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Name").touch()
    real = os.lstat

    def folding(path: str) -> os.stat_result:
        return real(path.replace("nAME", "Name"))

    monkeypatch.setattr(os, "lstat", folding)
    assert case_insensitive(str(tmp_path))


@given(st.text(max_size=30))
@settings(deadline=None)
def test_folding_is_idempotent_and_blind_to_case(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert fold("Src/README.md") == fold("src/readme.MD")


def test_the_module_imports_nothing_that_slows_the_start() -> None:
    code = (
        "import sys, dibs.errors; before = set(sys.modules); import dibs.paths;"
        "print(*sorted(set(sys.modules) - before - {'dibs.paths'}))"
    )
    source = str(Path(paths.__file__).parent.parent)
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONPATH": source}
    )
    assert set(out.stdout.split()) <= {"errno", "stat"}
