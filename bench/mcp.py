"""What one more agent costs: `dibs mcp` until it has answered `initialize`, and the memory that it then holds.

Each server is a new process that is asked twice, for `initialize` and for the board; timed from its start to the first
answer, as a ratio to `python -I -c pass`. The two take turns; times are medians. Memory is VmRSS after the second
answer (Linux only). Repeat: `python bench/mcp.py`, about 10 seconds.
"""

import json
import os
import subprocess
import sys
import time
from statistics import median

import common
import report

BARE, SERVER = "python -I -c pass", "dibs mcp"
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def main():
    parser = common.arguments(__doc__, seconds=0, rounds=40)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 5
    dibs = os.path.join(os.path.dirname(sys.executable), "dibs")
    with common.work_folder(options.out) as folder:
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "XDG_RUNTIME_DIR": folder}
        environment |= {"DIBS_BOARD": f"sqlite:{folder}/board.db", "DIBS_AGENT": "bench"}
        subprocess.run([dibs, "init"], env=environment, check=True, stdout=subprocess.DEVNULL)
        bare, served, held = [], [], []
        serve(dibs, environment)  # warms the page cache and the byte code
        for _ in range(options.rounds):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-I", "-c", "pass"], env=environment, check=True)
            bare.append(time.perf_counter() - started)
            seconds, kilobytes = serve(dibs, environment)
            served.append(seconds)
            held.append(kilobytes)
    ratio, megabytes = median(served) / median(bare), max(held) / 1024
    figures = [
        {"command": BARE, "median_ms": round(median(bare) * 1000, 2), "to_bare": 1.0, "runs": len(bare)},
        {
            "command": SERVER,
            "median_ms": round(median(served) * 1000, 2),
            "to_bare": round(ratio, 2),
            "held_mb": round(megabytes, 1),
            "runs": len(served),
        },
    ]
    print("a server until its first answer, medians\n")
    report.table(
        ("command", "median ms", f"to {BARE}", "holds MB"),
        [(each["command"], each["median_ms"], each["to_bare"], each.get("held_mb", "")) for each in figures],
    )
    targets = [report.target(f"{SERVER} / bare interpreter", ratio, 5), report.target("holds MB", megabytes, 30)]
    report.publish("mcp", options, figures, targets, lambda pyplot: plot(pyplot, figures))


def serve(dibs, environment):
    """Seconds until the first answer, and kilobytes held after the second."""
    started = time.perf_counter()
    server = subprocess.Popen([dibs, "mcp"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ask(server, 1, "initialize", OPENING)
    elapsed = time.perf_counter() - started
    ask(server, 2, "tools/call", {"name": "list_tasks", "arguments": {}})
    with open(f"/proc/{server.pid}/status") as status:
        held = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    server.stdin.close()
    server.wait()
    return elapsed, held


def ask(server, number, method, params):
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    if "result" not in answer:
        raise SystemExit(f"{method}: {answer}")


def plot(pyplot, figures):
    figure, axes = pyplot.subplots(figsize=(5, 4))
    series = {"until the first answer": [each["median_ms"] for each in figures]}
    report.bars(axes, [each["command"] for each in figures], series, labels="{:.0f}", colours=report.shades(series))
    axes.axhline(5 * figures[0]["median_ms"], color=report.LIMIT, lw=1, ls="--")
    axes.set_title("Start to first answer, ms (line: 5 times the bare interpreter)")
    return figure


if __name__ == "__main__":
    main()
