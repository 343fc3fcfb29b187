"""Which board an address names: kinds that are misspelt, files and folders that say by their names what they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.address import open_store
from dibs.errors import BoardUnusable, Invalid, NoBoard, NotAllowed
from tests.processes.harness import environment


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path.resolve()


def lay(root: Path, name: str, content: str = '{"tasks": []}') -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def url_of(given: str | None, *, create: bool = False) -> str:
    store = open_store(given, create=create, durability="normal")
    store.close()
    return store.url


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- kinds


@pytest.mark.parametrize("create", [False, True])
def test_a_misspelt_kind_is_no_file(here: Path, create: bool) -> None:
    with pytest.raises(Invalid) as caught:
        open_store("taskbord:state", create=create)
    assert caught.value.message == "there is no kind of board called taskbord"
    assert caught.value.hint == (
        "did you mean taskboard:state? kinds: sqlite, memory, postgresql, taskboard, workflow, workitems, bilu, spec; "
        "a file of that name: sqlite:taskbord:state"
    )
    assert names(here) == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("SQLite:a.db", "sqlite:a.db"),
        ("work-items:.", "workitems:."),
        ("sqlite3:a.db", "sqlite:a.db"),
        ("http://x", ""),
    ],
)
def test_the_nearest_kind_is_offered_if_there_is_one(here: Path, given: str, meant: str) -> None:
    with pytest.raises(Invalid) as caught:
        open_store(given)
    assert caught.value.hint.startswith(f"did you mean {meant}? " if meant else "kinds: ")


def test_a_path_with_a_colon_stays_a_path(here: Path) -> None:
    for given in ("sqlite:taskbord:state", "./a:b", f"{here}/c:d", "e.db:f", "C:g"):
        path = given.removeprefix("sqlite:")
        assert url_of(given, create=True) == f"sqlite:{here / path}"
        assert url_of(path) == f"sqlite:{here / path}"  # which is there now, whatever its name looks like


def test_both_names_of_postgresql_are_known(here: Path) -> None:
    for scheme in ("postgresql", "postgres"):
        with pytest.raises(BoardUnusable, match=r"cannot connect to postgresql://127\.0\.0\.1:1/name"):
            open_store(f"{scheme}://127.0.0.1:1/name")
    assert names(here) == []


# -- files and folders themselves

POINTED = {
    "taskboard.json": ("taskboard.json", "taskboard:."),
    "state/taskboard.json": ("state/taskboard.json", "taskboard:state"),
    ".workflow/board.json": (".workflow/board.json", "workflow:.workflow"),
    ".workflow": (".workflow/board.json", "workflow:.workflow"),
    "items/WI-001-a/progress.yaml": ("items/WI-001-a/progress.yaml", "workitems:items/WI-001-a"),
    "items/WI-001-a": ("items/WI-001-a/progress.yaml", "workitems:items/WI-001-a"),
    ".bilu": (".bilu/board/tasks/a.md", "bilu:.bilu"),
    "taskboard:taskboard.json": ("taskboard.json", "taskboard:."),
    "workflow:.workflow/board.json": (".workflow/board.json", "workflow:.workflow"),
    "workflow:any/board.json?retries=3": ("any/board.json", "workflow:any"),
    "workflow:.": (".workflow/board.json", "workflow:.workflow"),
    "workflow:.?retries=3": (".workflow/board.json", "workflow:.workflow"),
    "workitems:a/progress.yaml": ("a/progress.yaml", "workitems:a"),
    "bilu:board/tasks": ("board/tasks/a.md", "bilu:."),
    "bilu:board": ("board/tasks/a.md", "bilu:."),
    "bilu:.": (".bilu/board/tasks/a.md", "bilu:.bilu"),
    "bilu:src/board/tasks?timeout=1": ("src/board/tasks/a.md", "bilu:src"),
    "spec:spec/.locks": ("spec/.locks/tasks/T1/owner", "spec:spec"),
    "spec:.": ("spec/.locks/tasks/T1/owner", "spec:spec"),
}
"""An address, a file of the board, and the board that it names."""


@pytest.mark.parametrize("given", POINTED)
def test_an_address_may_point_at_a_dialects_file_or_folder(here: Path, given: str) -> None:
    name, url = POINTED[given]
    lay(here, name)
    scheme, _, folder = url.partition(":")
    before = sorted(path.relative_to(here) for path in here.rglob("*"))
    assert url_of(given) == f"{scheme}:{(here / folder).resolve()}"
    assert sorted(path.relative_to(here) for path in here.rglob("*")) == before


def test_a_file_that_is_not_there_yet_is_not_made_as_another_kind(here: Path) -> None:
    for given in ("state/taskboard.json", "taskboard:state/taskboard.json"):
        with pytest.raises(NoBoard, match=r"there is no taskboard\.json in"):
            open_store(given)
    with TaskBoard.open("state/taskboard.json", create=True, worker="w") as board:
        board.add("x")
        assert board.url == f"taskboard:{here}/state"
    assert (here / "state" / "taskboard.json").is_file()


def test_a_folder_is_a_sqlite_boards_unless_its_name_says_otherwise(here: Path) -> None:
    lay(here, "state/taskboard.json")
    assert url_of("state", create=True) == f"sqlite:{here}/state/.dibs/board.db"
    lay(here, ".workflow/board.json")
    assert url_of("sqlite:.workflow", create=True) == f"sqlite:{here}/.workflow/.dibs/board.db"
    assert url_of(".workflow") == f"sqlite:{here}/.workflow/.dibs/board.db"
    lay(here, "board.json")
    with pytest.raises(BoardUnusable):
        open_store("board.json")  # no document calls a file so outside .workflow


def test_paths_belong_to_the_project_whatever_the_address_points_at(here: Path) -> None:
    lay(here, ".workflow/board.json")
    for given in (".workflow", ".workflow/board.json", "workflow:.", "workflow:.workflow?retries=3"):
        assert open_store(given).place == str(here)


# -- no board


def test_a_board_below_is_offered(here: Path) -> None:
    with pytest.raises(NoBoard) as caught:
        open_store(None)
    assert caught.value.hint == "make one with: dibs init; if it is somewhere else, say where: export DIBS_BOARD=URL"
    lay(here, "state/taskboard.json")
    with pytest.raises(NoBoard) as caught:
        open_store(None)
    assert caught.value.hint == ("there is one below: dibs --board taskboard:state list; or make one here: dibs init")
    lay(here, "a b/.workflow/board.json")
    with pytest.raises(NoBoard) as caught:
        open_store(None)
    assert caught.value.hint.startswith(
        "there are 2 below, the first of them: dibs --board 'workflow:a b/.workflow' list; "
    )


def test_only_a_planner_makes_a_workflow_board(here: Path) -> None:
    for agent, who in (("worker-1", "worker-1 is"), (None, "you are")):
        with pytest.raises(NotAllowed) as caught:
            open_store("workflow:.workflow", create=True, agent=agent)
        assert caught.value.message.endswith(f"only a planner may create it; {who} not a planner")


# -- what it costs


@pytest.mark.parametrize("given", [None, "board.db", ".", "sqlite:.dibs/board.db"])
def test_a_board_of_dibs_own_loads_nothing_of_the_dialects(here: Path, given: str | None) -> None:
    for url in (".", "board.db"):
        url_of(url, create=True)
    code = f"import sys; from dibs.address import open_store; open_store({given!r}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env=environment(), capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "dibs.stores.sqlite.store" in loaded
    assert [name for name in loaded if name.startswith("dibs.dialects")] == []
