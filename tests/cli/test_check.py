"""`dibs check` and `dibs rebuild`: findings with file and line, and nothing changed by looking."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.cli import main
from dibs.dialects.bilu_index import Finding
from dibs.dialects.taskboard import TaskboardStore
from dibs.guards import FlockGuard
from tests.cli.shell import Shell
from tests.cli.test_copy import content, furnish

FILES = {"taskboard": "taskboard.json", "workflow": ".workflow/board.json"}
"""A file of each dialect that a broken character in line 3 makes unusable. Another dialect joins by its name."""


@pytest.fixture
def place(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def board_of(kind: str, shell: Shell) -> Path:
    furnish(f"{kind}:{(shell.folder / FILES[kind]).parent}")
    return shell.folder / FILES[kind]


@pytest.mark.parametrize("kind", FILES)
def test_sound_files_have_nothing_wrong(place: Shell, kind: str) -> None:
    board_of(kind, place)
    assert "nothing wrong" in place.ok("check").out
    document = place.ok("check", "--json").json
    assert (document["ok"], document["errors"], document["findings"]) == (True, 0, [])


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_named_with_its_line_and_left_alone(place: Shell, kind: str) -> None:
    path = board_of(kind, place)
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = "!" + lines[2]
    path.write_text("".join(lines))
    before = content(place.folder)
    result = place("check")
    assert result.code == 1
    first, last = result.out.splitlines()
    assert first.startswith(f"{path.name}:3: error: ")
    assert last.endswith(": 1 error")
    (finding,) = place("check", "--json").json["findings"]
    assert (finding["file"], finding["line"], finding["severity"]) == (path.name, 3, "error")
    assert str(path) not in finding["text"]
    assert content(place.folder) == before


def test_what_can_never_be_claimed_is_found(place: Shell) -> None:
    path = place.folder / "taskboard.json"
    path.write_text('{"tasks": [{"id": "a", "depends_on": ["nowhere"]}]}')
    result = place.ok("check")
    assert "taskboard.json: warning: task a depends on nowhere, which is not on the board" in result.out
    assert "1 warning" in result.out
    path.write_text('{"tasks": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]}')
    result = place("check")
    assert result.code == 1
    assert "error: these tasks wait for each other in a circle: a, b" in result.out


def test_an_activity_that_is_not_what_its_writer_meant_is_found(place: Shell) -> None:
    place.ok("--board", f"workitems:{place.folder}", "init")
    place.ok("--board", f"workitems:{place.folder}", "add", "x", "--step", "first")
    (path,) = place.folder.glob("*/progress.yaml")
    assert "nothing wrong" in place.ok("check").out
    was = path.read_text()
    name = str(path.relative_to(place.folder))
    line = was[: was.index("    status: pending")].count("\n") + 1
    path.write_text(was.replace("    status: pending", "    statuss: pending", 1))
    first, second, last = place.ok("check").out.splitlines()
    assert first == f"{name}:{line - 2}: warning: activity WI-001-A1 has no status; it is read as pending"
    assert second.startswith(f"{name}:{line}: warning: activity WI-001-A1 has a key 'statuss', which")
    assert second.endswith("was status meant?")
    assert last.endswith(": 2 warnings")
    path.write_text(was.replace("    status: pending", "    status: later", 1))
    assert "the status 'later' of activity WI-001-A1 is no word of document 001" in place.ok("check").out
    path.write_text(was.replace("    actor: any", "    actor: robot", 1))
    assert "the actor 'robot' of activity WI-001-A1 is no word of document 001" in place.ok("check").out
    path.write_text(
        was.replace("    status: pending", "    status: pending\n    estimate: 3d\n    started_at: null", 1)
    )
    assert "nothing wrong" in place.ok("check").out  # keys of other tools are fine
    path.write_text(was.replace("activities:", "activites:", 1))
    assert "the work item has a key 'activites'" in place.ok("check").out


def test_check_takes_no_guard_and_makes_no_file(place: Shell) -> None:
    path = place.folder / "taskboard.json"
    path.write_text('{"tasks": []}')
    place.ok("check")
    assert [entry.name for entry in place.folder.iterdir()] == ["taskboard.json"]
    with FlockGuard(place.folder / "taskboard.lock"):
        place.ok("check")


def test_check_of_a_board_in_sqlite_names_the_doctor(shell: Shell) -> None:
    error = shell("check", "--json").error
    assert error["code"] == "unsupported"
    assert error["hint"] == "dibs doctor --deep"


def test_check_without_a_board_says_so(place: Shell) -> None:
    assert place("check", "--json").error["code"] == "no_board"


# -- rebuild


@pytest.mark.parametrize("kind", FILES)
def test_a_board_without_derived_files_has_nothing_to_rebuild(place: Shell, kind: str) -> None:
    board_of(kind, place)
    before = content(place.folder)
    for words in (("rebuild",), ("rebuild", "--write")):
        error = place(*words, "--json").error
        assert error["code"] == "unsupported"
        assert f"a {kind} board has nothing to rebuild" in error["message"]
    assert content(place.folder) == before


def test_rebuild_prints_the_text_as_it_is_or_says_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    TaskBoard(state_dir=tmp_path).add("x")
    monkeypatch.setattr(
        TaskboardStore, "rebuild", lambda self, write: [f"{self.folder}/default.json"] if write else "[\n]\n"
    )
    url = f"taskboard:{tmp_path}"
    assert main(["--board", url, "rebuild"]) == 0
    assert capsys.readouterr().out == "[\n]\n"
    assert main(["--board", url, "rebuild", "--write"]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path}/default.json\n"
    assert main(["--board", url, "rebuild", "-w", "--json"]) == 0
    assert '"written":[' in capsys.readouterr().out


def test_what_a_dialect_finds_is_shown_and_only_errors_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    TaskBoard(state_dir=tmp_path).add("x")
    found = [Finding("board/tasks/a.md", 7, "warning", "the status 'later' is not known; read as TODO")]
    monkeypatch.setattr(TaskboardStore, "check", lambda self: found)
    assert main(["--board", f"taskboard:{tmp_path}", "check"]) == 0
    assert "board/tasks/a.md:7: warning: the status 'later' is not known" in capsys.readouterr().out
    found.append(Finding("board/tasks/b\x1b.md", 0, "error", "\x1b[31mred"))
    assert main(["--board", f"taskboard:{tmp_path}", "check"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "1 error and 1 warning" in out
