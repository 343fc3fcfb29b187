"""Document 000's board.json: golden files byte for byte, and what hostile or sloppy hands may write into it."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.dialects import workflow_text as workflow
from dibs.dialects.jsonlist import JsonList, parse
from dibs.errors import BoardUnusable, Invalid, Unsupported
from dibs.model import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, PENDING, REVIEW, BoardTask
from tests.searching import examples

GOLDEN = Path(__file__).parent / "golden" / "workflow"
CLAIMED = 1_770_787_805.0  # 2026-02-11T14:30:05+09:00
DONE = 1_770_789_600.0


@pytest.fixture(autouse=True)
def in_japan(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The document's examples have the offset +09:00."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


def changed(data: bytes, **fields: Any) -> bytes:
    """The document after its first task got these fields, and the version its bump."""
    document = parse(data)
    before = workflow.decode(document.rows[0])
    task = copy.copy(before)
    for field, value in fields.items():
        setattr(task, field, value)
    document.replace(0, workflow.members(task, before, document.rows[0]))
    workflow.bump(document)
    return document.render()


def test_a_claim_is_the_documents_version_bump() -> None:
    claimed = changed(golden("1-open"), status=IN_PROGRESS, assigned_to="worker-w1", claimed_at=CLAIMED)
    assert claimed == golden("2-claimed")


def test_done_writes_the_time_and_the_note() -> None:
    fields = {"status": REVIEW, "completed_at": DONE + 0.75, "result": "all tests pass"}
    assert changed(golden("2-claimed"), **fields) == golden("3-done")


def test_integration_changes_the_status_and_leaves_when_the_work_was_done() -> None:
    assert changed(golden("3-done"), status=COMPLETED, completed_at=DONE + 600) == golden("4-integrated")


def test_a_rejection_opens_the_task_with_empty_claim_fields_and_a_note() -> None:
    cleared = {"assigned_to": None, "claimed_at": None, "completed_at": None}
    note = "rejected by integrator-i1: no docs"
    assert changed(golden("3-done"), status=PENDING, result=note, **cleared) == golden("4-rejected")


def test_a_planner_begins_with_the_documents_form() -> None:
    document = workflow.new("My Project", "/srv/my-project", CLAIMED)
    text = "Write the login page\n\nWith a link for lost passwords.\n\nVerification: pytest tests/test_login.py"
    document.append(workflow.element(BoardTask("task-001", text, paths=["src/login.py"], review=True)))
    document.append(workflow.element(BoardTask("task-002", "Café", depends_on=["task-001"], review=True)))
    assert document.render() == golden("new")
    assert workflow.decode(document.rows[0]).description == text


def test_a_task_is_read_with_its_claim_and_token() -> None:
    document = parse(golden("3-done"))
    task = workflow.decode(document.rows[0], {"created_at": "2026-02-11T05:30:05Z"})
    expected = BoardTask(
        "task-001", "task-001", REVIEW, "worker-w1", [], "all tests pass", 0, CLAIMED, CLAIMED, DONE,
        token=1_770_787_805_000_000, paths=["src/app.py", "tests/test_app.py"], review=True,
    )  # fmt: skip
    assert task == expected


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-11T14:30:05+09:00",
        "2026-02-11T05:30:05Z",
        "2026-02-11T05:30:05.000000+00:00",
        "2026-02-11T00:30:05-05:00",
        "2026-02-11T05:30:05",
    ],
)
def test_a_claim_time_is_read_with_any_offset(text: str) -> None:
    task = workflow.decode({"id": "task-001", "status": "claimed", "claimed_at": text})
    assert (task.claimed_at, task.token) == (CLAIMED, 1_770_787_805_000_000)


@given(st.integers(0, 4_000_000_000_000_000), st.integers(-840, 840))
def test_a_token_is_read_back_from_the_claim_time(token: int, minutes: int) -> None:
    text = workflow.stamp(token / 1_000_000, precise=True, offset=minutes * 60)
    assert workflow.decode({"id": "a", "claimed_at": text}).token == token


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e18, -1e12])
def test_a_time_that_no_calendar_has_is_refused(at: float) -> None:
    with pytest.raises(Invalid, match="calendar"):
        workflow.stamp(at)


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ({"status": "finished"}, "one of open, claimed, done, integrated"),
        ({"status": None}, "one of open"),
        ({"status": ["open"]}, "one of open"),
        ({"depends_on": "task-001"}, "a list of texts"),
        ({"deliverables": [1]}, "a list of texts"),
        ({"claimed_by": 7}, "text or null"),
        ({"title": {}}, "text or null"),
        ({"claimed_at": "yesterday"}, "an ISO 8601 time"),
        ({"done_at": 1708300000.0}, "an ISO 8601 time"),
    ],
)
def test_what_makes_no_sense_is_refused_by_task_and_member(member: dict[str, Any], words: str) -> None:
    with pytest.raises(BoardUnusable, match=f"task 'task-009': its {next(iter(member))} is .*must be {words}"):
        workflow.decode({"id": "task-009", **member})


@pytest.mark.parametrize("value", [None, "3", 3.0, True, -1])
def test_a_version_that_cannot_be_counted_is_refused(value: object) -> None:
    document = parse(json.dumps({"version": value, "tasks": []}).encode())
    before = document.render()
    with pytest.raises(BoardUnusable, match="version"):
        workflow.bump(document)
    assert document.render() == before


@pytest.mark.parametrize("status", [FAILED, CANCELLED])
def test_a_status_that_the_document_has_not_is_refused(status: Any) -> None:
    task = BoardTask("task-001", "x")
    ended = BoardTask("task-001", "x", status)
    with pytest.raises(Unsupported, match="document 000"):
        workflow.members(ended, task, {"id": "task-001"})
    with pytest.raises(Unsupported):
        workflow.element(ended)


def test_what_a_store_assumed_about_a_claim_without_a_name_is_not_written() -> None:
    row = {"id": "task-001", "status": "claimed"}
    before = workflow.decode(row)
    before.assigned_to, before.claimed_at = "somebody", 0.0
    done = copy.copy(before)
    done.status = REVIEW
    assert workflow.members(done, before, row) == {"status": "done"}
    released = copy.copy(before)
    released.status, released.assigned_to, released.claimed_at = PENDING, None, None
    assert workflow.members(released, before, row) == {"status": "open"}


def test_ids_are_counted_on_from_the_highest_as_wide_as_they_are() -> None:
    assert workflow.next_ids([]) == ["task-001"]
    assert workflow.next_ids(["task-001", "task-007", "other", "task-x", "task-٣"], 2) == ["task-008", "task-009"]
    assert workflow.next_ids(["task-999"], 2) == ["task-1000", "task-1001"]
    assert workflow.next_ids(["task-00041"]) == ["task-00042"]


# -- any text, any document

texts = st.one_of(
    st.lists(st.sampled_from(["a", "b c", "\n", "\n\n", "Verification: ", "\n\nVerification: ", "é"]), min_size=1).map(
        "".join
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
)


@given(texts)
def test_a_description_reads_back_as_it_was_given(text: str) -> None:
    made = workflow.element(BoardTask("task-001", text))
    assert workflow.decode(json.loads(json.dumps(made))).description == text


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=3,
)
times = st.one_of(st.none(), st.just("2026-02-11T14:30:05+09:00"), st.just("2026-02-11T05:30:05.25Z"))
sound: dict[str, st.SearchStrategy[Any]] = {
    "status": st.sampled_from(list(workflow.STATUSES)),
    "title": st.one_of(st.none(), texts),
    "description": st.one_of(st.none(), texts),
    "verification": st.one_of(st.none(), texts),
    "depends_on": st.lists(texts, max_size=2),
    "deliverables": st.lists(texts, max_size=2),
    "claimed_by": st.one_of(st.none(), texts),
    "claimed_at": times,
    "done_at": times,
    "note": st.one_of(st.none(), texts),
    "x-unknown": anything,
}
rows = st.lists(st.fixed_dictionaries({}, optional=sound), min_size=1, max_size=4).map(
    lambda found: [{"id": f"task-{at:03d}", **row} for at, row in enumerate(found)]
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "status": st.sampled_from([PENDING, IN_PROGRESS, REVIEW, COMPLETED]),
    "assigned_to": st.one_of(st.none(), texts),
    "claimed_at": st.one_of(st.none(), st.integers(0, 4_000_000_000_000_000).map(lambda micros: micros / 1_000_000)),
    "completed_at": st.one_of(st.none(), st.integers(0, 4_000_000_000).map(float)),
    "depends_on": st.lists(texts, max_size=3),
    "paths": st.lists(texts, max_size=3),
    "result": st.one_of(st.none(), texts),
    "description": texts,
}


@given(rows, st.sampled_from([2, 4, None]), st.integers(0, 99), st.fixed_dictionaries({}, optional=fields))
@examples(200)
def test_a_changed_task_reads_back_and_nothing_else_changes(
    found: list[dict[str, Any]], indent: int | None, at: int, fresh: dict[str, Any]
) -> None:
    at %= len(found)
    document: JsonList = parse(json.dumps({"version": 1, "tasks": found}, indent=indent).encode())
    old = document.copy()
    before = workflow.decode(document.rows[at])
    task = copy.copy(before)
    for field, value in fresh.items():
        setattr(task, field, value)
    document.replace(at, workflow.members(task, before, document.rows[at]))
    newer = parse(document.render(), old)
    back = workflow.decode(newer.rows[at])
    if task.status is COMPLETED and before.completed_at is not None:
        task.completed_at = before.completed_at
    task.token = back.token
    assert back == task
    if task.claimed_at is not None:
        assert back.token == round(task.claimed_at * 1_000_000)
    assert newer.changed_from(old) in ([], [at])
    assert newer.rows[at].get("x-unknown") == found[at].get("x-unknown")
    known = list(found[at])
    assert list(newer.rows[at])[: len(known)] == known
    assert document._texts[:at] + document._texts[at + 1 :] == old._texts[:at] + old._texts[at + 1 :]


@given(st.dictionaries(st.sampled_from(list(sound)), anything, max_size=5))
def test_any_element_is_read_or_refused(row: dict[str, Any]) -> None:
    try:
        task = workflow.decode({"id": "task-001", **row}, row)
    except BoardUnusable:
        return
    assert workflow.members(task, task, row) == {}
