"""Where the tests keep their files: on a RAM disk, if there is one that will do.

Nearly all of them write boards with every sync that a board asks for, and kill processes, never the machine. On a disk
that others use, too, they would wait for it most of the time. `make test-long` stays on the disk, and so does whoever
sets TMPDIR.
"""

from __future__ import annotations

import os
import tempfile

RAM = "/dev/shm"
ENOUGH = 4 << 30


def use_memory() -> None:
    """Let this process and those it starts make their temporary folders there. Before anybody asks for one."""
    if not {"TMPDIR", "TEMP", "TMP"} & os.environ.keys() and _will_do(RAM):
        os.environ["TMPDIR"] = tempfile.tempdir = RAM


def _will_do(folder: str) -> bool:
    """Programs must run there (containers often forbid it), and it must not fill up (theirs have 64 MB)."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    runs_programs = not found.f_flag & getattr(os, "ST_NOEXEC", 0)
    return runs_programs and found.f_bavail * found.f_frsize >= ENOUGH and os.access(folder, os.W_OK)
