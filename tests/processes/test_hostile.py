"""What hostile hands found, with real processes: the dead in the way, waiting past one's lease, forks, lost folders."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.processes.harness import PATIENCE, assert_whole, environment


def python(script: str, *args: object, cwd: Path | str = "/") -> list[str]:
    """Run a script in a process of its own, which must end well; the lines that it says."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LOCK_AND_DIE = """
import os, sys
from dibs import TaskBoard
TaskBoard.open(sys.argv[1]).lock(["src/**"], "mayfly")
print("locked", flush=True)
os._exit(0)
"""

CLAIM_AND_DIE = """
import os, sys
from dibs import TaskBoard
task = TaskBoard.open(sys.argv[1]).claim("mayfly", "theirs")
print(task.id, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="death is proved on Linux only")
@pytest.mark.parametrize("script", [LOCK_AND_DIE, CLAIM_AND_DIE], ids=["lock", "claim"])
def test_a_named_task_whose_paths_a_dead_process_holds_is_granted_at_once(url: str, script: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("theirs", id="theirs", paths=["src/a.py"])
        board.add("wanted", id="wanted", paths=["src/a.py"])
        assert len(python(script, url)) == 1
        board._reaped = board.now()  # as if it had looked for the dead just now: who is in the way counts all the same
        assert [lock.holder.name for lock in board.locks()] == ["mayfly"]
        started = time.monotonic()
        task = board.claim("alive", "wanted")
        assert time.monotonic() - started < 30
        assert task is not None
        assert task.assigned_to == "alive"
    assert_whole(url).close()


WAIT_LONGER_THAN_THE_LEASE = """
import sys
from dibs import TaskBoard
from dibs.errors import DibsError
board = TaskBoard.open(sys.argv[1], worker="waiter")
mine = board.claim("waiter", "mine", lease=1.5)
board.lock(["docs/mine.md"], "waiter", lease=1.5)
print("waiting", flush=True)
try:
    if sys.argv[2] == "claim":
        board.claim("waiter", "wanted", wait=4)
    elif sys.argv[2] == "lock":
        board.lock(["src/b.py"], "waiter", wait=4)
    else:
        board.wait("waiter", 4)
except DibsError as error:
    print(error.code)
print(sorted(lock.pattern for lock in board.locks() if lock.holder.name == "waiter"))
mine.complete("in time")
print(board.get("mine").status)
"""


@pytest.mark.parametrize("verb", ["claim", "lock", "wait"])
def test_whoever_waits_past_its_lease_still_holds_what_it_held(url: str, verb: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("mine", id="mine", paths=["lib/mine.py"])
        board.add("wanted", id="wanted", paths=["src/a.py"])
        board.lock(["src/**"], "other")
        said = python(WAIT_LONGER_THAN_THE_LEASE, url, verb)
    refused = {"claim": ["not_claimable"], "lock": ["busy"], "wait": []}[verb]
    assert said == ["waiting", *refused, "['docs/mine.md', 'lib/mine.py']", "completed"]
    assert_whole(url).close()


LEAVE_IN_A_FORKED_CHILD = """
import os, sys
from dibs import TaskBoard
board = TaskBoard.open(sys.argv[1])
with board.claim("parent", "t1") as task:
    child = os.fork()
    if child == 0:
        try:
            with task:
                raise RuntimeError("in the child")
        except RuntimeError:
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    now = board.get("t1")
    print(now.status, now.assigned_to, now.token == task.token, [lock.pattern for lock in board.locks()])
    task.complete("by the parent")
print(board.get("t1").status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_leaves_the_block_by_an_exception_does_not_release_its_parents_claim(url: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("x", id="t1", paths=["src/a.py"])
    assert python(LEAVE_IN_A_FORKED_CHILD, url) == ["7", "in_progress parent True ['src/a.py']", "completed"]
    with assert_whole(url) as board:
        assert "released_activity" not in [event.action for event in board.changelog(task_id="t1")]


def test_the_claims_own_process_still_releases_by_an_exception(url: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("x", id="t1")
        task = board.claim("me", "t1")
        assert task is not None
        with pytest.raises(RuntimeError), task:
            raise RuntimeError
        assert board.get("t1").status == "pending"


WORK_IN_A_LOST_FOLDER = """
import os, sys
from dibs import TaskBoard
from dibs.errors import Invalid
board = TaskBoard.open(sys.argv[1])
os.mkdir(sys.argv[2])
os.chdir(sys.argv[2])
os.rmdir(sys.argv[2])
for attempt in (
    lambda: board.lock(["a.py"], "me"),
    lambda: board.add("x", paths=["a.py"]),
    lambda: board.locks(["a.py"]),
    lambda: TaskBoard.open(),
):
    try:
        attempt()
        print("granted")
    except Invalid as error:
        print(error.message)
"""


def test_a_lost_working_directory_is_named_as_what_is_wrong(url: str, tmp_path: Path) -> None:
    said = python(WORK_IN_A_LOST_FOLDER, url, tmp_path / "lost")
    assert said == ["the working directory no longer exists"] * 4
    with assert_whole(url) as board:
        assert board.status() == []
        assert board.locks() == []


def test_one_file_has_one_lock_name_from_every_worktree_and_by_every_spelling(tmp_path: Path) -> None:
    main = tmp_path / "main"
    nested, beside = main / ".trees" / "inner", tmp_path / "w1"
    (main / "src").mkdir(parents=True)
    (main / "src" / "a.py").write_text("pass\n")
    who = {f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "first"],
        ["worktree", "add", "-q", ".trees/inner"],
        ["worktree", "add", "-q", "../w1"],
    ):
        env = environment() | who | {"GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *words], cwd=main, env=env, check=True, capture_output=True)
    TaskBoard.open(f"sqlite:{main}/.dibs/board.db", create=True, worker="maker", durability="normal").close()
    places: list[tuple[Path, str]] = [
        (main, "src/a.py"),
        (main / "src", "a.py"),
        (main, ".trees/inner/src/a.py"),
        (main, "../w1/src/a.py"),
        (main, str(nested / "src" / "a.py")),
        (main, str(beside / "src" / "a.py")),
        (nested, "src/a.py"),
        (nested / "src", "a.py"),
        (nested, "../../src/a.py"),
        (nested, str(main / "src" / "a.py")),
        (nested, str(nested / "src" / "a.py")),
        (nested, "../../../w1/src/a.py"),
        (beside, "src/a.py"),
        (beside, "../main/src/a.py"),
        (beside, "../main/.trees/inner/src/a.py"),
        (beside, str(nested / "src" / "a.py")),
    ]
    every = [str(tmp_path)]  # one process tries them all as a second and, afterwards, as the first worker
    for folder, path in places:
        every += [str(folder), path]
    script = """
import os, sys
from dibs import Busy, TaskBoard
places = list(zip(sys.argv[2::2], sys.argv[3::2]))
os.chdir(places[0][0])
board = TaskBoard.open(worker="maker")
board.lock([places[0][1]], "first")
for folder, path in places:
    os.chdir(folder)
    with TaskBoard.open(worker="maker") as here:
        try:
            print("granted", here.lock([path], "second")[0].pattern)
        except Busy as error:
            print("busy", error.conflicts[0].pattern)
        board.unlock(None, "first")
        print([lock.pattern for lock in board.lock([path], "first")])
"""
    assert python(script, *every) == ["busy src/a.py", "['src/a.py']"] * len(places)
