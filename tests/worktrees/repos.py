"""What the tests of worktrees share: real repositories, copied from one that is made once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from dibs import TaskBoard
from tests.cli.shell import environment

WHO = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_SETTINGS = ("-c", "protocol.file.allow=always", "-c", "core.hooksPath=", "-c", "advice.detachedHead=false")


def git(where: Path, *words: str) -> str:
    env = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    env |= {**WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *_SETTINGS, *words], cwd=where, check=False, capture_output=True, env=env, text=True)
    assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
    return done.stdout


def template(root: Path) -> Path:
    """A repository with a file or two on the branch main."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for name in ("src/app.py", "src/deep/util.py", "README.md"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


def worktree(main: Path, path: str | Path, branch: str | None = None) -> Path:
    """A new worktree, at a path relative to the main one."""
    root = main / path
    git(main, "worktree", "add", "-q", *(("-b", branch) if branch else ("--detach",)), str(root))
    return Path(os.path.realpath(root))


def commit(tree: Path, name: str, text: str = "changed\n") -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(tree, "add", "--", name)
    git(tree, "commit", "-qm", f"change {name}")


def new_board(folder: Path) -> str:
    """A board at home in a folder; its address."""
    url = f"sqlite:{folder}/.dibs/board.db"
    TaskBoard.open(url, create=True, durability="normal").close()
    return url
