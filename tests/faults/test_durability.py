"""Nothing is acknowledged before the disk has it, one sync serves many, and a failed sync is never taken for good."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from dibs import TaskBoard, fs
from dibs.errors import BoardUnusable, OutcomeUnknown
from dibs.stores.sqlite import group_commit
from dibs.stores.sqlite.store import SqliteStore
from tests.processes.harness import Crew, assert_whole, path_of, rows

STRACE = shutil.which("strace")
Sync = Callable[[int], None]


def board_with(url: str, sync: Sync, durability: str = "full") -> TaskBoard:
    return TaskBoard(store=SqliteStore(str(path_of(url)), sync=sync, durability=durability), worker="w")


class Recorder:
    """A sync that notes which event was the newest when it began: all up to `ended` has surely reached the disk."""

    def __init__(self, url: str, pause: float = 0.0) -> None:
        self.count = 0
        self.ended = 0
        self._pause = pause
        self._reader = apsw.Connection(str(path_of(url)))

    def __call__(self, fd: int) -> None:
        assert os.path.samestat(os.fstat(fd), os.stat(self._reader.db_filename("main") + "-wal"))
        last = int(self._reader.execute("SELECT max(seq) FROM event").fetchall()[0][0] or 0)
        time.sleep(self._pause)
        fs.sync_data(fd)
        self.count += 1
        self.ended = max(self.ended, last)

    def close(self) -> None:
        self._reader.close()


def test_every_call_that_writes_is_synced_before_it_returns(url: str) -> None:
    sync = Recorder(url)
    with board_with(url, sync) as board:
        calls: list[Callable[[], object]] = [
            lambda: board.add("one", id="one", steps=["first"]),
            lambda: board.add("two", id="two"),
            lambda: board.depend("two", ["one"]),
            lambda: board.undepend("two", ["one"]),
            lambda: board.claim("w", "one"),
            lambda: board.renew("one"),
            lambda: board.step("one", "done"),
            lambda: board.block("two", "waits for an answer"),
            lambda: board.unblock("two"),
            lambda: board.complete("one", "done"),
            lambda: board.claim("w", "two", lease=100),
            lambda: board.release("two"),
            lambda: board.cancel("two"),
            lambda: board.retry("two"),
            lambda: board.lock(["src/**"], "w"),
            lambda: board.unlock(None, "w"),
            lambda: board.tell("hello"),
        ]
        for call in calls:
            before = sync.count
            call()
            assert sync.count > before
            assert sync.ended == [event.seq for event in board.changelog()][-1]
        syncs = sync.count
        board.status(), board.tasks(), board.ready(), board.locks(), list(board.changelog())
        assert sync.count == syncs, "reading needs no sync"
    sync.close()


def test_threads_return_only_after_a_sync_that_began_after_their_commit_and_share_syncs(url: str) -> None:
    sync = Recorder(url, pause=0.002)
    early: list[str] = []
    with board_with(url, sync) as board:

        def write(number: int) -> None:
            for _ in range(30):
                message = board.tell(f"from thread {number}")
                if sync.ended < message.seq:
                    early.append(f"event {message.seq} acknowledged when only {sync.ended} was on the disk")

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    sync.close()
    assert not early, early[:3]
    assert 0 < sync.count < 8 * 30, f"{sync.count} syncs for {8 * 30} commits"
    assert_whole(url).close()


def test_processes_share_syncs(url: str, crew: Crew) -> None:
    """Hardly any sync serves fewer than all: in two groups that sync by turns it would be 50 and more."""
    actors = crew.at_barrier("commit_slowly", [(url, f"w{n}", 25, 30) for n in range(8)])
    syncs = sum(int(actor.lines()[-1].split()[1]) for actor in actors)
    assert 25 <= syncs < 45, f"{syncs} syncs for {8 * 25} commits"
    with assert_whole(url) as board:
        assert len(board.messages(1000)) == 8 * 25


def with_company(url: str, ended: int) -> None:
    """As if the last sync had taken a second, had covered a commit of another process as well, and ended then (µs)."""
    with TaskBoard.open(url, worker="w") as board:
        board.tell("one")
    with open(f"{path_of(url)}-sync", "r+b") as file:
        synced = int.from_bytes(file.read(16)[8:], "little")
        file.seek(24)
        file.write(b"".join(number.to_bytes(8, "little") for number in (synced - 1, 1_000_000, ended)))
        file.seek(64 + 4 * (synced % 256))
        file.write((2**31 - 1).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("ended", "waits"),
    [(10**12, 7), (10**12 - 10**6, 0), (10**12 + 10**6, 0)],
    ids=["just now", "a second ago", "at another start of the machine"],
)
def test_company_is_waited_for_if_it_was_there_just_now(
    url: str, monkeypatch: pytest.MonkeyPatch, ended: int, waits: int
) -> None:
    """Each wait is a tenth of a second here: they go on for seven tenths of what the last sync took."""
    waited: list[float] = []
    clock = SimpleNamespace(monotonic_ns=lambda: 10**15 + 10**8 * len(waited), sleep=waited.append)
    with_company(url, ended)
    monkeypatch.setattr(group_commit, "time", clock)
    with TaskBoard.open(url, worker="w") as board:
        board.tell("two")
        assert len(board.messages()) == 2
    assert len(waited) == waits


@pytest.mark.parametrize(("others", "looks"), [(0, True), (1, True), (3, False)], ids=["alone", "a fair half", "most"])
def test_whoever_gets_more_than_its_share_queues_at_the_gate(
    url: str, monkeypatch: pytest.MonkeyPatch, others: int, looks: bool
) -> None:
    """Every second of the last commits is ours; the rest are of so many others."""
    glances: list[int] = []
    lock = fs.lock

    def watched(fd: int, times: int = 0, alarms: Callable[[], fs.Alarms] = list) -> None:
        glances.append(times)
        lock(fd, 0, alarms)

    monkeypatch.setattr(fs, "lock", watched)
    writers = [2**22 + n // 2 % others if others and n % 2 else os.getpid() for n in range(256)]
    with TaskBoard.open(url, worker="w", durability="normal") as board:
        for _ in range(group_commit.SHARES - 1):
            board.tell("one of ours")
        with open(f"{path_of(url)}-sync", "r+b") as file:
            file.write((2560).to_bytes(8, "little"))
            file.seek(64)
            file.write(b"".join(pid.to_bytes(4, "little") for pid in writers))
        board.tell("the one after which it looks at its share")
        board.tell("the next")
    assert (glances[-1] > 0) is looks


def test_normal_durability_never_syncs_in_the_call(url: str) -> None:
    def never(fd: int) -> None:
        raise AssertionError("synced")

    with board_with(url, never, durability="normal") as board:
        for n in range(50):
            board.tell(f"message {n}")
        assert len(board.messages(1000)) == 50


def test_repeating_a_call_whose_first_caller_died_before_the_sync_is_synced_too(url: str, crew: Crew) -> None:
    """The repeat changes nothing, but it acknowledges: so what it acknowledges has to be on the disk."""
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("a task")
        task = board.claim("other")
        assert task is not None
    dying = crew.start("die_in_sync", url, task_id, task.token)
    assert dying.process.wait(60) == -9
    sync = Recorder(url)
    with board_with(url, sync) as board:
        assert board.complete(task_id, "done", token=task.token).status == "completed"
        assert sync.count > 0
        assert sync.ended == [event.seq for event in board.changelog()][-1]
    sync.close()


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_the_kernel_sees_the_sync_between_the_write_and_the_acknowledgement(
    url: str, crew: Crew, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    before = [STRACE or "strace", "-f", "-y", "-o", str(trace), "-e", "trace=pwrite64,fdatasync,write"]
    assert len(crew.start("commit_in_view", url, 20, before=before).lines()) == 20
    dirty = False
    syncs = acknowledged = 0
    for line in trace.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((\d+)<([^>]*)>", line)
        if call is None:
            continue
        name, fd, path = call.groups()
        if name == "pwrite64" and path.endswith("board.db-wal"):
            dirty = True
        elif name == "fdatasync" and path.endswith("board.db-wal"):
            assert line.endswith("= 0")
            dirty = False
            syncs += 1
        elif name == "write" and fd == "1" and "acknowledged" in line:
            assert not dirty, f"acknowledged before the sync: {line}"
            acknowledged += 1
    assert acknowledged == 20
    assert syncs >= 20


# -- failing


class FailingOnce:
    """A disk that fails one sync and works again."""

    def __init__(self, *, at: int = 1) -> None:
        self.left = at

    def __call__(self, fd: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fs.sync_data(fd)


def test_a_failed_sync_is_reported_and_later_calls_work(url: str) -> None:
    with board_with(url, FailingOnce(at=2)) as board:
        first = board.add("first")
        with pytest.raises(OutcomeUnknown) as caught:
            board.add("second", id="second")
        assert "the disk did not confirm the write (Input/output error)" in str(caught.value)
        assert "dibs log" in str(caught.value)
        third = board.add("third")
        assert [task["id"] for task in board.status()] == [first, "second", third]
        task = board.claim("w")
        assert task is not None
        task.complete()
    assert_whole(url).close()


def after_losing(url: str, copy: Path, start: int, end: int) -> list[str]:
    """The tasks that a power failure would leave, had the kernel dropped this part of the WAL after the failed sync."""
    copy.mkdir()
    path = path_of(url)
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.parent / name, copy / name)
    with open(copy / f"{path.name}-wal", "r+b") as wal:
        if os.fstat(wal.fileno()).st_size >= end:
            wal.seek(start)
            wal.write(b"\0" * (end - start))
    return [row[0] for row in rows(f"sqlite:{copy}/{path.name}", "SELECT id FROM task ORDER BY seq")]


def test_nothing_is_acknowledged_on_top_of_pages_that_a_failed_sync_may_have_lost(url: str, tmp_path: Path) -> None:
    wal = f"{path_of(url)}-wal"
    with board_with(url, FailingOnce(at=2)) as board:
        board.add("first", id="first")
        start = os.path.getsize(wal)
        with pytest.raises(OutcomeUnknown):
            board.add("second", id="second")
        end = os.path.getsize(wal)
        assert end > start
        board.add("third", id="third")
        assert after_losing(url, tmp_path / "copy", start, end) == ["first", "second", "third"]
    assert_whole(url).close()


def test_another_process_does_not_acknowledge_on_top_of_lost_pages_either(url: str, crew: Crew, tmp_path: Path) -> None:
    wal = f"{path_of(url)}-wal"
    other = crew.start("add", url, "third")
    other.expect("ready")
    with board_with(url, FailingOnce(at=2)) as board:
        board.add("first", id="first")
        start = os.path.getsize(wal)
        with pytest.raises(OutcomeUnknown):
            board.add("second", id="second")
        end = os.path.getsize(wal)
        other.tell()
        third = other.expect("added").removeprefix("added ")
        assert after_losing(url, tmp_path / "copy", start, end) == ["first", "second", third]
    assert_whole(url).close()


def test_while_a_reader_keeps_lost_pages_from_being_rewritten_nothing_is_acknowledged(
    url: str, crew: Crew, tmp_path: Path
) -> None:
    with board_with(url, FailingOnce(at=2)) as board:
        assert isinstance(board.store, SqliteStore)
        assert board.store._connection is not None
        board.store._connection.set_busy_timeout(50)
        board.add("first", id="first")
        reader = crew.start("read_slowly", url)
        reader.expect("inside")
        for name in ("second", "third"):
            with pytest.raises(OutcomeUnknown):
                board.add(name, id=name)
        reader.tell()
        reader.expect("outside")
        board.add("fourth", id="fourth")
        assert [task["id"] for task in board.status()] == ["first", "second", "third", "fourth"]
    assert_whole(url).close()


def test_a_sync_that_fails_while_another_thread_is_inside_a_transaction_disturbs_neither(url: str) -> None:
    syncing, inside, failed = threading.Event(), threading.Event(), threading.Event()

    def sync(fd: int) -> None:
        if not failed.is_set():
            syncing.set()
            assert inside.wait(30)
            failed.set()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fs.sync_data(fd)

    caught: list[Exception] = []
    with board_with(url, sync) as board:

        def first() -> None:
            try:
                board.add("first", id="first")
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=first)
        thread.start()
        assert syncing.wait(30)
        with board.store.write() as tx:
            tx.set_mark("second", 1)
            inside.set()
            assert failed.wait(30)
            thread.join(0.1)  # whatever it does about the failure, it does not do it in our transaction
            tx.set_mark("second", 2)
        thread.join(30)
        assert not thread.is_alive()
        assert [type(error) for error in caught] == [OutcomeUnknown]
        board.add("third", id="third")
        with board.store.read() as tx:
            assert tx.marks("second") == {"second": 2}
        assert [task["id"] for task in board.status()] == ["first", "third"]
    assert_whole(url).close()


@pytest.mark.parametrize("fine", [0, 1, 2], ids=["announced", "signed", "counted"])
def test_a_commit_that_cannot_be_counted_is_not_reported_as_if_nothing_had_happened(
    url: str, monkeypatch: pytest.MonkeyPatch, fine: int
) -> None:
    """The commit has been made when the counter beside the board cannot be written: "failed" would be false. Where it
    cannot even be announced, nothing is committed."""
    with TaskBoard.open(url, worker="w") as board:
        board.add("first", id="first")
        write_at = fs.write_at
        left = [fine]

        def fail_once(fd: int, data: bytes, offset: int) -> None:
            if len(data) == 16:  # the note of who has the gate
                return
            if left[0] == 0:
                left[0] = -1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1
            write_at(fd, data, offset)

        monkeypatch.setattr(fs, "write_at", fail_once)
        with pytest.raises(OutcomeUnknown if fine else BoardUnusable):
            board.add("second", id="second")
        assert [task["id"] for task in board.status()] == ["first", "second"][: 2 if fine else 1]
        board.add("third", id="third")
    assert_whole(url).close()


def test_what_a_killed_process_committed_and_did_not_count_is_synced_before_a_repeat_is_answered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = Recorder(url)
    with board_with(url, sync) as board:
        board.add("one", id="one")
        task = board.claim("w")
        assert task is not None
        with monkeypatch.context() as patch:

            def killed(self: object, number: int) -> None:
                raise SystemExit

            patch.setattr(group_commit.GroupCommit, "count_commit", killed)
            with pytest.raises(SystemExit):
                board.complete("one", "done", token=task.token)
        before = sync.count
        assert board.complete("one", "done", token=task.token).status == "completed"
        assert sync.count > before
        assert sync.ended == [event.seq for event in board.changelog()][-1]
    sync.close()


@pytest.mark.parametrize(
    "content", [b"\xff" * 1088, bytes(8) + b"\1" * 16, b"\xfe" * 16, b"x" * 7], ids=["full", "ahead", "high", "short"]
)
def test_with_whatever_beside_the_board_every_call_is_synced(url: str, content: bytes) -> None:
    sync = Recorder(url)
    with board_with(url, sync) as board:
        board.add("one", id="one")
        Path(f"{path_of(url)}-sync").write_bytes(content)
        for number in range(3):
            board.add(f"task {number}")
            assert sync.ended == [event.seq for event in board.changelog()][-1]
    sync.close()
    assert_whole(url).close()


def test_a_fork_while_another_thread_writes_through_what_a_sync_has_lost(url: str, crew: Crew) -> None:
    crew.start("fork_beside_failing_syncs", url, "60").expect("forked")
    assert_whole(url).close()
