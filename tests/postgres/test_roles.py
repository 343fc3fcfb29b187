"""What a database role may do with the grants of docs/grants.sql, and what nobody may."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from dibs import TaskBoard
from dibs.errors import DibsError, NotAllowed
from tests.cli.shell import Shell
from tests.postgres.server import Server

GRANTS = Path(__file__).resolve().parents[2] / "docs" / "grants.sql"
READER = """
GRANT USAGE ON SCHEMA dibs TO :"worker";
GRANT SELECT ON ALL TABLES IN SCHEMA dibs TO :"worker";
GRANT SELECT ON ALL SEQUENCES IN SCHEMA dibs TO :"worker";
"""


class Database:
    """A database with a board, and roles that may use it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.new_database()
        self.name = self.url.rpartition("/")[2]
        self._roles: list[str] = []
        TaskBoard.open(f"{self.url}?board=main", create=True, worker="owner").close()

    def role(self, script: str) -> str:
        """A new role with what a script grants it; its URL."""
        name = f'odd "{uuid.uuid4().hex}'
        quoted = sql.Identifier(name).as_string()
        self._server.execute(f"CREATE ROLE {quoted} LOGIN")
        self._roles.append(quoted)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(as_psql_would(script, quoted).encode())
        return self.url.replace("//dibs@", f"//{quote(name)}@")

    def close(self) -> None:
        self._server.execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')
        for quoted in self._roles:
            self._server.execute(f"DROP ROLE {quoted}")


def as_psql_would(script: str, quoted: str) -> str:
    """The script with psql's variable filled in, `:"worker"`, and without what is psql's own."""
    script = re.sub(r"(?ms)^\\if .*?^\\endif$|^\\set .*?$", "", script)
    return re.sub(r':"worker"', lambda _: quoted, script)


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    made = Database(server)
    yield made
    made.close()


@pytest.fixture
def worker(database: Database) -> str:
    return database.role(GRANTS.read_text())


def test_a_worker_can_use_every_verb(worker: str) -> None:
    use_every_verb(f"{worker}?board=main")


def test_a_worker_can_use_boards_that_the_owner_makes_later(database: Database, worker: str) -> None:
    TaskBoard.open(f"{database.url}?board=later", create=True).close()
    use_every_verb(f"{worker}?board=later")


def run_psql(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    psql = server.programs / "psql"
    if not psql.exists():
        pytest.skip("this PostgreSQL has no psql")
    return subprocess.run([str(psql), "-X", "-q", *words], capture_output=True, text=True, check=False)


def test_psql_runs_the_script_as_it_says(server: Server, database: Database) -> None:
    url = database.role("SELECT 1")
    name = unquote(url.partition("//")[2].partition("@")[0])
    done = run_psql(server, "-v", f"worker={name}", "-f", str(GRANTS), database.url)
    assert (done.returncode, done.stderr) == (0, "")
    use_every_verb(f"{url}?board=main")


def test_the_script_without_a_role_fails_and_says_what_is_missing(server: Server, database: Database) -> None:
    done = run_psql(server, "-f", str(GRANTS), database.url)
    assert done.returncode == 3
    assert "no role was named" in done.stderr
    assert "-v worker=ROLE" in done.stderr
    assert "syntax error" not in done.stderr


def test_the_script_fails_as_a_whole(server: Server, database: Database) -> None:
    assert run_psql(server, "-v", "worker=nobody_of_that_name", "-f", str(GRANTS), database.url).returncode == 3
    url = database.role("SELECT 1")
    name = unquote(url.partition("//")[2].partition("@")[0])
    server.execute("DROP TABLE dibs.lock CASCADE", database.name)  # half the way down
    done = run_psql(server, "-v", f"worker={name}", "-f", str(GRANTS), database.url)
    assert done.returncode == 3
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT has_schema_privilege('dibs', 'USAGE')").fetchone() == (False,)


def use_every_verb(url: str) -> None:
    with TaskBoard.open(url, create=True, worker="ann") as board:  # there already: nothing to be made
        board.add("x", id="t", paths=["src"], steps=["one"], labels=["a"])
        board.add_many([{"description": "x", "id": f"n{n}"} for n in range(150)], request_key="k")
        board.add("y", ["t"], id="u")
        task = board.claim("ann", "t")
        assert task is not None
        board.step("t", "done", worker="ann")
        task.renew()
        task.release(note="not now")
        again = board.claim("ann", "t", request_key="k")
        assert again is not None
        again.complete("done")
        for _ in range(3):  # by the fast path, too
            short = board.claim("ann")
            assert short is not None
            short.complete("done")
        following = board.claim("ann")
        assert following is not None
        more = following.complete("done", claim_next=True)
        assert more is not None
        more.fail("broke")
        board.retry(more.id)
        board.depend("n100", ["n101"])
        board.undepend("n100", ["n101"])
        board.block("n100", "why")
        board.unblock("n100")
        board.cancel("n100")
        board.add("for review", id="r", review=True)
        assert board.claim("ann", "r") is not None
        board.complete("r", "done", worker="ann")
        board.reject("r", "no", worker="ben")
        assert board.claim("ann", "r") is not None
        board.complete("r", "done", worker="ann")
        board.accept("r", worker="ben")
        board.lock(["docs"], "ann")
        board.lock(["docs"], "ann")
        assert [lock.pattern for lock in board.locks(["docs/x.md"])] == ["docs"]
        board.unlock(None, "ann")
        board.tell("hello", worker="ben")
        assert [message.content for message in board.inbox("ann")] == ["hello"]
        board.recover()
        board.release_agent_tasks("ann")
        board.store.watermark.follow("open", 0)  # type: ignore[attr-defined]
        assert board.tasks(search="x")[1]
        assert board.status()
        assert board.resolve("u") == "u"
        assert list(board.changelog())
        assert board.recent(task_id="t")
        assert not board.store.wait_change(board.store.mark_change(), 0.01)


REFUSED = [
    "DROP TABLE dibs.task",
    "DROP TABLE dibs.event CASCADE",
    "DROP SCHEMA dibs CASCADE",
    "DROP SEQUENCE dibs.event_1",
    "TRUNCATE dibs.task",
    "TRUNCATE dibs.event",
    "TRUNCATE dibs.message",
    "TRUNCATE dibs.lock",
    "DELETE FROM dibs.task",
    "DELETE FROM dibs.event",
    "DELETE FROM dibs.message",
    "DELETE FROM dibs.board",
    "DELETE FROM dibs.ready_watermark",
    "UPDATE dibs.event SET worker = 'somebody else'",
    "UPDATE dibs.message SET content = 'something else'",
    "UPDATE dibs.board SET name = 'mine'",
    "INSERT INTO dibs.board (name) VALUES ('mine')",
    "INSERT INTO dibs.version (number) VALUES (99)",
    "SELECT setval('dibs.event_1', 1)",
    "SELECT setval('dibs.task_1', 1)",
    "ALTER SEQUENCE dibs.event_1 RESTART",
    "CREATE TABLE dibs.mine (n int)",
    "CREATE FUNCTION dibs.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION dibs.keep_the_past() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "ALTER TABLE dibs.event DISABLE TRIGGER ALL",
    "DROP TRIGGER event_is_append_only ON dibs.event",
    "CREATE INDEX mine ON dibs.task (id)",
]


@pytest.mark.parametrize("reader", [False, True], ids=["worker", "reader"])
def test_a_role_that_does_not_own_the_schema_can_harm_nothing(database: Database, reader: bool) -> None:
    url = database.role(READER if reader else GRANTS.read_text())
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in REFUSED:
            with pytest.raises(pg.InsufficientPrivilege):
                connection.execute(statement.encode())


@pytest.mark.parametrize("column", ["board", "seq", "id", "description", "rank", "paths", "review", "reserved"])
def test_a_worker_cannot_say_that_a_task_is_another_one(worker: str, column: str) -> None:
    with (
        psycopg.connect(worker, autocommit=True) as connection,
        pytest.raises(pg.InsufficientPrivilege),
    ):
        connection.execute(f"UPDATE dibs.task SET {column} = {column}".encode())


def test_what_a_superuser_makes_belongs_to_the_owner(server: Server, database: Database, worker: str) -> None:
    """Or the owner could neither grant nor back up anything any more."""
    TaskBoard.open(f"{server.admin_url(database.name)}&board=another", create=True, worker="postgres").close()
    database.role(GRANTS.read_text())
    for number, url in enumerate((database.url, worker), 1):
        with TaskBoard.open(f"{url}?board=another") as board:
            board.add("x")
            assert board.tasks()[1] == number


def test_the_doctor_names_rights_on_sequences_that_are_missing(database: Database, worker: str, tmp_path: Path) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        role = unquote(worker.partition("//")[2].partition("@")[0]).replace('"', '""')
        connection.execute(f'REVOKE ALL ON SEQUENCE dibs.event_1 FROM "{role}"'.encode())
    told = Shell(tmp_path)("--board", f"{worker}?board=main", "doctor")
    assert "lacks rights: USAGE on dibs.event_1, SELECT on dibs.event_1" in " ".join(told.out.split())
    assert told.code == 1


def test_a_worker_cannot_make_a_board_and_is_told_who_can(worker: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        TaskBoard.open(f"{worker}?board=mine", create=True)
    assert "nothing was changed" in caught.value.message
    assert "boards are made by the owner of the schema dibs, who is dibs here" in caught.value.hint


def test_a_user_who_may_make_no_schema_is_told_what_to_grant(server: Server, database: Database) -> None:
    empty = server.new_database()
    name = empty.rpartition("/")[2]
    role = database.role("SELECT 1").partition("//")[2].partition("@")[0]
    with pytest.raises(NotAllowed) as caught:
        TaskBoard.open(empty.replace("//dibs@", f"//{role}@"), create=True)
    user = '"' + unquote(role).replace('"', '""') + '"'
    assert f"GRANT CREATE ON DATABASE {name} TO {user}" in caught.value.hint
    server.execute(f"GRANT CREATE ON DATABASE {name} TO {user}")
    TaskBoard.open(empty.replace("//dibs@", f"//{role}@"), create=True).close()
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")  # before its role


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dibs.event SET worker = 'somebody else'",
        "UPDATE dibs.event SET worker = 'somebody else' WHERE false",
        "DELETE FROM dibs.event",
        "TRUNCATE dibs.event",
        "INSERT INTO dibs.event SELECT * FROM dibs.event ON CONFLICT (board, seq) DO UPDATE SET worker = 'x'",
    ],
)
def test_not_even_the_owner_changes_the_past(database: Database, statement: str) -> None:
    with TaskBoard.open(database.url, worker="owner") as board:
        board.add("x")
        before = list(board.changelog())
        with (
            psycopg.connect(database.url, autocommit=True) as connection,
            pytest.raises(pg.RaiseException, match="append-only"),
        ):
            connection.execute(statement.encode())
        assert list(board.changelog()) == before


def test_a_reader_can_look_and_is_told_clearly_that_it_can_do_no_more(database: Database) -> None:
    with TaskBoard.open(database.url, worker="owner") as owner:
        owner.add("x", id="t", paths=["src"])
        owner.tell("hello")
        owner.add("z", id="u", priority=1)
        mine = owner.claim("owner", "u")
        assert mine is not None
        with TaskBoard.open(database.role(READER), worker="guest") as board:
            assert board.get("t").description == "x"
            assert board.tasks()[1] == 2
            assert [event.action for event in board.changelog()][-2:] == ["added_activity", "claimed_activity"]
            assert board.recent(task_id="t")
            assert board.messages()
            assert board.ready()
            assert board.locks() == []
            assert board.counts()
            writes: list[Callable[[], object]] = [
                lambda: board.claim("guest"),
                lambda: board.claim("guest", "t"),
                lambda: board.add("y"),
                lambda: board.tell("no"),
                lambda: board.lock(["src"], "guest"),
                lambda: board.complete("u", token=mine.token),
                lambda: board.inbox("guest"),
            ]
            for write in writes:
                with pytest.raises(DibsError) as caught:
                    write()
                assert isinstance(caught.value, NotAllowed), caught.value
                assert "may not" in caught.value.message
                assert "nothing was changed" in caught.value.message
                assert caught.value.hint
        assert owner.get("t").status == "pending"
        assert owner.get("u").status == "in_progress"


def test_a_role_without_any_grant_is_told_clearly(database: Database) -> None:
    with pytest.raises(NotAllowed) as caught:
        TaskBoard.open(database.role("SELECT 1"))
    assert "dibs" in caught.value.message
