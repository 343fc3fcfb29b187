"""What became of the team demo: the verdict from its witnesses, as a document and as text for a newcomer."""

from __future__ import annotations

import os
import shlex

from dibs.cli.demo import project, shopcode, view
from dibs.cli.demo.check import examine, left_running, passed_over
from dibs.cli.demo.ending import mark, program
from dibs.cli.demo.repository import TRUNK, git
from dibs.cli.render import BOLD, DIM, RED, cut, number, pad, paint
from dibs.model import COMPLETED, PENDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.context import Context
    from dibs.cli.demo.team import TeamShow
    from dibs.model import BoardTask
    from dibs.pool.results import AgentResult


class Judgement:
    """What was found, each with what is wrong with it."""

    def __init__(self, show: TeamShow) -> None:
        board, accident = show.board, show.accident
        self.tasks = {task.id: task for task in sorted(board.tasks(limit=1000)[0], key=lambda task: task.seq)}
        self.done = [task for task in self.tasks.values() if task.status is COMPLETED]
        self.agents = list(show.results or ())
        self.workers = [agent for agent in self.agents if agent.role == "worker"]
        events = list(board.changelog())
        self.verdict = examine(board, {name: _records(show, name) for name in _names(show)}, {})
        self.passed_over = passed_over(self.tasks, events)
        self.after, self.project = _tests_on_trunk(show)
        self.landing = project.unlanded(show.home, self.done)
        self.left = left_running(show.run_name) if show.run_name else []
        self.team = list(show.problems) + _ended_badly(show, self.agents)
        self.finding = next((m.sender for m in board.messages(100) if m.content == shopcode.FINDING), None)
        self.back_after: float | None = None
        self.taken_by: str | None = None
        self.kept_on: str | None = None
        if accident is not None:
            later = [e for e in events if e.task_id == accident.task.id and e.seq > (accident.task.token or 0)]
            back = next((e for e in later if (e.data or {}).get("set", {}).get("status") == PENDING), None)
            taken = next((e for e in later if e.action == "claimed_activity"), None)
            self.back_after = None if back is None else back.time - accident.killed_at
            self.taken_by = None if taken is None else taken.worker
            branches = project.left_behind(show.home, accident.worker)
            self.kept_on = branches[0] if branches else None
        self.recovery = self._unrecovered(show)

    def _unrecovered(self, show: TeamShow) -> list[str]:
        accident = show.accident
        if accident is None:
            return ["no worker was killed: none was found in the middle of a task"]
        found = []
        if self.back_after is None or self.taken_by is None:
            found.append(f"{accident.task.id} did not come back after its worker was killed")
        if not accident.half:
            found.append(f"{accident.worker} had nothing half-written when it was killed")
        if self.kept_on is not None and project.is_on_trunk(show.home, self.kept_on):
            found.append(f"what {accident.worker} had half-written is on {TRUNK}")
        tree = next((agent.worktree for agent in self.agents if agent.agent == accident.worker), None)
        if self.kept_on is None and (tree is None or project.changed(tree) != accident.half):
            found.append(f"what {accident.worker} had half-written is no longer in its worktree")
        return found

    @property
    def problems(self) -> list[str]:
        return [*self.team, *self.project, *self.landing, *self.recovery, *self.verdict.problems, *self.left]


def judge(show: TeamShow) -> Judgement:
    return Judgement(show)


def _names(show: TeamShow) -> list[str]:
    return [f"worker-{n}" for n in range(1, show.workers + 1)]


def _records(show: TeamShow, name: str) -> list[dict[str, Any]]:
    """A worker's own notes, with the moment at which it was killed."""
    notes = show.records(name)
    if show.accident is not None and show.accident.worker == name:
        notes.append({"did": "killed", "task": show.accident.task.id, "token": None, "at": show.accident.frozen_at})
        notes.sort(key=lambda note: float(note["at"]))
    return notes


def _tests_on_trunk(show: TeamShow) -> tuple[tuple[int, int], list[str]]:
    """The project's tests in a fresh clone: how many ran, how many failed; and what is wrong with that."""
    clone = os.path.join(show.folder, "fresh-clone")
    git(show.folder, "clone", "--quiet", "--branch", TRUNK, show.home, clone)
    ran, failed, printed = project.run_tests(clone)
    if failed or ran < show.before[0]:
        return (ran, failed), [f"{failed} of {ran} tests fail on {TRUNK}: {printed.strip().splitlines()[-1]}"]
    return (ran, failed), []


def _ended_badly(show: TeamShow, agents: list[AgentResult]) -> list[str]:
    found = []
    if show.results is not None and show.results.ending != "done":
        found.append(f"the team's work ended as {show.results.ending}: {show.results.why}")
    for agent in agents:
        killed = show.accident is not None and show.accident.worker == agent.agent
        if agent.status != "completed" and not killed:
            found.append(f"{agent.agent} ended with {agent.status}: {agent.error}")
        elif agent.runs > 1 + killed:
            found.append(f"{agent.agent} had to be started {agent.runs} times; see {agent.output_file}")
    return found


# -- as JSON


def document(show: TeamShow, found: Judgement) -> dict[str, Any]:
    accident, verdict = show.accident, found.verdict
    return {
        "ok": not found.problems,
        "board": show.board.url,
        "repository": show.home,
        "outputs": show.outputs,
        "seed": show.seed,
        "seconds": round(show.seconds, 3),
        "ending": show.results.ending if show.results is not None else None,
        "tasks": len(found.tasks),
        "added_on_the_way": len(found.tasks) - len(shopcode.PLAN),
        "completed": len(found.done),
        "claims": verdict.claims,
        "double_claims": len(verdict.doubles),
        "passed_over": found.passed_over,
        "events": verdict.events,
        "replay_agrees": not verdict.replay,
        "tests": {
            "before": {"ran": show.before[0], "failed": show.before[1]},
            "after": {"ran": found.after[0], "failed": found.after[1]},
        },
        "killed": None if accident is None else {
            "worker": accident.worker,
            "task": accident.task.id,
            "at_second": round(accident.killed_at - show.began, 3),
            "half_written": accident.half,
            "back_after_seconds": None if found.back_after is None else round(found.back_after, 3),
            "taken_by": found.taken_by,
            "kept_on_branch": found.kept_on,
        },
        "agents": [
            {
                "name": agent.agent,
                "role": agent.role,
                "status": agent.status,
                "runs": agent.runs,
                "completed": agent.tasks,
                "worktree": agent.worktree,
                "branch": agent.branch,
                "output_file": agent.output_file,
            }
            for agent in found.agents
        ],
        "left_running": len(found.left),
        "problems": found.problems,
    }  # fmt: skip


# -- as text


def summary(ctx: Context, show: TeamShow, found: Judgement) -> list[str]:
    color, width = ctx.color, min(view.WIDEST, ctx.width) - 1
    head = f"dibs demo: a lead, {show.workers} workers, {number(len(found.tasks), 'task')}, {show.seconds:.1f} s"
    lines = [paint(cut(head, width), BOLD, color), ""]
    added = len(found.tasks) - len(shopcode.PLAN)
    more = f"; added {added} when {found.finding} wrote of a missing rule" if added > 0 else ""
    lines.append(pad("lead", 11) + cut(f"planned {len(shopcode.PLAN)} tasks{more}", width - 11))
    lines += [_worker(show, found, agent, width, color) for agent in found.workers]
    lines.append("")
    lines += mark(_findings(show, found), color, width)
    call, home = program(), shlex.quote(show.home)
    lines += ["", "Everything is kept. Look around:", f"  cd {home}", *_commands(show, call, width)]
    lines += ["It is a temporary folder; it can go when you are done looking:", f"  {shlex.quote(show.folder)}"]
    lines += ["", "With real agents, in a repository of yours:", f"  {call} team --help"]
    return lines


def _commands(show: TeamShow, call: str, width: int) -> list[str]:
    if os.environ.get("DIBS_BOARD"):
        call += " --board .dibs/board.db"
    found = [
        (f"{call} log", "all that happened"),
        (f"git log --oneline --graph {TRUNK}", "a commit for each task"),
        (f"tail {os.path.relpath(show.outputs, show.home)}/*.log", "what each agent printed"),
    ]
    if show.accident is not None:
        found.insert(0, (f"{call} log --task {show.accident.task.id}", "the task that changed hands"))
    room = max(len(command) for command, _ in found)
    beside = room + 6 + max(len(what) for _, what in found) <= width
    return [f"  {pad(command, room)}  # {what}" if beside else f"  {command}" for command, what in found]


def _worker(show: TeamShow, found: Judgement, agent: AgentResult, width: int, color: bool) -> str:
    text = f"{len(agent.tasks):3} done"
    room = width - 11 - len(text)
    killed = ""
    if show.accident is not None and show.accident.worker == agent.agent:
        again = ", started again" if agent.runs > 1 else ""
        killed = cut(f"  killed while it wrote {' '.join(show.accident.half)}{again}", room)
    titles = [title(found.tasks[task_id]) for task_id in agent.tasks if task_id in found.tasks]
    what = cut("  " + ", ".join(titles), room - len(killed)) if titles and room - len(killed) > 20 else ""
    return pad(agent.agent, 11) + text + paint(what, DIM, color) + paint(killed, RED, color)


def title(task: BoardTask) -> str:
    """The first words of a description: `Cart`."""
    return task.description.partition(":")[0]


def _findings(show: TeamShow, found: Judgement) -> list[tuple[str, list[str]]]:
    verdict, accident = found.verdict, show.accident
    ran, total = show.before[0], len(found.tasks)
    shop = f"the shop works: {show.before[1]} of {ran} tests failed before; all {found.after[0]} pass in a fresh clone"
    lines = [
        (shop, found.team + found.project),
        (
            f"all {total} tasks were completed, each exactly once, each a commit on {TRUNK}",
            verdict.completed + found.landing,
        ),
    ]
    if accident is None:
        lines.append(("", found.recovery))
    else:
        back = f"{accident.worker} was killed; its task was free {found.back_after or 0.0:.2f} s later"
        lines.append((f"{back}, and {_taker(found, accident.worker)}", found.recovery))
        where = f"on branch {found.kept_on}" if found.kept_on else "in its worktree"
        lines.append((f"what it had half-written stayed {where}, off {TRUNK}", []))
    skipped = f"; {number(found.passed_over, 'claim')} went around one" if found.passed_over else ""
    lines += [
        (
            f"{verdict.claims} claims, {len(verdict.doubles)} double claims: agents' own records and changelog agree",
            verdict.doubles + verdict.records,
        ),
        (f"no task began too early, no file had two holders{skipped}", verdict.order),
        (f"replaying the changelog's {verdict.events} entries gives exactly this board", verdict.replay),
        ("nothing is left running", found.left),
    ]
    return lines


def _taker(found: Judgement, killed: str) -> str:
    return "it took it up again" if found.taken_by == killed else f"{found.taken_by} took it"
