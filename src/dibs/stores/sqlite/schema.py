"""The SQLite schema, as numbered migrations. A file's `user_version` is the number of the last one applied.

`event` is the changelog. The last event of a transaction also carries the `tally`: how many tasks have each status
after it. So the newest event is the head of the board, and counting costs neither a scan nor a page of its own in
every transaction. `event.previous` and `task.last_event` chain the events of a task, so that its history needs no
index over everybody's events.

`task.rank` is minus the priority, so that one ascending index gives the order of claiming. Lists of ids, paths and
labels are one text, an entry a line; steps and blockers are JSON. `unmet` counts the dependencies that are not
completed, `open_blockers` the open blockers: they are kept so that readiness is a matter of one partial index.
`dependency` holds the edges backwards, from what is needed to who needs it; forwards they are in `task.depends_on`.
"""

from __future__ import annotations

APPLICATION_ID = 0x64696273  # "dibs"
MOVED_ID = 0x64696274
"""The id of a board that was moved: where to is in its last event. Whoever had it open meets the trigger."""

MOVED = f"""
CREATE TRIGGER event_of_a_moved_board BEFORE INSERT ON event
    BEGIN SELECT raise(ABORT, 'the board was moved'); END;
PRAGMA application_id = {MOVED_ID}
"""

MIGRATIONS = (
    """
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    clock_offset REAL NOT NULL
) STRICT;

CREATE TABLE task (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    status TEXT NOT NULL,
    assigned_to TEXT,
    depends_on TEXT,
    result TEXT,
    rank INTEGER NOT NULL,
    created_at REAL NOT NULL,
    claimed_at REAL,
    completed_at REAL,
    token INTEGER,
    lease REAL,
    lease_expires_at REAL,
    holder TEXT,
    paths TEXT,
    labels TEXT,
    steps TEXT,
    blockers TEXT,
    open_blockers INTEGER NOT NULL,
    parent TEXT,
    reserved TEXT NOT NULL,
    review INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER,
    created_by TEXT,
    unmet INTEGER NOT NULL,
    last_event INTEGER NOT NULL
) STRICT;
CREATE INDEX task_ready ON task (reserved, rank, seq) WHERE status = 'pending' AND unmet = 0 AND open_blockers = 0;
CREATE INDEX task_waiting ON task (rank, seq) WHERE status = 'pending' AND (unmet > 0 OR open_blockers > 0);
CREATE INDEX task_lease ON task (lease_expires_at) WHERE status = 'in_progress';
CREATE INDEX task_review ON task (rank, seq) WHERE status = 'review';
CREATE INDEX task_closed ON task (status, completed_at) WHERE status IN ('completed', 'failed', 'cancelled');
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;

CREATE TABLE dependency (
    needs INTEGER NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (needs, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE lock (
    pattern TEXT NOT NULL,
    token INTEGER NOT NULL,
    prefix TEXT NOT NULL,
    worker TEXT NOT NULL,
    holder TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    lease REAL NOT NULL,
    shared INTEGER NOT NULL,
    task_id TEXT,
    worktree TEXT,
    PRIMARY KEY (pattern, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX lock_prefix ON lock (prefix);

CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    worker TEXT NOT NULL,
    worker_type TEXT NOT NULL,
    action TEXT NOT NULL,
    task_id TEXT,
    step_id TEXT,
    details TEXT,
    data TEXT,
    previous INTEGER,
    tally TEXT
) STRICT;
CREATE TRIGGER event_keeps_its_past BEFORE UPDATE ON event
    BEGIN SELECT raise(ABORT, 'the changelog is append-only'); END;
CREATE TRIGGER event_keeps_its_length BEFORE DELETE ON event
    BEGIN SELECT raise(ABORT, 'the changelog is append-only'); END;

CREATE TABLE message (
    seq INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    sender TEXT NOT NULL,
    recipient TEXT,
    content TEXT NOT NULL
) STRICT;
CREATE INDEX message_to ON message (recipient, seq);

CREATE TABLE reader (
    name TEXT PRIMARY KEY,
    mark INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE request (
    key TEXT PRIMARY KEY,
    answer TEXT NOT NULL,
    time REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX request_time ON request (time);
""",
)
