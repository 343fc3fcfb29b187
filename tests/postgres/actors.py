"""What the processes of the PostgreSQL tests do, how they are started, and what a board must look like after them.

`crowd_of(crew, size, role, …)` starts one process that imports the driver once and forks `size` children, which run
the function of that name here or in `tests.processes.actors`; that is quicker than as many interpreters. Each child
has a wrong clock: the local time must play no role. They begin together (`Crowd.go`) and go on until their work is
done or `stopping()` says so. All of them die with the crowd, and the crowd with its test.

`AS_ACTOR` goes before the command of a single actor, as a wrapper, for the roles of this module.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from dibs import BoardTask, DibsError, Event, TaskBoard, Worker
from dibs.errors import Busy, LeaseLost, OutcomeUnknown
from dibs.jsontext import dumps
from dibs.replay import replay
from dibs.stores.postgres.store import PostgresStore
from tests.contract.state import differences
from tests.postgres.server import Server
from tests.processes import actors as common
from tests.processes.actors import PATTERNS, at_barrier, say, told, with_no_way_back
from tests.processes.harness import PATIENCE, Actor, Crew, assert_counts, wait_until
from tests.processes.test_killed import RENEWALS, matches

AS_ACTOR = (sys.executable, "-m", "tests.postgres.actors")
TRANSIENT = ("board_unusable", "busy")
"""What a worker may be told, and tries again after, while the server is away."""
_stop = mmap.mmap(-1, 1)


def stopping() -> bool:
    return _stop[0] == 1


# -- starting them


@contextmanager
def board_of(server: Server, name: str = "main") -> Iterator[str]:
    """A new board in a database of its own."""
    url = server.new_database()
    address = f"{url}?board={name}"
    TaskBoard.open(address, create=True, worker="maker").close()
    yield address
    server.execute(f'DROP DATABASE "{url.rpartition("/")[2]}" WITH (FORCE)')


def warm(board: TaskBoard) -> None:
    """Until the fast path is prepared."""
    board.add_many([{"description": "to warm up"} for _ in range(40)])
    while (task := board.claim("w")) is not None:
        task.complete()


class Crowd:
    """Forked actors, seen through the one process that forked them."""

    def __init__(self, actor: Actor, size: int) -> None:
        self.actor = actor
        self.size = size

    def go(self) -> None:
        """Wait until all are ready, and let them begin at once."""
        for _ in range(self.size):
            self.actor.expect("ready")
        self.actor.tell()

    def stop(self) -> None:
        self.actor.tell()

    def listen(self) -> bool:
        return self.actor.listen()

    def lines(self, timeout: float = PATIENCE) -> list[str]:
        """Everything that they have said, when all have ended well."""
        said = self.actor.lines(timeout)
        assert said.pop() == "over"
        assert not (failed := [line for line in said if line.startswith("failed")]), failed
        return said


def crowd_of(crew: Crew, size: int, role: str, *args: object) -> Crowd:
    """`{n}` in an argument is the child's number."""
    return Crowd(crew.start("crowd", size, role, *args, before=AS_ACTOR), size)


def crowd(size: str, role: str, *args: str) -> None:
    barrier, release = os.pipe()
    children = {}
    for number in range(int(size)):
        child = os.fork()
        if child == 0:
            os.dup2(barrier, 0)
            os.close(barrier)
            os.close(release)
            with_wrong_clock((number % 13 - 6) * 3600.0 + number)
            with_no_way_back(role_of(role), *(arg.replace("{n}", str(number)) for arg in args))
        children[child] = number
    os.close(barrier)
    told()
    os.close(release)
    wait_or_stop(children)
    say("over")


def wait_or_stop(children: dict[int, int]) -> None:
    """Until all have ended; a second line from the test asks them to."""
    import select

    listening = [sys.stdin.fileno()]
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            number = children.pop(child)
            if status:
                say(f"failed {number} {os.waitstatus_to_exitcode(status)}")
        elif select.select(listening, [], [], 0.005)[0]:
            told()
            _stop[0] = 1
            listening = []


def with_wrong_clock(seconds: float) -> None:
    """Let this process be wrong about the time, and about where it is."""
    right = time.time
    time.time = lambda: right() + seconds
    os.environ["TZ"] = f"XXX{int(seconds // 3600) or 1:+d}"
    time.tzset()


def role_of(name: str) -> Callable[..., object]:
    found = globals().get(name) or getattr(common, name)
    assert callable(found)
    return found


# -- being killed, and outliving the server


def killing(url: str, seed: str, seconds: str, size: str) -> None:
    """As its namesake, with the driver imported before anybody is forked."""
    import dibs.stores.postgres.store  # noqa: F401

    common.killing(url, seed, seconds, size)


def persist(url: str, name: str, seed: str) -> None:
    """Work on through failures until stopped; says of each call what it surely did, may have done, or that it failed.

    `ack EVENTS`, `unknown EVENTS` (a token that is not known is null), `error CODE`.
    """
    board = TaskBoard.open(url, worker=name)
    rng = random.Random(f"{seed} {name}")
    at_barrier()
    task: BoardTask | None = None
    calls = 0
    while not stopping():
        calls += 1
        wanted: list[list[object]] = []
        try:
            if task is not None:
                verb, action = rng.choice((("complete", "completed_activity"), ("release", "released_activity")))
                wanted = [[action, task.id, None]]
                ending, task = task, None
                getattr(ending, verb)()
            elif rng.random() < 0.2:
                wanted = [["added_activity", f"{name}-{calls}", None]]
                board.add("more", id=f"{name}-{calls}")
            elif rng.random() < 0.2:
                wanted = [["sent_message", None, None]]
                board.tell(f"call {calls}")
            else:
                wanted = [["claimed_activity", None, None]]
                task = board.claim(name)
                if task is None:
                    continue
                wanted = [["claimed_activity", task.id, task.token]]
            say(f"ack {name} {dumps(wanted)}")
        except OutcomeUnknown:
            say(f"unknown {name} {dumps(wanted)}")
        except LeaseLost as error:
            say(f"failed {name} lost what it held: {error}")
        except DibsError as error:
            say(f"error {name} {error.code} {error.message}")
            time.sleep(0.02)
    say(f"done {name} {calls}")


# -- following


def write_much(url: str, name: str, seed: str, rounds: str) -> None:
    """All kinds of calls, of which some touch what others touch."""
    board = TaskBoard.open(url, worker=name)
    rng = random.Random(f"{seed} {name}")
    at_barrier()
    for number in range(int(rounds)):
        dice = rng.random()
        try:
            if dice < 0.2:
                board.tell(f"message {number} of {name}")
            elif dice < 0.4:
                board.add_many([{"description": "several"}] * rng.randrange(1, 6), request_key=f"{name} {number}")
            elif dice < 0.5:
                board.step("shared", "add", f"step {number} of {name}")
            elif dice < 0.7:
                board.lock(rng.sample(PATTERNS, 1), name)
                board.unlock(None, name)
            else:
                for task in board.claim(name, n=rng.randrange(1, 4)):
                    task.complete("done")
        except Busy:
            pass
    say(f"done {name}")


def follow(url: str, name: str, end: str) -> None:
    """Say the numbers of all events, as they come, up to a message with this text."""
    board = TaskBoard.open(url, worker=name)
    say("following")
    for event in board.changelog(follow=True, timeout=300):
        say(f"{event.seq} {event.action} {event.worker}")
        if event.details == end:
            break


def chat(url: str, name: str, rounds: str) -> None:
    board = TaskBoard.open(url, worker=name)
    at_barrier()
    for number in range(int(rounds)):
        board.tell(f"{name} {number}")
    say(f"done {name}")


def reader_called(name: str) -> Worker:
    return Worker(name, session="the same in all processes")


def read_inbox(url: str, name: str, end: str) -> None:
    """Say each message of an inbox as it comes, up to one with this text. Processes of one name share an inbox."""
    board = TaskBoard.open(url)
    who = reader_called(name)
    say("reading")
    while True:
        mark = board.store.mark_change()
        given = board.inbox(who, limit=7)
        for message in given:
            say(f"got {message.seq} {message.content}")
        if any(message.content == end for message in given):
            return
        if len(given) < 7:  # else there are more
            board.store.wait_change(mark, 0.2)


# -- what a board must look like


def settle(url: str) -> None:
    """Wait until no session of this database is in the middle of anything: what a dead client has begun is over."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        wait_until(lambda: connection.execute(query).fetchall() == [(0,)], "the end of all transactions")


def assert_whole(url: str) -> TaskBoard:
    """Nothing about this board is contradictory: counts, dependencies, changelog, locks. Returns it, open."""
    settle(url)
    board = TaskBoard.open(url, worker="inspector")
    tasks = assert_counts(board)
    assert_edges(url, board.store, tasks)
    events = list(board.changelog())
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers)), "events out of order"
    tokens = [event.data["set"]["token"] for event in events if event.action == "claimed_activity" and event.data]
    assert len(tokens) == len(set(tokens)), "two claims with one token"
    assert tokens == sorted(tokens), "a token that is smaller than an earlier one"
    assert differences(board, replay(events)) == []
    return board


def assert_edges(url: str, store: object, tasks: dict[str, BoardTask]) -> None:
    """The table of dependencies, and what each task counts of those who wait for it, are what the tasks themselves
    say."""
    assert isinstance(store, PostgresStore)
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        edges = connection.execute("SELECT needs, task FROM dibs.dependency WHERE board = %s", [store.board]).fetchall()
        counts = connection.execute("SELECT seq, dependants FROM dibs.task WHERE board = %s", [store.board]).fetchall()
    assert sorted(edges) == sorted((tasks[need].seq, task.seq) for task in tasks.values() for need in task.depends_on)
    waiting = Counter(needs for needs, _ in edges)
    assert {seq: n for seq, n in counts if n != waiting[seq]} == {}, "dependants miscounted"


class Tale:
    """What a worker said of its calls, to be held against its events."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.calls: dict[str, list[tuple[str, list[list[object]]]]] = {}
        self.acknowledged = self.unknown = self.errors = 0
        self.codes: dict[str, int] = {}
        for line in lines:
            kind, name, rest = line.split(" ", 2)
            if kind == "error":
                self.errors += 1
                code = rest.split(" ")[0]
                self.codes[code] = self.codes.get(code, 0) + 1
            elif kind in ("ack", "unknown"):
                self.acknowledged += kind == "ack"
                self.unknown += kind == "unknown"
                self.calls.setdefault(name, []).append((kind, json.loads(rest)))

    def assert_told_by(self, events: Sequence[Event]) -> int:
        """Every acknowledged call has its events, in order, and no event is without a call; how many unknown ones
        turned out to have happened?

        An unknown call may or may not have left its events, so all places in the changelog are kept to which the
        calls so far may have led.
        """
        own: dict[str, list[Event]] = {}
        for event in events:
            if event.action not in RENEWALS:
                own.setdefault(event.worker, []).append(event)
        happened = 0
        for name, calls in self.calls.items():
            left = own.get(name, [])
            places = {0}
            for kind, expected in calls:
                size = len(expected)
                after = {at + size for at in places if at < len(left) and all(map(fitting, left[at:], expected))}
                assert after or kind == "unknown", (
                    f"{name}: acknowledged {expected}, and the changelog has {[left[at : at + 2] for at in places]}"
                )
                places = after | places if kind == "unknown" else after
            assert len(left) in places, f"{name}: events without a call: {left[max(places) :]}"
            happened += len(left) - sum(len(expected) for kind, expected in calls if kind == "ack")
        return happened


def fitting(event: Event, expected: list[object]) -> bool:
    """Is this the event? A call that claimed something unknown fits any claim."""
    if expected == ["claimed_activity", None, None]:
        return event.action == "claimed_activity"
    return matches(event, expected)


if __name__ == "__main__":
    _, _, _, role, *arguments = sys.argv[1:]
    role_of(role)(*arguments)
