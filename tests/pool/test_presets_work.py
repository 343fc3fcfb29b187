"""Every preset hands its client what it needs to work as the agent that was ordered; stand-ins check it strictly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.errors import Invalid, Unsupported
from dibs.pool.runners import make_runner
from tests.pool.standins.stage import CLIENTS, Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_works_as_the_agent_that_was_ordered(client: str, stage: Stage) -> None:
    runner = make_runner(client)
    runner.check()
    order = stage.order("do the work")
    report = stage.run(runner.launch(order), order)
    assert report["prompt"] == "do the work"
    assert report["model"] is None
    assert report["cwd"] == str(stage.workspace)
    assert report["completed"]["success"]
    assert report["edits"]["own.txt"] in ("allowed", "not asked")
    stage.check_identity()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_long_prompt_a_model_and_further_arguments_are_handed_over(client: str, stage: Stage) -> None:
    more = {"claude": ["--max-turns", "5"], "codex": ["--json"], "gemini": ["--debug"]}[client]
    text = "ä\n" * 100_000  # longer than an argument may be
    order = stage.order(text)
    report = stage.run(make_runner(client, model="the best", args=more).launch(order), order)
    assert report["prompt"] == text
    assert report["model"] == ["the best"]
    assert set(more) <= set(report["argv"])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_further_argument_that_the_client_does_not_know_ends_it(client: str, stage: Stage) -> None:
    order = stage.order()
    done = stage.start(make_runner(client, args=["--no-such-thing"]).launch(order), order)
    assert done.returncode == 2
    assert "--no-such-thing" in done.stderr


@pytest.mark.parametrize("client", [*CLIENTS, "claude-sdk"])
def test_a_password_is_on_no_command_line_and_in_no_readable_file(client: str, stage: Stage) -> None:
    order = stage.order(DIBS_BOARD="postgres://me:hush-hush@db.example.org/team")
    launch = make_runner(client).launch(order)
    assert not any("hush" in word for word in launch.argv)
    files = [Path(top) / name for top, _, names in os.walk(order.folder) for name in names]
    for file in files:
        assert "hush" not in file.read_text() or file.stat().st_mode & 0o077 == 0, file
    assert Path(order.folder).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_value_with_a_dollar_reaches_the_server_as_it_is(client: str, stage: Stage) -> None:
    """Clients put variables into configurations; a value that could be taken for one stays out of them."""
    name = "worker-$HOME-${USER}"
    with stage.board.store.write() as tx:
        tx.set_mark(name, 1)  # a reader from before names were limited
    order = stage.order(DIBS_AGENT=name)
    stage.run(make_runner(client).launch(order), order)
    assert stage.board.get(stage.task).assigned_to == name


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_is_not_there_is_named_with_how_to_install_it(
    client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match=f"no {client} on the PATH") as caught:
        make_runner(client).check()
    assert "npm install -g @" in caught.value.hint


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_is_written_outside_the_order_s_folder(client: str, stage: Stage) -> None:
    def files() -> dict[Path, float]:
        tops = (stage.workspace, stage.home)
        return {path: path.stat().st_mtime_ns for top in tops for path in top.rglob("*") if ".dibs" not in path.parts}

    (stage.home / ".gemini").mkdir()
    (stage.home / ".gemini" / "settings.json").write_text("{}")
    before = files()
    make_runner(client).launch(stage.order())
    assert files() == before


def test_a_model_that_is_none_is_refused() -> None:
    for model in ("", " ", "--yolo", "a\0b"):
        with pytest.raises(Invalid, match="is no model"):
            make_runner("claude", model=model)


def test_arguments_are_a_list() -> None:
    with pytest.raises(Invalid, match="a list, not a string"):
        make_runner("claude", args="--max-turns 5")
    with pytest.raises(Invalid, match="is not an argument"):
        make_runner("claude", args=["--max-turns", 5])  # type: ignore[list-item]
