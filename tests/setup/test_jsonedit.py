"""The JSON editor undoes itself to the byte, and changes nothing that it was not asked to change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.setup.jsonc import parse
from dibs.setup.jsonedit import END, Style, insert, remove, replace
from tests.setup.layouts import BLANKS, documents

ENTRY = {"type": "stdio", "command": '/a b/"dibs"', "args": ["mcp", "--client", "claude"]}


@given(documents(BLANKS))
def test_it_reads_json_as_others_do(text: str) -> None:
    assert parse(text).value == json.loads(text.removeprefix("\ufeff"))


@given(
    documents(), st.sampled_from([("mcpServers", "dibs"), ("dibs",), ("hooks", "Stop", END), ("a", "hooks", "b", END)])
)
def test_putting_in_and_taking_out_gives_the_same_bytes(text: str, path: tuple[str | int, ...]) -> None:
    before = parse(text).value
    if not fits(before, path):
        with pytest.raises(ValueError, match="is not an"):
            insert(text, path, ENTRY)
        return
    changed = insert(text, path, ENTRY)
    place = (*path[:-1], length(before, path[:-1])) if path[-1] == END else path
    after = parse(changed).value
    assert at(after, place) == ENTRY
    assert remove(changed, place) == text
    assert rest(after, place) == rest(before, place)


@given(documents())
def test_what_is_put_in_twice_comes_out_in_either_order(text: str) -> None:
    if not isinstance(parse(text).value.get("hooks", {}), dict):
        return
    one, two = ("hooks", "X"), ("hooks", "Y")
    changed = insert(insert(text, one, [1]), two, [{"b": 2}])
    for first, second in ((one, two), (two, one)):
        left = remove(changed, first)
        assert left is not None
        assert remove(left, second) == text


@given(documents(BLANKS), st.sampled_from(["\n", "\r\n"]))
def test_a_changed_file_is_still_plain_json(text: str, newline: str) -> None:
    text = text.replace("\r\n", "\n").replace("\n", newline)
    before = json.loads(text.removeprefix("\ufeff"))
    after = json.loads(insert(text, ("dibs",), ENTRY).removeprefix("\ufeff"))
    assert after == {**before, "dibs": ENTRY}


def test_a_new_document_goes_away_as_a_whole() -> None:
    text = Style("").render({"mcpServers": {"dibs": ENTRY}}, "") + "\n"
    assert json.loads(text) == {"mcpServers": {"dibs": ENTRY}}
    assert remove(text, ("mcpServers", "dibs")) is None


def test_a_comment_that_somebody_wrote_keeps_its_container() -> None:
    text = '{\n  "mcpServers": {\n    // mine\n    "dibs": 1\n  }\n}\n'
    assert remove(text, ("mcpServers", "dibs")) == '{\n  "mcpServers": {\n    // mine\n  }\n}\n'


def test_a_comment_before_the_entry_does_not_swallow_what_follows_it() -> None:
    text = '{ // mine\n "dibs": {}, "x": 1}'
    left = remove(text, ("dibs",))
    assert left is not None
    assert parse(left).value == {"x": 1}
    assert "// mine" in left


def test_it_fits_into_the_layout_around_it() -> None:
    text = '{\n\t"mcpServers": {\n\t\t"x": {} // mine\n\t}\n}\n'
    wanted = '{\n\t"mcpServers": {\n\t\t"x": {}, // mine\n\t\t"dibs": {\n\t\t\t"n": 1\n\t\t}\n\t}\n}\n'
    assert insert(text, ("mcpServers", "dibs"), {"n": 1}) == wanted
    assert replace(wanted, ("mcpServers", "dibs"), [1, "é"]) == wanted.replace('{\n\t\t\t"n": 1\n\t\t}', '[1, "é"]')
    assert insert('{"a":1}', ("b",), {"n": [1]}) == '{"a":1,"b": {"n": [1]}}'
    assert replace('{\n  "a": {"b": 1}\n}', ("a",), {"c": 2}) == '{\n  "a": {"c": 2}\n}'


@pytest.mark.parametrize(
    ("text", "line"),
    [("", 1), ("{\n", 2), ('{"a" 1}', 1), ('{"a": 1\n"b": 2}', 2), ("{'a': 1}", 1), ('{"a": nul}', 1), ("{} {}", 1),
     ('{"a": "b\n"}', 1), ("{/* }", 1), ("[" * 500 + "]" * 500, 1), ('{"a": NaN}', 1), ('{,}', 1), ('{"a":,}', 1)],
)  # fmt: skip
def test_what_is_no_json_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ValueError, match=f"^line {line}: "):
        parse(text)


# -- what is expected


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def fits(value: Any, path: tuple[str | int, ...]) -> bool:
    """Are the containers that are there along a path of the kinds that it needs?"""
    for key in path:
        if key == END:
            return isinstance(value, list)
        if not isinstance(value, dict):
            return False
        if key not in value:
            return True
        value = value[key]
    return True


def length(value: Any, path: tuple[str | int, ...]) -> int:
    try:
        return len(at(value, path))
    except KeyError:
        return 0


def rest(value: Any, path: tuple[str | int, ...]) -> Any:
    """The value without what is at a path, and without containers that hold nothing."""
    if not path:
        return None
    items = dict(enumerate(value)) if isinstance(value, list) else dict(value or {})
    key = path[0]
    if key in items:
        inner = rest(items.pop(key), path[1:])
        if inner:
            items[key] = inner
    return items
