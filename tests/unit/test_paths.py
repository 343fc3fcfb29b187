"""Paths: one name for one file, overlap that misses nothing, and spellings that differ in case."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dibs.errors import Invalid
from dibs.rules.paths import (
    below,
    braces,
    case_insensitive,
    covers,
    fold,
    is_pattern,
    literal_prefix,
    normalise,
    overlaps,
    prefix_range,
)
from tests.searching import examples

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


def test_whoever_knows_better_may_name_what_a_path_leads_to(repo: Path) -> None:
    other = repo.parent / "other"
    other.mkdir()

    def name_of(located: str) -> str | None:
        return next((name for top in (repo, other) if (name := below(located, str(top))) is not None), None)

    for top in (repo, other):
        assert normalise(f"{top}/src/*.py", root=str(repo), name_of=name_of) == "src/*.py"
        assert normalise("src/a.py", root=str(repo), cwd=str(top), name_of=name_of) == "src/a.py"
    with pytest.raises(Invalid, match="outside the repository"):
        normalise(str(repo.parent), root=str(repo), name_of=name_of)


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
@examples(500)
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
@examples(1000)
def test_two_segments_overlap_exactly_when_some_name_fits_both(x: str, y: str) -> None:
    common = [n for n in (*NAMES, x, y) if matches_segment(x, n) and matches_segment(y, n)]
    assert overlaps(x, y) == overlaps(y, x) == bool(common)


@given(segments_of(ODD), segments_of(ODD), st.text("ab[]!-", min_size=1, max_size=4))
@examples(1000)
def test_segments_with_stray_brackets_overlap_wherever_a_name_fits_both(x: str, y: str, name: str) -> None:
    assume(not may_be_read_backwards(x) and not may_be_read_backwards(y))
    assert overlaps(x, y) == overlaps(y, x)
    for n in (name, x, y):
        if matches_segment(x, n) and matches_segment(y, n):
            assert overlaps(x, y)


@given(segments_of(ODD), st.text("ab[]!-", min_size=1, max_size=5))
@examples(600)
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
@examples(400)
def test_two_patterns_overlap_exactly_when_some_path_is_covered_by_both(a: str, b: str) -> None:
    assert overlaps(a, b) == overlaps(b, a) == bool(covered(a) & covered(b))


@given(SMALL)
@examples(150)
def test_a_pattern_covers_exactly_the_paths_that_it_matches_or_lies_above(pattern: str) -> None:
    assert {p for p in PATHS if covers(pattern, p)} == covered(pattern)


WIDE = st.lists(st.text("ab*?[]!-.0é日", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


@given(WIDE | SMALL)
def test_every_pattern_overlaps_itself_everything_and_what_lies_below_it(p: str) -> None:
    assert overlaps(p, p)
    assert overlaps(p, "**")
    assert overlaps(p, p + "/x")
    assert covers(p, p)
    assert covers(p, p + "/x")


@given(WIDE | SMALL, WIDE | SMALL)
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
def test_the_range_of_no_prefix_holds_every_name(text: str) -> None:
    ancestors, low, high = prefix_range("")
    assert ancestors == [""]
    assert "\U0010ffff" in text or low <= text < high


@given(WIDE | SMALL, WIDE | SMALL)
@examples(1000)
def test_an_index_lookup_by_prefix_misses_no_overlap(a: str, b: str) -> None:
    ancestors, low, high = prefix_range(literal_prefix(a))
    other = literal_prefix(b)
    if overlaps(a, b):
        assert other in ancestors or low <= other < high


@given(WIDE, WIDE)
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
def test_folding_is_idempotent_and_blind_to_case(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert fold("Src/README.md") == fold("src/readme.MD")


@given(st.text(alphabet="aAzZ_-^]!09äÄ[kK", max_size=12))
@examples(400)
def test_folding_a_pattern_loses_nothing_that_it_matches(text: str) -> None:
    pattern = f"[{text}]x"
    for c in "aAzZmM_-^!09äÄkKåÅ":
        if overlaps(pattern, f"{c}x") and not pattern.startswith("[!"):
            assert overlaps(fold(pattern), fold(f"{c}x"))
    assert fold(fold(pattern)) == fold(pattern)


@pytest.mark.parametrize(
    ("pattern", "folded"),
    [
        ("[A-Z]*.PY", "[a-z]*.py"),
        ("[!A-Z]", "[!a-z]"),
        ("[A-z]", "[A-z]"),  # the lower case is in it already
        ("[0-Z]", "[0-Za-z]"),
        ("[ABC]x", "[abc]x"),
        ("[]A]", "[]a]"),
        ("[A-]", "[a-]"),
        ("[0-AX-]", "[0-Axa-]"),
        ("[-!-A]", "[-!-Aa]"),
        ("[!-A]", "[!a-]"),
        ("App/[ID]/Page.tsx", "app/[id]/page.tsx"),
        ("[X", "[x"),
        ("[À-Ö]", "[À-Öà-ö]"),
        ("[z-!]", "[z-!]"),
        ("[ -\U0010fffd]", "?"),
        ("[! -\U0010fffd]", "[! -\U0010fffd]"),
        ("[\u2126-\u212a]", "[\u2126-\u212akω]"),
        ("STRASSE", "strasse"),
        ("Stra\u00dfe", "strasse"),
        ("e\u0301A", "\u00e9a"),
        ("\u00c9a", "\u00e9a"),
    ],
)
def test_folding_keeps_what_a_pattern_means(pattern: str, folded: str) -> None:
    assert fold(pattern) == folded
    assert fold(folded) == folded


def test_every_character_folds_once_and_for_all() -> None:
    every = [chr(code) for code in range(1, 0x1F000) if not 0xD800 <= code < 0xE000]
    assert [c for c in every if not c.isascii() and fold(fold(c)) != fold(c)] == []
    assert {fold(c) for c in every if c.isascii()} == {c.lower() for c in every if c.isascii()}


# braces


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    "path",
    [
        "a", "{a,b}", "web/*.{ts,tsx}", "{a,{b,c}}/{d,e}", "x{1..3}", "x{03..1}", "{a..c}.py", "{}", "{a}",
        "{{name}}/a", "{a,b", "a,b}", "}{a,b}{", "{{a,b}}", "x{,y}", "{a,b}{1..2..2}",
    ],
)  # fmt: skip
def test_braces_are_written_out_as_bash_does(path: str) -> None:
    bash = subprocess.run(["bash", "-fc", f"printf '%s\\n' {path}"], capture_output=True, text=True, check=True)
    assert braces(path) == bash.stdout.splitlines()


def test_braces_that_stand_for_very_many_paths_are_refused_at_once() -> None:
    for path in ("{a,b}" * 800, "{1..999999999}", "{" * 4000, "{a," * 1300):
        with contextlib.suppress(Invalid):
            assert len(braces(path)) <= 64
