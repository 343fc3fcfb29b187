"""What the YAML reader accepts means the same to a YAML library; what it refuses, it refuses with line and reason."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from dibs.dialects import yamlpatch, yamltext
from tests.searching import examples

REFUSED = object()


def theirs(text: str) -> Any:
    """The document as the library sees it, before it guesses at types."""
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except YAMLError as error:
        if "more indented follow up line" in str(error):
            return REFUSED  # a block scalar that begins with a line of blanks; the standard allows it
        raise
    return "" if node is None else _theirs(node)


def _theirs(node: Any) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, MappingNode):
        return [(_theirs(key), _theirs(value)) for key, value in node.value]
    assert isinstance(node, SequenceNode)
    return {number: _theirs(value) for number, value in enumerate(node.value)}


def ours(node: yamltext.Node) -> Any:
    if isinstance(node, yamltext.Scalar):
        return node.text
    if isinstance(node, yamltext.Mapping):
        return [(key, ours(value)) for key, value in node.entries.items()]
    return {number: ours(value) for number, value in enumerate(node.items)}


def alike(mine: Any, other: Any) -> bool:
    if isinstance(mine, list) and isinstance(other, list):
        return len(mine) == len(other) and all(
            key in (name, yamltext.resolve(name)) and alike(a, b)
            for (key, a), (name, b) in zip(mine, other, strict=True)
        )
    if isinstance(mine, dict) and isinstance(other, dict):
        return mine.keys() == other.keys() and all(alike(mine[number], other[number]) for number in mine)
    return bool(mine == other)


WORDS = [
    "a", "foo bar", "x:y", "a#b", "it's", '"q"', "'s'", "'it''s'", '"a\\nb"', "-x", "- y", "[a, b]", "[]", "{}",
    "{a: 1}", '{"a":1, b: [c]}', "|", "|-", ">", "|+", ">+", "|2", ">1-", "# c", "a # c", "~", "null", "1",
    "2026-01-01", '"multi', 'end"', "'open", "[a,", "b]", "b, c]", "  d", "", "   ", "k: v", "k:", '"k": v',
    "'k' : v", "a: b: c", "é 😀", "?", "? x", ":", "&a", "*a", "!t", "<<: x", "k:v", "a:  ", "- - a", "- k: v",
    "-   k: v", "-", "%x", "@x", "`x", "a\tb", "\tx", "a, b", "a]b", "a{b", "x ", "#", "--- ", "...", "---",
    '"a \\', ' b"', '"a\\', "\\ c", '\ufeff', 'a\u2028b',
]  # fmt: skip


AMBIGUOUS = [
    "yes",
    "no",
    "On",
    "0x1F",
    "1_0",
    "1:30",
    "12e3",
    ".5",
    "=",
    "<<",
    ".inf",
    "0o7",
    "y",
    "--",
    "1.",
    "2026-1-2",
]


@st.composite
def pages(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        indent = " " * draw(st.sampled_from([0, 0, 0, 2, 2, 4, 4, 1, 3, 6]))
        lead = draw(st.sampled_from(["", "a: ", "b: ", "c:  ", "d:", "- ", "-  ", "- a: "]))
        lines.append(indent + lead + draw(st.sampled_from(WORDS)))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))


@examples(300)
@given(pages())
@example("a: >\n  one\n  two\n\n   more\n  end\n\nb: |+\n  x\n\n\nc: d\n")
@example("a: \"one\n\n  two \\\n   three\"\nb: 'x\n  y'\n")
@example("a:\n- b\n- c: d\n  e:\n  - f\ng: [\n  h, # i\n  'j' ]\n")
def test_what_is_accepted_means_the_same_to_a_yaml_library(text: str) -> None:
    try:
        mine = yamltext.parse(text)
    except yamltext.YamlError as refused:
        line = refused.line
    else:
        line = 1
        other = theirs(text)
        assert other is REFUSED or alike(ours(mine), other)
    assert 1 <= line <= text.count("\n") + 1


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    try:
        yamltext.plain(yamltext.parse(text))
    except yamltext.YamlError:
        pass


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(WORDS + AMBIGUOUS))
@example("a\x85\u2028\x00\x1b\x7f\ufeff\n\r\t\"'\\")
@example("trailing ")
@example("2026-01-24T10:00:00Z")
def test_any_text_written_is_read_back_as_that_text_by_every_version_of_yaml(text: str) -> None:
    single = yamltext.Scalar(0, 0, 0, "'", "", "")
    for written, flow in (
        (yamlpatch.scalar(text), False),
        (yamlpatch.scalar(text, flow=True), True),
        (yamlpatch.scalar(text, single), False),
    ):
        line = f"k: [{written}, x]\n" if flow else f"k: {written} # c\n"
        expected = {"k": [text, "x"]} if flow else {"k": text}
        assert yamltext.plain(yamltext.parse(line)) == expected
        for version in ((1, 1), (1, 2)):
            library = YAML(typ="safe", pure=True)
            library.version = version
            assert library.load(line) == expected, written


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: &x 1\nb: *x\n", 1, "anchor"),
        ("a: 1\nb: *x\n", 2, "alias"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge key"),
        ("%YAML 1.1\n---\na: 1\n", 1, "directive"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: 1\nb: 2\n'a': 3\n", 3, "occurs twice"),
        ("a: {b: 1, b: 2}\n", 1, "occurs twice"),
        ("? a\n: b\n", 1, "not supported"),
        ("a:\n\t- b\n", 2, "tab"),
        ("a: b\n  c: d\n", 2, "colon"),
        ("a: 1\n b: 2\n", 2, "colon"),
        ('a: "b\nc: d\n', 1, "never closed"),
        ("a: [b, c\nd: e\n", 1, "several lines"),
        ("a: [b\n", 2, "never closed"),
        ("a: b\x00c\n", 1, "U+0000"),
        ("\ufeffa: b\nc: \x07\n", 2, "U+0007"),
        ("a: b\rc: d\n", 1, "U+000D"),
        ('a: "\\q"\n', 1, "not an escape"),
        ('a: "\\ud800"\n', 1, "half of a character"),
        ("a: " + "[" * 100, 1, "nested"),
        ("a:\n" + "".join(" " * n + "- - - -\n" for n in range(1, 300, 7)), 16, "nested"),
    ],
)
def test_what_is_refused_names_its_line_and_reason(text: str, line: int, what: str) -> None:
    with pytest.raises(yamltext.YamlError, match=what.replace("+", r"\+")) as refused:
        yamltext.parse(text)
    assert refused.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "b " * 200_000 + ": c\n",
        "a: b" + " " * 400_000 + "c:\n",
        "a: " + "[" * 50 + "x, " * 100_000,
        "a: '" + "''" * 200_000,
        "a: |\n" + "  \n" * 100_000 + " b\n",
        "a:\n" + "# c\n" * 100_000 + "b: c\n",
        "a: b\n" + "\n" * 200_000 + "  c\n",
        "- a\n" * 100_000,
    ],
)
def test_hostile_sizes_take_linear_time(text: str) -> None:
    started = time.process_time()
    try:
        yamltext.parse(text)
    except yamltext.YamlError:
        pass
    assert time.process_time() - started < 5


def test_types_are_those_of_the_core_schema_and_times_stay_text() -> None:
    text = "a: 1\nb: -2.5e3\nc: true\nd: ~\ne:\nf: 'null'\ng: 2026-01-24T10:00:00Z\nh: yes\ni: 0x1F\nj: 1_000\nk: '1'\n"
    assert yamltext.plain(yamltext.parse(text)) == {
        "a": 1, "b": -2500.0, "c": True, "d": None, "e": None, "f": "null", "g": "2026-01-24T10:00:00Z",
        "h": "yes", "i": "0x1F", "j": "1_000", "k": "1",
    }  # fmt: skip


def test_a_list_of_words_in_a_block_is_edited_line_by_line() -> None:
    text = "a:\n  # one\n  - b # of b\n  - 'c d'\n  - e\nz: 1\n"

    def after(*words: str) -> str:
        return yamlpatch.patch(text, yamltext.parse(text), {"a": list(words), "z": 1})

    assert after("b", "c d", "e", "f") == text.replace("  - e\n", "  - e\n  - f\n")
    assert after("b", "e") == text.replace("  - 'c d'\n", "")
    assert after("b", "x: y", "e") == text.replace("'c d'", "'x: y'")
    assert after("new", "b", "c d", "e") == text.replace("  - b", "  - new\n  - b")
    assert after() == "a: []\n  # one\nz: 1\n"


def test_a_list_of_words_in_brackets_keeps_the_quotes_of_the_words_that_stay() -> None:
    text = "a: [ 'b', c ]  # why\n"

    def after(*words: str) -> str:
        return yamlpatch.patch(text, yamltext.parse(text), {"a": list(words)})

    assert after("b", "c", "d, e") == "a: [ 'b', c, \"d, e\" ]  # why\n"
    assert after("b") == "a: ['b']  # why\n"
    assert after() == "a: []  # why\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: [b, # why\n  c]\n", {"a": ["c"]}),
        ("a:\n  b: 1\n", {"a": "text"}),
        ("a: 1\nb: 2\n", {"a": 1}),
        ("a:\n- b: 1\n- b: 2\n", {"a": [{"b": 1}]}),
        ("a: |\n  no line break at the end", {"a": "no line break at the end", "b": 1}),
        ("a: 1\n", {"a": float("nan")}),
    ],
)
def test_a_change_that_could_lose_something_is_refused(text: str, wanted: Any) -> None:
    with pytest.raises(yamlpatch.CannotPatch):
        yamlpatch.patch(text, yamltext.parse(text), wanted)
