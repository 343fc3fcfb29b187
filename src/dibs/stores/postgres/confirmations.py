"""The statements by which a transaction that has only looked holds, at its end, what it has looked at (`confirming`).

If something is not as it was, the server is made to stumble over a text that is no number: plain SQL knows no other way
to end a transaction by itself. $1 is the board.
"""

from __future__ import annotations

from dibs.stores.postgres.statements import NEAR, clock

FASTER = "dibs: others were faster"
"""What the server is made to stumble over when a transaction that has only looked finds something changed at its end.
(Not a constant where it stands: the planner would stumble over that.)"""


def _unless(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 1 ELSE ('{FASTER}, nothing was changed (' || count(*) || ')')::int END"


# Hold tasks and locks that were looked at, and see that they are as they were, and (where it matters) that their leases
# have not run out; hold paths without waiting; see that no lock has come near some paths.
_TRIED = """bool_and(CASE WHEN held THEN pg_try_advisory_xact_lock($1::int, key)
    ELSE pg_try_advisory_xact_lock_shared($1::int, key) END)"""
TRY_PATHS = f"""
SELECT {_unless(_TRIED)} FROM unnest($2::int[], $3::bool[]) AS wanted (key, held)
"""
CONFIRM_TASKS = f"""
WITH held AS MATERIALIZED (
    SELECT seq, last_event, unmet, lease_expires_at FROM dibs.task
    WHERE board = $1 AND seq = ANY($2::bigint[]) ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED)
SELECT {_unless("count(*) = cardinality($2::bigint[])")}
FROM held JOIN unnest($2::bigint[], $3::bigint[], $4::int[], $5::bool[]) AS looked (seq, last_event, unmet, live)
    ON held.seq = looked.seq AND held.last_event = looked.last_event AND held.unmet = looked.unmet
WHERE NOT looked.live OR held.lease_expires_at > {clock("$6")}
"""
CONFIRM_LOCKS = f"""
WITH held AS MATERIALIZED (
    SELECT lock.expires_at, looked.live FROM dibs.lock
    JOIN unnest($2::text[], $3::bigint[], $4::float8[], $5::bool[]) AS looked (pattern, token, expires_at, live)
        ON lock.token = looked.token AND lock.pattern = looked.pattern AND lock.expires_at = looked.expires_at
    WHERE lock.board = $1 ORDER BY lock.pattern, lock.token FOR NO KEY UPDATE OF lock)
SELECT {_unless("count(*) = cardinality($2::text[])")} FROM held WHERE NOT live OR expires_at > {clock("$6")}
"""
CONFIRM_GRANTS = f"""
SELECT {_unless("count(*) = 0")} FROM {NEAR.format(*range(2, 8))} AND NOT EXISTS (
    SELECT FROM unnest($8::text[], $9::bigint[], $10::float8[]) AS seen (pattern, token, expires_at)
    WHERE seen.pattern = lock.pattern AND seen.token = lock.token AND seen.expires_at = lock.expires_at)
"""
