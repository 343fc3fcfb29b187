"""What people and leads decide: retry, cancel, review, blockers; and the steps of an activity."""

from __future__ import annotations

import pytest

from dibs import LeaseLost, TaskBoard, TaskStatus
from dibs.errors import Invalid, NotHolder, WrongStatus
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, LEAD, actions, agent, take
from tests.contract.stores import Home

DECISIONS = ("retry", "cancel", "accept", "reject", "block", "unblock")


@pytest.mark.parametrize("verb", DECISIONS)
def test_a_decision_about_a_task_that_is_not_there_is_refused(board: TaskBoard, verb: str) -> None:
    more = ["why"] if verb in ("reject", "block") else []
    with pytest.raises(LookupError):
        getattr(board, verb)("nowhere", *more, worker=EVE)


class TestRetry:
    @pytest.mark.needs("failed tasks")
    def test_a_failed_task_goes_back_to_pending(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board).fail("boom")
        retried = board.retry("t1", worker=EVE)
        assert (retried.status, retried.result, retried.assigned_to) == (TaskStatus.PENDING, None, None)
        assert (retried.completed_at, retried.attempts) == (None, 0)
        assert take(board, BEN).id == "t1"

    @pytest.mark.needs("failed tasks")
    def test_the_old_holder_stays_fenced(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        old = take(board).token
        board.fail("t1", "boom", token=old)
        board.retry("t1", worker=EVE)
        with pytest.raises(LeaseLost):
            board.fail("t1", "boom", token=old)
        take(board, BEN)
        with pytest.raises(LeaseLost):
            board.complete("t1", token=old)

    @pytest.mark.parametrize("status", ["pending", "in_progress", "completed"])
    def test_only_what_failed_or_was_cancelled_is_retried(self, board: TaskBoard, status: str) -> None:
        board.add("x", id="t1")
        if status != "pending":
            task = take(board)
            if status == "completed":
                task.complete()
        with pytest.raises(WrongStatus):
            board.retry("t1", worker=EVE)
        assert board.get("t1").status == status


class TestCancel:
    @pytest.mark.needs("cancelled tasks")
    def test_a_pending_task_is_cancelled_by_anyone_with_a_reason(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        gone = board.cancel("t1", "not needed", worker=BEN)
        assert (gone.status, gone.result, gone.completed_at) == (TaskStatus.CANCELLED, "not needed", START)
        assert board.claim(ANN) is None
        assert board.all_done

    @pytest.mark.needs("cancelled tasks")
    def test_its_holder_may_cancel_a_claimed_task(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board, ANN)
        assert board.cancel("t1", worker=ANN).assigned_to is None

    @pytest.mark.needs("cancelled tasks", "paths")
    @pytest.mark.parametrize("worker", [EVE, LEAD])
    def test_a_person_or_a_lead_may_too_and_the_holder_is_fenced(self, board: TaskBoard, worker: object) -> None:
        board.add("x", id="t1", paths=["src"])
        task = take(board, ANN)
        board.cancel("t1", "changed plans", worker=worker)  # type: ignore[arg-type]
        with pytest.raises((LeaseLost, WrongStatus)):
            task.complete("done")
        assert board.get("t1").status is TaskStatus.CANCELLED
        assert board.locks() == []

    def test_another_agent_may_not(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board, ANN)
        for stranger in (BEN, agent("ann", "s2")):
            with pytest.raises(NotHolder):
                board.cancel("t1", worker=stranger)
        assert board.get("t1").assigned_to == "ann"

    @pytest.mark.needs("cancelled tasks")
    def test_a_cancelled_task_can_be_retried(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        board.cancel("t1", worker=EVE)
        board.retry("t1", worker=EVE)
        assert take(board).id == "t1"

    def test_what_has_ended_cannot_be_cancelled(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        board.complete("t1")
        with pytest.raises(WrongStatus):
            board.cancel("t1", worker=EVE)


@pytest.mark.needs("reviews")
class TestReview:
    def test_completing_submits_and_accepting_completes(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1", review=True)
        submitted = board.complete(take(board, ANN).id, "please look")
        assert (submitted.status, submitted.result) == (TaskStatus.REVIEW, "please look")
        assert not board.all_done
        clock.advance(60)
        accepted = board.accept("t1", "well done", worker=BEN)
        assert (accepted.status, accepted.completed_at, accepted.result) == (
            TaskStatus.COMPLETED,
            START + 60,
            "please look",
        )
        assert actions(board, "t1")[-2:] == ["submitted_activity", "accepted_activity"]

    def test_rejecting_gives_back_with_the_note(self, board: TaskBoard) -> None:
        board.add("x", id="t1", review=True)
        take(board, ANN).complete("please look")
        rejected = board.reject("t1", "no tests", worker=BEN)
        assert rejected.status is TaskStatus.PENDING
        assert "no tests" in (rejected.result or "")
        assert "ben" in (rejected.result or "")
        assert take(board, BEN).id == "t1"

    def test_who_did_it_cannot_accept_it(self, board: TaskBoard) -> None:
        board.add("x", id="t1", review=True)
        take(board, ANN).complete("please look")
        with pytest.raises(NotHolder):
            board.accept("t1", worker=ANN)
        assert board.get("t1").status is TaskStatus.REVIEW

    @pytest.mark.needs("paths")
    def test_nobody_works_on_a_task_in_review(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1", review=True, paths=["src"])
        take(board, ANN, lease=60).complete("please look")
        clock.advance(61)
        assert board.recover() == []
        assert board.claim(BEN) is None
        assert board.locks() == []

    @pytest.mark.parametrize("verb", ["accept", "reject"])
    def test_only_what_is_in_review_is_reviewed(self, board: TaskBoard, verb: str) -> None:
        board.add("x", id="t1", review=True)
        more = ["why"] if verb == "reject" else []
        for _ in range(2):
            with pytest.raises(WrongStatus):
                getattr(board, verb)("t1", *more, worker=EVE)
            board.claim(ANN)

    @pytest.mark.needs("cancelled tasks")
    def test_a_task_in_review_can_be_cancelled(self, board: TaskBoard) -> None:
        board.add("x", id="t1", review=True)
        take(board, ANN).complete()
        assert board.cancel("t1", worker=EVE).status is TaskStatus.CANCELLED


class TestBlockers:
    @pytest.mark.needs("blockers", "priorities")
    def test_a_blocked_task_is_not_given_until_it_is_unblocked(self, board: TaskBoard) -> None:
        board.add("x", id="t1", priority=9)
        board.add("y", id="t2")
        board.block("t1", "no password", worker=EVE)
        assert board.get("t1").status is TaskStatus.PENDING
        assert take(board).id == "t2"
        assert board.claim(ANN) is None
        freed = board.unblock("t1", "it is on the wiki", worker=EVE)
        (blocker,) = freed.blockers
        assert (blocker.reason, blocker.raised_by, blocker.resolution) == ("no password", "eve", "it is on the wiki")
        assert take(board).id == "t1"

    @pytest.mark.needs("blockers", "paths")
    def test_the_holder_that_blocks_gives_the_task_back(self, board: TaskBoard) -> None:
        board.add("x", id="t1", paths=["src"])
        task = take(board, ANN)
        board.block("t1", "no password", worker=ANN)
        back = board.get("t1")
        assert (back.status, back.assigned_to, back.attempts) == (TaskStatus.PENDING, None, 0)
        assert board.locks() == []
        with pytest.raises(LeaseLost):
            task.complete()

    def test_another_agent_cannot_block_what_somebody_holds(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        take(board, ANN)
        with pytest.raises(NotHolder):
            board.block("t1", "mine!", worker=BEN)

    @pytest.mark.needs("blockers")
    def test_every_blocker_must_go(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        board.block("t1", "one", worker=EVE)
        board.block("t1", "two", worker=EVE)
        board.unblock("t1", blocker="b1", worker=EVE)
        assert board.claim(ANN) is None
        assert [r.text for r in board.reasons("t1")] == ["blocked by eve: two"]
        board.unblock("t1", worker=EVE)
        assert take(board).id == "t1"

    @pytest.mark.needs("blockers")
    def test_what_is_not_blocked_cannot_be_unblocked(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        with pytest.raises(WrongStatus):
            board.unblock("t1", worker=EVE)
        board.block("t1", "one", worker=EVE)
        with pytest.raises(WrongStatus):
            board.unblock("t1", blocker="b9", worker=EVE)
        assert board.claim(ANN) is None

    def test_what_has_ended_cannot_be_blocked(self, board: TaskBoard) -> None:
        board.add("x", id="t1")
        board.complete("t1")
        with pytest.raises(WrongStatus):
            board.block("t1", "why", worker=EVE)

    @pytest.mark.needs("blockers")
    def test_unblocking_what_was_completed_meanwhile_does_not_free_its_dependants_twice(self, board: TaskBoard) -> None:
        board.add_many([{"description": "a", "id": "a"}, {"description": "b", "id": "b"}])
        board.add("c", ["a", "b"], id="c")
        board.block("a", "why", worker=EVE)
        board.complete("a")
        try:
            board.unblock("a", worker=EVE)
        except WrongStatus:
            pass
        assert [reason.task_id for reason in board.reasons("c")] == ["b"]
        assert {task.id for task in board.ready(ANN)} == {"b"}
        board.complete("b")
        assert take(board).id == "c"


@pytest.mark.needs("steps")
class TestSteps:
    def test_steps_are_done_in_order(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1", steps=["read", "write", "test"])
        take(board, ANN)
        board.step("t1", "start", worker=ANN)
        clock.advance(10)
        board.step("t1", "done", "was easy", worker=ANN)
        task = board.step("t1", "skip", "not needed", worker=ANN)
        assert [step.status for step in task.steps] == ["completed", "skipped", "pending"]
        first, second, _ = task.steps
        assert (first.started_at, first.completed_at, first.completed_by) == (START, START + 10, "ann")
        assert (first.notes, second.notes) == ("was easy", "not needed")

    def test_a_later_step_has_to_wait(self, board: TaskBoard, home: Home) -> None:
        board.add("x", id="t1", steps=["read", "write"])
        take(board, ANN)
        with pytest.raises(WrongStatus, match=home.step("t1", 1)):
            board.step("t1", "start", step_id=home.step("t1", 2), worker=ANN)

    def test_there_is_nothing_after_the_last_step(self, board: TaskBoard) -> None:
        board.add("x", id="t1", steps=["read"])
        take(board, ANN)
        board.step("t1", "done", worker=ANN)
        with pytest.raises(WrongStatus):
            board.step("t1", "done", worker=ANN)
        with pytest.raises(WrongStatus):
            board.step("t1", "done", step_id="s7", worker=ANN)

    def test_steps_can_be_added_to_open_work(self, board: TaskBoard, home: Home) -> None:
        board.add("x", id="t1")
        board.step("t1", "add", "plan", worker=EVE)
        take(board, ANN)
        board.step("t1", "add", "write", worker=ANN)
        steps = [(step.id, step.title) for step in board.get("t1").steps]
        assert steps == [(home.step("t1", 1), "plan"), (home.step("t1", 2), "write")]
        with pytest.raises(NotHolder):
            board.step("t1", "add", "mine", worker=BEN)
        board.complete("t1")
        with pytest.raises(WrongStatus):
            board.step("t1", "add", "late", worker=ANN)

    def test_only_the_holder_works_on_steps(self, board: TaskBoard) -> None:
        board.add("x", id="t1", steps=["read"])
        with pytest.raises(WrongStatus):
            board.step("t1", "start", worker=ANN)
        take(board, ANN)
        with pytest.raises(NotHolder):
            board.step("t1", "start", worker=BEN)
        with pytest.raises(NotHolder):
            board.step("t1", "start", worker=agent("ann", "s2"))

    def test_a_step_by_token_is_the_holders(self, board: TaskBoard) -> None:
        board.add("x", id="t1", steps=["read"])
        token = take(board, ANN).token
        board.step("t1", "done", token=token)
        assert board.get("t1").steps[0].completed_by == "ann"
        assert list(board.changelog(task_id="t1"))[2].worker == "ann"

    def test_a_board_remembers_the_token_for_steps_as_for_completing(self, board: TaskBoard) -> None:
        board.add("x", id="t1", steps=["read"])
        take(board, "worker-1")
        board.step("t1", "done")
        assert board.get("t1").steps[0].completed_by == "worker-1"

    @pytest.mark.needs("paths")
    def test_a_step_renews_the_claim(self, board: TaskBoard, clock: HandClock) -> None:
        board.add("x", id="t1", steps=["read"], paths=["src"])
        take(board, ANN, lease=100)
        clock.advance(90)
        assert board.step("t1", "start", worker=ANN).lease_expires_at == START + 190
        assert board.locks()[0].expires_at == START + 190

    def test_steps_are_in_the_changelog_by_their_id(self, board: TaskBoard, home: Home) -> None:
        board.add("x", id="t1", steps=["read"])
        take(board, ANN)
        board.step("t1", "start", worker=ANN)
        board.step("t1", "done", worker=ANN)
        logged = [(e.action, e.step_id) for e in board.changelog(task_id="t1") if e.step_id]
        first = home.step("t1", 1)
        assert logged == [("claimed_task", first), ("completed_task", first)]

    def test_a_verb_that_steps_do_not_have_is_refused(self, board: TaskBoard) -> None:
        board.add("x", id="t1", steps=["read"])
        with pytest.raises(Invalid):
            board.step("t1", "dance", worker=ANN)
        with pytest.raises(Invalid):
            board.step("t1", "add", worker=ANN)

    def test_open_steps_do_not_keep_a_task_from_being_completed(self, board: TaskBoard) -> None:
        board.add("x", id="t1", steps=["read"])
        take(board, ANN).complete()
        assert board.get("t1").status is TaskStatus.COMPLETED
