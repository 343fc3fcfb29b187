"""What `dibs hook claude` costs before an edit, as a ratio to `python -I -c pass`.

Each event is a new process, timed from its start to its end, on the interpreter that it is compared with. The board
has 100k tasks and 1,000 locks of 50 workers, in a git repository with two worktrees; the events come from the second
one: an edit of a free file, of a file that another worker holds (denied), of one's own file, and a shell command that
writes a free file. Events and the bare interpreter take turns, 100 times; times are medians.
Repeat: `python bench/hook.py`, about a minute.
"""

import json
import os
import subprocess
import sys
import time
from statistics import median

import common
import report

TASKS, LOCKS, WORKERS = 100_000, 1_000, 50
BARE = "python -I -c pass"
ME, SESSION = "claude-bench", "bench"
EVENTS = {
    "Edit, free": ("Edit", {"file_path": "src/free/a.py"}, False),
    "Edit, denied": ("Edit", {"file_path": "src/part7/file3.py"}, True),
    "Edit, own": ("Edit", {"file_path": "src/own/a.py"}, False),
    "Bash, free": ("Bash", {"command": "cd src/free && sed -i s/a/b/ a.py > /dev/null"}, False),
}
JUDGED = ("Edit, free", "Edit, denied")


def main():
    parser = common.arguments(__doc__, seconds=0, rounds=100)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--locks", type=int, default=LOCKS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.tasks, options.locks = 5, 1_000, 1_000
    dibs = os.path.join(os.path.dirname(sys.executable), "dibs")
    if not os.path.exists(dibs):
        raise SystemExit(f"{dibs} is absent: use the interpreter of an environment where dibs is installed")

    times = {}
    with common.work_folder(options.out) as folder:
        worktree = prepare(options, folder)
        events = {label: write_event(folder, worktree, label) for label in EVENTS}
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "XDG_RUNTIME_DIR": folder}
        environment |= {"DIBS_AGENT": ME, "DIBS_SESSION": SESSION}
        collect(dibs, events, worktree, environment)  # warms the page cache and the byte code
        end = time.monotonic() + options.seconds
        turns = 0
        while turns < options.rounds or time.monotonic() < end:
            for label, seconds in collect(dibs, events, worktree, environment).items():
                times.setdefault(label, []).append(seconds)
            turns += 1
            if turns % 20 == 0:
                common.say(f"{turns} rounds")

    bare = median(times[BARE])
    figures = [
        {
            "event": label,
            "tasks": options.tasks,
            "locks": options.locks,
            "median_ms": round(median(values) * 1000, 2),
            "p90_ms": round(common.percentile(sorted(values), 90) * 1000, 2),
            "to_bare": round(median(values) / bare, 2),
            "runs": len(values),
        }
        for label, values in times.items()
    ]
    print(f"one event, {options.tasks:,} tasks, {options.locks:,} locks, medians\n")
    show(figures)
    targets = [
        report.target(f"hook, {entry['event']} / bare interpreter", entry["to_bare"], 3)
        for entry in figures
        if entry["event"] in JUDGED
    ]
    report.publish("hook", options, figures, targets, lambda pyplot: plot(pyplot, figures))


def prepare(options, folder):
    """A repository with the board, and a second worktree: that one."""
    folder = os.path.abspath(folder)  # git takes a worktree's path from the repository, not from here
    fixtures = common.Fixtures(options, folder)
    name = f"plain-{options.tasks}"
    fixtures.get(name, common.build_plain, options.tasks)
    main, second = os.path.join(folder, "main"), os.path.join(folder, "second")
    os.makedirs(main)
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x"), ("worktree", "add", "-q", second)):
        subprocess.run(["git", "-C", main, *who, *words], check=True)
    fixtures.copy(name, os.path.join(main, ".dibs"))
    common.in_child(take_locks, main, options.locks)
    common.settle(os.path.join(main, ".dibs"))
    return second


def take_locks(main, count):
    from dibs import TaskBoard
    from dibs.model import Worker

    os.chdir(main)
    with TaskBoard.open() as board:
        board.lock(["src/own/**"], Worker(ME, session=SESSION))
        each = count // WORKERS
        for number in range(WORKERS):
            files = [f"src/part{number}/file{file}.py" for file in range(each - 1)]
            board.lock([*files, f"docs/part{number}/**"], Worker(f"worker-{number}", session=str(number)))


def write_event(folder, worktree, label):
    tool, fields, _ = EVENTS[label]
    event = {
        "session_id": SESSION,
        "transcript_path": "/none",
        "cwd": worktree,
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": fields,
    }
    path = os.path.join(folder, f"{label.replace(', ', '-')}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(event, file)
    return path


def collect(dibs, events, worktree, environment):
    """Seconds of one run each, by label."""
    found = {BARE: clock([sys.executable, "-I", "-c", "pass"], os.devnull, worktree, environment)[0]}
    for label, path in events.items():
        found[label], said = clock([dibs, "hook", "claude"], path, worktree, environment)
        if (b'"deny"' in said) is not EVENTS[label][2]:
            raise SystemExit(f"{label} was answered with {said!r}")
    return found


def clock(command, path, worktree, environment):
    """Seconds from the start of `command` to its end, and what it said."""
    with open(path, "rb") as file:
        started = time.perf_counter()
        ended = subprocess.run(
            command, env=environment, cwd=worktree, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        elapsed = time.perf_counter() - started
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}")
    return elapsed, ended.stdout


def show(figures):
    report.table(
        ("event", "median ms", "p90 ms", f"to {BARE}", "runs"),
        [
            (
                entry["event"],
                f"{entry['median_ms']:.1f}",
                f"{entry['p90_ms']:.1f}",
                f"{entry['to_bare']:.2f}",
                entry["runs"],
            )
            for entry in figures
        ],
    )


def plot(pyplot, figures):
    labels = [entry["event"] for entry in figures]
    bare = next(entry["median_ms"] for entry in figures if entry["event"] == BARE)
    figure, axes = pyplot.subplots(figsize=(7, 4.4))
    series = {"one event": [entry["median_ms"] for entry in figures]}
    report.bars(axes, labels, series, labels="{:.0f}", colours=report.shades(series))
    axes.axhline(3 * bare, color=report.LIMIT, lw=1, ls="--")
    axes.set_title("Start to end, ms (line: 3 times the bare interpreter)")
    axes.tick_params("x", labelrotation=15, labelsize=8)
    return figure


if __name__ == "__main__":
    main()
