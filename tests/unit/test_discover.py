"""Which board belongs to a directory: each dialect's files, from wherever inside, and what goes before them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.address import open_store
from dibs.cli import main as cli
from dibs.dialects.discover import discover, near
from dibs.errors import NoBoard
from dibs.stores.sqlite.store import SqliteStore

LAYOUTS = {
    "taskboard": ("state/taskboard.json", "state", "state"),
    "workflow": (".workflow/board.json", ".workflow", "."),
    "workitems, one": ("items/WI-001-login/progress.yaml", "items", "items/WI-001-login"),
    "workitems, a root": ("WI-001-login/progress.yaml", ".", "."),
    "workitems, any name": ("login/progress.yaml", "login", "login"),
    "bilu, installed": (".bilu/board/tasks/a.md", ".bilu", "."),
    "bilu, repository": ("src/board/tasks/a.md", "src", "."),
    "bilu, bare": ("board/tasks/a.md", ".", "."),
    "spec": ("spec/.locks/tasks/T1/owner", "spec", "."),
    "spec, bare": (".locks/files/a__b/owner", ".", "."),
}
"""A file of the dialect, the board's folder, and the folder from which (and from below) it is found."""


def lay(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"tasks": []}')


def repository(root: Path) -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dialects_files_are_found_from_a_subdirectory(tmp_path: Path, layout: str) -> None:
    root = repository(tmp_path / "repo")
    name, folder, start = LAYOUTS[layout]
    lay(root, name)
    below = root / start / "deep" / "down"
    below.mkdir(parents=True)
    expected = (layout.partition(",")[0], str((root / folder).resolve()))
    for here in (root / start, below, (root / name).parent):
        assert discover(str(here)) == expected, here


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_root_of_the_work_tree_stops_the_search(tmp_path: Path, layout: str) -> None:
    name, _, start = LAYOUTS[layout]
    lay(tmp_path, name)
    root = repository(tmp_path / start / "repo")
    (root / "sub").mkdir()
    assert discover(str(root / "sub")) is None
    assert [scheme for scheme, _ in near(str(root / "sub"))] == [layout.partition(",")[0]]


def linked(main: Path, side: Path) -> Path:
    """A work tree of `main`'s repository, as `git worktree add` makes it."""
    about = main / ".git" / "worktrees" / "side"
    about.mkdir(parents=True)
    (about / "HEAD").write_text("ref: refs/heads/side\n")
    (about / "commondir").write_text("../..\n")
    side.mkdir(parents=True)
    (side / ".git").write_text(f"gitdir: {about}\n")
    return side


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_linked_work_tree_shares_the_board_of_the_main_one(tmp_path: Path, layout: str) -> None:
    main = repository(tmp_path / "main")
    side = linked(main, tmp_path / "side")
    name, folder, start = LAYOUTS[layout]
    scheme = layout.partition(",")[0]
    (side / start / "deep").mkdir(parents=True)
    lay(side, name)  # only in the linked one, as on a branch that is not merged
    assert discover(str(side / start / "deep")) == (scheme, str(side / folder))
    lay(main, name)  # committed, so that each work tree has a copy
    assert discover(str(side / start / "deep")) == (scheme, str(main / folder))
    assert discover(str(main / start)) == (scheme, str(main / folder))


def test_the_main_work_tree_goes_first_up_to_its_root(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    side = linked(main, main / "trees" / "side")
    lay(tmp_path, "taskboard.json")
    (side / "part").mkdir()
    assert discover(str(side / "part")) is None
    lay(side, "part/taskboard.json")
    assert discover(str(side / "part")) == ("taskboard", str(side / "part"))
    lay(main, ".workflow/board.json")
    assert discover(str(side / "part")) == ("workflow", str(main / ".workflow"))
    lay(main, "part/taskboard.json")
    assert discover(str(side / "part")) == ("taskboard", str(main / "part"))


def test_workers_in_two_work_trees_claim_from_one_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = repository(tmp_path / "main")
    side = linked(main, tmp_path / "side")
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    with TaskBoard.open(f"workflow:{main}/.workflow", create=True, worker="planner-1") as board:
        board.add("only one", id="task-001")
    lay(side, ".workflow/board.json")
    (side / ".workflow" / "board.json").write_bytes((main / ".workflow" / "board.json").read_bytes())
    claimed = []
    for here, name in ((main, "worker-1"), (side, "worker-2")):
        monkeypatch.chdir(here)
        with TaskBoard.open(worker=name) as board:
            claimed.append(board.claim(name))
    assert [task and task.id for task in claimed] == ["task-001", None]


def test_init_in_a_linked_work_tree_says_that_the_board_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = repository(tmp_path / "main")
    side = linked(main, tmp_path / "side")
    lay(main, ".workflow/board.json")
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    monkeypatch.chdir(side)
    assert cli(["init"]) == 0
    assert f"the board is there already: workflow:{main}/.workflow; nothing was changed" in capsys.readouterr().out
    assert not (main / ".dibs").exists()
    assert not (side / ".dibs").exists()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_board_of_dibs_own_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    root = repository(tmp_path / "repo")
    name, _, start = LAYOUTS[layout]
    lay(root, name)
    open_store(f"sqlite:{root}/.dibs/board.db", create=True, durability="normal").close()
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    monkeypatch.chdir(root / start)
    store = open_store(None)
    store.close()
    assert isinstance(store, SqliteStore)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_command_in_a_dialects_files_says_that_the_repositorys_board_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    root = repository(tmp_path / "repo")
    name, folder, start = LAYOUTS[layout]
    lay(root / "part", name)
    open_store(f"sqlite:{root}/.dibs/board.db", create=True, durability="normal").close()
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    monkeypatch.chdir(root / "part" / start)
    assert cli(["list"]) == 0
    scheme = layout.partition(",")[0]
    other = f"{scheme}:{(root / 'part' / folder).resolve()}"
    taken = f"dibs: this is sqlite:{root}/.dibs/board.db; the {scheme} files here are another board: --board {other}\n"
    assert capsys.readouterr().err == taken
    assert cli(["--board", f"sqlite:{root}/.dibs/board.db", "list"]) == 0
    assert capsys.readouterr().err == ""
    lay(root, name)  # and beside the board itself: whoever has both there knows
    monkeypatch.chdir(root)
    assert cli(["list"]) == 0
    assert capsys.readouterr().err == ""


def test_dibs_notes_about_a_dialect_are_no_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "repo")
    (root / ".dibs").mkdir()
    (root / ".dibs" / "claims.json").write_text("{}")
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    monkeypatch.chdir(root)
    with pytest.raises(NoBoard):
        open_store(None)
    lay(root, "taskboard.json")
    assert open_store(None).url == f"taskboard:{root.resolve()}"


def test_the_nearest_board_is_taken(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    lay(root, "taskboard.json")
    lay(root, "part/.workflow/board.json")
    (root / "part" / "sub").mkdir()
    assert discover(str(root / "part" / "sub")) == ("workflow", str(root / "part" / ".workflow"))
    assert discover(str(root)) == ("taskboard", str(root))


@pytest.mark.parametrize("name", ["taskboard.json", ".workflow/board.json", "progress.yaml"])
def test_a_folder_with_a_files_name_is_no_board(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "repo")
    (root / name).mkdir(parents=True)
    assert discover(str(root)) is None


def test_a_board_json_that_is_not_a_workflows_is_none(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    lay(root, "board.json")
    assert discover(str(root)) is None


def test_work_items_side_by_side_are_one_board_from_inside_each(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    for name in ("WI-001-a", "WI-002-b"):
        lay(root, f"work/{name}/progress.yaml")
        (root / "work" / name / "locks").mkdir()
    expected = ("workitems", str(root / "work"))
    assert discover(str(root / "work" / "WI-001-a" / "locks")) == expected
    assert discover(str(root / "work" / "WI-002-b")) == expected
    assert discover(str(root / "work")) == expected


def test_near_does_not_list_a_board_under_several_names(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    lay(root, "src/board/tasks/a.md")
    lay(root, "work/WI-001-a/progress.yaml")
    assert near(str(root)) == [("bilu", str(root / "src"))]  # which is found, so nothing below is looked for
    assert near(str(root / "work")) == [("workitems", str(root / "work")), ("bilu", str(root / "src"))]


def test_near_skips_what_it_may_not_read(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    lay(root, "a/b/taskboard.json")
    lay(root, "a/b/c/d/taskboard.json")
    (root / "loop").symlink_to(root)
    assert near(str(root)) == [("taskboard", str(root / "a" / "b"))]


# -- whose files these are

STRANGER, ME = 65534, 12345

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can make files of other users: run it as root"
)


def owned(path: Path, uid: int) -> None:
    for each in (path, *path.rglob("*")):
        os.lchown(each, uid, -1)


@pytest.fixture
def shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like /tmp, anybody's, with a folder of mine in it, where I stand."""
    monkeypatch.delenv("DIBS_BOARD", raising=False)
    shared = tmp_path / "tmp"
    (shared / "mine" / "sub").mkdir(parents=True)
    shared.chmod(0o1777)
    os.chown(shared / "mine" / "sub", ME, -1)
    monkeypatch.chdir(shared / "mine" / "sub")
    monkeypatch.setattr(os, "geteuid", lambda: ME)
    return shared


@needs_root
@pytest.mark.parametrize("kind", ["sqlite", *(kind for kind, (_, _, start) in LAYOUTS.items() if start == ".")])
def test_the_search_ends_at_a_board_of_another_user_and_says_so(shared_folder: Path, kind: str) -> None:
    if kind == "sqlite":
        open_store(f"sqlite:{shared_folder}/.dibs/board.db", create=True, durability="normal").close()
        made = shared_folder / ".dibs"
    else:
        lay(shared_folder, LAYOUTS[kind][0])
        made = shared_folder / LAYOUTS[kind][0].partition("/")[0]
    owned(made, STRANGER)
    with pytest.raises(NoBoard, match="another user") as caught:
        open_store(None)
    assert "export DIBS_BOARD=" in caught.value.hint
    store = open_store(None, create=True, durability="normal")  # which makes one's own, here
    store.close()
    assert store.url == f"sqlite:{shared_folder}/mine/sub/.dibs/board.db"


@needs_root
def test_a_link_of_another_user_to_a_board_of_mine_is_not_followed(shared_folder: Path, tmp_path: Path) -> None:
    open_store(f"sqlite:{tmp_path}/elsewhere/.dibs/board.db", create=True, durability="normal").close()
    owned(tmp_path / "elsewhere", ME)
    (shared_folder / ".dibs").symlink_to(tmp_path / "elsewhere" / ".dibs")
    os.lchown(shared_folder / ".dibs", STRANGER, -1)
    with pytest.raises(NoBoard, match="another user"):
        open_store(None)


@needs_root
def test_a_repository_that_another_user_has_put_above_is_not_used(shared_folder: Path) -> None:
    repository(shared_folder)
    open_store(f"sqlite:{shared_folder}/.dibs/board.db", create=True, durability="normal").close()
    owned(shared_folder / ".dibs", STRANGER)
    with pytest.raises(NoBoard, match="another user"):
        open_store(None)
    with pytest.raises(NoBoard, match="another user"):
        open_store(None, create=True)


@needs_root
@pytest.mark.parametrize("owner", [ME, 0, STRANGER])
def test_a_board_of_mine_of_root_and_of_whose_folder_i_stand_in_is_found(shared_folder: Path, owner: int) -> None:
    mine = shared_folder / "mine"
    open_store(f"sqlite:{mine}/.dibs/board.db", create=True, durability="normal").close()
    owned(mine, owner)
    if owner != STRANGER:
        os.chown(mine / "sub", ME, -1)
    store = open_store(None)
    store.close()
    assert store.url == f"sqlite:{mine}/.dibs/board.db"
