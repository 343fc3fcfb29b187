"""JSON without importing `json`: the same documents as the standard library, from both halves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import jsontext

Codec = tuple[Callable[[Any], str], Callable[[str], Any]]
HALVES: list[Codec] = [(jsontext.dumps, jsontext.loads), jsontext._from_c(), jsontext._from_json()]
both = pytest.mark.parametrize("codec", HALVES, ids=["used", "c", "json"])

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@both
@given(value=documents)
def test_a_document_survives_the_round_trip(codec: Codec, value: Any) -> None:
    dumps, loads = codec
    text = dumps(value)
    assert loads(text) == value
    assert json.loads(text) == value
    assert text == json.dumps(value, separators=(",", ":"))


@both
@given(value=documents)
def test_a_document_of_any_other_writer_is_read(codec: Codec, value: Any) -> None:
    assert codec[1](json.dumps(value, indent=2, ensure_ascii=False)) == value


@both
def test_hostile_text_stays_on_one_ascii_line(codec: Codec) -> None:
    text = codec[0]({"a": "\x1b[31m\r\n\0\u2028é🎉\ud800"})
    assert text.isascii()
    assert text.isprintable()
    assert codec[1](text) == {"a": "\x1b[31m\r\n\0\u2028é🎉\ud800"}


@both
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1",
        '"a',
        "{'a': 1}",
        "[1,]",
        "[1] x",
        "[1][2]",
        "nul",
        "tru",
        '{"a" 1}',
        '{"a":}',
        '"\n"',
        '"\\x"',
        "01",
        "+1",
        "\ufeff1",
    ],
)
def test_what_is_no_document_is_a_value_error(codec: Codec, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec[1](text)


@both
@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "[NaN]"])
def test_constants_that_json_does_not_have_are_not_read(codec: Codec, constant: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec[1](constant)


@both
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": math.inf}])
def test_nor_written(codec: Codec, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec[0](value)


@both
@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}, {"a": object()}])
def test_what_json_cannot_hold_is_a_type_error(codec: Codec, value: Any) -> None:
    with pytest.raises(TypeError):
        codec[0](value)


@both
def test_blanks_around_a_document_are_fine(codec: Codec) -> None:
    assert codec[1](' \t\r\n{"a": [1, 2]} \n') == {"a": [1, 2]}


@both
def test_large_numbers_keep_every_digit(codec: Codec) -> None:
    assert codec[1](codec[0]([2**80, -(2**80), 0.1, 1e300])) == [2**80, -(2**80), 0.1, 1e300]


def test_memory_of_keys_does_not_leak_between_documents() -> None:
    jsontext.loads('{"a": 1}')
    assert not jsontext.Scanner.memo
