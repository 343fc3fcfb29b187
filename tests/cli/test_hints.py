"""A hint is a command that agents run as it stands. Names, paths and ids that others have put on a board before they
were limited, and the folders that a board lies in, are words in it and nothing more."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

from dibs import TaskBoard, Worker
from dibs.cli.render import hint
from dibs.errors import DibsError, quoted
from dibs.mcp.answers import in_tools
from tests.cli.shell import Result, Shell
from tests.hooks.repository import Repository

EVIL = [
    "x; touch pwned #",
    "$(touch pwned)",
    "`touch pwned`",
    "it's; touch pwned",
    "a\\' ; touch pwned; '",
    "| touch pwned, & touch pwned: (touch pwned)",
]
PATH = "src/$(touch pwned); touch pwned.py"


def old_board(folder: Path, name: str) -> str:
    """A board from before names were limited: an export in which a name and a path were something else, imported."""
    folder.mkdir()
    url = f"sqlite:{folder}/first.db"
    with TaskBoard.open(url, create=True, worker="maker", durability="normal") as board:
        holder = Worker("HOLDER", session="s")
        for task_id in ("held", "handed-in", "failed", "steps", "own", "own2"):
            board.add(task_id, id=task_id, review=task_id == "handed-in", steps=["a"] * (task_id == "steps"))
        board.add("waits", ["failed"], id="waits")
        board.add("held up", ["held"], id="held-up", paths=["PATH"])
        board.add("done", id="done")
        for task_id in ("held", "handed-in", "failed", "steps", "own", "own2", "done"):
            board.claim(Worker("ann", session="a") if task_id.startswith("own") else holder, task_id)
        board.complete("handed-in", "look", worker=holder)
        board.complete("done", "it is", worker=holder)
        board.fail("failed", "no", worker=holder)
        board.block("steps", "so", worker=holder)
        board.lock(["PATH", "docs/**"], holder)
        board.tell("hello", "ann", worker=holder)
    export = folder / "old.jsonl"
    shell = Shell(folder)
    shell.ok("--board", url, "export", str(export))
    text = export.read_text()
    for before, after in (("HOLDER", name), ("PATH", PATH)):
        text = text.replace(before, json.dumps(after)[1:-1])
    export.write_text(text)
    old = f"sqlite:{folder}/old.db"
    shell.ok("--board", old, "import", str(export))
    return old


def is_only_a_word(said: str, *given: str) -> bool:
    """Is each of these in the text nowhere but as one shell word, with nothing of it outside?"""
    for text in given:
        for word in (quoted(text), shlex.quote(text)):
            assert shlex.split(word) == [text]
            said = said.replace(word, "")
    return "pwned" not in said


def hints_of(result: Result) -> str:
    """The indented lines under a refusal: what to do next."""
    return "\n".join(line for line in (result.err + result.out).splitlines() if line.startswith("  "))


REFUSALS = [
    "done held text", "release held", "renew held", "fail held why", "step held done", "claim held", "claim held-up",
    "claim waits", "claim done", "accept held", "accept failed", "reject done why", "retry done", "retry held",
    "cancel held", "unblock held", "unblock failed", "dep held --drop waits", "step done done", "step waits",
    "step waits add",
    "lock PATH", "lock docs/a.md", "lock PATH docs/a.md other.py", "unlock PATH", "unlock docs/a.md",
    "acquire held-up", "acquire held", "recover held", "recover --worker NAME", "release", "done", "done no-such text",
    "renew", "release no-such", "fail own", "tell NAME", "tell NAM hello", "inbox", "log --task held", "show held",
    "show waits", "show held-up", "list",
    "locks", "block held why", "claim -n 5", "add more --id held", "wait --timeout 0", "doctor",
    "claim own", "step own", "dep own", "export PATH",
]  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
def test_a_name_or_a_path_of_an_old_board_is_a_word_in_every_hint(tmp_path: Path, name: str) -> None:
    url = old_board(tmp_path / "it's a folder; touch pwned", name)
    shell = Shell(tmp_path, DIBS_SESSION="a")
    hinted = 0
    for line in REFUSALS:
        words = [{"PATH": PATH, "NAME": name}.get(word, word) for word in line.split()]
        command = ("--board", url, "--as", "ann", *words)
        asked = shell(*command, "--json")
        for document in map(json.loads, filter(lambda each: each[:1] == "{", (asked.out + asked.err).splitlines())):
            for said in hints_in(document):
                assert is_only_a_word(said, name, PATH, f"./{PATH}", url, f"{tmp_path}/{PATH}"), (line, said)
                assert is_only_a_word_for_tools(in_tools(said), name, PATH), (line, in_tools(said))
                hinted += "pwned" in said
        shown = shell(*command)
        if shown.code:
            assert is_only_a_word(hints_of(shown), name, PATH, url), (line, shown)
    assert hinted >= 8  # the sweep meets what it is about
    assert not list(tmp_path.rglob("pwned"))


def hints_in(document: Any) -> list[str]:
    """All hints of a JSON answer, and the texts in it that name a command."""
    if isinstance(document, dict):
        return [text for key, value in document.items() for text in (
            [value] if isinstance(value, str) and (key == "hint" or "dibs tell" in value or "dibs recover" in value)
            else hints_in(value))]  # fmt: skip
    return [text for each in document for text in hints_in(each)] if isinstance(document, list) else []


def is_only_a_word_for_tools(said: str, *given: str) -> bool:
    for text in given:
        said = said.replace(json.dumps(text, ensure_ascii=False), "")
    return is_only_a_word(said, *given)


@pytest.mark.parametrize("name", EVIL)
def test_an_old_worker_may_go_on_under_its_name(tmp_path: Path, name: str) -> None:
    shell = Shell(tmp_path, DIBS_SESSION="s")
    url = old_board(tmp_path / "old", name)
    shell.ok("--board", url, "--as", name, "done", "held", "it is done")
    task = shell.ok("--board", url, "--as", name, "claim", "--json").json
    assert (task["id"], task["assigned_to"]) == ("held-up", name)
    refused = shell("--board", url, "--as", name + "!", "claim", "--json")
    assert refused.code == 1
    assert "letters, digits and . _ - @ + : /" in refused.error["hint"]


def test_no_board_is_made_for_a_name_that_it_would_refuse(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell("--as", EVIL[0], "init").code == 1
    assert not (tmp_path / ".dibs").exists()


def test_a_login_name_becomes_a_name_that_needs_no_quotes(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    del shell.environ["DIBS_AGENT"]
    shell.ok("init", LOGNAME="HOME\\ann lee")
    shell.ok("add", "x", "--id", "x1", LOGNAME="HOME\\ann lee")
    assert shell.ok("claim", "--json", LOGNAME="HOME\\ann lee").json["assigned_to"] == "HOME-ann-lee"


def test_an_id_that_was_put_into_the_file_is_a_word_in_every_hint(tmp_path: Path) -> None:
    evil = "t; touch pwned"
    shell = Shell(tmp_path)
    shell.ok("init")
    shell.ok("add", "first", "--id", "t1", "--priority", "5", "--step", "one")
    with apsw.Connection(str(tmp_path / ".dibs" / "board.db")) as connection:
        connection.execute("UPDATE task SET id = ? WHERE id = 't1'", (evil,))
    for command in (("claim",), ("claim",), ("done",), ("release",), ("step",), ("claim", "-n", "2"), ("list",)):
        said = shell(*command)
        hints = "\n".join(line for line in (said.out + said.err).splitlines() if "dibs " in line)
        assert is_only_a_word(hints.replace(f"dibs: {evil}", ""), evil), (command, said)
    assert "pwned" not in shell.ok("completion", "ids").out  # bash would expand it


def test_a_hook_that_denies_quotes_path_and_holder(tmp_path: Path) -> None:
    repo = Repository(tmp_path)
    repo.prepare()
    board = next(repo.main.rglob("board.db"))
    with TaskBoard.open(f"sqlite:{board}") as opened, opened.store.write() as tx:
        tx.set_mark(EVIL[0], 1)
    repo.dibs("--as", EVIL[0], "lock", PATH, cwd=repo.two, DIBS_SESSION="old")
    event = {
        "hook_event_name": "PreToolUse", "session_id": "s", "cwd": str(repo.one), "tool_name": "Write",
        "tool_input": {"file_path": str(repo.one / PATH), "content": "x"},
    }  # fmt: skip
    said = repo.dibs("hook", "claude", cwd=repo.one, stdin=json.dumps(event)).json["hookSpecificOutput"]
    todo = said["permissionDecisionReason"].splitlines()[-1]
    assert "dibs lock" in todo
    assert is_only_a_word(todo, EVIL[0], PATH), todo


@pytest.mark.parametrize("name", EVIL)
def test_a_quoted_word_is_not_wrapped(name: str) -> None:
    text = f"work on something else, or ask: dibs tell {quoted(name)} 'what you need'; you can't take it"
    for width in (20, 40, 60, 80):
        lines = hint(text, width)
        assert any(quoted(name) in line for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("scheme", ["taskboard", "workflow", "workitems", "bilu", "spec"])
def test_the_folder_of_a_board_is_a_word_in_hints(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "x; touch pwned"
    folder.mkdir()
    with pytest.raises(DibsError) as refused:
        TaskBoard.open(f"{scheme}:{folder}")
    command = refused.value.hint[refused.value.hint.index("dibs ") :]
    assert f"{scheme}:{folder}" in shlex.split(command)
    assert subprocess.run(["sh", "-nc", command], check=False).returncode == 0
