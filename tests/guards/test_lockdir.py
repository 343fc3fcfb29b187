"""LockDirGuard, document 002: a directory made by mkdir, with pid, ts and cmd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import Busy
from dibs.guards import LockDirGuard, lockdir
from dibs.guards.base import LITTER_AGE
from dibs.guards.holder import own_record, read_pid
from dibs.jsontext import dumps, loads
from tests.guards.people import NOBODY, Python


class Place:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "storage" / "lock"

    def guard(self, **more: Any) -> LockDirGuard:
        return LockDirGuard(self.path, "bilu board edit", **more)

    def locked(self, pid: object = None, cmd: str | None = None) -> None:
        self.path.mkdir(parents=True)
        if pid is not None:
            (self.path / "pid").write_text(f"{pid}\n")
        if cmd is not None:
            (self.path / "cmd").write_text(cmd)

    def record(self, **changed: object) -> str:
        return f"bilu\n{dumps(loads(own_record('n')) | changed)}\n"

    @property
    def files(self) -> list[str]:
        return sorted(os.listdir(self.path.parent))

    def is_broken(self) -> bool:
        """Does somebody who does not wait get it?"""
        guard = self.guard()
        try:
            guard.acquire(0)
        except Busy:
            return False
        assert guard.confirm()
        guard.release()
        assert self.files == []
        return True


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_holds_the_three_files_of_the_document_and_nothing_else(place: Place) -> None:
    with place.guard(clock=lambda: 1770000000.9) as guard:
        assert sorted(os.listdir(place.path)) == ["cmd", "pid", "ts"]
        assert (place.path / "pid").read_text() == f"{os.getpid()}\n"
        assert (place.path / "ts").read_text() == "1770000000\n"
        assert (place.path / "cmd").read_text().splitlines()[0] == "bilu board edit"
        assert place.files == ["lock"]
        assert guard.confirm()
        found = guard.holder()
        assert found is not None
        assert (found.name, found.pid, found.since, found.state) == (
            "bilu board edit",
            os.getpid(),
            1770000000,
            "alive",
        )
    assert place.files == []
    assert guard.holder() is None
    guard.release()


def test_busy_names_the_path_and_gives_the_documents_hint(place: Place) -> None:
    with place.guard(), pytest.raises(Busy) as caught:
        place.guard().acquire(0)
    assert caught.value.message == f"error: lock busy: {place.path}"
    assert caught.value.hint.startswith(f"process {os.getpid()} (")
    assert caught.value.hint.endswith(
        " has it, and is running; If you are sure no bilu process is running, remove the lock directory."
    )


def test_of_a_lock_that_names_nobody_only_the_documents_hint_is_given(place: Place) -> None:
    place.path.mkdir(parents=True, exist_ok=True)
    with pytest.raises(Busy) as caught:
        place.guard().acquire(0)
    assert caught.value.hint == "If you are sure no bilu process is running, remove the lock directory."


def test_nobody_is_told_to_remove_a_directory_that_is_no_lock(place: Place) -> None:
    place.locked()
    (place.path / "main.py").touch()
    with pytest.raises(Busy) as caught:
        place.guard().acquire(0)
    assert "remove" not in caught.value.hint


def test_it_waits_ten_seconds_in_short_sleeps(place: Place) -> None:
    now, naps = [0.0], []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    with place.guard(), pytest.raises(Busy):
        place.guard(steady=lambda: now[0], sleep=sleep).acquire()
    assert sum(naps) == pytest.approx(10)
    assert max(naps) <= 0.1


def test_a_dead_pid_is_removed_even_without_waiting(place: Place) -> None:
    place.locked(NOBODY)
    assert place.is_broken()


def test_the_pid_of_a_process_that_has_ended_is_dead(place: Place) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    place.locked(child.pid)
    assert place.is_broken()


@pytest.mark.parametrize(
    "pid",
    [
        None,
        "",
        "garbage",
        "-1",
        "0",
        "007",
        "12.5",
        "1 2",
        "9" * 40,
        "٣",
        "1; rm -rf /",
        pytest.param(os.getpid(), id="our own"),
        1,
    ],
)
def test_a_live_or_unknown_pid_is_never_removed(place: Place, pid: object) -> None:
    place.locked(pid)
    assert not place.is_broken()
    assert place.files == ["lock"]


def test_a_pid_that_is_in_use_again_is_alive_unless_the_record_proves_otherwise(place: Place) -> None:
    place.locked(os.getpid())
    assert not place.is_broken()
    (place.path / "cmd").write_text(place.record(started="1"))
    found = place.guard().holder()
    assert found is not None
    assert found.state == "dead"
    assert "later process" in found.why
    assert place.is_broken()


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "elsewhere"},
        {"pid": 5},
        {"boot": loads(own_record(""))["boot"].split(" ")[0] + " pid:[1]"},
    ],
    ids=["another host", "a contradiction", "another container"],
)
def test_a_record_that_casts_doubt_protects_even_a_pid_that_nobody_has(place: Place, changed: dict[str, Any]) -> None:
    place.locked(NOBODY, place.record(**({"pid": NOBODY} | changed)))
    assert not place.is_broken()


def test_after_a_restart_of_the_machine_a_pid_that_nobody_has_is_dead(place: Place) -> None:
    place.locked(NOBODY, place.record(pid=NOBODY, boot="another pid:[1]"))
    assert place.is_broken()


def test_after_a_restart_a_pid_in_use_proves_nothing(place: Place) -> None:
    place.locked(os.getpid(), place.record(boot="another pid:[1]", started="1"))
    assert not place.is_broken()


def test_it_waits_for_a_living_breaker_and_takes_over_from_a_dead_one(place: Place) -> None:
    place.locked(NOBODY)
    (place.path / "break.1").symlink_to(str(os.getppid()))
    with pytest.raises(Busy):
        place.guard().acquire(0)
    (place.path / "break.1").unlink()
    (place.path / "break.1").symlink_to(str(NOBODY))
    (place.path / "break.2").symlink_to(f"{os.getpid()} " + dumps(loads(own_record("n")) | {"started": "1"}))
    assert place.is_broken()


def test_a_breaker_whose_directory_was_replaced_leaves_the_new_one_alone(place: Place) -> None:
    place.locked(NOBODY)
    guard = place.guard()
    found = guard._look()
    assert found is not None
    with found:
        os.rename(place.path, place.path.parent / "old")
        with place.guard() as other:
            assert not guard._break(found)
            assert other.confirm()


def test_a_live_lock_that_was_moved_by_accident_is_put_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.locked(NOBODY)
    guard, other = place.guard(), place.guard()
    rename = os.rename

    def by_hand(source: Any, target: Any) -> None:
        monkeypatch.undo()
        rename(place.path, place.path.parent / "old")
        other.acquire(0)
        rename(source, target)

    monkeypatch.setattr(os, "rename", by_hand)
    found = guard._look()
    assert found is not None
    with found:
        assert not guard._break(found)
    assert other.confirm()
    other.release()


def test_one_that_was_removed_by_hand_knows_and_leaves_the_new_one_alone(place: Place) -> None:
    guard = place.guard()
    guard.acquire()
    subprocess.run(["rm", "-r", place.path], check=True)
    assert not guard.confirm()
    with place.guard() as other:
        guard.release()
        assert other.confirm()


def test_those_who_remove_by_the_document_find_nothing_more_in_it(place: Place) -> None:
    guard = place.guard()
    guard.acquire()
    subprocess.run(["sh", "-c", 'cd "$1" && rm -f pid ts cmd && rmdir "$1"', "sh", place.path], check=True)
    assert place.files == []
    guard.release()


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_directory_is_not_replaced(place: Place, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(lockdir, "rename_to_new", lambda *_: False)
    place.path.parent.mkdir()
    exists = os.path.lexists

    def mkdir_at_the_worst_moment(path: Any) -> bool:
        if str(path) == str(place.path) and not exists(path):
            os.mkdir(path)
            return False
        return exists(path)

    monkeypatch.setattr(os.path, "lexists", mkdir_at_the_worst_moment)
    with pytest.raises(Busy):
        place.guard().acquire(0)
    assert os.listdir(place.path) == []
    assert place.files == ["lock"]


def test_where_no_such_rename_exists_it_is_made_in_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockdir, "rename_to_new", lambda *_: False)
    with place.guard() as guard:
        assert guard.confirm()
        assert place.files == ["lock"]
        with pytest.raises(Busy):
            place.guard().acquire(0)
    assert place.files == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_disk_that_is_full_leaves_no_lock(place: Place, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(lockdir, "rename_to_new", lambda *_: False)
    write, left = os.write, [2 if whole else 4]

    def full(*args: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(*args)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        place.guard().acquire()
    monkeypatch.undo()
    assert place.files == []


def test_old_litter_goes_with_the_next_break(place: Place) -> None:
    place.locked(NOBODY)
    old, new = (place.path.parent / f".lock.dibs-{n}-x" for n in (1, 2))
    for folder in (old, new):
        folder.mkdir()
        (folder / "pid").touch()
    os.utime(old, (0, place.path.stat().st_mtime - LITTER_AGE - 60))
    with place.guard():
        assert place.files == [new.name, "lock"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_directory_is_never_touched(place: Place, kind: str) -> None:
    place.path.parent.mkdir()
    if kind == "link":
        place.path.symlink_to("elsewhere")
    else:
        place.path.write_text(str(NOBODY))
    with pytest.raises(Busy):
        place.guard().acquire(0)
    assert place.files == ["lock"]


def test_a_killed_holder_is_broken_by_the_next(place: Place, python: Python) -> None:
    process = python(f"LockDirGuard({str(place.path)!r}).acquire(); print('in', flush=True); input()")
    process.expect("in")
    assert not place.is_broken()
    process.end(signal.SIGKILL)
    assert place.is_broken()


def test_a_forked_child_leaves_its_parents_lock_alone(place: Place) -> None:
    with place.guard() as guard:
        child = os.fork()
        if child == 0:
            assert not guard.confirm()
            guard.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert guard.confirm()


def test_a_guard_is_not_reentrant(place: Place) -> None:
    with place.guard() as guard, pytest.raises(RuntimeError, match="already"):
        guard.acquire()
    assert place.files == []


@pytest.mark.parametrize(("text", "pid"), [("12\n", 12), (" 7 ", 7), ("0", None), ("-3", None), ("", None)])
def test_a_pid_is_read_as_the_shell_writes_it(text: str, pid: int | None) -> None:
    assert read_pid(text) == pid
