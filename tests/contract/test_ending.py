"""Ending a claim: complete, fail, release, renew, and the token that fences them."""

from __future__ import annotations

import os

import pytest

from dibs import LeaseLost, NotFound, TaskBoard, TaskStatus, Worker
from dibs.errors import Invalid, NotHolder, WrongStatus
from dibs.worker import boot, host, process_start
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, actions, agent, take
from tests.contract.stores import Home


def test_complete_records_the_result_and_the_time(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board)
    clock.advance(30)
    done = board.complete("t1", "Endpoint created")
    assert (done.status, done.result, done.completed_at) == ("completed", "Endpoint created", START + 30)
    assert (done.assigned_to, done.lease_expires_at) == ("ann", None)
    assert board.get("t1") == done


@pytest.mark.needs("failed tasks")
def test_fail_records_the_error_and_the_time(board: TaskBoard, clock: HandClock) -> None:
    board.add("x", id="t1")
    take(board)
    clock.advance(30)
    failed = board.fail("t1", "no such table")
    assert (failed.status, failed.result, failed.completed_at) == ("failed", "no such table", START + 30)


def test_release_gives_back_and_forgets_the_holder(board: TaskBoard) -> None:
    board.add("x", id="t1")
    token = take(board).token
    back = board.release("t1", note="lunch")
    assert back.status is TaskStatus.PENDING
    assert (back.assigned_to, back.holder, back.claimed_at, back.lease_expires_at) == (None, None, None, None)
    again = take(board, BEN)
    assert (again.id, again.attempts) == ("t1", 2)
    assert token is not None
    assert again.token is not None
    assert again.token > token


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "renew"])
def test_an_unknown_task_is_not_found(board: TaskBoard, verb: str) -> None:
    more = ["boom"] if verb == "fail" else []
    with pytest.raises(NotFound) as caught:
        getattr(board, verb)("nowhere", *more)
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("verb", ["release", "renew"])
def test_only_a_task_in_progress_can_be_released_or_renewed(board: TaskBoard, verb: str) -> None:
    board.add("x", id="t1")
    with pytest.raises(WrongStatus, match="pending"):
        getattr(board, verb)("t1")
    take(board)
    board.complete("t1")
    with pytest.raises(WrongStatus, match="completed"):
        getattr(board, verb)("t1")


@pytest.mark.needs("failed tasks")
def test_a_completed_task_cannot_fail_nor_a_failed_one_complete(board: TaskBoard) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    for task in board.claim(ANN, n=2):
        task.complete() if task.id == "a" else task.fail("boom")
    with pytest.raises(WrongStatus):
        board.fail("a", "late")
    with pytest.raises(WrongStatus):
        board.complete("b")
    assert [row["status"] for row in board.status()] == ["completed", "failed"]


@pytest.mark.needs("failed tasks")
def test_a_task_that_nobody_holds_can_be_completed_or_failed_by_nobody_in_particular(board: TaskBoard) -> None:
    board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
    board.complete("a", "was done already")
    board.fail("b", "cannot be done")
    assert [row["status"] for row in board.status()] == ["completed", "failed"]


def test_a_named_worker_completes_only_what_it_holds(board: TaskBoard) -> None:
    board.add("x", id="t1")
    with pytest.raises(WrongStatus):
        board.complete("t1", worker=ANN)


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "renew"])
def test_another_worker_cannot_end_or_renew_a_claim(board: TaskBoard, other: TaskBoard, verb: str) -> None:
    board.add("x", id="t1")
    take(board, ANN)
    before = board.get("t1")
    more = ["boom"] if verb == "fail" else []
    with pytest.raises(NotHolder, match="held by ann") as caught:
        getattr(other, verb)("t1", *more, worker=BEN)
    assert isinstance(caught.value, PermissionError)
    assert caught.value.fields["holder"] == "ann"
    assert board.get("t1") == before


class TestSessions:
    """Two sessions under one name are two workers; where a session is unknown, the name decides."""

    @pytest.mark.parametrize("verb", ["complete", "fail", "release", "renew"])
    def test_another_session_of_the_same_name_is_another_worker(self, board: TaskBoard, verb: str) -> None:
        board.add("x", id="t1")
        take(board, agent("ann", "s1"))
        more = ["boom"] if verb == "fail" else []
        with pytest.raises(NotHolder, match="another session"):
            getattr(board, verb)("t1", *more, worker=agent("ann", "s2"))

    @pytest.mark.parametrize(("holder", "caller"), [("s1", None), (None, "s1"), (None, None), ("s1", "s1")])
    def test_an_unknown_session_matches_by_name(self, board: TaskBoard, holder: str | None, caller: str | None) -> None:
        board.add("x", id="t1")
        take(board, agent("ann", holder))
        assert board.complete("t1", worker=agent("ann", caller)).status is TaskStatus.COMPLETED

    def test_an_unknown_session_of_another_name_does_not(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board, agent("ann", "s1"))
        with pytest.raises(NotHolder):
            board.complete("t1", worker=Worker("ben"))


class TestToken:
    @pytest.mark.needs("locks")
    def test_tokens_only_grow_whatever_they_are_for(self, board: TaskBoard, other: TaskBoard) -> None:
        board.add_many([{"description": str(i), "id": f"t{i}"} for i in range(4)])
        tokens = [take(board).token, other.lock(["a"], BEN)[0].token, take(other, BEN).token]
        board.release("t0")
        tokens += [take(other, BEN, "t0").token, *(task.token for task in board.claim(ANN, n=2))]
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    @pytest.mark.needs("steps")
    @pytest.mark.parametrize("verb", ["complete", "fail", "release", "renew", "step"])
    def test_the_right_token_does_not_make_up_for_another_name(
        self, board: TaskBoard, other: TaskBoard, verb: str
    ) -> None:
        board.add("x", id="t1", steps=["one"])
        token = take(board, ANN).token
        more = {"fail": ["boom"], "step": ["done"]}.get(verb, [])
        with pytest.raises(NotHolder, match="held by ann") as caught:
            getattr(other, verb)("t1", *more, worker=BEN, token=token)
        assert "token" not in caught.value.fields
        assert board.get("t1").status is TaskStatus.IN_PROGRESS

    @pytest.mark.needs("steps")
    @pytest.mark.parametrize("verb", ["complete", "fail", "release", "renew", "step"])
    def test_a_replaced_holder_is_told_who_holds_it_now_and_changes_nothing(
        self, board: TaskBoard, other: TaskBoard, clock: HandClock, verb: str
    ) -> None:
        board.add("x", id="t1", steps=["one"])
        stale = take(board, ANN, lease=60)
        clock.advance(61)
        fresh = take(other, BEN)
        before = board.get("t1")
        more = {"fail": ["boom"], "step": ["done"]}.get(verb, [])
        with pytest.raises(LeaseLost, match="ben took it") as caught:
            getattr(board, verb)("t1", *more, token=stale.token)
        assert isinstance(caught.value, PermissionError)
        assert caught.value.fields["holder"] == "ben"
        assert str(fresh.token) not in str(caught.value)  # it would only invite to use it
        assert board.get("t1") == before

    @pytest.mark.parametrize("verb", ["complete", "fail", "release", "renew"])
    def test_a_board_remembers_its_tokens_so_document_004_is_fenced_too(
        self, board: TaskBoard, other: TaskBoard, clock: HandClock, verb: str
    ) -> None:
        board.add("x", id="t1")
        take(board, "worker-1", lease=60)
        clock.advance(61)
        take(other, "worker-2")
        more = ["boom"] if verb == "fail" else []
        with pytest.raises(LeaseLost, match="worker-2"):
            getattr(board, verb)("t1", *more)
        assert board.get("t1").assigned_to == "worker-2"

    def test_a_claim_is_over_when_its_lease_is_even_if_nobody_came(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        task = take(board, ANN, lease=60)
        clock.advance(60)
        for attempt in (task.complete, task.renew, task.release, lambda: task.fail("boom")):
            with pytest.raises(LeaseLost, match="lease ran out") as caught:
                attempt()
            assert caught.value.fields["holder"] in (None, "ann")
        with pytest.raises(LeaseLost):
            board.complete("t1", worker=ANN)

    def test_a_lease_lost_to_nobody_names_nobody(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1")
        task = take(board, ANN, lease=60)
        clock.advance(60)
        with pytest.raises(LeaseLost, match="nobody holds it") as caught:
            task.complete()
        assert caught.value.fields["holder"] is None

    def test_a_token_from_before_the_release_is_worthless_after_the_next_claim(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        old = take(board, ANN).token
        board.release("t1")
        take(board, ANN)
        with pytest.raises(LeaseLost):
            board.complete("t1", token=old)

    def test_a_token_that_never_was_is_refused(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        with pytest.raises(Invalid, match="never had"):
            board.complete("t1", token=10**17)
        take(board, ANN)
        with pytest.raises(Invalid, match="never had"):
            board.complete("t1", token=10**17)
        assert board.get("t1").status is TaskStatus.IN_PROGRESS


class TestRepeats:
    """Clients retry: the same verb with the same token gives the same answer and changes nothing more."""

    @pytest.mark.parametrize(
        ("verb", "more"),
        [
            ("complete", ["done"]),
            pytest.param("fail", ["boom"], marks=pytest.mark.needs("failed tasks")),
            ("release", []),
        ],
    )
    def test_a_repeated_ending_answers_as_before(
        self, board: TaskBoard, other: TaskBoard, clock: HandClock, verb: str, more: list[str]
    ) -> None:
        board.add("x", id="t1")
        token = take(board).token
        first = getattr(board, verb)("t1", *more, token=token)
        logged = actions(board)
        clock.advance(10)
        assert getattr(other, verb)("t1", *more, token=token) == first
        assert board.get("t1") == first
        assert actions(board) == logged

    def test_the_first_result_stays(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        token = take(board).token
        board.complete("t1", "first", token=token)
        assert board.complete("t1", "second", token=token).result == "first"

    def test_a_repeat_through_the_claimed_object_is_fine(self, board: TaskBoard) -> None:
        board.add("x")
        task = take(board)
        task.complete("done")
        task.complete("done")
        assert task.result == "done"

    def test_a_repeat_by_name_is_fine(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board, ANN)
        board.complete("t1", "done", worker=ANN)
        assert board.complete("t1", "done", worker=ANN).result == "done"

    def test_a_complete_by_somebody_else_is_no_repeat(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board, ANN)
        board.complete("t1", "done", worker=ANN)
        with pytest.raises((WrongStatus, NotHolder)):
            board.complete("t1", "mine", worker=BEN)
        assert board.get("t1").result == "done"

    @pytest.mark.needs("limits of attempts")
    def test_a_release_that_used_up_the_attempts_can_be_repeated_too(self, board: TaskBoard) -> None:
        board.add("x", id="t1", max_attempts=0)
        token = take(board).token
        first = board.release("t1", token=token)
        assert first.status is TaskStatus.FAILED
        assert board.release("t1", token=token) == first

    @pytest.mark.needs("steps")
    def test_a_named_step_is_done_once(self, board: TaskBoard, home: Home) -> None:
        board.add("x", id="t1", steps=["one", "two"])
        token = take(board).token
        step = home.step("t1", 1)
        first = board.step("t1", "done", "note", step_id=step, token=token)
        again = board.step("t1", "done", "note", step_id=step, token=token)
        assert [step.status for step in again.steps] == ["completed", "pending"]
        assert again.steps == first.steps

    @pytest.mark.needs("reviews")
    def test_a_repeat_after_a_rejection_is_not_a_second_submission(self, board: TaskBoard) -> None:
        board.add("x", id="t1", review=True)
        token = take(board, ANN).token
        board.complete("t1", "done", token=token)
        board.reject("t1", "no tests", worker=BEN)
        with pytest.raises(LeaseLost):
            board.complete("t1", "done", token=token)
        assert board.get("t1").status is TaskStatus.PENDING


def test_release_agent_tasks_gives_back_all_of_one_name_and_only_those(board: TaskBoard) -> None:
    board.add_many([{"description": str(i), "id": f"t{i}"} for i in range(4)])
    take(board, agent("ann", "s1"))
    take(board, agent("ann", "s2"))
    take(board, BEN)
    assert sorted(board.release_agent_tasks("ann")) == ["t0", "t1"]
    assert [row["status"] for row in board.status()] == ["pending", "pending", "in_progress", "pending"]
    assert board.release_agent_tasks("ann") == []
    assert board.release_agent_tasks("nobody") == []


def test_release_agent_tasks_of_a_session_leaves_the_other_sessions_alone(board: TaskBoard) -> None:
    board.add_many([{"description": str(i), "id": f"t{i}"} for i in range(2)])
    take(board, agent("ann", "s1"))
    take(board, agent("ann", "s2"))
    assert board.release_agent_tasks(agent("ann", "s2")) == ["t1"]
    assert board.get("t0").assigned_to == "ann"


@pytest.mark.needs("locks", "paths")
def test_release_agent_tasks_gives_back_its_locks_too(board: TaskBoard) -> None:
    board.add("x", paths=["src/a"])
    take(board, ANN)
    board.lock(["docs"], ANN)
    board.lock(["etc"], BEN)
    board.release_agent_tasks("ann")
    assert [lock.pattern for lock in board.locks()] == ["etc"]


@pytest.mark.needs("locks")
def test_release_agent_tasks_of_a_process_leaves_another_process_of_its_session_alone(board: TaskBoard) -> None:
    one, two = (
        Worker("ann", session="s1", host=host(), pid=os.getpid(), started=started, boot=boot())
        for started in (process_start(os.getpid()), "another")
    )
    board.add_many([{"description": str(i), "id": f"t{i}"} for i in range(3)])
    take(board, one)
    board.lock(["a.py"], one)
    take(board, agent("ann", "s1"))
    assert sorted(board.release_agent_tasks(two)) == ["t1"]
    assert [lock.pattern for lock in board.locks()] == ["a.py"]
    assert sorted(board.release_agent_tasks(one)) == ["t0"]
    assert board.locks() == []


@pytest.mark.needs("blockers")
def test_releasing_a_claim_that_was_ended_by_a_blocker_changes_nothing_more(board: TaskBoard) -> None:
    board.add("x", id="t1")
    task = take(board)
    board.block("t1", "the server is away", worker=ANN)
    assert board.release("t1", worker=ANN, token=task.token).status is TaskStatus.PENDING
    assert actions(board, "t1")[-1] == "blocked"
