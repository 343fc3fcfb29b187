"""Every statement that the SQL transaction runs, each with a line that says what it is for."""

from __future__ import annotations

from dibs.stores.rows import EVENT, LOCK, TASK

_IS_READY = "status = 'pending' AND unmet = 0 AND open_blockers = 0"
# A partial index serves only queries that repeat its condition.
_IS_CLOSED = "status IN ('completed', 'failed', 'cancelled')"
_IS_WAITING = "status = 'pending' AND (unmet > 0 OR open_blockers > 0)"

# The head of the board: the number of the newest event, and how many tasks have each status.
HEAD = "SELECT seq, tally FROM event ORDER BY seq DESC LIMIT 1"
# Where the board was moved to, by whom and when.
MOVED_TO = "SELECT details, worker, time FROM event ORDER BY seq DESC LIMIT 1"
# Where the wall clock stands against the steady one.
ANCHOR = "SELECT boot, clock_offset FROM clock WHERE one = 1"
SET_ANCHOR = "INSERT OR REPLACE INTO clock (one, boot, clock_offset) VALUES (1, ?, ?)"
# One task by id.
TASK_BY_ID = f"SELECT {TASK} FROM task WHERE id = ?"
# Many tasks by id, given as a JSON array.
TASKS_BY_ID = f"SELECT {TASK} FROM task WHERE id IN (SELECT value FROM json_each(?))"
# The best ready tasks of one reservation: after a rank; behind a number within a rank. Each also without those whose
# paths (as stored) are in a JSON array.
_FREE = " AND (paths IS NULL OR paths NOT IN (SELECT value FROM json_each(?)))"
_AFTER_RANK = f"SELECT {TASK} FROM task WHERE {_IS_READY} AND reserved = ? AND rank > ?"
_BEHIND = f"SELECT {TASK} FROM task WHERE {_IS_READY} AND reserved = ? AND rank = ? AND seq > ?"
_BEST = " ORDER BY rank, seq LIMIT ?"
READY = (_AFTER_RANK + _BEST, _AFTER_RANK + _FREE + _BEST)
READY_SAME_RANK = (_BEHIND + _BEST, _BEHIND + _FREE + _BEST)
# Leases that have run out.
DUE = (
    f"SELECT {TASK} FROM task WHERE status = 'in_progress' AND lease_expires_at <= ? ORDER BY lease_expires_at LIMIT ?"
)
# Everything that somebody works on; everything that one name works on.
IN_PROGRESS = f"SELECT {TASK} FROM task WHERE status = 'in_progress' ORDER BY lease_expires_at"
IN_PROGRESS_BY = f"SELECT {TASK} FROM task WHERE status = 'in_progress' AND assigned_to = ? ORDER BY lease_expires_at"
# Whoever holds something.
HOLDERS = "SELECT DISTINCT holder FROM task WHERE status = 'in_progress' UNION SELECT holder FROM lock"
# Who waits for this one (by seq); for these (JSON array of seqs).
DEPENDANTS_OF = f"SELECT {TASK} FROM task WHERE seq IN (SELECT task FROM dependency WHERE needs = ?)"
DEPENDANTS = (
    f"SELECT {TASK} FROM task WHERE seq IN "
    "(SELECT task FROM dependency WHERE needs IN (SELECT value FROM json_each(?)))"
)
# Edges of a task (its number, ids as a JSON array; both numbers), and what follows when one (by number) is completed.
LINK = """
INSERT OR IGNORE INTO dependency (needs, task) SELECT seq, ?1 FROM task WHERE id IN (SELECT value FROM json_each(?2))
"""
LINK_NUMBERS = "INSERT OR IGNORE INTO dependency (needs, task) VALUES (?, ?)"
UNLINK = """
DELETE FROM dependency
WHERE task = ?1 AND needs IN (SELECT seq FROM task WHERE id IN (SELECT value FROM json_each(?2)))
"""
SATISFY = "UPDATE task SET unmet = unmet - 1 WHERE seq IN (SELECT task FROM dependency WHERE needs = ?)"
EDGES = """
SELECT coalesce(task.id, 'number ' || edge.task), coalesce(need.id, 'number ' || edge.needs) FROM dependency AS edge
LEFT JOIN task ON task.seq = edge.task LEFT JOIN task AS need ON need.seq = edge.needs ORDER BY edge.task, edge.needs
"""

# A new task, with its number given.
INSERT = f"INSERT INTO task ({TASK}, open_blockers) VALUES ({', '.join('?' * 28)})"
LAST_TASK = "SELECT max(seq) FROM task"
# Write back what rules can change.
SAVE = (
    "UPDATE task SET status = ?, assigned_to = ?, depends_on = ?, result = ?, claimed_at = ?, completed_at = ?, "
    "token = ?, lease = ?, lease_expires_at = ?, holder = ?, steps = ?, blockers = ?, open_blockers = ?, attempts = ?, "
    "unmet = ?, last_event = ? WHERE seq = ?"
)

# Locks: all; those that have run out; one name's; those whose literal prefix is one of the ancestors (JSON array) or
# among the descendants.
LOCKS = f"SELECT {LOCK} FROM lock ORDER BY pattern, token"
LOCKS_EXPIRED = f"SELECT {LOCK} FROM lock WHERE expires_at <= ? ORDER BY pattern, token"
LOCKS_BY = f"SELECT {LOCK} FROM lock WHERE worker = ? ORDER BY pattern, token"
LOCKS_NEAR = (
    f"SELECT {LOCK} FROM lock WHERE prefix IN (SELECT value FROM json_each(?)) "
    f"UNION SELECT {LOCK} FROM lock WHERE prefix >= ? AND prefix < ?"
)
SAVE_LOCK = f"INSERT OR REPLACE INTO lock ({LOCK}, prefix, worker) VALUES ({', '.join('?' * 11)})"
DROP_LOCK = "DELETE FROM lock WHERE pattern = ? AND token = ?"

# The changelog: append, what came after a number.
APPEND = f"INSERT INTO event ({EVENT}, previous, tally) VALUES ({', '.join('?' * 11)})"
EVENTS = {
    newest: f"SELECT {EVENT} FROM event WHERE seq > ? ORDER BY seq{' DESC' * newest} LIMIT ?"
    for newest in (False, True)
}
# One task's history, from its newest event back.
NEWEST_EVENT = "SELECT last_event FROM task WHERE id = ?"
EVENT_BEFORE = f"SELECT {EVENT}, previous FROM event WHERE seq = ?"

# Answers to requests that carried a key.
REQUEST = "SELECT key, answer, time FROM request WHERE key = ?"
REMEMBER = "INSERT INTO request (key, answer, time) VALUES (?, ?, ?)"
SHIFT_REQUESTS = "UPDATE request SET time = time + ?"
FORGET = "DELETE FROM request WHERE time < ?"
REQUESTS = "SELECT key, answer, time FROM request ORDER BY key"

# Messages, the first or (True) the newest: everybody's; one name's.
POST = "INSERT INTO message (seq, time, sender, recipient, content) VALUES (?, ?, ?, ?, ?)"
_MESSAGES = "SELECT sender, content, recipient, time, seq FROM message WHERE seq > ?"
_FOR = " AND (recipient = ? OR (recipient IS NULL AND sender <> ?))"
MESSAGES = {newest: f"{_MESSAGES} ORDER BY seq{' DESC' * newest} LIMIT ?" for newest in (False, True)}
MESSAGES_TO = {newest: f"{_MESSAGES}{_FOR} ORDER BY seq{' DESC' * newest} LIMIT ?" for newest in (False, True)}
MARK = "SELECT name, mark FROM reader WHERE name = ?"
SET_MARK = "INSERT OR REPLACE INTO reader (name, mark) VALUES (?, ?)"
MARKS = "SELECT name, mark FROM reader ORDER BY name"

# Listing: each group of statuses through the index that holds just it, in the order in which people look for them.
GROUPS = {
    "in_progress": ("status = 'in_progress'", "lease_expires_at"),
    "review": ("status = 'review'", "rank, seq"),
    "ready": (_IS_READY, "rank, seq"),
    "waiting": (_IS_WAITING, "rank, seq"),
    "completed": (f"{_IS_CLOSED} AND status = 'completed'", "completed_at DESC"),
    "failed": (f"{_IS_CLOSED} AND status = 'failed'", "completed_at DESC"),
    "cancelled": (f"{_IS_CLOSED} AND status = 'cancelled'", "completed_at DESC"),
}
FILTERS = {
    "label": "instr(char(10) || labels || char(10), char(10) || ? || char(10)) > 0",
    "assigned_to": "assigned_to = ?",
    "parent": "parent = ?",
    "search": "instr(lower(description), lower(?)) > 0",
}
SEARCH_FOLDED = "contains(description, ?)"
FIND = "SELECT id FROM task WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
ALL_TASKS = f"SELECT {TASK} FROM task WHERE seq > ? ORDER BY seq LIMIT ?"
