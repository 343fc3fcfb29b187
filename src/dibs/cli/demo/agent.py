"""One scripted agent of `dibs demo --agents`: a coding client without a model.

It starts `dibs mcp` as its MCP server through the official client, claims with the tool `claim_task`, asks `dibs hook`
before every edit as a client's hook does, edits, commits, lands, completes. Now and then it tries to edit a file that
is not its own. What it does it also writes down for itself (`worker.Records`): the second witness beside the board.
Agents of one worktree share its index, so each keeps the others out while git works there; they edit side by side.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time

from mcp import Client, StdioServerParameters, stdio_client

from dibs.cli.demo.repository import FILES, git, land, line_of, merge_trunk
from dibs.cli.demo.worker import Records
from dibs.guards import FlockGuard
from dibs.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIBS = (sys.executable, "-P", "-m", "dibs")
PATIENCE = 120.0


class Agent:
    def __init__(self, client: Client, tree: str, name: str, records: Records, chance: random.Random) -> None:
        self.client = client
        self.tree = tree
        self.name = name
        self.records = records
        self.chance = chance
        self.guard = os.path.join(os.path.dirname(tree), f"{os.path.basename(tree)}.git-lock")

    async def work(self) -> None:
        while True:
            answer = await self.call("claim_task", wait_seconds=1)
            if answer["claimed"]:
                await self.do(answer)
            elif not await self.is_work_left():
                return

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        answer = result.structured_content
        if result.is_error or not isinstance(answer, dict):
            raise RuntimeError(f"{tool}: {result.content}")
        return answer

    async def is_work_left(self) -> bool:
        left = [await self.call("list_tasks", status=status, limit=1) for status in ("pending", "in_progress")]
        return any(page["total"] for page in left)

    async def do(self, claim: dict[str, Any]) -> None:
        task_id, token, paths = claim["task_id"], claim["token"], claim["paths"]
        self.records.write("claimed", task_id, token)
        with FlockGuard(self.guard, timeout=PATIENCE):
            merge_trunk(self.tree)
        for path in paths:
            reason = self.ask_hook(path)
            if reason is not None:
                raise RuntimeError(f"{self.name} holds {path} for {task_id} and its edit was denied: {reason}")
            self.edit(path, line_of(task_id, self.name))
        if self.chance.random() < 0.4:
            self.trespass(paths)
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        with FlockGuard(self.guard, timeout=PATIENCE):
            git(self.tree, "add", "--", *paths)
            git(self.tree, "commit", "--quiet", "-m", f"{task_id} by {self.name}", "--", *paths)
            commit = land(self.tree)
        self.records.write("finished", task_id, token)
        await self.call("complete_task", task_id=task_id, token=token, result=f"landed as {commit[:10]}")
        self.records.write("completed", task_id, token)

    def edit(self, path: str, line: str) -> None:
        """Read, think, write: whoever edits the same file meanwhile loses one of the two lines."""
        full = os.path.join(self.tree, path)
        with open(full, encoding="utf-8") as file:
            text = file.read()
        time.sleep(self.chance.uniform(0, 0.02))
        with open(full, "w", encoding="utf-8") as file:
            file.write(text + line)

    def trespass(self, own: list[str]) -> None:
        """Ask for a file that is not ours. If somebody holds it, the hook must say no; we would not edit it anyway."""
        path = self.chance.choice([path for path in FILES if path not in own])
        reason = self.ask_hook(path)
        self.records.write("denied" if reason else "let", path, None)

    def ask_hook(self, path: str) -> str | None:
        """What the client's hook says before an edit: None lets it pass, else the reason why not."""
        event = {
            "session_id": f"session-of-{self.name}",
            "cwd": self.tree,
            "hook_event_name": "PreToolUse",
            "tool_name": "Edit",
            "tool_input": {"file_path": os.path.join(self.tree, path), "old_string": "", "new_string": "x"},
        }
        done = subprocess.run(
            [*DIBS, "hook", "claude"], input=dumps(event), cwd=self.tree, capture_output=True, text=True
        )
        if done.returncode not in (0, 2):
            raise RuntimeError(f"dibs hook ended with {done.returncode}: {done.stderr}")
        if done.returncode == 2:
            return done.stderr
        if not done.stdout.strip():
            return None
        answer = loads(done.stdout)["hookSpecificOutput"]
        return str(answer["permissionDecisionReason"]) if answer["permissionDecision"] == "deny" else None


async def main(tree: str, name: str, records: str, seed: str) -> None:
    environment = {**os.environ, "DIBS_AGENT": name}
    server = StdioServerParameters(
        command=DIBS[0], args=[*DIBS[1:], "mcp", "--client", "demo"], cwd=tree, env=environment
    )
    async with Client(stdio_client(server)) as client:
        await Agent(client, tree, name, Records(records), random.Random(f"{seed} {name}")).work()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
