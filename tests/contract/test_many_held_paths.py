"""A claim where thousands of tasks cannot be had, because others hold their paths."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import BoardTask, TaskBoard
from dibs.rules import locks as lock_rules
from dibs.rules.paths import overlaps
from tests.contract.people import ANN, BEN, take

pytestmark = pytest.mark.needs("locks", "paths")


class Work:
    """What one claim asks of its store and of the path rules."""

    def __init__(self) -> None:
        self.overlaps = self.lock_queries = self.filtered = 0


def work_of_a_claim(board: TaskBoard, tasks: int, monkeypatch: pytest.MonkeyPatch) -> Work:
    board.add_many([{"description": "x", "paths": [f"src/{number}.py"]} for number in range(tasks)])
    board.lock(["src/**"], BEN)
    with board.store.write() as tx:
        kind: Any = type(tx)
    work = Work()
    ready, locks = kind.ready, kind.locks

    def counted_overlaps(a: str, b: str) -> bool:
        work.overlaps += 1
        return overlaps(a, b)

    def counted_ready(
        tx: Any, reserved: Any, limit: int, after: Any = None, held: Any = (), **how: Any
    ) -> list[BoardTask]:
        found: list[BoardTask] = ready(tx, reserved, limit, after, held, **how)
        work.filtered += len(found) * max(1, len(held))  # each row is compared with each of the held paths
        return found

    def counted_locks(tx: Any, *args: Any, **more: Any) -> Any:
        work.lock_queries += 1
        return locks(tx, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(lock_rules, "overlaps", counted_overlaps)
        patch.setattr(kind, "ready", counted_ready)
        patch.setattr(kind, "locks", counted_locks)
        assert board.claim(ANN) is None
    return work


def test_a_claim_past_thousands_of_held_paths_does_work_in_proportion_to_them(
    board: TaskBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = work_of_a_claim(board, 3000, monkeypatch)
    assert 3000 <= work.overlaps <= 3 * 3000
    assert work.lock_queries < 20
    assert work.filtered <= 3 * 16 * 3000


def test_a_free_task_behind_thousands_of_held_paths_is_found(board: TaskBoard) -> None:
    board.add_many([{"description": "x", "paths": [f"src/{number}.py"]} for number in range(3000)])
    board.add("free", id="free", paths=["docs/a.md"])
    board.lock(["src/**"], BEN)
    assert take(board, ANN).id == "free"
    assert board.claim(ANN) is None
