"""Half of the workers use dibs, half follow the document by hand, and none is ever hurt by another.

The judge is independent of dibs: every worker's own report, and the files as a strict reader sees them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.acceptance import hands
from tests.acceptance.actors import Job
from tests.acceptance.hands import FINISHED
from tests.processes.harness import environment, new_seed

PATIENCE = 120.0
HANDS = 4
URLS = {
    "taskboard": "taskboard:{}",
    "workflow": "workflow:{}?pause=0.02&retries=1000",
    "workitems": "workitems:{}",
    "bilu": "bilu:{}?timeout=60",
    "spec": "spec:{}",
}
SHORT = {"taskboard": 50, "workflow": 40, "workitems": 24, "bilu": 40, "spec": 50}
LONG = {"taskboard": 600, "workflow": 400, "workitems": 200, "bilu": 400, "spec": 600}
WORK = {"taskboard": 0.3, "workflow": 0.6, "workitems": 0.6, "bilu": 0.2, "spec": 0.03}
"""Seconds, at most, that users of dibs work on a task: a claim by hand takes a tenth of one, and half of the tasks
should be left for hands."""
CHANGELOGS = {
    "taskboard": ".dibs/changelog.log",
    "workflow": ".dibs/changelog.log",
    "workitems": "changelog.log",
    "bilu": "storage/.dibs/changelog.log",
    "spec": ".locks/.dibs/changelog.log",
}


class User(NamedTuple):
    """A worker that uses dibs."""

    name: str
    report: Path
    process: subprocess.Popen[bytes]


class Shift:
    """Everybody who works on one board, hands and users of dibs; nobody survives it."""

    def __init__(self, document: str, directory: Path, seed: int) -> None:
        self.document = document
        self.directory = directory
        self.reports = directory.parent / "reports"
        self.reports.mkdir(exist_ok=True)
        self.seed = seed
        self.hands: list[hands.Hand] = []
        self.users: list[User] = []
        self.gate = self.reports / "gate"

    def open_gate(self) -> None:
        """Let the users of dibs begin, once the interpreters of all have started."""
        until = time.monotonic() + PATIENCE
        while not all(Path(f"{user.report}.ready").exists() for user in self.users):
            assert time.monotonic() < until, "somebody never started"
            time.sleep(0.005)
        self.gate.touch()

    def add_hands(self, *names: str, **settings: object) -> None:
        self.hands += hands.start(self.document, self.directory, names, reports=self.reports, **settings)

    def add_user(self, role: str, name: str, work: float) -> None:
        report = self.reports / name
        url = URLS[self.document].format(self.directory)
        job = Job(url, name, str(report), seed=self.seed + len(self.users), work=work, gate=str(self.gate))
        with (self.reports / f"{name}.stderr").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.actors", role, json.dumps(job._asdict())],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment(),
                cwd="/",
                start_new_session=True,
            )
        self.users.append(User(name, report, process))

    def finish(self, patience: float) -> None:
        until = time.monotonic() + patience
        hands.finish(self.hands, patience)
        for user in self.users:
            code = user.process.wait(max(0.1, until - time.monotonic()))
            assert code == 0, (self.reports / f"{user.name}.stderr").read_text()

    def close(self) -> None:
        for hand in self.hands:
            hand.kill()
        for user in self.users:
            if user.process.poll() is None:
                os.killpg(user.process.pid, 9)
                user.process.wait()

    def all_reports(self) -> list[Path]:
        return [hand.report for hand in self.hands] + [user.report for user in self.users]


@pytest.fixture
def shifts() -> Iterator[list[Shift]]:
    made: list[Shift] = []
    yield made
    for shift in made:
        shift.close()


def events(document: str, directory: Path) -> list[dict[str, object]]:
    """The changelog that dibs wrote, every line of it."""
    text = (directory / CHANGELOGS[document]).read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def worked_together(document: str, tmp_path: Path, n_tasks: int, shifts: list[Shift]) -> str:
    seed = new_seed()
    directory = tmp_path / "board"
    ids = hands.make_board(document, directory, n_tasks, seed=seed)
    hands.plant(document, directory)
    before = hands.planted(directory)
    assert before

    started = time.monotonic()
    shift = Shift(document, directory, seed)
    shifts.append(shift)
    stem = "agent" if document == "spec" else "worker"
    role, command = ("implement", "implement_by_command") if document == "spec" else ("work", "command")
    for n in range(HANDS // 2):
        shift.add_user(role, f"{stem}-p{n}", work=WORK[document])
        shift.add_user(command, f"{stem}-c{n}", work=WORK[document] / 4)
    if document == "workflow":
        shift.add_user("integrate", "integrator-p", work=0)
    shift.open_gate()
    for n in range(HANDS):
        shift.add_hands(f"{stem}-h{n}")
    if document == "workflow":
        shift.add_hands("integrator-h")
    shift.finish(PATIENCE + n_tasks)
    took = time.monotonic() - started

    reports = shift.all_reports()
    integrated = document == "workflow"
    finished = "integrated" if integrated else FINISHED[document]
    assert hands.overlaps(reports) == []
    assert hands.overlaps(reports, "hold", "drop") == []
    assert hands.statuses(document, directory) == dict.fromkeys(ids, finished)
    assert hands.count(reports, "done") == dict.fromkeys(ids, 1)
    assert not hands.count(reports, "lost") + hands.count(reports, "twice") + hands.count(reports, "broke")
    assert hands.leftovers(document, directory) == []
    assert hands.planted(directory) == before
    if integrated:
        assert hands.count(reports, "integrated") == dict.fromkeys(ids, 1)
        writes = 3 * n_tasks - hands.count(reports, "chained").total()  # a completion and the next claim are one write
        assert json.loads((directory / "board.json").read_text())["version"] == 1 + writes
    if document == "workitems":
        steps = [entry for entry in hands.changelog(directory) if entry["action"] == "completed_task"]
        theirs = hands.count([hand.report for hand in shift.hands], "done").total()
        ours = hands.count([user.report for user in shift.users], "done").total()
        writes = len(steps) + theirs + 2 * ours - hands.count(reports, "chained").total()  # dibs writes in_progress too
        assert hands.progress(directory)["version"] == 1 + writes

    by_hand = sum(hands.count([hand.report for hand in shift.hands], "claim").values())
    by_dibs = hands.count([user.report for user in shift.users], "claim")
    assert by_hand + by_dibs.total() == n_tasks
    assert min(by_hand, by_dibs.total()) >= n_tasks // 20, "hardly mixed"
    own = {user.name for user in shift.users}
    told = [event["activity_id"] for event in events(document, directory) if event["worker"] in own
            and event["action"] in ("completed_activity", "submitted_activity")]  # fmt: skip
    assert sorted(map(str, told)) == sorted(by_dibs)
    return (
        f"{document}: {by_hand} claims by {len(shift.hands)} hands and {by_dibs.total()} by {len(shift.users)} users "
        f"of dibs in {took:.1f} s: 0 double, 0 lost; seed {seed}"
    )


@pytest.mark.parametrize("document", hands.DOCUMENTS)
def test_hands_and_dibs_share_a_board(document: str, tmp_path: Path, shifts: list[Shift]) -> None:
    print(worked_together(document, tmp_path, SHORT[document], shifts))


@pytest.mark.slow
@pytest.mark.parametrize("document", hands.DOCUMENTS)
def test_hands_and_dibs_share_a_board_for_hundreds_of_claims(
    document: str, tmp_path: Path, shifts: list[Shift], capsys: pytest.CaptureFixture[str]
) -> None:
    told = worked_together(document, tmp_path, LONG[document], shifts)
    with capsys.disabled():
        print(f"\n  {told}")
