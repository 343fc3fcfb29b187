"""The tables of PostgreSQL boards, as numbered migrations, and the making of schema and boards.

All boards of a database live in one schema, `dibs`, told apart by `board`, the first column of every key. Each board
has two sequences of its own, `event_<board>` and `task_<board>`, so that its numbers begin at 1 and no two boards
wait for each other.

Columns are those of the SQLite schema. What differs, because writers run side by side here:

- There is no tally of statuses in the newest event: that would put all writers in a row.
- `task.dependants` counts who waits for a task. It lets a completion that changes nobody else be told apart while
  the task's row is locked.
- `task.claim_mark` is a random number that a claim by the fast path leaves, by which it is found if the connection
  breaks before the answer comes.
- `ready_watermark` says, for each queue (what agents may take; what is the humans') and rank, below which number no
  task is ready. Tasks that were claimed leave dead entries in the index of ready ones until the vacuum comes by, which
  it cannot while anybody holds an old snapshot; claims begin behind them. See `ready_watermark`.

The server plans by statistics, which are always behind: it would take a board that was just filled for an empty one,
and walk through its primary key. So the indexes of ready tasks are made on `seq + 0`, an order that no other index has,
and nothing is gathered about `board`, which is then taken to be neither rare nor common. A human takes what is the
humans' and what is anybody's, but must not walk over what is the agents': `task_ready_any`, on `0 + seq`.

The changelog is append-only for everybody: a trigger refuses changes, and workers need no right but INSERT
(docs/many-machines.md has the grants).

A crash leaves no half-made schema or board: each migration is one transaction.
"""

from __future__ import annotations

MIGRATIONS = (
    """
CREATE TABLE dibs.board (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY CHECK (id < 4194304),
    name text COLLATE "C" NOT NULL UNIQUE,
    created_at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp())
);

CREATE TABLE dibs.task (
    board integer NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    description text NOT NULL,
    status text COLLATE "C" NOT NULL,
    assigned_to text COLLATE "C",
    depends_on text,
    result text,
    rank integer NOT NULL,
    created_at double precision NOT NULL,
    claimed_at double precision,
    completed_at double precision,
    token bigint,
    lease double precision,
    lease_expires_at double precision,
    holder text,
    paths text COLLATE "C",
    labels text,
    steps text,
    blockers text,
    open_blockers integer NOT NULL,
    parent text COLLATE "C",
    reserved text COLLATE "C" NOT NULL,
    review smallint NOT NULL,
    attempts integer NOT NULL,
    max_attempts integer,
    created_by text,
    unmet integer NOT NULL,
    last_event bigint NOT NULL,
    dependants integer NOT NULL DEFAULT 0,
    stamp bigint,
    PRIMARY KEY (board, seq)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX task_id ON dibs.task (id, board);
ALTER TABLE dibs.task ALTER COLUMN board SET STATISTICS 0;
CREATE INDEX task_ready_open ON dibs.task (board, rank, (seq + 0))
    WHERE status = 'pending' AND unmet = 0 AND open_blockers = 0 AND reserved <> 'human';
CREATE INDEX task_ready_human ON dibs.task (board, rank, (seq + 0))
    WHERE status = 'pending' AND unmet = 0 AND open_blockers = 0 AND reserved = 'human';
CREATE INDEX task_waiting ON dibs.task (board, rank, seq)
    WHERE status = 'pending' AND (unmet > 0 OR open_blockers > 0);
CREATE INDEX task_lease ON dibs.task (board, lease_expires_at) WHERE status = 'in_progress';
CREATE INDEX task_review ON dibs.task (board, rank, seq) WHERE status = 'review';
CREATE INDEX task_closed ON dibs.task (board, status, completed_at)
    WHERE status IN ('completed', 'failed', 'cancelled');
CREATE INDEX task_parent ON dibs.task (board, parent) WHERE parent IS NOT NULL;

CREATE TABLE dibs.front (
    board integer NOT NULL,
    lane text COLLATE "C" NOT NULL,
    rank integer NOT NULL,
    low bigint NOT NULL,
    PRIMARY KEY (board, lane, rank)
) WITH (fillfactor = 50);

CREATE TABLE dibs.dependency (
    board integer NOT NULL,
    needs bigint NOT NULL,
    task bigint NOT NULL,
    PRIMARY KEY (board, needs, task)
);

CREATE TABLE dibs.lock (
    board integer NOT NULL,
    pattern text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    prefix text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    acquired_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    lease double precision NOT NULL,
    shared smallint NOT NULL,
    task_id text COLLATE "C",
    worktree text
) WITH (fillfactor = 70);
-- Patterns may be longer than an index entry can be.
CREATE UNIQUE INDEX lock_key ON dibs.lock (board, token, hashtextextended(pattern, 0), hashtextextended(pattern, 1));
CREATE INDEX lock_prefix ON dibs.lock (board, substr(prefix, 1, 600));
CREATE INDEX lock_task ON dibs.lock (board, task_id) WHERE task_id IS NOT NULL;
CREATE INDEX lock_worker ON dibs.lock (board, worker);

CREATE TABLE dibs.event (
    board integer NOT NULL,
    seq bigint NOT NULL,
    time double precision NOT NULL,
    worker text NOT NULL,
    worker_type text NOT NULL,
    action text NOT NULL,
    task_id text COLLATE "C",
    step_id text,
    details text,
    data text,
    previous bigint,
    PRIMARY KEY (board, seq)
);
CREATE FUNCTION dibs.keep_the_past() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the changelog is append-only'; END $$;
CREATE TRIGGER event_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON dibs.event
    FOR EACH STATEMENT EXECUTE FUNCTION dibs.keep_the_past();

CREATE TABLE dibs.message (
    board integer NOT NULL,
    seq bigint NOT NULL,
    time double precision NOT NULL,
    sender text COLLATE "C" NOT NULL,
    recipient text COLLATE "C",
    content text NOT NULL,
    PRIMARY KEY (board, seq)
);
CREATE INDEX message_to ON dibs.message (board, recipient, seq);

CREATE TABLE dibs.reader (
    board integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    mark bigint NOT NULL,
    PRIMARY KEY (board, name)
) WITH (fillfactor = 70);

CREATE TABLE dibs.request (
    board integer NOT NULL,
    key text COLLATE "C" NOT NULL,
    answer text NOT NULL,
    time double precision NOT NULL,
    PRIMARY KEY (board, key)
);
CREATE INDEX request_time ON dibs.request (board, time);
""",
    """
CREATE INDEX task_ready_any ON dibs.task (board, rank, (0 + seq))
    WHERE status = 'pending' AND unmet = 0 AND open_blockers = 0 AND reserved = 'any';
""",
    # Writers keep each other out by other means than before, so an older dibs must not work beside this one.
    """
ALTER TABLE dibs.front RENAME TO ready_watermark;
ALTER INDEX dibs.front_pkey RENAME TO ready_watermark_pkey;
ALTER TABLE dibs.ready_watermark RENAME COLUMN lane TO queue;
ALTER TABLE dibs.ready_watermark RENAME COLUMN low TO floor;
ALTER TABLE dibs.task RENAME COLUMN stamp TO claim_mark;
""",
)
"""Each is run in one transaction; `dibs.version` then holds how many there have been."""

ENCODING = "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
# Is there a schema, and which?
FIND = "SELECT to_regclass('dibs.version') IS NOT NULL"
VERSION = "SELECT max(number) FROM dibs.version"
BEGIN = """
CREATE SCHEMA IF NOT EXISTS dibs;
CREATE TABLE IF NOT EXISTS dibs.version (number integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());
"""
APPLIED = "INSERT INTO dibs.version (number) VALUES ($1)"
# One maker of schemas and boards at a time; the key is dibs' own.
MAKING = "SELECT pg_advisory_xact_lock(7234021968412640833)"
BOARD = "SELECT id FROM dibs.board WHERE name = $1"
MAKE_BOARD = "INSERT INTO dibs.board (name) VALUES ($1) RETURNING id"
SEQUENCES = """
CREATE SEQUENCE dibs.event_{board} AS bigint MAXVALUE 1099511627775;
CREATE SEQUENCE dibs.task_{board} AS bigint MAXVALUE 1099511627775;
"""
