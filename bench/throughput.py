"""Claim+complete throughput of dibs beside litequeue, huey's SqliteStorage and persist-queue.

Each contender gets the same backlog of tasks that are all ready. 1, 4, 16 and 32 processes meet at a
barrier and then claim and complete, one task after the other, for `--seconds`; every acknowledged call is
durable (`--sync full`, the default) or consistent (`--sync normal`), the same for all. Contenders take
turns within a round; a figure is the median of the rounds. The rate counts distinct tasks, so a queue that
hands a task to two processes gains nothing by it; doubles and errors are shown. How much the disk decides:
disks.py. Repeat: `python bench/throughput.py`, about 5 minutes.
"""

import os
from statistics import median

import common
import report
from contenders import OTHERS, OURS


def main():
    parser = common.arguments(__doc__, seconds=3, processes=(1, 4, 16, 32), rounds=3)
    parser.add_argument("--backlog", type=int, help="tasks waiting (default: enough for the fastest)")
    parser.add_argument("--contenders", metavar="NAME,…", help="only those whose names begin so")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.processes = 0.3, 1, (4,)
    each_second = 10_000 if options.sync == "full" else 30_000
    backlog = options.backlog or max(5_000, int(each_second * options.seconds))
    contenders = chosen(options.contenders)

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
                    run = common.race(common.drain, processes, contender, board, options.sync, options.seconds)
                    runs.setdefault((processes, contender.name), []).append(run)
                    common.say(
                        f"round {turn + 1}/{options.rounds}  {processes:2} processes  "
                        f"{contender.name}: {run.rate:,.0f}/s"
                    )

    figures = [summary(processes, name, many) for (processes, name), many in runs.items()]
    add_ratios(figures)
    print(
        f"claim+complete per second, synchronous={options.sync}, {backlog:,} tasks waiting, {options.rounds} rounds\n"
    )
    show(figures)
    prefix = "" if options.sync == "full" else f" ({options.sync})"
    targets = [
        report.target(f"dibs{prefix} at 4 processes / best other", entry["to_best_other"], 2.5, at_least=True)
        for entry in figures
        if entry["contender"] == "dibs" and entry["processes"] == 4 and entry["to_best_other"]
    ]
    report.publish(
        "throughput",
        options,
        figures,
        targets,
        lambda pyplot: plot(pyplot, figures, options),
    )


def chosen(names):
    everyone = (*OURS, *OTHERS)
    if not names:
        return everyone
    return [contender for contender in everyone if contender.name.startswith(tuple(names.split(",")))]


def summary(processes, name, runs):
    return {
        "contender": name,
        "processes": processes,
        "per_second": round(median(run.rate for run in runs), 1),
        "least_by_one_process": median(run.least for run in runs),
        "most_by_one_process": median(run.most for run in runs),
        "p50_ms": round(median(run.percentile(50) for run in runs), 3),
        "p99_ms": round(median(run.percentile(99) for run in runs), 3),
        "max_ms": round(max(run.percentile(100) for run in runs), 1),
        "double_deliveries": sum(run.doubles for run in runs),
        "deliveries": sum(run.done + run.doubles for run in runs),
        "errors": sum(run.errors for run in runs),
        "error_messages": sorted({message for run in runs for message in run.messages})[:3],
        "rounds": [round(run.rate, 1) for run in runs],
    }


def add_ratios(figures):
    others = {contender.name for contender in OTHERS}
    for entry in figures:
        rivals = [
            rival["per_second"]
            for rival in figures
            if rival["processes"] == entry["processes"] and rival["contender"] in others
        ]
        entry["to_best_other"] = round(entry["per_second"] / max(rivals), 2) if rivals and max(rivals) else None


def show(figures):
    report.table(
        (
            "contender",
            "processes",
            "per s",
            "to best other",
            "min/max each",
            "p50 ms",
            "p99 ms",
            "max ms",
            "doubles",
            "errors",
        ),
        [
            (
                entry["contender"],
                entry["processes"],
                f"{entry['per_second']:,.0f}",
                f"{entry['to_best_other']:.2f}" if entry["to_best_other"] else "",
                f"{entry['least_by_one_process']:.0f}/{entry['most_by_one_process']:.0f}",
                f"{entry['p50_ms']:.2f}",
                f"{entry['p99_ms']:.1f}",
                f"{entry['max_ms']:.0f}",
                entry["double_deliveries"],
                entry["errors"],
            )
            for entry in sorted(figures, key=lambda entry: entry["processes"])
        ],
    )
    for entry in figures:
        if entry["errors"]:
            print(f"\n{entry['contender']}, {entry['processes']} processes: {entry['error_messages']}")
    for name in dict.fromkeys(entry["contender"] for entry in figures if entry["double_deliveries"]):
        doubles = sum(entry["double_deliveries"] for entry in figures if entry["contender"] == name)
        total = sum(entry["deliveries"] for entry in figures if entry["contender"] == name)
        print(f"\n{name} handed out tasks twice: {doubles:,} of {total:,} deliveries were repeats.")


def plot(pyplot, figures, options):
    names = dict.fromkeys(entry["contender"] for entry in figures)
    rates = {(entry["contender"], entry["processes"]): entry for entry in figures}
    series = {}
    for name in names:
        doubles = any(entry["double_deliveries"] for entry in figures if entry["contender"] == name)
        label = f"{name} (delivers twice)" if doubles else name
        series[label] = [rates[name, processes]["per_second"] for processes in options.processes]
    colours = {label: report.COLOURS[name] for label, name in zip(series, names, strict=True)}
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    groups = [f"{processes} process" + ("es" if processes > 1 else "") for processes in options.processes]
    report.bars(axes, groups, series, colours=colours)
    axes.set_title(f"Tasks claimed and completed per second, synchronous={options.sync.upper()}")
    axes.set_ylabel("tasks per second")
    axes.legend(ncols=min(3, len(series)), loc="upper center", bbox_to_anchor=(0.5, -0.08))
    return figure


if __name__ == "__main__":
    main()
