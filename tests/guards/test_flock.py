"""FlockGuard, document 004: a kernel lock on an open file."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from dibs.errors import Busy
from dibs.guards import FlockGuard
from tests.guards.people import Python


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "taskboard.lock")


def test_it_is_held_between_acquire_and_release(path: str) -> None:
    guard, other = FlockGuard(path), FlockGuard(path)
    guard.acquire()
    assert guard.confirm()
    with pytest.raises(Busy, match="lock busy"):
        other.acquire(0)
    guard.release()
    guard.release()
    assert not guard.confirm()
    other.acquire(0)
    other.release()


def test_readers_share_it_and_a_writer_waits_for_them(path: str) -> None:
    with FlockGuard(path, shared=True), FlockGuard(path, shared=True), pytest.raises(Busy):
        FlockGuard(path).acquire(0)
    with FlockGuard(path), pytest.raises(Busy):
        FlockGuard(path, shared=True).acquire(0)


def test_the_wait_backs_off_and_ends_at_the_time_out(path: str) -> None:
    now, naps = [0.0], []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    with FlockGuard(path), pytest.raises(Busy):
        FlockGuard(path, steady=lambda: now[0], sleep=sleep).acquire(1.0)
    assert sum(naps) == pytest.approx(1.0)
    assert naps[0] < 0.01 < max(naps) <= 0.05


def test_without_a_time_out_it_waits_until_the_other_is_done(path: str) -> None:
    guard = FlockGuard(path)
    guard.acquire()
    got = threading.Event()

    def wait() -> None:
        with FlockGuard(path):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.wait(0.1)
    guard.release()
    assert got.wait(10)
    thread.join()


def test_a_file_that_was_replaced_excludes_nobody_and_is_noticed(path: str) -> None:
    guard = FlockGuard(path)
    guard.acquire()
    os.unlink(path)
    assert not guard.confirm()
    with FlockGuard(path) as second:
        assert second.confirm()
        guard.release()
        assert second.confirm()


def test_a_temporary_file_goes_with_its_last_holder(path: str) -> None:
    with FlockGuard(path, temporary=True):
        assert os.path.exists(path)
    assert not os.path.exists(path)


def test_the_flock_of_another_program_counts(path: str) -> None:
    with subprocess.Popen(["flock", path, "sh", "-c", "echo in; read line"], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        other.stdout.readline()
        with pytest.raises(Busy):
            FlockGuard(path).acquire(0)
        found = FlockGuard(path).holder()
        assert found is not None
        assert found.state == "alive"
        assert found.pid in (None, other.pid)
        other.stdin.close()
        other.wait()
        assert FlockGuard(path).holder() is None


def test_a_killed_holder_holds_nothing(path: str, python: Python) -> None:
    process = python(f"g = FlockGuard({path!r}); g.acquire(); print('in', flush=True); input()")
    process.expect("in")
    with pytest.raises(Busy, match="lock busy") as caught:
        FlockGuard(path).acquire(0)
    assert str(process.pid) in str(caught.value)
    process.end(signal.SIGKILL)
    FlockGuard(path).acquire(5)


def test_a_forked_child_neither_holds_nor_releases_its_parents(path: str) -> None:
    guard = FlockGuard(path)
    guard.acquire()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            guard.release()
            FlockGuard(path).acquire(0)
        except Busy:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert guard.confirm()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    guard.release()
    FlockGuard(path).acquire(0)  # although the child lives on
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)


def test_a_symbolic_link_is_not_followed(path: str) -> None:
    os.symlink("elsewhere", path)
    with pytest.raises(OSError, match="symbolic link"):
        FlockGuard(path).acquire(0)
