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

from dibs import TaskBoard, Worker
from dibs.rules import tasks as rules
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.fast_path import CLAIM, COMPLETE
from dibs.stores.postgres.round_trips import Connection, _written
from tests.postgres.actors import board_of
from tests.postgres.server import Server
from tests.processes.harness import wait_until

TASKS = 20_000
LOCKS = 3_000
ANN = Worker("ann", session="s1")
EVE = Worker("eve", "human")
Node = dict[str, Any]

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
INSERT INTO dibs.ready_watermark (board, queue, rank, floor) SELECT 1, 'human', rank, 1 FROM generate_series(-3, 3) rank
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
        with psycopg.connect(self.admin_url if believed else self.url, autocommit=True) as raw:
            connection = Connection(raw)
            if believed:
                raw.execute("BEGIN")
                raw.execute(BELIEVE.replace("$1", str(believed)))
            custom = connection.trip([(f"EXPLAIN (FORMAT JSON) {statement}", values)])[0][0][0]
            raw.execute("SET plan_cache_mode = force_generic_plan")
            raw.execute(f"PREPARE it AS {statement}".encode())
            written = ", ".join(
                "NULL" if v is None else pgsql.Literal((_written(v) or b"").decode()).as_string(raw) for v in values
            )
            generic = raw.execute(f"EXPLAIN (FORMAT JSON) EXECUTE it({written})".encode()).fetchall()[0][0]
            if believed:
                raw.execute("ROLLBACK")
        found = {"these values": list(walk(custom[0]["Plan"])), "any values": list(walk(generic[0]["Plan"]))}
        yield found

    def check(
        self,
        statement: str,
        *indexes: str,
        bound: str = "",
        table: str = "task",
        sorts: bool = False,
        believed: int = 0,
    ) -> None:
        """Its scans of the table go through these indexes (with that column as a bound), and nothing is sorted."""
        with self.explained(statement, believed) as plans:
            for kind, nodes in plans.items():
                text = f"{kind}: {json.dumps(nodes[0], indent=1)}"
                scans = [node for node in nodes if is_scan_of(node, table)]
                assert scans, text
                for scan in scans:
                    if sorts and scan["Node Type"] in ("Seq Scan", "Bitmap Heap Scan"):
                        # Of the small table of watermarks, or by way of the index.
                        assert table == "ready_watermark" or any(n.get("Index Name") in indexes for n in walk(scan)), (
                            text
                        )
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
    trip, commit = Connection.trip, Connection.commit

    def noted(self: Connection, statements: Any) -> Any:
        sent.update(statements)
        return trip(self, statements)

    def noted_last(self: Connection, statements: Any, behind: Any) -> Any:
        sent.update(statements)
        return commit(self, statements, behind)

    with pytest.MonkeyPatch.context() as patch, board_of(server) as url, TaskBoard.open(url, worker=ANN) as board:
        rng = random.Random(7)
        board.add_many([{"description": f"task {n}", "priority": rng.randrange(-3, 4)} for n in range(TASKS)])
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            connection.execute(FILL.encode())
            if request.param == "with statistics":
                connection.execute("ANALYZE")
        patch.setattr(Connection, "trip", noted)
        patch.setattr(Connection, "commit", noted_last)
        use(board)
        yield Plans(url, server, board, sent)


def use(board: TaskBoard) -> None:
    """Every verb whose statements are looked at."""
    for who in (ANN, ANN, ANN, EVE):
        task = board.claim(who)
        assert task is not None
        task.complete("done")
    assert board.claim(ANN, request_key="thoroughly") is not None
    assert len(board.claim(ANN, n=3, request_key="several")) == 3
    assert len(board.claim(EVE, n=2)) == 2
    board.add("with files", id="files", priority=50, paths=["src/a/b.py"])
    board.add("after it", ["files"], id="after")
    board.undepend("after", ["files"])
    board.depend("after", ["files"])
    task = board.claim(ANN, "files")
    assert task is not None
    task.renew()
    board.complete("files", worker=ANN)
    board.recover()
    board.recent(task_id="files")
    board.recent(5)
    board.locks(["lib/m7/**"])
    board.lock(["lib/n/**"], ANN)
    board.unlock(None, ANN)
    board.tell("hello", to="eve", worker=ANN)
    board.inbox(EVE)
    board.ready(ANN)
    board.ready(EVE)
    board.tasks(limit=20)
    board.held_by("w7")
    board.resolve("fi")
    board.store.mark_change()
    with board.store.read() as tx:
        for kind in (ANN, EVE):
            tx.ready(rules.reserved_for(kind.kind), 1)


QUEUES = [("open", False), ("open", True), ("human", False)]


@pytest.mark.parametrize("one", [True, False], ids=["one", "several"])
@pytest.mark.parametrize("claim", [True, False], ids=["claiming", "looking"])
@pytest.mark.parametrize(("queue", "only_any"), QUEUES)
def test_ready_tasks_are_found_by_the_index_of_their_queue(
    plans: Plans, queue: str, only_any: bool, claim: bool, one: bool
) -> None:
    statement = q.ready(queue, only_any, claim, one)
    index = "task_ready_any" if only_any else f"task_ready_{queue}"
    # Where the server expects no more than are asked for, it may sort them, unless it is for one.
    believed = 0 if claim and one else 1_000_000
    sorts = not claim
    plans.check(statement, index, bound="rank", sorts=sorts, believed=believed)
    plans.check(statement, index, bound="seq", sorts=sorts, believed=believed)
    plans.check(statement, "ready_watermark_pkey", table="ready_watermark", sorts=sorts, believed=believed)


@pytest.mark.parametrize("waits", [True, False])
def test_what_was_handed_out_is_held_by_its_number(plans: Plans, waits: bool) -> None:
    plans.check(q.VALIDATE_TASKS[waits], "task_pkey", bound="seq", sorts=True)


def test_a_task_is_saved_by_its_number(plans: Plans) -> None:
    plans.check(q.SAVE, "task_pkey", bound="seq")


def test_locks_are_validated_and_dropped_by_their_key(plans: Plans) -> None:
    plans.check(q.VALIDATE_LOCKS, "lock_key", table="lock", bound="token", sorts=True)
    plans.check(q.DROP_LOCKS, "lock_key", table="lock", bound="token")


@pytest.mark.parametrize("statement", [q.LINK, q.UNLINK], ids=["link", "unlink"])
def test_an_edge_is_changed_by_ids_and_numbers(plans: Plans, statement: str) -> None:
    plans.check(statement, "task_pkey", "task_id", bound="seq", sorts=True)
    if statement is q.UNLINK:
        plans.check(statement, "dependency_pkey", table="dependency", bound="needs", sorts=True)


def test_who_waits_for_a_completed_task_is_found_by_the_edges(plans: Plans) -> None:
    plans.check(q.SATISFY, "task_pkey", bound="seq", sorts=True)
    plans.check(q.SATISFY, "dependency_pkey", table="dependency", bound="needs", sorts=True)
    plans.check(q.SATISFY, "ready_watermark_pkey", table="ready_watermark", sorts=True)


def test_a_watermark_is_lowered_by_its_key(plans: Plans) -> None:
    plans.check(q.LOWER_WATERMARKS, "ready_watermark_pkey", table="ready_watermark", sorts=True)


@pytest.mark.parametrize("statement", [q.HOLDERS, q.IN_PROGRESS_BY], ids=["holders", "of a worker"])
def test_who_holds_what_is_looked_for_among_what_is_in_progress(plans: Plans, statement: str) -> None:
    plans.check(statement, "task_lease", bound="board", sorts=True)


def test_the_plain_claim_reads_only_the_first_of_its_queue_and_of_the_leases(plans: Plans) -> None:
    plans.check(CLAIM, "task_ready_open", "task_lease", "task_pkey", bound="rank")
    plans.check(CLAIM, "task_ready_open", "task_lease", "task_pkey", bound="seq")


def test_the_plain_claim_looks_only_at_leases_that_have_run_out(plans: Plans) -> None:
    plans.check(CLAIM, "task_lease", "task_ready_open", "task_pkey", bound="lease_expires_at")


def test_the_plain_claim_takes_the_watermarks_in_order(plans: Plans) -> None:
    """A sort would have to see, and so to lock, tasks of every rank."""
    plans.check(CLAIM, "ready_watermark_pkey", table="ready_watermark")


def test_the_plain_completion_reads_one_row(plans: Plans) -> None:
    plans.check(COMPLETE, "task_id", "task_pkey", bound="id")


@pytest.mark.parametrize("statement", [CLAIM, COMPLETE], ids=["claim", "completion"])
def test_the_plan_for_any_values_of_the_fast_path_is_kept(plans: Plans, statement: str) -> None:
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
    connections = board.store.connections  # type: ignore[attr-defined]
    connection = connections.take()
    connections.give(connection)
    return int(connection.pid)


@pytest.mark.parametrize("writing", [True, False], ids=["claiming", "looking"])
def test_leases_that_have_run_out_are_found_by_their_index(plans: Plans, writing: bool) -> None:
    if not writing:
        with plans.board.store.read() as tx:
            tx.due(5)
    plans.check(q.DUE[writing], "task_lease", bound="lease_expires_at", sorts=True)  # those that have run out


def test_tasks_are_found_by_their_ids(plans: Plans) -> None:
    plans.check(q.TASKS_BY_ID, "task_id", bound="id", sorts=True)


def test_locks_near_a_path_are_found_by_their_beginning(plans: Plans) -> None:
    with plans.explained(q.LOCKS_NEAR) as found:
        for kind, nodes in found.items():
            names = {node["Index Name"] for node in nodes if "Index Name" in node}
            scanned = [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "lock"]
            assert not scanned, f"{kind}: {json.dumps(nodes[0], indent=1)}"
            if kind == "these values":
                assert "lock_prefix" in names, f"{kind}: {json.dumps(nodes[0], indent=1)}"


def test_locks_of_a_worker_are_found_by_their_index(plans: Plans) -> None:
    with plans.explained(q.LOCKS_BY) as found:
        for kind, nodes in found.items():
            names = {node["Index Name"] for node in nodes if "Index Name" in node}
            assert names == {"lock_worker"}, f"{kind}: {json.dumps(nodes[0], indent=1)}"


def test_a_history_is_walked_by_numbers(plans: Plans) -> None:
    plans.check(q.HISTORY, "event_pkey", table="event", bound="seq", sorts=True)
    plans.check(q.HISTORY, "task_id", bound="id", sorts=True)


@pytest.mark.parametrize("newest", [True, False])
def test_events_are_read_in_their_order(plans: Plans, newest: bool) -> None:
    if not newest:
        with plans.board.store.read() as tx:
            tx.events(3, 5)
    plans.check(q.EVENTS[newest], "event_pkey", table="event", bound="seq")


def test_the_newest_event_is_read_alone(plans: Plans) -> None:
    plans.check(q.NEWEST, "event_pkey", table="event")
