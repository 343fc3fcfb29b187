"""The statements of the first trip of a claim or a completion: all that may be needed to decide.

Some of it depends on what is found, so statements leave word for those behind them in the same trip, in settings that
last as long as the transaction: `dibs.paths`, the paths of the tasks that were found (`noting`); `dibs.spent`, which of
these have used up their attempts; `dibs.found`, how many ready ones there were. $1 is the board.

Which paths overlap is a rule, and not decided here. But where both are plain names or whole folders there is nothing to
decide, and a task whose files somebody else has is left out: there may be thousands.
"""

from __future__ import annotations

from dibs.stores.postgres.overlapping import (
    HELD,
    IS_HELD,
    IS_SURELY_HELD,
    MAY_BE_HELD,
    MAY_MEET,
    binds,
    folders,
    meets,
    stem,
)
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
_LAST_RANK, _LAST_SEQ = 2**31 - 1, 2**63 - 1
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

# The literal prefixes of the paths of which word was left, and the folders above them.
_WANTED = f"""wanted AS MATERIALIZED (
    SELECT DISTINCT {stem("path")} AS prefix
    FROM unnest(string_to_array(current_setting('dibs.paths', true), chr(10))) AS path WHERE path <> ''),
above AS MATERIALIZED (SELECT DISTINCT above.prefix FROM wanted, LATERAL ({folders("wanted.prefix")}) AS above)
"""
# The locks whose prefix is one of these, or below one. There may be thousands of both, so those below are looked for
# between the first and the last of all, and each knows its own folders.
LOCKS_RELATED = f"""
WITH {_WANTED}
SELECT {LOCK} FROM dibs.lock WHERE board = $1 AND substr(prefix, 1, 600) = ANY (ARRAY(SELECT prefix FROM above))
UNION ALL
SELECT {LOCK} FROM dibs.lock WHERE board = $1
    AND substr(prefix, 1, 600) > (SELECT min(substr(prefix, 1, 600)) FROM wanted)
    AND substr(prefix, 1, 600) <= (
        SELECT max(substr(CASE prefix WHEN '' THEN chr(1114111) ELSE prefix || '0' END, 1, 600)) FROM wanted)
    AND substr(prefix, 1, 600) NOT IN (SELECT prefix FROM above)
    AND EXISTS (
        SELECT FROM ({folders("lock.prefix")}) AS own
        WHERE own.prefix IN (SELECT substr(prefix, 1, 600) FROM wanted))
"""

# May somebody else hold something of these? Then it is not certain that the best tasks can be had: what follows them is
# wanted, and what the dead may hold. $2 the tests' time, $3 the asker's name, $4 its session.
DOUBT = f"""
WITH doubt AS MATERIALIZED (
    SELECT {meets("current_setting('dibs.paths', true)", binds("$2", "$3", "$4"), MAY_MEET)} AS yes)
SELECT set_config('dibs.doubt', yes::text, true), CASE WHEN yes THEN set_config('dibs.found', '0', true) END,
    set_config('dibs.open', '', true), set_config('dibs.human', '', true)
FROM doubt
"""
_IN_DOUBT = f"(SELECT {_SETTING.format('doubt')} = 'true')"
FOUND_NONE = "SELECT set_config('dibs.found', '0', true)"
AHEAD = 64
"""So many tasks are looked at where there is doubt, and more if the server is sure of too few of them."""
NEAREST, NEXT = 32, 8
"""Of the first so many of these as many are locked."""

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
    the record of a holder contains that may be dead, unless it is one of $8, $9 the session, $10 how many unless `one`.
    The last columns: where its front stands, and what is said to the statements behind this one.

    `way`: a look ("no"); passing over tasks that somebody else is at ("free"); if none was found so, because all that
    is ready is in others' hands, waiting to see what they leave ("rest"); if there is doubt (`DOUBT`), a look at all of
    which the server is not sure that somebody holds them, up to so many of which it is sure that nobody does, and
    whether there are any ("ahead"): with that nothing more has to be asked for; and passing over others again, the
    first of these ("next").
    """
    limit = "1" if one else "$10"
    number = "0 + seq" if only_any else "seq + 0"  # the order of one index only: see `schema`
    columns = ", ".join("found." + column for column in TASK.split(", "))
    if way == "next":
        return _next(lane, only_any)

    def found(columns: str, free: str, how: str = "", fronts: str = "", tasks: str = "", most: str = limit) -> str:
        ordered = f"SELECT * FROM dibs.front WHERE board = $1 AND lane = '{lane}' AND rank >= $2 {fronts}"
        if way == "ahead":  # several of one front: sorted behind the join, so many of each would be read
            ordered += " ORDER BY rank OFFSET 0"
        return f"""
        SELECT task.*, front.low FROM ({ordered}) AS front CROSS JOIN LATERAL (
            SELECT {columns} FROM dibs.task
            WHERE board = $1 AND {IS_READY} AND {LANES[lane]} AND rank = front.rank
                AND {number} >= CASE WHEN front.rank = $2 THEN greatest(front.low, $3) ELSE front.low END {tasks}
                {"AND reserved = 'any'" if only_any else ""}
                AND ($6::text IS NULL OR assigned_to IS NULL OR assigned_to = $6)
                AND (paths IS NULL OR (paths <> ALL ($4::text[]) AND {free}))
            ORDER BY {number} LIMIT {most} {how}) task
        ORDER BY front.rank LIMIT {most}"""

    quickly = f"NOT {IS_HELD}"
    if way == "no":
        return f"WITH {HELD} SELECT {columns}, found.low FROM ({found(TASK, quickly)}) found"
    if way == "ahead":
        thoroughly = f"NOT {IS_HELD} AND NOT {IS_SURELY_HELD}"
        most = f"{AHEAD} + {limit}"
        first = found(f"{TASK}, {MAY_BE_HELD} AS doubt", thoroughly, fronts=f"AND {_IN_DOUBT}", most=most)
        on = f"AND {_IN_DOUBT} AND NOT (SELECT yes FROM enough)"
        sure = found("rank, seq", f"NOT {IS_HELD} AND NOT {MAY_BE_HELD}", fronts=on)
        rows = found(
            TASK,
            thoroughly,
            fronts=f"{on} AND rank <= coalesce((SELECT rank FROM last), {_LAST_RANK})",
            tasks=f"AND {number} <= CASE front.rank WHEN (SELECT rank FROM last) THEN (SELECT seq FROM last) "
            f"ELSE {_LAST_SEQ} END",
            most="ALL",
        )
        nearest = (
            f"(SELECT string_agg(seq::text, ',') FROM (SELECT seq FROM found ORDER BY rank, seq LIMIT {NEAREST}) AS f)"
        )
        return f"""
        WITH {HELD}, first AS MATERIALIZED ({first}),
        enough AS MATERIALIZED (
            SELECT count(*) < {most} OR count(*) FILTER (WHERE NOT doubt) >= {limit} AS yes FROM first),
        sure AS MATERIALIZED ({sure}),
        last AS MATERIALIZED (
            SELECT rank, seq FROM sure WHERE (SELECT count(*) FROM sure) = {limit}
            ORDER BY rank DESC, seq DESC LIMIT 1),
        found AS MATERIALIZED (
            SELECT {TASK}, low FROM first WHERE (SELECT yes FROM enough) UNION ALL ({rows}))
        SELECT {columns}, found.low, EXISTS (SELECT FROM first WHERE NOT doubt) OR EXISTS (SELECT FROM sure),
            {_noted(paths=_PATHS, **{lane: nearest})} FROM found"""
    rows = found(TASK, quickly, "FOR NO KEY UPDATE SKIP LOCKED")
    if way == "rest":
        rows = found(TASK, quickly, "FOR NO KEY UPDATE", f"AND (SELECT {_FOUND} = 0)")
    return f"""
    WITH {HELD}, found AS MATERIALIZED ({rows})
    SELECT {columns}, found.low, {_noted(paths=_PATHS, found=f"({_FOUND} + count(*))::text")} FROM found"""


def _next(lane: str, only_any: bool) -> str:
    """$2 the name. One by one, and so that the server cannot look for them among all that is ready."""
    return f"""
    SELECT task.* FROM unnest(string_to_array({_SETTING.format(lane)}, ',')::bigint[]) AS near (number)
    CROSS JOIN LATERAL (
        SELECT {TASK} FROM dibs.task
        WHERE board = $1 AND seq = near.number AND {IS_READY.replace("unmet", "unmet + 0")} AND {LANES[lane]}
            {"AND reserved = 'any'" if only_any else ""}
            AND ($2::text IS NULL OR assigned_to IS NULL OR assigned_to = $2)
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS task LIMIT {NEXT}"""


# What holders may have left behind whose record contains $2 and is not among $3: surely, or if fewer than $5 ready
# tasks were found. With whether it was looked, and the time that it took: what comes in one trip may have waited.
_IF_WANTED = f"(SELECT $4::bool OR {_FOUND} < $5::int)"
_LEFT = "strpos(holder, $2::text) > 0 AND holder <> ALL($3::text[])"
FEW = 200
"""So many tasks are fetched that somebody may have left behind, where there is a trip to spare. If there are more, only
whose they are: mostly all of these live."""
_LEFT_TASKS = f"dibs.task WHERE {_IF_WANTED} AND board = $1 AND status = 'in_progress' AND {_LEFT}"


def _left_tasks(limit: str, holders: str) -> str:
    return f"""
    WITH found AS MATERIALIZED (SELECT {TASK} FROM {_LEFT_TASKS} ORDER BY lease_expires_at LIMIT {limit})
    SELECT found.*, {_IF_WANTED}, {holders},
        extract(epoch FROM clock_timestamp() - statement_timestamp())::float8, {_noted(paths=_PATHS, spent=_SPENT)}
    FROM (SELECT) AS one LEFT JOIN found ON true"""


LEFT_TASKS = _left_tasks("ALL", "NULL")
LEFT_TASKS_IF_FEW = _left_tasks(
    f"{FEW + 1}",
    f"CASE WHEN (SELECT count(*) FROM found) > {FEW} THEN (SELECT array_agg(DISTINCT holder) FROM {_LEFT_TASKS}) END",
)
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
