"""The repository in which the team of `dibs demo` works: a small shop of stubs, with tests that fail at first.

    make(folder)                  the repository, with the branch `trunk` that work lands on
    steps(description)            what a scripted coder writes for a task, as edits one after the other
    write(tree, step)             one of them: read the file, change it, write it
    run_tests(tree, *modules)     run the project's own tests there: how many ran, how many failed
    tidy(tree, name)              put aside what an earlier run of the same coder left unlanded
    unlanded(home, done)          tasks whose commits are not on the trunk, or there more than once

The edits are canned; the files, commits, merges and tests are real. A killed coder leaves a half-written file in its
own worktree and nothing else. Its task was given back and is being done by somebody else by then, so whoever comes next
into that worktree must not go on with it: `tidy` keeps it on a branch `left/…` and starts again from the trunk.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from dibs.cli.demo.repository import TRUNK, git
from dibs.cli.demo.shopcode import BODIES, LATER
from dibs.cli.demo.shopfiles import FILES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.model import BoardTask

PATIENCE = 60.0
_WORD = re.compile(r"\b[a-z]+\.[a-z_]+\b")


class Step:
    """One write of one file: the text that must be there, and what takes its place. No text before: a new file."""

    __slots__ = ("path", "before", "after")

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path = path
        self.before = before
        self.after = after


def make(folder: str) -> str:
    """The main worktree, on the branch `main`."""
    home = os.path.join(folder, "shop")
    for path, text in FILES.items():
        full = os.path.join(home, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
    git(home, "init", "--quiet", "--initial-branch", "main")
    for setting in (
        "core.autocrlf=false",
        f"core.hooksPath={os.devnull}",
    ):  # whoever runs git here
        git(home, "config", *setting.split("="))
    git(home, "add", ".")
    git(home, "commit", "--quiet", "-m", "A shop of stubs, and tests that fail")
    git(home, "branch", TRUNK)
    return home


# -- what is written


def stubs(tree: str) -> int:
    """How many functions are still to be written there."""
    found = 0
    for name in os.listdir(os.path.join(tree, "shop")):
        if name.endswith(".py"):
            with open(os.path.join(tree, "shop", name), encoding="utf-8") as file:
                found += file.read().count("raise NotImplementedError(")
    return found


def steps(description: str) -> list[Step]:
    """The edits for a task, found by the functions and files that its description names."""
    found: list[Step] = []
    for word in dict.fromkeys(_WORD.findall(description)):
        if word in BODIES:
            found += _stub_steps(word, BODIES[word].splitlines())
        found += [Step(*edit) for edit in LATER.get(word, ())]
    return found


def _stub_steps(word: str, body: list[str]) -> list[Step]:
    """In two goes, if it is more than a line: as long as the first of them stands alone, the stub still raises."""
    path = f"shop/{word.partition('.')[0]}.py"
    stub = f'raise NotImplementedError("{word}")\n'
    indent = re.search(rf"^( +){re.escape(stub)}", FILES[path], re.MULTILINE)
    assert indent is not None, f"{path} has no stub {word}"
    lines = [f"{indent[1]}{line}\n" for line in body]
    half = len(lines) // 2
    whole = indent[1] + stub
    first = [Step(path, whole, "".join(lines[:half]) + whole)] if half else []
    return [*first, Step(path, whole, "".join(lines[half:]))]


def write(tree: str, step: Step) -> None:
    full = os.path.join(tree, step.path)
    text = ""
    if step.before:
        with open(full, encoding="utf-8") as file:
            text = file.read()
        if text.count(step.before) != 1:
            raise RuntimeError(
                f"{step.path} is not as expected: it has {step.before!r} {text.count(step.before)} times"
            )
    elif os.path.exists(full):
        raise RuntimeError(f"{step.path} is there already")
    with open(full, "w", encoding="utf-8") as file:
        file.write(text.replace(step.before, step.after) if step.before else step.after)


# -- tests


def run_tests(tree: str, *modules: str) -> tuple[int, int, str]:
    """How many tests ran, how many did not pass, and what was printed. Without modules: all that there are."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-m", "unittest", *modules],
        cwd=tree,
        env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=PATIENCE,
        check=False,
    )
    ran = re.search(r"^Ran (\d+) test", done.stderr, re.MULTILINE)
    bad = re.findall(r"(?:failures|errors)=(\d+)", done.stderr)
    failed = sum(map(int, bad)) or (1 if done.returncode else 0)
    return int(ran[1]) if ran else 0, failed, done.stderr


def modules(description: str) -> list[str]:
    """The tests that a task's description names."""
    return [word for word in dict.fromkeys(_WORD.findall(description)) if word.startswith("tests.")]


# -- worktrees and the trunk


def tidy(tree: str, name: str) -> str | None:
    """Begin at the trunk. What is in the worktree, or committed and not landed, is kept on a branch; which one."""
    kept = None
    if git(tree, "status", "--porcelain"):
        git(tree, "add", "--all")
        git(tree, "commit", "--quiet", "-m", f"Left unfinished by {name}")
    head = git(tree, "rev-parse", "HEAD")
    if git(tree, "merge-base", TRUNK, head) != head:
        kept = f"left/{name}-{head[:7]}"
        git(tree, "branch", "--force", kept, head)
    git(tree, "reset", "--quiet", "--hard", TRUNK)
    return kept


def left_behind(home: str, name: str) -> list[str]:
    """The branches on which unfinished work of a worker was kept."""
    return git(home, "for-each-ref", "--format=%(refname:short)", f"refs/heads/left/{name}-*").split()


def is_on_trunk(home: str, revision: str) -> bool:
    commit = git(home, "rev-parse", revision)
    return git(home, "merge-base", TRUNK, commit) == commit


def subject(task_id: str, description: str, name: str) -> str:
    """The first line of a task's commit."""
    return f"{description.partition(':')[0]} ({task_id} by {name})"


def unlanded(home: str, done: Sequence[BoardTask]) -> list[str]:
    """For every completed task: is there exactly one commit of it on the trunk, the one that its result names?"""
    commits = [line.split(" ", 1) for line in git(home, "log", "--no-merges", "--format=%H %s", TRUNK).splitlines()]
    landed = git(home, "rev-list", TRUNK).split()
    found = []
    for task in done:
        wanted = subject(task.id, task.description, task.assigned_to or "")
        times = sum(text == wanted for _, text in commits)
        if times != 1:
            found.append(f"{task.id} by {task.assigned_to} has {times} commits on {TRUNK}")
        named = (task.result or "?").split()[-1]
        if not any(commit.startswith(named) for commit in landed):
            found.append(f"{task.id} by {task.assigned_to} is not on {TRUNK}, though it says: {task.result}")
    if len(commits) != len(done) + 1:
        found.append(f"{TRUNK} has {len(commits) - 1} commits, and {len(done)} tasks were completed")
    return found


def changed(tree: str) -> list[str]:
    """The files that differ from what is committed there."""
    return [line.split(maxsplit=1)[1] for line in git(tree, "status", "--porcelain").splitlines()]
