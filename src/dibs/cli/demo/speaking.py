"""How the scripted agents of the team demo speak MCP: the official client, with `dibs mcp` as its server."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters, stdio_client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any


class Tools:
    """The board's tools, as a client has them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool(tool, arguments)
        answer = result.structured_content
        if result.is_error or not isinstance(answer, dict):
            raise RuntimeError(f"{tool}: {result.content}")
        return answer


@asynccontextmanager
async def connected(server: Sequence[str]) -> AsyncIterator[Tools]:
    """`server` is the command of dibs. The server gets our whole environment: that is where it finds its team."""
    about = StdioServerParameters(
        command=server[0], args=[*server[1:], "mcp", "--client", "demo"], env=dict(os.environ)
    )
    async with Client(stdio_client(about)) as client:
        yield Tools(client)


def say(text: str) -> None:
    """A line for whoever watches; the pool keeps it in the agent's log."""
    print(text, flush=True)
