"""`dibs demo`: three shows in which nothing is staged but the work itself. Each has a temporary folder of its own,
checks what it claims by witnesses that do not know of each other (`check`), and leaves everything there to look at.

- `team`     the default: a lead plans, workers in git worktrees write a small shop, one of them is killed
- `plain`    `--plain`: worker processes drain a board, one of them is killed; needs neither git nor MCP
- `agents`   `--agents`: agents in shared worktrees want the same files, and every edit is asked of `dibs hook`
"""

from __future__ import annotations

import os
import random
import shutil

from dibs.cli.args import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context


def demo(ctx: Context, args: Args) -> int:
    seed = random.randrange(10_000) if args.seed is None else args.seed
    if args.plain and args.agents:
        raise UsageError("demo: --plain and --agents are two different demos; give one of them")
    if args.agents:
        from dibs.cli.demo.agents import demo_agents

        return demo_agents(ctx, args, seed)
    if not args.plain and args.tasks is not None:
        raise UsageError("demo: the team's lead plans its tasks itself; --tasks goes with --plain or --agents")
    if not args.plain and (why := _lacking()):
        ctx.note(f"the team works in git worktrees, and {why}; showing dibs demo --plain instead")
    elif not args.plain:
        from dibs.cli.demo.team import demo_team

        return demo_team(ctx, args, seed)
    from dibs.cli.demo.plain import demo_plain

    return demo_plain(ctx, args, seed)


def _lacking() -> str:
    """What the team would need and is not here, as half a sentence."""
    if shutil.which("git") is None:
        return "there is no git here"
    return "" if os.name == "posix" else "agents are run as process groups, which this system has not"
