"""A git repository with a board, in which `dibs setup` is run as people run it, and what its files hold."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from dibs import TaskBoard
from dibs.setup.jsonc import parse
from tests.cli.shell import Shell, environment

CLIENTS = ("claude", "codex", "cursor", "gemini", "vscode")


class Repository(Shell):
    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            DIBS_RUNTIME_DIR=str(folder.parent / "dibs-clients"),
            HOME=str(folder.parent),
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_AUTHOR_NAME="alice",
            GIT_AUTHOR_EMAIL="alice@example.org",
            GIT_COMMITTER_NAME="alice",
            GIT_COMMITTER_EMAIL="alice@example.org",
        )
        folder.mkdir()
        self.git("init", "--quiet", "--template=")
        TaskBoard.open(f"sqlite:{folder}/.dibs/board.db", create=True, durability="normal").close()

    def git(self, *words: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["git", *words],
            cwd=cwd or self.folder,
            env=environment() | self.environ | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return done

    def write(self, path: str, data: str | bytes, mode: int | None = None) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        if mode is not None:
            file.chmod(mode)
        return file

    def read(self, path: str) -> str:
        return (self.folder / path).read_bytes().decode()

    def json(self, path: str) -> Any:
        """What an ordinary reader makes of a file."""
        return json.loads(self.read(path))

    def jsonc(self, path: str) -> Any:
        return parse(self.read(path)).value

    def files(self) -> dict[str, tuple[bytes, int] | None]:
        """Every file, with its mode, and every folder (None), but for the board and git's own."""
        found: dict[str, tuple[bytes, int] | None] = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if name.startswith((".dibs", ".git")) and not name.startswith((".git/hooks", ".github", ".githooks")):
                continue
            found[name] = None if path.is_dir() else (path.read_bytes(), path.stat().st_mode)
        return found
