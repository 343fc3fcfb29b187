"""`progress.yaml`: what was not asked for stays byte for byte, what was asked for is there, and the rest is refused."""

from __future__ import annotations

import copy
import difflib
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dibs.dialects import progress_yaml, yamltext
from dibs.dialects.progress_yaml import ACTIVITY_KEYS, Progress, parse
from dibs.errors import BoardUnusable, DibsError, Duplicate, Invalid, NotFound, Unsupported

GOLDEN = Path(__file__).parent / "golden" / "workitems"
NOW = "2026-01-24T12:00:00Z"


def says(text: bytes) -> Any:
    """Every scalar as the text that a YAML library finds there."""
    return YAML(typ="base", pure=True).load(text.decode())


def agrees(found: Any, meant: Any) -> bool:
    if isinstance(meant, dict):
        return (
            isinstance(found, dict)
            and list(map(str, meant)) == list(found)
            and all(agrees(found[str(key)], value) for key, value in meant.items())
        )
    if isinstance(meant, list):
        return isinstance(found, list) and len(found) == len(meant) and all(map(agrees, found, meant))
    if meant is None:
        return found in ("", "~", "null", None)
    return bool(found == str(meant))


def changed_lines(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    lines = list(difflib.ndiff(before.decode().splitlines(True), after.decode().splitlines(True)))
    return [line[2:] for line in lines if line[0] == "-"], [line[2:] for line in lines if line[0] == "+"]


def lines_of_change(node: yamltext.Node, meant: Any, text: str, touched: set[int]) -> None:
    """The numbers of the lines on which a value stands that is to change."""
    if isinstance(node, yamltext.Mapping) and isinstance(meant, dict):
        for key, child in node.entries.items():
            lines_of_change(child, meant[key], text, touched)
        if node.flow and len(meant) > len(node.entries):
            touched.update(range(text.count("\n", 0, node.start), text.count("\n", 0, node.end) + 1))
    elif isinstance(node, yamltext.Sequence) and node.items and isinstance(node.items[0], yamltext.Mapping):
        for child, row in zip(node.items, meant, strict=False):
            lines_of_change(child, row, text, touched)
        if node.flow and len(meant) > len(node.items):
            touched.update(range(text.count("\n", 0, node.start), text.count("\n", 0, node.end) + 1))
    elif not yamltext.same(yamltext.plain(node), meant):
        first = text.count("\n", 0, node.start)
        if isinstance(node, yamltext.Sequence) and not node.flow and not meant:
            first -= 1  # the key gets the empty brackets
        touched.update(range(first, text.count("\n", 0, node.end) + 1))


def comments(text: bytes) -> list[str]:
    return [line.strip() for line in text.decode().splitlines() if line.lstrip().startswith("#")]


def edit_much(progress: Progress) -> None:
    progress.touch(NOW, "agent-1: the second")
    progress.set_activity("WI-007-A2", "status", "in_progress")
    progress.set_activity("WI-007-A2", "completed_by", "agent-1")
    progress.set_activity("WI-007-A2", "completed_at", NOW)
    progress.set_activity("WI-007-A2", "title", "Frontend: all of it")
    progress.set_depends_on("WI-007-A2", ["WI-007-A1", "WI-007-A3"])
    progress.set_task("WI-007-A1", "WI-007-A1-T2", "notes", "done, mostly")
    progress.set_task("WI-007-A1", "WI-007-A1-T1", "completed_by", "agent-abc123")
    progress.set_task("WI-007-A2", "WI-007-A2-T1", "status", "completed")
    progress.set_task("WI-007-A2", "WI-007-A2-T1", "completed_at", "2026-01-24T11:59:00Z")
    progress.set_task("WI-007-A2", "WI-007-A2-T1", "deliverables", ["src/tooltip.tsx"])
    progress.add_task("WI-007-A2", {"id": "WI-007-A2-T3", "title": "Look at it", "status": "pending"})
    progress.add_task("WI-007-A3", {"id": "WI-007-A3-T1", "title": "E2E", "status": "pending"})
    progress.set_activity("WI-007-A3", "status", "awaiting_human")
    progress.set_activity("WI-007-A3", "completed_by", "maria")
    task = {"id": "WI-007-A4-T1", "title": "- write", "status": "pending", "deliverables": []}
    row = {"id": "WI-007-A4", "title": "Docs", "status": "pending", "actor": "any", "depends_on": ["WI-007-A3"]}
    progress.add_activity({**row, "tasks": [task]})
    progress.add_blocker(
        {
            "id": "WI-007-B1",
            "activity_id": "WI-007-A3",
            "task_id": None,
            "description": "no: credentials\n(yet)",
            "raised_at": NOW,
            "raised_by": "agent-1",
        }
    )


def test_a_fresh_file_is_the_golden_one() -> None:
    data = progress_yaml.new("WI-001", "Checkout: one page", "development", "2026-01-24T10:00:00Z", "agent-abc123")
    assert data == (GOLDEN / "new.yaml").read_bytes()


def test_an_odd_file_is_read_as_it_is_meant() -> None:
    progress = parse((GOLDEN / "odd.yaml").read_bytes())
    assert progress.version == 41
    assert progress.title == 'Checkout: "one page" – été 🚀'
    assert progress.last_modified_by == "maria o'neil"
    assert progress.created == "2026-01-20"
    first, second, third = progress.activities
    assert [task.status for task in first.tasks] == ["completed", "completed"]
    assert second.title == "Frontend changes\nand their styles"
    assert second.tasks[0].notes == "# not a comment\n- not a list\n\n  indented: not a key\n"
    assert second.tasks[0].deliverables == ["src/tooltip.tsx", "src/tool tip.css"]
    assert second.tasks[1].title == "Overflow of long names"
    assert third.depends_on == ["WI-007-A1", "WI-007-A2"]
    assert (third.actor, third.tasks) == ("human", [])
    assert progress.blockers == []
    assert agrees(says((GOLDEN / "odd.yaml").read_bytes()), progress.data)


def test_many_edits_of_an_odd_file_give_the_golden_result() -> None:
    before = (GOLDEN / "odd.yaml").read_bytes()
    progress = parse(before)
    edit_much(progress)
    after = progress.render()
    assert after == (GOLDEN / "odd.edited.yaml").read_bytes()
    assert agrees(says(after), progress.data)
    assert comments(after) == comments(before)
    assert parse(after).render() == after


@pytest.mark.parametrize("name", ["odd.yaml", "odd.edited.yaml", "new.yaml"])
@pytest.mark.parametrize("ending", ["lf", "crlf", "none", "bom"])
def test_what_was_not_changed_is_not_changed(name: str, ending: str) -> None:
    data = (GOLDEN / name).read_bytes()
    if ending == "crlf":
        data = data.replace(b"\n", b"\r\n")
    elif ending == "none":
        data = data.rstrip(b"\n")
    elif ending == "bom":
        data = b"\xef\xbb\xbf" + data
    progress = parse(data)
    assert progress.render() is data
    progress.set_top("status", progress.status)
    assert progress.render() is data


def test_edits_keep_crlf_and_a_missing_last_line_end() -> None:
    before = (GOLDEN / "odd.yaml").read_bytes()
    for data in (before.replace(b"\n", b"\r\n"), before.rstrip(b"\n"), before.replace(b"\n", b"\r\n").rstrip()):
        progress = parse(data)
        edit_much(progress)
        after = progress.render()
        assert after.endswith(b"\n") == data.endswith(b"\n")
        assert (b"\r\n" in after) == (b"\r\n" in data)
        assert after.replace(b"\r\n", b"\n").count(b"\n") == after.count(b"\n")
        expected = (GOLDEN / "odd.edited.yaml").read_bytes()
        assert after.replace(b"\r\n", b"\n").rstrip(b"\n") == expected.rstrip(b"\n")


def test_the_last_thing_in_a_file_without_a_last_line_end_can_be_added_to() -> None:
    progress = parse(b"work_item_id: W\nactivities:\n- id: A\n  tasks:\n  - id: T")
    progress.add_activity({"id": "B"})
    progress.add_task("A", {"id": "U"})
    progress.set_task("A", "T", "status", "completed")
    assert progress.render() == (
        b"work_item_id: W\nactivities:\n- id: A\n  tasks:\n  - id: T\n    status: completed\n  - id: U\n- id: B"
    )


def test_one_changed_value_is_one_changed_line() -> None:
    before = (GOLDEN / "odd.yaml").read_bytes()
    progress = parse(before)
    progress.set_activity("WI-007-A2", "status", "blocked")
    gone, come = changed_lines(before, progress.render())
    assert gone == ["    status: pending     # waits for design\n"]
    assert come == ["    status: blocked     # waits for design\n"]


def test_a_key_that_is_missing_is_put_in_the_documents_place() -> None:
    progress = parse(b"work_item_id: W\nactivities:\n  - id: A\n    status: pending\n    extra: 1\n    tasks: []\n")
    progress.set_activity("A", "completed_at", NOW)
    progress.set_depends_on("A", ["B"])
    progress.set_activity("A", "completed_by", None)
    progress.set_top("updated", NOW)
    assert progress.render().decode() == (
        f'work_item_id: W\nupdated: "{NOW}"\nactivities:\n'
        f'  - id: A\n    status: pending\n    depends_on: [B]\n    completed_at: "{NOW}"\n    extra: 1\n    tasks: []\n'
    )


def test_a_new_activity_is_quoted_indented_and_spaced_like_the_others() -> None:
    before = (
        b'work_item_id: W\nactivities:\n    - id: "A"\n      depends_on:\n        - X\n      tasks:\n'
        b"          - id: 'T'\n\n    - id: \"B\"\n      depends_on:\n        - A\n      tasks:\n"
        b"          - id: 'U'\n\n# end\n"
    )
    progress = parse(before)
    progress.add_activity({"id": "C", "depends_on": ["A"], "tasks": [{"id": "V"}]})
    new = "\n    - id: \"C\"\n      depends_on:\n        - A\n      tasks:\n          - id: 'V'\n"
    assert progress.render() == before.replace(b"\n\n# end", new.encode() + b"\n# end").replace(b"'U'", b"'U'\n")


def test_lists_that_are_empty_in_any_way_can_be_added_to() -> None:
    for empty in ("", " []", " null", " ~", "  [ ]  # none", " # none"):
        progress = parse(f"work_item_id: W\nblockers:{empty}\nactivities:\n".encode())
        progress.add_blocker({"id": "B1", "description": "why"})
        progress.add_activity({"id": "A"})
        after = parse(progress.render())
        assert [blocker.id for blocker in after.blockers] == ["B1"]
        assert [activity.id for activity in after.activities] == ["A"]
        assert (b"# none" in progress.render()) == ("# none" in empty)
    progress = parse(b"work_item_id: W\n")
    progress.add_blocker({"id": "B1"})
    assert progress.render() == b"work_item_id: W\nblockers:\n  - id: B1\n"


def test_a_file_in_one_line_of_brackets_can_be_edited_too() -> None:
    progress = parse(
        b'{"work_item_id": "W", "version": 3, "activities": [{"id": "A", "status": "pending", "tasks": []}]}\n'
    )
    progress.touch(NOW, "me")
    progress.set_activity("A", "status", "in_progress")
    progress.add_task("A", {"id": "T", "title": "x, y"})
    progress.add_activity({"id": "B"})
    assert agrees(says(progress.render()), progress.data)


def test_a_comment_at_the_end_of_a_list_stays_with_its_last_item() -> None:
    progress = parse(b"work_item_id: W\nactivities:\n- id: A\n  # about A\n# about what follows\nartifacts: {}\n")
    progress.add_activity({"id": "B"})
    progress.add_blocker({"id": "B1"})
    assert progress.render() == (
        b"work_item_id: W\nactivities:\n- id: A\n  # about A\n- id: B\nblockers:\n- id: B1\n"
        b"# about what follows\nartifacts: {}\n"
    )


def test_reading_sees_the_changes() -> None:
    progress = parse((GOLDEN / "odd.yaml").read_bytes())
    edit_much(progress)
    assert progress.version == 42
    assert progress.activity("WI-007-A2").status == "in_progress"
    assert progress.activity("WI-007-A4").tasks[0].title == "- write"
    assert progress.blockers[0].description == "no: credentials\n(yet)"
    progress.set_blocker("WI-007-B1", "resolved_at", NOW)
    progress.set_blocker("WI-007-B1", "resolution", "found them")
    after = parse(progress.render())
    assert after.blockers[0].resolution == "found them"


def test_bad_edits_are_refused_and_change_nothing() -> None:
    data = (GOLDEN / "odd.yaml").read_bytes()
    progress = parse(data)
    with pytest.raises(Invalid, match="status"):
        progress.set_activity("WI-007-A2", "status", "done")
    with pytest.raises(Invalid, match="status"):
        progress.set_top("status", "pending")
    with pytest.raises(Invalid, match="actor"):
        progress.set_activity("WI-007-A2", "actor", "robot")
    with pytest.raises(Invalid, match="cannot be set"):
        progress.set_activity("WI-007-A2", "id", "X")
    with pytest.raises(Invalid, match="cannot be set"):
        progress.set_task("WI-007-A2", "WI-007-A2-T1", "effort", "X")
    with pytest.raises(Invalid, match="whole number"):
        progress.set_top("version", "42")
    with pytest.raises(Invalid, match="Unicode"):
        progress.set_activity("WI-007-A2", "title", "\ud800")
    with pytest.raises(Invalid, match="list"):
        progress.set_activity("WI-007-A2", "depends_on", "WI-007-A1")
    with pytest.raises(Invalid, match="not a key"):
        progress.add_activity({"id": "X", "colour": "red"})
    with pytest.raises(Invalid, match="id is needed"):
        progress.add_activity({"title": "X"})
    with pytest.raises(Duplicate):
        progress.add_activity({"id": "WI-007-A2"})
    with pytest.raises(Duplicate):
        progress.add_activity({"id": "X", "tasks": [{"id": "T"}, {"id": "T"}]})
    with pytest.raises(NotFound):
        progress.set_activity("WI-007-A9", "status", "pending")
    with pytest.raises(NotFound):
        progress.set_task("WI-007-A2", "WI-007-A1-T1", "status", "pending")
    assert progress.render() is data


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "keys of a work item"),
        (b"- a\n", "keys of a work item"),
        (b"work_item_id: W\nactivities: {}\n", "not a list"),
        (b"work_item_id: W\nactivities: [a]\n", "not a mapping"),
        (b"work_item_id: W\nactivities:\n- title: x\n", "no id"),
        (b"work_item_id: W\nactivities:\n- id: 1\n", "not text"),
        (b"work_item_id: W\nactivities:\n- id: a\n- id: a\n", "occurs twice"),
        (b"work_item_id: W\nactivities:\n- id: a\n  tasks: [{id: t}, {id: t}]\n", "occurs twice"),
        (b"work_item_id: W\nactivities:\n- id: a\n  depends_on: [1]\n", "depends_on of a"),
        (b"work_item_id: W\nschema_version: 3\n", "newest that is understood"),
        (b"work_item_id: W\nversion: x\n", "not a whole number"),
        (b"version: 1\n", "work_item_id"),
        (b"work_item_id: W\ntitle: \xff\n", "WI/progress.yaml, line 2: not UTF-8"),
        (b"work_item_id: W\ntitle: a: b\n", "WI/progress.yaml, line 2: a colon"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "line 1: an anchor"),
        (b"#" * (9 << 20), "limit"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(data: bytes, what: str) -> None:
    with pytest.raises(BoardUnusable, match=what):
        parse(data, "WI/progress.yaml")


def test_what_cannot_be_changed_in_place_is_refused() -> None:
    progress = parse(b"work_item_id: W\nactivities:\n- id: A\n  depends_on: [B, # why\n    C]\n")
    progress.set_depends_on("A", ["C"])
    with pytest.raises(Unsupported, match="comment inside the brackets"):
        progress.render()


SOME_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "a: b",
        "- x",
        "# c",
        "it's",
        '"q"',
        "null",
        "yes",
        "12",
        "1.5",
        "2026-01-24",
        NOW,
        "",
        " x ",
        "a\nb",
        "[a]",
        "é 😀",
        "\t",
    ]
)


TITLES = ["title: a b", "title: >\n{0}  a\n\n{0}  b", "title: 'a\n{0}  b'", "extra: {{x: [1, 2]}}", "title: a\n{0}  b"]
DEPENDS = ["depends_on: []", "depends_on: [X, 'Y']", "depends_on:", "depends_on:\n{0}- X\n{0}- Y", "depends_on: null"]
TASKS = ["", "tasks: []", "tasks:\n{0}- id: T0\n{0}  notes: |\n{0}    n\n{0}- id: T1", "tasks: [{{id: T0}}]"]


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, int]:
    """A work item in some hand's layout, and how many activities it has."""
    dash = draw(st.sampled_from(["", "  ", "    "]))
    comment = st.sampled_from(["", "", "", "  # note", " #"])
    between = st.lists(st.sampled_from(["", "# a comment", "    # a deep comment"]), max_size=2)

    def value(text: str) -> str:
        style = draw(st.sampled_from(["plain", "'", '"']))
        return text if style == "plain" else style + text + style

    lines: list[str] = [*draw(between)]
    top = {
        "schema_version": "2",
        "version": "7",
        "work_item_id": "'W'",
        "status": value("planning"),
        "updated": value(NOW),
    }
    for key, text in top.items():
        lines += [f"{key}: {text}{draw(comment)}", *draw(between)]
    count = draw(st.integers(0, 3))
    lines.append(
        "activities:" + draw(comment) if count else draw(st.sampled_from(["activities:", "activities: []", "#"]))
    )
    for number in range(count):
        gap = " " * draw(st.integers(1, 3))
        inner = dash + " " + gap
        entries = [f"id: {value(f'A{number}')}", f"status: {value('pending')}"]
        entries.append(draw(st.sampled_from(TITLES)).format(inner))
        entries.append(draw(st.sampled_from(DEPENDS)).format(inner))
        tasks = draw(st.sampled_from(TASKS)).format(inner)
        if tasks:
            entries.insert(draw(st.integers(1, len(entries))), tasks)
        for place, entry in enumerate(entries):
            single = "\n" not in entry
            lines.append((dash + "-" + gap if place == 0 else inner) + entry + (draw(comment) if single else ""))
            if single:
                lines += [line and inner + line for line in draw(between)]
    lines += [*draw(between), draw(st.sampled_from(["blockers: []", "blockers:", "artifacts: {a: 1}", "zzz: end"]))]
    eol = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return ("\n".join(lines) + draw(st.sampled_from(["\n", "", "\n\n"]))).replace("\n", eol).encode(), count


@given(files(), st.data())
def test_each_edit_changes_what_was_asked_and_nothing_else(file: tuple[bytes, int], data: st.DataObject) -> None:
    before, count = file
    progress = parse(before)
    assert progress.render() is before
    assert agrees(says(before), progress.data)
    meant = copy.deepcopy(progress.data)
    for number in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["top", "activity", "depends", "task", "add", "add_task", "blocker"]))
        text = data.draw(SOME_TEXT)
        name = f"A{data.draw(st.integers(0, max(0, count - 1)))}"
        rows = {row["id"]: row for row in meant.get("activities") or ()}
        if kind == "top":
            key = data.draw(st.sampled_from(["title", "updated", "last_modified_by"]))
            progress.set_top(key, text)
            meant[key] = text
        elif kind == "add":
            fields = {"id": f"N{number}", "title": text, "depends_on": [text], "tasks": [{"id": "T", "notes": text}]}
            progress.add_activity(fields)
            meant["activities"] = [*(meant.get("activities") or []), fields]
        elif kind == "blocker":
            progress.add_blocker({"id": f"B{number}", "description": text})
            meant["blockers"] = [*(meant.get("blockers") or []), {"id": f"B{number}", "description": text}]
        elif count and kind == "activity":
            key = data.draw(st.sampled_from(["title", "completed_by", "completed_at"]))
            progress.set_activity(name, key, text)
            rows[name][key] = text
        elif count and kind == "depends":
            words = data.draw(st.lists(st.sampled_from(["X", "Y", "Z", "a: b"]), max_size=3, unique=True))
            progress.set_depends_on(name, words)
            rows[name]["depends_on"] = words
        elif count and kind == "add_task":
            progress.add_task(name, {"id": f"N{number}", "title": text})
            rows[name]["tasks"] = [*(rows[name].get("tasks") or []), {"id": f"N{number}", "title": text}]
        elif count and kind == "task" and rows[name].get("tasks"):
            progress.set_task(name, rows[name]["tasks"][0]["id"], "notes", text)
            rows[name]["tasks"][0]["notes"] = text
    assert progress.data == meant
    after = progress.render()
    assert agrees(says(after), progress.data)
    assert parse(after).data == meant
    assert comments(after) == comments(before)
    assert after.endswith(b"\n") == before.endswith(b"\n")
    touched: set[int] = set()
    lines_of_change(yamltext.parse(before.decode()), meant, before.decode(), touched)
    rest = iter(after.decode().splitlines())
    for number, line in enumerate(before.decode().splitlines()):
        assert number in touched or line in rest, f"line {number + 1} is gone or has moved: {line!r}"


@given(
    st.binary(max_size=80)
    | st.text(max_size=80).map(lambda text: b"work_item_id: W\n" + text.encode("utf-8", "replace"))
)
def test_any_bytes_are_read_or_refused_with_our_error(data: bytes) -> None:
    try:
        progress = parse(data)
    except BoardUnusable:
        return
    assert progress.render() is data
    try:
        progress.touch(NOW, "me")
        assert agrees(says(progress.render()), progress.data)
    except DibsError:
        pass


def test_two_hundred_activities_are_read_and_changed_quickly() -> None:
    progress = parse(progress_yaml.new("WI-001", "Large", "development", NOW, "me"))
    for number in range(200):
        tasks = [{"id": f"A{number}-T{n}", "title": f"Task {n}", "status": "pending", "notes": None} for n in range(3)]
        values: tuple[Any, ...] = (f"A{number}", "Some title", "pending", "agent", [], None, None, tasks)
        progress.add_activity(dict(zip(ACTIVITY_KEYS, values, strict=True)))
    data = progress.render()
    started = time.process_time()
    progress = parse(data)
    progress.set_activity("A100", "status", "in_progress")
    progress.touch(NOW, "you")
    progress.render()
    assert time.process_time() - started < 2, "about 0.1 s is usual"
