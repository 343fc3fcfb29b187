"""Calls that others overtake: each is held up in its middle, by a row or a commit that is held, by a lost connection or
by the time; then it comes too late, or waits, and takes nothing that is not its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dibs import TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.errors import Busy, LeaseLost
from dibs.replay import replay
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.round_trips import Connection
from dibs.stores.postgres.tx import PostgresTx
from tests.contract.state import differences
from tests.postgres.server import Server

ANN, BEN, CARL = (Worker(name, session=name) for name in ("ann", "ben", "carl"))


@pytest.fixture
def opened(server: Server) -> Iterator[Callable[..., TaskBoard]]:
    """Boards at the same address, as several processes would have them."""
    url = server.url(board=f"held-up-{time.monotonic_ns()}")
    boards: list[TaskBoard] = []

    def open_one(worker: Worker | None = None) -> TaskBoard:
        boards.append(TaskBoard.open(url, create=True, worker=worker))
        return boards[-1]

    yield open_one
    for board in boards:
        board.close()


def raw(server: Server) -> psycopg.Connection[Any]:
    return psycopg.connect(server.url())


def hold(session: psycopg.Connection[Any], board: TaskBoard, task_id: str) -> None:
    """Be at a task's row, as any transaction may that has to do with it."""
    number = board.store.board  # type: ignore[attr-defined]
    session.execute("SELECT 1 FROM dibs.task WHERE board = %s AND id = %s FOR NO KEY UPDATE", (number, task_id))


class Later:
    """A call in a thread of its own, and its answer or error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.answer: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._call()
        except Exception as error:
            self.answer = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> Any:
        self._thread.join(30)
        assert not self.is_running
        return self.answer


@pytest.mark.parametrize("how", ["passed over", "own lock"])
def test_a_task_with_very_many_files_keeps_others_from_the_files_it_gets(
    opened: Callable[..., TaskBoard], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is held up with them in its hands, and is waited for."""
    a, b, c = opened(ANN), opened(BEN), opened(CARL)
    a.add("big", id="A", paths=[f"big/f{i}" for i in range(250)])
    target = "big/f7"
    if how == "passed over":
        a.add("small", id="B", paths=["src/f"])
        a.lock(["big/f0"], ANN)
        target = "src/f"
    else:
        b.lock(["big/f0"], BEN)
    arrived, go = threading.Event(), threading.Event()
    commit = PostgresTx.commit

    def stands(self: PostgresTx) -> None:
        if not arrived.is_set():
            arrived.set()
            go.wait(20)
        commit(self)

    monkeypatch.setattr(PostgresTx, "commit", stands)
    claim = Later(lambda: b.claim(BEN))
    assert arrived.wait(20)
    lock = Later(lambda: c.lock([target], CARL))
    time.sleep(0.3)
    assert lock.is_running
    go.set()
    got, locked = claim.join(), lock.join()
    assert got.id == ("B" if how == "passed over" else "A")
    assert isinstance(locked, Busy)


@pytest.mark.parametrize("how", ["renew", "keep"])
def test_a_renewal_that_waited_past_its_lease_comes_too_late(
    server: Server, opened: Callable[..., TaskBoard], how: str
) -> None:
    a, b = opened(ANN), opened(BEN)
    a.add("x", id="T", paths=["src/f.py"])
    a.add("y", id="U", paths=["src/f.py"])
    task = a.claim(ANN, "T", lease=1.5)
    assert task is not None
    with raw(server) as other:
        hold(other, a, "T")
        time.sleep(0.8)
        renewal = Later(
            (lambda: a.renew("T", worker=ANN, token=task.token, lease=60)) if how == "renew" else lambda: a.keep(ANN)
        )
        time.sleep(1.2)  # the lease has run out
        taken = b.claim(BEN)
    answer = renewal.join()
    if how == "renew":
        assert isinstance(answer, LeaseLost)
    assert taken is None or taken.id == "U"
    live = [lock for lock in b.locks() if lock.pattern == "src/f.py"]
    assert len(live) <= 1
    now = b.now()
    holders = [t.id for t in b.tasks(["in_progress"])[0] if (t.lease_expires_at or 0) > now]
    assert holders == ([taken.id] if taken else [])
    b.recover()
    assert differences(b, replay(b.changelog())) == []


def test_a_completion_that_runs_again_is_still_fenced(
    server: Server, opened: Callable[..., TaskBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = opened(), opened()
    a.add("x", id="T", review=True)
    assert a.claim(ANN, "T", lease=1.0) is not None
    commit = PostgresTx.commit
    done: list[int] = []

    def cut(self: PostgresTx) -> None:
        if not done:
            done.append(1)
            server.execute(f"SELECT pg_terminate_backend({self._connection.pid})")
            time.sleep(1.2)
            assert b.claim(BEN, "T") is not None
        commit(self)

    monkeypatch.setattr(PostgresTx, "commit", cut)
    with pytest.raises(LeaseLost):
        a.complete("T", "ann's late result")
    assert b.get("T").assigned_to == "ben"
    assert b.get("T").result is None


def test_a_lease_is_renewed_by_the_verbs_after_a_claim_of_several(opened: Callable[..., TaskBoard]) -> None:
    a, b = opened(ANN), opened(BEN)
    a.add("one", id="A")
    a.add("two", id="B", paths=["src/f"])
    a.lock(["src/f"], ANN)
    got = b.claim(BEN, n=2, lease=1.5)
    assert [task.id for task in got] == ["A"]
    for number in range(6):
        time.sleep(0.4)
        b.tell(f"still at it {number}", worker=BEN)
    assert b.complete("A", "done", worker=BEN, token=got[0].token).status == "completed"


def test_nothing_is_said_only_when_nobody_is_at_a_task_that_is_ready(
    server: Server, opened: Callable[..., TaskBoard]
) -> None:
    a, b = opened(ANN), opened(BEN)
    a.add("free", id="B")
    a.add("files", id="A", paths=["src/f"])
    a.lock(["src/f"], ANN)
    with raw(server) as other:
        hold(other, a, "B")
        claim = Later(lambda: b.claim(BEN))
        time.sleep(0.5)
        assert claim.is_running
        other.rollback()
        assert claim.join().id == "B"


def test_a_claim_that_is_made_is_answered_whatever_becomes_of_the_watermark(
    opened: Callable[..., TaskBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = opened(ANN)
    board.add_many([{"description": "t"}] * 450)
    for _ in range(3):
        board.claim(ANN, n=140)
    connections = board.store.connections  # type: ignore[attr-defined]
    monkeypatch.setattr(connections, "take_idle", lambda: None)
    assert board.claim(ANN) is not None


def test_releasing_a_worker_does_not_take_the_locks_of_what_it_has_just_claimed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks and the locks of a name are read by two statements; a claim may be committed between them."""
    with TaskBoard.open(url, worker="cleaner") as cleaner, TaskBoard.open(url) as other:
        other.add("edit", id="T", paths=["src/a.py"])
        whole = Connection.trip

        def split(connection: Connection, statements: Any) -> Any:
            if not claimed and any(sql == q.LOCKS_BY for sql, _ in statements):
                claimed.append(True)
                assert other.claim(Worker("agent", session="two"), "T") is not None
            return whole(connection, statements)

        claimed: list[bool] = []
        monkeypatch.setattr(Connection, "trip", split)
        assert cleaner.release_agent_tasks("agent") == []
        assert claimed
        assert [lock.pattern for lock in other.locks()] == ["src/a.py"]
        with pytest.raises(Busy):
            other.lock(["src/a.py"], "thief")


def test_what_is_claimed_is_numbered_after_what_freed_it(url: str) -> None:
    with TaskBoard.open(url, worker="w1") as first, TaskBoard.open(url, worker="w2") as second:
        first.claim("w1")
        first.add("one", id="T1", paths=["a"])
        first.claim("w1", lease=0.3)
        time.sleep(0.4)
        second.lock(["a"], "w2")
        second.unlock(None, "w2")
        assert first.claim("w1", lease=60) is not None
        assert [event.action for event in first.recent(2)] == ["recovered_activity", "claimed_activity"]
        assert disagreements(first) == []


@pytest.mark.parametrize("task_id", [None, "T"])
def test_one_request_key_at_the_same_time_has_one_answer(
    url: str, task_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TaskBoard.open(url) as one, TaskBoard.open(url) as two:
        one.add("edit", id="T")
        commit = Connection.commit

        def late(connection: Connection, *rest: Any) -> Any:
            time.sleep(0.5)
            return commit(connection, *rest)

        answers: dict[str, Any] = {}
        worker = Worker("r")

        def ask(name: str, board: TaskBoard) -> None:
            task = board.claim(worker, task_id, request_key="k")
            answers[name] = None if task is None else (task.id, task.token)

        monkeypatch.setattr(Connection, "commit", late)
        threads = [threading.Thread(target=ask, args=args) for args in (("one", one), ("two", two))]
        threads[0].start()
        time.sleep(0.2)
        threads[1].start()
        for thread in threads:
            thread.join()
        assert answers["one"] == answers["two"] != None  # noqa: E711


def test_whoever_waits_is_not_sent_away_by_somebody_in_the_middle_of_a_change(url: str) -> None:
    with TaskBoard.open(url) as board, TaskBoard.open(url) as other:
        board.add("edit", paths=["a"])
        paused = other.store.write()
        tx = paused.__enter__()
        tx.locks(["a"])
        done = threading.Timer(4.0, lambda: paused.__exit__(None, None, None))
        done.start()
        try:
            assert board.claim("w", wait=30) is not None
        finally:
            done.join()


def test_whoever_cleans_up_after_one_session_does_not_ask_for_the_tasks_of_others(server: Server, url: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("x", id="busy", priority=1)
        board.add("x", id="left")
        assert board.claim(ANN, "busy") is not None
        gone = Worker("ann", session="s2")
        assert board.claim(gone, "left") is not None
        with psycopg.connect(server.url(url.rpartition("/")[2].partition("?")[0])) as other:
            other.execute("SELECT 1 FROM dibs.task WHERE id = 'busy' FOR UPDATE")
            assert board.release_agent_tasks(gone) == ["left"]
