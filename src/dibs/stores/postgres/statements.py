"""Every statement of the PostgreSQL store but those that make tables (`schema`) and the short ways (`quick`).

Placeholders are the server's own ($1 is always the board). Where a statement has the two forms, `True` is for writers:
it locks the rows that it hands out, and some then draw the number of the event that will tell of them.
"""

from __future__ import annotations

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
CLOCK = "coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8)"
# Times are read, and written into the changelog, as text. A role may be set to round that.
EXACT = "set_config('extra_float_digits', '1', true)"
_NOTICE = ", ".join(
    f"set_config('tcp_keepalives_{name}', '{value}', true)"
    for name, value in (("idle", 10), ("interval", 5), ("count", 3))
)
HEAD = {
    True: f"SELECT {CLOCK}, pg_current_xact_id()::text, set_config('idle_in_transaction_session_timeout', $2, true), "
    f"{EXACT}, {_NOTICE}",
    False: f"SELECT {CLOCK}, NULL, set_config('idle_in_transaction_session_timeout', $2, true), {EXACT}",
}
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
# What became of a transaction whose connection broke.
FATE = "SELECT pg_xact_status($1::xid8)"
HAS_EVENT = "SELECT 1 FROM dibs.event WHERE board = $1 AND seq = $2 AND worker = $3 AND action = $4"


def gate(sequence: str, key: str) -> str:
    """Tell readers that a number above the sequence's present one is on its way (see docs/design.md, "settled")."""
    return f"pg_advisory_xact_lock_shared({key} | coalesce(pg_sequence_last_value({sequence}::regclass), 0))"


def drawn(sequence: str, key: str) -> str:
    """The number of an event: first the gate, then the number. The answer of a gate is void, which is not null."""
    return f"CASE WHEN {gate(sequence, key)} IS NOT NULL THEN nextval({sequence}::regclass) END"


# Numbers. The second is for many at once: one lock tells readers of them all.
DRAW = f"SELECT {drawn('$1', '$2')}"
DRAW_MORE = "SELECT nextval($1::regclass) FROM generate_series(1, $2)"
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
_HOLD = """
SELECT CASE WHEN held THEN pg_advisory_xact_lock($1::int, key)::text
    ELSE pg_advisory_xact_lock_shared($1::int, key)::text END
FROM unnest($2::int[], $3::bool[]) AS wanted (key, held)
"""
HOLD_PATHS = _HOLD
# The same without waiting: true if all are held now, false if somebody else has one; null if nothing was tried.
_TRY = """
SELECT bool_and(CASE WHEN held THEN pg_try_advisory_xact_lock($1::int, key)
    ELSE pg_try_advisory_xact_lock_shared($1::int, key) END)
FROM unnest($2::int[], $3::bool[]) AS wanted (key, held)
"""
TRY_PATHS = _TRY
# Locks whose literal prefix is one of some, or lies in one of some ranges. The index has the first 600 characters.
_NEAR = """dibs.lock WHERE board = $1
    AND (substr(prefix, 1, 600) = ANY(${0}::text[])
        OR (substr(prefix, 1, 600) >= ${2}::text AND substr(prefix, 1, 600) <= ${3}::text))
    AND (prefix = ANY(${1}::text[]) OR EXISTS (
        SELECT FROM unnest(${4}::text[], ${5}::text[]) AS below (low, high)
        WHERE prefix COLLATE "C" >= low COLLATE "C" AND prefix COLLATE "C" < high COLLATE "C"))
"""
TRY_PATHS_IF_FREE = f"{_TRY} WHERE NOT EXISTS (SELECT FROM {_NEAR.format(*range(4, 10))})"
DRAW_IF_FREE = f"SELECT {drawn('$8', '$9')} WHERE NOT EXISTS (SELECT FROM {_NEAR.format(*range(2, 8))})"


def _numbered(select: str, number: str) -> str:
    """A locking select as (row, number): the number is drawn once the row is locked."""
    return f"WITH found AS MATERIALIZED ({select} FOR NO KEY UPDATE) SELECT found.*, {number} FROM found"


def _both(select: str) -> dict[bool, str]:
    return {True: f"{select} FOR NO KEY UPDATE", False: select}


# Tasks: one by id; one by number and id; many by id.
_BY_ID = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND id = $2"
TASK_BY_ID = {True: _numbered(_BY_ID, drawn("$3", "$4")), False: f"SELECT found.*, NULL FROM ({_BY_ID}) found"}
_AGAIN = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND seq = $2 AND id = $3"
TASK_AGAIN = {True: _numbered(_AGAIN, drawn("$4", "$5")), False: f"SELECT found.*, NULL FROM ({_AGAIN}) found"}
NEEDS_OF_ID = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND id = ANY(string_to_array(
    (SELECT depends_on FROM dibs.task WHERE board = $1 AND id = $2), chr(10))) ORDER BY seq FOR NO KEY UPDATE
"""
TASKS_BY_ID = _both(f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND id = ANY($2::text[]) ORDER BY seq")


def ready(lane: str, only_any: bool, locking: str) -> str:
    """The best ready tasks of a lane behind a rank and a number, without those whose paths are among some.

    $2 how many, $3 rank and $4 number behind which to begin, $5 path lists to leave out; for writers $6 sequence, $7
    gate, $8 whether to draw a number for each that asks for no files. The last columns: the number, and where its
    front stands.

    `locking`: a look ("no"); passing over tasks that somebody else is at ("free"); the same, but if all that is ready
    is in others' hands waiting to see what they leave ("some").
    """

    def found(how: str, condition: str = "") -> str:
        return f"""
        SELECT task.*, front.low FROM dibs.front CROSS JOIN LATERAL (
            SELECT {TASK} FROM dibs.task
            WHERE board = $1 AND {IS_READY} AND {LANES[lane]} AND rank = front.rank
                AND seq + 0 >= CASE WHEN front.rank = $3 THEN greatest(front.low, $4) ELSE front.low END
                {"AND reserved = 'any'" if only_any else ""} AND (paths IS NULL OR paths <> ALL ($5::text[]))
            ORDER BY seq + 0 LIMIT $2 {how}) task
        WHERE front.board = $1 AND front.lane = '{lane}' AND front.rank >= $3 {condition}
        ORDER BY front.rank LIMIT $2"""

    columns = ", ".join("found." + column for column in TASK.split(", "))
    if locking == "no":
        return f"SELECT {columns}, NULL, found.low FROM ({found('')}) found"
    free = found("FOR NO KEY UPDATE SKIP LOCKED")
    rest = "UNION ALL SELECT * FROM left_over" if locking == "some" else ""
    # One lock tells readers of all the numbers.
    return f"""
    WITH free AS MATERIALIZED ({free}),
    left_over AS MATERIALIZED ({found("FOR NO KEY UPDATE", "AND NOT EXISTS (SELECT FROM free)")}),
    found AS MATERIALIZED (SELECT * FROM free {rest}),
    gated AS MATERIALIZED (SELECT {gate("$6", "$7")} FROM found WHERE paths IS NULL AND $8::bool LIMIT 1)
    SELECT {columns}, CASE WHEN found.paths IS NULL AND $8::bool THEN nextval($6::regclass) END, found.low
    FROM found LEFT JOIN gated ON true"""


# Leases that have run out; everything somebody works on; one name's.
_DUE = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND lease_expires_at <= $2"
DUE = {
    True: f"{_DUE} ORDER BY lease_expires_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED",
    False: f"{_DUE} ORDER BY lease_expires_at LIMIT $3",
}
# The same with the server's clock, for the first trip, when the time is not known yet.
DUE_NOW = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress'
    AND lease_expires_at <= coalesce($2::float8, extract(epoch FROM transaction_timestamp())::float8)
ORDER BY lease_expires_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
"""
IN_PROGRESS = f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' ORDER BY lease_expires_at"
IN_PROGRESS_BY = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND assigned_to = $2 ORDER BY lease_expires_at
"""
# With the time that it took: what comes in one trip with it may have waited for others.
HOLDERS = """
SELECT coalesce(array_agg(holder), '{}'), extract(epoch FROM clock_timestamp() - statement_timestamp())::float8
FROM (SELECT holder FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND holder IS NOT NULL
      UNION SELECT holder FROM dibs.lock WHERE board = $1) AS held
"""
_DEPENDANTS = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1
    AND seq IN (SELECT task FROM dibs.dependency WHERE board = $1 AND needs = ANY($2::bigint[])) ORDER BY seq
"""
DEPENDANTS = _both(_DEPENDANTS)
DEPENDANTS_OF_ID = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND seq IN (
    SELECT edge.task FROM dibs.dependency edge
    WHERE edge.board = $1 AND edge.needs = (SELECT seq FROM dibs.task WHERE board = $1 AND id = $2)) ORDER BY seq
FOR NO KEY UPDATE
"""
LINK = """
INSERT INTO dibs.dependency (board, needs, task) SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])
ON CONFLICT DO NOTHING
"""
UNLINK = """
DELETE FROM dibs.dependency USING unnest($2::bigint[], $3::bigint[]) AS gone (needs, task)
WHERE board = $1 AND dependency.needs = gone.needs AND dependency.task = gone.task
"""
COUNT_DEPENDANTS = """
UPDATE dibs.task SET dependants = dependants + change.by FROM unnest($2::bigint[], $3::int[]) AS change (seq, by)
WHERE board = $1 AND task.seq = change.seq
"""

TASK_COLUMNS = f"board, {TASK}, open_blockers, dependants"
INSERT = f"INSERT INTO dibs.task ({TASK_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, 31))})"
SAVE = """
UPDATE dibs.task SET status = $2, assigned_to = $3, depends_on = $4, result = $5, claimed_at = $6, completed_at = $7,
    token = $8, lease = $9, lease_expires_at = $10, holder = $11, steps = $12, blockers = $13, open_blockers = $14,
    attempts = $15, unmet = $16, last_event = $17, stamp = CASE WHEN token = $8 THEN stamp END
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
LOCKS_RUN_OUT = f"{_LOCKS} AND expires_at <= $2 ORDER BY pattern, token"
LOCKS_RUN_OUT_NOW = f"""
{_LOCKS} AND expires_at <= coalesce($2::float8, extract(epoch FROM transaction_timestamp())::float8)
ORDER BY pattern, token
"""
LOCKS_BY = f"{_LOCKS} AND worker = $2 ORDER BY pattern, token"
LOCKS_OF_TASK = f"{_LOCKS} AND task_id = $2 ORDER BY pattern, token"
_LOCKS_NEAR = f"SELECT {LOCK} FROM {_NEAR.format(*range(2, 8))} ORDER BY pattern, token"
LOCKS_NEAR = _both(_LOCKS_NEAR)
SAVE_LOCK = f"""
INSERT INTO dibs.lock (board, {LOCK}, prefix, worker)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (board, token, hashtextextended(pattern, 0), hashtextextended(pattern, 1)) DO UPDATE
SET holder = excluded.holder, acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at, lease = excluded.lease, shared = excluded.shared, task_id = excluded.task_id,
    worktree = excluded.worktree, worker = excluded.worker
"""
DROP_LOCKS = """
DELETE FROM dibs.lock USING unnest($2::text[], $3::bigint[]) AS gone (pattern, token)
WHERE board = $1 AND lock.token = gone.token AND lock.pattern = gone.pattern
"""

# The changelog.
EVENT_COLUMNS = f"board, {EVENT}, previous"
APPEND = f"INSERT INTO dibs.event ({EVENT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
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
REMEMBER = "INSERT INTO dibs.request (board, key, answer, time) VALUES ($1, $2, $3, $4)"
FORGET = "DELETE FROM dibs.request WHERE board = $1 AND time < $2"
REQUESTS = "SELECT key, answer, time FROM dibs.request WHERE board = $1 ORDER BY key"
POST = "INSERT INTO dibs.message (board, seq, time, sender, recipient, content) VALUES ($1, $2, $3, $4, $5, $6)"
_MESSAGES = "SELECT sender, content, recipient, time, seq FROM dibs.message WHERE board = $1 AND seq > $2 AND seq <= $3"
_FOR = " AND (recipient = $5 OR (recipient IS NULL AND sender <> $5))"
MESSAGES = {newest: f"{_MESSAGES} ORDER BY seq{' DESC' * newest} LIMIT $4" for newest in (False, True)}
MESSAGES_TO = {newest: f"{_MESSAGES}{_FOR} ORDER BY seq{' DESC' * newest} LIMIT $4" for newest in (False, True)}
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
