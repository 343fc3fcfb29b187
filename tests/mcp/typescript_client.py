"""A TypeScript MCP client as a real process (`typescript/driver.mjs`), told by the test what to call."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cli.shell import PATIENCE
from tests.mcp.http_server import dibs_command, dibs_environment

FOLDER = Path(__file__).parent / "typescript"


def require_node() -> None:
    """Node.js and the packages of `typescript/`: without them a test skips on a laptop and fails in CI."""
    missing = None
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing = "Node.js 20 or newer with npm is not installed"
    elif not (FOLDER / "node_modules" / "@modelcontextprotocol" / "client").is_dir():
        missing = "the TypeScript clients are not installed: make test does it, or npm ci in tests/mcp/typescript"
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


class TypeScriptClient:
    """One client process; it is gone when the block ends."""

    def __init__(self, folder: Path, sdk: str, era: str, **server: Any) -> None:
        how = json.dumps({"sdk": sdk, "era": era, "cwd": str(folder), **server})
        self.process = subprocess.Popen(
            ["node", str(FOLDER / "driver.mjs"), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dibs_environment(folder),
            cwd=folder,
        )

    @classmethod
    def on_stdio(cls, folder: Path, sdk: str, era: str, board: str, worker: str) -> TypeScriptClient:
        command, *args = dibs_command(board, "--as", worker, "mcp")
        return cls(folder, sdk, era, command=command, args=args, env=dibs_environment(folder))

    def answer(self) -> dict[str, Any]:
        """Its next line. It says one for each that it is told, so nothing is left behind in a buffer."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else b""
        assert line, "the client said nothing"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, **wanted: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool's structured answer."""
        self.tell(call=tool, arguments=arguments)
        answer = self.answer()
        assert isinstance(answer.get("result"), dict), answer
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """Let it close its connection and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.answer() == {"closed": True}
        assert self.process.wait(PATIENCE) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass
