"""The rules as pure functions: they raise and have changed nothing, or change rows and return the event for it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import BoardTask, Event, LeaseLost, TaskStatus, Worker
from dibs.errors import Busy, DibsError, Invalid, NotHolder, WrongStatus
from dibs.model import Blocker, Lock, Step
from dibs.replay import State
from dibs.rules import locks as lock_rules
from dibs.rules import tasks as rules
from dibs.rules.lock_index import LockIndex

NOW = 1000.0
ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s1")
EVE = Worker("eve", "human", session="s1")
LEAD = Worker("lead", role="lead", session="s1")

STATUSES = list(TaskStatus)


def made(status: TaskStatus, **more: object) -> BoardTask:
    """A task in a status, held by ann (or last held, where the status keeps the holder)."""
    task = BoardTask("t1", "x", status, created_at=1.0, **more)  # type: ignore[arg-type]
    if status in ("in_progress", "review", "completed", "failed"):
        task.assigned_to, task.holder, task.token, task.claimed_at, task.attempts = "ann", ANN, 7, NOW - 10, 1
        task.lease = 100.0
    if status is TaskStatus.IN_PROGRESS:
        task.lease_expires_at = NOW + 90
    return task


DECISIONS: dict[str, tuple[Callable[[BoardTask], Event], set[str]]] = {
    "cancel": (lambda t: rules.cancel(t, EVE, "why", NOW), {"pending", "in_progress", "review"}),
    "retry": (lambda t: rules.retry(t, EVE), {"failed", "cancelled"}),
    "accept": (lambda t: rules.accept(t, EVE, None, NOW), {"review"}),
    "reject": (lambda t: rules.reject(t, EVE, "why", NOW), {"review"}),
    "block": (lambda t: rules.block(t, EVE, "why", NOW), {"pending", "in_progress"}),
    "step_add": (lambda t: rules.step_add(t, EVE, "read"), {"pending", "in_progress"}),
    "depend": (lambda t: rules.depend(t, EVE, [BoardTask("t2", "y")]), {"pending", "failed", "cancelled"}),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("verb", DECISIONS)
def test_each_decision_is_allowed_in_its_statuses_and_no_others(verb: str, status: TaskStatus) -> None:
    decide, allowed = DECISIONS[verb]
    task = made(status)
    before = copy.deepcopy(task)
    if status in allowed:
        event = decide(task)
        assert event.task_id == "t1"
        assert event.worker == "eve"
    else:
        with pytest.raises(WrongStatus, match=status.replace("_", " ")) as caught:
            decide(task)
        assert caught.value.hint
        assert task == before


ENDINGS: dict[str, Callable[[BoardTask], Event]] = {
    "claim": lambda t: rules.claim(t, ANN, 9, NOW, 60.0, []),
    "renew": lambda t: rules.renew(t, NOW, 50.0),
    "complete": lambda t: rules.complete(t, ANN, "done", NOW),
    "fail": lambda t: rules.fail(t, ANN, "boom", NOW),
    "give_back": lambda t: rules.give_back(t, ANN, NOW, "why"),
    "cancel": lambda t: rules.cancel(t, ANN, "why", NOW),
    "block": lambda t: rules.block(t, ANN, "why", NOW),
    "step_add": lambda t: rules.step_add(t, ANN, "more"),
    "step start": lambda t: rules.step_change(t, ANN, "start", None, None, NOW),
    "step done": lambda t: rules.step_change(t, ANN, "done", None, "note", NOW),
    "step skip": lambda t: rules.step_change(t, ANN, "skip", None, "note", NOW),
}


@pytest.mark.parametrize("more", [{}, {"review": True}, {"max_attempts": 0}], ids=repr)
@pytest.mark.parametrize("verb", ENDINGS)
def test_an_event_carries_everything_that_its_rule_changed(verb: str, more: dict[str, object]) -> None:
    """Replaying the event on the task as it was must give the task as it is."""
    task = made(TaskStatus.PENDING if verb == "claim" else TaskStatus.IN_PROGRESS, **more)
    task.steps = [Step("s1", "one", "in_progress", started_at=NOW - 5, expires_at=NOW + 5), Step("s2", "two")]
    state = State()
    state.tasks["t1"] = copy.deepcopy(task)
    event = ENDINGS[verb](task)
    state.apply(event)
    assert state.tasks["t1"] == task


class TestWhoMay:
    def test_the_holder_passes_by_token_or_by_name(self) -> None:
        task = made(TaskStatus.IN_PROGRESS)
        rules.require_claim(task, None, 7, NOW, "complete")
        rules.require_claim(task, ANN, None, NOW, "complete")
        rules.require_claim(task, Worker("ann"), None, NOW, "complete")
        rules.require_claim(task, None, None, NOW, "complete")

    @pytest.mark.parametrize("status", STATUSES)
    def test_a_token_from_the_future_is_a_mistake(self, status: TaskStatus) -> None:
        with pytest.raises(Invalid, match="never had a claim with token 8"):
            rules.require_claim(made(status), None, 8, NOW, "complete")

    def test_others_do_not(self) -> None:
        task = made(TaskStatus.IN_PROGRESS)
        with pytest.raises(LeaseLost):
            rules.require_claim(task, ANN, 6, NOW, "complete")
        with pytest.raises(NotHolder):
            rules.require_claim(task, BEN, None, NOW, "complete")
        with pytest.raises(NotHolder):
            rules.require_claim(task, Worker("ann", session="s2"), None, NOW, "complete")

    @pytest.mark.parametrize("late", [90.0, 90.5, 1e6])
    def test_nobody_does_when_the_lease_is_over(self, late: float) -> None:
        task = made(TaskStatus.IN_PROGRESS)
        for caller, token in ((ANN, None), (None, 7), (None, None)):
            with pytest.raises(LeaseLost):
                rules.require_claim(task, caller, token, NOW + late, "complete")

    @pytest.mark.parametrize("status", [s for s in STATUSES if s != "in_progress"])
    def test_nobody_does_when_the_claim_is_over(self, status: TaskStatus) -> None:
        task = made(status)
        task.token = 7
        for caller, token in ((ANN, None), (None, 7), (None, None)):
            with pytest.raises((LeaseLost, WrongStatus)):
                rules.require_claim(task, caller, token, NOW, "renew")

    @pytest.mark.parametrize(
        ("worker", "may"), [(ANN, True), (EVE, True), (LEAD, True), (BEN, False), (Worker("ann", session="s2"), False)]
    )
    def test_over_a_held_task_decide_its_holder_people_and_leads(self, worker: Worker, may: bool) -> None:
        decisions: list[Callable[[BoardTask], Event]] = [
            lambda task: rules.cancel(task, worker, None, NOW),
            lambda task: rules.block(task, worker, "why", NOW),
        ]
        for decide in decisions:
            task = made(TaskStatus.IN_PROGRESS)
            if may:
                decide(task)
            else:
                with pytest.raises(NotHolder):
                    decide(task)

    def test_who_did_the_work_does_not_accept_it_unless_it_is_a_person(self) -> None:
        with pytest.raises(NotHolder):
            rules.accept(made(TaskStatus.REVIEW), ANN, None, NOW)
        task = made(TaskStatus.REVIEW)
        task.holder = EVE
        assert rules.accept(task, EVE, None, NOW).action == "accepted_activity"

    @pytest.mark.parametrize(
        ("kind", "may"), [("agent", {"any", "agent"}), ("human", {"any", "human"}), ("system", {"any", "agent"})]
    )
    def test_reservations_by_kind(self, kind: str, may: set[str]) -> None:
        assert set(rules.reserved_for(kind)) == may


class TestRepeats:
    @pytest.mark.parametrize(
        ("status", "caller", "token", "repeat"),
        [
            ("completed", None, 7, True),
            ("completed", None, 6, False),
            ("completed", ANN, None, True),
            ("completed", BEN, None, False),
            ("completed", None, None, True),
            ("in_progress", None, 7, False),
            ("failed", None, 7, False),
        ],
    )
    def test_a_repeat_is_the_same_verb_by_the_same_claim(
        self, status: str, caller: Worker | None, token: int | None, repeat: bool
    ) -> None:
        assert rules.is_repeat(made(TaskStatus(status)), (TaskStatus.COMPLETED,), caller, token) is repeat


class TestAttempts:
    @pytest.mark.parametrize("limit", [0, 1, 3])
    def test_it_fails_when_given_back_more_often_than_the_limit(self, limit: int) -> None:
        task = BoardTask("t1", "x", max_attempts=limit)
        for number in range(1, limit + 2):
            rules.claim(task, ANN, number, NOW, 60.0, [])
            rules.give_back(task, ANN, NOW, "why")
            assert (task.status == "failed") is (number > limit)

    def test_a_very_long_history_is_cut(self) -> None:
        task = made(TaskStatus.IN_PROGRESS, max_attempts=0)
        history = [Event("released_activity", "ann", "agent", NOW, details="x" * 5000) for _ in range(30)]
        rules.give_back(task, ANN, NOW, "why", history=history)
        assert len(task.result or "") <= 64 * 1024


class TestSteps:
    def test_a_step_that_is_not_next_waits_and_the_message_names_the_next(self) -> None:
        task = made(TaskStatus.IN_PROGRESS, steps=[Step("s1", "one"), Step("s2", "two")])
        before = copy.deepcopy(task)
        with pytest.raises(WrongStatus, match="s1"):
            rules.step_change(task, ANN, "done", "s2", None, NOW)
        with pytest.raises(WrongStatus):
            rules.step_change(task, ANN, "done", "s9", None, NOW)
        assert task == before

    def test_renewing_a_claim_renews_the_step_in_progress(self) -> None:
        task = made(
            TaskStatus.IN_PROGRESS, steps=[Step("s1", "one", "in_progress", expires_at=NOW + 1), Step("s2", "two")]
        )
        rules.renew(task, NOW, None)
        assert [step.expires_at for step in task.steps] == [NOW + 1800, None]


class TestLocks:
    def lock(self, pattern: str, holder: Worker = ANN, shared: bool = False, expires: float = NOW + 10) -> Lock:
        return Lock(pattern, holder, 3, NOW - 10, expires, 20.0, shared)

    @pytest.mark.parametrize(
        ("held", "pattern", "shared", "worker", "conflict"),
        [
            ({}, "src/a", False, BEN, True),
            ({}, "src/a", True, BEN, True),
            ({}, "docs", False, BEN, False),
            ({}, "src/a", False, ANN, False),
            ({}, "src/a", False, Worker("ann"), False),
            ({}, "src/a", False, Worker("ann", session="s2"), True),
            ({}, "src/a", False, None, True),
            ({"shared": True}, "src/a", True, BEN, False),
            ({"shared": True}, "src/a", False, BEN, True),
            ({"expires": NOW}, "src/a", False, BEN, False),
        ],
    )
    def test_who_conflicts_with_whom(
        self, held: dict[str, object], pattern: str, shared: bool, worker: Worker | None, conflict: bool
    ) -> None:
        lock = self.lock("src/**", **held)  # type: ignore[arg-type]
        assert lock_rules.conflicts([pattern], shared, [lock], worker, NOW) == ([lock] if conflict else [])

    def test_a_refusal_changes_none_of_the_own_locks(self) -> None:
        own, foreign = self.lock("a", BEN, expires=NOW + 1), self.lock("b", ANN)
        before = copy.deepcopy(own)
        with pytest.raises(Busy):
            lock_rules.take(["a", "b"], False, [own, foreign], BEN, 9, NOW, 60.0, None)
        assert own == before

    def test_asking_again_keeps_the_token(self) -> None:
        own = self.lock("a", BEN, expires=NOW + 1)
        granted, event = lock_rules.take(["a", "b"], False, [own], BEN, 9, NOW, 60.0, None)
        assert [(lock.pattern, lock.token, lock.expires_at) for lock in granted] == [
            ("a", 3, NOW + 60),
            ("b", 9, NOW + 60),
        ]
        assert event.action == "locked_files"

    def test_a_lock_of_a_task_is_not_taken_over_by_asking_for_its_path(self) -> None:
        tied = self.lock("a", BEN)
        tied.task_id = "t1"
        granted, _ = lock_rules.take(["a"], False, [tied], BEN, 9, NOW, 60.0, None)
        assert [(lock.token, lock.task_id) for lock in granted] == [(9, None)]


def test_blockers_are_numbered_and_resolved_one_by_one_or_all() -> None:
    task = made(TaskStatus.PENDING)
    for reason in ("one", "two", "three"):
        rules.block(task, EVE, reason, NOW)
    assert [blocker.id for blocker in task.blockers] == ["b1", "b2", "b3"]
    rules.unblock(task, EVE, "b2", "done", NOW)
    assert [blocker.id for blocker in task.open_blockers] == ["b1", "b3"]
    rules.unblock(task, EVE, None, None, NOW)
    assert task.open_blockers == []


def test_reasons_name_a_failed_dependency_with_the_ways_out() -> None:
    task = BoardTask("t1", "x", depends_on=["t2", "t3"], unmet=2)
    needs = {"t2": BoardTask("t2", "y", TaskStatus.FAILED), "t3": BoardTask("t3", "z", TaskStatus.COMPLETED)}
    (reason,) = rules.reasons(task, needs, [], None, NOW)
    assert (reason.code, reason.task_id) == ("dependency", "t2")
    assert "dibs retry t2" in reason.text
    assert "--drop t2" in reason.text


@pytest.mark.parametrize("status", STATUSES)
def test_a_lost_lease_is_explained_in_every_status(status: TaskStatus) -> None:
    error = rules.lost(made(status, blockers=[Blocker("b1", "why")]), NOW)
    assert isinstance(error, DibsError)
    assert "nothing was changed" in error.message
    assert error.hint


class TestNear:
    """The index over many locks gives every lock that overlaps, whatever else it gives."""

    @given(
        st.lists(
            st.sampled_from(["", "a", "a/b", "a/b/c", "ab", "a0", "*", "a/*", "**/c", "a/b*", "b", "a/bc"]), max_size=12
        ),
        st.lists(
            st.sampled_from(["", "a", "a/b", "a/b/c", "ab", "a0", "*", "a/*", "**", "b/c", "a/b/c/d"]), max_size=3
        ),
    )
    def test_it_finds_what_comparing_all_with_all_finds(self, held: list[str], wanted: list[str]) -> None:
        locks = [Lock(pattern or "**", Worker("w"), n, 0, 10, 10) for n, pattern in enumerate(held)]
        patterns = [pattern or "**" for pattern in wanted]
        all_found = lock_rules.conflicts(patterns, False, locks, None, 1)
        near = lock_rules.conflicts(patterns, False, LockIndex(locks).to(patterns), None, 1)
        assert sorted(lock.token for lock in near) == [lock.token for lock in all_found]
