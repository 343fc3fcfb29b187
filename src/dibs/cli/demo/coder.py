"""One coder of the team demo: a coding agent without a model, in a git worktree of its own.

    python -m dibs.cli.demo.coder RECORDS SEED PACE DIBS…       DIBS… is the command of dibs, whose `mcp` is its server

It claims a task, merges the trunk, writes what the description names in small steps with pauses for thought, runs the
test that the description names, commits, lands, completes, until claim_task says that the team's work is over. What it
does it also writes down for itself (`worker.Records`): the second witness beside the board. Killed at any moment it
leaves at most a half-written file or an unlanded commit in its own worktree; the next run puts that aside.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from dibs.cli.demo import project, shopcode
from dibs.cli.demo.repository import git, land, merge_trunk
from dibs.cli.demo.speaking import Tools, connected, say
from dibs.cli.demo.worker import Records
from dibs.cli.render import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Coder:
    def __init__(self, tools: Tools, tree: str, name: str, records: Records, seed: str, pace: float) -> None:
        self.tools = tools
        self.tree = tree
        self.name = name
        self.records = records
        self.seed = seed
        self.pace = pace
        self.lead: str | None = None

    async def work(self) -> None:
        while True:
            answer = await self.tools.call("claim_task")
            if answer["claimed"]:
                await self.do(answer)
            elif answer.get("team") != "working":
                say("the work is over")
                return

    async def do(self, claim: dict[str, Any]) -> None:
        task_id, token, description = claim["task_id"], claim["token"], claim["description"]
        self.records.write("claimed", task_id, token)
        say(f"claimed {task_id}: {description}")
        await self.listen()
        merge_trunk(self.tree)
        await self.write(task_id, token, project.steps(description))
        tests = project.modules(description)
        ran, failed, printed = project.run_tests(self.tree, *tests)
        if failed or not ran:
            raise RuntimeError(f"{task_id}: {failed} of {ran} tests in {' '.join(tests)} failed\n{printed}")
        say(f"{' '.join(tests)}: {number(ran, 'test')} passed")
        if shopcode.FINDING_AT in description:
            await self.report()
        git(self.tree, "add", "--", *claim["paths"])
        git(self.tree, "commit", "--quiet", "-m", project.subject(task_id, description, self.name))
        commit = land(self.tree)
        self.records.write("finished", task_id, token)
        result = f"{number(ran, 'test')} passed; landed as {commit[:10]}"
        await self.tools.call("complete_task", task_id=task_id, token=token, result=result)
        self.records.write("completed", task_id, token)
        say(f"completed {task_id}: {result}")

    async def write(self, task_id: str, token: int, steps: Sequence[project.Step]) -> None:
        """Step by step; the thinking is all that is pretended."""
        seconds = self.pace * random.Random(f"{self.seed} {steps[0].path} {len(steps)}").uniform(0.7, 1.3)
        for count, step in enumerate(steps, 1):
            await asyncio.sleep(seconds / (len(steps) + 1))
            project.write(self.tree, step)
            self.records.write("editing" if count < len(steps) else "written", task_id, token)
            say(f"wrote {step.path} ({count}/{len(steps)})")
        await asyncio.sleep(seconds / (len(steps) + 1))

    async def listen(self) -> None:
        for message in (await self.tools.call("check_messages"))["messages"]:
            self.lead = self.lead or message["from"]
            say(f"{message['from']} says: {message['content']}")

    async def report(self) -> None:
        to = {} if self.lead is None else {"to": self.lead}
        await self.tools.call("send_message", content=shopcode.FINDING, **to)
        say(f"told {self.lead or 'everybody'}: {shopcode.FINDING}")


async def main(records: str, seed: str, pace: str, *server: str) -> None:
    name, tree = os.environ["DIBS_AGENT"], os.getcwd()
    if kept := project.tidy(tree, name):
        say(f"an earlier run of {name} left work that never landed; it is kept on {kept}")
    async with connected(server) as tools:
        await Coder(tools, tree, name, Records(records), seed, float(pace)).work()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
