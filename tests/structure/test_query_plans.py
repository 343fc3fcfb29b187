"""Each statement finds its rows through the index made for it: a predicate without one costs a thousandfold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from dibs import TaskBoard
from dibs.stores.rows import TASK
from dibs.stores.sqlite import queries as q
from dibs.stores.sqlite.store import SqliteStore

Plan = list[str]

FRAGMENTS = {"TASK", "LOCK", "EVENT", "SEARCH_FOLDED"}
"""Names in `queries` that are parts of statements."""

PLANS = {
    "DUE": ["SEARCH task USING INDEX task_lease (lease_expires_at<?)"],
    "IN_PROGRESS": ["SCAN task USING INDEX task_lease"],
    "IN_PROGRESS_BY": ["SCAN task USING INDEX task_lease"],
    "TASK_BY_ID": ["SEARCH task USING INDEX sqlite_autoindex_task_1 (id=?)"],
    "TASKS_BY_ID": ["SEARCH task USING INDEX sqlite_autoindex_task_1 (id=?)"],
    "FIND": ["SEARCH task USING COVERING INDEX sqlite_autoindex_task_1 (id>? AND id<?)"],
    "SAVE": ["SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"],
    "ALL_TASKS": ["SEARCH task USING INTEGER PRIMARY KEY (rowid>?)"],
    "DEPENDANTS_OF": [
        "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH dependency USING PRIMARY KEY (needs=?)",
    ],
    "DEPENDANTS": [
        "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH dependency USING PRIMARY KEY (needs=?)",
    ],
    "SATISFY": [
        "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH dependency USING PRIMARY KEY (needs=?)",
    ],
    "LINK": ["SEARCH task USING COVERING INDEX sqlite_autoindex_task_1 (id=?)"],
    "UNLINK": ["SEARCH dependency USING PRIMARY KEY (needs=? AND task=?)"],
    "LOCKS_NEAR": [
        "SEARCH lock USING INDEX lock_prefix (prefix=?)",
        "SEARCH lock USING INDEX lock_prefix (prefix>? AND prefix<?)",
    ],
    "DROP_LOCK": ["SEARCH lock USING PRIMARY KEY (pattern=? AND token=?)"],
    "EVENTS[False]": ["SEARCH event USING INTEGER PRIMARY KEY (rowid>?)"],
    "EVENTS[True]": ["SEARCH event USING INTEGER PRIMARY KEY (rowid>?)"],
    "NEWEST_EVENT": ["SEARCH task USING INDEX sqlite_autoindex_task_1 (id=?)"],
    "EVENT_BEFORE": ["SEARCH event USING INTEGER PRIMARY KEY (rowid=?)"],
    "FORGET": ["SEARCH request USING INDEX request_time (time<?)"],
    "REQUEST": ["SEARCH request USING PRIMARY KEY (key=?)"],
    "MARK": ["SEARCH reader USING PRIMARY KEY (name=?)"],
    "MESSAGES[False]": ["SEARCH message USING INTEGER PRIMARY KEY (rowid>?)"],
    "MESSAGES[True]": ["SEARCH message USING INTEGER PRIMARY KEY (rowid>?)"],
}
"""The steps that a plan must have. Two scans of `task_lease` are meant: it holds nothing but what is in progress."""

GROUP_INDEX = {
    "in_progress": "task_lease",
    "review": "task_review",
    "ready": "task_ready",
    "waiting": "task_waiting",
    "completed": "task_closed",
    "failed": "task_closed",
    "cancelled": "task_closed",
}

MAY_SCAN = {"lock", "reader", "json_each"}
"""Tables that stay small; everything else is only ever searched, or scanned along an index of the wanted rows."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    """The connection of a store, with the settings and functions that it runs with."""
    store = SqliteStore(str(tmp_path_factory.mktemp("plans") / "board.db"), create=True)
    assert store._connection is not None
    yield store._connection
    store.close()


def plan(database: apsw.Connection, statement: str) -> Plan:
    values = (None,) * statement.count("?")
    return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def statements() -> dict[str, str]:
    """Every statement by its name; those of a tuple are numbered."""
    found: dict[str, str] = {}
    for name, value in vars(q).items():
        if name.isupper() and name[0] != "_" and name not in FRAGMENTS:
            if isinstance(value, str):
                found[name] = value
            elif isinstance(value, tuple):
                found |= {f"{name}[{at}]": text for at, text in enumerate(value)}
            elif isinstance(value, dict) and name not in ("GROUPS", "FILTERS"):
                found |= {f"{name}[{key}]": text for key, text in value.items()}
    return found


def test_the_head_of_the_changelog_is_one_row_from_its_end(database: apsw.Connection) -> None:
    assert plan(database, q.HEAD) == ["SCAN event"]
    assert q.HEAD.endswith("ORDER BY seq DESC LIMIT 1")
    assert q.MOVED_TO.endswith("ORDER BY seq DESC LIMIT 1")


def scanned(steps: Plan) -> set[str]:
    """Tables that are read from end to end, not along an index that holds just a part of them."""
    return {step.split()[1] for step in steps if step.startswith("SCAN ") and " USING INDEX " not in step}


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_statement_uses_its_index(database: apsw.Connection, name: str) -> None:
    steps = plan(database, statements()[name])
    assert [step for step in PLANS[name] if step not in steps] == [], steps


@pytest.mark.parametrize("name", sorted(statements()))
def test_no_statement_reads_a_whole_table_that_grows(database: apsw.Connection, name: str) -> None:
    steps = plan(database, statements()[name])
    # An export; one row, from the end; an examination.
    wanted = {"REQUESTS": {"request"}, "HEAD": {"event"}, "MOVED_TO": {"event"}, "EDGES": {"edge"}}.get(name, set())
    assert scanned(steps) - MAY_SCAN <= wanted, steps


@pytest.mark.parametrize("name", ["DUE", "IN_PROGRESS", "EVENTS[True]", "FIND", "MESSAGES[True]"])
def test_what_is_asked_for_in_order_comes_in_order(database: apsw.Connection, name: str) -> None:
    assert not [step for step in plan(database, statements()[name]) if "TEMP B-TREE" in step]


@pytest.mark.parametrize("group", sorted(q.GROUPS))
def test_a_page_of_a_list_comes_in_order_from_the_index_of_its_group(database: apsw.Connection, group: str) -> None:
    condition, order = q.GROUPS[group]
    only = " AND reserved = 'any'" if group == "ready" else ""  # as `SqlTx.page` asks: one reservation at a time
    steps = plan(database, f"SELECT {TASK} FROM task WHERE {condition}{only} ORDER BY {order} LIMIT ?")
    assert len(steps) == 1
    assert f"USING INDEX {GROUP_INDEX[group]}" in steps[0], steps


@pytest.mark.parametrize("group", sorted(q.GROUPS))
@pytest.mark.parametrize("name", sorted(q.FILTERS))
def test_a_filter_looks_only_at_its_group_or_its_own_index(database: apsw.Connection, group: str, name: str) -> None:
    condition, order = q.GROUPS[group]
    for select in ("count(*)", TASK):
        steps = plan(database, f"SELECT {select} FROM task WHERE {condition} AND {q.FILTERS[name]} ORDER BY {order}")
        through = ("task_parent", GROUP_INDEX[group]) if name == "parent" else (GROUP_INDEX[group],)
        assert any(f"INDEX {index}" in steps[0] for index in through), steps


def ready_statements() -> list[str]:
    return sorted(name for name in statements() if name.startswith("READY"))


@pytest.mark.parametrize("name", ready_statements())
def test_a_claim_finds_its_task_at_one_place_of_the_ready_index(database: apsw.Connection, name: str) -> None:
    """Most tasks have one priority: a position that counts by `rank` alone would read them all again for each page."""
    first, *rest = plan(database, statements()[name])
    assert first.startswith("SEARCH task USING INDEX task_ready (reserved=? AND ")
    assert ("seq" in statements()[name].split("WHERE")[1].split("ORDER")[0]) <= ("seq" in first or "rowid" in first), (
        first
    )
    assert not [step for step in rest if "TEMP B-TREE" in step]


def test_there_are_statements_for_claiming() -> None:
    assert ready_statements()


def test_looking_past_tasks_whose_paths_are_held_costs_in_proportion_to_them(tmp_path: Path) -> None:
    """Somebody locks `src/**`: a claim has to look past every task in there, with all other writers waiting for it."""

    def cost(tasks: int) -> float:
        with TaskBoard.open(f"sqlite:{tmp_path}/{tasks}.db", create=True, durability="normal", worker="w") as board:
            board.add_many([{"description": "inside", "paths": [f"src/{n}.py"]} for n in range(tasks)])
            board.lock(["src/**"], "other")
            spent = []
            for _ in range(3):
                started = time.process_time()
                assert board.claim("w") is None
                spent.append(time.process_time() - started)
            return min(spent)

    few, many = cost(400), cost(3200)
    assert many / few < 20, f"8 times as many tasks cost {many / few:.0f} times as much ({many:.2f} s)"
