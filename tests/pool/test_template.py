"""Any command as an agent: placeholders, quoting, what is refused and how that is said."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import Invalid, Unsupported
from dibs.pool.runners import Launch, Order, make_runner
from tests.pool.standins.stage import Stage

SHOW = "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]))"


@pytest.fixture
def order(tmp_path: Path) -> Order:
    env = {"DIBS_AGENT": "worker-3", "DIBS_BOARD": "sqlite:board.db"}
    return Order(
        "do\nit", name="worker-3", role="worker", workspace="/w s", folder=str(tmp_path), server=["dibs"], env=env
    )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.close()


def test_placeholders_are_filled_word_by_word(order: Order) -> None:
    line = "agent --say={prompt} '{name} the {role}' {workspace} -m {model} {{}} plain"
    launch = make_runner(line, model="best one").launch(order)
    assert launch.argv == ["agent", "--say=do\nit", "worker-3 the worker", "/w s", "-m", "best one", "{}", "plain"]
    assert launch.stdin is None


def test_a_list_is_taken_as_it_is(order: Order) -> None:
    launch = make_runner(["agent", "a b", '"{name}"', "$HOME; rm *"], args=["{as it is}"]).launch(order)
    assert launch.argv == ["agent", "a b", '"worker-3"', "$HOME; rm *", "{as it is}"]
    assert launch.stdin == "do\nit", "neither {prompt} nor {prompt_file} occurs"


def test_what_is_filled_in_is_not_looked_at_again(order: Order) -> None:
    order.prompt = "{model} {nonsense} {{"
    assert make_runner(["agent", "{prompt}"]).launch(order).argv == ["agent", "{model} {nonsense} {{"]


def test_the_prompt_file_is_the_pool_s_or_one_of_this_start(order: Order) -> None:
    launch = make_runner("agent {prompt_file}").launch(order)
    file = Path(launch.argv[1])
    assert file.read_text() == "do\nit"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    order.env["DIBS_PROMPT_FILE"] = "/there/prompt"
    assert make_runner("agent {prompt_file}").launch(order).argv == ["agent", "/there/prompt"]


def test_the_mcp_config_is_in_the_form_that_most_clients_read(order: Order) -> None:
    file = Path(make_runner("agent {mcp_config}").launch(order).argv[1])
    entry = {"type": "stdio", "command": "dibs", "args": ["mcp"], "env": order.env}
    assert json.loads(file.read_text()) == {"mcpServers": {"dibs": entry}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_shell_runs_it(stage: Stage) -> None:
    order = stage.order("; touch gone #")
    line = shlex.join([sys.executable, "-c", SHOW.replace("{", "{{").replace("}", "}}")]) + " {prompt} '$HOME' `x` *"
    runner = make_runner(line)
    runner.check()
    done = stage.start(runner.launch(order), order)
    assert json.loads(done.stdout) == [["; touch gone #", "$HOME", "`x`", "*"], ""]


def test_a_command_that_speaks_mcp_works_as_the_agent_that_was_ordered(stage: Stage) -> None:
    code = (
        "import json, sys; from tests.pool.standins.acting import act\n"
        "entry = json.load(open(sys.argv[1]))['mcpServers']['dibs']\n"
        "import os; act(entry, dict(os.environ, **entry['env']), [])"
    )
    order = stage.order()
    stage.run(make_runner([sys.executable, "-c", code, "{mcp_config}"]).launch(order), order)
    stage.check_identity()


@given(st.text(max_size=40))
def test_a_line_is_a_runner_or_refused_with_a_reason(line: str) -> None:
    try:
        said = make_runner(line).name
    except Invalid as error:
        said = error.hint
    assert said


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_doubled_braces_are_braces(words: list[str]) -> None:
    doubled = ["agent", *(word.replace("{", "{{").replace("}", "}}") for word in words)]
    order = Order("p", name="n", role="worker", workspace="/", folder="/none", server=["dibs"], env={})
    launch: Launch = make_runner(doubled).launch(order)
    assert launch.argv == ["agent", *words]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("agent {promt}", "did you mean {prompt}?"),
        ("agent {prompt-file}", "did you mean {prompt_file}?"),
        ("agent {PROMPT}", "did you mean {prompt}?"),
        ("agent {}", "there are {prompt}, {prompt_file}"),
        ("agent {", "a brace is written twice"),
        ("agent a}b", "a brace is written twice"),
        ("agent 'open", "cannot be split into words: no closing quotation"),
        ("agent \\", "cannot be split into words: no escaped character"),
        ("", "the agent's command is empty"),
        ("  ", "the agent's command is empty"),
        ([], "the agent's command is empty"),
        ([""], "the agent's command is empty"),
        (["agent", 3], "3 is not an argument"),
        (["agent", "a\0b"], "is not an argument"),
        ("agent {model}", "no model was given"),
        ("cluade", "did you mean claude?"),
        ("Codex", "did you mean codex?"),
        (7, "7 is no agent"),
        (None, "None is no agent"),
    ],
)
def test_what_cannot_be_meant_is_refused(command: Any, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        make_runner(command)
    assert said in str(caught.value)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(Unsupported, match="there is no program 'no-such-agent'"):
        make_runner("no-such-agent {prompt}").check()


def test_a_relative_program_is_that_of_the_folder_the_team_is_started_in(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unsupported, match="there is no file"):
        make_runner("./agent.sh {prompt}").check()
    agent = tmp_path / "agent.sh"
    agent.write_text("#!/bin/sh\n")
    with pytest.raises(Unsupported, match="not executable") as refused:
        make_runner("./agent.sh {prompt}").check()
    assert "chmod +x" in str(refused.value.hint)
    with pytest.raises(Unsupported, match="no program") as refused:
        make_runner("agent.sh {prompt}").check()
    assert "did you mean ./agent.sh?" in str(refused.value.hint)
    agent.chmod(0o755)
    runner = make_runner("./agent.sh {prompt}")
    runner.check()
    monkeypatch.chdir("/")
    assert runner.launch(order).argv[0] == str(agent)
    make_runner("{workspace}/agent.sh").check()  # known when it is started


def test_a_prompt_that_no_argument_holds_is_refused_with_the_way_out(order: Order) -> None:
    order.prompt = "a\0b"
    with pytest.raises(Invalid, match="NUL"):
        make_runner("agent {prompt}").launch(order)
    if sys.platform != "linux":
        pytest.skip("only Linux limits one argument")
    order.prompt = "x" * 131_071
    make_runner(["true", "{prompt}"]).launch(order)
    order.prompt += "x"
    with pytest.raises(Invalid, match=r"\{prompt_file\} in place of \{prompt\}"):
        make_runner("agent {prompt}").launch(order)


def test_a_runner_is_taken_as_it_is() -> None:
    runner = make_runner("true")
    assert make_runner(runner) is runner
