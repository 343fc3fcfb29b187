"""The trial: hold a path, try every client and the git guard at once, judge, and give the path back.

    prove(board, root)      a `Proof` for each of `NAMES`, in that order

`guarded`: what is set up works, and edits (or commits) of what others hold are denied. `advisory`: the client is
connected, but its edits are not, or not all, checked. `not set up`: nothing of dibs is in its files. `faults` are those
reasons that are a failure of something that is configured.
"""

from __future__ import annotations

import os

from dibs.errors import Busy, Invalid, Unsupported
from dibs.proving import committing, configured, events, hooking, serving
from dibs.proving.running import surroundings
from dibs.setup import commands
from dibs.setup.clients import CLIENTS
from dibs.worker import of_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from anyio import Semaphore

    from dibs.board import TaskBoard
    from dibs.model import Worker
    from dibs.proving.configured import Found, Server
    from dibs.proving.serving import Answers

    Told = Callable[[str], None]

NAMES = (*CLIENTS, "git")
GUARDED, ADVISORY, NOT_SET_UP = "guarded", "advisory", "not set up"
LEASE = 60.0
_NOTES = {
    "claude": "Claude Code starts the server only after you approved it (/mcp), which dibs cannot see",
    "codex": "Codex runs hooks only in a project that you trust, once you reviewed them (/hooks); dibs cannot see that",
    "cursor": "Cursor runs hooks only in a workspace that you trust, which dibs cannot see",
    "gemini": "where folder trust is on, Gemini CLI reads .gemini/ only in a trusted folder, which dibs cannot see",
    "vscode": "VS Code starts the server only after you trusted it, which dibs cannot see",
}


class Proof:
    """What the trial of one client showed."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.verdict = NOT_SET_UP
        self.faults: list[str] = []
        self.others: list[str] = []
        """Faults that setting up again would not mend; each says what would."""
        self.gaps: list[str] = []
        self.notes: list[str] = []
        self.next: str | None = None
        self.options: list[str] = []
        """Those of `dibs setup` that are in force."""
        self.mcp: dict[str, Any] = {"configured": False}
        self.hook: dict[str, Any] = {"configured": False}

    @property
    def reasons(self) -> list[str]:
        return [*self.faults, *self.others, *self.gaps]

    def as_dict(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "verdict": self.verdict,
            "reasons": self.reasons,
            "faults": [*self.faults, *self.others],
            "options": self.options,
            "mcp": self.mcp,
            "hook": self.hook,
            "notes": self.notes,
            "next": self.next,
        }


class Held:
    """The path that is held for the trial, by whom, and one that is free. `by` is None on a board without locks.

    `url` is the board's, `is_named` if it is found only because somebody named it."""

    def __init__(self, root: str, url: str, is_named: bool) -> None:
        self.url = url
        self.is_named = is_named
        self.others = _other_worktrees(root)
        self.mark = os.urandom(4).hex()
        self.root = root
        self.path = f"dibs-prove-{self.mark}/held.txt"
        self.free = f"dibs-prove-{self.mark}/free.txt"
        self.by: str | None = f"doctor-{self.mark}"
        self.session = f"client-{self.mark}"
        """Of the events; another than that of the holder, which would be the same worker."""


def prove(board: TaskBoard, root: str, tell: Told | None = None, is_named: bool = False) -> list[Proof]:
    """Try everything. `tell` is given the names of the clients that are still being tried, now and then."""
    held = Held(root, board.url, is_named)
    worker = of_process(f"doctor-{held.mark}", "agent", f"doctor-{held.mark}")
    proofs = [Proof(name) for name in NAMES]
    with _interruptible():
        try:
            _hold(board, held, worker)
            _try_all(proofs, held, lambda: _hold(board, held, worker), tell or (lambda _: None))
        finally:
            if held.by is not None:
                board.unlock(None, worker)
    return proofs


def _other_worktrees(root: str) -> list[str]:
    from dibs.radar import worktrees

    here = os.path.realpath(root)
    try:
        return [tree for tree in worktrees(here) if tree != here]
    except (Invalid, Unsupported):  # no repository, or no git
        return []


def _hold(board: TaskBoard, held: Held, worker: Worker) -> None:
    path = os.path.join(held.root, held.path)
    for lease in (LEASE, None):  # a board on which nothing expires takes no lease
        try:
            board.lock([path], worker, lease=lease)
            return
        except Unsupported:
            pass
        except Busy as error:
            if not error.conflicts:
                raise
            raise Busy(
                f"nothing could be tried, because a lock of somebody else covers everything: {error.message}",
                hint="see who holds what: dibs locks; then again: dibs doctor --prove",
            ) from None
    held.by = None


def _interruptible() -> Any:
    """While this lasts, a request to end is an interrupt, after which everything is given back."""
    from contextlib import contextmanager
    from signal import SIGINT, raise_signal, signal
    from signal import Signals as Numbers
    from threading import current_thread, main_thread

    numbers = [getattr(Numbers, name) for name in ("SIGTERM", "SIGHUP") if hasattr(Numbers, name)]

    @contextmanager
    def until_the_end() -> Iterator[None]:
        if current_thread() is not main_thread():
            yield
            return
        before = [(number, signal(number, lambda *_: raise_signal(SIGINT))) for number in numbers]
        try:
            yield
        finally:
            for number, handler in before:
                signal(number, handler)

    return until_the_end()


def _try_all(proofs: Sequence[Proof], held: Held, keep: Callable[[], None], tell: Told) -> None:
    from tempfile import TemporaryDirectory

    import anyio

    going = [proof.client for proof in proofs]

    async def one(proof: Proof, folder: str, turn: Semaphore) -> None:
        os.mkdir(folder, 0o700)
        await (_try_git(proof, held, folder) if proof.client == "git" else _try_client(proof, held, folder, turn))
        going.remove(proof.client)

    async def watch() -> None:
        due = anyio.current_time() + LEASE / 3
        while True:
            await anyio.sleep(0.25)
            tell(", ".join(going))
            if held.by is not None and anyio.current_time() > due:
                due += LEASE / 3
                keep()

    async def all_of(top: str) -> None:
        async with anyio.create_task_group() as watching:
            watching.start_soon(watch)
            await everyone(top)
            watching.cancel_scope.cancel()

    async def everyone(top: str) -> None:
        # A server takes a second of work to start; all at once on few cores, each would take much longer than it needs.
        turn = anyio.Semaphore(max(2, os.cpu_count() or 1))
        async with anyio.create_task_group() as group:
            for proof in proofs:
                group.start_soon(one, proof, os.path.join(top, proof.client), turn)

    with TemporaryDirectory(prefix="dibs-prove-", ignore_cleanup_errors=True) as top:
        anyio.run(all_of, top)


# -- a client


async def _try_client(proof: Proof, held: Held, folder: str, turn: Semaphore) -> None:
    import anyio

    found = configured.read(proof.client, held.root)
    proof.notes += found.remarks
    proof.others += [f"{path} {why}" for path, why in found.unreadable.items()]
    proof.faults += found.faults
    again = _again(found, held)
    if not found.is_set_up:
        proof.next = _mend(found.unreadable, held) or again
        proof.notes += _elsewhere(found, held)
        return
    proof.options = [*found.flags, *(["--skill"] if found.has_skill else [])]
    around = surroundings(folder)
    async with anyio.create_task_group() as group:
        group.start_soon(_try_server, proof, found, held, folder, around, turn)
        group.start_soon(hooking.try_hooks, proof, found, held, folder, around)
    proof.verdict = ADVISORY if proof.reasons else GUARDED
    if proof.faults or (not found.has_hooks and CLIENTS[proof.client].enforces):
        proof.next = again
    proof.next = _mend(found.unreadable, held) or proof.next
    if not found.has_server and CLIENTS[proof.client].mcp not in found.unreadable:
        proof.notes.append(f"no MCP server is set up: the agent has only the command dibs ({again})")
    proof.notes.append(_NOTES[proof.client])
    proof.notes += _elsewhere(found, held)


def _again(found: Found, held: Held, worktrees: bool = False) -> str:
    """The command that sets a client up as it is, for the board that was tried."""
    board = _board(found.board, held)
    return commands.again(found.client, board, found.flags, worktrees=worktrees, skill=found.has_skill)


def _board(configured: str | None, held: Held) -> str | None:
    """What to write down as the board: one that need not be named is found by its place."""
    return held.url if held.is_named or configured == held.url else None


def _mend(unreadable: Iterable[str], held: Held) -> str | None:
    paths = " and ".join(unreadable)
    return f"mend {paths}, then again: {commands.prove(held.url if held.is_named else None)}" if paths else None


def _elsewhere(found: Found, held: Held) -> list[str]:
    """Which other worktrees do not have what this one has, or the other way round."""
    there = [each for tree in held.others if (each := configured.read(found.client, tree)).is_set_up]
    count, total = len(there) + found.is_set_up, 1 + len(held.others)
    if count in (0, total):
        return []
    again = _again(found if found.is_set_up else there[0], held, worktrees=True)
    others = "the other" if total - count == 1 else "the others"
    return [f"{count} of {total} worktrees {'has' if count == 1 else 'have'} this; {others}: {again}"]


async def _try_server(
    proof: Proof, found: Found, held: Held, folder: str, around: dict[str, str], turn: Semaphore
) -> None:
    proof.mcp["configured"] = found.has_server
    if found.server is None:
        return  # what is the matter with it has been told
    withheld = _withheld(found.server)
    hooks = [hook for hook in found.hooks if hook.event == events.STARTS.get(proof.client)]

    async def same_worker(answers: Answers) -> None:
        if hooks and answers.worker and hooks[0].name in (None, hooking.named(found.server)):  # others have been told
            await hooking.compare(proof, hooks[0], answers.worker, withheld, held, folder, around)

    async with turn:
        answers = await serving.ask(found.server, folder, around, same_worker)
    fault = answers.fault or _other_board(answers, held)
    proof.mcp |= {
        "command": found.server.argv,
        "works": fault is None,
        "tools": len(answers.tools),
        "worker": answers.worker or None,
        "seconds": round(answers.seconds, 3),
    }
    if fault is not None:
        told = proof.others if withheld else proof.faults
        told.append(f"the MCP server does not work: {fault}{withheld}")


def _withheld(server: Server) -> str:
    """What a client that hands on few variables keeps from the server, as the end of a sentence."""
    names = [name for name in ("DIBS_BOARD",) if os.environ.get(name)]
    lost = [name for name in names if server.passes is not None and name not in (*server.passes, *server.env)]
    listed = ", ".join(f'"{name}"' for name in lost)
    return f"; Codex hands on few variables: put env_vars = [{listed}] under [mcp_servers.dibs]" if lost else ""


def _other_board(answers: Answers, held: Held) -> str | None:
    """The server must see the lock that we hold, unless there are more than it shows."""
    locks = answers.board.get("locks")
    if held.by is None or not isinstance(locks, list) or "note" in answers.board:
        return None
    if any(isinstance(lock, dict) and held.path in lock.values() for lock in locks):
        return None
    return "it serves another board than this one"


# -- git


async def _try_git(proof: Proof, held: Held, folder: str) -> None:
    import anyio

    del proof.mcp["configured"]
    guard = await anyio.to_thread.run_sync(committing.read, held.root)
    flags = configured.flags_of(guard.check)
    again = commands.again("git", _board(configured.board_of(guard.check), held), flags)
    if guard.unreadable is not None and guard.path is not None:
        proof.others.append(f"{guard.path} {guard.unreadable}")
        proof.next = _mend([guard.path], held)
        return
    if guard.why_not is not None:
        proof.notes.append(guard.why_not)
        proof.next = again if guard.path else None
        return
    proof.options = flags
    proof.hook |= {"configured": True, "file": guard.path, "command": guard.check}
    proof.notes += guard.remarks
    proof.verdict = ADVISORY
    if guard.fault is not None:
        proof.faults.append(guard.fault)
    elif held.by is None:
        proof.gaps.append("this board keeps no locks on files: there is nothing that the guard could refuse")
    else:
        await _try_commits(proof, guard, held, folder)
    if proof.faults:
        proof.next = again
    elif not proof.gaps:
        proof.verdict = GUARDED


async def _try_commits(proof: Proof, guard: committing.Guard, held: Held, folder: str) -> None:
    around = surroundings(folder)
    try:
        kept = await committing.attempt(guard, held.root, folder, around, held.path)
        free = await committing.attempt(guard, held.root, folder, around, held.free)
    except (OSError, ValueError) as error:
        proof.faults.append(f"the guard could not be tried: {error}")
        return
    refused = kept.code not in (0, None) and (held.by or "") in kept.err
    passed = held.free in free.err if guard.requires_lock else free.code == 0
    proof.hook |= {"refused_commit": refused, "passed_free": passed, "seconds": round(kept.seconds, 3)}
    if not refused:
        proof.faults.append(f"a commit of a held file was not refused (exit code {kept.code}){kept.last_words()}")
    if not passed and guard.requires_lock:
        proof.faults.append(f"with --require-lock a commit that nobody locked was not refused{free.last_words()}")
    elif not passed:
        proof.faults.append(f"a commit of a free file was refused (exit code {free.code}){free.last_words()}")
