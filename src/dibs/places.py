"""Where we are: the git work tree around a directory, the main one that all share, and what a board calls a file.

    place = find_place(folder)              the work tree around it, and its repository's home
    ground = Ground(board_home)             how a board with that home names files; `folds` if case does not count there
    ground.name(path, here)                 a path as given in `here`, by the one name that every worktree has for it
    ground.worktree(here)                   the worktree or clone that `here` is in
    ground.labels(worktrees)                … and what to call them on the screen

Names are relative to the root of the work tree that holds the file, so they are the same in all worktrees of a
repository, and in a clone that was pointed to the board. To a board that was made further out, a submodule or somebody
else's repository is a folder like any other.

Found by reading `.git`, without running git: a hook imports this on every edit, and starting git would cost more than
everything else together. Nothing is written.
"""

from __future__ import annotations

import os
import stat

from dibs.errors import Invalid
from dibs.rules.paths import below, case_insensitive, normalise, real

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Place:
    """Where a directory belongs: its work tree, and the home that all work trees of that repository share.

    `common` is the git directory that they share; None outside any repository."""

    __slots__ = ("common", "home", "is_worktree", "worktree")

    def __init__(self, worktree: str | None, home: str, is_worktree: bool, common: str | None = None) -> None:
        self.worktree = worktree
        self.home = home
        self.is_worktree = is_worktree
        self.common = common


def working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise Invalid("the working directory no longer exists", hint="go to a folder that does: cd DIR") from None


def stranger(found: str, start: str) -> int | None:
    """The owner of a board's folder that was found by searching from `start`, if that is another user; else None.

    Searching upward may meet what somebody else has put there, in `/tmp` for example. As git does, trust only what
    belongs to us, to root, or to the owner of the folder that we stand in.
    """
    if not hasattr(os, "geteuid"):
        return None
    about = os.lstat(found)
    is_open_to_all = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX and about.st_mode & stat.S_IWOTH
    is_trusted = about.st_uid in (os.geteuid(), 0, os.stat(start).st_uid) and not is_open_to_all
    return None if is_trusted else about.st_uid


def leads_out(path: str, home: str) -> bool:
    """Is this a link to somewhere outside the repository that `home` is in, or outside `home` where that is in none?

    A clone brings the links that somebody committed, and those must not decide which files of ours are written to.
    """
    if not os.path.islink(path):
        return False
    place, target = find_place(home), real(path)
    tops = (place.home,) if place.worktree is None else (place.worktree, place.home)
    return all(below(target, top) is None for top in tops)


def find_place(start: str) -> Place:
    """The work tree around `start`, which need not exist; outside any, `start` is its own home."""
    return _around(real(start))


def _around(start: str) -> Place:
    here = start
    while (place := _place_at(here)) is None:
        if here == os.path.dirname(here):
            return Place(None, start, False)
        here = os.path.dirname(here)
    return place


def _place_at(root: str) -> Place | None:
    dot_git = os.path.join(root, ".git")
    try:
        try:
            mode = os.stat(dot_git).st_mode
        except FileNotFoundError:
            return _bare_at(root)
        if stat.S_ISDIR(mode):
            common = real(dot_git)
            return Place(root, _home(common), False, common)
        if not stat.S_ISREG(mode):  # reading a pipe would wait for ever
            return None
        git_dir = _pointer(dot_git, "gitdir: ", root)
        try:
            common = _pointer(os.path.join(git_dir, "commondir"), "", git_dir)
        except FileNotFoundError:
            # A submodule, or a repository made with --separate-git-dir: this is its main work tree.
            return Place(root, root if _is_submodule(git_dir) else _home(git_dir), False, git_dir)
        return Place(root, _home(common), True, common)
    except (OSError, ValueError):
        return None


def _bare_at(folder: str) -> Place | None:
    """A git directory that we stand in, where hooks of a bare repository run."""
    if os.path.basename(folder) == ".git" or not os.path.isfile(os.path.join(folder, "HEAD")):
        return None
    if not all(os.path.isdir(os.path.join(folder, part)) for part in ("objects", "refs")):
        return None
    return Place(None, _home(folder), False, folder)


def _is_submodule(git_dir: str) -> bool:
    return os.path.join(os.sep, "modules", "") in git_dir and os.path.join(os.sep, ".git", "") in git_dir


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
    for value in _settings(common, "[core]", "worktree"):
        root = real(os.path.join(common, value))
        return root if os.path.isdir(root) else common
    return common


def _settings(common: str, section: str, key: str) -> Iterator[str]:
    """The values of a key in the repository's own configuration, in sections whose heading begins so."""
    for file in ("config", "config.worktree"):
        try:
            text = _read(os.path.join(common, file))
        except OSError:
            continue
        if key not in text.lower():
            continue
        inside = False
        for line in map(str.strip, text.splitlines()):
            name, equals, value = line.partition("=")
            if line.startswith("["):
                inside = line.lower().startswith(section)
            elif inside and name.strip().lower() == key:
                yield value.strip().strip('"') if equals else "true"


# -- a board's ground


class Ground:
    """How the board of a home names files. Asked anew for every path: worktrees come and go while a server runs."""

    __slots__ = ("_common", "_folds", "home")

    def __init__(self, home: str) -> None:
        place = find_place(home)
        self.home = place.home
        self._common = place.common
        self._folds: bool | None = None

    @property
    def folds(self) -> bool:
        """Is a name here the same in capitals? Git looked when it made the repository; elsewhere we look."""
        if self._folds is None:
            if self._common is None:
                self._folds = case_insensitive(self.home)
            else:
                said = [value.lower() for value in _settings(self._common, "[core]", "ignorecase")]
                self._folds = bool(said) and said[-1] in ("true", "yes", "on", "1")
        return self._folds

    def name(self, path: str, here: str) -> str:
        """The name of a path or pattern as given in the real folder `here`, in the spelling of whoever gave it."""
        standing = self._region(here)

        def name_of(located: str) -> str | None:
            region = self._region(located)
            if region.is_foreign and region.repository != standing.repository:
                return None
            rest = below(located, region.top)
            return rest if rest is None or not region.prefix else f"{region.prefix}/{rest}".rstrip("/")

        # A folder in no repository says nothing about names, unless the board is around it.
        start = here if standing.tree is not None or below(here, self.home) is not None else self.home
        return normalise(path, root=standing.tree or self.home, cwd=start, name_of=name_of)

    def worktree(self, here: str) -> str | None:
        """The root of the worktree, or the clone, that a real folder is in."""
        return self._region(here).tree

    def prefix(self, tree: str) -> str:
        """What names begin with in another repository's work tree that lies in ours; else nothing."""
        return self._region(tree).prefix

    def labels(self, trees: Iterable[str]) -> dict[str, str]:
        """A short name for each worktree or clone: `main`, its folder's, `clone NAME`; with the folder above where two
        would have the same."""
        short = {tree: self._label(tree, 1) for tree in trees}
        names = [*short.values(), "main"]
        return {
            tree: name if names.count(name) == 1 or tree == self.home else self._label(tree, 2)
            for tree, name in short.items()
        }

    def _label(self, tree: str, parts: int) -> str:
        name = os.sep.join(tree.split(os.sep)[-parts:]) or tree
        if self._common is None:
            return name
        if tree == self.home:
            return "main"
        return f"clone {name}" if self._region(tree).is_clone else name

    def _region(self, located: str) -> _Region:
        """The part of the ground that a real path is in."""
        place = _around(located)
        tree = place.worktree
        if place.common is None or self._is_ours(place):
            return _Region(tree or self.home, tree, place.home)
        tree = tree or place.home
        for inner in (place.home, tree):  # by its main worktree, if that is inside, so that all of them agree
            outer = self._around_repository(inner)
            if outer is not None:
                if self._is_clone(place):
                    return _Region(tree, tree, place.home, is_clone=True)
                ours = outer if self._common is not None else tree
                return _Region(tree, ours, place.home, prefix=below(inner, outer) or "")
        return _Region(tree, tree, place.home, is_clone=True, is_foreign=True)

    def _is_ours(self, place: Place) -> bool:
        return below(place.home, self.home) == ""

    def _around_repository(self, root: str) -> str | None:
        """The worktree of ours that another repository lies in, or the board's home where that is in none."""
        above = os.path.dirname(root)
        while above != root:
            place = _around(above)
            if place.common is None:
                break
            if self._is_ours(place):
                return place.worktree or self.home
            root = place.worktree or place.home
            above = os.path.dirname(root)
        return self.home if below(root, self.home) is not None else None

    def _is_clone(self, place: Place) -> bool:
        """Was it cloned from ours, or from where ours was?"""
        if self._common is None or place.common is None or _is_submodule(place.common):
            return False
        ours = {self.home, self._common, *_origins(self._common)}
        return any(origin in ours for origin in _origins(place.common))


class _Region:
    """Files that have their names from one folder, `top`; `tree` is the worktree to tell people of."""

    __slots__ = ("is_clone", "is_foreign", "prefix", "repository", "top", "tree")

    def __init__(
        self,
        top: str,
        tree: str | None,
        repository: str,
        *,
        prefix: str = "",
        is_clone: bool = False,
        is_foreign: bool = False,
    ) -> None:
        self.top = top
        self.tree = tree
        self.repository = repository
        self.prefix = prefix
        self.is_clone = is_clone
        self.is_foreign = is_foreign


def _origins(common: str) -> set[str]:
    """Where the remotes of a repository are."""
    found = set()
    for url in _settings(common, "[remote ", "url"):
        url = url.removeprefix("file://").rstrip("/")
        found.add(real(os.path.join(common, url)) if "://" not in url and os.path.isabs(url) else url)
    return found
