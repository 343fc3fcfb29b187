"""Workers that follow the five documents by hand: the shell scripts in `hands/`, started, collected and judged.

    ids = make_board("workflow", directory, 40, seed=7)
    hands = start("workflow", directory, ["worker-1", "worker-2"], pause=0.02, retries=50)
    finish(hands)
    assert not overlaps(hand.report for hand in hands)

`note` writes the same report from Python, so that workers of any make can be judged together: `claim` after a claim
took effect, `end` before it is given up, `done` after the finish was written. A keyword of `start` is the setting
`HAND_<KEYWORD>` that the scripts describe. The scripts know nothing of dibs, and this module does not import it.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DOCUMENTS = ("taskboard", "workflow", "workitems", "bilu", "spec")
SCRIPTS = Path(__file__).resolve().parent / "hands"
QUICK: dict[str, dict[str, object]] = {
    "taskboard": {"pause": 0.02},
    "workflow": {"pause": 0.01, "retries": 300},
    "workitems": {"pause": 0.02},
    "bilu": {"pause": 0.02},
    "spec": {"pause": 0.01, "retries": 3},
}
"""The documents' pauses and retries, shortened for tests; a keyword of `start` overrides them."""
DEATHS = {
    "taskboard": ("locked", "claimed"),
    "workflow": ("locked", "written", "claimed"),
    "workitems": ("locked", "claimed", "guarded", "completed"),
    "bilu": ("locked", "written", "claimed"),
    "spec": ("claimed", "finished"),
}
"""Where a worker may die (`start(…, die="claimed:3")`) so that the document's own rule frees its locks.

A SIGKILL at a random moment can also hit what no document has a rule for: a file half written in place (004), a lock
directory without its pid (002, also while it is being removed) or without its owner (003), an empty lock file (001).
A claim of 000 or 002 has no end but the worker's: the locks are freed, the task stays claimed.
"""


class Hand:
    """One shell worker: its process, the leader of a group of its own, and its report."""

    def __init__(self, document: str, directory: Path, name: str, reports: Path, settings: dict[str, object]) -> None:
        self.name = name
        self.report = reports / name
        self.errors = reports / f"{name}.stderr"
        values = {**QUICK[document], "dir": directory, "name": name, "report": self.report, "python": sys.executable}
        values |= settings
        environment = {**os.environ, **{f"HAND_{key.upper()}": str(value) for key, value in values.items()}}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                ["/bin/sh", str(SCRIPTS / f"{document}.sh")],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL for the shell and whatever it is running: a child that lived on could still write."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            note(self.report, "died", "killed")

    @property
    def died(self) -> bool:
        return self.process.poll() == -signal.SIGKILL


def start(
    document: str, directory: Path, names: Sequence[str], *, reports: Path | None = None, **settings: object
) -> list[Hand]:
    """A worker for each name. Their reports are files of those names in `reports`, by default a folder beside the
    board."""
    where = directory.parent / "reports" if reports is None else reports
    where.mkdir(exist_ok=True)
    return [Hand(document, directory, name, where, settings) for name in names]


def finish(hands: Iterable[Hand], patience: float = 60.0) -> None:
    """Wait for all. One that outlives `patience` is killed, and it or one that failed is an AssertionError; one that
    died by SIGKILL is not.

    All are polled, because a dead worker that nobody has waited for still counts as running for `kill -0`.
    """
    waiting = list(hands)
    everyone = list(waiting)
    until = time.monotonic() + patience
    try:
        while waiting and time.monotonic() < until:
            waiting = [hand for hand in waiting if hand.process.poll() is None]
            time.sleep(0.005)
        late = [hand.name for hand in waiting]
    finally:
        for hand in waiting:
            hand.kill()
    assert not late, f"still running after {patience} s: {late}"
    for hand in everyone:
        status = hand.process.returncode
        assert status in (0, -signal.SIGKILL), f"{hand.name} ended with {status}: {hand.errors.read_text()}"


def clean(directory: Path, *agents: str, report: str | Path = os.devnull) -> None:
    """Document 003's orchestrator, after these agents have returned; if none is named, after all have."""
    environment = {**os.environ, "HAND_DIR": str(directory), "HAND_NAME": "orchestrator", "HAND_REPORT": str(report)}
    subprocess.run(["/bin/sh", str(SCRIPTS / "spec.sh"), "clean", *agents], env=environment, check=True, timeout=60)


class Line(NamedTuple):
    word: str
    subject: str
    at: int


class Claim(NamedTuple):
    task: str
    worker: str
    start: int
    end: float
    """Nanoseconds; the worker's death if it did not give the claim up, and infinity if it did not die either."""


def note(report: Path, word: str, subject: str) -> None:
    """Append a line to a report, in one write."""
    line = f"{word} {subject} {time.time_ns()}\n".encode()
    fd = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def lines(report: Path) -> list[Line]:
    """The report's whole lines: a worker killed while writing leaves a last one without an end."""
    if not report.exists():
        return []
    told = []
    for line in report.read_text().split("\n")[:-1]:
        word, subject, at = line.split(" ")
        told.append(Line(word, subject, int(at)))
    return told


def claims(report: Path, begin: str = "claim", end: str = "end") -> list[Claim]:
    """What one worker held, and when. `hold` and `drop` are the words for document 003's files."""
    held: dict[str, int] = {}
    made = []
    for line in lines(report):
        if line.word == begin:
            assert line.subject not in held, f"{report.name} claimed {line.subject} while holding it"
            held[line.subject] = line.at
        elif line.word == end and line.subject in held:
            made.append(Claim(line.subject, report.name, held.pop(line.subject), line.at))
        elif line.word in ("died", "lost"):
            lost = list(held) if line.word == "died" else [line.subject]
            made += [Claim(task, report.name, held.pop(task), line.at) for task in lost if task in held]
    return made + [Claim(task, report.name, since, float("inf")) for task, since in held.items()]


def overlaps(reports: Iterable[Path], begin: str = "claim", end: str = "end") -> list[tuple[Claim, Claim]]:
    """Pairs of claims of one task that were held at the same time: there must be none."""
    by_task: dict[str, list[Claim]] = {}
    for report in reports:
        for claim in claims(report, begin, end):
            by_task.setdefault(claim.task, []).append(claim)
    found = []
    for same in by_task.values():
        same.sort(key=lambda claim: claim.start)
        longest = same[0]
        for claim in same[1:]:
            if claim.start < longest.end:
                found.append((longest, claim))
            if claim.end > longest.end:
                longest = claim
    return found


def count(reports: Iterable[Path], word: str) -> Counter[str]:
    """How often each subject was reported with this word: `done` must be 1 for every task."""
    return Counter(line.subject for report in reports for line in lines(report) if line.word == word)


def make_board(document: str, directory: Path, n_tasks: int, seed: int = 0, *, needs: float = 0.33) -> list[str]:
    """A board of pending tasks; returns the ids. `needs` is the part of them that depend on earlier ones.

    Where a dead worker's claim never ends (documents 000 and 002), what depends on its task waits for ever: a test that
    kills there has `needs=0`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    return _MAKERS[document](directory, n_tasks, rng, needs)


def _needs(rng: random.Random, ids: Sequence[str], needs: float) -> list[str]:
    """One or two of the earlier tasks, but none of the last few: work must not queue up."""
    early = ids[:-6]
    return rng.sample(early, min(len(early), rng.choice((1, 2)))) if rng.random() < needs else []


def _taskboard(directory: Path, n_tasks: int, rng: random.Random, needs: float) -> list[str]:
    ids: list[str] = []
    tasks = []
    for n in range(n_tasks):
        task: dict[str, object] = {
            "id": f"{rng.randrange(2**32):08x}",
            "description": f"Task {n}",
            "status": "pending",
            "assigned_to": None,
            "depends_on": _needs(rng, ids, needs),
            "result": None,
            "priority": rng.randrange(3),
            "created_at": 1708300000.0 + n,
            "claimed_at": None,
            "completed_at": None,
        }
        tasks.append(task)
        ids.append(str(task["id"]))
    (directory / "taskboard.json").write_text(json.dumps({"tasks": tasks}, indent=2))
    return ids


def _workflow(directory: Path, n_tasks: int, rng: random.Random, needs: float) -> list[str]:
    ids: list[str] = []
    tasks = []
    for n in range(1, n_tasks + 1):
        tasks.append(
            {
                "id": f"task-{n:03d}",
                "title": f"Task {n} – größer",
                "status": "open",
                "depends_on": _needs(rng, ids, needs),
                "deliverables": [f"src/part{n}.py"],
                "verification": f"test -s src/part{n}.py",
                "claimed_by": None,
                "claimed_at": None,
                "done_at": None,
            }
        )
        ids.append(f"task-{n:03d}")
    board = {
        "version": 1,
        "project": "My Project",
        "project_folder": ".",
        "created_at": "2026-02-11T14:00:00+09:00",
        "tasks": tasks,
    }
    (directory / "board.json").write_text(json.dumps(board, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return ids


def _workitems(directory: Path, n_tasks: int, rng: random.Random, needs: float) -> list[str]:
    ids: list[str] = []
    text = [
        "# Progress of one work item; edit under its lock.",
        "schema_version: 2",
        "version: 1  # +1 with every write",
        'last_modified: "2026-01-24T10:00:00Z"',
        "last_modified_by: planner",
        "work_item_id: WI-001",
        "title: A work item made for a test",
        "type: feature",
        "status: in_progress",
        'created: "2026-01-24T10:00:00Z"',
        'updated: "2026-01-24T10:00:00Z"',
        "activities:",
    ]
    for n in range(1, n_tasks + 1):
        activity = f"WI-001-A{n}"
        text += [
            f"  - id: {activity}",
            f"    title: Activity {n}",
            "    status: pending",
            "    actor: any" if n % 3 else "    actor: agent  # not for people",
            f"    depends_on: [{', '.join(_needs(rng, ids, needs))}]",
            "    completed_by: null",
            "    completed_at: null",
            "    tasks:",
        ]
        for m in range(1, rng.choice((1, 2)) + 1):
            text += [
                f"      - id: {activity}-T{m}",
                f"        title: Task {m} of activity {n}",
                "        status: pending",
                "        actor: any",
                "        completed_by: null",
                "        completed_at: null",
                "        notes: null",
                "        deliverables: []",
            ]
        ids.append(activity)
    text += ["blockers: []", "artifacts: []"]
    (directory / "progress.yaml").write_text("\n".join(text) + "\n")
    (directory / "locks").mkdir()
    (directory / "changelog.log").write_text(
        '{"timestamp":"2026-01-24T10:00:00Z","worker":"planner","worker_type":"human","action":"work_item_created"}\n'
    )
    return ids


def _bilu(directory: Path, n_tasks: int, rng: random.Random, needs: float) -> list[str]:
    folder = directory / "board" / "tasks"
    folder.mkdir(parents=True)
    (directory / "storage").mkdir()
    ids: list[str] = []
    for n in range(1, n_tasks + 1):
        name = f"{n:03d}-task"
        priority = rng.choice(("HIGH", "MEDIUM", "LOW"))
        links = [f"- [{need}](./{need}.md)" for need in _needs(rng, ids, needs)] or ["[]"]
        head = ["# Title", f"Task {n}", ""] if n % 2 else [f"# Task {n}", "", "Some text that no field holds.", ""]
        text = [*head, "# Description", f"What to do in task {n}.", "", "# Status", "TODO", ""]
        text += ["# Priority", priority, "", "# Kind", "task", "", "# Tags", "- test", "", "# depends_on", *links]
        (folder / f"{name}.md").write_text("\n".join(text) + "\n")
        ids.append(name)
    return ids


def _spec(directory: Path, n_tasks: int, rng: random.Random, needs: float) -> list[str]:
    files = ["src/app.py", "src/auth/login.py", "src/auth/token.py", "docs/index.md", "tests/test_app.py", "C:/x/y.txt"]
    ids = [f"T-{n:03d}" for n in range(1, n_tasks + 1)]
    rows = [" ".join([task, *rng.sample(files, rng.choice((0, 1, 1, 2)))]) for task in ids]
    (directory / "tasks.txt").write_text("\n".join(rows) + "\n")
    (directory / "done").mkdir()
    return ids


_MAKERS: dict[str, Callable[[Path, int, random.Random, float], list[str]]] = {
    "taskboard": _taskboard,
    "workflow": _workflow,
    "workitems": _workitems,
    "bilu": _bilu,
    "spec": _spec,
}


def statuses(document: str, directory: Path) -> dict[str, str]:
    """Every task's status in the document's own words, read strictly: a torn or malformed file is an AssertionError.

    For document 003, which has no status: `done`, or `left`.
    """
    if document == "taskboard":
        return {task["id"]: task["status"] for task in _json(directory / "taskboard.json")["tasks"]}
    if document == "workflow":
        return {task["id"]: task["status"] for task in _json(directory / "board.json")["tasks"]}
    if document == "workitems":
        changelog(directory)
        return {activity["id"]: activity["status"] for activity in progress(directory)["activities"]}
    if document == "bilu":
        return {path.stem: _bilu_status(path) for path in sorted((directory / "board" / "tasks").glob("*.md"))}
    tasks = [row.split()[0] for row in (directory / "tasks.txt").read_text().splitlines()]
    return {task: "done" if (directory / "done" / task).is_dir() else "left" for task in tasks}


FINISHED = {"taskboard": "completed", "workflow": "done", "workitems": "completed", "bilu": "DONE", "spec": "done"}
"""The status that a worker leaves a finished task in."""


def _json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise AssertionError(f"{path} does not parse: {error}") from error
    return value


def progress(directory: Path) -> dict[str, Any]:
    """Document 001's progress.yaml."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = directory / "progress.yaml"
    try:
        value: dict[str, Any] = YAML(typ="safe", pure=True).load(path.read_text())
    except YAMLError as error:
        raise AssertionError(f"{path} does not parse: {error}") from error
    return value


def changelog(directory: Path) -> list[dict[str, Any]]:
    """Document 001's changelog, every line of it."""
    path = directory / "changelog.log"
    text = path.read_text()
    assert text.endswith("\n"), f"{path} ends in a torn line: {text[-80:]!r}"
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise AssertionError(f"{path} has a torn line: {error}") from error


def _bilu_status(path: Path) -> str:
    sections = path.read_text().split("# Status\n")
    assert len(sections) == 2, f"{path} has {len(sections) - 1} status sections"
    assert sections[1].count("\n# Kind\n") == 1, f"{path} is torn"
    return sections[1].split("\n", 1)[0]


def plant(document: str, directory: Path) -> None:
    """Put into the files what no protocol knows: keys, comments, sections, and permissions of their own."""
    if document in ("taskboard", "workflow"):
        path = directory / ("taskboard.json" if document == "taskboard" else "board.json")
        board = _json(path)
        for number, task in enumerate(board["tasks"]):
            if number % 3 == 0:
                task["x-estimate"] = f"{number} points, planted"
                task["x-links"] = {"planted": [f"planted {number}", 1.50, True, None], "planted too": "a/b"}
        board = {"x-first": "planted at the top", **board, "x-last": ["planted at the end"]}
        path.write_text(
            json.dumps(board, indent=2, ensure_ascii=document == "taskboard") + "\n" * (document != "taskboard")
        )
    elif document == "workitems":
        path = directory / "progress.yaml"
        rows = path.read_text().splitlines()
        for number, row in reversed(list(enumerate(rows))):
            if row.startswith("  - id:"):
                rows[number + 1 : number + 1] = [
                    f"    x_estimate: '{number} points, planted'  # and planted for people"
                ]
                rows[number:number] = [f"  # planted before line {number}"]
        path.write_text("\n".join([*rows, "# planted at the end", "x_last: {planted: [1, two]}"]) + "\n")
    elif document == "bilu":
        for path in (directory / "board" / "tasks").glob("*.md"):
            path.write_text(
                path.read_text() + f"\n# Notes\n<!-- planted in {path.stem} -->\n* planted,   with blanks \n"
            )
    else:
        (directory / ".locks" / "files").mkdir(parents=True)
        (directory / ".locks" / "README.md").write_text("planted: leave this alone\n")
        (directory / ".locks" / "files" / ".gitkeep").write_text("planted\n")
    for path in directory.rglob("*"):
        if path.is_file():
            path.chmod(0o640)


def planted(directory: Path) -> dict[str, tuple[int, list[str]]]:
    """Of every file that `plant` has touched: its permissions, and the planted lines."""
    told = {}
    for path in directory.rglob("*"):
        draft = path.name.startswith(".") and path.name != ".gitkeep"
        if path.is_file() and not draft and ".dibs" not in path.parts:
            rows = [row.rstrip(",") for row in path.read_text().split("\n") if "planted" in row]
            if rows:
                told[str(path.relative_to(directory))] = (path.stat().st_mode & 0o7777, rows)
    return told


def age(document: str, directory: Path, names: Collection[str]) -> None:
    """Make what these dead workers left an hour older: the passing of time that a document's own rule waits for.

    Nobody but them touches it before that, so this races with nobody.
    """
    if document == "taskboard":
        with (directory / "taskboard.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            board = _json(directory / "taskboard.json")
            for task in board["tasks"]:
                if task["status"] == "in_progress" and task["assigned_to"] in names:
                    task["claimed_at"] -= 3600
            _replace(directory / "taskboard.json", json.dumps(board, indent=2))
    elif document == "workflow":
        path = directory / "board.lock"
        try:
            text = path.read_text()
            agent = json.loads(text)["agent"]
        except (FileNotFoundError, ValueError):
            return  # there is none, or it is being made, by somebody who is alive
        if agent in names:
            _replace(path, text.replace('"ts": "2', '"ts": "1'))
    elif document == "workitems":
        for path in (directory / "locks").glob("*.lock"):
            try:
                lock_ = json.loads(path.read_text())
            except (FileNotFoundError, ValueError):
                continue  # of somebody who is alive
            if lock_.get("holder") in names:
                past = "2020-01-01T00:00:00Z"
                lock_["expires"] = past
                if lock_.get("task_expires"):
                    lock_["task_expires"] = past
                _replace(path, json.dumps(lock_, indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.aged")
    temporary.write_text(text)
    try:
        temporary.chmod(path.stat().st_mode & 0o7777)
    except FileNotFoundError:
        temporary.unlink()  # a lock that somebody has broken meanwhile, because its holder is dead
    else:
        temporary.replace(path)


def leftovers(document: str, directory: Path) -> list[str]:
    """Locks and temporary files that are still there, relative to the board: none once everybody has left in peace."""
    patterns = {
        "taskboard": (".taskboard*", "taskboard.json?*", "*.tmp*"),
        "workflow": ("board.lock*", ".board*", "*.tmp*"),
        "workitems": ("locks/*", "locks/.*", ".progress*", "*.tmp*"),
        "bilu": ("storage/lock", "storage/lock*/*", "board/tasks/.*"),
        "spec": (".locks/tasks/*", ".locks/files/*"),
    }
    found = {path for pattern in patterns[document] for path in directory.glob(pattern) if path.name != ".gitkeep"}
    return sorted(str(path.relative_to(directory)) for path in found)
