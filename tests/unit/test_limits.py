"""The limits of input: what passes comes back as it was, what does not is an `Invalid` that says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import limits
from dibs.errors import Invalid
from dibs.rules.paths import normalise

KIB = 1024
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.integers()),
    st.just(object()),
)


def accepts(check: Callable[..., Any], *arguments: Any) -> bool:
    """A check gives its value back or raises `Invalid`; never anything else."""
    try:
        check(*arguments)
    except Invalid as error:
        if not str(error).isprintable():
            raise AssertionError("an error must be fit for a terminal, whatever was given") from error
        return False
    return True


@pytest.mark.parametrize("text", ["x" * 64 * KIB, "é" * 32 * KIB, "🎉" * 16 * KIB], ids=["1", "2", "4"])
def test_text_may_have_64_kib_and_no_more(text: str) -> None:
    assert limits.text(text, "description") is text
    with pytest.raises(Invalid, match="the limit is 65,536"):
        limits.text(text + "x", "description")


def test_text_may_not_be_empty_unless_that_is_said() -> None:
    for blank in ("", " ", "\n\t"):
        with pytest.raises(Invalid, match="empty"):
            limits.text(blank, "description")
        assert limits.text(blank, "note", empty=True) == blank


@given(st.one_of(st.text(), anything))
def test_text_is_exactly_valid_unicode_without_nul(value: object) -> None:
    good = isinstance(value, str) and bool(value.strip()) and "\0" not in value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            good = False
    assert accepts(limits.text, value, "description") is good


@given(st.one_of(st.text(max_size=140), st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True), anything))
def test_an_id_has_1_to_128_safe_characters_and_a_safe_start(value: object) -> None:
    good = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", value) is not None
    assert accepts(limits.task_id, value) is good


@pytest.mark.parametrize(
    "bad", ["", ".", "..", ".x", "-x", "a/b", "a\\b", "a b", "a\n", "é", "ａ", "x" * 129, None, 5, b"a", ["a"]]
)
def test_ids_that_could_mean_something_to_a_shell_or_a_file_system_are_refused(bad: object) -> None:
    with pytest.raises(Invalid, match="is not a task id"):
        limits.task_id(bad)


@given(st.one_of(st.text(max_size=250), anything))
def test_a_name_is_one_printable_line(value: object) -> None:
    good = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value == value.strip()
    assert accepts(limits.name, value) is good


@given(anything, st.integers(-5, 5), st.integers(6, 20))
def test_a_whole_number_lies_within_its_bounds(value: object, least: int, most: int) -> None:
    good = type(value) is int and least <= value <= most
    assert accepts(limits.integer, value, "n", least, most) is good


@given(st.one_of(st.floats(), st.integers(), anything))
def test_seconds_are_a_finite_number_above_zero(value: object) -> None:
    good = type(value) in (int, float) and 0 < value <= limits.LONGEST_LEASE  # type: ignore[operator]
    assert accepts(limits.seconds, value, "lease") is good


def test_seconds_come_back_as_a_float() -> None:
    assert type(limits.seconds(5, "lease")) is float


@pytest.mark.parametrize("value", [None, [], ["a"], ("a", "b"), {"a"}, frozenset("a")])
def test_a_list_may_come_in_any_collection(value: Any) -> None:
    assert sorted(limits.texts(value, "labels")) == sorted(value or [])


def test_a_list_keeps_its_order_and_drops_repeats() -> None:
    assert limits.texts(["b", "a", "b", "c", "a"], "labels") == ["b", "a", "c"]


@pytest.mark.parametrize("value", ["abc", b"abc", 5, {"a": 1}, iter(["a"])])
def test_a_bare_string_or_number_is_not_a_list(value: object) -> None:
    with pytest.raises(Invalid, match="must be a list"):
        limits.texts(value, "labels")


def test_a_list_has_at_most_ten_thousand_entries() -> None:
    assert len(limits.texts([str(i) for i in range(10_000)], "labels")) == 10_000
    with pytest.raises(Invalid, match="10,000"):
        limits.texts([str(i) for i in range(10_001)], "labels")


def test_a_choice_is_one_of_those_offered() -> None:
    assert limits.kind("human") == "human"
    wrongs: list[object] = ["wizard", "", None, ["agent"], {}]
    for wrong in wrongs:
        with pytest.raises(Invalid, match="agent, human, system"):
            limits.kind(wrong)


fields = st.dictionaries(
    st.sampled_from([*sorted(limits._FIELDS), "status", "token"]),
    st.one_of(anything, st.lists(st.one_of(st.text(), anything), max_size=3)),
    max_size=5,
)


@given(fields)
def test_any_definition_makes_a_pending_task_or_is_refused(given_fields: dict[str, Any]) -> None:
    if accepts(limits.new_task, given_fields, normalise):
        task = limits.new_task(given_fields, normalise)
        assert task.status == "pending"
        assert task.description == given_fields["description"]
        assert task.token is None


def test_a_definition_cannot_set_what_only_verbs_may() -> None:
    for name in (
        "status",
        "token",
        "assigned_to",
        "holder",
        "attempts",
        "unmet",
        "seq",
        "result",
        "created_at",
        "blockers",
    ):
        with pytest.raises(Invalid, match=name):
            limits.new_task({"description": "x", name: 1}, normalise)


def test_a_definition_without_a_description_is_refused() -> None:
    with pytest.raises(Invalid, match="needs a description"):
        limits.new_task({}, normalise)
