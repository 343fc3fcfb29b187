"""`dibs copy`, and `export` and `import` of boards in a dialect's files, as processes."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from dibs import TaskBoard, Worker, fs
from dibs.cli import main
from tests.cli.shell import Shell, width

KINDS = ("sqlite", "taskboard", "workflow", "bilu")
"""Kinds of boards that a path names. Another one joins by adding its name."""
ANN = Worker("ann", session="s1")
KEPT = (
    "id", "description", "status", "assigned_to", "depends_on", "result", "priority", "created_at", "claimed_at",
    "completed_at",
)  # fmt: skip


def lost(task: dict[str, Any], copy: dict[str, Any]) -> list[str]:
    """What is not as it was. Some files have times to the microsecond: rounded twice, one may be a millisecond off."""

    def alike(key: str) -> bool:
        was, now = task[key], copy[key]
        if not key.endswith("_at") or was is None or now is None:
            return bool(was == now)
        return abs(datetime.fromisoformat(was) - datetime.fromisoformat(now)) <= timedelta(milliseconds=1)

    return [key for key in KEPT if not alike(key)]


def url_of(kind: str, folder: Path) -> str:
    return f"{kind}:{folder / {'sqlite': 'board.db', 'workflow': '.workflow'}.get(kind, kind)}"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Shell:
    """A folder without a board, and `dibs` in it."""
    return Shell(tmp_path)


def furnish(url: str) -> None:
    with TaskBoard.open(url, create=True, worker="planner-1", durability="normal") as board:
        first, second, third = (board.add(text) for text in ("Set up the schema", "größer ☀", "Write the form"))
        board.depend(third, [first], worker=ANN)
        board.claim(ANN, first)
        board.complete(first, "three tables", worker=ANN)
        board.claim(ANN, second)
        board.tell("hallo", "ben", worker=ANN)


def listed(shell: Shell, url: str) -> dict[str, dict[str, Any]]:
    tasks = shell.ok("--board", url, "list", "--all", "--json").json["tasks"]
    return {task["id"]: task for task in tasks}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(KINDS, KINDS)))
def test_a_board_is_copied_into_a_new_one_of_any_kind(place: Shell, source: str, target: str) -> None:
    there, here = url_of(source, place.folder / "from"), url_of(target, place.folder / "to")
    (place.folder / "from").mkdir()
    furnish(there)
    before = content(place.folder / "from")
    document = place.ok("--as", "planner-1", "copy", there, here, "--json").json
    assert (document["from"], document["to"], document["created"], document["tasks"]) == (there, here, True, 3)
    assert document["exact"] == (source == target == "sqlite")
    was, now = listed(place, there), listed(place, here)
    left_out = {task_id for entry in document["left_out"] for task_id in entry["ids"]}
    for task_id, task in was.items():
        found = now[document["renamed"].get(task_id, task_id)]
        assert not lost(task, found | {"id": task_id}) or task_id in left_out, (task, found)
        assert found["description"] == task["description"]
    assert document["messages"] == {"copied": int(target == "sqlite"), "left_out": int(target != "sqlite")}
    if target != "workflow":
        assert place.ok("--board", here, "doctor").code == 0
    if source != "sqlite":
        assert content(place.folder / "from") == before


def test_there_and_back_again_keeps_what_a_taskboard_can_hold(place: Shell) -> None:
    furnish("sqlite:" + str(place.folder / "one.db"))
    place.ok("--board", "one.db", "add", "urgent", "-p", "7", "--id", "urgent")
    place.ok("copy", "one.db", "taskboard:state")
    place.ok("copy", "taskboard:state", "two.db")
    one, two = listed(place, "one.db"), listed(place, "two.db")
    assert one.keys() == two.keys()
    for task_id, task in one.items():
        assert not lost(task, two[task_id])
    result = place.ok("--board", "two.db", "doctor")
    assert "replaying it gives the board: ok" in result.out
    actions = [json.loads(line)["action"] for line in place.ok("--board", "two.db", "log", "--json").out.splitlines()]
    assert actions[:2] == ["work_item_created", "copied_board"]
    assert actions.count("copied_activity") == 2  # the completed one and the claimed one


def test_people_are_told_exactly_what_was_left_out(place: Shell) -> None:
    place.ok("--board", "b.db", "init")
    for number in range(7):
        place.ok("--board", "b.db", "add", "x", "--id", f"t{number}", "--label", "web")
    place.ok("--board", "b.db", "cancel", "t3", "no longer")
    place.ok("--board", "b.db", "lock", "README.md")
    result = place.ok("copy", "b.db", "taskboard:state")
    assert result.out.splitlines()[:2] == [
        f"copied 7 tasks from sqlite:{place.folder}/b.db",
        f"  to the new board taskboard:{place.folder}/state",
    ]
    assert "left out:" in result.out
    assert "labels                   7: t0, t1, t2, t3, t4, …" in result.out
    assert "cancelled tasks          1 (now failed): t3" in result.out
    assert "locks                    1: README.md" in result.out
    assert "history: 10 entries of the changelog stay on the source" in result.out
    told, last = result.out.splitlines()[2:-1], result.out.splitlines()[-1]
    assert all(width(line) <= 80 for line in told)
    assert last == f"  to work on the copy: export DIBS_BOARD=taskboard:{place.folder}/state"  # a command stays whole


def test_a_copy_that_changes_which_board_is_used_here_says_so(place: Shell) -> None:
    furnish(f"taskboard:{place.folder}")
    board = f"sqlite:{place.folder}/.dibs/board.db"
    assert "in this folder" not in place.ok("copy", "taskboard:.", "aside.db").out
    lines = place.ok("copy", "taskboard:.", board).out.splitlines()
    assert "all that dibs knows of the tasks was copied" in lines
    assert lines[-1] == (f"dibs in this folder now uses {board}; workers by hand still use taskboard:{place.folder}")
    assert "in this folder" not in place.ok("copy", board, "bilu:.bilu").out
    document = place.ok("copy", board, "sqlite:exact.db", "--json").json
    assert document["used_here"] == board


def test_the_first_board_of_a_folder_is_said_to_be_used(place: Shell) -> None:
    furnish(f"sqlite:{place.folder}/one.db")
    (place.folder / "new").mkdir()
    result = place.ok("copy", "../one.db", "taskboard:.", cwd=place.folder / "new")
    assert result.out.splitlines()[-1] == f"dibs in this folder now uses taskboard:{place.folder}/new"


def test_between_two_sqlite_boards_the_copy_is_the_same_to_the_byte(place: Shell) -> None:
    furnish("sqlite:" + str(place.folder / "one.db"))
    result = place.ok("copy", "one.db", "two.db")
    assert "exactly: claims, locks, 1 message, and the changelog up to 9" in result.out
    assert place.ok("--board", "one.db", "export").out == place.ok("--board", "two.db", "export").out


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_with_tasks_is_refused_and_left_as_it_is(place: Shell, kind: str) -> None:
    furnish("sqlite:" + str(place.folder / "one.db"))
    target = url_of(kind, place.folder / "to")
    furnish(target)
    before = listed(place, target)
    result = place("copy", "one.db", target)
    assert result.code == 1
    assert "the target has tasks of its own" in result.err
    assert "nothing was copied" in result.err
    assert listed(place, target) == before


def test_the_same_board_under_another_name_is_refused(place: Shell) -> None:
    furnish("sqlite:" + str(place.folder / "one.db"))
    (place.folder / "two.db").symlink_to(place.folder / "one.db")
    for other in ("one.db", "./one.db", "two.db"):
        result = place("copy", "one.db", other)
        assert result.code == 1, result
    assert "same board" in place("copy", "one.db", "one.db").err


def test_a_workflow_board_is_made_by_a_planner_only_and_the_refusal_makes_nothing(place: Shell) -> None:
    furnish("sqlite:" + str(place.folder / "one.db"))
    result = place("copy", "one.db", "workflow:.workflow")
    assert result.code == 1
    assert "only a planner may create it" in result.err
    assert "dibs --as planner-1 copy" in result.err
    assert not (place.folder / ".workflow").exists()
    place.ok("--as", "planner-1", "copy", "one.db", "workflow:.workflow")


@pytest.mark.parametrize("target", ["taskboard:new", "new.db"])
def test_a_copy_that_fails_leaves_no_half_made_board(place: Shell, target: str) -> None:
    hand = place.folder / "hand"
    hand.mkdir()
    (hand / "taskboard.json").write_text(
        '{"tasks": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]}'
    )
    result = place("copy", "taskboard:hand", target)
    assert result.code == 1
    assert "in a circle" in result.err
    assert "nothing was copied" in result.err
    assert sorted(path.name for path in place.folder.iterdir()) == ["hand"]


def test_a_source_that_is_not_there_or_damaged_is_said_before_anything_is_made(place: Shell) -> None:
    assert place("copy", "taskboard:nowhere", "new.db", "--json").error["code"] == "no_board"
    (place.folder / "taskboard.json").write_text('{"tasks": [')
    error = place("copy", "taskboard:.", "new.db", "--json").error
    assert error["code"] == "board_unusable"
    assert "taskboard:" in place("copy", ".", "new.db").err  # a folder is a sqlite board's; there is another in it
    assert sorted(path.name for path in place.folder.iterdir() if path.suffix != ".lock") == ["taskboard.json"]


def test_a_target_on_a_network_file_system_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(f"sqlite:{tmp_path}/one.db")
    (tmp_path / "far").mkdir()
    real = fs.network_file_system
    monkeypatch.setattr(fs, "network_file_system", lambda path: "nfs" if "far" in path else real(path))
    for target in (f"taskboard:{tmp_path}/far/new", f"{tmp_path}/far/new.db"):
        assert main(["copy", f"{tmp_path}/one.db", target]) == 1
        assert "nfs" in capsys.readouterr().err
    assert list((tmp_path / "far").iterdir()) == []


def test_a_board_that_is_not_what_its_changelog_says_is_refused_with_the_way_on(place: Shell) -> None:
    url = url_of("sqlite", place.folder)
    with TaskBoard.open(url, create=True, durability="normal") as board:
        board.add("x", id="x", paths=["src/x.py"])
        board.claim(ANN, "x")
        connection = apsw.Connection(str(place.folder / "board.db"))
        connection.execute("DELETE FROM lock").fetchall()
        connection.close()
        TaskBoard.open(f"sqlite:{place.folder}/made.db", create=True, durability="normal").close()
        for target in ("sqlite:new.db", "sqlite:made.db"):
            error = place("copy", url, target, "--json").error
            assert error["message"] == "the board's locks are not what its changelog says; nothing was copied"
            assert f"dibs --board {url} doctor" in error["hint"]
        assert not (place.folder / "new.db").exists()
        board.complete("x", "done", worker=ANN)
    place.ok("copy", url, "sqlite:new.db")


def test_copy_takes_its_boards_as_words(place: Shell) -> None:
    result = place("--board", "one.db", "copy", "a", "b")
    assert result.code == 2
    assert "dibs copy FROM TO" in result.err


# -- export and import


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sqlite"])
def test_an_export_of_a_dialects_board_can_be_imported(place: Shell, kind: str) -> None:
    url = url_of(kind, place.folder)
    furnish(url)
    place.ok("--board", url, "export", "board.jsonl")
    place.ok("--board", "new.db", "import", "board.jsonl")
    was, now = listed(place, url), listed(place, "new.db")
    assert was.keys() == now.keys()
    for task_id, task in was.items():
        assert not lost(task, now[task_id])
    place.ok("--board", "new.db", "doctor")
    assert place.ok("--board", url, "export").out.startswith('{"dibs":1,')


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sqlite"])
def test_an_import_into_a_dialects_files_is_refused_with_the_way_to_do_it(place: Shell, kind: str) -> None:
    place.ok("--board", "one.db", "init")
    place.ok("--board", "one.db", "export", "board.jsonl")
    url = url_of(kind, place.folder)
    before = content(place.folder)
    error = place("--board", url, "import", "board.jsonl", "--json").error
    assert (error["code"], error["capability"]) == ("unsupported", "histories")
    assert "dibs --board sqlite:new.db import board.jsonl" in error["hint"]
    assert f"dibs copy sqlite:new.db {url}" in error["hint"]
    assert content(place.folder) == before
    furnish(url)
    assert place("--board", url, "import", "-").code == 1


def test_an_import_where_a_dialects_files_are_found_is_refused(place: Shell) -> None:
    furnish(f"taskboard:{place.folder}")
    result = place("import", "-")
    assert result.code == 1
    assert "a taskboard board has no place for one" in result.err


def test_an_export_never_writes_over_a_dialects_own_files(place: Shell) -> None:
    furnish(f"taskboard:{place.folder}")
    before = content(place.folder)
    for own in ("taskboard.json", "taskboard.lock", ".dibs/claims.json", ".dibs/changelog.log"):
        result = place("export", own, "--force")
        assert result.code == 1
        assert "belongs to the board itself" in result.err
    assert content(place.folder) == before
