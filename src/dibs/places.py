"""Where we are: the git work tree around a directory, the main one that all of them share, and the others.

Found by reading `.git`, without running git: a hook imports this on every edit, and starting git would cost more than
everything else together.
"""

from __future__ import annotations

import os
import stat

from dibs.errors import Invalid
from dibs.paths import real


class Place:
    """Where a directory belongs: its work tree, and the home that all work trees of that repository share."""

    __slots__ = ("home", "is_worktree", "worktree")

    def __init__(self, worktree: str | None, home: str, is_worktree: bool) -> None:
        self.worktree = worktree
        self.home = home
        self.is_worktree = is_worktree


def working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise Invalid("the working directory no longer exists", hint="go to a folder that does: cd DIR") from None


def worktrees(home: str) -> tuple[str, ...]:
    """The roots of the linked worktrees that a repository knows of."""
    for folder in (os.path.join(home, ".git", "worktrees"), os.path.join(home, "worktrees")):
        found = []
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                pointer = _read(os.path.join(folder, name, "gitdir")).strip()
            except OSError:
                continue  # half-removed
            if pointer:
                found.append(os.path.realpath(os.path.dirname(os.path.join(folder, name, pointer))))
        return tuple(sorted(found))
    return ()


def find_place(start: str) -> Place:
    """The work tree around `start`, which need not exist; outside any, `start` is its own home."""
    start = here = real(start)
    while (place := _place_at(here)) is None:
        if here == os.path.dirname(here):
            return Place(None, start, False)
        here = os.path.dirname(here)
    return place


def _place_at(root: str) -> Place | None:
    dot_git = os.path.join(root, ".git")
    try:
        mode = os.stat(dot_git).st_mode
        if stat.S_ISDIR(mode):
            return Place(root, _home(real(dot_git)), False)
        if not stat.S_ISREG(mode):  # reading a pipe would wait for ever
            return None
        git_dir = _pointer(dot_git, "gitdir: ", root)
        try:
            common = _pointer(os.path.join(git_dir, "commondir"), "", git_dir)
        except FileNotFoundError:
            # A submodule, or a repository made with --separate-git-dir: this is its main work tree.
            is_submodule = os.path.join(os.sep, ".git", "modules", "") in git_dir
            return Place(root, root if is_submodule else _home(git_dir), False)
        return Place(root, _home(common), True)
    except (OSError, ValueError):
        return None


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return os.fsdecode(file.read(1 << 20))


def _pointer(file: str, label: str, base: str) -> str:
    """The git directory that a one-line file names, relative to `base`."""
    target = _read(file).rstrip("\r\n")
    found = real(os.path.join(base, target[len(label) :]))
    if not target.startswith(label) or target == label or not os.path.lexists(os.path.join(found, "HEAD")):
        raise ValueError(f"{file} does not lead to a git directory")
    return found


def _home(common: str) -> str:
    """The main work tree's root, as far as the common git directory tells; else (it is bare) that directory.

    It depends on nothing but the common directory: every work tree has to arrive at the same answer.
    """
    if os.path.basename(common) == ".git":
        return os.path.dirname(common)
    section = ""
    for line in map(str.strip, _read(os.path.join(common, "config")).splitlines()):
        key, _, value = line.partition("=")
        if line.startswith("["):
            section = line.lower()
        elif section == "[core]" and key.strip().lower() == "worktree":
            root = real(os.path.join(common, value.strip().strip('"')))
            return root if os.path.isdir(root) else common
    return common
