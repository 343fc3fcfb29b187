"""Document 003's orchestrator by hand, beside dibs: which locks of the dead were given back by both in one moment?

The orchestrator reads in the owner file that a lock is a dead worker's, and then removes it by name. dibs gives back
what a dead process held when somebody needs it. If it does so between the two steps of the orchestrator, and the lock
is taken again, the orchestrator removes the lock of a worker that is alive. No `rm` can be kept from that. The evidence
is in the orchestrator's report (when it had read the name, and when the lock was removed) and in the changelog (that
dibs had given back the same worker's lock by then).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.acceptance.hands import lines


def given_back_twice(reports: Path, events: Iterable[Mapping[str, Any]]) -> set[str]:
    """The tasks and paths of which that is so. A report of the orchestrator is called `WORKER.cleaned`."""
    given_back = list(_by_dibs(events))
    found = set()
    for report in reports.glob("*.cleaned"):
        for line in lines(report):
            if line.word == "removed":
                found |= {
                    subject
                    for subject, lock, holder, at in given_back
                    if (lock, holder) == (line.subject, report.stem) and at <= line.at
                }
    return found


def _by_dibs(events: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str, str, int]]:
    """What dibs gave back on proof of death: task or path, the name of its lock, who had had it, and when."""
    takers: dict[tuple[str, int], str] = {}
    for event in events:
        data = event.get("data") or {}
        for lock in data.get("locks", ()):
            takers[lock["pattern"], lock["token"]] = event["worker"]
        if event["worker"] != "dibs":
            continue
        at = int(datetime.fromisoformat(event["timestamp"]).timestamp() * 1000) * 1_000_000
        for pattern, token in data.get("unlocks", ()):
            name = re.sub(r"[/\\]", "__", pattern).replace(":", "_")
            yield pattern, f"files/{name}", takers.get((pattern, token), ""), at
        dead = re.search(r"held by (\S+)\)", event.get("details") or "")
        if event["action"] == "recovered_activity" and dead is not None:
            yield event["activity_id"], f"tasks/{event['activity_id']}", dead[1], at


def names_one_of(subjects: Iterable[str], text: str) -> bool:
    return any(re.search(rf"(?<![\w/.-]){re.escape(subject)}(?![\w/.-])", text) for subject in subjects)
