"""Messages: to one name or to everybody, given to each worker once."""

from __future__ import annotations

import pytest

from dibs import TaskBoard, Worker
from dibs.errors import Invalid
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, actions, agent, ascii_start


def contents(board: TaskBoard, worker: Worker | str) -> list[str]:
    return [message.content for message in board.inbox(worker)]


def test_a_message_reaches_the_one_it_is_for(board: TaskBoard, other: TaskBoard) -> None:
    board.tell("take the tests", "ben", worker=ANN)
    (message,) = other.inbox(BEN)
    assert (message.sender, message.content, message.to, message.time) == ("ann", "take the tests", "ben", START)
    assert other.inbox(EVE) == []
    assert other.inbox(ANN) == []


def test_a_broadcast_reaches_everybody_else(board: TaskBoard) -> None:
    board.tell("main is broken", worker=ANN)
    assert contents(board, BEN) == ["main is broken"]
    assert contents(board, EVE) == ["main is broken"]
    assert contents(board, ANN) == []


def test_each_worker_is_given_a_message_once(board: TaskBoard, other: TaskBoard) -> None:
    board.tell("one", "ben", worker=ANN)
    assert contents(board, BEN) == ["one"]
    assert contents(other, BEN) == []
    board.tell("two", "ben", worker=ANN)
    assert contents(other, BEN) == ["two"]


def test_messages_come_oldest_first(board: TaskBoard, clock: HandClock) -> None:
    for i in range(5):
        board.tell(f"message {i}", worker=ANN)
        clock.advance(1)
    assert contents(board, BEN) == [f"message {i}" for i in range(5)]


def test_peeking_leaves_them_unread(board: TaskBoard) -> None:
    board.tell("one", "ben", worker=ANN)
    assert [m.content for m in board.inbox(BEN, peek=True)] == ["one"]
    assert contents(board, BEN) == ["one"]


def test_a_newcomer_is_given_the_last_hundred(board: TaskBoard) -> None:
    for i in range(105):
        board.tell(f"message {i}", worker=ANN)
    assert contents(board, BEN) == [f"message {i}" for i in range(5, 105)]
    assert contents(board, BEN) == []


def test_a_reader_that_comes_back_late_misses_none(board: TaskBoard) -> None:
    board.tell("first", worker=ANN)
    assert contents(board, BEN) == ["first"]
    for i in range(150):
        board.tell(f"message {i}", worker=ANN)
    seen: list[str] = []
    while batch := contents(board, BEN):
        seen += batch
    assert seen == [f"message {i}" for i in range(150)]


def test_a_small_limit_leaves_the_rest_for_later(board: TaskBoard) -> None:
    board.tell("zero", worker=ANN)
    board.inbox(BEN)
    for text in ("one", "two", "three"):
        board.tell(text, worker=ANN)
    assert [m.content for m in board.inbox(BEN, limit=2)] == ["one", "two"]
    assert [m.content for m in board.inbox(BEN, limit=2)] == ["three"]


def test_a_limit_of_text_leaves_the_rest_for_later(board: TaskBoard) -> None:
    for text in ("aaaa", "bbbb", "c" * 20, "d"):
        board.tell(text, worker=ANN)
    given = []
    for peek in (True, False, False, False):  # of a newcomer's first messages, too, none is left out
        given.append([m.content for m in board.inbox(BEN, peek=peek, most_text=9)])
    assert given == [["aaaa", "bbbb"], ["aaaa", "bbbb"], ["c" * 20], ["d"]]
    with pytest.raises(Invalid, match="most_text"):
        board.inbox(BEN, most_text=0)


def test_two_sessions_of_one_name_each_get_their_copy(board: TaskBoard) -> None:
    board.tell("hello", "ann", worker=BEN)
    assert contents(board, agent("ann", "s1")) == ["hello"]
    assert contents(board, agent("ann", "s2")) == ["hello"]
    assert contents(board, agent("ann", "s1")) == []


def test_a_name_with_a_separator_is_not_somebody_elses_session(board: TaskBoard) -> None:
    board.tell("hello", worker=BEN)
    assert contents(board, Worker("ann", session="x")) == ["hello"]
    assert contents(board, Worker("ann:x")) == ["hello"]


def test_all_messages_can_be_listed(board: TaskBoard) -> None:
    board.tell("one", "ben", worker=ANN)
    board.tell("two", worker=BEN)
    assert [(m.sender, m.to, m.content) for m in board.messages()] == [("ann", "ben", "one"), ("ben", None, "two")]
    assert [m.content for m in board.messages(limit=1)] == ["two"]
    assert contents(board, EVE) == ["two"]


def test_a_message_is_in_the_changelog(board: TaskBoard) -> None:
    board.tell("one", "ben", worker=ANN)
    event = list(board.changelog())[-1]
    assert (event.action, event.worker, event.details) == ("sent_message", "ann", "one")
    assert actions(board).count("sent_message") == 1


@pytest.mark.parametrize(
    "hostile", ["", "   ", "a\0b", "\ud800", "x" * (64 * 1024 + 1), "é" * (32 * 1024 + 1), None, 5], ids=ascii_start
)
def test_what_is_no_text_is_not_sent(board: TaskBoard, hostile: object) -> None:
    with pytest.raises(Invalid):
        board.tell(hostile, worker=ANN)  # type: ignore[arg-type]
    assert board.messages() == []


def test_a_message_of_64_kib_is_sent(board: TaskBoard) -> None:
    board.tell("é" * (32 * 1024), worker=ANN)
    assert len(contents(board, BEN)[0]) == 32 * 1024


def test_a_recipient_needs_a_name(board: TaskBoard) -> None:
    for wrong in ("", "two\nlines", "\ud800"):
        with pytest.raises(Invalid):
            board.tell("hello", wrong, worker=ANN)


def test_terminal_escapes_are_kept_as_text(board: TaskBoard) -> None:
    board.tell("\x1b[31mred\x07", worker=ANN)
    assert contents(board, BEN) == ["\x1b[31mred\x07"]


def test_the_same_request_key_sends_a_message_once(board: TaskBoard, other: TaskBoard) -> None:
    first = board.tell("main is broken", "ben", worker=ANN, request_key="k1")
    again = other.tell("main is broken", "ben", worker=ANN, request_key="k1")
    assert (again.seq, again.time, again.sender) == (first.seq, first.time, first.sender)
    assert contents(board, BEN) == ["main is broken"]
    assert actions(board).count("sent_message") == 1


def test_a_request_key_belongs_to_its_message_and_to_its_sender(board: TaskBoard) -> None:
    board.tell("one", "ben", worker=ANN, request_key="k1")
    for text, to in (("two", "ben"), ("one", None), ("one", "eve")):
        with pytest.raises(Invalid, match="request key"):
            board.tell(text, to, worker=ANN, request_key="k1")
    board.tell("mine", "ben", worker=EVE, request_key="k1")
    assert contents(board, BEN) == ["one", "mine"]


def test_messages_that_did_not_arrive_can_be_had_again(board: TaskBoard, other: TaskBoard) -> None:
    for number in range(4):
        board.tell(f"message {number}", "ben", worker=ANN)
    assert contents(board, BEN)[:1] == ["message 0"]
    board.tell("message 4", "ben", worker=ANN)
    lost = board.inbox(BEN)
    other.unread(BEN, lost)
    board.unread(BEN, [])
    assert contents(board, BEN) == ["message 4"]
    assert contents(other, BEN) == []
