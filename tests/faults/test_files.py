"""Files that are no board, no board any more, or not ours to open: refused with a reason, and left as they were."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard, fs
from dibs.errors import BoardUnusable, NoBoard
from dibs.stores.sqlite.schema import MIGRATIONS
from dibs.stores.sqlite.store import SqliteStore
from tests.processes.harness import Crew, assert_whole, environment, rows

Bytes = dict[str, bytes | None]


def contents(folder: Path) -> Bytes:
    """Every name below a folder, with the bytes of files."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None
        for p in sorted(folder.rglob("*"))
    }


def make_board(path: Path) -> None:
    with TaskBoard.open(f"sqlite:{path}", create=True, worker="maker") as board:
        board.add_many([{"description": f"task {n} " + "x" * 200} for n in range(300)])


def refused(path: Path, kind: type[Exception] = BoardUnusable) -> str:
    """What each way of opening says; the same for all of them."""
    said = set()
    for create in (False, True):
        with pytest.raises(kind) as caught, TaskBoard.open(f"sqlite:{path}", create=create, worker="w") as board:
            board.status()
        said.add(str(caught.value))
    assert len(said) == 1
    return said.pop()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("buy milk\n" * 1000)


def short_text(path: Path) -> None:
    path.write_text("x")


def another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE task (seq INTEGER PRIMARY KEY, id TEXT)")
    connection.close()


def another_program_with_wal_mode(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def cut_short(path: Path) -> None:
    make_board(path)
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def cut_within_a_page(path: Path) -> None:
    make_board(path)
    os.truncate(path, 5000)


def cut_within_the_header(path: Path) -> None:
    make_board(path)
    os.truncate(path, 60)


def garbage_in_the_middle(path: Path) -> None:
    make_board(path)
    with open(path, "r+b") as file:
        size = path.stat().st_size
        file.seek(8192)
        file.write(b"\xa5" * (size - 3 * 4096))


def garbage_at_the_start(path: Path) -> None:
    make_board(path)
    with open(path, "r+b") as file:
        file.write(os.urandom(100))


def newer(path: Path) -> None:
    make_board(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (empty, "is empty: something else has half-made it"),
        (text, "is not a dibs board"),
        (short_text, "is not a dibs board"),
        (another_program, "is not a dibs board"),
        (another_program_with_wal_mode, "is not a dibs board"),
        (cut_short, "is damaged"),
        (cut_within_a_page, "is damaged"),
        (cut_within_the_header, "is not a dibs board"),
        (garbage_in_the_middle, "is damaged"),
        (garbage_at_the_start, "is not a dibs board, or is damaged"),
        (newer, "was written by a newer dibs"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_unchanged(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "board.db"
    spoil(path)
    before = contents(folder)
    said = refused(path)
    assert str(path) in said
    assert reason in said
    assert "left as it is" in said
    assert "delete" not in said
    assert {name: data for name, data in contents(folder).items() if name in before} == before


@pytest.mark.parametrize("spoil", [empty, text, another_program, another_program_with_wal_mode])
def test_nothing_is_left_beside_a_file_that_is_no_board(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Somebody mistyped a path: their folder must not fill with our lock files."""
    spoil(tmp_path / "notes.db")
    before = contents(tmp_path)
    refused(tmp_path / "notes.db")
    assert contents(tmp_path) == before


_LEFT_WITH_A_WAL = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("CREATE TABLE bookmarks (url TEXT)")
connection.commit()
connection.execute("INSERT INTO bookmarks VALUES ('https://example.org')")
connection.commit()
os._exit(0)
"""


def test_another_programs_database_is_not_even_recovered_for_it(tmp_path: Path) -> None:
    """Its process crashed and left a WAL: that is its own to replay."""
    path = tmp_path / "places.db"
    subprocess.run([sys.executable, "-c", _LEFT_WITH_A_WAL, str(path)], check=True, env=environment())
    before = contents(tmp_path)
    assert before["places.db-wal"]
    refused(path)
    assert contents(tmp_path) == before


def test_a_missing_file_is_no_board(tmp_path: Path) -> None:
    with pytest.raises(NoBoard) as caught:
        TaskBoard.open(f"sqlite:{tmp_path}/board.db")
    assert f"there is no board at {tmp_path}/board.db" in str(caught.value)
    assert contents(tmp_path) == {}


def test_a_link_that_leads_nowhere_is_no_board(tmp_path: Path) -> None:
    (tmp_path / "board.db").symlink_to(tmp_path / "nowhere")
    before = contents(tmp_path)
    for create in (False, True):
        with pytest.raises((NoBoard, BoardUnusable)):
            TaskBoard.open(f"sqlite:{tmp_path}/board.db", create=create)
    assert {name: data for name, data in contents(tmp_path).items() if name in before} == before


def test_a_folder_is_no_board(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(NoBoard):
        TaskBoard.open(f"sqlite:{folder}")  # as an address, a folder means the board inside
    for create in (False, True):
        with pytest.raises(BoardUnusable) as caught:
            SqliteStore(str(folder), create=create)
        assert str(folder) in str(caught.value)
    assert contents(tmp_path) == {"folder": None}


def test_a_path_below_a_file_gives_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NoBoard):
        TaskBoard.open(f"sqlite:{tmp_path}/file/board.db")
    with pytest.raises(BoardUnusable) as caught:
        TaskBoard.open(f"sqlite:{tmp_path}/file/board.db", create=True)
    assert "file" in str(caught.value)
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("name", ["board.db-lock", "board.db-sync"])
@pytest.mark.parametrize("target", ["nowhere", "victim"])
def test_a_symbolic_link_in_place_of_a_lock_file_is_not_followed(tmp_path: Path, name: str, target: str) -> None:
    make_board(tmp_path / "board.db")
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / target)
    before = contents(tmp_path)
    said = refused(tmp_path / "board.db")
    assert f"cannot open {tmp_path}/{name} for writing" in said
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["board.db-lock", "board.db-sync"])
def test_lock_files_that_somebody_removed_are_made_again(tmp_path: Path, name: str) -> None:
    make_board(tmp_path / "board.db")
    (tmp_path / name).unlink()
    with TaskBoard.open(f"sqlite:{tmp_path}/board.db", worker="w") as board:
        board.add("still works")
    assert_whole(f"sqlite:{tmp_path}/board.db").close()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any user may look into; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="dibs-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def bound_by_permissions() -> list[str]:
    """What to put before a command so that permissions apply to it, even when root runs the tests."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("permissions do not bind root, and there is no setpriv to change that")
    return [setpriv, "--bounding-set=-dac_override,-dac_read_search", "--"]


def test_a_folder_without_permission_to_write_gives_a_reason(public_folder: Path, crew: Crew) -> None:
    make_board(public_folder / "board.db")
    public_folder.chmod(0o555)
    for name in ("board.db", "board.db-lock", "board.db-sync"):
        (public_folder / name).chmod(0o444)
    before = contents(public_folder)
    said = crew.start("open_only", public_folder / "board.db", before=bound_by_permissions()).line()
    assert said.startswith("BoardUnusable ")
    assert "for writing" in said or "cannot write" in said
    assert "permission" in said.lower()
    assert contents(public_folder) == before


def test_creating_in_a_folder_without_permission_gives_a_reason(public_folder: Path, crew: Crew) -> None:
    public_folder.chmod(0o555)
    said = crew.start(
        "open_only", public_folder / "deeper" / "board.db", "create", before=bound_by_permissions()
    ).line()
    assert said.startswith("BoardUnusable ")
    said = crew.start("open_only", public_folder / "board.db", "create", before=bound_by_permissions()).line()
    assert said.startswith("BoardUnusable ")
    assert contents(public_folder) == {}


def test_a_shared_memory_file_that_is_read_only_is_named(public_folder: Path, crew: Crew) -> None:
    make_board(public_folder / "board.db")
    reader = crew.start("read_slowly", f"sqlite:{public_folder}/board.db")
    reader.expect("inside")
    (public_folder / "board.db-shm").chmod(0o444)
    url = f"sqlite:{public_folder}/board.db"
    said = crew.start("claim_at_a_word", url, "w", before=bound_by_permissions()).line()
    assert said.startswith(f"board_unusable cannot write to {public_folder}/board.db-shm"), said
    assert f"chmod u+w {public_folder}/board.db-shm" in said


# -- other names


def test_a_board_with_a_second_name_is_refused_under_both(tmp_path: Path) -> None:
    make_board(tmp_path / "board.db")
    (tmp_path / "copy").mkdir()
    os.link(tmp_path / "board.db", tmp_path / "copy" / "board.db")
    before = contents(tmp_path)
    for path in (tmp_path / "board.db", tmp_path / "copy" / "board.db"):
        assert "hard link" in refused(path)
    assert contents(tmp_path) == before
    (tmp_path / "copy" / "board.db").unlink()
    assert_whole(f"sqlite:{tmp_path}/board.db").close()


def test_the_name_that_a_killed_maker_has_left_is_no_second_one(tmp_path: Path) -> None:
    make_board(tmp_path / "board.db")
    os.link(tmp_path / "board.db", tmp_path / "board.db.new-1-2")
    assert_whole(f"sqlite:{tmp_path}/board.db").close()
    assert not (tmp_path / "board.db.new-1-2").exists()


# -- network file systems


def mount_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, folder: Path) -> None:
    """Let the kernel's mount table say that the device of `folder` is of this kind."""
    device = folder.stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n"
        "nonsense\n"
        f"36 35 {os.major(device)}:{os.minor(device)} / /mnt/a\\040b rw,noatime shared:1 master:2 - {kind} host:/x rw\n"
    )

    def open_instead(path: str, *args: object, **more: object) -> object:
        return open(table if path == "/proc/self/mountinfo" else path, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(fs, "open", open_instead, raising=False)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"])
def test_a_board_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make_board(tmp_path / "board.db")
    mount_table(monkeypatch, tmp_path, kind, tmp_path)
    assert fs.network_file_system(str(tmp_path)) == kind
    before = contents(tmp_path)
    said = refused(tmp_path / "board.db")
    assert f"{tmp_path} is on a network file system ({kind})" in said
    assert "local disk" in said
    with pytest.raises(BoardUnusable):
        TaskBoard.open(f"sqlite:{tmp_path}/new.db", create=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "xfs", "tmpfs", "overlay", "zfs", "fuseblk"])
def test_a_board_on_a_local_file_system_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mount_table(monkeypatch, tmp_path, kind, tmp_path)
    assert fs.network_file_system(str(tmp_path)) is None
    make_board(tmp_path / "board.db")


def test_without_a_mount_table_a_board_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_table(path: str, *args: object, **more: object) -> object:
        raise FileNotFoundError(path)

    monkeypatch.setattr(fs, "open", no_table, raising=False)
    assert fs.network_file_system(str(tmp_path)) is None
    make_board(tmp_path / "board.db")
    monkeypatch.undo()
    assert rows(f"sqlite:{tmp_path}/board.db", "SELECT count(*) FROM task") == [(300,)]
