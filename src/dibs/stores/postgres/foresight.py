"""The statements of the first trip of a claim or a completion: all that may be needed to decide.

Some of it depends on what is found, so statements leave word for those behind them in the same trip, in settings that
last as long as the transaction: `dibs.paths`, the paths of the tasks that were found (`noting`); `dibs.spent`, which of
these have used up their attempts; `dibs.found`, how many ready ones there were. $1 is the board.

Which paths overlap is a rule, and not decided here. But where both are plain names or whole folders there is nothing to
decide, and a task whose files somebody else has is left out: there may be thousands.
"""

from __future__ import annotations

from dibs.stores.postgres.statements import HISTORY, IS_READY, LANES, clock
from dibs.stores.queries import LOCK, TASK

_SETTING = "nullif(current_setting('dibs.{0}', true), '')"


def _noted(**settings: str) -> str:
    """Leave word in settings; the answer is empty."""
    told = " || ".join(f"set_config('dibs.{name}', {value}, true)" for name, value in settings.items())
    return f"(SELECT left({told}, 0) FROM found)"


_PATHS = f"concat_ws(chr(10), {_SETTING.format('paths')}, string_agg(paths, chr(10)))"
_SPENT = (
    f"concat_ws(chr(10), {_SETTING.format('spent')}, string_agg(id, chr(10)) FILTER (WHERE attempts > max_attempts))"
)
_FOUND = f"coalesce({_SETTING.format('found')}, '0')::int"


def noting(select: str) -> str:
    """A select of tasks that leaves word of their paths, and of those that have used up their attempts."""
    return f"WITH found AS MATERIALIZED ({select}) SELECT found.*, {_noted(paths=_PATHS, spent=_SPENT)} FROM found"


# One task by id; what it waits for; who waits for it.
TASK_BY_ID = noting(f"SELECT {TASK} FROM dibs.task WHERE board = $1 AND id = $2 FOR NO KEY UPDATE")
NEEDS_OF_ID = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND id = ANY(string_to_array(
    (SELECT depends_on FROM dibs.task WHERE board = $1 AND id = $2), chr(10))) ORDER BY seq FOR NO KEY UPDATE
"""
DEPENDANTS_OF_ID = noting(f"""
    SELECT {TASK} FROM dibs.task WHERE board = $1 AND seq IN (
        SELECT edge.task FROM dibs.dependency edge
        WHERE edge.board = $1 AND edge.needs = (SELECT seq FROM dibs.task WHERE board = $1 AND id = $2)) ORDER BY seq
    FOR NO KEY UPDATE""")
# Leases that have run out, by the server's clock: the time is not known yet.
DUE_NOW = noting(f"""
    SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress'
        AND lease_expires_at <= coalesce($2::float8, extract(epoch FROM transaction_timestamp())::float8)
    ORDER BY lease_expires_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED""")
# What the holder of a task works on, and its locks.
IN_PROGRESS_BESIDE = f"""
SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress'
    AND assigned_to = (SELECT assigned_to FROM dibs.task WHERE board = $1 AND id = $2) ORDER BY lease_expires_at
"""
LOCKS_BESIDE = f"""
SELECT {LOCK} FROM dibs.lock
WHERE board = $1 AND worker = (SELECT assigned_to FROM dibs.task WHERE board = $1 AND id = $2)
ORDER BY pattern, token
"""

# The literal prefixes of the paths of which word was left, and the folders above them; a `[` that opens no class is
# taken for one, so a prefix may be shorter than it is. Then the locks whose prefix is one of these, or below one.
_WANTED = """wanted AS MATERIALIZED (
    SELECT DISTINCT regexp_replace(path, '(^|/)[^/]*[*?[].*$', '') AS prefix
    FROM unnest(string_to_array(current_setting('dibs.paths', true), chr(10))) AS path WHERE path <> ''),
above AS MATERIALIZED (
    SELECT DISTINCT substr(array_to_string(parts[1:depth], '/'), 1, 600) AS prefix
    FROM (SELECT string_to_array(prefix, '/') AS parts FROM wanted) AS w, generate_series(0, cardinality(parts)) depth)
"""
_RELATED = f"""
SELECT {LOCK} FROM dibs.lock WHERE board = $1 AND substr(prefix, 1, 600) = ANY (ARRAY(SELECT prefix FROM above))
UNION ALL
SELECT {", ".join("lock." + column for column in LOCK.split(", "))} FROM wanted
JOIN dibs.lock ON lock.board = $1 AND substr(lock.prefix, 1, 600) >= substr(wanted.prefix || '/', 1, 600)
    AND substr(lock.prefix, 1, 600) <= substr(wanted.prefix || '0', 1, 600)
WHERE wanted.prefix <> ''
UNION ALL
SELECT {LOCK} FROM dibs.lock WHERE board = $1 AND EXISTS (SELECT FROM wanted WHERE prefix = '')
"""
LOCKS_RELATED = f"WITH {_WANTED} {_RELATED}"

# What others surely hold: paths and whole folders, and the folders that those are in. A glob may meet another or not,
# and who has its record here may be dead; that is not decided now.
_HELD = f"""held AS MATERIALIZED (
    SELECT DISTINCT prefix FROM dibs.lock WHERE board = $1 AND expires_at > {clock("$5")} AND worker <> $6
        AND pattern IN (prefix, prefix || '/**') AND ($7::text IS NULL OR strpos(holder, $7) = 0 OR holder = ANY($8))),
inside AS MATERIALIZED (
    SELECT DISTINCT array_to_string(parts[1:depth], '/') AS prefix
    FROM (SELECT string_to_array(prefix, '/') AS parts FROM held) AS h, generate_series(1, cardinality(parts)) depth)
"""
_IS_HELD = """EXISTS (
    SELECT FROM (SELECT regexp_replace(path, '/[*][*]$', '') AS name
                 FROM unnest(string_to_array(paths, chr(10))) AS path) AS wanted,
        LATERAL (SELECT string_to_array(name, '/') AS parts) AS split
    WHERE name !~ '[*?[]' AND (name IN (SELECT prefix FROM inside) OR EXISTS (
        SELECT FROM generate_series(1, cardinality(parts)) depth
        WHERE array_to_string(parts[1:depth], '/') IN (SELECT prefix FROM held))))"""

NEXT = 8
"""So many tasks are locked, where there is doubt whether somebody holds the paths of the best one, …"""
AHEAD = 64
"""… and so many are looked at."""
FOUND_NONE = "SELECT set_config('dibs.found', '0', true)"

_texts: dict[tuple[str, bool, str, bool], str] = {}


def ready(lane: str, only_any: bool, way: str, one: bool) -> str:
    """See `_ready`; each is made once."""
    key = (lane, only_any, way, one)
    if key not in _texts:
        _texts[key] = _ready(*key)
    return _texts[key]


def _ready(lane: str, only_any: bool, way: str, one: bool) -> str:
    """The best ready tasks of a lane behind a rank and a number, for a worker of some name, without those whose paths
    are among some, and without those whose paths others surely hold.

    $2 rank and $3 number behind which to begin, $4 path lists to leave out, $5 the tests' time, $6 the name, $7 what
    the record of a holder contains that may be dead, unless it is one of $8, $9 how many unless `one`. The last
    columns: where its front stands, and what is said to the statements behind this one.

    `way`: a look ("no"); passing over tasks that somebody else is at ("free"); if none was found so, because all that
    is ready is in others' hands, waiting to see what they leave ("rest"); if there are locks near the paths of which
    word was left, passing over others again, the first `NEXT` ("next"), and a look at the first `AHEAD` ("ahead").
    """
    limit = "1" if one else "$9"
    if way in ("next", "ahead"):
        limit = str(NEXT if way == "next" else AHEAD)

    def found(how: str, condition: str = "") -> str:
        fronts = f"dibs.front WHERE board = $1 AND lane = '{lane}' AND rank >= $2 {condition}"
        # Several of one front: sorted behind the join, so many of every front would be locked.
        fronts = f"(SELECT * FROM {fronts} ORDER BY rank OFFSET 0)" if way == "next" else f"(SELECT * FROM {fronts})"
        return f"""
        SELECT task.*, front.low FROM {fronts} AS front CROSS JOIN LATERAL (
            SELECT {TASK} FROM dibs.task
            WHERE board = $1 AND {IS_READY} AND {LANES[lane]} AND rank = front.rank
                AND seq + 0 >= CASE WHEN front.rank = $2 THEN greatest(front.low, $3) ELSE front.low END
                {"AND reserved = 'any'" if only_any else ""}
                AND ($6::text IS NULL OR assigned_to IS NULL OR assigned_to = $6)
                AND (paths IS NULL OR (paths <> ALL ($4::text[]) AND NOT {_IS_HELD}))
            ORDER BY seq + 0 LIMIT {limit} {how}) task
        ORDER BY front.rank LIMIT {limit}"""

    columns = ", ".join("found." + column for column in TASK.split(", "))
    if way == "no":
        return f"WITH {_HELD} SELECT {columns}, found.low FROM ({found('')}) found"
    if way in ("next", "ahead"):
        how = "FOR NO KEY UPDATE SKIP LOCKED" if way == "next" else ""
        return f"""
        WITH {_WANTED}, {_HELD},
        doubt AS MATERIALIZED (
            SELECT EXISTS (SELECT FROM ({_RELATED}) AS near WHERE expires_at > {clock("$5")}) AS yes),
        found AS MATERIALIZED ({found(how, "AND (SELECT yes FROM doubt)")})
        SELECT {columns}, found.low, {_noted(paths=_PATHS, found="'0'")}
        FROM found"""
    locked = found("FOR NO KEY UPDATE SKIP LOCKED")
    if way == "rest":
        locked = found("FOR NO KEY UPDATE", f"AND (SELECT {_FOUND} = 0)")
    return f"""
    WITH {_HELD}, found AS MATERIALIZED ({locked})
    SELECT {columns}, found.low, {_noted(paths=_PATHS, found=f"({_FOUND} + count(*))::text")} FROM found"""


# What holders may have left behind whose record contains $2 and is not among $3: surely, or if fewer than $5 ready
# tasks were found. With whether it was looked, and the time that it took: what comes in one trip may have waited.
_IF_WANTED = f"(SELECT $4::bool OR {_FOUND} < $5::int)"
_LEFT = "strpos(holder, $2::text) > 0 AND holder <> ALL($3::text[])"
FEW = 200
"""So many tasks are fetched that somebody may have left behind. Where there are more, only whose they are: mostly all
of these live."""
_LEFT_TASKS = f"dibs.task WHERE {_IF_WANTED} AND board = $1 AND status = 'in_progress' AND {_LEFT}"
LEFT_TASKS = f"""
WITH found AS MATERIALIZED (SELECT {TASK} FROM {_LEFT_TASKS} ORDER BY lease_expires_at LIMIT {FEW + 1})
SELECT found.*, {_IF_WANTED},
    CASE WHEN (SELECT count(*) FROM found) > {FEW} THEN (SELECT array_agg(DISTINCT holder) FROM {_LEFT_TASKS}) END,
    extract(epoch FROM clock_timestamp() - statement_timestamp())::float8, {_noted(paths=_PATHS, spent=_SPENT)}
FROM (SELECT) AS one LEFT JOIN found ON true
"""
TASKS_OF = noting(f"""
    SELECT {TASK} FROM dibs.task WHERE board = $1 AND status = 'in_progress' AND holder = ANY($2::text[])
    ORDER BY lease_expires_at LIMIT $3""")
LEFT_LOCKS = f"""
SELECT {LOCK} FROM dibs.lock WHERE {_IF_WANTED} AND board = $1 AND (expires_at <= {clock("$6")} OR ({_LEFT}))
ORDER BY pattern, token
"""
# The last events of each task that has used up its attempts.
HISTORY_LENGTH = 30
HISTORIES = f"""
SELECT past.* FROM (
    SELECT DISTINCT unnest(string_to_array(current_setting('dibs.spent', true), chr(10))) AS id) AS spent
CROSS JOIN LATERAL ({HISTORY.replace("$2", "spent.id").replace("$3", "0").replace("$4", str(HISTORY_LENGTH))}) AS past
"""
