"""A board in one SQLite file, shared by any number of processes of one machine.

Files: `board.db` (and SQLite's `-wal` and `-shm` beside it), `board.db-lock` (the gate), `board.db-sync` (who has
synced what).

Writing: take the gate (a blocking lock on `board.db-lock`, so that writers queue in order instead of sleeping and
retrying), `BEGIN IMMEDIATE`, the block, `COMMIT`, count the commit, open the gate. With full durability (the default)
the call then waits until its commit is on the disk, outside the gate and together with others: see `groupcommit`.
This is what `synchronous=FULL` promises, and it is why the connection runs with `synchronous=NORMAL`: SQLite then
syncs at checkpoints only, and keeps the file consistent by itself.

What a crash leaves: SIGKILL anywhere loses the open transaction, nothing else; locks end with the process. After a
power failure the WAL is valid up to the last synced commit at least.

Creating: the schema is made in a temporary file which is linked to its name when it is complete, so a board exists
whole or not at all. Not beside the `-wal`, `-shm` or `-sync` of a board whose main file is gone: SQLite would take old
pages into the new board. A file that is not a board, is damaged, or was made by a newer dibs is refused and left as it
is.

Threads share one connection and take turns. Before a fork every connection is closed, and both sides open their own
when they next need one.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from _weakref import ref

import apsw

from dibs import fs
from dibs.clock import Clock
from dibs.clock import read as read_clock
from dibs.errors import BoardUnusable, DibsError, Invalid, NoBoard, OutcomeUnknown
from dibs.ids import random_ids
from dibs.model import COMPLETED, TaskStatus
from dibs.stores.clock_jump import move_leases
from dibs.stores.rows import damaged
from dibs.stores.sqlite import queries as q
from dibs.stores.sqlite.errors import BUSY_MS, foreign, leftover, moved, read_only, second_name, translate, unconfirmed
from dibs.stores.sqlite.gate import Gate
from dibs.stores.sqlite.group_commit import GroupCommit
from dibs.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, MOVED, MOVED_ID
from dibs.stores.sqlite.tx import SqlTx, contains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Any

    from dibs.model import BoardTask, Event, Worker

    Row = tuple[Any, ...]

WAL_PAGES = 4000
"""Checkpoint when the WAL has this many pages (8 MB)."""
WAL_BYTES = 32 * 1024 * 1024
"""The WAL file is cut back to this size when it is reset."""
GLANCES = 30
"""Looks at the gate before a writer falls asleep in front of it: most are through in less than being woken takes. Who
looks may be quicker than who was woken: see `GroupCommit.should_queue`."""
QUIET = 5.0
"""Seconds without a change after which whoever waits looks less often."""
PAGE = 2048

_stores: dict[int, ref[SqliteStore]] = {}
_paused: list[SqliteStore] = []


def _before_fork() -> None:
    """Close every connection, with no transaction and no sync under way: SQLite's bookkeeping of its locks does not
    survive a fork. Both sides open their own when they next need one."""
    for known in list(_stores.values()):
        store = known()
        if store is not None:
            # In this order: whoever waits for the disk may need the connection, to write through what a sync has lost.
            store._sync_turn.acquire()
            store._turn.acquire()
            store._close_connection()
            store._syncs.close_wal()
            _paused.append(store)


def _after_fork() -> None:
    while _paused:
        store = _paused.pop()
        store._turn.release()
        store._sync_turn.release()


def _after_fork_in_child() -> None:
    # A lock on an open file is shared with the copies that a fork makes: ours would outlive the parent's death.
    for store in _paused:
        store._syncs.close()
        store._gate.close()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def side_files(path: str) -> tuple[str, str]:
    """The gate and the sync marks of the board at `path`: beside it, with its whole name as SQLite does for its own."""
    return path + "-lock", path + "-sync"


class SqliteStore:
    lease: float | None = None
    streams = True
    """Does `restore` go over its rows instead of keeping them?"""
    satisfied_by: tuple[TaskStatus, ...] = (COMPLETED,)

    def __init__(
        self,
        path: str,
        *,
        create: bool = False,
        durability: str = "full",
        clock: Clock | None = None,
        place: str | None = None,
        sync: Any = fs.sync_data,
    ) -> None:
        if durability not in ("full", "normal"):
            raise Invalid(f"{durability!r} is not a durability", hint="one of: full, normal")
        self.path = os.path.abspath(path)
        self.url = f"sqlite:{self.path}"
        self.place = place
        self._clock = clock or Clock()
        self._boot = self._clock.boot()
        self._full = durability == "full"
        self._turn = allocate_lock()
        self._sync_turn = allocate_lock()
        self._sync = sync
        self._syncs = self._new_syncs()
        self._connection: apsw.Connection | None = None
        self._pid = 0
        self._is_fixed = False
        """Is it on a disk that is mounted for reading only?"""
        self._gate = Gate(self.path)
        self._file: tuple[int, int] | None = None
        self._stirred = time.monotonic()
        """When somebody who waits here last saw a change, or opened the board."""
        # From here on a fork waits for whatever this store is doing with SQLite, opening and closing included.
        _stores[id(self)] = ref(self)
        with self._turn:
            if create:
                self._create()
            self._open()

    # -- opening

    def _create(self) -> None:
        if os.path.exists(self.path):
            return
        left = [self.path + suffix for suffix in ("-wal", "-shm", "-sync") if os.path.lexists(self.path + suffix)]
        if left and not os.path.exists(self.path):  # else another process has just made the board, and works in it
            raise leftover(self.path, left)
        folder = os.path.dirname(self.path)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise BoardUnusable(f"cannot make the folder {folder}: {error.strerror}", path=self.path) from error
        self._refuse_network(folder)
        draft = f"{self.path}.new-{os.getpid()}-{time.monotonic_ns()}"
        connection = None
        try:
            connection = apsw.Connection(draft)
            connection.execute(
                f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"
            ).fetchall()
            _migrate(connection, 0)
            connection.close()
            try:
                os.link(draft, self.path)
            except FileExistsError:
                return  # another process made the board in the meantime: use that one
            except OSError:
                if os.path.exists(self.path):
                    return
                os.rename(draft, self.path)  # a file system without hard links
            fs.sync_directory(folder)
        except apsw.Error as error:
            raise translate(error, self.path) from error
        finally:
            if connection is not None:
                connection.close()
            for suffix in ("", "-wal", "-shm"):
                try:
                    os.unlink(draft + suffix)
                except OSError:
                    pass

    def _refuse_network(self, folder: str) -> None:
        kind = fs.network_file_system(folder)
        if kind:
            raise BoardUnusable(
                f"{folder} is on a network file system ({kind}), whose locks cannot keep a board safe",
                hint="keep it on a local disk (--board sqlite:/LOCAL/PATH/board.db), or share it through PostgreSQL",
                path=self.path,
            )

    def _open(self) -> None:
        path = self.path
        # Never open the file itself here to look at it: closing it would drop the POSIX locks that another connection
        # of this process has on it.
        if not os.path.exists(path):
            raise NoBoard(f"there is no board at {path}", hint="make one with: dibs init", path=path)
        if os.path.isdir(path):
            raise foreign(self.path, "is a folder")
        if not os.path.isfile(path):  # SQLite would wait for the other end of a pipe, and nothing could end that
            raise foreign(self.path, "is not a dibs board but a pipe or a device")
        if os.stat(path).st_nlink > 1 and _has_second_name(path):
            raise second_name(path)
        for suffix in ("-wal", "-shm", "-journal"):
            # SQLite would wait for a pipe, and write into whatever else a hard link names.
            if fs.is_shared(os.path.realpath(path) + suffix):
                raise foreign(path + suffix, "is a link, a pipe or a folder, and not the board's own file")
        self._refuse_network(os.path.dirname(path))
        self._refuse_foreign()
        self._file = self._file_there()
        self._is_fixed = fs.is_read_only(path)
        try:
            name, flags = path, apsw.SQLITE_OPEN_READWRITE
            if self._is_fixed:
                name, flags = for_reading(path)
            connection = apsw.Connection(name, flags=flags | apsw.SQLITE_OPEN_NOMUTEX)
            self._connection = connection
            connection.set_busy_timeout(BUSY_MS)
            # Without this the engine compiles a statement anew whenever a bound value might suggest another plan: 30 µs
            # instead of 2 for the query of every claim, and ours have one right plan each (a test sees to it).
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            cursor = connection.cursor()
            self._cursor = cursor
            connection.create_scalar_function("contains", contains, 2, deterministic=True)
            application_id = self._rows("PRAGMA application_id")[0][0]
            if application_id == MOVED_ID:
                raise moved(path, self._rows(q.MOVED_TO))
            if application_id != APPLICATION_ID:
                raise foreign(
                    self.path,
                    "is not a dibs board" if os.path.getsize(path) else "is empty: something else has half-made it",
                )
            cursor.execute(
                f"PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {WAL_PAGES}; "
                f"PRAGMA journal_size_limit = {WAL_BYTES}; PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY"
            ).fetchall()
            version = self._rows("PRAGMA user_version")[0][0]
            if version > len(MIGRATIONS):
                raise BoardUnusable(
                    f"{path} was written by a newer dibs (schema {version}; this one knows {len(MIGRATIONS)}); "
                    "it was left as it is",
                    hint="upgrade: pip install --upgrade dibs",
                    path=path,
                )
            self._open_side_files()
            if version < len(MIGRATIONS) and not self._is_fixed:
                try:
                    self._gate.take()
                    _migrate(connection, version)
                finally:
                    fs.let_go(self._gate.file, fs.UNLOCK)
        except apsw.Error as error:
            self._shut()
            raise translate(error, self.path) from error
        except BaseException:
            self._shut()
            raise
        self._pid = os.getpid()

    def _refuse_foreign(self) -> None:
        """Look at the header before anything is created or recovered here.

        Through SQLite's own file object: its close minds the POSIX locks that other connections of this process have,
        which a plain `os.close` would drop.
        """
        try:
            file = apsw.VFSFile("", self.path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
            try:
                header = file.xRead(100, 0)
            finally:
                file.xClose()
        except apsw.Error as error:
            raise translate(error, self.path) from error
        if not header:
            raise foreign(self.path, "is empty: something else has half-made it")
        if header[:16] != b"SQLite format 3\0" or int.from_bytes(header[68:72], "big") not in (
            APPLICATION_ID,
            MOVED_ID,
        ):
            raise foreign(self.path, "is not a dibs board, or is damaged beyond recognition")

    def _open_side_files(self) -> None:
        # Only now that the file is known to be a board: a mistyped name must not leave files beside somebody else's.
        gate, marks = side_files(self.path)
        if self._is_fixed:
            return
        try:
            self._gate.open(gate)
            self._syncs.open(marks)
        except OSError as error:
            raise BoardUnusable(
                f"cannot open {error.filename} for writing: {error.strerror}",
                hint="a board needs a folder in which its users may create and write its files",
                path=self.path,
            ) from error

    def close(self) -> None:
        with self._turn:
            self._shut()

    def _shut(self) -> None:
        self._close_connection()
        self._gate.close()
        # A thread that waits for the disk goes on with the files that it has, which its last user closes.
        self._syncs = self._new_syncs()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._file != self._file_there():
                # The WAL is removed by its name when the last connection closes, and the name may be another board's.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()

    def _new_syncs(self) -> GroupCommit:
        return GroupCommit(self.path, self._sync, self._sync_turn)

    def __del__(self) -> None:
        _stores.pop(id(self), None)
        if hasattr(self, "_gate") and self._gate.file >= 0:
            self._shut()

    def _ensure_open(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            if self._file == self._file_there() and not self._is_fixed:
                return
            # Somebody has moved the board away, or put another in its place: whoever comes now works there, not here.
            # Or it is on a read-only disk: others may write to it by another mount without our noticing.
            self._shut()
        self._open()

    def _file_there(self) -> tuple[int, int] | None:
        """Which file bears the board's name now."""
        try:
            about = os.stat(self.path)
        except OSError:
            return None
        return about.st_dev, about.st_ino

    # -- transactions

    def write(self) -> _Write:
        return _Write(self)

    def read(self) -> _Read:
        return _Read(self)

    def retire(self, copy: Callable[[], Event]) -> None:
        """Let `copy` fill another board from this one while nobody else can write here, and mark this one as moved.

        `copy` reads through a connection of its own, and answers with the event that says where the board is now: the
        last one here. A crash before the commit leaves this board as it was, beside a finished or unmade copy.
        """
        with self.write() as tx:
            tx.append([copy()])
            tx.flush()
            self._rows(MOVED)

    def _rows(self, sql: str, values: Row = ()) -> list[Row]:
        try:
            return self._cursor.execute(sql, values).fetchall()
        except UnicodeDecodeError as error:
            raise damaged("a text", error) from error

    def _many(self, sql: str, rows: Iterable[Row]) -> None:
        self._cursor.executemany(sql, rows)

    def _take_turn(self) -> float:
        """Wait for the other threads that write; for how many seconds?"""
        if self._turn.acquire(blocking=False):
            return 0.0
        began = time.monotonic()
        if not self._turn.acquire(timeout=self._gate.patience):
            raise self._gate.busy()
        return time.monotonic() - began

    def _begin_write(self, waited: float) -> SqlTx:
        try:  # from here on: an interruption just behind the lock must not leave it
            self._gate.take(0 if self._syncs.should_queue else GLANCES, waited)
            execute = self._cursor.execute
            execute("BEGIN IMMEDIATE")
            now, moved, shift = self._time()
            tx = SqlTx(self._rows, self._many, now)
            if moved:
                tx.changed = True
                execute(q.SET_ANCHOR, moved)
            if shift:
                move_leases(tx, shift)
            return tx
        except BaseException:
            self._roll_back()
            raise

    def _time(self) -> tuple[float, tuple[str, float] | None, float]:
        """As `clock.read`. The anchor is read in every transaction: another process may have moved it, and the leases
        with it, and the wall clock may have come back since to where we last saw it."""
        rows = self._rows(q.ANCHOR)
        anchor = (rows[0][0], rows[0][1]) if rows else None
        return read_clock(self._clock, anchor, self._boot)

    def _roll_back(self) -> None:
        try:
            try:
                if self._connection is not None and self._connection.in_transaction:
                    self._cursor.execute("ROLLBACK")
            finally:
                fs.let_go(self._gate.file, fs.UNLOCK)
        except (apsw.Error, OSError):
            self._shut()  # which ends both as well

    def _commit(self, tx: SqlTx) -> int:
        """Commit, for a caller that has the gate; the number of this commit, or of the last one if nothing has changed:
        the answer tells of that."""
        if not tx.changed:
            return self._syncs.settle_commit()
        tx.flush()
        ticket = self._syncs.announce_commit()
        try:
            self._cursor.execute("COMMIT")
        except apsw.IOError as error:  # a whole transaction may be in the WAL, for the next recovery to find
            raise unconfirmed(error, self.path) from error
        try:
            self._syncs.count_commit(ticket)
            if ticket % 256 == 0:
                self._bound_wal()
        except (apsw.Error, OSError) as error:
            raise unconfirmed(error, self.path) from error
        return ticket

    def _bound_wal(self) -> None:
        """Readers can keep the WAL from being reset; when it has grown too long, make them wait for once."""
        assert self._connection is not None
        if os.stat(self.path + "-wal").st_size > WAL_BYTES:
            self._connection.set_busy_timeout(1000)
            try:
                self._rows("PRAGMA wal_checkpoint(RESTART)")
            finally:
                self._connection.set_busy_timeout(BUSY_MS)

    def _write_through(self) -> None:
        """After a failed sync: write the whole WAL into the database, and sync that."""
        with self._turn:
            try:
                blocked, pages, written = self._rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]
            except apsw.Error as error:
                raise OutcomeUnknown(
                    f"a write to the disk failed earlier, and writing it again has failed too ({error})",
                    hint="check the disk's health and free space; what is on the board: dibs log",
                    path=self.path,
                ) from error
        if blocked or pages != written:
            raise OutcomeUnknown(
                "a write to the disk failed earlier, and a reader keeps the board from being written again",
                hint="repeat the command in a moment; see: dibs doctor",
                path=self.path,
            )

    # -- waiting

    def new_ids(self, tasks: Sequence[BoardTask]) -> list[str]:
        return random_ids(len(tasks))

    def try_claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> None:
        """Not worth a path of its own: a transaction has no round trips here."""

    def try_complete(self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None) -> None:
        """As `try_claim`."""

    def stable_seq(self) -> int | None:
        return None

    def mark_change(self) -> int:
        if self._is_fixed:
            return 0
        syncs = self._syncs
        if not syncs.is_open or self._pid != os.getpid():
            with self._turn:
                self._ensure_open()
                syncs = self._syncs
        return syncs.committed()

    def wait_change(self, mark: int, timeout: float) -> bool:
        # A look costs one pread of eight bytes: at 40 a second that is little, and it needs no file watcher. Where
        # nothing has happened for a while, many who wait would still add up, so they look less often.
        end = time.monotonic() + timeout
        while self.mark_change() == mark:
            now = time.monotonic()
            if now >= end:
                return False
            time.sleep(min(0.025 if now - self._stirred < QUIET else 0.1, end - now))
        self._stirred = time.monotonic()
        return True


def for_reading(path: str) -> tuple[str, int]:
    """How to open the board's file where nothing can be written: the name and the flags."""
    flags = apsw.SQLITE_OPEN_READONLY
    if os.path.exists(path + "-wal") or not fs.is_read_only(path):
        return path, flags
    # Without a WAL there is nothing but the file; with one, SQLite would want to make the WAL's index.
    from urllib.parse import quote

    return f"file:{quote(path)}?immutable=1", flags | apsw.SQLITE_OPEN_URI


def _has_second_name(path: str) -> bool:
    """Does the file have another name than one that its killed maker has left? That is removed."""
    folder, name = os.path.split(path)
    for other in os.listdir(folder):
        draft = os.path.join(folder, other)
        if other.startswith(f"{name}.new-") and os.path.samefile(draft, path):
            os.unlink(draft)
    return os.stat(path).st_nlink > 1


def _migrate(connection: apsw.Connection, version: int) -> None:
    """Bring a file from one schema number to the newest, in one transaction. The caller has the gate, or the only
    name of the file."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = int(str(connection.execute("PRAGMA user_version").fetchall()[0][0]))
        for number in range(version, len(MIGRATIONS)):
            connection.execute(MIGRATIONS[number]).fetchall()
        connection.execute(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(MIGRATIONS)}"
        ).fetchall()
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


class _Write:
    """`with store.write() as tx`: alone from first read to commit; durable when the block has been left."""

    __slots__ = ("_store", "_tx")

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __enter__(self) -> SqlTx:
        store = self._store
        waited = store._take_turn()
        try:
            store._ensure_open()
            if store._is_fixed:
                raise read_only(store.path)
            self._tx = store._begin_write(waited)
        except BaseException as error:
            store._turn.release()
            if isinstance(error, apsw.Error | OSError):
                raise translate(error, store.path) from error
            raise
        return self._tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._store
        syncs = store._syncs  # where another thread closes the store meanwhile, these are still for this commit
        ticket = 0
        try:
            try:
                if kind is None:
                    ticket = store._commit(self._tx)
            finally:
                try:
                    store._roll_back()  # what is committed stays; the gate opens
                finally:
                    store._turn.release()
            if ticket and store._full:
                syncs.wait_for(ticket, store._write_through)
        except (apsw.Error, OSError) as problem:
            if isinstance(problem, OSError) and not isinstance(problem, DibsError):
                store.close()  # with its locks, whatever has become of them
            raise (unconfirmed if ticket else translate)(problem, store.path) from problem
        if isinstance(error, apsw.Error):
            raise translate(error, store.path) from error


class _Read:
    """`with store.read() as tx`: one consistent state; takes neither gate nor write lock."""

    __slots__ = ("_store",)

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __enter__(self) -> SqlTx:
        store = self._store
        store._turn.acquire()
        try:
            store._ensure_open()
            execute = store._cursor.execute
            execute("BEGIN")
            now, _, shift = store._time()
            # A reader cannot move the leases, so after a jump it stays in the time in which they are written.
            return SqlTx(store._rows, store._many, now - shift)
        except BaseException as error:
            if store._connection is not None and store._connection.in_transaction:
                store._cursor.execute("ROLLBACK")
            store._turn.release()
            if isinstance(error, apsw.Error):
                raise translate(error, store.path) from error
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._store
        try:
            store._cursor.execute("ROLLBACK")
        finally:
            store._turn.release()
        if isinstance(error, apsw.Error):
            raise translate(error, store.path) from error
