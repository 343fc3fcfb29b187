"""The radar: which files are being changed in several worktrees of a repository at once.

    found = survey(folder, base)       asks git about every worktree, several at a time
    found.overlaps                     the files that two or more of them change, with each worktree's part in it
    found.skipped                      worktrees that could not be looked at, or only in part, and why

A worktree changes a file by what is not committed (staged, not staged, or untracked and not ignored) and by what its
HEAD has beyond the merge base with the base branch. A rename changes both names. Git is only asked: no index is
refreshed, no lock is taken, nothing is written, so a crash leaves nothing.
"""

from __future__ import annotations

import os

from dibs.errors import Invalid, Unsupported
from dibs.places import Ground, find_place
from dibs.rules.paths import fold, real

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias, TypeVar

    from dibs.places import Place

    T = TypeVar("T")
    Answer: TypeAlias = "list[str] | GitFailed"  # the names of files, or why there are none

PATIENCE = 120.0
"""Seconds after which a git that says nothing is given up."""
AT_ONCE = 8

# What a hook of git hands on: it names one worktree and one index, and we ask about all of them.
_OF_ONE_TREE = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_IMPLICIT_WORK_TREE",
    "GIT_NAMESPACE", "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS",
    "GIT_EXTERNAL_DIFF", "GIT_TRACE",
)  # fmt: skip


class Tree:
    """A worktree: where it is, its branch (None: its HEAD is detached), its commit (None: there is none yet)."""

    __slots__ = ("branch", "commit", "root")

    def __init__(self, root: str, branch: str | None, commit: str | None) -> None:
        self.root = root
        self.branch = branch
        self.commit = commit


class Part:
    """A worktree's part in an overlap."""

    __slots__ = ("committed", "tree", "uncommitted")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.uncommitted = False
        self.committed = False


class Overlap:
    """A file, as the first worktree spells it, and the worktrees that change it: two at least."""

    __slots__ = ("parts", "path")

    def __init__(self, path: str, parts: list[Part]) -> None:
        self.path = path
        self.parts = parts


class Survey:
    """What there is. `base` is the branch that commits were compared with; None if there is none."""

    __slots__ = ("base", "ground", "overlaps", "skipped", "trees")

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.base: str | None = None
        self.trees: list[Tree] = []
        self.overlaps: list[Overlap] = []
        self.skipped: list[tuple[str, str]] = []


class GitFailed(Exception):
    """Git did not answer; the text says why, in its words."""


def survey(folder: str, base: str | None = None) -> Survey:
    """Look at all worktrees of the repository around a folder."""
    place = find_place(folder)
    found = Survey(Ground(place.home))
    try:
        _list(found, folder, place)
        found.base, bases = _default(folder, place) if base is None else _given(folder, base)
    except GitFailed as error:
        raise _unreadable(folder, error) from None
    local = dict(zip(found.trees, _each(found.trees, _uncommitted), strict=True))
    commits = list(dict.fromkeys(tree.commit for tree in found.trees if tree.commit)) if bases else []
    ahead = dict(zip(commits, _each(commits, lambda commit: _ahead(folder, commit, bases)), strict=True))
    _compare(found, local, ahead)
    return found


def worktrees(folder: str) -> list[str]:
    """The worktrees of the repository around a folder that are there, the main one first."""
    place = find_place(folder)
    found = Survey(Ground(place.home))
    try:
        _list(found, folder, place)
    except GitFailed as error:
        raise _unreadable(folder, error) from None
    return [tree.root for tree in found.trees]


def _unreadable(folder: str, error: GitFailed) -> Invalid:
    return Invalid(f"{folder} is in no git repository that can be read: {error}", hint="go into one: cd DIR")


def _list(found: Survey, folder: str, place: Place) -> None:
    for number, entry in enumerate(_listed(folder)):
        root = real(_main_root(place, entry["worktree"]) if number == 0 else entry["worktree"])
        if "prunable" in entry:
            found.skipped.append((root, entry["prunable"] or "its folder is gone"))
        elif "bare" not in entry:
            commit = entry.get("HEAD", "")
            branch = entry.get("branch", "").removeprefix("refs/heads/")
            found.trees.append(Tree(root, branch or None, commit if commit.strip("0") else None))


def _compare(found: Survey, local: dict[Tree, Answer], ahead: dict[str, Answer]) -> None:
    changes: dict[str, Overlap] = {}
    found.trees = []
    for tree, dirty in local.items():
        beyond = ahead.get(tree.commit or "", [])
        found.skipped += [(tree.root, str(answer)) for answer in (dirty, beyond) if isinstance(answer, GitFailed)]
        if isinstance(dirty, GitFailed):
            continue
        found.trees.append(tree)
        for path in dirty:
            _part(changes, found.ground, path, tree).uncommitted = True
        for path in beyond if not isinstance(beyond, GitFailed) else ():
            _part(changes, found.ground, path, tree).committed = True
    found.overlaps = [changes[key] for key in sorted(changes) if len(changes[key].parts) > 1]


def _part(changes: dict[str, Overlap], ground: Ground, path: str, tree: Tree) -> Part:
    key = fold(path) if ground.folds else path
    parts = changes.setdefault(key, Overlap(path, [])).parts
    if not parts or parts[-1].tree is not tree:  # trees come one after another
        parts.append(Part(tree))
    return parts[-1]


def _each(items: Sequence[T], ask: Callable[[T], list[str]]) -> list[Answer]:
    """The answers for all items, some asked for at once: each is a process of git that mostly waits for the disk."""
    from concurrent.futures import ThreadPoolExecutor

    def answer(item: T) -> Answer:
        try:
            return ask(item)
        except GitFailed as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(answer, items))


# -- what git says


def _listed(folder: str) -> list[dict[str, str]]:
    """The worktrees as git lists them, the main one first: their attributes, by name."""
    try:
        text, end = _git(folder, "worktree", "list", "--porcelain", "-z"), "\0"
    except GitFailed:
        text, end = _git(folder, "worktree", "list", "--porcelain"), "\n"  # before git 2.36
    records = [record.split(end) for record in text.split(end + end) if record]
    return [dict(line.partition(" ")[::2] for line in record) for record in records]


def _main_root(place: Place, listed: str) -> str:
    """Where the main worktree is. Git lists the git directory instead where that is elsewhere (submodules, for one)."""
    if os.path.lexists(os.path.join(listed, ".git")):
        return listed
    return place.worktree if place.worktree is not None and not place.is_worktree else place.home


def _given(folder: str, base: str) -> tuple[str, list[str]]:
    try:
        if base.startswith("-"):
            raise GitFailed
        commit = _git(folder, "rev-parse", "--verify", "--quiet", base + "^{commit}").strip()
    except GitFailed:
        raise Invalid(f"there is no branch {base!r} here", hint="see which there are: git branch --all") from None
    return base, [commit]


def _default(folder: str, place: Place) -> tuple[str | None, list[str]]:
    """The repository's main branch, and where it is, here and at the origin: whichever is further counts."""
    origin = _symbolic(folder, "refs/remotes/origin/HEAD").removeprefix("refs/remotes/origin/")
    own = _symbolic(place.common or folder, "HEAD").removeprefix("refs/heads/")
    names = dict.fromkeys(name for name in (origin, "main", "master", own) if name)
    refs = [f"refs/{kind}/{name}" for name in names for kind in ("heads", "remotes/origin")]
    lines = _git(folder, "for-each-ref", "--format=%(objectname) %(refname)", *refs).splitlines()
    commits = {ref: commit for commit, _, ref in (line.partition(" ") for line in lines)}
    for name in names:
        if name != origin and f"refs/heads/{name}" not in commits:
            continue
        there = [commits[ref] for ref in (f"refs/heads/{name}", f"refs/remotes/origin/{name}") if ref in commits]
        if there:
            return name, there
    return None, []


def _symbolic(folder: str, ref: str) -> str:
    try:
        return _git(folder, "symbolic-ref", "--quiet", ref).strip()
    except GitFailed:
        return ""


def _uncommitted(tree: Tree) -> list[str]:
    if not os.path.lexists(os.path.join(tree.root, ".git")):
        raise GitFailed("it is not known where its files are" if os.path.isdir(tree.root) else "its folder is gone")
    how = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
    lines = _git(tree.root, "status", *how).split("\0")
    # A repository inside, such as another worktree, is listed as a folder.
    return [line[3:] for line in lines if line and not line.endswith("/")]


def _ahead(folder: str, commit: str, bases: Sequence[str]) -> list[str]:
    if commit in bases:
        return []
    meeting = _git(folder, "merge-base", commit, *bases, may_fail=True).strip()
    if not meeting:
        raise GitFailed("it has no history in common with the base: only what is not committed was looked at")
    names = _git(folder, "diff-tree", "-r", "-z", "--name-only", "--no-renames", meeting, commit)
    return [name for name in names.split("\0") if name]


def _git(folder: str, *words: str, may_fail: bool = False) -> str:
    """What git prints. `may_fail`: exit code 1 is an answer, too."""
    import subprocess

    environ = {name: value for name, value in os.environ.items() if name not in _OF_ONE_TREE}
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder, *words]
    try:
        done = subprocess.run(
            command,
            env=environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except FileNotFoundError:
        raise Unsupported("git was not found, and overlaps are found with it", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise GitFailed(f"git did not answer within {PATIENCE:.0f} seconds") from None
    if done.returncode and not (may_fail and done.returncode == 1):
        said = os.fsdecode(done.stderr).strip().splitlines()
        raise GitFailed(said[0].removeprefix("fatal: ") if said else f"git ended with code {done.returncode}")
    return os.fsdecode(done.stdout)
