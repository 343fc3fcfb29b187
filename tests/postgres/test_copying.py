"""Whole boards between SQLite and PostgreSQL, both ways: to the last digit, or not at all."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dibs import DibsError, TaskBoard, Worker
from dibs.address import open_store
from dibs.copying import copy, is_same
from dibs.model import BoardTask, Event
from dibs.transfer import dump, load
from tests.cli.shell import PATIENCE, Shell, environment
from tests.postgres.proxy import Fault, Proxy
from tests.postgres.server import Server
from tests.processes.harness import new_seed, wait_until
from tests.unit.test_copying import furnish

BEN = Worker("ben", "human", session="s2")
MANY = 3000


@pytest.fixture
def place(server: Server) -> str:
    """The address of an empty database, without a board."""
    return server.new_database()


def lived_in(url: str, seed: int, verbs: int = 150) -> None:
    """A board with a history: whatever `furnish` makes, and then verbs by chance."""
    rng = random.Random(seed)
    with TaskBoard.open(url, create=True, worker="maker") as board:
        furnish(board)
        ids: list[str] = []
        for number in range(verbs):
            me = Worker(f"worker-{rng.randrange(3)}", session=f"s{rng.randrange(2)}")
            try:
                match rng.randrange(8):
                    case 0 | 1:
                        needs = rng.sample(ids, min(len(ids), rng.randrange(3)))
                        key = f"k{number}" if rng.random() < 0.3 else None
                        paths = [f"p{rng.randrange(20)}/**"] if rng.random() < 0.4 else []
                        ids.append(board.add(f"task {number} ☃", depends_on=needs, request_key=key, paths=paths))
                    case 2 | 3:
                        board.claim(me, request_key=f"c{number}" if rng.random() < 0.3 else None)
                    case 4:
                        held = board.tasks(["in_progress"], assigned_to=me.name)[0]
                        if held:
                            board.complete(rng.choice(held).id, f"result {number}", worker=me)
                    case 5:
                        board.lock([f"q{rng.randrange(9)}/x.py"], me, shared=rng.random() < 0.5)
                    case 6:
                        board.tell(f"message {number}", None if rng.random() < 0.3 else "worker-1", worker=me)
                    case _:
                        board.inbox(me)
            except DibsError:
                pass  # somebody else's, or not now


def lines(url: str) -> list[str]:
    with TaskBoard.open(url) as board:
        return list(dump(board))


def test_there_and_back_again_nothing_is_lost(shell: Shell, place: str, tmp_path: Path) -> None:
    seed = new_seed()
    first, last = f"sqlite:{tmp_path}/first.db", f"sqlite:{tmp_path}/last.db"
    lived_in(first, seed)
    there = f"{place}?board=there"
    told = shell.ok("copy", first, there, "--json").json
    assert (told["exact"], told["created"], told["to"]) == (True, True, there)
    shell.ok("copy", there, f"{place}?board=beside")
    shell.ok("copy", f"{place}?board=beside", last)
    expected = lines(first)
    assert lines(there) == lines(f"{place}?board=beside") == lines(last) == expected
    exported = shell.ok("--board", there, "export").out
    assert exported.splitlines() == expected
    shell.ok("--board", f"{place}?board=imported", "import", "-", stdin=exported)
    assert lines(f"{place}?board=imported") == expected
    assert shell.ok("--board", f"{place}?board=imported", "doctor", "--json").json["changelog"]["agrees"] is True


def test_a_board_that_lived_in_postgresql_goes_to_sqlite_and_back(shell: Shell, place: str, tmp_path: Path) -> None:
    seed = new_seed()
    source = f"{place}?board=source"
    lived_in(source, seed)
    shell.ok("copy", source, f"sqlite:{tmp_path}/board.db")
    shell.ok("copy", f"sqlite:{tmp_path}/board.db", f"{place}?board=back")
    assert lines(f"sqlite:{tmp_path}/board.db") == lines(f"{place}?board=back") == lines(source)


def test_a_copied_board_goes_on_where_it_was(place: str, tmp_path: Path) -> None:
    """New tasks, events and tokens come after those that were copied, and the best task is claimed first."""
    with TaskBoard.open(f"sqlite:{tmp_path}/board.db", create=True, worker="maker") as source:
        source.add_many([{"description": f"task {n}", "priority": n % 3, "id": f"t{n}"} for n in range(30)])
        source.add("waits", depends_on=["t29"], id="waiting")
        with TaskBoard.open(place, create=True, worker="maker") as target:
            copy(source, target, BEN)
            newest = target.recent(1)[0].seq
            mine = target.claim("ann")
            theirs = source.claim("ann")
            assert mine is not None
            assert theirs is not None
            assert (mine.id, mine.token) == (theirs.id, newest + 1) == ("t2", theirs.token)
            assert target.get(target.add("new")).seq == 32
            done = target.claim("ann", "t29")
            assert done is not None
            done.complete("ok")
            assert target.get("waiting").unmet == 0


def test_an_export_comes_in_from_a_pipe_that_cannot_be_read_twice(shell: Shell, place: str, tmp_path: Path) -> None:
    lived_in(f"sqlite:{tmp_path}/board.db", new_seed(), 20)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"cat > {pipe}"], stdin=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        text = "\n".join(lines(f"sqlite:{tmp_path}/board.db")) + "\n"
        writer.stdin.write(text)
        writer.stdin.close()
        shell.ok("--board", place, "import", str(pipe))
    assert lines(place) == text.splitlines()


def test_two_boards_of_a_database_are_not_the_same() -> None:
    one = "postgresql://ann@db/work"
    assert is_same(one, one)
    assert not is_same(one, f"{one}?board=web")
    assert not is_same(f"{one}?board=api", f"{one}?board=web")


def test_a_board_is_not_copied_onto_itself_or_onto_one_with_tasks(shell: Shell, place: str) -> None:
    for name in ("one", "two"):
        shell.ok("--board", f"{place}?board={name}", "init")
        shell.ok("--board", f"{place}?board={name}", "add", "a task")
    before = lines(f"{place}?board=two")
    assert "are the same board" in shell("copy", f"{place}?board=one", f"{place}?board=one").err
    assert "tasks of its own" in shell("copy", f"{place}?board=one", f"{place}?board=two").err
    assert lines(f"{place}?board=two") == before


# -- one state


@contextmanager
def unfinished(url: str) -> Iterator[None]:
    """Somebody's message has its number, and is not committed yet."""
    with (
        psycopg.connect(url.partition("?")[0]) as gate,
        TaskBoard.open(url, worker="late") as board,
        ThreadPoolExecutor(1) as threads,
    ):
        gate.execute("LOCK TABLE dibs.request IN EXCLUSIVE MODE")
        told = threads.submit(board.tell, "not said yet", request_key="once")
        try:
            waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'dibs.request'::regclass AND NOT granted"
            wait_until(lambda: gate.execute(waiting).fetchall()[0][0] == 1, "the message waits to be remembered")
            yield
        finally:
            gate.rollback()
            told.result(PATIENCE)


@pytest.mark.parametrize("how", ["export", "copy", "copy into files"])
def test_what_was_said_is_in_a_copy_though_an_earlier_number_is_still_under_way(
    place: str, tmp_path: Path, how: str
) -> None:
    with TaskBoard.open(place, create=True, worker="ann") as board, unfinished(place):
        said = board.tell("said", "ben")
        if how == "copy into files":
            with TaskBoard.open(f"taskboard:{tmp_path}/files", create=True, worker=BEN) as files:
                assert copy(board, files, BEN).messages_left_out == 1
            return
        with TaskBoard.open(f"sqlite:{tmp_path}/board.db", create=True, worker="ann") as target:
            if how == "copy":
                assert copy(board, target, BEN).messages == 1
            else:
                load(target, dump(board))
            assert [message.seq for message in target.inbox("ben")] == [said.seq]
            told = [event.seq for event in target.changelog() if event.action == "sent_message"]
            assert told == [said.seq]


def test_the_newest_messages_are_all_that_can_be_seen(place: str) -> None:
    """An inbox waits for earlier numbers, because its mark passes over them; a look does not."""
    with TaskBoard.open(place, create=True, worker="ann") as board, unfinished(place):
        said = board.tell("said", "ben")
        assert [message.seq for message in board.messages()] == [said.seq]
        assert board.inbox("ben") == []


# -- slowly


OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'dibs'"
OPEN += " AND xact_start IS NOT NULL"


def test_who_pages_through_an_export_keeps_no_transaction_open_and_gets_it_all(place: str) -> None:
    with TaskBoard.open(place, create=True, worker="maker") as board:
        board.add_many([{"description": f"task {n} " + "x" * 500} for n in range(500)])  # more than a pipe holds
    command = [sys.executable, "-m", "dibs", "--board", place, "export", "-"]
    pipe: Any = subprocess.PIPE
    with (
        psycopg.connect(place, autocommit=True) as watch,
        subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True) as export,
    ):
        assert export.stdout is not None
        assert export.stderr is not None
        first = export.stdout.readline()
        wait_until(lambda: watch.execute(OPEN).fetchall()[0][0] == 0, "no transaction is open")
        assert export.poll() is None
        rest, said = export.stdout.read(), export.stderr.read()
    assert (export.returncode, said) == (0, "")
    assert (first + rest).splitlines() == lines(place)


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_copy_outlasts_pauses_that_end_a_transaction_which_writes(
    place: str, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived_in(place, new_seed(), 20)
    url = f"sqlite:{tmp_path}/board.db" if target == "sqlite" else f"{place}?board=target"
    monkeypatch.setattr("dibs.stores.postgres.tx.QUIET", "100ms")

    def pause(what: str, done: int, total: int) -> None:
        if what.startswith("checking"):
            time.sleep(0.3)

    with TaskBoard.open(place) as source, TaskBoard(store=open_store(url, create=True)) as board:
        copy(source, board, BEN, pause)
    assert lines(url) == lines(place)


# -- cut short


@pytest.fixture
def large(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path}/large.db"
    with TaskBoard.open(url, create=True, worker="maker", durability="normal") as board:
        board.add_many([{"description": f"task {n} " + "x" * 500} for n in range(MANY)])
    return url


class Slow:
    """A process that copies, and stops in its transaction, after so many rows, for the test to do something to it."""

    def __init__(self, source: str, target: str, stop_at: int) -> None:
        program = f"""
import sys, time
from dibs.stores.postgres.round_trips import Connection
copy = Connection.copy
def held(rows):
    for number, row in enumerate(rows):
        if number == {stop_at}:
            print("there", flush=True)
            time.sleep(600)
        yield row
Connection.copy = lambda self, table, columns, rows: copy(self, table, columns, held(rows))
from dibs.cli import main
sys.exit(main(["copy", {source!r}, {target!r}]))
"""
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> subprocess.Popen[str]:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "there\n"
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_stopped_leaves_an_empty_board_and_can_be_tried_again(
    shell: Shell, place: str, large: str, by: signal.Signals
) -> None:
    with Slow(large, place, MANY // 2) as process:
        process.send_signal(by)
        process.wait(PATIENCE)
        assert process.returncode == (130 if by == signal.SIGINT else -by)
    assert shell.ok("--board", place, "list", "--all", "--json").json["total"] == 0
    assert shell.ok("--board", place, "log", "--json").out == ""
    shell.ok("copy", large, place)
    assert lines(place) == lines(large)


@pytest.mark.parametrize("number", [1, 2, 40])
def test_a_connection_that_breaks_during_a_copy_leaves_an_empty_board(
    shell: Shell, place: str, large: str, number: int
) -> None:
    shell.ok("--board", place, "init")
    with Proxy(place) as proxy:
        proxy.arm(Fault("client", number, kind="d"))
        error = shell("copy", large, proxy.url, "--json")
        assert error.code == 1, error
        assert "nothing was changed" in error.error["message"]
        assert error.error["code"] in ("busy", "board_unusable")
    assert len(lines(place)) == 3
    shell.ok("copy", large, place)
    assert lines(place)[2:] == lines(large)[2:] or len(lines(place)) == len(lines(large))


def test_an_export_that_is_no_good_leaves_no_board_behind(shell: Shell, place: str, large: str) -> None:
    text = "\n".join(lines(large)[:-1]) + "\n"
    refused = shell("--board", f"{place}?board=new", "import", "-", stdin=text)
    assert refused.code == 1
    assert "cut off" in refused.err
    assert shell.ok("boards", place, "--json").json["total"] == 0


def test_a_store_that_streams_reads_rows_as_they_come(place: str, large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `bulk_load` promises: never all tasks or all events at once."""
    from dibs.stores.postgres import bulk_load
    from dibs.stores.postgres.store import PostgresStore
    from dibs.stores.postgres.tx import PostgresTx

    seen: dict[type, int] = {BoardTask: 0, Event: 0}

    class Watched:
        def __init__(self, rows: Any) -> None:
            self._rows = rows

        def __iter__(self) -> Iterator[Any]:
            for row in self._rows:
                seen[type(row)] += 1
                yield row

    def restore(self: Any, tasks: Any, locks: Any, messages: Any, events: Any, marks: Any, requests: Any) -> None:
        assert not isinstance(tasks, list)
        assert not isinstance(events, list)
        self.changed = True
        bulk_load.load(self._connection, self._store, Watched(tasks), locks, messages, Watched(events), marks, requests)

    monkeypatch.setattr(PostgresTx, "restore", restore)
    monkeypatch.setattr(PostgresStore, "streams", True, raising=False)
    with TaskBoard.open(place, create=True, worker="maker") as target:
        load(target, lines(large))
    assert seen == {BoardTask: 2 * MANY, Event: MANY}
    assert len(lines(place)) == len(lines(large))


# -- how far it has come


def test_a_terminal_sees_how_far_a_copy_has_come_and_nothing_of_it_stays(place: str, large: str) -> None:
    program = "from dibs.cli import progress, main; import sys; progress.SILENCE = progress.MOVING = 0.0; "
    program += f"sys.exit(main(['copy', {large!r}, {place!r}]))"
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment(), stdout=subprocess.PIPE, stderr=slave
    ) as process:
        os.close(slave)
        said = b""
        try:
            while more := os.read(master, 65536):
                said += more
        except OSError:
            pass  # the other end is closed
        os.close(master)
        assert process.wait(PATIENCE) == 0
    assert b"dibs: copying: changelog 0 of 3,001 (0%)" in said
    assert said.endswith(b"\r\x1b[K")
    assert b"\n" not in said


@pytest.mark.parametrize("json", [False, True])
def test_elsewhere_it_writes_lines_and_under_json_none(place: str, large: str, json: bool) -> None:
    program = "from dibs.cli import progress, main; import sys; progress.LINES = 0.0; "
    program += f"sys.exit(main(['copy', {large!r}, {place!r}{', ' + repr('--json') if json else ''}]))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    if json:
        assert done.stderr == ""
    else:
        assert "dibs: copying: checking the tasks 0 of 3,000 (0%)\n" in done.stderr


def test_nobody_waits_for_a_copy_that_was_killed(place: str, large: str) -> None:
    """Its transaction ends with its connection, so that the board can be used at once."""
    with Slow(large, place, MANY // 2) as process:
        process.kill()
        process.wait(PATIENCE)
    with TaskBoard.open(place, worker="maker") as board:

        def added() -> bool:
            try:
                return bool(board.add("a task"))
            except DibsError:
                return False

        wait_until(added, "a task is added")
        assert sum(board.counts().values()) == 1


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder without a board."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return Shell(folder)


def test_a_board_in_a_file_is_moved_into_the_database_and_its_file_says_so(place: str, tmp_path: Path) -> None:
    lived_in(f"sqlite:{tmp_path}/board.db", 7)
    shell = Shell(tmp_path)
    before = shell.ok("--board", "board.db", "log", "--limit", "0", "--json").out
    shell.ok("move", "board.db", place)
    assert shell.ok("--board", place, "log", "--limit", "0", "--json").out == before
    refused = shell("--board", "board.db", "claim", "--json")
    assert refused.error["code"] == "board_moved"
    assert refused.error["to"].startswith("postgresql:")
