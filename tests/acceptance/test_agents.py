"""Eight agents, each a process that speaks MCP with the official client, in four worktrees, on sixty tasks that want
the same ten files. The demo judges itself; here the repository and the changelog it left are judged by other means.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.processes.harness import environment, new_seed

AGENTS, TASKS = 8, 60


def run(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_eight_agents_in_four_worktrees_lose_no_edit_and_never_hold_one_file_twice(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    env = environment() | {"DIBS_RUNTIME_DIR": str(tmp_path / "run" / "dibs-clients"), "TMPDIR": str(tmp_path)}
    words = ["demo", "--agents", "--workers", str(AGENTS), "--tasks", str(TASKS), "--seed", str(new_seed() % 10_000)]
    shown = json.loads(run([sys.executable, "-m", "dibs", *words, "--json"], Path("/"), env))
    home = Path(shown["repository"])
    lines = run([sys.executable, "-m", "dibs", "log", "--json", "--all"], home, env)
    events = [json.loads(line) for line in lines.splitlines()]
    the_demo_is_content(shown)
    no_edit_is_lost(home, events, env)
    every_task_is_a_commit_of_its_own(home, env)
    no_two_agents_ever_held_one_file(events)
    assert shown["denied_edits"] > 0
    assert os.listdir(tmp_path / "run" / "dibs-clients") == []


def the_demo_is_content(shown: dict[str, Any]) -> None:
    assert shown["problems"] == shown["lost_edits"] == []
    assert shown["ok"] is True
    assert (shown["completed"], shown["double_claims"], shown["files_held_twice"]) == (TASKS, 0, 0)
    assert sum(bool(agent["completed"]) for agent in shown["agents"]) > AGENTS / 2
    assert len({agent["worktree"] for agent in shown["agents"]}) == AGENTS / 2


def no_edit_is_lost(home: Path, events: list[dict[str, Any]], env: dict[str, str]) -> None:
    """Every task's line is on the trunk in each of its files once, by whoever the changelog says completed it."""
    done = {e["activity_id"]: e["worker"] for e in events if e["action"] == "completed_activity"}
    paths = {e["activity_id"]: e["data"]["task"]["paths"] for e in events if e["action"] == "added_activity"}
    assert len(done) == len(paths) == TASKS
    files = run(["git", "ls-tree", "-r", "--name-only", "trunk"], home, env).split()
    found: Counter[tuple[str, str, str]] = Counter()
    for file in files:
        for line in run(["git", "show", f"trunk:{file}"], home, env).splitlines():
            if match := re.fullmatch(r"(edit-\d+) by (\S+)", line):
                found[match[1], match[2], file] += 1
    assert found == Counter((task, worker, file) for task, worker in done.items() for file in paths[task])


def every_task_is_a_commit_of_its_own(home: Path, env: dict[str, str]) -> None:
    subjects = run(["git", "log", "--no-merges", "--format=%s", "trunk"], home, env).splitlines()
    assert sorted(s.split()[0] for s in subjects if s.startswith("edit-")) == [f"edit-{n:03}" for n in range(1, 61)]


def no_two_agents_ever_held_one_file(events: list[dict[str, Any]]) -> None:
    held: dict[str, str] = {}
    taken = 0
    for event in events:
        if event["action"] == "claimed_activity":
            for lock in event["data"]["locks"]:
                assert lock["pattern"] not in held, f"{lock['pattern']} is held for {held[lock['pattern']]}"
                held[lock["pattern"]] = event["activity_id"]
                taken += 1
        elif event["action"] in ("completed_activity", "released_activity", "recovered_activity"):
            held = {pattern: task for pattern, task in held.items() if task != event["activity_id"]}
    assert taken >= TASKS
    assert held == {}
