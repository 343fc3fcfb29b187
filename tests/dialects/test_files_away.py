"""`git checkout` of another branch takes the files of tasks away and brings them back. What dibs knows of their claims
outlasts that, even if somebody writes to the board meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs import TaskBoard, TaskStatus, Worker
from dibs.dialects import companion
from tests.clocks import HandClock

ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s2")
BOARDS = {"taskboard": "taskboard:{}", "workflow": "workflow:{}", "workitems": "workitems:{}", "bilu": "bilu:{}"}


def tracked(folder: Path) -> dict[Path, bytes]:
    """What git would see: dibs' own folder keeps itself out of it."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".dibs" not in path.parts}


def check_out(folder: Path, files: dict[Path, bytes]) -> None:
    for path in tracked(folder).keys() - files.keys():
        path.unlink()
    for path, data in files.items():
        path.write_bytes(data)


@pytest.mark.parametrize("dialect", BOARDS)
def test_a_claim_is_its_holders_when_its_file_comes_back(dialect: str, tmp_path: Path, clock: HandClock) -> None:
    url = BOARDS[dialect].format(tmp_path / "board")

    def opened() -> TaskBoard:
        return TaskBoard.open(url, create=True, durability="normal", worker="planner-1", clock=clock)

    opened().add("on both branches")
    without = tracked(tmp_path)
    ours = opened().add("on one branch only")
    claimed = opened().claim(ANN, ours, lease=7200)
    assert claimed is not None
    with_it = tracked(tmp_path)

    check_out(tmp_path, without)
    assert opened().tasks()[1] == 1
    other = opened().claim(BEN)
    assert other is not None
    opened().release(other.id, worker=BEN)

    check_out(tmp_path, with_it)
    back = opened().get(ours)
    assert back.holder is not None
    assert (back.holder.session, back.token, back.lease) == ("s1", claimed.token, 7200)
    opened().complete(ours, "done", worker=ANN, token=claimed.token)
    assert opened().get(ours).status in (TaskStatus.COMPLETED, TaskStatus.REVIEW)


def test_what_is_kept_of_tasks_that_are_away_is_bounded(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "_ENDED", 3)
    board = TaskBoard.open(f"taskboard:{tmp_path}", create=True, durability="normal", clock=clock)
    stays = board.add("x")
    without = tracked(tmp_path)
    board.claim(ANN, stays)
    for _ in range(5):
        board.claim(ANN, board.add("y"))
    check_out(tmp_path, without)
    board.claim(ANN, stays)
    board.add("z")
    notes = companion.Companion(str(tmp_path))
    notes.load()
    assert len(notes.claims) == 4
    assert stays in notes.claims
