"""The fast path: the plain claim and the plain completion as one statement each, in one round trip.

These are rules that are written twice, in Python (`rules.claim`, `rules.complete`) and here. The test
tests/postgres/test_fast_path.py runs both on the same boards and compares every row and event. Where a case is not
plain nothing changes, the answer is None, and the transaction decides.

Plain claim: nothing is due, there are as many as asked for, and they ask for no files. Plain completion: a live claim
known by its token, no files, no review, nobody who waits for the task (`dependants`, which is exact while the row is
locked: whoever adds an edge changes that row).

If the connection breaks before the answer has come, a claim is looked for by the random `claim_mark` that it left, and
a completion by its token. One that is not there can be made again, which does no harm, also if the first comes late.
"""

from __future__ import annotations

import time
from _random import Random
from os import getpid, urandom

import psycopg

from dibs.errors import BoardUnusable, OutcomeUnknown
from dibs.jsontext import dumps
from dibs.stores.base import Collision
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.failures import is_lost, is_unprepared
from dibs.stores.rows import TASK, task_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.model import BoardTask, Worker
    from dibs.stores.postgres.round_trips import Connection, Row, Statement
    from dibs.stores.postgres.store import PostgresStore

_TOKEN = TASK.split(", ").index("token")
_NOW = "coalesce($2::float8, extract(epoch FROM clock_timestamp())::float8)"

# $1 board, $2 the tests' time, $3 sequence, $4 gate, $5 name, $6 holder, $7 lease, $8 mark, $9 kind, $10 to $12 the
# event's data around what the database knows; for many $13 how many. The claim of one is a statement of its own: the
# server sets the whole statement up for every claim, so there is nothing in it that only many need. Nor would a limit
# that is a parameter do: the server takes that for a tenth of all tasks, thinks poorly of the plan that it could
# keep on a large board, and makes another for every claim, at the price of a claim.
_CLOCK = f"clock AS MATERIALIZED (SELECT {_NOW} AS now, {q.EXACT})"
_PICKED = f"""picked AS MATERIALIZED (
    SELECT found.*, mark.floor FROM dibs.ready_watermark AS mark CROSS JOIN LATERAL (
        SELECT seq, rank, last_event, paths, assigned_to FROM dibs.task
        WHERE board = $1 AND {q.IS_READY} AND {q.QUEUES["open"]} AND rank = mark.rank AND seq + 0 >= mark.floor
        ORDER BY seq + 0 LIMIT @ FOR NO KEY UPDATE SKIP LOCKED) found
    WHERE mark.board = $1 AND mark.queue = 'open' AND NOT EXISTS (
        SELECT FROM dibs.task
        WHERE board = $1 AND status = 'in_progress' AND lease_expires_at <= (SELECT now FROM clock))
    ORDER BY mark.rank LIMIT @)"""
_CLAIMED = f"""claimed AS (
    UPDATE dibs.task SET status = 'in_progress', assigned_to = $5, holder = $6, token = numbered.number,
        claimed_at = numbered.now, lease = $7, lease_expires_at = numbered.now + $7, completed_at = NULL,
        attempts = attempts + 1, last_event = numbered.number, claim_mark = $8
    FROM numbered WHERE board = $1 AND seq = numbered.at
    RETURNING {TASK}, numbered.floor, numbered.previous),
logged AS (
    INSERT INTO dibs.event (board, seq, time, worker, worker_type, action, task_id, data, previous)
    SELECT $1, token, claimed_at, $5, $9, 'claimed_activity', id,
        $10::text || token || $11::text || claimed_at || $12::text || lease_expires_at
            || ',"completed_at":null,"attempts":' || attempts || '}}}}', nullif(previous, 0)
    FROM claimed)"""
_ANSWER = ", ".join("claimed." + column for column in (*TASK.split(", "), "floor"))

CLAIM = f"""
WITH {_CLOCK}, {_PICKED.replace("@", "1")},
numbered AS MATERIALIZED (
    SELECT seq AS at, floor, last_event AS previous, {q.drawn("$3", "$4")} AS number, now
    FROM picked, clock WHERE paths IS NULL AND assigned_to IS NULL),
{_CLAIMED}
SELECT {_ANSWER}, picked.paths FROM picked LEFT JOIN claimed ON true
"""
CLAIM_MANY = f"""
WITH {_CLOCK}, {_PICKED.replace("@", "$13")},
common AS MATERIALIZED (SELECT count(*) = $13 AND bool_and(paths IS NULL AND assigned_to IS NULL) AS yes FROM picked),
gated AS MATERIALIZED (SELECT {q.gate("$3", "$4")} FROM common WHERE yes),
numbered AS MATERIALIZED (
    SELECT seq AS at, floor, last_event AS previous, nextval($3::regclass) AS number, now
    FROM gated, (SELECT seq, floor, last_event FROM picked ORDER BY rank, seq) picked, clock),
{_CLAIMED}
SELECT {_ANSWER}, CASE WHEN NOT yes THEN (SELECT paths FROM picked ORDER BY rank, seq LIMIT 1) END
FROM common LEFT JOIN claimed ON true
"""

# $1 board, $2 the tests' time, $3 id, $4 token, $5 sequence, $6 gate, $7 name or null, $8 kind or null, $9 result,
# $10 the result as JSON.
COMPLETE = f"""
WITH {_CLOCK},
found AS MATERIALIZED (
    SELECT seq, last_event, token, status, lease_expires_at, paths, review, dependants, holder, assigned_to
    FROM dibs.task WHERE board = $1 AND id = $3 FOR NO KEY UPDATE),
numbered AS MATERIALIZED (
    SELECT found.seq AS at, found.last_event AS previous, {q.drawn("$5", "$6")} AS number, clock.now
    FROM found, clock
    WHERE found.token = $4 AND found.status = 'in_progress' AND found.lease_expires_at > clock.now
        AND found.paths IS NULL AND found.review = 0 AND found.dependants = 0 AND found.holder IS NOT NULL
        AND ($7::text IS NULL OR found.assigned_to = $7)),
ended AS (
    UPDATE dibs.task SET status = 'completed', result = $9, lease_expires_at = NULL, completed_at = numbered.now,
        last_event = numbered.number
    FROM numbered WHERE board = $1 AND seq = numbered.at
    RETURNING {TASK}, numbered.previous),
logged AS (
    INSERT INTO dibs.event (board, seq, time, worker, worker_type, action, task_id, details, data, previous)
    SELECT $1, last_event, completed_at, assigned_to, coalesce($8::text, holder::json ->> 'kind'),
        'completed_activity', id, nullif($9::text, ''),
        '{{"set":{{"status":"completed","result":' || $10::text || ',"lease_expires_at":null,"completed_at":'
            || completed_at || '}}}}', nullif(previous, 0)
    FROM ended)
SELECT {TASK} FROM ended
"""

BY_MARK = f"""
SELECT {TASK}, 0, NULL FROM dibs.task
WHERE board = $1 AND status = 'in_progress' AND assigned_to = $2 AND claim_mark = $3 ORDER BY rank, seq
"""
BY_TOKEN = f"""
SELECT {TASK} FROM dibs.task
WHERE board = $1 AND id = $2 AND token = $3 AND status = 'completed' AND ($4::text IS NULL OR assigned_to = $4)
"""
GONE = "SELECT $1 > 0 AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::int)"


LOOK_FOR = 5.0
"""Seconds for which it is tried to find out what became of a statement whose answer did not come."""


class FastPath:
    """`Store.try_claim` and `Store.try_complete`."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._random = Random()
        self._pid = 0
        self._misses = 0

    def _new_mark(self) -> int:
        if self._pid != getpid():
            self._random.seed(int.from_bytes(urandom(16)))
            self._pid = getpid()
        return self._random.getrandbits(63)

    def claim(self, who: Worker, reserved: Sequence[str], n: int, lease: float) -> list[BoardTask] | None:
        if "human" in reserved:
            return None
        if self._misses > 2:  # a board whose tasks name files: only now and then see whether that is still so
            self._misses = (self._misses + 1) % 50
            return None
        store = self._store
        mark = self._new_mark()
        clock = store.clock
        values = (
            store.board, clock.wall() if clock else None, *store.numbers, who.name, who.text, lease, mark, who.kind,
            '{"set":{"status":"in_progress","assigned_to":' + dumps(who.name) + ',"holder":' + who.text + ',"token":',
            ',"claimed_at":', f',"lease":{dumps(lease)},"lease_expires_at":', *((n,) if n > 1 else ()),
        )  # fmt: skip
        connection = store.connections.take()
        try:
            rows = self._run(connection, CLAIM if n == 1 else CLAIM_MANY, values)
        except psycopg.Error as error:
            if is_unprepared(error):
                store.lost(connection, error)
                return None
            if not (is_lost(error) or connection.raw.closed):
                store.abandon(connection)
                return None  # it may be over for the transaction, too; that says so
            store.lost(connection, error)
            # First that nothing more can come of it, then whether it came. Behind a pooler the first is not known.
            rows = self._look_for(
                (GONE, (connection.pid or 0,)), (BY_MARK, (store.board, who.name, mark)), "a claim", error
            )
        if not rows or rows[0][0] is None:
            self._misses += 1
            return None
        self._misses = 0
        rows.sort(key=lambda row: (row[7], row[0]))
        seq, rank, floor = rows[0][0], rows[0][7], rows[0][-2]
        if floor and seq - floor > store.watermark.far:
            store.watermark.follow("open", rank)
        return [task_from(row[:-2]) for row in rows]

    def complete(
        self, task_id: str, name: str | None, kind: str | None, token: int, result: str | None
    ) -> BoardTask | None:
        store = self._store
        clock = store.clock
        values = (
            store.board, clock.wall() if clock else None, task_id, token, *store.numbers, name, kind, result,
            dumps(result),
        )  # fmt: skip
        connection = store.connections.take()
        try:
            rows = self._run(connection, COMPLETE, values)
        except psycopg.Error as error:
            if not (is_lost(error) or is_unprepared(error) or connection.raw.closed):
                store.abandon(connection)
                return None
            store.lost(connection, error)
            found = (BY_TOKEN, (store.board, task_id, token, name))
            rows = self._look_for(("SELECT true", ()), found, "a completion", error)
        return task_from(rows[0]) if rows else None

    def _run(self, connection: Connection, sql: str, values: tuple[object, ...]) -> list[Row]:
        store = self._store
        try:
            rows = connection.trip([(sql, values)])[0]
        except psycopg.Error:
            raise
        except BaseException:
            store.connections.discard(connection)
            raise
        if rows and (token := rows[0][_TOKEN]) is not None:
            store.tell(connection)
            connection.saw(token)
        store.connections.give(connection)
        return rows

    def _look_for(self, over: Statement, found: Statement, what: str, error: BaseException) -> list[Row]:
        """The rows of what was made, or none once it is over."""
        store = self._store
        began = time.monotonic()
        while True:
            try:
                is_over = store.ask(over)[0][0][0]
                rows = store.ask(found)[0]
            except Collision:
                is_over, rows = False, []  # that connection broke as well
            except BoardUnusable:
                is_over, rows, began = False, [], float("-inf")  # there is no way back
            if rows or is_over:
                return rows
            if time.monotonic() - began > LOOK_FOR:
                raise OutcomeUnknown(
                    f"the connection to {store.url} was lost during {what}, and the server does not tell what became "
                    "of it",
                    hint="see what you hold before you claim again: dibs list --mine",
                    url=store.url,
                ) from error
            time.sleep(0.1)
