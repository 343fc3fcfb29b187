"""One worker process of the demo: claims a task, works on it (sleeps), completes it, until the board is done.

What it does it also writes down in a file of its own, as it sees it and by its own clock. These records are the second
witness when the demo looks for double claims: they don't come from the board. A line is written before the next step,
so that they tell the truth up to the moment of a SIGKILL.
"""

from __future__ import annotations

import os
import random
import sys
import time

from dibs.board import TaskBoard
from dibs.jsontext import dumps, loads
from dibs.worker import of_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Records:
    """A worker's own notes: a line each for `claimed`, `finished` (the work) and `completed` (the board said yes)."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def write(self, did: str, task_id: str, token: int | None) -> None:
        line = dumps({"did": did, "task": task_id, "token": token, "at": time.monotonic()})
        os.write(self._file, line.encode() + b"\n")


def read_records(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="ascii") as file:
            return [loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def work(url: str, name: str, records: Records, seed: str, pace: float) -> None:
    parent = os.getppid()
    with TaskBoard.open(url) as board:
        me = of_process(name, session=f"demo-{name}-{os.getpid()}")
        while os.getppid() == parent:
            task = board.claim(me, wait=0.2)
            if task is None:
                if board.all_done:
                    return
                continue
            records.write("claimed", task.id, task.token)
            time.sleep(pace * random.Random(f"{seed} {task.id}").uniform(0.5, 1.5))
            records.write("finished", task.id, task.token)
            task.complete(f"done by {name}")
            records.write("completed", task.id, task.token)


if __name__ == "__main__":
    _, _url, _name, _path, _seed, _pace = sys.argv
    work(_url, _name, Records(_path), _seed, float(_pace))
