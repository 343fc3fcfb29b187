"""Teams: real agent commands that share one board, started, kept alive, cleaned up after and reported on.

    async with AgentPool(mode="team", max_agents=4) as pool:
        pool.add_tasks(["…", "…"])
        results = await pool.run_team(lead_prompt="…")

Its parts, each usable and tested on its own:

- `pool`       AgentPool: what a run consists of, and when it is over
- `agents`     one agent of a run: its starts and restarts, what it holds, what it did
- `warden`     a process around each agent's process: nothing below it survives its end, or the pool's
- `processes`  starting wardens and talking to them, for asyncio
- `standing`   how the board stands for a team: what can be claimed, who holds what, can it go on?
- `notice`     what the agents' own servers must know of the team: is the lead still planning, is it over?
- `runners`    a prompt made into a command: claude, codex, gemini, the Claude Agent SDK, any template
- `prompts`    what a lead and a worker are told
- `worktrees`  a git worktree and branch for each agent
- `threads`    what may block, out of the event loop's way
- `tails`      what agents print, as it grows
- `results`    what an agent and a run came to; the events on the way

The board stays the referee: the pool has no power over it that another worker lacks, and a pool that dies leaves
nothing that the next claim would not repair.
"""

from dibs.pool.results import AgentResult as AgentResult
from dibs.pool.results import PoolEvent as PoolEvent
from dibs.pool.results import Results as Results
