"""The warden as a process, spoken to by hand: what it says, and that nothing below it outlives it."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.pool import warden
from tests.pool.conftest import NAP, PATIENCE, Place

SLEEP = "import time; time.sleep(60)"


class Held:
    """A warden, its pipes, and where its agent's output goes."""

    def __init__(self, place: Place) -> None:
        self.output = place.path / "output"
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", warden.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def order(self, *argv: str, **more: Any) -> dict[str, Any]:
        order = {
            "argv": argv,
            "env": dict(os.environ),
            "cwd": str(self.place.workspace),
            "stdin": None,
            "output": str(self.output),
        }
        self.tell(json.dumps({**order, **more}))
        return self.hear()

    def python(self, code: str, **more: Any) -> int:
        """A program that has begun when this returns: it prints a line first."""
        pid: int = self.order(sys.executable, "-c", f"print('begun', flush=True)\n{code}", **more)["started"]
        self.printed("begun")
        return pid

    def printed(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.output.exists() or text.encode() not in self.output.read_bytes():
            assert time.monotonic() < end
            time.sleep(NAP)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "the warden says nothing"
        line = self.process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {}
        return said

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> None:
        assert self.process.wait(PATIENCE) == 0
        assert self.place.left() == []


@pytest.fixture
def held(place: Place) -> Iterator[Held]:
    made = Held(place)
    yield made
    made.process.kill()
    made.process.wait()
    for pipe in (made.process.stdin, made.process.stdout):
        assert pipe is not None
        pipe.close()


@pytest.mark.parametrize(("code", "expected"), [("", 0), ("raise SystemExit(7)", 7)])
def test_it_says_how_the_agent_ended(held: Held, code: str, expected: int) -> None:
    held.python(code)
    assert held.hear() == {"ended": expected, "left": 0}
    held.ended()


def test_it_says_which_signal_ended_it(held: Held) -> None:
    pid = held.python(SLEEP)
    os.kill(pid, signal.SIGKILL)
    assert held.hear() == {"ended": -9, "left": 0}
    held.ended()


def test_place_environment_input_and_output_are_as_ordered(held: Held, place: Place) -> None:
    given = place.path / "given"
    given.write_text("hello")
    code = "import os, sys; print(os.getcwd(), os.environ['PWD'], os.environ['X'], sys.stdin.read(), flush=True)"
    env = {**os.environ, "X": "☃\udcff", "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf8:surrogateescape"}
    held.python(f"{code}; print('oops', file=sys.stderr)", env=env, stdin=str(given))
    assert held.hear()["ended"] == 0
    folder = os.fsencode(place.workspace)
    assert held.output.read_bytes() == b"begun\n%s %s \xe2\x98\x83\xff hello\noops\n" % (folder, folder)
    assert held.output.stat().st_mode & 0o077 == 0


def test_signals_are_as_a_program_expects_them(held: Held) -> None:
    """Whatever the warden ignores, and Python does, its agent does not."""
    held.python(
        "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], flush=True)", env={**os.environ}
    )
    held.hear()
    ignored = int(held.output.read_text().split()[1], 16)
    own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)  # by Python itself, in the agent
    assert ignored & ~own & 0x7FFF_FFFF == 0  # beyond are those of the C library, and whatever started the tests


def test_the_agent_is_a_group_of_its_own_and_has_no_other_files(held: Held) -> None:
    code = "import os; print(os.getpgid(0) == os.getpid(), os.listdir('/proc/self/fd'), flush=True)"
    held.python(code)
    held.hear()
    assert held.output.read_text().splitlines()[1] == "True ['0', '1', '2', '3']"  # the last is the listing itself


def test_a_large_environment_is_taken(held: Held) -> None:
    env = {**os.environ, **{f"V{n}": "x" * 100_000 for n in range(4)}}
    held.python(
        "import os; print(sum(len(v) for k, v in os.environ.items() if k[0] == 'V' and k[1:].isdigit()))", env=env
    )
    assert held.hear()["ended"] == 0
    assert held.output.read_text().split()[-1] == "400000"


@pytest.mark.parametrize(
    ("more", "number", "where"),
    [
        ({"argv": ["/nowhere/program"]}, errno.ENOENT, "program"),
        ({"argv": ["no-such-program-at-all"]}, errno.ENOENT, "program"),
        ({"argv": ["/"]}, errno.EACCES, "program"),
        ({"cwd": "/nowhere"}, errno.ENOENT, "directory"),
        ({"stdin": "/nowhere"}, errno.ENOENT, "stdin"),
        ({"output": "/nowhere/at/all"}, errno.ENOENT, "output"),
        ({"env": {"X": "x" * 200_000}}, errno.E2BIG, "program"),
    ],
)
def test_what_cannot_be_started_is_said(held: Held, more: dict[str, Any], number: int, where: str) -> None:
    said = held.order("true", **more)
    assert (said.get("errno"), str(said.get("failed")).split(":")[0]) == (number, where)
    assert held.hear() == {}
    held.ended()


def test_no_order_no_agent(held: Held) -> None:
    held.close_input()
    assert held.hear() == {}
    held.ended()


def test_half_an_order_is_none(held: Held) -> None:
    assert held.process.stdin is not None
    held.process.stdin.write(b'{"argv": ["touch"')
    held.close_input()
    assert held.hear() == {}
    held.ended()


def test_asked_to_end_it_gives_the_agent_its_time(held: Held) -> None:
    held.python(
        "import signal, sys, time\nsignal.signal(15, lambda *_: (time.sleep(0.5), sys.exit(5)))\n"
        f"print('set', flush=True)\n{SLEEP}"
    )
    held.printed("set")
    held.tell("end 30")
    assert held.hear()["ended"] == 5
    held.ended()


@pytest.mark.parametrize("word", ["end 0.2", "kill", "end 0"])
def test_what_does_not_want_to_end_is_killed(held: Held, word: str) -> None:
    held.python(f"import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\n{SLEEP}")
    held.printed("deaf")
    held.tell(word)
    assert held.hear()["ended"] == -9
    held.ended()


def test_a_shorter_time_wins_over_a_longer_one(held: Held) -> None:
    held.python(f"import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\n{SLEEP}")
    held.printed("deaf")
    held.tell("end 50")
    held.tell("kill")
    held.tell("end 50")
    assert held.hear()["ended"] == -9
    held.ended()


def test_a_stopped_agent_ends_too(held: Held) -> None:
    pid = held.python(SLEEP)
    os.kill(pid, signal.SIGSTOP)
    held.tell("end 30")
    assert held.hear()["ended"] == -15
    held.ended()


FAMILY = """
import os, subprocess, sys, time
child = "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN); %s; "
child += "print('child', flush=True); time.sleep(60)"
grandchild = "subprocess.Popen([sys.executable, '-c', %r], start_new_session=True, env={})" % (child % "pass")
subprocess.Popen([sys.executable, "-c", child % grandchild], start_new_session=True)
"""


def test_descendants_in_sessions_of_their_own_end_with_the_agent(held: Held) -> None:
    held.python(f"{FAMILY}\nwhile open({str(held.output)!r}).read().count('child') < 2: time.sleep(0.02)")
    said = held.hear()
    assert said == {"ended": 0, "left": 2}
    held.ended()


def test_descendants_end_when_the_pool_is_gone(held: Held) -> None:
    held.python(f"{FAMILY}\ntime.sleep(60)")
    while held.output.read_text().count("child") < 2:
        time.sleep(NAP)
    held.close_input()
    assert held.process.stdout is not None
    held.process.stdout.close()  # nobody hears it
    held.ended()


def test_a_terminated_warden_ends_its_agent_first(held: Held) -> None:
    held.python(SLEEP)
    held.process.terminate()
    assert held.hear()["ended"] == -15
    held.ended()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_of_a_terminal_are_not_for_the_warden(held: Held, number: int) -> None:
    held.python(SLEEP)
    held.process.send_signal(number)
    held.tell("end 5")
    assert held.hear()["ended"] == -15
    held.ended()


def test_a_killed_warden_takes_its_agent_along(held: Held, place: Place) -> None:
    pid = held.python(SLEEP)
    held.process.kill()
    held.process.wait()
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and place.left():
        assert time.monotonic() < end
        time.sleep(NAP)


def test_short_lived_orphans_are_reaped(held: Held) -> None:
    """Thousands of them would else fill the table of processes."""
    held.python(
        "import os, time\nfor _ in range(200):\n    os.system('true &')\ntime.sleep(0.2)\n"
        f"print(os.getppid(), flush=True)\n{SLEEP}"
    )
    end = time.monotonic() + PATIENCE
    while len(held.output.read_text().split()) < 2:
        assert time.monotonic() < end
        time.sleep(NAP)
    zombies = sum(_parent_and_state(pid) == (held.process.pid, "Z") for pid in filter(str.isdigit, os.listdir("/proc")))
    assert zombies <= 5
    held.tell("kill")
    held.hear()
    held.ended()


def _parent_and_state(pid: str) -> tuple[int, str]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(fields[1]), fields[0]
