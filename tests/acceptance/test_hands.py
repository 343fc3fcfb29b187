"""The hand workers alone, without dibs: each keeps to its document, and the oracle that judges them sees a breach."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import hands
from tests.acceptance.hands import DOCUMENTS, FINISHED

CREW = ["worker-1", "worker-2", "worker-3", "worker-4"]
TASKS = {"taskboard": 16, "workflow": 12, "workitems": 8, "bilu": 16, "spec": 20}


def assert_finished(document: str, directory: Path, ids: list[str], reports: list[Path]) -> None:
    assert hands.overlaps(reports) == []
    assert hands.overlaps(reports, "hold", "drop") == []
    assert hands.statuses(document, directory) == dict.fromkeys(ids, FINISHED[document])
    assert hands.count(reports, "done") == dict.fromkeys(ids, 1)
    assert not hands.count(reports, "lost")
    assert not hands.count(reports, "twice")
    assert hands.leftovers(document, directory) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_four_hands_finish_every_task_once_and_never_share_one(document: str, tmp_path: Path) -> None:
    directory = tmp_path / "board"
    ids = hands.make_board(document, directory, TASKS[document], seed=1)
    crew = hands.start(document, directory, CREW)
    hands.finish(crew)
    assert_finished(document, directory, ids, [hand.report for hand in crew])


def died_and_recovered(document: str, tmp_path: Path, point: str, **settings: Any) -> list[hands.Hand]:
    """One worker dies at `point`, then another does all the rest by the document's own rule. (One only: two who break
    the same lock is where the documents race.)"""
    directory = tmp_path / "board"
    hands.make_board(document, directory, 5, seed=2)
    crew = hands.start(document, directory, ["worker-dead"], die=point, **settings)
    hands.finish(crew)
    assert crew[0].died
    crew += hands.start(document, directory, ["worker-heir"], **settings)
    hands.finish(crew)
    return crew


def test_004_a_dead_worker_s_task_is_swept_and_its_lock_is_free_at_once(tmp_path: Path) -> None:
    crew = died_and_recovered("taskboard", tmp_path, "claimed:2", stale=1, stay=1)
    directory = tmp_path / "board"
    assert set(hands.statuses("taskboard", directory).values()) == {"completed"}
    assert hands.overlaps(hand.report for hand in crew) == []


def test_004_a_worker_that_dies_while_writing_in_place_leaves_a_torn_file(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    hands.make_board("taskboard", directory, 5)
    hands.finish(hands.start("taskboard", directory, ["worker-1"], die="torn:2"))
    with pytest.raises(AssertionError, match="does not parse"):
        hands.statuses("taskboard", directory)


@pytest.mark.parametrize("point", ["locked", "written:3"])
def test_000_a_dead_worker_s_lock_is_broken_when_it_is_stale(point: str, tmp_path: Path) -> None:
    crew = died_and_recovered("workflow", tmp_path, point, stale=1, retries=2, pause=0.1)
    directory = tmp_path / "board"
    left = hands.statuses("workflow", directory)
    assert hands.count([crew[1].report], "broke")
    # A claim has no expiry in this document: what the dead worker had claimed stays claimed.
    mine = {"task-002"} if point == "written:3" else set()
    assert {task for task, status in left.items() if status != "done"} == mine
    assert hands.leftovers("workflow", directory) == []


def test_000_a_recent_lock_is_waited_for_and_then_the_worker_stops_with_the_message(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    hands.make_board("workflow", directory, 2)
    lock = directory / "board.lock"
    lock.write_text('{\n  "agent": "worker-x",\n  "ts": "2099-01-01T00:00:00+00:00"\n}\n')
    crew = hands.start("workflow", directory, ["worker-1"], retries=2, pause=0.01, patience=1)
    with pytest.raises(AssertionError, match=r"Board is locked by another agent\. Cannot proceed\."):
        hands.finish(crew)
    assert set(hands.statuses("workflow", directory).values()) == {"open"}
    assert lock.exists()


def test_000_a_worker_that_leaves_breaking_to_others_waits_at_a_stale_lock(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    ids = hands.make_board("workflow", directory, 2)
    lock = directory / "board.lock"
    lock.write_text('{"agent": "worker-x", "ts": "2020-01-01T00:00:00+00:00"}\n')
    crew = hands.start("workflow", directory, ["worker-1", "worker-2"], breaking="never", retries=1)
    until = time.monotonic() + 20
    while not all(hands.count([hand.report], "abort") for hand in crew) and time.monotonic() < until:
        time.sleep(0.01)
    lock.unlink()  # as a worker that breaks safely would
    hands.finish(crew)
    assert_finished("workflow", directory, ids, [hand.report for hand in crew])


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"agent": "worker-x", "ts": "yesterday-ish"}'])
def test_000_a_malformed_lock_is_deleted(content: str, tmp_path: Path) -> None:
    directory = tmp_path / "board"
    ids = hands.make_board("workflow", directory, 1)
    (directory / "board.lock").write_text(content)
    crew = hands.start("workflow", directory, ["worker-1"], retries=2, pause=0.01)
    hands.finish(crew)
    assert_finished("workflow", directory, ids, [crew[0].report])


def test_000_only_a_planner_creates_the_board_and_an_integrator_accepts(tmp_path: Path) -> None:
    hands.make_board("workflow", tmp_path / "plan", 3)
    directory = tmp_path / "board"
    directory.mkdir()
    with pytest.raises(AssertionError, match=r"board\.json missing"):
        hands.finish(hands.start("workflow", directory, ["worker-1"]))
    hands.finish(hands.start("workflow", directory, ["planner-1"], plan=tmp_path / "plan" / "board.json"))
    hands.finish(hands.start("workflow", directory, ["worker-1", "integrator-1"]))
    assert set(hands.statuses("workflow", directory).values()) == {"integrated"}


@pytest.mark.parametrize("point", ["locked", "claimed:2", "guarded:2", "completed"])
def test_001_an_expired_lock_is_replaced_and_the_activity_resumed(point: str, tmp_path: Path) -> None:
    crew = died_and_recovered("workitems", tmp_path, point, lease=2, guard_lease=1)
    directory = tmp_path / "board"
    assert set(hands.statuses("workitems", directory).values()) == {"completed"}
    assert hands.overlaps(hand.report for hand in crew) == []
    actions = [entry["action"] for entry in hands.changelog(directory)]
    assert ("recovered_activity" in actions) == (point != "completed")
    # A lock left on a completed activity hurts nobody, and nobody has a reason to look at it again.
    assert hands.leftovers("workitems", directory) == (["locks/WI-001-A1.lock"] if point == "completed" else [])


def test_001_comments_survive_and_the_last_activity_puts_the_work_item_in_review(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    hands.make_board("workitems", directory, 3)
    before = (directory / "progress.yaml").read_text()
    crew = hands.start("workitems", directory, ["agent-1"])
    hands.finish(crew)
    after = (directory / "progress.yaml").read_text()
    assert [line.partition("#")[2] for line in after.splitlines()] == [
        line.partition("#")[2] for line in before.splitlines()
    ]
    told = hands.progress(directory)
    steps = [step for activity in told["activities"] for step in activity["tasks"]]
    assert told["status"] == "review"
    assert told["version"] == 1 + len(steps) + len(told["activities"])
    assert {step["completed_by"] for step in steps} == {"agent-1"}
    assert len(hands.changelog(directory)) == 1 + 2 * len(told["activities"]) + len(steps)


@pytest.mark.parametrize("point", ["locked:2", "written:2"])
def test_002_a_dead_pid_s_lock_is_removed(point: str, tmp_path: Path) -> None:
    crew = died_and_recovered("bilu", tmp_path, point)
    left = hands.statuses("bilu", tmp_path / "board")
    assert hands.count([crew[1].report], "broke")
    assert len([status for status in left.values() if status != "DONE"]) == 1
    assert hands.leftovers("bilu", tmp_path / "board") == []


def test_002_a_lock_without_a_pid_is_never_removed(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    hands.make_board("bilu", directory, 2)
    hands.finish(hands.start("bilu", directory, ["worker-dead"], die="bare"))
    with pytest.raises(AssertionError, match=r"bilu board: error: lock busy: .*/storage/lock"):
        hands.finish(hands.start("bilu", directory, ["worker-1"], timeout=0))


def test_002_a_signal_releases_the_lock(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    hands.make_board("bilu", directory, 30)
    hand = hands.start("bilu", directory, ["worker-1"])[0]
    until = time.monotonic() + 20
    while not (directory / "storage" / "lock" / "cmd").exists() and time.monotonic() < until:
        pass
    hand.process.terminate()
    assert hand.process.wait(20) == 143
    assert hands.leftovers("bilu", directory) == []


def test_003_what_a_dead_implementer_left_waits_for_the_orchestrator(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    ids = hands.make_board("spec", directory, 8, seed=3)
    crew = hands.start("spec", directory, ["agent-dead"], die="claimed:2")
    hands.finish(crew)
    with pytest.raises(AssertionError, match="nothing could be claimed"):
        hands.finish(hands.start("spec", directory, ["agent-2"], patience=1))
    hands.clean(directory, "agent-dead")
    crew += hands.start("spec", directory, ["agent-2"])
    hands.finish(crew)
    assert_finished("spec", directory, ids, [hand.report for hand in crew])


def test_003_a_lock_without_an_owner_is_released_only_when_all_have_returned(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    ids = hands.make_board("spec", directory, 2)
    crew = hands.start("spec", directory, ["agent-dead"], die="bare")
    hands.finish(crew)
    hands.clean(directory, "agent-dead")
    assert hands.leftovers("spec", directory) == [".locks/tasks/T-001"]
    hands.clean(directory)
    crew += hands.start("spec", directory, ["agent-2"])
    hands.finish(crew)
    assert_finished("spec", directory, ids, [hand.report for hand in crew])


def test_the_oracle_sees_two_holders(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("claim T1 10\nend T1 20\nclaim T2 30\nend T2 40\nclaim T3 50\ndied claimed 60\n")
    second.write_text("claim T1 20\nend T1 25\nclaim T2 39\nend T2 50\nclaim T3 61\nend T3 70\nclaim T4 8")
    assert [(one.task, one.worker, other.worker) for one, other in hands.overlaps([first, second])] == [
        ("T2", "first", "second")
    ]


def test_the_oracle_takes_a_claim_that_was_never_given_up_for_held(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    hands.note(first, "claim", "T1")
    hands.note(second, "claim", "T1")
    hands.note(second, "end", "T1")
    assert len(hands.overlaps([first, second])) == 1
