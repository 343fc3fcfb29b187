"""dibs' tools behind the official SDK's own stdio server: what `dibs mcp` is held against. `sdk_server.py URL NAME`"""

from __future__ import annotations

import sys

import anyio
from mcp.server.stdio import stdio_server

from dibs import TaskBoard, Worker
from dibs.mcp.seat import Seat
from dibs.mcp.server import make_server


async def main() -> None:
    url, name = sys.argv[1:]
    seat = Seat(lambda: TaskBoard.open(url), Worker(name, "agent"), kept=True)
    server = make_server(lambda ctx: seat)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


anyio.run(main)
