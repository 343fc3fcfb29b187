"""Reading a board of 1M tasks inside one process, and adding 100k tasks in one call.

A page of 50 of `board.tasks`, of `board.ready`, and one `board.get` by id are each timed many times, in
turns, on an open board; the ids are spread over the whole board. `add_many` of 100k tasks goes to a new
board each time, with synchronous=FULL. Figures are medians; the first call of each, with nothing cached, is
shown beside. Repeat: `python bench/reading.py`, about 2 minutes, most of it filling the board.
"""

import os
import random
import time
from statistics import median

import common
import report

PAGE = 50


def main():
    parser = common.arguments(__doc__, seconds=5, rounds=3)
    parser.add_argument("--tasks", type=int, default=1_000_000, help="size of the board (default 1,000,000)")
    parser.add_argument("--add", type=int, default=100_000, help="tasks in one add_many (default 100,000)")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.tasks, options.add = 0.3, 1, 10_000, 5_000

    with common.work_folder(options.out) as folder:
        fixtures = common.Fixtures(options, folder)
        name = f"chains-{options.tasks}"
        fixtures.get(name, common.build_chains, options.tasks)
        board = fixtures.copy(name, os.path.join(folder, "board"))
        reads = common.in_child(read, board, options.tasks, options.seconds)
        adds = []
        for turn in range(options.rounds):
            empty = os.path.join(folder, f"add-{turn}")
            os.mkdir(empty)
            adds.append(common.in_child(add, empty, options.add))
            common.say(f"add_many of {options.add:,}: {adds[-1]:.2f} s")

    figures = [
        {
            "call": label,
            "first_ms": round(values[0] * 1000, 3),
            "median_ms": round(median(values) * 1000, 3),
            "p99_ms": round(common.percentile(sorted(values), 99) * 1000, 3),
            "calls": len(values),
        }
        for label, values in reads.items()
    ]
    print(f"one call inside the process, {options.tasks:,} tasks\n")
    report.table(
        ("call", "first ms", "median ms", "p99 ms", "calls"),
        [
            (
                entry["call"],
                f"{entry['first_ms']:.2f}",
                f"{entry['median_ms']:.3f}",
                f"{entry['p99_ms']:.3f}",
                f"{entry['calls']:,}",
            )
            for entry in figures
        ],
    )
    seconds = median(adds)
    print(f"\nadd_many of {options.add:,} tasks: {seconds:.2f} s, {options.add / seconds:,.0f} tasks per second")
    targets = [report.target(f"{entry['call']}, ms", entry["median_ms"], 20) for entry in figures]
    targets.append(report.target(f"add_many of {options.add:,}, s", seconds, 3))
    figures.append({"call": "add_many", "tasks": options.add, "seconds": round(seconds, 3), "rounds": adds})
    report.publish("reading", options, figures, targets, lambda pyplot: plot(pyplot, figures, options))


def read(folder, tasks, seconds):
    """Latencies of each kind of read, in seconds, for `seconds` in all."""
    from dibs import TaskBoard

    board = TaskBoard.open(common.board_url(folder))
    chance = random.Random(1)
    calls = {
        f"tasks(limit={PAGE})": lambda: board.tasks(limit=PAGE),
        f"ready(limit={PAGE})": lambda: board.ready(limit=PAGE),
        "get(task_id)": lambda: board.get(f"t{chance.randrange(tasks - 1)}"),
    }
    latencies = {label: [] for label in calls}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for label, call in calls.items():
            before = time.perf_counter()
            answer = call()
            latencies[label].append(time.perf_counter() - before)
            check(label, answer)
    board.close()
    return latencies


def check(label, answer):
    """A read that is fast because it reads nothing must not pass; a page may come with the total beside it."""
    page = answer[0] if isinstance(answer, tuple) else answer
    if answer is None or ("limit" in label and len(page) != PAGE):
        raise SystemExit(f"{label} did not answer with a full page or a task")


def add(folder, tasks):
    """Seconds that one `add_many` of `tasks` tasks takes on a new board."""
    from dibs import TaskBoard

    rows = [{"description": f"do the thing number {number}", "priority": number % 5} for number in range(tasks)]
    board = TaskBoard.open(common.board_url(folder), create=True)
    before = time.perf_counter()
    board.add_many(rows)
    elapsed = time.perf_counter() - before
    board.close()
    return elapsed


def plot(pyplot, figures, options):
    reads = [entry for entry in figures if "median_ms" in entry]
    series = {
        "first call": [entry["first_ms"] for entry in reads],
        "median": [entry["median_ms"] for entry in reads],
        "p99": [entry["p99_ms"] for entry in reads],
    }
    figure, axes = pyplot.subplots(figsize=(7, 4))
    report.bars(axes, [entry["call"] for entry in reads], series, labels="{:.2f}", colours=report.shades(series))
    axes.axhline(20, color=report.LIMIT, lw=1, ls="--")
    axes.annotate("target: 20 ms", (0.01, 21), xycoords=("axes fraction", "data"), fontsize=8, color=report.LIMIT)
    axes.set(yscale="log", ylabel="milliseconds", title=f"One read on {options.tasks:,} tasks, inside the process")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return figure


if __name__ == "__main__":
    main()
