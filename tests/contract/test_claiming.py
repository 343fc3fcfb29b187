"""Claiming: who gets which task, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import LeaseLost, NotClaimable, NotFound, TaskBoard, TaskStatus, Worker
from dibs.errors import Invalid
from dibs.stores.base import Collision
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, actions, agent, take


def codes(error: NotClaimable) -> list[str]:
    reasons = error.fields["reasons"]
    assert isinstance(reasons, list)
    return [reason["code"] for reason in reasons]


@pytest.mark.needs("priorities")
def test_the_highest_priority_goes_first_then_the_oldest(board: TaskBoard) -> None:
    for name, priority in [("old", 0), ("low", -5), ("high", 9), ("new", 0), ("also-high", 9)]:
        board.add(name, priority=priority, id=name)
    taken = [take(board).id for _ in range(5)]
    assert taken == ["high", "also-high", "old", "new", "low"]


def test_nothing_available_is_none(board: TaskBoard) -> None:
    assert board.claim(ANN) is None
    board.add("x")
    take(board)
    assert board.claim(BEN) is None
    assert board.claim(BEN, n=3) == []


def test_a_claim_records_who_when_and_until_when(board: TaskBoard) -> None:
    board.add("x", id="t1")
    task = take(board, ANN, lease=120)
    assert task.status is TaskStatus.IN_PROGRESS
    assert (task.assigned_to, task.holder, task.claimed_at) == ("ann", ANN, START)
    assert (task.lease, task.lease_expires_at, task.attempts) == (120, START + 120, 1)
    assert task.token is not None
    assert task == board.get("t1")


def test_a_claimed_task_is_not_given_again(board: TaskBoard, other: TaskBoard) -> None:
    board.add("x", id="t1")
    take(board, ANN)
    assert other.claim(BEN) is None
    with pytest.raises(NotClaimable, match="held by ann") as caught:
        other.claim(BEN, "t1")
    assert codes(caught.value) == ["held"]


@pytest.mark.needs("priorities")
def test_a_named_task_is_claimed_out_of_order(board: TaskBoard) -> None:
    board.add("first", priority=9)
    board.add("second", id="t2")
    assert take(board, ANN, "t2").id == "t2"


def test_a_named_task_that_is_not_there_is_not_found(board: TaskBoard) -> None:
    with pytest.raises(NotFound):
        board.claim(ANN, "t1")


@pytest.mark.parametrize("ending", ["completed", pytest.param("failed", marks=pytest.mark.needs("failed tasks"))])
def test_an_ended_task_says_so_when_it_is_named(board: TaskBoard, ending: str) -> None:
    board.add("x", id="t1")
    take(board)
    board.complete("t1") if ending == "completed" else board.fail("t1", "boom")
    with pytest.raises(NotClaimable, match=ending) as caught:
        board.claim(BEN, "t1")
    assert codes(caught.value) == [ending]


def test_the_same_session_that_asks_again_for_what_it_holds_gets_it(board: TaskBoard) -> None:
    board.add("x", id="t1")
    first = take(board, ANN, "t1")
    again = take(board, ANN, "t1")
    assert (again.token, again.attempts) == (first.token, 1)
    assert actions(board, "t1") == ["added_activity", "claimed_activity"]


def test_asking_again_shows_the_lease_as_it_now_is(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board, ANN, "t1")
    clock.advance(1800)
    again = take(board, ANN, "t1")
    assert again.lease_expires_at == START + 1800 + 3600
    assert again == board.get("t1")


def test_another_session_of_the_same_name_does_not(board: TaskBoard) -> None:
    board.add("x", id="t1")
    take(board, agent("ann", "s1"), "t1")
    with pytest.raises(NotClaimable):
        board.claim(agent("ann", "s2"), "t1")


@pytest.mark.needs("priorities")
def test_several_are_claimed_at_once_best_first(board: TaskBoard) -> None:
    for i in range(5):
        board.add(f"task {i}", priority=i, id=f"t{i}")
    taken = board.claim(ANN, n=3)
    assert [task.id for task in taken] == ["t4", "t3", "t2"]
    tokens = [task.token for task in taken]
    assert len(set(tokens)) == 3
    assert [task.id for task in board.claim(BEN, n=9)] == ["t1", "t0"]


def test_a_claim_needs_a_worker_and_sensible_numbers(board: TaskBoard) -> None:
    board.add("x")
    for wrong in ("", "two\nlines", "\ud800", " ann", "a\0b"):
        with pytest.raises(Invalid):
            board.claim(wrong)
    numbers: list[Any] = [0, -1, 1.5, True, "2"]
    for n in numbers:
        with pytest.raises(Invalid):
            board.claim(ANN, n=n)
    leases: list[Any] = [0, -1, float("nan"), float("inf"), "1h", True]
    for lease in leases:
        with pytest.raises(Invalid):
            board.claim(ANN, lease=lease)
    assert board.pending_count == 1


@pytest.mark.needs("reservations")
class TestReservation:
    @pytest.mark.needs("priorities")
    def test_a_task_reserved_for_people_is_not_given_to_agents(self, board: TaskBoard) -> None:
        board.add("decide", reserved="human", priority=9, id="h")
        board.add("work", id="w")
        assert take(board, ANN).id == "w"
        assert board.claim(ANN) is None
        assert take(board, EVE).id == "h"

    def test_a_task_reserved_for_agents_is_not_given_to_people(self, board: TaskBoard) -> None:
        board.add("grind", reserved="agent", id="a")
        assert board.claim(EVE) is None
        assert take(board, ANN).id == "a"

    @pytest.mark.needs("priorities")
    def test_priority_holds_across_reservations(self, board: TaskBoard) -> None:
        board.add("any low", id="1", priority=1)
        board.add("human high", id="2", priority=2, reserved="human")
        board.add("any highest", id="3", priority=3)
        assert [task.id for task in board.claim(EVE, n=3)] == ["3", "2", "1"]

    def test_a_named_reserved_task_says_for_whom_it_is(self, board: TaskBoard) -> None:
        board.add("decide", reserved="human", id="h")
        with pytest.raises(NotClaimable, match="reserved for a human") as caught:
            board.claim(ANN, "h")
        assert codes(caught.value) == ["reserved"]


class TestRequestKeys:
    def test_a_repeated_claim_with_the_same_key_gives_the_same_claim(self, board: TaskBoard, other: TaskBoard) -> None:
        board.add_many([{"description": "a"}, {"description": "b"}])
        first = board.claim(ANN, request_key="k1")
        again = other.claim(ANN, request_key="k1")
        assert first is not None
        assert again is not None
        assert (again.id, again.token, again.attempts) == (first.id, first.token, 1)
        assert board.pending_count == 1

    def test_so_does_a_claim_of_several(self, board: TaskBoard, other: TaskBoard) -> None:
        board.add_many([{"description": str(i)} for i in range(5)])
        first = board.claim(ANN, n=3, request_key="k1")
        assert other.claim(ANN, n=3, request_key="k1") == first
        assert board.pending_count == 2

    def test_a_key_under_which_nothing_was_found_is_still_good(self, board: TaskBoard) -> None:
        assert board.claim(ANN, request_key="k1") is None
        board.add("x")
        assert board.claim(ANN, request_key="k1") is not None

    def test_a_key_is_known_for_days_whatever_the_wall_clock_does(self, board: TaskBoard, clock: HandClock) -> None:
        board.add_many([{"description": str(i)} for i in range(4)])
        first = board.claim(ANN, lease=30 * 86_400, request_key="k1")
        clock.advance(86_400)
        clock.jump(1_000_000)
        board.claim(ANN, lease=30 * 86_400, request_key="k2")
        again = board.claim(ANN, request_key="k1")
        assert first is not None
        assert again is not None
        assert (again.id, again.token) == (first.id, first.token)

    def test_add_and_claim_keep_their_keys_apart(self, board: TaskBoard) -> None:
        task_id = board.add("x", request_key="k1")
        task = board.claim(ANN, request_key="k1")
        assert task is not None
        assert task.id == task_id

    def test_a_repeat_after_the_claim_was_lost_says_so(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x")
        board.claim(ANN, lease=60, request_key="k1")
        clock.advance(61)
        take(board, BEN)
        with pytest.raises(LeaseLost, match="ben"):
            board.claim(ANN, request_key="k1")

    def test_a_repeat_after_the_claim_was_given_back_is_not_a_claim(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        board.claim(ANN, request_key="k1")
        board.release("t1")
        with pytest.raises(LeaseLost):
            board.claim(ANN, request_key="k1")

    def test_a_repeat_after_the_lease_ran_out_is_not_a_claim(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        board.claim(ANN, lease=60, request_key="k1")
        clock.advance(61)
        with pytest.raises(LeaseLost):
            board.claim(ANN, request_key="k1")

    def test_a_repeat_after_the_task_was_completed_is_not_a_claim(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        board.claim(ANN, request_key="k1")
        board.complete("t1")
        with pytest.raises(LeaseLost, match="completed"):
            board.claim(ANN, request_key="k1")

    def test_a_key_stands_for_one_request_only(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        board.claim(ANN, request_key="k1")
        with pytest.raises(Invalid):
            board.claim(ANN, "b", request_key="k1")
        with pytest.raises(Invalid):
            board.claim(ANN, n=2, request_key="k1")
        assert board.pending_count == 1

    def test_the_key_of_one_worker_never_gives_its_claim_to_another(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a"}, {"description": "b"}])
        mine = board.claim(ANN, request_key="1")
        theirs = board.claim(BEN, request_key="1")
        assert mine is not None
        assert theirs is not None
        assert mine.id != theirs.id
        assert theirs.assigned_to == "ben"


class TestReasons:
    """Blocked is not a status: it is derived, and always says by what."""

    def test_a_free_task_has_none(self, board: TaskBoard) -> None:
        assert board.reasons(board.add("x"), ANN) == []

    def test_an_unmet_dependency_is_named(self, board: TaskBoard) -> None:
        need = board.add("first", id="need")
        task_id = board.add("second", [need])
        (reason,) = board.reasons(task_id)
        assert (reason.code, reason.task_id) == ("dependency", "need")
        assert board.get(task_id).status is TaskStatus.PENDING

    @pytest.mark.needs("failed tasks")
    def test_a_failed_dependency_shows_and_offers_the_way_out(self, board: TaskBoard) -> None:
        need = board.add("first", id="need")
        task_id = board.add("second", [need])
        take(board, ANN, need)
        board.fail(need, "boom")
        (reason,) = board.reasons(task_id)
        assert reason.code == "dependency"
        assert "failed" in reason.text
        assert "retry" in reason.text

    @pytest.mark.needs("blockers")
    def test_an_open_blocker_is_named_with_its_reason(self, board: TaskBoard) -> None:
        task_id = board.add("x")
        board.block(task_id, "no password", worker=EVE)
        (reason,) = board.reasons(task_id)
        assert (reason.code, reason.worker) == ("blocker", "eve")
        assert "no password" in reason.text

    @pytest.mark.needs("locks", "paths")
    def test_a_held_path_is_named_with_its_holder(self, board: TaskBoard) -> None:
        task_id = board.add("x", paths=["src/auth/**"])
        board.lock(["src/auth/login.py"], BEN, lease=60)
        (reason,) = board.reasons(task_id, ANN)
        assert (reason.code, reason.worker, reason.path) == ("path", "ben", "src/auth/login.py")
        assert reason.until == START + 60
        assert board.reasons(task_id, BEN) == []

    @pytest.mark.needs("reservations")
    def test_a_reservation_is_named(self, board: TaskBoard) -> None:
        task_id = board.add("x", reserved="human")
        assert [reason.code for reason in board.reasons(task_id, ANN)] == ["reserved"]
        assert board.reasons(task_id, EVE) == []

    def test_a_holder_is_named_with_the_end_of_its_lease(self, board: TaskBoard) -> None:
        task_id = board.add("x")
        take(board, ANN, lease=90)
        (reason,) = board.reasons(task_id, BEN)
        assert (reason.code, reason.worker, reason.until) == ("held", "ann", START + 90)

    @pytest.mark.needs("blockers", "locks", "paths", "reservations")
    def test_all_of_them_are_given_at_once(self, board: TaskBoard) -> None:
        need = board.add("first")
        task_id = board.add("x", [need], reserved="human", paths=["a"], id="t1")
        board.block(task_id, "why", worker=EVE)
        board.lock(["a"], BEN)
        assert [r.code for r in board.reasons(task_id, ANN)] == ["dependency", "blocker", "reserved", "path"]
        with pytest.raises(NotClaimable) as caught:
            board.claim(ANN, "t1")
        assert codes(caught.value) == ["dependency", "blocker", "reserved", "path"]
        assert caught.value.fields["task_id"] == "t1"

    @pytest.mark.needs("priorities", "reservations")
    def test_what_is_ready_is_what_would_be_claimed(self, board: TaskBoard) -> None:
        board.add("a", id="a", priority=1)
        board.add("b", id="b", priority=2)
        board.add("c", ["a"], id="c", priority=3)
        board.add("d", id="d", reserved="human")
        assert [task.id for task in board.ready(ANN)] == ["b", "a"]
        assert [task.id for task in board.ready(EVE)] == ["b", "a", "d"]
        assert [task.id for task in board.ready(ANN, limit=1)] == ["b"]
        assert board.pending_count == 4

    def test_what_expired_claims_hold_is_ready_in_its_place_and_waited_for_by_nobody(
        self, board: TaskBoard, clock: HandClock
    ) -> None:
        board.add_many([{"description": i, "id": i} for i in ("a", "b", "c")])
        take(board, ANN, "a", lease=60)
        take(board, ANN, "b", lease=600)
        clock.advance(60)
        assert [task.id for task in board.ready(BEN)] == ["a", "c"]
        assert [task.id for task in board.ready(BEN, limit=1)] == ["a"]
        assert board.get("a").status is TaskStatus.IN_PROGRESS  # a read changes nothing
        assert board.wait(BEN, 0)
        assert take(board, BEN).id == "a"

    @pytest.mark.needs("limits of attempts", "priorities", "reservations")
    def test_an_expired_claim_is_not_ready_for_those_who_could_not_have_it(
        self, board: TaskBoard, clock: HandClock
    ) -> None:
        board.add("a", id="a", reserved="human")
        board.add("b", id="b", max_attempts=1)
        board.add("c", id="c", paths=["src"])
        for task_id, worker in (("a", EVE), ("b", ANN), ("b", ANN), ("c", ANN)):
            if board.get(task_id).status is TaskStatus.IN_PROGRESS:
                clock.advance(60)
            take(board, worker, task_id, lease=60)
        clock.advance(60)
        board.lock(["src/x.py"], ANN)
        assert board.ready(BEN) == []
        assert not board.wait(BEN, 0)
        assert board.claim(BEN) is None


@pytest.mark.needs("failed tasks")
def test_a_claimed_object_completes_fails_releases_and_renews(board: TaskBoard, clock: HandClock) -> None:
    for i in range(3):
        board.add(f"task {i}", id=f"t{i}")
    one, two, three = board.claim(ANN, n=3)
    clock.advance(10)
    one.renew()
    assert one.lease_expires_at == START + 10 + 3600
    one.complete("done")
    two.fail("boom")
    three.release()
    assert (one.status, one.result) == ("completed", "done")
    assert (two.status, two.result) == ("failed", "boom")
    assert (three.status, three.assigned_to) == ("pending", None)
    for task in (one, two, three):
        assert board.get(task.id).status is task.status


def test_a_claimed_object_can_complete_and_claim_the_next_in_one_step(board: TaskBoard) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    first = take(board, ANN)
    second = first.complete("done", claim_next=True)
    assert first.status is TaskStatus.COMPLETED
    assert second is not None
    assert (second.id, second.assigned_to) == ("b", "ann")
    assert second.complete(claim_next=True) is None
    assert board.all_done


def raced() -> NotClaimable:
    error = NotClaimable("a worker by hand was faster", reasons=[{"code": "held"}])
    error.raced = True
    return error


@pytest.mark.parametrize("error", [Collision("others are at every task that is left"), raced()], ids=["crowd", "hand"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "always"])
def test_what_is_in_the_way_of_the_next_task_takes_nothing_from_the_completed_one(
    board: TaskBoard, other: TaskBoard, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int
) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    first = take(board, ANN)
    with board.store.write() as tx:
        kind: Any = type(tx)
    ready = kind.ready
    errors = iter([error] * times)

    def crowded(self: Any, *args: Any, **options: Any) -> Any:
        if (raised := next(errors, None)) is not None:
            raise raised
        return ready(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "ready", crowded)
        patch.setattr(board.store, "try_claim", lambda *asked: None)
        patch.setattr("dibs.board.core.COLLISIONS", 2)
        second = first.complete("done", claim_next=True)
    assert (first.status, first.result) == (TaskStatus.COMPLETED, "done")
    assert other.get("a").status is TaskStatus.COMPLETED
    assert sum(action in ("completed_activity", "submitted_activity") for action in actions(board, "a")) == 1
    if times == 1:
        assert second is not None
        assert (second.id, second.assigned_to) == ("b", "ann")
    else:
        assert second is None
        assert other.get("b").status is TaskStatus.PENDING
        assert take(board, ANN).id == "b"


def test_an_exception_inside_a_claim_releases_it(board: TaskBoard) -> None:
    board.add("x", id="t1")
    with pytest.raises(ZeroDivisionError), take(board, ANN) as task:
        raise ZeroDivisionError
    assert task.status is TaskStatus.PENDING
    assert board.get("t1").status is TaskStatus.PENDING
    assert actions(board, "t1")[-1] == "released_activity"


def test_leaving_a_claim_quietly_leaves_it_as_it_is(board: TaskBoard) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    with take(board, ANN) as first:
        pass
    with take(board, ANN) as second:
        second.complete("done")
    assert board.get(first.id).status is TaskStatus.IN_PROGRESS
    assert board.get(second.id).status is TaskStatus.COMPLETED


def test_an_exception_after_the_lease_was_lost_stays_the_callers_own(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")

    def work() -> None:
        with take(board, ANN, lease=60):
            clock.advance(61)
            take(board, BEN)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert board.get("t1").assigned_to == "ben"


def test_a_task_that_was_only_looked_at_cannot_act(board: TaskBoard) -> None:
    board.add("x", id="t1")
    seen = board.get("t1")
    with pytest.raises(ValueError, match="not claimed through this object"):
        seen.complete("done")
    assert board.get("t1").status is TaskStatus.PENDING


def test_whose_claims_are_whose_is_told_by_worker(board: TaskBoard, clock: HandClock) -> None:
    board.add_many([{"description": str(i)} for i in range(3)])
    mine = take(board, agent("ann", "s1"))
    theirs = take(board, agent("ann", "s2"), lease=30)
    take(board, BEN)
    assert [task.id for task in board.held_by(agent("ann", "s1"))] == [mine.id]
    assert {task.id for task in board.held_by(Worker("ann"))} == {mine.id, theirs.id}
    clock.advance(31)
    assert [task.id for task in board.held_by(Worker("ann"))] == [mine.id]


@pytest.mark.needs("locks", "paths")
def test_reasons_are_in_one_order_on_every_store(board: TaskBoard) -> None:
    board.add("x", id="t", paths=["src", "docs", "a/b"])
    for path in ("src/z.py", "a", "docs/b", "src/a.py"):
        board.lock([path], f"holder-of-{path}")
    told = [reason.path for reason in board.reasons("t")]
    assert len(told) == 4
    assert told == sorted(told, key=str)
