"""dibs on PostgreSQL beside procrastinate's worker and pgbench, and beside itself under growth and an old snapshot.

A server is started for this run, with every commit on disk (`fsync` and `synchronous_commit` on), or `--server URL` is
used. Its parts, of which `--parts` chooses some:

- throughput: claim+complete per second with 1, 4, 16 and 64 connections, no-op work. dibs has a process for each
  connection and makes two calls for a task. procrastinate runs its own worker, once as its manual has it (a worker
  process for each connection) and once tuned (two connections for each worker process, autocommit, no check of a
  connection before its use). The target is for the first; the ratio to the second stands beside it. The limit is half
  of what `pgbench -N` does, as claim+complete is two transactions; `pgbench -N -M prepared` is shown beside it.
- batches: `claim(worker, n=32)` alone, then the completions alone.
- growth: the same work on boards of 10k and 1M tasks, in turns, right after a checkpoint and after `--load` seconds.
- snapshot: claim, complete and add in a closed loop while another session keeps a REPEATABLE READ snapshot for `--hold`
  seconds, which keeps every dead row in place.
- trips: round trips to the server for each call, counted by a proxy.

Every process is connected, has its statements prepared and stands at a barrier before the clock starts; the time is
from the first to start to the last to end, by one clock. Contenders take turns within a round, each on a fresh copy of
its database (pgbench uses its own on) right after a checkpoint; a figure is the median of the rounds. After each run
the database is asked how many were completed: a task done twice or not counted ends the script. Repeat:
`python bench/postgres.py`, about 20 minutes.
"""

import os
import sys
from contextlib import contextmanager
from importlib import metadata
from statistics import median

import common
import report

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pg_boards import SIZES, batches, growth, snapshot
from pg_contenders import ABSENT, Databases, Pgbench, PostgresDibs, Procrastinate, check
from pg_trips import trips

OURS = PostgresDibs()
RIVALS = (Procrastinate("procrastinate"), Procrastinate("procrastinate, tuned", share=2, lean=True))
LIMIT = Pgbench("pgbench -N / 2", "simple")
LIMITS = (LIMIT, Pgbench("pgbench -N -M prepared / 2", "prepared"))
JUDGED = 16


def main():
    parser = common.arguments(__doc__, seconds=4, rounds=3)
    add = parser.add_argument
    add("--connections", type=common.numbers, default=(1, 4, 16, 64), metavar="N,…", help="default 1,4,16,64")
    add("--growth-connections", type=common.numbers, default=(4, 16), metavar="N,…", help="default 4,16")
    add("--sizes", type=common.numbers, default=SIZES, metavar="N,…", help="tasks on a board, for growth")
    add("--load", type=float, default=15, metavar="SECONDS", help="before growth is measured (default %(default)g)")
    add("--backlog", type=int, help="tasks waiting, for throughput and batches (default: enough)")
    add("--hold", type=float, default=120, metavar="SECONDS", help="age of the snapshot (default %(default)g)")
    add("--hold-connections", type=int, default=JUDGED, metavar="N", help="its load (default %(default)s)")
    add("--parts", type=lambda text: text.split(","), default=list(PARTS), metavar="NAME,…", help="only these")
    add("--server", metavar="URL", help="of a superuser's database on a server that is there, and is not in use")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    if options.quick:
        options.seconds, options.rounds, options.connections, options.growth_connections = 1, 1, (4,), (4,)
        options.hold, options.hold_connections, options.sizes = min(options.hold, 3), 4, (2_000, 10_000)
    options.backlog = options.backlog or max(5_000, int(8_000 * options.seconds))

    os.makedirs(options.out, exist_ok=True)
    figures, targets = [], []
    with server(options) as databases:
        figures.append(about(databases))
        for part in options.parts:
            made, judged = PARTS[part](options, databases)
            figures += made
            targets += judged
    options.server = "given" if options.server else None  # its URL is not for a report
    report.publish("postgres", options, figures, targets, lambda pyplot: plot(pyplot, figures))


@contextmanager
def server(options):
    """The databases of a server of our own, gone at the end, or of the one that was given, left as it was."""
    if options.server:
        databases = Databases(options.server, options.server)
        try:
            yield databases
        finally:
            databases.drop_all()
        return
    from tests.postgres.server import NoServer, Server

    try:
        started = Server.start(durable=not options.quick)
    except NoServer as error:
        common.say(str(error))
        raise SystemExit(ABSENT) from None
    with started:
        if common.file_system(started.folder) in ("tmpfs", "ramfs"):
            common.say("warning: the server's data are on a RAM disk, where fsync costs nothing")
        yield Databases(started.url(), started.admin_url())


def about(databases):
    packages = {name: metadata.version(name) for name in ("psycopg", "psycopg-binary", "procrastinate")}
    entry = {"part": "server", **databases.settings(), "packages": packages, "pgbench_scale": Pgbench.SCALE}
    print(", ".join(f"{name} {value}" for name, value in entry.items() if isinstance(value, str) and name != "part"))
    return entry


def throughput(options, databases):
    limits = LIMITS
    if not Pgbench.program():
        common.say("there is no pgbench here (Debian has it in postgresql-contrib or postgresql): no limit is shown")
        limits = ()
    if limits:
        databases.fill("pgbench", LIMIT.fill, 1 if options.quick else Pgbench.SCALE)
    contenders = (OURS, *RIVALS)
    for contender in contenders:
        databases.fill(f"{contender.fixture}-{options.backlog}", contender.fill, options.backlog)
    rates = {}
    for turn in range(options.rounds):
        for connections in options.connections:
            for contender in (*contenders, *limits):
                rate = one_rate(contender, connections, options, databases)
                rates.setdefault((connections, contender.name), []).append(rate)
                common.say(
                    f"round {turn + 1}/{options.rounds}  {connections:2} connections  {contender.name}: {rate:,.0f}/s"
                )
    figures = [
        {
            "part": "throughput",
            "contender": name,
            "connections": connections,
            "per_second": round(median(many), 1),
            "rounds": [round(rate, 1) for rate in many],
        }
        for (connections, name), many in rates.items()
    ]
    add_ratios(figures)
    print(f"\nclaim+complete per second, {options.backlog:,} tasks waiting, {options.rounds} rounds\n")
    show(figures, limits)
    return figures, judge(figures)


def one_rate(contender, connections, options, databases):
    if isinstance(contender, Pgbench):
        databases.settle()
        return contender.rate(databases.at("pgbench"), connections, options.seconds)
    url = databases.copy(f"{contender.fixture}-{options.backlog}")
    run = contender.race(url, connections, options.seconds)
    check(f"{contender.name}, {connections} connections", run, contender.completed(url))
    if run.done + run.warm_ups >= options.backlog:
        raise SystemExit(f"{contender.name} did all {options.backlog:,} tasks before the time was over: --backlog")
    databases.drop(url)
    return run.rate


def add_ratios(figures):
    """To each figure of dibs, its ratios to procrastinate and to the limits at as many connections."""
    rates = {(entry["connections"], entry["contender"]): entry["per_second"] for entry in figures}
    for entry in figures:
        if entry["contender"] != OURS.name:
            continue
        here, own = entry["connections"], entry["per_second"]
        entry["to_each"] = {rival.name: round(own / rates[here, rival.name], 2) for rival in RIVALS}
        entry["to_limit"] = {
            limit.name: round(own / rates[here, limit.name], 3) for limit in LIMITS if (here, limit.name) in rates
        }


def show(figures, limits):
    rates = {(entry["connections"], entry["contender"]): entry["per_second"] for entry in figures}
    ours = [entry for entry in figures if entry["contender"] == OURS.name]
    names = [contender.name for contender in (OURS, *RIVALS, *limits)]
    report.table(
        ("connections", *names),
        [(entry["connections"], *(f"{rates[entry['connections'], name]:,.0f}" for name in names)) for entry in ours],
    )
    print()
    report.table(
        ("dibs /", "procrastinate", "… tuned", *(limit.name for limit in limits)),
        [
            (
                f"{entry['connections']} connections",
                *(f"{entry['to_each'][rival.name]:.2f}" for rival in RIVALS),
                *(f"{entry['to_limit'][limit.name]:.0%}" for limit in limits),
            )
            for entry in ours
        ],
    )


def judge(figures):
    ours = [entry for entry in figures if entry["contender"] == OURS.name and entry["connections"] == JUDGED]
    targets = []
    for entry in ours:
        name = f"dibs / procrastinate as its manual has it, {JUDGED} connections"
        targets.append(report.target(name, entry["to_each"][RIVALS[0].name], 2.5, at_least=True))
        if LIMIT.name in entry["to_limit"]:
            name = f"dibs / half of pgbench -N, {JUDGED} connections"
            targets.append(report.target(name, entry["to_limit"][LIMIT.name], 0.6, at_least=True))
    return targets


PARTS = {"throughput": throughput, "batches": batches, "growth": growth, "snapshot": snapshot, "trips": trips}


# The picture


def plot(pyplot, figures):
    drawn = [part for part in DRAWINGS if any(entry["part"] == part for entry in figures)]
    figure, panels = pyplot.subplots(max(1, len(drawn)), 1, figsize=(9, 3.8 * max(1, len(drawn))), squeeze=False)
    for part, (axes,) in zip(drawn, panels, strict=False):
        DRAWINGS[part](axes, [entry for entry in figures if entry["part"] == part])
    if not drawn:
        panels[0][0].set_axis_off()
    return figure


def groups_of(entries):
    counts = sorted({entry["connections"] for entry in entries})
    return counts, [f"{count} connection" + ("s" if count > 1 else "") for count in counts]


def draw_throughput(axes, entries):
    counts, groups = groups_of(entries)
    rates = {(entry["contender"], entry["connections"]): entry["per_second"] for entry in entries}
    series = {name: [rates[name, count] for count in counts] for name in dict.fromkeys(name for name, _ in rates)}
    colours = dict(zip(series, ("#1f6feb", "#d29922", "#8957e5", "#d73a49", "#f0a0a8"), strict=False))
    report.bars(axes, groups, series, colours=colours)
    axes.set_title("Tasks claimed and completed per second on PostgreSQL, every commit on disk")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def draw_batches(axes, entries):
    _counts, groups = groups_of(entries)
    series = {
        "claimed, 32 in a call": [entry["claimed_per_second"] for entry in entries],
        "completed, one in a call": [entry["completed_per_second"] for entry in entries],
    }
    report.bars(axes, groups, series, colours=report.shades(series))
    axes.set_title("Claims in batches, tasks per second")
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def draw_growth(axes, entries):
    counts, groups = groups_of(entries)
    rates = {(entry["tasks"], entry["connections"]): entry["per_second"] for entry in entries}
    series = {
        f"{size:,} tasks": [rates[size, count] for count in counts] for size in sorted({size for size, _ in rates})
    }
    report.bars(axes, groups, series, colours=report.shades(series))
    axes.set_title("Claimed and completed per second, by the size of the board")
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def draw_snapshot(axes, entries):
    entry = entries[0]
    axes.plot(*zip(*entry["per_second"], strict=True), color="#1f6feb", linewidth=1.2)
    axes.axvline(0, color="#d73a49", linewidth=1, linestyle="--")
    axes.text(0, 0, " a snapshot is opened, and held", color="#d73a49", fontsize=8, va="bottom")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_title(f"Claim, complete and add per second, {entry['connections']} connections, beside an open snapshot")


DRAWINGS = {
    "throughput": draw_throughput,
    "batches": draw_batches,
    "growth": draw_growth,
    "snapshot": draw_snapshot,
}


if __name__ == "__main__":
    main()
