"""Time namespaces (`unshare -T`, some containers) move start times and the steady clock, and keep boot and pids: nobody
who lives is taken for dead across them, and no lease moves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.clock import boot_id
from tests.processes.harness import IN_A_FILE, Crew, environment

GUARD = [sys.executable, "-m", "dibs", "guard"]
INSIDE = ["unshare", "-T", "--boottime", "100000"]


def is_allowed() -> bool:
    return bool(shutil.which("unshare")) and subprocess.run([*INSIDE, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not is_allowed(), reason="the kernel does not let us make a time namespace")
LATER = pytest.mark.parametrize("later", [True, False], ids=["the other inside", "the holder inside"])


def inside(yes: bool) -> list[str]:
    return INSIDE if yes else []


def dibs(yes: bool, *words: str) -> str:
    command = [*inside(yes), sys.executable, "-m", "dibs", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), cwd="/").stdout


@IN_A_FILE
@LATER
def test_a_live_holder_keeps_its_task_and_its_lock(url: str, crew: Crew, later: bool) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("work")
    holder = crew.start("carry", url, "holder", 3600, before=inside(not later))
    holder.expect("claimed")
    gripping = crew.start("grip", url, "holder", "docs", before=inside(not later))
    gripping.expect("locked")
    assert "nothing to recover" in dibs(later, "--board", url, "recover")
    assert "nothing to claim" in dibs(later, "--board", url, "--as", "other", "claim")
    assert "docs" in dibs(later, "--board", url, "locks")
    with TaskBoard.open(url, worker="maker") as board:
        assert board.get(task_id).assigned_to == "holder"
    holder.tell()
    holder.expect("completed")


@IN_A_FILE
@LATER
def test_the_steady_clock_of_another_namespace_moves_no_lease(url: str, crew: Crew, later: bool) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        task_id = board.add("work")
        crew.start("carry", url, "holder", 3600, before=inside(not later)).expect("claimed")
        expires = board.get(task_id).lease_expires_at
        for number, yes in enumerate((later, not later)):
            assert dibs(yes, "--board", url, "--as", "other", "add", f"another {number}")
        assert board.get(task_id).lease_expires_at == expires
        assert "adjusted_clock" not in [event.action for event in board.changelog()]


@LATER
@pytest.mark.parametrize("name", ["lock/", "a.lock"])
def test_a_live_holder_keeps_its_guard(tmp_path: Path, name: str, later: bool) -> None:
    holder = subprocess.Popen(
        [*inside(not later), *GUARD, f"{tmp_path}/{name}", "--", "sh", "-c", "echo inside; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"inside\n"
        assert dibs(later, "guard", f"{tmp_path}/{name}", "--timeout", "0", "--", "echo", "in") == ""
    finally:
        holder.communicate()
    assert dibs(later, "guard", f"{tmp_path}/{name}", "--timeout", "0", "--", "echo", "in") == "in\n"


def test_an_identity_from_outside_any_time_namespace_is_as_it_was() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    told = subprocess.run(
        [*INSIDE, sys.executable, "-c", "from dibs.clock import boot_id; print(boot_id())"],
        capture_output=True,
        text=True,
        env=environment(),
    ).stdout
    assert told.startswith(f"{boot_id()} time:[")
