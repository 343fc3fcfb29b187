"""Whichever way a process ends, what it held is given back; only SIGKILL leaves something behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards.people import Python, environment

MAKE = {
    "file": "LockFileGuard('lock', 'worker-1')",
    "dir": "LockDirGuard('lock', 'edit')",
    "flock": "FlockGuard('lock', temporary=True)",
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_back_and_then_ends_the_process(
    kind: str, number: signal.Signals, tmp_path: Path, python: Python
) -> None:
    # Short sleeps: a signal just before a call that blocks is handled by Python only when the call returns.
    code = f"""
os.chdir({str(tmp_path)!r}); release_on_signals()
with {MAKE[kind]}:
    print('in', flush=True)
    while True: time.sleep(0.05)
"""
    process = python(code)
    process.expect("in")
    assert list(tmp_path.iterdir()) != []
    assert process.end(number) == -number
    assert list(tmp_path.iterdir()) == []


def test_an_exception_gives_back(tmp_path: Path, python: Python) -> None:
    process = python(f"os.chdir({str(tmp_path)!r})\nwith {MAKE['dir']}: 1/0")
    assert process.finish()[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_the_interpreter_gives_back_what_was_forgotten(tmp_path: Path, python: Python) -> None:
    process = python(f"os.chdir({str(tmp_path)!r}); g = {MAKE['dir']}; g.acquire(); sys.exit(3)")
    assert process.finish()[0] == 3
    assert list(tmp_path.iterdir()) == []


def test_a_handler_that_was_there_before_decides(tmp_path: Path, python: Python) -> None:
    code = f"""
import signal
os.chdir({str(tmp_path)!r})
signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))
release_on_signals()
release_on_signals()
with {MAKE["dir"]} as guard:
    print('in', flush=True)
    while os.getpid():
        time.sleep(0.01)
        if guard.confirm() is False: print('lost', flush=True)
"""
    process = python(code)
    process.expect("in")
    for _ in range(2):
        os.kill(process.pid, signal.SIGTERM)
        process.expect("asked")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert process.end(signal.SIGINT) == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []


def test_an_ignored_signal_stays_ignored(tmp_path: Path, python: Python) -> None:
    code = f"""
import signal
os.chdir({str(tmp_path)!r})
signal.signal(signal.SIGHUP, signal.SIG_IGN)
release_on_signals()
with {MAKE["dir"]}:
    os.kill(os.getpid(), signal.SIGHUP)
    print('alive', flush=True)
"""
    process = python(code)
    process.expect("alive")
    assert process.finish()[0] == 0


def test_what_another_thread_holds_is_left_to_the_rule_for_the_dead(tmp_path: Path, python: Python) -> None:
    code = f"""
import threading
os.chdir({str(tmp_path)!r})
release_on_signals()
def hold():
    guard = {MAKE["dir"]}
    guard.acquire()
    print('in', flush=True)
    time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
while True: time.sleep(0.05)
"""
    process = python(code)
    process.expect("in")
    assert process.end(signal.SIGTERM) == -signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    again = f"os.chdir({str(tmp_path)!r})\nwith {MAKE['dir']}: print('in', flush=True)"
    assert python(again).finish()[:2] == (0, "in\n")


def test_guards_cost_a_program_little_before_they_are_used() -> None:
    code = "import sys, dibs.guards; print([m for m in sys.modules if m.startswith('dibs.guards.')])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
