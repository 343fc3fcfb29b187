"""Workers that use dibs, as processes of their own: `python -m tests.acceptance.actors ROLE ARGUMENT…`.

Each keeps the same report as the workers by hand (`hands.note`): `claim` after the call that claimed has returned,
`end` before the one that gives up, `done` or `released` after it has returned. What a killed worker had reported was
acknowledged; of the call that it was killed in, nobody knows.

`nursery` forks such workers on request and kills them: quicker than starting interpreters, so more of them die.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dibs import TaskBoard
from dibs.errors import Busy
from dibs.model import OPEN, PENDING, BoardTask
from tests.acceptance.hands import note

P = ParamSpec("P")
T = TypeVar("T")

NOTHING = 3
"""The exit code of a command that found nothing to claim."""


class Job(NamedTuple):
    """What a worker is told, as a line of JSON."""

    url: str
    name: str
    report: str
    seed: int = 0
    work: float = 0.01
    """Seconds of "work" on a task, at most."""
    gives_back: float = 0.0
    """How often a task is released and not completed."""
    durability: str = "full"
    gate: str = ""
    """A file that is made when all may begin."""

    @property
    def folder(self) -> Path:
        return Path(self.url.partition(":")[2].partition("?")[0])

    def open(self) -> TaskBoard:
        """The board; `taskboard` with `?stale=SECONDS` as document 004's own program opens it."""
        stale = self.url.partition("?stale=")[2]
        if stale and self.url.startswith("taskboard:"):
            return TaskBoard(state_dir=self.folder, stale_timeout=float(stale), worker=self.name)
        return TaskBoard.open(self.url, worker=self.name, durability=self.durability)

    def note(self, word: str, subject: str) -> None:
        note(Path(self.report), word, subject)


def wait_at(gate: Path, ready: Path) -> None:
    """An interpreter takes longer to start than a hand takes for a task: nobody begins before all can."""
    ready.touch()
    while not gate.exists():
        time.sleep(0.005)


def insist(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Until the guard is free."""
    while True:
        try:
            return call(*args, **named)
        except Busy:
            time.sleep(0.01)


# -- by the Python API


def work(job: Job) -> None:
    """Claim and complete until nothing is waiting to be claimed."""
    board = job.open()
    rng = random.Random(job.seed)
    while True:
        task: BoardTask | None = insist(board.claim, job.name)
        if task is None:
            if not insist(board.counts)[PENDING]:
                return
            time.sleep(0.01)
        while task is not None:
            task = _do(job, rng, board, task)


def _do(job: Job, rng: random.Random, board: TaskBoard, task: BoardTask) -> BoardTask | None:
    job.note("claim", task.id)
    time.sleep(rng.random() * job.work)
    for step in task.steps:
        if step.status == "pending":
            insist(board.step, task.id, "done", step_id=step.id, token=task.token)
            job.note("step", step.id)
    job.note("end", task.id)
    dice = rng.random()
    following: BoardTask | None = None
    if dice < job.gives_back:
        insist(task.release)
        job.note("released", task.id)
    else:
        chain = dice > 0.75
        following = insist(task.complete, f"done by {job.name}", claim_next=chain)
        job.note("done", task.id)
        if following is not None:
            job.note("chained", following.id)
    return following


def integrate(job: Job) -> None:
    """Accept what is done until nothing is left to be done."""
    board = job.open()
    while True:
        waiting, _ = insist(board.tasks, ["review"], limit=1)
        if waiting:
            task_id = waiting[0].id
            try:
                insist(board.accept, task_id, worker=job.name)
            except ValueError:
                continue  # the other integrator was faster
            job.note("integrated", task_id)
        elif not any(insist(board.counts)[status] for status in OPEN):
            return
        else:
            time.sleep(0.01)


def implement(job: Job) -> None:
    """Document 003: a task and its files, as one call."""
    os.chdir(job.folder.parent)
    board = job.open()
    rng = random.Random(job.seed)
    while wanted := _left(job, rng):
        got = board.acquire(wanted, job.name, retry=0.05)
        if got.task is None:
            time.sleep(0.01)
            continue
        if _is_done(job, got.task.id):
            board.release(got.task.id, worker=job.name)
            continue
        paths = dict(wanted)[got.task.id]
        _implemented(job, rng, got.task.id, paths, got.task.complete)


def _implemented(job: Job, rng: random.Random, task_id: str, paths: list[str], complete: Callable[[], Any]) -> None:
    for path in paths:
        job.note("hold", path)
    job.note("claim", task_id)
    time.sleep(rng.random() * job.work)
    job.note("end", task_id)
    made = True
    try:
        (job.folder / "done" / task_id).mkdir()
    except FileExistsError:
        made = False
    for path in paths:
        job.note("drop", path)
    complete()
    job.note("done" if made else "twice", task_id)


def _left(job: Job, rng: random.Random) -> list[tuple[str, list[str]]]:
    rows = [row.split() for row in (job.folder / "tasks.txt").read_text().splitlines()]
    left = [(task, paths) for task, *paths in rows if not _is_done(job, task)]
    at = rng.randrange(len(left)) if left else 0
    return left[at:] + left[:at]


def _is_done(job: Job, task_id: str) -> bool:
    return (job.folder / "done" / task_id).is_dir()


# -- by the command line


def command(job: Job) -> None:
    """Like `work`, a process for every verb."""
    rng = random.Random(job.seed)
    while True:
        code, answer = dibs(job, "claim", "--json")
        if code == NOTHING:
            _, counted = dibs(job, "list", "--json", "--status", "pending")
            if not json.loads(counted)["total"]:
                return
            continue
        if code:
            continue  # busy
        task_id = json.loads(answer)["id"]
        job.note("claim", task_id)
        time.sleep(rng.random() * job.work)
        job.note("end", task_id)
        gives_back = rng.random() < job.gives_back
        verb = ["release", task_id] if gives_back else ["done", task_id, f"done by {job.name}"]
        while dibs(job, *verb)[0]:
            pass
        job.note("released" if gives_back else "done", task_id)


def implement_by_command(job: Job) -> None:
    """Like `implement`, a process for every verb."""
    rng = random.Random(job.seed)
    while wanted := _left(job, rng):
        rows = "".join(f"{' '.join([task, *paths])}\n" for task, paths in wanted)
        code, answer = dibs(job, "acquire", "--file", "-", "--retry", "0.05", told=rows)
        if code:
            time.sleep(0.01)
            continue
        said, task_id = answer.split()
        assert said == "ACQUIRED"
        if _is_done(job, task_id):
            dibs(job, "release", task_id)
            continue
        _implemented(job, rng, task_id, dict(wanted)[task_id], partial(dibs, job, "done", task_id))


def dibs(job: Job, *verb: str, told: str = "") -> tuple[int, str]:
    """One command; its exit code (0, 3, or 1 for a guard that was busy) and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "--board", job.url, "--as", job.name, *verb],
        input=told,
        capture_output=True,
        text=True,
        cwd=job.folder.parent,
        check=False,
    )
    busy = "lock" in done.stderr and done.returncode == 1
    assert done.returncode in (0, NOTHING) or busy, f"{verb} ended with {done.returncode}: {done.stderr}"
    return done.returncode, done.stdout


# -- being killed


def nursery() -> None:
    """Fork workers and kill them, by requests on standard input; says one line for each."""
    _adopt_orphans()
    living: dict[str, int] = {}
    reports: dict[str, Path] = {}
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        if verb == "start":
            role, _, told = rest.partition(" ")
            job = Job(**json.loads(told))
            living[job.name] = _fork(ROLES[role], job)
            reports[job.name] = Path(job.report)
            _say("started")
        elif verb == "kill":
            pid = living.pop(rest)
            at = time.time_ns()
            os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            # Whatever it did, it did not hold anything later than it lived: somebody may have taken it since.
            with reports[rest].open("a") as report:
                report.write(f"died killed {at}\n")
            _say("killed" if os.WIFSIGNALED(status) else f"ended {os.waitstatus_to_exitcode(status)}")
        else:
            ended = {name: os.waitpid(pid, os.WNOHANG) for name, pid in living.items()}
            codes = {name: os.waitstatus_to_exitcode(status) for name, (pid, status) in ended.items() if pid}
            for name in codes:
                del living[name]
            _say(json.dumps(codes))
        _reap(living)


def _fork(role: Callable[[Job], None], job: Job) -> int:
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            role(job)
        except BaseException as error:
            print(f"{job.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    try:
        os.setpgid(pid, pid)
    except PermissionError:
        pass  # it was faster
    return pid


def _adopt_orphans() -> None:
    """What a killed worker was running must be waited for: to `kill -0` a zombie is alive."""
    import ctypes

    prctl_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(prctl_set_child_subreaper, 1, 0, 0, 0)


def _reap(living: dict[str, int]) -> None:
    """Wait for the orphans of the killed; those that live are not touched."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in living.values():
            return
        os.waitpid(found.si_pid, 0)


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


ROLES: dict[str, Callable[[Job], None]] = {
    "work": work,
    "command": command,
    "integrate": integrate,
    "implement": implement,
    "implement_by_command": implement_by_command,
}

if __name__ == "__main__":
    if sys.argv[1] == "nursery":
        nursery()
    else:
        todo = Job(**json.loads(sys.argv[2]))
        if todo.gate:
            wait_at(Path(todo.gate), Path(f"{todo.report}.ready"))
        ROLES[sys.argv[1]](todo)
