"""Values that PostgreSQL, or the settings of a connection, would recode, round or refuse."""

from __future__ import annotations

import pytest

from dibs import TaskBoard
from dibs.cli.audit import disagreements
from dibs.errors import Invalid
from tests.postgres.actors import warm
from tests.postgres.server import Server


def test_text_is_utf8_whatever_the_address_says(url: str) -> None:
    with TaskBoard.open(url + "&client_encoding=LATIN1", worker="w") as board:
        warm(board)
        board.add("the façade", id="T")
        task = board.claim("w")
        assert task is not None
        task.complete("a façade")
    with TaskBoard.open(url) as other:
        seen = other.get("T")
        assert (seen.description, seen.result) == ("the façade", "a façade")


def test_a_role_that_rounds_numbers_writes_exact_times(own_server: Server) -> None:
    url = own_server.new_database()
    with TaskBoard.open(url, create=True, worker="maker") as board:
        own_server.execute("ALTER ROLE dibs SET extra_float_digits = 0")
        with TaskBoard.open(url) as rounding:
            for number in range(20):
                rounding.add(f"task {number}", paths=["a"] if number % 2 else [])
                task = rounding.claim("w")
                assert task is not None
                task.complete("done")
        assert disagreements(board) == []


def test_what_the_server_cannot_hold_is_refused_as_such(url: str) -> None:
    with TaskBoard.open(url, worker="ann") as board:
        board.add("x", id="T")
        for wrong in (
            lambda: board.tasks(search="\0x"),
            lambda: board.tasks(parent="\0"),
            lambda: board.tasks(label="\ud800"),
            lambda: board.complete("T", token=2**80),
        ):
            with pytest.raises(Invalid):
                wrong()
        assert board.get("T").status == "pending"
