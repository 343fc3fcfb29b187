"""The lock record of document 001: its layout, its times, and that doubt keeps a lock alive."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dibs.dialects import isotime
from dibs.dialects.activity_lock import LockRecord, activity_seconds, encode, parse, task_seconds

GOLDEN = Path(__file__).parent / "golden" / "workitems" / "WI-001-A1.lock"
TEN = datetime(2026, 1, 24, 10, tzinfo=UTC).timestamp()
FAR = 4e10
NOT_TIMES = [
    f"2026-01-24T10:00{rest}"
    for rest in (":0Z", ":00.Z", ":00+2", ":00+02:", ":00 +x", ":00.5x", ": 0Z", "ZZ", ":00zZ")
]


def test_the_documents_example_is_read_and_written_byte_for_byte() -> None:
    record = LockRecord("agent-abc123", "agent", TEN, TEN + 3600, "WI-001-A1-T2", TEN + 1800, TEN + 3600)
    assert parse(GOLDEN.read_bytes()) == record
    assert encode(record) == GOLDEN.read_bytes()


def test_the_task_fields_are_null_when_no_task_is_claimed() -> None:
    text = encode(LockRecord("maria", "human", TEN + 0.25, TEN + 0.25 + activity_seconds("human"))).decode()
    assert text == (
        '{\n  "holder": "maria",\n  "holder_type": "human",\n  "acquired": "2026-01-24T10:00:00.250000Z",\n'
        '  "expires": "2026-01-24T18:00:01Z",\n  "task_id": null,\n'
        '  "task_acquired": null,\n  "task_expires": null\n}\n'
    )


def test_durations_are_the_documents() -> None:
    assert (activity_seconds("human"), task_seconds("human")) == (8 * 3600, 4 * 3600)
    assert (activity_seconds("agent"), task_seconds("agent")) == (3600, 1800)
    assert (activity_seconds("system"), task_seconds("system")) == (3600, 1800)


def test_a_lock_is_expired_only_after_its_end() -> None:
    record = parse(GOLDEN.read_bytes())
    assert not record.is_expired(TEN + 3600)
    assert record.is_expired(TEN + 3600.001)
    assert not record.is_task_expired(TEN + 3600)


@given(st.integers(0, 4_000_000_000_000_000), st.integers(0, 10**10))
def test_the_token_survives_and_an_end_is_never_written_earlier(micros: int, later: int) -> None:
    record = parse(encode(LockRecord("a", "agent", micros / 1e6, (micros + later) / 1e6)))
    assert record.token == micros
    assert record.expires is not None
    assert 0 <= record.expires - (micros + later) / 1e6 < 1


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-01-24T11:00:00Z", 0.0),
        ("2026-01-24t11:00:00z", 0.0),
        ("2026-01-24 11:00:00Z", 0.0),
        ("2026-01-24T11:00Z", 0.0),
        ("2026-01-24T11:00:00.5Z", 0.5),
        ("2026-01-24T11:00:00.123456789Z", 0.123456),
        ("2026-01-24T13:00:00+02:00", 0.0),
        ("2026-01-24T13:00:00+0200", 0.0),
        ("2026-01-24T05:30:00-05:30", 0.0),
        ("2026-01-24T11:00:00+00", 0.0),
        ("2026-01-24T13:00:00.25+02:00", 0.25),
        ("2026-01-24T11:00:00.25 Z", 0.25),
        ("2026-01-24T11:00:00", 0.0),
        ("2026-01-24T11:00:00,75", 0.75),
    ],
)
def test_times_are_read_as_others_write_them(text: str, same: float) -> None:
    assert isotime.moment(text) == pytest.approx(TEN + 3600 + same, abs=1e-7)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)))
def test_times_agree_with_the_standard_library(at: datetime) -> None:
    seconds = at.replace(tzinfo=UTC).timestamp()
    assert isotime.moment(at.isoformat() + "Z") == pytest.approx(seconds, abs=1e-4)
    assert isotime.moment(isotime.whole(seconds)) == seconds // 1
    if at.year < 2200:
        assert isotime.moment(isotime.precise(seconds)) == seconds


@given(st.from_regex(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z", fullmatch=True))
@example("2026-02-29T00:00:00Z")
@example("2028-02-29T00:00:00Z")
@example("2100-02-29T00:00:00Z")
def test_days_that_do_not_exist_are_no_times(text: str) -> None:
    try:
        meant = datetime.fromisoformat(text).timestamp()
    except ValueError:
        assert isotime.moment(text) is None
    else:
        assert isotime.moment(text) == meant


@pytest.mark.parametrize(
    "value", [None, 5, True, "", "soon", "2026-01-24", "٢٠٢٦-01-24T00:00:00Z", "2026-01-24T10:00:00Z\n", *NOT_TIMES]
)
def test_what_is_no_time_is_none(value: object) -> None:
    assert isotime.moment(value) is None


def test_an_end_without_a_zone_ends_when_it_is_past_everywhere() -> None:
    record = parse(b'{"holder": "a", "acquired": "2026-01-24T10:00:00", "expires": "2026-01-24T11:00:00"}')
    assert record.acquired == TEN
    assert not record.is_expired(TEN + 12 * 3600)
    assert record.is_expired(TEN + 13 * 3600 + 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"\0\0\0\0", "empty"),
        (b'{"holder": "a", "expi', "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "no holder"),
        (b'{"holder": 7, "expires": "2000-01-01T00:00:00Z"}', "no holder"),
        (b'{"holder": "", "expires": "2000-01-01T00:00:00Z"}', "no holder"),
        (b"[" * 60_000, "not JSON"),
        (b'"' + b"x" * 100_000 + b'"', "too large"),
    ],
)
def test_a_lock_that_cannot_be_read_is_live_and_says_why(data: bytes, why: str) -> None:
    record = parse(data)
    assert not record.is_readable
    assert why in (record.doubt or "")
    assert not record.is_expired(FAR)


@pytest.mark.parametrize(
    "expires", ["", ', "expires": null', ', "expires": 5', ', "expires": "soon"', ', "expires": "2026-01-24"']
)
def test_a_lock_without_an_end_that_is_a_time_is_live(expires: str) -> None:
    record = parse(f'{{"holder": "a", "holder_type": 3, "task_id": 4{expires}}}'.encode())
    assert (record.holder, record.holder_type, record.task_id) == ("a", "agent", None)
    assert record.doubt
    assert not record.is_expired(FAR)
    assert not record.is_task_expired(FAR)


@given(st.binary(max_size=100))
def test_any_bytes_are_parsed_without_an_exception(data: bytes) -> None:
    assert parse(data).is_expired(FAR) in (True, False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.just("2026-01-24T10:00:00Z"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from(["holder", "holder_type", "acquired", "expires", "task_id", "task_expires"]), json_values
    )
)
def test_any_object_is_parsed_and_doubt_means_live(found: dict) -> None:
    import json

    record = parse(json.dumps(found).encode())
    if record.doubt:
        assert not record.is_expired(FAR)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_names_survive(holder: str, task: str | None) -> None:
    record = LockRecord(holder, "agent", TEN, TEN + 60, task)
    assert parse(encode(record)) == record
    assert len(encode(record).splitlines()) == 9
