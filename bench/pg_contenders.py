"""What `postgres.py` measures against each other on one server: dibs, procrastinate's worker and pgbench.

A contender fills a database once with `fill(url, tasks)`; each measurement gets its own copy of that database, so
that all rounds begin alike. `race(url, connections, seconds)` lets that many connections claim and complete for that
long and returns a `common.Run`; `completed(url)` is what the database itself says afterwards. Nothing is added to
anybody's schema.
"""

import asyncio
import os
import re
import shutil
import subprocess
import time
from glob import glob
from urllib.parse import urlsplit, urlunsplit

import common
from contenders import Dibs, DibsHandle, description

CHUNK = 20_000
# Of the names of databases, on a server that may have others.
PREFIX = "dibs-bench-"
# The exit code of a script that has no server to measure.
ABSENT = 77
# psycopg prepares a statement when it has seen it five times, so each process shows it everything that often first.
WARM_UP = 6
SETTINGS = (
    "server_version",
    "shared_buffers",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
    "max_connections",
)


# Databases


class Databases:
    """The databases of one server: filled once under a name, handed out as copies.

    `url` names a role that may create databases, `admin` one that may order a checkpoint.
    """

    def __init__(self, url, admin):
        self.url = url
        self.admin = admin
        self._made = []

    def at(self, name):
        """The URL of database `name`."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{PREFIX}{name}"))

    def new(self, name, template=None):
        """Make database `name`, empty or a copy of another one of ours."""
        like = f'TEMPLATE "{PREFIX}{template}"' if template else ""
        _execute(self.url, f'CREATE DATABASE "{PREFIX}{name}" {like}')
        self._made.append(name)
        return self.at(name)

    def fill(self, name, build, *args):
        """Make database `name`, unless there is one, and let `build(url, *args)` fill it in a child process."""
        if name not in self._made:
            common.say(f"building {name}")
            url = self.new(name)
            common.in_child(build, url, *args)
            _execute(url, "VACUUM (FREEZE, ANALYZE)")
            self.settle()
        return self.at(name)

    def copy(self, name):
        """A fresh copy of database `name`, on disk before it is used."""
        url = self.new(f"{name}-copy", name)
        self.settle()
        return url

    def settle(self):
        """Write all there is, so that a measurement does not pay for what came before it."""
        _execute(self.admin, "CHECKPOINT")

    def drop(self, url):
        name = urlsplit(url).path[1:]
        _execute(self.admin, f'DROP DATABASE "{name}" WITH (FORCE)')
        self._made.remove(name.removeprefix(PREFIX))

    def drop_all(self):
        for name in list(self._made):
            self.drop(self.at(name))

    def settings(self):
        """The server's version and what a reader wants to know of its configuration."""
        return {name: _execute(self.url, f"SHOW {name}")[0][0] for name in SETTINGS}


def _execute(url, statement):
    import psycopg

    with psycopg.connect(libpq(url), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def libpq(url):
    """`url` without what only dibs understands, for programs that talk to the server themselves."""
    parts = urlsplit(url)
    kept = [word for word in parts.query.split("&") if word and not word.startswith("board=")]
    return urlunsplit(parts._replace(query="&".join(kept)))


def race(work, processes, *args, warm_ups):
    """`common.race`, keeping how many tasks were completed before the start."""
    run = common.race(work, processes, *args)
    run.warm_ups = warm_ups
    return run


def check(name, run, completed):
    """A run counts only if each task was done once and the database agrees on how many there were."""
    if run.doubles or run.errors or completed != run.done + run.warm_ups:
        raise SystemExit(
            f"{name}: {run.done} done and {run.warm_ups} before the start, {completed} completed in the database, "
            f"{run.doubles} done twice, {run.errors} errors {sorted(run.messages)[:3]}"
        )


# dibs


class PostgresDibs(Dibs):
    """dibs with two calls for each task, one process and one connection for each worker."""

    def fill(self, url, tasks):
        from dibs import TaskBoard

        with TaskBoard.open(url, create=True) as board:
            for start in range(0, tasks, CHUNK):
                numbers = range(start, min(start + CHUNK, tasks))
                board.add_many([{"description": description(number)} for number in numbers])

    def open(self, url, _sync, worker):
        return PostgresDibsHandle(url, worker)

    def race(self, url, connections, seconds=None, steps=None):
        work = (self, url, "full", seconds, steps, WARM_UP)
        return race(common.drain, connections, *work, warm_ups=connections * WARM_UP)

    def completed(self, url):
        return common.in_child(_completed_by_dibs, url)


class PostgresDibsHandle(DibsHandle):
    def __init__(self, url, worker):
        from dibs import TaskBoard

        self.board = TaskBoard.open(url)
        self.worker = worker


def _completed_by_dibs(url):
    from dibs import TaskBoard

    with TaskBoard.open(url) as board:
        return board.completed_count


# procrastinate


class Procrastinate:
    """procrastinate's own worker with a no-op coroutine as its task: a claim, a call and a completion for each job.

    Each worker process has a pool of `share` connections and that much `concurrency`. Jobs are kept when they are done,
    as dibs keeps tasks, and no connection listens for new ones, as there are always some. Connections that are `lean`
    are in autocommit mode and not checked before each use: one round trip for a statement instead of four, and the same
    promise, since each step of the worker is one statement.
    """

    def __init__(self, name, *, share=1, lean=False):
        self.name = name
        self.share = share
        self.lean = lean

    fixture = "procrastinate"

    def fill(self, url, tasks):
        app = _app(url, 1, lean=False)
        task = app.task(name="work")(_nothing)
        with app.open():
            app.schema_manager.apply_schema()
            for start in range(0, tasks, CHUNK):
                numbers = range(start, min(start + CHUNK, tasks))
                task.batch_defer(*[{"description": description(number)} for number in numbers])

    def race(self, url, connections, seconds):
        share = min(self.share, connections)
        processes = connections // share
        return race(_work_off, processes, url, share, self.lean, seconds, warm_ups=processes * WARM_UP)

    def completed(self, url):
        return _execute(url, "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")[0][0]


async def _nothing(description):
    return None


def _app(url, connections, *, lean):
    import procrastinate
    import psycopg_pool

    class UncheckedPool(psycopg_pool.AsyncConnectionPool):
        def __init__(self, **settings):
            super().__init__(**{**settings, "check": None})

    settings = {"conninfo": url, "min_size": connections, "max_size": connections}
    if lean:
        settings |= {"kwargs": {"autocommit": True}, "pool_factory": UncheckedPool}
    return procrastinate.App(connector=procrastinate.PsycopgConnector(**settings))


def _work_off(sample, barrier, _number, url, connections, lean, seconds):
    """Work for `race`: one worker process of `connections` connections. Its first jobs are its warm-up."""
    clock = time.perf_counter
    jobs = 0

    async def work():
        app = _app(url, connections, lean=lean)
        worker = None

        @app.task(name="work", pass_context=True)
        async def step(context, description):
            nonlocal jobs
            jobs += 1
            if jobs == WARM_UP + 1:
                # The whole process stands here until all the others have come as far.
                barrier.wait(common.START_LIMIT)
                sample.started = clock()
                asyncio.get_running_loop().call_later(seconds, worker.cancel)
            if sample.started:
                sample.ids.append(context.job.id)

        async with app.open_async():
            running = app.run_worker_async(
                concurrency=connections, listen_notify=False, wait=True, install_signal_handlers=False
            )
            worker = asyncio.ensure_future(running)
            try:
                await worker
            except asyncio.CancelledError:
                sample.ended = clock()

    asyncio.run(work())


# pgbench


class Pgbench:
    """`pgbench -N`: an update, a select and an insert in a transaction, about what a claim or a complete writes.

    A pair of its transactions stands for one claim+complete.
    """

    SCALE = 20

    def __init__(self, name, mode):
        self.name = name
        self.mode = mode

    fixture = "pgbench"

    @staticmethod
    def program():
        """Where pgbench is, if it is anywhere: in the path, or beside the server's programs."""
        places = ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"]
        beside = sorted((folder for place in places for folder in glob(place)), reverse=True)
        return shutil.which("pgbench") or shutil.which("pgbench", path=os.pathsep.join(beside))

    def fill(self, url, scale):
        command = [self.program(), "-i", "-q", "-s", str(scale), libpq(url)]
        subprocess.run(command, check=True, capture_output=True)

    def rate(self, url, connections, seconds):
        """Pairs of transactions per second, without the time for connecting."""
        command = [self.program(), "-N", "-n", "-M", self.mode, "-c", str(connections), "-j", str(min(2, connections))]
        command += ["-T", str(max(1, round(seconds))), libpq(url)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"tps = ([\d.]+)", ended.stdout)
        if ended.returncode or not found:
            raise SystemExit(f"pgbench failed: {ended.stderr.strip() or ended.stdout}")
        return float(found[1]) / 2
