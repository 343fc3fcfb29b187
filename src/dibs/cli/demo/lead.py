"""The lead of the team demo: a planning agent without a model, in the repository's main worktree.

    python -m dibs.cli.demo.lead DIBS…       DIBS… is the command of dibs, whose `mcp` is its server

It reads its prompt, looks for what is still to be written, puts a plan on the board, and waits for messages: when a
coder reports something that nobody had planned for, it adds a task. When everything is done it brings `main` up to the
trunk, runs all tests there and says how it went; its exit code is 1 if they fail. Killed and started again it goes on
where it was: its calls carry request keys, so nothing is planned twice.
"""

from __future__ import annotations

import asyncio
import os
import sys

from dibs.cli.demo import project, shopcode
from dibs.cli.demo.repository import TRUNK, git
from dibs.cli.demo.speaking import Tools, connected, say

THINK = 0.5
LOOK = 1.0
"""Seconds between two looks at the board while nobody writes."""


class Lead:
    def __init__(self, tools: Tools, home: str) -> None:
        self.tools = tools
        self.home = home
        self.names: dict[str, str] = {}
        """What the plan calls its tasks, and their ids."""
        self.added = 0

    async def run(self) -> int:
        await self.plan()
        while True:
            is_done = not await self.is_work_left()
            messages = (await self.tools.call("check_messages", wait_seconds=0 if is_done else LOOK))["messages"]
            for message in messages:
                say(f"{message['from']} says: {message['content']}")
                if message["content"] == shopcode.FINDING:
                    await self.add_further()
            if is_done and not messages:
                return self.check()

    async def plan(self) -> None:
        say(f"{project.stubs(self.home)} functions are still to be written")
        await asyncio.sleep(THINK)
        answer = await self.tools.call("add_tasks", tasks=shopcode.PLAN, request_key="the plan")
        self.names = answer["names"]
        await self.tools.call("send_message", content=shopcode.WELCOME, request_key="welcome")
        say(f"planned {len(self.names)} tasks")

    async def add_further(self) -> None:
        await asyncio.sleep(THINK)
        task = {**shopcode.FURTHER, "needs": [self.names["tax"]]}
        answer = await self.tools.call("add_tasks", tasks=[task], request_key="rounding")
        self.added = 1
        say(f"added {answer['ids'][0]}: {task['description']}")

    async def is_work_left(self) -> bool:
        return bool((await self.tools.call("list_tasks", status="open", limit=1))["total"])

    def check(self) -> int:
        git(self.home, "merge", "--quiet", "--ff-only", TRUNK)
        ran, failed, printed = project.run_tests(self.home)
        say(f"everything is done: {len(self.names)} tasks as planned, {self.added} added on the way")
        say(f"{ran - failed} of {ran} tests pass on {TRUNK} ({git(self.home, 'rev-parse', '--short', TRUNK)})")
        if failed:
            say(printed)
        return 1 if failed else 0


async def main(*server: str) -> int:
    with open(os.environ["DIBS_PROMPT_FILE"], encoding="utf-8") as file:
        say(f"my prompt: {file.read().strip().splitlines()[0]}")
    async with connected(server) as tools:
        return await Lead(tools, os.getcwd()).run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
