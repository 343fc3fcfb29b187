"""A program that runs a team: `python pooling.py BOARD WORKSPACE STEPS`; prints its folder, and how it ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dibs import AgentPool


async def main(board: str, workspace: str, steps: str) -> None:
    agent = [sys.executable, "-P", str(Path(__file__).parent / "direct.py"), steps]
    async with AgentPool(max_agents=2, board=board, workspace=workspace, agent=agent, grace=1.0) as pool:
        print(pool.folder, flush=True)
        results = await pool.run_team()
        print(results.ending, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
