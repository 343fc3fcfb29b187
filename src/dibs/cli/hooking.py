"""`dibs hook CLIENT`: one event of a coding client on stdin, one answer on stdout; and `dibs hook git` before a commit.

Order of things: start the clock, read the event, go to its folder, find the boards and the worker, decide, and only
then renew, so that an answer that is known never waits for a write. Whatever goes wrong on the way, the answer is to
let the edit pass and to say so, or with --closed to deny it. The exit code is 0 for clients (see `hooks.answers`), and
1 when git is to stop.
"""

from __future__ import annotations

import os

from dibs.board.core import Core
from dibs.board.leases import keep
from dibs.cli.args import UsageError
from dibs.cli.hook_texts import cause, held, no_board, not_locked, unsure
from dibs.errors import DibsError, NoBoard, Unsupported
from dibs.hooks import answers
from dibs.hooks.events import EDIT, END, OTHER, START, Event, find_paths, head
from dibs.hooks.patience import limit, seconds
from dibs.hooks.verdict import Identity, conflicts, holders, names, outside, unlocked, who

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.hooks.answers import Answer
    from dibs.stores.base import Store

CLIENTS = {"claude": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool", "cursor": "preToolUse"}
"""With the event that a denial is to name where the client's own words could not be read."""
_CLIENT_SESSIONS = ("CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID")


def hook(ctx: Context, args: Args) -> int:
    if args.client == "git":
        return _before_commit(ctx, args)
    if args.client not in CLIENTS:
        raise UsageError(f"hook: no client called {args.client!r:.40}", f"one of: {', '.join(CLIENTS)}, git")
    if os.isatty(0):
        raise UsageError("hook: the client's event is read from stdin", "try one: dibs hook claude < event.json")
    seen = [_unread(args)]
    known: list[Answer] = []

    def late() -> int:
        why = seen[-1].doubt or f"the board did not answer within {seconds():g} s"
        return _reply(ctx, known[0] if known else unsure(ctx, args, seen[-1], why))

    answered = limit(seconds(), late)
    try:
        _read(args.client, seen)
    except (ValueError, OSError, RecursionError) as error:
        known.append(unsure(ctx, args, seen[-1], f"the client's event could not be read: {error}", ""))
    else:
        if args.closed:
            seen[-1].doubt = seen[-1].doubt or seen[-1].unnamed
        _answer(ctx, args, seen[-1], known)
    if not answered():
        _wait_for_the_end()
    return _reply(ctx, known[0])


def _unread(args: Args) -> Event:
    """What stands for an event of which nothing is known yet."""
    event = Event(args.client, CLIENTS[args.client], EDIT if args.closed else OTHER, None, "")
    event.doubt = f"the client's event was not there within {seconds():g} s"
    return event


def _read(client: str, seen: list[Event]) -> None:
    """Put the event behind what is known of it so far, as soon as more is known."""
    document = _document()
    event = head(client, document, _here())
    seen.append(event)
    assert isinstance(document, dict)
    find_paths(event, document)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # removed under our feet; clients say where they are
        return os.sep


def _document() -> object:
    """The event. Clients do not all close the pipe, so a document that is complete is enough."""
    from dibs.jsontext import loads

    data = bytearray()
    while chunk := os.read(0, 1 << 20):
        data += chunk
        if chunk.rstrip().endswith(b"}"):
            try:
                return loads(_decoded(data))
            except ValueError:
                pass
    if not data.strip():
        raise ValueError("stdin was empty; the client's event is read from there")
    return loads(_decoded(data))


def _decoded(data: bytearray) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")  # Cursor on Windows puts a mark in front


def _answer(ctx: Context, args: Args, event: Event, known: list[Answer]) -> None:
    try:
        _decide(ctx, args, event, known)
    except NoBoard as error:
        if not known:
            known.append(no_board(ctx, args, event, error))
    except Exception as error:
        if os.environ.get("DIBS_DEBUG"):
            raise
        if known:
            ctx.note(f"dibs: {cause(error)}")
        else:
            known.append(unsure(ctx, args, event, cause(error)))


def _decide(ctx: Context, args: Args, event: Event, known: list[Answer]) -> None:
    os.chdir(_existing(event.folder))
    boards: list[tuple[Core, Identity]] = []
    reason = None
    try:
        for store, paths, where in _stores(ctx, event):
            me = who(event, store.url, ctx.as_name)
            # Not a TaskBoard: most verbs are no business of a hook, and importing them takes a tenth of its time.
            board = Core(store, None, None)
            boards.append((board, me))
            if event.kind in (START, END):
                _session(store, event, me, known)
            if event.kind == END:
                return
            if paths:
                reason = _objection(board, paths, me, args.require_lock and len(boards) == 1, where)
            if reason:
                break
        if event.kind != START:
            known.append(_verdict(ctx, args, event, reason))
        for board, me in boards:
            keep(board, me.worker)
    finally:
        for board, _ in boards:
            board.store.close()


def _verdict(ctx: Context, args: Args, event: Event, reason: str | None) -> Answer:
    if reason:
        return answers.deny(event, reason)
    return unsure(ctx, args, event, event.doubt, "") if event.doubt else answers.silence(event)


def _stores(ctx: Context, event: Event) -> Iterator[tuple[Store, list[str], str | None]]:
    """The boards to ask, each with what to ask it for, and the folder that this is done from if it is not the client's.

    First that of the folder that the client works in; then those that other files have to themselves."""
    start = os.getcwd()
    first: Store | None = None
    missing: NoBoard | None = None
    try:
        first = _store(ctx, event)
    except NoBoard as error:
        missing = error
    if first is not None:
        if hasattr(first, "dialect"):
            from dibs.guards import release_on_signals

            release_on_signals()  # a client ends hooks that take too long, and a lock file would outlive this one
        yield first, event.paths, None if os.getcwd() == start else os.getcwd()
    others = _other_boards(ctx, event, first)
    if missing is not None and not others:
        raise missing
    for file, (folder, paths) in others.items():
        from dibs.address import open_store

        os.chdir(folder)
        yield open_store(f"sqlite:{file}"), paths, folder


def _other_boards(ctx: Context, event: Event, first: Store | None) -> dict[str, tuple[str, list[str]]]:
    """The boards of files in other repositories: a folder there, and the files. Whoever has named a board wants it
    asked, and no other, for all that it has a name for."""
    from dibs.address import find

    paths = event.paths
    if ctx.url or os.environ.get("DIBS_BOARD"):
        paths = [] if first is None else outside(Core(first, None, None), paths)
    asked = "" if first is None else os.path.realpath(first.url.partition(":")[2])
    boards: dict[str, str | None] = {}
    found: dict[str, tuple[str, list[str]]] = {}
    for path in paths:
        folder = _existing(os.path.dirname(path))
        if folder not in boards:
            boards[folder] = find(folder) or _board_around_submodule(folder)
        file = boards[folder]
        if file is not None and os.path.realpath(file) != asked:
            found.setdefault(file, (folder, []))[1].append(path)
    return found


def _board_around_submodule(folder: str) -> str | None:
    """The board of the repository around one without a board: to that, it is a folder like any other."""
    from dibs.address import find
    from dibs.places import find_place

    root = find_place(folder).worktree
    while root is not None and root != os.path.dirname(root):
        above = find_place(os.path.dirname(root))
        if above.worktree is None:
            return None
        if file := find(above.worktree):
            return file
        root = above.worktree
    return None


def _existing(folder: str) -> str:
    """The folder, or the nearest one above it that is there."""
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _store(ctx: Context, event: Event) -> Store:
    """Where the board of the folder is that the client works in, else that of the files it is about to write."""
    from dibs.address import open_store

    try:
        return open_store(ctx.url)
    except NoBoard:
        if ctx.url or os.environ.get("DIBS_BOARD"):
            raise
        for path in event.paths:
            os.chdir(_existing(os.path.dirname(path)))
            try:
                return open_store(None)
            except NoBoard:
                pass
        os.chdir(_existing(event.folder))
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
        for worker in holders(board.core, me):
            board.release_agent_tasks(worker, note="its session ended")


def _objection(
    board: Core, paths: Sequence[str], me: Identity, require_lock: bool, where: str | None = None
) -> str | None:
    """Why these paths may not be written now; None if they may."""
    try:
        wanted = names(board, paths)
        against = conflicts(board, wanted, me)
        if against:
            return held(board, against, me, where)
        loose = unlocked(board, wanted, me) if require_lock else []
    except Unsupported:
        return None  # a board in files that know no locks
    return not_locked(board, loose, where) if loose else None


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
    from dibs.errors import quoted

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

    def unchecked(why: str) -> int:
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
        return unchecked(cause(error))
    late = f"the board did not answer within {seconds():g} s"
    answered = limit(seconds() + len(paths) / 500, lambda: unchecked(late))
    code = 0
    try:
        session = next((os.environ[name] for name in _CLIENT_SESSIONS if os.environ.get(name)), None)
        reason = _objection(ctx.board.core, paths, Identity(ctx.worker, session), args.require_lock)
        if reason is not None:
            ctx.note(reason.replace("nothing was changed", "nothing was committed", 1))
            code = 1
    except NoBoard as error:
        code = unchecked(cause(error)) if args.closed else 0
    except Exception as error:
        if os.environ.get("DIBS_DEBUG"):
            raise
        code = unchecked(cause(error))
    if not answered():
        _wait_for_the_end()
    return code
