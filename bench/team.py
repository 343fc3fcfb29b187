"""What a pool costs: per task, with 16 workers and 500 short tasks 10 deep, and while all its agents idle.

- work: 16 agents, small Python programs on the board's own API, drain 500 tasks of 50 chains of 10, each of which takes
  `--task-ms` (20 ms of sleep). Once they are started by hand and left alone, once by an AgentPool that starts them,
  follows the changelog, keeps leases and watches processes. In turns; the pool's own cost is its processor time
  (with its wardens) for each task, and the difference of the two times for each task, from the first claim to the last
  completion.
- idle: 16 agents that speak MCP, with a server each, have nothing to do while the lead plans. The processor time of the
  pool, its wardens and the servers over `--seconds`, as a share of one core.

Repeat: `python bench/team.py`, about three minutes.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import common
import report

WORKERS, TASKS, DEEP = 16, 500, 10
TICKS = os.sysconf("SC_CLK_TCK")

AGENT = """
import os, sys, time
from dibs import TaskBoard, Worker
me = Worker(os.environ["DIBS_AGENT"], session=os.environ["DIBS_SESSION"])
with TaskBoard.open(os.environ["DIBS_BOARD"]) as board:
    while not board.all_done:
        task = board.claim(me, wait=1)
        if task is not None:
            time.sleep(float(sys.argv[1]))
            board.complete(task.id, "done", worker=me, token=task.token)
"""

IDLER = """
import asyncio, os, sys
from mcp import Client, StdioServerParameters, stdio_client

async def main():
    server = StdioServerParameters(command=sys.executable, args=["-P", "-m", "dibs", "mcp", "--client", "bench"],
                                   env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        while True:
            answer = (await client.call_tool("claim_task", {})).structured_content
            if answer["claimed"]:
                await client.call_tool("complete_task", {"task_id": answer["task_id"], "token": answer["token"]})
            elif answer["team"] == "over":
                return

asyncio.run(main())
"""


def main():
    parser = common.arguments(__doc__, seconds=30, rounds=3)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--task-ms", type=float, default=20)
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.workers, options.tasks = 2, 1, 3, 40
    figures, targets = work(options)
    idle_figures, idle_targets = idle(options)
    report.publish("team", options, figures + idle_figures, targets + idle_targets, lambda p: plot(p, figures))


# Work


def work(options):
    runs = {"by hand": [], "by a pool": []}
    own = []
    for turn in range(options.rounds):
        for name, way in (("by hand", by_hand), ("by a pool", by_pool)):
            with common.work_folder(options.out) as folder:
                board = fill(folder, options.tasks)
                spent = way(board, folder, options)
                seconds = span(board, options.tasks)
            runs[name].append(seconds)
            if spent is not None:
                own.append(spent)
            common.say(f"round {turn + 1}/{options.rounds}  {options.tasks} tasks {name}: {seconds:.2f} s")
    hand, pool = (median(runs[name]) for name in runs)
    entry = {
        "part": "work",
        "workers": options.workers,
        "tasks": options.tasks,
        "task_ms": options.task_ms,
        "by_hand_seconds": round(hand, 3),
        "by_pool_seconds": round(pool, 3),
        "pool_to_hand": round(pool / hand, 3),
        "overhead_ms_per_task": round((pool - hand) / options.tasks * 1000, 3),
        "pool_cpu_ms_per_task": round(median(own) / options.tasks * 1000, 3),
        "rounds": {name: [round(each, 3) for each in many] for name, many in runs.items()},
    }
    print(f"\n{options.tasks} tasks of {options.task_ms:g} ms, chains of {DEEP}, {options.workers} workers, medians\n")
    report.table(("workers are started", "seconds"), [("by hand", f"{hand:.2f}"), ("by a pool", f"{pool:.2f}")])
    print(
        f"\nthe pool's own processor time: {entry['pool_cpu_ms_per_task']:.2f} ms for each task; "
        f"time added to each task: {entry['overhead_ms_per_task']:.2f} ms"
    )
    return [entry], []


def fill(folder, tasks):
    """A board of chains, whose links come in turns."""
    from dibs import TaskBoard

    url = f"sqlite:{os.path.join(os.path.abspath(folder), 'board.db')}"
    chains = max(1, tasks // DEEP)
    with TaskBoard.open(url, create=True) as board:
        board.add_many(
            [
                {
                    "id": f"t{link}-{chain}",
                    "description": f"link {link} of chain {chain}",
                    "depends_on": [f"t{link - 1}-{chain}"] if link else [],
                }
                for link in range(DEEP)
                for chain in range(chains)
            ][:tasks]
        )
    return url


def span(url, tasks):
    """Seconds from the first claim to the last completion. A task that was done twice or not at all ends the script."""
    from dibs import TaskBoard

    with TaskBoard.open(url) as board:
        events = list(board.changelog())
    claims = [event.time for event in events if event.action == "claimed_activity"]
    done = [event for event in events if event.action == "completed_activity"]
    if len(done) != tasks or len({event.task_id for event in done}) != tasks or len(claims) != tasks:
        raise SystemExit(f"{len(claims)} claims and {len(done)} completions for {tasks} tasks")
    return max(event.time for event in done) - min(claims)


def by_hand(url, folder, options):
    started = []
    for number in range(options.workers):
        name = f"worker-{number + 1}"
        env = {**os.environ, "DIBS_BOARD": url, "DIBS_AGENT": name, "DIBS_SESSION": name}
        started.append(subprocess.Popen([sys.executable, "-c", AGENT, str(options.task_ms / 1000)], env=env))
    if any(process.wait() for process in started):
        raise SystemExit("an agent has failed")


def by_pool(url, folder, options):
    """Processor seconds of the pool and its wardens."""

    async def run():
        from dibs.pool.pool import AgentPool

        agent = [sys.executable, "-c", AGENT.replace("{", "{{").replace("}", "}}"), str(options.task_ms / 1000)]
        with tempfile.TemporaryDirectory() as workspace:  # outside this repository, which would keep the logs
            async with AgentPool(board=url, workspace=workspace, max_agents=options.workers, agent=agent) as pool:
                spent = {}
                watching = asyncio.create_task(watch(spent, 0.2))
                before = time.process_time()
                result = await pool.run_team()
                own = time.process_time() - before
                watching.cancel()
        if result.ending != "done":
            raise SystemExit(f"the pool ended: {result.why}")
        return own + sum(spent.values())

    return asyncio.run(run())


async def watch(spent, pause):
    """The processor time of the wardens, as of the last look."""
    while True:
        for pid, (kind, seconds) in below().items():
            if kind == "warden":
                spent[pid] = seconds
        await asyncio.sleep(pause)


# Idle


def idle(options):
    shares, memory = asyncio.run(idling(options))
    entry = {
        "part": "idle",
        "agents": options.workers,
        "seconds": options.seconds,
        "percent_of_a_core": {name: round(share * 100, 2) for name, share in shares.items()},
        "megabytes": {name: round(size) for name, size in memory.items()},
    }
    ours = sum(share for name, share in shares.items() if name != "agents") * 100
    entry["ours_percent"] = round(ours, 2)
    print(f"\n{options.workers} agents idle for {options.seconds:g} s, share of one core, and memory\n")
    report.table(
        ("what", "% of a core", "MB"),
        [(name, f"{shares[name] * 100:.2f}", f"{memory[name]:.0f}") for name in shares],
    )
    return [entry], [report.target(f"idle: pool, wardens and servers of {options.workers} agents, %", ours, 5)]


async def idling(options):
    from dibs.pool.pool import AgentPool

    names = ("pool", "wardens", "servers", "agents")
    with common.work_folder(options.out) as folder:
        url = f"sqlite:{os.path.join(os.path.abspath(folder), 'board.db')}"
        idler = [sys.executable, "-c", IDLER.replace("{", "{{").replace("}", "}}")]
        lead = [sys.executable, "-c", "import time; time.sleep(3600)"]
        with tempfile.TemporaryDirectory() as workspace:  # outside this repository, which would keep the logs
            async with AgentPool(
                board=url, workspace=workspace, max_agents=options.workers, agent=idler, lead_agent=lead
            ) as pool:
                pool.add_tasks([f"task {number}" for number in range(options.workers)])
                run = asyncio.create_task(pool.run_team(lead_prompt="wait"))
                while not all(agent.is_running for agent in pool.agents) or not pool.agents or not pool.board.all_done:
                    await asyncio.sleep(0.5)
                    if run.done():
                        raise SystemExit(f"the pool ended: {run.result().why}")
                await asyncio.sleep(1 if options.quick else 5)
                before, own, began = below(), time.process_time(), time.monotonic()
                await asyncio.sleep(options.seconds)
                after, seconds = below(), time.monotonic() - began
                spent = dict.fromkeys(names, 0.0)
                spent["pool"] = time.process_time() - own
                memory = dict.fromkeys(names, 0.0)
                memory["pool"] = resident(os.getpid())
                for pid, (kind, used) in after.items():
                    label = {"warden": "wardens", "server": "servers"}.get(kind, "agents")
                    spent[label] += used - before.get(pid, (kind, used))[1]
                    memory[label] += resident(pid)
                pool.stop()
                await asyncio.wait([run])
    return {name: used / seconds for name, used in spent.items()}, memory


# Processes


def below():
    """Every process below this one: what it is, and its processor seconds."""
    from dibs.pool.warden import descendants

    found = {}
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has just ended
        found[pid] = (what(pid), (int(fields[11]) + int(fields[12])) / TICKS)
    return found


def what(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return "gone"
    if any(word.endswith(b"warden.py") for word in words):
        return "warden"
    return "server" if b"mcp" in words else "agent"


def resident(pid):
    """Megabytes that are this process's alone or its share of what it shares, where the system says so."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):
        return 0.0


def plot(pyplot, figures):
    entry = figures[0]
    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    axes.barh(["by a pool", "by hand"], [entry["by_pool_seconds"], entry["by_hand_seconds"]], color="#1f6feb")
    axes.set_xlabel("seconds")
    axes.set_title(f"{entry['tasks']} tasks of {entry['task_ms']:g} ms, {entry['workers']} workers")
    return figure


if __name__ == "__main__":
    main()
