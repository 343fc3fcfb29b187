"""Write, then verify: document 001's pattern for tools without exclusive creation."""

from __future__ import annotations

from pathlib import Path

from dibs.guards import write_then_verify


def test_whoever_is_alone_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "A1.lock"
    assert write_then_verify(str(path), b"ann", settle=0)
    assert path.read_bytes() == b"ann"


def test_a_lock_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "A1.lock"
    path.write_bytes(b"ben")
    assert not write_then_verify(str(path), b"ann", settle=0)
    assert path.read_bytes() == b"ben"


def test_of_two_who_write_at_once_one_backs_off(tmp_path: Path) -> None:
    """The second looked before the first wrote, and writes while the first waits."""
    path = tmp_path / "A1.lock"
    second: list[bool] = []

    def meanwhile(_: float) -> None:
        path.write_bytes(b"ben")
        second.append(path.read_bytes() == b"ben")

    assert not write_then_verify(str(path), b"ann", sleep=meanwhile)
    assert second == [True]
    assert path.read_bytes() == b"ben"
