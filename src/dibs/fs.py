"""What dibs does to the file system below the level of a store: locks on open files, durable directory entries, safe
opening, and telling network file systems from local ones. The only place that does these.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Alarms = list[tuple[float, Callable[[], object]]]
    """What to call after so many seconds of waiting; what that raises ends the wait."""

if sys.platform == "win32":
    import msvcrt

    def lock(fd: int, glances: int = 0, alarms: Callable[[], Alarms] = list) -> None:
        """Wait for the exclusive lock on an open file; it ends with `unlock`, or with the process."""
        _look_until_locked(fd, False, alarms())

    def lock_shared(fd: int, glances: int = 0, alarms: Callable[[], Alarms] = list) -> None:
        """Windows' own locks are exclusive: readers take turns."""
        lock(fd, glances, alarms)

    def try_lock(fd: int, shared: bool = False) -> bool:
        os.lseek(fd, 1 << 30, os.SEEK_SET)  # far beyond any content: Windows locks bind readers too
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(fd: int) -> None:
        os.lseek(fd, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        except OSError:
            pass  # nothing was locked, which is no error elsewhere

    UNLOCK = 0

    def let_go(fd: int, how: int) -> None:
        unlock(fd)

    def read_at(fd: int, size: int, offset: int) -> bytes:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)

    def write_at(fd: int, data: bytes, offset: int) -> None:
        os.lseek(fd, offset, os.SEEK_SET)
        os.write(fd, data)

    def sync_directory(path: str) -> None:
        """Windows keeps directory entries itself."""

else:
    import _signal  # type: ignore[import-not-found]  # what `signal` wraps, at a third of the time
    import fcntl

    _let_others_run = getattr(os, "sched_yield", None)

    def lock(fd: int, glances: int = 0, alarms: Callable[[], Alarms] = list) -> None:
        """Wait for the exclusive lock on an open file; it ends with `unlock`, or with the process.

        `alarms` may raise just behind the lock: the caller lets it go then.

        For a lock that nobody keeps for longer than a fraction of a millisecond: look so often, letting others run in
        between, before falling asleep. To be woken takes longer than that, and meanwhile nobody would have the lock.
        """
        if not _glance(fd, False, glances):
            _wait(fd, False, alarms())

    def lock_shared(fd: int, glances: int = 0, alarms: Callable[[], Alarms] = list) -> None:
        """Wait for the lock that any number of readers may have at once; `glances` and `alarms` as for `lock`."""
        if not _glance(fd, True, glances):
            _wait(fd, True, alarms())

    def try_lock(fd: int, shared: bool = False) -> bool:
        """Take the lock on an open file if nobody has it, or, where it is to be shared, nobody has it alone."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(fd: int, shared: bool, alarms: Alarms) -> None:
        """Fall asleep in the lock's queue, which is fair. Only a signal ends that, and only in the main thread of a
        program that does not use it itself; others look again and again."""
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if not alarms or try_lock(fd, shared):
            return fcntl.flock(fd, how)
        ring = _bell(alarms)
        try:
            unused = _signal.getsignal(_signal.SIGALRM) == _signal.SIG_DFL
            if free := unused and not _signal.getitimer(_signal.ITIMER_REAL)[0]:
                _signal.signal(_signal.SIGALRM, lambda *_: ring())
        except ValueError:  # another thread
            free = False
        if not free:
            return _look_until_locked(fd, shared, alarms)
        try:
            _signal.setitimer(_signal.ITIMER_REAL, max(0.001, min(after for after, _ in alarms)), 0.25)
            fcntl.flock(fd, how)
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
            _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)

    def _glance(fd: int, shared: bool, times: int) -> bool:
        if _let_others_run is not None:
            for _ in range(times):
                if try_lock(fd, shared):
                    return True
                _let_others_run()
        return False

    def unlock(fd: int) -> None:
        """Let go of whatever lock there is; none is fine, too."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    # `let_go(fd, UNLOCK)` is the same in C, for a `finally`: a signal that is pending is raised where a Python function
    # is entered, and the lock would stay.
    let_go, UNLOCK = fcntl.flock, fcntl.LOCK_UN

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


def _bell(alarms: Alarms) -> Callable[[], None]:
    """What calls each alarm once, when its time has come."""
    began = time.monotonic()
    left = sorted(alarms, key=lambda alarm: alarm[0])

    def ring() -> None:
        while left and time.monotonic() - began >= left[0][0]:
            left.pop(0)[1]()

    return ring


def _look_until_locked(fd: int, shared: bool, alarms: Alarms) -> None:
    ring = _bell(alarms)
    pause = 0.001
    while not try_lock(fd, shared):
        ring()
        time.sleep(pause)
        pause = min(pause * 1.2, 0.02)


sync_data = getattr(os, "fdatasync", os.fsync)

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_SAFE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str, flags: int, *, follow: bool = False, alone: bool = False) -> int:
    """Open a regular file; with `O_CREAT` make it if need be.

    Others may have put something else there: a clone brings whatever links somebody committed. A link (unless it is to
    be followed), a device, a pipe or a folder raises `OSError`; it is not waited on, and nothing happens to it. `alone`
    is for files that are changed in place: one that has a second name, perhaps elsewhere, is refused as well.
    """
    try:
        fd = os.open(path, flags | _SAFE | (0 if follow else _NO_FOLLOW), 0o666)
    except OSError as error:
        if not follow and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link, and dibs does not follow it", path) from error
        if error.errno == errno.ENXIO:  # a pipe that nobody reads from
            raise OSError(errno.EINVAL, "it is not a regular file", path) from error
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    if alone and found.st_nlink > 1:
        os.close(fd)
        raise OSError(errno.EMLINK, "it is a hard link: the same file has another name, which would change too", path)
    return fd


def open_lock_file(path: str, *, alone: bool = False) -> int:
    """Open a file that exists to be locked, creating it if need be; `alone` if it is written to as well."""
    return open_regular(path, os.O_RDWR | os.O_CREAT, alone=alone)


def is_shared(path: str) -> bool:
    """Is this there, and not a regular file with this name only? For files that others open."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return not stat.S_ISREG(found.st_mode) or found.st_nlink > 1


def is_read_only(path: str) -> bool:
    """Is this on a file system that is mounted for reading only?"""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):  # Windows has no such call
        return False


MARKER_BYTES = 64 * 1024


def read_marker(path: str, limit: int = MARKER_BYTES) -> bytes | None:
    """The content of a small file that others may have put there; None if there is none.

    What is no regular file raises `OSError`: it is no marker, and not followed or waited on.
    """
    try:
        fd = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


def stamp(path: str) -> tuple[int, int, int] | None:
    """What a change of a file changes, nearly always: time, size and inode; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_file(path: str, follow: bool = True) -> bytes | None:
    """A whole regular file; None if there is none."""
    try:
        fd = open_regular(path, os.O_RDONLY, follow=follow)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        parts = []
        while part := os.read(fd, max(size + 1, 1 << 16)):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(fd)


def replace_file(
    path: str,
    data: bytes,
    durable: bool = True,
    before: Callable[[], None] | None = None,
    follow: bool = True,
) -> None:
    """Put new content in the place of a file, whole or not at all; permissions stay, and so does a link to the file,
    unless it is not to be followed: then the link is replaced, and what it led to is left alone.

    Writes a temporary file beside it, syncs, calls `before` (a last check, which may raise) and renames. A crash
    leaves the old content, and perhaps a file called `.NAME.dibs-…` that nothing reads.
    """
    path = os.path.realpath(path) if follow else path
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.dibs-{os.getpid()}-{os.urandom(4).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if follow:
                _keep_mode(path, fd)
            if durable:
                sync_data(fd)
        finally:
            os.close(fd)
        if before is not None:
            before()
        os.replace(draft, path)
    except BaseException:
        try:
            os.unlink(draft)
        except OSError:
            pass
        raise
    if durable:
        sync_directory(folder)


def sweep_drafts(path: str) -> None:
    """Remove what killed writers of a file left of `replace_file`; for whoever knows that nobody else writes it."""
    folder, name = os.path.split(os.path.realpath(path))
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for each in names:
        if each.startswith(f".{name}.dibs-"):
            try:
                os.unlink(os.path.join(folder, each))
            except OSError:
                pass  # a folder, or not ours to remove: nothing reads it


def _keep_mode(path: str, fd: int) -> None:
    try:
        old = os.stat(path)
    except FileNotFoundError:
        return
    new = os.fstat(fd)
    if hasattr(os, "fchmod") and stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
        os.fchmod(fd, stat.S_IMODE(old.st_mode))
    if hasattr(os, "fchown") and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(fd, old.st_uid, old.st_gid)
        except PermissionError:
            pass  # not ours to give away; the mode, which is what others read it by, is kept


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
