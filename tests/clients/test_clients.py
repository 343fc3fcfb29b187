"""The real coding clients in a team of dibs, with a scripted model in place of their vendors': they claim, are denied
the file of another worker, write their own, commit and complete. `make test-clients` installs them and runs this.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.script import LAST_WORDS, WORKERS, Script, chapter, page, written
from tests.clients.stage import CHECK, TASKS, Stage

pytestmark = pytest.mark.slow

MAKE_TEST = "make test"
GREEN = "the tests are green"
UNSEEN_HOOKS = "--agent-arg=--dangerously-bypass-hook-trust"
"""Codex runs no hook that its user has not trusted."""
UNASKED = {
    "claude": "requires approval",
    "claude-sdk": "requires approval",
    "codex": GREEN,  # it may run what its sandbox allows
    "gemini": "denied by policy",
}
"""What comes of a command that nobody has allowed."""
POLICY = """\
[[rule]]
toolName = "run_shell_command"
commandPrefix = "make test"
decision = "allow"
priority = 100
"""

Staged = Callable[[str], Stage]


@pytest.fixture
def staged() -> Iterator[Staged]:
    made: list[Stage] = []
    # Not in tmp_path: Codex' sandbox has a /dev of its own, where a RAM disk would be, and lets write all of /tmp.
    with tempfile.TemporaryDirectory(prefix="dibs-clients-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:

        def stage(client: str) -> Stage:
            made.append(Stage(Path(folder), client))
            return made[-1]

        yield stage
        for each in made:
            each.close()


@pytest.mark.parametrize("client", UNASKED)
def test_a_client_works_through_the_board(client: str, staged: Staged) -> None:
    stage, script = staged(client), Script([MAKE_TEST])
    code = stage.run(script, "--worktrees", *([UNSEEN_HOOKS] if client == "codex" else []))
    assert (code, stage.faults) == (0, []), stage.story()
    check_done(stage)
    check_committed(stage)
    check_denied(stage, script)
    check_clean(stage)
    check_shell(script, MAKE_TEST, lambda said: UNASKED[client] in said)
    # Gemini CLI lets git run no hook of the repository's: the check of `dibs setup git` is one.
    check_shell(script, "git commit", lambda said: (CHECK in said) is (client != "gemini"))


@pytest.mark.parametrize("client", ["claude", "claude-sdk"])
def test_a_command_that_is_allowed_by_an_argument_runs(client: str, staged: Staged) -> None:
    stage, script = staged(client), Script([MAKE_TEST])
    code = stage.run(script, "--worktrees", "--agent-arg=--allowedTools", "--agent-arg=Bash(make test)")
    assert code == 0, stage.story()
    check_done(stage)
    check_committed(stage)  # what a team allows is allowed beside it
    check_shell(script, MAKE_TEST, lambda said: GREEN in said)


def test_a_command_that_a_policy_of_the_user_s_allows_runs_in_gemini_cli(staged: Staged) -> None:
    stage, script = staged("gemini"), Script([MAKE_TEST])
    stage.users[".gemini/policies/tests.toml"] = POLICY
    code = stage.run(script, "--worktrees")
    assert code == 0, stage.story()
    check_done(stage)
    check_committed(stage)
    check_shell(script, MAKE_TEST, lambda said: GREEN in said)
    check_clean(stage)


def test_codex_cannot_commit_in_the_user_s_own_folder_and_its_untrusted_hooks_are_silent(staged: Staged) -> None:
    stage, script = staged("codex"), Script()
    code = stage.run(script)
    assert code == 0, stage.story()
    check_done(stage)
    assert stage.left() == []
    check_shell(script, "git add", lambda said: "Read-only file system" in said)
    for worker in WORKERS:
        for task in stage.result(worker)["tasks"]:
            assert (stage.work / chapter(task)).read_text() == written(task, worker) + "\n"
    assert stage.spoilt() == sorted(page(task) for task in script.first_claims())


def check_done(stage: Stage) -> None:
    """Both workers did something, in one start each, and the board says who did what."""
    assert stage.summary["ending"] == "done", stage.story()
    done = {worker: stage.result(worker) for worker in WORKERS}
    assert sorted(task for result in done.values() for task in result["tasks"]) == sorted(TASKS)
    for worker, result in done.items():
        assert result["tasks"], f"{worker} did nothing: {stage.story()}"
        assert (result["status"], result["runs"], result["exit_code"]) == ("completed", 1, 0)
        assert LAST_WORDS in result["output"]
        for id in result["tasks"]:
            task = stage.board.get(id)
            assert (task.status, task.assigned_to, task.result) == ("completed", worker, f"{id} is written")
    assert stage.board.locks() == []


def check_committed(stage: Stage) -> None:
    """What the board says of it is what git has."""
    for worker in WORKERS:
        for task in stage.result(worker)["tasks"]:
            assert stage.committed(task) == [written(task, worker) + "\n"], stage.story()


def check_denied(stage: Stage, script: Script) -> None:
    for worker, other in zip(WORKERS, reversed(WORKERS), strict=True):
        [answer] = script.answers(worker, "edit")
        assert "dibs: denied, and nothing was changed" in answer
        assert f"is held by {other} for task" in answer
    assert stage.spoilt() == []


def check_shell(script: Script, command: str, is_right: Callable[[str], bool]) -> None:
    """What came of a command, for every worker and every task."""
    answers = [answer for worker in WORKERS for answer in script.shell(worker, command)]
    assert len(answers) == len(TASKS)
    assert [answer for answer in answers if not is_right(answer)] == []


def check_clean(stage: Stage) -> None:
    """No process is left, and no file of the user's or the project's has changed."""
    assert stage.left() == []
    if stage.client == "codex":
        # Codex notes by itself that a project is trusted, as soon as it may write there.
        stage.users[".codex/config.toml"] += f'\n[projects."{stage.work}"]\ntrust_level = "trusted"\n'
    assert stage.touched() == []
