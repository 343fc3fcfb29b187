"""Who acts: names, kinds and sessions, as the environment of people and agents gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.shell import Shell


def holder(shell: Shell, task: str) -> Any:
    lines = shell.ok("log", "--task", task, "--json").out.splitlines()
    return json.loads(lines[-1])["data"]["set"]["holder"]


def test_a_name_is_an_agent_and_the_login_name_a_human(shell: Shell) -> None:
    task = shell.add("x")
    shell.ok("claim", "--as", "bob")
    assert (holder(shell, task)["name"], holder(shell, task)["kind"]) == ("bob", "agent")
    shell.ok("release", "--as", "bob")
    nameless = Shell(shell.folder, LOGNAME="ann")
    del nameless.environ["DIBS_AGENT"]
    nameless.ok("claim")
    assert (holder(shell, task)["name"], holder(shell, task)["kind"]) == ("ann", "human")
    nameless.ok("release")
    shell.ok("claim", "--as", "bob", "--human")
    assert holder(shell, task)["kind"] == "human"
    shell.ok("release", "--as", "bob")
    shell.ok("claim", DIBS_KIND="human")
    assert (holder(shell, task)["name"], holder(shell, task)["kind"]) == ("worker-1", "human")


def test_as_wins_over_the_environment(shell: Shell) -> None:
    task = shell.add("x")
    shell.ok("--as", "bob", "claim", DIBS_AGENT="carl")
    assert holder(shell, task)["name"] == "bob"


@pytest.mark.parametrize("variable", ["DIBS_SESSION", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID"])
def test_two_sessions_of_one_name_are_two_workers(shell: Shell, variable: str) -> None:
    task = shell.add("x")
    first, second = Shell(shell.folder, **{variable: "s1"}), Shell(shell.folder, **{variable: "s2"})
    claimed = first.ok("claim", "--json").json
    for words in (["done", task], ["fail", task, "x"], ["release", task], ["renew", task], ["step", task, "done"]):
        refused = second(*words, "--json")
        assert refused.code == 1, words
        assert refused.error["code"] == "not_holder"
        assert "in another session" in refused.error["message"]
    assert second("claim", task).code == 1
    assert "another session" in second("done").err
    assert shell.ok("list", "--json").json["tasks"][0]["token"] == claimed["token"]
    assert first.ok("done", "--json").json["status"] == "completed"


def test_dibs_session_wins_over_the_clients_own(shell: Shell) -> None:
    task = shell.add("x")
    shell.ok("claim", DIBS_SESSION="ours", CLAUDE_CODE_SESSION_ID="theirs")
    assert holder(shell, task)["session"] == "ours"


def test_without_a_session_the_name_alone_is_the_worker(shell: Shell) -> None:
    """An agent's shell may be a new process on every call."""
    task = shell.add("x")
    shell.ok("claim")
    assert "session" not in holder(shell, task)
    assert shell("done", task, "--as", "somebody").code == 1
    assert shell.ok("done", "--json").json["id"] == task


def test_the_same_session_claims_again_what_it_holds(shell: Shell) -> None:
    task = shell.add("x")
    first = shell.ok("claim", task, "--json", DIBS_SESSION="s1").json
    again = shell.ok("claim", task, "--json", DIBS_SESSION="s1").json
    assert again["token"] == first["token"]


def test_names_that_begin_alike_are_different_workers(shell: Shell) -> None:
    task = shell.add("x")
    shell.ok("claim", "--as", "writer-2")
    assert shell("done", task, "--as", "writer").code == 1
    assert shell.ok("list", "--mine", "--as", "writer", "--json").json["total"] == 0


def test_a_reserved_task_goes_to_its_kind(shell: Shell) -> None:
    task = shell.add("x", "--for", "human")
    assert shell("claim").code == 3
    assert "reserved for a human" in shell("claim", task).err
    assert shell.ok("claim", "--human", "--json").json["id"] == task


@pytest.mark.parametrize("name", ["", " bob", "a\nb", "\x1b[31mx", "x" * 300])
def test_what_cannot_be_a_name_is_refused(shell: Shell, name: str) -> None:
    shell.add("x")
    refused = shell("claim", f"--as={name}")
    assert refused.code == 1
    assert ("is not a worker name" if name else "name is empty") in refused.err


def test_a_message_is_read_by_each_session_once(shell: Shell) -> None:
    shell.ok("tell", "bob", "hello", "--as", "ann")
    for session in ("s1", "s2"):
        assert len(shell.ok("inbox", "--as", "bob", "--json", DIBS_SESSION=session).json["messages"]) == 1
        assert len(shell.ok("inbox", "--as", "bob", "--json", DIBS_SESSION=session).json["messages"]) == 0


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
@pytest.mark.parametrize("how", ["--as", "DIBS_AGENT"])
@pytest.mark.parametrize("words", [["claim"], ["add", "y"], ["lock", "a.py"], ["tell", "--all", "hi"]], ids=" ".join)
def test_an_empty_name_is_refused_and_changes_nothing(shell: Shell, how: str, blank: str, words: list[str]) -> None:
    shell.add("x")
    before = shell.ok("export").out
    refused = shell("--as", blank, *words) if how == "--as" else shell(*words, DIBS_AGENT=blank)
    assert refused.code == 1, refused
    assert refused.err.startswith("dibs: the worker's name is empty")
    assert refused.out == ""
    assert shell.ok("export").out == before


def test_an_empty_name_is_an_error_object_under_json(shell: Shell) -> None:
    refused = shell("--as", "", "claim", "--json")
    assert refused.code == 1
    assert refused.error["code"] == "invalid"
    assert "unset DIBS_AGENT" in refused.error["hint"]
