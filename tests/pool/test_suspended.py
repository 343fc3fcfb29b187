"""A pool that stands still for longer than a lease (a laptop's lid, Ctrl-Z, a debugger), while its agents work on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.errors import NotClaimable
from dibs.model import IN_PROGRESS
from tests.pool.conftest import ACTORS, NAP, PATIENCE, Place

LEASE = 2.5
AGENT = f"""
dibs='{sys.executable} -P -m dibs'
until_go='while ! [ -e "$POOL_NOTES/go" ]; do sleep 0.05; done'
case $DIBS_AGENT in
worker-1) exec {sys.executable} -P {ACTORS}/holding.py "$1" ;;
*) exec sh {ACTORS}/commands.sh "$dibs" "$until_go" ;;
esac
"""


class Suspended:
    """`dibs team`: worker-1 has an MCP server, the others use commands. Each is in the middle of a task."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.board = TaskBoard.open(place.url, create=True, durability="normal")
        self.tasks = self.board.add_many([{"description": "hold"}] * 3)
        (place.path / "agent.sh").write_text(AGENT)
        agent = shlex.join(["sh", str(place.path / "agent.sh"), "{mcp_config}"])
        command = [sys.executable, "-m", "dibs", "--board", place.url, "team", "-n", "3"]
        self._said = place.path / "said"
        with self._said.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--agent", agent, "--stale-timeout", f"{LEASE:g}s"], cwd=place.workspace,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "COLUMNS": "300"},
            )  # fmt: skip

    def has_said(self, text: str, after: str = "") -> bool:
        said = self._said.read_text()
        return text in (said.partition(after)[2] if after else said)

    def holders(self) -> dict[str, str]:
        return {task.assigned_to or "": task.id for task in self.board.tasks([IN_PROGRESS])[0]}

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.board.close()


@pytest.fixture
def team(place: Place) -> Iterator[Suspended]:
    made = Suspended(place)
    yield made
    made.close()


def wait_until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {condition}"
        time.sleep(NAP)
    return found


def test_a_pool_that_stood_still_loses_what_nobody_kept_and_nothing_is_done_twice(team: Suspended) -> None:
    """A server keeps what its agent holds. What commands have claimed only the pool keeps: that runs out, whoever is
    first has it then, and the agents that had it are refused."""
    board, process = team.board, team.process
    wait_until(lambda: len(team.holders()) == 3)
    process.send_signal(signal.SIGSTOP)
    held = team.holders()
    spoken, taken, free = (held[f"worker-{n}"] for n in (1, 2, 3))
    token = board.get(spoken).token

    def take() -> object:
        try:
            return board.claim("alice", taken)
        except NotClaimable:
            return None

    wait_until(take)
    wait_until(lambda: (board.get(free).lease_expires_at or 0) < time.time())
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: team.has_said(f"claimed {taken}: hold", after="alice"))  # it is awake, and has looked
    now = board.get(spoken)
    assert (now.status, now.assigned_to, now.token) == (IN_PROGRESS, "worker-1", token)
    team.place.note("go")
    for name in ("worker-2", "worker-3"):
        wait_until(partial(team.has_said, f"{name}  has ended: exit code 1: "))
    assert board.get(taken).assigned_to == "alice"
    board.complete(taken, "by alice", worker="alice")
    assert process.wait(PATIENCE) == 0
    done = [(e.task_id, e.worker) for e in board.changelog() if e.action == "completed_activity"]
    assert sorted(task or "" for task, _ in done) == sorted(held.values())
    assert {(spoken, "worker-1"), (taken, "alice")} <= set(done)
    recovered = {event.task_id for event in board.changelog() if event.action == "recovered_activity"}
    assert recovered == {taken, free}
    (log,) = team.place.workspace.glob(".dibs/team/*/worker-2.1.log")
    assert "alice" in log.read_text()
