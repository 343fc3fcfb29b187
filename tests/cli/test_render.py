"""What people see is safe, fits, and is aligned, whatever the texts hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.cli import render
from dibs.model import BoardTask
from tests.cli.shell import width

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;owned\x07",
    "a\nb",
    "a\rb",
    "\u202eevil",
    "\u2066x\u2069",
    "\x00",
    "\x9b31m",
    "\u200b",
    "\ud800",
    "\u2028",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_could_steer_a_terminal_is_made_visible(text: str) -> None:
    assert render.safe(text).isprintable()
    assert render.one_line(text).isprintable()
    assert all(line.isprintable() for line in render.wrap(text, 80))


@pytest.mark.parametrize("text", ["plain", "naïve", "日本語", "שלום עולם", "مرحبا", "e\u0301"])
def test_ordinary_text_of_any_script_is_left_alone(text: str) -> None:
    assert render.safe(text) == text


@given(st.text(st.characters(), max_size=300), st.integers(12, 120))
def test_nothing_is_wider_than_asked(text: str, room: int) -> None:
    assert width(render.cut(render.one_line(text), room)) <= room
    for line in render.wrap(text, room):
        assert width(line) <= room
        assert line.isprintable()


@given(st.text(st.sampled_from("ab c日\n"), max_size=200), st.integers(12, 40))
def test_wrapping_loses_nothing_but_blanks(text: str, room: int) -> None:
    assert "".join("".join(render.wrap(text, room)).split()) == "".join(text.split())


@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from("abc012-._"), min_size=1, max_size=128),
            st.text(min_size=1, max_size=200),
            st.text(max_size=200),
            st.integers(-(2**31), 2**31),
        ),
        max_size=5,
    ),
    st.integers(60, 160),
)
def test_a_table_of_tasks_fits_any_screen(rows: list[tuple[str, str, str, int]], room: int) -> None:
    tasks = [
        BoardTask(task_id, description, priority=priority, assigned_to=who, created_at=0.0)
        for task_id, description, who, priority in rows
    ]
    lines = render.tasks(tasks, room, color=False)
    assert all(line.isprintable() for line in lines)
    given = iter(lines[1:])
    for task in tasks:  # an id is never cut; a long one has a line of its own
        line = next(given)
        assert line.startswith(task.id)
        if len(task.id) > 24:
            assert line == task.id
            line = next(given)
        assert width(line) <= room
    assert list(given) == []
    assert width(lines[0]) <= room


def test_a_colour_takes_no_room() -> None:
    rows: list[list[render.Cell]] = [["a", ("ready", render.GREEN), "x"], ["b", "on", "y"]]
    plain = render.table(("ID", "STATUS", "TASK"), rows, 80, caps=(10, 10))
    painted = render.table(("ID", "STATUS", "TASK"), rows, 80, caps=(10, 10), color=True)
    assert "\x1b[32mready \x1b[0m  x" in painted[1]
    assert plain[2] == "b   on      y"
