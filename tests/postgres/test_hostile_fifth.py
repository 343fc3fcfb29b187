"""What a fifth pair of hostile eyes found, when claims had begun to look first and hold at the end: each was wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from dibs import TaskBoard, Worker
from dibs.cli.audit import disagreements
from dibs.worker import boot, host, process_start
from tests.clocks import HandClock
from tests.postgres.actors import board_of
from tests.postgres.server import Server

ANN = Worker("ann", session="s1")
DEAD = Worker("ghost", session="g", host=host(), pid=2**22 + 1, started="1", boot=boot())


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with board_of(server) as made:
        yield made


@pytest.fixture
def board(url: str, clock: HandClock) -> Iterator[TaskBoard]:
    with TaskBoard.open(url, clock=clock, worker="maker") as made:
        yield made


@pytest.mark.parametrize("n", [49, 60, 1200])
def test_the_answer_to_a_request_key_has_the_tokens_of_many_claims(board: TaskBoard, n: int) -> None:
    board.add_many([{"description": "x"}] * (n + 5))
    got = board.claim(ANN, n=n, request_key="k")
    again = board.claim(ANN, n=n, request_key="k")
    assert [(task.id, task.token) for task in again] == [(task.id, task.token) for task in got]
    assert all((task.token or 0) > 0 for task in got)
    assert len({task.token for task in got}) == n
    assert disagreements(board) == []


def test_the_answer_to_a_request_key_has_the_token_although_many_leases_ran_out(
    board: TaskBoard, clock: HandClock
) -> None:
    board.add_many([{"description": "x"}] * 60)
    board.claim(Worker("ben", session="s"), n=60, lease=1)
    clock.advance(2)
    got = board.claim(ANN, request_key="k")
    again = board.claim(ANN, request_key="k")
    assert got is not None
    assert again is not None
    assert (again.id, again.token) == (got.id, got.token)


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


@pytest.mark.parametrize("who", [ANN, Worker("eve", "human", session="e")], ids=lambda who: who.kind)
@pytest.mark.parametrize("next_", [False, True], ids=["claim", "claim_next"])
def test_files_that_only_the_dead_hold_by_a_glob_are_free_for_the_claim_that_finds_nothing_else(
    board: TaskBoard, who: Worker, next_: bool
) -> None:
    board.add_many([{"description": "x", "priority": 9, "paths": [f"w/{n}"]} for n in range(4)])
    board.add("x", id="t", paths=["docs/a.md"])
    held = [board.claim(who) for _ in range(4)]  # this one is at work: it has looked for the dead a moment ago
    board.lock(["docs/*.md"], DEAD)
    last = held[-1]
    assert last is not None
    got = last.complete("done", claim_next=True) if next_ else board.claim(who)
    assert got is not None
    assert got.id == "t"


def test_a_better_task_whose_files_the_dead_hold_is_not_passed_over_for_a_worse(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "priority": 9, "paths": [f"w/{n}"]} for n in range(4)])
    board.add("x", id="better", paths=["docs/a.md"], priority=1)
    for _ in range(4):
        assert board.claim(ANN) is not None
    board.lock(["docs/*.md"], DEAD)
    board.add("x", id="worse")
    assert sorted(task.id for task in board.claim(ANN, n=3)) == ["better", "worse"]


def test_history_is_told_once_of_a_task_whose_lease_is_over_and_whose_holder_is_dead(
    board: TaskBoard, clock: HandClock
) -> None:
    board.add("x", id="t", max_attempts=0)
    assert board.claim(DEAD, "t", lease=1) is not None
    clock.advance(2)
    assert board.claim(ANN) is None
    assert (board.get("t").result or "").count("claimed_activity") == 1


def test_reasons_are_in_one_order_on_every_store(url: str, clock: HandClock) -> None:
    told = []
    for address in (url, "memory:"):
        with TaskBoard.open(address, create=True, clock=clock, worker="maker") as board:
            board.add("x", id="t", paths=["src", "docs", "a/b"])
            for path in ("src/z.py", "a", "docs/b", "src/a.py"):
                board.lock([path], f"holder of {path}")
            told.append([reason.path for reason in board.reasons("t")])
    assert told[0] == told[1] == sorted(told[1], key=str)


@pytest.mark.parametrize("many", [199, 200, 201, 700])
def test_however_much_a_process_held_that_has_died_all_of_it_comes_back(board: TaskBoard, many: int) -> None:
    """Of very many tasks that somebody on this machine may have left, it is first asked whose they are."""
    board.add_many([{"description": "x", "paths": [f"src/{n}"]} for n in range(many)])
    alive = Worker("alive", session="a", host=host(), pid=os.getpid(), started=process_start(os.getpid()), boot=boot())
    assert len(board.claim(alive, n=many // 2)) == many // 2
    assert len(board.claim(DEAD, n=many)) == many - many // 2
    board._reaped = float("-inf")
    assert len(board.claim(ANN, n=1000)) == many - many // 2
    assert {task.assigned_to for task in board.tasks(["in_progress"], limit=1000)[0]} == {"alive", "ann"}
    assert disagreements(board) == []
