"""Board addresses: which store a URL names, and which board belongs to the working directory.

Without a URL the board is `.dibs/board.db` at the root of the *main* worktree of the repository that we stand in, so
that all its worktrees share it; outside a repository the nearest `.dibs` upward counts. Where there is none, the files
of a dialect are looked for upward in the same way (`dialects.discover`).
"""

from __future__ import annotations

import os

from dibs.errors import Invalid, NoBoard, Unsupported
from dibs.places import find_place, working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.clock import Clock
    from dibs.store import Store

FOLDER = ".dibs"
FILE = "board.db"

DIALECTS = ("taskboard", "workflow", "workitems", "bilu", "spec")
_PLANNED = ("postgresql", "postgres")


def open_store(
    url: str | None,
    *,
    create: bool = False,
    durability: str = "full",
    clock: Clock | None = None,
    agent: str | None = None,
) -> Store:
    """The store that a URL names. `agent` is the name under which a dialect's guard is taken."""
    if url is None:
        url = os.environ.get("DIBS_BOARD") or None
    scheme, colon, rest = (url or "").partition(":")
    if colon and scheme == "memory":
        from dibs.stores.memory import MemoryStore

        return MemoryStore(clock)
    if colon and scheme in _PLANNED:
        raise Unsupported(f"{scheme}: boards are not built yet", hint="use sqlite:PATH, or a path")
    if url is None:
        here = working_directory()
        path = find(here) or default_path(here)
        if not os.path.exists(path):
            from dibs.dialects.discover import discover

            found = discover(here)
            if found is not None:
                scheme, rest = found
                return _open_dialect(scheme, rest, create, durability, clock, agent)
            if not create:
                raise NoBoard(f"there is no board in {here} or above it", hint="make one with: dibs init", path=path)
    elif colon and scheme in DIALECTS:
        return _open_dialect(scheme, _folder_path(rest), create, durability, clock, agent)
    else:
        path = _file_path(rest if colon and scheme == "sqlite" else url)
    from dibs.stores.sqlite import SqliteStore

    return SqliteStore(path, create=create, durability=durability, clock=clock, place=place_of(path))


def _open_dialect(
    scheme: str, folder: str, create: bool, durability: str, clock: Clock | None, agent: str | None
) -> Store:
    from dibs.dialects.opening import open_dialect

    return open_dialect(scheme, folder, create=create, durability=durability, clock=clock, agent=agent)


def _folder_path(text: str) -> str:
    if "\0" in text or not text:
        raise Invalid("the board's path is empty", hint="--board sqlite:PATH, or DIALECT:FOLDER")
    if text.startswith("//"):
        text = "/" + text.lstrip("/")  # sqlite:///absolute/path, as other tools write it
    path = os.path.expanduser(text)
    return os.path.normpath(path if os.path.isabs(path) else os.path.join(working_directory(), path))


def _file_path(text: str) -> str:
    path = _folder_path(text)
    if os.path.isdir(path):
        inside = path if os.path.basename(path) == FOLDER else os.path.join(path, FOLDER)
        return os.path.join(inside, FILE)
    return path


def default_path(start: str) -> str:
    """Where `dibs init` makes a board."""
    return os.path.join(find_place(start).home, FOLDER, FILE)


def find(start: str) -> str | None:
    """The board that belongs to a directory, if there is one."""
    path = default_path(start)
    if os.path.exists(path):
        return path
    place = find_place(start)
    folder = os.path.realpath(start)
    while True:
        path = os.path.join(folder, FOLDER, FILE)
        if os.path.exists(path):
            return path
        parent = os.path.dirname(folder)
        if parent == folder or (place.worktree is not None and folder == place.worktree):
            return None
        folder = parent


def place_of(path: str) -> str | None:
    """The folder that lock paths belong to: the one around `.dibs`, else that of the file."""
    folder = os.path.dirname(os.path.realpath(path))
    return os.path.dirname(folder) if os.path.basename(folder) == FOLDER else folder
