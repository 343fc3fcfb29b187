"""Transactions that meet: whatever two of them decide, they could have decided it one after the other.

Each test stops one transaction in its middle by hand, starts the other in a thread, sees whether it is kept off, and
lets the first go on. Nothing here depends on luck or on how long anything takes.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Generic, TypeVar

import psycopg
import pytest

from dibs import BoardTask, TaskBoard, Worker
from dibs.errors import Busy, DependencyCycle, Duplicate, NotClaimable
from dibs.stores.base import Collision
from dibs.stores.postgres.round_trips import Connection
from tests.postgres.server import Server
from tests.processes.harness import PATIENCE, wait_until
from tests.variants import variants

T = TypeVar("T")
ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s1")
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'
"""


class Begun(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._answer: list[T] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._answer.append(call())
        except BaseException as error:
            self._error.append(error)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def answer(self) -> T:
        self._thread.join(PATIENCE)
        assert self.is_over, "the call does not return"
        if self._error:
            raise self._error[0]
        return self._answer[0]

    def error(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert self.is_over, "the call does not return"
        return self._error[0] if self._error else None


class Party:
    """One of the two: a board of its own, with connections that the server knows by name."""

    def __init__(self, server: Server, board: str, watch: psycopg.Connection[Any]) -> None:
        self.name = f"p{uuid.uuid4().hex[:20]}"
        self._watch = watch
        self.board = TaskBoard.open(server.url(board=board, application_name=self.name), create=True, worker=self.name)
        self.pause = Pause()
        self._begun: list[Begun[Any]] = []
        self._was_sent_back = False
        store: Any = self.board.store
        fail = store.fail

        def noted(*about: Any) -> None:
            self._was_sent_back = True
            fail(*about)

        store.fail = noted

    def waits(self) -> bool:
        """For the other: in the server, or by coming again and again (`dibs.stores.base.Collision`)."""
        return self._was_sent_back or bool(self._watch.execute(WAITING, [self.name]).fetchall()[0][0])

    def begin(self, call: Callable[[], T]) -> Begun[T]:
        self._was_sent_back = False
        begun = Begun(call)
        self._begun.append(begun)
        return begun

    def close(self) -> None:
        """When all that it has begun is over."""
        self.pause.go_on.set()
        for begun in self._begun:
            begun.error()
        self.board.close()

    def until_it_waits(self, begun: Begun[Any]) -> None:
        """For a lock in the server; that it does not simply finish is what is tested."""
        wait_until(lambda: self.waits() or begun.is_over, "the other to wait")
        assert not begun.is_over, f"it did not wait: {begun.error() or begun.answer()}"


COMMIT = 1000
"""Instead of the number of a trip: the one that commits."""
TRIPS = variants([1, 2, 3, 4, 5, COMMIT], quick=[1, 2, COMMIT])


class Pause:
    """A place before the n-th trip of whoever calls, where it stands until it is let on."""

    def __init__(self) -> None:
        self.here = threading.Event()
        self.go_on = threading.Event()
        self.before = 0
        self.trips = 0

    def arm(self, before: int) -> None:
        self.before, self.trips = before, 0
        self.here.clear()
        self.go_on.clear()

    def step(self, statements: Sequence[tuple[str, Any]]) -> None:
        self.trips += 1
        commits = self.before == COMMIT and any(sql == "COMMIT" for sql, _ in statements)
        if commits or self.trips == self.before:
            self.here.set()
            assert self.go_on.wait(PATIENCE)


@pytest.fixture
def parties(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Party, Party]]:
    board = f"l{uuid.uuid4().hex}"
    with psycopg.connect(server.admin_url(), autocommit=True) as watch:
        both = Party(server, board, watch), Party(server, board, watch)
        by_name = {party.name: party for party in both}
        trip, commit = Connection.trip, Connection.commit

        def stop(link: Connection, statements: Any) -> None:
            party = by_name.get(link.raw.info.get_parameters().get("application_name", ""))
            if party is not None:
                party.pause.step(statements)

        def stopping(self: Connection, statements: Any) -> Any:
            stop(self, statements)
            return trip(self, statements)

        def committing(self: Connection, statements: Any, told: Any) -> Any:
            stop(self, [*statements, ("COMMIT", ())])
            return commit(self, statements, told)

        monkeypatch.setattr(Connection, "trip", stopping)
        monkeypatch.setattr(Connection, "commit", committing)
        try:
            yield both
        finally:
            for party in both:
                party.pause.go_on.set()
            for party in both:
                party.close()


@contextmanager
def held_before_trip(party: Party, trip: int, call: Callable[[], T]) -> Iterator[Begun[T]]:
    """A call that stands before a trip; at the end of the block it goes on. If it takes fewer trips, it is over."""
    party.pause.arm(trip)
    begun = party.begin(call)
    wait_until(lambda: party.pause.here.is_set() or begun.is_over, "the first to come to its pause")
    try:
        yield begun
    finally:
        party.pause.before = 0
        party.pause.go_on.set()


# -- path locks

OVERLAPPING = [
    ("src/**", "src/a/b.py"),
    ("src/a/b.py", "src/**"),
    ("src/*.py", "src/a.py"),
    ("src", "src/a/b.py"),
    ("src/a", "src"),
    ("**", "src/a/b.py"),
    ("docs/x.md", "**"),
    ("**/*.py", "src/**"),
    ("*", "README.md"),
    ("src/a.py", "src/a.py"),
    ("s*/a", "src"),
]
APART = [("src/a.py", "src/b.py"), ("src/a/**", "src/b/**"), ("docs", "src"), ("src/ab", "src/a"), ("a/*.py", "b/*.py")]


@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_of_two_who_are_about_to_lock_the_same_one_waits_and_is_refused(
    parties: tuple[Party, Party], first: str, second: str
) -> None:
    one, two = parties
    with one.board.store.write() as tx:
        assert tx.locks([first]) == []  # it has looked, and will grant
        begun = two.begin(lambda: two.board.lock([second], BEN))
        two.until_it_waits(begun)
        grant(one.board, tx, first)
    error = begun.error()
    assert isinstance(error, Busy), error
    assert not isinstance(error, Collision), error
    assert [lock.pattern for lock in one.board.locks()] == [first]


def grant(board: TaskBoard, tx: Any, pattern: str) -> None:
    from dibs.rules import locks as lock_rules

    granted, event = lock_rules.take([pattern], False, [], ANN, tx.draw(1)[0], tx.now, 600.0, None)
    tx.save_locks(granted)
    tx.append([event])


@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_if_the_first_gives_up_the_second_gets_it(parties: tuple[Party, Party], first: str, second: str) -> None:
    one, two = parties
    with one.board.store.write() as tx:
        assert tx.locks([first]) == []
        begun = two.begin(lambda: two.board.lock([second], BEN))
        two.until_it_waits(begun)
    assert [lock.pattern for lock in begun.answer()] == [second]


@pytest.mark.parametrize(("first", "second"), APART)
def test_who_locks_something_else_comes_after_the_first_and_gets_it(
    parties: tuple[Party, Party], first: str, second: str
) -> None:
    one, two = parties
    with one.board.store.write() as tx:
        tx.locks([first])
        begun = two.begin(lambda: two.board.lock([second], BEN))
        two.until_it_waits(begun)
        grant(one.board, tx, first)
    assert [lock.pattern for lock in begun.answer()] == [second]
    assert sorted(lock.pattern for lock in one.board.locks()) == sorted([first, second])


def test_work_without_files_does_not_wait_for_who_locks_some(parties: tuple[Party, Party]) -> None:
    one, two = parties
    task = claimed(two.board)
    with one.board.store.write() as tx:
        tx.locks(["**"])
        two.begin(lambda: task.complete("done")).answer()
        two.begin(lambda: two.board.add("y", ["t"], id="u", paths=["src"])).answer()
        two.begin(lambda: two.board.add("z", id="v", priority=5)).answer()
        assert two.begin(lambda: two.board.claim(BEN)).answer().id == "v"  # type: ignore[union-attr]
        two.begin(lambda: two.board.release("v", worker=BEN)).answer()
        two.begin(lambda: two.board.tell("hello", worker=BEN)).answer()
        grant(one.board, tx, "**")
    assert [lock.pattern for lock in one.board.locks()] == ["**"]


@pytest.mark.parametrize("trip", TRIPS)
def test_a_claim_and_a_lock_of_the_same_files_never_both_succeed(parties: tuple[Party, Party], trip: int) -> None:
    """The claim is held before each of its trips in turn."""
    one, two = parties
    one.board.add("x", id="t", paths=["src/a/b.py"])
    with held_before_trip(one, trip, lambda: one.board.claim(ANN)) as claim:
        locking = two.begin(lambda: two.board.lock(["src/**"], BEN))
        wait_until(lambda: two.waits() or locking.is_over, "the other")
    got = claim.answer()
    refused = locking.error()
    assert (got is None) == (refused is None), (got, refused)
    assert len(one.board.locks()) == 1


# -- circles


@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("trip", TRIPS)
def test_of_two_edges_that_would_close_a_circle_one_is_refused(
    parties: tuple[Party, Party], length: int, trip: int
) -> None:
    one, two = parties
    ids = [f"t{n}" for n in range(length)]
    one.board.add_many([{"description": "x", "id": i} for i in ids])
    for before, after in list(pairwise(ids))[1:]:
        one.board.depend(after, [before])  # t2 waits for t1, t3 for t2, …
    with held_before_trip(one, trip, lambda: one.board.depend(ids[1], [ids[0]])) as first:
        second = two.begin(lambda: two.board.depend(ids[0], [ids[-1]]))
        wait_until(lambda: two.waits() or second.is_over, "the other")
    errors = [error for begun in (first, second) if (error := begun.error())]
    assert [type(error) for error in errors] == [DependencyCycle]
    waiting = sum(bool(task.depends_on) for task in one.board.tasks(limit=100)[0])
    assert waiting == length - 1


# -- completing what somebody is about to wait for


def unmet(board: TaskBoard, task_id: str) -> int:
    task = board.get(task_id)
    needs = [board.get(need) for need in task.depends_on]
    assert task.unmet == sum(need.status != "completed" for need in needs), "left waiting for what is done"
    return task.unmet


@pytest.mark.parametrize("way", ["fast", "long"])
@pytest.mark.parametrize("verb", ["add", "depend"])
@pytest.mark.parametrize("trip", TRIPS)
def test_a_task_added_while_its_need_is_completed_is_not_left_waiting(
    parties: tuple[Party, Party], way: str, verb: str, trip: int
) -> None:
    """Whoever makes the edge is held before each of its trips in turn, and the completion comes meanwhile."""
    one, two = parties
    if way == "long":
        without_fast_path(two.board)
    task = claimed(two.board)
    two.board.add("y", id="u", priority=-1)

    def link() -> object:
        return one.board.add("z", ["t"], id="n") if verb == "add" else one.board.depend("u", ["t"])

    with held_before_trip(one, trip, link) as linking:
        ending = two.begin(lambda: task.complete("done"))
        wait_until(lambda: two.waits() or ending.is_over, "the completion")
    linking.answer()
    ending.answer()
    assert unmet(one.board, "n" if verb == "add" else "u") == 0
    got = one.board.claim(ANN)
    assert got is not None


@pytest.mark.parametrize("way", ["fast", "long"])
@pytest.mark.parametrize("verb", ["add", "depend"])
@pytest.mark.parametrize("trip", variants([1, 2, 3, COMMIT], quick=[1, COMMIT]))
def test_a_need_that_is_completed_while_somebody_is_added_lets_it_go(
    parties: tuple[Party, Party], way: str, verb: str, trip: int
) -> None:
    """The other way round: the completion is held, and the edge comes meanwhile."""
    one, two = parties
    if way == "long":
        without_fast_path(two.board)
    task = claimed(two.board)
    one.board.add("y", id="u", priority=-1)

    def link() -> object:
        return one.board.add("z", ["t"], id="n") if verb == "add" else one.board.depend("u", ["t"])

    with held_before_trip(two, trip, lambda: task.complete("done")) as ending:
        linking = one.begin(link)
        wait_until(lambda: one.waits() or linking.is_over, "the edge")
    linking.answer()
    ending.answer()
    assert unmet(one.board, "n" if verb == "add" else "u") == 0
    assert one.board.get("t").status == "completed"


def without_fast_path(board: TaskBoard) -> None:
    store: Any = board.store
    store.try_claim = store.try_complete = lambda *about: None


def claimed(board: TaskBoard) -> BoardTask:
    """A task that its holder can complete by the fast path."""
    board.add("warm", id="warm", priority=9)
    warm = board.claim(ANN)
    assert warm is not None
    warm.complete()
    board.add("x", id="t")
    task = board.claim(ANN)
    assert task is not None
    assert task.id == "t"
    return task


@pytest.mark.parametrize("way", ["fast", "long"])
def test_a_completion_waits_for_an_edge_that_is_not_committed(parties: tuple[Party, Party], way: str) -> None:
    one, two = parties
    if way == "long":
        without_fast_path(two.board)
    task = claimed(two.board)
    with held_before_trip(one, COMMIT, lambda: one.board.add("z", ["t"], id="n")) as adding:
        ending = two.begin(lambda: task.complete("done"))
        two.until_it_waits(ending)
    assert adding.answer() == "n"
    ending.answer()
    assert unmet(one.board, "n") == 0


def test_who_makes_a_task_ready_does_not_wait_for_another_who_does(parties: tuple[Party, Party]) -> None:
    """They share a queue and a priority, and so the place where the scan for ready tasks begins."""
    one, two = parties
    task = claimed(one.board)
    one.board.add("y", ["t"], id="u")
    with held_before_trip(one, COMMIT, lambda: task.complete("done", claim_next=True)) as ending:
        adding = two.begin(lambda: two.board.add("z", id="n"))
        wait_until(lambda: two.waits() or adding.is_over, "the other")
        assert adding.is_over, "it waits"
        assert adding.answer() == "n"
    following = ending.answer()
    assert following is not None
    assert following.id == "u"


# -- the same thing twice


@pytest.mark.parametrize("trip", TRIPS)
def test_of_two_who_add_the_same_id_one_is_told(parties: tuple[Party, Party], trip: int) -> None:
    one, two = parties
    with held_before_trip(one, trip, lambda: one.board.add("first", id="t")) as first:
        second = two.begin(lambda: two.board.add("second", id="t"))
        wait_until(lambda: two.waits() or second.is_over, "the other")
    errors = [type(error) for begun in (first, second) if (error := begun.error())]
    assert errors == [Duplicate]
    assert len(one.board.tasks()[0]) == 1


@pytest.mark.parametrize("trip", TRIPS)
def test_of_two_requests_with_one_key_both_get_the_same_answer(parties: tuple[Party, Party], trip: int) -> None:
    one, two = parties
    with held_before_trip(one, trip, lambda: one.board.add("x", request_key="k")) as first:
        second = two.begin(lambda: two.board.add("x", request_key="k"))
        wait_until(lambda: two.waits() or second.is_over, "the other")
    assert first.answer() == second.answer()
    assert len(one.board.tasks()[0]) == 1


@pytest.mark.parametrize("trip", TRIPS)
def test_of_two_claims_with_one_key_both_get_the_same_task(parties: tuple[Party, Party], trip: int) -> None:
    one, two = parties
    one.board.add_many([{"description": "x"}] * 3)
    with held_before_trip(one, trip, lambda: one.board.claim(ANN, request_key="k")) as first:
        second = two.begin(lambda: two.board.claim(ANN, request_key="k"))
        wait_until(lambda: two.waits() or second.is_over, "the other")
    tasks = first.answer(), second.answer()
    assert tasks[0] is not None
    assert tasks[1] is not None
    assert (tasks[0].id, tasks[0].token) == (tasks[1].id, tasks[1].token)
    assert one.board.counts()["in_progress"] == 1  # type: ignore[index]


@pytest.mark.parametrize("trip", TRIPS)
def test_two_who_read_one_inbox_get_each_message_once(parties: tuple[Party, Party], trip: int) -> None:
    one, two = parties
    for number in range(6):
        one.board.tell(str(number), worker="maker")
    one.board.inbox(ANN, limit=1)  # a newcomer would be given the newest
    with held_before_trip(one, trip, lambda: one.board.inbox(ANN, limit=3)) as first:
        second = two.begin(lambda: two.board.inbox(ANN, limit=3))
        wait_until(lambda: two.waits() or second.is_over, "the other")
    given = [message.content for begun in (first, second) for message in begun.answer()]
    given += [message.content for message in one.board.inbox(ANN)]
    assert len(given) == len(set(given)), given


# -- rows that somebody is at


@contextmanager
def at_its_row(board: TaskBoard, task_id: str) -> Iterator[None]:
    """Hold a task's row, as any transaction may that is about to change it; nothing is changed."""
    with board.store.write() as tx:
        sql = "SELECT seq FROM dibs.task WHERE board = $1 AND id = $2 FOR NO KEY UPDATE"
        assert tx._one(sql, task_id)  # type: ignore[attr-defined]
        yield


def only_one_ready(board: TaskBoard) -> None:
    claimed(board)  # warms up, so that the fast path is tried first
    board.add("the only one", id="only")


@pytest.mark.parametrize("who", [ANN, Worker("eve", "human")], ids=["agent", "human"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_claim_waits_for_a_row_that_somebody_is_at_and_gets_it(
    parties: tuple[Party, Party], who: Worker, n: int
) -> None:
    one, two = parties
    only_one_ready(two.board)
    with at_its_row(one.board, "only"):
        claim = two.begin(lambda: two.board.claim(who, n=n))
        two.until_it_waits(claim)
    assert [task.id for task in claim.answer()] == ["only"]


def test_a_claim_waits_for_a_block_that_is_committed_and_gets_nothing(parties: tuple[Party, Party]) -> None:
    one, two = parties
    only_one_ready(two.board)
    with held_before_trip(one, COMMIT, lambda: one.board.block("only", "why", worker=BEN)) as blocking:
        claim = two.begin(lambda: two.board.claim(ANN))
        two.until_it_waits(claim)
    blocking.answer()
    assert claim.answer() is None


def test_a_claim_passes_over_a_row_that_somebody_is_at_if_there_are_others(parties: tuple[Party, Party]) -> None:
    one, two = parties
    only_one_ready(two.board)
    two.board.add("another", id="another", priority=-1)
    with at_its_row(one.board, "only"):
        task = two.begin(lambda: two.board.claim(ANN)).answer()
        assert task is not None
        assert task.id == "another"


def test_a_claim_that_walks_past_held_files_passes_over_a_row_that_somebody_is_at(parties: tuple[Party, Party]) -> None:
    """Or one stopped worker would keep all others from everything behind what it is at."""
    one, two = parties
    only_one_ready(two.board)
    two.board.add("another", id="another", priority=-1)
    two.board.add("its files are held", id="held", priority=9, paths=["src"])
    one.board.lock(["src"], BEN)
    with at_its_row(one.board, "only"):
        claim = two.begin(lambda: two.board.claim(ANN))
        wait_until(lambda: two.waits() or claim.is_over, "the claim")
        assert claim.is_over, "it is kept off"
        task = claim.answer()
        assert task is not None
        assert task.id == "another"


def test_a_human_does_not_wait_for_what_humans_have_while_there_is_work_for_anybody(
    parties: tuple[Party, Party],
) -> None:
    one, two = parties
    only_one_ready(two.board)
    two.board.add("for humans", id="human", reserved="human")
    with at_its_row(one.board, "human"):
        claim = two.begin(lambda: two.board.claim(Worker("eve", "human")))
        wait_until(lambda: two.waits() or claim.is_over, "the claim")
        assert claim.is_over, "it waits"
        task = claim.answer()
        assert task is not None
        assert task.id == "only"


def test_a_claim_by_name_waits_for_the_claim_before_it(parties: tuple[Party, Party]) -> None:
    one, two = parties
    only_one_ready(two.board)
    with held_before_trip(one, COMMIT, lambda: one.board.claim(BEN, "only")) as first:
        second = two.begin(lambda: two.board.claim(ANN, "only"))
        two.until_it_waits(second)
    assert first.answer() is not None
    error = second.error()
    assert isinstance(error, NotClaimable), error
