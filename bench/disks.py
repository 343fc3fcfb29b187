"""Claim+complete throughput with 4 processes, by how long the disk takes for a sync.

The disk under a board decides what durable calls cost: a virtual one may answer in less than 0.1 ms, an SSD that really
writes takes 0.5 to 10. So every sync of every contender is made longer, by a library that is preloaded (slow_sync.c;
needs a C compiler): by nothing, 0.5, 1, 3 and 6 ms. What a sync then takes is measured and shown. dibs runs beside
huey, the best of the queues in throughput.py, and a hand-written claim in one statement. A figure is the median of the
rounds. Repeat: `python bench/disks.py`, 4 minutes.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from statistics import median

import common
import report
from contenders import BusyTimeout, Dibs, DibsClaimNext, Huey
from throughput import add_ratios, summary

CONTENDERS = (Dibs(), DibsClaimNext(), Huey(), BusyTimeout())
REAL = 0.5
"""Milliseconds from which a sync is one that really writes: from there on a target is judged."""


def main():
    parser = common.arguments(__doc__, seconds=3, processes=(4,), rounds=3)
    parser.add_argument("--longer", default="0,0.5,1,3,6", metavar="MS,…", help="syncs that much longer (%(default)s)")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.longer = 0.3, 1, "0,3"
    pauses = [float(part) for part in options.longer.split(",")]
    backlog = max(5_000, int(10_000 * options.seconds))
    preload_slow_syncs()

    runs, syncs = {}, {}
    with common.work_folder(options.out) as folder:
        fixtures = common.Fixtures(options, folder)
        for contender in CONTENDERS:
            fixtures.get(f"{contender.fixture}-{backlog}", contender.fill, backlog)
        for turn in range(options.rounds):
            for pause in pauses:
                syncs.setdefault(pause, []).append(common.in_child(time_of_a_sync, folder, pause))
                for processes in options.processes:
                    for contender in CONTENDERS:
                        board = fixtures.copy(f"{contender.fixture}-{backlog}", os.path.join(folder, "board"))
                        slow = OnSlowDisk(contender, pause)
                        run = common.race(common.drain, processes, slow, board, options.sync, options.seconds)
                        runs.setdefault((pause, processes, contender.name), []).append(run)
                        common.say(
                            f"round {turn + 1}/{options.rounds}  syncs {pause:g} ms longer  "
                            f"{contender.name}: {run.rate:,.0f}/s"
                        )

    figures = []
    for pause in pauses:
        group = [summary(k, name, many) for (at, k, name), many in runs.items() if at == pause]
        add_ratios(group)
        took = round(median(syncs[pause]), 2)
        figures += [{"sync_longer_by_ms": pause, "sync_ms": took, **entry} for entry in group]
    print(f"claim+complete per second, synchronous={options.sync}, {options.rounds} rounds\n")
    show(figures)
    targets = [
        report.target(
            f"dibs at 4 processes / huey, a sync takes {entry['sync_ms']:g} ms",
            entry["to_best_other"],
            2.5,
            at_least=True,
        )
        for entry in figures
        if entry["contender"] == "dibs" and entry["processes"] == 4 and entry["sync_ms"] >= REAL
    ]
    report.publish("disks", options, figures, targets, lambda pyplot: plot(pyplot, figures))


class OnSlowDisk:
    """A contender whose processes wait longer for every sync."""

    def __init__(self, contender, pause):
        self.contender = contender
        self.pause = pause

    def open(self, folder, sync, worker):
        os.environ["SLOW_SYNC_MS"] = str(self.pause)  # the library reads it at every sync
        return self.contender.open(folder, sync, worker)


def preload_slow_syncs():
    """Put the library in front of the C library's syncs, in every process that is started from here on."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_sync.c")
    library = os.path.join(tempfile.mkdtemp(prefix="slow-sync-"), "slow_sync.so")
    atexit.register(shutil.rmtree, os.path.dirname(library), ignore_errors=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = library


def time_of_a_sync(folder, pause):
    """Milliseconds for what a transaction writes, about, and its sync."""
    os.environ["SLOW_SYNC_MS"] = str(pause)
    path = os.path.join(folder, "sync")
    times = []
    with open(path, "wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        for number in range(60):
            os.pwrite(file.fileno(), os.urandom(12_288), number * 12_288)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    os.unlink(path)
    return median(times) * 1000


def show(figures):
    report.table(
        ("contender", "a sync takes", "processes", "per s", "to huey", "min/max each", "p50 ms", "p99 ms", "max ms"),
        [
            (
                entry["contender"],
                f"{entry['sync_ms']:.2f} ms",
                entry["processes"],
                f"{entry['per_second']:,.0f}",
                f"{entry['to_best_other']:.2f}",
                f"{entry['least_by_one_process']:.0f}/{entry['most_by_one_process']:.0f}",
                f"{entry['p50_ms']:.2f}",
                f"{entry['p99_ms']:.1f}",
                f"{entry['max_ms']:.0f}",
            )
            for entry in figures
        ],
    )


def plot(pyplot, figures):
    first = figures[0]["processes"]
    series = {
        contender.name: [
            entry["to_best_other"]
            for entry in figures
            if entry["contender"] == contender.name and entry["processes"] == first
        ]
        for contender in CONTENDERS
    }
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    groups = [f"{took:g} ms" for took in dict.fromkeys(entry["sync_ms"] for entry in figures)]
    report.bars(axes, groups, series, labels="{:.1f}")
    axes.axhline(2.5, color="#777777", linewidth=1, linestyle="--")
    axes.set_title(f"Tasks claimed and completed, {first} processes, every call synced, by how long a sync takes")
    axes.set_ylabel("times huey's rate")
    axes.legend(ncols=len(series), loc="upper center", bbox_to_anchor=(0.5, -0.08))
    return figure


if __name__ == "__main__":
    main()
