"""A coding client with the real `dibs mcp`: what its agent locks through a tool is its own to its hooks and shells."""

from __future__ import annotations

import json
import sys

from tests.hooks.repository import Repository, claude, session

CLIENT = """
import asyncio, json, os, subprocess, sys
from mcp import StdioServerParameters
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client
from mcp.types import Implementation

def run(words, event=None):
    command = [sys.executable, "-m", "dibs", *words]
    done = subprocess.run(command, input=json.dumps(event), capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)

async def main():
    steps = json.loads(sys.argv[1])
    server = StdioServerParameters(command=sys.executable, args=["-m", "dibs", "mcp"], env=dict(os.environ))
    async with stdio_client(server) as pipes:
        who = Implementation(name="claude-code", version="2.1.0")
        async with ClientSession(*pipes, client_info=who) as agent:
            await agent.initialize()
            await agent.call_tool("lock_files", {"paths": ["tool.py"]})
            for words, event in steps:
                run(words, event)

asyncio.run(main())
"""


def test_its_locks_are_the_agents_own_and_end_with_the_client(repo: Repository) -> None:
    own = claude("Write", repo.two, file_path=str(repo.two / "tool.py"), content="x")
    steps = [
        [["hook", "claude", "--require-lock"], own],
        [["hook", "claude"], claude("Bash", repo.two, command="sed -i s/a/b/ tool.py; rm a.py")],
        [["hook", "claude"], session("SessionStart", repo.two, "5f1c9f0e", source="clear")],
        [["hook", "claude"], session("SessionEnd", repo.two, "5f1c9f0e", reason="clear")],
        [["unlock", "tool.py"], None],
        [["lock", "tool.py"], None],
    ]
    done = repo.run(sys.executable, "-c", CLIENT, json.dumps(steps), cwd=repo.two)
    assert done.code == 0, done
    silent, denied, primed, ended, unlocked, locked = [json.loads(line) for line in done.out.splitlines()]
    assert silent == ended == [0, "", ""]
    assert "a.py is held by bob" in denied[1]
    assert "tool.py" not in denied[1]
    assert 'You are \\"claude-' in primed[1]
    assert '\\"tool.py\\" by ' not in primed[1]
    assert unlocked[:2] == [0, "unlocked tool.py\n"]
    assert locked[0] == 0
    assert not any(line.endswith(" tool.py") for line in repo.locks())
