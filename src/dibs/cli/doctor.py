"""`dibs doctor`: which board this is, whether it is sound, who holds what, and who dibs thinks you are.

A board in a dialect's own files is looked over by `files_report`, one in PostgreSQL by `server_report`; the rest is the
same for every board. Whatever is wrong becomes a finding with a code, a sentence and what to do about it; a check that
can't be made because of an earlier finding is left out. Nothing is given back or repaired here.
"""

from __future__ import annotations

import os
import shutil
import sys

from dibs import fs
from dibs.cli.audit import disagreements, stray_edges
from dibs.cli.render import BOLD, DIM, GREEN, RED, cut, hint, number, pad, paint, safe, wrap
from dibs.copying import is_dialect
from dibs.errors import DibsError, NoBoard, quoted
from dibs.model import IN_PROGRESS
from dibs.times import FOREVER, iso, span
from dibs.worker import SESSION_VARIABLES, boot, from_environment, host, is_alive, is_dead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import apsw

    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.dialects.filestore import FileStore
    from dibs.model import Worker
    from dibs.stores.postgres.store import PostgresStore

REPLAYED = 100_000
"""Events that are replayed without being asked to."""
SHOWN = 20
"""Claims, and locks, that the text shows; --json has them all."""
MEGABYTE = 1024 * 1024
LARGE_WAL = 64 * MEGABYTE
LITTLE_SPACE = 50 * MEGABYTE
FIRST_SOUND_SQLITE = (3, 51, 3)
"""Before it, several writers and checkpoints could corrupt a file in WAL mode."""
_SAVE = (
    "stop the workers, keep a copy of the folder, and restore the newest export into a new board "
    "(dibs --board sqlite:new.db import board.jsonl); without one, save what is readable: dibs export rest.jsonl"
)


class Report:
    """What was looked at (`facts`, as `--json` prints them) and what was found."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.findings: list[dict[str, str]] = []

    def find(self, code: str, message: str, hint: str) -> None:
        if all(finding["message"] != message for finding in self.findings):
            self.findings.append({"code": code, "message": message, "hint": hint})

    def find_error(self, error: DibsError) -> None:
        self.find(error.code, error.message, error.hint)


def doctor(ctx: Context, args: Args) -> int:
    report = Report()
    _versions(report)
    board = _board(ctx, report)
    if board is not None:
        checks: list[Callable[[], None]] = [
            lambda: _file(report, board, args.deep),
            lambda: _contents(report, board),
            lambda: _changelog(report, board, args.deep),
        ]
        if is_dialect(board):
            from dibs.cli import files_report

            store: FileStore = board.store  # type: ignore[assignment]
            store.patient = False
            checks[0] = lambda: files_report.look(report, store)
            checks[2] = lambda: files_report.changelog(report, store)
        elif board.url.startswith("postgresql:"):
            from dibs.cli import server_report

            served: PostgresStore = board.store  # type: ignore[assignment]
            checks[0] = lambda: server_report.look(report, served)
        for check in checks:
            try:
                check()
            except DibsError as error:
                if not report.facts.get("dialect", {}).get("errors"):  # which have been told, with file and line
                    report.find_error(error)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if not report.facts.get("file"):
                    raise
                report.find("damaged", f"the board holds what dibs does not write ({error!r:.100})", _SAVE)
    if args.prove:
        _prove(ctx, report, board)
    _identity(ctx, report)
    if ctx.json:
        ctx.emit({"ok": not report.findings, **report.facts, "findings": report.findings})
    else:
        for line in _text(report, min(ctx.width, 100), ctx.color):
            ctx.say(line)
    return 1 if report.findings else 0


def _versions(report: Report) -> None:
    import apsw

    from dibs import __version__

    sqlite = apsw.sqlite_lib_version()
    report.facts["versions"] = {
        "dibs": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "apsw": apsw.apsw_version(),
        "sqlite": sqlite,
    }
    if tuple(int(part) for part in sqlite.split(".")) < FIRST_SOUND_SQLITE:
        report.find(
            "old_sqlite",
            f"apsw uses SQLite {sqlite}, in which several writers can damage a board",
            "install apsw from PyPI, which brings its own: pip install --upgrade --force-reinstall apsw",
        )


def _board(ctx: Context, report: Report) -> TaskBoard | None:
    if ctx.url is not None:
        found = "named by --board"
    elif os.environ.get("DIBS_BOARD"):
        found = "named by DIBS_BOARD"
    else:
        found = f"found from {os.getcwd()}"
    try:
        board = ctx.board
    except DibsError as error:
        named = ctx.url or os.environ.get("DIBS_BOARD")
        from dibs.stores.postgres.addresses import public

        url = None if named is None else public(named)
        if named is None:
            found = f"looked for in {os.getcwd()} and above"
        report.facts["board"] = {"url": url, "path": error.fields.get("path"), "found": found}
        ctx.explain(error)
        report.find_error(error)
        if isinstance(error, NoBoard) and "url" not in error.fields:  # one in a database has nothing near it
            _near(report, error, ctx.url)
        return None
    report.facts["board"] = {"url": board.url, "found": found}
    return board


def _near(report: Report, error: NoBoard, named: str | None) -> None:
    """Where no board was found, boards in dialects' files may still lie near by."""
    from dibs.dialects.discover import near

    start = os.getcwd() if named is None else os.path.dirname(str(error.fields.get("path") or "")) or os.getcwd()
    while not os.path.isdir(start) or os.path.basename(start) == ".dibs":
        start = os.path.dirname(start)
    urls = [f"{scheme}:{folder}" for scheme, folder in near(start)]
    if urls:
        report.facts["near"] = urls
        if "dibs --board" not in error.hint:
            report.findings[-1]["hint"] += f"; or use one that is near: dibs --board {quoted(urls[0])} list"


# -- the file


def _file(report: Report, board: TaskBoard, deep: bool) -> None:
    path = board.url.removeprefix("sqlite:")
    if path == board.url:
        return
    import apsw

    from dibs.stores.sqlite.schema import MIGRATIONS

    folder = os.path.dirname(path)
    wal = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
    free = shutil.disk_usage(folder).free
    facts: dict[str, Any] = {"path": path, "bytes": os.path.getsize(path), "wal_bytes": wal, "free_bytes": free}
    report.facts["file"] = facts
    if fs.is_read_only(path):
        report.find("read_only", f"{folder} is on a disk that is mounted for reading only", "work on it elsewhere")
    elif not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
        report.find("read_only", f"you may not write to {path} or its folder", "let its owner give you permission")
    if wal > LARGE_WAL:
        report.find(
            "large_wal",
            f"the write-ahead log has grown to {wal // MEGABYTE} MB: some program keeps the board open for reading",
            "end that program (a sqlite3 shell, a backup); the next writes then shrink it",
        )
    if free < LITTLE_SPACE:
        report.find("disk_full", f"only {free // MEGABYTE} MB are free in {folder}", "make room on that disk")
    _gate(report, path)
    pragma = "integrity_check" if deep else "quick_check"
    try:
        connection = _connection(path)
        try:
            facts["schema"] = connection.pragma("user_version")
            facts["newest_schema"] = len(MIGRATIONS)
            problems = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}(10)") if row[0] != "ok"]
        finally:
            connection.close()
    except apsw.Error as error:
        problems = [str(error)]
    facts["integrity"] = {"check": pragma, "ok": not problems, "problems": problems}
    if problems:
        report.find(
            "damaged",
            f"the file is damaged: {problems[0]}" + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""),
            _SAVE,
        )


def _connection(path: str) -> apsw.Connection:
    import apsw

    from dibs.stores.sqlite.store import for_reading

    name, flags = for_reading(path)
    return apsw.Connection(name, flags=flags)


def _gate(report: Report, path: str) -> None:
    """Does somebody keep all others from writing?"""
    from dibs.stores.sqlite import gate
    from dibs.stores.sqlite.store import side_files

    holder = gate.look(side_files(path)[0])
    if holder is None or not (holder.stopped or holder.seconds >= gate.TELL):
        return
    report.facts["writer"] = {
        "pid": holder.pid,
        "command": holder.command,
        "since": iso(holder.since),
        "stopped": holder.stopped,
    }
    report.find("writer_in_the_way", f"nobody else can write: all wait for {holder}", holder.hint)


# -- who holds what


def process_state(holder: Worker, here: str | None = None) -> tuple[str, str]:
    """(`alive`, `dead` or `unknown`; why that is so)."""
    if holder.pid is None:
        return "unknown", "no process was recorded, its lease decides"
    if is_dead(holder, here):
        return "dead", f"process {holder.pid} is gone"
    if is_alive(holder):
        return "alive", f"process {holder.pid}"
    if holder.host != host():
        return "unknown", f"process {holder.pid} on another host, {holder.host}"
    if holder.boot != (here or boot()):
        return "unknown", f"process {holder.pid} of an earlier boot or another container"
    return "unknown", f"process {holder.pid}, whose start time cannot be compared"


def _contents(report: Report, board: TaskBoard) -> None:
    now = board.now()
    here = boot()
    report.facts["counts"] = {str(status): count for status, count in board.counts().items()}
    claims: list[dict[str, Any]] = []
    for task in board.tasks([IN_PROGRESS], limit=2**31)[0]:
        if task.holder is None:
            continue
        hold = _hold(task.holder, task.claimed_at, task.lease_expires_at, now, here)
        claims.append({"task": task.id, "description": task.description, "token": task.token, **hold})
    locks: list[dict[str, Any]] = []
    for lock in board.locks():
        hold = _hold(lock.holder, lock.acquired_at, lock.expires_at, now, here)
        locks.append(
            {"pattern": lock.pattern, "shared": lock.shared, "task": lock.task_id, "token": lock.token, **hold}
        )
    report.facts["claims"] = claims
    report.facts["locks"] = locks
    free = [lock["pattern"] for lock in locks if lock["process"] == "dead" and lock["task"] is None]
    _find_holds(report, "dead_holder", "whose process has died", [c["task"] for c in claims if c["process"] == "dead"])
    _find_holds(report, "dead_holder", "whose process has died", free, "lock")
    over = [c["task"] for c in claims if c["process"] != "dead" and (c["lease_left"] or 1) <= 0]
    _find_holds(report, "expired_lease", "whose lease has run out", over)


def _hold(holder: Worker, since: float | None, until: float | None, now: float, here: str) -> dict[str, Any]:
    state, why = process_state(holder, here)
    left: float | None = round((until or now) - now, 3)
    if (until or now) - (since or now) > FOREVER / 2:
        left = None
        if holder.pid is None:
            why = (
                f"no process was recorded, and it has no end: {holder.name} must give it back; if it is gone: "
                f"dibs recover --worker {quoted(holder.name)}"
            )
    return {
        "holder": holder.name,
        "kind": holder.kind,
        "session": holder.session,
        "since": iso(since or now),
        "age": round(now - (since or now), 3),
        "lease_left": left,
        "process": state,
        "process_why": why,
    }


def _find_holds(report: Report, code: str, why: str, held: list[str], noun: str = "task") -> None:
    if held:
        named = ", ".join(held[:5]) + (f" and {len(held) - 5} more" if len(held) > 5 else "")
        verb, them = ("is", "it") if len(held) == 1 else ("are", "them")
        report.find(
            code,
            f"{number(len(held), noun)} {verb} held by a worker {why}: {named}",
            f"nothing is lost: the next claim gives {them} back; to have it done now: dibs recover",
        )


def _changelog(report: Report, board: TaskBoard, deep: bool) -> None:
    with board.store.read() as tx:
        last = tx.last_event()
    entries = last if last <= REPLAYED else _counted(board, last, REPLAYED + 1)
    facts: dict[str, Any] = {
        "last_event": last,
        "entries": entries if entries <= REPLAYED else None,
        "replayed": deep or entries <= REPLAYED,
        "agrees": None,
    }
    report.facts["changelog"] = facts
    if not facts["replayed"]:
        return
    different = disagreements(board)
    facts["agrees"] = not different
    if different:
        facts["differences"] = different[:100]
        report.find(
            "changelog_differs",
            f"the board is not what its changelog says, in {number(len(different), 'place')}: {different[0]}",
            "save both (dibs export board.jsonl) and report this with the output of: dibs doctor --json",
        )
    edges = [*stray_edges(board), *_miscounted(board)]
    report.facts["edges"] = {"agree": not edges, "differences": edges[:100]}
    if edges:
        report.find(
            "edges_differ",
            f"the edges between tasks are not what the tasks say, in {number(len(edges), 'place')}: {edges[0]}",
            f"stop the workers, and go on with a copy, which has them right: dibs copy {quoted(board.url)} NEW; report "
            "this with the output of: dibs doctor --json",
        )


def _miscounted(board: TaskBoard) -> list[str]:
    """Where a number of dependants, which only a database server keeps, is not what the tasks say."""
    if not board.url.startswith("postgresql:"):
        return []
    from dibs.cli.server_report import miscounted

    store: PostgresStore = board.store  # type: ignore[assignment]
    return [f"task {task} counts {told} dependants, and has {found}" for task, told, found in miscounted(store)]


def _counted(board: TaskBoard, last: int, most: int) -> int:
    """How many entries the changelog has, counted up to `most`; its `last` number may be far higher, as after a
    restore, when numbers are skipped."""
    if board.url.startswith("postgresql:"):
        from dibs.cli import server_report

        served: PostgresStore = board.store  # type: ignore[assignment]
        return server_report.entries(served, most)
    if not board.url.startswith("sqlite:"):
        return last
    import apsw

    try:
        connection = _connection(board.url.removeprefix("sqlite:"))
        try:
            rows = list(connection.execute("SELECT count(*) FROM (SELECT 1 FROM event LIMIT ?)", (most,)))
        finally:
            connection.close()
    except apsw.Error:
        return last
    return int(str(rows[0][0]))


def _prove(ctx: Context, report: Report, board: TaskBoard | None) -> None:
    report.facts["clients"] = []
    from dibs.cli import proving

    if board is None:  # which has been found; without one there is nothing to hold
        if not ctx.url and not os.environ.get("DIBS_BOARD"):
            proving.without_board(report)
        return
    try:
        proving.look(ctx, report)
    except DibsError as error:
        report.find_error(error)


# -- you


def _identity(ctx: Context, report: Report) -> None:
    environ = os.environ
    try:
        worker = from_environment(ctx.as_name, ctx.human)
    except DibsError as error:
        report.find_error(error)
        return
    if worker.pid is not None:  # only that of a client's server lives as long as a process
        report.facts["you"] = {
            "name": worker.name,
            "name_from": "client",
            "kind": worker.kind,
            "kind_from": "client",
            "role": worker.role,
            "session": worker.session,
            "session_from": "client",
            "process": worker.pid,
        }
        return
    variable = next((each for each in SESSION_VARIABLES if environ.get(each)), None)
    report.facts["you"] = {
        "name": worker.name,
        "name_from": "--as" if ctx.as_name else "DIBS_AGENT" if environ.get("DIBS_AGENT") else "login",
        "kind": worker.kind,
        "kind_from": "--human" if ctx.human else "DIBS_KIND" if environ.get("DIBS_KIND") else "default",
        "role": worker.role,
        "session": worker.session,
        "session_from": variable or ("terminal" if worker.session else None),
    }


# -- the text


def _text(report: Report, width: int, color: bool) -> list[str]:
    facts = report.facts
    lines: list[str] = []

    def row(label: str, text: str) -> None:
        wrapped = wrap(text, width, " " * 11)
        lines.append((paint(pad(label, 11), BOLD, color) + wrapped[0][11:]).rstrip())
        lines.extend(wrapped[1:])

    board = facts["board"]
    row("board", f"{board['url'] or 'none'}, {board['found']}")
    if near := facts.get("near"):
        row("near", ", ".join(near[:5]) + (f" and {len(near) - 5:,} more" if len(near) > 5 else ""))
    versions = facts["versions"]
    row("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))
    if file := facts.get("file"):
        sizes = f"{size(file['bytes'])}, write-ahead log {size(file['wal_bytes'])}, {size(file['free_bytes'])} free"
        row("file", f"{sizes}, on a local file system")
    if file and "integrity" in file:
        what = "every page and index entry" if file["integrity"]["check"] == "integrity_check" else "every page"
        row("integrity", f"schema {file.get('schema')}, {what}: " + ("ok" if file["integrity"]["ok"] else "DAMAGED"))
    if dialect := facts.get("dialect"):
        from dibs.cli.files_report import rows

        for name, text in rows(dialect):
            row(name, text)
    if server := facts.get("server"):
        from dibs.cli import server_report

        for name, text in server_report.rows(server):
            row(name, text)
    if log := facts.get("changelog"):
        verdict = {
            True: "replaying it gives the board: ok",
            False: "replaying it DIFFERS",
            None: "not replayed (--deep)" if not dialect else "only for reading: the files decide",
        }
        upto = f"up to {log['last_event']:,}"
        if (entries := log.get("entries", log["last_event"])) not in (None, log["last_event"]):
            upto = f"{entries:,} entries, {upto}"
        row("changelog", f"{upto}, {verdict[log['agrees']]}")
    if counts := facts.get("counts"):
        parts = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        row("tasks", ", ".join(parts) or "none")
    if you := facts.get("you"):
        row("you", _you(you))
    for label, key, what in (("claims", "claims", "task"), ("locks", "locks", "pattern")):
        if key in facts:
            held = facts[key]
            row(label, "" if held else "none")
            for hold in held[:SHOWN]:
                lines += _hold_lines(hold, what, width, color)
            if len(held) > SHOWN:
                lines.append(f"  and {len(held) - SHOWN:,} more: dibs doctor --json")
    if "clients" in facts:
        from dibs.cli import proving

        board_note = "; with DIBS_BOARD as it is set here" if os.environ.get("DIBS_BOARD") else ""
        row("clients", f"as tried just now{board_note}" if facts["clients"] else "not tried")
        lines += proving.lines(facts["clients"], width, color)
        for note in facts.get("notes", ()):
            lines += hint(note, width, "  ")
    lines.append("")
    for finding in report.findings:
        if finding["code"] == "not_proved":
            continue  # told with its client
        told = wrap(finding["message"], width)
        lines += [paint("! ", RED, color) + told[0][2:], *told[1:], *wrap(finding["hint"], width, "    ")]
    if faults := sum(finding["code"] == "not_proved" for finding in report.findings):
        lines.append(
            paint("! ", RED, color) + f"not everything that is set up works: {number(faults, 'fault')}, see above"
        )
    if not report.findings:
        lines.append(paint("all is well", GREEN, color))
    return lines


def _you(you: dict[str, Any]) -> str:
    if you["name_from"] == "client":
        return (
            f"{you['name']}, {you['kind']}, session {you['session']}: all three from the dibs mcp of your client "
            f"(process {you['process']})"
        )
    name = {"login": "your login name"}.get(you["name_from"], f"from {you['name_from']}")
    default = "because no name was given" if you["name_from"] == "login" else "because a name was given"
    kind = default if you["kind_from"] == "default" else f"from {you['kind_from']}"
    if you["session"] is None:
        session = "no session (no variable names one, and there is no terminal): the name alone is the worker"
    else:
        session = f"session {you['session']} (from {you['session_from'].replace('terminal', 'the terminal')})"
    return f"{you['name']} ({name}), {you['kind']} ({kind}), {session}"


def _hold_lines(hold: dict[str, Any], what: str, width: int, color: bool) -> list[str]:
    name = safe(hold[what]) + (" (shared)" if hold.get("shared") else "")
    if what == "pattern" and hold["task"]:
        name += f" (with {hold['task']})"
    if hold["lease_left"] is None:
        left = "no end"
    else:
        left = f"{span(hold['lease_left'])} left" if hold["lease_left"] > 0 else "lease has run out"
    first = f"  {name}  {safe(hold['holder'])}, since {span(hold['age'])}, {left}"
    shade = RED if hold["process"] == "dead" else DIM
    why = hint(f"{hold['process']}: {hold['process_why']}", width, " " * 6)
    return [cut(first, width), *(paint(cut(line, width), shade, color) for line in why)]


def size(count: int) -> str:
    if count < 1024:
        return number(count, "byte")
    if count >= 1024**3:
        return f"{count / 1024**3:.1f} GB"
    return f"{count / MEGABYTE:.1f} MB" if count >= MEGABYTE else f"{count / 1024:.0f} KB"
