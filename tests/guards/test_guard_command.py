"""`dibs guard` and `dibs shell-lib` as commands."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from dibs.errors import Busy
from dibs.guards import FlockGuard, LockDirGuard, LockFileGuard
from tests.guards.people import LIBRARY, NOBODY, Process, Python, until


class Place:
    def __init__(self, folder: Path, python: Python) -> None:
        self.folder = folder
        self._python = python

    def start(self, *words: str) -> Process:
        return self._python.start([sys.executable, "-m", "dibs", *words], self.folder)

    def __call__(self, *words: str) -> tuple[int, str, str]:
        return self.start(*words).finish()

    @property
    def files(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def place(tmp_path: Path, python: Python) -> Place:
    return Place(tmp_path, python)


def test_the_exit_code_is_the_commands(place: Place) -> None:
    assert place("guard", "a.lock", "--", "sh", "-c", "echo in; exit 7") == (7, "in\n", "")
    assert place("guard", "a.lock", "sh", "-c", "kill -9 $$")[0] == 137
    assert place("guard", "a.lock", "--", "./missing")[0] == 127


def test_a_name_with_a_slash_is_a_lock_directory(place: Place) -> None:
    assert place("guard", "lock/", "--", "ls", "lock")[1] == "cmd\npid\nts\n"
    assert place.files == []


def test_a_lock_directory_that_is_there_already_is_recognised(place: Place) -> None:
    (place.folder / "lock").mkdir()
    (place.folder / "lock" / "pid").write_text(str(os.getpid()))
    code, out, err = place("guard", "lock", "--timeout", "0", "--", "echo", "in")
    assert (code, out) == (1, "")
    assert err.startswith("dibs: lock busy: lock\n")
    assert f"process {os.getpid()} has it, and is running" in " ".join(err.split())
    assert "bilu" not in err
    (place.folder / "lock" / "pid").write_text("")
    assert "it names no process: ask who made it" in place("guard", "lock", "--timeout", "0", "--", "true")[2]
    (place.folder / "lock" / "pid").write_text(str(NOBODY))
    assert place("guard", "lock", "--timeout", "0", "--", "echo", "in") == (0, "in\n", "")


def test_any_other_name_is_a_file_with_a_kernel_lock(place: Place) -> None:
    with FlockGuard(place.folder / "a.lock"):
        code, out, err = place("guard", "a.lock", "-t", "0.1", "--", "echo", "in")
    assert (code, out) == (1, "")
    assert "lock busy: a.lock" in err
    assert place.files == ["a.lock"]


def test_the_kind_can_be_said(place: Place) -> None:
    assert '"agent"' in place("guard", "--kind", "file", "b.lock", "--", "cat", "b.lock")[1]
    assert place("guard", "--kind", "dir", "b.lock", "--", "cat", "b.lock/cmd")[1].startswith("cat b.lock/cmd\n")
    assert place.files == []
    with LockFileGuard(place.folder / "b.lock", "worker-9"):
        code, _, err = place("guard", "--kind", "file", "--timeout", "0", "b.lock", "--", "true")
    assert code == 1
    assert err.startswith("dibs: lock busy: b.lock\n")
    assert "Board" not in err
    assert "worker-9 has it" in err
    agent = place("--as", "worker-3", "guard", "--kind", "file", "b.lock", "--", "cat", "b.lock")[1]
    assert '"agent": "worker-3"' in agent


def test_the_lock_of_a_bilu_board_keeps_its_documents_hint(place: Place) -> None:
    (place.folder / "board" / "tasks").mkdir(parents=True)
    with LockDirGuard(place.folder / "storage" / "lock", "rebuild"):
        err = " ".join(place("guard", "storage/lock/", "--timeout", "0", "--", "true")[2].split())
    hint = "If you are sure no bilu process is running, remove the lock directory."
    assert f"process {os.getpid()} (rebuild) has it, and is running; {hint}" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["dir", "file"])
def test_a_signal_goes_to_the_command_and_the_lock_goes_with_it(
    place: Place, kind: str, number: signal.Signals
) -> None:
    process = place.start("guard", "--kind", kind, "lock", "--", "sh", "-c", "echo in; exec sleep 60")
    process.expect("in")
    assert place.files == ["lock"]
    assert process.end(number, only=True) == 128 + number
    assert place.files == []


def test_the_lock_is_kept_until_a_command_that_takes_its_time_has_ended(place: Place) -> None:
    script = (
        "trap 'echo asked; sleep 0.5; test -d lock && echo held; exit 3' TERM; echo in; while :; do sleep 0.05; done"
    )
    process = place.start("guard", "lock/", "--", "sh", "-c", script)
    process.expect("in")
    os.kill(process.pid, signal.SIGTERM)
    process.expect("asked")
    with pytest.raises(Busy):
        LockDirGuard(place.folder / "lock").acquire(0)
    process.expect("held")
    assert process.end() == 128 + signal.SIGTERM
    assert place.files == []


def test_a_signal_while_waiting_ends_it_and_takes_nothing(place: Place) -> None:
    with LockDirGuard(place.folder / "lock") as guard:
        process = place.start("guard", "lock/", "--timeout", "60", "--", "true")
        until(lambda: Path(f"/proc/{process.pid}/wchan").exists() and _sleeps(process.pid), "it waits")
        process.end(signal.SIGTERM)
        assert guard.confirm()


def _sleeps(pid: int) -> bool:
    """Has it installed its handler for SIGTERM? Then it is about to wait, or waits."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_killed_guard_ends_its_command_and_leaves_a_lock_that_the_next_one_breaks(place: Place) -> None:
    process = place.start("guard", "lock/", "--", "sh", "-c", "echo in; exec sleep 60")
    process.expect("in")
    process.end(signal.SIGKILL, only=True)
    assert place.files == ["lock"]
    assert place("guard", "lock/", "--timeout", "0", "--", "echo", "again") == (0, "again\n", "")
    assert place.files == []


def test_a_lock_that_was_taken_away_meanwhile_is_said(place: Place) -> None:
    code, _, err = place("guard", "lock/", "--", "rm", "-r", "lock")
    assert code == 0
    assert "was taken from us" in err


def test_the_shell_library_is_printed_as_it_is(place: Place) -> None:
    assert place("shell-lib") == (0, LIBRARY.read_text(), "")
