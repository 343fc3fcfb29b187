"""How often dibs waits for the server: round trips per call, counted by a proxy that reads the protocol.

`measure(url)` opens a board directly, to prepare, and once more through the tests' proxy, to count. A round trip begins
when the client turns to the server with nothing left to wait for, so pipelined requests are one; a request is a message
that asks for an answer (Query, Sync or FunctionCall). Saying goodbye counts as nothing, and neither does the question
whether the server encrypts, which the proxy answers itself.
"""

import os
import subprocess
import sys
from statistics import median

import report
from pg_contenders import libpq

REPEATS = 20
FRESH = 3
ASKING = ("Q", "S", "F")


def trips(_options, databases):
    """The figures, and one round trip for a claim and for a complete as targets."""
    figures = measure(databases.new("trips"))
    print("\nround trips to the server\n")
    report.table(
        ("call", "usual", "most", "requests", "counted"),
        [
            (entry["call"], f"{entry['usual']:g}", entry["most"], f"{entry['requests']:g}", entry["counted"])
            for entry in figures
        ],
    )
    usual = {entry["call"]: entry["usual"] for entry in figures}
    return figures, [report.target(f"round trips of a {call}", usual[call], 1) for call in ("claim", "complete")]


def measure(url):
    from dibs import TaskBoard
    from tests.postgres.proxy import Proxy

    counted = {}
    with Proxy(url) as proxy, TaskBoard.open(url, create=True) as direct:

        def count(name, call):
            proxy.watch()
            answer = call()
            asked = sum(message.sender == "client" and message.kind in ASKING for message in proxy.log)
            counted.setdefault(name, []).append((proxy.round_trips, asked))
            return answer

        with TaskBoard.open(proxy.url) as board:
            for number in range(REPEATS):
                _every_call(direct, board, count, number)
        _fresh_processes(direct, proxy.url, count)
    return [
        {
            "part": "round trips",
            "call": name,
            "usual": median(many_trips for many_trips, _ in many),
            "most": max(many_trips for many_trips, _ in many),
            "requests": median(requests for _, requests in many),
            "counted": len(many),
        }
        for name, many in counted.items()
    ]


def _every_call(direct, board, count, number):
    """Every call once, each on a board where exactly the tasks that it is about are ready."""
    count("claim, nothing there", lambda: board.claim("worker"))
    count("add", lambda: board.add("one"))
    task = count("claim", lambda: board.claim("worker"))
    count("renew", task.renew)
    count("complete", lambda: task.complete("done"))

    direct.add("with paths", paths=[f"src/{number}/one.py", f"src/{number}/two.py"])
    task = count("claim, with paths", lambda: board.claim("worker"))
    count("complete, with paths", lambda: task.complete("done"))

    first = direct.add("first")
    for _ in range(3):
        direct.add("second", depends_on=[first])
    task = board.claim("worker")
    count("complete, with 3 dependants", lambda: task.complete("done"))
    for task in direct.claim("worker", n=3):
        task.complete("done")

    direct.add_many([{"description": "one of many"}] * 32)
    for task in count("claim, n=32", lambda: board.claim("worker", n=32)):
        task.complete("done")


def _fresh_processes(direct, url, count):
    """Claims by processes that live for one claim, connecting included."""
    connect = "import sys, psycopg; psycopg.connect(sys.argv[1]).close()"
    claim = "import sys; from dibs import TaskBoard; assert TaskBoard.open(sys.argv[1]).claim('worker')"
    for _ in range(FRESH):
        direct.add_many([{"description": "one"}] * 2)
        count("fresh process: connect only", lambda: _run(url, "-c", connect, libpq(url)))
        count("fresh process: open and claim", lambda: _run(url, "-c", claim, url))
        count("fresh process: dibs claim", lambda: _run(url, "-m", "dibs", "claim"))


def _run(url, *words):
    ended = subprocess.run(
        [sys.executable, *words], env={**os.environ, "DIBS_BOARD": url}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"a fresh process failed: {ended.stderr or ended.stdout}")
