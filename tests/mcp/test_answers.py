"""The words of the tools."""

from __future__ import annotations

import pytest

from dibs.errors import Busy, LeaseLost
from dibs.mcp.answers import as_text, cut, from_text, in_tools, refusal


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("take other work with: dibs claim; or ask: dibs tell bob 'what you need'",
         "take other work with: claim_task; or ask: send_message to=bob"),
        ("claim it again first: dibs claim 3f2a", "claim it again first: claim_task task_id=3f2a"),
        ("see what happened: dibs show 3f2a", "see what happened: list_tasks task_id=3f2a"),
        ("see what there is: dibs list --all", "see what there is: list_tasks"),
        ("see who holds what: dibs locks", "see who holds what: list_tasks status=in_progress"),
        ("when finished: dibs done 3f2a 'what you did'", "when finished: complete_task task_id=3f2a"),
        ("it goes with the task: dibs done 3f2a, or dibs release 3f2a",
         "it goes with the task: complete_task task_id=3f2a, or release_task task_id=3f2a"),
        ("make one with: dibs init", "make one with: dibs init"),
        ("it can be put back with: dibs retry 3f2a", "leave it closed and take other work: claim_task"),
    ],
)  # fmt: skip
def test_hints_name_tools_where_there_are_some(hint: str, said: str) -> None:
    assert in_tools(hint) == said


def test_an_error_carries_its_fields_and_no_empty_ones() -> None:
    assert refusal(LeaseLost("gone", hint="dibs claim", holder="bob", token=7, status=None)) == {
        "success": False,
        "error": "gone",
        "hint": "claim_task",
        "code": "lease_lost",
        "holder": "bob",
        "token": 7,
    }
    assert refusal(Busy("busy")) == {"success": False, "error": "busy", "code": "busy"}


def test_half_a_character_cannot_break_the_connection() -> None:
    text = as_text({"a": "half \ud83d", "b": "\u2028 é \x00"})
    assert text.encode()
    assert from_text(text) == {"a": "half ?", "b": "\u2028 é \x00"}


def test_what_is_cut_shows_it() -> None:
    assert cut("x" * 5, 5) == "xxxxx"
    assert cut("x" * 6, 5) == "xxxxx…"
