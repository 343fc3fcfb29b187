"""`dibs demo --agents`: scripted coding agents in git worktrees work through tasks that want the same files.

The agents are processes that speak MCP with the official client (`agent`); repository, worktrees, edits, commits and
merges are real (`repository`). At the end the trunk must hold every edit, and the changelog, the agents' own records
and the board must tell one story (`check`). Nobody is killed here; that is the other demo.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile

from dibs.board import TaskBoard
from dibs.cli.demo import repository, view
from dibs.cli.demo.check import examine
from dibs.cli.demo.ending import between, mark, program
from dibs.cli.demo.plain import Show
from dibs.cli.render import BOLD, DIM, cut, number, pad, paint
from dibs.errors import Unsupported
from dibs.model import COMPLETED, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.demo.check import Verdict

AGENTS, TASKS, PER_WORKTREE = 8, 60, 2


def demo_agents(ctx: Context, args: Args, seed: int) -> int:
    agents = between(args.workers, "--workers", AGENTS, 2, 32)
    tasks = between(args.tasks, "--tasks", TASKS, 2, 2000)
    if shutil.which("git") is None:
        raise Unsupported("the agents work in git worktrees, and there is no git here", hint="install git")
    folder = tempfile.mkdtemp(prefix="dibs-demo-")
    home, trees = repository.make(folder, -(-agents // PER_WORKTREE))
    with TaskBoard.open(os.path.join(home, ".dibs", "board.db"), create=True, worker=Worker("demo", "system")) as board:
        board.add_many(repository.tasks(tasks, seed))
        show = AgentShow(ctx, board, folder, agents, tasks, seed, trees)
        ctx.note(f"starting {agents} agents and their MCP servers; on two cores that takes ten seconds")
        show.play(ctx)
        verdict = examine(board, {name: show.records(name) for name in show.names}, show.ended)
        verdict.completed += show.problems
        done = [(t.id, t.assigned_to or "", t.paths) for t in show.scene.tasks if t.status is COMPLETED]
        lost = repository.missing(home, done)
        lost += [f"{lock.pattern} is still locked by {lock.holder.name}" for lock in board.locks()]
        if ctx.json:
            ctx.emit(_document(show, verdict, lost, home))
        else:
            for line in _summary(ctx, show, verdict, lost, home):
                ctx.say(line)
    return 1 if verdict.problems or lost else 0


class AgentShow(Show):
    """The agents, two to a worktree, and what became of them."""

    too_long = 300.0

    def __init__(
        self, ctx: Context, board: TaskBoard, folder: str, agents: int, tasks: int, seed: int, trees: list[str]
    ) -> None:
        super().__init__(ctx, board, folder, agents, tasks, seed)
        self.names = [f"agent-{n}" for n in range(1, agents + 1)]
        self.trees = {name: trees[at // PER_WORKTREE] for at, name in enumerate(self.names)}

    def _words(self) -> tuple[str, str]:
        count = len(set(self.trees.values()))
        title = f"{len(self.names)} agents over MCP in {number(count, 'worktree')}"
        return title, "every edit is asked of dibs hook, committed and merged; nobody may lose one"

    def _command(self, name: str) -> list[str]:
        return ["dibs.cli.demo.agent", self.trees[name], name, self._path(name, "records"), str(self.seed)]

    def _maybe_kill(self) -> None:
        """Nobody is killed in this demo."""

    def asked(self, word: str) -> int:
        """How often somebody asked for a file that was not its own, and was denied (or let)."""
        return sum(record["did"] == word for name in self.names for record in self.records(name))


def _document(show: AgentShow, verdict: Verdict, lost: list[str], home: str) -> dict[str, Any]:
    return {
        "ok": not verdict.problems and not lost,
        "board": show.board.url,
        "repository": home,
        "seed": show.seed,
        "seconds": round(show.seconds, 3),
        "tasks": len(show.scene.tasks),
        "completed": show.scene.done,
        "claims": verdict.claims,
        "double_claims": len(verdict.doubles),
        "files_held_twice": len(verdict.order),
        "lost_edits": lost,
        "edits": sum(len(task.paths) for task in show.scene.tasks if task.status is COMPLETED),
        "denied_edits": show.asked("denied"),
        "let_edits": show.asked("let"),
        "events": verdict.events,
        "replay_agrees": not verdict.replay,
        "agents": [
            {"name": name, "worktree": show.trees[name], "completed": show.completed_by(name)} for name in show.names
        ],
        "problems": verdict.problems,
    }


def _summary(ctx: Context, show: AgentShow, verdict: Verdict, lost: list[str], home: str) -> list[str]:
    color, width = ctx.color, min(view.WIDEST, ctx.width) - 1
    total = len(show.scene.tasks)
    edits = sum(len(task.paths) for task in show.scene.tasks if task.status is COMPLETED)
    trees = number(len(set(show.trees.values())), "worktree")
    head = f"dibs demo: {len(show.names)} agents, {trees}, {total} tasks"
    lines = [paint(cut(f"{head}, {show.seconds:.1f} s", width), BOLD, color), ""]
    for name in show.names:
        done = show.completed_by(name)
        text = f"{len(done):3} done  {os.path.basename(show.trees[name])}"
        rest = cut("  " + ", ".join(done), width - 11 - len(text))
        lines.append(pad(name, 11) + text + paint(rest, DIM, color))
    lines.append("")
    denied, let = show.asked("denied"), show.asked("let")
    found = [
        (f"all {total} tasks were completed, each exactly once", verdict.completed),
        (f"all {edits} edits of {len(repository.FILES)} shared files are on the trunk; no merge met a conflict", lost),
        (f"{verdict.claims} claims, {len(verdict.doubles)} double claims, by every agent's own records",
         verdict.doubles + verdict.records),
        ("no two agents ever held one file; no task began too early", verdict.order),
        (f"{denied + let} tries at other files: {denied} were held and denied by the hook, {let} were free", []),
        (f"replaying the changelog's {verdict.events} entries gives exactly this board", verdict.replay),
    ]  # fmt: skip
    lines += mark(found, color, width)
    where = shlex.quote(home)
    lines += ["", "Everything is kept. Look around:"]
    lines += [f"  cd {where}"]
    lines += [f"  {program()} {what}" for what in ("log", "list --all", "overlaps")]
    lines += ["  git log --oneline --graph trunk"]
    lines += ["It is a temporary repository; its folder can go when you are done looking:"]
    lines += [f"  {shlex.quote(show.folder)}"]
    return lines
