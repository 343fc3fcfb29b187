"""Opening a dialect's board: which class a scheme means, where its paths belong, and what must be there already."""

from __future__ import annotations

import os

from dibs import fs
from dibs.errors import BoardUnusable, Invalid
from dibs.places import find_place, leads_out
from dibs.rules.paths import real
from dibs.worker import stale_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.clock import Clock
    from dibs.dialects.filestore import FileStore


TAKE_QUERIES = ("workflow", "bilu")
_FILES = {"taskboard": "taskboard.json", "workflow": "board.json", "workitems": "progress.yaml"}
_PARTS = {"workflow": (".workflow",), "bilu": (".bilu", "src"), "spec": ("spec",)}
"""The folder that each document names for its files."""


def open_dialect(
    scheme: str, folder: str, *, create: bool, durability: str, clock: Clock | None, agent: str | None
) -> FileStore:
    if durability not in ("full", "normal"):
        raise Invalid(f"durability must be full or normal, not {durability!r:.40}")
    kind = store_class(scheme)
    folder, mark, query = folder.partition("?") if scheme in TAKE_QUERIES else (folder, "", "")
    folder = meant(scheme, os.path.normpath(folder))
    if kind_of_network := fs.network_file_system(existing(folder)):
        raise BoardUnusable(
            f"{folder} is on a {kind_of_network} file system, whose locks and renames cannot be trusted",
            hint="keep the board on a local disk",
            path=folder,
        )
    above = os.path.dirname(folder)
    if os.path.islink(folder) and find_place(above).worktree is not None:
        refuse_leading_out(folder, above)
    for part in kind.parts:
        refuse_leading_out(os.path.join(folder, part), folder)
    place = place_of(folder)
    folder += mark + query
    kind.require(folder, create=create, agent=agent)
    # Only document 004 lets a board end claims that somebody made by hand.
    more = {"stale": stale_timeout()} if scheme == "taskboard" else {}
    return kind(folder, place=place, clock=clock, durable=durability == "full", agent=agent, **more)


def refuse_leading_out(folder: str, home: str) -> None:
    """Raise if one of a board's folders is a link out of the repository."""
    if leads_out(folder, home):
        raise BoardUnusable(
            f"{folder} is a link that leads out of the repository, to {real(folder)}; nothing was done there",
            hint="if that board is the one you mean, name its real folder with --board; otherwise put a folder of your "
            "own there",
            path=folder,
        )


def store_class(scheme: str) -> type[FileStore]:
    """Imported by need: a command pays for the dialect that it uses."""
    if scheme == "taskboard":
        from dibs.dialects.taskboard import TaskboardStore

        return TaskboardStore
    if scheme == "workflow":
        from dibs.dialects.workflow import WorkflowStore

        return WorkflowStore
    if scheme == "workitems":
        from dibs.dialects.workitems import WorkItemsStore

        return WorkItemsStore
    if scheme == "bilu":
        from dibs.dialects.bilu import BiluStore

        return BiluStore
    from dibs.dialects.spec import SpecStore

    return SpecStore


def meant(scheme: str, path: str) -> str:
    """The board's folder, also where the address names its file of tasks, a folder in it, or the project around it."""
    folder, name = os.path.split(path)
    if name == _FILES.get(scheme) and not os.path.isdir(path):
        return folder
    if scheme == "bilu":
        from dibs.dialects.bilu import root_of

        path = root_of(path)
    elif scheme == "spec" and name == ".locks" and os.path.isdir(path):
        return folder
    parts = [os.path.join(path, part) for part in _PARTS.get(scheme, ())]
    return path if _is_board(scheme, path) else next((part for part in parts if _is_board(scheme, part)), path)


def _is_board(scheme: str, folder: str) -> bool:
    if scheme == "bilu":
        return os.path.isdir(os.path.join(folder, "board", "tasks"))
    if scheme == "spec":
        return os.path.isdir(os.path.join(folder, ".locks"))
    return os.path.isfile(os.path.join(folder, _FILES[scheme]))


def existing(path: str) -> str:
    """The nearest folder upward that is there."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def place_of(folder: str) -> str:
    """The folder that relative paths belong to: the repository's main work tree, else the folder that holds the board's
    own where that has one of the documents' names, else the board's folder itself."""
    place = find_place(folder)
    if place.worktree is not None:
        return place.home
    folder = os.path.realpath(folder)
    return os.path.dirname(folder) if os.path.basename(folder) in (".workflow", "spec", ".bilu") else folder
