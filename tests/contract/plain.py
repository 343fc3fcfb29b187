"""A board as the contract describes it, in the plainest possible way: the model that the state machine compares with.

Written from the design (section 4) and document 004, not from `rules`. Every verb either raises `Refused` with the
codes that would be right and has changed nothing, or changes the rows. Time is the steady clock's, so that jumps of the
wall clock are simply not there. What the contract leaves open is left open here too: the exact moment up to which a
lease was renewed, and how long a lock that has run out is still remembered; the machine takes those from the board
after checking that they are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dibs import Worker

LEASE = {"agent": 3600.0, "human": 28_800.0}

MEMBERS = {
    "src": {"src/a.py", "src/b.py", "src/c.js", "src/d/e.py"},
    "src/a.py": {"src/a.py"},
    "src/*.py": {"src/a.py", "src/b.py"},
    "src/d/**": {"src/d/e.py"},
    "docs": {"docs/x", "docs/y"},
    "docs/x": {"docs/x"},
    "**": {"src/a.py", "src/b.py", "src/c.js", "src/d/e.py", "docs/x", "docs/y", "other"},
}
"""The patterns in use, and which files of a small world each covers."""


class Refused(Exception):
    def __init__(self, *codes: str) -> None:
        super().__init__(*codes)
        self.codes = set(codes)


def same(a: Worker, b: Worker) -> bool:
    return a.name == b.name and (a.session == b.session or a.session is None or b.session is None)


def overlap(a: str, b: str) -> bool:
    return bool(MEMBERS[a] & MEMBERS[b])


@dataclass
class PlainTask:
    id: str
    order: int
    needs: list[str] = field(default_factory=list)
    priority: int = 0
    reserved: str = "any"
    review: bool = False
    max_attempts: int | None = None
    paths: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    status: str = "pending"
    holder: Worker | None = None
    token: int | None = None
    lease: float = 0.0
    expires: float = 0.0
    attempts: int = 0
    blockers: list[bool] = field(default_factory=list)
    """Open (True) or resolved, in the order in which they were raised."""


@dataclass
class PlainLock:
    pattern: str
    holder: Worker
    shared: bool
    expires: float
    lease: float
    task: str | None = None
    token: int = 0


@dataclass
class By:
    """As whom a holder's verb is used: a worker, a token, or (neither) nobody in particular."""

    worker: Worker | None = None
    token: int | None = None


class PlainBoard:
    def __init__(self) -> None:
        self.now = 0.0
        self.tasks: dict[str, PlainTask] = {}
        self.locks: list[PlainLock] = []
        self.posted: list[tuple[str, str | None, str]] = []
        self.read: dict[tuple[str, str | None], int] = {}
        self.keys: dict[tuple[str, str | None, str], tuple[int, list[tuple[str, int | None]]]] = {}
        self.last_token = 0

    # -- what follows from the rows

    def get(self, task_id: str) -> PlainTask:
        if task_id not in self.tasks:
            raise Refused("not_found")
        return self.tasks[task_id]

    def is_live(self, task: PlainTask) -> bool:
        return task.status == "in_progress" and task.expires > self.now

    def live_locks(self) -> list[PlainLock]:
        return [lock for lock in self.locks if lock.expires > self.now]

    def unmet(self, task: PlainTask) -> list[str]:
        return [need for need in task.needs if self.tasks[need].status != "completed"]

    def held_paths(self, task: PlainTask, worker: Worker) -> bool:
        return any(
            overlap(path, lock.pattern)
            for lock in self.live_locks()
            if not same(lock.holder, worker) and lock.task != task.id
            for path in task.paths
        )

    def reasons(self, task: PlainTask, worker: Worker) -> list[str]:
        """The codes of everything that keeps the worker from claiming the task."""
        found = []
        if self.is_live(task):
            found.append("held")
        elif task.status not in ("pending", "in_progress"):
            found.append(task.status)
        found += ["dependency"] * len(self.unmet(task)) + ["blocker"] * sum(task.blockers)
        if task.reserved not in ("any", worker.kind):
            found.append("reserved")
        if self.held_paths(task, worker):
            found.append("path")
        return found

    def available(self, worker: Worker) -> list[str]:
        """What this worker would get: a claim first gives back whatever has expired."""
        free = [t for t in self.tasks.values() if not self.reasons(t, worker) and not self._is_spent(t)]
        return [t.id for t in sorted(free, key=lambda t: (-t.priority, t.order))]

    def _is_spent(self, task: PlainTask) -> bool:
        """Will giving it back fail it?"""
        return task.status == "in_progress" and task.max_attempts is not None and task.attempts > task.max_attempts

    # -- adding

    def add(self, definitions: Sequence[PlainTask]) -> None:
        new = {task.id: task for task in definitions}
        faults = set()
        if len(new) < len(definitions) or new.keys() & self.tasks.keys():
            faults.add("duplicate")
        if any(need not in new and need not in self.tasks for task in definitions for need in task.needs):
            faults.add("not_found")
        if any(self._reaches(need, task.id, new) for task in definitions for need in task.needs):
            faults.add("cycle")
        if faults:
            raise Refused(*faults)
        self.tasks.update(new)

    def _reaches(self, start: str, goal: str, new: dict[str, PlainTask]) -> bool:
        seen, todo = set(), [start]
        while todo:
            at = todo.pop()
            if at == goal:
                return True
            task = new.get(at) or self.tasks.get(at)
            if at not in seen and task:
                seen.add(at)
                todo += task.needs
        return False

    # -- claiming

    def sweep(self) -> None:
        for task in self.tasks.values():
            if task.status == "in_progress" and not self.is_live(task):
                self._give_back(task)

    def claim(self, worker: Worker, n: int, lease: float | None) -> list[str]:
        self.sweep()
        taken: list[str] = []
        while len(taken) < n and (free := self.available(worker)):
            self._take(self.tasks[free[0]], worker, lease)
            taken.append(free[0])
        return taken

    def claim_named(self, worker: Worker, task_id: str, lease: float | None) -> bool:
        """Is it a new claim? (The same session that asks again for what it holds gets it as it is.)"""
        task = self.get(task_id)
        known = worker.session is not None and task.holder is not None and task.holder.session == worker.session
        if self.is_live(task) and task.holder and known and same(task.holder, worker):
            self.sweep()
            return False
        if self.reasons(task, worker):
            raise Refused("not_claimable")
        if self._is_spent(task):
            raise Refused("not_claimable")  # its lease ran out once too often: it has failed
        self.sweep()
        self._take(task, worker, lease)
        return True

    def claim_again(self, worker: Worker, key: str, n: int) -> list[str] | None:
        """The claim that a request key got, if it had one and still holds it."""
        known = self.keys.get((worker.name, worker.session, key))
        if known is None:
            return None
        asked, claims = known
        if asked != n:
            raise Refused("invalid")
        if any(self.tasks[i].token != token or not self.is_live(self.tasks[i]) for i, token in claims):
            raise Refused("lease_lost")
        return [task_id for task_id, _ in claims]

    def _take(self, task: PlainTask, worker: Worker, lease: float | None) -> None:
        task.status = "in_progress"
        task.holder = worker
        task.lease = lease or LEASE[worker.kind]
        task.expires = self.now + task.lease
        task.attempts += 1
        for path in task.paths:
            self.locks.append(PlainLock(path, worker, False, task.expires, task.lease, task.id))

    def told_token(self, task_id: str, token: int) -> None:
        """What the board gave as the token of a new claim."""
        assert token > self.last_token, "a token must be larger than any before it"
        self.last_token = token
        self.tasks[task_id].token = token
        for lock in self.locks:
            if lock.task == task_id:
                lock.token = token

    # -- ending a claim

    def check(self, task: PlainTask, by: By) -> None:
        if by.token is not None and by.token != task.token:
            raise Refused("lease_lost")
        if task.status != "in_progress":
            raise Refused("wrong_status") if by.token is None else Refused("wrong_status", "lease_lost")
        if by.worker is not None and by.token is None and task.holder and not same(task.holder, by.worker):
            raise Refused("not_holder")
        if not self.is_live(task):
            raise Refused("lease_lost")

    def _is_repeat(self, task: PlainTask, ended: Sequence[str], by: By) -> bool:
        if task.status not in ended:
            return False
        if by.token is not None:
            return by.token == task.token
        return by.worker is None or bool(task.holder and same(task.holder, by.worker))

    def finish(self, task_id: str, by: By, failed: bool) -> bool:
        """Complete or fail; False for a repeat, which changes nothing."""
        task = self.get(task_id)
        if self._is_repeat(task, ["failed"] if failed else ["completed", "review"], by):
            return False
        if not (task.status == "pending" and by == By()):
            self.check(task, by)
        task.status = "failed" if failed else "review" if task.review else "completed"
        self._drop_locks_of(task)
        return True

    def release(self, task_id: str, by: By) -> bool:
        task = self.get(task_id)
        if by.token is not None and by.token == task.token and not task.holder and task.status in ("pending", "failed"):
            return False
        self.check(task, by)
        self._give_back(task)
        return True

    def renew(self, task_id: str, by: By, lease: float | None) -> None:
        task = self.get(task_id)
        self.check(task, by)
        task.lease = lease or task.lease
        self._renew(task)

    def _renew(self, task: PlainTask) -> None:
        task.expires = self.now + task.lease
        for lock in self.locks:
            if lock.task == task.id:
                lock.lease = task.lease
                lock.expires = task.expires

    def _give_back(self, task: PlainTask) -> None:
        spent = task.max_attempts is not None and task.attempts > task.max_attempts
        task.status = "failed" if spent else "pending"
        task.holder = None
        self._drop_locks_of(task)

    def _drop_locks_of(self, task: PlainTask) -> None:
        self.locks = [lock for lock in self.locks if lock.task != task.id]

    def release_all(self, name: str, worker: Worker | None) -> list[str]:
        def is_theirs(holder: Worker | None) -> bool:
            return holder is not None and holder.name == name and (worker is None or same(holder, worker))

        theirs = [t for t in self.tasks.values() if t.status == "in_progress" and is_theirs(t.holder)]
        for task in theirs:
            self._give_back(task)
        self.locks = [lock for lock in self.locks if not is_theirs(lock.holder)]
        return sorted(task.id for task in theirs)

    def recover(self) -> list[str]:
        expired = [t.id for t in self.tasks.values() if t.status == "in_progress" and not self.is_live(t)]
        self.sweep()
        return sorted(expired)

    # -- deciding

    def _over_holder(self, task: PlainTask, worker: Worker) -> None:
        may = worker.kind == "human" or worker.role in ("lead", "planner")
        if self.is_live(task) and task.holder and not same(task.holder, worker) and not may:
            raise Refused("not_holder")

    def _need_status(self, task: PlainTask, *allowed: str) -> None:
        if task.status not in allowed:
            raise Refused("wrong_status")

    def cancel(self, task_id: str, worker: Worker) -> None:
        task = self.get(task_id)
        self._need_status(task, "pending", "in_progress", "review")
        self._over_holder(task, worker)
        task.status, task.holder = "cancelled", None
        self._drop_locks_of(task)

    def retry(self, task_id: str) -> None:
        task = self.get(task_id)
        self._need_status(task, "failed", "cancelled")
        task.status, task.holder, task.attempts = "pending", None, 0

    def accept(self, task_id: str, worker: Worker) -> None:
        task = self.get(task_id)
        self._need_status(task, "review")
        if task.holder and same(task.holder, worker) and worker.kind != "human":
            raise Refused("not_holder")
        task.status = "completed"

    def reject(self, task_id: str) -> None:
        task = self.get(task_id)
        self._need_status(task, "review")
        self._give_back(task)

    def block(self, task_id: str, worker: Worker) -> None:
        task = self.get(task_id)
        self._need_status(task, "pending", "in_progress")
        self._over_holder(task, worker)
        task.blockers.append(True)
        if task.status == "in_progress":
            task.status, task.holder = "pending", None
            task.attempts -= 1
            self._drop_locks_of(task)

    def unblock(self, task_id: str, number: int | None) -> None:
        task = self.get(task_id)
        chosen = [i for i, is_open in enumerate(task.blockers) if is_open and number in (None, i + 1)]
        if not chosen:
            raise Refused("wrong_status")
        for i in chosen:
            task.blockers[i] = False

    def depend(self, task_id: str, needs: Sequence[str]) -> None:
        task = self.get(task_id)
        new = [need for need in needs if need not in task.needs]
        faults = set()
        if any(need not in self.tasks for need in new):
            faults.add("not_found")
        if any(self._reaches(need, task_id, {}) for need in new):
            faults.add("cycle")
        if new and task.status not in ("pending", "failed", "cancelled"):
            faults.add("wrong_status")
        if faults:
            raise Refused(*faults)
        task.needs = task.needs + new

    def undepend(self, task_id: str, needs: Sequence[str]) -> None:
        task = self.get(task_id)
        if any(need not in task.needs for need in needs):
            raise Refused("not_found")
        task.needs = [need for need in task.needs if need not in needs]

    # -- steps

    def step(self, task_id: str, verb: str, by: By, number: int | None) -> bool:
        """False for a repeat, which changes nothing."""
        task = self.get(task_id)
        if verb != "add" or task.status == "in_progress":
            self.check(task, by)
        if verb == "add":
            self._need_status(task, "pending", "in_progress")
            task.steps.append("pending")
        else:
            wanted = {"start": "in_progress", "done": "completed", "skip": "skipped"}[verb]
            if number is not None and number <= len(task.steps) and task.steps[number - 1] == wanted:
                return False
            waiting = [i for i, status in enumerate(task.steps) if status not in ("completed", "skipped")]
            if not waiting or (number is not None and number - 1 != waiting[0]):
                raise Refused("wrong_status")
            task.steps[waiting[0]] = wanted
        if task.status == "in_progress":
            self._renew(task)
        return True

    # -- locks

    def lock(self, worker: Worker, patterns: Sequence[str], shared: bool, lease: float | None) -> list[PlainLock]:
        """The locks granted; those that are new have no token yet."""
        others = [lock for lock in self.live_locks() if not same(lock.holder, worker)]
        against = [lock for lock in others if not (shared and lock.shared)]
        if any(overlap(pattern, lock.pattern) for lock in against for pattern in patterns):
            raise Refused("busy")
        granted = []
        length = lease or LEASE[worker.kind]
        for pattern in patterns:
            own = [
                lock
                for lock in self.live_locks()
                if lock.pattern == pattern and lock.task is None and same(lock.holder, worker)
            ]
            if own:
                own[0].shared = own[0].shared and shared
            else:
                own = [PlainLock(pattern, worker, shared, 0.0, 0.0)]
                self.locks.append(own[0])
            own[0].lease, own[0].expires = length, self.now + length
            granted.append(own[0])
        return granted

    def unlock(self, worker: Worker, patterns: Sequence[str] | None) -> None:
        """Raises with "ok" among the codes where the answer depends on whether an expired lock is still remembered."""
        own = [lock for lock in self.locks if same(lock.holder, worker)]
        named = [lock for lock in own if patterns is None or lock.pattern in patterns]
        if patterns is None:
            named = [lock for lock in named if lock.task is None]
        elif any(lock.expires <= self.now for lock in named):
            raise Refused("ok", "not_found", "invalid")
        elif any(all(lock.pattern != pattern for lock in named) for pattern in patterns):
            raise Refused("not_found")
        elif any(lock.task for lock in named):
            raise Refused("invalid")
        self.forget(named)

    def forget(self, locks: Sequence[PlainLock]) -> None:
        self.locks = [lock for lock in self.locks if all(lock is not other for other in locks)]

    # -- messages

    def tell(self, worker: Worker, to: str | None, content: str) -> None:
        self.posted.append((worker.name, to, content))

    def inbox(self, worker: Worker, peek: bool) -> list[str]:
        reader = (worker.name, worker.session)
        fresh = self.posted[self.read.get(reader, 0) :]
        if not peek:
            self.read[reader] = len(self.posted)
        return [text for sender, to, text in fresh if to == worker.name or (to is None and sender != worker.name)]
