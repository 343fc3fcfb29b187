"""Every command of `dibs`, as constants: what it is called, what it takes, what its help says. No code.

All tables are nested tuples of strings, so that Python loads them from the .pyc as one constant. A command is
(name, module of dibs.cli, function, summary, parameters, options, examples, more help). A parameter is
(name, how, help), where `how` is `one`, `optional`, `some` (one or more), `many` (none or more), `rest` (one or more,
taken verbatim from the first on, options included) or `surplus` (refused, with its help as the hint). The help of a
parameter called `words` begins with how it is written in the usage line, up to a colon. An option is (long, short,
metavar, type, repeatable, help), where type is `flag`, `text`, `int`, `seconds`, or the choices joined by `|`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Param = tuple[str, str, str]
    Option = tuple[str, str, str, str, bool, str]
    Command = tuple[str, str, str, str, tuple[Param, ...], tuple[Option, ...], tuple[str, ...], str]

GLOBALS: tuple[Option, ...] = (
    (
        "--board",
        "",
        "URL",
        "text",
        False,
        "which board: sqlite:PATH or a path; postgresql://USER@HOST/DATABASE?board=NAME; or in a dialect's files: "
        "taskboard:DIR, workflow:DIR, workitems:DIR, bilu:DIR, spec:DIR (else DIBS_BOARD, else the one found upward)",
    ),
    (
        "--as",
        "",
        "NAME",
        "text",
        False,
        "act as this worker, an agent (else DIBS_AGENT, else your login name, a human)",
    ),
    ("--human", "", "", "flag", False, "the worker is a human"),
    ("--json", "", "", "flag", False, "one JSON document on stdout, errors as JSON on stderr (or DIBS_JSON=1)"),
    ("--no-color", "", "", "flag", False, "no colours (or NO_COLOR=1)"),
    ("--help", "-h", "", "flag", False, "this help"),
    ("--version", "", "", "flag", False, "the version"),
)

COMMANDS: tuple[Command, ...] = (
    (
        "init", "setup_board", "init", "make a board for this repository (or folder)",
        (),
        (),
        ("dibs init", "dibs init --board sqlite:/srv/team/board.db",
         "dibs init --board 'postgresql://ann@db.example.com/work?board=web'"),
        "The board lives in .dibs/ at the root of the main worktree; all worktrees share it. Where there is one "
        "already, nothing changes.",
    ),
    (
        "add", "tasks", "add", "add a task, or thousands from a file",
        (("description", "many", "what is to be done; - reads it from stdin"),),
        (
            ("--priority", "-p", "N", "int", False, "higher is claimed first (default 0)"),
            ("--needs", "", "ID", "text", True, "a task that must be completed first"),
            ("--path", "", "PATH", "text", True, "file, folder or glob that a claim locks, e.g. 'src/auth/**'"),
            ("--label", "", "LABEL", "text", True, "a label to find it by"),
            ("--step", "", "TITLE", "text", True, "an ordered step of the task"),
            ("--parent", "", "ID", "text", False, "the task that this one is a part of"),
            ("--for", "", "KIND", "agent|human|any", False, "who may claim it (default any)"),
            ("--review", "", "", "flag", False, "when done, somebody else has to accept it"),
            ("--max-attempts", "", "N", "int", False, "given back more often than this, it fails"),
            ("--id", "", "ID", "text", False, "use this id instead of a random one"),
            ("--key", "", "KEY", "text", False,
             "request key: the same call again adds nothing and gives the same id"),
            ("--file", "", "FILE", "text", False,
             "add every task of a JSON-lines or JSON-array file (- is stdin), all or none"),
        ),
        ("dibs add Write the login page -p 5 --path 'src/login/**'", "dibs add Test the login page --needs 3f2a9c01",
         "dibs add --file tasks.jsonl"),
        "In a file each line is a JSON string or an object with description and any of id, depends_on, priority, "
        "paths, labels, steps, parent, reserved, review, max_attempts (needs and for are understood too). Tasks of "
        "one file may depend on each other by the ids that they bring.",
    ),
    (
        "list", "tasks", "list_tasks", "what is on the board (open tasks unless asked otherwise)",
        (),
        (
            ("--status", "-s", "STATUS",
             "ready|waiting|blocked|pending|in_progress|review|done|completed|failed|cancelled|open|closed|all", True,
             "only these: ready, waiting (or blocked), in_progress, review, completed (or done), failed, cancelled; "
             "pending, open, closed, all"),
            ("--label", "", "LABEL", "text", False, "only tasks with this label"),
            ("--mine", "", "", "flag", False, "only tasks assigned to my name"),
            ("--by", "", "NAME", "text", False, "only tasks assigned to this worker"),
            ("--parent", "", "ID", "text", False, "only parts of this task"),
            ("--search", "", "TEXT", "text", False, "only descriptions that contain this"),
            ("--limit", "-n", "N", "int", False, "how many at most (default 50; 0: no limit)"),
            ("--offset", "", "N", "int", False, "leave out the first N"),
            ("--all", "-a", "", "flag", False, "everything: closed tasks too, no limit"),
        ),
        ("dibs list", "dibs list --status failed --json"),
        "Order: in progress, in review, ready (as they will be claimed), waiting, closed (newest first).",
    ),
    (
        "show", "tasks", "show", "one task: why it can't be claimed, who holds it, history",
        (("id", "one", "the task"),),
        (),
        ("dibs show 3f2a",),
        "",
    ),
    (
        "ready", "tasks", "ready", "what you could claim now, in the order you would get it",
        (),
        (
            ("--limit", "-n", "N", "int", False, "how many at most (default 50; 0: no limit)"),
            ("--all", "-a", "", "flag", False, "no limit"),
        ),
        ("dibs ready", "dibs ready --json --limit 5"),
        "This only looks. To take one: dibs claim.",
    ),
    (
        "claim", "claims", "claim", "take the best available task, or the named one",
        (
            ("id", "optional", "the task (default: the best that you may take)"),
            ("more", "surplus", "one at a time: dibs claim ID; or the best N: dibs claim --count N"),
        ),
        (
            ("--count", "-n", "N", "int", False, "take up to N tasks"),
            ("--lease", "", "TIME", "seconds", False,
             "how long it is yours without a sign of life (default 1h; humans 8h)"),
            ("--wait", "", "TIME", "seconds", False,
             "if there is nothing, or the named task is held or waits, wait this long"),
            ("--key", "", "KEY", "text", False, "request key: the same call again gives the same claim"),
        ),
        ("dibs claim", "dibs claim 3f2a", "dibs --as worker-1 claim --wait 5m --json"),
        "Its files are locked in the same step. Nothing to claim: exit code 3. A named task that cannot be had, even "
        "after --wait: exit code 1.",
    ),
    (
        "renew", "claims", "renew", "start your lease anew (every other verb of yours does too)",
        (("id", "optional", "the task (default: everything you hold)"),),
        (
            ("--token", "", "N", "int", False, "the claim's token, to be sure it is this claim"),
            ("--lease", "", "TIME", "seconds", False, "a new length for the lease"),
        ),
        ("dibs renew", "dibs renew 3f2a --lease 2h"),
        "",
    ),
    (
        "release", "claims", "release", "give a task back unfinished, for somebody else",
        (("words", "many", "[ID] [WHY...]: the task (default: the only one you hold), then why, for the changelog"),),
        (
            ("--note", "", "TEXT", "text", False, "why; then the words may only be the id"),
            ("--token", "", "N", "int", False, "the claim's token, to be sure it is this claim"),
            ("--all", "-a", "", "flag", False, "everything you hold: tasks and file locks"),
        ),
        ("dibs release 'needs someone who knows SQL'", "dibs release --all"),
        "Words are read as by `dibs done`.",
    ),
    (
        "done", "claims", "done", "complete a task (or hand it in, if it asks for review)",
        (("words", "many", "[ID] [RESULT...]: the task (default: the only one you hold), then what you did"),),
        (
            ("--result", "-r", "TEXT", "text", False, "what you did; then the words may only be the id"),
            ("--token", "", "N", "int", False, "the claim's token, to be sure it is this claim"),
            ("--next", "", "", "flag", False, "and claim the next task in the same step"),
        ),
        ("dibs done 3f2a 'login page, with tests'", "dibs done --result 'login page' --next"),
        "A first word that could be an id names the task: an id on the board, or the beginning of exactly one (of 3 "
        "characters or more, when more words follow); else it is refused. A result without ID goes into quotes; if it "
        "is a single word, use --result.",
    ),
    (
        "fail", "claims", "fail", "end a task as failed, with the reason",
        (("words", "many", "[ID] ERROR...: the task (default: the only one you hold), then what went wrong"),),
        (
            ("--error", "-e", "TEXT", "text", False, "what went wrong; then the words may only be the id"),
            ("--token", "", "N", "int", False, "the claim's token, to be sure it is this claim"),
        ),
        ("dibs fail 3f2a 'the API it needs does not exist'",),
        "Words are read as by `dibs done`. Its dependants stay blocked until it is retried: dibs retry ID. "
        "If somebody else could do it now, give it back instead: dibs release ID.",
    ),
    (
        "wait", "claims", "wait", "block until there is something for you to claim",
        (),
        (("--timeout", "-t", "TIME", "seconds", False, "how long at most (default 60s)"),),
        ("dibs wait --timeout 10m && dibs claim",),
        "Exit code 0: there is something. 3: the time is over.",
    ),
    (
        "retry", "decisions", "retry", "put a failed or cancelled task back",
        (("id", "one", "the task"),),
        (),
        ("dibs retry 3f2a",),
        "",
    ),
    (
        "cancel", "decisions", "cancel", "take a task off the table (dibs retry brings it back)",
        (("id", "one", "the task"), ("reason", "many", "why")),
        (),
        ("dibs cancel 3f2a 'superseded by 77b0'",),
        "A task that somebody holds is cancelled by its holder, a human or a lead.",
    ),
    (
        "block", "decisions", "block", "say why a task can't go on; nobody can claim it meanwhile",
        (("id", "one", "the task"), ("reason", "some", "what it waits for")),
        (),
        ("dibs block 3f2a 'waits for the API key'",),
        "A claimed task goes back to pending. If it waits for another task, say so instead: dibs dep ID --needs "
        "OTHER.",
    ),
    (
        "unblock", "decisions", "unblock", "resolve what a task was blocked by",
        (("id", "one", "the task"), ("resolution", "many", "how it was resolved")),
        (("--blocker", "", "bN", "text", False, "only this blocker (default: all open ones)"),),
        ("dibs unblock 3f2a 'key is in the vault'",),
        "",
    ),
    (
        "accept", "decisions", "accept", "pass a task that is in review",
        (("id", "one", "the task"), ("note", "many", "a note for the changelog")),
        (),
        ("dibs accept 3f2a",),
        "Not by the agent that did it.",
    ),
    (
        "reject", "decisions", "reject", "send a task in review back, with a note",
        (("id", "one", "the task"), ("note", "some", "what is missing")),
        (),
        ("dibs reject 3f2a 'no test for an empty password'",),
        "",
    ),
    (
        "dep", "decisions", "dep", "make a task wait for others, or see what it waits for",
        (
            ("id", "one", "the task that waits"),
            ("other", "surplus", "which of the two waits? A waits for B: dibs dep A --needs B"),
        ),
        (
            ("--needs", "", "ID", "text", True, "a task that must be completed first"),
            ("--drop", "", "ID", "text", True, "no longer wait for this one"),
        ),
        ("dibs dep 77b0 --needs 3f2a", "dibs dep 77b0"),
        "77b0 --needs 3f2a: first 3f2a, then 77b0. Circles are refused.",
    ),
    (
        "step", "decisions", "step", "the ordered steps of a task: add, start, done, skip",
        (("words", "many", "[ID] [add|start|done|skip] [STEP] [TEXT...]: task, verb, which step, title or note"),),
        (("--token", "", "N", "int", False, "the claim's token, to be sure it is this claim"),),
        ("dibs step 3f2a add Write the tests", "dibs step done", "dibs step 3f2a done s2 'all green'"),
        "Without ID: the only task that you hold. Without a verb: lists the steps. Without STEP: the next one. "
        "Steps are done in order.",
    ),
    (
        "lock", "files", "lock", "hold files, folders or globs: all of them or none",
        (("path", "some", "what to hold, e.g. src/auth.py or 'src/auth/**'"),),
        (
            ("--shared", "", "", "flag", False, "others may share it too, nobody may have it alone"),
            ("--lease", "", "TIME", "seconds", False, "how long without a sign of life (default 1h; humans 8h)"),
            ("--wait", "", "TIME", "seconds", False, "if somebody else holds it, wait this long"),
        ),
        ("dibs lock src/auth.py 'docs/**'", "dibs lock Cargo.toml --wait 2m"),
        "Paths are the same from every worktree. Asking again renews.",
    ),
    (
        "acquire", "files", "acquire", "a task and the files it needs; prints ACQUIRED or BUSY",
        (
            ("id", "optional", "the task"),
            ("path", "many", "the files that it needs"),
        ),
        (
            ("--file", "", "FILE", "text", False,
             "try these in turn: a task and its files a line, parted by blanks (- is stdin)"),
            ("--retry", "", "TIME", "seconds", False, "how long to try again for files that others hold (default 2s)"),
        ),
        ("dibs acquire T7 src/a.py src/b.py", "dibs acquire --file tasks.txt"),
        "The task first, then each file. If a file stays busy, everything taken for that task is given back, the "
        "conflict is noted, and the next task of the list is tried. With --file the id follows: ACQUIRED T7. Exit code "
        "0 when acquired, 3 when not. Give back with dibs done or dibs release, and dibs unlock.",
    ),
    (
        "unlock", "files", "unlock", "give back file locks of yours",
        (("path", "many", "as it was locked"),),
        (("--all", "-a", "", "flag", False, "all that you locked yourself (not those that came with a task)"),),
        ("dibs unlock src/auth.py", "dibs unlock --all"),
        "",
    ),
    (
        "locks", "files", "locks", "who holds which files",
        (("path", "many", "only locks that overlap these"),),
        (("--worker", "", "NAME", "text", False, "only locks of this worker"),),
        ("dibs locks", "dibs locks src/auth.py"),
        "",
    ),
    (
        "guard", "guarding", "guard", "run a command while holding a lock, like flock(1)",
        (
            ("path", "one", "the lock: a directory (it exists, or the name ends in /), else a file"),
            ("command", "rest", "the command and its arguments"),
        ),
        (
            ("--timeout", "-t", "TIME", "seconds", False,
             "how long to wait (0: not at all; default: flock for ever, dir and file 10s)"),
            ("--kind", "", "KIND", "flock|file|dir", False,
             "flock: a kernel lock on a file; dir: a lock directory with pid, ts and cmd; file: a lock file with "
             "agent and ts"),
        ),
        ("dibs guard build.lock -- make", "dibs guard --timeout 0 .bilu/storage/lock/ -- ./edit.sh"),
        "The exit code is the command's; 1 if the lock is busy. Signals go to the command, and the lock is given "
        "back when it has ended. A lock directory whose process is gone, or a lock file older than 60s, does not "
        "count as busy.",
    ),
    (
        "shell-lib", "guarding", "shell_lib", "print the lock directory's functions for POSIX sh",
        (),
        (),
        ("dibs shell-lib > board_lock.sh", "eval \"$(dibs shell-lib)\""),
        "board_lock_acquire DIR TIMEOUT and board_lock_release DIR hold the same lock directories as dibs guard. How "
        "to use them, traps included, is said at the head of what is printed.",
    ),
    (
        "log", "talk", "log", "what happened: the changelog",
        (),
        (
            ("--follow", "-f", "", "flag", False, "go on as things happen"),
            ("--task", "", "ID", "text", False, "only this task"),
            ("--worker", "", "NAME", "text", False, "only what this worker did"),
            ("--after", "", "SEQ", "int", False, "only entries after this number"),
            ("--limit", "-n", "N", "int", False,
             "the last N (with --after: the first N; default 50, with --json all)"),
            ("--all", "-a", "", "flag", False, "no limit"),
        ),
        ("dibs log --follow", "dibs log --task 3f2a --all", "dibs log --json --after 120"),
        "With --json one object a line: timestamp, worker, worker_type, action, activity_id (the task), task_id "
        "(the step), details, seq, data.",
    ),
    (
        "tell", "talk", "tell", "send a message to a worker, or to everybody",
        (("words", "many", "NAME TEXT...: who (all: everybody), then the message (with --all only the message)"),),
        (("--all", "-a", "", "flag", False, "to everybody else"),),
        ("dibs tell worker-2 'auth.py is free again'", "dibs tell --all 'main is broken, do not merge'"),
        "",
    ),
    (
        "inbox", "talk", "inbox", "messages that you have not read yet",
        (),
        (
            ("--peek", "", "", "flag", False, "leave them unread"),
            ("--wait", "", "TIME", "seconds", False, "if there are none, wait this long for one"),
        ),
        ("dibs inbox", "dibs inbox --wait 5m --json"),
        "With --wait, exit code 3 if none came.",
    ),
    (
        "run", "running", "run", "claim a task and run a command for it, with the lease kept",
        (("command", "rest", "the command and its arguments"),),
        (
            ("--task", "", "ID", "text", False, "this task (default: the best that you may take)"),
            ("--lease", "", "TIME", "seconds", False, "the lease that is kept renewed"),
            ("--wait", "", "TIME", "seconds", False, "if there is nothing to claim, wait this long"),
            ("--fail", "", "", "flag", False, "an exit code other than 0 fails the task (default: releases it)"),
            ("--keep-going", "-k", "", "flag", False, "go on with the next task until nothing is left"),
        ),
        ("dibs run -- make test", "dibs run --task 3f2a -- ./agent.sh", "dibs run -k --wait 5m -- ./agent.sh"),
        "The command finds DIBS_TASK_ID, DIBS_TASK (the description), DIBS_TASK_JSON and DIBS_TOKEN in its "
        "environment, and DIBS_BOARD, DIBS_AGENT, DIBS_KIND and DIBS_SESSION, so that dibs inside it acts as the "
        "same worker. Exit code 0 completes the task, any other releases it and is the exit code of run. A task "
        "that the command itself has ended stays as it is. If the task is lost or cancelled meanwhile, the "
        "command is stopped. Nothing to claim: exit code 3. With --json the command's stdout goes to stderr.",
    ),
    (
        "team", "team", "team", "start coding agents that share the board, and watch them",
        (),
        (
            ("--agents", "-n", "N", "int", False, "how many workers at most, besides the lead (default 4)"),
            ("--agent", "", "CLIENT", "text", False,
             "what they are: claude (default), codex, gemini, claude-sdk, or a command such as './agent.sh {prompt}'"),
            ("--lead", "", "TEXT", "text", False,
             "start a lead, too, that plans this as tasks and answers questions (@FILE: from a file)"),
            ("--lead-agent", "", "CLIENT", "text", False, "what the lead is (default: as the workers)"),
            ("--tasks", "", "FILE", "text", False,
             "first add the tasks of a file, as dibs add --file does; the same file, unchanged, goes on with them"),
            ("--name", "", "NAME", "text", False,
             "NAME-worker-1, not worker-1: tells several teams on one board apart"),
            ("--worktrees", "", "", "flag", False, "each worker gets a git worktree and branch of its own"),
            ("--model", "", "NAME", "text", False, "the model that the client is to use"),
            ("--agent-arg", "", "ARG", "text", True, "an argument more for the client: --agent-arg=--verbose"),
            ("--worker-prompt", "", "TEXT", "text", False,
             "what workers are told, instead of dibs' own text (@FILE: from a file)"),
            ("--timeout", "-t", "TIME", "seconds", False, "an agent that runs longer is ended, and another started"),
            ("--stale-timeout", "", "TIME", "seconds", False,
             "the lease of the agents' claims (default: --timeout, else 1h)"),
            ("--restarts", "", "N", "int", False,
             "how often in a row a worker may end without finishing a task before it is given up (default 2)"),
            ("--tail", "", "", "flag", False, "also show what the agents print"),
        ),
        ("dibs team --agents 3", "dibs team --lead 'Add a search page, with tests' --worktrees",
         "dibs team --agent codex --tasks tasks.jsonl --timeout 30m"),
        "Workers claim tasks until the board is done. What an agent held when it ended, crashed or ran out of time is "
        "given back at once, and a new one is started. Ctrl-C ends everything; twice, at once. On a terminal a live "
        "table, elsewhere a line for each event, with --json a JSON document for each and a summary at the end. What "
        "agents print is kept in .dibs/team/. Exit code 0: all done. 1: stuck, given up, or a task failed. 3: nothing "
        "to do.",
    ),
    (
        "recover", "upkeep", "recover", "give back what dead or expired workers held",
        (),
        (
            ("--worker", "", "NAME", "text", False, "give back everything of this worker, which you know to be gone"),
            ("--task", "", "ID", "text", False, "give back this task, whose holder you know to be gone"),
            ("--all", "-a", "", "flag", False, "on a spec board: everything whose holder is not provably alive"),
        ),
        ("dibs recover", "dibs recover --worker worker-3"),
        "Claims do this by themselves; recover only makes it happen now. A worker whose process is alive keeps "
        "what it has.",
    ),
    (
        "export", "upkeep", "export", "write the whole board, history included, as JSON lines",
        (("file", "optional", "where to (default: stdout)"),),
        (("--force", "-f", "", "flag", False, "replace the file if it exists"),),
        ("dibs export board.jsonl", "dibs export | gzip > board.jsonl.gz"),
        "The file appears whole or not at all. dibs import restores it: tasks, claims, locks, messages and "
        "changelog, to the last digit.",
    ),
    (
        "import", "upkeep", "import_", "fill a new board from an export",
        (("file", "one", "an export; - is stdin"),),
        (),
        ("dibs --board sqlite:new.db import board.jsonl", "zcat board.jsonl.gz | dibs import -"),
        "Makes the board if there is none yet. Only into a board that has no tasks yet; all or nothing.",
    ),
    (
        "copy", "copying", "copy", "a whole board into another, of any kind",
        (
            ("from", "one", "the board to copy, as --board takes it"),
            ("to", "one", "the board to fill: one without tasks, or one that is made now"),
        ),
        (),
        ("dibs copy . taskboard:state", "dibs copy workflow:.workflow sqlite:board.db",
         "dibs copy . 'postgresql://ann@db.example.com/work?board=web'",
         "dibs --as planner-1 copy sqlite:board.db workflow:.workflow"),
        "Says exactly what the target has no place for, and so was left out. Between boards in sqlite and PostgreSQL "
        "nothing is; from or to a dialect's files the tasks are copied as they stand, without the history. All or "
        "nothing, and the source is not changed.",
    ),
    (
        "move", "copying", "move", "a whole board to another place, for good",
        (
            ("from", "one", "the board to move: one in SQLite, as --board takes it"),
            ("to", "one", "where to: a board in SQLite or PostgreSQL without tasks, or one that is made now"),
        ),
        (),
        ("dibs move . 'postgresql://ann@db.example.com/work?board=web'", "dibs move . sqlite:/srv/boards/web.db"),
        "Nobody can write to the old board meanwhile, and afterwards every command there says where it is now. Its "
        "file is kept. Everything comes along: claims, locks, messages and the changelog.",
    ),
    (
        "boards", "boards", "boards", "the boards of a PostgreSQL database",
        (("url", "optional", "the database: postgresql://USER@HOST/DATABASE (else --board, else DIBS_BOARD)"),),
        (),
        ("dibs boards postgresql://ann@db.example.com/work", "dibs boards --json"),
        "With each board's tasks, those that are open, when it was made and when it last changed. A board that the "
        "address names need not be there.",
    ),
    (
        "check", "checking", "check", "look over a dialect's files, with file and line",
        (),
        (),
        ("dibs check", "dibs --board bilu:.bilu check --json"),
        "Takes no lock and changes nothing. Exit code 1 if there are errors; warnings alone are fine. For boards in "
        "sqlite or PostgreSQL: dibs doctor.",
    ),
    (
        "rebuild", "checking", "rebuild", "print or write the files derived from task files (bilu)",
        (),
        (("--write", "-w", "", "flag", False, "write them, under the lock, recomputed inside it"),),
        ("dibs rebuild", "dibs rebuild --write"),
        "Without --write they are printed and nothing is locked or changed.",
    ),
    (
        "pivot", "pivoting", "pivot", "revise the scope of a work item (workitems)",
        (
            ("verb", "one", "start, reset or done"),
            ("id", "one", "the work item; to reset, the activity"),
            ("note", "many", "why"),
        ),
        (),
        ("dibs pivot start WI-001 'search by tag too'", "dibs pivot reset WI-001-A2", "dibs pivot done WI-001"),
        "Between start and done completed activities can be put back to pending, with all their steps.",
    ),
    (
        "mcp", "serving", "mcp", "serve the board to a coding agent over MCP (stdio, or HTTP)",
        (),
        (
            ("--client", "", "NAME", "text", False, "the client that starts it (claude, codex, …): names the worker"),
            ("--root", "", "DIR", "text", False, "work as if started in this folder"),
            ("--http", "", "", "flag", False, "streamable HTTP instead of stdio"),
            ("--host", "", "ADDRESS", "text", False, "with --http: where to listen (default 127.0.0.1)"),
            ("--port", "", "N", "int", False, "with --http: the port (default 8765; 0: any that is free)"),
            ("--allow-host", "", "NAME", "text", True,
             "with --http: a name under which clients may reach it, e.g. board.example:8765"),
            ("--allow-origin", "", "ORIGIN", "text", True,
             "with --http: a web page that may call it, e.g. https://ci.example"),
            ("--tokens", "", "FILE", "text", False,
             "with --http: who may call, by the hash of a token (default mcp-tokens.json beside the board)"),
            ("--new-token", "", "WORKER", "text", False, "make a token for a worker, print it once, and end"),
            ("--drop-token", "", "WORKER", "text", False, "forget a worker's token, and end"),
        ),
        ("dibs mcp", "dibs mcp --new-token builder-1", "dibs mcp --http --port 8765"),
        "The stdio server is a worker of its own: it keeps its leases while the client lives, and gives everything "
        "back when the client ends. dibs setup writes the client's configuration.",
    ),
    (
        "hook", "hooking", "hook", "answer a coding client before it edits a file",
        (("client", "one", "claude, codex, gemini, cursor, or git (a pre-commit check)"),),
        (
            ("--require-lock", "", "", "flag", False, "deny edits to files that nobody has locked, too"),
            ("--closed", "", "", "flag", False,
             "when the board cannot be read: deny (default: let it pass, and say so)"),
        ),
        ("dibs hook claude", "dibs hook codex --require-lock", "dibs hook git --closed"),
        "Reads the client's event on stdin. An edit of a file that another worker holds is denied, with who, for which "
        "task and until when; everything else passes in silence, so that the client's own permissions decide. "
        "Installed by dibs setup.",
    ),
    (
        "setup", "installing", "setup", "connect a coding client: MCP, hooks, a few lines of advice",
        (
            ("client", "one", "claude, codex, cursor, gemini, vscode, or git (a pre-commit check)"),
            ("more", "surplus", "one client at a time"),
        ),
        (
            ("--dry-run", "", "", "flag", False, "show what would be written, and write nothing"),
            ("--remove", "", "", "flag", False, "take out what setup wrote, and nothing else"),
            ("--worktrees", "", "", "flag", False, "in every worktree of the repository, not only in this one"),
            ("--skill", "", "", "flag", False, "write the advice as a skill folder instead of a block in AGENTS.md"),
            ("--require-lock", "", "", "flag", False, "hooks that deny edits to files that nobody has locked, too"),
            ("--closed", "", "", "flag", False, "hooks that deny edits while the board cannot be read"),
        ),
        ("dibs setup claude", "dibs setup claude --worktrees", "dibs setup codex --dry-run",
         "dibs setup claude --remove"),
        "Writes into this worktree. Whatever the files held stays as it was; doing it again changes nothing. "
        "To see that it works: dibs doctor --prove.",
    ),
    (
        "prime", "priming", "prime", "what an agent needs to know now, in a few lines",
        (),
        (),
        ("dibs prime",),
        "The board's state, what you hold, and the verbs. Hooks print it when a session starts.",
    ),
    (
        "overlaps", "radar", "overlaps", "files that are being changed in several worktrees at once",
        (),
        (("--base", "", "BRANCH", "text", False,
          "compare with this branch (default: the repository's main branch)"),),
        ("dibs overlaps", "dibs overlaps --base develop --json"),
        "Counts what is not committed and what is ahead of the merge base, in every worktree, with who holds the tasks "
        "and locks there. Exit code 0, whether there are any or not.",
    ),
    (
        "doctor", "doctor", "doctor", "check the board and this installation",
        (),
        (
            ("--deep", "", "", "flag", False, "check every index entry, and replay a changelog of any length"),
            ("--prove", "", "", "flag", False,
             "try each coding client's set-up: start its MCP server, attempt a forbidden edit through its hook"),
        ),
        ("dibs doctor", "dibs doctor --deep --json", "dibs doctor --prove"),
        "Gives nothing back and repairs nothing. Exit code 0 when all is well, 1 when something was found; every "
        "finding says what to do.",
    ),
    (
        "demo", "demo", "demo", "watch a team of scripted agents while one is killed",
        (),
        (
            ("--plain", "", "", "flag", False,
             "worker processes that drain a board instead: without git and MCP (4 workers, 24 tasks)"),
            ("--agents", "", "", "flag", False,
             "agents in shared worktrees instead, with hooks before every edit (8 agents, 60 tasks)"),
            ("--workers", "", "N", "int", False, "how many workers (default 4)"),
            ("--tasks", "", "N", "int", False, "how many tasks, with --plain or --agents"),
            ("--seed", "", "N", "int", False, "the same working times again (--json says the seed of a run)"),
        ),
        ("dibs demo", "dibs demo --plain --workers 8 --tasks 100", "dibs demo --agents"),
        "Uses a board of its own in a temporary folder, and leaves it there to look at.",
    ),
    (
        "completion", "completion", "completion", "print a completion script for bash, zsh or fish",
        (("shell", "one", "bash, zsh or fish"),),
        (),
        ("eval \"$(dibs completion bash)\"", "dibs completion fish > ~/.config/fish/completions/dibs.fish"),
        "",
    ),
    (
        "help", "helping", "help_", "help for a command",
        (("command", "optional", "the command"),),
        (),
        ("dibs help claim",),
        "",
    ),
)  # fmt: skip

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("work", ("claim", "done", "fail", "release", "renew", "step", "wait", "run")),
    ("tasks", ("add", "list", "show", "ready", "dep", "block", "unblock", "cancel", "retry", "accept", "reject")),
    ("files", ("lock", "unlock", "locks", "overlaps")),
    ("talk", ("tell", "inbox", "log")),
    ("agents", ("team", "setup", "prime", "mcp")),
    ("board", ("init", "boards", "export", "import", "copy", "recover", "doctor", "demo")),
)

FOLDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("boards in files", ("check", "rebuild", "pivot", "acquire", "guard", "shell-lib")),
    ("more", ("move", "hook", "completion", "help")),
)
"""Commands that the overview names without a word about each."""

GUESSES: tuple[tuple[str, str], ...] = (
    ("next", "claim"),
    ("start", "claim"),
    ("take", "claim"),
    ("grab", "claim"),
    ("pick", "claim"),
    ("close", "done"),
    ("complete", "done"),
    ("finish", "done"),
    ("ls", "list"),
    ("tasks", "list"),
    ("status", "list"),
    ("new", "add"),
    ("create", "add"),
    ("view", "show"),
    ("get", "show"),
    ("info", "show"),
    ("unclaim", "release"),
    ("abandon", "release"),
    ("heartbeat", "renew"),
    ("refresh", "renew"),
    ("extend", "renew"),
    ("deps", "dep"),
    ("depend", "dep"),
    ("steps", "step"),
    ("approve", "accept"),
    ("reopen", "retry"),
    ("send", "tell"),
    ("message", "tell"),
    ("msg", "tell"),
    ("messages", "inbox"),
    ("history", "log"),
    ("changelog", "log"),
    ("events", "log"),
)
"""Words that other tools use for a command of ours, and that can mean nothing else: they work."""

HINTS: tuple[tuple[str, str], ...] = (
    ("link", "dibs dep ID --needs OTHER (which then comes first)"),
    ("rm", "dibs cancel ID (nothing is ever deleted)"),
    ("remove", "dibs cancel ID (nothing is ever deleted)"),
    ("delete", "dibs cancel ID (nothing is ever deleted)"),
    ("del", "dibs cancel ID (nothing is ever deleted)"),
    ("stop", "dibs release ID, dibs cancel ID"),
    ("abort", "dibs release ID, dibs cancel ID"),
    ("drop", "dibs release ID, dibs dep ID --drop OTHER"),
    ("update", "tasks cannot be edited yet; what a task waits for can be changed: dibs dep, dibs block, dibs unblock; "
     "only if it should not be done at all: dibs cancel"),
    ("edit", "tasks cannot be edited yet; what a task waits for can be changed: dibs dep, dibs block, dibs unblock; "
     "only if it should not be done at all: dibs cancel"),
    ("assign", "dibs --as NAME claim ID"),
    ("reserve", "dibs claim ID, dibs lock PATH"),
    ("blocked", "dibs list --status waiting, dibs show ID"),
    ("search", "dibs list --search 'part of a description'"),
    ("note", "dibs tell --all 'what to say', dibs done ID 'what you did'"),
    ("comment", "dibs tell --all 'what to say', dibs done ID 'what you did'"),
)  # fmt: skip
"""Words that could mean several things, or something that dibs does differently: answered with "did you mean"."""

OPTION_GUESSES: tuple[tuple[str, str], ...] = (
    ("--depends-on", "--needs"),
    ("--depends", "--needs"),
    ("--dep", "--needs"),
    ("--deps", "--needs"),
    ("--prio", "--priority"),
    ("--paths", "--path"),
    ("--labels", "--label"),
    ("--tag", "--label"),
    ("--steps", "--step"),
    ("--ttl", "--lease"),
    ("--assignee", "--by"),
    ("--message", "--result"),
    ("--reason", "--error"),
    ("--reason", "--note"),
    ("--worker", "--by"),
    ("--agent", "--by"),
    ("--agent", "--worker"),
    ("--by", "--worker"),
)
"""Option names of other tools: they work where the command has the second and not the first."""
