"""Codex: values in TOML, names of variables instead of values, a sandbox, hooks only on the user's word."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.pool.runners import make_runner
from dibs.pool.runners.codex import git_directories, toml
from tests.pool.standins.stage import Stage

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    TEXT | st.booleans() | st.integers(-(2**31), 2**31),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=10,
)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.close()


@given(VALUES)
def test_every_value_is_written_as_toml_on_one_line(value: Any) -> None:
    text = toml(value)
    assert "\n" not in text
    assert tomllib.loads(f"_x_ = {text}")["_x_"] == value


def test_it_runs_in_the_sandbox_and_hooks_are_left_to_the_user_s_trust(stage: Stage) -> None:
    order = stage.order()
    report = stage.run(make_runner("codex").launch(order), order)
    assert report["edits"] == {"held.txt": "not asked", "own.txt": "not asked"}
    assert not any(word.startswith("hooks.") for word in report["argv"])
    assert report["sandbox"] == ["workspace-write"]
    assert report["writable"] is None, "the git directory stays as the sandbox has it"


def test_with_the_user_s_word_for_all_hooks_ours_run(stage: Stage) -> None:
    order = stage.order()
    report = stage.run(make_runner("codex", args=["--dangerously-bypass-hook-trust"]).launch(order), order)
    assert "held by bob" in json.loads(report["edits"]["held.txt"])["hookSpecificOutput"]["permissionDecisionReason"]
    assert report["edits"]["own.txt"] == "allowed"


def test_in_a_linked_worktree_it_can_commit(stage: Stage) -> None:
    linked = stage.folder / "linked"
    stage.git("worktree", "add", "-q", str(linked))
    order = stage.order(workspace=linked)
    report = stage.run(make_runner("codex").launch(order), order)
    asked = ["git", "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir"]
    said = subprocess.run(asked, cwd=linked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert report["writable"] == said
    stage.check_identity()


def test_outside_a_repository_there_is_no_git_directory(tmp_path: Path) -> None:
    assert git_directories(str(tmp_path)) == []
