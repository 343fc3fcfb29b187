"""Board addresses: which store a URL names, and which board belongs to the working directory.

Without a URL the board is `.dibs/board.db` at the root of the *main* worktree of the repository that we stand in, so
that all its worktrees share it; outside a repository the nearest `.dibs` upward counts. Where there is none, the files
of a dialect are looked for upward in the same way (`dialects.discover`). What belongs to another user ends the search.

A path without a scheme is a SQLite file, or a folder that holds one, unless it is called as a dialect's own file or
folder is. A word before the colon that is no scheme is an error: most often it is one, misspelt. What is then shown of
the address has no password in it, whatever the address was meant to be (`masked`).
"""

from __future__ import annotations

import os

from dibs.errors import Invalid, NoBoard, Unsupported
from dibs.places import find_place, leads_out, stranger, working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.clock import Clock
    from dibs.stores.base import Store

FOLDER = ".dibs"
FILE = "board.db"

DIALECTS = ("taskboard", "workflow", "workitems", "bilu", "spec")
POSTGRES = ("postgresql", "postgres")
KINDS = ("sqlite", "memory", "postgresql", *DIALECTS)
_DIALECTS_FILES = ("taskboard.json", "board.json", "progress.yaml")


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
    scheme = kind_of(url or "") or scheme
    if colon and scheme == "memory":
        from dibs.stores.memory import MemoryStore

        return MemoryStore(clock)
    if colon and scheme in POSTGRES:
        return _open_postgres(url or "", create, clock)
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
                _refuse_strangers(here)
                raise NoBoard(f"there is no board in {here} or above it", hint=_ways_out(here), path=path)
        elif stranger(os.path.dirname(path), here) is not None:
            _refuse_strangers(here)
        if _leads_out(path):
            raise _led_out(path)
    elif colon and scheme in DIALECTS:
        return _open_dialect(scheme, _folder_path(rest), create, durability, clock, agent)
    elif colon and scheme == "sqlite":
        path = _file_path(rest)
    else:
        if colon or "=" in url:
            refuse_unknown_kind(url)
        path = _file_path(url)
        found = _pointed_at(_folder_path(url), path)
        if found is not None:
            return _open_dialect(*found, create, durability, clock, agent)
    from dibs.stores.sqlite.store import SqliteStore

    store = SqliteStore(path, create=create, durability=durability, clock=clock, place=place_of(path))
    if create:
        keep_out_of_git(store.url)
    return store


def _open_postgres(url: str, create: bool, clock: Clock | None) -> Store:
    try:
        from dibs.stores.postgres.store import open_postgres
    except ImportError as error:
        if (error.name or "psycopg").partition(".")[0] != "psycopg":  # without a name: there is no libpq for it
            raise
        raise Unsupported(
            "a PostgreSQL board needs the driver psycopg, which is not installed here",
            hint=f"install it for the Python that runs dibs: {_install_driver()}",
        ) from error
    return open_postgres(url, create=create, clock=clock)


def _install_driver() -> str:
    import sys

    package = "'psycopg[binary]>=3.3'"
    if "pipx" in sys.prefix.replace("\\", "/").split("/"):
        return f"pipx inject dibs {package}"
    from shlex import quote

    return f"{quote(sys.executable or 'python')} -m pip install {package}"


def _open_dialect(
    scheme: str, folder: str, create: bool, durability: str, clock: Clock | None, agent: str | None
) -> Store:
    from dibs.dialects.opening import open_dialect

    return open_dialect(scheme, folder, create=create, durability=durability, clock=clock, agent=agent)


def kind_of(url: str) -> str | None:
    """The scheme of an address, if it is one that we know. That of a URL may be written in any case."""
    scheme, colon, _ = url.partition(":")
    if colon and scheme not in KINDS and scheme.strip().lower() in POSTGRES:
        return "postgresql"
    return scheme if colon and scheme in KINDS else None


def refuse_unknown_kind(url: str) -> None:
    """`taskbord:state` is a mistake; `C:/board.db` is a path, and so is whatever is there already."""
    scheme, _, rest = url.partition(":")
    word = scheme.replace("-", "").replace("+", "").replace("_", "")
    shown = masked(url)
    is_path = len(scheme) < 2 or not word.isascii() or not word.isalnum()
    if (is_path and "://" not in url and shown == url) or os.path.lexists(_folder_path(url)):
        return
    from difflib import get_close_matches

    if rest.startswith("//") or shown != url:
        # No file is meant, and to make one would write a password into its name.
        close = get_close_matches(scheme.lower(), KINDS, 1)
        place = shown.partition("://")[2] if "://" in shown else shown.lstrip("/")
        meant = close[0] if close and close[0] not in DIALECTS else "postgresql" if "@" in shown else ""
        guess = f"did you mean {meant}://{place}? " if meant else ""
        raise Invalid(
            f"there is no kind of board called {scheme:.40}" if "://" in url else "that is not the address of a board",
            hint=f"{guess}kinds: {', '.join(KINDS)}; "
            "one in a PostgreSQL database: postgresql://USER@HOST/DATABASE?board=NAME",
        )
    meant_kind = get_close_matches(scheme.lower(), KINDS, 1)
    guess = f"did you mean {meant_kind[0]}:{rest}? " if meant_kind else ""
    raise Invalid(
        f"there is no kind of board called {scheme:.40}",
        hint=f"{guess}kinds: {', '.join(KINDS)}; a file of that name: sqlite:{url}",
    )


def masked(url: str) -> str:
    """An address, or what was meant to be one, without what may be a password: all between the colon behind a user's
    name and the last `@`, and the values of `password=` and its like. Paths are left as they are."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        scheme, rest = "", url
        if kind_of(url) not in (None, *POSTGRES) or (url[:1] in ("/", ".", "~") and url[:2] != "//"):
            return url
        if url[1:2] == ":" and url[2:3] in ("/", "\\"):
            return url  # a drive's letter
    place, at, after = rest.rpartition("@")
    user, colon, _ = place.partition(":")
    shown = f"{scheme}{slashes}{user}:…@{after}" if at and colon else url
    if slashes and not at:
        hosts = rest.partition("?")[0].partition("/")[0]
        name, colon, _ = hosts.partition(":")
        ports = [part.partition(":")[2] for part in hosts.split(",")]
        if colon and "[" not in hosts and not all(each.isdigit() for each in ports if each):
            shown = f"{scheme}{slashes}{name}:…{rest[len(hosts) :]}"
    for key in ("password", "secret"):
        shown = _without(shown, key)
    return shown


def _without(text: str, key: str) -> str:
    """`text` without the values of parameters whose name ends so."""
    shown, lower, start = "", text.lower(), 0
    while (found := lower.find(f"{key}=", start)) >= 0:
        value = found + len(key) + 1
        stop = "'" if text[value : value + 1] == "'" else "& "
        end = next((i for i in range(value + (stop == "'"), len(text)) if text[i] in stop), len(text))
        if text[value : value + 1] == "…":
            end = value + 1  # has been done already
        shown += text[start:value] + "…"
        start = end
    return shown + text[start:]


def masked_in(text: str) -> str:
    """A text in which addresses may stand: what has a `://` and an `@` in one word is shown `masked`."""
    if "://" not in text:
        return text
    return " ".join(masked(word) if "://" in word else word for word in text.split(" "))


def _pointed_at(given: str, path: str) -> tuple[str, str] | None:
    """The dialect's board that a path without a scheme means by its name, if it is not a SQLite board's (`path`)."""
    if path == given:
        if os.path.basename(path) not in _DIALECTS_FILES:
            return None
    elif os.path.exists(path):
        return None  # a folder with a SQLite board in it
    from dibs.dialects.discover import named

    return named(given)


def _ways_out(here: str) -> str:
    """What to do where no board was found."""
    from dibs.dialects.discover import below

    here = os.path.realpath(here)
    found = [(scheme, folder) for scheme, folder in below(here, 300) if folder.startswith(os.path.join(here, ""))]
    if not found:
        return "make one with: dibs init; if it is somewhere else, say where: export DIBS_BOARD=URL"
    from shlex import quote

    scheme, folder = found[0]
    url = quote(f"{scheme}:{os.path.relpath(folder, here)}")
    there = "there is one below" if len(found) == 1 else f"there are {len(found)} below, the first of them"
    return f"{there}: dibs --board {url} list; or make one here: dibs init"


def _refuse_strangers(here: str) -> None:
    """Say so where the search has ended at a board that belongs to somebody else."""
    from dibs.dialects.discover import nearest

    own = _nearest(here)
    if own is not None and stranger(os.path.dirname(own), here) is None and _leads_out(own):
        raise _led_out(own)
    found = ("sqlite", own) if own is not None else nearest(here)
    folder = "" if found is None else os.path.dirname(found[1]) if own is not None else found[1]
    if found is None or (owner := stranger(folder, here)) is None:
        return
    from shlex import quote

    raise NoBoard(
        f"the nearest board, {found[0]}:{found[1]}, is in a folder that belongs to another user (uid {owner}) or that "
        "anybody may write to; it was not opened",
        hint=f"if you trust it, name it: export DIBS_BOARD={quote(f'{found[0]}:{found[1]}')}; or make your own in a "
        "folder of yours: dibs init",
        path=found[1],
    )


def _leads_out(path: str) -> bool:
    """Is the board's file or its folder a link out of the repository? Whoever committed that does not choose where the
    user's commands write."""
    folder = os.path.dirname(path)
    return any(leads_out(part, os.path.dirname(folder)) for part in (folder, path))


def _led_out(path: str) -> NoBoard:
    from shlex import quote

    real = os.path.realpath(path)
    return NoBoard(
        f"the nearest board, {path}, is a link that leads out of the repository, to {real}; it was not opened",
        hint=f"if you trust it, name it: export DIBS_BOARD={quote(f'sqlite:{real}')}; otherwise put a folder of your "
        "own in its place",
        path=path,
    )


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
    """The board that belongs to a directory, if there is one and it is no stranger's."""
    path = _nearest(start)
    is_foreign = path is not None and (stranger(os.path.dirname(path), start) is not None or _leads_out(path))
    return None if is_foreign else path


def _nearest(start: str) -> str | None:
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


def keep_out_of_git(url: str) -> None:
    """A board is state, not source: its folder ignores itself, and nothing outside it is touched."""
    folder = os.path.dirname(url.removeprefix("sqlite:"))
    if url.startswith("sqlite:") and os.path.basename(folder) == ".dibs":
        try:
            with open(os.path.join(folder, ".gitignore"), "x", encoding="ascii") as file:
                file.write("*\n")
        except OSError:
            pass  # there already, or not allowed: git will show the folder, and no more
