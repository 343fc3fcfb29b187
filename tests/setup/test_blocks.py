"""A marked block comes out of a file as it went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.setup.blocks import HASH, MARKDOWN, Block, find, put, take_out

LINES = st.lists(st.sampled_from(["", "text", "<!-- a comment -->", "# dibs", "\u2028", "\x0c", "é"]), max_size=4)
TEXTS = st.builds(
    lambda lines, newline, end, bom: bom + newline.join(lines) + end,
    LINES,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\n", "\r\n", "\r", "\n\n"]),
    st.sampled_from(["", "\ufeff"]),
)


@given(TEXTS, st.sampled_from([MARKDOWN, HASH]), st.integers(0, 1))
def test_putting_in_and_taking_out_gives_the_same_bytes(text: str, kind: object, behind: int) -> None:
    assert kind in (MARKDOWN, HASH)
    marks = MARKDOWN if kind is MARKDOWN else HASH
    first, second = Block(marks, "claude", ["one"]), Block(marks, "", ["two", "", "three"])
    once = put(text, first, behind)
    assert find(once, marks) == first
    assert take_out(once, marks, behind) == text
    twice = put(once, second, behind)
    assert find(twice, marks) == second
    assert put(twice, second, behind) == twice
    assert take_out(twice, marks, behind) == text


MARKS = ["<!-- dibs:begin claude -->", "<!-- dibs:begin -->", "<!-- dibs:end -->"]
FENCES = ["```", "~~~", "````", "~~~~~", "   ```", "```md", "~~~ `x`", "``` ", "```\r"]
OUTSIDE = ["text", "", "  <!-- dibs:end -->", "    ```", "```a`b```"]
INSIDE = [*MARKS, *MARKS, "text", "", "    ```", "~~~x", "```x```", "``", "# dibs", "\u2028", "é"]


@st.composite
def fenced(draw: st.DrawFn) -> str:
    """Markdown in which marks stand in fences (the last may be open to the end), or indented, but nowhere else."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        lines += draw(st.lists(st.sampled_from(OUTSIDE), max_size=2))
        fence = draw(st.sampled_from(FENCES))
        sign = fence.strip()[: len(fence.strip()) - len(fence.strip().lstrip(fence.strip()[0]))]
        others = [line for line in (*INSIDE, *FENCES) if not _closes(line, sign)]
        closing = draw(st.sampled_from(["", " ", "   "])) + sign + draw(st.sampled_from(["", "  "]))
        lines += [fence, *draw(st.lists(st.sampled_from(others), max_size=5)), closing]
    lines += draw(st.sampled_from([[], ["```"], ["~~~~ x", *MARKS], ["text", "```", MARKS[0], MARKS[2]]]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return draw(st.sampled_from(["", "\ufeff"])) + newline.join(lines) + draw(st.sampled_from(["", newline, "\r"]))


def _closes(line: str, sign: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(sign) and set(bare) == set(sign)


@given(fenced())
def test_marks_in_a_fence_are_somebody_elses(text: str) -> None:
    assert find(text, MARKDOWN) is None
    assert take_out(text, MARKDOWN) == text
    first, second = Block(MARKDOWN, "claude", ["one"]), Block(MARKDOWN, "", ["two", "", "three"])
    once = put(text, first)
    assert find(once, MARKDOWN) == first
    assert put(once, first) == once
    assert take_out(once, MARKDOWN) == text
    twice = put(once, second)
    assert find(twice, MARKDOWN) == second
    assert take_out(twice, MARKDOWN) == text


def test_a_fence_that_is_never_closed_stays_behind_the_block() -> None:
    text = "mine\n```\n<!-- dibs:begin -->\n<!-- dibs:end -->\n"
    assert put(text, Block(MARKDOWN, "", ["x"])) == (
        "mine\n\n<!-- dibs:begin -->\nx\n<!-- dibs:end -->\n```\n<!-- dibs:begin -->\n<!-- dibs:end -->\n"
    )


def test_only_markdown_has_fences() -> None:
    text = "```\n# dibs:begin\nx\n# dibs:end\n```\n"
    assert find(text, HASH) == Block(HASH, "", ["x"])


def test_a_file_with_nothing_else_goes_away() -> None:
    assert take_out(put(None, Block(HASH, "", ["x"])), HASH) is None


def test_a_file_that_was_there_and_empty_stays() -> None:
    assert take_out(put("", Block(HASH, "", ["x"])), HASH) == ""


def test_what_was_written_around_it_meanwhile_stays() -> None:
    text = "mine\n" + put("old\n", Block(MARKDOWN, "", ["x"])) + "more\n"
    assert take_out(text, MARKDOWN) == "mine\nold\nmore\n"


@pytest.mark.parametrize(
    "text", ["# dibs:begin\n", "# dibs:end\n", "# dibs:end\n# dibs:begin\n", "# dibs:begin\n# dibs:begin\n# dibs:end\n"]
)
def test_half_a_block_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        take_out(text, HASH)


def test_lines_around_it_do_not_run_into_each_other() -> None:
    block = put(None, Block(MARKDOWN, "", ["x"]))
    assert take_out("mine\n" + block + "more\n", MARKDOWN) == "mine\nmore\n"
    assert take_out(put("no end", Block(MARKDOWN, "", ["x"])) + "more\n", MARKDOWN) == "no end\nmore\n"
