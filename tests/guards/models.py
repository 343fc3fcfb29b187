"""The guards' protocols as models: one move for each system call of `dibs.guards` that others can see.

A process is a tuple (where it is, what it remembers …); `where` is named after the next call. All processes run the
same program, so states that differ only in who is who are one state. Directories, files, locks and links have numbers;
only which are equal matters, so they are renumbered in every state, which keeps the models finite.

A crash ends a process at any step; a new one takes its place at the beginning. `crashes` bounds how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from tests.guards.search import Move

P = TypeVar("P", bound="tuple[Any, ...]")


class Ids:
    """Numbers in the order in which a state names them."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def __call__(self, number: int | None) -> int | None:
        return None if number is None else self._known.setdefault(number, len(self._known))


def fresh(*used: int | None) -> int:
    """A number that nothing in the state has."""
    return max((number for number in used if number is not None), default=-1) + 1


def replaced(processes: tuple[P, ...], index: int, process: P) -> tuple[P, ...]:
    return (*processes[:index], process, *processes[index + 1 :])


def by_place(processes: tuple[P, ...]) -> list[P]:
    return sorted(processes, key=lambda process: tuple(-1 if field is None else field for field in process[1:]))


# -- FlockGuard: open, flock, stat, …, unlink (of a temporary file), unlock and close


class Locker(NamedTuple):
    where: str = "open"
    fd: int | None = None
    locked: bool = False


class FlockState(NamedTuple):
    path: int | None
    crashes: int
    processes: tuple[Locker, ...]


class FlockModel:
    def __init__(self, processes: int = 3, crashes: int = 3, *, temporary: bool = True, checks: bool = True) -> None:
        self.size, self.crashes, self.temporary, self.checks = processes, crashes, temporary, checks

    def start(self) -> FlockState:
        return FlockState(None, self.crashes, (Locker(),) * self.size)

    def holders(self, state: Any) -> int:
        return sum(p.where == "held" for p in state.processes)

    def moves(self, state: Any) -> Iterator[Move]:
        for index, p in enumerate(state.processes):
            if state.crashes:
                # The kernel closes the file, and with it ends the lock.
                after = replaced(state.processes, index, Locker())
                yield self._move(
                    f"{index} dies", state._replace(crashes=state.crashes - 1, processes=after), crash=True
                )
            for label, path, after_p in self._steps(state, p):
                after = replaced(state.processes, index, after_p)
                acquires = after_p.where == "held" != p.where
                yield self._move(f"{index} {label}", state._replace(path=path, processes=after), acquires=acquires)

    def _steps(self, state: FlockState, p: Locker) -> Iterator[tuple[str, int | None, Locker]]:
        path = state.path
        if p.where == "open":
            fd = path if path is not None else fresh(*(q.fd for q in state.processes))
            yield f"opens {fd}", fd, Locker("flock", fd)
        elif p.where == "flock":
            if not any(q.locked and q.fd == p.fd for q in state.processes):
                yield f"locks {p.fd}", path, Locker("stat" if self.checks else "held", p.fd, True)
        elif p.where == "stat":
            named = path == p.fd
            yield (
                ("finds its file named" if named else "finds another"),
                path,
                Locker("held", p.fd, True) if named else Locker(),
            )
        elif p.where == "held":
            yield "has done its work", path, Locker("unlink" if self.temporary else "close", p.fd, True)
        elif p.where == "unlink":
            yield "unlinks", None if path == p.fd else path, Locker("close", p.fd, True)
        elif p.where == "close":
            yield "closes", path, Locker()

    def _move(self, label: str, state: FlockState, *, acquires: bool = False, crash: bool = False) -> Move:
        ids = Ids()
        ids(state.path)
        ordered = sorted(by_place(state.processes), key=lambda p: p.where)
        same = tuple(sorted((p._replace(fd=ids(p.fd)) for p in ordered), key=repr))
        return Move(label, FlockState(ids(state.path), state.crashes, same), acquires, crash)


# -- LockFileGuard


class Filer(NamedTuple):
    where: str = "link"
    mine: int | None = None
    """The marker that we made, until it is known to be gone."""
    judged: int | None = None
    moved: int | None = None
    second: bool = False


class FileState(NamedTuple):
    marker: int | None
    stale: bool
    crashes: int
    processes: tuple[Filer, ...]


SAFE, UNLINK, RENAME = "under a second lock", "unlink+create", "rename, verify, put back"


class LockFileModel:
    """`slow`: a holder may also sleep until its lock is stale. `breaking`: how a stale lock is broken."""

    def __init__(self, processes: int = 3, crashes: int = 3, *, breaking: str = SAFE, slow: bool = False) -> None:
        self.size, self.crashes, self.breaking, self.slow = processes, crashes, breaking, slow

    def start(self) -> FileState:
        return FileState(None, False, self.crashes, (Filer(),) * self.size)

    def holders(self, state: Any) -> int:
        return sum(p.where == "held" for p in state.processes)

    def moves(self, state: Any) -> Iterator[Move]:
        alive = {p.mine for p in state.processes}
        if state.marker is not None and not state.stale and (self.slow or state.marker not in alive):
            yield self._move("time passes", state._replace(stale=True))
        for index, p in enumerate(state.processes):
            if state.crashes:
                after = replaced(state.processes, index, Filer())  # the kernel ends the second lock
                yield self._move(
                    f"{index} dies", state._replace(crashes=state.crashes - 1, processes=after), crash=True
                )
            for label, marker, stale, after_p in self._steps(state, p):
                after = replaced(state.processes, index, after_p)
                acquires = after_p.where == "held" != p.where
                changed = state._replace(marker=marker, stale=stale, processes=after)
                yield self._move(f"{index} {label}", changed, acquires=acquires)

    def _steps(self, state: FileState, p: Filer) -> Iterator[tuple[str, int | None, bool, Filer]]:
        marker, stale = state.marker, state.stale
        free = not any(q.second for q in state.processes)
        if p.where == "link":  # of a draft with the content, so a marker is never seen without it
            if marker is None:
                used = (n for q in state.processes for n in (q.mine, q.judged, q.moved))
                new = fresh(*used)
                yield "links its marker", new, False, Filer("held", new)
            else:
                yield "finds a marker", marker, stale, p._replace(where="read")
        elif p.where == "read":
            if marker is None or not stale:
                yield "finds it recent, or gone", marker, stale, Filer()
            elif self.breaking == UNLINK:
                yield "finds it stale", marker, stale, Filer("unlink-stale")
            else:
                where = "flock" if self.breaking == SAFE else "rename"
                yield "finds it stale", marker, stale, Filer(where, judged=marker)
        elif p.where == "unlink-stale":
            yield "unlinks what is there", None, False, Filer()
        elif p.where == "flock":
            if free:
                yield "takes the second lock", marker, stale, p._replace(where="read-again", second=True)
        elif p.where == "read-again":
            same = marker == p.judged and stale
            yield "reads again", marker, stale, p._replace(where="rename" if same else "unlock")
        elif p.where == "rename":
            if marker is None:
                yield "finds nothing to rename", marker, stale, p._replace(where="unlock")
            else:
                yield "renames it away", None, False, p._replace(where="verify", moved=marker)
        elif p.where == "verify":
            if p.moved != p.judged and marker is None:
                yield "puts back what was another's", p.moved, False, p._replace(where="unlock", moved=None)
            else:
                yield "looks at what it moved", marker, stale, p._replace(where="unlock", moved=None)
        elif p.where == "unlock":
            yield "ends the second lock", marker, stale, Filer()
        elif p.where == "held":
            yield "has done its work", marker, stale, p._replace(where="release-flock")
        elif p.where == "release-flock":
            if free:
                yield "takes the second lock", marker, stale, p._replace(where="release-read", second=True)
        elif p.where == "release-read":
            where = "release-unlink" if marker == p.mine else "unlock"
            yield "looks whether it is its own", marker, stale, p._replace(where=where)
        elif p.where == "release-unlink":
            yield "unlinks its own", None, False, p._replace(where="unlock", mine=None)

    def _move(self, label: str, state: FileState, *, acquires: bool = False, crash: bool = False) -> Move:
        ids = Ids()
        marker = ids(state.marker)
        ordered = sorted(by_place(state.processes), key=lambda p: p.where)
        renamed = (p._replace(mine=ids(p.mine), judged=ids(p.judged), moved=ids(p.moved)) for p in ordered)
        return Move(
            label, FileState(marker, state.stale, state.crashes, tuple(sorted(renamed, key=repr))), acquires, crash
        )


# -- LockDirGuard, and the shell functions, which make the same calls


class Folder(NamedTuple):
    owner: int | None
    """The process's number; None while there is no pid in it."""
    links: tuple[int, ...] = ()
    there: bool = True
    """Not removed from the disk yet, under whatever name."""


GONE = Folder(None, (), False)


class Maker(NamedTuple):
    where: str = "make"
    pid: int = 0
    holds: int | None = None
    fd: int | None = None
    number: int = 0
    moved: int | None = None


class DirState(NamedTuple):
    path: int | None
    folders: tuple[Folder, ...]
    crashes: int
    processes: tuple[Maker, ...]


class LockDirModel:
    """`whole`: the directory appears with its pid, by rename; else `mkdir` and then the file."""

    def __init__(
        self, processes: int = 3, crashes: int = 2, *, breaking: str = SAFE, whole: bool = True, stale: bool = False
    ) -> None:
        self.size, self.crashes, self.breaking, self.whole, self.stale = processes, crashes, breaking, whole, stale

    def start(self) -> DirState:
        processes = tuple(Maker(pid=number) for number in range(self.size))
        if self.stale:
            return DirState(0, (Folder(self.size),), self.crashes, processes)
        return DirState(None, (), self.crashes, processes)

    def holders(self, state: Any) -> int:
        return sum(p.where == "held" for p in state.processes)

    def moves(self, state: Any) -> Iterator[Move]:
        for index, p in enumerate(state.processes):
            if state.crashes:
                used = [q.pid for q in state.processes]
                used += [n for f in state.folders for n in (f.owner, *f.links) if n is not None]
                after = replaced(state.processes, index, Maker(pid=fresh(*used)))
                yield self._move(
                    f"{index} dies", state._replace(crashes=state.crashes - 1, processes=after), crash=True
                )
            for label, changed, after_p in self._steps(state, p):
                after = replaced(state.processes, index, after_p)
                acquires = after_p.where == "held" != p.where
                yield self._move(f"{index} {label}", changed._replace(processes=after), acquires=acquires)

    def _steps(self, state: DirState, p: Maker) -> Iterator[tuple[str, DirState, Maker]]:
        alive = {q.pid for q in state.processes}
        path, folders = state.path, state.folders
        again = Maker(pid=p.pid)
        here = folders[p.fd] if p.fd is not None else GONE

        def put(fd: int | None, folder: Folder) -> DirState:
            assert fd is not None
            return state._replace(folders=(*folders[:fd], folder, *folders[fd + 1 :]))

        if p.where == "make":
            new = len(folders)
            if path is not None:
                yield "finds a directory", state, p._replace(where="open")
            elif self.whole:
                made = state._replace(path=new, folders=(*folders, Folder(p.pid)))
                yield "renames its directory to the path", made, Maker("held", p.pid, holds=new)
            else:
                made = state._replace(path=new, folders=(*folders, Folder(None)))
                yield "makes the directory", made, Maker("fill", p.pid, holds=new)
        elif p.where == "fill":
            filled = folders[p.holds or 0]._replace(owner=p.pid)
            yield "writes its pid", put(p.holds, filled), p._replace(where="held")
        elif p.where == "open":
            yield "opens it", state, again if path is None else p._replace(where="read-pid", fd=path)
        elif p.where == "read-pid":
            dead = here.owner is not None and here.owner not in alive
            where = {SAFE: "read-links", UNLINK: "remove-path", RENAME: "rename"}[self.breaking]
            yield ("reads a dead pid" if dead else "waits"), state, p._replace(where=where) if dead else again
        elif p.where == "remove-path":
            yield "removes what is there", state._replace(path=None), again
        elif p.where == "read-links":
            busy = any(link in alive for link in here.links)
            after = again if busy else p._replace(where="symlink", number=len(here.links))
            yield ("finds a living breaker" if busy else "finds no living breaker"), state, after
        elif p.where == "symlink":
            if not here.there or len(here.links) > p.number:
                yield "is too late for the link", state, again
            else:
                yield "makes the link", put(p.fd, here._replace(links=(*here.links, p.pid))), p._replace(where="look")
        elif p.where == "look":
            yield "looks through the path", state, p._replace(where="rename") if path == p.fd else again
        elif p.where == "rename":
            if path is None:
                yield "finds nothing to rename", state, again
            else:
                yield "renames it away", state._replace(path=None), p._replace(where="verify", moved=path)
        elif p.where == "verify":
            if p.moved != p.fd:
                back = state._replace(path=p.moved) if path is None else state
                yield "puts back what was another's", back, again
            else:
                yield "sees that it moved the dead one", state, p._replace(where="empty")
        elif p.where == "empty":
            yield "removes the files", put(p.moved, Folder(None)), p._replace(where="rmdir")
        elif p.where == "rmdir":
            left = folders[p.moved or 0].links
            yield "removes the directory", put(p.moved, Folder(None, left) if left else GONE), again
        elif p.where == "held":
            yield "has done its work", state, p._replace(where="release-look")
        elif p.where == "release-look":
            own = path == p.holds
            yield "looks whether it is its own", state, p._replace(where="release-rename") if own else again
        elif p.where == "release-rename":
            yield "renames what is there away", state._replace(path=None), p._replace(where="empty", moved=path)

    def _move(self, label: str, state: DirState, *, acquires: bool = False, crash: bool = False) -> Move:
        shape: Callable[[Maker], str] = lambda p: repr(p._replace(pid=0, holds=None, fd=None, moved=None))  # noqa: E731
        ordered = sorted(by_place(state.processes), key=shape)
        ids, pids = Ids(), Ids()
        path = ids(state.path)
        renamed = [
            p._replace(pid=pids(p.pid) or 0, holds=ids(p.holds), fd=ids(p.fd), moved=ids(p.moved)) for p in ordered
        ]
        living = len(renamed)

        def pid(number: int | None) -> int | None:
            # All dead are alike: nobody asks which of them it was.
            if number is None:
                return None
            return next((new for new in range(living) if pids(number) == new), living)

        kept: dict[int, Folder] = {}
        for old, folder in enumerate(state.folders):
            new = ids._known.get(old)
            if new is not None:  # named by the path or open somewhere; all others are litter
                kept[new] = Folder(pid(folder.owner), tuple(pid(n) or 0 for n in folder.links), folder.there)
        folders = tuple(kept[number] for number in range(len(kept)))
        return Move(label, DirState(path, folders, state.crashes, tuple(renamed)), acquires, crash)
