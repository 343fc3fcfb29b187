"""What every bench script shares: options, work folders, fixture boards and the process harness.

A script builds its boards under one temporary folder on the file system of `--out` (never the system's
temporary folder, which may be a RAM disk where fsync costs nothing), runs its contenders in turn for
several rounds so that noise on a shared machine meets all of them alike, takes medians, and hands its
figures to report.py.
"""

import argparse
import os
import queue
import shutil
import sys
import tempfile
import time
import traceback
from array import array
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context
from threading import BrokenBarrierError

# Workers must be as separate as real ones: no inherited connection, no inherited heap.
CONTEXT = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
START_LIMIT = 120
BATCH = 100_000
RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


# Options


def arguments(module_head, *, seconds, rounds, processes=None):
    """The options that all scripts take; a script adds its own to what this returns."""
    parser = argparse.ArgumentParser(description=module_head.split("\n\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="a smoke run of a few seconds; its figures mean nothing")
    add("--seconds", type=float, default=seconds, help="length of one measurement (default %(default)s)")
    add("--rounds", type=int, default=rounds, help="interleaved repetitions (default %(default)s)")
    if processes:
        shown = ",".join(map(str, processes))
        add("--processes", type=numbers, default=processes, metavar="N,…", help=f"counts (default {shown})")
        add("--sync", choices=("full", "normal"), default="full", help="synchronous setting (default full)")
    add("--out", default=RESULTS, metavar="DIR", help="for the JSON and the PNG; boards are built there too")
    add("--fixtures", metavar="DIR", help="keep fixture boards here, for other scripts to copy")
    return parser


def numbers(text):
    return tuple(int(part.replace("_", "")) for part in text.split(","))


# Folders and fixture boards


@contextmanager
def work_folder(out):
    """A folder for boards beside the results, gone at the end whatever happens."""
    os.makedirs(out, exist_ok=True)
    if file_system(out) in ("tmpfs", "ramfs"):
        say("warning: --out is on a RAM disk, where synchronous=FULL costs nothing")
    folder = tempfile.mkdtemp(prefix=".work-", dir=out)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def file_system(folder):
    """The type of the file system that holds `folder`, from the longest mount point above it."""
    path = os.path.realpath(folder)
    best = ("", "unknown")
    try:
        with open("/proc/self/mounts", encoding="utf-8") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return "unknown"
    for point, kind in mounts:
        inside = point == "/" or path == point or path.startswith(point + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


class Fixtures:
    """Boards that are built once, in a child process, and handed out as copies."""

    def __init__(self, options, folder):
        self.folder = options.fixtures or os.path.join(folder, "fixtures")
        os.makedirs(self.folder, exist_ok=True)

    def get(self, name, build, *args):
        """The folder `name`, filled by `build(folder, *args)` unless it is there already."""
        target = os.path.join(self.folder, name)
        if not os.path.isdir(target):
            say(f"building {name}")
            partial = tempfile.mkdtemp(prefix=".partial-", dir=self.folder)
            in_child(build, partial, *args)
            os.rename(partial, target)
        return target

    def copy(self, name, target):
        """A fresh copy of fixture `name` at `target`, on disk before it is used."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(os.path.join(self.folder, name), target)
        settle(target)
        return target


def settle(folder):
    """Flush `folder`, so that a measurement does not pay for the writes that prepared it."""
    for parent, _folders, files in os.walk(folder):
        for name in files:
            descriptor = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def build_plain(folder, tasks):
    """A dibs board of `tasks` tasks, all ready."""
    _build(folder, ({"description": f"do the thing number {number}"} for number in range(tasks)))


def build_chains(folder, tasks, chain=10, blocked=0.3):
    """A dibs board of chains of dependent tasks, a share of them blocked for good and in front by priority.

    Every completion makes the next task of its chain ready. The blocked chains wait for one task of the
    lowest priority.
    """
    in_front = int(tasks * blocked) // chain * chain

    def rows():
        yield {"id": "keystone", "description": "never reached", "priority": -100}
        for number in range(tasks - 1):
            first = number % chain == 0
            row = {"id": f"t{number}", "description": f"do the thing number {number}"}
            if number < in_front:
                row["priority"] = 100
                row["depends_on"] = ["keystone" if first else f"t{number - 1}"]
            elif not first:
                row["depends_on"] = [f"t{number - 1}"]
            yield row

    _build(folder, rows())


def _build(folder, rows):
    from dibs import TaskBoard

    board = TaskBoard.open(board_url(folder), create=True)
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            board.add_many(batch)
            batch = []
    if batch:
        board.add_many(batch)
    board.close()


def board_url(folder):
    return f"sqlite:{folder}/board.db"


# Processes


class Sample:
    """What one worker process did: the ids it completed, how long each call took, and what went wrong."""

    def __init__(self):
        self.ids = []
        self.latencies = array("d")
        self.errors = {}
        self.started = self.ended = 0.0

    def fail(self, error):
        name = f"{type(error).__name__}: {error}"
        self.errors[name] = self.errors.get(name, 0) + 1


class Run:
    """The samples of all processes of one measurement, and what follows from them."""

    def __init__(self, samples):
        self.samples = samples
        counts = [len(sample.ids) for sample in samples]
        distinct = len({identity for sample in samples for identity in sample.ids})
        self.done = distinct
        self.doubles = sum(counts) - distinct
        self.errors = sum(sum(sample.errors.values()) for sample in samples)
        self.messages = {message for sample in samples for message in sample.errors}
        self.elapsed = max(sample.ended for sample in samples) - min(sample.started for sample in samples)
        self.rate = distinct / self.elapsed
        self.least, self.most = min(counts), max(counts)
        self.latencies = sorted(latency for sample in samples for latency in sample.latencies)

    def percentile(self, percent):
        """A latency in milliseconds."""
        return percentile(self.latencies, percent) * 1000


def percentile(ordered, percent):
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def race(work, processes, *args):
    """Run `work(sample, barrier, number, *args)` in `processes` processes that start together: a Run.

    `work` opens what it needs, waits at the barrier, sets `sample.started`, and at its end `sample.ended`.
    """
    barrier = CONTEXT.Barrier(processes)
    answers = CONTEXT.Queue()
    workers = [
        CONTEXT.Process(target=_racer, args=(work, answers, barrier, number, args), daemon=True)
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    try:
        samples = [_answer(answers, workers) for _ in workers]
    finally:
        for worker in workers:
            worker.join(timeout=10)
            if worker.is_alive():
                worker.kill()
                worker.join()
    return Run(samples)


def in_child(function, *args):
    """The result of `function(*args)`, run in a child process: this one stays small and opens no board."""
    answers = CONTEXT.Queue()
    child = CONTEXT.Process(target=_caller, args=(function, answers, args))
    child.start()
    result = _answer(answers, [child])
    child.join()
    return result


def _racer(work, answers, barrier, number, args):
    sample = Sample()
    try:
        work(sample, barrier, number, *args)
    except BrokenBarrierError:
        answers.put((False, ""))
    except BaseException:
        answers.put((False, traceback.format_exc()))
        barrier.abort()
    else:
        answers.put((True, sample))


def _caller(function, answers, args):
    try:
        answers.put((True, function(*args)))
    except BaseException:
        answers.put((False, traceback.format_exc()))


def _answer(answers, workers):
    while True:
        try:
            good, value = answers.get(timeout=5)
        except queue.Empty:
            dead = [worker for worker in workers if worker.exitcode not in (None, 0)]
            if dead and answers.empty():
                raise SystemExit(f"a worker process died with exit code {dead[0].exitcode}") from None
            continue
        if good:
            return value
        # One whose barrier broke only follows another that has more to tell.
        if value:
            raise SystemExit(f"a worker process failed:\n{value}")


def drain(sample, barrier, number, contender, folder, sync, seconds=None, steps=None, warm_up=0):
    """Work for `race`: claim and complete until `seconds` are over, `steps` are done or nothing is left."""
    handle = contender.open(folder, sync, f"worker-{number}")
    for _ in range(warm_up):
        handle.step()
    clock = time.perf_counter
    barrier.wait(START_LIMIT)
    # The monotonic clock is the same in all processes, so these can be compared across them.
    sample.started = now = clock()
    end = now + seconds if seconds else float("inf")
    left = steps or sys.maxsize
    while now < end and left:
        before = now
        try:
            identity = handle.step()
        except Exception as error:
            sample.fail(error)
            now = clock()
            continue
        now = clock()
        if identity is None:
            break
        sample.ids.append(identity)
        sample.latencies.append(now - before)
        left -= 1
    sample.ended = now
    handle.close()


def say(text):
    print(text, file=sys.stderr, flush=True)
