"""A connection that breaks at any message of any verb: the effect happens once or not at all, and the caller is told.

Each verb is called through a proxy that cuts its connection before the k-th message, of the client and of the server,
for k = 1, 2, … until the verb passes untouched. A verb may answer, having found out what happened or having done it
again; or raise `OutcomeUnknown`; or raise another `DibsError`, and then nothing has happened.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dibs import BoardTask, DibsError, Event, Lock, TaskBoard, Worker
from dibs.errors import LeaseLost, OutcomeUnknown
from tests.postgres.actors import assert_whole, board_of, settle
from tests.postgres.bouncer import bouncer
from tests.postgres.proxy import Fault, How, Message, Proxy, Sender
from tests.postgres.server import server_for_test
from tests.processes.harness import new_seed, wait_until
from tests.processes.test_killed import RENEWALS
from tests.variants import variants

ME = "worker-1"
NUMBERS = itertools.count()
HUMAN = Worker("a-person", "human")


class Scene:
    """One try: what there is on the board before the verb, made around the proxy."""

    def __init__(self, straight: TaskBoard, number: int) -> None:
        self.straight = straight
        self.key = f"key {number}"
        self.file = f"src/{number}.py"
        self.folder = f"lib/{number}/**"

    def nothing(self) -> None:
        pass

    def task(self, **more: Any) -> str:
        return self.straight.add("a task", **more)

    def with_file(self) -> str:
        return self.task(paths=[self.file])

    def eight(self) -> None:
        self.straight.add_many([{"description": "one of eight"}] * 8)

    def claimed(self, **more: Any) -> BoardTask:
        task = self.straight.claim(ME, self.task(**more))
        assert task is not None
        return task

    def claimed_and_needed(self) -> BoardTask:
        task = self.claimed(paths=[self.file])
        self.straight.add("after it", depends_on=[task.id])
        return task

    def claimed_and_more(self) -> BoardTask:
        task = self.claimed()
        self.straight.add("the next one", priority=9)
        return task

    def claimed_with_steps(self) -> BoardTask:
        return self.claimed(steps=["one", "two"])

    def two(self) -> list[str]:
        return self.straight.add_many([{"description": "first"}, {"description": "second"}])

    def tied(self) -> list[str]:
        return self.straight.add_many(FIRST_AND_SECOND)

    def locked(self) -> None:
        self.straight.lock([self.folder], ME)

    def claimed_and_locked(self) -> None:
        self.claimed()
        self.locked()


class After(Fault):
    """Cuts connections at such a message of the client's, once another fault has struck."""

    def __init__(self, first: Fault, kind: str, times: int) -> None:
        super().__init__("client", kind=kind, times=times)
        self._first = first

    def passing(self, message: Message) -> int | None:
        return super().passing(message) if self._first.struck else None


class Verb:
    """How a verb is prepared, called and judged: the events that it leaves, and whether repeating it is harmless."""

    def __init__(
        self,
        prepare: Callable[[Scene], Any],
        call: Callable[[TaskBoard, Scene, Any], Any],
        *actions: str,
        repeats: bool = True,
        clean: bool = False,
    ) -> None:
        self.prepare, self.call, self.actions, self.repeats, self.clean = prepare, call, list(actions), repeats, clean


def complete_and_claim(board: TaskBoard, scene: Scene, task: BoardTask) -> BoardTask | None:
    task._board = board
    return task.complete("done", claim_next=True)


FIRST_AND_SECOND: list[dict[str, Any]] = [
    {"description": "first", "name": "a"},
    {"description": "second", "depends_on": ["a"]},
]
ADDED, CLAIMED, COMPLETED = "added_activity", "claimed_activity", "completed_activity"
VERBS: dict[str, Verb] = {
    "add": Verb(Scene.nothing, lambda b, s, _: b.add("a task", worker=ME, request_key=s.key), ADDED),
    "add without a key": Verb(Scene.nothing, lambda b, s, _: b.add("a task", worker=ME), ADDED, repeats=False),
    "add many": Verb(
        Scene.nothing, lambda b, s, _: b.add_many(FIRST_AND_SECOND, worker=ME, request_key=s.key), ADDED, ADDED
    ),
    "claim": Verb(Scene.task, lambda b, s, _: b.claim(ME, request_key=s.key), CLAIMED),
    "claim without a key": Verb(Scene.task, lambda b, s, _: b.claim(ME), CLAIMED, repeats=False),
    "claim by id": Verb(Scene.with_file, lambda b, s, task_id: b.claim(ME, task_id, request_key=s.key), CLAIMED),
    "claim eight": Verb(Scene.eight, lambda b, s, _: b.claim(ME, n=8, request_key=s.key), *[CLAIMED] * 8),
    "complete": Verb(Scene.claimed, lambda b, s, task: b.complete(task.id, "done", token=task.token), COMPLETED),
    "complete with dependants": Verb(
        Scene.claimed_and_needed, lambda b, s, task: b.complete(task.id, "done", token=task.token), COMPLETED
    ),
    "complete and claim": Verb(Scene.claimed_and_more, complete_and_claim, COMPLETED, CLAIMED, repeats=False),
    "fail": Verb(Scene.claimed, lambda b, s, task: b.fail(task.id, "no luck", token=task.token), "failed_activity"),
    "release": Verb(
        Scene.claimed, lambda b, s, task: b.release(task.id, token=task.token), "released_activity", repeats=False
    ),
    "renew": Verb(Scene.claimed, lambda b, s, task: b.renew(task.id, token=task.token, lease=7200), "renewed_activity"),
    "lock": Verb(Scene.nothing, lambda b, s, _: b.lock([s.folder, "docs/*.md"], ME), "locked_files", clean=True),
    "unlock": Verb(Scene.locked, lambda b, s, _: b.unlock([s.folder], ME), "unlocked_files", repeats=False, clean=True),
    "tell": Verb(Scene.nothing, lambda b, s, _: b.tell("hello", worker=ME, request_key=s.key), "sent_message"),
    "depend": Verb(Scene.two, lambda b, s, ids: b.depend(ids[1], ids[:1], worker=ME), "added_dependency"),
    "undepend": Verb(
        Scene.tied, lambda b, s, ids: b.undepend(ids[1], ids[:1], worker=ME), "dropped_dependency", repeats=False
    ),
    "step": Verb(
        Scene.claimed_with_steps,
        lambda b, s, task: b.step(task.id, "done", step_id="s1", token=task.token),
        "completed_task",
    ),
    "step add": Verb(
        Scene.task, lambda b, s, task_id: b.step(task_id, "add", "more", worker=ME), "added_task", repeats=False
    ),
    "cancel": Verb(Scene.task, lambda b, s, task_id: b.cancel(task_id, worker=ME), "cancelled_activity", repeats=False),
    "block": Verb(Scene.task, lambda b, s, task_id: b.block(task_id, "a person", worker=ME), "blocked", repeats=False),
    "release all": Verb(
        Scene.claimed_and_locked,
        lambda b, s, _: b.release_agent_tasks(ME),
        *("released_activity", "unlocked_files"),
        repeats=False,
        clean=True,
    ),
}


CUT_OFTEN = ("add", "claim", "claim without a key", "complete", "complete and claim", "lock", "cancel")
"""The verbs that every run cuts; the others are for `make test-long`."""


def essence(answer: Any) -> Any:
    """What of an answer must be the same when the call is repeated."""
    if isinstance(answer, list):
        return [essence(part) for part in answer]
    if isinstance(answer, BoardTask):
        return (answer.id, answer.status, answer.assigned_to, answer.token, tuple(answer.depends_on))
    if isinstance(answer, Lock):
        return (answer.pattern, answer.holder.name)
    return getattr(answer, "seq", answer)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with board_of(server_for_test()) as made:
        yield made.partition("?")[0]


@pytest.fixture
def url(database: str) -> str:
    """A new board in the database of these tests."""
    address = f"{database}?board=b{next(NUMBERS)}"
    TaskBoard.open(address, create=True, worker="maker").close()
    return address


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as made:
        yield made


@pytest.fixture
def straight(url: str) -> Iterator[TaskBoard]:
    """The board as everybody else sees it, around the proxy."""
    with TaskBoard.open(url, worker="maker") as board:
        yield board


@pytest.fixture
def cut(proxy: Proxy) -> Iterator[TaskBoard]:
    """The board through the proxy."""
    with TaskBoard.open(proxy.url, worker=ME) as board:
        board.counts()
        yield board


BOUND = 60.0
"""Seconds within which a verb must end, whatever the network does."""
OTHERS = 15.0
"""Seconds for which a client that has fallen silent in a transaction may keep others from what it has locked."""
HASTE = "&tcp_user_timeout=2000&connect_timeout=2&keepalives_idle=1&keepalives_interval=1"


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["hasty", "patient"])
def hasty(
    request: pytest.FixtureRequest, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[TaskBoard, float]]:
    """The board through the proxy, with all waiting cut short, or as it is; and for how long it may stop others."""
    if request.param:
        monkeypatch.setattr("dibs.stores.postgres.connections.PATIENCE", 2.0)
        monkeypatch.setattr("dibs.stores.postgres.tx.QUIET", "1s")
        monkeypatch.setattr("dibs.stores.postgres.tx.SILENCE", "1s")
    with TaskBoard.open(proxy.url + HASTE * request.param, worker=ME) as board:
        board.counts()
        yield board, OTHERS / 2 if request.param else OTHERS


class Trial:
    """Tries of one verb with one connection after the other cut, and what came of them."""

    def __init__(self, url: str, proxy: Proxy, straight: TaskBoard, cut: TaskBoard) -> None:
        self.url, self.proxy, self.straight, self.cut = url, proxy, straight, cut
        self.tries = self.answered = self.unknown = self.refused = 0

    def verb(self, verb: Verb, fault: Fault) -> bool:
        """One try; did the fault strike?"""
        scene = Scene(self.straight, self.tries)
        self.tries += 1
        given = verb.prepare(scene)
        before = self.straight.recent(1)[-1].seq
        self.proxy.arm(fault)
        answer: Any = None
        error: DibsError | None = None
        try:
            answer = verb.call(self.cut, scene, given)
        except DibsError as raised:
            error = raised
        self.proxy.disarm()
        where = f"{fault.sender}, number {fault.number}, {fault.how}, at {fault.struck_at}: {error!r}"
        settle(self.url)
        left = self.actions(verb, before)
        if error is None:
            self.answered += 1
            assert left == verb.actions, where
        elif isinstance(error, OutcomeUnknown):
            self.unknown += 1
            assert left in ([], verb.actions), where
        else:
            self.refused += 1
            assert left == [], where
            assert error.message, where
        if verb.repeats:
            repeated = verb.call(self.cut, scene, given)
            if error is None:
                assert essence(repeated) == essence(answer), where
            again = self.actions(verb, before)
            once = again == verb.actions or (again == verb.actions * 2 and verb.actions[0] in RENEWING)
            assert once, (where, again)
        self.cut.counts()
        if verb.clean:
            self.cut.unlock(None, ME)
        return fault.struck > 0

    def actions(self, verb: Verb, after: int) -> list[str]:
        """What the worker has done since; renewals only where they are what is being tried."""
        mine: list[Event] = [event for event in self.straight.changelog(after) if event.worker == ME]
        return [event.action for event in mine if event.action in verb.actions or event.action not in RENEWALS]

    def everywhere(self, verb: Verb, way: tuple[Sender, How, bool], start: int, step: int, warm: int) -> int:
        """Cut at every message, or at every `step`-th from one on, each time on a connection that has done the same
        before `warm` times; how many cuts were there?"""
        sender, how, inside = way
        for number in itertools.count(start, step):
            for _ in range(warm):
                self.verb(verb, Fault("client", 10**6))
            if not self.verb(verb, Fault(sender, number, how=how, inside=inside)):
                return (number - start) // step
        raise AssertionError


RENEWING = ("renewed_activity", "locked_files")
"""Asking again for these renews them, with an event of its own."""
WAYS: list[tuple[Sender, How, bool]] = [("client", "reset", False), ("server", "reset", False)]
MORE_WAYS: list[tuple[Sender, How, bool]] = [
    ("client", "close", False), ("client", "reset", True), ("server", "close", False), ("server", "reset", True),
]  # fmt: skip


@pytest.fixture
def trial(url: str, proxy: Proxy, straight: TaskBoard, cut: TaskBoard) -> Trial:
    return Trial(url, proxy, straight, cut)


def tried(trial: Trial, name: str, ways: list[tuple[Sender, How, bool]], step: int = 1, warm: int = 0) -> None:
    verb = VERBS[name]
    rng = random.Random(new_seed())
    cuts = sum(trial.everywhere(verb, way, rng.randrange(step) + 1, step, warm) for way in ways)
    for fault in (Fault("server", kind="C", text="COMMIT"), Fault("server", kind="Z", text="I")):
        cuts += trial.verb(verb, fault)
    assert cuts > 0
    assert_whole(trial.url).close()
    print(
        f"{name}: 0 doubled and 0 lost effects in {cuts} cuts ({trial.answered} answered all the same,"
        f" {trial.unknown} unknown, {trial.refused} refused)"
    )


@pytest.mark.parametrize("name", variants(VERBS, quick=CUT_OFTEN))
def test_a_connection_cut_at_some_messages_never_doubles_an_effect(trial: Trial, name: str) -> None:
    """At every 40th, from a random one on, and at the answer to the commit."""
    tried(trial, name, WAYS, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_a_connection_cut_at_any_message_never_doubles_an_effect(trial: Trial, name: str) -> None:
    tried(trial, name, WAYS + MORE_WAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_a_connection_with_prepared_statements_cut_at_any_message_never_doubles_an_effect(
    trial: Trial, name: str
) -> None:
    tried(trial, name, WAYS, warm=5)


def test_a_new_connection_that_is_cut_gives_a_board_or_an_error(url: str, proxy: Proxy) -> None:
    cuts = opened = 0
    for sender in ("client", "server"):
        for number in itertools.count(1, 4):
            fault = proxy.arm(Fault(sender, number))
            try:
                with TaskBoard.open(proxy.url, worker=ME) as board:
                    board.tell("hello")
                opened += 1
            except DibsError:
                pass
            if not fault.struck:
                break
            cuts += 1
    proxy.disarm()
    assert_whole(url).close()
    print(f"{cuts} cuts while opening and telling, {opened} of them without effect")


@pytest.mark.slow
def test_an_inbox_that_is_cut_off_loses_no_message_silently(
    url: str, proxy: Proxy, straight: TaskBoard, cut: TaskBoard
) -> None:
    cuts = unknown = 0
    cut.inbox(ME)
    for sender in ("client", "server"):
        for number in itertools.count(1, 3):
            message = straight.tell(f"{sender} {number}")
            fault = proxy.arm(Fault(sender, number))
            try:
                given = [m.seq for m in cut.inbox(ME)]
                assert given == [message.seq]
                expected: list[list[int]] = [[]]
            except OutcomeUnknown:
                unknown += 1
                expected = [[], [message.seq]]
            except DibsError:
                expected = [[message.seq]]
            proxy.disarm()
            settle(url)
            assert [m.seq for m in cut.inbox(ME)] in expected, (fault.struck_at, number)
            if not fault.struck:
                break
            cuts += 1
    print(f"0 messages lost or given twice in {cuts} cuts ({unknown} unknown)")


def test_a_server_that_can_never_be_reached_is_an_error_and_not_a_hang(
    proxy: Proxy, hasty: tuple[TaskBoard, float]
) -> None:
    board, _ = hasty
    proxy.arm(Fault("client", times=10**6))
    started = time.monotonic()
    with pytest.raises(DibsError) as caught:
        board.add("x", worker=ME)
    seconds = time.monotonic() - started
    print(f"{type(caught.value).__name__} after {seconds:.1f} s: {caught.value}")
    assert not isinstance(caught.value, OutcomeUnknown), "nothing ever reached the server"
    assert seconds < BOUND
    started = time.monotonic()
    with pytest.raises(DibsError):  # a claim is one statement: who sent it cannot tell whether it arrived
        board.claim(ME)
    assert time.monotonic() - started < BOUND
    proxy.disarm()
    assert board.claim(ME) is None


@pytest.mark.parametrize("name", ["add without a key", "claim without a key", "complete and claim"])
@pytest.mark.parametrize("times", variants([1, 2, 10**6], quick=[1]))
@pytest.mark.parametrize("again", ["P", "startup"])
def test_a_commit_whose_answer_never_arrives_is_found_out_or_said_to_be_unknown(
    trial: Trial, name: str, again: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut at the answer to the commit, and so many times when the client would ask about it, or connect to ask."""
    monkeypatch.setattr("dibs.stores.postgres.connections.PATIENCE", 0.5)
    verb = VERBS[name]
    for _ in range(2):
        trial.verb(verb, Fault("client", 10**6))
    scene = Scene(trial.straight, 10**6)
    given = verb.prepare(scene)
    before = trial.straight.recent(1)[-1].seq
    commit = Fault("server", kind="Z", text="I")
    trial.proxy.arm(commit, After(commit, again, times))
    error: DibsError | None = None
    try:
        verb.call(trial.cut, scene, given)
    except DibsError as raised:
        error = raised
    trial.proxy.disarm()
    settle(trial.url)
    left = trial.actions(verb, before)
    print(f"{name}: {left}, and the caller was told {error!r}")
    assert commit.struck == 1
    # A plain completion and the claim behind it are two commits; nothing is claimed when the first is in doubt.
    expected = verb.actions[:1] if error else verb.actions
    assert left == expected
    assert error is None or isinstance(error, OutcomeUnknown), error
    trial.cut.tell("going on")


@pytest.mark.parametrize(
    "name",
    variants(
        ["add without a key", "claim without a key", "complete", "complete and claim"], quick=["complete and claim"]
    ),
)
@pytest.mark.parametrize("way", ["straight", "nameless", "pgbouncer"])
def test_a_commit_that_comes_after_its_connection_is_gone_is_not_doubled(
    url: str, straight: TaskBoard, tmp_path: Path, name: str, way: str
) -> None:
    """The server is held up in the middle, does not see that the client has gone, and commits a second later. Behind a
    pooler, the client does not even know which of the server's processes works for it."""
    verb = VERBS[name]
    with ExitStack() as stack:
        pooled = way == "pgbouncer"
        proxy = stack.enter_context(
            Proxy(stack.enter_context(bouncer(server_for_test(), url, tmp_path)) if pooled else url)
        )
        proxy.swallowed = frozenset("K" if way == "nameless" else "")
        board = stack.enter_context(TaskBoard.open(proxy.url, worker=ME))
        straight.add_many([{"description": "there is more to claim"}] * 5)
        for number in range(3):  # the third call has nothing else to look after, and may take the short way
            scene = Scene(straight, number)
            given = verb.prepare(scene)
            if number < 2:
                verb.call(board, scene, given)
        before = straight.recent(1)[-1].seq
        with psycopg.connect(url.partition("?")[0]) as blocker:
            blocker.execute("LOCK TABLE dibs.event IN EXCLUSIVE MODE")
            answers: list[Any] = []

            def call() -> None:
                try:
                    answers.append(verb.call(board, scene, given))
                except DibsError as error:
                    answers.append(error)

            caller = threading.Thread(target=call)
            caller.start()
            stuck = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'dibs.event'::regclass"
            wait_until(lambda: blocker.execute(stuck).fetchall()[0][0] == 1, "a writer in the middle")
            proxy.reset()
            time.sleep(1.0)
            blocker.rollback()
        caller.join(BOUND)
        settle(url)
        left = [e.action for e in straight.changelog(before) if e.worker == ME]
        print(f"{name}: {left}, {answers}")
        assert len(answers) == 1
        assert left == verb.actions or (isinstance(answers[0], DibsError) and left in ([], verb.actions))
    assert_whole(url).close()


# -- silence


@pytest.mark.parametrize("how", variants(["silence", "half"], quick=["half"]))
def test_a_transaction_that_falls_silent_ends_and_others_go_on(
    url: str, proxy: Proxy, straight: TaskBoard, hasty: tuple[TaskBoard, float], how: How
) -> None:
    """The silence begins at the commit, when everything is locked. In a half of it only the server hears nothing."""
    board, bound = hasty
    task = straight.claim(ME, straight.add("a task", paths=["src/a.py"]))
    assert task is not None
    fault = proxy.arm(Fault("client", text="COMMIT", whole=True, how=how))
    ended: list[tuple[float, BaseException | None]] = []
    started = time.monotonic()

    def call() -> None:
        try:
            board.complete(task.id, "done", token=task.token)
            ended.append((time.monotonic() - started, None))
        except BaseException as error:
            ended.append((time.monotonic() - started, error))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    wait_until(lambda: fault.struck, "the silence")
    since = time.monotonic()
    straight.block(task.id, "somebody else wants the same row", worker=HUMAN)
    others = time.monotonic() - since
    straight.tell("going on")
    caller.join(BOUND)
    assert ended, f"the verb had not ended after {BOUND} s"
    seconds, error = ended[0]
    print(f"others waited {others:.1f} s; after {seconds:.1f} s the caller was told {error!r}")
    assert others < bound, f"others waited {others:.1f} s"
    assert others > 0.5, "nobody held the row: the test shows nothing"
    assert isinstance(error, DibsError), error
    assert [e.action for e in straight.changelog()].count(COMPLETED) == 0
    proxy.disarm()
    proxy.heal()
    board.counts()
    assert_whole(url).close()


@pytest.mark.slow
def test_a_reader_in_a_silent_network_ends(proxy: Proxy, hasty: tuple[TaskBoard, float]) -> None:
    board, _ = hasty
    proxy.cut_off()
    started = time.monotonic()
    with pytest.raises(DibsError) as caught:
        board.counts()
    seconds = time.monotonic() - started
    assert seconds < BOUND
    print(f"{type(caught.value).__name__} after {seconds:.1f} s: {caught.value}")
    proxy.heal()
    board.counts()


@pytest.mark.parametrize("heals", [True, False])
def test_a_holder_that_was_cut_off_past_its_lease_cannot_complete(
    url: str, heals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.stores.postgres.connections.PATIENCE", 1.0)
    with Proxy(url) as proxy, TaskBoard.open(url, worker="maker") as board:
        away = TaskBoard.open(f"{proxy.url}&tcp_user_timeout=2000&connect_timeout=2", worker="away")
        task_id = board.add("slow work")
        task = away.claim("away", lease=1.0)
        assert task is not None
        proxy.cut_off()
        successor = board.claim("successor", wait=30)
        assert successor is not None
        last = board.recent(1)[-1].seq
        if heals:
            proxy.heal()
            with pytest.raises(LeaseLost):
                task.complete("too late")
        else:
            with pytest.raises(DibsError):
                task.complete("too late")
            proxy.heal()
            with pytest.raises(LeaseLost):
                task.complete("too late")
        assert board.get(task_id).token == successor.token
        assert [event.action for event in board.changelog(after=last)] == []
        away.close()
    assert_whole(url).close()
