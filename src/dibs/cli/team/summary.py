"""What a team came to, for people and as JSON: who did what, how it ended and why, what is left, what to do next."""

from __future__ import annotations

import os

from dibs.cli.render import BOLD, DIM, GREEN, RED, cells, cut, number, one_line, paint, safe, table, wrap
from dibs.errors import quoted
from dibs.model import CANCELLED, COMPLETED, FAILED, IN_PROGRESS, PENDING, REVIEW
from dibs.pool.results import STOPPED
from dibs.times import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dibs.board import TaskBoard
    from dibs.cli.render import Cell
    from dibs.model import TaskStatus
    from dibs.pool import AgentResult

NARROW = 60
"""Columns below which a table has only what matters most."""
LEFT = 5
"""Tasks that are named of those that are left."""
_WORDS = ((COMPLETED, "completed"), (IN_PROGRESS, "in progress"), (REVIEW, "in review"), (PENDING, "pending"),
          (FAILED, "failed"), (CANCELLED, "cancelled"))  # fmt: skip


class Outcome:
    """Everything that the summary says, gathered while the pool is still open."""

    def __init__(self, ending: str, why: str, seconds: float, results: Sequence[AgentResult]) -> None:
        self.ending = ending
        """One of the pool's, or `stopped`."""
        self.why = why
        self.seconds = seconds
        self.results = list(results)
        self.counts: Mapping[str, int] = {}
        """Every status and how many tasks are in it; empty if the board could not be read."""
        self.newly_failed = 0
        self.left: list[tuple[str, TaskStatus, str]] = []
        """(id, status, description) of some tasks that are not done."""
        self.folder = ""
        self.workspace = ""
        self.call = "dibs"
        """How to call dibs so that it finds this board."""

    @property
    def is_good(self) -> bool:
        led = all(result.status == "completed" for result in self.results if result.role == "lead")
        return self.ending == "done" and led and not self.newly_failed

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "summary",
            "ending": self.ending,
            "why": self.why,
            "seconds": round(self.seconds, 3),
            "counts": {str(status): count for status, count in self.counts.items()},
            "folder": self.folder,
            "results": [result.as_dict() for result in self.results],
        }


def failed_tasks(board: TaskBoard) -> set[str]:
    return {task.id for task in board.tasks([FAILED], limit=10_000)[0]}


def gather(outcome: Outcome, pool: Any, failed_before: set[str]) -> None:
    """Fill in what only an open pool knows."""
    board = pool.board
    outcome.folder, outcome.workspace = pool.folder, pool.workspace  # first: the board may not answer
    outcome.counts = board.counts()
    outcome.newly_failed = len(failed_tasks(board) - failed_before)
    wanted = [IN_PROGRESS, REVIEW, PENDING] + ([FAILED] if outcome.newly_failed else [])
    found, _ = board.tasks(wanted, limit=LEFT) if any(outcome.counts[status] for status in wanted) else ([], 0)
    outcome.left = [(task.id, task.status, task.description) for task in found]


def report(outcome: Outcome, width: int, color: bool) -> list[str]:
    after = "in" if outcome.ending == "done" else "after"
    head = f"dibs team: {outcome.ending} {after} {_length(outcome.seconds)}"
    if outcome.ending == "done" and outcome.newly_failed:
        head += f", but {number(outcome.newly_failed, 'task')} failed"
    elif outcome.ending == "done" and not outcome.is_good:
        head += ", but the lead failed"
    found = [paint(head, f"{BOLD};{GREEN if outcome.is_good else RED}", color)]
    found += wrap(one_line(outcome.why), width)
    if outcome.results:
        found += ["", *_agents(outcome, width, color)]
    found += ["", *_board(outcome, width, color)]
    found += _outputs(outcome, width, color)
    found += _branches(outcome, width, color)
    return found


def _agents(outcome: Outcome, width: int, color: bool) -> list[str]:
    rows: list[list[Cell]] = []
    for result in outcome.results:
        bad = result.status not in ("completed", STOPPED)
        done = f"{len(result.tasks)}: {', '.join(result.tasks)}" if result.tasks else ""
        file = os.path.basename(result.output_file or "")
        status = (result.status, RED if bad else "")
        rows.append([safe(result.agent), status, str(result.runs), _length(result.duration), safe(file), safe(done)])
    if width < NARROW:  # rather without some columns than with all of them cut
        few = [[row[0], row[1], row[5]] for row in rows]
        found = table(("AGENT", "STATUS", "TASKS DONE"), few, width, caps=(20, 10), color=color)
    else:
        header = ("AGENT", "STATUS", "RUNS", "TIME", "OUTPUT", "TASKS DONE")
        found = table(header, rows, width, caps=(20, 10, 5, 8, 26), right=(2, 3), color=color)
    for result in outcome.results:
        if result.error:
            found.append(paint(cut(f"  {safe(result.agent)}: {one_line(result.error)}", width), RED, color))
    return found


def _board(outcome: Outcome, width: int, color: bool) -> list[str]:
    if not outcome.counts:
        return ["How the board stands is not known.", *_steps([(f"{outcome.call} list", "ask again")], width, color)]
    if not any(outcome.counts.values()):
        add = (f"{outcome.call} add 'what to do'", "put one there")
        return ["There are no tasks on the board.", *_steps([add], width, color)]
    parts = [f"{outcome.counts[status]:,} {word}" for status, word in _WORDS if outcome.counts.get(status)]
    found = wrap(f"On the board: {', '.join(parts)}.{' Not done:' if outcome.left else ''}", width, "")
    call, steps = outcome.call, []
    words = dict(_WORDS)
    first = max((len(task_id) for task_id, _, _ in outcome.left), default=0)
    for task_id, status, text in outcome.left:
        found.append(cut(f"  {task_id:<{first}}  {words[status]:<11}  {one_line(text[:2000])}", width))
    open_tasks = sum(outcome.counts.get(status, 0) for status in (IN_PROGRESS, REVIEW, PENDING))
    more = open_tasks + outcome.newly_failed - len(outcome.left)
    if more > 0:
        found.append(paint(f"  and {number(more, 'more task').replace('more tasks', 'more')}", DIM, color))
    if open_tasks:
        steps.append((f"{call} list", "what is left"))
    if outcome.left:
        steps.append((f"{call} show {outcome.left[0][0]}", "why it is not done"))
    failed = [task_id for task_id, status, _ in outcome.left if status == FAILED]
    if failed:
        steps.append((f"{call} retry {failed[0]}", "put a failed task back"))
    steps.append((f"{call} list --all", "every task" if not open_tasks else "the finished ones, too"))
    steps.append((f"{call} log", "what happened"))
    return found + _steps(steps, width, color)


def _outputs(outcome: Outcome, width: int, color: bool) -> list[str]:
    if not outcome.folder or not outcome.results:
        return []
    folder = quoted(_short(outcome.folder))
    steps = [(f"ls {folder}", "")]
    fine = ("completed", STOPPED)
    bad = next((result for result in outcome.results if result.status not in fine and result.output_file), None)
    if bad is not None:
        steps.append((f"tail {quoted(_short(bad.output_file or ''))}", "its last words"))
    return ["What the agents printed is kept:", *_steps(steps, width, color)]


def _branches(outcome: Outcome, width: int, color: bool) -> list[str]:
    """Which branches have something to merge, and where work lies that nobody has committed."""
    from dibs.pool.worktrees import GitError, git

    steps, mixed, loose, gone = [], [], [], []
    trees = [result for result in outcome.results if result.branch and result.worktree]
    for result in trees:
        branch, tree = result.branch or "", result.worktree or ""
        try:
            commits = int(git(outcome.workspace, "rev-list", "--count", f"HEAD..{branch}"))
            merge = (f"git merge {quoted(branch)}", number(commits, "commit"))
            if commits and result.unfinished:
                mixed += [
                    (f"git log -p HEAD..{quoted(branch)}", "not finished: " + ", ".join(result.unfinished)),
                    merge,
                ]
            elif commits:
                steps.append(merge)
            if not os.path.isdir(tree):
                gone.append(("git worktree list", safe(result.agent)))
                continue
            head = git(tree, "rev-parse", "HEAD")
            beside = int(git(outcome.workspace, "rev-list", "--count", head, "--not", "HEAD", branch))
            if beside:  # it has left its branch
                steps.append((f"git merge {head[:12]}", f"{number(beside, 'commit')} beside {safe(branch)}"))
            if git(tree, "status", "--porcelain", "--untracked-files=all"):
                loose.append((f"git -C {quoted(_short(tree))} status -uall", safe(result.agent)))
        except (GitError, OSError, ValueError):
            loose.append(("git worktree list", f"{safe(result.agent)}: its branch {safe(branch)} could not be read"))
    found = []
    if steps:
        found += ["Work that is on branches; merge it, one after the other, into the branch that you are on:"]
        found += _steps(steps, width, color)
    if mixed:
        found += [
            "Branches on which there may be work on tasks that their agent did not finish; look before you merge:"
        ]
        found += _steps(mixed, width, color)
    if loose:
        found += ["Changes that their agent has not committed:", *_steps(loose, width, color)]
    if gone:
        found += ["Worktrees that are gone, with what was not committed there; branches stay:"]
        found += _steps(gone, width, color)
    if trees and not any((steps, mixed, loose, gone)):
        found.append("Everything that the agents committed is merged.")
    return [line for text in found for line in ([text] if text.startswith("  ") else wrap(text, width, ""))]


def _steps(steps: Sequence[tuple[str, str]], width: int, color: bool) -> list[str]:
    """Commands, never cut, and what each is good for, if there is room to say it; a line can be pasted whole."""
    first = max((len(command) for command, _ in steps if len(command) <= width // 2), default=0)
    found = []
    for command, why in steps:
        line = f"  {command:<{first}}  "
        fits = why and len(line) + cells(why) + 2 <= width
        found.append(line + paint(f"# {why}", DIM, color) if fits else f"  {command}")
    return found


def _length(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 10 else span(seconds)


def _short(path: str) -> str:
    """A path from here, if it is below."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if relative.startswith("..") else relative
