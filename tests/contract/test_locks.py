"""Locks on files, folders and globs that a worker takes by themselves."""

from __future__ import annotations

import threading

import pytest

from dibs import Busy, NotFound, TaskBoard
from dibs.errors import Invalid
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, actions, agent
from tests.contract.state import patterns

pytestmark = pytest.mark.needs("locks")


def test_a_lock_says_who_what_and_until_when(board: TaskBoard) -> None:
    (lock,) = board.lock(["src/auth/**"], ANN, lease=60)
    assert (lock.pattern, lock.holder, lock.shared, lock.task_id) == ("src/auth/**", ANN, False, None)
    assert (lock.acquired_at, lock.expires_at, lock.lease) == (START, START + 60, 60)
    assert board.locks() == [lock]


@pytest.mark.parametrize(("worker", "hours"), [(ANN, 1), (EVE, 8)])
def test_its_length_depends_on_the_kind_of_worker(board: TaskBoard, worker: object, hours: int) -> None:
    (lock,) = board.lock(["a"], worker)  # type: ignore[arg-type]
    assert lock.expires_at == START + hours * 3600


OVERLAPPING = [
    ("src/a.py", "src/a.py"),
    ("src", "src/a.py"),
    ("src/a.py", "src"),
    ("src/**", "src/auth/login.py"),
    ("src/*.py", "src/a.py"),
    ("src/*.py", "src/a*"),
    ("**", "anything/at/all"),
    ("**/test_*.py", "src/test_a.py"),
    ("src/[ab].py", "src/?.py"),
    ("./src//a.py", "src/x/../a.py"),
]
APART = [
    ("src/a.py", "src/b.py"),
    ("src", "src2"),
    ("src/*.py", "src/a.js"),
    ("src/auth/**", "src/web/**"),
    ("src/[ab].py", "src/[cd].py"),
]


def test_braces_stand_for_the_paths_that_a_shell_would_make_of_them(board: TaskBoard, other: TaskBoard) -> None:
    board.lock(["web/*.{ts,tsx}"], ANN)
    assert patterns(board) == ["web/*.ts", "web/*.tsx"]
    with pytest.raises(Busy, match="held by ann"):
        other.lock(["web/page.tsx"], BEN)
    assert [lock.pattern for lock in board.locks(["web/{page.tsx,x.css}"])] == ["web/*.tsx"]
    board.unlock(["web/*.{ts,tsx}"], ANN)
    assert board.locks() == []
    board.lock(["{{cookiecutter.name}}/a.py"], ANN)
    assert patterns(board) == ["{{cookiecutter.name}}/a.py"]
    with pytest.raises(Invalid, match="stand for more than 64 paths"):
        board.lock(["web/{0..99}.ts"], ANN)


def test_braces_in_a_tasks_paths(board: TaskBoard) -> None:
    task = board.get(board.add("x", paths=["src/{a,b}.py", "src/a.py"]))
    assert task.paths == ["src/a.py", "src/b.py"]
    board.lock(["src/b.py"], ANN)
    assert board.claim(BEN) is None


@pytest.mark.parametrize(("held", "wanted"), OVERLAPPING)
def test_overlapping_patterns_exclude_each_other(board: TaskBoard, other: TaskBoard, held: str, wanted: str) -> None:
    board.lock([held], ANN)
    with pytest.raises(Busy, match="held by ann") as caught:
        other.lock([wanted], BEN)
    assert isinstance(caught.value, TimeoutError)
    assert [lock.holder for lock in caught.value.conflicts] == [ANN]


@pytest.mark.parametrize(("held", "wanted"), APART)
def test_patterns_that_share_no_path_do_not(board: TaskBoard, held: str, wanted: str) -> None:
    board.lock([held], ANN)
    board.lock([wanted], BEN)
    assert len(board.locks()) == 2


def test_all_of_a_request_is_granted_or_none_of_it(board: TaskBoard) -> None:
    board.lock(["b"], ANN)
    with pytest.raises(Busy):
        board.lock(["a", "b", "c"], BEN)
    assert patterns(board) == ["b"]
    board.lock(["a", "c"], BEN)
    assert patterns(board) == ["a", "b", "c"]


def test_every_conflict_is_named(board: TaskBoard) -> None:
    board.lock(["a"], ANN)
    board.lock(["b"], EVE)
    with pytest.raises(Busy, match="and 1 more") as caught:
        board.lock(["a", "b"], BEN)
    assert sorted(lock.holder.name for lock in caught.value.conflicts) == ["ann", "eve"]


def test_a_refused_lock_says_that_nothing_was_locked(board: TaskBoard) -> None:
    board.lock(["a"], ANN)
    before = actions(board)
    with pytest.raises(Busy, match="nothing was locked"):
        board.lock(["x", "a"], BEN)
    assert actions(board) == before


def test_shared_locks_stand_beside_each_other_but_not_beside_an_exclusive_one(board: TaskBoard) -> None:
    board.lock(["docs"], ANN, shared=True)
    board.lock(["docs/**"], BEN, shared=True)
    with pytest.raises(Busy):
        board.lock(["docs/a.md"], EVE)
    board.unlock(["docs"], ANN)
    with pytest.raises(Busy):
        board.lock(["docs/a.md"], EVE)
    board.unlock(["docs/**"], BEN)
    board.lock(["docs/a.md"], EVE)
    with pytest.raises(Busy):
        board.lock(["docs"], ANN, shared=True)


def test_giving_back_what_another_holds_names_the_holder(board: TaskBoard) -> None:
    board.lock(["a", "docs/**"], BEN)
    for path, words in (
        ("a", "a is held by ben, not by you"),
        ("docs/x.md", "docs/x.md is held, as docs/**, by ben, not by you"),
        ("free", "ann holds no lock on free"),
    ):
        with pytest.raises(NotFound) as caught:
            board.unlock([path], ANN)
        assert caught.value.message == words
    assert len(board.locks()) == 2


def test_asking_again_for_an_own_lock_renews_it(board: TaskBoard, clock: HandClock) -> None:
    (first,) = board.lock(["a"], ANN, lease=60)
    clock.advance(30)
    (again,) = board.lock(["a"], ANN, lease=60)
    assert (again.token, again.acquired_at) == (first.token, START)
    assert again.expires_at == START + 90
    assert len(board.locks()) == 1


def test_overlapping_locks_of_one_worker_do_not_hinder_it(board: TaskBoard) -> None:
    board.lock(["src"], ANN)
    board.lock(["src/a.py", "src/**"], ANN)
    assert patterns(board) == ["src", "src/**", "src/a.py"]


def test_two_spellings_of_one_path_in_one_request_are_one_lock(board: TaskBoard) -> None:
    assert len(board.lock(["a/b", "./a//b"], ANN)) == 1
    assert patterns(board) == ["a/b"]


def test_two_sessions_of_one_name_exclude_each_other(board: TaskBoard) -> None:
    board.lock(["a"], agent("ann", "s1"))
    with pytest.raises(Busy):
        board.lock(["a"], agent("ann", "s2"))
    board.lock(["a"], agent("ann", None))


def test_a_shared_lock_becomes_exclusive_when_nobody_else_shares_it(board: TaskBoard) -> None:
    board.lock(["a"], ANN, shared=True)
    board.lock(["a"], BEN, shared=True)
    with pytest.raises(Busy):
        board.lock(["a"], ANN)
    assert all(lock.shared for lock in board.locks())
    board.unlock(["a"], BEN)
    (lock,) = board.lock(["a"], ANN)
    assert not lock.shared
    with pytest.raises(Busy):
        board.lock(["a"], BEN, shared=True)


def test_an_exclusive_lock_stays_exclusive_when_asked_for_as_shared(board: TaskBoard) -> None:
    board.lock(["a"], ANN)
    board.lock(["a"], ANN, shared=True)
    with pytest.raises(Busy):
        board.lock(["a"], BEN, shared=True)


def test_an_expired_lock_binds_nobody(board: TaskBoard, other: TaskBoard, clock: HandClock) -> None:
    (old,) = board.lock(["a"], ANN, lease=60)
    clock.advance(60)
    assert board.locks() == []
    (new,) = other.lock(["a"], BEN)
    assert new.token > old.token
    with pytest.raises(Busy):
        board.lock(["a"], ANN)


class TestUnlock:
    def test_named_locks_are_given_back(self, board: TaskBoard) -> None:
        board.lock(["a", "b", "c"], ANN)
        assert [lock.pattern for lock in board.unlock(["./a"], ANN)] == ["a"]
        assert patterns(board) == ["b", "c"]

    def test_without_names_all_of_a_worker_are(self, board: TaskBoard) -> None:
        board.lock(["a", "b"], ANN)
        board.lock(["c"], BEN)
        assert sorted(lock.pattern for lock in board.unlock(None, ANN)) == ["a", "b"]
        assert patterns(board) == ["c"]
        assert board.unlock(None, ANN) == []

    def test_what_one_does_not_hold_cannot_be_given_back(self, board: TaskBoard) -> None:
        board.lock(["a", "b"], ANN)
        for stranger in (BEN, agent("ann", "s2")):
            with pytest.raises(NotFound):
                board.unlock(["a"], stranger)
        with pytest.raises(NotFound):
            board.unlock(["a", "z"], ANN)
        assert patterns(board) == ["a", "b"]


def test_the_locks_on_a_path_can_be_asked_for(board: TaskBoard) -> None:
    board.lock(["src/**"], ANN)
    board.lock(["docs"], BEN)
    assert [lock.pattern for lock in board.locks(["src/a.py"])] == ["src/**"]
    assert board.locks(["other"]) == []
    assert len(board.locks(["**"])) == 2


def test_waiting_for_a_lock_ends_when_it_is_given_back(
    board: TaskBoard, other: TaskBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.lock(["a"], ANN)
    waiting = threading.Event()
    sleep = other.store.wait_change

    def noted(mark: int, timeout: float) -> bool:
        waiting.set()
        return sleep(mark, timeout)

    monkeypatch.setattr(other.store, "wait_change", noted)
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.extend(x.holder.name for x in other.lock(["a"], BEN, wait=30)))
    thread.start()
    assert waiting.wait(10)
    board.unlock(["a"], ANN)
    thread.join(10)
    assert got == ["ben"]


def test_waiting_for_a_lock_is_bounded(board: TaskBoard) -> None:
    board.lock(["a"], ANN)
    with pytest.raises(Busy):
        board.lock(["a"], BEN, wait=0.05)
