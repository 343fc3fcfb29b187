"""Which coding client are we in? A client's MCP server notes whom it serves; the client's hooks and shells find it.

A coding client (Claude Code, Codex, Gemini, Cursor) starts one `dibs mcp`, then a `dibs hook` before every edit, and
shells in which its agent may run `dibs`. All of them act for one worker, and all that they have in common is the
client's process above them: session ids change when a conversation is cleared, and not every client hands them on.

    note = register(worker, "claude", board.url, root)     the server, when it starts
    around(board_url)                                      a hook or a command: the worker of the client around us
    beside("cursor", roots, board_url)                     … of a client whose hooks do not run below the same process
    withdraw(note)                                         the server, when it ends

A note is a small file `CLIENT_PID-START.SERVER_PID` in a folder that only this user can write. A crash leaves the note;
it counts only while its server's process is alive, and the next server to start sweeps it away. Losing a note loses no
claim: the hook then takes itself for another worker, and denies too much rather than too little.
"""

from __future__ import annotations

import os

from dibs.model import Worker
from dibs.worker import is_alive, is_dead, process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Note = tuple[Worker, str, str, str | None]  # whom it serves, the client, the board, the worktree's root

CLIENTS = ("claude", "codex", "gemini", "cursor", "vscode")

DEEPEST = 40
"""So many processes above us are looked at."""
_RUNNERS = ("uv", "uvx", "pipx", "npx", "env", "timeout", "nice", "stdbuf", "nohup", "setsid", "strace", "time")
_SHELLS = ("sh", "bash", "dash", "zsh", "fish", "ksh", "busybox")
_INITS = ("init", "systemd", "tini", "dumb-init", "docker-init", "catatonit", "launchd", "sleep", "tail")


def worker_name(client: str, session: str) -> str:
    """A name that tells two sessions of one client apart and is short enough to say: `claude-7f3a`."""
    from binascii import crc32

    return f"{client}-{crc32(session.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"


# -- the server's side


def register(worker: Worker, client: str, board: str, root: str | None) -> str | None:
    """Note that this process serves the client above it; where the note is, or None if it cannot be made."""
    above = client_process()
    if above is None:
        return None
    from dibs.jsontext import dumps

    text = dumps({"worker": worker.as_dict(), "client": client, "board": board, "root": root})
    for folder in _places():
        path = os.path.join(folder, f"{above[0]}-{above[1]}.{os.getpid()}")
        draft = f"{path}.new"
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            if not _is_private(folder):
                continue
            _sweep(folder)
            with open(draft, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(draft, path)
        except OSError:
            continue
        return path
    return None


def withdraw(note: str | None) -> None:
    if note is not None:
        try:
            os.unlink(note)
        except OSError:
            pass


def client_process() -> tuple[int, str] | None:
    """The process that started this one, past runners such as `uv run` and `sh -c`."""
    for pid, started in _above(os.getpid()):
        program, words = _command(pid)
        if program in _INITS or (pid == 1 and program in _SHELLS):
            return None  # whoever started us is gone, and everything is below the one that adopted us
        if program not in _RUNNERS and not (program in _SHELLS and _runs_something(words)):
            return pid, started
    return None


def _runs_something(words: Sequence[str]) -> bool:
    """Was a shell started to run a command (`-c`, `-lc`) or a script, rather than for somebody to type in?"""
    for word in words:
        if not word.startswith("-"):
            return True
        if not word.startswith("--") and "c" in word:
            return True
    return False


def _command(pid: int) -> tuple[str, list[str]]:
    """The program that a process runs, and its arguments."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            program, *words = os.fsdecode(file.read(4096)).rstrip("\0").split("\0")
    except OSError:
        return "", []
    return os.path.basename(program).lstrip("-"), words


def _sweep(folder: str) -> None:
    """Remove the notes of servers that are gone, provably: a home folder may be that of several machines."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        note = _parse(path)
        if note is not None and is_dead(note[0]):
            withdraw(path)


# -- the side of hooks and commands


def around(board: str | None = None) -> Worker | None:
    """The worker whose client this process runs below: the nearest one, that of this board if there are several.

    On another board than its server's it is the same worker, but nobody there would know of its end: only leases count.
    """
    found = _nearest(board)
    if found is None:
        return None
    worker, _, url, _ = found
    return worker if board in (None, url) else Worker(worker.name, worker.kind, worker.role, worker.session)


def board_around() -> str | None:
    """The board that the client around us works on."""
    found = _nearest(None)
    return None if found is None else found[2]


def _nearest(board: str | None) -> Note | None:
    """The note of the nearest client above us. Where it has several servers: that of the board, of our worktree."""
    notes = _notes()
    for pid, started in _above(os.getpid()) if notes else ():
        stem = f"{pid}-{started}."
        found = [note for path in notes if os.path.basename(path).startswith(stem) and (note := _read(path))]
        if len(found) > 1:
            found.sort(key=lambda note: (note[2] != board, not _is_inside(note[3])))
        if found:
            return found[0]
    return None


def _is_inside(root: str | None) -> bool:
    try:
        return root is not None and os.path.join(os.getcwd(), "").startswith(os.path.join(root, ""))
    except OSError:
        return False


def beside(client: str, roots: Sequence[str], board: str) -> Worker | None:
    """The one worker of such a client that is open on one of these folders; None if there are none or several."""
    wanted = {os.path.realpath(root) for root in roots}
    found = []
    for path in _notes():
        note = _read(path)
        if note and note[1] == client and note[2] == board and note[3] in wanted:
            found.append(note[0])
    return found[0] if len(found) == 1 else None


def _notes() -> list[str]:
    return [os.path.join(folder, name) for folder in _places() if _is_private(folder) for name in os.listdir(folder)]


def _read(path: str) -> Note | None:
    """A note that counts: whole, and its server is alive."""
    note = _parse(path)
    return note if note is not None and is_alive(note[0]) else None


def _parse(path: str) -> Note | None:
    from dibs.jsontext import loads

    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        try:
            fields = loads(os.read(fd, 65536).decode("ascii"))
        finally:
            os.close(fd)
        worker = Worker(**fields["worker"])
        given = (worker.name, worker.kind, worker.session, worker.host, worker.started, worker.boot)
        if not isinstance(worker.pid, int) or not 0 < worker.pid < 2**31 or not all(isinstance(x, str) for x in given):
            return None
        root = fields["root"]
        return worker, str(fields["client"]), str(fields["board"]), root if isinstance(root, str) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


# -- both


def _above(pid: int) -> Iterator[tuple[int, str]]:
    """The processes above one, nearest first, each with its start."""
    for _ in range(DEEPEST):
        parent = _parent(pid)
        started = process_start(parent) if parent else None
        if not parent or started is None:
            return
        yield parent, started
        pid = parent


def _parent(pid: int) -> int | None:
    if pid == os.getpid():
        return os.getppid()
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
        return int(line[line.rindex(b")") + 2 :].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return None
    try:
        import psutil  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        return int(psutil.Process(pid).ppid())
    except psutil.Error:
        return None


def _places() -> list[str]:
    """Where this user's notes may be, best first. A server writes into the first that it can have, and everybody looks
    into all of them: some clients keep XDG_RUNTIME_DIR and TMPDIR from their servers, and not from their hooks."""
    given = os.environ.get("DIBS_RUNTIME_DIR")
    if given:
        return [given]
    if os.name == "nt":
        top = os.environ.get("LOCALAPPDATA")
        return [os.path.join(top, "dibs", "clients")] if top else []
    runtime = dict.fromkeys((os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"))
    tops = [os.path.join(top, "dibs-clients") for top in runtime if top and os.path.isdir(top)]
    home = os.environ.get("HOME")
    if home and os.path.isabs(home):
        tops.append(os.path.join(home, ".local", "state", "dibs", "clients"))
    return [*tops, f"/tmp/dibs-clients-{os.getuid()}"]


def _is_private(folder: str) -> bool:
    """Is it a folder, no link, that nobody but this user can write?"""
    try:
        about = os.lstat(folder)
    except OSError:
        return False
    is_ours = os.name == "nt" or (about.st_uid == os.getuid() and not about.st_mode & 0o022)
    return is_ours and (about.st_mode & 0o170000) == 0o040000
