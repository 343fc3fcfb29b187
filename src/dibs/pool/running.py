"""A run: which agents live when, and when it is over.

What both kinds have in common (`Run`): the changelog is followed, so that every change of the board wakes the loop and
every completed task is known by the agent that did it; leases are kept for as long as processes live; at the end,
whatever the end is, no process is left and everything that agents held is given back.

A team (`TeamRun`) has at most one lead, which is started once, and workers, which are started when there is work for
them: as many as there are tasks to claim or in work, never more than the pool has. A worker that ended is started
again while there is work. A start that closed no task is a failure; too many in a row, and the worker is given up.
The run is over when the lead has ended, and the board is done, or can't go on, or nobody is left to go on with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dibs.errors import Busy, DibsError, NoBoard
from dibs.model import IN_PROGRESS, Event
from dibs.pool.agents import RESTARTING, RUNNING, WAITING, Agent
from dibs.pool.pool import AgentPool
from dibs.pool.results import COMPLETED, DONE, GAVE_UP, STUCK, Results
from dibs.pool.standing import Standing, has_moved, kept_by_others, look, why_stuck, workers_of
from dibs.rules.tasks import LEASES

PULSE = 1.0
"""Seconds after which the loop looks even if nothing happened: leases run out, and processes die, in silence."""
SWEEP = 5.0
"""Seconds between two looks for what dead workers left, while nothing else can be done."""
SLICE = 0.2
"""Seconds after which a wait notices that the run is over."""
AWAY = 600.0
"""Seconds that a board may be out of reach, while agents work on, before the run is given up."""
FAREWELL = 30.0
"""Seconds that a board may take for each of its last answers, when the work is over."""
GAP = 0.1
"""Seconds between two looks at the board, at least."""
PATIENCE = 5.0
LONGEST_PAUSE = 60.0

_CLOSING = ("completed_activity", "submitted_activity", "failed_activity")
_DOING = ("completed_activity", "submitted_activity")


class Run:
    kind = ""

    def __init__(self, pool: AgentPool, agents: Sequence[Agent]) -> None:
        self.pool = pool
        self.board = pool.board
        self.agents = list(agents)
        self._by_name = {agent.name: agent for agent in self.agents}
        self._sessions: dict[str, str | None] = {}
        """Task to the session that claimed it last, since the run began."""
        self._wake = asyncio.Event()
        self._lives: dict[asyncio.Task[None], Agent] = {}
        self._seen = 0
        self._is_over = False
        self._descriptions: dict[str, str] = {}
        self._away_since: float | None = None
        self._cost = 0.0
        """Seconds that the last look at the board took: a large board is looked at less often."""

    async def play(self) -> Results:
        began = time.monotonic()
        pool = self.pool
        self._seen = await pool.call(self._last_event)
        pool.tell(
            "run_started", None, f"{self.kind} of {len(self.agents)} on {self.board.url}",
            board=self.board.url, folder=pool.folder, agents=[agent.name for agent in self.agents], mode=pool.mode,
        )  # fmt: skip
        chores = [asyncio.create_task(chore) for chore in (self._follow(), self._keep(), self._tail())]
        try:
            while True:
                ending, why = await self.work()
                if not await self._go_home(ending):
                    continue
                await self._end_all(PATIENCE)
                if await self.is_over_now(ending):
                    break
        finally:
            try:
                await self._end_all(PATIENCE, is_stopped=True)
            finally:
                self._is_over = True
                for chore in chores:
                    chore.cancel()
                await asyncio.gather(*chores, return_exceptions=True)
                await pool.call(pool.tidy)
        try:
            async with asyncio.timeout(FAREWELL):
                await pool.pay()
                await self._news(0.0)
        except (DibsError, TimeoutError) as error:  # what has been done is done
            fault = error.message if isinstance(error, DibsError) else "it does not answer"
            pool.tell("board_away", None, f"the board cannot be read: {fault}")
        seconds = round(time.monotonic() - began, 3)
        results = Results([agent.result() for agent in self.agents if agent.run], ending, why, seconds)
        pool.tell("run_ended", None, f"{ending}: {why}", ending=ending, why=why, seconds=seconds)
        return results

    async def work(self) -> tuple[str, str]:
        """Until it is over; how it ended, and why."""
        raise NotImplementedError

    async def is_over_now(self, ending: str) -> bool:
        """Once more, when all have gone home: nobody has added work on the way?"""
        return True

    def start(self, agent: Agent, prompt: Callable[[], str]) -> None:
        agent.become(RUNNING)
        life = asyncio.create_task(agent.live(self.pool, prompt))
        self._lives[life] = agent
        life.add_done_callback(lambda _: self._wake.set())

    def collect(self) -> list[Agent]:
        """Agents whose start has ended since the last call. What went wrong inside the pool is raised here."""
        over = {life: self._lives.pop(life) for life in list(self._lives) if life.done()}
        for life in over:
            life.result()
        return list(over.values())

    async def pause(self, seconds: float) -> None:
        """Until something happens, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
            await asyncio.sleep(max(GAP, 4 * self._cost))  # what comes in bursts is looked at once
        except TimeoutError:
            pass
        self._wake.clear()

    def bear(self, error: DibsError) -> None:
        """The board cannot be reached, or is busy: agents that work need not know. But not for ever."""
        now = time.monotonic()
        if isinstance(error, NoBoard) and not self._lives:
            raise error  # somebody has removed it, and nobody is left who could need it
        if self._away_since is None:
            self._away_since = now
            self.pool.tell("board_away", None, f"the board cannot be read; trying again: {error.message}")
        elif now - self._away_since > AWAY:
            raise error

    # -- the end

    async def _go_home(self, ending: str) -> bool:
        """The work is over: agents that are told so by their servers end by themselves, in the time that they have for
        it. False if there is work again: somebody has added some."""
        self.pool.post(over=True)
        end = time.monotonic() + self.pool.grace
        while (there := [life for life in self._lives if not life.done()]) and (left := end - time.monotonic()) > 0:
            await asyncio.wait(there, timeout=min(left, PULSE))
            if not await self.is_over_now(ending):
                for agent in self.collect():
                    agent.become(WAITING)  # it went when it was told to
                return False
        return True

    async def _end_all(self, grace: float, *, is_stopped: bool = False) -> None:
        """Nothing is left when this returns. Another cancellation meanwhile kills what is still there at once."""
        self.pool.post(over=True)
        for agent in self._lives.values():
            agent.end(grace, is_stopped=is_stopped)
        interrupting = None
        if any(agent.is_placing for agent in self._lives.values()):
            interrupting = asyncio.create_task(self.pool.call(self.pool.interrupt))  # not ours to be cancelled with
        failure: BaseException | None = None
        while self._lives:
            try:
                await asyncio.wait(self._lives)
                self.collect()
            except BaseException as error:
                failure = error
                for agent in self._lives.values():
                    agent.kill_all()
        if interrupting is not None:
            await interrupting
        if failure is not None:
            raise failure

    # -- chores

    def _last_event(self) -> int:
        with self.board.store.read() as tx:
            return tx.last_event()

    async def _follow(self) -> None:
        while True:
            try:
                await self._news(PULSE)
            except DibsError:
                await asyncio.sleep(PULSE)  # busy, or away for a moment

    async def _news(self, patience: float) -> None:
        for event in await self.pool.call(self._next_events, patience):
            if event.seq > self._seen:  # not told meanwhile by another call of this
                self._seen = event.seq
                self._note(event)
                self._wake.set()

    def _next_events(self, patience: float) -> list[Event]:
        store = self.board.store
        mark = store.mark_change()
        found = list(self.board.changelog(self._seen))
        end = time.monotonic() + patience
        while not found and not self._is_over and (left := end - time.monotonic()) > 0:
            if store.wait_change(mark, min(left, SLICE)):
                mark = store.mark_change()
                found = list(self.board.changelog(self._seen))
        self._learn(found)
        return found

    def _learn(self, events: Sequence[Event]) -> None:
        """What the tasks of these events are about; here, because asking the board may take its time."""
        ids = {e.task_id for e in events if e.action == "claimed_activity" and e.task_id not in self._descriptions}
        for event in events:
            if event.task_id is not None and event.data and "task" in event.data:
                self._descriptions[event.task_id] = event.data["task"].get("description", "")
        if ids := ids - self._descriptions.keys():
            with self.board.store.read() as tx:
                self._descriptions |= {task.id: task.description for task in tx.get([i for i in ids if i]).values()}

    def _note(self, event: Event) -> None:
        """Who did what; passed on to whoever listens."""
        task, agent = event.task_id, self._by_name.get(event.worker)
        if task is not None and event.action == "claimed_activity":
            holder = (event.data or {}).get("set", {}).get("holder") or {}
            self._sessions[task] = holder.get("session") if isinstance(holder, dict) else None
        if agent is not None and task is not None and self._is_of(agent, task):
            if event.action == "claimed_activity":
                agent.begun[task] = None
            agent.done_in_run += event.action in _CLOSING
            if event.action in _DOING and task not in agent.tasks:
                agent.tasks.append(task)
        told: dict[str, Any] = {"seq": event.seq, "action": event.action, "task_id": task, "worker": event.worker}
        if task in self._descriptions and event.action in ("claimed_activity", "added_activity"):
            told["description"] = self._descriptions[task]
        if event.action == "sent_message":
            told["to"] = (event.data or {}).get("to")
        text = " ".join(str(part) for part in (event.worker, event.action, task, event.details) if part)
        self.pool.tell("board", None if agent is None else agent.name, text, **told, details=event.details)

    def _is_of(self, agent: Agent, task: str) -> bool:
        """Another team on this board may have an agent of the same name. What was claimed before the run is not ours;
        files of other tools do not say in which session a claim was made."""
        return task in self._sessions and self._sessions[task] in (None, agent.session)

    async def _keep(self) -> None:
        """Keep the leases of whoever lives, also of agents that claim by commands and have no server to do it."""
        lease = self.pool.stale_timeout or LEASES["agent"]
        while True:
            await asyncio.sleep(min(15.0, lease / 6))
            try:
                await self._keep_all()
            except DibsError:
                pass  # busy: there is time for another try

    async def _keep_all(self) -> None:
        sessions = [agent.session for agent in self.agents if agent.is_running]
        for worker in await self.pool.call(workers_of, self.board, sessions):
            await self.pool.call(self.board.keep, worker)

    async def _tail(self) -> None:
        while self.pool.tails is not None:
            await asyncio.sleep(0.3)
            for name, line in await self.pool.call(self.pool.tails.fresh):
                self.pool.tell("output", name, line)


class ParallelRun(Run):
    kind = "a queue"

    def __init__(self, pool: AgentPool, work: Sequence[tuple[Agent, str]]) -> None:
        super().__init__(pool, [agent for agent, _ in work])
        self._todo = list(work)

    async def work(self) -> tuple[str, str]:
        self.pool.post()
        while self._todo or self._lives:
            while self._todo and len(self._lives) < self.pool.max_agents:
                agent, prompt = self._todo.pop(0)
                self.start(agent, partial(str, prompt))
            await self.pause(PULSE)
            self.collect()
        bad = [agent.name for agent in self.agents if agent.status != COMPLETED]
        if bad:
            return GAVE_UP, f"{len(bad)} of {len(self.agents)} agents did not complete: {', '.join(bad[:5])}"
        return DONE, f"all {len(self.agents)} agents have completed"


class TeamRun(Run):
    kind = "a team"

    def __init__(self, pool: AgentPool, lead: Agent | None, lead_prompt: str, workers: Sequence[Agent]) -> None:
        super().__init__(pool, [*([lead] if lead else []), *workers])
        self.lead = lead
        self.workers = list(workers)
        self._lead_prompt = lead_prompt
        self._retried_at = -1
        self._waited_for: list[str] = []
        self._still: tuple[object, float] = (None, 0.0)
        """How the board stood when nothing could go on, and since when."""
        self._swept = 0.0

    async def work(self) -> tuple[str, str]:
        self.pool.post(planning=self.lead is not None and not self.lead.run)
        if self.lead is not None and not self.lead.run:
            self.start(self.lead, lambda: self._lead_prompt)
        ended: list[Agent] = []
        was_silent = False
        while True:
            ended += self.collect()
            over = None
            try:
                async with asyncio.timeout(min(AWAY, FAREWELL) if was_silent else AWAY):
                    over = await self._turn(ended)
                self._away_since, was_silent = None, False
            except DibsError as error:
                was_silent = False
                self.bear(error)
            except TimeoutError:
                # It may be that not the board stood still, but we: after a Ctrl-Z. So it is asked once more.
                if was_silent:
                    raise Busy(f"the board has not answered for {AWAY:g} s", hint="is its server frozen?") from None
                was_silent = True
            if over is not None:
                return over
            await self.pause(PULSE)

    async def is_over_now(self, ending: str) -> bool:
        if ending not in (DONE, STUCK) or all(agent.is_given_up for agent in self.workers):
            return True
        self.pool.resume()
        try:
            async with asyncio.timeout(FAREWELL):
                standing: Standing = await self.pool.call(look, self.board, self._names())
        except (DibsError, TimeoutError):
            return True  # out of reach; it was over a moment ago
        if ending == STUCK:
            return not standing.ready and len(standing.claims) <= standing.above and not standing.is_finished
        return standing.is_finished

    async def _turn(self, ended: list[Agent]) -> tuple[str, str] | None:
        """Look, and act on it; how the run has ended, if it has. Who has `ended` is judged, and taken off the list."""
        if ended:
            await self._news(0.0)  # what they did last counts
        while ended:
            self._judge(ended.pop())
        standing = await self._look()
        self._start_workers(standing)
        if standing.open and all(agent.is_given_up and not agent.is_running for agent in self.workers):
            return self._abandoned(standing)  # a lead that waits for them would wait for ever
        return None if self.lead is not None and self.lead.is_running else await self._over(standing)

    async def _look(self) -> Standing:
        began = time.monotonic()
        standing: Standing = await self.pool.call(look, self.board, self._names())
        self._cost = min(1.0, time.monotonic() - began)
        await self.pool.pay()
        idle = not standing.ready and standing.counts[IN_PROGRESS]
        if idle and time.monotonic() - self._swept > SWEEP:
            self._swept = time.monotonic()
            await self._keep_all()  # we may have been stopped for a while, and they not
            if await self.pool.call(self.board.recover):
                standing = await self.pool.call(look, self.board, self._names())
        return standing

    def _names(self) -> dict[str, str]:
        return {agent.name: agent.session for agent in self.agents}

    # -- workers

    def _start_workers(self, standing: Standing) -> None:
        # One that has ended a moment ago, and is not judged yet, still counts.
        alive = set(self._lives.values())
        running = [agent for agent in self.workers if agent in alive]
        busy = sum(bool(standing.holding[agent.name]) for agent in running)
        wanted = min(len(self.workers), busy + standing.ready) - len(running)
        now = time.monotonic()
        for agent in self.workers:
            if wanted > 0 and agent not in alive and not agent.is_given_up and agent.not_before <= now:
                self.start(agent, partial(self.pool.prompt, agent))
                wanted -= 1

    def _judge(self, agent: Agent) -> None:
        """A start is over: will there be another?"""
        if agent is self.lead:
            self.pool.post(planning=False)
            return
        if agent.done_in_run:
            agent.failures = 0
        else:
            agent.failures += 1
        if agent.failures > self.pool.restarts:
            agent.is_given_up = True
            why = agent.error or "it ends without finishing a task"
            times = f"{agent.failures} starts" if agent.failures > 1 else "one start"
            self.pool.tell("agent_gave_up", agent.name, f"{agent.name} is given up after {times}: {why}", why=why)
        elif agent.failures:
            wait = min(LONGEST_PAUSE, 2.0 ** (agent.failures - 1))
            agent.not_before = time.monotonic() + wait
            agent.become(RESTARTING)
            why = agent.error or "it has ended without finishing a task"
            text = f"{agent.name} is started again in {wait:g} s, if there is work: {why}"
            self.pool.tell("agent_restarts", agent.name, text, run=agent.run + 1, after=wait, why=why)
        else:
            agent.become(WAITING)

    # -- is it over?

    async def _over(self, standing: Standing) -> tuple[str, str] | None:
        if standing.is_finished:
            return self._finished(standing)
        if standing.ready or len(standing.claims) > standing.above:
            if standing.others and not standing.ready and not any(standing.holding.values()):
                self._say_waiting([f"{task.id} (held by {task.assigned_to})" for task in standing.others])
            return None
        if standing.counts[IN_PROGRESS] > len(standing.claims):
            return None  # a claim that has run out: the next look gives it back
        if kept := await self.pool.call(kept_by_others, self.board, self._names()):
            self._say_waiting(kept)
            return None
        if await self.pool.call(has_moved, self.board, standing):
            return None
        if any(agent.is_running for agent in self.workers) and not self._stands_still(standing):
            return None  # whoever runs may be about to add a task, to let files go, or to commit
        if self._retried_at != standing.open and any(agent.is_running for agent in self.workers):
            # Files that our own idle workers keep may be all that is in the way: end them, and look again.
            self._retried_at = standing.open
            await self._end_workers()
            return None
        return STUCK, await self.pool.call(why_stuck, self.board)

    def _stands_still(self, standing: Standing) -> bool:
        """Has nothing changed for as long as agents have to end by themselves?"""
        now = time.monotonic()
        state = (standing.counts, [(lock.pattern, lock.token) for lock in standing.locks])
        if state != self._still[0]:
            self._still = (state, now)
        return now - self._still[1] >= self.pool.grace

    def _say_waiting(self, held: list[str]) -> None:
        """Nobody of the team has anything to do until somebody else has finished."""
        if held != self._waited_for:
            self._waited_for = held
            more = f" and {len(held) - 3} more" if len(held) > 3 else ""
            self.pool.tell("waiting", None, f"waits for others to finish {', '.join(held[:3])}{more}")

    async def _end_workers(self) -> None:
        for agent in self.workers:
            agent.end(PATIENCE)
        while self._lives:
            await asyncio.wait(self._lives)
            for agent in self.collect():
                agent.become(WAITING)
        self._wake.set()

    def _finished(self, standing: Standing) -> tuple[str, str]:
        failed = standing.total - standing.completed
        if not standing.total and self.lead is not None and self.lead.status != COMPLETED:
            return GAVE_UP, f"the lead ended before it had added a task: {self.lead.error or self.lead.status}"
        if not standing.total:
            return DONE, "the board has no tasks"
        closed = (
            f"all {standing.total} tasks of the board are closed" if standing.total > 1 else "its one task is closed"
        )
        return DONE, f"{closed}, {failed} of them failed or cancelled" if failed else closed

    def _abandoned(self, standing: Standing) -> tuple[str, str]:
        errors = _last_errors(self.workers)
        are = "task is" if standing.open == 1 else "tasks are"
        return GAVE_UP, f"{standing.open} {are} open, and every worker has been given up: {errors}"


def _last_errors(agents: Iterable[Agent]) -> str:
    return "; ".join(dict.fromkeys(f"{a.error or 'ended without finishing a task'}" for a in agents if a.run))[:500]
