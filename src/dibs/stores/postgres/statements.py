"""The statements of the PostgreSQL store, but for those that make tables (`schema`) and the fast path.

Placeholders are the server's own; $1 is always the board. LIMIT of a claim is a literal 1 where it can be: with a
parameter, PostgreSQL rejects the generic plan and plans every call anew.
"""

from __future__ import annotations

from zlib import crc32

from dibs.stores.rows import EVENT, LOCK, TASK

IS_READY = "status = 'pending' AND unmet = 0 AND open_blockers = 0"
_IS_CLOSED = "status IN ('completed', 'failed', 'cancelled')"
_IS_WAITING = "status = 'pending' AND (unmet > 0 OR open_blockers > 0)"
QUEUES = {"open": "reserved <> 'human'", "human": "reserved = 'human'"}
"""Ready tasks stand in two queues, each with an index of its own: those that an agent may take, and the humans'."""

_VERSION = "xmin::text::bigint AS version"
ROW = f"{TASK}, {_VERSION}"
"""A task and its version: the transaction that wrote the row."""
WIDTH = len(TASK.split(", "))
LOCK_ROW = f"{LOCK}, {_VERSION}"


def clock(given: str) -> str:
    """The time: as given, by tests, else the server's."""
    return f"coalesce({given}::float8, extract(epoch FROM clock_timestamp())::float8)"


# Beginning. The head answers the time, and lets the server end a transaction whose client has gone quiet: a paused
# worker must not hold up the others. Nor must one that was cut off in the middle of what it sent.
BEGIN = {
    True: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    False: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
# Times are read, and written into the changelog, as text. A role may be set to round that.
EXACT = "set_config('extra_float_digits', '1', true)"
# The last notices that unacknowledged answers wait, too; a server that cannot would say so in its log every time.
_NOTICE = """set_config('tcp_keepalives_idle', $3, true), set_config('tcp_keepalives_interval', '1', true),
    set_config('tcp_keepalives_count', '3', true),
    CASE WHEN version() LIKE '%linux%' THEN set_config('tcp_user_timeout', $3, true) END"""
_HEAD = f"{clock('$1')}, set_config('idle_in_transaction_session_timeout', $2, true), {EXACT}"
HEAD = {True: f"SELECT pg_current_xact_id()::text, {_HEAD}, {_NOTICE}", False: f"SELECT NULL, {_HEAD}"}
NOW = f"SELECT {clock('$1')}"
# What became of a transaction whose connection broke, and whether it is ours: a server that has lost its newest past in
# a failover gives the number to another.
FATE = "SELECT pg_xact_status($1::xid8)"
IS_OURS = "SELECT seq FROM dibs.event WHERE board = $1 AND seq = $2 AND worker = $3 AND action = $4"


# Numbers. Before one is drawn, readers are told that one above the present is on its way (docs/design.md, "Stable").
def gate(sequence: str, key: str) -> str:
    return f"pg_advisory_xact_lock_shared({key} | coalesce(pg_sequence_last_value({sequence}::regclass), 0))"


def drawn(sequence: str, key: str) -> str:
    """First the gate, then the number. The answer of a gate is void, which is not null."""
    return f"CASE WHEN {gate(sequence, key)} IS NOT NULL THEN nextval({sequence}::regclass) END"


DRAW = f"""
WITH gated AS MATERIALIZED (SELECT {gate("$1", "$2")})
SELECT nextval($1::regclass) FROM gated, generate_series(1, $3::int)
"""
DRAW_TASKS = "SELECT nextval($1::regclass) FROM generate_series(1, $2::int)"
# How far the changelog is stable: the sequence first, then who may still be writing below it.
LAST_NUMBER = "SELECT coalesce(pg_sequence_last_value($1::regclass), 0)"
IN_FLIGHT = """
SELECT min(((classid::bigint << 32) | objid::bigint) & 1099511627775) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) >> 40 = $1 AND pid <> pg_backend_pid()
"""
NEWEST = "SELECT coalesce(max(seq), 0) FROM dibs.event WHERE board = $1"

# Exclusion by name until the transaction ends: (board, one of these keys, or a reader's).
PATH_LOCKS, WATERMARKS = 1, 2


def reader_key(reader: str) -> int:
    """Two readers with one key only make each other wait."""
    return crc32(reader.encode()) - 2**31


HOLD = "SELECT pg_advisory_xact_lock($1::int, $2::int)"
SHARE = "SELECT pg_advisory_xact_lock_shared($1::int, $2::int)"

# Validation: hold rows that were handed out by plain reads, if they are still as they were. If not, the server is made
# to stumble over a text that is no number: plain SQL knows no other way to end a transaction by itself.
FASTER = "dibs: another writer was faster"
_UNLESS_ALL = f"""SELECT CASE WHEN count(*) = cardinality($2::bigint[]) THEN 1
    ELSE ('{FASTER}; nothing was changed (' || count(*) || ')')::int END"""
_VALIDATE = f"""
WITH held AS MATERIALIZED (
    SELECT seq, {_VERSION} FROM dibs.task
    WHERE board = $1 AND seq = ANY($2::bigint[]) ORDER BY seq FOR NO KEY UPDATE@)
{_UNLESS_ALL}
FROM held JOIN unnest($2::bigint[], $3::bigint[]) AS seen (seq, version) USING (seq, version)
"""
VALIDATE_TASKS = {waits: _VALIDATE.replace("@", "" if waits else " SKIP LOCKED") for waits in (False, True)}
# One that is renewed must not have run out: somebody may have been granted what it covered.
VALIDATE_LOCKS = f"""
WITH held AS MATERIALIZED (
    SELECT lock.token, lock.pattern, lock.expires_at, lock.xmin::text::bigint AS version
    FROM dibs.lock JOIN unnest($2::bigint[], $3::text[]) AS seen (token, pattern) USING (token, pattern)
    WHERE board = $1 AND token = ANY($2::bigint[]) ORDER BY lock.pattern, lock.token
    FOR NO KEY UPDATE OF lock SKIP LOCKED)
{_UNLESS_ALL}
FROM held JOIN unnest($2::bigint[], $3::text[], $4::bigint[], $5::bool[]) AS seen (token, pattern, version, renewed)
    USING (token, pattern, version)
WHERE NOT renewed OR expires_at > {clock("$6")}
"""

# Tasks by id; leases that have run out; what is in progress; who holds something; who waits for some.
TASKS_BY_ID = f"SELECT {ROW} FROM dibs.task WHERE board = $1 AND id = ANY($2::text[]) ORDER BY seq"
_DUE = f"""
SELECT {ROW} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND lease_expires_at <= (SELECT {clock("$2")})
ORDER BY lease_expires_at LIMIT $3"""
DUE = {True: f"{_DUE} FOR NO KEY UPDATE SKIP LOCKED", False: _DUE}
IN_PROGRESS = f"SELECT {ROW} FROM dibs.task WHERE board = $1 AND status = 'in_progress' ORDER BY lease_expires_at"
IN_PROGRESS_BY = f"""
SELECT {ROW} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND assigned_to = $2 ORDER BY lease_expires_at
"""
HOLDERS = """
SELECT DISTINCT holder FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND holder IS NOT NULL
UNION SELECT holder FROM dibs.lock WHERE board = $1
"""
DEPENDANTS = f"""
SELECT {ROW} FROM dibs.task WHERE board = $1
    AND seq IN (SELECT task FROM dibs.dependency WHERE board = $1 AND needs = ANY($2::bigint[])) ORDER BY seq
"""


def ready(queue: str, only_any: bool, claim: bool, one: bool) -> str:
    """The best ready tasks of a queue: $2 rank and $3 number from which on, $4 path lists to leave out, $5 how many
    (unless `one`). The last column is the floor of the rank's watermark."""
    limit = "1" if one else "$5::int"
    number = "0 + seq" if only_any else "seq + 0"  # the order of one index only: see `schema`
    return f"""
    SELECT found.*, mark.floor FROM dibs.ready_watermark AS mark CROSS JOIN LATERAL (
        SELECT {ROW} FROM dibs.task
        WHERE board = $1 AND {IS_READY} AND {QUEUES[queue]} AND rank = mark.rank
            AND {number} >= CASE WHEN mark.rank = $2 THEN greatest(mark.floor, $3) ELSE mark.floor END
            {"AND reserved = 'any'" if only_any else ""}
            AND (paths IS NULL OR paths <> ALL($4::text[]))
        ORDER BY {number} LIMIT {limit} {"FOR NO KEY UPDATE SKIP LOCKED" if claim else ""}) AS found
    WHERE mark.board = $1 AND mark.queue = '{queue}' AND mark.rank >= $2
    ORDER BY mark.rank LIMIT {limit}"""


# Writing tasks.
TASK_COLUMNS = f"board, {TASK}, open_blockers"
INSERT = f"INSERT INTO dibs.task ({TASK_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, 30))})"
SAVE = """
UPDATE dibs.task SET status = $2, assigned_to = $3, depends_on = $4, result = $5, claimed_at = $6, completed_at = $7,
    token = $8, lease = $9, lease_expires_at = $10, holder = $11, steps = $12, blockers = $13, open_blockers = $14,
    attempts = $15, unmet = $16, last_event = $17, claim_mark = CASE WHEN token = $8 THEN claim_mark END
WHERE board = $1 AND seq = $18
"""
# Dependencies of a task: ids of what it needs, and its number beside each. `dependants` follows.
_NAMED = """named AS MATERIALIZED (
    SELECT need.seq AS needs, edge.task FROM unnest($2::text[], $3::bigint[]) AS edge (need, task)
    JOIN dibs.task AS need ON need.board = $1 AND need.id = edge.need)"""
LINK = f"""
WITH {_NAMED},
made AS (
    INSERT INTO dibs.dependency (board, needs, task) SELECT $1, needs, task FROM named ON CONFLICT DO NOTHING
    RETURNING needs)
UPDATE dibs.task SET dependants = dependants + change.by FROM (
    SELECT needs, count(*) AS by FROM made GROUP BY needs) AS change
WHERE board = $1 AND seq = change.needs
"""
UNLINK = f"""
WITH {_NAMED},
gone AS (
    DELETE FROM dibs.dependency AS edge USING named
    WHERE edge.board = $1 AND edge.needs = ANY(ARRAY(SELECT needs FROM named))
        AND edge.needs = named.needs AND edge.task = named.task
    RETURNING edge.needs)
UPDATE dibs.task SET dependants = dependants - change.by FROM (
    SELECT needs, count(*) AS by FROM gone GROUP BY needs) AS change
WHERE board = $1 AND seq = change.needs
"""
# Where the ready tasks of a rank begin: never above a ready one, and there before one is. A watermark that is low
# enough is left alone (nobody raises it meanwhile): an upsert would hold its row, and all who make tasks ready would
# queue up.
_LOWER = """
INSERT INTO dibs.ready_watermark AS mark (board, queue, rank, floor)
SELECT $1, queue, rank, seq FROM freed WHERE NOT EXISTS (
    SELECT FROM dibs.ready_watermark AS low
    WHERE low.board = $1 AND low.queue = freed.queue AND low.rank = freed.rank AND low.floor <= freed.seq)
ORDER BY queue, rank
ON CONFLICT (board, queue, rank) DO UPDATE SET floor = excluded.floor WHERE mark.floor > excluded.floor"""
# A task was completed: those that wait for it wait for one less.
SATISFY = f"""
WITH waiting AS MATERIALIZED (
    SELECT seq FROM dibs.task
    WHERE board = $1 AND seq IN (SELECT task FROM dibs.dependency WHERE board = $1 AND needs = $2)
    ORDER BY seq FOR NO KEY UPDATE),
lowered AS (
    UPDATE dibs.task SET unmet = unmet - 1 FROM waiting WHERE board = $1 AND task.seq = waiting.seq
    RETURNING task.seq, rank, reserved, status, unmet, open_blockers),
freed AS (
    SELECT CASE reserved WHEN 'human' THEN 'human' ELSE 'open' END AS queue, rank, min(seq) AS seq
    FROM lowered WHERE {IS_READY} GROUP BY 1, 2)
{_LOWER}
"""
LOWER_WATERMARKS = f"""
WITH freed AS (SELECT * FROM unnest($2::text[], $3::int[], $4::bigint[]) AS made (queue, rank, seq))
{_LOWER}
"""


def raise_watermark(queue: str) -> str:
    """$2 the rank, $3 the sequence of tasks, $4 how far it must be behind: several may have seen that at once, and what
    each of them writes is read by every claim until it can be vacuumed. The caller has shut out all who make tasks
    ready."""
    return f"""
    WITH was AS MATERIALIZED (
        SELECT floor FROM dibs.ready_watermark WHERE board = $1 AND queue = '{queue}' AND rank = $2),
    found AS MATERIALIZED (
        SELECT coalesce(
            (SELECT seq FROM dibs.task
             WHERE board = $1 AND {IS_READY} AND {QUEUES[queue]} AND rank = $2 AND seq + 0 >= (SELECT floor FROM was)
             ORDER BY seq + 0 LIMIT 1),
            (SELECT coalesce(pg_sequence_last_value($3::regclass), 0) + 1)) AS floor)
    UPDATE dibs.ready_watermark SET floor = found.floor FROM was, found
    WHERE board = $1 AND queue = '{queue}' AND rank = $2 AND found.floor > was.floor + $4::bigint"""


EDGES = """
SELECT coalesce(task.id, 'number ' || edge.task), coalesce(need.id, 'number ' || edge.needs)
FROM dibs.dependency AS edge
LEFT JOIN dibs.task ON task.board = $1 AND task.seq = edge.task
LEFT JOIN dibs.task AS need ON need.board = $1 AND need.seq = edge.needs
WHERE edge.board = $1 ORDER BY edge.task, edge.needs
"""

# Locks: all; one name's; those that have run out; those whose literal prefix is one of some, or lies in one of some
# ranges (the index has the first 600 characters).
_LOCKS = f"SELECT {LOCK_ROW} FROM dibs.lock WHERE board = $1"
LOCKS = f"{_LOCKS} ORDER BY pattern, token"
LOCKS_BY = f"{_LOCKS} AND worker = $2 ORDER BY pattern, token"
LOCKS_EXPIRED = f"{_LOCKS} AND expires_at <= (SELECT {clock('$2')}) ORDER BY pattern, token"
LOCKS_NEAR = f"""{_LOCKS}
    AND (substr(prefix, 1, 600) = ANY($2::text[])
        OR (substr(prefix, 1, 600) >= $4::text AND substr(prefix, 1, 600) <= $5::text))
    AND (prefix = ANY($3::text[]) OR EXISTS (
        SELECT FROM unnest($6::text[], $7::text[]) AS below (low, high)
        WHERE prefix COLLATE "C" >= low COLLATE "C" AND prefix COLLATE "C" < high COLLATE "C"))
    ORDER BY pattern, token"""
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
WHERE lock.board = $1 AND lock.token = ANY($3::bigint[]) AND lock.token = gone.token AND lock.pattern = gone.pattern
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
    JOIN dibs.event e ON e.board = $1 AND e.seq = past.previous AND e.seq > $3 AND past.nth < $4::bigint)
SELECT {EVENT} FROM past ORDER BY seq
"""
# Requests, messages, marks.
REMEMBER = "INSERT INTO dibs.request (board, key, answer, time) VALUES ($1, $2, $3, $4)"
FORGET = "DELETE FROM dibs.request WHERE board = $1 AND time < $2"
REQUESTS = "SELECT key, answer, time FROM dibs.request WHERE board = $1 ORDER BY key"
REQUEST = "SELECT key, answer, time FROM dibs.request WHERE board = $1 AND key = $2"
POST = "INSERT INTO dibs.message (board, seq, time, sender, recipient, content) VALUES ($1, $2, $3, $4, $5, $6)"
_MESSAGES = "SELECT sender, content, recipient, time, seq FROM dibs.message WHERE board = $1 AND seq > $2"
_FOR = " AND (recipient = $4 OR (recipient IS NULL AND sender <> $4)) AND seq <= $5"
MESSAGES = {newest: f"{_MESSAGES} ORDER BY seq{' DESC' * newest} LIMIT $3" for newest in (False, True)}
MESSAGES_TO = {newest: f"{_MESSAGES}{_FOR} ORDER BY seq{' DESC' * newest} LIMIT $3" for newest in (False, True)}
MARK = "SELECT name, mark FROM dibs.reader WHERE board = $1 AND name = $2"
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
    ("pending", f"{IS_READY} AND {QUEUES['open']}"),
    ("pending", f"{IS_READY} AND {QUEUES['human']}"),
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
