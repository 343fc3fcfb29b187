"""Where a real client works in a team: a repository, four tasks, a home with the client's settings, a scripted model.

stage = Stage(tmp_path, "claude")
stage.run(Script(), "--agent-arg=…")      `dibs team` from its beginning to its end; its exit code
stage.summary, stage.board                what it says of itself, and what the board says
stage.left(), stage.touched()             processes that should not be there, and files that are not as they were
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from tests.clients.script import WORKERS, Script, chapter, draft, page
from tests.clients.scripted_model import ScriptedModel
from tests.processes.harness import ROOT, environment

PROGRAMS = ROOT / "build" / "clients" / "node_modules" / ".bin"
"""Where `make test-clients` installs them."""
PATIENCE = 420.0
"""Seconds for a team; it takes about twenty where nothing else runs."""
TASKS = ("one", "two", "three", "four")
MAKEFILE = "test:\n\t@echo the tests are green\n"
CHECK = "checked before the commit"
"""What the repository's own git hook says."""
KEY = "no-key-at-all"

CODEX = """\
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""
GEMINI = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"enableAutoUpdate": False}}
USERS = {
    ".profile": "# mine\n",
    ".gitconfig": "[user]\n\tname = Ann\n\temail = ann@example.org\n",
    ".claude/settings.json": '{"permissions": {"deny": ["WebSearch"]}}\n',
    ".codex/config.toml": CODEX,
    ".codex/AGENTS.md": "Be brief.\n",
    ".gemini/settings.json": json.dumps(GEMINI),
    ".gemini/GEMINI.md": "Be brief.\n",
}
"""A user's files, which no team may change. The provider of Codex is in one of them."""
CLIENTS_OWN = {"claude": (".claude", ".cache"), "codex": (".codex",), "gemini": (".gemini",)}
"""What a client itself writes in a home."""
_FOREIGN = ("ANTHROPIC_", "OPENAI_", "GOOGLE_", "XDG_", "GIT_", "NODE_")


def need(client: str) -> None:
    """Skip where it is not installed: nobody who did not ask for it should download a gigabyte."""
    if sys.platform != "linux":
        pytest.skip("these tests find processes by /proc")
    if client == "claude-sdk" and find_spec("claude_agent_sdk") is None:
        pytest.skip("claude-agent-sdk is not installed: make test-clients")
    if client != "claude-sdk" and not (PROGRAMS / client).exists():
        pytest.skip(f"{client} is not installed in build/clients: make test-clients")


class Stage:
    def __init__(self, folder: Path, client: str) -> None:
        need(client)
        self.folder = folder
        self.client = client
        self.home, self.work = folder / "home", folder / "work"
        for made in (self.home, self.work, folder / "tmp"):
            made.mkdir()
        self.summary: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.users = dict(USERS)
        """Files of the home; a test may add some before the run."""
        self._board: TaskBoard | None = None
        self._make_repository()
        tasks = [{"id": task, "description": f"write {chapter(task)}", "paths": [f"{task}.*"]} for task in TASKS]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))

    def _make_repository(self) -> None:
        (self.home / ".gitconfig").write_text(USERS[".gitconfig"])
        (self.work / "Makefile").write_text(MAKEFILE)
        (self.work / ".gitignore").write_text(".dibs/\n")
        for task in TASKS:
            (self.work / page(task)).write_text(draft(task) + "\n")
        self.git("init", "-q", "-b", "trunk")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        hook = self.work / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {CHECK}\n")
        hook.chmod(0o755)

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.work, env=self._environment(""), check=True, timeout=60, capture_output=True
        )
        return done.stdout.decode()

    def _environment(self, url: str) -> dict[str, str]:
        kept = {name: value for name, value in environment().items() if not name.startswith(_FOREIGN)}
        kept.pop("DIBS_RUNTIME_DIR")  # hooks find the agent's server there, as for a user
        return {
            **kept,
            "PATH": f"{PROGRAMS}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_RUNTIME_DIR": str(self.folder / "tmp"),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "SCRIPTED_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": KEY,
            "GEMINI_TELEMETRY_ENABLED": "false",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def run(self, script: Script, *words: str) -> int:
        """`dibs team` with two workers, to its end; what is left behind can be asked for afterwards."""
        with ScriptedModel(script) as model:
            self.users = {name: text.replace("{url}", model.url) for name, text in self.users.items()}
            for name, text in self.users.items():
                (self.home / name).parent.mkdir(parents=True, exist_ok=True)
                (self.home / name).write_text(text)
            argv = [sys.executable, "-P", "-m", "dibs", "team", "--agent", self.client, "--agents", "2", "--json"]
            with open(self.folder / "events", "wb") as out, open(self.folder / "errors", "wb") as err:
                team = subprocess.Popen(
                    [*argv, "--tasks", str(self.folder / "tasks.jsonl"), "--restarts", "0", *words],
                    cwd=self.work, env=self._environment(model.url), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                )  # fmt: skip
                try:
                    code = team.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    team.terminate()  # it ends its agents
                    team.wait(60)
                    raise AssertionError(f"a team that does not end: {self.story()}") from None
            self.faults = model.faults
        self.events = [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]
        self.summary = self.events[-1]
        self._board = TaskBoard.open(f"sqlite:{self.work}/.dibs/board.db", worker="somebody")
        return code

    @property
    def board(self) -> TaskBoard:
        """That of the team, which has made it."""
        assert self._board is not None
        return self._board

    def story(self) -> str:
        """What was said, for the report of a failure."""
        files = [*self.work.glob(".dibs/team/*/*.log"), self.folder / "errors"]
        parts = [f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files]
        lines = [line[:300] for line in (self.folder / "events").read_text().splitlines()]
        return "\n".join([*parts, "== events", *lines[-40:], *self.faults])

    def result(self, worker: str) -> dict[str, Any]:
        [found] = [result for result in self.summary["results"] if result["agent"] == worker]
        return dict(found)

    def committed(self, task: str) -> list[str]:
        """A task's chapter, on each worker's branch that has it."""
        branches = [str(self.result(worker)["branch"]) for worker in WORKERS]
        there = [each for each in branches if chapter(task) in self.git("ls-tree", "--name-only", each).split()]
        return [self.git("show", f"{branch}:{chapter(task)}") for branch in there]

    def spoilt(self) -> list[str]:
        """The pages that do not hold what they held, wherever a worker works."""
        folders = {Path(self.result(worker)["worktree"] or self.work) for worker in WORKERS}
        files = [(folder / page(task), draft(task) + "\n") for folder in folders for task in TASKS]
        return sorted(file.name for file, text in files if file.read_text() != text)

    def touched(self) -> list[str]:
        """What is not as it was: in the home, and in the repository's own folder."""
        own = CLIENTS_OWN[self.client.partition("-")[0]]
        changed = [name for name, text in self.users.items() if (self.home / name).read_text() != text]
        known = {name.partition("/")[0] for name in self.users}
        new = [name for name in os.listdir(self.home) if name not in known and not name.startswith(own)]
        return [*changed, *new, *self.git("status", "--porcelain").splitlines()]

    def left(self) -> list[str]:
        """Processes of this test that are not over: whose environment or command names its folder."""
        end = time.monotonic() + 20
        while (found := self._processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _processes(self) -> list[str]:
        mark, found = os.fsencode(self.folder), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                if int(name) != os.getpid() and mark in command + Path(f"/proc/{name}/environ").read_bytes():
                    found.append(f"{name} {command.decode(errors='replace')}")
            except OSError:
                continue
        return found

    def close(self) -> None:
        for process in self._processes():  # after a failure; the test has said so already
            os.kill(int(process.partition(" ")[0]), signal.SIGKILL)
        if self._board is not None:
            self._board.close()
