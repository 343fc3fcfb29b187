"""A clone or an archive brings whatever links and pipes somebody put into it. Nothing that a board is made of, and
nothing of dibs' own beside it, is written through them: what is outside stays as it is, nobody waits for ever, and a
command works or says what is in its way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.processes.harness import environment

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes are made here")

PATIENCE = 20.0
"""Seconds after which a command counts as hanging: each takes a fraction of one."""

Answer = tuple[int, str]

_DRIVER = """
import contextlib, io, json, sys
from dibs.cli import main

answers = []
for argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = main(argv)
    answers.append((code, said.getvalue()))
print(json.dumps(answers))
"""


def drive(folder: Path, *commands: str, board: str = "") -> list[Answer]:
    """What each of the commands answers, run one after the other in a process of its own: its code, and its errors."""
    given = [
        [*(["--board", board] if board else []), "--as", "planner-1" if command == "init" else "w", *command.split()]
        for command in commands
    ]
    found = subprocess.run(
        [sys.executable, "-c", _DRIVER, json.dumps(given)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert found.returncode == 0, found.stderr
    return [(code, said) for code, said in json.loads(found.stdout)]


def ok(folder: Path, *commands: str, board: str = "") -> None:
    for command, (code, said) in zip(commands, drive(folder, *commands, board=board), strict=True):
        assert code == 0, (command, said)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


# -- what a board is made of


class Kind:
    """A kind of board: how one is made, what is done to it, and what is there only while that is done."""

    def __init__(
        self, board: str, make: list[str], verbs: list[str], passing: list[str], *, found: bool = True
    ) -> None:
        self.board = board
        self.make = make
        self.verbs = verbs
        self.passing = passing
        self.found = found
        """Is it to be found from its folder? Else it is named, for the sake of shorter waits."""


_ADD = ["add one", "add two", "add three", "claim", "tell all hello"]
_WORK = ["claim", "done", "add more", "tell all again", "recover", "list", "log", "check"]
_FINDS = ("check", "doctor")
"""Commands that say on the screen what is wrong, and end with 1."""
KINDS = {
    "sqlite": Kind(
        "sqlite:.dibs/board.db",
        _ADD,
        _WORK,
        [".dibs/board.db-wal", ".dibs/board.db-shm", ".dibs/board.db-journal"],
    ),
    "taskboard": Kind("taskboard:.", _ADD, _WORK, []),
    "workflow": Kind(
        "workflow:.workflow?pause=0.01",
        _ADD,
        _WORK,
        [".workflow/board.lock", ".workflow/board.lock.break"],
        found=False,
    ),
    "workitems": Kind(
        "workitems:.",
        _ADD,
        _WORK,
        [
            ".dibs/writing",
            "WI-001-repo/locks/WI-001.lock",
            "WI-001-repo/locks/WI-001.lock.break",
            "WI-001-repo/locks/WI-001-A1.lock.break",
            "WI-001-repo/locks/WI-001-A2.lock",
        ],
    ),
    "bilu": Kind(
        "bilu:.?timeout=0.1",
        [*_ADD, "rebuild --write"],
        [*_WORK, "rebuild --write"],
        ["storage/lock", "storage/lock/pid", "storage/lock/cmd", "storage/lock/break.1", "board/config.json"],
        found=False,
    ),
    "spec": Kind(
        "spec:.",
        ["claim T1", "lock a.py"],
        ["claim T2", "lock b.py", "unlock b.py", "done T1", "recover --all", "list", "log", "check"],
        [".locks/tasks/T2", ".locks/tasks/T2/owner", ".locks/files/b.py", ".locks/files/b.py/owner"],
    ),
}


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A board of each kind, in use: the folder of its repository, to be copied."""
    made: dict[str, Path] = {}

    def give(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name) / "repo"
            (folder / ".git").mkdir(parents=True)
            ok(folder, "init", *KINDS[name].make, board=KINDS[name].board)
            made[name] = folder
        return made[name]

    return give


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


def parts(kind: Kind, made: Path) -> Iterator[tuple[str, bool]]:
    """Every file and folder of a board, whether it is there or only passes, and whether it is a folder."""
    names = {str(path.relative_to(made)): path.is_dir() for path in made.rglob("*")}
    names |= dict.fromkeys(kind.passing, False)
    yield from sorted((name, is_folder) for name, is_folder in names.items() if name != ".git")


def case(made: Path, place: Path, name: str, how: Callable[[Path, Path], None]) -> tuple[Path, Path]:
    """A copy of a board in which one part leads outside, to the same content; and the folder outside."""
    repo, outside = place / "repo", place / "outside"
    shutil.copytree(made, repo)
    outside.mkdir()
    part, victim = repo / name, outside / "victim"
    if part.exists():
        part.rename(victim)
    if not victim.exists() or (victim.is_file() and not victim.stat().st_size):  # what is empty shows no truncation
        victim.write_text("precious\n")
        os.utime(victim, (1_700_000_000, 1_700_000_000))  # a lock that makes no sense is waited for while it is young
    part.parent.mkdir(parents=True, exist_ok=True)
    how(part, victim)
    return repo, outside


def harm(kind: Kind, repo: Path, outside: Path, name: str) -> list[str]:
    """What goes wrong when the board is used."""
    before = contents(outside)
    try:
        answers = drive(repo, *kind.verbs, board="" if kind.found else kind.board)
    except subprocess.TimeoutExpired:
        return [f"{name}: hangs"]
    faults = [f"{name}: changed outside"] if contents(outside) != before else []
    for verb, (code, said) in zip(kind.verbs, answers, strict=True):
        is_clear = code in (0, 3) or (code == 1 and (said.startswith("dibs: ") or verb in _FINDS))
        if not is_clear or "internal error" in said or "Traceback" in said:
            faults.append(f"{name}: {verb}: {code}: {said}")
    return faults


@pytest.mark.parametrize("how", [link, hard_link, pipe, folder])
@pytest.mark.parametrize("name", KINDS)
def test_no_file_of_a_board_lets_a_command_write_outside_or_hang(
    boards: Callable[[str], Path], tmp_path: Path, name: str, how: Callable[[Path, Path], None]
) -> None:
    made, kind = boards(name), KINDS[name]
    files = [part for part, is_folder in parts(kind, made) if not is_folder]
    assert len(files) > 2
    if how is hard_link and name == "sqlite":
        files.remove(".dibs/board.db")  # what a second name of a database does is said in tests/faults
    faults = [harm(kind, *case(made, tmp_path / str(n), part, how), part) for n, part in enumerate(files)]
    assert [*chain.from_iterable(faults)] == []


@pytest.mark.parametrize("name", KINDS)
def test_no_folder_of_a_board_that_is_a_link_lets_a_command_write_outside(
    boards: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    made, kind = boards(name), KINDS[name]
    folders = [part for part, is_folder in parts(kind, made) if is_folder]
    faults = [harm(kind, *case(made, tmp_path / str(n), part, link), part) for n, part in enumerate(folders)]
    assert [*chain.from_iterable(faults)] == []


# -- what is refused, and how that is said


def refusal(repo: Path, *commands: str, board: str = "") -> str:
    """What all of the commands say, as one: each is refused."""
    answers = drive(repo, *commands, board=board)
    assert {code for code, _ in answers} == {1}, answers
    return " ".join("".join(said for _, said in answers).split())


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("taskboard", "taskboard.json"),
        ("workflow", ".workflow/board.json"),
        ("workitems", "WI-001-repo/progress.yaml"),
        ("bilu", "board/tasks/02-two.md"),
    ],
)
def test_a_file_of_tasks_that_is_a_link_is_refused_by_name_for_reading_and_for_writing(
    boards: Callable[[str], Path], tmp_path: Path, name: str, file: str
) -> None:
    repo, _ = case(boards(name), tmp_path / "case", file, link)
    for command in ("list", "claim", "add x"):
        said = refusal(repo, command)
        assert Path(file).name in said
        assert "it is a symbolic link" in said


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("sqlite", ".dibs"),
        ("workflow", ".workflow"),
        ("workitems", "WI-001-repo"),
        ("workitems", "WI-001-repo/locks"),
        ("bilu", "board"),
        ("bilu", "board/tasks"),
        ("bilu", "storage"),
        ("spec", ".locks"),
        ("spec", ".locks/tasks"),
    ],
)
def test_a_folder_or_a_board_that_is_a_link_out_of_the_repository_is_refused_and_one_within_is_not(
    boards: Callable[[str], Path], tmp_path: Path, name: str, part: str
) -> None:
    verb = "claim T9" if name == "spec" else "claim"
    repo, outside = case(boards(name), tmp_path / "case", part, link)
    said = refusal(repo, verb)
    assert "leads out of" in said
    assert part.rpartition("/")[2] in said
    (repo / "elsewhere").mkdir()
    (outside / "victim").rename(repo / "elsewhere" / "victim")
    (repo / part).unlink()
    (repo / part).symlink_to(repo / "elsewhere" / "victim")
    ok(repo, verb)


def test_a_link_to_another_repositorys_board_is_refused_and_can_be_named(
    boards: Callable[[str], Path], tmp_path: Path
) -> None:
    repo, outside = case(boards("sqlite"), tmp_path / "case", ".dibs/board.db", link)
    said = refusal(repo, "claim")
    assert f"leads out of the repository, to {outside.resolve()}/victim" in said
    assert f"export DIBS_BOARD=sqlite:{outside.resolve()}/victim" in said.replace(" ", "").replace("export", "export ")
    ok(repo, "claim", board=f"sqlite:{outside}/victim")


@pytest.mark.parametrize("name", KINDS)
def test_a_board_is_not_made_through_a_link_either(tmp_path: Path, name: str) -> None:
    repo, outside = tmp_path / "repo", tmp_path / "outside"
    (repo / ".git").mkdir(parents=True)
    outside.mkdir()
    for part in (".dibs", ".workflow", "board", "storage", ".locks", "WI-001-repo"):
        (repo / part).symlink_to(outside)
    ((code, said),) = drive(repo, "init", board="" if name == "sqlite" else KINDS[name].board)
    assert list(outside.iterdir()) == []
    assert (code, "leads out of" in said or "is a link" in said) in ((1, True), (0, False)), said


def test_a_changelog_that_cannot_be_used_is_found_out_before_anything_is_written(
    boards: Callable[[str], Path], tmp_path: Path
) -> None:
    for number, name in enumerate(("taskboard", "workitems")):
        log = ".dibs/changelog.log" if name == "taskboard" else "WI-001-repo/changelog.log"
        repo, _ = case(boards(name), tmp_path / str(number), log, hard_link)
        before = contents(repo)
        said = refusal(repo, "claim", "add x")
        assert "changelog.log: it is a hard link" in said
        assert {path: data for path, data in contents(repo).items() if "claims.json" not in path} == {
            path: data for path, data in before.items() if "claims.json" not in path
        }


def test_the_notes_of_a_lock_space_keep_out_of_git(tmp_path: Path) -> None:
    ok(tmp_path, "init", "claim T1", board="spec:.")
    assert (tmp_path / ".locks" / ".dibs" / ".gitignore").read_text() == "*\n"


# -- what dibs' own notes may make it do


def test_a_note_of_locks_removes_none_of_another_board(boards: Callable[[str], Path], tmp_path: Path) -> None:
    made = boards("workitems")
    mine, other = tmp_path / "mine", tmp_path / "other"
    shutil.copytree(made, mine)
    shutil.copytree(made, other)
    (lock,) = (other / "WI-001-repo" / "locks").glob("*.lock")
    held = json.loads(lock.read_text())
    from dibs.dialects.activity_lock import parse

    token = parse(lock.read_bytes()).token
    assert token is not None, held
    (mine / ".dibs" / "writing").write_text(f"{token} {lock}\n{token} {mine}/../other/WI-001-repo/locks/{lock.name}\n")
    ok(mine, "claim", "add x")
    assert json.loads(lock.read_text()) == held


@pytest.mark.parametrize("name", ["taskboard", "workflow", "workitems", "bilu", "spec"])
def test_a_note_of_a_write_makes_no_file_that_the_board_would_not_write(
    boards: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """It would be enough to have `.git/config` written."""
    repo = tmp_path / "repo"
    shutil.copytree(boards(name), repo)
    (notes,) = repo.rglob("claims.json")
    root = repo / ".workflow" if name == "workflow" else repo
    (root / "begun").write_text("x")
    (root / "sub").mkdir()
    drafts = [root / "sub" / ".f.dibs-1-ab", tmp_path / ".f.dibs-1-ab"]
    for draft in drafts:
        draft.write_text("mine")
        os.utime(draft, (1_700_000_000, 1_700_000_000))
    wanted = {"was": None, "becomes": "1-00000000", "content": "x"}
    files = [{"path": path, **wanted} for path in ("config", "sub/f", "../f", "f/owner", "sub/f/owner", "../f/x")]
    files += [{"path": "begun", "was": None, "becomes": f"1-{zlib.crc32(b'x'):08x}"}]
    notes.write_text(json.dumps({"redo": {"at": 0, "lines": ["{}", "\t{}"], "files": files}}))
    before = contents(tmp_path)
    ok(repo, "claim T9" if name == "spec" else "claim")
    after = contents(tmp_path)
    added = {path for path in after if path not in before}
    assert not {path for path in added if path.endswith(("config", "f", "x"))}, added
    assert [draft.read_text() for draft in drafts] == ["mine", "mine"]
