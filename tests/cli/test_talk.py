"""The changelog and messages from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

from dibs import TaskBoard
from tests.cli.shell import PATIENCE, Shell


def test_the_log_is_document_001_lines(shell: Shell) -> None:
    task = shell.add("x", "--step", "first")
    shell.ok("claim")
    shell.ok("step", "done", "s1", "went well")
    shell.ok("done", "all of it")
    lines = [json.loads(line) for line in shell.ok("log", "--json").out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    by_action = {line["action"]: line for line in lines}
    assert list(by_action["work_item_created"])[:4] == ["timestamp", "worker", "worker_type", "action"]
    claimed = by_action["claimed_activity"]
    assert (claimed["worker"], claimed["worker_type"], claimed["activity_id"]) == ("worker-1", "agent", task)
    assert "task_id" not in claimed
    assert "details" not in claimed
    step = by_action["completed_task"]
    assert (step["activity_id"], step["task_id"], step["details"]) == (task, "s1", "went well")
    assert by_action["completed_activity"]["details"] == "all of it"
    assert all(line["timestamp"].endswith("Z") for line in lines)


def test_people_get_the_end_of_the_log_and_are_told_so(shell: Shell) -> None:
    shell.ok("add", "--file", "-", stdin="\n".join('"task"' for _ in range(80)))
    out = shell.ok("log").out.splitlines()
    assert out[0].startswith("the last 50, up to number 8")
    assert len(out) == 51
    assert len(shell.ok("log", "-n", "3").out.splitlines()) == 4
    assert len(shell.ok("log", "--all").out.splitlines()) > 80
    assert len(shell.ok("log", "--json").out.splitlines()) > 80
    page = shell.ok("log", "--after", "10", "--limit", "5")
    assert [int(line.split()[0]) for line in page.out.splitlines()[:5]] == [11, 12, 13, 14, 15]
    assert "next: --after 15" in page.out
    cut = shell.ok("log", "--json", "--after", "10", "--limit", "5")
    assert [json.loads(line)["seq"] for line in cut.out.splitlines()] == [11, 12, 13, 14, 15]
    assert "next: --after 15" in cut.err
    assert len(shell.ok("log", "--json", "--limit", "5").out.splitlines()) == 5
    assert shell("log", "--limit", "-1").code == 2


def test_lines_of_the_log_are_cut_for_a_terminal_and_whole_for_a_program(shell: Shell) -> None:
    shell.add("x")
    shell.ok("claim")
    shell.ok("done", "a long story " * 20)
    assert "a long story " * 19 in shell.ok("log").out
    narrow = shell.ok("log", COLUMNS="80").out.splitlines()
    assert max(map(len, narrow)) == 80
    assert narrow[-1].endswith("…")


def test_the_log_of_one_task(shell: Shell) -> None:
    task = shell.add("x")
    shell.add("y")
    shell.ok("claim", task)
    assert len(shell.ok("log", "--task", task[:6]).out.splitlines()) == 2
    assert shell.ok("log", "--task", task, "-n", "1").out.splitlines()[0].startswith("the last 1")
    assert shell("log", "--task", "nosuch").code == 1


def test_following_shows_each_event_once_as_it_happens(shell: Shell) -> None:
    shell.add("before")
    following = subprocess.Popen(
        [sys.executable, "-m", "dibs", "log", "--follow", "--json"],
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    seen = [json.loads(following.stdout.readline())["seq"] for _ in range(2)]
    for n in range(5):
        shell.add(f"task {n}")
        seen.append(json.loads(following.stdout.readline())["seq"])
    assert seen == list(range(1, len(seen) + 1))
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=PATIENCE)
    assert (following.returncode, out, err) == (130, "", "")


def test_messages(shell: Shell) -> None:
    sent = shell.ok("tell", "bob", "auth.py", "is", "free", "--json").json
    assert (sent["from"], sent["to"], sent["content"]) == ("worker-1", "bob", "auth.py is free")
    shell.ok("tell", "--all", "main", "is", "broken")
    peeked = shell.ok("inbox", "--peek", "--as", "bob", "--json").json["messages"]
    read = shell.ok("inbox", "--as", "bob", "--json").json["messages"]
    assert peeked == read
    assert [(m["from"], m["content"]) for m in read] == [
        ("worker-1", "auth.py is free"),
        ("worker-1", "main is broken"),
    ]
    assert read[0]["timestamp"].endswith("Z")
    assert shell.ok("inbox", "--as", "bob").out == "no new messages\n"
    assert "worker-1 to everybody" in shell.ok("inbox", "--as", "carl").out
    assert shell("tell", "bob").code == 2
    assert shell.ok("tell", "bob", "-", stdin="two\nlines\n").code == 0
    assert "  two\n  lines\n" in shell.ok("inbox", "--as", "bob").out


def test_a_name_that_nobody_has_is_told_and_remarked_on(shell: Shell) -> None:
    shell.ok("--as", "worker-2", "tell", "--all", "hello")
    assert shell.ok("tell", "worker-2", "hi").out == "told worker-2\n"
    remark = "nobody called worker-3 has been seen here lately; did you mean worker-2"
    assert shell.ok("tell", "worker-3", "hi").out.startswith(f"told worker-3\n  {remark}")
    assert shell.ok("tell", "worker-3", "hi", "--json").json["note"].startswith(remark)
    assert "note" not in shell.ok("tell", "worker-2", "hi", "--json").json
    assert shell.ok("--as", "worker-3", "inbox").out.count("  hi\n") == 2


def test_waiting_for_a_message(shell: Shell) -> None:
    started = time.monotonic()
    assert shell("inbox", "--wait", "0.3").code == 3
    assert time.monotonic() - started >= 0.3
    waiting = subprocess.Popen(
        [sys.executable, "-m", "dibs", "inbox", "--wait", "50", "--as", "bob"],
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    shell.ok("tell", "carl", "not for you")
    shell.ok("tell", "bob", "for you")
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 0
    assert "  for you\n" in out
    assert "not for you" not in out


def test_an_inbox_says_when_it_is_cut(shell: Shell) -> None:
    with TaskBoard.open(f"sqlite:{shell.folder}/.dibs/board.db", durability="normal") as board:
        for n in range(1001):
            board.tell(f"message {n}", "worker-1", worker="bob")
    peeked = shell.ok("inbox", "--peek", "--json").json
    assert (len(peeked["messages"]), peeked["more"]) == (1000, True)
    assert "1,000 shown, there may be more" in shell.ok("inbox").out
    assert shell.ok("inbox", "--json").json == {"messages": [], "more": False}


def test_all_means_everybody(shell: Shell) -> None:
    shell.ok("inbox", "--as", "bob")
    assert shell.ok("tell", "all", "main is broken").out == "told everybody\n"
    assert shell.ok("inbox", "--as", "bob", "--json").json["messages"][0]["to"] is None


def test_a_worker_is_a_filter_or_no_option(shell: Shell) -> None:
    shell.ok("add", "x", "--id", "x1")
    shell.ok("--as", "bob", "claim", "x1")
    shell.ok("--as", "bob", "lock", "b.py")
    shell.ok("--as", "ann", "lock", "a.py")
    shell.ok("--as", "bob", "tell", "alice", "hello")
    for asked in (
        ("log", "--worker", "bob"),
        ("log", "--all", "--worker", "bob"),
        ("log", "--agent", "bob", "-n", "3"),
    ):
        events = [json.loads(line) for line in shell.ok(*asked, "--json").out.splitlines()]
        assert [(event["worker"], event["action"]) for event in events] == [
            ("bob", "claimed_activity"), ("bob", "locked_files"), ("bob", "sent_message"),
        ]  # fmt: skip
    last = shell.ok("log", "--worker", "bob", "-n", "1", "--json").out.splitlines()
    assert [json.loads(line)["action"] for line in last] == ["sent_message"]
    assert [lock["pattern"] for lock in shell.ok("locks", "--worker", "ann", "--json").json["locks"]] == ["a.py"]
    assert shell.ok("locks", "--worker", "eve").out == "nothing is locked by eve\n"
    assert [task["id"] for task in shell.ok("list", "--worker", "bob", "--json").json["tasks"]] == ["x1"]
    for command in ("inbox", "claim", "done", "ready", "renew"):
        for option in ("--worker", "--agent", "--name"):
            refused = shell(command, option, "alice")
            assert (refused.code, refused.out) == (2, "")
            assert f"no option {option}" in refused.err
            assert "--as NAME" in refused.err
    assert len(shell.ok("inbox", "--as", "alice", "--json").json["messages"]) == 1
