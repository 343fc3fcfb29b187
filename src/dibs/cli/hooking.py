"""`dibs hook CLIENT`: one event of a coding client on stdin, one answer on stdout; and `dibs hook git` before a commit.

Order of things: read the event, go to its folder, find the board and the worker, decide, and only then renew, so that
an answer that is known never waits for a write. Whatever goes wrong on the way, the answer is to let the edit pass and
to say so, or with --closed to deny it. The exit code is 0 for clients (see `hooks.answers`) and 1 when git is to stop.
"""

from __future__ import annotations

import os

from dibs.cli.args import UsageError
from dibs.errors import DibsError, NoBoard, Unsupported
from dibs.hooks import answers
from dibs.hooks.events import EDIT, END, OTHER, START, Event, read
from dibs.hooks.patience import limit, seconds
from dibs.hooks.verdict import Identity, conflicts, names, unlocked, who
from dibs.leases import Leases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.hooks.answers import Answer
    from dibs.hooks.verdict import Conflict
    from dibs.store import Store

CLIENTS = {"claude": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool", "cursor": "preToolUse"}
"""With the event that a denial is to name where the client's own words could not be read."""
SHOWN = 10
"""So many conflicts are listed; the rest are counted."""
_CLIENT_SESSIONS = ("CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID")


def hook(ctx: Context, args: Args) -> int:
    if args.client == "git":
        return _before_commit(ctx, args)
    if args.client not in CLIENTS:
        raise UsageError(f"hook: no client called {args.client!r:.40}", f"one of: {', '.join(CLIENTS)}, git")
    try:
        event = read(args.client, _document(), os.getcwd())
    except (ValueError, OSError, RecursionError) as error:
        event = Event(args.client, CLIENTS[args.client], EDIT if args.closed else OTHER, None, "")
        event.paths = ["whatever it was about"]
        return _reply(ctx, _unsure(ctx, args, event, f"the client's event could not be read: {error}"))
    known: list[Answer] = []
    late = f"the board did not answer within {seconds():g} s"
    answered = limit(seconds(), lambda: _reply(ctx, known[0] if known else _unsure(ctx, args, event, late)))
    try:
        _decide(ctx, args, event, known)
    except NoBoard as error:
        if not known:
            known.append(_no_board(ctx, args, event, error))
    except Exception as error:
        if os.environ.get("DIBS_DEBUG"):
            raise
        if known:
            ctx.note(f"dibs: {_why(error)}")
        else:
            known.append(_unsure(ctx, args, event, _why(error)))
    if not answered():
        _wait_for_the_end()
    return _reply(ctx, known[0])


def _document() -> object:
    """The event. Clients do not all close the pipe, so a document that is complete is enough."""
    from dibs.jsontext import loads

    if os.isatty(0):
        raise UsageError("hook: the client's event is read from stdin", "try one: dibs hook claude < event.json")
    data = b""
    while chunk := os.read(0, 1 << 20):
        data += chunk
        if chunk.rstrip().endswith(b"}"):
            try:
                return loads(_decoded(data))
            except ValueError:
                pass
    return loads(_decoded(data))


def _decoded(data: bytes) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")  # Cursor on Windows puts a mark in front


def _decide(ctx: Context, args: Args, event: Event, known: list[Answer]) -> None:
    os.chdir(event.folder)
    store = _store(ctx, event)
    if hasattr(store, "dialect"):
        from dibs.guards import release_on_signals

        release_on_signals()  # a client ends hooks that take too long, and a lock file would outlive this one
    try:
        me = who(event, store.url, ctx.as_name)
        if event.kind in (START, END):
            _session(store, event, me, known)
        if event.kind == END:
            return
        # Not a TaskBoard: most of its verbs are no business of a hook, and importing them takes a tenth of its time.
        board = Leases(store, None, None)
        if event.kind != START:
            reason = _objection(board, event.paths, me, args.require_lock) if event.paths else None
            known.append(answers.deny(event, reason) if reason else answers.silence(event))
        board.keep(me.worker)
    finally:
        store.close()


def _store(ctx: Context, event: Event) -> Store:
    """Where the board of the folder is that the client works in, else that of the files it is about to write."""
    from dibs.address import open_store

    try:
        return open_store(ctx.url)
    except NoBoard:
        if ctx.url or os.environ.get("DIBS_BOARD"):
            raise
        for path in event.paths:
            folder = os.path.dirname(path)
            while not os.path.isdir(folder) and folder != os.path.dirname(folder):
                folder = os.path.dirname(folder)
            os.chdir(folder)
            try:
                return open_store(None)
            except NoBoard:
                pass
        os.chdir(event.folder)
        raise


def _session(store: Store, event: Event, me: Identity, known: list[Answer]) -> None:
    from dibs.board import TaskBoard

    board = TaskBoard(store=store)
    if event.kind == START:
        from dibs.priming import text

        known.append(answers.prime(event, text(board, me.worker)))
        _tell_shells(event, me)
        return
    known.append(answers.silence(event))
    # An MCP server outlives /clear and gives back by itself; a session that the user has named outlives the client.
    if not me.served and me.worker.session is not None and me.worker.session == event.session:
        board.release_agent_tasks(me.worker, note="its session ended")


def _objection(board: Leases, paths: Sequence[str], me: Identity, require_lock: bool) -> str | None:
    """Why these paths may not be written now; None if they may."""
    try:
        wanted = names(board, paths)
        against = conflicts(board, wanted, me)
        if against:
            return _held(board, against)
        loose = unlocked(board, wanted, me) if require_lock else []
    except Unsupported:
        return None  # a board in files that know no locks
    return _not_locked(board, loose) if loose else None


# -- what is said


def _held(board: Leases, against: Sequence[Conflict]) -> str:
    from dibs.cli.render import quoted, safe

    lines = []
    for conflict in against[:SHOWN]:
        lock = conflict.lock
        under = "" if lock.pattern == conflict.name else f" (by a lock on {safe(lock.pattern)})"
        task = f" for task {lock.task_id}" if lock.task_id else ""
        tree = f", in the worktree {safe(lock.worktree)}" if lock.worktree else ""
        how = "shared by" if lock.shared else "held by"
        lines.append(f"{safe(conflict.name)} is {how} {safe(lock.holder.name)}{task}{under} {_until(conflict)}{tree}")
    if len(against) > SHOWN:
        lines.append(f"… and {len(against) - SHOWN} more")
    first = against[0]
    path, holder = quoted(safe(_from_here(board, first.name))), quoted(safe(first.lock.holder.name))
    return (
        "dibs: denied, and nothing was changed: another worker has this.\n"
        + "\n".join(f"  {line}" for line in lines)
        + f"\nWait for it: dibs lock {path} --wait 5m (MCP: lock_files); or ask: dibs tell {holder} 'what you need'; "
        "or take another task: dibs claim (MCP: claim_task)."
    )


def _until(conflict: Conflict) -> str:
    import time

    from dibs.times import FOREVER, remaining

    if conflict.left > FOREVER / 2:
        return remaining(conflict.left)
    form = "%H:%M" if conflict.left < 43_200 else "%Y-%m-%d %H:%M"
    moment = time.strftime(form, time.gmtime(conflict.lock.expires_at))
    return f"until {moment} UTC, {remaining(conflict.left)}"


def _not_locked(board: Leases, loose: Sequence[str]) -> str:
    from dibs.cli.render import quoted, safe

    listed = ", ".join(safe(name) for name in loose[:SHOWN])
    more = f" and {len(loose) - SHOWN} more" if len(loose) > SHOWN else ""
    paths = " ".join(quoted(safe(_from_here(board, name))) for name in loose[:SHOWN])
    return (
        f"dibs: denied, and nothing was changed: you have not locked {listed}{more}, and here that comes first.\n"
        f"Lock it: dibs lock {paths} (MCP: lock_files); or claim a task that has it among its paths: dibs claim."
    )


def _from_here(board: Leases, name: str) -> str:
    """A name of the board as a path from the working directory."""
    root = board._worktree() or board.store.place
    return name if root is None else os.path.relpath(os.path.join(root, name))


def _why(error: Exception) -> str:
    if isinstance(error, DibsError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the system'}: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def _unsure(ctx: Context, args: Args, event: Event, why: str) -> Answer:
    """The answer when nothing can be known: an edit is denied with --closed, else nothing but a warning."""
    edits = event.kind == EDIT and bool(event.paths)
    if edits and args.closed:
        return answers.deny(
            event,
            f"dibs: denied, because nobody can tell who holds what: {why}\n"
            "Edits go on when the board can be read again; to see what is wrong: dibs doctor",
        )
    passing = "; edits are not checked meanwhile" if edits else ""
    text = f"dibs: {why}{passing}; to see what is wrong: dibs doctor"
    ctx.note(text)
    return answers.warn(event, text) if edits or event.kind == START else answers.silence(event)


def _no_board(ctx: Context, args: Args, event: Event, error: NoBoard) -> Answer:
    if args.closed and event.paths:
        return _unsure(ctx, args, event, _why(error))
    if event.kind != START:
        return answers.silence(event)
    text = f"dibs: {_why(error)}; edits are not checked here"
    ctx.note(text)
    return answers.warn(event, text)


def _reply(ctx: Context, answer: Answer) -> int:
    if answer is not None:
        ctx.emit(answer)
        ctx.flush()
    return 0


def _wait_for_the_end() -> None:
    """Another thread is answering and then ends the process."""
    import time

    time.sleep(60)


# -- sessions


def _tell_shells(event: Event, me: Identity) -> None:
    """Let the shells of Claude Code know who they are, where no MCP server will tell them."""
    file = os.environ.get("CLAUDE_ENV_FILE")
    if not file or event.client != "claude" or me.served or me.worker.session is None or _awaits_a_server(event.folder):
        return
    if os.environ.get("DIBS_AGENT") or os.environ.get("DIBS_SESSION"):
        return
    from dibs.cli.render import quoted

    lines = f"export DIBS_AGENT={quoted(me.worker.name)}\nexport DIBS_SESSION={quoted(me.worker.session)}\n"
    with open(file, "a", encoding="utf-8") as out:
        out.write(lines)


def _awaits_a_server(folder: str) -> bool:
    """Does the client's configuration speak of a dibs server, which may only be starting?"""
    from dibs.places import find_place

    root = find_place(folder).worktree or folder
    for path in (os.path.join(root, ".mcp.json"), os.path.expanduser("~/.claude.json")):
        try:
            with open(path, "rb") as file:
                if b"dibs" in file.read(1 << 24):
                    return True
        except OSError:
            pass
    return False


# -- git


def _before_commit(ctx: Context, args: Args) -> int:
    from dibs.hooks.git_guard import staged

    def unsure(why: str) -> int:
        if args.closed:
            ctx.note(f"dibs: not committed, because nobody can tell who holds what: {why}")
            return 1
        ctx.note(f"dibs: {why}; this commit was not checked")
        return 0

    try:
        paths = staged()
        if not paths:
            return 0
    except DibsError as error:
        return unsure(_why(error))
    late = f"the board did not answer within {seconds():g} s"
    answered = limit(seconds() + len(paths) / 500, lambda: unsure(late))
    code = 0
    try:
        session = next((os.environ[name] for name in _CLIENT_SESSIONS if os.environ.get(name)), None)
        reason = _objection(ctx.board, paths, Identity(ctx.worker, session), args.require_lock)
        if reason is not None:
            ctx.note(reason.replace("nothing was changed", "nothing was committed", 1))
            code = 1
    except NoBoard as error:
        code = unsure(_why(error)) if args.closed else 0
    except Exception as error:
        if os.environ.get("DIBS_DEBUG"):
            raise
        code = unsure(_why(error))
    if not answered():
        _wait_for_the_end()
    return code
