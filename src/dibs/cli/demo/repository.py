"""The repository in which the scripted agents of `dibs demo --agents` work: real files, worktrees, branches, commits.

    make(folder, trees)      a repository with `trees` linked worktrees, each on a branch of its own
    tasks(number)            what there is to do: each task adds a line of its own to one to three files
    merge_trunk, land        how an agent brings its branch up to date, and its commit onto the branch `trunk`
    missing(folder, tasks)   which edits the trunk lacks, or has twice: none, if the locks were kept

Many tasks want the same files, and every worktree has its own copy of them. A claim locks the task's files for all
worktrees; the holder merges the trunk, edits, commits and lands before it completes the task. So no merge ever meets a
file that two have changed, and whatever is lost was lost by a lock that did not hold.
"""

from __future__ import annotations

import os
import random
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

TRUNK = "trunk"
FILES = tuple(
    f"{folder}/{name}"
    for folder, names in (
        ("shop", ("cart.py", "money.py", "orders.py", "stock.py")),
        ("web", ("layout.html", "product.html", "search.html", "checkout.html")),
        ("docs", ("manual.md", "prices.md")),
    )
    for name in names
)


def git(tree: str, *words: str) -> str:
    """Run git in a worktree; what it printed. The user's own configuration, signing and hooks stay out of it."""
    settings = ("user.name=dibs demo", "user.email=demo@dibs.invalid", "commit.gpgsign=false", "core.hooksPath=")
    given = [part for setting in settings for part in ("-c", setting)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C"}
    done = subprocess.run(["git", *given, *words], cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(words)} in {tree}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def make(folder: str, trees: int) -> tuple[str, list[str]]:
    """The main worktree, and the linked ones."""
    home = os.path.join(folder, "shop")
    os.makedirs(home)
    git(home, "init", "--quiet", "--initial-branch", "main")
    for path in FILES:
        os.makedirs(os.path.join(home, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(home, path), "w", encoding="utf-8") as file:
            file.write(f"{path}\n")
    with open(os.path.join(home, ".gitignore"), "w", encoding="utf-8") as file:
        file.write(".dibs/\n")
    git(home, "add", ".")
    git(home, "commit", "--quiet", "-m", "the shop before the agents came")
    git(home, "branch", TRUNK)
    linked = [os.path.join(folder, f"worktree-{n}") for n in range(1, trees + 1)]
    for n, tree in enumerate(linked, 1):
        git(home, "worktree", "add", "--quiet", "-b", f"agents-{n}", tree, TRUNK)
    return home, linked


def tasks(number: int, seed: int) -> list[dict[str, Any]]:
    """Definitions for `TaskBoard.add_many`; some depend on an earlier one."""
    chance = random.Random(f"tasks {seed}")
    found: list[dict[str, Any]] = []
    for n in range(1, number + 1):
        paths = sorted(chance.sample(FILES, chance.choice((1, 1, 2, 2, 3))))
        needs = [f"edit-{chance.randrange(1, n):03}"] if n > 8 and chance.random() < 0.2 else []
        found.append(
            {
                "id": f"edit-{n:03}",
                "description": f"Add line {n} to {' and '.join(paths)}",
                "depends_on": needs,
                "paths": paths,
            }
        )
    return found


def line_of(task_id: str, name: str) -> str:
    return f"{task_id} by {name}\n"


def merge_trunk(tree: str) -> None:
    git(tree, "merge", "--quiet", "--no-edit", TRUNK)


def land(tree: str) -> str:
    """Bring the branch's newest commit onto the trunk; if others were faster, merge theirs and try again."""
    while True:
        trunk = git(tree, "rev-parse", TRUNK)
        merge_trunk(tree)
        head = git(tree, "rev-parse", "HEAD")
        if git(tree, "merge-base", trunk, head) == trunk:
            try:
                git(tree, "update-ref", f"refs/heads/{TRUNK}", head, trunk)
            except RuntimeError:
                continue  # somebody has landed since
            return head


def missing(home: str, done: Iterable[tuple[str, str, Sequence[str]]]) -> list[str]:
    """For every completed task (id, by whom, its files): is its line in each of them on the trunk, exactly once?"""
    texts = {path: git(home, "show", f"{TRUNK}:{path}") for path in FILES}
    found = []
    for task_id, name, paths in done:
        for path in paths:
            times = texts[path].splitlines().count(line_of(task_id, name).strip())
            if times != 1:
                found.append(f"{task_id} by {name}: its line is {times} times in {path} on {TRUNK}")
    expected = sum(len(paths) for _, _, paths in done)
    lines = sum(len(text.splitlines()) - 1 for text in texts.values())
    if lines != expected:
        found.append(f"{TRUNK} has {lines} lines more than at the start, and {expected} were to be added")
    return found
