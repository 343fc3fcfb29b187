"""Document 002's index files, settings and check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.dialects.bilu_index import Finding, check, default_json, read_config, records_tsv
from dibs.dialects.bilu_text import TaskFile, new, parse
from dibs.errors import BoardUnusable

BOARD = Path(__file__).parent / "golden" / "bilu" / "board"
ROOT = "/srv/project/src"
CONFIG, INDEX, RECORDS = ((BOARD / name).read_bytes() for name in ("config.json", "default.json", "records.tsv"))


def board() -> list[TaskFile]:
    """The golden tasks, in no useful order."""
    return [parse(path.stem, path.read_bytes()) for path in sorted((BOARD / "tasks").glob("*.md"), reverse=True)]


def task(stem: str, **fields: Any) -> TaskFile:
    return parse(stem, new(stem, {"title": stem, **fields}))


def said(findings: list[Finding]) -> list[str]:
    return [str(finding) for finding in findings]


def test_both_index_files_are_golden_whatever_the_order_of_the_tasks() -> None:
    assert default_json(board()) == default_json(board()[::-1]) == INDEX
    assert records_tsv(board(), ROOT) == records_tsv(board()[::-1], ROOT + "/") == RECORDS


def test_an_empty_board_has_empty_index_files() -> None:
    assert default_json([]) == b"[\n]\n"
    assert records_tsv([]) == b""


def test_numbers_come_before_names_and_in_numeric_order() -> None:
    stems = ["100-a", "20-a", "3-b", "003-a", "b", "a-b", "a", "B", "1x-a", "9" * 5000 + "-z"]
    rows = records_tsv([parse(stem, b"# T\n") for stem in stems]).decode().split("\n")[:-1]
    assert [row.split("\t")[0][:5] for row in rows] == [
        "003-a", "3-b", "20-a", "100-a", "1x-a", "99999", "B", "a-b", "a", "b",
    ]  # fmt: skip


def test_a_tab_or_line_break_in_a_value_does_not_break_a_record() -> None:
    odd = parse("x", b"# a\tb\rc\n# Tags\n- p\tq\n- r, s\n")
    assert records_tsv([odd]) == b"x\tTODO\t5\tMEDIUM\ttask\ta b c\tboard/tasks/x.md\tp q,r,s\t\tboard/tasks/x.md\n"
    assert json.loads(default_json([odd]))[0]["title"] == "a\tb\rc"


def test_a_file_name_that_is_no_text_does_not_keep_the_index_from_being_written() -> None:
    odd = parse("x\udcff", b"# T\n")
    assert json.loads(default_json([odd]))[0]["link"] == "board/tasks/x?.md"
    assert records_tsv([odd]).startswith(b"x?\t")
    assert "cannot be a task's id" in check([odd])[0].text


def test_weights_come_from_the_settings() -> None:
    config = read_config(CONFIG.replace(b'"HIGH": 8', b'"HIGH": 9'))
    assert config.findings == []
    assert records_tsv([task("x", priority="HIGH")], weights=config.weights).split(b"\t")[2] == b"9"


@pytest.mark.parametrize(
    ("data", "findings"),
    [
        (
            b"{}",
            [
                "board/config.json: error: 'statuses' is missing",
                "board/config.json: error: 'priorities' is missing",
                "board/config.json: error: 'kind' is missing",
                "board/config.json: warning: 'tags' is missing",
            ],
        ),
        (
            CONFIG.replace(b'"HIGH": 8', b'"HIGH": 10'),
            ["board/config.json: error: 'priorities': 'CRITICAL' and 'HIGH' have the same value 10"],
        ),
        (
            CONFIG.replace(b'"HIGH": 8', b'"HIGH": true'),
            ["board/config.json: error: 'priorities': the value of 'HIGH' is not a whole number"],
        ),
        (
            CONFIG.replace(b'"bug"', b'"epic"'),
            ["board/config.json: warning: 'kind' has 'epic', which no task can have"],
        ),
        (CONFIG.replace(b'"tags": {', b'"tags": [], "_": {'), ["board/config.json: error: 'tags' is not an object"]),
    ],
)
def test_settings_that_contradict_themselves_are_found_and_the_documents_own_hold(
    data: bytes, findings: list[str]
) -> None:
    config = read_config(data)
    assert said(config.findings) == findings
    assert config.weights == {"CRITICAL": 10, "HIGH": 8, "MEDIUM": 5, "LOW": 3, "TRIVIAL": 1}


def test_a_sound_board_has_only_the_warnings_of_its_files() -> None:
    assert said(check(board(), config=CONFIG, index=INDEX, records=RECORDS)) == [
        "board/tasks/notes.md: warning: no priority, taken to be MEDIUM",
        "board/tasks/notes.md:6: warning: unknown status 'wip', read as TODO",
    ]


def test_an_index_of_another_layout_or_place_is_not_stale() -> None:
    index = b"\xef\xbb\xbf" + json.dumps(json.loads(INDEX)).encode()
    records = RECORDS.replace(ROOT.encode(), b"/elsewhere").replace(b"\n", b"\r\n")
    assert len(check(board(), index=index, records=records)) == 2


def test_a_missing_index_is_said_and_missing_records_are_not() -> None:
    assert said(check([task("x")])) == ["board/default.json: warning: there is no index; 'rebuild --write' makes it"]


def test_a_stale_index_says_for_which_tasks() -> None:
    tasks = [task("a", status="DONE"), task("b"), task("c")]
    index = default_json([task("a"), task("b"), task("gone")])
    records = records_tsv([task("a")])
    assert said(check(tasks, index=index, records=records)) == [
        "board/default.json: warning: stale: it is out of date for board/tasks/a.md, lacks board/tasks/c.md, "
        "has no file for board/tasks/gone.md; 'rebuild --write' renews it",
        "board/records.tsv: warning: stale: it does not say what the task files say; 'rebuild --write' renews it",
    ]
    twice = json.dumps([*json.loads(default_json(tasks)), *json.loads(default_json(tasks))]).encode()
    assert "lists a task twice" in str(check(tasks, index=twice)[0])
    turned = json.dumps(json.loads(default_json(tasks))[::-1]).encode()
    assert "is in another order" in str(check(tasks, index=turned)[0])


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (b"[\n{,}]", "board/default.json:2: error: board/default.json, line 2: not JSON"),
        (b"[\n\n\xff]", "board/default.json:3: error: board/default.json, line 3: not UTF-8"),
        (b"{}", "board/default.json: error: the index is not an array of objects"),
        (b"[1]", "board/default.json: error: the index is not an array of objects"),
        (b"[" * 100_000, "board/default.json: error: board/default.json: nested too deeply"),
        (b"[" + b"9" * 10_000 + b"]", "board/default.json: error: board/default.json: nested too deeply, or a number"),
    ],
)
def test_an_index_that_is_no_index_is_an_error(index: bytes, text: str) -> None:
    (finding,) = check([], index=index)
    assert str(finding).startswith(text)


def test_records_that_are_no_records_are_an_error() -> None:
    (finding,) = check([task("x")], index=default_json([task("x")]), records=b"a\tb\n")
    assert str(finding) == "board/records.tsv:1: error: 2 columns instead of 10; 'rebuild --write' renews it"


def test_settings_that_do_not_parse_are_an_error() -> None:
    for data in (b"", b"[]", b"\xff"):
        with pytest.raises(BoardUnusable):
            read_config(data)
        assert check([], config=data, index=b"[]")[0].severity == "error"


def test_unknown_dependencies_and_tags_are_found_where_they_stand() -> None:
    tasks = [task("a", depends_on=["b", "nowhere"], tags=["planning", "odd"]), task("b")]
    assert said(check(tasks, config=CONFIG, index=default_json(tasks))) == [
        "board/tasks/a.md:21: warning: depends on nowhere, which is not on the board; the task waits for it",
        "board/tasks/a.md:17: warning: the tag 'odd' is not in board/config.json",
    ]


def test_an_unusable_file_is_an_error_and_the_index_is_not_judged_without_it() -> None:
    with pytest.raises(BoardUnusable) as caught:
        parse("b", b"# T\n\xff")
    findings = check([task("a", depends_on=["b"])], unusable={"b": caught.value}, index=b"[]")
    assert said(findings) == ["board/tasks/b.md:2: error: board/tasks/b.md, line 2: not UTF-8 text"]


def test_names_that_collide_or_are_no_ids_are_errors() -> None:
    tasks = [task("Lock"), task("lock"), parse("my notes", b"# T\n# Status\nTODO\n# Priority\nLOW\n")]
    assert said(check(tasks, index=default_json(tasks))) == [
        "board/tasks/lock.md: error: the id 'lock' differs from board/tasks/Lock.md only by case: "
        "some file systems keep only one of them",
        "board/tasks/my notes.md: error: the file's name cannot be a task's id: "
        "use letters, digits, '.', '_' and '-' before .md",
    ]


def test_circles_are_found_once_each_with_their_members() -> None:
    tasks = [task("a", depends_on=["b"]), task("b", depends_on=["c"]), task("c", depends_on=["a", "c"]), task("d")]
    assert said(check(tasks, index=default_json(tasks))) == [
        "board/tasks/c.md:19: error: dependencies in a circle, none of which can start: a -> b -> c -> a",
        "board/tasks/c.md:20: error: dependencies in a circle, none of which can start: c -> c",
    ]


def test_a_circle_as_long_as_the_board_is_found_without_recursion() -> None:
    def linked(n: int, to: int) -> TaskFile:
        return parse(
            f"{n:05}-t", f"# T\n# Status\nTODO\n# Priority\nLOW\n# depends_on\n- {to:05}-t\n- 00000-t\n".encode()
        )

    tasks = [linked(n, (n + 1) % 5000) for n in range(5000)]
    findings = check(tasks, index=default_json(tasks))
    assert len(findings) == 5000
    assert findings[0].text.endswith(
        "… -> 04992-t -> 04993-t -> 04994-t -> 04995-t -> 04996-t -> 04997-t -> 04998-t -> 04999-t -> 00000-t"
    )


def test_a_finding_has_its_fields() -> None:
    assert Finding("f", 3, "error", "t").as_dict() == {"file": "f", "line": 3, "severity": "error", "text": "t"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
DATA = st.one_of(st.none(), st.binary(), JSON.map(lambda value: json.dumps(value).encode()))
TEXTS = st.lists(
    st.sampled_from(
        ["# T\n", "# Status\n", "# depends_on\n", "# Tags\n", "- a\n", "- b, c\n", "- [x](./d.md)\n", "- ?\n"]
    ),
    max_size=8,
).map("".join)


@given(st.dictionaries(st.text(max_size=5) | st.sampled_from("abcd"), TEXTS, max_size=4), DATA, DATA, DATA)
def test_check_only_ever_finds(
    files: dict[str, str], config: bytes | None, index: bytes | None, records: bytes | None
) -> None:
    tasks = [parse(stem, text.encode()) for stem, text in files.items()]
    for finding in check(tasks, config=config, index=index, records=records):
        assert finding.text
    made = default_json(tasks)
    assert [entry["link"].translate({9: " ", 10: " ", 13: " "}) for entry in json.loads(made)] == [
        row.split("\t")[9] for row in records_tsv(tasks).decode().split("\n")[:-1]
    ]
    stale = [f for f in check(tasks, index=made, records=records_tsv(tasks, "/r")) if "stale" in f.text]
    assert stale == []


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_settings_are_read_or_refused(data: bytes) -> None:
    try:
        config = read_config(data)
    except BoardUnusable:
        return
    assert sorted(config.weights) == ["CRITICAL", "HIGH", "LOW", "MEDIUM", "TRIVIAL"]
