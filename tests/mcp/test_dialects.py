"""The tools on boards in plain files: what a document has no place for is refused in its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.driving import dibs, serving

NAMES = {"workflow": "planner-1"}


@pytest.mark.parametrize("dialect", ["taskboard", "workflow", "workitems", "bilu"])
def test_a_task_is_claimed_and_completed(dialect: str, tmp_path: Path, runtime: Path) -> None:
    url = f"{dialect}:{tmp_path / dialect}"
    name = NAMES.get(dialect, "worker-1")
    dibs(runtime, "--board", url, "--as", name, "init")
    dibs(runtime, "--board", url, "--as", name, "add", "paint the shed")
    worker = "worker-1"
    with serving(url, runtime, name=worker) as agent:
        listed = agent.call("list_tasks")
        assert listed["total"] >= 1
        claimed = agent.call("claim_task")
        assert claimed["claimed"] is True, claimed
        assert "paint the shed" in claimed["description"]
        assert agent.call("list_tasks", task_id=claimed["task_id"])["tasks"][0]["status"] == "in_progress"
        done = agent.call("complete_task", task_id=claimed["task_id"], token=claimed["token"], result="red")
        assert done["success"] is True, done


def test_what_a_document_cannot_express_is_handed_on(tmp_path: Path, runtime: Path) -> None:
    url = f"spec:{tmp_path / 'locks'}"
    dibs(runtime, "--board", url, "--as", "ann", "init")
    with serving(url, runtime, name="ann") as agent:
        refused = agent.call("add_tasks", tasks=[{"description": "x"}])
        assert refused.is_error
        assert refused["code"] == "unsupported"
        claimed = agent.call("claim_task", task_id="T1")
        assert claimed["claimed"] is True, claimed
        assert agent.call("lock_files", paths=["a.py"])["locked"] == ["a.py"]
        assert agent.call("complete_task", task_id="T1")["success"] is True
