"""Rename a directory to a name that must be free, in one step. (`os.rename` would replace an empty directory.)"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCL = 4
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_SYSCALL = {"x86_64": 316, "aarch64": 276, "riscv64": 276}
"""The number of renameat2, for C libraries that do not wrap it."""

_call: Callable[[bytes, bytes], int] | None = None
_known = False


def rename_to_new(source: str, target: str) -> bool:
    """True: renamed. False: this system or file system cannot, and nothing has happened. `FileExistsError`: taken."""
    call = _find()
    if call is None:
        return False
    if call(os.fsencode(source), os.fsencode(target)) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), target)


def _find() -> Callable[[bytes, bytes], int] | None:
    global _call, _known
    if not _known:
        _known = True
        if sys.platform in ("linux", "darwin"):
            try:
                _call = _bind()
            except (ImportError, OSError, AttributeError):
                pass
    return _call


def _bind() -> Callable[[bytes, bytes], int] | None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        exclusive = libc.renamex_np
        return lambda source, target: int(exclusive(source, target, _RENAME_EXCL))
    if hasattr(libc, "renameat2"):
        wrapped = libc.renameat2
        return lambda source, target: int(wrapped(_AT_FDCWD, source, _AT_FDCWD, target, _RENAME_NOREPLACE))
    number = _SYSCALL.get(os.uname().machine)
    if number is None:
        return None
    return lambda source, target: int(libc.syscall(number, _AT_FDCWD, source, _AT_FDCWD, target, _RENAME_NOREPLACE))
