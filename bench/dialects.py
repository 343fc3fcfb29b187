"""claim+complete on a large `taskboard.json`: dibs against a straightforward implementation of document 004.

The straightforward one is what the document's text says: take the flock, reload with `json`, sort, change, rewrite with
`json.dump(…, indent=2)`, release. It syncs nothing. dibs is measured as it ships (synced, the file replaced whole),
without syncing, with two boards that take turns (each has to read what the other wrote), and opened anew for every call
(as commands do). All by turns in one process. Repeat: `python bench/dialects.py`, about half a minute.
"""

import fcntl
import json
import os
import time
from statistics import median

import common
import report

WORKER = "worker-1"


def main():
    parser = common.arguments(__doc__, seconds=0, rounds=8)
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks in the file (default 10,000)")
    parser.add_argument("--pairs", type=int, default=4, help="claims and completions per round (default 4)")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.rounds, options.pairs = 500, 1, 2
    with common.work_folder(options.out) as folder:
        times, size = measure(folder, options)
    base = median(times["straightforward"])
    figures = [
        {
            "contender": name,
            "median_ms": round(median(values) * 1000, 2),
            "to_straightforward": round(base / median(values), 1),
            "pairs": len(values),
        }
        for name, values in times.items()
    ]
    print(f"claim + complete, {options.tasks:,} tasks in {size / 1e6:.1f} MB\n")
    rows = [(e["contender"], f"{e['median_ms']:.1f}", f"{e['to_straightforward']:.1f}x") for e in figures]
    report.table(("contender", "median ms", "ratio"), rows)
    ratio = next(e["to_straightforward"] for e in figures if e["contender"] == "dibs")
    targets = [report.target("dibs to straightforward, claim+complete", ratio, 10, at_least=True)]
    report.publish("dialects", options, figures, targets, lambda pyplot: plot(pyplot, figures, options))


def measure(folder, options):
    from dibs import TaskBoard

    fill(TaskBoard(state_dir=folder), options.tasks)
    plain = Straightforward(folder)
    url = f"taskboard:{folder}"
    board = TaskBoard(state_dir=folder)
    loose, other = (TaskBoard.open(url, durability="normal") for _ in range(2))
    contenders = {
        "straightforward": (plain.claim, lambda task: plain.complete(task, "done")),
        "dibs": (board.claim, lambda task: board.complete(task.id, "done")),
        "dibs, not synced": (loose.claim, lambda task: loose.complete(task.id, "done")),
        "dibs, two take turns": (loose.claim, lambda task: other.complete(task.id, "done")),
        "dibs, opened anew": (
            lambda worker: TaskBoard.open(url).claim(worker),
            lambda task: TaskBoard.open(url).complete(task.id, "done"),
        ),
    }
    for claim, complete in contenders.values():  # once, so that everything is imported and read
        complete(claim(WORKER))
    times = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, (claim, complete) in contenders.items():
            for _ in range(options.pairs):
                before = time.perf_counter()
                complete(claim(WORKER))
                times[name].append(time.perf_counter() - before)
    if plain.claim(WORKER) is None:
        raise SystemExit("the board ran out of tasks; take more --tasks")
    return times, os.path.getsize(plain.file)


def fill(board, count):
    ids = []
    for start in range(0, count, 1000):
        ids += board.add_many(
            [
                {
                    "description": f"task {number}: do what has to be done here, and say so",
                    "priority": number % 5,
                    "depends_on": [ids[number // 2]] if start and number % 3 == 0 else [],
                }
                for number in range(start, min(start + 1000, count))
            ]
        )


class Straightforward:
    """Document 004, as one would write it down."""

    def __init__(self, folder):
        self.file = os.path.join(folder, "taskboard.json")
        self.lock = os.path.join(folder, "taskboard.lock")

    def _locked(self, change):
        with open(self.lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self.file) as file:
                tasks = json.load(file)["tasks"]
            result = change(tasks)
            with open(self.file, "w") as file:
                json.dump({"tasks": tasks}, file, indent=2)
            return result

    def claim(self, agent):
        def change(tasks):
            done = {task["id"] for task in tasks if task["status"] == "completed"}
            free = [t for t in tasks if t["status"] == "pending" and all(need in done for need in t["depends_on"])]
            free.sort(key=lambda task: (-task["priority"], task["created_at"]))
            if not free:
                return None
            free[0].update(status="in_progress", assigned_to=agent, claimed_at=time.time())
            return free[0]["id"]

        return self._locked(change)

    def complete(self, task_id, result):
        def change(tasks):
            for task in tasks:
                if task["id"] == task_id:
                    task.update(status="completed", result=result, completed_at=time.time())

        self._locked(change)


def plot(pyplot, figures, options):
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    names = [entry["contender"] for entry in figures]
    report.bars(axes, names, {"median": [entry["median_ms"] for entry in figures]}, labels="{:.1f}")
    axes.set(ylabel="milliseconds", title=f"claim + complete, {options.tasks:,} tasks in taskboard.json")
    axes.tick_params(axis="x", labelsize=8)
    return figure


if __name__ == "__main__":
    main()
