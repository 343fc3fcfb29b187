"""Verbs by which people and leads decide about tasks: retry, cancel, accept, reject, block, unblock, dependencies,
steps."""

from __future__ import annotations

from dibs import limits, rules
from dibs.core import retried
from dibs.errors import DependencyCycle, Invalid, NotFound, quoted
from dibs.leases import Leases
from dibs.model import IN_PROGRESS, BoardTask, Event, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.store import Tx


_STEP_VERBS = {"add": "add a step to", "start": "start a step of", "done": "finish a step of", "skip": "skip a step of"}


class Deciding(Leases):
    @retried
    def _decide(
        self, task_id: str, worker: Worker | str | None, change: Callable[[Tx, BoardTask, Worker], Event]
    ) -> BoardTask:
        limits.task_id(task_id)
        who = self._actor(worker)
        with self._store.write() as tx:
            tx.foresee(ending=task_id)
            task = self._get(tx, task_id)
            self._end(tx, task, change(tx, task, who))
            self._keep_alive(tx, who)
        return task

    def retry(self, task_id: str, *, worker: Worker | str | None = None) -> BoardTask:
        """Put a failed or cancelled task back to pending, with its attempts forgotten."""
        return self._decide(task_id, worker, lambda tx, task, who: rules.retry(task, who))

    def cancel(self, task_id: str, reason: str | None = None, *, worker: Worker | str | None = None) -> BoardTask:
        """Take a task off the table. Only a person, a lead or its holder cancels a task that somebody holds."""
        limits.optional_text(reason, "reason")
        return self._decide(task_id, worker, lambda tx, task, who: rules.cancel(task, who, reason, tx.now))

    def accept(self, task_id: str, note: str | None = None, *, worker: Worker | str | None = None) -> BoardTask:
        """Pass a task in review: it is completed."""
        limits.optional_text(note, "note")
        return self._decide(task_id, worker, lambda tx, task, who: rules.accept(task, who, note, tx.now))

    def reject(self, task_id: str, note: str, *, worker: Worker | str | None = None) -> BoardTask:
        """Send a task in review back to pending, with a note for whoever takes it next."""
        limits.text(note, "note")
        return self._decide(
            task_id, worker, lambda tx, task, who: rules.reject(task, who, note, tx.now, self._history(tx, task))
        )

    def block(self, task_id: str, reason: str, *, worker: Worker | str | None = None) -> BoardTask:
        """Record why a task cannot go on; a claimed one goes back to pending, and nobody can claim it until it is
        unblocked."""
        limits.text(reason, "reason")
        return self._decide(task_id, worker, lambda tx, task, who: rules.block(task, who, reason, tx.now))

    def unblock(
        self,
        task_id: str,
        resolution: str | None = None,
        *,
        blocker: str | None = None,
        worker: Worker | str | None = None,
    ) -> BoardTask:
        """Resolve one open blocker, or all."""
        limits.optional_text(resolution, "resolution")
        return self._decide(
            task_id, worker, lambda tx, task, who: rules.unblock(task, who, blocker, resolution, tx.now)
        )

    # -- dependencies

    @retried
    def depend(self, task_id: str, needs: Sequence[str], *, worker: Worker | str | None = None) -> BoardTask:
        """Make a task wait for others. Unknown ids and cycles are refused; edges that exist already are left as they
        are."""
        limits.task_id(task_id)
        wanted = [limits.task_id(need) for need in limits.texts(needs, "needs")]
        who = self._actor(worker)
        with self._store.write() as tx:
            tx.freeze_edges()
            task = self._get(tx, task_id)
            new = [need for need in wanted if need not in task.depends_on]
            known = tx.get(new)
            for need in new:
                if need not in known:
                    raise NotFound(f"Task not found: {need}", hint="see what there is: dibs list --all", task_id=need)
            _refuse_cycle(tx, task, list(known.values()))
            if new:
                event = rules.depend(task, who, list(known.values()))
                tx.save([task])
                tx.link([(task, other) for other in known.values()])
                tx.append([event])
            self._keep_alive(tx, who)
        return task

    @retried
    def undepend(self, task_id: str, needs: Sequence[str], *, worker: Worker | str | None = None) -> BoardTask:
        """Drop dependencies of a task."""
        who = self._actor(worker)
        with self._store.write() as tx:
            tx.freeze_edges()
            task = self._get(tx, task_id)
            dropped = [limits.task_id(need) for need in limits.texts(needs, "needs")]
            for need in dropped:
                if need not in task.depends_on:
                    raise NotFound(
                        f"task {task_id} does not depend on {need}",
                        hint=f"dibs show {quoted(task_id)}",
                        task_id=task_id,
                    )
            dropped = list(dict.fromkeys(dropped))
            others = tx.get(dropped)
            if dropped:
                event = rules.undepend(task, who, dropped, others)
                tx.save([task])
                tx.unlink([(task, other) for other in others.values()])
                tx.append([event])
            self._keep_alive(tx, who)
        return task

    # -- steps

    @retried
    def step(
        self,
        task_id: str,
        verb: str,
        text: str | None = None,
        *,
        step_id: str | None = None,
        worker: Worker | str | None = None,
        token: int | None = None,
    ) -> BoardTask:
        """`add` a step (`text` is its title), or `start`, finish (`done`) or `skip` the next one (`text` is a note)."""
        limits.task_id(task_id)
        limits.choice(verb, ("add", "start", "done", "skip"), "step verb")
        if text is not None:
            limits.text(text, "step text", empty=verb != "add")
        elif verb == "add":
            raise Invalid("a step needs a title")
        given = token
        caller, token = self._credentials(task_id, worker, token)
        with self._store.write() as tx:
            task = self._get(tx, task_id)
            token = self._remembered(task, given, token)
            who = caller or task.holder or self._actor()
            locks = self._locks_of(tx, task) if task.status is IN_PROGRESS else []
            if verb != "add" or task.status is IN_PROGRESS:
                rules.require_claim(task, caller, token, tx.now, _STEP_VERBS[verb])
            if rules.step_is(task, verb, step_id):
                return task
            if verb == "add":
                event = rules.step_add(task, who, text or "")
            else:
                event = rules.step_change(task, who, verb, step_id, text, tx.now)
            tx.append([event])
            if task.status is IN_PROGRESS:
                self._renew(tx, task, locks)
            else:
                tx.save([task])
            self._keep_alive(tx, who)
        return task


def _refuse_cycle(tx: Tx, task: BoardTask, needs: Sequence[BoardTask]) -> None:
    """Walk from what is to be needed, along what that needs; meeting `task` would close a circle. A level at a time,
    without recursion."""
    if any(other.id == task.id for other in needs):
        raise DependencyCycle(f"task {task.id} cannot wait for itself", hint="name another task", task_id=task.id)
    seen = {other.id for other in needs}
    level = list(needs)
    while level:
        if task.id in seen:
            first = needs[0].id
            raise DependencyCycle(
                f"task {task.id} cannot wait for {first}: {first} already waits for {task.id}, directly or not",
                hint=f"dibs show {quoted(first)}",
                task_id=task.id,
            )
        further = {need for other in level for need in other.depends_on} - seen
        seen |= further
        level = list(tx.get(sorted(further)).values())
