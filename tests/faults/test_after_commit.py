"""Whatever fails, and whoever closes the board, between a commit and its answer: the answer is never that nothing was
changed, and what was not made is never said to have been."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import TaskBoard, fs
from dibs.stores.sqlite.group_commit import GroupCommit
from dibs.stores.sqlite.store import SqliteStore
from tests.processes.harness import Crew, assert_whole, path_of

STRACE = shutil.which("strace")
CALLS = {
    "flock": "ENOLCK",
    "pread64": "EIO",
    "pwrite64": "EIO",
    "fdatasync": "EIO",
    "openat": "EMFILE",
    "ftruncate": "EIO",
    "mmap": "ENOMEM",
}
ENDS = ("claimed", "board_unusable", "outcome_unknown", "busy")


def claim_while_failing(url: str, crew: Crew, tmp_path: Path, call: str, error: str, number: int) -> bool:
    """One claim whose call number so many upon the board's files fails; was there such a call?"""
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("a task")
    path, trace = path_of(url), tmp_path / "trace"
    files = [word for suffix in ("", "-lock", "-sync", "-wal", "-shm") for word in ("-P", f"{path}{suffix}")]
    inject = f"inject={call}:error={error}:when={number}"
    before = [STRACE or "strace", "-f", "-qq", "-o", str(trace), *files, "-e", f"trace={call}", "-e", inject]
    said = crew.start("claim_at_a_word", url, "worker", before=before).line()
    end, _, told = said.partition(" ")
    assert end in ENDS, f"{call} {number}: {said}"
    with TaskBoard.open(url, worker="other") as board:
        task = board.get(task_id)
        if end == "claimed":
            assert task.assigned_to == "worker"
            task = board.complete(task_id, worker="worker", token=int(told))
        elif end != "outcome_unknown":
            assert task.status == "pending", f"{call} {number}: {said}, and the task is claimed"
        if task.status == "pending":
            assert board.claim("other") is not None
    assert_whole(url).close()
    return "INJECTED" in trace.read_text()


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lock_that_fails_is_not_taken_for_a_refusal_once_the_claim_is_made(
    url: str, crew: Crew, tmp_path: Path, number: int
) -> None:
    assert claim_while_failing(url, crew, tmp_path, "flock", "ENOLCK", number)


@pytest.mark.slow
@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("call", CALLS)
def test_no_call_that_fails_lets_a_claim_end_in_a_false_answer(
    tmp_path: Path, crew: Crew, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = 0
    for number in range(1, 60):
        url = f"sqlite:{tmp_path}/{number}/board.db"
        TaskBoard.open(url, create=True, worker="maker").close()
        if not claim_while_failing(url, crew, tmp_path, call, CALLS[call], number):
            break
        failed += 1
    with capsys.disabled():
        print(f"\n  {call}: {failed} failing calls, 0 false answers")


@pytest.mark.parametrize("when", ["before it waits", "while it waits"])
def test_a_store_that_another_thread_closes_still_confirms_what_is_committed(
    url: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    committed, closed = threading.Event(), threading.Event()

    def pause() -> None:
        if not committed.is_set():
            committed.set()
            assert closed.wait(30)

    wait_for = GroupCommit.wait_for

    def wait_later(self: GroupCommit, number: int, write_through: Callable[[], None]) -> None:
        if when == "before it waits":
            pause()
        wait_for(self, number, write_through)

    monkeypatch.setattr(GroupCommit, "wait_for", wait_later)

    def sync(fd: int) -> None:
        if when == "while it waits":
            pause()
        fs.sync_data(fd)

    board = TaskBoard(store=SqliteStore(str(path_of(url)), sync=sync), worker="w")
    ends: list[object] = []

    def add() -> None:
        try:
            ends.append(board.add("a task", id="a"))
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=add)
    thread.start()
    assert committed.wait(30)
    board.close()
    closed.set()
    thread.join(30)
    assert ends == ["a"]
    assert board.get("a").status == "pending"
    board.close()
    assert_whole(url).close()
