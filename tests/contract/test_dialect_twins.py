"""A dialect answers as a board in memory does, wherever its format has a place for what is asked.

The dialect is asked first. What it refuses as unsupported it must leave alone, and memory is not asked. Numbers that
stores choose themselves (tokens, numbers of events) and what no document keeps (who added a task) are not compared.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import TaskBoard
from dibs.errors import DibsError, Unsupported
from tests.clocks import HandClock
from tests.contract.stores import BiluHome, Home, MemoryHome, TaskboardHome
from tests.contract.test_differential import WORKERS, Call, call, ids, lease, plain, texts, workers
from tests.variants import variants

IGNORED = {"token", "claimed_at", "created_by", "seq", "_board", "attempts"}
by: dict[str, st.SearchStrategy[Any]] = {"worker": st.none() | workers}
calls = st.one_of(
    st.tuples(st.just("advance"), st.tuples(st.sampled_from([1, 40, 600, 4000])), st.just({})),
    st.tuples(st.just("jump"), st.tuples(st.sampled_from([1, -1, 5000, -5000])), st.just({})),
    st.tuples(st.just("reopen"), st.just(()), st.just({})),
    call("add", texts, st.lists(ids, max_size=2), st.sampled_from([1, 3, 5, 8]), id=ids, worker=workers),
    call("claim", workers, lease=lease),
    call("claim", workers, n=st.integers(1, 3), lease=lease),
    call("claim", workers, ids, lease=lease),
    call("claim", workers, n=st.integers(1, 3), request_key=st.sampled_from(["a", "b"])),
    call("complete", ids, texts, **by),
    call("fail", ids, texts, **by),
    call("release", ids, note=texts, **by),
    call("renew", ids, lease=lease, **by),
    call("cancel", ids, worker=workers),
    call("retry", ids, worker=workers),
    call("block", ids, texts, worker=workers),
    call("unblock", ids, worker=workers),
    call("depend", ids, st.lists(ids, max_size=2), worker=workers),
    call("undepend", ids, st.lists(ids, max_size=1), worker=workers),
    call("tell", texts, st.none() | st.sampled_from(["ann", "ben"]), worker=workers),
    call("inbox", workers, peek=st.booleans(), limit=st.integers(1, 3)),
    call("release_agent_tasks", workers),
    call("recover"),
)
START: list[Call] = [
    ("add", ("text 0",), {"id": "t0", "priority": 5}),
    ("add", ("text 1", ["t0"]), {"id": "t1", "priority": 5}),
    ("add", ("text 2",), {"id": "t2", "priority": 8}),
]


def known(value: Any) -> Any:
    """An answer, without what a store chooses or a document forgets."""
    if isinstance(value, dict):
        return {key: known(item) for key, item in value.items() if key not in IGNORED}
    return [known(item) for item in value] if isinstance(value, list | tuple) else value


def answer(board: TaskBoard, verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        found = plain(getattr(board, verb)(*args, **options))
    except Unsupported:
        raise
    except DibsError as error:
        return error.code
    return sorted(found) if verb == "release_agent_tasks" else known(found)


def everything(board: TaskBoard) -> dict[str, Any]:
    return {
        "tasks": {task.id: known(plain(task)) for task in board.tasks(limit=1000)[0]},
        "counts": plain(board.counts()),
        "messages": known(plain(board.messages())),
        "ready": [[task.id for task in board.ready(worker)] for worker in WORKERS],
        "held": [sorted(task.id for task in board.held_by(worker)) for worker in WORKERS],
        "reasons": {row["id"]: [r.code for r in board.reasons(row["id"], WORKERS[0])] for row in board.status()},
        "now": board.now(),
    }


@pytest.mark.parametrize("kind", variants([TaskboardHome, BiluHome], [TaskboardHome]), ids=lambda kind: kind.name)
@given(sequence=st.lists(calls, min_size=5, max_size=30))
def test_a_dialect_answers_as_memory_does(kind: type[Home], sequence: list[Call]) -> None:
    with tempfile.TemporaryDirectory(prefix="dibs-twins-") as folder:
        clocks = HandClock(), HandClock()
        plainly, home = MemoryHome(Path(folder), clocks[0]), kind(Path(folder), clocks[1])
        memory, dialect = plainly.open(), home.open()
        refused: set[object] = set()
        try:
            for verb, args, options in START + sequence:
                if verb == "reopen":
                    dialect, memory = home.open(), plainly.open()
                    with memory.store.write():
                        pass  # opening a dialect's board writes too, and whoever writes notices that the clock jumped
                elif verb in ("advance", "jump"):
                    for clock in clocks:
                        getattr(clock, verb)(*args)
                else:
                    before = everything(dialect)
                    try:
                        given_back = answer(dialect, verb, args, options)
                    except Unsupported as error:
                        refused.add(error.fields["capability"])
                        assert everything(dialect) == before, f"refused {verb}{args}{options}"
                        continue
                    assert given_back == answer(memory, verb, args, options), f"{verb}{args}{options}"
                assert everything(dialect) == everything(memory), f"after {verb}{args}{options}"
            assert refused <= kind.cannot
        finally:
            plainly.close()
            home.close()
