"""Files that name this machine's dibs by its path, kept out of git: a marked block in `info/exclude`.

    kept = apply(made, client, removed, others)     adds the change of that file to the first plan; writes nothing
    kept.out, kept.tracked                          files that git now ignores, and those that it has already

All worktrees share that file and the one block in it, with the lines of all clients. A client's lines go when no
worktree has the client's files any more, and the block goes with the last line. What cannot be changed there is left
alone and told: it keeps nobody from being set up.
"""

from __future__ import annotations

import os

from dibs.errors import Invalid
from dibs.setup.blocks import HASH, Block, find, put, take_out
from dibs.setup.clients import CLIENTS
from dibs.setup.githook import git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.setup.plans import Plan


class Kept:
    """`shown`: the file with the block; None outside git, and where it cannot be used."""

    __slots__ = ("is_git", "out", "shown", "tracked")

    def __init__(self) -> None:
        self.is_git = False
        self.shown: str | None = None
        self.out: list[str] = []
        self.tracked: list[str] = []


def apply(made: Sequence[Plan], name: str, removed: bool, others: Sequence[str]) -> Kept:
    """`others`: the worktrees that are not among the plans."""
    kept, first = Kept(), made[0]
    try:
        path = git(first.root, "rev-parse", "--git-path", "info/exclude")
        common = git(first.root, "rev-parse", "--git-common-dir")
        found = [(plan, _states(plan.root, _files(plan.root, name))) for plan in made]
    except Invalid:
        return kept
    kept.is_git = True
    for _, states in found:
        kept.out += [file for file, state in states.items() if not state and file not in kept.out]
        kept.tracked += [file for file, state in states.items() if state == "H" and file not in kept.tracked]
    stale = {_line(file) for plan, _ in found for file in (*_files(plan.root, name), *_plain(name))}
    wanted = [_line(file) for file in kept.out]
    if removed:
        wanted = []
        if any(CLIENTS[name].is_set_up(other) for other in others):
            return kept
    try:
        edit = first.drop if removed or not wanted else first.add
        file = edit(path, lambda text: _renewed(text, stale, wanted), [os.path.join(first.root, common)])
        kept.shown = file.shown
    except Invalid as error:
        first.warnings.append(f"{error.message.removesuffix('; nothing was written')}; it was left alone")
    return kept


def _plain(name: str) -> list[str]:
    client = CLIENTS[name]
    return [path for path in dict.fromkeys((client.mcp, client.hooks)) if path]


def _files(root: str, name: str) -> list[str]:
    """Where the client's configuration really is: a link names no machine, the file behind it does."""
    real = [os.path.relpath(os.path.realpath(os.path.join(root, path)), root) for path in _plain(name)]
    return [path.replace(os.sep, "/") for path in real if not path.startswith("..")]


def _states(root: str, files: Sequence[str]) -> dict[str, str]:
    """For each file nothing if git does not have it, `S` if git was told to overlook its changes, else `H`."""
    said = git(root, "--literal-pathspecs", "ls-files", "-t", "-z", "--", *files).split("\0")
    states = {entry[2:]: "S" if entry[:1] == "S" else "H" for entry in said if entry}
    return {file: states.get(file, "") for file in files}


def _line(path: str) -> str:
    return "/" + "".join(f"\\{c}" if c in "\\*?[ " else c for c in path)


def _renewed(text: str | None, stale: set[str], wanted: Sequence[str]) -> str | None:
    there = None if text is None else find(text, HASH)
    lines = sorted({*(line for line in (there.lines if there else ()) if line not in stale), *wanted})
    if lines:
        return put(text, Block(HASH, there.words if there else "", lines))
    return None if text is None else take_out(text, HASH)
