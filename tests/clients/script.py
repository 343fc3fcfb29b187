"""What the scripted model lets every worker do, in words that no vendor has: a generator of actions, which is sent what
came of each. It claims, tries to edit the file of the other worker, writes its own, commits, completes, until the team
is over. Two workers meet in their first task, so both have one, and each tries while the other holds.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 120.0
"""Seconds that one worker waits for the other, and that something may take that starts a client; cores are shared."""
WORKERS = ("worker-1", "worker-2")
SPOILT = "spoilt"
"""What a worker tries to write into a file that is not its own."""
LAST_WORDS = "The team is over, and so am I."


@dataclass(frozen=True)
class Action:
    """`claim`, `complete`, `look`, `edit`, `write` or `shell`; each client has tools of its own for these."""

    kind: str
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    worker: str
    action: Action
    answer: str
    """What the client told the model."""


class Script:
    def __init__(self, commands: Sequence[str] = ()) -> None:
        """`commands` are run in every task, through the client's shell, before the commit."""
        self.done: list[Done] = []
        self._commands = commands
        self._meeting = threading.Condition()
        self._here: set[tuple[str, str]] = set()

    def answers(self, worker: str, kind: str) -> list[str]:
        return [done.answer for done in self.done if (done.worker, done.action.kind) == (worker, kind)]

    def shell(self, worker: str, command: str) -> list[str]:
        """The answers to commands that begin so."""
        ran = [done for done in self.done if done.worker == worker and done.action.kind == "shell"]
        return [done.answer for done in ran if done.action.given["command"].startswith(command)]

    def first_claims(self) -> list[str]:
        """The tasks with which the workers met."""
        return [where.removeprefix("claimed ") for _, where in self._here if where.startswith("claimed ")]

    def play(self, worker: str) -> Generator[Action, str, None]:
        """All that a worker does; whoever iterates sends the answer to each action."""
        is_first = True
        while True:
            claimed = told((yield Action("claim", {"wait_seconds": 5})))
            if not claimed["claimed"]:
                if claimed.get("team") == "over":
                    return
                continue
            task = str(claimed["task_id"])
            if is_first:
                self._meet(worker, f"claimed {task}")
                yield from self._trespass(task)
                self._meet(worker, "tried")
                is_first = False
            path = chapter(task)
            yield Action("write", {"path": path, "text": written(task, worker)})
            for command in self._commands:
                yield Action("shell", {"command": command})
            yield Action("shell", {"command": f"git add {path}"})
            yield Action("shell", {"command": f"git commit -m {task} {path}"})
            result = {"task_id": task, "token": claimed["token"], "result": f"{task} is written"}
            yield Action("complete", result)

    def _trespass(self, task: str) -> Generator[Action, str, None]:
        """Edit what the other one holds, as the client's edit tool does it: after a look."""
        for other in sorted({*self.first_claims()} - {task}):
            yield Action("look", {"path": page(other)})
            yield Action("edit", {"path": page(other), "old": draft(other), "new": SPOILT})

    def _meet(self, worker: str, where: str) -> None:
        """Wait until every worker is there. Nobody waits for ever: then the test fails by what is missing."""
        point = where.split(" ")[0]
        with self._meeting:
            self._here.add((worker, where))
            self._meeting.notify_all()
            self._meeting.wait_for(lambda: all(self._is_at(each, point) for each in WORKERS), PATIENCE)

    def _is_at(self, worker: str, point: str) -> bool:
        return any(who == worker and where.split(" ")[0] == point for who, where in self._here)


def page(task: str) -> str:
    """A task's file that is there before; another worker tries to edit it."""
    return f"{task}.txt"


def chapter(task: str) -> str:
    """A task's file that its own worker writes."""
    return f"{task}.md"


def draft(task: str) -> str:
    """What a page holds."""
    return f"{task}: to be kept"


def written(task: str, worker: str) -> str:
    """What a chapter holds in the end."""
    return f"{task} by {worker}"


def told(answer: str) -> dict[str, Any]:
    """The JSON object in a tool's answer; clients put words around it, some repeat it."""
    found = re.search(r"\{.*\}", answer, re.DOTALL)
    if found is None:
        raise ValueError(f"no object in {answer!r:.500}")
    value, _ = json.JSONDecoder().raw_decode(found[0])
    if not isinstance(value, dict) or "claimed" not in value:
        raise ValueError(f"not what claim_task answers: {answer!r:.500}")
    return value
