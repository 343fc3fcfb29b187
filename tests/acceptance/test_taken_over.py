"""Document 003: what a killed worker left is taken over by the call that needs it, and then it is held.

Giving back what the dead held and taking it is one write of dibs: the folder stays, its owner becomes another. Whatever
a worker by hand sees meanwhile is a lock that somebody has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.dialects import spec_folders
from dibs.errors import Busy, NotClaimable
from tests.acceptance import hands
from tests.acceptance.cleaning import given_back_twice, names_one_of

Step = Callable[[], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spec"


@pytest.fixture
def board(folder: Path) -> Iterator[TaskBoard]:
    with TaskBoard.open(f"spec:{folder}", create=True, worker="ben", durability="normal") as made:
        yield made


def killed(folder: Path, do: Callable[[TaskBoard], object]) -> None:
    """A worker `ann` that does this, and is killed if it is not yet."""
    child = os.fork()
    if child == 0:
        try:
            do(TaskBoard.open(f"spec:{folder}", worker="ann", durability="normal"))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def ann_dies(folder: Path, task: str = "T1", *paths: str) -> None:
    """A worker dies that had these."""
    killed(folder, lambda board: board.acquire([(task, paths)], "ann"))
    assert held(folder) == {f"tasks/{task}": "ann"} | {f"files/{path}": "ann" for path in paths}


def held(folder: Path) -> dict[str, str]:
    """Who has what, as a hand sees it."""
    owners = [path for path in (folder / ".locks").glob("[tf]*/*") if ".dibs-" not in path.name]
    return {
        str(path.relative_to(folder / ".locks")): (path / "owner").read_text().split("\n")[0].removeprefix("agent: ")
        for path in owners
    }


def by_hand(folder: Path, lock: str) -> str:
    script = 'mkdir "$0" 2>/dev/null; if [ $? -eq 0 ]; then echo ACQUIRED; else echo BUSY; fi'
    done = subprocess.run(["sh", "-c", script, str(folder / ".locks" / lock)], capture_output=True, text=True)
    return done.stdout.strip()


def cleaned_and_taken_by_hand(folder: Path, lock: str) -> None:
    """The orchestrator gives back what the dead one had, and another worker is faster."""
    path = folder / ".locks" / lock
    (path / "owner").unlink()
    path.rmdir()
    path.mkdir()
    (path / "owner").write_text("agent: hand\ntask: T9\ntimestamp: 2026-01-24T10:00:00+00:00\n")


def test_a_file_of_the_dead_is_held_by_whoever_takes_it(board: TaskBoard, folder: Path) -> None:
    ann_dies(folder, "T1", "a.py", "b.py")
    (lock,) = board.lock(["a.py"], "ben")
    assert held(folder) == {"files/a.py": "ben"}
    assert by_hand(folder, "files/a.py") == "BUSY"
    assert [(found.pattern, found.token) for found in board.locks()] == [("a.py", lock.token)]
    with TaskBoard.open(f"spec:{folder}", worker="cleo") as other, pytest.raises(Busy, match="ben"):
        other.lock(["a.py"], "cleo")


def test_a_file_that_the_dead_had_without_a_task_too(board: TaskBoard, folder: Path) -> None:
    killed(folder, lambda ann: ann.lock(["a.py"], "ann"))
    board.lock(["a.py"], "ben")
    assert held(folder) == {"files/a.py": "ben"}


def test_a_task_of_the_dead_can_be_claimed_and_its_files_are_free(board: TaskBoard, folder: Path) -> None:
    ann_dies(folder, "T1", "a.py")
    task = board.claim("ben", "T1")
    assert task is not None
    assert held(folder) == {"tasks/T1": "ben"}
    task.complete()
    assert held(folder) == {}
    told = [(event.action, event.worker) for event in board.changelog()][-4:]
    assert told == [
        ("recovered_activity", "dibs"), ("unlocked_files", "dibs"),
        ("claimed_activity", "ben"), ("completed_activity", "ben"),
    ]  # fmt: skip


def test_a_task_and_its_files_as_one_call(board: TaskBoard, folder: Path) -> None:
    ann_dies(folder, "T1", "a.py")
    assert board.acquire([("T1", ["a.py"])], "ben", retry=0)
    assert held(folder) == {"tasks/T1": "ben", "files/a.py": "ben"}


@pytest.mark.parametrize("lock", ["files/a.py", "tasks/T1"])
def test_a_hand_that_was_faster_keeps_what_it_took(
    board: TaskBoard, folder: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look and our taking over, the orchestrator by hand cleaned up and a worker by hand came."""
    ann_dies(folder, "T1", "a.py")
    once = [lambda: cleaned_and_taken_by_hand(folder, lock)]
    before(monkeypatch, "hand_over", lambda: once.pop()() if once else None)
    with pytest.raises((Busy, NotClaimable), match="hand"):
        board.lock(["a.py"], "ben") if "a.py" in lock else board.claim("ben", "T1")
    assert held(folder)[lock] == "hand"


@pytest.mark.parametrize("lock", ["files/a.py", "tasks/T1"])
def test_giving_back_for_the_dead_does_not_hurt_a_hand_that_came_since(
    board: TaskBoard, folder: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann_dies(folder, "T1", "a.py")
    once = [lambda: cleaned_and_taken_by_hand(folder, lock)]
    before(monkeypatch, "take_away", lambda: once.pop()() if once else None)
    board.recover()
    assert held(folder) == {lock: "hand"}


def test_nothing_is_taken_over_if_not_all_can_be_had(
    board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hand takes one of two files while we take over the other: that one stays as it was, and can be had later."""
    ann_dies(folder, "T1", "a.py")
    hands_file = folder / ".locks" / "files" / "b.py"

    def hand() -> None:
        hands_file.mkdir()
        (hands_file / "owner").write_text("agent: hand\n")

    once = [hand]
    before(monkeypatch, "hand_over", lambda: once.pop()() if once else None)
    with pytest.raises(Busy, match="hand"):
        board.lock(["a.py", "b.py"], "ben")
    assert held(folder) == {"files/a.py": "ann", "tasks/T1": "ann", "files/b.py": "hand"}
    board.lock(["a.py"], "ben")
    assert held(folder) == {"files/a.py": "ben", "files/b.py": "hand"}


def test_what_was_refused_is_not_finished_later(
    board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused call would also have removed a lock of the dead; when a hand does that, the call still was refused."""
    ann_dies(folder, "T1", "c.py", "a.py")
    once = [lambda: cleaned_and_taken_by_hand(folder, "files/a.py")]
    before(monkeypatch, "hand_over", lambda: once.pop()() if once else None)
    with pytest.raises(Busy, match="hand"):
        board.lock(["b.py", "a.py"], "ben")
    for lock in ("files/c.py", "files/a.py"):
        (folder / ".locks" / lock / "owner").unlink()
        (folder / ".locks" / lock).rmdir()
    board.claim("ben", "T5")
    assert board.locks() == []
    assert "files/b.py" not in held(folder)
    assert [event.worker for event in board.changelog() if event.action == "locked_files"] == ["ann"]


@pytest.mark.parametrize("call", ["companion", "hand_over", "take_away", "log"])
@pytest.mark.parametrize("verb", ["lock", "claim"])
def test_whoever_is_killed_while_taking_over_leaves_it_to_the_next(
    board: TaskBoard, folder: Path, verb: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taking(user: TaskBoard) -> object:
        def die() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        if call in ("hand_over", "take_away"):
            before(monkeypatch, call, die)  # in the child only
        elif call == "log":
            user.store.log.append = lambda lines: die()  # type: ignore[attr-defined]
        else:
            user.store._put_file = lambda *_: die()  # type: ignore[attr-defined]
        return user.lock(["a.py"], "ann") if verb == "lock" else user.claim("ann", "T1")

    ann_dies(folder, "T1", "a.py")
    killed(folder, taking)
    assert "files/a.py" in held(folder) or verb == "claim"
    assert board.acquire([("T1", ["a.py"])], "ben", retry=0)
    assert held(folder) == {"tasks/T1": "ben", "files/a.py": "ben"}
    board.release("T1", worker="ben")
    assert held(folder) == {}
    assert list((folder / ".locks").glob("*/.*.dibs-*")) == []


def test_what_the_orchestrator_by_hand_removes_while_it_is_taken_over_is_told_by_its_report(
    board: TaskBoard, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document's own weakness, which `test_killed` must be able to tell from a mistake of dibs: it has read whose
    lock it is, and removes by name what is another's by then."""
    ann_dies(folder, "T1", "a.py")
    report, tools, ready, go = (tmp_path / name for name in ("ann.cleaned", "tools", "ready", "go"))
    tools.mkdir()
    script = f'#!/bin/sh\n: >"{ready}"\nuntil [ -e "{go}" ]; do sleep 0.01; done\nexec /bin/rm "$@"\n'
    (tools / "rm").write_text(script)
    (tools / "rm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with ThreadPoolExecutor(1) as pool:
        cleaning = pool.submit(hands.clean, folder, "ann", report=report)
        while not ready.exists() and not cleaning.done():
            time.sleep(0.005)
        try:
            board.lock(["a.py"], "ben")
        finally:
            go.touch()
        cleaning.result()
    assert held(folder) == {}, "nothing can be done about it"
    changelog = folder / ".locks" / ".dibs" / "changelog.log"
    twice = given_back_twice(tmp_path, map(json.loads, changelog.read_text().splitlines()))
    assert twice == {"a.py"}
    assert names_one_of(twice, "Claim(task='a.py', worker='ben')")
    assert not names_one_of(twice, "Claim(task='src/a.py', worker='ben')")


def before(monkeypatch: pytest.MonkeyPatch, name: str, step: Step) -> None:
    """This happens right before each call of a function on folders."""
    real = getattr(spec_folders, name)

    def both(*args: object) -> object:
        step()
        return real(*args)

    monkeypatch.setattr(spec_folders, name, both)
