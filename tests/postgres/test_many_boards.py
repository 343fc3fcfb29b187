"""Boards of one database know nothing of each other, and never wait for each other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from dibs import TaskBoard, Worker
from dibs.errors import NoBoard, NotFound
from tests.postgres.server import Server
from tests.processes.harness import PATIENCE

ANN = Worker("ann", session="s1")
BEN = Worker("ben", session="s1")
Boards = tuple[TaskBoard, TaskBoard]


@pytest.fixture
def boards(server: Server) -> Iterator[Boards]:
    name = uuid.uuid4().hex
    urls = [server.url(board=f"{name} {kind}") for kind in ("one", "two")]
    with (
        TaskBoard.open(urls[0], create=True, worker=ANN) as one,
        TaskBoard.open(urls[1], create=True, worker=ANN) as two,
    ):
        yield one, two


def test_tasks_are_one_boards(boards: Boards) -> None:
    one, two = boards
    one.add("x", id="t")
    assert two.tasks() == ([], 0)
    assert two.status() == []
    assert two.ready() == []
    assert not any(two.counts().values())
    assert two.claim(BEN) is None
    for look in (lambda: two.get("t"), lambda: two.resolve("t"), lambda: two.claim(BEN, "t")):
        with pytest.raises(NotFound):
            look()
    two.add("y", id="t")  # ids are a board's own
    mine, theirs = one.claim(ANN), two.claim(BEN)
    assert mine is not None
    assert theirs is not None
    mine.complete("one")
    assert (one.get("t").result, two.get("t").status) == ("one", "in_progress")
    assert (one.get("t").seq, two.get("t").seq) == (1, 1)
    theirs.complete("two")
    assert (one.get("t").result, two.get("t").result) == ("one", "two")


def test_ids_are_found_by_their_beginning_on_one_board(boards: Boards) -> None:
    one, two = boards
    one.add("x", id="abc-1")
    two.add("y", id="abc-2")
    assert (one.resolve("abc"), two.resolve("abc")) == ("abc-1", "abc-2")


def test_dependencies_stay_on_a_board(boards: Boards) -> None:
    one, two = boards
    for board in boards:
        board.add("x", id="t")
        board.add("y", ["t"], id="u", priority=1)
    one.add("only here", id="here")
    with pytest.raises(NotFound):
        two.add("z", ["here"])
    one.claim(ANN, "t")
    one.complete("t")
    assert (one.get("u").unmet, two.get("u").unmet) == (0, 1)


def test_the_same_path_is_locked_on_each(boards: Boards) -> None:
    one, two = boards
    one.lock(["src"], ANN)
    two.lock(["src/a.py"], BEN)
    assert [lock.pattern for lock in one.locks()] == ["src"]
    assert [lock.pattern for lock in two.locks()] == ["src/a.py"]
    for board, who in ((one, ANN), (two, BEN)):
        board.add("x", id="t", paths=["src/a.py"])
        assert board.claim(who) is not None
    one.release_agent_tasks(ANN)
    assert one.locks() == []
    assert len(two.locks()) == 2
    assert two.held_by(BEN)


def test_messages_marks_and_the_changelog_are_one_boards(boards: Boards) -> None:
    one, two = boards
    before = [len(list(board.changelog())) for board in boards]
    one.tell("for one", worker="maker")
    two.tell("for two", worker="maker")
    two.tell("for two again", worker="maker")
    assert [m.content for m in one.inbox(BEN)] == ["for one"]
    assert [m.content for m in two.inbox(BEN)] == ["for two", "for two again"]
    assert one.inbox(BEN) == two.inbox(BEN) == []
    assert [len(list(board.changelog())) - n for board, n in zip(boards, before, strict=True)] == [1, 2]
    assert [event.seq for event in one.recent(1)] != []


def test_numbers_begin_at_one_on_each(boards: Boards) -> None:
    one, two = boards
    for _ in range(5):
        one.add("x")
    two.add("y", id="t")
    assert next(iter(two.changelog())).seq <= 2
    assert two.get("t").seq == 1


def test_request_keys_are_one_boards(boards: Boards) -> None:
    ids = [board.add("x", request_key="k") for board in boards]
    assert ids[0] != ids[1]
    assert [board.add("x", request_key="k") for board in boards] == ids
    taken = [board.claim(ANN, request_key="k") for board in boards]
    assert [task and task.id for task in taken] == ids


def test_leases_run_out_on_one_board(boards: Boards) -> None:
    one, two = boards
    for board in boards:
        board.add("x", id="t")
    one.claim(BEN, lease=0.001)
    two.claim(BEN)
    assert one.recover() == ["t"]
    assert two.recover() == []
    assert two.get("t").status == "in_progress"


def answered(call: Callable[[], object]) -> object:
    """The answer of a call that must not wait for anything of ours."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE / 4)
    assert answers, "it waits"
    return answers[0]


def test_no_board_waits_for_a_transaction_on_another(boards: Boards) -> None:
    """One is in the middle of everything: rows, paths, an inbox, drawn numbers."""
    one, two = boards
    for board in boards:
        board.add("x", id="t", paths=["src"])
        board.add("y", id="u", priority=3)
        board.tell("hello", worker="maker")
    with one.store.write() as tx:
        tx.get(["t", "u"])
        tx.ready(("any", "agent"), 5, claim=True)
        tx.locks(["src/**", "**"])
        tx.marks("ben\ns1")
        tx.draw(1)
        store = two.store
        calls: list[Callable[[], object]] = [
            lambda: two.claim(BEN, n=2),
            lambda: two.complete("u", worker=BEN),
            lambda: two.add("z", ["t"], id="v"),
            lambda: two.depend("v", ["u"]),
            lambda: two.lock(["docs/**"], BEN),
            lambda: two.inbox(BEN),
            lambda: store.watermark.follow("open", 0) or True,  # type: ignore[attr-defined]
            lambda: list(two.changelog())[-1].action,
        ]
        said = [answered(call) for call in calls]
    assert [task.id for task in said[0]] == ["u", "t"]  # type: ignore[attr-defined]
    assert said[-1] == "locked_files"  # nothing of the other's holds back what has settled here
    assert [message.content for message in said[5]] == ["hello"]  # type: ignore[attr-defined]


def test_a_board_that_is_not_there_is_not_another(server: Server, boards: Boards) -> None:
    with pytest.raises(NoBoard):
        TaskBoard.open(server.url(board=f"no {uuid.uuid4().hex}"))
