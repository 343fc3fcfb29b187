"""The statements behind the common verbs go through the indexes that were made for them, whatever the server knows of
the tables: on a large board nothing is read or sorted as a whole.

The statements are those that the verbs really send, taken from the wire's side of the store and explained with the
values that they were sent with, and as the plan that the server keeps for any values.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql as pgsql
from psycopg.types.numeric import Int8Dumper

from dibs import TaskBoard, Worker
from dibs.stores.postgres import foresight as f
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.fast_path import CLAIM, COMPLETE
from dibs.stores.postgres.round_trips import Connection
from tests.postgres.actors import board_of
from tests.postgres.server import Server
from tests.processes.harness import wait_until

TASKS = 20_000
LOCKS = 3_000
ANN = Worker("ann", session="s1")
EVE = Worker("eve", "human")
Node = dict[str, Any]
TYPES = {bool: "boolean", int: "bigint", float: "float8"}
"""As what the driver sends values; the server finds out about the others."""

FILL = f"""
ALTER TABLE dibs.task SET (autovacuum_enabled = false);
ALTER TABLE dibs.lock SET (autovacuum_enabled = false);
ALTER TABLE dibs.event SET (autovacuum_enabled = false);
ALTER TABLE dibs.ready_watermark SET (autovacuum_enabled = false);
ALTER TABLE dibs.dependency SET (autovacuum_enabled = false);
UPDATE dibs.task SET status = 'completed', completed_at = seq WHERE seq % 10 < 4;
UPDATE dibs.task SET status = 'in_progress', assigned_to = 'w' || seq % 50, token = last_event, claimed_at = 1,
    lease = 3600, lease_expires_at = extract(epoch FROM now()) + 3000 + seq % 500,
    holder = '{{"name":"w' || seq % 50 || '","kind":"agent"}}' WHERE seq % 10 = 4;
UPDATE dibs.task SET unmet = 1 WHERE seq % 10 = 5;
UPDATE dibs.task SET reserved = 'human' WHERE seq % 10 = 6;
INSERT INTO dibs.ready_watermark (board, lane, rank, low) SELECT 1, 'human', rank, 1 FROM generate_series(-3, 3) rank
    ON CONFLICT DO NOTHING;
INSERT INTO dibs.dependency (board, needs, task) SELECT 1, seq - 5, seq FROM dibs.task WHERE seq % 10 = 5 AND seq > 5;
INSERT INTO dibs.lock (board, pattern, token, prefix, worker, holder, acquired_at, expires_at, lease, shared)
    SELECT 1, 'lib/m' || n || '/x.py', n, 'lib/m' || n || '/x.py', 'w' || n % 50,
    '{{"name":"w' || n % 50 || '","kind":"agent"}}', 1, extract(epoch FROM now()) + 3000, 3600, 0
    FROM generate_series(1, {LOCKS}) n;
"""


BELIEVE = """
UPDATE pg_class SET reltuples = $1 WHERE oid = 'dibs.task'::regclass
    OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'dibs.task'::regclass)
"""


class Plans:
    """A large board, the statements that its verbs send, and their plans."""

    def __init__(self, url: str, server: Server, board: TaskBoard, sent: dict[str, Any]) -> None:
        self.url = url.partition("?")[0]
        self.admin_url = server.admin_url(self.url.rpartition("/")[2])
        self.board = board
        self.sent = sent

    def values(self, statement: str) -> Any:
        assert statement in self.sent, "no verb has sent this"
        return self.sent[statement]

    @contextmanager
    def explained(self, statement: str, believed: int = 0) -> Iterator[dict[str, list[Node]]]:
        """The nodes of its plans: for these values, and for any. `believed`: how many tasks the server is to expect."""
        values = self.values(statement)
        with psycopg.connect(self.admin_url if believed else self.url, cursor_factory=psycopg.RawCursor) as connection:
            if believed:
                connection.execute(BELIEVE, (believed,))
            connection.adapters.register_dumper(int, Int8Dumper)  # as the store does
            asked = f"EXPLAIN (FORMAT JSON) {statement}"
            custom = connection.execute(asked.encode(), values).fetchall()[0][0]
            connection.execute("SET plan_cache_mode = force_generic_plan")
            types = ", ".join(TYPES.get(type(value), "unknown") for value in values)
            connection.execute(f"PREPARE it ({types}) AS {statement}".encode())
            written = ", ".join(pgsql.Literal(value).as_string(connection) for value in values)
            asked = f"EXPLAIN (FORMAT JSON) EXECUTE it({written})"
            with psycopg.ClientCursor(connection) as cursor:
                generic = cursor.execute(asked.encode()).fetchall()[0][0]
            connection.rollback()
        found = {"these values": list(walk(custom[0]["Plan"])), "any values": list(walk(generic[0]["Plan"]))}
        yield found

    def check(self, statement: str, *indexes: str, bound: str = "", table: str = "task", sorts: bool = False) -> None:
        """Its scans of the table go through these indexes (with that column as a bound), and nothing is sorted."""
        with self.explained(statement) as plans:
            for kind, nodes in plans.items():
                text = f"{kind}: {json.dumps(nodes[0], indent=1)}"
                scans = [node for node in nodes if is_scan_of(node, table)]
                assert scans, text
                for scan in scans:
                    if sorts and scan["Node Type"] in ("Seq Scan", "Bitmap Heap Scan"):
                        # Of the small table of fronts, or by way of the index.
                        assert table == "front" or any(n.get("Index Name") in indexes for n in walk(scan)), text
                        continue
                    assert scan["Node Type"] not in ("Seq Scan", "Bitmap Heap Scan"), text
                    assert scan.get("Index Name") in indexes, text
                    if bound and scan["Index Name"] == indexes[0]:
                        assert bound in scan.get("Index Cond", ""), text
                for node in nodes:
                    if not sorts and node["Node Type"] in ("Sort", "Incremental Sort"):
                        below = [n for n in walk(node) if is_scan_of(n, table)]
                        assert not below, text


def walk(node: Node) -> Iterator[Node]:
    yield node
    for below in node.get("Plans", ()):
        yield from walk(below)


def is_scan_of(node: Node, table: str) -> bool:
    # The row that a statement changes is found by a scan below it, which is a node of its own.
    return node.get("Relation Name") == table and node["Node Type"] != "ModifyTable"


@pytest.fixture(scope="module", params=["without statistics", "with statistics"])
def plans(request: pytest.FixtureRequest) -> Iterator[Plans]:
    from tests.postgres.server import server_for_test

    server: Server = server_for_test()
    sent: dict[str, Any] = {}
    trip = Connection.trip

    def noted(self: Connection, statements: Any) -> Any:
        sent.update(statements)
        return trip(self, statements)

    with pytest.MonkeyPatch.context() as patch, board_of(server) as url, TaskBoard.open(url, worker=ANN) as board:
        rng = random.Random(7)
        board.add_many([{"description": f"task {n}", "priority": rng.randrange(-3, 4)} for n in range(TASKS)])
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            connection.execute(FILL.encode())
            if request.param == "with statistics":
                connection.execute("ANALYZE")
        patch.setattr(Connection, "trip", noted)
        use(board)
        yield Plans(url, server, board, sent)


def use(board: TaskBoard) -> None:
    """Every verb whose statements are looked at."""
    for who in (ANN, ANN, ANN, EVE):
        task = board.claim(who)
        assert task is not None
        task.complete("done")
    assert board.claim(ANN, request_key="thoroughly") is not None
    board.add("with files", id="files", priority=50, paths=["src/a/b.py"])
    assert board.claim(ANN, "files") is not None
    board.complete("files", worker=ANN)
    board.recover()
    board.recent(task_id="files")
    board.locks(["lib/m7/**"])
    board.lock(["lib/n/**"], ANN)
    board.ready(EVE)
    board.tasks(limit=20)
    board.held_by("w7")
    board.resolve("fi")


@pytest.mark.parametrize("writing", [True, False], ids=["claiming", "looking"])
@pytest.mark.parametrize(("lane", "only_any"), [("open", False), ("open", True), ("human", False)])
def test_ready_tasks_are_found_by_the_index_of_their_lane(
    plans: Plans, lane: str, only_any: bool, writing: bool
) -> None:
    if (lane, only_any, writing) == ("open", False, False):
        plans.board.ready(ANN)
    way = "free" if writing else "no"
    statement = f.ready(lane, only_any, way, one=writing)
    index = "task_ready_any" if only_any else f"task_ready_{lane}"
    # A look may sort what it finds where it expects little; a claim would lock all of that.
    plans.check(statement, index, bound="rank", sorts=not writing)
    plans.check(statement, index, bound="seq", sorts=not writing)
    plans.check(statement, "front_pkey", table="front", sorts=not writing)


@pytest.mark.parametrize("way", ["free", "rest", "ahead"])
def test_what_follows_the_best_task_is_found_by_the_same_index(plans: Plans, way: str) -> None:
    statement = f.ready("open", False, way, one=True)
    plans.check(statement, "task_ready_open", bound="rank", sorts=way == "ahead")


def test_the_first_of_these_are_locked_by_their_numbers(plans: Plans) -> None:
    plans.check(f.ready("open", False, "next", one=True), "task_pkey", bound="seq", sorts=True)


@pytest.mark.parametrize("way", ["doubt", "ahead"])
def test_locks_near_each_of_these_are_found_by_their_beginning(plans: Plans, way: str) -> None:
    """All locks are read once for the whole statement, and not again for every task."""
    with plans.explained(f.DOUBT if way == "doubt" else f.ready("open", False, way, one=True)) as found:
        for kind, nodes in found.items():
            scans = [node for node in nodes if is_scan_of(node, "lock")]
            once = [node for node in scans if node["Node Type"] == "Seq Scan"]
            names = {node.get("Index Name") for node in nodes}
            text = f"{kind}: {json.dumps(nodes[0], indent=1)}"
            assert len(once) <= 1, text
            assert "lock_prefix" in names, text


@pytest.mark.parametrize("statement", [f.LEFT_TASKS, f.LEFT_TASKS_IF_FEW], ids=["all", "a few"])
def test_what_may_have_been_left_behind_is_looked_for_among_what_is_in_progress(plans: Plans, statement: str) -> None:
    plans.check(statement, "task_lease", bound="board", sorts=True)


def test_locks_near_what_was_found_are_found_by_their_beginning(plans: Plans) -> None:
    with plans.explained(f.LOCKS_RELATED) as found:
        for kind, nodes in found.items():
            names = {node["Index Name"] for node in nodes if "Index Name" in node}
            assert "lock_prefix" in names, f"{kind}: {json.dumps(nodes[0], indent=1)}"


def test_the_short_claim_reads_only_the_first_of_its_lane_and_of_the_leases(plans: Plans) -> None:
    plans.check(CLAIM, "task_ready_open", "task_lease", "task_pkey", bound="rank")
    plans.check(CLAIM, "task_ready_open", "task_lease", "task_pkey", bound="seq")


def test_the_short_claim_looks_only_at_leases_that_have_run_out(plans: Plans) -> None:
    plans.check(CLAIM, "task_lease", "task_ready_open", "task_pkey", bound="lease_expires_at")


def test_the_short_claim_takes_the_fronts_in_order(plans: Plans) -> None:
    """A sort would have to see, and so to lock, tasks of every rank."""
    plans.check(CLAIM, "front_pkey", table="front")


def test_the_short_completion_reads_one_row(plans: Plans) -> None:
    plans.check(COMPLETE, "task_id", "task_pkey", bound="id")


@pytest.mark.parametrize("statement", [CLAIM, COMPLETE], ids=["claim", "completion"])
def test_the_plan_for_any_values_of_the_short_ways_is_kept(plans: Plans, statement: str) -> None:
    """The server plans every call anew, which costs as much as the call, unless the plan that it can keep promises to
    be as cheap. On a board of ten million it is the first to think that a limit may be anything."""
    with plans.explained(statement, believed=10_000_000) as found:
        these, every = (nodes[0]["Total Cost"] for nodes in found.values())
    assert every <= these * 1.1


EXAMINED = """
SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relid = 'dibs.task'::regclass)
    + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'dibs.task'::regclass)
"""
NOBODY = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'dibs'"
RESERVED = 4_000


@pytest.mark.parametrize("reserved", ["any", "human", None], ids=["for anybody", "for humans", "nothing"])
@pytest.mark.parametrize("kind", ["human", "agent"])
def test_a_claim_does_not_read_what_is_reserved_for_others(kind: str, reserved: str | None) -> None:
    """Counted by the server, whatever the statements: it knows when the connections are closed."""
    from tests.postgres.server import server_for_test

    me, others = Worker("me", kind), "agent" if kind == "human" else "human"
    wanted = kind if reserved == "human" else reserved
    with board_of(server_for_test()) as url:
        with TaskBoard.open(url, worker="maker") as board:
            board.add_many([{"description": f"task {n}", "reserved": others} for n in range(RESERVED)])
            if wanted is not None:
                board.add("mine", reserved=wanted, id="mine")
        with psycopg.connect(url.partition("?")[0], autocommit=True) as watch:
            watch.execute("ALTER TABLE dibs.task SET (autovacuum_enabled = false)")

            def examined() -> int:
                wait_until(lambda: watch.execute(NOBODY).fetchall()[0][0], "the connections are closed")
                return int(watch.execute(EXAMINED).fetchall()[0][0])

            before = examined()
            with TaskBoard.open(url, worker=me) as board:
                task = board.claim(me)
                assert (None if task is None else task.id) == (None if wanted is None else "mine")
                board.ready(me)
            with TaskBoard.open(url, worker="maker") as board:
                assert sum(board.counts().values()) >= RESERVED  # which it reads: so it is seen that it counts
            wait_until(lambda: examined() >= before + RESERVED, "the server has counted")
            assert examined() - before < RESERVED + 300


@pytest.mark.parametrize("grows_by", ["another", "itself"])
def test_plans_for_a_small_board_are_not_kept_for_a_large_one(grows_by: str) -> None:
    """The server would keep them until it has gathered statistics, and read the whole board for every claim."""
    from tests.postgres.server import server_for_test

    with board_of(server_for_test()) as url, TaskBoard.open(url, worker=ANN) as board, TaskBoard.open(url) as other:
        board.add_many([{"description": "small"}] * 20)
        for _ in range(10):
            done = board.claim(ANN)
            assert done is not None
            done.complete()
        before = server_process(board)
        assert server_process(board) == before
        (board if grows_by == "itself" else other).add_many([{"description": "large"}] * 2_000)
        assert board.claim(ANN) is not None
        assert server_process(board) != before


def server_process(board: TaskBoard) -> int:
    links = board._store.links  # type: ignore[attr-defined]
    link = links.take()
    links.give(link)
    return int(link.pid)


@pytest.mark.parametrize("statement", [f.DUE_NOW, q.DUE[True]], ids=["first trip", "later"])
def test_leases_that_have_run_out_are_found_by_their_index(plans: Plans, statement: str) -> None:
    plans.check(statement, "task_lease", bound="lease_expires_at")


def test_a_task_is_found_by_its_id(plans: Plans) -> None:
    plans.check(f.TASK_BY_ID, "task_id", bound="id")


def test_who_waits_for_a_task_is_found_by_the_edges(plans: Plans) -> None:
    plans.check(f.DEPENDANTS_OF_ID, "task_pkey", "task_id", bound="seq", sorts=True)
    plans.check(f.DEPENDANTS_OF_ID, "dependency_pkey", table="dependency", bound="needs", sorts=True)


@pytest.mark.parametrize("writing", [True, False], ids=["to lock", "to look"])
def test_locks_near_a_path_are_found_by_their_beginning(plans: Plans, writing: bool) -> None:
    with plans.explained(q.LOCKS_NEAR[writing]) as found:
        for kind, nodes in found.items():
            names = {node["Index Name"] for node in nodes if "Index Name" in node}
            scanned = [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "lock"]
            assert not scanned, f"{kind}: {json.dumps(nodes[0], indent=1)}"
            if kind == "these values":
                assert "lock_prefix" in names, f"{kind}: {json.dumps(nodes[0], indent=1)}"


@pytest.mark.parametrize(("statement", "index"), [(q.LOCKS_OF_TASK, "lock_task"), (q.LOCKS_BY, "lock_worker")])
def test_locks_of_a_task_or_a_worker_are_found_by_their_index(plans: Plans, statement: str, index: str) -> None:
    with plans.explained(statement) as found:
        for kind, nodes in found.items():
            names = {node["Index Name"] for node in nodes if "Index Name" in node}
            assert names == {index}, f"{kind}: {json.dumps(nodes[0], indent=1)}"


def test_a_history_is_walked_by_numbers(plans: Plans) -> None:
    plans.check(q.HISTORY, "event_pkey", table="event", bound="seq", sorts=True)
    plans.check(q.HISTORY, "task_id", bound="id", sorts=True)


def test_the_newest_event_is_read_alone(plans: Plans) -> None:
    plans.board.store.mark_change()
    plans.check(q.NEWEST, "event_pkey", table="event")
