"""`dibs demo --plain`: worker processes drain a board, one is killed half-way, and nothing is lost or done twice.

Nothing here is staged but the work itself, which is sleeping: the board, the processes, the SIGKILL and the checks at
the end are real. The screen is drawn from the changelog as it grows (`view`), the verdict comes from the changelog, the
workers' own records and the board (`check`). The board stays where it is, for the curious.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from dibs.board import TaskBoard
from dibs.cli.demo import shop, view
from dibs.cli.demo.check import examine
from dibs.cli.demo.ending import between, mark, program
from dibs.cli.demo.worker import read_records
from dibs.cli.render import BOLD, DIM, RED, cut, number, pad, paint
from dibs.model import COMPLETED, IN_PROGRESS, Worker
from dibs.replay import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.demo.check import Verdict
    from dibs.model import BoardTask, Event

WORKERS, TASKS = 4, 24
SECONDS = 5.0
"""How long the work should take together, about."""
FRAME = 0.1


def demo_plain(ctx: Context, args: Args, seed: int) -> int:
    workers = between(args.workers, "--workers", WORKERS, 2, 32)
    tasks = between(args.tasks, "--tasks", TASKS, 2, 2000)
    folder = tempfile.mkdtemp(prefix="dibs-demo-")
    with TaskBoard.open(os.path.join(folder, "board.db"), create=True, worker=Worker("demo", "system")) as board:
        board.add_many(shop.tasks(tasks))
        show = Show(ctx, board, folder, workers, tasks, seed)
        show.play(ctx)
        verdict = examine(board, {name: show.records(name) for name in show.names}, show.ended)
        verdict.completed += show.problems
        verdict.recovery = show.unrecovered()
        if ctx.json:
            ctx.emit(_document(show, verdict))
        else:
            for line in _summary(ctx, show, verdict):
                ctx.say(line)
    return 1 if verdict.problems else 0


def _terminated(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


class Show:
    """The workers, and what became of them."""

    too_long = 60.0

    def __init__(self, ctx: Context, board: TaskBoard, folder: str, workers: int, tasks: int, seed: int) -> None:
        self.board = board
        self.folder = folder
        self.seed = seed
        self.names = [f"worker-{n}" for n in range(1, workers + 1)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: dict[str, float] = {}
        """When each process was seen to have ended, on the monotonic clock."""
        self.problems: list[str] = []
        self.victim: str | None = None
        self.lost_task: BoardTask | None = None
        self.killed_at = 0.0
        self.back_at: float | None = None
        self.taken_by: str | None = None
        self.seconds = 0.0
        self._pace = min(0.8, SECONDS * workers / tasks)
        self._half = tasks // 2
        self._random = random.Random(seed)
        self._view = view.choose(ctx)
        self._state = State()
        self._seen = 0
        self._over = False

    def play(self, ctx: Context) -> None:
        """Run to the end, whatever the end is, and leave no process behind."""
        before = signal.signal(signal.SIGTERM, _terminated)
        try:
            self.run()
        except KeyboardInterrupt:
            self.end()
            ctx.note(f"stopped; the board stays at {self.board.url}")
            raise
        finally:
            self.end()
            signal.signal(signal.SIGTERM, before)

    def run(self) -> None:
        started = time.monotonic()
        self.scene = view.Scene(self._state, self.names, self.board.now(), *self._words())
        for name in self.names:
            self.processes[name] = self._start(name)
        while True:
            for event in self.board.changelog(self._seen, follow=True, timeout=FRAME):
                self._seen = event.seq
                self._state.apply(event)
                self._notice(event)
                if self.victim is None:
                    self._maybe_kill()
            self.scene.now = self.board.now()
            self._look_after_processes()
            self._view.show(self.scene)
            self.seconds = time.monotonic() - started
            if len(self.ended) == len(self.names):
                return
            if self.seconds > self.too_long:
                self.problems.append(f"the workers have not finished after {self.too_long:.0f} s")
                return

    def _words(self) -> tuple[str, str]:
        """The title, and what is said until something happens."""
        title = f"{len(self.names)} worker processes share one board"
        return title, "half-way, one of them will be killed with SIGKILL"

    def _command(self, name: str) -> list[str]:
        work = ["dibs.cli.demo.worker", self.board.url, name]
        return [*work, self._path(name, "records"), str(self.seed), str(self._pace)]

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", *self._command(name)]
        # A group of its own: Ctrl-C is ours to deal with.
        own: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {}
        with open(self._path(name, "errors"), "wb") as errors:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, **own)

    def _path(self, name: str, what: str) -> str:
        return os.path.join(self.folder, f"{name}.{what}")

    def records(self, name: str) -> list[dict[str, Any]]:
        return read_records(self._path(name, "records"))

    def _look_after_processes(self) -> None:
        for name, process in self.processes.items():
            if name not in self.ended and process.poll() is not None:
                self.ended[name] = time.monotonic()
                self.scene.gone.add(name)
                if process.returncode != 0 and name != self.victim:
                    with open(self._path(name, "errors"), encoding="utf-8", errors="replace") as file:
                        last = (file.read().strip().splitlines() or ["no message"])[-1]
                    self.problems.append(f"{name} ended with code {process.returncode}: {last}")

    def end(self) -> None:
        """No process is left behind, and the screen is as it was. Once is enough."""
        for process in self.processes.values():
            if process.poll() is None:
                kill_group(process)
            process.wait()
        if not self._over:
            self._over = True
            self._view.end()

    # -- the accident

    def _maybe_kill(self) -> None:
        """Half-way, kill a worker that is in the middle of a task, without warning."""
        if self.scene.done < self._half:
            return
        busy = [name for name in self.names if self.scene.at_work(name)]
        self._random.shuffle(busy)
        for name in busy:
            task = self.scene.at_work(name)
            if task is not None and self._kill_at(name, task):
                return

    def _kill_at(self, name: str, task: BoardTask) -> bool:
        process = self.processes[name]
        if hasattr(signal, "SIGSTOP"):
            # Freeze it first, to be sure that it is in the middle of this task and not just completing it.
            process.send_signal(signal.SIGSTOP)
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                return False
        now = self.board.get(task.id)
        notes = self.records(name)
        working = bool(notes) and notes[-1]["did"] == "claimed" and notes[-1]["token"] == now.token
        if not working or now.status is not IN_PROGRESS or now.assigned_to != name:
            if hasattr(signal, "SIGCONT"):
                process.send_signal(signal.SIGCONT)
            return False
        process.kill()
        process.wait()
        self.ended[name] = time.monotonic()
        self.victim, self.lost_task, self.killed_at = name, now, self.board.now()
        self.scene.killed[name] = now.description
        self.scene.tell(self.killed_at, f"{name} is killed with SIGKILL while it works on {now.id}")
        return True

    def _notice(self, event: Event) -> None:
        lost = self.lost_task
        if lost is None or event.task_id != lost.id or event.seq <= (lost.token or 0):
            return
        if event.action == "recovered_activity":
            self.back_at = event.time
            self.scene.tell(event.time, f"dibs gives {lost.id} back: its holder's process has died")
        elif event.action == "claimed_activity" and event.data:
            self.taken_by = event.worker
            tokens = f"token {event.data['set']['token']}; the dead worker had {lost.token}"
            self.scene.tell(event.time, f"{event.worker} takes {lost.id} ({tokens})")

    def unrecovered(self) -> list[str]:
        """What was wrong with the accident and its repair; empty when all went as it should."""
        if self.lost_task is None:
            return ["no worker was killed: none was found in the middle of a task"]
        if self.back_at is None or self.taken_by is None:
            return [f"{self.lost_task.id} did not come back after its worker was killed"]
        return []

    def completed_by(self, name: str) -> list[str]:
        mine = [task for task in self.scene.tasks if task.status is COMPLETED and task.assigned_to == name]
        return [task.id for task in sorted(mine, key=lambda task: task.completed_at or 0)]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


# -- the end


def _document(show: Show, verdict: Verdict) -> dict[str, Any]:
    lost = show.lost_task
    return {
        "ok": not verdict.problems,
        "board": show.board.url,
        "seed": show.seed,
        "seconds": round(show.seconds, 3),
        "tasks": len(show.scene.tasks),
        "completed": show.scene.done,
        "claims": verdict.claims,
        "double_claims": len(verdict.doubles),
        "events": verdict.events,
        "replay_agrees": not verdict.replay,
        "killed": None if lost is None else {
            "worker": show.victim,
            "task": lost.id,
            "back_after_seconds": None if show.back_at is None else round(show.back_at - show.killed_at, 3),
            "taken_by": show.taken_by,
        },
        "workers": [
            {"name": name, "pid": show.processes[name].pid, "completed": show.completed_by(name)} for name in show.names
        ],
        "problems": verdict.problems,
    }  # fmt: skip


def _summary(ctx: Context, show: Show, verdict: Verdict) -> list[str]:
    color, width = ctx.color, min(view.WIDEST, ctx.width) - 1
    total, lost = len(show.scene.tasks), show.lost_task
    head = f"dibs demo: {len(show.names)} worker processes, {number(total, 'task')}, one board, {show.seconds:.1f} s"
    lines = [paint(cut(head, width), BOLD, color), ""]
    for name in show.names:
        done = show.completed_by(name)
        text = f"{len(done):3} done"
        room = width - 11 - len(text)
        killed = cut(f"  killed while it worked on {lost.id}", room) if name == show.victim and lost else ""
        what = cut("  " + ", ".join(done), room - len(killed)) if done and room - len(killed) > 5 else ""
        lines.append(pad(name, 11) + text + paint(what, DIM, color) + paint(killed, RED, color))
    lines.append("")
    lines += [paint(f"{second:5.1f} s  ", DIM, color) + cut(text, width - 9) for second, text in show.scene.happened]
    if show.scene.happened:
        lines.append("")
    lines += _verdict(show, verdict, color, width)
    call, where = program(), shlex.quote(os.path.join(show.folder, "board.db"))
    lines += ["", "The board is kept, and the changelog is in it. Look around:"]
    lines += [f"  {call} --board {where} {what}" for what in ("list --all", "log")]
    if lost is not None:
        lines.append(f"  {call} --board {where} log --task {lost.id}")
    lines += ["It is a temporary demo board; its folder can go when you are done looking:"]
    lines += [f"  {shlex.quote(show.folder)}"]
    return lines


def _verdict(show: Show, verdict: Verdict, color: bool, width: int) -> list[str]:
    total, lost = len(show.scene.tasks), show.lost_task
    after = (show.back_at or 0.0) - show.killed_at
    found = [
        (f"all {total} tasks were completed, each exactly once", verdict.completed),
        (f"{lost and lost.id} came back {after:.1f} s after the kill; {show.taken_by} took it over", verdict.recovery),
        (
            f"{verdict.claims} claims, {len(verdict.doubles)} double claims: workers' own records and changelog agree",
            verdict.doubles + verdict.records,
        ),
        ("no task began before those it depends on, no file was held twice", verdict.order),
        (f"replaying the changelog's {verdict.events} entries gives exactly this board", verdict.replay),
    ]
    return mark(found, color, width)
