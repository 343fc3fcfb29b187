"""Pages of tasks, in the order in which people look for them: each group of statuses through the index that holds just
it."""

from __future__ import annotations

from dibs.stores.postgres import statements as q

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dibs.model import TaskStatus
    from dibs.stores.postgres.round_trips import Row

    One = Callable[..., list[Row]]


def page(
    one: One, statuses: Sequence[TaskStatus], filters: dict[str, str], limit: int, offset: int
) -> tuple[list[Row], int]:
    """The rows of a page, and how many there are in all. `one` runs a statement, whose first value is the board."""
    wanted: list[str] = []
    for status in ("in_progress", "review", "pending", "completed", "failed", "cancelled"):
        if status in statuses:
            wanted += ("ready", "waiting") if status == "pending" else (status,)
    values: list[Any] = []
    where = ""
    for name, value in filters.items():
        if name == "search" and not value.isascii():
            # Only Python folds the case of every script, whatever the locale of the database.
            folded = value.casefold()
            seqs = [seq for seq, text in one(q.DESCRIPTIONS) if folded in text.casefold()]
            values.append(seqs)
            where += f" AND seq = ANY(${len(values) + 1}::bigint[])"
            continue
        values.append(value)
        where += " AND " + q.FILTERS[name].format(f"${len(values) + 1}")
    if filters:
        conditions = " OR ".join(f"({q.GROUPS[group][0]})" for group in wanted)
        counted = f"SELECT count(*) FROM dibs.task WHERE board = $1 AND ({conditions}){where}"
        total = one(counted, *values)[0][0] if wanted else 0
    else:
        total = sum(number for status, number in one(q.COUNTS) if status in statuses)
    rows: list[Row] = []
    for group in wanted:
        if len(rows) >= offset + limit:
            break
        condition, order = q.GROUPS[group]
        parts = q.QUEUES.values() if group == "ready" else ("true",)
        found: list[Row] = []
        for part in parts:
            found += one(
                f"SELECT {q.ROW} FROM dibs.task WHERE board = $1 AND {condition} AND {part}{where} "
                f"ORDER BY {order} LIMIT ${len(values) + 2}",
                *values,
                offset + limit - len(rows),
            )
        if group == "ready":
            found.sort(key=lambda row: (row[7], row[0]))
        rows += found
    return rows[offset : offset + limit], total
