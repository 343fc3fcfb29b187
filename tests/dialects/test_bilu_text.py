"""Document 002's task files: what is read, and that a change touches nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dibs.dialects.bilu_text import FIELDS, TaskFile, new, parse
from dibs.dialects.bilu_words import (
    KINDS,
    PRIORITIES,
    STATUSES,
    State,
    is_stem,
    priority_of,
    read_kind,
    read_priority,
    read_status,
    slug,
    state_of,
    status_of,
    weight_of,
)
from dibs.errors import BoardUnusable, Invalid, Unsupported
from dibs.model import FAILED, IN_PROGRESS, PENDING, TaskStatus

GOLDEN = Path(__file__).parent / "golden" / "bilu"
TITLES = {"notes": "Sort out the notes"}


def golden(stem: str) -> TaskFile:
    return parse(stem, (GOLDEN / "board" / "tasks" / f"{stem}.md").read_bytes())


def values(task: TaskFile) -> dict[str, Any]:
    return {name: getattr(task, name) for name in FIELDS}


def read(text: str) -> TaskFile:
    return parse("01-x", text.encode())


def test_a_file_of_shape_a_is_read() -> None:
    task = golden("01-scaffold")
    assert task.shape == "a"
    assert values(task) == {
        "title": 'Scaffold and "manifest" – first cut',
        "description": "Lay out the directories and the manifest.\n\n"
        "The second paragraph stays in the file; the index holds the first line.",
        "status": "INPROGRESS",
        "priority": "HIGH",
        "kind": "task",
        "tags": [],
        "depends_on": [],
    }
    assert task.summary == "Lay out the directories and the manifest."
    assert task.warnings == []


def test_a_file_of_shape_b_is_read_and_notes_after_a_list_are_not_items() -> None:
    task = golden("10-constraints")
    assert task.shape == "b"
    assert values(task) == {
        "title": "Phase 00 — Constraints",
        "description": "POSIX sh, nothing else.",
        "status": "DONE",
        "priority": "TRIVIAL",
        "kind": "task",
        "tags": ["planning", "devops"],
        "depends_on": [],
    }
    assert task.warnings == []


def test_unknown_and_missing_values_are_read_as_defaults_and_said() -> None:
    task = golden("notes")
    assert (task.status, task.priority, task.kind) == ("TODO", "MEDIUM", "task")
    assert task.warnings == [(0, "no priority, taken to be MEDIUM"), (6, "unknown status 'wip', read as TODO")]


@pytest.mark.parametrize(
    ("stem", "fields"),
    [
        (
            "01-scaffold",
            {
                "title": "Scaffold, second cut",
                "description": "Lay out the directories.",
                "status": "review",
                "priority": "low",
                "kind": "bug",
                "tags": ["backend", "design"],
                "depends_on": ["10-constraints"],
            },
        ),
        ("02-contracts", {"status": "BLOCKED", "tags": [], "depends_on": ["10-constraints", "notes"]}),
        (
            "10-constraints",
            {
                "title": "Constraints",
                "description": "POSIX sh,\nand coreutils.\n\n",
                "status": "ARCHIVED",
                "priority": "HIGH",
                "kind": "improvement",
                "tags": ["devops", "design"],
                "depends_on": ["01-scaffold"],
            },
        ),
        ("notes", {"status": "TODO", "priority": "MEDIUM", "depends_on": ["02-contracts", "10-constraints"]}),
    ],
)
def test_a_changed_file_is_what_a_person_would_have_written(stem: str, fields: dict[str, Any]) -> None:
    task = golden(stem)
    task.change(titles=TITLES, **fields)
    assert task.render() == (GOLDEN / "changed" / f"{stem}.md").read_bytes()


@pytest.mark.parametrize("shape", ["a", "b"])
def test_a_new_file_has_the_shape_asked_for(shape: Any) -> None:
    fields = {
        "title": "Write the lock helper",
        "description": "Plain sh.\n\nWith traps.",
        "status": "BACKLOG",
        "priority": "HIGH",
        "kind": "feature",
        "tags": ["devops"],
        "depends_on": ["01-scaffold"],
    }
    data = new("03-lock", fields, shape)
    assert data == (GOLDEN / "changed" / f"new-{shape}.md").read_bytes()
    assert values(parse("03-lock", data)) == fields
    plain = parse("status", new("status", {"title": "T"}, shape))
    assert plain.shape == shape
    assert plain.warnings == []


@pytest.mark.parametrize("stem", ["", ".x", "-x", "a/b", "a b", "x.md", "x.", "con", "LPT1.old", "é", "a\n", "x" * 129])
def test_a_name_that_is_no_safe_file_name_is_refused(stem: str) -> None:
    assert not is_stem(stem)
    with pytest.raises(Invalid):
        new(stem, {"title": "T"})


def test_an_untouched_value_keeps_its_spelling_and_an_assumed_one_is_written_when_asked_for() -> None:
    task = read("# T\n# Status\n in-progress \n# Priority\nurgent\n# Kind\ntask\n")
    before = task.render()
    task.change(status="INPROGRESS", kind="Task", tags=[], depends_on=[], description="", title="T")
    assert task.render() == before
    task.change(priority="MEDIUM")
    assert task.render() == before.replace(b"urgent", b"MEDIUM")


def test_line_ends_mark_and_missing_newline_stay() -> None:
    data = "\ufeff# Title\r\n\tFirst\r\n\r\n# Status\r\nTODO  \r\n\r\n# Priority\r\nlow".encode()
    task = parse("x", data)
    assert (task.title, task.status, task.priority, task.shape) == ("First", "TODO", "LOW", "a")
    assert task.render() == data
    task.change(status="DONE", tags=["a", "b"])
    assert task.render() == data.replace(b"TODO", b"DONE").replace(
        b"# Priority\r\nlow", b"# Tags\r\n- a\r\n- b\r\n\r\n# Priority\r\nlow"
    )
    task.change(priority="HIGH", depends_on=["y"])
    assert task.render().endswith(b"- b\r\n\r\n# depends_on\r\n- board/tasks/y.md\r\n\r\n# Priority\r\nHIGH")


def test_a_section_after_the_last_line_leaves_the_file_without_a_final_newline() -> None:
    task = read("# T\n\n# Description\nwords")
    task.change(status="DONE")
    assert task.render() == b"# T\n\n# Description\nwords\n# Status\nDONE"


@pytest.mark.parametrize("fence", ["```", "~~~~", "   ```sh"])
def test_a_heading_in_a_code_fence_is_no_section(fence: str) -> None:
    close = fence.strip().rstrip("sh")
    task = read(f"# T\n\n{fence}\n# Status\nDONE\n{close}\n\n# Status\nREVIEW\n")
    assert task.status == "REVIEW"


def test_a_fence_that_is_never_closed_hides_nothing() -> None:
    task = read("# T\n\n````\n```sh\n# Status\nDONE\n")
    assert task.status == "DONE"
    task.change(priority="LOW")
    assert task.render() == b"# T\n\n````\n```sh\n# Status\nDONE\n# Priority\nLOW\n"


def test_a_value_that_would_be_read_as_something_else_is_refused_and_nothing_changes() -> None:
    task = read("# T\n\n# Description\nold\n# Status\nTODO\n")
    before = task.render()
    for fields in (
        {"description": "fine\n# Status\nDONE"},
        {"title": "status"},
        {"title": "two\nlines"},
        {"title": "  "},
        {"description": "bell \a"},
        {"tags": ["a,b"]},
        {"tags": [""]},
        {"tags": "one"},
        {"depends_on": ["no such name!"]},
        {"status": "wip"},
        {"priority": "7"},
        {"kind": "epic"},
        {"description": None},
        {"title": "\ud800"},
        {"holder": "me"},
        {"status": "DONE", "priority": "none"},
    ):
        with pytest.raises(Invalid):
            task.change(**fields)
        assert task.render() == before
        assert task.status == "TODO"
    task.change(description="fine\n```\n# Status\n```")
    assert (task.description, task.status) == ("fine\n```\n# Status\n```", "TODO")


def test_a_heading_below_a_scalar_is_not_its_value() -> None:
    task = read("# T\n# Status\n\n## Outcomes\n- x\n")
    assert task.warnings == [(0, "no priority, taken to be MEDIUM"), (2, "no status, taken to be TODO")]
    task.change(status="DONE")
    assert task.render() == b"# T\n# Status\nDONE\n\n## Outcomes\n- x\n"


def test_a_file_without_a_title_is_called_by_its_name_until_it_gets_one() -> None:
    for text, after in (
        ("", "# New\n"),
        ("just words\n", "# New\n\njust words\n"),
        ("# Status\nTODO\n", "# Title\nNew\n\n# Status\nTODO\n"),
    ):
        task = read(text)
        assert task.title == "01-x"
        assert (0, "no title, taken to be the file's name") in task.warnings
        task.change(title="New")
        assert task.render().decode() == after


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("- [Title, with comma](./other.md)", ["other"]),
        ('- [T](<../tasks/other.md#top> "hint") (needed)', ["other"]),
        ("- [A](a.md), [B](b.md)", ["a", "b"]),
        ("- other", ["other"]),
        ("-other", ["other"]),
        ("  * `other.md`", ["other"]),
        ("- docs/board/tasks/other.MD", ["other"]),
        ("- a, board/tasks/b.md", ["a", "b"]),
        ("[]", []),
        ("---", []),
        ("- a\n- a\n\n- b\n  more on b\n- c", ["a", "b", "c"]),
    ],
)
def test_dependencies_are_read_in_every_style(line: str, names: list[str]) -> None:
    task = read(f"# T\n# Status\nTODO\n# Priority\nLOW\n# Depends on\n{line}\n")
    assert task.depends_on == names
    assert task.warnings == []


@pytest.mark.parametrize("text", ["the other thing", "https://example.org/x.md", "[x](a b/c d.md)"])
def test_a_dependency_that_names_no_file_is_kept_and_said(text: str) -> None:
    task = read(f"# T\n# Status\nTODO\n# Priority\nLOW\n# depends_on\n- {text}\n")
    assert len(task.depends_on) == 1
    assert task.warnings[0][0] == 7
    task.change(depends_on=[*task.depends_on, "more"])
    assert task.render().endswith(f"- {text}\n- board/tasks/more.md\n".encode())


@pytest.mark.parametrize(
    ("style", "added"),
    [
        ("- [One](./one.md)", "- [The second (2)](./two.md)"),
        ("- one", "- two"),
        ("* ../tasks/one.md", "* ../tasks/two.md"),
        ("-   docs/one.md", "-   docs/two.md"),
    ],
)
def test_a_new_dependency_follows_the_style_found(style: str, added: str) -> None:
    task = read(f"# T\n# depends_on\n\n{style}\n\nA note.\n")
    task.change(depends_on=["one", "two"], titles={"two": "The second [2]"})
    assert task.render() == f"# T\n# depends_on\n\n{style}\n{added}\n\nA note.\n".encode()
    task.change(depends_on=["two", "one"])
    assert task.render() == f"# T\n# depends_on\n\n{added}\n{style}\n\nA note.\n".encode()
    task.change(depends_on=[])
    assert task.render() == b"# T\n# depends_on\n\n\nA note.\n"


def test_items_that_stay_keep_what_stands_between_them() -> None:
    task = read("# T\n# Tags\n- a\n\n- b\n\n- c\n")
    task.change(tags=["a", "c", "d"])
    assert task.render() == b"# T\n# Tags\n- a\n\n\n- c\n- d\n"


def test_an_item_given_twice_stays_once_and_a_missing_final_newline_stays_missing() -> None:
    task = read("# T\n# Tags\n- a\n- b\n- a\n- c")
    task.change(tags=["a", "b", "d"])
    assert task.render() == b"# T\n# Tags\n- a\n- b\n- d"
    task.change(tags=["a"])
    assert task.render() == b"# T\n# Tags\n- a"


def test_a_second_section_of_a_name_and_a_list_that_is_none_are_said() -> None:
    task = read("# T\n# Status\nDONE\n# Priority\nLOW\n# Status\nTODO\n# Tags\nwords\n")
    assert task.status == "DONE"
    assert task.warnings == [
        (6, "a second section '# Status' is ignored"),
        (9, "'words' is not an item of a list: write '- item'"),
    ]


@pytest.mark.parametrize(
    ("data", "line"), [(b"# T\n\xff", 2), (b"# T\n\n\n\0", 4), ("# T".encode("utf-16"), 1), (b"\n\n\0\xff", 3)]
)
def test_what_is_no_text_is_refused_with_file_and_line(data: bytes, line: int) -> None:
    with pytest.raises(BoardUnusable) as caught:
        parse("x", data)
    assert caught.value.message.startswith(f"board/tasks/x.md, line {line}: ")
    assert caught.value.fields["line"] == line


def test_many_open_fences_are_read_quickly() -> None:
    task = read("# T\n" + "```x\n~~~y\n" * 100_000 + "# Status\nDONE\n")
    assert task.status == "DONE"


def test_spellings_are_tolerant() -> None:
    for text in ("INPROGRESS", "in progress", "In-Progress", "in_progress"):
        assert read_status(text) == "INPROGRESS"
    assert [read_status(t) for t in ("to do", "canceled", "Cancelled", "wip", "")] == [
        "TODO", "CANCELLED", "CANCELLED", None, None,
    ]  # fmt: skip
    assert [read_priority(t) for t in ("High", "critical", "urgent")] == ["HIGH", "CRITICAL", None]
    assert [read_kind(t) for t in ("Bug", "epic")] == ["bug", None]


def test_every_status_means_one_state_and_comes_back() -> None:
    assert [status_of(state_of(status)) for status in STATUSES] == list(STATUSES)
    assert state_of("BACKLOG") == State(PENDING, backlog=True)
    assert state_of("BLOCKED") == State(PENDING, blocked=True)
    assert state_of("ARCHIVED") == State(TaskStatus.COMPLETED, archived=True)
    assert status_of(State(PENDING, blocked=True, backlog=True)) == "BLOCKED"
    assert status_of(State(IN_PROGRESS, blocked=True)) == "INPROGRESS"
    with pytest.raises(Unsupported, match="bilu"):
        status_of(State(FAILED))


def test_priorities_are_weights() -> None:
    assert [priority_of(weight_of(name)) for name in PRIORITIES] == list(PRIORITIES)
    assert priority_of(9, {"HIGH": 9}) == "HIGH"
    with pytest.raises(Invalid, match=r"10 \(CRITICAL\)"):
        priority_of(7)


def test_a_slug_is_a_free_and_safe_name() -> None:
    assert slug("Wörk on: the  API / v2!") == "work-on-the-api-v2"
    assert slug("日本語") == "task"
    assert slug("con") == "task-con"
    assert slug("Do it", ["DO-IT", "do-it-2"]) == "do-it-3"
    assert len(slug("x" * 500)) == 60


@given(st.text(), st.sets(st.text()))
def test_every_title_has_a_slug(title: str, taken: set[str]) -> None:
    made = slug(title, taken)
    assert is_stem(made)
    assert made not in taken


LINES = st.one_of(
    st.sampled_from(
        [
            "# Title", "# Status", "# status ", "#\tPriority", "# Kind", "# Tags", "# depends_on", "# Depends on",
            "# Description", "# Details", "# ", "#", "## Sub", "```", "```sh", "````", "~~~", "  ~~~ ", "    ```",
            "", " ", "\t", "TODO", " in progress ", "High", "bug", "[]", "- a", "  - b", "* c", "-d", "- a, b", "---",
            "- [A](./a.md)", "- board/tasks/b.md", "- no id!", "words", "# A heading", "\u00a0", "<!-- # -->",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), max_size=8),
)  # fmt: skip
ITEMS = st.sampled_from(
    ["- a", "- b", "- other", "- 01-x", "* [A](./a.md)", "- [B](./b.md)", "  - board/tasks/other.md", "- a, b",
     "- no id!", "[]", "", "  more"]
)  # fmt: skip
SECTIONS = st.one_of(
    st.tuples(st.sampled_from(["# Tags", "# depends_on"]), st.lists(ITEMS, max_size=5)),
    st.tuples(st.sampled_from(["# Status", "# Priority", "# Kind", "# Details"]), st.lists(LINES, max_size=2)),
    st.tuples(st.sampled_from(["# Title", "# A title", "# Description"]), st.lists(LINES, min_size=1, max_size=3)),
).map(lambda section: [section[0], *section[1]])
FILES = st.builds(
    lambda bom, lines, end, final: (bom + end.join(lines) + final).encode(),
    st.sampled_from(["", "\ufeff"]),
    st.one_of(
        st.lists(LINES, max_size=16),
        st.lists(SECTIONS, max_size=6).map(lambda sections: [line for section in sections for line in section]),
    ),
    st.sampled_from(["\n", "\n", "\r\n"]),
    st.sampled_from(["", "\n", "\r\n", "\n\n"]),
)
IDS = st.sampled_from(["a", "b", "01-x", "other", "x.y"])
CHANGES = st.one_of(
    st.tuples(st.just("title"), st.text(min_size=1, max_size=12)),
    st.tuples(st.just("description"), st.one_of(st.text(max_size=20), st.lists(LINES, max_size=6).map("\n".join))),
    st.tuples(st.just("status"), st.sampled_from(STATUSES)),
    st.tuples(st.just("priority"), st.sampled_from(list(PRIORITIES))),
    st.tuples(st.just("kind"), st.sampled_from(KINDS)),
    st.tuples(st.just("tags"), st.lists(st.text(max_size=6) | IDS, max_size=4)),
    st.tuples(st.just("depends_on"), st.lists(IDS, max_size=4)),
)


@given(st.text(max_size=10), st.one_of(st.binary(), FILES))
def test_any_bytes_are_refused_or_come_back_unchanged(stem: str, data: bytes) -> None:
    try:
        task = parse(stem, data)
    except BoardUnusable:
        return
    assert task.render() == data
    assert task.status in STATUSES
    assert task.priority in PRIORITIES
    assert task.kind in KINDS


def is_plain(text: str) -> bool:
    return text.isascii() and text.replace("-", "").replace(".", "").isalnum() and text[0].isalnum()


def has_fence(data: bytes) -> bool:
    return b"```" in data or b"~~~" in data


def is_confined(old: list[str], made: list[str], allowed: tuple[int, int] | None) -> bool:
    """Whether only these old lines were replaced, or, without any allowed, lines were only put in between."""
    shorter = min(len(old), len(made))
    first = next((i for i in range(shorter) if old[i] != made[i]), shorter)
    tail = next((i for i in range(shorter - first) if old[-1 - i] != made[-1 - i]), shorter - first)
    if first + tail == len(old):
        return allowed is None or first == len(made) or allowed[0] <= first or allowed[0] <= len(old) - tail
    return allowed is not None and allowed[0] <= first and len(old) - tail <= allowed[1]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (["b", "c"], b"- b\n  b first: do not reorder!\n- c\n  and this\n- e\n"),
        (["b", "c", "d", "e", "f"], b"- b\n  b first: do not reorder!\n- c\n- d\n  and this\n- e\n- f\n"),
        (["d", "b"], b"- d\n  and this\n- b\n  b first: do not reorder!\n- e\n"),
        (["c"], b"- c\n  and this\n- e\n  b first: do not reorder!\n"),
    ],
)
def test_notes_between_the_items_of_a_list_stay(change: list[str], left: bytes) -> None:
    data = b"# T\n# Tags\n- b\n  b first: do not reorder!\n- c, d\n  and this\n- e\n"
    task = parse("01-x", data)
    task.change(tags=[*change, *(["e"] if "e" not in change else [])])
    assert task.render() == b"# T\n# Tags\n" + left


@given(FILES, CHANGES)
@example(b"# T\n# Tags\n- a\n- b\n- a\n", ("tags", ["a", "b", "c"]))
@example(b"```\n# Tags", ("description", "```"))
@example(b"# Tags\n  more\n- a", ("tags", ["0"]))
@example(b"# Tags\n  ---\n- a", ("tags", ["0"]))
def test_a_change_is_read_back_and_touches_only_its_section(data: bytes, change: tuple[str, Any]) -> None:
    name, value = change
    task = parse("01-x", data)
    before, sections, titled = values(task), dict(task._sections), task._titled
    old = list(task._lines)
    try:
        task.change(**{name: value})
    except Invalid:
        assert task.render() == data
        assert name in ("title", "description") or not all(is_plain(v) for v in value) or has_fence(data)
        return
    again = parse("01-x", task.render())
    assert values(again) == values(task)
    assert again.shape == task.shape
    for other in FIELDS:
        if other != name:
            assert getattr(again, other) == before[other]
    if name in ("status", "priority", "kind"):
        assert getattr(again, name) == value
    if name == "depends_on":
        assert again.depends_on == list(dict.fromkeys(value))
    if name in sections:
        allowed = (sections[name][0] + 1, sections[name][1])
    elif name == "title" and titled >= 0:
        allowed = (titled, titled + 1)
    else:
        allowed = None
    # A section that follows a last line without a newline gives it one.
    variants = [old, *([*old[:-1], old[-1] + end] for end in ("\n", "\r\n") if old and old[-1][-1] != "\n")]
    assert any(is_confined(variant, again._lines, allowed) for variant in variants)


@given(FILES, st.lists(CHANGES, max_size=6))
def test_a_sequence_of_changes_never_loses_an_earlier_one(data: bytes, changes: list[tuple[str, Any]]) -> None:
    task = parse("01-x", data)
    for name, value in changes:
        before = values(task)
        try:
            task.change(**{name: value})
        except Invalid:
            assert values(task) == before
            continue
        assert {k: v for k, v in values(task).items() if k != name} == {k: v for k, v in before.items() if k != name}
