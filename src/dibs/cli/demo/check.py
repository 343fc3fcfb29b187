"""Was anything done twice? The demo's verdict, from three witnesses that must agree: the workers' own records, the
changelog, and the board.
"""

from __future__ import annotations

import os
from itertools import pairwise

from dibs.cli.audit import disagreements
from dibs.model import COMPLETED
from dibs.rules.paths import overlaps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from dibs.board import TaskBoard
    from dibs.model import BoardTask, Event

    Records = Mapping[str, Sequence[dict[str, Any]]]
    Claim = tuple[str, int, str]  # task, token, worker


class Verdict:
    """What was looked at, and what was wrong with it."""

    def __init__(self) -> None:
        self.claims = 0
        self.events = 0
        self.completed: list[str] = []
        """Problems: tasks that were not completed exactly once."""
        self.recovery: list[str] = []
        """Problems: the killed worker's task did not come back."""
        self.doubles: list[str] = []
        """Problems: a task in two hands at once, by anybody's account."""
        self.records: list[str] = []
        """Problems: the workers' records and the changelog tell different stories."""
        self.order: list[str] = []
        """Problems: a task begun before what it depends on, or a file held twice."""
        self.replay: list[str] = []
        """Problems: the changelog does not give the board's state."""

    @property
    def problems(self) -> list[str]:
        return [*self.completed, *self.recovery, *self.doubles, *self.records, *self.order, *self.replay]


def examine(board: TaskBoard, records: Records, ends: Mapping[str, float]) -> Verdict:
    """`ends` says when (on the workers' clock) each worker's process ended. One that was killed and started again has a
    line `killed` among its records."""
    verdict = Verdict()
    events = list(board.changelog())
    tasks = {task.id: task for task in board.tasks(limit=100_000)[0]}
    verdict.events = len(events)
    claims = [
        (e.task_id or "", e.data["set"]["token"], e.worker) for e in events if e.action == "claimed_activity" and e.data
    ]
    verdict.claims = len(claims)
    verdict.completed = _not_completed_once(tasks, events)
    verdict.doubles = [*_overlapping(records, ends), *_claimed_while_held(events)]
    verdict.records = _different(claims, events, records)
    verdict.order = [*_begun_too_early(tasks, events), *_files_held_twice(tasks, events)]
    verdict.replay = disagreements(board)
    return verdict


def _not_completed_once(tasks: Mapping[str, BoardTask], events: Iterable[Event]) -> list[str]:
    times = dict.fromkeys(tasks, 0)
    for event in events:
        if event.action == "completed_activity" and event.task_id:
            times[event.task_id] += 1
    return [
        f"{task.id} is {task.status} and was completed {times[task.id]} times"
        for task in tasks.values()
        if task.status is not COMPLETED or times[task.id] != 1
    ]


def _overlapping(records: Records, ends: Mapping[str, float]) -> list[str]:
    """Two workers that were at the same task at the same time, by their own clocks."""
    spans: dict[str, list[tuple[float, float, str]]] = {}
    for worker, lines in records.items():
        begun = None
        for line in lines:
            if line["did"] in ("claimed", "finished", "killed") and begun is not None:
                spans.setdefault(begun["task"], []).append((begun["at"], line["at"], worker))
                begun = None
            if line["did"] == "claimed":
                begun = line
        if begun is not None:
            spans.setdefault(begun["task"], []).append((begun["at"], ends.get(worker, float("inf")), worker))
    return [
        f"{task}: {first[2]} and {second[2]} worked on it at the same time"
        for task, found in spans.items()
        for first, second in pairwise(sorted(found))
        if second[0] < first[1]
    ]


def _claimed_while_held(events: Iterable[Event]) -> list[str]:
    holder: dict[str, str | None] = {}
    found = []
    for event in events:
        status = (event.data or {}).get("set", {}).get("status")
        if event.task_id is None or status is None:
            continue
        if event.action == "claimed_activity":
            if holder.get(event.task_id):
                found.append(f"{event.task_id}: claimed by {event.worker} while {holder[event.task_id]} held it")
            holder[event.task_id] = event.worker
        else:
            holder[event.task_id] = None
    return found


def _different(claims: Sequence[Claim], events: Iterable[Event], records: Records) -> list[str]:
    """Claims and completions that only one of the two kinds of witness knows, and tokens that do not grow."""
    noted = {
        (r["task"], r["token"], worker) for worker, lines in records.items() for r in lines if r["did"] == "claimed"
    }
    found = [f"claim {claim} is only in the changelog" for claim in claims if claim not in noted]
    found += [f"claim {claim} is only in {claim[2]}'s records" for claim in sorted(noted - set(claims))]
    completed = {(e.task_id, e.worker) for e in events if e.action == "completed_activity"}
    said = {(r["task"], worker) for worker, lines in records.items() for r in lines if r["did"] == "completed"}
    found += [f"completion {each} is known to one side only" for each in sorted(completed ^ said, key=str)]
    tokens = [token for _, token, _ in claims]
    if any(later <= earlier for earlier, later in pairwise(tokens)):
        found.append("the tokens do not grow from claim to claim")
    return found


def _begun_too_early(tasks: Mapping[str, BoardTask], events: Iterable[Event]) -> list[str]:
    done: set[str] = set()
    found = []
    for event in events:
        if event.action == "completed_activity" and event.task_id:
            done.add(event.task_id)
        elif event.action == "claimed_activity" and event.task_id:
            found += [
                f"{event.task_id} was begun before {need}"
                for need in tasks[event.task_id].depends_on
                if need not in done
            ]
    return found


def _files_held_twice(tasks: Mapping[str, BoardTask], events: Iterable[Event]) -> list[str]:
    held: dict[str, list[str]] = {}
    found = []
    for event in events:
        status = (event.data or {}).get("set", {}).get("status")
        if event.task_id is None or status is None:
            continue
        if event.action != "claimed_activity":
            held.pop(event.task_id, None)
            continue
        mine = tasks[event.task_id].paths
        for other, theirs in held.items():
            if any(overlaps(a, b) for a in mine for b in theirs):
                found.append(f"{event.task_id} and {other} held the same files at once")
        held[event.task_id] = mine
    return found


def passed_over(tasks: Mapping[str, BoardTask], events: Iterable[Event]) -> int:
    """How many claims took a later task, because an earlier one that was ready wants a file that somebody held."""
    waiting: dict[str, None] = {}
    done: set[str] = set()
    held: dict[str, list[str]] = {}
    found = 0
    for event in events:
        if event.task_id is None:
            continue
        if event.action == "added_activity":
            waiting[event.task_id] = None
        elif event.action == "claimed_activity":
            earlier = list(waiting)[: list(waiting).index(event.task_id)]
            found += any(_waits_for_a_file(tasks[other], done, held) for other in earlier)
            del waiting[event.task_id]
            held[event.task_id] = tasks[event.task_id].paths
        elif (event.data or {}).get("set", {}).get("status") is not None:
            held.pop(event.task_id, None)
            if event.action == "completed_activity":
                done.add(event.task_id)
            else:
                waiting = {event.task_id: None, **waiting}
    return found


def _waits_for_a_file(task: BoardTask, done: set[str], held: Mapping[str, Sequence[str]]) -> bool:
    ready = all(need in done for need in task.depends_on)
    return ready and any(overlaps(mine, path) for mine in task.paths for paths in held.values() for path in paths)


def left_running(session: str) -> list[str]:
    """Processes whose DIBS_SESSION begins so. Only Linux shows others' environment; elsewhere none is found."""
    mark = b"DIBS_SESSION=" + session.encode()
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open(f"/proc/{name}/environ" if name.isdigit() else os.devnull, "rb") as file:
                if any(line.startswith(mark) for line in file.read().split(b"\0")):
                    found.append(f"process {name} is still running")
        except OSError:
            continue
    return found
