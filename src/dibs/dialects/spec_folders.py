"""Document 003's locks on the disk: a folder with an `owner` file, taken away or handed over as a whole.

Both are for whoever has read the owner file and decided by it, and say whether the lock was still that one: the
orchestrator by hand cleans up whenever it likes, and the next `mkdir` may be anybody's. No step between the last look
and the change leaves time for that to happen often; none can exclude it, since `mkdir` and `rm` look at no guard.

A crash leaves the lock as it was, or as it was to become, and perhaps a draft with a private name that nothing reads.
"""

from __future__ import annotations

import os

from dibs import fs
from dibs.guards.base import private_name, remove


def seen(path: str) -> bytes | None:
    """What an owner file says; None if there is none. What cannot be read says nothing, and the lock is held."""
    try:
        return fs.read_marker(path)
    except OSError:
        return b""


def existing(folder: str, name: str) -> str | None:
    """The path in this folder that has a lock's name and is there; None if there is none."""
    at = name.find("__", 1)
    while at > 0:
        head, rest = name[:at], name[at + 2 :]
        if os.path.isdir(os.path.join(folder, head)):
            found = existing(os.path.join(folder, head), rest)
            if found is not None:
                return f"{head}/{found}"
        at = name.find("__", at + 1)
    return name if name and os.path.lexists(os.path.join(folder, name)) else None


def write_owner(folder: str, content: bytes) -> None:
    fd = os.open(
        os.path.join(folder, "owner"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666
    )
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def take_away(folder: str, was: bytes | None) -> bool:
    """Remove a lock whose owner file says `was`; False if it is not there any more, or another."""
    if seen(os.path.join(folder, "owner")) != was:
        return False
    aside = private_name(folder)
    try:
        os.rename(folder, aside)
    except FileNotFoundError:
        return False  # somebody has cleaned up already
    remove(aside)
    return True


def hand_over(folder: str, content: bytes, was: bytes) -> bool:
    """Give a lock whose owner file says `was` to another owner, while it is held throughout; False if it is not there
    any more, or another."""
    path = os.path.join(folder, "owner")

    def still() -> None:
        if seen(path) != was:
            raise FileNotFoundError(path)

    try:
        fs.replace_file(path, content, durable=False, before=still, follow=False)
    except FileNotFoundError:
        return False
    return True
