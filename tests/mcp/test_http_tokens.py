"""Bearer tokens: made and dropped by command, kept as hashes, never lost, and a damaged list lets nobody in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.errors import NotFound
from dibs.mcp.tokens import Tokens, TokensUnusable, drop_token, new_token
from tests.cli.shell import PATIENCE, Shell, environment


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"sqlite:{tmp_path}/board.db"
    TaskBoard.open(address, create=True, worker="maker").close()
    return address


@pytest.fixture
def shell(url: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, DIBS_BOARD=url, DIBS_RUNTIME_DIR=str(tmp_path / "dibs-clients"))


def test_a_new_token_is_printed_once_and_only_its_hash_is_kept(shell: Shell, tmp_path: Path) -> None:
    made = shell("mcp", "--new-token", "builder-1")
    assert made.code == 0, made.err
    token = made.out.strip()
    assert len(token) >= 43
    assert token not in made.err, "what is said on stderr is often logged"
    assert "Authorization: Bearer TOKEN" in made.err
    assert "dibs mcp --drop-token builder-1" in made.err
    file = tmp_path / "mcp-tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert token not in file.read_text()
    assert Tokens(str(file)).worker_of(token) == "builder-1"


def test_a_second_token_replaces_the_first_and_says_so(shell: Shell, tmp_path: Path) -> None:
    first = shell("--json", "mcp", "--new-token", "b").json
    again = shell("--json", "mcp", "--new-token", "b")
    second = again.json
    assert (first["worker"], first["file"]) == ("b", str(tmp_path / "mcp-tokens.json"))
    assert (first["replaced"], second["replaced"]) == (False, True)
    assert "the earlier token of b is no good any more" in again.err
    tokens = Tokens(first["file"])
    assert tokens.worker_of(first["token"]) is None
    assert tokens.worker_of(second["token"]) == "b"


def test_a_dropped_token_is_forgotten_and_an_unknown_one_is_an_error(shell: Shell, tmp_path: Path) -> None:
    kept, dropped = (shell("--json", "mcp", "--new-token", name).json for name in "ab")
    gone = shell("mcp", "--drop-token", "b")
    assert gone.code == 0, gone.err
    tokens = Tokens(kept["file"])
    assert (tokens.worker_of(kept["token"]), tokens.worker_of(dropped["token"])) == ("a", None)
    again = shell("mcp", "--drop-token", "b")
    assert again.code == 1
    assert "b has no token" in again.err
    assert "workers with tokens: a" in again.err


def test_tokens_can_be_kept_in_a_file_of_ones_own(shell: Shell, tmp_path: Path) -> None:
    made = shell("--json", "mcp", "--tokens", "sub/t.json", "--new-token", "a").json
    assert made["file"] == str(tmp_path / "sub" / "t.json")
    assert Tokens(made["file"]).workers() == ["a"]
    assert not (tmp_path / "mcp-tokens.json").exists()


def test_a_boards_own_folder_stays_out_of_git_where_the_tokens_are_its_first_file(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "taskboard.json").write_text('{"tasks": []}')
    made = shell("--board", f"taskboard:{tmp_path}", "--json", "mcp", "--new-token", "a")
    assert made.code == 0, made.err
    assert made.json["file"] == str(tmp_path / ".dibs" / "mcp-tokens.json")
    assert (tmp_path / ".dibs" / ".gitignore").read_text() == "*\n"


def test_tokens_made_at_once_are_all_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    code = (
        "import sys; from dibs.mcp.tokens import *; [new_token(sys.argv[1], sys.argv[2] + str(n)) for n in range(20)]"
    )
    makers = [subprocess.Popen([sys.executable, "-c", code, path, name], env=environment()) for name in "abcd"]
    assert [maker.wait(PATIENCE) for maker in makers] == [0, 0, 0, 0]
    assert Tokens(path).workers() == sorted(f"{name}{n}" for name in "abcd" for n in range(20))


@pytest.mark.parametrize(
    "text", ['{"a": ', "[]", '{"a": {"sha256": "00"}}', '{"a": 1}', '{" ": {"sha256": ""}}', "\xff"]
)
def test_a_damaged_list_lets_nobody_in_and_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.json"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    for use in (Tokens(str(file)).workers, lambda: new_token(str(file), "b"), lambda: drop_token(str(file), "a")):
        with pytest.raises(TokensUnusable, match="is not a list of tokens"):
            use()
    assert file.read_bytes() == text.encode("latin-1")


def test_a_list_that_others_can_write_lets_nobody_in(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    token, _ = new_token(path, "a")
    Path(path).chmod(0o620)
    with pytest.raises(TokensUnusable, match="others may write") as refused:
        Tokens(path).worker_of(token)
    assert "chmod 600" in refused.value.hint


USES: dict[str, Callable[[str], object]] = {
    "serve": lambda path: Tokens(path).workers(),
    "make": lambda path: new_token(path, "b"),
    "drop": lambda path: drop_token(path, "a"),
}


@pytest.mark.parametrize("use", USES)
def test_a_list_that_is_a_link_lets_nobody_in(tmp_path: Path, use: str) -> None:
    (tmp_path / "real").mkdir()
    real, path = tmp_path / "real" / "t.json", tmp_path / "t.json"
    new_token(str(real), "a")
    before = real.read_bytes()
    path.symlink_to(real)
    with pytest.raises(TokensUnusable, match="is a link"):
        USES[use](str(path))
    assert (path.is_symlink(), real.read_bytes()) == (True, before)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mode", [0o777, 0o707])
def test_a_list_in_a_folder_that_others_can_write_lets_nobody_in(tmp_path: Path, use: str, mode: int) -> None:
    """Whoever can write there can put another list in its place."""
    folder = tmp_path / "shared"
    new_token(str(folder / "t.json"), "a")
    before = (folder / "t.json").read_bytes()
    folder.chmod(mode)
    with pytest.raises(TokensUnusable, match="others may write to the folder") as refused:
        USES[use](str(folder / "t.json"))
    assert f"chmod go-w {folder}" in refused.value.hint
    assert (folder / "t.json").read_bytes() == before
    folder.chmod(0o1777)
    assert Tokens(str(folder / "t.json")).workers() == ["a"], "in a folder such as /tmp nobody can replace our file"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("whose", ["file", "folder"])
@pytest.mark.parametrize("use", USES)
def test_a_list_of_another_user_lets_nobody_in(tmp_path: Path, use: str, whose: str) -> None:
    path = tmp_path / "sub" / "t.json"
    new_token(str(path), "a")
    before = path.read_bytes()
    os.chown(path if whose == "file" else path.parent, 54321, -1)
    with pytest.raises(TokensUnusable, match="belongs to another user") as refused:
        USES[use](str(path))
    assert "--tokens FILE" in refused.value.hint
    assert path.read_bytes() == before


def test_an_open_list_sees_what_others_change(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    tokens = Tokens(path)
    assert tokens.workers() == []
    for n in range(50):
        token, _ = new_token(path, f"w{n}")
        assert tokens.worker_of(token) == f"w{n}"
        drop_token(path, f"w{n}")
        assert tokens.worker_of(token) is None
    with pytest.raises(NotFound):
        drop_token(path, "w0")
