"""What `dibs doctor` tells of a board in a PostgreSQL database: the server, the schema, how far away it is.

Asks, and changes nothing. What the changelog says is compared as for every board of dibs' own.
"""

from __future__ import annotations

import time

from dibs.stores.postgres.schema import MIGRATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.cli.doctor import Report
    from dibs.stores.postgres.store import PostgresStore

TRIPS = 5
SLOW = 0.25
"""Seconds for a trip, from which on working becomes a nuisance: a claim takes one to three."""

ABOUT = """
SELECT current_setting('server_version'), current_setting('server_encoding'), current_database(), current_user,
    pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
    (SELECT max(number) FROM dibs.version)
"""
RIGHTS = """
SELECT t, r FROM (VALUES
    ('board', 'SELECT'), ('task', 'SELECT'), ('task', 'INSERT'), ('event', 'SELECT'), ('event', 'INSERT'),
    ('dependency', 'INSERT'), ('dependency', 'DELETE'), ('lock', 'INSERT'), ('lock', 'DELETE'),
    ('ready_watermark', 'INSERT'),
    ('message', 'INSERT'), ('reader', 'INSERT'), ('request', 'INSERT'), ('request', 'DELETE')
) AS wanted (t, r) WHERE NOT has_table_privilege('dibs.' || t, r)
UNION ALL
SELECT t, 'UPDATE' FROM (VALUES
    ('task', 'status'), ('lock', 'expires_at'), ('ready_watermark', 'floor'), ('reader', 'mark')
) AS wanted (t, c) WHERE NOT has_column_privilege('dibs.' || t, c, 'UPDATE')
UNION ALL
SELECT t, r FROM (VALUES ('event_' || $1::int, 'USAGE'), ('event_' || $1::int, 'SELECT'), ('task_' || $1::int, 'USAGE'))
    AS wanted (t, r) WHERE NOT has_sequence_privilege('dibs.' || t, r)
"""
MISCOUNTED = """
WITH counted AS (
    SELECT named.id, count(*) AS number FROM dibs.task
    CROSS JOIN unnest(string_to_array(task.depends_on, chr(10))) AS named (id) WHERE board = $1 GROUP BY named.id)
SELECT id, dependants, coalesce(number, 0) FROM dibs.task LEFT JOIN counted USING (id)
WHERE board = $1 AND dependants <> coalesce(number, 0) ORDER BY seq
"""
ENTRIES = "SELECT count(*) FROM (SELECT 1 FROM dibs.event WHERE board = $1 LIMIT $2) AS entry"


def entries(store: PostgresStore, most: int) -> int:
    """How many entries the changelog has, counted up to `most`."""
    return int(str(store.ask((ENTRIES, (store.board, most)))[0][0][0]))


def miscounted(store: PostgresStore) -> list[tuple[Any, ...]]:
    """Whose number of dependants is not what the tasks say: (task, that number, how many there are)."""
    return store.ask((MISCOUNTED, (store.board,)))[0]


def look(report: Report, store: PostgresStore) -> None:
    import psycopg

    report.facts["versions"]["psycopg"] = psycopg.__version__
    about, lacking = store.ask((ABOUT, ()), (RIGHTS, (store.board,)))
    version, encoding, database, user, standby, fsync, commits, schema = about[0]
    trip = min(_trip(store) for _ in range(TRIPS))
    report.facts["server"] = {
        "version": version,
        **_where(store),
        "database": database,
        "user": user,
        "board": store.name,
        "schema": schema,
        "newest_schema": len(MIGRATIONS),
        "encoding": encoding,
        "round_trip_ms": round(trip * 1000, 3),
        "standby": standby,
        "fsync": fsync,
        "synchronous_commit": commits,
    }
    if standby:
        report.find(
            "read_only",
            "this server is a read-only standby",
            "name the primary; with several hosts in the address add: target_session_attrs=read-write",
        )
    if lacking:
        named = ", ".join(f"{right} on dibs.{table}" for table, right in lacking[:3])
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        report.find(
            "not_allowed",
            f"the database user {user} lacks rights: {named}{more}",
            "the owner of the schema dibs grants what workers need, by docs/grants.sql: see docs/many-machines.md, "
            "'Roles'",
        )
    if trip > SLOW:
        report.find(
            "far_away",
            f"a trip to the server and back takes {trip * 1000:.0f} ms",
            "every verb takes one to four trips, and a command some ten more to connect: work nearer to the server, or "
            "look at the network",
        )


def _where(store: PostgresStore) -> dict[str, Any]:
    """Host and port that answered: of several in the address, or behind a name that moves, one. Or a pooler's."""
    link = store.connections.take()
    try:
        info = link.raw.info
        return {"host": info.host or info.hostaddr, "port": info.port, "pooler": link.pid is None}
    finally:
        store.connections.give(link)


def _trip(store: PostgresStore) -> float:
    begun = time.perf_counter()
    store.ask(("SELECT 1", ()))
    return time.perf_counter() - begun


def rows(server: dict[str, Any]) -> Iterator[tuple[str, str]]:
    role = " (a standby)" if server["standby"] else ""
    where = f"{' behind a pooler' if server['pooler'] else ''} at {server['host']}:{server['port']}"
    about = f"PostgreSQL {server['version']}{where}{role}, database {server['database']}, user {server['user']}"
    yield "server", f"{about}, {server['round_trip_ms']:.1f} ms away"
    durable = "what is committed survives a crash of the server"
    if server["fsync"] != "on":
        durable = "what is committed may be lost when the server loses power (fsync is off)"
    elif server["synchronous_commit"] == "off":
        durable = "the last moments may be lost when the server crashes (synchronous_commit is off)"
    yield "schema", f"{server['schema']} of {server['newest_schema']}, board {server['board']}; {durable}"
