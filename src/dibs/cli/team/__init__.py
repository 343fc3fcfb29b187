"""`dibs team`: a lead and workers, real agent commands, share the board until it is done; shown while they work.

The work is `dibs.pool`'s. Here: reading the command line, a view (`screen` on terminals, `lines` elsewhere, `jsonlines`
under --json; each is told every event and asked to show itself four times a second), signals, and the `summary`.

The first Ctrl-C, SIGTERM or SIGHUP ends the team in order, a second one at once. A reader of our output that goes away
(`| head`) ends it in order, too. If this process is killed, the agents are ended by their wardens and the board gives
back what they held.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys

from dibs.cli.args import UsageError
from dibs.cli.render import number, one_line, safe
from dibs.cli.team.output import Output
from dibs.cli.team.scene import Watcher
from dibs.cli.team.summary import Outcome, failed_tasks, gather, report
from dibs.errors import DibsError, Duplicate, NoBoard, quoted
from dibs.jsontext import dumps
from dibs.model import IN_PROGRESS, OPEN
from dibs.pool.results import STOPPED, STUCK
from dibs.times import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.taskfile import Entry
    from dibs.model import TaskStatus
    from dibs.pool import PoolEvent, Results
    from dibs.pool.pool import AgentPool

    class View(Protocol):
        gap: str
        """What stands between it and the summary."""

        def event(self, event: PoolEvent) -> None: ...

        def tick(self) -> None: ...

        def remark(self, text: str) -> None: ...

        def pause(self) -> None: ...

        def end(self) -> None: ...


OK, REFUSED, NOTHING = 0, 1, 3
NOTHING_TO_DO, BOARD_LOST = "nothing to do", "board lost"
"""Endings that a pool does not know: it did not even begin, or could not tell how it ended."""
AGENTS = 4
MOST = 64
TICK = 0.25
PATIENCE = 5.0
"""Seconds for the board to say how things stand in the end."""
WIDEST = 120
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def team(ctx: Context, args: Args) -> int:
    options = _options(ctx, args)
    lead = _text(ctx, "--lead", args.lead)
    options["board"] = _board(ctx, args)
    tasks = None
    if args.tasks is not None:
        from dibs.cli.taskfile import read

        tasks = read(args.tasks)  # before anything is made or started
    if lead is None and args.tasks is None:
        why = _cannot_begin(ctx.board)
        if why is not None:
            return _say_why(ctx, why)
    ctx.close()  # the pool opens it for itself
    show = Show(ctx, options, lead, None if tasks is None else (args.tasks, tasks))
    try:
        return asyncio.run(show.play())
    except CannotBegin as why:
        return _say_why(ctx, why)
    finally:
        show.out.close()


class CannotBegin(Exception):
    """Why a team need not begin."""

    def __init__(self, ending: str, why: str, counts: Mapping[TaskStatus, int]) -> None:
        super().__init__(why)
        self.ending = ending
        self.counts = counts


# -- the command line


def _options(ctx: Context, args: Args) -> dict[str, Any]:
    """What the pool is told."""
    agents = AGENTS if args.agents is None else args.agents
    if not 1 <= agents <= MOST:
        raise UsageError(f"team: --agents is a number from 1 to {MOST}")
    if args.restarts is not None and not 0 <= args.restarts <= 1000:
        raise UsageError("team: --restarts is a number from 0 to 1,000")
    for name, length in (("--timeout", args.timeout), ("--stale-timeout", args.stale_timeout)):
        if length is not None and length <= 0:
            raise UsageError(f"team: {name} must be more than nothing", "examples: 90s, 30m, 2h")
    if args.lead_agent is not None and args.lead is None:
        raise UsageError("team: --lead-agent is there without a lead", "what is the lead to do? --lead 'what to do'")
    given = {
        "agent": args.agent,
        "lead_agent": args.lead_agent,
        "model": args.model,
        "agent_args": tuple(args.agent_arg) or None,
        "worker_prompt": _text(ctx, "--worker-prompt", args.worker_prompt),
        "timeout": args.timeout,
        "stale_timeout": args.stale_timeout,
        "restarts": args.restarts,
        "name": args.name,
    }
    told: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return {**told, "max_agents": agents, "worktrees": args.worktrees, "tail": args.tail}


def _text(ctx: Context, option: str, value: str | None) -> str | None:
    """A prompt: as it is, or from a file (@FILE), or from stdin (-)."""
    if value is None:
        return None
    if value[:1] == "@":
        try:
            with open(value[1:], encoding="utf-8") as file:
                value = file.read()
        except UnicodeDecodeError:
            raise UsageError(f"team: {option}: {value[1:]} is not UTF-8 text") from None
        except OSError as error:
            raise UsageError(f"team: {option}: {value[1:]}: {error.strerror}") from None
    elif value == "-":
        value = ctx.text(["-"])
    if not value.strip():
        raise UsageError(f"team: {option} is empty")
    return value


def _board(ctx: Context, args: Args) -> str | None:
    """The board's address for the pool. It makes one where there is none, if we bring it something to do."""
    try:
        return ctx.handed_on
    except NoBoard:
        if args.lead is None and args.tasks is None:
            raise
        return ctx.url


def _key(entries: list[Entry]) -> str:
    """By which the board knows these tasks again."""
    from hashlib import sha256

    return "team " + sha256(dumps([fields for _, fields in entries]).encode()).hexdigest()[:32]


def _cannot_begin(board: TaskBoard) -> CannotBegin | None:
    """Why a team without a lead could not even begin here; None if it can."""
    counts = board.counts()
    if not any(counts[status] for status in OPEN):
        return CannotBegin(NOTHING_TO_DO, "there is nothing to do: the board has no open task", counts)
    from dibs.pool.standing import kept_by_others, why_stuck

    if counts[IN_PROGRESS] or board.ready(limit=1) or kept_by_others(board, {}):
        return None
    return CannotBegin(STUCK, f"nothing can be claimed: {why_stuck(board)}", counts)


def _say_why(ctx: Context, why: CannotBegin) -> int:
    if ctx.json:
        counts = {str(status): count for status, count in why.counts.items()}
        ctx.emit({
            "kind": "summary", "ending": why.ending, "why": str(why), "seconds": 0.0, "counts": counts, "folder": "",
            "results": [],
        })  # fmt: skip
    else:
        ctx.note(f"dibs: {one_line(str(why))}")
        if why.ending == STUCK:
            ctx.note("  all of them, and what each waits for: dibs list, dibs show ID")
        else:
            ctx.note("  see what is there: dibs list --all; add a task: dibs add 'what to do';")
            ctx.note("  let a lead plan: dibs team --lead 'what to do'")
    return NOTHING if why.ending == NOTHING_TO_DO else REFUSED


# -- a run


class Show:
    """A run of the pool, with a view of it."""

    def __init__(
        self, ctx: Context, options: dict[str, Any], lead: str | None, tasks: tuple[str, list[Entry]] | None
    ) -> None:
        self._ctx = ctx
        self._options = options
        self._lead = lead
        self._tasks = tasks
        """A file's name, and what it holds."""
        self.out = Output(sys.stdout)
        workers = number(options["max_agents"], "worker")
        self._watcher = Watcher(f"dibs team: {workers}" + (" and a lead" if lead is not None else ""))
        self._view = self._choose()
        self._pool: AgentPool | None = None
        self._main: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[Results] | None = None
        self._stops: list[str] = []
        """Why it is to stop: names of signals, or `output`."""

    def _choose(self) -> View:
        if self._ctx.json:
            from dibs.cli.team.jsonlines import JsonLines

            return JsonLines(self._ctx, self.out)
        if sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            from dibs.cli.team.screen import Screen

            return Screen(self.out, self._watcher, self._ctx.color, sys.stdout.fileno())
        from dibs.cli.team.lines import Lines

        return Lines(self._ctx, self.out, self._watcher)

    async def play(self) -> int:
        self._main = asyncio.current_task()
        handled = self._listen()
        try:
            outcome = await self._run()
        except asyncio.CancelledError:
            if not self._stops:
                raise
            outcome = None  # stopped before there was a pool
        finally:
            for number_ in handled:
                asyncio.get_running_loop().remove_signal_handler(number_)
            self._view.end()
        if outcome is not None:
            self._summarise(outcome)
        return self._code(outcome)

    async def _run(self) -> Outcome:
        from dibs.pool.pool import AgentPool
        from dibs.pool.threads import in_thread

        async with AgentPool(on_event=self._view.event, **self._options) as pool:
            self._pool = pool
            self._watcher.title += f", {safe(pool.runner.name)}"
            self._add_tasks(pool)
            failed = await pool.call(failed_tasks, pool.board)
            self._watcher.pool = pool
            self._task = run = asyncio.create_task(pool.run_team(lead_prompt=self._lead))
            try:
                while not run.done():
                    self._view.tick()
                    self._look_at_output()
                    await asyncio.wait({run}, timeout=TICK)
            finally:
                if not run.done():  # something is wrong with us: that is no reason to leave agents behind
                    run.cancel()
                    await asyncio.wait({run})
                self._watcher.pool = None
            outcome = self._ended(run)
            try:
                await in_thread(gather, outcome, pool, failed, within=PATIENCE)
            except TimeoutError:
                outcome.why += " (the board does not answer now)"
            except (DibsError, OSError) as error:
                outcome.why += f" (the board cannot be read now: {one_line(str(error))})"
            if self._ctx.url:  # as it was given, unless there may be a password in it
                url = pool.board.url if pool.board.url.startswith("postgresql:") else self._ctx.url
                outcome.call = f"dibs --board {quoted(url)}"
            return outcome

    def _add_tasks(self, pool: AgentPool) -> None:
        """Add what the file holds, once: the same command given again goes on with what it began."""
        if self._tasks is None:
            return
        from dibs.cli.taskfile import add_entries

        name, entries = self._tasks
        began = pool.board.now()
        try:
            ids = add_entries(pool.board, name, entries, self._ctx.worker, _key(entries))
        except Duplicate as error:
            error.hint = "to go on with what is on the board, leave --tasks out"
            raise
        age = began - pool.board.get(ids[0]).created_at
        if age > 0:
            known = f"{'these tasks' if name == '-' else 'the tasks of ' + safe(name)} were added {span(age)} ago"
            if self._lead is None and (why := _cannot_begin(pool.board)) is not None:
                raise CannotBegin(why.ending, f"{known}; {why}", why.counts)
            self._view.remark(f"{known}: going on with them")

    def _ended(self, run: asyncio.Task[Results]) -> Outcome:
        if run.cancelled():
            assert self._pool is not None
            results = [agent.result() for agent in self._pool.agents if agent.run]
            return Outcome(STOPPED, self._why_stopped(), self._watcher.seconds, results)
        if isinstance(error := run.exception(), DibsError) and self._pool and any(a.run for a in self._pool.agents):
            results = [agent.result() for agent in self._pool.agents if agent.run]
            return Outcome(BOARD_LOST, error.message, self._watcher.seconds, results)
        results = run.result()
        return Outcome(results.ending, results.why, results.seconds, results)

    # -- being stopped

    def _listen(self) -> list[int]:
        loop = asyncio.get_running_loop()
        handled: list[int] = []
        for name in (*SIGNALS, "SIGTSTP"):
            number_ = getattr(signal, name, None)
            # Whoever started us with a signal ignored (nohup, a background job of a script) meant that.
            if number_ is None or signal.getsignal(number_) is signal.SIG_IGN:
                continue
            try:
                if name == "SIGTSTP":
                    loop.add_signal_handler(number_, self._suspend)
                else:
                    loop.add_signal_handler(number_, self._stop, name)
            except (NotImplementedError, RuntimeError):
                return handled  # no such thing on this system; Ctrl-C then cancels everything, in asyncio's own way
            handled.append(number_)
        return handled

    def _stop(self, why: str) -> None:
        self._stops.append(why)
        if len(self._stops) > 2:
            self._view.pause()
            os._exit(self._code(None))  # the wardens end what is left
        if self._pool is None or self._task is None:
            assert self._main is not None
            self._main.cancel()
            return
        self._pool.stop() if self._pool.agents else self._task.cancel()
        running = number(sum(agent.state == "running" for agent in self._pool.agents), "agent")
        if len(self._stops) == 1:
            self._view.remark(f"stopping {running} (what was begun is given back; again: at once)")
        else:
            self._view.remark(f"killing {running}")

    def _why_stopped(self) -> str:
        first = self._stops[0] if self._stops else "SIGINT"
        by = {"SIGINT": "by Ctrl-C", "output": "because nobody reads its output any more"}.get(first, f"by {first}")
        is_owed = self._pool is not None and self._pool.is_in_debt
        return (
            f"it was stopped {by}; what the agents held {'comes back by itself' if is_owed else 'is free for others'}"
        )

    def _suspend(self) -> None:
        """Ctrl-Z: the terminal is the shell's while we are stopped. The agents work on."""
        self._view.pause()
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)  # by the default, which does nothing where no shell could continue us
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)

    def _look_at_output(self) -> None:
        """Nobody there who reads what we print: then nobody wants it to go on."""
        if "output" in self._stops:
            return
        failure = self.out.failure
        if failure is not None and failure.errno == errno.EIO and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            return  # the terminal has gone, and somebody (nohup, disown) said that we should not care
        if failure is not None or self.out.reader_has_gone():
            self._stop("output")

    # -- the end

    def _summarise(self, outcome: Outcome) -> None:
        if self._ctx.json:
            from dibs.cli.team.jsonlines import JsonLines

            assert isinstance(self._view, JsonLines)
            self._view.document(outcome.as_dict())
            return
        said = report(outcome, min(WIDEST, self._ctx.width), self._ctx.color)
        self.out.put(self._view.gap + "\n".join(said) + "\n")

    def _code(self, outcome: Outcome | None) -> int:
        stops = [name for name in self._stops if name != "output"]
        if stops:
            return 128 + int(getattr(signal, stops[0]))
        if "output" in self._stops:
            if isinstance(self.out.failure, BrokenPipeError) or self.out.failure is None:
                raise BrokenPipeError
            from dibs.cli.context import OutputLost

            raise OutputLost(self.out.failure.strerror or str(self.out.failure))
        return OK if outcome is not None and outcome.is_good else REFUSED
