"""Claude Code: locks are enforced, the project's own server does not come in, what is allowed is little."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from dibs.pool.runners import make_runner
from tests.pool.standins.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.close()


def test_an_edit_of_what_another_worker_holds_is_denied_and_its_own_is_not(stage: Stage) -> None:
    order = stage.order()
    report = stage.run(make_runner("claude").launch(order), order)
    answer = json.loads(report["edits"]["held.txt"])
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "held by bob" in answer["hookSpecificOutput"]["permissionDecisionReason"]
    assert report["edits"]["own.txt"] == "allowed"


def test_a_server_of_the_project_gives_the_agent_no_second_identity(stage: Stage) -> None:
    wrong = {"command": "dibs", "args": ["mcp"], "env": {"DIBS_AGENT": "somebody-else"}}
    (stage.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"dibs": wrong}}))
    order = stage.order()
    stage.run(make_runner("claude").launch(order), order)
    stage.check_identity()


def test_nothing_runs_unasked_but_dibs_and_git_that_stays_here(stage: Stage) -> None:
    launch = make_runner("claude").launch(stage.order())
    rules = launch.argv[launch.argv.index("--allowedTools") + 1].split(",")
    assert rules[0] == "mcp__dibs"
    assert all(rule.startswith("Bash(git ") for rule in rules[1:])
    for verb in ("push", "-c", "config", "reset", "checkout", "*)"):
        assert not any(rule.startswith(f"Bash(git {verb}") for rule in rules)
    assert "bypassPermissions" not in launch.argv


@pytest.mark.parametrize("verb", ["diff", "log", "show"])
def test_git_that_only_looks_is_not_told_a_file_to_write(stage: Stage, verb: str) -> None:
    """`git log --output=FILE` writes anywhere. Claude Code asks the rules that deny first; its `*` is any text."""
    launch = make_runner("claude").launch(stage.order())
    settings = json.loads(Path(launch.argv[launch.argv.index("--settings") + 1]).read_text())
    rules = [rule.removeprefix("Bash(").removesuffix(")") for rule in settings["permissions"]["deny"]]
    for words in (f"{verb} --output=/home/me/.profile", f"{verb} -1 -p --output x", f"{verb} --output x HEAD"):
        assert any(fnmatchcase(f"git {words}", rule) for rule in rules), words
    for words in (verb, f"{verb} --oneline -3", "commit -m 'log: --output is denied'", "add --output"):
        assert not any(fnmatchcase(f"git {words}", rule) for rule in rules), words


def test_the_user_s_arguments_have_the_last_word(stage: Stage) -> None:
    more = ["--allowedTools", "Bash(make *)"]
    order = stage.order()
    launch = make_runner("claude", args=more).launch(order)
    assert launch.argv[-2:] == more
    rules = stage.run(launch, order)["rules"]
    assert (rules[0], rules[-1]) == ("mcp__dibs", "Bash(make *)")
