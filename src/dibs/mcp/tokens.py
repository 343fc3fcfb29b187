"""Bearer tokens: who may call `dibs mcp --http`, and which worker a caller is.

    new_token(path, "builder-1")      the token, which is kept nowhere else, and whether it replaced another one
    drop_token(path, "builder-1")     forget it
    Tokens(path).worker_of(token)     the server, at every request: the worker's name, or None

The file `mcp-tokens.json` holds `{"builder-1": {"sha256": …, "made": …}}`: a token is 256 random bits, so its plain
hash gives nothing away. Writers take turns behind a lock on `mcp-tokens.json-lock` and put a whole new file in the
place of the old one; a crash leaves one or the other. A server looks at the file's time and size at every request, so
tokens come and go without a restart. A file that is damaged, is a link, or that others could write or replace, lets
nobody in and is left alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
import stat
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dibs import fs, limits
from dibs.errors import DibsError, Invalid, NotFound
from dibs.jsontext import dumps, loads
from dibs.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.stores.base import Store

FILE = "mcp-tokens.json"
FILE_BYTES = 1 << 20
TOKEN_BYTES = 32


class TokensUnusable(DibsError, OSError):
    """The list of tokens cannot be read, or not be trusted. It was left alone."""

    code = "tokens_unusable"


class Tokens:
    """The list of tokens as a server sees it: always as the file is now. Safe to use from several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._hashes: dict[str, bytes] = {}

    def workers(self) -> list[str]:
        return sorted(self._now())

    def worker_of(self, token: str) -> str | None:
        """The worker with this token. Compares with every hash in constant time."""
        given = _hash(token)
        found = None
        for worker, known in self._now().items():
            if hmac.compare_digest(given, known):
                found = worker
        return found

    def _now(self) -> dict[str, bytes]:
        with self._lock:
            stamp = fs.stamp(self.path)
            if stamp is None or stamp != self._stamp:
                # The stamp first: a file that changes meanwhile is read again at the next request.
                self._stamp, self._hashes = None, {}
                self._hashes = {worker: bytes.fromhex(entry["sha256"]) for worker, entry in read(self.path).items()}
                self._stamp = stamp
            return self._hashes


def new_token(path: str, worker: str) -> tuple[str, bool]:
    """A new token for a worker, and whether there was one before, which is no good from now on."""
    limits.new_name(worker)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with _changing(path) as entries:
        replaced = worker in entries
        entries[worker] = {"sha256": _hash(token).hex(), "made": iso(time.time())}
    return token, replaced


def drop_token(path: str, worker: str) -> None:
    with _changing(path) as entries:
        if worker not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise NotFound(f"{worker} has no token in {path}", hint=f"workers with tokens: {known}", worker=worker)
        del entries[worker]


def read(path: str) -> dict[str, dict[str, Any]]:
    """The entries of the file, checked; none if there is no such file."""
    try:
        _check(path)
        data = fs.read_marker(path, FILE_BYTES + 1)
    except TokensUnusable:
        raise
    except OSError as error:
        raise TokensUnusable(f"cannot read the tokens in {path}: {error.strerror or error}", path=path) from error
    if data is None:
        return {}
    try:
        if len(data) > FILE_BYTES:
            raise ValueError("it is too large")
        entries = loads(data.decode("utf-8"))
        if not isinstance(entries, dict):
            raise ValueError("it is not an object of workers")
        for worker, entry in entries.items():
            limits.name(worker)
            if not isinstance(entry, dict) or len(bytes.fromhex(entry["sha256"])) != hashlib.sha256().digest_size:
                raise ValueError(f"the entry of {worker} has no hash")
    except (ValueError, TypeError, KeyError) as error:
        raise TokensUnusable(
            f"{path} is not a list of tokens ({str(error)[:200]}); it was left alone",
            hint="look at it, or begin another list: dibs mcp --tokens FILE --new-token WORKER",
            path=path,
        ) from None
    return entries


def _check(path: str) -> None:
    """Refuse a list that another user could have written, or could put in its place. Windows has no such modes."""
    if os.name != "posix":
        return
    folder = os.path.dirname(path)
    for place, what in ((folder, f"the folder {folder}"), (path, path)):
        try:
            found = os.stat(place) if place is folder else os.lstat(place)
        except FileNotFoundError:
            continue
        fault, hint = None, ""
        if stat.S_ISLNK(found.st_mode):
            fault = f"{what} is a link"
        elif found.st_uid not in (os.geteuid(), 0):
            fault = f"{what} belongs to another user, who could let anybody in"
        elif _others_may_write(found, place is folder):
            fault = f"others may write to {what}, and could let themselves in"
            hint = f"chmod {'go-w' if place is folder else '600'} {shlex.quote(place)}; or "
        if fault is not None:
            hint += "keep the tokens in a folder of your own: dibs mcp --tokens FILE, for --new-token and for --http"
            raise TokensUnusable(fault, hint=hint, path=path)


def _others_may_write(found: os.stat_result, is_folder: bool) -> bool:
    if is_folder and found.st_mode & stat.S_ISVTX:
        return False  # as in /tmp: only its owner can rename or remove a file
    if is_folder and found.st_mode & stat.S_IWGRP and _is_own_group(found.st_gid):
        return bool(found.st_mode & stat.S_IWOTH)  # made under umask 002, the default of some systems
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _is_own_group(gid: int) -> bool:
    """Is it the group that this user has alone?"""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@contextmanager
def _changing(path: str) -> Iterator[dict[str, dict[str, Any]]]:
    """The entries, to be changed by one process at a time; written when the block ends well."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise TokensUnusable(f"cannot make the folder of {path}: {error.strerror or error}", path=path) from error
    # The file must not be open to others even for the moment before a chmod.
    umask = os.umask(0o077)
    try:
        lock = fs.open_lock_file(f"{path}-lock")
        try:
            fs.lock(lock)
            entries = read(path)
            yield entries
            fs.replace_file(path, (dumps(entries) + "\n").encode(), follow=False)
        finally:
            os.close(lock)
    except DibsError:
        raise
    except OSError as error:
        raise TokensUnusable(f"cannot write the tokens in {path}: {error.strerror or error}", path=path) from error
    finally:
        os.umask(umask)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def place(store: Store, given: str | None) -> str:
    """Where the tokens of a board are: as given, else beside the board."""
    if given is not None:
        return os.path.abspath(os.path.expanduser(given))
    companion = getattr(store, "companion", None)
    if companion is not None:
        return os.path.abspath(os.path.join(companion.folder, FILE))
    path = getattr(store, "path", None)
    if path is None:
        raise Invalid("this board has no folder to keep tokens in", hint="say where: --tokens FILE")
    return os.path.join(os.path.dirname(path), FILE)
