"""Leases: how long a claim lasts, what renews it, what ends it, and that no jump of a clock does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from dibs import LeaseLost, NotClaimable, TaskBoard, TaskStatus, Worker
from dibs.errors import WrongStatus
from dibs.stores.memory import MemoryStore
from dibs.worker import boot, host
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, actions, agent, take
from tests.contract.stores import Home

HOUR = 3600.0


@pytest.fixture(scope="module")
def dead() -> Worker:
    """A worker whose process has provably ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Worker("dead", session="gone", host=host(), pid=process.pid, started="1", boot=boot())


@pytest.mark.parametrize(("worker", "hours"), [(ANN, 1), (EVE, 8), (Worker("cron", "system"), 1)])
def test_the_length_of_a_lease_depends_on_the_kind_of_worker(board: TaskBoard, worker: Worker, hours: int) -> None:
    board.add("x")
    assert take(board, worker).lease_expires_at == START + hours * HOUR


def test_a_lease_can_be_asked_for(board: TaskBoard) -> None:
    board.add("x")
    assert take(board, ANN, lease=90).lease_expires_at == START + 90


def test_a_boards_stale_timeout_is_the_lease_of_its_claims(home: Home) -> None:
    board = home.open(stale_timeout=300)
    board.add("x")
    assert take(board, ANN).lease_expires_at == START + 300


@pytest.mark.needs("steps")
@pytest.mark.parametrize(("worker", "minutes"), [(ANN, 30), (EVE, 240)])
def test_so_does_the_length_of_a_steps_lease(board: TaskBoard, worker: Worker, minutes: int) -> None:
    board.add("x", id="t1", steps=["one"])
    take(board, worker)
    assert board.step("t1", "start", worker=worker).steps[0].expires_at == START + minutes * 60


def test_renewing_starts_the_lease_anew(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, lease=100)
    clock.advance(60)
    assert board.renew("t1").lease_expires_at == START + 160
    clock.advance(60)
    assert board.renew("t1", lease=1000).lease_expires_at == START + 1120
    assert board.get("t1").lease == 1000


def test_a_live_lease_is_never_given_away(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, lease=100)
    clock.advance(99.9)
    assert board.claim(BEN) is None
    with pytest.raises(NotClaimable):
        board.claim(BEN, "t1")
    assert board.recover() == []


def test_an_expired_claim_is_given_back_by_the_next_claim_with_an_event(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, lease=100)
    clock.advance(100)
    task = take(board, BEN)
    assert (task.assigned_to, task.attempts) == ("ben", 2)
    assert actions(board, "t1") == ["added_activity", "claimed_activity", "recovered_activity", "claimed_activity"]
    given_back = list(board.changelog(task_id="t1"))[2]
    assert "ann" in (given_back.details or "")
    assert given_back.worker_type == "system"


def test_a_named_expired_claim_can_be_taken_over(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, lease=100)
    clock.advance(100)
    assert board.reasons("t1", BEN) == []
    assert take(board, BEN, "t1").assigned_to == "ben"


@pytest.mark.slow_on("bilu", "workitems")
def test_a_named_claim_is_taken_over_however_many_have_expired(board: TaskBoard, clock: HandClock) -> None:
    board.add_many([{"description": "x", "id": f"t{i:04}"} for i in range(1002)])
    for i, task in enumerate(board.claim(ANN, n=1002, lease=10)):
        assert task.id == f"t{i:04}"
    board.renew("t1001", lease=20)
    clock.advance(30)
    task = take(board, BEN, "t1001")
    assert (task.assigned_to, task.status) == ("ben", TaskStatus.IN_PROGRESS)


def test_who_swept_its_own_claim_cannot_end_the_next_ones(board: TaskBoard, other: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    board.add("y", id="t2")
    assert take(board, ANN, lease=100).id == "t1"
    clock.advance(101)
    board.claim(ANN, "t2")  # gives t1 back on the way
    assert other.claim(BEN, "t1") is not None
    with pytest.raises(LeaseLost):
        board.complete("t1", "too late")
    assert board.get("t1").assigned_to == "ben"


def test_recover_gives_back_what_has_expired(board: TaskBoard, clock: HandClock) -> None:
    board.add_many([{"description": str(i), "id": f"t{i}"} for i in range(3)])
    take(board, ANN, lease=100)
    take(board, ANN, lease=200)
    clock.advance(150)
    assert board.recover() == ["t0"]
    assert board.recover() == []
    assert [row["status"] for row in board.status()] == ["pending", "in_progress", "pending"]


def test_recover_by_name_gives_back_what_a_worker_that_is_gone_left(board: TaskBoard) -> None:
    board.add("x", id="t1")
    take(board, ANN)
    assert board.recover(name="ben") == []
    assert board.recover(name="ann") == ["t1"]
    assert board.get("t1").status is TaskStatus.PENDING


RENEWING: dict[str, Callable[[TaskBoard], object]] = {
    "add": lambda board: board.add("more", worker=ANN),
    "claim": lambda board: board.claim(ANN),
    "claim of nothing": lambda board: board.claim(ANN, n=1) and board.claim(ANN),
    "renew of another task": lambda board: board.renew("second", worker=ANN),
    "complete of another task": lambda board: board.complete("second", worker=ANN),
    "fail of another task": lambda board: board.fail("second", "boom", worker=ANN),
    "release of another task": lambda board: board.release("second", worker=ANN),
    "step of another task": lambda board: board.step("second", "start", worker=ANN),
    "block of another task": lambda board: board.block("free", "why", worker=ANN),
    "cancel of another task": lambda board: board.cancel("free", worker=ANN),
    "depend": lambda board: board.depend("free", ["first"], worker=ANN),
    "lock": lambda board: board.lock(["etc"], ANN),
    "unlock": lambda board: board.unlock(["docs"], ANN),
    "tell": lambda board: board.tell("hello", worker=ANN),
    "inbox": lambda board: board.inbox(ANN),
}


@pytest.mark.needs("locks", "paths", "steps")
@pytest.mark.parametrize("verb", RENEWING)
def test_any_verb_of_the_holder_renews_its_leases(board: TaskBoard, clock: HandClock, verb: str) -> None:
    board.add("x", id="first", paths=["src/a"], steps=["one"])
    board.add("y", id="second", steps=["one"])
    board.add("z", id="free")
    board.claim(ANN, n=2)
    board.lock(["docs"], ANN)
    board.lock(["lib"], ANN)
    clock.advance(HOUR / 2)
    RENEWING[verb](board)
    assert board.get("first").lease_expires_at == START + 1.5 * HOUR
    expiry = {lock.pattern: lock.expires_at for lock in board.locks()}
    assert expiry["src/a"] == START + 1.5 * HOUR
    assert expiry["lib"] == START + 1.5 * HOUR


def test_verbs_that_come_often_enough_keep_even_a_short_lease(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, lease=30)
    for _ in range(10):
        clock.advance(20)
        board.tell("still here", worker=ANN)
    assert board.complete("t1", worker=ANN).status is TaskStatus.COMPLETED


def test_a_lease_that_was_renewed_a_moment_ago_is_not_forgotten(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, lease=30)
    clock.advance(10)
    board.renew("t1", worker=ANN)
    for _ in range(5):
        clock.advance(20)
        board.tell("still here", worker=ANN)
    assert board.complete("t1", worker=ANN).status is TaskStatus.COMPLETED


def test_nor_is_a_lease_that_was_shortened(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN)
    clock.advance(10)
    board.renew("t1", worker=ANN, lease=30)
    for _ in range(5):
        clock.advance(20)
        board.tell("still here", worker=ANN)
    assert board.complete("t1", worker=ANN).status is TaskStatus.COMPLETED


@pytest.mark.needs("locks", "paths", "steps")
@pytest.mark.parametrize("verb", RENEWING)
def test_the_first_verb_of_a_new_process_renews_them_too(
    board: TaskBoard, other: TaskBoard, clock: HandClock, verb: str
) -> None:
    board.add("x", id="first", paths=["src/a"])
    board.add("y", id="second", steps=["one"])
    board.add("z", id="free")
    board.claim(ANN, n=2)
    board.lock(["docs"], ANN)
    clock.advance(HOUR / 2)
    RENEWING[verb](other)
    assert other.get("first").lease_expires_at == START + 1.5 * HOUR


def test_a_refused_verb_does_not_keep_the_next_one_from_renewing(
    board: TaskBoard, other: TaskBoard, clock: HandClock
) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    take(board, BEN, "b", lease=2 * HOUR)
    take(board, ANN, "a")
    clock.advance(HOUR / 2)
    with pytest.raises(NotClaimable):
        board.claim(ANN, "b")
    clock.advance(1)
    board.tell("still here", worker=ANN)
    assert board.get("a").lease_expires_at == START + 1.5 * HOUR + 1


def test_verbs_keep_a_lease_after_the_clock_was_set_back(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN)
    clock.jump(-86_400)
    for _ in range(5):
        clock.advance(HOUR / 2)
        board.tell("still here", worker=ANN)
    assert board.complete("t1", worker=ANN).status is TaskStatus.COMPLETED


def test_a_verb_renews_nobody_elses_lease(board: TaskBoard, clock: HandClock) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    take(board, agent("ann", "s1"))
    take(board, agent("ann", "s2"))
    clock.advance(HOUR / 2)
    board.tell("hello", worker=agent("ann", "s2"))
    assert board.get("a").lease_expires_at == START + HOUR
    assert board.get("b").lease_expires_at == START + 1.5 * HOUR


def test_a_verb_does_not_bring_an_expired_lease_back(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    task = take(board, ANN, lease=60)
    clock.advance(60)
    board.tell("hello", worker=ANN)
    with pytest.raises(LeaseLost):
        task.complete()


@pytest.mark.needs("locks")
def test_a_lease_that_a_namesake_made_shorter_is_renewed_as_often(board: TaskBoard, clock: HandClock) -> None:
    one, unknown = agent("zed", "s1"), agent("zed", None)
    board.lock(["src"], one)
    board.lock(["src"], unknown, lease=40)
    clock.advance(30)
    board.tell("hello", worker=one)
    (lock,) = board.locks()
    assert (lock.holder.session, lock.expires_at - board.now()) == ("s1", 40)


@pytest.mark.needs("locks")
def test_whoever_made_it_shorter_renews_it_as_often(board: TaskBoard, clock: HandClock) -> None:
    one, unknown = agent("zed", "s1"), agent("zed", None)
    board.tell("hello", worker=unknown)
    board.lock(["src"], one)
    board.lock(["src"], unknown, lease=40)
    for _ in range(5):
        clock.advance(10)
        board.tell("hello", worker=unknown)
    assert [lock.expires_at - board.now() for lock in board.locks()] == [40]


def test_a_board_that_has_seen_thousands_of_workers_has_forgotten_most_and_renews_what_each_holds(
    clock: HandClock,
) -> None:
    with TaskBoard(store=MemoryStore(clock)) as board:
        board.lock(["src"], ANN, lease=3600)
        for number in range(5000):
            board.tell("hello", worker=agent(f"worker-{number}", "s"))
        assert len(board.core.leases) <= 1000
        clock.advance(1800)
        board.tell("hello", worker=ANN)
        assert [lock.expires_at - board.now() for lock in board.locks()] == [3600]


class TestAttempts:
    @pytest.mark.needs("limits of attempts")
    def test_a_task_given_back_more_than_max_attempts_times_fails(self, board: TaskBoard) -> None:
        board.add("x", id="t1", max_attempts=2)
        for _ in range(2):
            take(board)
            assert board.release("t1", note="too hard").status is TaskStatus.PENDING
        take(board)
        failed = board.release("t1", note="still too hard")
        assert (failed.status, failed.attempts) == (TaskStatus.FAILED, 3)
        assert failed.completed_at == START
        assert board.claim(BEN) is None

    @pytest.mark.needs("limits of attempts")
    def test_the_history_is_its_result(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1", max_attempts=1)
        take(board, ANN)
        board.release("t1", note="needs a database")
        take(board, BEN, lease=60)
        clock.advance(60)
        assert board.recover() == ["t1"]
        result = board.get("t1").result or ""
        assert "given back 2 times, more than max_attempts=1" in result
        assert "claimed_activity by ann" in result
        assert "released_activity by ann: needs a database" in result
        assert "claimed_activity by ben" in result

    @pytest.mark.needs("limits of attempts")
    def test_zero_fails_at_the_first_return(self, board: TaskBoard) -> None:
        board.add("x", id="t1", max_attempts=0)
        take(board)
        assert board.release("t1").status is TaskStatus.FAILED

    @pytest.mark.needs("limits of attempts")
    @pytest.mark.parametrize("max_attempts", [0, 1])
    def test_a_claim_that_ran_out_is_lost_to_its_release_before_and_after_it_is_swept(
        self, board: TaskBoard, clock: HandClock, max_attempts: int
    ) -> None:
        """A success would mean that the note was kept."""
        board.add("x", id="t1", max_attempts=max_attempts)
        token = take(board, lease=60).token
        clock.advance(60)
        with pytest.raises(LeaseLost):
            board.release("t1", token=token, note="half done")
        assert board.recover() == ["t1"]
        with pytest.raises(LeaseLost):
            board.release("t1", token=token, note="half done")
        with pytest.raises((LeaseLost, WrongStatus)):
            board.release("t1")

    @pytest.mark.needs("limits of attempts")
    @pytest.mark.parametrize("max_attempts", [0, 1])
    def test_a_release_is_repeated_by_its_token_in_vain(self, board: TaskBoard, max_attempts: int) -> None:
        board.add("x", id="t1", max_attempts=max_attempts)
        token = take(board).token
        released = board.release("t1", token=token, note="too hard")
        assert board.release("t1", token=token, note="too hard") == released == board.get("t1")

    def test_without_a_limit_it_never_fails(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        for _ in range(20):
            take(board)
            board.release("t1")
        assert board.get("t1").status is TaskStatus.PENDING

    @pytest.mark.needs("limits of attempts", "reviews")
    def test_a_rejection_counts(self, board: TaskBoard) -> None:
        board.add("x", id="t1", review=True, max_attempts=0)
        take(board, ANN).complete("done")
        assert board.reject("t1", "no", worker=EVE).status is TaskStatus.FAILED

    @pytest.mark.needs("blockers", "limits of attempts")
    def test_a_blocker_does_not(self, board: TaskBoard) -> None:
        board.add("x", id="t1", max_attempts=0)
        for _ in range(3):
            take(board, ANN)
            assert board.block("t1", "why", worker=ANN).status is TaskStatus.PENDING
            board.unblock("t1", worker=ANN)
        assert board.get("t1").attempts == 0

    @pytest.mark.needs("limits of attempts")
    def test_a_retry_forgets_them(self, board: TaskBoard) -> None:
        board.add("x", id="t1", max_attempts=1)
        for _ in range(2):
            take(board)
            board.release("t1")
        retried = board.retry("t1", worker=EVE)
        assert (retried.status, retried.attempts, retried.result) == (TaskStatus.PENDING, 0, None)


class TestDeath:
    """A holder whose process is provably gone loses its claims at once; any doubt, and only expiry frees them."""

    def test_nothing_is_taken_from_who_is_being_given_it(self, board: TaskBoard, dead: Worker) -> None:
        """Its process has died between asking and being answered, as far as anybody can see."""
        board.add("x", id="t1")
        board.claim("ann", n=2)  # which has looked for the dead
        board.release("t1")
        assert [task.id for task in board.claim(dead, n=3)] == ["t1"]
        assert board.get("t1").status is TaskStatus.IN_PROGRESS

    @pytest.mark.needs("locks", "paths")
    def test_the_next_claim_gets_what_a_dead_process_held(
        self, board: TaskBoard, other: TaskBoard, dead: Worker
    ) -> None:
        board.add("x", id="t1", paths=["src"])
        take(board, dead)
        board.lock(["docs"], dead)
        assert take(other, BEN).id == "t1"
        assert "died" in (list(board.changelog(task_id="t1"))[2].details or "")
        assert [lock.holder.name for lock in other.locks()] == ["ben"]

    def test_so_does_a_claim_by_name(self, board: TaskBoard, other: TaskBoard, dead: Worker) -> None:
        board.add("x", id="t1")
        take(board, dead)
        assert take(other, BEN, "t1").assigned_to == "ben"

    @pytest.mark.needs("locks")
    def test_so_does_a_lock(self, board: TaskBoard, other: TaskBoard, dead: Worker) -> None:
        board.lock(["docs"], dead)
        assert [lock.holder.name for lock in other.lock(["docs/**"], BEN)] == ["ben"]

    def test_so_does_waiting(self, board: TaskBoard, other: TaskBoard, dead: Worker) -> None:
        board.add("x", id="t1")
        take(board, dead)
        assert other.wait(BEN, 5.0)

    def test_recover_finds_it(self, board: TaskBoard, other: TaskBoard, dead: Worker) -> None:
        board.add("x", id="t1")
        take(board, dead)
        assert other.recover() == ["t1"]

    @pytest.mark.parametrize("doubt", ["host", "boot", "started", "pid"])
    def test_without_proof_the_claim_stays(self, board: TaskBoard, other: TaskBoard, dead: Worker, doubt: str) -> None:
        unsure = Worker(dead.name, session="gone", host=dead.host, pid=dead.pid, started=dead.started, boot=dead.boot)
        setattr(unsure, doubt, {"host": "elsewhere", "boot": "another"}.get(doubt))
        board.add("x", id="t1")
        take(board, unsure)
        assert other.claim(BEN) is None
        assert other.recover() == []
        assert board.get("t1").assigned_to == "dead"

    def test_a_living_process_keeps_its_claim(self, board: TaskBoard, other: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        take(board, "worker-1")
        clock.advance(HOUR - 1)
        assert other.claim(BEN) is None


class TestClockJumps:
    """The wall clock may be set to anything: a lease keeps exactly the time that it had left."""

    @pytest.fixture(autouse=True)
    def machines_own_time(self, home: Home) -> None:
        if not home.minds_the_clock:
            pytest.skip(f"the time of a {home.name} board is not this machine's")

    @pytest.mark.needs("locks")
    @pytest.mark.parametrize("jump", [3.0, 10_000.0, 30 * 86_400.0, -3.0, -10_000.0, -30 * 86_400.0])
    def test_a_jump_neither_ends_a_lease_nor_extends_it(
        self, board: TaskBoard, other: TaskBoard, clock: HandClock, jump: float
    ) -> None:
        board.add("x", id="t1")
        take(board, ANN, lease=100)
        board.lock(["docs"], ANN, lease=100)
        clock.advance(40)
        clock.jump(jump)
        clock.advance(59)
        assert other.claim(BEN) is None
        assert [lock.pattern for lock in other.locks()] == ["docs"]
        expires = other.get("t1").lease_expires_at
        assert expires is not None
        assert expires - clock.wall() == pytest.approx(1)
        clock.advance(1)
        assert other.locks() == []
        assert take(other, BEN).id == "t1"

    @pytest.mark.parametrize("jump", [10_000.0, -10_000.0])
    def test_a_holder_can_complete_after_a_jump(self, board: TaskBoard, clock: HandClock, jump: float) -> None:
        board.add("x", id="t1")
        task = take(board, ANN, lease=100)
        clock.jump(jump)
        clock.advance(99)
        task.complete("done")
        assert task.status is TaskStatus.COMPLETED

    @pytest.mark.needs("locks")
    @pytest.mark.parametrize("jump", [10_000.0, -10_000.0])
    def test_readers_see_no_lease_end_before_a_writer_has_noticed(
        self, board: TaskBoard, clock: HandClock, jump: float
    ) -> None:
        board.add("x", id="t1")
        take(board, ANN, lease=100)
        board.lock(["docs"], ANN, lease=100)
        clock.jump(jump)
        assert [task.id for task in board.held_by(ANN)] == ["t1"]
        assert len(board.locks()) == 1
        clock.advance(100)
        assert board.held_by(ANN) == []
        assert board.locks() == []

    def test_many_jumps_one_after_the_other_add_up_to_nothing(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        take(board, ANN, lease=100)
        for jump in (5_000, -70_000, 3, -3, 1e6):
            clock.jump(jump)
            clock.advance(10)
            assert board.claim(BEN) is None
        clock.advance(49)
        assert board.claim(BEN) is None
        clock.advance(1)
        assert board.claim(BEN) is not None

    def test_a_clock_set_back_and_corrected_gives_no_task_to_two_although_one_process_slept_through_both(
        self, board: TaskBoard, other: TaskBoard, clock: HandClock
    ) -> None:
        board.add("x", id="t1")
        other.get("t1")
        task = take(board, ANN, lease=3600)
        other.tell("both know the time by now", worker=BEN)
        clock.jump(-7200)
        task.renew()
        clock.jump(7200)
        assert [held.id for held in other.held_by(ANN)] == ["t1"]
        assert other.claim(BEN) is None
        clock.advance(3599)
        task.complete("done")

    def test_slow_drift_is_no_jump(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        take(board, ANN, lease=100)
        for _ in range(9):
            clock.jump(0.2)
            clock.advance(11)
            board.claim(BEN)
        assert "adjusted_clock" not in actions(board)
        assert board.get("t1").assigned_to == "ann"

    def test_a_jump_is_in_the_changelog_once(self, board: TaskBoard, other: TaskBoard, clock: HandClock) -> None:
        board.add("x")
        clock.jump(500)
        board.add("y")
        other.add("z")
        assert actions(board).count("adjusted_clock") == 1

    def test_a_refused_verb_after_a_jump_does_not_shift_twice(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        take(board, ANN, lease=100)
        clock.jump(5_000)
        for _ in range(3):
            with pytest.raises(NotClaimable):
                board.claim(BEN, "t1")
        board.add("another", worker=BEN)
        expires = board.get("t1").lease_expires_at
        assert expires == pytest.approx(clock.wall() + 100)

    @pytest.mark.needs("steps")
    def test_a_steps_lease_moves_with_the_clock_too(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1", steps=["one"])
        take(board, ANN)
        board.step("t1", "start", worker=ANN)
        clock.jump(50_000)
        board.add("y", worker=BEN)
        expires = board.get("t1").steps[0].expires_at
        assert expires == pytest.approx(clock.wall() + 1800)


class TestKeeping:
    """`keep`: what a front that knows its worker to be alive calls every few seconds."""

    def test_it_renews_claims_and_loose_locks_when_a_third_of_the_lease_is_gone(
        self, board: TaskBoard, clock: HandClock
    ) -> None:
        board.add("x", id="t1")
        task = take(board, ANN, lease=300)
        clock.advance(120)
        assert board.keep(ANN) is True
        assert board.get("t1").lease_expires_at == START + 420
        assert board.get("t1").token == task.token

    @pytest.mark.needs("locks")
    def test_locks_are_kept_too(self, board: TaskBoard, clock: HandClock) -> None:
        board.lock(["a.py"], ANN, lease=300)
        clock.advance(120)
        assert board.keep(ANN) is True
        assert [lock.expires_at for lock in board.locks()] == [START + 420]

    def test_before_that_nothing_is_written(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x")
        take(board, ANN, lease=300)
        clock.advance(60)
        before = actions(board)
        assert board.keep(ANN) is True
        assert actions(board) == before

    def test_who_holds_nothing_is_told_so(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x")
        take(board, BEN)
        before = actions(board)
        assert board.keep(ANN) is False
        assert actions(board) == before

    def test_what_has_run_out_is_not_brought_back(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        task = take(board, ANN, lease=300)
        clock.advance(301)
        assert board.keep(ANN) is False
        with pytest.raises(LeaseLost):
            board.complete("t1", token=task.token)

    def test_kept_often_enough_a_lease_lasts(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        take(board, ANN, lease=60)
        for _ in range(100):
            clock.advance(15)
            assert board.keep(ANN) is True
        assert board.complete("t1", worker=ANN).status is TaskStatus.COMPLETED
