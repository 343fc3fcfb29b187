"""What users meet besides commands, on a PostgreSQL board: MCP servers, hooks, what `setup` writes and `doctor --prove`
tries. And that no file of theirs holds a password."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from dibs import TaskBoard
from dibs.mcp.tokens import new_token
from tests.cli.shell import PATIENCE
from tests.hooks.repository import Repository, claude, is_silent, reason
from tests.mcp.driving import dibs, is_gone, serving, surroundings
from tests.mcp.driving import server as server_of
from tests.mcp.http_server import HttpServer
from tests.postgres.server import Server
from tests.postgres.test_cli import SECRET, with_password
from tests.processes.harness import wait_until


@pytest.fixture
def url(server: Server) -> str:
    made = with_password(server.new_database() + "?board=web")
    TaskBoard.open(made, create=True, worker="maker").close()
    return made


@pytest.fixture
def repo(tmp_path: Path, url: str) -> Repository:
    """A repository with two linked worktrees, whose workers name the board by DIBS_BOARD; `bob` holds a.py."""
    made = Repository(tmp_path)
    made.env["DIBS_BOARD"] = url
    made.prepare()
    made.bob("lock", "a.py")
    return made


def files_with(word: str, *folders: Path) -> list[Path]:
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in found if word.encode() in path.read_bytes()]


# -- MCP


def test_a_stdio_server_works_and_gives_back_when_its_client_ends(url: str, tmp_path: Path) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("a task", paths=["src/**"])
    with serving(url, tmp_path, name="ann") as agent:
        assert agent.call("claim_task")["claimed"]
        assert not agent.call("lock_files", paths=["docs"]).is_error
        pid = server_of(tmp_path)
        # A command below the same client is the same worker, on the same board, without naming either.
        assert dibs(tmp_path, "--board", url, "list", "--mine")["total"] == 1
        assert files_with("board=web", tmp_path)
        assert files_with(SECRET, tmp_path) == []
    wait_until(lambda: is_gone(pid), "the server ends")
    with TaskBoard.open(url) as board:
        assert board.locks() == []
        assert [str(task.status) for task in board.tasks()[0]] == ["pending"]
        assert "its client has ended" in [event.details for event in board.recent(3)]


def test_a_call_that_waits_wakes_when_another_worker_adds_something(url: str, tmp_path: Path) -> None:
    with serving(url, tmp_path, name="ann") as agent:
        waiting = agent.begin("claim_task", wait_seconds=45)
        with TaskBoard.open(url, worker="maker") as board:
            added = board.add("a task")
        assert waiting.result(PATIENCE)["task_id"] == added


@contextmanager
def over_http(url: str, folder: Path) -> Iterator[tuple[HttpServer, str]]:
    """The server, with its tokens in a file that was named: such a board has no folder."""
    tokens = folder / "tokens.json"
    serving = HttpServer.__new__(HttpServer)
    serving.folder, serving.board_url, serving.options, serving.port = folder, url, ("--tokens", str(tokens)), 0
    serving.tokens_file, serving._tokens = str(tokens), {}
    serving.token("ann")
    serving._start()
    with serving:
        yield serving, new_token(str(tokens), "ann")[0]


def test_an_http_server_works(url: str, tmp_path: Path) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("a task")

    async def claim(server: HttpServer) -> bool:
        async with server.client("ben") as client:
            answer = await client.call_tool("claim_task", {})
            assert isinstance(answer.structured_content, dict)
            return bool(answer.structured_content["claimed"])

    with over_http(url, tmp_path) as (server, _):
        assert server.announced["board"] == url.replace(f":{SECRET}", "")
        assert anyio.run(claim, server)
        with TaskBoard.open(url) as board:
            assert [task.assigned_to for task in board.tasks()[0]] == ["ben"]
        code, said = server.end()
    assert code == 0, said
    assert SECRET not in said + json.dumps(server.announced)
    assert files_with(SECRET, tmp_path) == []


def test_an_http_server_says_where_its_tokens_could_be(url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "--board", url, "mcp", "--new-token", "ann"],
        env=surroundings(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert "--tokens FILE" in done.stderr


# -- hooks


def test_a_hook_denies_what_another_worker_holds_and_lets_the_rest_pass(repo: Repository) -> None:
    held = repo.hook("claude", claude("Edit", repo.two, file_path=str(repo.two / "a.py")))
    assert "bob" in reason("claude", held)
    free = repo.hook("claude", claude("Edit", repo.two, file_path=str(repo.two / "b.py")))
    assert is_silent("claude", free)


def test_a_commit_of_what_another_worker_holds_is_refused(repo: Repository) -> None:
    repo.dibs("setup", "git")
    for name in ("a.py", "b.py"):
        (repo.two / name).write_text("new\n")
    repo.git("add", "a.py", cwd=repo.two)
    refused = repo.try_git("commit", "-qm", "mine", cwd=repo.two)
    assert refused.code != 0
    assert "bob" in refused.err
    repo.git("reset", "-q", cwd=repo.two)
    repo.git("add", "b.py", cwd=repo.two)
    repo.git("commit", "-qm", "mine", cwd=repo.two)


def test_a_hook_answers_in_time_while_the_server_does_not(repo: Repository, url: str) -> None:
    """By its own patience, far below that for connections; and says so."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        gone = f"postgresql://dibs:{SECRET}@127.0.0.1:{port}/work"
        event = claude("Edit", repo.two, file_path=str(repo.two / "a.py"))
        passed = repo.hook("claude", event, DIBS_BOARD=gone, DIBS_HOOK_WAIT="0.5")
        denied = repo.hook("claude", event, "--closed", DIBS_BOARD=gone, DIBS_HOOK_WAIT="0.5")
    assert passed.code == 0
    assert "deny" not in passed.out
    assert "deny" in denied.out
    assert SECRET not in passed.out + passed.err + denied.out + denied.err


# -- setup


def test_setup_writes_no_password_and_what_it_wrote_works(repo: Repository, url: str) -> None:
    del repo.env["DIBS_BOARD"]
    said = repo.dibs("--board", url, "setup", "claude")
    assert "~/.pgpass" in said.out
    written = (repo.main / ".mcp.json").read_text()
    assert url.replace(f":{SECRET}", "") in written
    again = repo.dibs("--board", url, "setup", "claude")
    assert "nothing was changed" in again.out
    proved = repo.dibs("--board", url, "doctor", "--prove", "--json")
    clients = {client["client"]: client for client in proved.json["clients"]}
    assert clients["claude"]["verdict"] == "guarded", clients["claude"]
    assert SECRET not in said.out + said.err + again.out + proved.out + proved.err
    assert files_with(SECRET, repo.main, repo.folder / "run") == []


def test_a_password_that_somebody_wrote_into_a_configuration_is_not_repeated(repo: Repository, url: str) -> None:
    del repo.env["DIBS_BOARD"]
    repo.dibs("--board", url, "setup", "claude")
    for name in (".mcp.json", ".claude/settings.local.json"):
        file = repo.main / name
        file.write_text(file.read_text().replace("//dibs@", f"//dibs:{SECRET}@"))
    for words in (("doctor", "--prove"), ("--board", url, "doctor", "--prove"), ("doctor", "--prove", "--json")):
        proved = repo.run(sys.executable, "-m", "dibs", *words)
        assert SECRET not in proved.out + proved.err, words


def test_overlaps_are_found_with_whoever_holds_the_files(repo: Repository) -> None:
    for tree in (repo.one, repo.two):
        (tree / "a.py").write_text(f"by {tree.name}\n")
    found = repo.dibs("overlaps", "--json").json
    assert [overlap["path"] for overlap in found["overlaps"]] == ["a.py"]
    assert "bob" in json.dumps(found)
