"""LockFileGuard, document 000, row by row."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import Busy
from dibs.guards import LockFileGuard
from dibs.guards.lockfile import BUSY, encode, parse

NOW = 1_770_000_000.25


class Place:
    """A lock file, and a time that passes only while somebody waits; `events` happen after so many naps."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "board.lock"
        self.now = NOW
        self.naps: list[float] = []
        self.events: dict[int, Callable[[], Any]] = {}

    def guard(self, agent: str = "worker-w2", **more: Any) -> LockFileGuard:
        return LockFileGuard(self.path, agent, clock=lambda: self.now, sleep=self.sleep, **more)

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
        self.events.get(len(self.naps), lambda: None)()

    def locked(self, age: float, agent: str = "worker-w1") -> None:
        moment = datetime.fromtimestamp(self.now - age, timezone(timedelta(hours=9)))
        self.path.write_text(json.dumps({"agent": agent, "ts": moment.isoformat()}))

    @property
    def files(self) -> list[str]:
        return sorted(os.listdir(self.path.parent))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_content_is_the_documents(place: Place) -> None:
    with place.guard("worker-w1") as guard:
        text = place.path.read_text()
        assert json.loads(text) == {"agent": "worker-w1", "ts": "2026-02-02T02:40:00.250000+00:00"}
        assert text.startswith('{\n  "agent": ')
        assert text.endswith("\n}\n")
        assert guard.confirm()
        assert place.files == ["board.lock"]
    assert place.files == []
    assert place.naps == []


def test_it_waits_two_seconds_and_looks_again_up_to_five_times(place: Place) -> None:
    place.locked(0)
    place.events[4] = place.path.unlink
    with place.guard():
        assert place.naps == [2.0] * 4


def test_a_recent_lock_is_respected_with_the_documents_words(place: Place) -> None:
    place.locked(40)
    with pytest.raises(Busy) as caught:
        place.guard().acquire()
    assert place.naps == [2.0] * 5
    assert caught.value.message == BUSY == "Board is locked by another agent. Cannot proceed."
    assert "worker-w1" in caught.value.hint
    assert "worker-w1 has it, taken 50s ago" in caught.value.hint
    assert json.loads(place.path.read_text())["agent"] == "worker-w1"
    assert place.files == ["board.lock"]


def test_a_lock_older_than_60_seconds_is_broken_but_not_before_the_retries_are_over(place: Place) -> None:
    place.locked(3600)
    with place.guard():
        assert place.naps == [2.0] * 5
        assert json.loads(place.path.read_text())["agent"] == "worker-w2"
        assert place.files == ["board.lock"]


def test_a_lock_that_grows_old_during_the_retries_is_broken(place: Place) -> None:
    place.locked(50.5)
    with place.guard():
        assert place.naps == [2.0] * 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"null",
        b'{"agent": "x"}',
        b'{"ts": null}',
        b'{"ts": "yesterday"}',
        b"\xff\xfe",
        b"[" * 9999,
    ],
)
def test_a_lock_without_a_readable_ts_is_malformed_and_broken(place: Place, content: bytes) -> None:
    place.path.write_bytes(content)
    found = place.guard().holder()
    assert found is not None
    assert found.state == "dead"
    with place.guard():
        assert json.loads(place.path.read_text())["agent"] == "worker-w2"
        assert place.naps == [2.0] * 5


def test_a_lock_that_is_being_written_is_not_malformed_yet(place: Place) -> None:
    place.locked(0)
    place.events[5] = lambda: place.path.write_bytes(b"")
    place.events[6] = lambda: place.locked(0, "worker-w3")
    with pytest.raises(Busy, match="worker-w3"):
        place.guard().acquire()


def test_without_waiting_a_stale_lock_is_broken_and_a_recent_one_is_not(place: Place) -> None:
    place.locked(61)
    guard = place.guard()
    guard.acquire(0)
    with pytest.raises(Busy):
        place.guard("worker-w3").acquire(0)
    assert place.naps == []
    guard.release()


def test_a_time_out_of_its_own_is_kept(place: Place) -> None:
    place.locked(0)
    with pytest.raises(Busy):
        place.guard().acquire(5)
    assert place.naps == [2.0, 2.0, 1.0]
    place.naps.clear()
    with pytest.raises(Busy):
        place.guard().acquire(25)
    assert sum(place.naps) == 25
    place.naps.clear()
    patient = place.guard()
    patient.acquire(None)
    assert sum(place.naps) <= 32
    assert patient.confirm()
    patient.release()


def test_one_that_was_broken_knows_and_leaves_the_new_one_alone(place: Place) -> None:
    slow = place.guard("worker-slow")
    slow.acquire()
    place.now += 61
    with place.guard("worker-quick") as quick:
        assert not slow.confirm()
        slow.release()
        assert quick.confirm()
    assert place.files == []


def test_one_that_is_stale_itself_is_not_confirmed_though_nobody_has_broken_it_yet(place: Place) -> None:
    with place.guard() as guard:
        place.now += 60
        assert guard.confirm()
        place.now += 1
        assert not guard.confirm()
    assert place.files == []


def test_another_agents_lock_of_the_same_name_is_not_ours(place: Place) -> None:
    guard = place.guard("worker-w1")
    guard.acquire()
    place.locked(0, "worker-w1")
    assert not guard.confirm()
    guard.release()
    assert place.path.exists()


def test_a_breaker_that_finds_a_new_lock_under_the_second_lock_leaves_it(place: Place) -> None:
    place.locked(100)
    guard = place.guard()
    judged = guard._read(str(place.path))
    assert judged is not None
    place.locked(0, "worker-new")
    assert not guard._break(judged)
    assert json.loads(place.path.read_text())["agent"] == "worker-new"
    assert place.files == ["board.lock"]


def test_a_live_lock_that_was_moved_by_accident_is_put_back(place: Place) -> None:
    place.locked(0, "worker-new")
    guard = place.guard()
    assert not guard._move_away(b"what was judged")
    assert json.loads(place.path.read_text())["agent"] == "worker-new"
    assert place.files == ["board.lock"]


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_is_never_broken(place: Place, kind: str) -> None:
    if kind == "link":
        place.path.symlink_to("elsewhere")
    elif kind == "folder":
        place.path.mkdir()
    else:
        os.mkfifo(place.path)
    with pytest.raises(Busy) as caught:
        place.guard().acquire()
    assert "cannot be read" in caught.value.hint
    assert os.path.lexists(place.path)
    found = place.guard().holder()
    assert found is not None
    assert found.state == "unknown"


def test_where_there_are_no_hard_links_it_is_created_exclusively(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with place.guard() as guard:
        assert guard.confirm()
        assert place.files == ["board.lock"]
        with pytest.raises(Busy):
            place.guard("worker-w3").acquire(0)
    assert place.files == []


def test_a_disk_that_is_full_leaves_no_lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        place.guard().acquire()
    monkeypatch.undo()
    assert place.files == []


def test_an_interrupt_right_after_the_creation_leaves_no_lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def interrupted(*args: Any) -> None:
        link(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        place.guard().acquire()
    assert place.files == []


# -- readers


def test_a_reader_reads_at_once_where_there_is_no_lock(place: Place) -> None:
    assert place.guard().wait_readable() is None
    assert place.files == []


def test_a_reader_waits_while_there_is_a_lock_and_makes_none(place: Place) -> None:
    place.locked(0)
    place.events[3] = place.path.unlink
    assert place.guard().wait_readable() is None
    assert place.naps == [2.0] * 3
    assert place.files == []


def test_a_reader_deletes_a_stale_lock_after_the_retries(place: Place) -> None:
    place.locked(100)
    assert place.guard().wait_readable() is None
    assert place.naps == [2.0] * 5
    assert place.files == []


def test_a_reader_is_told_who_still_has_it(place: Place) -> None:
    place.locked(0)
    found = place.guard().wait_readable()
    assert found is not None
    assert (found.name, found.state) == ("worker-w1", "alive")
    assert place.files == ["board.lock"]


# -- the content


def test_times_are_read_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for ts in ("2026-02-11T14:30:00+09:00", "2026-02-11T05:30:00Z", "20260211T053000Z"):
            assert parse(json.dumps({"agent": "a", "ts": ts}).encode()) == ("a", 1770787800.0, True)
        # Without a zone it is not before it is so in UTC-12, wherever we are.
        assert parse(b'{"ts": "2026-02-10T17:30:00"}') == (None, 1770787800.0, False)
        assert parse(b'{"ts": 1770787800}') == (None, 1770787800.0, True)
        assert parse(b'{"ts": 1770787800000}') == (None, 1770787800.0, True)
        assert parse(b'\xef\xbb\xbf{"ts": "2026-02-11T05:30:00Z"}') == (None, 1770787800.0, True)
        for nonsense in (b'{"ts": true}', b'{"ts": 1e999}', b'{"ts": "9999-99-99"}'):
            assert parse(nonsense) == (None, None, True)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_written_is_read_back() -> None:
    agent, ts, _ = parse(encode('worker-"ü"\n', NOW))
    assert agent == 'worker-"ü"\n'
    assert ts == pytest.approx(NOW, abs=1e-6)
