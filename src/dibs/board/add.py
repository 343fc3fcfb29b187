"""Adding tasks: many in one transaction, with ids that are new and dependencies that exist and form no circle."""

from __future__ import annotations

from dibs import limits
from dibs.board.core import retried
from dibs.board.leases import keep_alive
from dibs.errors import DependencyCycle, Duplicate, Invalid, NotFound, quoted
from dibs.jsontext import dumps, loads
from dibs.model import COMPLETED, BoardTask, Worker
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from dibs.board.core import Core
    from dibs.stores.base import Tx


def add(
    core: Core,
    /,
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
    return add_many(core, [fields], worker=worker, request_key=request_key)[0]


@retried
def add_many(
    core: Core,
    definitions: Sequence[Mapping[str, Any]],
    *,
    worker: Worker | str | None = None,
    request_key: str | None = None,
) -> list[str]:
    """Add tasks in one transaction, all or none; their ids. They may depend on each other (`depends_on`, `parent`) by
    the ids that they bring, or by a `name` that holds within this call only."""
    path = core.paths.pattern
    names = _names(definitions)
    tasks = []
    for number, fields in enumerate(definitions, 1):
        try:
            tasks.append(limits.new_task(_without_names(fields, names) if names else fields, path))
        except Invalid as error:
            if len(definitions) > 1:
                error.message = f"task {number} of {len(definitions)}: {error.message}"
            raise
    if not tasks:
        return []
    who = core.identity.actor(worker)
    key = None if request_key is None else limits.request("add", request_key)
    asked = 0 if key is None else limits.fingerprint(_asked(tasks, definitions if names else ()))
    with core.store.write() as tx:
        if key is not None and (answer := tx.requests(key)):
            before, ids = loads(answer[key][0])
            if before != asked:
                raise limits.key_was_used()
            return list(ids)
        known_as = _known_as(tasks, definitions)
        _give_ids(tx, tasks, core.store.new_ids)
        if names:
            _resolve(tasks, definitions, names)
        _check_needs(tx, tasks, {task.id: words for task, words in zip(tasks, known_as, strict=True)})
        events = [rules.add(task, who, tx.now) for task in tasks]
        tx.insert(tasks)
        tx.append(events)
        ids = [task.id for task in tasks]
        keep_alive(core, tx, who)
        if key is not None:
            tx.remember(key, dumps([asked, ids]))
    return ids


def _names(definitions: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Which task each name of this call stands for."""
    names: dict[str, int] = {}
    for number, fields in enumerate(definitions):
        if not hasattr(fields, "keys"):
            raise Invalid(
                f"a task is given as a dict, not {fields!r:.40}", hint='like this: {"description": "what to do"}'
            )
        given = fields.get("name")
        if given is None:
            continue
        if limits.name(given, "name of a task") in names:
            raise Invalid(
                f"two tasks of this call are named {given!r}", hint="within one call every name stands for one task"
            )
        names[given] = number
    return names


def _without_names(fields: Mapping[str, Any], names: Mapping[str, int]) -> dict[str, Any]:
    """A definition as it is without what only this call understands."""
    plain = {key: value for key, value in fields.items() if key != "name"}
    needs = plain.get("depends_on")
    if isinstance(needs, list | tuple | set | frozenset):
        plain["depends_on"] = [need for need in needs if not (isinstance(need, str) and need in names)]
    if isinstance(plain.get("parent"), str) and plain["parent"] in names:
        del plain["parent"]
    return plain


def _asked(tasks: Sequence[BoardTask], named: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What tells this request from another: the tasks, and who among them names whom."""
    links = [[fields.get("name"), list(fields.get("depends_on") or ()), fields.get("parent")] for fields in named]
    return [*(rules.definition(task) for task in tasks), *links]


def _resolve(tasks: Sequence[BoardTask], definitions: Sequence[Mapping[str, Any]], names: Mapping[str, int]) -> None:
    """Put the new ids where the call's own names stood."""
    for task, fields in zip(tasks, definitions, strict=True):
        needs = fields.get("depends_on") or ()
        task.depends_on = list(dict.fromkeys(tasks[names[need]].id if need in names else need for need in needs))
        parent = fields.get("parent")
        if parent is not None and parent in names:
            task.parent = tasks[names[parent]].id


def _known_as(tasks: Sequence[BoardTask], definitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the caller calls its tasks: if they are refused, the ids that they would have got never existed."""
    many = len(tasks) > 1
    return [
        fields.get("name") or task.id or (f"task {number} of {len(tasks)}" if many else "the new task")
        for number, (task, fields) in enumerate(zip(tasks, definitions, strict=True), 1)
    ]


def _give_ids(tx: Tx, tasks: Sequence[BoardTask], new_ids: Callable[[Sequence[BoardTask]], list[str]]) -> None:
    """Check the ids that tasks bring, and give the others random ones that the board does not have."""
    missing = [task for task in tasks if not task.id]
    fresh = new_ids(missing)
    brought = [task.id for task in tasks if task.id]
    taken = set(brought)
    if len(taken) < len(brought):
        twice = next(i for i in brought if brought.count(i) > 1)
        raise Duplicate(f"task {twice} is given twice", task_id=twice)
    if brought and (known := tx.get(brought)):
        first = next(iter(known))
        raise Duplicate(
            f"task {first} is already on the board",
            hint=f"choose another id, or look at it: dibs show {quoted(first)}",
            task_id=first,
        )
    while missing:
        for task, new in zip(missing, fresh, strict=True):
            task.id = new
        known = tx.get([task.id for task in missing])
        again = []
        for task in missing:
            if task.id in taken or task.id in known:
                again.append(task)
            taken.add(task.id)
        missing, fresh = again, new_ids(again)


def _check_needs(tx: Tx, tasks: Sequence[BoardTask], known_as: Mapping[str, str]) -> None:
    """Refuse unknown ids and cycles, and count what is unmet. `known_as`: what to call the new tasks in errors."""
    if not any(task.depends_on or task.parent for task in tasks):
        return
    new = {task.id: task for task in tasks}
    wanted = {need for task in tasks for need in (*task.depends_on, *([task.parent] if task.parent else ()))}
    known = tx.get(sorted(wanted - new.keys()))
    for task in tasks:
        for need in task.depends_on:
            if need not in new and need not in known:
                raise NotFound(
                    f"Task not found: {need}, which {known_as[task.id]} is to depend on",
                    hint="see what there is: dibs list --all; tasks of one call may name each other by id",
                    task_id=need,
                )
        if task.parent and task.parent not in new and task.parent not in known:
            raise NotFound(
                f"Task not found: {task.parent}, the parent of {known_as[task.id]}",
                hint="see what there is: dibs list --all",
                task_id=task.parent,
            )
    for task in tasks:
        task.unmet += sum((new.get(need) or known[need]).status is not COMPLETED for need in task.depends_on)
    # Only new tasks can wait for new tasks, so a circle can only lie among them.
    refuse_circles(tasks, known_as)


def refuse_circles(tasks: Sequence[BoardTask], known_as: Mapping[str, str] | None = None) -> None:
    """Peel off what waits for nothing among these tasks, again and again; what is left waits for itself."""
    ids = {task.id for task in tasks}
    waits = {}
    ready = []
    users: dict[str, list[str]] = {}
    for task in tasks:
        inside = [need for need in task.depends_on if need in ids]
        waits[task.id] = len(inside)
        for need in inside:
            users.setdefault(need, []).append(task.id)
        if not inside:
            ready.append(task.id)
    peeled = 0
    while ready:
        peeled += 1
        for user in users.get(ready.pop(), ()):
            waits[user] -= 1
            if not waits[user]:
                ready.append(user)
    if peeled < len(tasks):
        stuck = [(known_as or {}).get(task.id, task.id) for task in tasks if waits[task.id]]
        raise DependencyCycle(
            "these tasks would wait for each other in a circle: "
            + ", ".join(stuck[:5])
            + (", …" if len(stuck) > 5 else ""),
            hint="drop one of the dependencies",
            task_ids=stuck[:50],
        )
