"""Document 003's names and owner files: no name leaves its folder, and nothing that a hand wrote is lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.dialects.spec_text import (
    NAME_BYTES,
    Owner,
    clashes,
    collision,
    encode,
    file_name,
    parse,
    path_of,
    sanitise,
    task_name,
)
from dibs.errors import Invalid
from tests.searching import examples

AWKWARD = st.text(st.sampled_from("./\\:_a \0\n\r~-*\u00e9\udce9"), max_size=12)
NAMES = AWKWARD | st.text(max_size=300)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r"), min_size=1, max_size=60)
WORDS = PATHS.map(str.strip).filter(bool)


@given(NAMES)
def test_no_file_lock_leaves_its_folder(path: str) -> None:
    try:
        name = file_name(path)
    except Invalid:
        return
    assert_plain(name)
    assert ":" not in name


@given(NAMES)
def test_no_task_lock_leaves_its_folder(task_id: str) -> None:
    try:
        name = task_name(task_id)
    except Invalid:
        return
    assert name == task_id
    assert_plain(name)


def assert_plain(name: str) -> None:
    """One component of a path, for POSIX and for Windows, that is neither its folder nor the one above."""
    assert os.path.normpath(f"/locks/files/{name}") == f"/locks/files/{name}"
    assert os.path.dirname(f"/locks/files/{name}") == "/locks/files"
    assert not {"/", "\\", "\0"} & set(name)
    assert 0 < len(os.fsencode(name)) <= NAME_BYTES


@pytest.mark.parametrize("path", ["", ".", "..", "a\0b", "x" * 256, "d/" * 100, "é" * 128, "\ud800"])
def test_a_path_that_cannot_be_the_name_of_a_folder_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        file_name(path)


@pytest.mark.parametrize("task_id", ["", ".", "..", "a/b", "a\\b", "../x", "/", "a\0", "x" * 256, "\ud800"])
def test_a_task_id_that_cannot_be_the_name_of_a_folder_is_refused(task_id: str) -> None:
    with pytest.raises(Invalid):
        task_name(task_id)


def test_a_name_of_exactly_the_limit_can_be_made(tmp_path: Path) -> None:
    name = file_name("é" * 127 + "x")
    assert len(name.encode()) == 255
    (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("src/auth/login.py", "src__auth__login.py"),
        ("src\\auth\\login.py", "src__auth__login.py"),
        ("C:\\x\\y:z", "C___x__y_z"),
        ("/etc/passwd", "__etc__passwd"),
        ("../../up", "..__..__up"),
        ("a//b", "a____b"),
        ("plain", "plain"),
        ("with blank", "with blank"),
    ],
)
def test_names_are_the_document_s(path: str, name: str) -> None:
    assert file_name(path) == name


@examples(20)
@given(st.lists(PATHS, min_size=1, max_size=50))
def test_names_are_those_that_the_document_s_sed_makes(paths: list[str]) -> None:
    done = subprocess.run(
        ["sed", r"s/[\/\\]/__/g; s/:/_/g"],
        input="\n".join(paths).encode() + b"\n",
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    assert [sanitise(path) for path in paths] == done.stdout.decode().split("\n")[:-1]


def test_an_owner_file_is_what_the_document_s_printf_writes() -> None:
    values = ("agent-7", "T-003", "2026-02-11T14:30:00+09:00")
    printed = subprocess.run(
        ["sh", "-c", r'printf "agent: %s\ntask: %s\ntimestamp: %s\n" "$@"', "sh", *values],
        capture_output=True,
        check=True,
    ).stdout
    assert encode(Owner(*values)) == printed
    assert parse(printed) == Owner(*values)


def test_a_file_lock_s_path_is_one_further_line() -> None:
    owner = Owner("agent-7", "T-003", "2026-02-11T14:30:00+09:00", "src/a.py")
    assert encode(owner) == (b"agent: agent-7\ntask: T-003\ntimestamp: 2026-02-11T14:30:00+09:00\npath: src/a.py\n")


@given(WORDS, WORDS, WORDS, st.none() | PATHS, st.lists(st.sampled_from(["note: x", "free text", "agent: other"])))
def test_what_is_written_is_read_back(agent: str, task: str, time: str, path: str | None, extra: list[str]) -> None:
    owner = Owner(agent, task, time, path, tuple(extra))
    assert parse(encode(owner)) == owner


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"agent:", b" x", b"path:", b"\r", b"\n", b"task: "])).map(b"".join)
)
def test_reading_never_fails_and_rewriting_loses_nothing(data: bytes) -> None:
    owner = parse(data)
    try:
        written = encode(owner)
    except Invalid:
        return
    assert parse(written) == owner


def test_a_hand_may_write_an_owner_file_as_it_likes() -> None:
    data = (
        b"\xef\xbb\xbftimestamp:2026-02-11T14:30:00Z \r\n\r\n  agent :  anna b\r\nhost: here\r\nagent: second\r\n# why"
    )
    assert parse(data) == Owner("anna b", None, "2026-02-11T14:30:00Z", None, ("host: here", "agent: second", "# why"))


@pytest.mark.parametrize("data", [b"", b"\n", b"agent:", b"agent: \ntask:\n", b"\0\0\0", b"agen"])
def test_an_owner_file_in_the_making_has_no_agent(data: bytes) -> None:
    assert parse(data).agent is None


@pytest.mark.parametrize("field", ["agent", "task", "timestamp", "path"])
@pytest.mark.parametrize("value", ["x\nagent: forged", "x\ry", "x\0y"])
def test_no_value_can_forge_a_line(field: str, value: str) -> None:
    owner = Owner()
    setattr(owner, field, value)
    with pytest.raises(Invalid):
        encode(owner)


def test_two_paths_with_one_name_are_told_apart_by_the_recorded_path() -> None:
    held = Owner("agent-1", "T-1", "2026-02-11T14:30:00Z", "a/b")
    assert collision("a__b", held) == "a/b"
    assert collision("a/b", held) is None
    assert collision("a\\b", held) is None
    assert collision("a__b", Owner("by-hand", "T-1", "2026-02-11T14:30:00Z")) is None
    assert collision("a__b", Owner("odd", path="elsewhere")) is None


def test_two_paths_with_one_name_in_one_request_are_found() -> None:
    assert clashes(["a/b", "c", "a__b", "a\\b"]) == [("a/b", "a__b")]
    assert clashes(["x:y", "x_y", "x:y"]) == [("x:y", "x_y")]
    assert clashes(["a", "b", "a"]) == []


@given(PATHS, PATHS)
def test_a_collision_is_seen_from_both_sides_and_only_between_paths_of_one_name(one: str, other: str) -> None:
    seen = collision(one, Owner(path=other)) is not None
    assert seen == (collision(other, Owner(path=one)) is not None)
    assert seen == bool(clashes([one, other]))
    if seen:
        assert sanitise(one) == sanitise(other)
        assert one != other


def test_the_path_of_a_lock_is_the_recorded_one_if_it_fits_its_name() -> None:
    assert path_of("a__b", Owner(path="a__b")) == "a__b"
    assert path_of("a__b", Owner()) == "a/b"
    assert path_of("a__b", Owner(path="/etc/passwd")) == "a/b"
