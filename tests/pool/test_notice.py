"""What agents' servers are told of their team."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dibs.pool.notice import VARIABLE, Notice, around


@pytest.fixture
def notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notice:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "team.json"))
    return Notice(str(tmp_path / "team.json"), "lead")


def test_outside_a_team_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert around("worker-1") is None
    monkeypatch.setenv(VARIABLE, "")
    assert around("worker-1") is None


def test_a_team_that_plans_works_and_is_over(notice: Notice) -> None:
    said = []
    for state in ({"planning": True}, {}, {"over": True}):
        notice.post(**state)
        team = around("worker-1")
        assert team is not None
        said.append((team.word, team.advice))
    assert said == [
        ("working", "Your team is not finished, the lead is still planning: call again."),
        ("working", "Your team is not finished, others of the team are still at work: call again."),
        ("over", "The team's work is over: stop."),
    ]


def test_the_lead_does_not_wait_for_itself(notice: Notice) -> None:
    notice.post(planning=True)
    assert around("lead") is None
    assert around("lead-2") is not None


def test_the_same_is_not_written_twice(notice: Notice) -> None:
    notice.post()
    before = os.stat(notice.path).st_ino
    notice.post()
    assert os.stat(notice.path).st_ino == before
    notice.post(over=True)
    assert os.stat(notice.path).st_ino != before
    assert os.listdir(os.path.dirname(notice.path)) == ["team.json"]


def test_a_pool_that_has_died_is_over(notice: Notice) -> None:
    code = f"from dibs.pool.notice import Notice; Notice({notice.path!r}, None).post(planning=True)"
    subprocess.run([sys.executable, "-c", code], check=True)
    team = around("worker-1")
    assert team is not None
    assert team.is_over


def test_a_notice_that_has_been_cleared_away_is_over(notice: Notice) -> None:
    team = around("worker-1")
    assert team is not None
    assert team.is_over


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"lead": null}',
        '{"lead": null, "over": false, "planning": false, "pool": {"x": 1}}',
        "\udcff",
    ],
)
def test_nonsense_is_no_team(notice: Notice, text: str) -> None:
    Path(notice.path).write_text(text, errors="surrogateescape")
    assert around("worker-1") is None


def test_whoever_reads_finds_a_whole_notice(notice: Notice) -> None:
    """While it is replaced again and again."""
    notice.post()
    code = (
        "import sys\nfrom dibs.pool.notice import around\n"
        "for _ in range(1000):\n    team = around('w')\n    assert team and not team.is_over\nprint('whole')"
    )
    reader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    planning = True
    while reader.poll() is None:
        notice.post(planning=planning)
        planning = not planning
    assert reader.communicate()[0] == "whole\n"
    assert json.loads(Path(notice.path).read_text())["lead"] == "lead"
