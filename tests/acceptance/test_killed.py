"""Workers die, by SIGKILL: those that use dibs at any moment, those by hand where their document has a rule for it.

Everything comes back by the document's own rule, nobody ever holds what another living worker holds, and what a call
had answered stays. Time, where a rule waits for it, is made to pass (`hands.age`); leases and stale locks are as long
as the documents say, so no living worker is taken for dead however slow the machine is.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from tests.acceptance import hands
from tests.acceptance.actors import Job, insist
from tests.acceptance.cleaning import given_back_twice, names_one_of
from tests.acceptance.hands import DEATHS, FINISHED, Line
from tests.acceptance.test_mixed import CHANGELOGS
from tests.processes.harness import environment, new_seed

URLS = {
    "taskboard": "taskboard:{}?stale=600",
    "workflow": "workflow:{}?pause=0.02&retries=10",
    "workitems": "workitems:{}",
    "bilu": "bilu:{}?timeout=60",
    "spec": "spec:{}",
}
SETTINGS: dict[str, dict[str, object]] = {"taskboard": {"stale": 600}}
TASKS_A_SECOND = {"taskboard": 20, "workflow": 20, "workitems": 8, "bilu": 20, "spec": 20}
PATIENCE = 300.0
FEWEST = 20
"""Calls that must have been answered before a storm is over."""
STORMS = 3
"""So many may be spoilt by the orchestrator by hand."""
USERS = 4
HANDS = 2
BETWEEN_KILLS = 0.03
WORDS = {"claim": ("claimed_activity",), "done": ("completed_activity", "submitted_activity"),
         "released": ("released_activity",)}  # fmt: skip
"""The events of a call that a worker reports."""
CHANGES = ("recovered_activity", *(action for actions in WORDS.values() for action in actions))
FREE, CLOSED = "", "(closed)"


class Nursery:
    """The process that forks the users of dibs, and kills them."""

    def __init__(self, reports: Path) -> None:
        self.errors = reports / "nursery.stderr"
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.actors", "nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                cwd="/",
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        self.living: list[str] = []

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, self.errors.read_text()
        return answer

    def start(self, role: str, job: Job) -> None:
        assert self._ask(f"start {role} {json.dumps(job._asdict())}") == "started"
        self.living.append(job.name)

    def kill(self, name: str) -> bool:
        """False if it had ended by itself."""
        self.living.remove(name)
        answer = self._ask(f"kill {name}")
        assert answer in ("killed", "ended 0"), self.errors.read_text()
        return answer == "killed"

    def ended(self) -> list[str]:
        """Those that have ended by themselves, which must have been a good end."""
        codes: dict[str, int] = json.loads(self._ask("poll"))
        self.living = [name for name in self.living if name not in codes]
        for name, code in codes.items():
            assert code == 0, f"{name} ended with {code}: {self.errors.read_text()}"
        return list(codes)

    def close(self) -> None:
        for name in list(self.living):
            self._ask(f"kill {name}")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


class Storm:
    def __init__(self, document: str, directory: Path, seed: int) -> None:
        self.document = document
        self.directory = directory
        self.rng = random.Random(seed)
        self.reports = directory.parent / "reports"
        self.reports.mkdir()
        self.url = URLS[document].format(directory)
        self.stem = "agent" if document == "spec" else "worker"
        self.nursery = Nursery(self.reports)
        self.board: TaskBoard = Job(self.url, "lead-z", os.devnull).open()
        self.hands: list[hands.Hand] = []
        self.users: list[str] = []
        self.killed: list[str] = []
        self.died: list[str] = []
        self.cleaned: set[str] = set()
        """The dead whose locks document 003's orchestrator removed by hand, which no event tells."""

    def close(self) -> None:
        for hand in self.hands:
            hand.kill()
        self.nursery.close()
        self.board.close()

    # -- working and dying

    def run(self, seconds: float, n_users: int, n_hands: int) -> None:
        """For some seconds; longer, if the machine is so slow that there would be hardly anything to judge."""
        until = time.monotonic() + seconds
        last = until + PATIENCE / 10
        while time.monotonic() < until or (self._answered() < FEWEST and time.monotonic() < last):
            self._fill_up(n_users, n_hands)
            time.sleep(self.rng.expovariate(1 / BETWEEN_KILLS))
            if self.nursery.ended():
                break  # nothing is left that could be claimed
            victim = self._victim()
            if victim is not None and self.nursery.kill(victim):
                self.killed.append(victim)
                self._bury(victim)
        # No hand can be killed at random, and none takes away a dead one's lock: somebody who does must be there.
        while self._living_hands():
            self.nursery.ended()
            self._fill_up(n_users, 0)
            time.sleep(0.02)
        for name in list(self.nursery.living):
            if self.nursery.kill(name):
                self.killed.append(name)
                self._bury(name)

    def _answered(self) -> int:
        return sum(line.word in WORDS for name in self.users for line in hands.lines(self.reports / name))

    def _victim(self) -> str | None:
        """Anybody; but most of them, however slow the machine is, live until they have done something."""
        words = self.rng.choice((0, 1, 1, 2, 3, 5))
        found = [name for name in self.nursery.living if len(hands.lines(self.reports / name)) >= words]
        return self.rng.choice(found) if found else None

    def _fill_up(self, n_users: int, n_hands: int) -> None:
        while len(self.nursery.living) < n_users:
            self.start_user()
        for _ in range(n_hands - len(self._living_hands())):
            point = f"{self.rng.choice(DEATHS[self.document])}:{self.rng.randint(1, 3)}"
            self.start_hand(die=point, breaking="never")

    def start_user(self, work: float = 0.03, gives_back: float = 0.7) -> None:
        number = len(self.users)
        by_command = number % 5 == 4
        roles = ("implement", "implement_by_command") if self.document == "spec" else ("work", "command")
        name = f"{self.stem}-{'pc'[by_command]}{number}"
        url = self.url.partition("?stale")[0] if by_command or number % 3 == 0 else self.url
        seed, durability = self.rng.randrange(2**32), ("full", "normal")[number % 2]
        self.users.append(name)
        self.nursery.start(
            roles[by_command], Job(url, name, str(self.reports / name), seed, work, gives_back, durability)
        )

    def start_hand(self, **settings: object) -> None:
        name = f"{self.stem}-h{len(self.hands)}"
        settings = {**SETTINGS.get(self.document, {}), **settings}
        self.hands += hands.start(self.document, self.directory, [name], reports=self.reports, **settings)

    def _living_hands(self) -> list[hands.Hand]:
        living = []
        for hand in self.hands:
            if hand.process.poll() is None:
                living.append(hand)
            elif hand.died and hand.name not in self.died:
                self.died.append(hand.name)
                self._bury(hand.name)
            else:
                assert hand.died or hand.process.returncode == 0, hand.errors.read_text()
        return living

    def _bury(self, name: str) -> None:
        """Let the time pass that the document waits for, or tell its orchestrator."""
        if self.document == "workflow" or (self.document == "workitems" and "-p" not in name):
            hands.age(self.document, self.directory, [name])
        elif self.document == "taskboard" and name in self.died and len(self.died) % 4 == 0:
            # Now and then only, since this queues for the lock as everybody does.
            hands.age(self.document, self.directory, self.died[-4:])
        if self.document == "spec":
            if self.rng.random() < 0.5:
                self.cleaned.add(name)
                hands.clean(self.directory, name, report=self.reports / f"{name}.cleaned")
            insist(self.board.recover, name=name)

    # -- recovering

    def recover(self) -> None:
        """What the dead still hold is given back: by itself, or by somebody who knows that they are gone."""
        by_command = [name for name in self.killed if "-c" in name]
        late = {"taskboard": [], "workflow": self.killed, "workitems": by_command}
        hands.age(self.document, self.directory, self.died + late.get(self.document, []))
        insist(self.board.recover)
        left = [name for name in self.holders() if "-p" in name]
        assert not left, f"these have died, their claims say by which process, and it was not noticed: {left}"
        for name in self.killed + (self.died if self.document == "workflow" else []):
            if self.document in ("taskboard", "workflow", "bilu"):
                insist(self.board.recover, name=name)
        if self.document == "bilu":
            for task_id, status in hands.statuses("bilu", self.directory).items():
                if status == "INPROGRESS":
                    insist(self.board.recover, task_id=task_id)

    def holders(self) -> list[str]:
        """Whom the files call holders, where they name any."""
        if self.document == "taskboard":
            tasks = json.loads((self.directory / "taskboard.json").read_text())["tasks"]
            return [task["assigned_to"] for task in tasks if task["status"] == "in_progress"]
        if self.document == "workflow":
            tasks = json.loads((self.directory / "board.json").read_text())["tasks"]
            return [task["claimed_by"] for task in tasks if task["status"] == "claimed"]
        if self.document == "workitems":
            return [json.loads(path.read_text())["holder"] for path in (self.directory / "locks").glob("*.lock")]
        return []

    def finish(self) -> None:
        """Some of each kind do what is left."""
        self.start_hand()
        for _ in range(USERS):
            self.start_user(work=0.003, gives_back=0)
        hands.finish(self.hands, PATIENCE)
        until = time.monotonic() + PATIENCE
        while self.nursery.living and time.monotonic() < until:
            self.nursery.ended()
            time.sleep(0.02)
        assert not self.nursery.living

    def all_reports(self) -> list[Path]:
        return [self.reports / name for name in [*self.users, *(hand.name for hand in self.hands)]]

    # -- judging

    def touched_by_hand(self) -> set[str]:
        """The tasks that a hand has worked on, and those that it died too early to report."""
        told = {line.subject for hand in self.hands for line in hands.lines(hand.report) if line.word == "claim"}
        if self.document == "workflow":
            board = json.loads((self.directory / "board.json").read_text())
            told |= {task["id"] for task in board["tasks"] if "-h" in (task["claimed_by"] or "")}
        if self.document == "workitems":
            locks = {path.stem: json.loads(path.read_text()) for path in (self.directory / "locks").glob("*.lock")}
            told |= {activity for activity, lock in locks.items() if "-h" in lock["holder"]}
        given_back = [event for event in self.events() if re.search(r"held by \S+-h\d", event.get("details") or "")]
        told |= {event["activity_id"] for event in given_back}
        return told

    def last_words(self, name: str) -> Line | None:
        """What a killed worker had said last: it died in the call that follows. None: in none at all."""
        told = [line for line in hands.lines(self.reports / name) if line.word in ("claim", "end", "done", "released")]
        last = told[-1] if told else Line("done", "", 0)
        return None if last.word == "claim" else last

    def unknown(self) -> dict[str, Line]:
        """The killed that died in a call, perhaps, with what they had said before it."""
        return {name: last for name in self.killed if (last := self.last_words(name)) is not None}

    def events(self) -> list[dict[str, Any]]:
        path = self.directory / CHANGELOGS[self.document]
        text = path.read_text() if path.exists() else "\n"
        assert text.endswith("\n"), f"the changelog ends in a torn line: {text[-80:]!r}"
        return [json.loads(line) for line in text.splitlines() if line]

    def judge_events(self) -> int:
        """No acknowledged call without its events, and none but those of one more call; how many calls were there?"""
        calls = 0
        told: dict[str, list[dict[str, Any]]] = {}
        for event in self.events():
            if any(event["action"] in actions for actions in WORDS.values()):
                told.setdefault(event["worker"], []).append(event)
        for name in self.users:
            left = told.get(name, [])
            if self.document == "spec":
                left = without_tries(left)
            for line in hands.lines(self.reports / name):
                if line.word not in WORDS:
                    continue
                calls += 1
                assert left, f"{name}: acknowledged and lost: {line}"
                first = (left[0]["action"], left[0]["activity_id"])
                assert first[0] in WORDS[line.word], f"{name}: acknowledged {line}, and the changelog has {first}"
                assert first[1] == line.subject, f"{name}: acknowledged {line}, and the changelog has {first}"
                del left[0]
            more = [event["action"].partition("_")[0] for event in left]
            possible = [[], ["claimed"], ["completed"], ["submitted"], ["released"]]
            possible += [["completed", "claimed"], ["submitted", "claimed"]]
            assert more in (possible if name in self.unknown() else [[]]), f"{name}: events without a call: {left}"
        return calls

    def judge_state(self, by_hand: set[str]) -> Counter[str]:
        """The changelog, replayed, is what the files say, for every task that no hand has touched: except for calls in
        which a worker was killed, and of which there is a change without its event; of how many for each worker?"""
        excused: Counter[str] = Counter()
        unknown = self.unknown()

        def excuse(name: str, task_id: str, why: object) -> None:
            assert name in unknown, f"{task_id}: {why}, and {name} was in no call"
            assert excused[name] < 2, f"{task_id}: {why}, once more by {name}"
            excused[name] += 1

        state: dict[str, str] = {}
        for event in self.events():
            task_id, worker, action = event.get("activity_id"), event["worker"], event["action"]
            if task_id is None or task_id in by_hand or action not in CHANGES:
                continue
            holder = state.get(task_id, FREE)
            if action == "claimed_activity":
                assert holder != CLOSED, f"claimed after its end: {event}"
                if holder != FREE and holder not in self.cleaned:
                    excuse(holder, task_id, event)
                state[task_id] = worker
            elif action in WORDS["done"]:
                assert holder == worker, f"completed by {worker}, and {holder!r} had claimed it: {event}"
                state[task_id] = FREE if self.document == "spec" else CLOSED
            else:
                assert holder != CLOSED, f"given back after its end: {event}"
                if holder == FREE:
                    dead = re.search(r"held by (\S+)\)|recovered: (\S+) is gone", event.get("details") or "")
                    assert dead is not None, f"nobody had claimed it: {event}"
                    excuse(dead[1] or dead[2], task_id, event)
                state[task_id] = FREE
        if self.document == "spec":
            held = {path.name for path in (self.directory / ".locks" / "tasks").iterdir() if path.name[0] != "."}
            for task_id in {i for i, holder in state.items() if holder != FREE and holder not in self.cleaned} ^ held:
                excuse(state[task_id], task_id, "held according to one, not to the other")
            return excused
        finished = FINISHED[self.document]
        for task_id, status in hands.statuses(self.document, self.directory).items():
            holder = state.get(task_id, FREE)
            if task_id in by_hand or (status == finished) == (holder == CLOSED) == (holder != FREE):
                continue
            assert holder != CLOSED, f"{task_id} was completed, and is {status}"
            enders = [name for name, last in unknown.items() if (last.word, last.subject) == ("end", task_id)]
            assert enders, f"{task_id} is {status}, and according to the changelog held by {holder!r}"
            excuse(holder if holder in enders else enders[0], task_id, status)
        return excused

    def judge_work(self, ids: list[str]) -> None:
        """Nothing held twice, nothing finished twice, nothing reported as finished lost."""
        reports = self.all_reports()
        overlaps = hands.overlaps(reports) + hands.overlaps(reports, "hold", "drop")
        assert not overlaps, f"held twice: {overlaps}"
        assert not hands.count(reports, "lost") + hands.count(reports, "twice")
        found = hands.statuses(self.document, self.directory)
        assert sorted(found) == sorted(ids)
        done = hands.count(reports, "done")
        silent = {last.subject for name in [*self.killed, *self.died] if (last := self.last_words(name)) is not None}
        for task_id, status in found.items():
            if status == FINISHED[self.document]:
                assert done[task_id] == 1 or (done[task_id] == 0 and task_id in silent), task_id
            else:
                assert done[task_id] == 0, f"{task_id} was reported as finished, and is {status}"

    def litter(self) -> list[str]:
        """What is left behind and could ever be in somebody's way: not the drafts of the dead, which nothing reads, nor
        an empty file that is there to be locked by the kernel."""
        dead = tuple(f".{name}" for name in self.died)
        over: tuple[str, ...] = ()
        if self.document == "workitems":  # a lock on an activity that is over hurts nobody
            found = hands.statuses(self.document, self.directory)
            over = tuple(f"/{activity}.lock" for activity, status in found.items() if status == "completed")
        return [
            path
            for path in hands.leftovers(self.document, self.directory)
            if ".dibs-" not in path and not path.endswith((*dead, *over, ".lock.break"))
        ]


def without_tries(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the tasks that `acquire` passed over: claimed, and given back by the same call."""
    kept: list[dict[str, Any]] = []
    for event in events:
        before = (kept[-1]["action"], kept[-1]["activity_id"]) if kept else None
        if event["action"] == "released_activity" and before == ("claimed_activity", event["activity_id"]):
            kept.pop()
        else:
            kept.append(event)
    return kept


@pytest.fixture
def storms() -> Iterator[list[Storm]]:
    made: list[Storm] = []
    yield made
    for storm in made:
        storm.close()


def survived(document: str, tmp_path: Path, storms: list[Storm], seconds: float, n_users: int, n_hands: int) -> str:
    """What there is to tell of a storm. One in which something is wrong with a lock that document 003's orchestrator
    removed by hand while dibs was giving it back proves nothing (`cleaning`), and there is another."""
    for number in range(STORMS):
        try:
            return _survived(document, tmp_path / str(number), storms, seconds, n_users, n_hands)
        except AssertionError as failure:
            twice = given_back_twice(storms[-1].reports, storms[-1].events()) if document == "spec" else set()
            if number + 1 == STORMS or not names_one_of(twice, str(failure)):
                raise
            print(f"given back by hand and by dibs at once, one of {sorted(twice)}: {failure}")
            storms.pop().close()
    raise AssertionError("not reached")


def _survived(document: str, tmp_path: Path, storms: list[Storm], seconds: float, n_users: int, n_hands: int) -> str:
    seed = new_seed()
    tmp_path.mkdir()
    directory = tmp_path / "board"
    n_tasks = round(TASKS_A_SECOND[document] * (seconds + 1.5))
    ids = hands.make_board(document, directory, n_tasks, seed=seed, needs=0)
    hands.plant(document, directory)
    before = hands.planted(directory)
    storm = Storm(document, directory, seed)
    storms.append(storm)

    storm.run(seconds, n_users, n_hands)
    by_hand = storm.touched_by_hand()
    storm.judge_work(ids)
    storm.recover()
    in_progress = {"taskboard": "in_progress", "workflow": "claimed", "workitems": "in_progress", "bilu": "INPROGRESS"}
    assert in_progress.get(document) not in hands.statuses(document, directory).values()
    assert storm.litter() == []
    calls = storm.judge_events()
    excused = storm.judge_state(by_hand)
    if not n_hands and document != "spec":
        assert not excused, f"a change without its event, though nobody wrote by hand: {excused}"

    storm.finish()
    storm.judge_work(ids)
    storm.judge_events()
    assert set(hands.statuses(document, directory).values()) == {FINISHED[document]}
    assert storm.litter() == []
    assert hands.planted(directory) == before
    assert storm.killed
    assert len(storm.died) > 0 or not n_hands
    return (
        f"{document}: 0 double claims, 0 of {calls} acknowledged calls lost, in {len(storm.killed)} kills of users of "
        f"dibs ({len(storm.unknown())} perhaps in a call, {excused.total()} changes of such calls without an event) "
        f"and {len(storm.died)} deaths of hands, {n_tasks} tasks; seed {seed}"
    )


@pytest.mark.parametrize("document", hands.DOCUMENTS)
def test_workers_of_both_kinds_die_and_the_board_is_finished(
    document: str, tmp_path: Path, storms: list[Storm]
) -> None:
    print(survived(document, tmp_path, storms, 2.0, USERS, HANDS))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("document", hands.DOCUMENTS)
def test_workers_of_both_kinds_die_for_a_minute(
    document: str, number: int, tmp_path: Path, storms: list[Storm], capsys: pytest.CaptureFixture[str]
) -> None:
    told = survived(document, tmp_path, storms, 10.0, USERS, HANDS)
    with capsys.disabled():
        print(f"\n  {told}")


@pytest.mark.slow
@pytest.mark.parametrize("document", hands.DOCUMENTS)
def test_where_nobody_writes_by_hand_every_change_has_its_event(
    document: str, tmp_path: Path, storms: list[Storm], capsys: pytest.CaptureFixture[str]
) -> None:
    told = survived(document, tmp_path, storms, 10.0, USERS + HANDS, 0)
    with capsys.disabled():
        print(f"\n  {told}")


@pytest.mark.parametrize("document", ["taskboard", "workflow"])
def test_a_hand_that_writes_before_a_killed_write_is_finished(document: str, tmp_path: Path) -> None:
    """The write was made, its event was not: the next user of dibs sees it in the rows, though the file is another."""
    directory = tmp_path / "board"
    hands.make_board(document, directory, 3, needs=0)
    url = f"{document}:{directory}"
    child = os.fork()
    if child == 0:
        try:
            board = TaskBoard.open(url, worker="worker-1")
            board.store.log.append = lambda lines: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[attr-defined]
            board.claim("worker-1")
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    hands.age(document, directory, ["worker-1"] if document == "workflow" else [])
    hands.finish(hands.start(document, directory, ["worker-h"], retries=2))
    with TaskBoard.open(url, worker="worker-2") as board:
        task = board.claim("worker-2")
        assert task is not None, "what a dead worker holds was taken for a claim by hand"
        told = [(event.action, event.worker) for event in board.changelog()]
    assert told == [
        ("claimed_activity", "worker-1"), ("recovered_activity", "dibs"), ("claimed_activity", "worker-2"),
    ]  # fmt: skip
