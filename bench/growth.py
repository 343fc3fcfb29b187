"""Whether a board slows down as it grows: claim+complete rate with 1k, 100k and 1M tasks, as a ratio to 1k.

Two kinds of boards: plain (every task ready) and chains (tasks in chains of 10, each depending on the one
before, and 30% of the board, 300k tasks at 1M, blocked for good and in front by priority). 1 and 4
processes start at a barrier and do the same number of claim+complete steps on every size; small boards are
copied afresh for each run, large ones are used on. Sizes take turns until each has been measured for
`--seconds`; a rate is the median of its runs. Repeat: `python bench/growth.py`, about 4 minutes, half of it
filling boards.
"""

import os
from statistics import median

import common
import report
from contenders import Dibs

KINDS = {"plain": common.build_plain, "chains": common.build_chains}
SIZES = (1_000, 100_000, 1_000_000)
STEPS = 400
WARM_UP = 40
REUSE_FROM = 50_000


def main():
    parser = common.arguments(__doc__, seconds=6, processes=(1, 4), rounds=5)
    parser.add_argument("--sizes", type=common.numbers, default=SIZES, metavar="N,…", help="tasks on a board")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.sizes = 0, 1, (1_000, 10_000)

    runs = {}
    with common.work_folder(options.out) as folder:
        fixtures = common.Fixtures(options, folder)
        for kind, build in KINDS.items():
            for size in options.sizes:
                name = f"{kind}-{size}"
                fixtures.get(name, build, size)
                fixtures.copy(name, os.path.join(folder, name))
        cells = [(kind, processes, size) for kind in KINDS for processes in options.processes for size in options.sizes]
        while waiting := [cell for cell in cells if unfinished(runs.get(cell, ()), options)]:
            for kind, processes, size in waiting:
                name = f"{kind}-{size}"
                board = os.path.join(folder, name)
                if size < REUSE_FROM:
                    fixtures.copy(name, board)
                run = measure(board, processes, options.sync)
                runs.setdefault((kind, processes, size), []).append(run)
            common.say(f"{len(runs[cells[0]])} runs of each size, {len(waiting)} cells were not finished")

    figures = [summary(*cell, runs[cell]) for cell in cells]
    add_ratios(figures, options.sizes[0])
    print(f"claim+complete per second by board size, synchronous={options.sync}, medians\n")
    show(figures)
    targets = [
        report.target(
            f"{entry['kind']} {entry['tasks']:,} / {options.sizes[0]:,}, {entry['processes']} processes",
            entry["to_smallest"],
            0.7,
            at_least=True,
        )
        for entry in figures
        if entry["tasks"] == options.sizes[-1]
    ]
    report.publish("growth", options, figures, targets, lambda pyplot: plot(pyplot, figures, options))


def unfinished(runs, options):
    return len(runs) < options.rounds or sum(run.elapsed for run in runs) < options.seconds


def measure(board, processes, sync):
    steps, warm_up = STEPS // processes, WARM_UP // processes
    return common.race(common.drain, processes, Dibs(), board, sync, None, steps, warm_up)


def summary(kind, processes, size, runs):
    for run in runs:
        if run.doubles or run.errors or run.done < STEPS // processes * processes:
            raise SystemExit(
                f"{kind} {size}: {run.done} done, {run.doubles} doubles, {run.errors} errors {sorted(run.messages)[:3]}"
            )
    return {
        "kind": kind,
        "processes": processes,
        "tasks": size,
        "per_second": round(median(run.rate for run in runs), 1),
        "p50_ms": round(median(run.percentile(50) for run in runs), 3),
        "p99_ms": round(median(run.percentile(99) for run in runs), 3),
        "runs": len(runs),
    }


def add_ratios(figures, smallest):
    base = {(entry["kind"], entry["processes"]): entry["per_second"] for entry in figures if entry["tasks"] == smallest}
    for entry in figures:
        entry["to_smallest"] = round(entry["per_second"] / base[entry["kind"], entry["processes"]], 3)


def show(figures):
    report.table(
        ("board", "processes", "tasks", "per s", "to smallest", "p50 ms", "p99 ms", "runs"),
        [
            (
                entry["kind"],
                entry["processes"],
                f"{entry['tasks']:,}",
                f"{entry['per_second']:,.0f}",
                f"{entry['to_smallest']:.2f}",
                f"{entry['p50_ms']:.2f}",
                f"{entry['p99_ms']:.1f}",
                entry["runs"],
            )
            for entry in figures
        ],
    )


def plot(pyplot, figures, options):
    figure, panels = pyplot.subplots(1, len(KINDS), figsize=(9, 4.2), sharey=True)
    titles = {"plain": "No dependencies", "chains": "Chains of 10, 30% blocked in front"}
    for kind, axes in zip(KINDS, panels, strict=True):
        series = {
            f"{size:,} tasks": [
                entry["per_second"]
                for processes in options.processes
                for entry in figures
                if (entry["kind"], entry["processes"], entry["tasks"]) == (kind, processes, size)
            ]
            for size in options.sizes
        }
        groups = [f"{processes} process" + ("es" if processes > 1 else "") for processes in options.processes]
        report.bars(axes, groups, series, colours=report.shades(series))
        axes.set_title(titles[kind])
    panels[0].set_ylabel(f"claimed and completed per second, {options.sync.upper()}")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=3, loc="outside lower left")
    return figure


if __name__ == "__main__":
    main()
