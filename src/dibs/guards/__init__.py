"""Guards: the short critical section around one read-modify-write of a file-backed board, also usable on their own.

    from dibs.guards import LockDirGuard

    with LockDirGuard("storage/lock", "rebuild"):
        ...

`FlockGuard` (document 004) is a kernel lock on an open file, `LockFileGuard` (document 000) a file with a name and a
time in it, `LockDirGuard` (document 002) a directory with a pid in it. All have `acquire(timeout)`, `confirm()`,
`release()` and `holder()`, raise `Busy` when somebody else has it, and are context managers.

What is held is given back on exceptions and at the end of the process; `release_on_signals()` adds SIGINT, SIGTERM and
SIGHUP. What a SIGKILL leaves behind is broken by the next one who wants it, by the rule of its document and never
otherwise; how two breakers are kept apart is said at the head of `lockfile` and of `lockdir`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.guards.base import DEFAULT as DEFAULT
    from dibs.guards.base import Guard as Guard
    from dibs.guards.base import release_on_signals as release_on_signals
    from dibs.guards.flock import FlockGuard as FlockGuard
    from dibs.guards.holder import Holder as Holder
    from dibs.guards.lockdir import LockDirGuard as LockDirGuard
    from dibs.guards.lockfile import LockFileGuard as LockFileGuard
    from dibs.guards.verify import write_then_verify as write_then_verify

_HOME = {
    "FlockGuard": "flock",
    "LockFileGuard": "lockfile",
    "LockDirGuard": "lockdir",
    "Guard": "base",
    "DEFAULT": "base",
    "release_on_signals": "base",
    "write_then_verify": "verify",
    "Holder": "holder",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dibs.guards' has no attribute {name!r}")
    module = __import__(f"dibs.guards.{_HOME[name]}", fromlist=[name])
    value: object = getattr(module, name)
    globals()[name] = value
    return value
