"""The JSON list: every byte that was not changed stays, and the fast ways read what the slow way reads."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.dialects import jsonlist, jsonreader
from dibs.dialects.jsonlist import JsonList, parse
from dibs.errors import BoardUnusable, Invalid
from tests.searching import examples

TASK: dict[str, Any] = {
    "id": "a1b2c3d4",
    "description": "Implement user registration",
    "status": "pending",
    "assigned_to": None,
    "depends_on": [],
    "result": None,
    "priority": 0,
    "created_at": 1708300000.0,
    "claimed_at": None,
    "completed_at": None,
}
SEPARATOR = "\n    },\n    {"


def document(count: int, **top: Any) -> dict[str, Any]:
    return {**top, "tasks": [{**TASK, "id": f"t{at}"} for at in range(count)]}


def dump(value: object) -> bytes:
    return json.dumps(value, indent=2).encode()


def state(board: JsonList) -> tuple[object, ...]:
    parts = (board._head, board._gaps, board._texts, board._trail, board._tail, board._before, board._after)
    return board.render(), board.rows, list(board.top.items()), board.index, parts


# -- what is written


def test_a_claim_changes_only_the_members_that_it_changes() -> None:
    value = document(3)
    board = parse(dump(value))
    claim = {"status": "in_progress", "assigned_to": "worker-1", "claimed_at": 1708300001.25}
    board.replace(1, {**value["tasks"][1], **claim})
    value["tasks"][1].update(claim)
    assert board.render() == dump(value)
    assert board.rows == value["tasks"]


def test_nested_values_and_new_members_are_written_as_json_writes_them() -> None:
    value = document(2, version=1)
    board = parse(dump(value))
    more = {"depends_on": ["x", "y"], "extra": {"a": [], "b": {"c": [1, [2.5, True]]}, "é": "\U0001f600"}}
    board.replace(0, more)
    board.set_top("version", 2)
    board.set_top("log", [{"by": "me"}])
    value["tasks"][0].update(more)
    assert board.render() == dump({**value, "version": 2, "log": [{"by": "me"}]})


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("indent", [None, 0, 1, 2, 4, "\t"])
@pytest.mark.parametrize("top", [{}, {"version": 3}])
def test_the_style_that_is_found_is_the_style_that_is_written(count: int, indent: Any, top: dict[str, Any]) -> None:
    value = document(count, **top)
    value["end"] = {"a": [1]}
    board = parse(json.dumps(value, indent=indent).encode())
    for number in range(2):
        task = {**TASK, "id": f"new{number}", "depends_on": ["t0"]}
        assert board.append(task) == count + number
        value["tasks"].append(task)
    board.set_top("end", {"a": [1, 2]})
    value["end"] = {"a": [1, 2]}
    assert board.render().decode() == json.dumps(value, indent=indent)
    while board.rows:
        at = len(board) // 2
        board.remove(at)
        del value["tasks"][at]
        assert board.render().decode() == json.dumps(value, indent=indent)


def test_compact_documents_stay_compact() -> None:
    def compact(value: object) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    value = document(0)
    board = parse(compact(value))
    for at in range(3):
        board.append({**TASK, "id": f"n{at}", "depends_on": ["a", "b"]})
        value["tasks"].append({**TASK, "id": f"n{at}", "depends_on": ["a", "b"]})
        board.replace(at, {"more": {"x": 1}})
        value["tasks"][at]["more"] = {"x": 1}
    assert board.render() == compact(value)


def test_odd_spellings_of_untouched_members_survive() -> None:
    text = (
        '\n{ "tasks" : [\r\n  {"id":"a", "n": 1.50e+3, "u": "\\u00e9\\/", "status" :"open" , "list": ["x","y"],\r\n'
        '   "big": 123456789012345678901234567890, "z": -0.0}\r\n , {"id": "b"}]\r\n}\r\n\r\n'
    )
    board = parse(text.encode())
    board.replace(0, {"status": "claimed", "n": 1500.0, "list": ["x"]})
    assert board.render().decode() == text.replace('"open"', '"claimed"').replace('["x","y"]', '["x"]')


def test_windows_line_ends_are_kept_in_what_is_added() -> None:
    value = document(2)
    board = parse(dump(value).replace(b"\n", b"\r\n"))
    board.append({"id": "c", "list": [1]})
    board.replace(0, {"depends_on": ["c"]})
    value["tasks"].append({"id": "c", "list": [1]})
    value["tasks"][0]["depends_on"] = ["c"]
    assert board.render() == dump(value).replace(b"\n", b"\r\n")


def test_text_outside_ascii_is_escaped_unless_somebody_wrote_it_plainly() -> None:
    plain = parse('{"tasks": [{"id": "a", "title": "é"}]}'.encode())
    plain.replace(0, {"by": "ö"})
    assert plain.render().decode() == '{"tasks": [{"id": "a", "title": "é", "by": "ö"}]}'
    escaped = parse(b'{"tasks": [{"id": "a"}]}')
    escaped.replace(0, {"by": "ö"})
    assert escaped.render() == b'{"tasks": [{"id": "a", "by": "\\u00f6"}]}'


def test_equal_in_python_is_not_the_same_in_json() -> None:
    board = parse(b'{"tasks": [{"id": "a", "n": 1}]}')
    board.replace(0, {"n": 1})
    assert board.render() == b'{"tasks": [{"id": "a", "n": 1}]}'
    board.replace(0, {"n": True})
    board.replace(0, {"n": 1.0})
    assert board.render() == b'{"tasks": [{"id": "a", "n": 1.0}]}'


def test_a_new_document_is_what_json_would_write() -> None:
    assert jsonlist.new({}).render() == dump({"tasks": []})
    board = jsonlist.new({"version": 1, "project": "é"})
    board.append(TASK)
    assert board.render() == dump({"version": 1, "project": "é", "tasks": [TASK]})


def test_a_copy_is_changed_apart_from_the_original() -> None:
    board = parse(dump(document(3, version=1)))
    before = state(board)
    copy = board.copy()
    copy.replace(0, {"id": "other"})
    copy.append({"id": "more"})
    copy.remove(1)
    copy.set_top("version", 2)
    assert state(board) == before
    assert state(copy) == state(parse(copy.render()))


# -- what is refused


@pytest.mark.parametrize(
    ("data", "line", "column", "words"),
    [
        (b"", 1, 1, "expected '{'"),
        (b"[]", 1, 1, "expected '{'"),
        (b"{}", 1, 2, "no list of tasks"),
        (b'{"a": 1}', 1, 8, "no list of tasks"),
        (b'{"tasks": {}}', 1, 11, "tasks is not a list"),
        (b'{"tasks": [1]}', 1, 12, "not an object"),
        (b'{"tasks": [{"id": "a"}\n, null]}', 2, 3, "not an object"),
        (b'{"tasks": [{}]}', 1, 12, "no id"),
        (b'{"tasks": [{"id": 4}]}', 1, 12, "not text"),
        (b'{"tasks": [{"id": "a"},\n\n {"id": "a"}]}', 3, 2, "second task with the id 'a'"),
        (b'{"tasks": [], "tasks": []}', 1, 15, "stands twice"),
        (b'{"v": 1, "v": 2, "tasks": []}', 1, 10, "stands twice"),
        (b'{"v": 1, "tasks": [], "v": 2}', 1, 28, "stands twice"),
        (b'{"tasks": []} x', 1, 15, "behind the end"),
        (b'{"tasks": [{"id": "a",}]}', 1, 23, "not JSON"),
        (b'{"tasks": [{"id": "a"},]}', 1, 24, "expected a value"),
        (b'{"tasks": [{"id": "a"} {"id": "b"}]}', 1, 24, "expected ','"),
        (b'{"tasks": [{"id": "a"}', 1, 23, "end of the file"),
        (b'{"tasks": [{"id": "a\nb"}]}', 1, 21, "control character"),
        (b'{"tasks": [{"id": "a", "n": NaN}]}', 1, 12, "NaN"),
        (b'{"x": -Infinity, "tasks": []}', 1, 7, "Infinity"),
        (b'\xef\xbb\xbf{"tasks": []}', 1, 1, "byte order mark"),
        (b'{"tasks": [\n"\xff"]}', 2, 2, "not UTF-8"),
        (b'{"tasks": [{"id": "\\ud800"}]}', 1, 12, "surrogate"),
        (b'{"tasks": [{"id": "a", "\\udc00": 1}]}', 1, 12, "surrogate"),
        (b'{"tasks": [{"id": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", 1, 12, "too deeply"),
        (b'{"x": ' + b"[" * 100_000, 1, 7, "too deeply"),
        (b'{"x": ' + b"1" * 5000 + b', "tasks": []}', 1, 7, "not JSON"),
    ],
)
def test_what_cannot_be_used_is_refused_by_line_and_column(data: bytes, line: int, column: int, words: str) -> None:
    for earlier in (None, parse(b'{"tasks": [{"id": "a"}]}')):
        with pytest.raises(BoardUnusable, match=f"board.json: line {line}, column {column}: ") as caught:
            parse(data, earlier, name="board.json")
        assert words.lower() in caught.value.message.lower()
        assert caught.value.fields == {"line": line, "column": column}


def test_a_pair_of_surrogate_escapes_is_text() -> None:
    assert parse(b'{"tasks": [{"id": "a", "t": "\\ud83d\\ude00"}]}').rows[0]["t"] == "\U0001f600"


def test_a_key_that_stands_twice_is_refused_when_its_object_is_changed() -> None:
    data = b'{"tasks": [{"id": "z"},\n {"id": "a", "s": 1, "s": 2}]}'
    board = parse(data)
    with pytest.raises(BoardUnusable, match="line 2, column 22: the key 's' stands twice"):
        board.replace(1, {"t": 1})
    assert board.render() == data


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", {1: 2}, object(), [10**5000], {"\udc00": 1}], ids=type
)
def test_what_json_cannot_hold_is_refused_and_changes_nothing(value: Any) -> None:
    data = dump(document(2, version=1))
    board = parse(data)
    for attempt in (
        lambda: board.replace(0, {"status": "x", "extra": value}),
        lambda: board.replace(0, {"status": value}),
        lambda: board.append({"id": "new", "x": value}),
        lambda: board.set_top("version", value),
    ):
        with pytest.raises(Invalid):
            attempt()
    assert state(board) == state(parse(data))


def test_an_id_twice_and_values_without_end_are_refused_and_change_nothing() -> None:
    data = dump(document(2))
    board = parse(data)
    endless: list[Any] = []
    endless.append(endless)
    for attempt in (
        lambda: board.replace(0, {"id": "t1"}),
        lambda: board.append({"id": "t1"}),
        lambda: board.set_top("tasks", []),
        lambda: board.replace(0, {"x": endless}),
    ):
        with pytest.raises(Invalid):
            attempt()
    with pytest.raises(BoardUnusable):
        board.append({"name": "no id"})
    assert state(board) == state(parse(data))


# -- reading fast


def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts what the scanner is asked for from now on."""
    seen: list[int] = []
    scan = jsonreader._scan

    def counting(text: str, at: int) -> tuple[Any, int]:
        seen.append(at)
        return scan(text, at)

    monkeypatch.setattr(jsonreader, "_scan", counting)
    return seen


def test_the_usual_form_is_read_in_one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dump(document(500))
    seen = scans(monkeypatch)
    assert len(parse(data)) == 500
    assert len(seen) == 3  # the key, the list, and the first element, to learn the gap


def test_a_change_elsewhere_is_read_without_decoding_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    value = document(1000, version=1)
    board = parse(dump(value))
    value["version"] = 2
    for at in (3, 998):
        value["tasks"][at]["status"] = "completed"
    seen = scans(monkeypatch)
    newer = parse(dump(value), board)
    assert len(seen) == 5  # two keys, the version, two elements
    assert newer.changed_from(board) == [3, 998]
    assert newer.gone_from(board) == []
    assert newer.rows[4] is board.rows[4]
    assert newer.rows == value["tasks"]
    assert newer.top == {"version": 2}


@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.parametrize("at", [0, 1, 500, 998, 999])
def test_what_was_put_in_or_taken_out_is_found(indent: int | None, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = document(1000)
    data = json.dumps(value, indent=indent).encode()
    board = parse(data)
    del value["tasks"][at]
    shorter_data = json.dumps(value, indent=indent).encode()
    seen = scans(monkeypatch)
    shorter = parse(shorter_data, board)
    assert (shorter.changed_from(board), shorter.gone_from(board)) == ([], [f"t{at}"])
    assert shorter.rows == value["tasks"]
    longer = parse(data, shorter)
    assert (longer.changed_from(shorter), longer.gone_from(shorter)) == ([at], [])
    assert len(seen) < 10
    assert state(longer) == state(parse(data))


def test_a_document_that_was_changed_here_is_an_earlier_one_too() -> None:
    board = parse(dump(document(50)))
    board.replace(7, {"status": "x"})
    board.remove(3)
    board.append({"id": "new"})
    value = json.loads(board.render())
    value["tasks"][20]["status"] = "y"
    newer = parse(dump(value), board)
    assert newer.changed_from(board) == [20]
    assert state(newer) == state(parse(dump(value)))
    assert parse(board.render(), board).changed_from(board) == []


@pytest.mark.parametrize("indent", [None, 2])
def test_any_mixture_of_changes_to_a_long_list_is_found(indent: int | None) -> None:
    chance = random.Random(4)
    value = document(300, version=0)
    board = parse(json.dumps(value, indent=indent).encode())
    for turn in range(200):
        rows = value["tasks"]
        value["version"] += turn % 2
        for number in range(chance.choice([0, 1, 2, 3, 40])):
            at = chance.randrange(len(rows))
            verb = chance.choice(["change", "change", "change", "put in", "take out", "move"])
            if verb == "change":
                rows[at]["result"] = f"{turn}.{number}"
            elif verb == "put in":
                rows.insert(at, {**TASK, "id": f"new{turn}.{number}"})
            elif verb == "take out":
                del rows[at]
            else:
                rows.insert(chance.randrange(len(rows)), rows.pop(at))
        data = json.dumps(value, indent=indent).encode()
        newer, full = parse(data, board), parse(data)
        assert state(newer) == state(full)
        assert newer.changed_from(board) == full.changed_from(board)
        assert newer.gone_from(board) == full.gone_from(board)
        board = newer


def test_braces_and_gaps_inside_strings_and_nested_objects_do_not_confuse_the_split() -> None:
    value = document(6)
    value["tasks"][1]["description"] = SEPARATOR + "},\n    {" + "}" * 7
    value["tasks"][2]["nested"] = [{"id": "t1"}, {"id": "t2", "deep": {"x": {}}}]
    value["tasks"][4]["description"] = '"},\\n    {"'
    board = parse(dump(value))
    assert board.rows == value["tasks"]
    assert [json.loads(text) for text in board._texts] == value["tasks"]


def test_a_gap_inside_an_element_that_looks_like_one_between_elements_is_not_taken_for_one() -> None:
    text = '{"tasks": [\n    {"id": "a"},\n    {"id": "b", "x": [{"id": "c"},\n    {"id": "d"}]}, {"id": "e"}\n]}'
    board = parse(text.encode())
    assert [row["id"] for row in board.rows] == ["a", "b", "e"]
    assert board._texts[2] == '{"id": "e"}'
    assert board.text == text


# -- any document, any change

hostile = st.sampled_from(
    ["", SEPARATOR, "},\n    {", '"', "\\", "}{", "]", "é", "\U0001f600", "\\u007d", "\n", "a" * 40]
)
strings = st.one_of(hostile, st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False, allow_infinity=False), strings),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(strings, inner, max_size=3)),
    max_leaves=5,
)
members = st.dictionaries(st.sampled_from(["status", "n", "x", SEPARATOR, "é", "}"]), values, max_size=4)
tasks = st.lists(members, max_size=8).map(lambda rows: [{"id": f"t{at}", **row} for at, row in enumerate(rows)])
tops = st.dictionaries(st.sampled_from(["version", "a", "}", '"']), values, max_size=2)
styles = st.sampled_from(
    [
        {"indent": 2},
        {"indent": 2, "ensure_ascii": False},
        {"indent": 4},
        {"indent": "\t"},
        {"indent": 0},
        {},
        {"separators": (",", ":")},
    ]
)
edits = st.lists(
    st.tuples(st.sampled_from(["replace", "append", "remove", "top"]), st.integers(0, 99), members), max_size=6
)


def edit(board: JsonList, value: dict[str, Any], changes: list[Any]) -> None:
    """Do the same to the document and to the plain value."""
    rows = value["tasks"]
    for number, (verb, at, mapping) in enumerate(changes):
        if verb == "append":
            board.append({"id": f"new{number}", **mapping})
            rows.append({"id": f"new{number}", **mapping})
        elif verb == "top":
            board.set_top("version", at)
            value["version"] = at
        elif rows and verb == "replace":
            board.replace(at % len(rows), mapping)
            rows[at % len(rows)].update(mapping)
        elif rows:
            board.remove(at % len(rows))
            del rows[at % len(rows)]


@given(tops, tops, tasks, styles, edits)
@examples(300)
def test_editing_the_text_is_editing_the_value(
    before: dict[str, Any], after: dict[str, Any], rows: list[Any], style: dict[str, Any], changes: list[Any]
) -> None:
    value: dict[str, Any] = {**before, "tasks": rows, **{key: v for key, v in after.items() if key not in before}}
    data = json.dumps(value, **style).encode()
    board = parse(data)
    assert (board.rows, {**board.top, "tasks": rows}) == (rows, value)
    assert board.render() == data
    old = board.copy()
    edit(board, value, changes)
    written = board.render()
    assert json.loads(written) == value
    if style.get("ensure_ascii", True):
        assert written == json.dumps(value, **style).encode()
    assert state(parse(written)) == state(board)
    newer = parse(written, old)
    assert state(newer) == state(board)
    texts = dict(zip((row["id"] for row in old.rows), old._texts, strict=True))
    expected = [at for at, row in enumerate(newer.rows) if texts.get(row["id"]) != newer._texts[at]]
    assert newer.changed_from(old) == expected
    assert board.changed_from(old) == expected


@given(tasks, styles, st.data())
@examples(500)
def test_a_damaged_document_is_read_alike_by_every_way_or_refused_alike(
    rows: list[Any], style: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps({"version": 1, "tasks": rows, "z": [1]}, **style)
    earlier = parse(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 12)))
        other = data.draw(st.integers(0, len(text)))
        stuff = data.draw(
            st.one_of(
                st.sampled_from(
                    ["", ",", "{", "}", "]", "[", '"', "\\", "\ufeff", '{"id": "t1"}', "},\n    {", ",\n    "]
                ),
                st.just(text[other : other + 30]),
            )
        )
        text = text[:begin] + stuff + text[end:]
    outcomes: list[object] = []
    for way in ("earlier", "split", "walk"):
        try:
            if way == "walk":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(jsonreader.Reader, "_split", lambda self, at: None)
                    outcomes.append(state(parse(text.encode())))
            else:
                outcomes.append(state(parse(text.encode(), earlier if way == "earlier" else None)))
        except BoardUnusable as error:
            outcomes.append(error.message)
    assert outcomes[0] == outcomes[1] == outcomes[2]
    if isinstance(outcomes[0], tuple):
        assert outcomes[0][0] == text.encode()
        assert json.loads(text)["tasks"] == outcomes[0][1]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    earlier = parse(b'{"tasks": [{"id": "a"}]}')
    for candidate in (data, b'{"tasks": [' + data, b'{"tasks": [{"id": "a"' + data + b"}]}"):
        try:
            board = parse(candidate, earlier)
        except BoardUnusable:
            continue
        assert board.render() == candidate
