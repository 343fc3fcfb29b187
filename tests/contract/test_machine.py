"""Every verb in every order, with a clock in the test's hand, against a plain model and on every store.

After each step: statuses and fields are the model's, each task has one live claim at most, tokens have only grown,
live locks of different workers never overlap unless both are shared, counts agree, and the changelog replays to the
board's state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dibs import BoardTask, Worker
from dibs.errors import DibsError
from dibs.replay import State, replay
from tests.clocks import HandClock
from tests.contract.plain import LEASE, MEMBERS, By, PlainBoard, PlainTask, Refused, overlap, same
from tests.contract.state import differences
from tests.contract.stores import HOMES, Home
from tests.searching import examples

# Two sessions of one name are two workers. Where one of two sessions is unknown they are the same worker.
WORKERS = {
    "ann 1": Worker("ann", session="s1"),
    "ann 2": Worker("ann", session="s2"),
    "lead": Worker("ben", role="lead", session="s1"),
    "human": Worker("eve", "human", session="s1"),
    "zed 1": Worker("zed", session="s1"),
    "zed": Worker("zed"),
}
NAMES = sorted({worker.name for worker in WORKERS.values()})

picks = st.integers(0, 63)
"""Which of the tasks that a rule is for; see `BoardMachine.pick`."""
workers = st.sampled_from([*WORKERS, *["a holder"] * 6])
patterns = st.lists(st.sampled_from(list(MEMBERS)), min_size=1, max_size=2, unique=True)
leases = st.sampled_from([None, None, 40.0, 200.0, 5000.0])
# Who uses a holder's verb: mostly the holder itself, else an old or current token, nobody in particular, or any worker.
users = st.sampled_from([*["holder"] * 8, *["current"] * 3, "old", "bare", *WORKERS])
definitions = st.fixed_dictionaries(
    {},
    optional={
        "needs": st.lists(picks, max_size=2, unique=True),
        "priority": st.integers(-1, 2),
        "reserved": st.sampled_from(["any", "any", "agent", "human"]),
        "review": st.booleans(),
        "max_attempts": st.integers(0, 1),
        "paths": patterns,
        "steps": st.sampled_from([1, 2]),
    },
)
MOST_TASKS = 14


class BoardMachine(RuleBasedStateMachine):
    home_kind: type[Home]

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.folder = tempfile.TemporaryDirectory(prefix="dibs-machine-")
        self.home = self.home_kind(Path(self.folder.name), self.clock)
        self.board = self.home.open()
        self.model = PlainBoard()
        self.model.now = self.clock.steady()
        self.state = State()
        self.seen = 0
        self.tokens: dict[str, list[int]] = {}
        self.claimed: dict[str, BoardTask] = {}
        self.order = 0
        self.number = 0
        self.steps = 0

    def teardown(self) -> None:
        assert differences(self.board, replay(self.board.changelog())) == []
        self.home.close()
        self.folder.cleanup()

    # -- doing the same on both

    def both(self, plan: Callable[[], Any], act: Callable[[], Any], by: Worker | None = None) -> tuple[Any, Any]:
        """What the model says and what the board says; both None when both refuse, and the model's `Refused` where the
        board was free to refuse and did not. `by` is the worker whose leases a success renews."""
        refusal, expected = None, None
        try:
            expected = plan()
        except Refused as refused:
            refusal = refused
        try:
            actual = act()
        except DibsError as error:
            if refusal is None or error.code not in refusal.codes:
                raise AssertionError(
                    f"refused as {error.code}, expected {refusal and refusal.codes}: {error}"
                ) from error
            return None, None
        if refusal is not None:
            if "ok" not in refusal.codes:
                raise AssertionError(f"not refused as {refusal.codes}; answered {actual!r}")
            return refusal, actual
        if by is not None and expected is not False:
            self.expect_renewed(by)
        return expected, actual

    def expect_renewed(self, by: Worker) -> None:
        """Any verb of a worker renews what it holds, all but exactly; up to when is taken from the board."""
        now = self.board.now()
        rows = {task.id: task for task in self.board.tasks(["in_progress"], limit=100)[0]}
        for task in self.model.tasks.values():
            if self.model.is_live(task) and task.holder and same(task.holder, by):
                expires = rows[task.id].lease_expires_at
                assert expires is not None
                task.expires = self.allowed(expires - now, task.expires, task.lease, by, task.holder)
                for lock in self.model.locks:
                    if lock.task == task.id:
                        lock.expires = task.expires
        held = {(lock.pattern, lock.token): lock for lock in self.board.locks()}
        for lock in self.model.live_locks():
            if lock.task is None and same(lock.holder, by):
                real = held[lock.pattern, lock.token]
                lock.expires = self.allowed(real.expires_at - now, lock.expires, lock.lease, by, lock.holder)

    def allowed(self, left: float, expires: float, lease: float, by: Worker, holder: Worker) -> float:
        """A renewal may lag a little, so that not every verb writes: a tenth of the lease, and a minute where one of
        the sessions is unknown (each looks for itself)."""
        assert left in (lease, expires - self.model.now), f"a lease of {lease} has {left} left"
        lag = 0.1 * lease if by.session == holder.session else max(60.0, 0.1 * lease)
        assert left >= lease - lag, f"a lease of {lease} was not renewed by its holder's verb: {left} left"
        return self.model.now + left

    def use(self, task_id: str, user: str) -> tuple[By, dict[str, Any], Worker | None]:
        """How a holder's verb is called: for the model, for the board, and whose leases it renews."""
        task = self.model.tasks.get(task_id)
        holder = task.holder if task else None
        if user in WORKERS:
            worker = WORKERS[user]
            return By(worker=worker), {"worker": worker}, worker
        if user == "holder" and holder:
            return By(worker=holder), {"worker": holder}, holder
        tokens = self.tokens.get(task_id)
        if user in ("current", "old") and tokens:
            token = tokens[-1] if user == "current" else tokens[0]
            return By(token=token), {"token": token}, holder
        return By(), {}, holder

    def took(self, expected: Sequence[str], actual: Sequence[BoardTask], new: bool = True) -> None:
        assert [task.id for task in actual] == list(expected)
        for task in actual:
            assert task.token is not None
            if new:
                self.model.told_token(task.id, task.token)
                self.tokens.setdefault(task.id, []).append(task.token)
            self.claimed[task.id] = task

    # -- who, and which task

    def who(self, name: str) -> Worker:
        """The named worker, or one that holds something: those are the ones that rules are about."""
        holders = [task.holder for task in self.model.tasks.values() if task.holder and self.model.is_live(task)]
        holders += [lock.holder for lock in self.model.live_locks()]
        if name in WORKERS:
            return WORKERS[name]
        return holders[self.steps % len(holders)] if holders else WORKERS["ann 1"]

    def having(self, *statuses: str) -> list[str]:
        """The ids of the tasks in these statuses (all, without any)."""
        return [task.id for task in self.model.tasks.values() if not statuses or task.status in statuses]

    def pick(self, number: int, *statuses: str) -> str:
        """A task in one of the statuses that the rule is for; now and then any task, or one that is not there."""
        fitting = self.having(*statuses)
        if fitting and number % 16:
            return fitting[number % len(fitting)]
        return f"t{number // 4}"

    # -- adding

    def definition(self, number: int | None, fields: dict[str, Any]) -> dict[str, Any]:
        """What the board is given. `number` is that of a new task (None: an id that may be taken); edges go to any
        task, also to those that come next."""
        made = {"description": "x", **fields, "id": self.pick(0) if number is None else f"t{number}"}
        if "needs" in fields:
            existing = [*self.having(), f"t{self.number + 1}", f"t{self.number + 2}"]
            made["depends_on"] = list(dict.fromkeys(existing[n % len(existing)] for n in made.pop("needs")))
        if "steps" in fields:
            made["steps"] = ["step"] * fields["steps"]
        return made

    def plain(self, made: dict[str, Any]) -> PlainTask:
        self.order += 1
        return PlainTask(
            made["id"],
            self.order,
            list(made.get("depends_on", ())),
            made.get("priority", 0),
            made.get("reserved", "any"),
            made.get("review", False),
            made.get("max_attempts"),
            list(made.get("paths", ())),
            ["pending"] * len(made.get("steps", ())),
        )

    def add_all(self, made: list[dict[str, Any]], worker: Worker) -> None:
        self.both(
            lambda: self.model.add([self.plain(fields) for fields in made]),
            lambda: self.board.add_many(made, worker=worker),
            worker,
        )
        self.number = max((int(task_id[1:]) for task_id in self.model.tasks), default=0)

    @initialize(batch=st.lists(definitions, min_size=3, max_size=6), name=workers)
    def begin(self, batch: list[dict[str, Any]], name: str) -> None:
        worker = self.who(name)
        for fields in batch:
            self.add_all([self.definition(self.number + 1, fields)], worker)

    @precondition(lambda self: len(self.model.tasks) < MOST_TASKS)
    @rule(fields=definitions, name=workers, fresh=st.sampled_from([True, True, True, False]))
    def add(self, fields: dict[str, Any], name: str, fresh: bool) -> None:
        worker = self.who(name)
        self.add_all([self.definition(self.number + 1 if fresh else None, fields)], worker)

    @precondition(lambda self: len(self.model.tasks) < MOST_TASKS)
    @rule(batch=st.lists(definitions, min_size=2, max_size=3), name=workers)
    def add_many(self, batch: list[dict[str, Any]], name: str) -> None:
        worker = self.who(name)
        self.add_all([self.definition(self.number + i, fields) for i, fields in enumerate(batch, 1)], worker)

    # -- claiming

    @rule(name=workers, lease=leases)
    def claim(self, name: str, lease: float | None) -> None:
        worker = self.who(name)
        expected, actual = self.both(
            lambda: self.model.claim(worker, 1, lease), lambda: self.board.claim(worker, lease=lease)
        )
        self.took(expected, [actual] if actual else [])
        self.expect_renewed(worker)

    @rule(name=workers, n=st.integers(1, 3), lease=leases)
    def claim_several(self, name: str, n: int, lease: float | None) -> None:
        worker = self.who(name)
        expected, actual = self.both(
            lambda: self.model.claim(worker, n, lease), lambda: self.board.claim(worker, n=n, lease=lease)
        )
        self.took(expected, actual)
        self.expect_renewed(worker)

    @rule(name=workers, number=picks, lease=leases)
    def claim_named(self, name: str, number: int, lease: float | None) -> None:
        worker = self.who(name)
        task_id = self.pick(number, "pending", "in_progress")
        new, actual = self.both(
            lambda: self.model.claim_named(worker, task_id, lease),
            lambda: self.board.claim(worker, task_id, lease=lease),
        )
        if actual is not None:
            self.took([task_id], [actual], new)
            self.expect_renewed(worker)

    @rule(name=workers, key=st.sampled_from(["k1", "k2"]), n=st.integers(1, 2))
    def claim_with_request_key(self, name: str, key: str, n: int) -> None:
        worker = self.who(name)

        def plan() -> tuple[list[str], bool]:
            known = self.model.claim_again(worker, key, n)
            return (self.model.claim(worker, n, None), True) if known is None else (known, False)

        expected, actual = self.both(plan, lambda: self.board.claim(worker, n=n, request_key=key))
        if expected is not None:
            taken, new = expected
            self.took(taken, actual, new)
            if new:
                self.expect_renewed(worker)
            if new and taken:
                self.model.keys[worker.name, worker.session, key] = (n, [(task.id, task.token) for task in actual])

    # -- ending a claim

    def end(self, verb: str, task_id: str, user: str) -> None:
        by, how, who = self.use(task_id, user)
        board, model = self.board, self.model
        if verb == "complete":
            self.both(lambda: model.finish(task_id, by, False), lambda: board.complete(task_id, "done", **how), who)
        elif verb == "fail":
            self.both(lambda: model.finish(task_id, by, True), lambda: board.fail(task_id, "boom", **how), who)
        else:
            self.both(lambda: model.release(task_id, by), lambda: board.release(task_id, **how), who)

    @precondition(lambda self: self.having("in_progress"))
    @rule(number=picks, user=users)
    def complete(self, number: int, user: str) -> None:
        self.end("complete", self.pick(number, "in_progress"), user)

    @precondition(lambda self: self.having("in_progress"))
    @rule(number=picks, user=users, verb=st.sampled_from(["fail", "release"]))
    def give_up(self, number: int, user: str, verb: str) -> None:
        self.end(verb, self.pick(number, "in_progress"), user)

    @rule(number=picks, user=users, verb=st.sampled_from(["complete", "fail", "release"]))
    def end_again(self, number: int, user: str, verb: str) -> None:
        """A repeat, or a late writer whose claim is over."""
        self.end(verb, self.pick(number, "pending", "review", "completed", "failed", "cancelled"), user)

    @precondition(lambda self: self.having("in_progress"))
    @rule(number=picks, user=users, lease=leases)
    def renew(self, number: int, user: str, lease: float | None) -> None:
        task_id = self.pick(number, "in_progress")
        by, how, who = self.use(task_id, user)
        self.both(
            lambda: self.model.renew(task_id, by, lease), lambda: self.board.renew(task_id, lease=lease, **how), who
        )

    @precondition(lambda self: any(task.status == "in_progress" for task in self.claimed.values()))
    @rule(number=picks)
    def complete_and_claim_next(self, number: int) -> None:
        working = [task for task in self.claimed.values() if task.status == "in_progress"]
        task = working[number % len(working)]
        who = task.holder
        assert who is not None

        def plan() -> list[str]:
            self.model.finish(task.id, By(token=task.token), False)
            return self.model.claim(who, 1, None)

        expected, actual = self.both(plan, lambda: task.complete("done", claim_next=True))
        if expected is not None:
            self.took(expected, [actual] if actual else [])
            self.expect_renewed(who)

    @rule(name=workers, how=st.sampled_from(["name", "session", "recover", "wait"]))
    def clean_up(self, name: str, how: str) -> None:
        worker = self.who(name)
        board, model = self.board, self.model
        if how == "recover":
            expected, actual = self.both(model.recover, board.recover)
        elif how == "wait":  # a waiter may give back what has expired; recovering afterwards settles it
            answer = board.wait(worker, 0)
            expected = sorted({*model.recover(), *board.recover()})
            actual = expected
            assert answer == bool(model.available(worker))
        else:
            whose = worker if how == "session" else None
            expected, actual = self.both(
                lambda: model.release_all(worker.name, whose), lambda: board.release_agent_tasks(whose or worker.name)
            )
        assert sorted(actual) == expected

    # -- deciding

    def decide(self, verb: str, task_id: str, worker: Worker) -> None:
        board, model = self.board, self.model
        plan, act = {
            "retry": (lambda: model.retry(task_id), lambda: board.retry(task_id, worker=worker)),
            "cancel": (lambda: model.cancel(task_id, worker), lambda: board.cancel(task_id, worker=worker)),
            "accept": (lambda: model.accept(task_id, worker), lambda: board.accept(task_id, worker=worker)),
            "reject": (lambda: model.reject(task_id), lambda: board.reject(task_id, "no", worker=worker)),
            "block": (lambda: model.block(task_id, worker), lambda: board.block(task_id, "why", worker=worker)),
            "unblock": (lambda: model.unblock(task_id, None), lambda: board.unblock(task_id, worker=worker)),
        }[verb]
        self.both(plan, act, worker)

    @precondition(lambda self: self.having("review"))
    @rule(number=picks, name=workers, verb=st.sampled_from(["accept", "accept", "reject", "cancel"]))
    def review(self, number: int, name: str, verb: str) -> None:
        worker = self.who(name)
        self.decide(verb, self.pick(number, "review"), worker)

    @precondition(lambda self: self.having("failed", "cancelled"))
    @rule(number=picks, name=workers)
    def retry(self, number: int, name: str) -> None:
        worker = self.who(name)
        self.decide("retry", self.pick(number, "failed", "cancelled"), worker)

    @rule(number=picks, name=workers, verb=st.sampled_from(["block", "block", "cancel"]))
    def stop(self, number: int, name: str, verb: str) -> None:
        worker = self.who(name)
        self.decide(verb, self.pick(number, "pending", "in_progress"), worker)

    @precondition(lambda self: any(any(task.blockers) for task in self.model.tasks.values()))
    @rule(number=picks, name=workers, one=st.sampled_from([None, None, 1, 2]))
    def unblock(self, number: int, name: str, one: int | None) -> None:
        worker = self.who(name)
        blocked = [task.id for task in self.model.tasks.values() if any(task.blockers)]
        task_id = blocked[number % len(blocked)]
        self.both(
            lambda: self.model.unblock(task_id, one),
            lambda: self.board.unblock(task_id, blocker=f"b{one}" if one else None, worker=worker),
            worker,
        )

    @rule(number=picks, name=workers, verb=st.sampled_from(["retry", "cancel", "accept", "reject", "block", "unblock"]))
    def decide_anything(self, number: int, name: str, verb: str) -> None:
        worker = self.who(name)
        self.decide(verb, self.pick(number), worker)

    @rule(number=picks, needs=st.lists(picks, max_size=2), name=workers)
    def depend(self, number: int, needs: list[int], name: str) -> None:
        worker = self.who(name)
        task_id = self.pick(number, "pending", "failed", "cancelled")
        wanted = list(dict.fromkeys(self.pick(n) for n in needs))
        self.both(
            lambda: self.model.depend(task_id, wanted),
            lambda: self.board.depend(task_id, wanted, worker=worker),
            worker,
        )

    @precondition(lambda self: any(task.needs for task in self.model.tasks.values()))
    @rule(number=picks, stranger=st.sampled_from([False, False, False, True]), name=workers)
    def undepend(self, number: int, stranger: bool, name: str) -> None:
        worker = self.who(name)
        waiting = [task for task in self.model.tasks.values() if task.needs]
        task = waiting[number % len(waiting)]
        wanted = [self.pick(number) if stranger else task.needs[number % len(task.needs)]]
        self.both(
            lambda: self.model.undepend(task.id, wanted),
            lambda: self.board.undepend(task.id, wanted, worker=worker),
            worker,
        )

    @precondition(lambda self: self.having("in_progress"))
    @rule(
        number=picks,
        user=users,
        verb=st.sampled_from(["add", "start", "start", "start", "done", "skip"]),
        one=st.sampled_from([None, None, None, None, 1, 2]),
    )
    def step(self, number: int, user: str, verb: str, one: int | None) -> None:
        task_id = self.pick(number, "in_progress")
        by, how, who = self.use(task_id, user)
        one = None if verb == "add" else one
        self.both(
            lambda: self.model.step(task_id, verb, by, one),
            lambda: self.board.step(task_id, verb, "text", step_id=f"s{one}" if one else None, **how),
            who,
        )

    # -- locks

    @rule(name=workers, wanted=patterns, shared=st.booleans(), lease=leases)
    def lock(self, name: str, wanted: list[str], shared: bool, lease: float | None) -> None:
        worker = self.who(name)
        expected, actual = self.both(
            lambda: self.model.lock(worker, wanted, shared, lease),
            lambda: self.board.lock(wanted, worker, shared=shared, lease=lease),
        )
        if expected is not None:
            assert [lock.pattern for lock in actual] == wanted
            new = {real.token for mine, real in zip(expected, actual, strict=True) if not mine.token}
            assert len(new) <= 1
            for token in new:
                assert token > self.model.last_token, "a token must be larger than any before it"
                self.model.last_token = token
            for mine, real in zip(expected, actual, strict=True):
                assert mine.token in (0, real.token), "asking again keeps the token"
                mine.token = real.token
            self.expect_renewed(worker)

    @precondition(lambda self: self.model.locks)
    @rule(number=picks, name=workers, every=st.booleans(), own=st.sampled_from([True, True, False]))
    def unlock(self, number: int, name: str, every: bool, own: bool) -> None:
        worker = self.who(name)
        lock = self.model.locks[number % len(self.model.locks)]
        who = lock.holder if own else worker
        wanted = None if every else [lock.pattern]
        expected, gone = self.both(lambda: self.model.unlock(who, wanted), lambda: self.board.unlock(wanted, who), who)
        if isinstance(expected, Refused):
            keys = {(lock.pattern, lock.token) for lock in gone}
            self.model.forget([lock for lock in self.model.locks if (lock.pattern, lock.token) in keys])
            self.expect_renewed(who)

    # -- messages

    @rule(name=workers, to=st.none() | st.sampled_from(NAMES))
    def tell(self, name: str, to: str | None) -> None:
        worker = self.who(name)
        content = f"message {len(self.model.posted)}"
        self.both(
            lambda: self.model.tell(worker, to, content), lambda: self.board.tell(content, to, worker=worker), worker
        )

    @precondition(lambda self: self.model.posted)
    @rule(name=workers, peek=st.booleans())
    def inbox(self, name: str, peek: bool) -> None:
        worker = self.who(name)
        expected, actual = self.both(
            lambda: self.model.inbox(worker, peek),
            lambda: self.board.inbox(worker, peek=peek),
            None if peek else worker,
        )
        assert [message.content for message in actual] == expected

    # -- the world

    @rule(seconds=st.sampled_from([1, 10, 30, 30, 60, 150, 1000, 1000, 3000, 3600, 30_000]))
    def time_goes_by(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.now = self.clock.steady()

    @rule(seconds=st.sampled_from([1, -1, 2, -2, 50, -50, 4000, -4000, 50_000, -50_000]))
    def somebody_sets_the_clock(self, seconds: int) -> None:
        self.clock.jump(seconds)

    @rule()
    def another_process_goes_on(self) -> None:
        self.board = self.home.open()
        for task in self.claimed.values():
            task._board = self.board

    # -- what must always hold

    @invariant()
    def everything_agrees(self) -> None:
        self.steps += 1
        self.tasks_agree()
        self.locks_agree_and_never_overlap()
        self.the_changelog_replays_to_the_board()

    def tasks_agree(self) -> None:
        board, model = self.board, self.model
        tasks, total = board.tasks(limit=100)
        rows = {task.id: task for task in tasks}
        assert total == len(rows) == len(model.tasks)
        now = board.now()
        for task_id, plain in model.tasks.items():
            row = rows[task_id]
            assert str(row.status) == plain.status
            assert row.holder == plain.holder
            assert row.assigned_to == (plain.holder.name if plain.holder else None)
            assert (row.token, row.attempts, row.depends_on) == (plain.token, plain.attempts, plain.needs)
            assert [step.status for step in row.steps] == plain.steps
            assert [blocker.is_open for blocker in row.blockers] == plain.blockers
            assert row.unmet == len(model.unmet(plain))
            if plain.status == "in_progress":
                assert row.lease_expires_at is not None
                assert (row.lease_expires_at - now, row.lease) == (plain.expires - model.now, plain.lease)
            else:
                assert row.lease_expires_at is None
        counted: dict[str, int] = dict.fromkeys(board.counts(), 0)
        for plain in model.tasks.values():
            counted[plain.status] += 1
        assert board.counts() == counted
        worker = list(WORKERS.values())[self.steps % len(WORKERS)]
        assert [task.id for task in board.ready(worker)] == model.available(worker)
        for plain in model.tasks.values():
            reasons = {reason.code for reason in board.reasons(plain.id, worker)} if self.steps % 5 == 0 else None
            assert reasons is None or reasons == set(model.reasons(plain, worker))
        held = {task.id for task in board.held_by(worker)}
        assert held == {t.id for t in model.tasks.values() if model.is_live(t) and t.holder and same(t.holder, worker)}

    def locks_agree_and_never_overlap(self) -> None:
        now, locks = self.board.now(), self.board.locks()
        real = {(x.pattern, x.token, x.holder.text, x.shared, x.task_id, x.expires_at - now) for x in locks}
        plain = {
            (x.pattern, x.token, x.holder.text, x.shared, x.task, x.expires - self.model.now)
            for x in self.model.live_locks()
        }
        assert real == plain
        for i, one in enumerate(locks):
            for two in locks[i + 1 :]:
                if not same(one.holder, two.holder) and not (one.shared and two.shared):
                    assert not overlap(one.pattern, two.pattern)

    def the_changelog_replays_to_the_board(self) -> None:
        for event in self.board.changelog(after=self.seen):
            assert event.seq == self.seen + 1 or self.seen == 0 or (self.home.has_gaps and event.seq > self.seen)
            self.seen = event.seq
            self.state.apply(event)
        assert differences(self.board, self.state) == []


assert set(LEASE) == {worker.kind for worker in WORKERS.values()}


def machine_on(kind: type[Home]) -> Any:
    machine: Any = type(f"{kind.name.title()}Machine", (BoardMachine,), {"home_kind": kind})
    case = machine.TestCase
    case.settings = settings(examples(kind.machine_examples), stateful_step_count=80)
    return case


# The machine uses every verb; a store that lacks some has the contract's other tests.
globals().update({f"Test{kind.name.title()}Machine": machine_on(kind) for kind in HOMES if not kind.cannot})
