"""An agent that uses the board directly, with what its environment says: `python direct.py 'STEP; STEP …'`.

A step is a verb and one argument. What an agent is told to do before an accident, and the accident itself, are steps
alike, so each test says in one line what happens. It imports nothing that it does not need: most tests start several.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dibs import TaskBoard
from dibs.board import TaskBoard as Board
from dibs.model import BoardTask
from dibs.pool import notice
from dibs.worker import of_process

PATIENCE = 60.0
NAP = 0.02


class Actor:
    def __init__(self) -> None:
        self.name = os.environ["DIBS_AGENT"]
        self.notes = Path(os.environ["POOL_NOTES"])
        self._board: Board | None = None
        self.task: BoardTask | None = None

    @property
    def board(self) -> Board:
        if self._board is None:
            url, stale = os.environ["DIBS_BOARD"], os.environ.get("DIBS_STALE_TIMEOUT")
            self._board = TaskBoard.open(
                url, worker=of_process(self.name), stale_timeout=float(stale) if stale else None
            )
        return self._board

    # -- work

    def claim(self, task_id: str = "") -> None:
        """One task, whatever it is, or none if the team is over."""
        who = of_process(self.name)
        while True:
            self.task = self.board.claim(who, task_id or None, wait=0.2)
            team = notice.around(self.name)
            if self.task is not None or (team is not None and team.is_over):
                break
        if self.task is not None:
            self.note(f"claimed {self.task.id}")

    def complete(self, result: str = "") -> None:
        assert self.task is not None
        self.task.complete(result or f"done by {self.name}")

    def fail(self, why: str = "") -> None:
        assert self.task is not None
        self.task.fail(why or "it cannot be done")

    def release(self, why: str = "") -> None:
        assert self.task is not None
        self.task.release(why or None)

    def work(self, seconds: str = "") -> None:
        """As workers are told: until the team is over."""
        while True:
            self.claim()
            if self.task is None:
                return
            time.sleep(float(seconds or 0))
            self.complete()

    def drain(self, seconds: str = "") -> None:
        """As simple programs do: until there is nothing to claim."""
        while task := self.board.claim(of_process(self.name)):
            time.sleep(float(seconds or 0))
            task.complete(f"done by {self.name}")

    def lock(self, pattern: str) -> None:
        self.board.lock([pattern], of_process(self.name))

    def add(self, text: str) -> None:
        self.board.add(text)

    # -- signs to and from the test

    def note(self, word: str) -> None:
        (self.notes / f"{self.name} {word}").touch()

    def until(self, word: str) -> None:
        """Until somebody has noted this."""
        end = time.monotonic() + PATIENCE
        while not (self.notes / word).exists():
            if time.monotonic() > end:
                raise SystemExit(f"{word} never came")
            time.sleep(NAP)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def part(self, text: str) -> None:
        print(text, end="", flush=True)

    def echo(self, name: str) -> None:
        """A variable of its environment."""
        print(os.environ.get(name), flush=True)

    def prompt(self, _: str) -> None:
        print(sys.stdin.read() or Path(os.environ["DIBS_PROMPT_FILE"]).read_text(), flush=True)

    def pwd(self, _: str) -> None:
        print(os.getcwd(), flush=True)

    def write(self, path: str) -> None:
        Path(path).write_text("something\n")

    def command(self, line: str) -> None:
        subprocess.run(line, shell=True, check=True)

    # -- accidents

    def sleep(self, seconds: str = "") -> None:
        time.sleep(float(seconds or PATIENCE))

    def exit(self, code: str) -> None:
        raise SystemExit(int(code))

    def kill(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def stop(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def deaf(self, _: str) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def close(self, _: str) -> None:
        for fd in (0, 1, 2):
            os.close(fd)

    def garbage(self, _: str) -> None:
        noise = bytes(range(256)) * 4096
        for _n in range(4):
            os.write(1, noise.replace(b"\n", b"\x1b]0;owned\x07\x1b[2J\x9b31m"))

    def child(self, steps: str) -> None:
        """A child in a session of its own, that does its own steps (separated by +) and outlives this process."""
        subprocess.Popen([sys.executable, __file__, steps.replace("+", ";")], start_new_session=True)

    def hop(self, seconds: str) -> None:
        """Never the same process for long: whoever looks for this one by its number comes too late."""
        end = time.monotonic() + float(seconds)
        self.deaf("")
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
        self.note("hopped")


def main(steps: str) -> None:
    actor = Actor()
    for step in filter(None, (step.strip() for step in steps.split(";"))):
        verb, _, argument = step.partition(" ")
        getattr(actor, verb)(argument)


if __name__ == "__main__":
    main(sys.argv[1])
