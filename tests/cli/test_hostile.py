"""What hostile hands found on the command line: empty names, forged exports, lost folders, mistyped boards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from tests.cli.shell import PATIENCE, Result, Shell, environment


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- empty names


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
@pytest.mark.parametrize("how", ["--as", "DIBS_AGENT"])
@pytest.mark.parametrize("words", [["claim"], ["add", "y"], ["lock", "a.py"], ["tell", "--all", "hi"]], ids=" ".join)
def test_an_empty_name_is_refused_and_changes_nothing(shell: Shell, how: str, blank: str, words: list[str]) -> None:
    shell.add("x")
    before = shell.ok("export").out
    refused = shell("--as", blank, *words) if how == "--as" else shell(*words, DIBS_AGENT=blank)
    assert refused.code == 1, refused
    assert refused.err.startswith("dibs: the worker's name is empty")
    assert refused.out == ""
    assert shell.ok("export").out == before


def test_an_empty_name_is_an_error_object_under_json(shell: Shell) -> None:
    refused = shell("--as", "", "claim", "--json")
    assert refused.code == 1
    assert refused.error["code"] == "invalid"
    assert "unset DIBS_AGENT" in refused.error["hint"]


# -- forged exports

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


# -- a working directory that is gone


def in_a_lost_folder(shell: Shell, *words: str) -> Result:
    script = 'mkdir lost && cd lost && rmdir ../lost && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "dibs", *words],
        cwd=shell.folder,
        env=environment(DIBS_AGENT="worker-1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "words",
    [["list"], ["claim"], ["add", "x"], ["lock", "a.py"], ["init"], ["--board", "here.db", "list"], ["run", "true"]],
    ids=" ".join,
)
def test_a_lost_working_directory_is_a_plain_error(shell: Shell, words: list[str]) -> None:
    refused = in_a_lost_folder(shell, *words)
    assert refused.code == 1, refused
    assert refused.err.startswith("dibs: ")
    assert "working directory" in refused.err
    assert "internal error" not in refused.err


@pytest.mark.parametrize("words", [["lock", "a.py"], ["add", "x", "--path", "a.py"]], ids=" ".join)
def test_a_path_from_a_lost_working_directory_is_a_plain_error_on_a_named_board(shell: Shell, words: list[str]) -> None:
    before = shell.ok("export").out
    refused = in_a_lost_folder(shell, "--board", f"sqlite:{shell.folder}/.dibs/board.db", *words)
    assert refused.code == 1, refused
    assert "working directory no longer exists" in refused.err
    assert "internal error" not in refused.err
    assert shell.ok("export").out == before


# -- side files


def test_the_side_files_of_a_board_carry_its_whole_name(shell: Shell) -> None:
    (shell.folder / "Cargo.lock").write_text("precious")
    shell.ok("--board", "Cargo.db", "init")
    shell.ok("--board", "Cargo.db", "add", "x")
    left = [name for name in names(shell.folder) if not name.endswith(("-wal", "-shm"))]
    assert left == [".dibs", "Cargo.db", "Cargo.db-lock", "Cargo.db-sync", "Cargo.lock"]
    assert (shell.folder / "Cargo.lock").read_text() == "precious"


@pytest.mark.parametrize("words", [["list"], ["claim"], ["add", "x"], ["init"], ["doctor"]], ids=" ".join)
def test_a_mistyped_board_is_refused_and_nothing_is_made_beside_it(shell: Shell, words: list[str]) -> None:
    (shell.folder / "Cargo.toml").write_text('[package]\nname = "x"\n')
    (shell.folder / "Cargo.lock").write_text("precious")
    refused = shell("--board", "Cargo.toml", *words)
    assert refused.code == 1, refused
    assert "internal error" not in refused.err
    assert names(shell.folder) == [".dibs", "Cargo.lock", "Cargo.toml"]
    assert (shell.folder / "Cargo.toml").read_text() == '[package]\nname = "x"\n'
    assert (shell.folder / "Cargo.lock").read_text() == "precious"


@pytest.mark.parametrize("words", [["list"], ["claim"], ["add", "x"]], ids=" ".join)
def test_a_board_that_is_not_there_is_not_made_by_looking(shell: Shell, words: list[str]) -> None:
    refused = shell("--board", "nowhere.db", *words)
    assert refused.code == 1, refused
    assert names(shell.folder) == [".dibs"]
