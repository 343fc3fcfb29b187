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

CLIENTS = ("claude", "codex", "gemini", "cursor", "vscode")

DEEPEST = 40
"""So many processes above us are looked at."""
_RUNNERS = ("uv", "uvx", "pipx", "npx", "env", "timeout", "nice", "stdbuf")
_SHELLS = ("sh", "bash", "dash", "zsh", "fish", "ksh", "busybox")
_INITS = ("init", "systemd", "tini", "dumb-init", "docker-init", "catatonit", "launchd", "sleep", "tail")


def worker_name(client: str, session: str) -> str:
    """A name that tells two sessions of one client apart and is short enough to say: `claude-7f3a`."""
    from binascii import crc32

    return f"{client}-{crc32(session.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"


# -- the server's side


def register(worker: Worker, client: str, board: str, root: str | None) -> str | None:
    """Note that this process serves the client above it; where the note is, or None if it cannot be made."""
    above = _client_process()
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


def _client_process() -> tuple[int, str] | None:
    """The process that started this one, past runners such as `uv run` and `sh -c`."""
    for pid, started in _above(os.getpid()):
        program, first = _command(pid)
        if pid == 1 and program in (*_INITS, *_SHELLS):
            return None  # whoever started us is gone, and everything is below the first process
        if program not in _RUNNERS and not (program in _SHELLS and first == "-c"):
            return pid, started
    return None


def _command(pid: int) -> tuple[str, str]:
    """The program that a process runs, and its first argument."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            program, first, *_ = [*os.fsdecode(file.read(4096)).split("\0"), "", ""]
    except OSError:
        return "", ""
    return os.path.basename(program).lstrip("-"), first


def _sweep(folder: str) -> None:
    """Remove the notes of servers that are gone, provably: a home folder may be that of several machines."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        note = _parse(path)
        if note is not None and is_dead(note[0]):
            withdraw(path)


# -- the side of hooks and commands


def around(board: str | None = None) -> Worker | None:
    """The worker whose client this process runs below: the nearest one, that of this board if there are several."""
    notes = _notes()
    if not notes:
        return None
    for pid, started in _above(os.getpid()):
        stem = f"{pid}-{started}."
        found = [note for path in notes if os.path.basename(path).startswith(stem) and (note := _read(path))]
        if found:
            return next((worker for worker, _, url, _ in found if url == board), found[0][0])
    return None


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


def _read(path: str) -> tuple[Worker, str, str, str | None] | None:
    """A note that counts: whole, and its server is alive."""
    note = _parse(path)
    return note if note is not None and is_alive(note[0]) else None


def _parse(path: str) -> tuple[Worker, str, str, str | None] | None:
    from dibs.jsontext import loads

    try:
        with open(path, encoding="ascii") as file:
            fields = loads(file.read(65536))
        return Worker(**fields["worker"]), str(fields["client"]), str(fields["board"]), fields["root"]
    except (OSError, ValueError, TypeError, KeyError):
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
    if home:
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
