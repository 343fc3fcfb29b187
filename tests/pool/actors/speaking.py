"""Agents that speak MCP, with the official client: `lead` and `worker` are told apart by their server's environment.

    python speaking.py MCP-CONFIG           the prompt on standard input
    claude -p --mcp-config MCP-CONFIG …     the same, under the name of a coding client (see `test_document_004`)

A lead adds a task for each line `Task: …` of its prompt, one after the other, and waits in between until those before
are done. A worker does as it is told: claims, completes, and ends when the team is over. What it does with a task, the
task says: `die`, `lose the server`, `lock`, else it completes it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters


def config(words: list[str]) -> dict[str, Any]:
    path = words[words.index("--mcp-config") + 1] if "--mcp-config" in words else words[-1]
    server: dict[str, Any] = json.loads(Path(path).read_text())["mcpServers"]["dibs"]
    return server


async def main(words: list[str]) -> None:
    prompt = sys.stdin.read()
    server = config(words)
    name = server["env"]["DIBS_AGENT"]
    print(f"I am {name}", flush=True)
    started = StdioServerParameters(command=server["command"], args=server["args"], env={**os.environ, **server["env"]})
    async with Client(started) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call_tool(tool, arguments)
            assert answer.structured_content is not None
            print(tool, json.dumps(answer.structured_content), flush=True)
            return dict(answer.structured_content)

        await (lead(prompt, call) if name == "lead" else worker(prompt, call))


async def lead(prompt: str, call: Any) -> None:
    for line in prompt.splitlines():
        if line.startswith("Task: "):
            await call("add_tasks", tasks=[{"description": line.removeprefix("Task: ")}])
            while (await call("list_tasks", status="open"))["tasks"]:
                await asyncio.sleep(0.2)


async def worker(prompt: str, call: Any) -> None:
    while True:
        task = await call("claim_task")
        if not task["claimed"] and task["team"] == "over":
            return
        if not task["claimed"]:
            continue
        what, again = task["description"], task.get("attempts", 1) > 1 or "previous" in json.dumps(task)
        first = not again and not (Path(os.environ["POOL_NOTES"]) / f"tried {task['task_id']}").exists()
        (Path(os.environ["POOL_NOTES"]) / f"tried {task['task_id']}").touch()
        if "die" in what and first:
            os.kill(os.getpid(), signal.SIGKILL)
        if "lose the server" in what and first:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
        if "lock" in what:
            await call("lock_files", paths=["shared.txt"])
        await call("complete_task", task_id=task["task_id"], token=task["token"], result=f"done: {what}")


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
