"""Requests that are cancelled at any moment: what was done and never answered is taken back."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from tests.mcp.driving import surroundings
from tests.processes.harness import new_seed

TRIES = 60


class Raw:
    """A client that speaks the protocol by hand: it can send a request and take it back a millisecond later."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dibs", "mcp", "--client", "raw"],
            cwd=folder, env=surroundings(runtime), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.number = 0
        self.answers: dict[int, Any] = {}
        self.rest = b""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        self.wait(self.send("initialize", hello))
        self.notify("notifications/initialized", {})

    def send(self, method: str, params: dict[str, Any]) -> int:
        self.number += 1
        self._write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.number

    def call(self, tool: str, **arguments: Any) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def cancel(self, number: int) -> None:
        self.notify("notifications/cancelled", {"requestId": number, "reason": "changed my mind"})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def listen(self, seconds: float) -> None:
        """Take in whatever comes within so many seconds."""
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([out], [], [], left)[0]:
            *lines, self.rest = (self.rest + os.read(out, 1 << 16)).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "id" in message:
                    self.answers[message["id"]] = message.get("result", {}).get("structuredContent")

    def wait(self, number: int) -> Any:
        end = time.monotonic() + 60
        while number not in self.answers and time.monotonic() < end:
            self.listen(0.05)
        return self.answers[number]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[TaskBoard]:
    url = f"sqlite:{tmp_path}/.dibs/board.db"
    with TaskBoard.open(url, create=True, worker="lead", durability="normal") as made:
        yield made


@pytest.fixture
def raw(tmp_path: Path, board: TaskBoard) -> Iterator[Raw]:
    made = Raw(tmp_path, tmp_path / "run")
    yield made
    made.close()


def in_time(raw: Raw, holds: Callable[[], bool]) -> bool:
    """Does it hold, and stay so, once all that was cancelled has been dealt with? That may be a while after the last
    answer."""
    end = time.monotonic() + 30
    while not holds() and time.monotonic() < end:
        raw.listen(0.1)
    raw.listen(0.5)
    return holds()


def test_no_claim_or_lock_is_kept_that_nobody_was_told_of(raw: Raw, board: TaskBoard) -> None:
    chance = random.Random(new_seed())
    board.add_many([{"description": f"task {n}"} for n in range(TRIES)])
    claims, locks = [], []
    for n in range(TRIES):
        claims.append(raw.call("claim_task"))
        raw.listen(chance.uniform(0, 0.012))
        raw.cancel(claims[-1])
        locks.append(raw.call("lock_files", paths=[f"file-{n}"]))
        raw.listen(chance.uniform(0, 0.008))
        raw.cancel(locks[-1])
    raw.wait(raw.call("list_tasks", limit=1))

    def held() -> set[str]:
        return {task.id for task in board.tasks(["in_progress"], limit=1000)[0]}

    def told() -> set[str]:
        return {raw.answers[n]["task_id"] for n in claims if raw.answers.get(n)}

    def locked() -> set[str]:
        return {lock.pattern for lock in board.locks()}

    def told_locked() -> set[str]:
        return {path for n in locks if raw.answers.get(n) for path in raw.answers[n]["locked"]}

    assert in_time(raw, lambda: held() == told()), held() ^ told()
    assert in_time(raw, lambda: locked() == told_locked()), locked() ^ told_locked()


def test_no_message_is_lost(raw: Raw, board: TaskBoard) -> None:
    chance = random.Random(new_seed())
    board.tell("welcome")
    raw.wait(raw.call("check_messages"))  # whoever has never read is not given all
    asked = []
    for n in range(TRIES):
        board.tell(f"message {n}")
        asked.append(raw.call("check_messages"))
        raw.listen(chance.uniform(0, 0.01))
        raw.cancel(asked[-1])

    def seen() -> set[str]:
        asked.append(raw.call("check_messages"))
        raw.wait(asked[-1])
        return {m["content"] for n in asked if raw.answers.get(n) for m in raw.answers[n]["messages"]}

    told = {f"message {n}" for n in range(TRIES)}
    assert in_time(raw, lambda: seen() == told), told - seen()


def test_a_newcomer_loses_no_message_that_comes_while_it_looks(raw: Raw, board: TaskBoard) -> None:
    asked = []
    for n in range(15):  # a newcomer is given more than that
        board.tell(f"message {n}")
        asked.append(raw.call("check_messages"))
    board.tell("last")
    raw.wait(raw.call("check_messages"))
    contents = [m["content"] for n in [*asked, raw.number] for m in raw.wait(n)["messages"]]
    assert sorted(contents) == sorted([*(f"message {n}" for n in range(15)), "last"])
