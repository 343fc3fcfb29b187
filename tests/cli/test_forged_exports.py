"""`dibs import`: a forged export is refused in plain words and makes no board; an honest one is imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dibs import TaskBoard
from tests.cli.shell import Shell, names

FORGERIES: dict[str, Callable[[list[Any]], object]] = {
    "status": lambda x: x[1]["task"].update(status="completed"),
    "no status": lambda x: x[1]["task"].update(status=None),
    "token": lambda x: x[1]["task"].update(token=77),
    "events": lambda x: x.__setitem__(slice(None), [line for line in x if "event" not in line]),
    "circle": lambda x: x[1]["task"].update(depends_on=["two"]),
    "huge task number": lambda x: x[1]["task"].update(seq=2**70),
    "huge event number": lambda x: next(line for line in reversed(x) if "event" in line)["event"].update(seq=2**70),
    "priority": lambda x: x[1]["task"].update(priority=[]),
    "description": lambda x: x[1]["task"].update(description={}),
    "holder": lambda x: x[1]["task"].update(holder=5),
    "lock": lambda x: next(line for line in x if "lock" in line)["lock"].update(pattern="**"),
    "lock's end": lambda x: next(line for line in x if "lock" in line)["lock"].update(expires_at="soon"),
    "event's data": lambda x: next(line for line in x if "event" in line)["event"].update(data="x"),
    "number for a line": lambda x: x.insert(1, 5),
    "event's time": lambda x: next(line for line in x if "event" in line)["event"].update(time="now"),
    "message's number": lambda x: next(line for line in x if "message" in line)["message"].update(seq="one"),
    "request's answer": lambda x: next(line for line in x if "request" in line).update(answer=[1]),
}


@pytest.fixture
def exported(shell: Shell) -> list[Any]:
    with TaskBoard.open(f"sqlite:{shell.folder}/.dibs/board.db", worker="ann", durability="normal") as board:
        board.add("one", id="one", paths=["src/**"])
        board.add("two", id="two", depends_on=["one"], request_key="k")
        board.claim("ann", "one")
        board.tell("hello", worker="ann")
    return [json.loads(line) for line in shell.ok("export").out.splitlines()]


def text(lines: list[Any]) -> str:
    kept = lines[:-1]
    return "".join(json.dumps(line) + "\n" for line in [*kept, {"end": len(kept)}])


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_export_is_refused_in_plain_words_and_makes_no_board(
    shell: Shell, exported: list[Any], forgery: str
) -> None:
    end = exported.pop()
    FORGERIES[forgery](exported)
    refused = shell("--board", "new.db", "import", "-", stdin=text([*exported, end]))
    assert refused.code == 1, refused
    assert refused.err.startswith("dibs: ")
    assert "internal error" not in refused.err
    assert "Traceback" not in refused.err
    assert "nothing was imported" in refused.err
    assert names(shell.folder) == [".dibs"]


def test_an_honest_export_that_went_through_another_json_writer_is_imported(shell: Shell, exported: list[Any]) -> None:
    shell.ok("--board", "new.db", "import", "-", stdin=text(exported))
    assert shell.ok("--board", "new.db", "export").out == shell.ok("export").out
    shell.ok("--board", "new.db", "doctor")
