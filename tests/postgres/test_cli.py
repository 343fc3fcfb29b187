"""The command line on a PostgreSQL board: every command takes its address, none shows its password, errors say what to
do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard, Worker
from dibs.errors import BoardUnusable, Invalid
from dibs.stores.postgres import addresses
from tests.cli.shell import PATIENCE, Shell, environment
from tests.postgres.bouncer import bouncer
from tests.postgres.server import Server
from tests.structure.test_imports import modules_of

SECRET = "open-sesame"
SOON = 18.0
"""Seconds in which every error is told."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder that is no repository, and no board in it."""
    return Shell(tmp_path)


def with_password(url: str) -> str:
    return url.replace("//dibs@", f"//dibs:{SECRET}@")


@pytest.fixture
def url(server: Server) -> str:
    """The address of a new board, in a database of its own, with a password (which the server does not ask for)."""
    made = with_password(server.new_database() + "?board=web")
    TaskBoard.open(made, create=True, worker="maker").close()
    return made


def refused(shell: Shell, *words: str, board: str | None = None) -> dict[str, Any]:
    """The error of a command that fails, the same with and without --json, soon, and without the password."""
    environ: dict[str, Any] = {} if board is None else {"DIBS_BOARD": board}
    begun = time.monotonic()
    told = shell(*words, "--json", **environ)
    assert time.monotonic() - begun < SOON
    assert told.code == 1, told
    error: dict[str, Any] = told.error
    plain = shell(*words, **environ)
    assert plain.code == 1, plain
    assert plain.out == ""
    assert error["hint"]
    assert plain.err.startswith(f"dibs: {error['message']}")
    assert "Traceback" not in plain.err
    assert SECRET not in plain.err + told.err
    return error


# -- the address


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgres://ann:pw@db/work", "postgresql://ann@db/work"),
        ("postgresql://ann@db:99/work?board=main", "postgresql://ann@db:99/work"),
        ("postgresql://ann:p%40w@[::1]/work?board=a+b", "postgresql://ann@[::1]/work?board=a%2Bb"),
        ("postgresql://ann:p#w?x@db/work", "postgresql://ann@db/work"),
        (
            "postgresql:///work?host=/tmp&password=pw&board=%C3%A4",
            "postgresql:///work?host=/tmp&board=%C3%A4",
        ),
        ("postgresql://a,b:1,c/work?target_session_attrs=any", "postgresql://a,b:1,c/work?target_session_attrs=any"),
    ],
)
def test_an_address_is_shown_without_its_password(given: str, shown: str) -> None:
    assert addresses.shown(given) == shown
    assert addresses.parse(given).shown == shown
    assert addresses.shown(shown) == shown
    assert addresses.has_password(given) is ("pw" in given or "p%40w" in given or "p#w" in given)


def test_what_is_a_password_is_left_to_libpq() -> None:
    from psycopg.conninfo import conninfo_to_dict

    for written, meant in (("a+b", "a+b"), ("a%40%2F%25b", "a@/%b"), ("a#?b", "a#?b")):
        assert conninfo_to_dict(addresses.parse(f"postgresql://u:{written}@h/d").conninfo)["password"] == meant


@pytest.mark.parametrize(
    "given",
    [
        f"postgresql://ann:{SECRET}@{SECRET}@db/work",
        f"postgresql://ann:{SECRET}/{SECRET}@db/work",
        f"postgresql://ann:%zz{SECRET}@db/work",
        f"postgresql://ann:{SECRET}@db/work?board",
        f"postgresql://ann:{SECRET}@db/work?board=",
        f"postgresql://ann:{SECRET}@db/work?board=a&board=b",
        f"postgresql://ann:{SECRET}@db/work?no_such_option=1",
        f"postgresql:ann:{SECRET}@db",
    ],
)
def test_an_address_that_is_none_is_refused_without_a_word_of_its_password(given: str) -> None:
    with pytest.raises(Invalid) as caught:
        addresses.parse(given)
    assert SECRET not in str(caught.value)
    assert SECRET not in addresses.public(given)


# -- every command


def test_a_day_of_work_by_the_command_line(shell: Shell, server: Server, tmp_path: Path) -> None:
    url = with_password(server.new_database() + "?board=web")
    environ: dict[str, Any] = {"DIBS_BOARD": url}
    said = [shell.ok("init", "--board", url)]
    assert "PGPASSWORD" in said[0].out
    assert shell.ok("init", "--json", **environ).json["created"] is False

    def run(*words: str) -> str:
        said.append(shell.ok(*words, **environ))
        return said[-1].out

    first = json.loads(run("add", "Write the page", "--path", "src/**", "--json"))["id"]
    run("add", "Test the page", "--needs", first, "--id", "second")
    run("claim")
    run("tell", "worker-2", "hello")
    run("inbox")
    run("lock", "README.md")
    run("locks")
    run("done", first, "done")
    assert json.loads(run("claim", "--json"))["id"] == "second"
    run("list")
    run("show", "second")
    run("ready")
    run("log")
    run("prime")
    run("recover")
    run("completion", "ids")
    run("release", "second")
    run("export", "board.jsonl")
    doctor = json.loads(run("doctor", "--json"))
    assert doctor["ok"] is True
    assert doctor["changelog"]["agrees"] is True
    assert doctor["server"]["board"] == "web"
    assert doctor["server"]["schema"] == doctor["server"]["newest_schema"]
    assert doctor["server"]["round_trip_ms"] > 0
    assert "PostgreSQL" in run("doctor")
    assert SECRET not in "".join(each.out + each.err for each in said) + (tmp_path / "board.jsonl").read_text()


def test_what_dibs_runs_reaches_the_board_as_we_do(shell: Shell, url: str) -> None:
    shell.ok("--board", url, "add", "a task")
    program = "import os, sys; sys.stdout.write(os.environ['DIBS_BOARD'])"
    ran = shell.ok("--board", url, "run", "--", sys.executable, "-c", program)
    assert ran.out == url
    assert SECRET not in ran.err


def test_no_row_of_the_board_holds_the_password(shell: Shell, url: str, tmp_path: Path) -> None:
    """Copies tell where they came from."""
    shell.ok("--board", url, "add", "a task")
    shell.ok("copy", url, f"taskboard:{tmp_path}/state")
    other = url.replace("board=web", "board=back")
    shell.ok("copy", f"taskboard:{tmp_path}/state", other)
    shell.ok("copy", other, f"sqlite:{tmp_path}/last.db")
    with TaskBoard.open(f"sqlite:{tmp_path}/last.db") as board:
        log = [(event.action, event.details, event.data) for event in board.changelog()]
    assert any(action == "copied_board" for action, _, _ in log)
    assert SECRET not in str(log)
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


# -- boards


def test_the_boards_of_a_database_are_listed(shell: Shell, url: str) -> None:
    shell.ok("--board", url, "add", "a task")
    shell.ok("--board", url, "add", "another", "--id", "second")
    shell.ok("--board", url, "claim", "second")
    shell.ok("--board", url, "done", "second", "ok")
    shell.ok("init", "--board", url.replace("board=web", "board=api"))
    listed = shell.ok("boards", url, "--json")
    assert SECRET not in listed.out
    document = listed.json
    assert (document["total"], document["more"]) == (2, False)
    api, web = document["boards"]
    assert (api["name"], api["open"], api["tasks"]) == ("api", 0, 0)
    assert (web["name"], web["open"], web["tasks"]) == ("web", 1, 2)
    assert web["created_at"] <= web["changed_at"]
    assert shell.ok("list", "--json", DIBS_BOARD=web["board"]).json["total"] == 1
    text = shell.ok("boards", DIBS_BOARD=url.replace("board=web", "board=nowhere")).out
    assert [line.split()[:3] for line in text.splitlines()] == [
        ["BOARD", "OPEN", "TASKS"],
        ["api", "0", "0"],
        ["web", "1", "2"],
        ["2", "boards"],
    ]


def test_a_database_without_boards_has_none(shell: Shell, server: Server) -> None:
    empty = server.new_database()
    assert shell.ok("boards", empty, "--json").json == {"boards": [], "total": 0, "more": False}
    assert "dibs init --board" in shell.ok("--board", empty, "boards").out


def test_only_a_database_has_boards_to_list(shell: Shell) -> None:
    assert "dibs boards postgresql://" in refused(shell, "boards")["hint"]
    assert "sqlite:x.db" in refused(shell, "boards", board="sqlite:x.db")["message"]
    assert shell("--board", "a", "boards", "b").code == 2


# -- errors


def blocked(*modules: str) -> list[str]:
    """dibs in an interpreter that has not these packages."""
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from dibs.cli import main
sys.exit(main(sys.argv[1:]))
"""
    return [sys.executable, "-c", program]


@pytest.mark.parametrize("words", [("list",), ("boards",), ("init",), ("doctor",), ("copy", ".", "URL")])
def test_without_the_driver_it_says_what_to_install(tmp_path: Path, words: tuple[str, ...]) -> None:
    TaskBoard.open(f"sqlite:{tmp_path}/.dibs/board.db", create=True).close()
    url = f"postgresql://ann:{SECRET}@127.0.0.1:1/work"
    done = subprocess.run(
        [*blocked("psycopg"), *(url if word == "URL" else word for word in words)],
        env=environment() if words[0] == "copy" else environment(DIBS_BOARD=url),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "psycopg" in said
    assert f"{sys.executable} -m pip install 'psycopg[binary]" in " ".join(said.split())
    assert SECRET not in said


def test_a_server_that_is_down(shell: Shell) -> None:
    error = refused(shell, "--board", f"postgresql://ann:{SECRET}@127.0.0.1:1/work", "claim")
    assert error["code"] == "board_unusable"
    assert "cannot connect to postgresql://ann@127.0.0.1:1/work" in error["message"]
    assert "no server listens there" in error["hint"]


def test_a_host_that_is_not_known(shell: Shell) -> None:
    error = refused(shell, "--board", f"postgresql://ann:{SECRET}@no-such-host.invalid/work", "claim")
    assert "no host of that name" in error["hint"], error


def test_a_misspelt_parameter(shell: Shell) -> None:
    error = refused(shell, "--board", f"postgresql://ann:{SECRET}@127.0.0.1:1/work?bord=web", "list")
    assert "did you mean board=web?" in error["hint"]


def test_a_role_with_a_limit_of_its_own_that_is_reached(shell: Shell, own_server: Server) -> None:
    own_server.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    error = refused(shell, "--board", own_server.url().replace("//dibs@", "//crowded@"), "list")
    assert "ALTER ROLE crowded CONNECTION LIMIT" in error["hint"]


def test_a_server_that_offers_no_encryption(shell: Shell, server: Server) -> None:
    error = refused(shell, "--board", server.url(sslmode="require"), "list")
    assert "leave out sslmode" in error["hint"]


def test_a_wrong_password(shell: Shell, own_server: Server) -> None:
    url = own_server.new_database()
    ((file,),) = own_server.execute("SHOW hba_file")
    rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256"
    lines = ", ".join(f"('{line}')" for line in rules.split("\n"))
    own_server.execute(f"ALTER ROLE dibs PASSWORD '{SECRET}'")
    own_server.execute(f"COPY (VALUES {lines}) TO '{file}'")
    own_server.execute("SELECT pg_reload_conf()")
    shell.ok("init", "--board", with_password(url))
    wrong = with_password(url).replace(SECRET, SECRET + "-not")
    error = refused(shell, "--board", wrong, "list")
    assert "password authentication failed" in error["message"]
    assert "PGPASSWORD" in error["hint"]
    without = refused(shell, "--board", url, "list")
    assert without["code"] == "board_unusable"
    fits = f"{own_server.host}:{own_server.port}:{url.rpartition('/')[2]}:dibs"
    assert f"no line of ~/.pgpass fits {fits}" in without["hint"]
    assert shell.ok("--board", url, "list", PGPASSWORD=SECRET).code == 0


def test_a_wrong_database(shell: Shell, server: Server) -> None:
    error = refused(shell, "--board", with_password(server.url("no-such-database", board="web")), "list")
    assert 'database "no-such-database" does not exist' in error["message"]
    assert """CREATE DATABASE "no-such-database" OWNER dibs ENCODING 'UTF8' TEMPLATE template0""" in error["hint"]
    assert f"dibs init --board '{server.url('no-such-database', board='web')}'" in error["hint"]


def test_a_database_without_boards(shell: Shell, server: Server) -> None:
    error = refused(shell, "--board", with_password(server.new_database()), "list")
    assert error["code"] == "no_board"
    assert "dibs init --board" in error["hint"]


def test_a_misspelt_board(shell: Shell, url: str) -> None:
    misspelt = url.replace("board=web", "board=wbe")
    for words in (("--board", misspelt, "claim"), ("copy", misspelt, "sqlite:new.db")):
        error = refused(shell, *words)
        assert error["code"] == "no_board"
        assert "did you mean web?" in error["hint"]
        assert "dibs boards" in error["hint"]
    doctor = shell("doctor", "--json", DIBS_BOARD=misspelt)
    assert doctor.code == 1
    assert SECRET not in doctor.out
    assert doctor.json["findings"][0]["code"] == "no_board"


def test_a_database_of_another_encoding(shell: Shell, server: Server) -> None:
    name = f"latin{os.urandom(6).hex()}"
    server.execute(
        f"CREATE DATABASE {name} OWNER dibs ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    error = refused(shell, "--board", with_password(server.url(name)), "init")
    assert "LATIN1" in error["message"]
    assert "ENCODING 'UTF8'" in error["hint"]


def test_a_schema_of_a_newer_dibs(shell: Shell, url: str, server: Server) -> None:
    shell.ok("--board", url, "list")
    database = url.rpartition("/")[2].partition("?")[0]
    server.execute("INSERT INTO dibs.version (number) VALUES (999)", database)
    for words in (("list",), ("init",), ("boards",)):
        error = refused(shell, "--board", url, *words)
        assert "newer dibs" in error["message"]
        assert "upgrade" in error["hint"]


def test_a_board_of_an_older_dibs_is_brought_up_to_date_by_init_and_keeps_its_tasks(server: Server) -> None:
    url = server.new_database()
    database = url.rpartition("/")[2]
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.add("kept", id="kept")
    server.execute(
        """
        DELETE FROM dibs.version WHERE number > 1;
        DROP INDEX dibs.task_ready_any;
        ALTER INDEX dibs.ready_watermark_pkey RENAME TO front_pkey;
        ALTER TABLE dibs.ready_watermark RENAME TO front;
        ALTER TABLE dibs.front RENAME COLUMN queue TO lane;
        ALTER TABLE dibs.front RENAME COLUMN floor TO low;
        ALTER TABLE dibs.task RENAME COLUMN claim_mark TO stamp;
        """,
        database,
    )
    with pytest.raises(BoardUnusable, match="was made by an older dibs") as refused:
        TaskBoard.open(url)
    assert "dibs init --board" in (refused.value.hint or "")
    with TaskBoard.open(url, create=True, worker="maker") as board:
        task = board.claim(Worker("eve", "human"))
        assert task is not None
        assert task.id == "kept"


def test_a_database_user_who_may_only_look(shell: Shell, url: str, server: Server) -> None:
    database = url.rpartition("/")[2].partition("?")[0]
    role = f"looker{os.urandom(6).hex()}"
    server.execute(f"CREATE ROLE {role} LOGIN")
    try:
        server.execute(f"GRANT USAGE ON SCHEMA dibs TO {role}", database)
        server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA dibs TO {role}", database)
        looking = url.replace("//dibs:", f"//{role}:")
        doctor = shell("--board", looking, "doctor", "--json")
        assert doctor.code == 1
        assert [finding["code"] for finding in doctor.json["findings"]] == ["not_allowed"]
        assert refused(shell, "--board", looking, "add", "a task")["code"] == "not_allowed"
        making = looking.replace("board=web", "board=new")
        error = refused(shell, "--board", making, "init")
        assert error["code"] == "not_allowed"
        assert error["hint"].endswith(f"dibs boards '{addresses.shown(making)}'")
    finally:
        server.execute(f"DROP OWNED BY {role}", database)
        server.execute(f"DROP ROLE {role}")


# -- numbers that jump, and what is said beside the error


def test_a_changelog_whose_numbers_jump_is_counted_by_its_entries(shell: Shell, url: str, server: Server) -> None:
    database = url.rpartition("/")[2].partition("?")[0]
    shell.ok("--board", url, "add", "a task")
    server.execute("SELECT setval('dibs.event_1', nextval('dibs.event_1') + 1000000)", database)
    shell.ok("--board", url, "add", "another")
    doctor = shell.ok("--board", url, "doctor", "--json").json
    changelog = doctor["changelog"]
    assert changelog["last_event"] > 1_000_000
    assert (changelog["entries"], changelog["replayed"], changelog["agrees"]) == (3, True, True)
    assert doctor["server"]["host"] == server.host
    assert doctor["server"]["port"] == server.port
    text = " ".join(shell.ok("--board", url, "doctor").out.split())
    assert "3 entries, up to 1,000,0" in text
    assert f"at {server.host}:{server.port}, database" in text
    assert "the last 2, up to number 1,000,0" in shell.ok("--board", url, "log", "-n", "2").out
    shell.ok("copy", url, "sqlite:copy.db")
    copied = shell.ok("--board", "sqlite:copy.db", "doctor", "--json").json["changelog"]
    assert (copied["entries"], copied["replayed"], copied["agrees"]) == (3, True, True)


def test_doctor_says_whether_a_pooler_stands_between(shell: Shell, url: str, server: Server, tmp_path: Path) -> None:
    assert shell.ok("--board", url, "doctor", "--json").json["server"]["pooler"] is False
    assert "pooler" not in shell.ok("--board", url, "doctor").out
    with bouncer(server, url, tmp_path) as address:
        assert shell.ok("--board", address, "doctor", "--json").json["server"]["pooler"] is True
        text = " ".join(shell.ok("--board", address, "doctor").out.split())
        assert f"behind a pooler at {server.host}:" in text


def test_the_board_of_the_repositorys_clients_is_named_where_none_is_found(
    shell: Shell, url: str, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    shell.ok("setup", "claude", "--board", url)
    shown = url.replace(f":{SECRET}", "")
    for words in (("list",), ("prime",)):
        error = refused(shell, *words)
        assert error["code"] == "no_board"
        assert f"this repository's clients (claude) use another: export DIBS_BOARD='{shown}'" in error["hint"]
    doctor = shell("doctor")
    assert doctor.code == 1
    assert f"exportDIBS_BOARD='{shown}'" in "".join(doctor.out.split())  # it is too long for a line
    assert "looked for in" in doctor.out
    assert "found from" not in doctor.out
    made = shell.ok("init")
    assert f"export DIBS_BOARD='{shown}'" in made.out
    assert SECRET not in doctor.out + made.out


def test_a_copy_says_what_to_do_next(shell: Shell, url: str) -> None:
    shell.ok("--board", url, "add", "a task")
    other = url.replace("board=web", "board=copy")
    said = shell.ok("copy", url, other).out
    assert "the source is still there, unchanged" in said
    assert f"export DIBS_BOARD='{other.replace(f':{SECRET}', '')}'" in said


def test_an_export_is_restored_beside_its_board(shell: Shell, url: str) -> None:
    said = shell.ok("--board", url, "export", "board.jsonl").out
    beside = url.replace(f":{SECRET}", "").replace("board=web", "board=new")
    assert f"dibs --board '{beside}' import board.jsonl" in said
    shell.ok("--board", beside, "import", "board.jsonl")


# -- rows that were changed without dibs


def database_of(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


def test_edges_and_counters_that_are_not_what_the_tasks_say_are_a_finding(
    shell: Shell, url: str, server: Server
) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add_many([{"description": name, "id": name} for name in ("a", "b", "c")])
        board.add("d", id="d", depends_on=["a", "b"])
    with TaskBoard.open(url.replace("board=web", "board=other"), create=True, worker="maker") as board:
        board.add("a", id="a")
        board.add("b", id="b", depends_on=["a"])
    assert shell.ok("--board", url, "doctor", "--json").json["edges"] == {"agree": True, "differences": []}
    for statement in (
        "DELETE FROM dibs.dependency WHERE board = 1 AND needs = 2",
        "INSERT INTO dibs.dependency (board, needs, task) VALUES (1, 1, 2), (1, 77, 2)",
        "UPDATE dibs.task SET dependants = 5 WHERE board = 1 AND id = 'c'",
    ):
        server.execute(statement, database_of(url))
    doctor = shell("--board", url, "doctor", "--json")
    assert doctor.code == 1
    assert [finding["code"] for finding in doctor.json["findings"]] == ["edges_differ"]
    assert doctor.json["edges"]["differences"] == [
        "task d needs b, and has no edge to it",
        "task b has an edge to a, and does not need it",
        "task b has an edge to number 77, and does not need it",
        "task c counts 5 dependants, and has 0",
    ]
    new = url.replace("board=web", "board=new")
    shell.ok("copy", url, new)
    for well in (new, url.replace("board=web", "board=other")):
        assert shell.ok("--board", well, "doctor", "--json").json["edges"]["agree"]


def test_a_lock_that_was_deleted_by_hand_is_named_and_a_copy_says_how_to_go_on(
    shell: Shell, url: str, server: Server
) -> None:
    shell.ok("--board", url, "add", "a task", "--id", "a", "--path", "src/a.py")
    shell.ok("--board", url, "claim", "a")
    server.execute("DELETE FROM dibs.lock", database_of(url))
    error = refused(shell, "copy", url, "sqlite:copy.db")
    assert error["message"] == "the board's locks are not what its changelog says; nothing was copied"
    assert f"dibs --board '{url.replace(f':{SECRET}', '')}' doctor" in error["hint"]
    assert "the lock on src/a.py" in shell("--board", url, "doctor", "--json").json["findings"][0]["message"]
    shell.ok("--board", url, "done", "a", "done")
    shell.ok("copy", url, "sqlite:copy.db")


# -- a claim that a restore has undone


def restored(server: Server, url: str, dump: bytes) -> None:
    """As if nobody had been stopped before it, as the docs ask for."""
    command = [
        str(server.programs / "pg_restore"),
        "--clean",
        "--single-transaction",
        "-d",
        server.admin_url(database_of(url)),
    ]
    subprocess.run(command, input=dump, check=True, timeout=PATIENCE)


@pytest.mark.parametrize("taken", ["nobody", "at once", "with the same number", "with a later number"])
def test_a_run_whose_claim_a_restore_has_undone_says_so_and_ends_nobody_elses(
    shell: Shell, url: str, server: Server, taken: str
) -> None:
    shell.ok("--board", url, "add", "a task", "--id", "a", "--path", "src/a.py")
    command = [str(server.programs / "pg_dump"), "-Fc", server.admin_url(database_of(url))]
    dump = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout
    script = "echo started; read _" if taken == "at once" else "echo started; exec sleep 60"
    with subprocess.Popen(
        [sys.executable, "-m", "dibs", "run", "--", "sh", "-c", script],
        cwd=shell.folder,
        env=shell.environ | {"DIBS_BOARD": url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        restored(server, url, dump)
        if taken == "with a later number":
            server.execute("SELECT setval('dibs.event_1', nextval('dibs.event_1') + 1000)", database_of(url))
        if taken != "nobody":
            shell.ok("--board", url, "--as", "other", "claim", "a")
        _, err = process.communicate("\n" if taken == "at once" else None, timeout=PATIENCE)
    assert process.returncode == 1
    assert "task a is no longer yours: the board does not know this claim any more" in err
    assert "lease" not in err
    now = shell.ok("--board", url, "show", "a", "--json").json
    assert (now["status"], now["assigned_to"]) == (("pending", None) if taken == "nobody" else ("in_progress", "other"))


def test_a_list_knows_which_files_others_hold(shell: Shell, url: str) -> None:
    with TaskBoard.open(url, worker="maker") as board:
        board.add("a", id="a", paths=["src/a.py"])
        board.add("b", id="b", paths=["src/**"])
    shell.ok("--board", url, "claim", "a")
    rows = shell.ok("--board", url, "--as", "worker-2", "list", "--json").json["tasks"]
    assert [(row["id"], row["ready"]) for row in rows] == [("a", False), ("b", False)]
    said = shell.ok("--board", url, "--as", "worker-2", "list").out
    assert "1 task waits for files that somebody else holds" in said


# -- what is loaded


def test_only_a_postgresql_board_loads_the_driver(tmp_path: Path, url: str) -> None:
    local = f"sqlite:{tmp_path}/board.db"
    TaskBoard.open(local, create=True).close()
    environ = {"DIBS_AGENT": "w", "DIBS_SESSION": "s"}
    assert "psycopg" in modules_of("-m", "dibs", "list", env={**environ, "DIBS_BOARD": url})
    for words in (("list",), ("add", "a task"), ("claim",), ("export",), ("copy", local, f"sqlite:{tmp_path}/2.db")):
        env = {**environ, **({} if words[0] == "copy" else {"DIBS_BOARD": local})}
        loaded = modules_of("-m", "dibs", *words, env=env)
        assert not {name for name in loaded if name.startswith(("psycopg", "dibs.stores.postgres.store"))}, words
