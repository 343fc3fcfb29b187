"""What the agents' own servers and commands must know of their team: does it go on, and who leads it?

The pool keeps a small file, which agents find by DIBS_TEAM. Without it a worker that finds nothing to claim cannot
tell whether to wait for a lead who still plans, or to go home.

    notice = Notice(path, lead="lead");  notice.post(planning=True)  …  notice.post(over=True)       the pool
    team = around(worker_name)                     a server or command: None outside a team, else
    team.is_over, team.advice

The file is replaced as a whole. A pool that dies leaves it saying that the team works; its process is named in it, and
where that is provably gone, the team is over.
"""

from __future__ import annotations

import os

from dibs.jsontext import dumps, loads
from dibs.model import Worker
from dibs.worker import is_dead, of_process

VARIABLE = "DIBS_TEAM"


class Notice:
    def __init__(self, path: str, lead: str | None) -> None:
        self.path = path
        self._lead = lead
        self._said = ""

    def post(self, *, planning: bool = False, over: bool = False) -> None:
        """Say how the team stands; nothing is written if it has been said."""
        process = of_process("team", "system").as_dict()
        text = dumps({"pool": process, "lead": self._lead, "planning": planning, "over": over})
        if text != self._said:
            draft = f"{self.path}.new"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(draft, self.path)
            self._said = text


class Team:
    """How the team around a worker stands."""

    __slots__ = ("is_over", "is_planning")

    def __init__(self, is_over: bool, is_planning: bool) -> None:
        self.is_over = is_over
        self.is_planning = is_planning

    @property
    def word(self) -> str:
        return "over" if self.is_over else "working"

    @property
    def advice(self) -> str:
        if self.is_over:
            return "The team's work is over: stop."
        why = "the lead is still planning" if self.is_planning else "others of the team are still at work"
        return f"Your team is not finished, {why}: call again."


def around(name: str) -> Team | None:
    """The team that this process works in, for a worker of it; None outside a team, and for its lead."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            said = loads(file.read(65536))
        if said["lead"] == name:
            return None  # the others wait for the lead: it must not wait for them
        return Team(bool(said["over"]) or is_dead(Worker(**said["pool"])), bool(said["planning"]))
    except FileNotFoundError:
        return Team(True, False)  # its folder has been cleared away
    except (OSError, ValueError, KeyError, TypeError):
        return None
