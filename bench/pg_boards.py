"""The parts of `postgres.py` that compare dibs with itself: batches, board sizes, and a snapshot that stays open.

Each part takes the options and the server's databases and returns its figures and its targets.
"""

import time
from array import array
from statistics import median

import common
import report
from pg_contenders import WARM_UP, PostgresDibs, check, libpq, race

OURS = PostgresDibs()
BATCH = 32
STEPS = 2_000
SIZES = (10_000, 1_000_000)
BACKLOG = 10_000


# Batches


def batches(options, databases):
    """Tasks per second by `claim(worker, n=32)` alone, then by completing what was claimed, one call for each task."""
    fixture = f"dibs-{options.backlog}"
    databases.fill(fixture, OURS.fill, options.backlog)
    runs = {}
    for turn in range(options.rounds):
        for connections in options.connections:
            url = databases.copy(fixture)
            most = options.backlog // connections - WARM_UP
            work = (_batches, connections, url, options.seconds / 2, most)
            run = race(*work, warm_ups=connections * WARM_UP)
            check(f"batches, {connections} connections", run, OURS.completed(url))
            databases.drop(url)
            rates = tuple(_phase(run, phase) for phase in ("claim", "complete"))
            runs.setdefault(connections, []).append(rates)
            common.say(
                f"round {turn + 1}/{options.rounds}  {connections:2} connections  batches of {BATCH}: "
                f"{rates[0]:,.0f}/s claimed, {rates[1]:,.0f}/s completed"
            )
    figures = [
        {
            "part": "batches",
            "connections": connections,
            "claimed_per_second": round(median(claimed for claimed, _ in rates), 1),
            "completed_per_second": round(median(completed for _, completed in rates), 1),
        }
        for connections, rates in runs.items()
    ]
    print(f"\nclaims in batches of {BATCH}, and their completion one by one, tasks per second\n")
    report.table(
        ("connections", "claimed per s", "completed per s"),
        [
            (entry["connections"], f"{entry['claimed_per_second']:,.0f}", f"{entry['completed_per_second']:,.0f}")
            for entry in figures
        ],
    )
    return figures, []


def _batches(sample, barrier, number, url, seconds, most):
    clock = time.perf_counter
    handle = OURS.open(url, None, f"worker-{number}")
    for _ in range(WARM_UP):
        handle.step()
    board, worker = handle.board, handle.worker
    claimed = []
    barrier.wait(common.START_LIMIT)
    sample.started = now = clock()
    end = now + seconds
    while now < end and len(claimed) + BATCH <= most:
        claimed += board.claim(worker, n=BATCH)
        now = clock()
    sample.claim = (sample.started, now, len(claimed))
    barrier.wait(common.START_LIMIT)
    begun = now = clock()
    end = now + seconds
    # Claims in batches are many times faster than completions, so most of what was claimed is left when time is over.
    for task in claimed:
        task.complete("done")
        sample.ids.append(task.id)
        now = clock()
        if now >= end:
            break
    sample.ended = now
    sample.complete = (begun, now, len(sample.ids))
    handle.close()


def _phase(run, name):
    spans = [getattr(sample, name) for sample in run.samples]
    return sum(count for _, _, count in spans) / (max(end for _, end, _ in spans) - min(start for start, _, _ in spans))


# Growth


def growth(options, databases):
    """The same number of claims and completions on a small and on a large board, in turns.

    Measured twice: right after a checkpoint, when PostgreSQL writes every page that is touched for the first time whole
    into its log (a small board's few pages are through with that at once), and after some load, as it is for the rest
    of the five minutes between checkpoints. The target is about the latter.
    """
    runs, firsts = {}, {}
    small, large = options.sizes[0], options.sizes[-1]
    for size in options.sizes:
        databases.fill(f"board-{size}", OURS.fill, size)
    steps = 200 if options.quick else STEPS
    for turn in range(options.rounds):
        for connections in options.growth_connections:
            for size in options.sizes:
                # A small board is new each time; 1M tasks are used on, since a few thousand fewer are still 1M.
                url = databases.copy(f"board-{size}") if size < 100_000 else databases.at(f"board-{size}")
                before = OURS.completed(url)
                databases.settle()
                first = OURS.race(url, connections, steps=steps // connections)
                if size < 100_000:
                    between = OURS.race(url, connections, steps=steps // 2 // connections)
                else:
                    between = OURS.race(url, connections, seconds=1 if options.quick else options.load)
                run = OURS.race(url, connections, steps=steps // connections)
                run.warm_ups += sum(each.done + each.warm_ups for each in (first, between))
                check(f"growth, {size:,} tasks", run, OURS.completed(url) - before)
                runs.setdefault((connections, size), []).append(run)
                firsts.setdefault((connections, size), []).append(first)
                common.say(
                    f"round {turn + 1}/{options.rounds}  {connections:2} connections  {size:,} tasks: "
                    f"{first.rate:,.0f}/s after a checkpoint, {run.rate:,.0f}/s later"
                )
                if size < 100_000:
                    databases.drop(url)
    figures = [
        {
            "part": "growth",
            "connections": connections,
            "tasks": size,
            "per_second": round(median(run.rate for run in many), 1),
            "after_checkpoint": round(median(run.rate for run in firsts[connections, size]), 1),
            "p50_ms": round(median(run.percentile(50) for run in many), 3),
            "p99_ms": round(median(run.percentile(99) for run in many), 3),
            "rounds": [round(run.rate, 1) for run in many],
        }
        for (connections, size), many in runs.items()
    ]
    rates = {(entry["connections"], entry["tasks"]): entry["per_second"] for entry in figures}
    for entry in figures:
        entry["to_smallest"] = round(entry["per_second"] / rates[entry["connections"], small], 3)
    print("\nclaim+complete per second by the size of the board\n")
    report.table(
        ("tasks", "connections", "per s", "to smallest", "after a checkpoint", "p50 ms", "p99 ms"),
        [
            (
                f"{entry['tasks']:,}",
                entry["connections"],
                f"{entry['per_second']:,.0f}",
                f"{entry['to_smallest']:.2f}",
                f"{entry['after_checkpoint']:,.0f}",
                f"{entry['p50_ms']:.2f}",
                f"{entry['p99_ms']:.1f}",
            )
            for entry in sorted(figures, key=lambda entry: (entry["connections"], entry["tasks"]))
        ],
    )
    targets = [
        report.target(
            f"{large:,} tasks / {small:,}, {entry['connections']} connections",
            entry["to_smallest"],
            0.8,
            at_least=True,
        )
        for entry in figures
        if entry["tasks"] == large
    ]
    return figures, targets


# A snapshot that stays open


def snapshot(options, databases):
    """The rate of a steady load while another session keeps one snapshot, so that nothing can be vacuumed away."""
    databases.fill("steady", OURS.fill, BACKLOG)
    runs = []
    for turn in range(options.rounds):
        url = databases.copy("steady")
        runs.append(_beside_a_snapshot(options, url))
        databases.drop(url)
        common.say(
            f"round {turn + 1}/{options.rounds}  {options.hold_connections} connections  snapshot, {options.hold:g} s: "
            f"{runs[-1]['end_to_beginning']:.2f} of its beginning's rate at its end"
        )
    runs.sort(key=lambda run: run["end_to_beginning"])
    entry = runs[(len(runs) - 1) // 2]
    entry["rounds"] = [run["end_to_beginning"] for run in runs]
    print(
        f"\nclaim, complete and add, {entry['connections']} connections, while a snapshot is held for "
        f"{options.hold:g} s; the median of {len(runs)} rounds\n"
    )
    report.table(
        ("", "tasks per s"),
        [
            ("before the snapshot", f"{entry['before_per_second']:,.0f}"),
            (f"its first {_window(options):g} s", f"{entry['beginning_per_second']:,.0f}"),
            (f"its last {_window(options):g} s", f"{entry['end_per_second']:,.0f}"),
            ("end / beginning", f"{entry['end_to_beginning']:.2f}"),
            ("in all rounds", ", ".join(f"{ratio:.2f}" for ratio in entry["rounds"])),
        ],
    )
    print(f"\n{entry['transactions_behind']:,} transactions behind at the end; dead rows: {entry['dead_rows']}")
    name = f"rate at the end / at the beginning of a snapshot held for {options.hold:g} s"
    return [entry], [report.target(name, entry["end_to_beginning"], 0.8, at_least=True)]


def _window(options):
    return max(options.hold / 10, 0.5)


def _beside_a_snapshot(options, url):
    connections, hold = options.hold_connections, options.hold
    before = max(1.0, hold / 6)
    run = race(_steady, connections + 1, url, before, hold, warm_ups=0)
    check("snapshot", run, OURS.completed(url))
    holder = next(sample for sample in run.samples if hasattr(sample, "held"))
    opened, closed = holder.held
    length, window = closed - opened, _window(options)
    times = sorted(moment - opened for sample in run.samples for moment in sample.latencies)
    beginning, end = _rate(times, 0, window), _rate(times, length - window, length)
    return {
        "part": "snapshot",
        "connections": connections,
        "held_seconds": round(length, 1),
        "transactions_behind": holder.behind,
        "dead_rows": dict(holder.dead),
        "before_per_second": round(_rate(times, -before / 2, 0), 1),
        "beginning_per_second": round(beginning, 1),
        "end_per_second": round(end, 1),
        "end_to_beginning": round(end / beginning, 3),
        "per_second": _by_second(times, length, before, 1 if hold >= 20 else 0.25),
    }


def _steady(sample, barrier, number, url, before, hold):
    """Work for `race`: process 0 holds the snapshot, the others claim, complete and add, one of each in turn."""
    if number == 0:
        return _hold(sample, barrier, url, before, hold)
    handle = OURS.open(url, None, f"worker-{number}")
    board, clock = handle.board, time.perf_counter
    # The moments of completion are kept where other works keep latencies.
    sample.latencies = array("d")
    barrier.wait(common.START_LIMIT)
    sample.started = now = clock()
    end = now + before + hold + 1
    while now < end:
        identity = handle.step()
        if identity is None:
            raise RuntimeError("a steady load found nothing to claim")
        board.add("one more")
        now = clock()
        sample.ids.append(identity)
        sample.latencies.append(now)
    sample.ended = now
    handle.close()


def _hold(sample, barrier, url, before, hold):
    import psycopg

    clock = time.perf_counter
    behind = "SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = %s"
    dead = "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0 ORDER BY n_dead_tup DESC LIMIT 4"
    with psycopg.connect(libpq(url), autocommit=True) as session, psycopg.connect(libpq(url), autocommit=True) as other:
        barrier.wait(common.START_LIMIT)
        sample.started = clock()
        time.sleep(before)
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT count(*) FROM pg_class")
        opened = clock()
        time.sleep(hold)
        sample.held = (opened, clock())
        sample.behind = other.execute(behind, [session.info.backend_pid]).fetchone()[0]
        session.execute("ROLLBACK")
        sample.dead = other.execute(dead).fetchall()
    sample.ended = sample.started


def _rate(times, start, end):
    return sum(start <= moment < end for moment in times) / (end - start)


def _by_second(times, hold, before, step):
    """Pairs of a moment after the snapshot was opened and the rate around it."""
    first, last = -int(before / step), int(hold / step)
    return [
        (round((place + 0.5) * step, 3), round(_rate(times, place * step, (place + 1) * step), 1))
        for place in range(first, last)
    ]
