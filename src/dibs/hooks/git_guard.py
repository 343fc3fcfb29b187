"""What a commit would record, for the pre-commit check of clients without hooks of their own.

git runs a pre-commit hook in the top folder of the worktree, with the index in question (also that of a partial commit)
named in the environment. Both ends of a rename are looked at, because it is listed as a deletion and an addition.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError

_SUBMODULES = "--ignore-submodules=none"
"""A repository can be set up not to show that a commit moves a submodule."""


def staged() -> list[str]:
    """The files whose content or existence the index changes, absolute."""
    top = os.fsdecode(_git("rev-parse", "--show-toplevel")).rstrip("\r\n")
    listed = _git(
        "diff", "--cached", "--name-only", "--no-renames", "--no-relative", "--no-ext-diff", "-z", _SUBMODULES
    )
    return [os.path.join(top, os.fsdecode(name)) for name in listed.split(b"\0") if name]


def _git(*words: str) -> bytes:
    import subprocess

    try:
        done = subprocess.run(["git", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise DibsError(f"git cannot be run: {error.strerror}", hint="install git, or put it on the PATH") from error
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise DibsError(f"git {words[0]} failed: {why}", hint="run it in a git work tree")
    return done.stdout
