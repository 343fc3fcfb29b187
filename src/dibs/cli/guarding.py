"""`dibs guard`: run a command while holding a lock directory, a lock file or a kernel lock, like flock(1).

The guard is this process's, and lives as long as the command: a signal to us goes to the command, and the guard is
given back when the command has ended of it, never before. If we are killed without a word (SIGKILL), the command is
sent SIGTERM (on Linux), and what is left behind is broken by the rule of its kind.

`dibs shell-lib` prints the same lock directory for POSIX sh.
"""

from __future__ import annotations

import os

from dibs.errors import Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.child import Child, Signals
    from dibs.cli.context import Context
    from dibs.guards import Guard

CANNOT_START, NO_COMMAND = 126, 127


def guard(ctx: Context, args: Args) -> int:
    from dibs.cli.child import Child, Signals
    from dibs.cli.render import safe
    from dibs.guards import DEFAULT, release_on_signals

    held = _guard(ctx, args)
    release_on_signals()
    try:
        try:
            held.acquire(DEFAULT if args.timeout is None else args.timeout)
        except Busy as error:
            _reword(error, held)
            raise
        with Signals() as signals:
            try:
                child = Child(args.command, os.environ)
            except OSError as error:
                ctx.note(f"dibs: cannot run {safe(args.command[0])}: {error.strerror}")
                return NO_COMMAND if isinstance(error, FileNotFoundError) else CANNOT_START
            try:
                code = _wait(child, signals)
            finally:
                child.close()
            if not held.confirm():
                ctx.note(f"dibs: {safe(held.path)} was taken from us while the command ran")
    finally:
        held.release()
    if signals.received:
        return 128 + signals.received[0]
    return code if code >= 0 else 128 - code


def _reword(error: Busy, held: Guard) -> None:
    """The documents speak of their boards; here it is a lock, perhaps of something else."""
    from dibs.guards.lockdir import HINT, LockDirGuard

    error.message = f"lock busy: {held.path}"
    if isinstance(held, LockDirGuard) and not _is_bilu(held.path):
        unknown = "it names no process: ask who made it, or try again later"
        error.hint = unknown if error.hint == HINT else error.hint.replace(HINT, "wait longer, or try again later")


def _is_bilu(path: str) -> bool:
    """Is it the `storage/lock` of a board of document 002?"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    return os.path.isdir(os.path.join(root, "board", "tasks"))


def _wait(child: Child, signals: Signals) -> int:
    """The command's exit code. Signals to us are its; how long it takes to end of them is its business."""
    forwarded = 0
    while (code := child.poll()) is None:
        for number in signals.received[forwarded:]:
            forwarded += 1
            child.signal(number)
        signals.wait(None)
    return code


def _guard(ctx: Context, args: Args) -> Guard:
    from dibs.guards import FlockGuard, LockDirGuard, LockFileGuard

    path = args.path
    kind = args.kind or ("dir" if path.endswith("/") or os.path.isdir(path) else "flock")
    if kind == "dir":
        return LockDirGuard(path, " ".join(args.command))
    if kind == "file":
        return LockFileGuard(path, ctx.worker.name)
    return FlockGuard(path)


def shell_lib(ctx: Context, args: Args) -> int:
    import dibs

    path = os.path.join(os.path.dirname(os.path.abspath(dibs.__file__)), "shell", "board_lock.sh")
    with open(path, encoding="utf-8") as file:
        ctx.say(file.read().rstrip("\n"))
    return 0
