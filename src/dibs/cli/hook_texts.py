"""What `dibs hook` says: why an edit is denied and the ways on from there, and what could not be checked.

    held(board, conflicts, me, where)       somebody else has it
    not_locked(board, names, where)         nobody has it, and with --require-lock that is not enough
    unsure(ctx, args, event, why)           the answer when nothing can be known; no_board(…) when there is no board

Names come from other workers and go to a model or a terminal: each is made safe first. Nothing is written.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError
from dibs.hooks import answers
from dibs.hooks.events import EDIT, START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board.core import Core
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.errors import NoBoard
    from dibs.hooks.answers import Answer
    from dibs.hooks.events import Event
    from dibs.hooks.verdict import Conflict, Identity

SHOWN = 10
"""So many conflicts are listed; the rest are counted."""
_DOCTOR = "to see what is wrong: dibs doctor"


def held(board: Core, against: Sequence[Conflict], me: Identity, where: str | None) -> str:
    from dibs.cli.render import safe
    from dibs.errors import quoted

    lines = []
    for conflict in against[:SHOWN]:
        lock = conflict.lock
        under = "" if lock.pattern == conflict.name else f" (by a lock on {safe(lock.pattern)})"
        task = f" for task {lock.task_id}" if lock.task_id else ""
        tree = f", in the worktree {safe(lock.worktree)}" if lock.worktree else ""
        how = "shared by" if lock.shared else "held by"
        if lock.holder.name == me.worker.name:
            how += " another session of"
        lines.append(f"{safe(conflict.name)} is {how} {safe(lock.holder.name)}{task}{under} {_until(conflict)}{tree}")
    if len(against) > SHOWN:
        lines.append(f"… and {len(against) - SHOWN} more")
    first = against[0]
    path, holder = quoted(safe(_from_here(board, first.name))), quoted(safe(first.lock.holder.name))
    ask = f"or ask: dibs tell {holder} 'what you need'"
    if first.lock.holder.name == me.worker.name:
        ask = "or, if that session is you (a client over HTTP): start it with DIBS_SESSION=http, see docs/agents.md"
    return (
        "dibs: denied, and nothing was changed: another worker has this.\n"
        + "\n".join(f"  {line}" for line in lines)
        + f"\nWait for it{_there(where)}: dibs lock {path} --wait 5m (MCP: lock_files); {ask}; "
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


def _there(where: str | None) -> str:
    """Where a command has to be given, for the board of another folder."""
    from dibs.cli.render import safe

    return "" if where is None else f" (in {safe(where)})"


def not_locked(board: Core, loose: Sequence[str], where: str | None) -> str:
    from dibs.cli.render import safe
    from dibs.errors import quoted

    listed = ", ".join(safe(name) for name in loose[:SHOWN])
    more = f" and {len(loose) - SHOWN} more" if len(loose) > SHOWN else ""
    paths = " ".join(quoted(safe(_from_here(board, name))) for name in loose[:SHOWN])
    return (
        f"dibs: denied, and nothing was changed: you have not locked {listed}{more}, and here that comes first.\n"
        f"Lock it{_there(where)}: dibs lock {paths} (MCP: lock_files); "
        "or claim a task that has it among its paths: dibs claim."
    )


def _from_here(board: Core, name: str) -> str:
    """A name of the board as a path from the working directory."""
    root = board.paths.worktree or board.store.place
    return name if root is None else os.path.relpath(os.path.join(root, name))


def cause(error: Exception) -> str:
    if isinstance(error, DibsError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the system'}: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def unsure(ctx: Context, args: Args, event: Event, why: str, hint: str = _DOCTOR) -> Answer:
    """The answer when nothing can be known: an edit is denied with --closed, else nothing but a warning."""
    edits = event.kind == EDIT and bool(event.paths or event.doubt)
    if edits and args.closed:
        ways_on = f"\nEdits go on when the board can be read again; {hint}" if hint else ""
        return answers.deny(event, f"dibs: denied, because nobody can tell who holds what: {why}{ways_on}")
    passing = "" if not edits else "; edits are not checked meanwhile" if hint else "; this was not checked"
    text = "; ".join(filter(None, (f"dibs: {why}{passing}", hint)))
    ctx.note(text)
    return answers.warn(event, text) if edits or event.kind == START else answers.silence(event)


def no_board(ctx: Context, args: Args, event: Event, error: NoBoard) -> Answer:
    if args.closed and (event.paths or event.doubt):
        return unsure(ctx, args, event, cause(error))
    if event.kind != START:
        return answers.silence(event)
    text = f"dibs: {cause(error)}; edits are not checked here"
    ctx.note(text)
    return answers.warn(event, text)
