"""What the tests of the command line share: a folder with a board, and `dibs` run there as people and agents run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dibs
from tests.nowhere import NO_CLIENTS

SOURCES = Path(dibs.__file__).resolve().parents[1]
COMPILED = os.path.join(tempfile.gettempdir(), f"dibs-tests-{os.getuid() if hasattr(os, 'getuid') else ''}")
"""Where the commands keep their bytecode: compiling dibs anew would be most of each test's time."""
PATIENCE = 60.0
_OURS = ("DIBS_", "CLAUDE", "CODEX", "GEMINI", "NO_COLOR", "COLUMNS", "PYTHONIOENCODING")


def environment(**more: str) -> dict[str, str]:
    """The environment of the tests, without what would name a worker, a session or a board."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        kept.pop(name, None)
    ours = {"PYTHONPATH": str(SOURCES), "PYTHONPYCACHEPREFIX": COMPILED, "DIBS_RUNTIME_DIR": NO_CLIENTS}
    return {**kept, **ours, **more}


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"

    @property
    def json(self) -> Any:
        """stdout, which must be exactly one JSON document on one line."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error object on stderr of a command that failed under --json, and printed nothing else."""
        assert self.out == "", self
        return json.loads(self.err)["error"]


class Shell:
    """`shell("claim", "--json")` runs the command in a process of its own, as an agent without a session."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.environ = environment(DIBS_AGENT="worker-1", **environ)

    def __call__(self, *words: str, stdin: str | bytes = "", cwd: Path | None = None, **environ: str) -> Result:
        process = subprocess.run(
            [sys.executable, "-m", "dibs", *words],
            cwd=cwd or self.folder,
            env=self.environ | environ,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Result(process.returncode, process.stdout.decode(), process.stderr.decode())

    def ok(self, *words: str, stdin: str | bytes = "", cwd: Path | None = None, **environ: str) -> Result:
        result = self(*words, stdin=stdin, cwd=cwd, **environ)
        assert result.code == 0, result
        return result

    def add(self, *words: str) -> str:
        """Add a task; its id."""
        added: str = self.ok("add", *words, "--json").json["id"]
        return added

    def status(self, task_id: str) -> str:
        status: str = self.ok("show", task_id, "--json").json["status"]
        return status


def width(line: str) -> int:
    """Columns of a line on a terminal: what the tests hold against the promise of 80."""
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in line)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
