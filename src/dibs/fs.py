"""What dibs does to the file system below the level of a store: locks on open files, durable directory entries, safe
opening, and telling network file systems from local ones. The only place that does these.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt
    import time

    def lock(fd: int) -> None:
        """Wait for the exclusive lock on an open file; it ends with `unlock`, or with the process."""
        while True:
            os.lseek(fd, 1 << 30, os.SEEK_SET)  # far beyond any content: Windows locks bind readers too
            try:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            except OSError:
                time.sleep(0.002)
            else:
                return

    def unlock(fd: int) -> None:
        os.lseek(fd, 1 << 30, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def read_at(fd: int, size: int, offset: int) -> bytes:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)

    def write_at(fd: int, data: bytes, offset: int) -> None:
        os.lseek(fd, offset, os.SEEK_SET)
        os.write(fd, data)

    def sync_directory(path: str) -> None:
        """Windows keeps directory entries itself."""

else:
    import fcntl

    def lock(fd: int) -> None:
        """Wait for the exclusive lock on an open file; it ends with `unlock`, or with the process."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def read_at(fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def write_at(fd: int, data: bytes, offset: int) -> None:
        os.pwrite(fd, data, offset)

    def sync_directory(path: str) -> None:
        """Make the entries of a directory (a created, renamed or linked name) survive a power failure."""
        fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


sync_data = getattr(os, "fdatasync", os.fsync)

_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_lock_file(path: str) -> int:
    """Open a file that exists to be locked, creating it if need be; never through a symbolic link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666)


NETWORK_TYPES = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "9p",
        "v9fs",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "orangefs",
        "pvfs2",
        "gfs2",
        "ocfs2",
        "vboxsf",
        "vmhgfs",
        "prl_fs",
        "drvfs",
        "davfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.vmhgfs-fuse",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.davfs",
        "fuse.gcsfuse",
    ]
)


def network_file_system(path: str) -> str | None:
    """The type of the file system that `path` lives on if it is one whose locks cannot be trusted, else None.

    Read from the kernel's mount table by device number, so bind mounts and symbolic links do not fool it. Where there
    is no such table, None.
    """
    try:
        device = os.stat(path).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            lines = table.readlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 2 and fields[2] == wanted and "-" in fields:
            kind = fields[fields.index("-") + 1]
            return kind if kind in NETWORK_TYPES else None
    return None
