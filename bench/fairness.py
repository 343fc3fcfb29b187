"""How evenly many writers are served: 32 processes on a dibs board, and on a hand-written one for contrast.

32 processes meet at a barrier and call claim and complete in turn for `--seconds` with synchronous=FULL.
Each single call is timed. The contrast is what one would write by hand: a partial index, `UPDATE …
RETURNING`, `BEGIN IMMEDIATE` and SQLite's busy_timeout, whose waiters sleep and poll instead of queueing.
Both take turns; percentiles are medians of the rounds, the maximum is over all of them. Repeat: `python
bench/fairness.py`, about 2 minutes.
"""

import os
import time
from statistics import median

import common
import report
from contenders import BusyTimeout, Dibs


def main():
    parser = common.arguments(__doc__, seconds=10, processes=(32,), rounds=3)
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.processes = 0.5, 1, (8,)
    contenders = (Dibs(), BusyTimeout())
    backlog = int(20_000 * max(1, options.seconds))

    runs = {}
    with common.work_folder(options.out) as folder:
        fixtures = common.Fixtures(options, folder)
        for contender in contenders:
            fixtures.get(f"{contender.fixture}-{backlog}", contender.fill, backlog)
        for turn in range(options.rounds):
            for processes in options.processes:
                for contender in contenders:
                    name = f"{contender.fixture}-{backlog}"
                    board = fixtures.copy(name, os.path.join(folder, "board"))
                    run = common.race(call, processes, contender, board, options.sync, options.seconds)
                    runs.setdefault((processes, contender.name), []).append(run)
                    common.say(
                        f"round {turn + 1}/{options.rounds}  {contender.name}: "
                        f"p99.9 {run.percentile(99.9):,.0f} ms, {run.least} to {run.most} claims each"
                    )

    figures = [summary(processes, name, many) for (processes, name), many in runs.items()]
    print(f"latency of one call, synchronous={options.sync}, {options.seconds:g} s, {options.rounds} rounds\n")
    show(figures)
    targets = []
    for entry in figures:
        if entry["contender"] == "dibs":
            targets.append(
                report.target(f"p99.9 of one call, {entry['processes']} writers, ms", entry["p99.9_ms"], 250)
            )
            targets.append(report.target("most / least claims of one process", entry["most_to_least"], 2))
    report.publish("fairness", options, figures, targets, lambda pyplot: plot(pyplot, runs, options))


def call(sample, barrier, number, contender, folder, sync, seconds):
    """Work for `race`: like `drain`, with every single call timed; a claim counts when it is completed."""
    handle = contender.open(folder, sync, f"worker-{number}")
    clock = time.perf_counter
    barrier.wait(common.START_LIMIT)
    sample.started = now = clock()
    end = now + seconds
    task = None
    while now < end:
        before = now
        try:
            if task is None:
                task = handle.claim()
                if task is None:
                    break
            else:
                handle.complete(task)
                sample.ids.append(handle.identify(task))
                task = None
        except Exception as error:
            sample.fail(error)
            now = clock()
            continue
        now = clock()
        sample.latencies.append(now - before)
    sample.ended = now
    handle.close()


def summary(processes, name, runs):
    figures = {"contender": name, "processes": processes}
    for percent in (50, 99, 99.9):
        figures[f"p{percent}_ms"] = round(median(run.percentile(percent) for run in runs), 2)
    figures["max_ms"] = round(max(run.percentile(100) for run in runs), 1)
    figures["calls_per_second"] = round(median(len(run.latencies) / run.elapsed for run in runs), 1)
    figures["least_claims"] = median(run.least for run in runs)
    figures["most_claims"] = median(run.most for run in runs)
    figures["most_to_least"] = round(median(run.most / max(1, run.least) for run in runs), 2)
    figures["double_deliveries"] = sum(run.doubles for run in runs)
    figures["errors"] = sum(run.errors for run in runs)
    return figures


def show(figures):
    report.table(
        (
            "contender",
            "writers",
            "calls/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "claims each",
            "max/min",
            "errors",
        ),
        [
            (
                entry["contender"],
                entry["processes"],
                f"{entry['calls_per_second']:,.0f}",
                f"{entry['p50_ms']:.1f}",
                f"{entry['p99_ms']:.0f}",
                f"{entry['p99.9_ms']:.0f}",
                f"{entry['max_ms']:.0f}",
                f"{entry['least_claims']:.0f}–{entry['most_claims']:.0f}",
                f"{entry['most_to_least']:.1f}",
                entry["errors"],
            )
            for entry in figures
        ],
    )


def plot(pyplot, runs, options):
    processes = options.processes[-1]
    last = {name: many[-1] for (count, name), many in runs.items() if count == processes}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4.2))
    for name, run in last.items():
        # The slowest share of calls on a log scale shows the tail, which a plain distribution hides.
        total = len(run.latencies)
        shares = [(total - place) / total for place in range(total)]
        left.plot(
            [latency * 1000 for latency in run.latencies],
            shares,
            label=name,
            color=report.COLOURS[name],
            lw=2,
        )
        right.plot(
            range(1, processes + 1),
            sorted(len(sample.ids) for sample in run.samples),
            label=name,
            color=report.COLOURS[name],
            marker="o",
            ms=3,
        )
    left.set(xscale="log", yscale="log", xlabel="one call takes longer than, ms", ylabel="share of calls")
    left.axhline(0.001, color="#bbbbbb", lw=0.8, ls="--")
    left.annotate("p99.9", (0.99, 0.0012), xycoords=("axes fraction", "data"), ha="right", fontsize=8, color="#777777")
    left.set_title(f"Latency of one call, {processes} writers, {options.sync.upper()}")
    right.set(xlabel="process, from least to most served", ylabel="tasks completed", ylim=(0, None))
    right.set_title(f"Tasks completed by each process in {options.seconds:g} s")
    right.legend()
    return figure


if __name__ == "__main__":
    main()
