"""TaskBoard: each verb opens a transaction, fetches the rows that a rule needs, calls the rule, saves, appends the events.

This module has opening, adding, claiming and ending a claim; its bases have the rest: `deciding` (what people and leads decide, dependencies,
steps), `locking` (files), `talking` (messages, changelog), `looking` (everything that only reads).

A verb either returns after its transaction is as durable as the store promises, or raises and has changed nothing (the one exception is
`OutcomeUnknown`, which says so). A crash in the middle of a verb leaves the board as it was before the verb.

Who acts: verbs take a worker as a `Worker`, or as a name, which then means a worker that lives as long as this process. A board remembers the
tokens of the claims that were made through it, so document 004's `complete(task_id)` is fenced without saying a token.
"""

from __future__ import annotations

import os

from dibs import holds, limits, rules
from dibs.deciding import Deciding
from dibs.errors import DependencyCycle, Duplicate, Invalid, NotFound, Unsupported
from dibs.jsontext import dumps, loads
from dibs.locking import Locking
from dibs.looking import Looking
from dibs.model import COMPLETED, FAILED, IN_PROGRESS, REVIEW, BoardTask, Event, Worker
from dibs.talking import Talking
from dibs.worker import boot, from_environment, is_dead, of_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Any, Self, overload

    from dibs.clock import Clock
    from dibs.model import Lock
    from dibs.store import Store, Tx

SWEEP = 1000
"""Expired claims given back by one transaction at most."""
REAP_EVERY = 1.0
"""Seconds between two looks, by one process, for holders whose process has died. A claim that finds nothing always looks."""


class TaskBoard(Deciding, Locking, Talking, Looking):
    def __init__(
        self,
        state_dir: str | PathLike[str] | None = None,
        stale_timeout: float | None = None,
        *,
        worker: Worker | str | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        if state_dir is not None:
            raise Unsupported(
                "boards in document 004's files (state_dir) are not built yet",
                hint='use TaskBoard.open("sqlite:PATH", create=True)',
            )
        if store is None:
            from dibs.stores.memory import MemoryStore

            store = MemoryStore(clock)
        self._store = store
        self._lease = None if stale_timeout is None else limits.seconds(stale_timeout, "stale_timeout")
        self._known: dict[tuple[int, str], Worker] = {}
        self._tokens: dict[str, int] = {}
        self._renewed: dict[tuple[str, str | None], float] = {}
        self._reaped = float("-inf")
        self._default = self._who(worker)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        create: bool = False,
        worker: Worker | str | None = None,
        stale_timeout: float | None = None,
        durability: str = "full",
        clock: Clock | None = None,
    ) -> TaskBoard:
        """The board at a URL (`sqlite:PATH`, a path, `memory:`), or the one that belongs to the working directory."""
        from dibs.address import open_store

        store = open_store(url, create=create, durability=durability, clock=clock)
        try:
            board = cls(stale_timeout=stale_timeout, worker=worker, store=store)
            if create:
                board._begin_changelog()
            return board
        except BaseException:
            store.close()
            raise

    def _begin_changelog(self) -> None:
        with self._store.write() as tx:
            if tx.last_event() == 0:
                tx.append([rules.event("work_item_created", self._actor(), None, "board created")])

    @property
    def url(self) -> str:
        return self._store.url

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- who

    def _who(self, worker: Worker | str | None) -> Worker | None:
        if worker is None or isinstance(worker, Worker):
            return worker
        known = self._known.get((os.getpid(), worker))
        if known is None:
            known = self._known[os.getpid(), worker] = of_process(limits.name(worker))
        return known

    def _actor(self, worker: Worker | str | None = None) -> Worker:
        """Whoever the changelog is to name: the given worker, the board's, or the one that the environment names."""
        who = self._who(worker) or self._default
        if who is None:
            who = self._default_actor = getattr(self, "_default_actor", None) or from_environment()
        return who

    # -- adding

    def add(
        self,
        description: str,
        depends_on: Sequence[str] | None = None,
        priority: int = 0,
        *,
        worker: Worker | str | None = None,
        request_key: str | None = None,
        **more: Any,
    ) -> str:
        """Add a task; its id. `more`: id, paths, labels, steps, parent, reserved, review, max_attempts."""
        fields: dict[str, Any] = {"description": description, **more}
        if depends_on is not None:
            fields["depends_on"] = depends_on
        if priority != 0:
            fields["priority"] = priority
        return self.add_many([fields], worker=worker, request_key=request_key)[0]

    def add_many(
        self,
        definitions: Sequence[Mapping[str, Any]],
        *,
        worker: Worker | str | None = None,
        request_key: str | None = None,
    ) -> list[str]:
        """Add tasks in one transaction, all or none; their ids. They may depend on each other by the ids that they bring."""
        path = self._pattern
        tasks = []
        for number, fields in enumerate(definitions, 1):
            try:
                tasks.append(limits.new_task(fields, path))
            except Invalid as error:
                if len(definitions) > 1:
                    error.message = f"task {number} of {len(definitions)}: {error.message}"
                raise
        if not tasks:
            return []
        who = self._actor(worker)
        with self._store.write() as tx:
            if request_key is not None and (answer := tx.recall(_key("add", request_key))) is not None:
                return list(loads(answer))
            _give_ids(tx, tasks)
            edges = _link(tx, tasks)
            events = [rules.add(task, who, tx.now) for task in tasks]
            tx.insert(tasks)
            tx.link(edges)
            tx.append(events)
            ids = [task.id for task in tasks]
            if request_key is not None:
                tx.remember(_key("add", request_key), dumps(ids))
        return ids

    # -- claiming

    if TYPE_CHECKING:

        @overload
        def claim(
            self,
            worker: Worker | str,
            task_id: str | None = None,
            *,
            lease: float | None = None,
            request_key: str | None = None,
            wait: float = 0,
        ) -> BoardTask | None: ...

        @overload
        def claim(
            self,
            worker: Worker | str,
            task_id: None = None,
            *,
            n: int,
            lease: float | None = None,
            request_key: str | None = None,
            wait: float = 0,
        ) -> list[BoardTask]: ...

    def claim(
        self,
        worker: Worker | str,
        task_id: str | None = None,
        *,
        n: int | None = None,
        lease: float | None = None,
        request_key: str | None = None,
        wait: float = 0,
    ) -> BoardTask | list[BoardTask] | None:
        """Claim the best available task, or the named one, or up to `n`. Nothing available: None (or an empty list).

        With `wait`, block up to that many seconds for something to become available. A named task that cannot be claimed raises
        `NotClaimable`, which says by what.
        """
        who = self._who(worker)
        if who is None:
            raise Invalid("a claim needs a worker", hint='board.claim("worker-1")')
        if n is not None:
            limits.integer(n, "n", 1, 10_000)
        if lease is not None:
            limits.seconds(lease, "lease")
        if task_id is not None:
            limits.task_id(task_id)

        def attempt() -> list[BoardTask]:
            with self._store.write() as tx:
                return self._claim(tx, who, task_id, n or 1, lease, request_key)

        taken = attempt()
        if not taken and wait > 0:
            taken = self._until(attempt, wait)
        for task in taken:
            self._hand_out(task)
        if n is not None:
            return taken
        return taken[0] if taken else None

    def _hand_out(self, task: BoardTask) -> None:
        task._board = self
        if task.token is not None:
            self._tokens[task.id] = task.token

    def _claim(
        self, tx: Tx, who: Worker, task_id: str | None, n: int, lease: float | None, request_key: str | None
    ) -> list[BoardTask]:
        if request_key is not None and (answer := tx.recall(_key("claim", request_key))) is not None:
            return self._claimed_before(tx, loads(answer))
        self._sweep(tx)
        self._keep_alive(tx, who)
        if task_id is not None:
            found = self._named(tx, who, task_id)
            if found.status is IN_PROGRESS:
                return [found]  # the same session asks again for what it holds
            taken = [self._take(tx, found, who, lease)]
        else:
            taken = [self._take(tx, task, who, lease) for task in self._available(tx, who, n, claiming=True)]
        if request_key is not None and taken:
            tx.remember(_key("claim", request_key), dumps([[task.id, task.token] for task in taken]))
        return taken

    def _take(self, tx: Tx, task: BoardTask, who: Worker, lease: float | None) -> BoardTask:
        length = rules.lease_length(who, lease, self._lease)
        token = tx.next_token()
        locks = holds.for_task(task, who, token, tx.now, length, self._worktree()) if task.paths else []
        event = rules.claim(task, who, token, tx.now, length, locks)
        tx.save([task])
        tx.save_locks(locks)
        tx.append([event])
        return task

    def _claimed_before(self, tx: Tx, answer: list[tuple[str, int]]) -> list[BoardTask]:
        tasks = tx.get([task_id for task_id, _ in answer])
        for task_id, token in answer:
            task = tasks[task_id]
            if task.token != token:
                raise rules.lost(task, tx.now)
        return list(tasks.values())

    def _named(self, tx: Tx, who: Worker, task_id: str) -> BoardTask:
        task = self._get(tx, task_id)
        if task.status is IN_PROGRESS and task.holder is not None and is_dead(task.holder):
            self._give_back(tx, [task], "the holder's process has died")
        if (
            task.status is IN_PROGRESS
            and task.holder
            and who.session
            and task.holder.session == who.session
            and task.holder.is_same(who)
        ):
            return task
        why = rules.reasons(task, tx.get(task.depends_on), self._path_conflicts(tx, task, who), who, tx.now)
        if why:
            raise rules.refuse_claim(task, why)
        return task

    def _path_conflicts(self, tx: Tx, task: BoardTask, who: Worker | None) -> list[Lock]:
        if not task.paths:
            return []
        return holds.conflicts(task.paths, False, tx.locks(task.paths), who, tx.now)

    def _available(self, tx: Tx, who: Worker, n: int, claiming: bool) -> Iterator[BoardTask]:
        """Up to `n` tasks that `who` could claim now, best first. When claiming, each is to be taken before the next is asked for."""
        reserved = rules.reserved_for(who.kind)
        given = 0
        for again in (False, True):
            after: BoardTask | None = None
            held: list[list[str]] = []
            size = n
            while given < n and (batch := tx.ready(reserved, size, after, held)):
                after = batch[-1]
                for task in batch:
                    if task.paths and self._path_conflicts(tx, task, who):
                        if task.paths not in held:
                            held.append(task.paths)
                        continue
                    given += 1
                    yield task
                    if given == n:
                        return
                if len(batch) < size:
                    break
                size = 64  # something was in the way: look at more at once
            # Nothing, or not enough: perhaps holders have died in the last second.
            if again or not claiming or not self._reap(tx):
                return

    # -- leases

    def _sweep(self, tx: Tx) -> None:
        """Give back what has expired, and, now and then, what dead processes held."""
        due = tx.due(SWEEP)
        if due:
            self._give_back(tx, due, "its lease ran out")
        if tx.now - self._reaped >= REAP_EVERY or tx.now < self._reaped:
            self._reap(tx)

    def _reap(self, tx: Tx) -> bool:
        """Give back the claims and locks whose holder's process is provably dead; were there any?"""
        self._reaped = tx.now
        here = boot()
        verdicts: dict[str, bool] = {}

        def dead(holder: Worker | None) -> bool:
            if holder is None or holder.pid is None:
                return False
            if holder.text not in verdicts:
                verdicts[holder.text] = is_dead(holder, here)
            return verdicts[holder.text]

        tasks = [task for task in tx.in_progress() if dead(task.holder)]
        self._give_back(tx, tasks, "the holder's process has died")
        locks = [lock for lock in tx.locks() if lock.expires_at <= tx.now or dead(lock.holder)]
        self._drop(tx, locks, rules.SYSTEM, "expired, or the holder's process has died")
        return bool(tasks or locks)

    def _give_back(
        self,
        tx: Tx,
        tasks: Sequence[BoardTask],
        why: str,
        who: Worker = rules.SYSTEM,
        action: str = "recovered_activity",
    ) -> None:
        for task in tasks:
            reason = f"{why} (held by {task.assigned_to})" if action == "recovered_activity" else why
            event = rules.give_back(task, who, tx.now, reason, action, self._history(tx, task))
            self._end(tx, task, [event])

    def _history(self, tx: Tx, task: BoardTask) -> list[Event]:
        """The last events of a task that has used up its attempts; nothing is fetched for any other."""
        if task.max_attempts is None or task.attempts <= task.max_attempts:
            return []
        return tx.events(0, 100_000, task.id)[-30:]

    def _end(self, tx: Tx, task: BoardTask, events: list[Event]) -> None:
        """Save a task whose claim has just ended, with what follows from that: its locks go, its dependants may become ready."""
        tx.save([task])
        tx.append(events)
        if task.paths:
            tx.drop_locks([lock for lock in tx.locks(task.paths) if lock.task_id == task.id])
        if task.status is COMPLETED:
            waiting = tx.dependants([task])
            for other in waiting:
                other.unmet -= 1
            if waiting:
                tx.save(waiting)
        self._tokens.pop(task.id, None)

    def _keep_alive(self, tx: Tx, who: Worker) -> None:
        """Any verb of a worker renews what it holds, at most every twentieth of a lease."""
        key = (who.name, who.session)
        often = min(60.0, (self._lease or rules.LEASES[who.kind]) / 20)
        if tx.now - self._renewed.get(key, float("-inf")) < often:
            return
        self._renewed[key] = tx.now
        tasks = [
            t for t in tx.in_progress(who.name) if _needs_renewal(t.holder, who, t.lease_expires_at, t.lease, tx.now)
        ]
        events = [rules.renew(task, tx.now, None) for task in tasks]
        renewed = {task.id for task in tasks}
        locks = [
            lock
            for lock in tx.locks(name=who.name)
            if lock.task_id in renewed
            or (lock.task_id is None and _needs_renewal(lock.holder, who, lock.expires_at, lock.lease, tx.now))
        ]
        holds.renew(locks, tx.now)
        if tasks:
            tx.save(tasks)
        tx.save_locks(locks)
        if free := [lock for lock in locks if lock.task_id is None]:
            events.append(rules.event("renewed_locks", who, None, locks=[rules.lock_data(lock) for lock in free]))
        if events:
            tx.append(events)

    # -- ending a claim

    def _get(self, tx: Tx, task_id: str) -> BoardTask:
        task = tx.get([task_id]).get(task_id)
        if task is None:
            raise NotFound(f"Task not found: {task_id}", hint="see what there is: dibs list --all", task_id=task_id)
        return task

    def _with_claim(
        self,
        task_id: str,
        worker: Worker | str | None,
        token: int | None,
        verb: str,
        ended: Sequence[str],
        change: Callable[[Tx, BoardTask, Worker], Event],
        unclaimed: bool = False,
    ) -> BoardTask:
        """The common shape of verbs by a claim's holder: fetch, let repeats pass, check the claim, change, save, log."""
        limits.task_id(task_id)
        caller = self._who(worker)
        if caller is None and token is None:
            token = self._tokens.get(task_id)
            caller = self._default
        with self._store.write() as tx:
            task = self._get(tx, task_id)
            if rules.is_repeat(task, ended, caller, token):
                return task
            if not (unclaimed and rules.may_finish_unclaimed(task, caller, token)):
                rules.require_claim(task, caller, token, tx.now, verb)
            who = caller or task.holder or self._actor()
            self._end(tx, task, [change(tx, task, who)])
            self._keep_alive(tx, who)
        return task

    def complete(
        self, task_id: str, result: str | None = None, *, worker: Worker | str | None = None, token: int | None = None
    ) -> BoardTask:
        """Mark a claimed task as completed (or submit it for review, if it asks for that)."""
        if result is not None:
            limits.text(result, "result", empty=True)

        def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
            return rules.complete(task, who, result, tx.now)

        return self._with_claim(task_id, worker, token, "complete", (COMPLETED, REVIEW), change, unclaimed=True)

    def finish_claim(self, task: BoardTask, result: str | None, *, claim_next: bool) -> BoardTask | None:
        """`BoardTask.complete`: the claimed object itself is brought up to date; with `claim_next` both steps are one transaction."""
        if not claim_next or task.holder is None:
            task._adopt(self.complete(task.id, result, token=task.token))
            return None
        if result is not None:
            limits.text(result, "result", empty=True)
        who = task.holder
        with self._store.write() as tx:
            now = tx.again(task) or self._get(tx, task.id)
            if not rules.is_repeat(now, (COMPLETED, REVIEW), who, task.token):
                rules.require_claim(now, who, task.token, tx.now, "complete")
                self._end(tx, now, [rules.complete(now, who, result, tx.now)])
            taken = self._claim(tx, who, None, 1, None, None)
        task._adopt(now)
        for other in taken:
            self._hand_out(other)
        return taken[0] if taken else None

    def fail(
        self, task_id: str, error: str, *, worker: Worker | str | None = None, token: int | None = None
    ) -> BoardTask:
        """Mark a claimed task as failed."""
        limits.text(error, "error")

        def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
            return rules.fail(task, who, error, tx.now)

        return self._with_claim(task_id, worker, token, "fail", (FAILED,), change, unclaimed=True)

    def release(
        self, task_id: str, *, worker: Worker | str | None = None, token: int | None = None, note: str | None = None
    ) -> BoardTask:
        """Give a claimed task back to pending."""
        if note is not None:
            limits.text(note, "note", empty=True)

        def change(tx: Tx, task: BoardTask, who: Worker) -> Event:
            return rules.give_back(task, who, tx.now, note, history=self._history(tx, task))

        # A repeat is known by its token only: a pending task has no holder whose name could be compared.
        ended = ("pending",) if token is not None else ()
        return self._with_claim(task_id, worker, token, "release", ended, change)

    def renew(
        self,
        task_id: str,
        *,
        worker: Worker | str | None = None,
        token: int | None = None,
        lease: float | None = None,
    ) -> BoardTask:
        """Start a claim's lease, and that of its locks, anew."""
        limits.task_id(task_id)
        if lease is not None:
            limits.seconds(lease, "lease")
        caller = self._who(worker)
        if caller is None and token is None:
            token = self._tokens.get(task_id)
            caller = self._default
        with self._store.write() as tx:
            task = self._get(tx, task_id)
            rules.require_claim(task, caller, token, tx.now, "renew")
            self._renew(tx, task, lease)
        return task

    def _renew(self, tx: Tx, task: BoardTask, lease: float | None = None) -> None:
        event = rules.renew(task, tx.now, lease)
        if task.paths:
            locks = [lock for lock in tx.locks(task.paths) if lock.task_id == task.id]
            holds.renew(locks, tx.now, task.lease)
            tx.save_locks(locks)
        tx.save([task])
        tx.append([event])

    def release_agent_tasks(self, agent_id: str | Worker, *, note: str | None = None) -> list[str]:
        """Give back every task (and lock) of a worker, by name: for whoever cleans up after it. The ids of the tasks."""
        worker = agent_id if isinstance(agent_id, Worker) else None
        name = agent_id.name if isinstance(agent_id, Worker) else limits.name(agent_id)
        with self._store.write() as tx:
            tasks = [t for t in tx.in_progress(name) if worker is None or (t.holder and t.holder.is_same(worker))]
            self._give_back(
                tx, tasks, note or f"all tasks of {name} released", self._actor(worker), "released_activity"
            )
            locks = [lock for lock in tx.locks(name=name) if worker is None or lock.holder.is_same(worker)]
            self._drop(tx, locks, self._actor(worker), note)
        return [task.id for task in tasks]

    def recover(self, *, name: str | None = None) -> list[str]:
        """Give back what expired leases and dead processes hold, or, by name, what a worker that is known to be gone left; task ids."""
        if name is not None:
            return self.release_agent_tasks(name, note=f"recovered: {name} is gone")
        with self._store.write() as tx:
            before = {task.id for task in tx.in_progress()}
            while due := tx.due(SWEEP):
                self._give_back(tx, due, "its lease ran out")
            self._reap(tx)
            after = {task.id for task in tx.in_progress()}
        return sorted(before - after)


def _key(verb: str, request_key: str) -> str:
    return f"{verb} {limits.name(request_key, 'request key')}"


def _needs_renewal(holder: Worker | None, who: Worker, expires: float | None, lease: float | None, now: float) -> bool:
    return (
        holder is not None
        and holder.is_same(who)
        and expires is not None
        and expires > now
        and lease is not None
        and expires - now < 0.95 * lease
    )


def _give_ids(tx: Tx, tasks: Sequence[BoardTask]) -> None:
    """Check the ids that tasks bring, and give the others random ones that the board does not have."""
    brought = [task.id for task in tasks if task.id]
    taken = set(brought)
    if len(taken) < len(brought):
        twice = next(i for i in brought if brought.count(i) > 1)
        raise Duplicate(f"task {twice} is given twice", task_id=twice)
    if brought and (known := tx.get(brought)):
        first = next(iter(known))
        raise Duplicate(
            f"task {first} is already on the board",
            hint=f"choose another id, or look at it: dibs show {first}",
            task_id=first,
        )
    missing = [task for task in tasks if not task.id]
    while missing:
        for task in missing:
            task.id = os.urandom(4).hex()
        known = tx.get([task.id for task in missing])
        again = []
        for task in missing:
            if task.id in taken or task.id in known:
                again.append(task)
            taken.add(task.id)
        missing = again


def _link(tx: Tx, tasks: Sequence[BoardTask]) -> list[tuple[BoardTask, BoardTask]]:
    """The edges of new tasks; refuses unknown ids and cycles, and counts what is unmet."""
    if not any(task.depends_on or task.parent for task in tasks):
        return []
    new = {task.id: task for task in tasks}
    wanted = {need for task in tasks for need in (*task.depends_on, *([task.parent] if task.parent else ()))}
    known = tx.get(sorted(wanted - new.keys()))
    for task in tasks:
        for need in task.depends_on:
            if need not in new and need not in known:
                raise NotFound(
                    f"Task not found: {need}, which {task.id} is to depend on",
                    hint="see what there is: dibs list --all; in one call tasks may refer to each other by the ids they bring",
                    task_id=need,
                )
        if task.parent and task.parent not in new and task.parent not in known:
            raise NotFound(f"Task not found: {task.parent}, the parent of {task.id}", task_id=task.parent)
    edges = []
    waits = {}
    ready = []
    users: dict[str, list[str]] = {}
    for task in tasks:
        inside = 0
        for need in task.depends_on:
            other = new.get(need) or known[need]
            edges.append((task, other))
            if other.status is not COMPLETED:
                task.unmet += 1
            if need in new:
                inside += 1
                users.setdefault(need, []).append(task.id)
        waits[task.id] = inside
        if not inside:
            ready.append(task.id)
    # Only new tasks can wait for new tasks, so a cycle can only lie among them: peel off what waits for nothing.
    peeled = 0
    while ready:
        peeled += 1
        for user in users.get(ready.pop(), ()):
            waits[user] -= 1
            if not waits[user]:
                ready.append(user)
    if peeled < len(tasks):
        stuck = [task.id for task in tasks if waits[task.id]]
        raise DependencyCycle(
            f"these tasks would wait for each other in a circle: {', '.join(stuck[:5])}{', …' if len(stuck) > 5 else ''}",
            hint="drop one of the dependencies",
            task_ids=stuck[:50],
        )
    return edges
