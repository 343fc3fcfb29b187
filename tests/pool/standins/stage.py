"""Where the runners' tests start what a runner launches: a repository with a board, stand-ins first on the PATH.

stage = Stage(tmp_path, monkeypatch)
launch = runner.launch(stage.order("do it"))
report = stage.run(launch)                 what the stand-in saw and did
stage.claim_event()                        the claim, as the board has it
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.model import Event, Worker
from dibs.pool.runners import Launch, Order
from tests.processes.harness import PATIENCE, environment

CLIENTS = ("claude", "codex", "gemini")
NAME, SESSION = "worker-7", "team-1.worker-7.2"


class Stage:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.workspace, self.home, self.bin = folder / "work space", folder / "home", folder / "bin"
        for made in (self.workspace, self.home, self.bin):
            made.mkdir()
        for client in CLIENTS:
            script = self.bin / client
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.pool.standins.{client} "$@"\n')
            script.chmod(0o755)
        patch.setenv("PATH", f"{self.bin}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("HOME", str(self.home))
        for name in [name for name in os.environ if name.startswith(("CLAUDE", "CODEX", "GEMINI"))]:
            patch.delenv(name)
        self.git("init", "-q", "-b", "trunk")
        for name in ("held.txt", "own.txt"):
            (self.workspace / name).write_text("a\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        patch.chdir(self.workspace)
        self.board = TaskBoard.open(create=True)
        self.task = self.board.add("write it", paths=["own.txt"])
        self.board.lock(["held.txt"], Worker("bob", "agent", session="bobs"))

    def git(self, *words: str) -> None:
        who = {f"GIT_{role}_{what}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *words], cwd=self.workspace, env=env, check=True, timeout=PATIENCE)

    def order(self, prompt: str = "do the work", *, workspace: Path | None = None, **env: str) -> Order:
        folder = self.folder / "start"
        folder.mkdir(0o700)
        told = {"DIBS_AGENT": NAME, "DIBS_KIND": "agent", "DIBS_SESSION": SESSION, "DIBS_BOARD": self.board.url, **env}
        return Order(
            prompt,
            name=NAME,
            role="worker",
            workspace=str(workspace or self.workspace),
            folder=str(folder),
            server=[sys.executable, "-P", "-m", "dibs"],
            env=told,
        )

    def start(self, launch: Launch, order: Order) -> subprocess.CompletedProcess[str]:
        """The launched command, as the pool starts it."""
        env = {**environment(), **order.env, "DIBS_RUNTIME_DIR": str(self.folder / "clients"), **launch.env}
        return subprocess.run(
            launch.argv,
            env={**env, "PATH": os.environ["PATH"], "HOME": str(self.home)},
            cwd=order.workspace,
            input=launch.stdin or "",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def run(self, launch: Launch, order: Order) -> dict[str, Any]:
        done = self.start(launch, order)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report

    def events(self) -> list[Event]:
        with self.board.store.read() as tx:
            return tx.events(0, 100)

    def check_identity(self) -> None:
        """The task was claimed and completed by the agent that was ordered, in its session."""
        task = self.board.get(self.task)
        assert (task.status, task.assigned_to, task.result) == ("completed", NAME, "by a stand-in")
        [claim] = [event for event in self.events() if event.action == "claimed_activity"]
        assert claim.worker == NAME
        assert claim.data is not None
        assert claim.data["set"]["holder"]["session"] == SESSION

    def close(self) -> None:
        self.board.close()
