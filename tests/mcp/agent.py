"""A client process: `python -m tests.mcp.agent SERVER-COMMAND…`; calls come as JSON lines, answers go out as such."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters


async def main(words: list[str]) -> None:
    server = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
    async with Client(server) as client:
        say("connected")
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            say(json.dumps((await client.call_tool(tool, arguments)).structured_content))


def say(line: Any) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
