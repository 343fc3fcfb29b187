"""The statements of the PostgreSQL store, but for those that make tables (`schema`), the short ways (`quick`), what a
claim or a completion asks for in its first trip (`foresight`) and sees to in its last (`confirmations`).

Placeholders are the server's own ($1 is always the board). Where a statement has the two forms, `True` is for writers:
it locks the rows that it hands out.
"""

from __future__ import annotations

from dibs.stores.postgres.numbers import EACH, WIDTH, in_text, number
from dibs.stores.queries import EVENT, LOCK, TASK

IS_READY = "status = 'pending' AND unmet = 0 AND open_blockers = 0"
_IS_CLOSED = "status IN ('completed', 'failed', 'cancelled')"
_IS_WAITING = "status = 'pending' AND (unmet > 0 OR open_blockers > 0)"
LANES = {"open": "reserved <> 'human'", "human": "reserved = 'human'"}
"""Ready tasks lie in two lanes, each with an index of its own: those that an agent may take, and the humans'."""

# Beginning. The head answers the time, and lets the server end a transaction whose client has gone quiet: a paused
# worker must not hold up the others. Nor must one that was cut off in the middle of what it sent.
BEGIN = {
    True: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    False: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}


def clock(given: str) -> str:
    """The time: as given, by tests, else the server's."""
    return f"coalesce({given}::float8, extract(epoch FROM clock_timestamp())::float8)"


CLOCK = clock("$1")
# Times are read, and written into the changelog, as text. A role may be set to round that.
EXACT = "set_config('extra_float_digits', '1', true)"
# The last notices that unacknowledged answers wait, too; a server that cannot would say so in its log every time.
_NOTICE = """set_config('tcp_keepalives_idle', $4, true), set_config('tcp_keepalives_interval', '1', true),
    set_config('tcp_keepalives_count', '3', true),
    CASE WHEN version() LIKE '%linux%' THEN set_config('tcp_user_timeout', $4, true) END"""
HEAD = {
    True: f"SELECT {CLOCK}, pg_current_xact_id()::text, coalesce(pg_sequence_last_value($3::regclass), 0), "
    f"set_config('idle_in_transaction_session_timeout', $2, true), {EXACT}, {_NOTICE}",
    False: f"SELECT {CLOCK}, NULL, 0, set_config('idle_in_transaction_session_timeout', $2, true), {EXACT}",
}
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
# What became of a transaction whose connection broke.
FATE = "SELECT pg_xact_status($1::xid8)"
OWN_EVENTS = """
SELECT seq, worker, action FROM dibs.event
WHERE board = $1 AND seq > $2 AND xmin::text::bigint = $3::text::bigint % 4294967296 ORDER BY seq
"""


def gate(sequence: str, key: str) -> str:
    """Tell readers that a number above the sequence's present one is on its way (see docs/design.md, "settled")."""
    return f"pg_advisory_xact_lock_shared({key} | coalesce(pg_sequence_last_value({sequence}::regclass), 0))"


def drawn(sequence: str, key: str) -> str:
    """The number of an event: first the gate, then the number. The answer of a gate is void, which is not null."""
    return f"CASE WHEN {gate(sequence, key)} IS NOT NULL THEN nextval({sequence}::regclass) END"


# Numbers: one; many behind it, for one lock tells readers of them all; one, or as many as stand-ins have been given
# out, for the statements behind. (For rows whose number it does not know the server would make a plan each time.)
DRAW = f"SELECT {drawn('$1', '$2')}"
DRAW_MORE = "SELECT nextval($1::regclass) FROM generate_series(1, $2)"
DRAW_LATE_ONE = f"""
WITH drawn AS MATERIALIZED (SELECT {drawn("$1", "$2")} AS number)
SELECT ARRAY[number], set_config('dibs.numbers0', lpad(number::text, {WIDTH}, '0'), true) FROM drawn
"""
DRAW_LATE = f"""
WITH gated AS MATERIALIZED (SELECT {gate("$1", "$2")}),
drawn AS MATERIALIZED (SELECT nextval($1::regclass) AS number FROM gated, generate_series(1, $3::int)),
placed AS MATERIALIZED (SELECT number, (row_number() OVER (ORDER BY number) - 1) / {EACH} AS part FROM drawn)
SELECT array_agg(number ORDER BY number),
    set_config('dibs.numbers' || part, string_agg(lpad(number::text, {WIDTH}, '0'), '' ORDER BY number), true)
FROM placed GROUP BY part ORDER BY part
"""
# How far the changelog is settled: the sequence first, then who may still be writing below it.
LAST_NUMBER = "SELECT coalesce(pg_sequence_last_value($1::regclass), 0)"
IN_FLIGHT = """
SELECT min(((classid::bigint << 32) | objid::bigint) & 1099511627775) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) >> 40 = $1 AND pid <> pg_backend_pid()
"""
NEWEST = "SELECT coalesce(max(seq), 0) FROM dibs.event WHERE board = $1"

# Exclusion by name, until the transaction ends.
HOLD = "SELECT pg_advisory_xact_lock($1::int, $2::int)"
SHARE = "SELECT pg_advisory_xact_lock_shared($1::int, $2::int)"
HOLD_PATHS = """
SELECT CASE WHEN held THEN pg_advisory_xact_lock($1::int, key)::text
    ELSE pg_advisory_xact_lock_shared($1::int, key)::text END
FROM unnest($2::int[], $3::bool[]) AS wanted (key, held)
"""


# Locks whose literal prefix is one of some, or lies in one of some ranges. The index has the first 600 characters.
NEAR = """dibs.lock WHERE board = $1
    AND (substr(prefix, 1, 600) = ANY(${0}::text[])
        OR (substr(prefix, 1, 600) >= ${2}::text AND substr(prefix, 1, 600) <= ${3}::text))
    AND (prefix = ANY(${1}::text[]) OR EXISTS (
        SELECT FROM unnest(${4}::text[], ${5}::text[]) AS below (low, high)
        WHERE prefix COLLATE "C" >= low COLLATE "C" AND prefix COLLATE "C" < high COLLATE "C"))
"""


def _both(select: str) -> dict[bool, str]:
    return {True: f"{select} FOR NO KEY UPDATE", False: select}


# Tasks: one by number and id; many by id.
TASK_AGAIN = _both(f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND seq = $2 AND id = $3")
TASKS_BY_ID = _both(f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND id = ANY($2::text[]) ORDER BY seq")


# Leases that have run out; everything somebody works on; one name's.
_DUE = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND lease_expires_at <= $2"
DUE = {
    True: f"{_DUE} ORDER BY lease_expires_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED",
    False: f"{_DUE} ORDER BY lease_expires_at LIMIT $3",
}
IN_PROGRESS = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' ORDER BY lease_expires_at"
IN_PROGRESS_BY = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND assigned_to = $2 ORDER BY lease_expires_at
"""
_DEPENDANTS = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1
    AND seq IN (SELECT task FROM dibs.dependency WHERE board = $1 AND needs = ANY($2::bigint[])) ORDER BY seq
"""
DEPENDANTS = _both(_DEPENDANTS)
LINK = """
INSERT INTO dibs.dependency (board, needs, task) SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])
ON CONFLICT DO NOTHING
"""
UNLINK = """
DELETE FROM dibs.dependency USING unnest($2::bigint[], $3::bigint[]) AS gone (needs, task)
WHERE board = $1 AND dependency.needs = gone.needs AND dependency.task = gone.task
"""
EDGES = """
SELECT coalesce(task.id, 'number ' || edge.task), coalesce(need.id, 'number ' || edge.needs)
FROM dibs.dependency AS edge
LEFT JOIN dibs.task ON task.board = $1 AND task.seq = edge.task
LEFT JOIN dibs.task AS need ON need.board = $1 AND need.seq = edge.needs
WHERE edge.board = $1 ORDER BY edge.task, edge.needs
"""
COUNT_DEPENDANTS = """
UPDATE dibs.task SET dependants = dependants + change.by FROM unnest($2::bigint[], $3::int[]) AS change (seq, by)
WHERE board = $1 AND task.seq = change.seq
"""

TASK_COLUMNS = f"board, {TASK}, open_blockers, dependants"
INSERT = f"INSERT INTO dibs.task ({TASK_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, 31))})"
SAVE = f"""
UPDATE dibs.task SET status = $2, assigned_to = $3, depends_on = $4, result = $5, claimed_at = $6, completed_at = $7,
    token = {number("$8")}, lease = $9, lease_expires_at = $10, holder = $11, steps = $12,
    blockers = $13, open_blockers = $14, attempts = $15, unmet = $16, last_event = {number("$17")},
    stamp = CASE WHEN token = $8 THEN stamp END
WHERE board = $1 AND seq = $18
"""

# Where the ready tasks of a rank begin. A front is there before a task of its rank is, and never above a ready one.
ADD_FRONTS = """
INSERT INTO dibs.front (board, lane, rank, low) SELECT $1, * FROM unnest($2::text[], $3::int[], $4::bigint[])
ON CONFLICT DO NOTHING
"""
LOWER_FRONTS = """
UPDATE dibs.front SET low = made.low FROM unnest($2::text[], $3::int[], $4::bigint[]) AS made (lane, rank, low)
WHERE front.board = $1 AND front.lane = made.lane AND front.rank = made.rank AND front.low > made.low
"""


def raise_front(lane: str) -> str:
    """$2 the rank, $3 the sequence of tasks, $4 how far it must be behind: several may have seen that at once, and what
    each of them writes is read by every claim until it can be vacuumed. The caller has shut out all who make tasks
    ready."""
    return f"""
    WITH was AS MATERIALIZED (SELECT low FROM dibs.front WHERE board = $1 AND lane = '{lane}' AND rank = $2),
    found AS MATERIALIZED (
        SELECT coalesce(
            (SELECT seq FROM dibs.task
             WHERE board = $1 AND {IS_READY} AND {LANES[lane]} AND rank = $2 AND seq + 0 >= (SELECT low FROM was)
             ORDER BY seq + 0 LIMIT 1),
            (SELECT coalesce(pg_sequence_last_value($3::regclass), 0) + 1)) AS low)
    UPDATE dibs.front SET low = found.low FROM was, found
    WHERE board = $1 AND lane = '{lane}' AND rank = $2 AND found.low > was.low + $4"""


# Locks.
_LOCKS = f"SELECT {LOCK} FROM dibs.lock WHERE board = $1"
LOCKS = f"{_LOCKS} ORDER BY pattern, token"
LOCKS_BY = f"{_LOCKS} AND worker = $2 ORDER BY pattern, token"
LOCKS_OF_TASK = f"{_LOCKS} AND task_id = $2 ORDER BY pattern, token"
_LOCKS_NEAR = f"SELECT {LOCK} FROM {NEAR.format(*range(2, 8))} ORDER BY pattern, token"
LOCKS_NEAR = _both(_LOCKS_NEAR)
SAVE_LOCK = f"""
INSERT INTO dibs.lock (board, {LOCK}, prefix, worker)
VALUES ($1, $2, $3, {number("$4")}, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (board, token, hashtextextended(pattern, 0), hashtextextended(pattern, 1)) DO UPDATE
SET holder = excluded.holder, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, lease = excluded.lease, shared = excluded.shared, task_id = excluded.task_id,
    worktree = excluded.worktree, worker = excluded.worker
"""
# In the order in which all hold them.
DROP_LOCKS = """
WITH held AS MATERIALIZED (
    SELECT lock.pattern, lock.token FROM dibs.lock
    JOIN unnest($2::text[], $3::bigint[]) AS gone (pattern, token)
        ON lock.token = gone.token AND lock.pattern = gone.pattern
    WHERE lock.board = $1 ORDER BY lock.pattern, lock.token FOR UPDATE OF lock)
DELETE FROM dibs.lock USING held WHERE lock.board = $1 AND lock.token = held.token AND lock.pattern = held.pattern
"""

# The changelog.
EVENT_COLUMNS = f"board, {EVENT}, previous"
APPEND = f"""
INSERT INTO dibs.event ({EVENT_COLUMNS})
VALUES ($1, {number("$2")}, $3, $4, $5, $6, $7, $8, $9, {in_text("$10", "$2")}, {number("$11")})
"""
_EVENTS = f"SELECT {EVENT} FROM dibs.event WHERE board = $1 AND seq > $2 ORDER BY seq"
EVENTS = {newest: f"{_EVENTS}{' DESC' * newest} LIMIT $3" for newest in (False, True)}
# One task's history, from its newest event back to a number, at most so many.
HISTORY = f"""
WITH RECURSIVE past AS (
    (SELECT {EVENT}, previous, 1 AS nth FROM dibs.event
     WHERE board = $1 AND seq = (SELECT last_event FROM dibs.task WHERE board = $1 AND id = $2) AND seq > $3)
    UNION ALL
    SELECT {", ".join("e." + c for c in EVENT.split(", "))}, e.previous, past.nth + 1 FROM past
    JOIN dibs.event e ON e.board = $1 AND e.seq = past.previous AND e.seq > $3 AND past.nth < $4)
SELECT {EVENT} FROM past ORDER BY seq
"""
# Requests, messages, marks.
RECALL = "SELECT answer FROM dibs.request WHERE board = $1 AND key = $2"
REMEMBER = "INSERT INTO dibs.request (board, key, answer, time) VALUES ($1, $2, {answer}, $4)"
FORGET = "DELETE FROM dibs.request WHERE board = $1 AND time < $2"
REQUESTS = "SELECT key, answer, time FROM dibs.request WHERE board = $1 ORDER BY key"
POST = f"""
INSERT INTO dibs.message (board, seq, time, sender, recipient, content) VALUES ($1, {number("$2")}, $3, $4, $5, $6)
"""
_MESSAGES = "SELECT sender, content, recipient, time, seq FROM dibs.message WHERE board = $1 AND seq > $2"
_FOR = " AND (recipient = $4 OR (recipient IS NULL AND sender <> $4)) AND seq <= $5"
MESSAGES = {newest: f"{_MESSAGES} ORDER BY seq{' DESC' * newest} LIMIT $3" for newest in (False, True)}
MESSAGES_TO = {newest: f"{_MESSAGES}{_FOR} ORDER BY seq{' DESC' * newest} LIMIT $3" for newest in (False, True)}
MARK = "SELECT mark FROM dibs.reader WHERE board = $1 AND name = $2"
SET_MARK = """
INSERT INTO dibs.reader (board, name, mark) VALUES ($1, $2, $3)
ON CONFLICT (board, name) DO UPDATE SET mark = excluded.mark
"""
MARKS = "SELECT name, mark FROM dibs.reader WHERE board = $1 ORDER BY name"

# Listing, as `queries.GROUPS`: each group through the index that holds just it.
GROUPS = {
    "in_progress": ("status = 'in_progress'", "lease_expires_at"),
    "review": ("status = 'review'", "rank, seq"),
    "ready": (IS_READY, "rank, seq + 0"),
    "waiting": (_IS_WAITING, "rank, seq"),
    "completed": (f"{_IS_CLOSED} AND status = 'completed'", "completed_at DESC"),
    "failed": (f"{_IS_CLOSED} AND status = 'failed'", "completed_at DESC"),
    "cancelled": (f"{_IS_CLOSED} AND status = 'cancelled'", "completed_at DESC"),
}
_OPEN = (
    ("pending", f"{IS_READY} AND {LANES['open']}"),
    ("pending", f"{IS_READY} AND {LANES['human']}"),
    ("pending", _IS_WAITING),
    ("in_progress", "status = 'in_progress'"),
    ("review", "status = 'review'"),
)
# Each group counted in its own small index; (status, how many), in parts.
COUNTS = (
    "\nUNION ALL ".join(
        f"SELECT '{status}' AS status, count(*) FROM dibs.task WHERE board = $1 AND {condition}"
        for status, condition in _OPEN
    )
    + f"\nUNION ALL (SELECT status, count(*) FROM dibs.task WHERE board = $1 AND {_IS_CLOSED} GROUP BY status)"
)
ANY_OPEN = "SELECT " + "\nOR ".join(
    f"EXISTS (SELECT FROM dibs.task WHERE board = $1 AND {condition})" for _, condition in _OPEN
)
ANY = "SELECT EXISTS (SELECT FROM dibs.task WHERE board = $1)"
FILTERS = {
    "label": "strpos(chr(10) || labels || chr(10), chr(10) || {0}::text || chr(10)) > 0",
    "assigned_to": "assigned_to = {0}",
    "parent": "parent = {0}",
    "search": 'strpos(lower(description COLLATE "C"), lower({0}::text COLLATE "C")) > 0',
}
DESCRIPTIONS = "SELECT seq, description FROM dibs.task WHERE board = $1"
FIND = "SELECT id FROM dibs.task WHERE board = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4"
ALL_TASKS = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND seq > $2 ORDER BY seq LIMIT $3"
SET_NUMBERS = "SELECT setval($1::regclass, $2)"

# Waking those who wait.
NOTIFY = "SELECT pg_notify($1, '')"
