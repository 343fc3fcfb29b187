"""The Claude Agent SDK as a runner. The SDK itself is optional and large; where it is, it drives a stand-in CLI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dibs.errors import Invalid, Unsupported
from dibs.pool.runners import make_runner
from dibs.pool.runners.sdk import PACKAGE, options_of
from tests.pool.standins.stage import Stage

INSTALLED = find_spec(PACKAGE) is not None
with_sdk = pytest.mark.skipif(
    not INSTALLED, reason="claude-agent-sdk is not installed (350 MB, so it is no part of dev): pip install 'dibs[sdk]'"
)
without_sdk = pytest.mark.skipif(INSTALLED, reason="claude-agent-sdk is installed")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.close()


@with_sdk
def test_an_agent_of_the_sdk_works_as_the_agent_that_was_ordered(stage: Stage) -> None:
    cli = ["--cli-path", str(stage.bin / "claude"), "--max-turns", "7"]
    runner = make_runner("claude-sdk", model="the best", args=cli)
    runner.check()
    order = stage.order("do it\n" * 50_000)
    done = stage.start(runner.launch(order), order)
    assert done.returncode == 0, done.stderr
    tool, said = done.stdout.splitlines()
    assert tool == "[mcp__dibs__claim_task]"
    report = json.loads(said)
    assert report["prompt"] == order.prompt
    assert report["model"] == ["the best"]
    assert "--max-turns" in report["argv"]
    assert "held by bob" in report["edits"]["held.txt"]
    assert report["edits"]["own.txt"] == "allowed"
    assert order.env["DIBS_BOARD"] not in " ".join(report["argv"])
    stage.check_identity()


@with_sdk
def test_a_result_that_is_an_error_is_one_of_the_agent_too(stage: Stage) -> None:
    order = stage.order("fail, please")
    cli = ["--cli-path", str(stage.bin / "claude")]
    done = stage.start(make_runner("claude-sdk", args=cli).launch(order), order)
    assert done.returncode == 1
    assert "the agent failed" in done.stderr
    assert "Traceback" not in done.stderr


@with_sdk
def test_a_claude_code_that_refuses_is_reported(stage: Stage) -> None:
    order = stage.order()
    cli = ["--cli-path", str(stage.bin / "claude"), "--no-such-thing"]
    done = stage.start(make_runner("claude-sdk", args=cli).launch(order), order)
    assert done.returncode == 1
    assert "unknown option '--no-such-thing'" in done.stderr


@without_sdk
def test_without_the_package_it_says_how_to_install_it(stage: Stage) -> None:
    runner = make_runner("claude-sdk")
    with pytest.raises(Unsupported, match=r"pip install 'dibs\[sdk\]'"):
        runner.check()
    order = stage.order()
    done = stage.start(runner.launch(order), order)
    assert done.returncode == 1
    assert "the agent failed: ModuleNotFoundError: No module named 'claude_agent_sdk'" in done.stderr


def test_what_the_agent_is_told_lies_in_files(stage: Stage) -> None:
    order = stage.order()
    launch = make_runner("claude-sdk").launch(order)
    assert launch.stdin == order.prompt
    assert launch.argv[1:4] == ["-P", "-m", "dibs.pool.runners.sdk_agent"]
    told = json.loads(Path(launch.argv[4]).read_text())
    assert told["cwd"] == order.workspace
    assert told["permission_mode"] == "acceptEdits"
    assert json.loads(Path(told["mcp_servers"]).read_text())["mcpServers"]["dibs"]["env"] == order.env
    assert "PreToolUse" in json.loads(Path(told["settings"]).read_text())["hooks"]


def test_arguments_become_options() -> None:
    assert options_of(["--max-turns", "5", "--verbose", "--effort=high"]) == {
        "max-turns": "5",
        "verbose": None,
        "effort": "high",
    }
    for wrong in (["5"], ["--a", "b", "c"], ["-p"]):
        with pytest.raises(Invalid, match="belongs to no option"):
            options_of(wrong)


def test_another_claude_code_must_be_there(tmp_path: Path) -> None:
    runner = make_runner("claude-sdk", args=["--cli-path", str(tmp_path / "none")])
    with pytest.raises(Unsupported):
        runner.check()
