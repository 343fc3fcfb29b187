"""What the processes of the tests do: `python -m tests.processes.actors ROLE ARGUMENT…` runs the function of that name.

A line is said in one write, after the call that it acknowledges has returned.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dibs import BoardTask, DibsError, TaskBoard
from dibs.errors import Busy, DependencyCycle, LeaseLost, NotClaimable
from dibs.jsontext import dumps

PATTERNS = ("src/**", "src/a/**", "src/a/x.py", "src/*/y.py", "src/b", "docs/*.md", "docs/index.md", "**/x.py")


def say(text: str, to: int = 1) -> None:
    os.write(to, text.encode() + b"\n")


def told() -> str:
    """The next line of standard input; the end of a test that has gone away ends the actor too."""
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    return line.strip()


def at_barrier() -> None:
    say("ready")
    os.read(0, 1)


def at(moment: str) -> None:
    """Wait for a moment of the machine's steady clock, the last of it awake, so that all arrive together."""
    until = float(moment)
    time.sleep(max(0.0, until - time.monotonic() - 0.001))
    while time.monotonic() < until:
        pass


# -- claims


def drain(url: str, name: str, journal: str, durability: str = "full") -> None:
    """Claim and complete until there is nothing left, noting each win in a file of its own."""
    board = TaskBoard.open(url, durability=durability)
    chain = int(name.rpartition("-")[2]) % 2 == 1
    at_barrier()
    with open(journal, "a", encoding="ascii") as file:
        task = board.claim(name)
        while task is not None:
            file.write(f"{task.id} {task.token}\n")
            following = task.complete(f"by {name}", claim_next=chain)
            task = following if chain else board.claim(name)
    say("done")


def race(url: str, name: str) -> None:
    """Claim a named task at a given moment, again and again."""
    board = TaskBoard.open(url)
    say("ready")
    while line := told():
        task_id, moment = line.split()
        at(moment)
        try:
            task = board.claim(name, task_id)
            assert task is not None
            say(f"won {task.token}")
        except NotClaimable as error:
            say(f"lost {error.message}")


def tie(url: str, name: str) -> None:
    """Make one task wait for another at a given moment, again and again."""
    board = TaskBoard.open(url, worker=name)
    say("ready")
    while line := told():
        task_id, need, moment = line.split()
        at(moment)
        try:
            board.depend(task_id, [need])
            say("tied")
        except DependencyCycle:
            say("refused")


def weave(url: str, name: str, seed: str, size: str, rounds: str) -> None:
    """Add and drop random dependencies among a few tasks."""
    board = TaskBoard.open(url, worker=name, durability="normal")
    rng = random.Random(int(seed))
    at_barrier()
    tied = refused = 0
    for _ in range(int(rounds)):
        a, b = (f"t{i}" for i in rng.sample(range(int(size)), 2))
        try:
            if rng.random() < 0.2:
                board.undepend(a, [b])
            else:
                board.depend(a, [b])
                tied += 1
        except DependencyCycle:
            refused += 1
        except LookupError:
            pass  # there was no such edge to drop
    say(f"done {tied} {refused}")


# -- locks


def hold(url: str, name: str, folder: str, seed: str, rounds: str) -> None:
    """Lock, leave a trace in the file system for as long as the lock is held, look for traces of others, unlock."""
    board = TaskBoard.open(url, worker=name, durability="normal")
    rng = random.Random(int(seed))
    at_barrier()
    held = refused = 0
    for _ in range(int(rounds)):
        wanted = rng.sample(PATTERNS, rng.choice((1, 1, 2)))
        shared = rng.random() < 0.3
        try:
            board.lock(wanted, name, shared=shared, wait=rng.choice((0.0, 0.05)))
        except Busy:
            refused += 1
            continue
        held += 1
        trace = os.path.join(folder, f"{name} {int(shared)} {' '.join(p.replace('/', ':') for p in wanted)}")
        os.close(os.open(trace, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        for other in os.listdir(folder):
            worker, is_shared, *patterns = other.split(" ")
            if worker != name and not (shared and is_shared == "1"):
                mine = {file for p in wanted for file in files_under(p)}
                theirs = {file for p in patterns for file in files_under(p.replace(":", "/"))}
                if mine & theirs:
                    say(f"overlap {name} has {wanted} and {worker} has {patterns}")
        time.sleep(rng.random() * 0.002)
        os.unlink(trace)
        board.unlock(None, name)
    say(f"done {held} {refused}")


def grab(url: str, name: str, seed: str, rounds: str) -> None:
    """Lock paths, or claim a task that has some, and say from when to when they were surely held.

    The times are those of the machine's steady clock, which all processes share: from after the call that took to
    before the call that gave back.
    """
    board = TaskBoard.open(url, worker=name)
    rng = random.Random(f"{seed} {name}")
    at_barrier()
    held = refused = 0
    for _ in range(int(rounds)):
        wanted = rng.sample(PATTERNS, rng.choice((1, 1, 2)))
        shared = rng.random() < 0.3
        task: BoardTask | None = None
        try:
            if rng.random() < 0.4:
                task = board.claim(name)
                if task is None:
                    refused += 1
                    continue
                wanted, shared = list(task.paths), False
            else:
                board.lock(wanted, name, shared=shared, wait=rng.choice((0.0, 0.0, 0.05)))
        except Busy:
            refused += 1
            continue
        since = time.monotonic()
        held += 1
        time.sleep(rng.random() * 0.003)
        until = time.monotonic()
        if task is None:
            board.unlock(None, name)
        elif rng.random() < 0.5:
            task.release()
        else:
            task.complete("done")
        say(f"held {dumps([since, until, name, shared, wanted])}")
    say(f"done {held} {refused}")


def files_under(pattern: str) -> list[str]:
    """Which files of a small world a pattern covers, spelt out by hand: an oracle without any code of ours."""
    return {
        "src/**": ["src/a/x.py", "src/a/y.py", "src/b/y.py", "src/b/z.py"],
        "src/a/**": ["src/a/x.py", "src/a/y.py"],
        "src/a/x.py": ["src/a/x.py"],
        "src/*/y.py": ["src/a/y.py", "src/b/y.py"],
        "src/b": ["src/b/y.py", "src/b/z.py", "src/b/x.py"],
        "docs/*.md": ["docs/index.md", "docs/more.md"],
        "docs/index.md": ["docs/index.md"],
        "**/x.py": ["src/a/x.py", "src/b/x.py"],
    }[pattern]


# -- being killed and being stopped


def toil(url: str, durability: str, name: str, seed: int, to: int) -> None:
    """Work without end; each acknowledgement is the events that the call must have left: action, task, token."""
    board = TaskBoard.open(url, durability=durability)
    rng = random.Random(seed)

    def acknowledge(*events: tuple[str, str | None, int | None]) -> None:
        say(dumps(events), to)

    while True:
        dice = rng.random()
        if dice < 0.10:
            task_id = board.add(f"more by {name}", worker=name, priority=rng.randrange(3))
            acknowledge(("added_activity", task_id, None))
        elif dice < 0.15:
            board.tell(f"hello from {name}", worker=name)
            acknowledge(("sent_message", None, None))
        elif dice < 0.25:
            try:
                locks = board.lock(rng.sample(PATTERNS, 2), name)
            except Busy:
                continue
            acknowledge(("locked_files", None, locks[0].token))
            board.unlock(None, name)
            acknowledge(("unlocked_files", None, None))
        else:
            task = board.claim(name)
            if task is None:
                continue
            acknowledge(("claimed_activity", task.id, task.token))
            while task is not None:
                dice = rng.random()
                following = None
                if dice < 0.05:
                    task.fail("no luck")
                    acknowledge(("failed_activity", task.id, None))
                elif dice < 0.15:
                    task.release()
                    acknowledge(("released_activity", task.id, None))
                elif dice < 0.60:
                    following = task.complete("done", claim_next=True)
                    if following is None:
                        acknowledge(("completed_activity", task.id, None))
                    else:
                        acknowledge(
                            ("completed_activity", task.id, None), ("claimed_activity", following.id, following.token)
                        )
                else:
                    task.complete("done")
                    acknowledge(("completed_activity", task.id, None))
                task = following


def killing(url: str, seed: str, seconds: str, size: str) -> None:
    """Keep some workers going and kill one at a time, now and then stopping it first. Says what each had acknowledged.

    The workers are forked from this process, which never opens the board: that is quicker than starting interpreters,
    so more of them die. Half of them are durable, so that some die in a sync; half not, so that some die in SQLite.
    On a machine that is busy with something else the kills wait for the work, so that there is some to lose: it goes on
    until the seconds are over, four have died for each of them, and more was acknowledged than died.
    """
    rng = random.Random(int(seed))
    living: dict[int, Victim] = {}
    born = killed = calls = 0
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end or killed <= float(seconds) * 4 or calls <= killed:
        while len(living) < int(size):
            name, durability, own = f"w{born}", ("full", "normal")[born % 2], rng.randrange(2**32)
            born += 1
            source, sink = os.pipe()
            pid = os.fork()
            if pid == 0:
                with_no_way_back(toil, url, durability, name, own, sink)
            os.close(sink)
            os.set_blocking(source, False)
            living[pid] = Victim(pid, name, source)
        time.sleep(rng.expovariate(1 / 0.012))
        calls += sum(worker.listen() for worker in living.values())
        if calls < killed:
            continue
        victim = rng.choice(sorted(living))
        if rng.random() < 0.2:
            os.kill(victim, signal.SIGSTOP)
            time.sleep(rng.random() * 0.02)
            if rng.random() < 0.5:
                os.kill(victim, signal.SIGCONT)
                continue
        calls += living.pop(victim).kill()
        killed += 1
    for worker in living.values():
        worker.kill()
    say("over")


@dataclass
class Victim:
    """A forked worker and what it has acknowledged; both calls say how much that is since the last one."""

    pid: int
    name: str
    source: int
    heard: bytes = b""

    def listen(self) -> int:
        before = len(self.heard)
        with suppress(BlockingIOError):
            while data := os.read(self.source, 1 << 16):
                self.heard += data
        return self.heard.count(b"\n", before)

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        more = self.listen()
        os.close(self.source)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        say(f"{'killed' if killed else 'failed'} {self.name} [{','.join(self.heard.decode().split())}]")
        return more


def with_no_way_back(work: Callable[..., Any], *args: object) -> None:
    """The life of a forked child: it must never return into its parent's code."""
    try:
        work(*args)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def carry(url: str, name: str, lease: str) -> None:
    """Claim, wait to be told, complete."""
    board = TaskBoard.open(url)
    task = board.claim(name, lease=float(lease))
    assert task is not None
    say(f"claimed {task.id} {task.token}")
    told()
    try:
        task.complete(f"by {name}")
        say("completed")
    except LeaseLost as error:
        say(f"lost {error.message}")


def grip(url: str, name: str, path: str) -> None:
    """Lock a path and hold on to it until told."""
    TaskBoard.open(url).lock([path], name)
    say("locked")
    told()


def add(url: str, description: str) -> None:
    board = TaskBoard.open(url, worker="adder")
    say("ready")
    told()
    say(f"added {board.add(description)}")


def occupy(url: str) -> None:
    """Stand inside a write transaction, in which something has already been changed, until told to go on."""
    board = TaskBoard.open(url, worker="occupant")
    with board.store.write() as tx:
        tx.set_mark("occupant", 1)
        say("inside")
        told()
    say("outside")


def read_slowly(url: str) -> None:
    """Stand inside a read transaction until told to go on."""
    board = TaskBoard.open(url)
    with board.store.read() as tx:
        tx.counts()
        say("inside")
        told()
    say("outside")


# -- waiting


def await_work(url: str, name: str, timeout: str) -> None:
    board = TaskBoard.open(url)
    say("waiting")
    started = time.monotonic()
    found = board.wait(name, float(timeout))
    say(f"{found} {time.monotonic() - started:.3f}")


def await_claim(url: str, name: str, timeout: str) -> None:
    board = TaskBoard.open(url)
    say("waiting")
    started = time.monotonic()
    task = board.claim(name, wait=float(timeout))
    say(f"{task is not None} {time.monotonic() - started:.3f}")


# -- forks


def forked_use(url: str, rounds: str) -> None:
    """Parent and child go on with one TaskBoard object; each says the ids that it completed."""
    board = TaskBoard.open(url)
    board.counts()
    child = os.fork()
    name = "parent" if child else "child"

    def work() -> None:
        for _ in range(int(rounds)):
            task = board.claim(name)
            assert task is not None
            assert task.assigned_to == name
            task.complete(name)
            say(f"{name} {task.id} {task.token}")

    if not child:
        with_no_way_back(work)
    work()
    _, status = os.waitpid(child, 0)
    board.close()
    say(f"ended {status}")


def forked_then_closed(url: str) -> None:
    """The child writes, the parent closes the board that both inherited, the child writes again."""
    board = TaskBoard.open(url, worker="parent")
    board.counts()
    wrote, closed = os.pipe(), os.pipe()
    child = os.fork()
    if not child:

        def work() -> None:
            say(f"added {board.add('by the child, before', worker='child')}")
            os.write(wrote[1], b".")
            os.read(closed[0], 1)
            say(f"added {board.add('by the child, afterwards', worker='child')}")

        with_no_way_back(work)
    os.read(wrote[0], 1)
    board.close()
    os.write(closed[1], b".")
    os.waitpid(child, 0)
    say("ended")


def forked_bystander(url: str) -> None:
    """Fork a child that never touches the board, then stand inside a transaction for ever."""
    board = TaskBoard.open(url, worker="parent")
    board.counts()
    child = os.fork()
    if not child:
        with_no_way_back(told)
    with board.store.write() as tx:
        tx.set_mark("parent", 1)
        say(f"inside {child}")
        signal.pause()


def add_through(board: TaskBoard, description: str) -> None:
    say(f"added {board.add(description, worker='child')}")


def forked_by_a_thread(url: str, rounds: str) -> None:
    """Fork again and again while other threads write and follow; each child adds a task through the inherited board."""
    import threading

    board = TaskBoard.open(url, worker="parent")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            board.tell("from the thread")

    def follow() -> None:
        for _ in board.changelog(follow=True, timeout=60):
            if stop.is_set():
                return

    def report(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            say(f"broken {type(error).__name__}: {error}")

    threads = [threading.Thread(target=report, args=(work,)) for work in (write, write, follow)]
    for thread in threads:
        thread.start()
    for number in range(int(rounds)):
        child = os.fork()
        if not child:
            with_no_way_back(add_through, board, f"by child {number}")
        end = time.monotonic() + 15
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                say(f"stuck {number}")
                os._exit(0)
            time.sleep(0.001)
    stop.set()
    board.tell("the end")
    for thread in threads:
        thread.join()
    say("ended")


def descriptors(folder: str, times: str) -> None:
    """Open, use and close many boards; says how many descriptors there were before and after."""
    TaskBoard.open(f"sqlite:{folder}/first.db", create=True).close()
    before = os.listdir("/proc/self/fd")
    for number in range(int(times)):
        with TaskBoard.open(f"sqlite:{folder}/{number % 10}.db", create=True, worker="w", durability="normal") as board:
            board.add("a task")
        if number % 10 == 0:
            with TaskBoard.open(f"sqlite:{folder}/{number % 10}.db", worker="w") as board:
                board.add("a durable task")
        try:
            TaskBoard.open(f"sqlite:{folder}/none.db")
        except DibsError:
            pass
    say(f"{len(before)} {len(os.listdir('/proc/self/fd'))}")


def dropped(url: str, times: str) -> None:
    """Open and use boards, and forget them without closing; says how many descriptors there were before and after."""
    TaskBoard.open(url).close()
    before = os.listdir("/proc/self/fd")
    for _ in range(int(times)):
        TaskBoard.open(url, worker="w").tell("and gone")
    say(f"{len(before)} {len(os.listdir('/proc/self/fd'))}")


# -- making boards


def make(url: str, name: str) -> None:
    at_barrier()
    board = TaskBoard.open(url, create=True, worker=name)
    say(f"added {board.add(f'by {name}')}")


def make_one(url: str) -> None:
    board = TaskBoard.open(url, create=True, worker="maker")
    say(f"added {board.add('first')}")


def create(url: str) -> None:
    TaskBoard.open(url, create=True, worker="maker").close()


def creations(folder: str, seed: str, tries: str) -> None:
    """Kill a process somewhere while it creates a board; says how it stands after each: made, or not."""
    rng = random.Random(int(seed))
    longest = 0.03  # how long a creation takes, about: it changes with what else the machine does
    for number in range(int(tries)):
        url = f"sqlite:{folder}/{number}/board.db"
        child = os.fork()
        if not child:
            with_no_way_back(create, url)
        time.sleep(rng.random() * longest)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        longest *= 1.1 if killed else 0.7
        say(f"{'killed' if killed else 'finished'} {number}")
    say("over")


def open_only(path: str, create: str = "") -> None:
    """What a command that is given this path says."""
    try:
        with TaskBoard.open(f"sqlite:{path}", create=bool(create)) as board:
            board.counts()
        say("opened")
    except Exception as error:
        say(f"{type(error).__name__} {error}")


def claim_at_a_word(url: str, name: str) -> None:
    """How a claim ends for its caller."""
    try:
        with TaskBoard.open(url) as board:
            task = board.claim(name)
            assert task is not None
        say(f"claimed {task.token}")
    except DibsError as error:
        say(f"{error.code} {error}")
    except Exception as error:
        say(f"{type(error).__name__} {error}")


def work_by_a_clock(url: str, name: str, hands: str) -> None:
    """Do what is told, by a wall clock that stands apart by as many seconds as are in a file."""
    from dibs.clock import Clock
    from dibs.stores.sqlite.store import SqliteStore

    class Skewed(Clock):
        def wall(self) -> float:
            with open(hands, encoding="ascii") as file:
                return time.time() + float(file.read())

    board = TaskBoard(store=SqliteStore(url.removeprefix("sqlite:"), clock=Skewed()), worker=name)
    task = None
    say("ready")
    while order := told():
        if order == "claim":
            task = board.claim(name, lease=3600)
            say(f"claimed {task and task.id}")
        elif order == "renew" and task is not None:
            task.renew()
            say("renewed")
        else:
            board.tell("what time is it")
            say("told")


# -- syncing


def commit_slowly(url: str, name: str, count: str, pause: str) -> None:
    """Commit, with a disk whose sync takes some milliseconds; says how many syncs that took."""
    from dibs import fs
    from dibs.stores.sqlite.store import SqliteStore

    syncs = 0

    def sync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        time.sleep(float(pause) / 1000)
        fs.sync_data(fd)

    board = TaskBoard(store=SqliteStore(url.removeprefix("sqlite:"), sync=sync), worker=name)
    at_barrier()
    for number in range(int(count)):
        board.tell(f"message {number}")
    say(f"synced {syncs}")


def fork_beside_failing_syncs(url: str, count: str) -> None:
    """Fork again and again, while a thread writes to a disk whose syncs fail now and then."""
    import threading

    from dibs import fs
    from dibs.errors import OutcomeUnknown
    from dibs.stores.sqlite.store import SqliteStore

    syncs = 0
    is_over = False

    def sync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs % 3 == 0:
            raise OSError(5, "Input/output error")
        fs.sync_data(fd)

    board = TaskBoard(store=SqliteStore(url.removeprefix("sqlite:"), sync=sync), worker="w")

    def write() -> None:
        while not is_over:
            try:
                board.tell("hello")
            except OutcomeUnknown:
                pass

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(int(count)):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    is_over = True
    thread.join()
    say(f"forked {count}")


def commit_in_view(url: str, count: str) -> None:
    """Commit and acknowledge under strace."""
    board = TaskBoard.open(url, worker="seen")
    for number in range(int(count)):
        board.tell(f"message {number}")
        say(f"acknowledged {number}")


def die_in_sync(url: str, task_id: str, token: str) -> None:
    """Complete a task and die between the commit and its sync."""
    from dibs.stores.sqlite.store import SqliteStore

    def sync(fd: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    board = TaskBoard(store=SqliteStore(url.removeprefix("sqlite:"), sync=sync))
    board.complete(task_id, "done", token=int(token))


def stand_in_sync(url: str) -> None:
    """Commit, and stay in the sync until told to go on."""
    from dibs.stores.sqlite.store import SqliteStore

    def sync(fd: int) -> None:
        say("syncing")
        told()

    with TaskBoard(store=SqliteStore(url.removeprefix("sqlite:"), sync=sync), worker="syncer") as board:
        board.tell("hello")


def add_in_a_thread(url: str) -> None:
    """What a thread that is not the main one is told, and another that stands behind it."""
    from threading import Thread

    board = TaskBoard.open(url, worker="threads")

    def add() -> None:
        try:
            say(f"added {board.add('x')}")
        except DibsError as error:
            say(f"{error.code} {error}")

    threads = [Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def chatter(url: str, name: str, count: str) -> None:
    """Many small transactions."""
    board = TaskBoard.open(url, worker=name, durability="normal")
    at_barrier()
    for number in range(int(count)):
        task_id = board.add(f"task {number} of {name}, with a description of some length", id=f"{name}-{number}")
        board.claim(name, task_id)
        board.complete(task_id, "done")
    board.close()
    say("done")


def look(url: str, name: str) -> None:
    """Read the whole board again and again until the input ends."""
    board = TaskBoard.open(url)
    say("ready")
    looks = 0
    while not select.select([0], [], [], 0)[0]:
        board.status()
        looks += 1
    board.close()
    say(f"looked {looks}")


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    globals()[role](*arguments)
