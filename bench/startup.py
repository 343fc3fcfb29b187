"""Cold start and peak memory of `dibs claim`, `dibs done` and `dibs list`, as a ratio to `python -I -c pass`.

Each command is a new process, timed from its start to its end, and runs on the interpreter that it is
compared with. The commands and the bare interpreter take turns, at least 40 times, on a board of 1k tasks and
one of 1M; times are medians. Peak memory is the child's own ru_maxrss by wait4, the largest of several runs.
Repeat: `python bench/startup.py`, about 2 minutes.
"""

import os
import subprocess
import sys
import time
from statistics import median

import common
import report

SIZES = (1_000, 1_000_000)
BARE = "python -I -c pass"
COMMANDS = {
    "dibs --version": ("--version",),
    "dibs claim": ("claim",),
    "dibs done": ("done",),
    "dibs list": ("list",),
}

# Linux never reports a peak below the size of the process that forked, so a bare interpreter does it.
WEIGH = """
import os, sys
silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=silence)
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def main():
    parser = common.arguments(__doc__, seconds=0, rounds=60)
    parser.add_argument("--sizes", type=common.numbers, default=SIZES, metavar="N,…", help="tasks on a board")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.sizes = 5, (1_000,)
    dibs = os.path.join(os.path.dirname(sys.executable), "dibs")
    if not os.path.exists(dibs):
        raise SystemExit(f"{dibs} is absent: use the interpreter of an environment where dibs is installed")

    times, peaks = {}, {}
    with common.work_folder(options.out) as folder:
        fixtures = common.Fixtures(options, folder)
        boards = {}
        for size in options.sizes:
            name = f"plain-{size}"
            fixtures.get(name, common.build_plain, size)
            boards[size] = fixtures.copy(name, os.path.join(folder, name))
        # Weighing first also warms the page cache and the byte code for the timing.
        for _ in range(3):
            collect(peaks, boards, dibs, weigh)
        end = time.monotonic() + options.seconds
        turns = 0
        while turns < options.rounds or time.monotonic() < end:
            collect(times, boards, dibs, clock)
            turns += 1
            if turns % 20 == 0:
                common.say(f"{turns} rounds")

    bare = {size: median(times[BARE, size]) for size in options.sizes}
    figures = [
        {
            "command": label,
            "tasks": size,
            "median_ms": round(median(values) * 1000, 2),
            "p90_ms": round(common.percentile(sorted(values), 90) * 1000, 2),
            "to_bare": round(median(values) / bare[size], 2),
            "peak_mb": round(max(peaks[label, size]) / 1024, 1),
            "runs": len(values),
        }
        for (label, size), values in times.items()
    ]
    print("cold start of one command, medians\n")
    show(figures)
    targets = []
    for entry in figures:
        if entry["command"] not in (BARE, "dibs --version"):
            where = f"{entry['command']} on {entry['tasks']:,} tasks"
            targets.append(report.target(f"{where} / bare interpreter", entry["to_bare"], 3))
            if entry["tasks"] == options.sizes[-1]:
                targets.append(report.target(f"{where}, peak MB", entry["peak_mb"], 40))
    report.publish("startup", options, figures, targets, lambda pyplot: plot(pyplot, figures, options))


def collect(results, boards, dibs, run):
    """Run each command once on each board; `done` completes the task that `claim` took."""
    for size, board in boards.items():
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "DIBS_BOARD": f"{board}/board.db",
            "DIBS_AGENT": "bench",
            "DIBS_SESSION": "bench",
        }
        results.setdefault((BARE, size), []).append(run([sys.executable, "-I", "-c", "pass"], environment))
        for label, words in COMMANDS.items():
            results.setdefault((label, size), []).append(run([dibs, *words], environment))


def clock(command, environment):
    """Seconds from the start of `command` to its end."""
    started = time.perf_counter()
    ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    elapsed = time.perf_counter() - started
    return passed(command, ended, elapsed)


def weigh(command, environment):
    """Peak memory of `command` in kilobytes."""
    launcher = [sys.executable, "-I", "-S", "-c", WEIGH, *command]
    ended = subprocess.run(launcher, env=environment, capture_output=True)
    return passed(command, ended, int(ended.stdout or 0) // (1024 if sys.platform == "darwin" else 1))


def passed(command, ended, value):
    if ended.returncode:
        message = ended.stderr.decode(errors="replace")
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}: {message}")
    return value


def show(figures):
    report.table(
        ("command", "tasks", "median ms", "p90 ms", f"to {BARE}", "peak MB", "runs"),
        [
            (
                entry["command"],
                f"{entry['tasks']:,}",
                f"{entry['median_ms']:.1f}",
                f"{entry['p90_ms']:.1f}",
                f"{entry['to_bare']:.2f}",
                f"{entry['peak_mb']:.1f}",
                entry["runs"],
            )
            for entry in figures
        ],
    )


def plot(pyplot, figures, options):
    labels = list(dict.fromkeys(entry["command"] for entry in figures))
    bare = next(entry["median_ms"] for entry in figures if entry["command"] == BARE)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4.4))
    for axes, key, title, limit in (
        (left, "median_ms", "Start to end, ms (line: 3 times the bare interpreter)", 3 * bare),
        (right, "peak_mb", "Peak memory, MB (line: 40)", 40),
    ):
        series = {
            f"{size:,} tasks": [
                entry[key]
                for label in labels
                for entry in figures
                if (entry["command"], entry["tasks"]) == (label, size)
            ]
            for size in options.sizes
        }
        report.bars(axes, labels, series, labels="{:.0f}", colours=report.shades(series))
        axes.axhline(limit, color=report.LIMIT, lw=1, ls="--")
        axes.set_title(title)
        axes.tick_params("x", labelrotation=15, labelsize=8)
    figure.legend(*left.get_legend_handles_labels(), ncols=2, loc="outside lower left")
    return figure


if __name__ == "__main__":
    main()
