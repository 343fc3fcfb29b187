"""The task queues that the bench scripts drive, behind one small interface.

A contender fills a board once with `fill`, and each worker process gets its own handle from `open`. One
`step` of a handle claims one task and completes it, durably, and returns the task's id, or None when
nothing is left; `claim` and `complete` are the same as single calls, for latency figures. Every contender
is used through its own public constructor, with a long lock timeout and the same `synchronous`
setting; nothing is added to its schema.
"""

import os

LOCK_TIMEOUT = 120


class Contender:
    """A kind of queue. Stateless, so that it can be sent to a worker process."""

    name = ""

    @property
    def fixture(self):
        """Contenders that differ only in how they are called share what `fill` makes."""
        return self.name.split(",")[0]

    def fill(self, folder, tasks):
        """Create the queue in `folder` with `tasks` tasks waiting."""
        raise NotImplementedError

    def open(self, folder, sync, worker):
        """A handle for one worker process; `sync` is "full" or "normal"."""
        raise NotImplementedError


class Handle:
    """One worker's connection: either `step` or the pair `claim` and `complete` is given by the subclass."""

    def claim(self):
        raise NotImplementedError

    def complete(self, task):
        raise NotImplementedError

    def identify(self, task):
        return task

    def step(self):
        task = self.claim()
        if task is None:
            return None
        self.complete(task)
        return self.identify(task)

    def close(self):
        pass


def description(number):
    return f"do the thing number {number}"


class Dibs(Contender):
    """dibs with two calls for each task: `board.claim(worker)`, then `task.complete(result)`."""

    name = "dibs"

    def fill(self, folder, tasks):
        from dibs import TaskBoard

        board = TaskBoard.open(f"sqlite:{folder}/board.db", create=True)
        board.add_many([{"description": description(number)} for number in range(tasks)])
        board.close()

    def open(self, folder, sync, worker):
        return DibsHandle(folder, sync, worker)


class DibsHandle(Handle):
    def __init__(self, folder, sync, worker):
        from dibs import TaskBoard

        self.board = TaskBoard.open(f"sqlite:{folder}/board.db", durability=sync)
        self.worker = worker

    def claim(self):
        return self.board.claim(self.worker)

    def complete(self, task):
        task.complete("done")

    def identify(self, task):
        return task.id

    def close(self):
        self.board.close()


class DibsClaimNext(Dibs):
    """dibs with one call for each task: `task.complete(result, claim_next=True)`."""

    name = "dibs, claim_next"

    def open(self, folder, sync, worker):
        return DibsClaimNextHandle(folder, sync, worker)


class DibsClaimNextHandle(DibsHandle):
    def __init__(self, folder, sync, worker):
        super().__init__(folder, sync, worker)
        self.task = None

    def step(self):
        task = self.task or self.board.claim(self.worker)
        if task is None:
            return None
        self.task = task.complete("done", claim_next=True)
        return task.id

    def close(self):
        if self.task is not None:
            self.task.release()
        super().close()


class LiteQueue(Contender):
    """litequeue: `pop`, then `done`."""

    name = "litequeue"

    def fill(self, folder, tasks):
        import litequeue

        queue = litequeue.LiteQueue(f"{folder}/litequeue.db")
        with queue.transaction():
            for number in range(tasks):
                queue.put(description(number))
        queue.close()

    def open(self, folder, sync, worker):
        return LiteQueueHandle(folder, sync)


class LiteQueueHandle(Handle):
    def __init__(self, folder, sync):
        import litequeue

        self.queue = litequeue.LiteQueue(f"{folder}/litequeue.db", timeout=LOCK_TIMEOUT)
        self.queue.conn.execute(f"PRAGMA synchronous={sync}")

    def claim(self):
        return self.queue.pop()

    def complete(self, task):
        self.queue.done(task.message_id)

    def identify(self, task):
        return task.message_id

    def close(self):
        self.queue.close()


class Huey(Contender):
    """huey's SqliteStorage, as its consumer uses it: `dequeue`, then `put_data` of the result."""

    name = "huey"

    def fill(self, folder, tasks):
        storage = _huey_storage(folder, "normal")
        storage.conn.execute("PRAGMA synchronous=OFF")
        for number in range(tasks):
            storage.enqueue(description(number).encode())
        storage.close()

    def open(self, folder, sync, worker):
        return HueyHandle(folder, sync)


class HueyHandle(Handle):
    def __init__(self, folder, sync):
        self.storage = _huey_storage(folder, sync)

    def claim(self):
        return self.storage.dequeue()

    def complete(self, task):
        self.storage.put_data(bytes(task).decode(), b"done", is_result=True)

    def identify(self, task):
        return bytes(task).decode()

    def close(self):
        self.storage.close()


def _huey_storage(folder, sync):
    from huey.storage import SqliteStorage

    storage = SqliteStorage("bench", f"{folder}/huey.db", fsync=True, timeout=LOCK_TIMEOUT)
    if sync == "normal":
        storage.conn.execute("PRAGMA synchronous=NORMAL")
    return storage


class PersistQueue(Contender):
    """persist-queue's SQLiteAckQueue: `get`, then `ack`."""

    name = "persist-queue"

    def fill(self, folder, tasks):
        queue = _ack_queue(folder, "full")
        # Its put commits each item; one at a time with an fsync each would take minutes.
        queue._putter.execute("PRAGMA synchronous=OFF")
        for number in range(tasks):
            queue.put(description(number))
        queue.close()

    def open(self, folder, sync, worker):
        return PersistQueueHandle(folder, sync)


class PersistQueueHandle(Handle):
    def __init__(self, folder, sync):
        import persistqueue

        self.empty = persistqueue.exceptions.Empty
        self.queue = _ack_queue(folder, sync)

    def claim(self):
        try:
            return self.queue.get(block=False, raw=True)
        except self.empty:
            return None

    def complete(self, task):
        self.queue.ack(task)

    def identify(self, task):
        return task["pqid"]

    def close(self):
        self.queue.close()


def _ack_queue(folder, sync):
    import persistqueue

    # auto_resume would hand every task that another process is working on to this one.
    queue = persistqueue.SQLiteAckQueue(
        os.path.join(folder, "persistqueue"), multithreading=True, timeout=LOCK_TIMEOUT, auto_resume=False
    )
    queue._getter.execute(f"PRAGMA synchronous={sync}")
    queue._putter.execute(f"PRAGMA synchronous={sync}")
    return queue


class BusyTimeout(Contender):
    """A hand-written claim on apsw with a partial index and SQLite's own `busy_timeout` instead of a gate."""

    name = "hand-written, busy_timeout"

    def fill(self, folder, tasks):
        import apsw

        connection = apsw.Connection(f"{folder}/plain.db")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(
            """
            CREATE TABLE task (seq INTEGER PRIMARY KEY, description TEXT NOT NULL, status TEXT NOT NULL,
                               priority INTEGER NOT NULL, holder TEXT, expires REAL, result TEXT);
            CREATE INDEX ready ON task (priority DESC, seq) WHERE status = 'pending';
            """
        )
        with connection:
            connection.executemany(
                "INSERT INTO task (description, status, priority) VALUES (?, 'pending', 0)",
                ((description(number),) for number in range(tasks)),
            )
        connection.close()

    def open(self, folder, sync, worker):
        return BusyTimeoutHandle(folder, sync, worker)


class BusyTimeoutHandle(Handle):
    CLAIM = """
        UPDATE task SET status = 'in_progress', holder = ?, expires = unixepoch('subsec') + 3600
        WHERE seq = (SELECT seq FROM task WHERE status = 'pending' ORDER BY priority DESC, seq LIMIT 1)
        RETURNING seq"""
    COMPLETE = "UPDATE task SET status = 'completed', expires = NULL, result = 'done' WHERE seq = ? AND holder = ?"

    def __init__(self, folder, sync, worker):
        import apsw

        self.connection = apsw.Connection(f"{folder}/plain.db")
        self.connection.set_busy_timeout(LOCK_TIMEOUT * 1000)
        self.connection.execute(f"PRAGMA synchronous={sync}")
        self.worker = worker

    def claim(self):
        # BEGIN IMMEDIATE: a deferred transaction that has read can not wait for the write lock, it fails.
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        row = execute(self.CLAIM, (self.worker,)).fetchone()
        execute("COMMIT")
        return row[0] if row else None

    def complete(self, task):
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute(self.COMPLETE, (task, self.worker))
        execute("COMMIT")

    def close(self):
        self.connection.close()


OURS = (Dibs(), DibsClaimNext())
OTHERS = (LiteQueue(), Huey(), PersistQueue())
