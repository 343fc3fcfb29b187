"""Which dialect's board belongs to a directory: its files are looked for here and in every folder above, up to the root
of the work tree (outside one, up to the root of the file system).

In a linked work tree the same place of the main one goes first: a board that is committed is checked out into every
work tree, and workers on copies of a board do not share it.
"""

from __future__ import annotations

import os

from dibs.places import find_place, stranger

DEPTH = 2
"""How far below a folder boards count as near."""
MOST_FOLDERS = 2000


def discover(start: str) -> tuple[str, str] | None:
    """(scheme, folder) of the nearest board in a dialect's files, if there is one and it is no stranger's."""
    found = nearest(start)
    return None if found is None or stranger(found[1], start) is not None else found


def nearest(start: str) -> tuple[str, str] | None:
    """As `discover`, whoever owns it."""
    place = find_place(start)
    folder = os.path.realpath(start)
    if place.is_worktree and place.worktree is not None and place.home != place.worktree:
        same = os.path.normpath(os.path.join(place.home, os.path.relpath(folder, place.worktree)))
        found = _upward(same, place.home)
        if found is not None:
            return found
    return _upward(folder, place.worktree)


def _upward(folder: str, top: str | None) -> tuple[str, str] | None:
    while True:
        found = _whole(at(folder), top)
        if found is not None:
            return found
        parent = os.path.dirname(folder)
        if folder in (parent, top):
            return None
        folder = parent


def _whole(found: tuple[str, str] | None, top: str | None) -> tuple[str, str] | None:
    """One work item is part of the board that all of them make, side by side."""
    if found is not None and found[0] == "workitems" and found[1] != top and _is_work_item(found[1]):
        return "workitems", os.path.dirname(found[1])
    return found


def near(start: str) -> list[tuple[str, str]]:
    """Boards in dialects' files that `discover` does not find from here: in folders below, and above the work tree."""
    folder = os.path.realpath(start)
    found = dict.fromkeys(below(folder))
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        if (board := _whole(at(folder), None)) is not None:
            found[board] = None
    return list(found)


def below(folder: str, most: int = MOST_FOLDERS) -> list[tuple[str, str]]:
    """Boards in a folder or not far below it, the nearest first, as far as `most` folders tell."""
    found: dict[tuple[str, str], None] = {}
    ahead = [(folder, 0)]
    for count, (here, depth) in enumerate(ahead):
        if count == most:
            break
        if (board := _whole(at(here), None)) is not None:
            found[board] = None
        elif depth < DEPTH:
            ahead += [(inner, depth + 1) for inner in _folders(here)]
    return list(found)


def named(path: str) -> tuple[str, str] | None:
    """The dialect and folder of which a path is, by its name, the file of tasks or the folder itself."""
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        found = at(path) if name in (".workflow", ".bilu") or _is_work_item(path) else None
        return found if found is not None and found[1] == path else None
    if name == "taskboard.json":
        return "taskboard", folder
    if name == "board.json" and os.path.basename(folder) == ".workflow":
        return "workflow", folder
    return ("workitems", folder) if name == "progress.yaml" else None


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(e.path for e in entries if e.name[0] != "." and e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def at(folder: str) -> tuple[str, str] | None:
    """The dialect whose files are in this folder, or in the one below it that its document names."""

    def has(*names: str) -> bool:
        return os.path.isfile(os.path.join(folder, *names))

    if has("taskboard.json"):
        return "taskboard", folder
    for workflow in (folder, os.path.join(folder, ".workflow")):
        if os.path.basename(workflow) == ".workflow" and os.path.isfile(os.path.join(workflow, "board.json")):
            return "workflow", workflow
    if has("progress.yaml"):
        return "workitems", folder
    for bilu in (folder, os.path.join(folder, ".bilu"), os.path.join(folder, "src")):
        if os.path.isdir(os.path.join(bilu, "board", "tasks")):
            return "bilu", bilu
    if _work_items(folder):
        return "workitems", folder
    for spec in (folder, os.path.join(folder, "spec")):
        locks = os.path.join(spec, ".locks")
        if os.path.isdir(os.path.join(locks, "tasks")) or os.path.isdir(os.path.join(locks, "files")):
            return "spec", spec
    return None


def _work_items(folder: str) -> bool:
    """Is this a folder of work items, each in a folder of its own?"""
    try:
        with os.scandir(folder) as entries:
            return any(_is_work_item(entry.path) for entry in entries)
    except OSError:
        return False


def _is_work_item(folder: str) -> bool:
    return os.path.basename(folder).startswith("WI-") and os.path.isfile(os.path.join(folder, "progress.yaml"))
