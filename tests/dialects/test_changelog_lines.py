"""The changelog of document 001: its lines, and that nothing that stops a writer spoils more than its own line."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.dialects.changelog_lines import append, encode, parse, parse_all, read_from
from dibs.errors import Invalid
from dibs.model import Event

GOLDEN = Path(__file__).parent / "golden" / "workitems" / "changelog.log"


def line(number: int, size: int = 1) -> bytes:
    return encode(Event("claimed_activity", "agent-1", "agent", 1769248800.0 + number, "WI-001-A1", None, "x" * size))


def test_the_documents_example_is_read() -> None:
    lines, offset = read_from(str(GOLDEN), 0)
    assert offset == GOLDEN.stat().st_size
    events, skipped = parse_all(lines)
    assert skipped == []
    assert events == [
        Event("claimed_activity", "agent-abc123", "agent", 1769248800.0, "WI-001-A1", None, "Starting work", seq=1),
        Event(
            "completed_task", "agent-abc123", "agent", 1769250600.0, "WI-001-A1", "WI-001-A1-T1",
            "Implemented feature X", seq=2,
        ),
    ]  # fmt: skip


def test_a_line_is_written_as_the_document_writes_it() -> None:
    for text in GOLDEN.read_bytes().splitlines():
        event = parse(text)
        assert event is not None
        assert encode(event).replace(b".000Z", b"Z") == text
    event = Event("reaped_claim", "dibs", "system", 1769248800.5, data={"for": "replay"})
    assert encode(event) == (
        b'{"timestamp":"2026-01-24T10:00:00.500Z","worker":"dibs","worker_type":"system","action":"reaped_claim"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"   ",
        b'{"timestamp":"2026-01-24T10:00:00Z","worker":"agent-1","worker_ty',
        b"plain words",
        b"[1, 2]",
        b"{}",
        b'{"timestamp":"yesterday","worker":"a","worker_type":"agent","action":"x"}',
        b'{"timestamp":"2026-01-24T10:00:00Z","worker":1,"worker_type":"agent","action":"x"}',
        b'{"timestamp":"2026-01-24T10:00:00Z","worker":"a","worker_type":"agent","action":"x","task_id":5}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_torn_or_foreign_line_is_skipped_and_counted(text: bytes) -> None:
    events, skipped = parse_all([line(1), text, line(2)], before=10)
    assert [event.seq for event in events] == [11, 13]
    assert skipped == [12]


def test_details_of_another_shape_and_unknown_keys_do_not_lose_the_event() -> None:
    event = parse(
        b'{"timestamp":"2026-01-24T12:00:00+02:00","worker":"a","worker_type":"bot","action":"x","details":{"n":1},"z":0}\r'
    )
    assert event == Event("x", "a", "bot", 1769248800.0, details='{"n":1}')


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    words, st.sampled_from(["agent", "human", "system"]), words, st.none() | words, st.none() | words, st.none() | words
)
def test_any_event_survives_on_one_line(
    action: str, kind: str, worker: str, activity: str | None, task: str | None, details: str | None
) -> None:
    event = Event(action, worker, kind, 1769248800.125, activity, task, details)
    written = encode(event)
    assert b"\n" not in written
    assert b"\r" not in written
    assert parse(written) == event


@given(st.binary(max_size=80))
def test_any_bytes_are_an_event_or_skipped(data: bytes) -> None:
    events, skipped = parse_all(data.split(b"\n"))
    assert len(events) + len(skipped) == data.count(b"\n") + 1


def test_appending_makes_the_file_and_goes_on_from_there(tmp_path: Path) -> None:
    path = str(tmp_path / "changelog.log")
    assert read_from(path, 0) == ([], 0)
    append(path, [], True)
    assert not os.path.exists(path)
    append(path, [line(1), line(2)], True)
    lines, offset = read_from(path, 0)
    assert lines == [line(1), line(2)]
    append(path, [line(3)], False)
    lines, end = read_from(path, offset)
    assert lines == [line(3)]
    assert end == os.path.getsize(path)
    assert read_from(path, end) == ([], end)
    assert read_from(path, end + 5) == ([], end + 5)


def test_an_unfinished_last_line_is_not_read_and_the_next_append_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "changelog.log"
    path.write_bytes(line(1) + b"\n" + line(2)[:30])
    lines, offset = read_from(str(path), 0)
    assert lines == [line(1)]
    append(str(path), [line(3)], True)
    lines, _ = read_from(str(path), offset)
    assert lines == [line(2)[:30], line(3)]
    assert parse_all(lines, 1)[1] == [2]


def test_the_torn_end_and_the_new_lines_go_in_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "changelog.log"
    path.write_bytes(b"torn")
    writes: list[bytes] = []
    write = os.write

    def noted(fd: int, data: bytes) -> int:
        writes.append(data)
        return write(fd, data)

    monkeypatch.setattr(os, "write", noted)
    append(str(path), [b"a", b"b"], False)
    assert writes == [b"\na\nb\n"]


def test_a_line_behind_one_that_was_torn_after_the_look_is_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "changelog.log"
    append(str(path), [line(1)], False)
    write = os.write
    killed = [line(8)[:30], line(9)]  # one cut in the middle, one just before its end

    def others_are_killed_first(fd: int, data: bytes) -> int:
        if killed:
            write(fd, killed.pop())
        return write(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", others_are_killed_first)
        append(str(path), [line(2), line(3)], False)
    lines, _ = read_from(str(path), 0)
    assert lines == [line(1), line(9) + line(2), line(3), line(8)[:30] + line(2), line(2)]
    assert parse_all(lines)[1] == [2, 4]


def test_a_short_write_is_an_error_and_spoils_only_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "changelog.log")
    append(path, [line(1)], False)
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: write(fd, data[:-40]))
        with pytest.raises(OSError, match="bytes could be appended"):
            append(path, [line(2), line(3)], False)
    append(path, [line(4)], False)
    lines, _ = read_from(path, 0)
    assert [lines[0], lines[1], lines[3]] == [line(1), line(2), line(4)]
    assert parse_all(lines)[1] == [3]


def test_a_line_break_inside_a_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        append(str(tmp_path / "log"), [b"a\nb"], False)
    assert not (tmp_path / "log").exists()


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError):  # noqa: PT011
        append(str(tmp_path), [b"a"], False)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="regular"):
            read_from(str(tmp_path / "pipe"), 0)


WRITER = """
import sys
from dibs.dialects.changelog_lines import append
path, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
number = 0
while True:
    number += 1
    start = b'{"timestamp":"2026-01-24T10:00:00Z","worker":"%s","worker_type":"agent","action":"a",' % name.encode()
    append(path, [start + b'"details":"%d%s"}' % (number, b"x" * size)], False)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_writers_killed_while_they_append_spoil_at_most_one_line_each(tmp_path: Path) -> None:
    path = str(tmp_path / "changelog.log")
    kills = 12
    torn = 0
    expected = 0
    for turn in range(kills):
        size = 16 << 20 if turn % 2 else 100  # only a large write takes long enough to be cut
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, f"w{turn}", str(size)], stdout=subprocess.PIPE, env=os.environ
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(random.uniform(0.0, 0.03))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        lines, end = read_from(path, 0)
        torn += os.path.exists(path) and end < os.path.getsize(path)
        append(path, [line(turn)], False)
        expected += 1
        lines, end = read_from(path, 0)
        assert end == os.path.getsize(path)
        events, skipped = parse_all(lines)
        assert len(skipped) == torn
        assert sum(event.worker == "agent-1" for event in events) == expected
        for name in {event.worker for event in events} - {"agent-1"}:
            numbers = [int((event.details or "").rstrip("x")) for event in events if event.worker == name]
            assert numbers == list(range(1, len(numbers) + 1))
        if os.path.getsize(path) > 100 << 20:
            os.unlink(path)
            torn = expected = 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_lines_of_many_writers_do_not_mix(tmp_path: Path) -> None:
    path = str(tmp_path / "changelog.log")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, f"w{n}", str(50 * 10**n)], stdout=subprocess.PIPE)
        for n in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    time.sleep(0.2)
    for writer in writers:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    lines, _ = read_from(path, 0)
    events, skipped = parse_all(lines)
    assert sum(lines[number - 1] != b"" for number in skipped) <= 4  # one a writer, cut by the end of the test
    for name in {event.worker for event in events}:
        numbers = [int((event.details or "").rstrip("x")) for event in events if event.worker == name]
        assert numbers == list(range(1, len(numbers) + 1))
