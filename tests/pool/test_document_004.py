"""Document 004's quick start, as it stands: only the import is ours.

Its agents are `claude`; here the first program of that name on the PATH behaves as `claude -p` does as far as the pool
can see: the prompt comes on standard input, its MCP server is in the file that --mcp-config names, and it speaks MCP
with the official client.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.model import COMPLETED
from tests.pool.conftest import ACTORS, Place, settled, soon

WITH_AGENTPOOL = """
from agentpool import AgentPool

async with AgentPool(mode="team", max_agents=4) as pool:
    # Add tasks to the shared board
    pool.add_tasks([
        "Implement user registration endpoint",
        "Add input validation to forms",
        "Write unit tests for auth module",
    ])

    # Lead coordinates, workers claim tasks
    results = await pool.run_team(
        lead_prompt="Break down and coordinate the auth feature",
    )
"""

DIRECT = """
from agentpool import TaskBoard

board = TaskBoard(state_dir=Path("/tmp/my-board"))

# Add tasks
board.add("Write the login endpoint", priority=2)
board.add("Write tests for login", depends_on=["<login-task-id>"])
board.add("Update API docs")

# Agent claims next available task
task = board.claim("worker-1")
if task:
    print(f"Claimed: {task.description}")
    # ... do the work ...
    board.complete(task.id, result="Login endpoint implemented")
"""


@pytest.fixture
def claude(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """First on the PATH."""
    program = place.path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{(ACTORS / 'speaking.py').read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(place.workspace)
    return program


def test_with_agentpool(place: Place, claude: Path) -> None:
    code = WITH_AGENTPOOL.replace("from agentpool import", "from dibs import")
    names: dict[str, Any] = {}
    body = textwrap.indent(code, "    ")
    exec(f"async def example():\n{body}\n    return pool, results", names)
    _, results = asyncio.run(soon(names["example"]()))
    assert place.left() == []
    assert results.ending == "done"
    assert (results[0].agent, results[0].status, results[0].error) == ("lead", "completed", None)
    assert {r.agent for r in results[1:]} <= {f"worker-{n}" for n in range(1, 5)}
    with TaskBoard.open() as board:
        tasks, total = board.tasks()
        settled(board)
        assert total == 3
        assert {(task.status, task.result) for task in tasks} == {
            (COMPLETED, f"done: {text}")
            for text in (
                "Implement user registration endpoint",
                "Add input validation to forms",
                "Write unit tests for auth module",
            )
        }
        assert sorted(task for result in results for task in result.tasks) == sorted(task.id for task in tasks)
        assert {task.assigned_to for task in tasks} <= {result.agent for result in results[1:]}
    for result in results:
        assert result.duration > 0
        assert result.output.startswith(f"I am {result.agent}\n")
        assert '"team": "over"' in result.output or result.role == "lead"


def test_direct_python_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its `<login-task-id>` stands for what `add` returned; where the board is kept is the reader's choice."""
    code = DIRECT.replace("from agentpool import", "from dibs import").replace(
        "/tmp/my-board", str(tmp_path / "my-board")
    )
    code = code.replace('board.add("Write the login', 'login = board.add("Write the login').replace(
        '"<login-task-id>"', "login"
    )
    names: dict[str, Any] = {"Path": Path}
    exec(code, names)
    assert capsys.readouterr().out == "Claimed: Write the login endpoint\n"
    again = TaskBoard(state_dir=tmp_path / "my-board")
    assert (again.completed_count, again.pending_count) == (1, 2)
    assert (tmp_path / "my-board" / "taskboard.json").exists()


def test_a_lead_plans_while_workers_wait_and_accidents_happen(place: Place, claude: Path) -> None:
    """Over MCP: one is killed in the middle of a task, one loses its server, one locks files and keeps them."""
    prompt = "Task: die\nTask: lose the server\nTask: lock something"
    results = place.run("claude", 1, lead=prompt, agent_args=["--verbose"], timeout=60)
    assert results.ending == "done"
    assert results.why == "all 3 tasks of the board are closed"
    lead, *workers = results
    assert (lead.status, lead.runs, lead.tasks) == ("completed", 1, [])
    assert sum(len(worker.tasks) for worker in workers) == 3
    assert [worker.runs for worker in workers] == [3]
    ends = [(e.data["status"], e.data["exit_code"]) for e in place.events if e.kind == "agent_ended"]
    assert ("error", -9) in ends
    assert ("error", 1) in ends
    waited = [worker for worker in workers if '"team": "over"' in worker.output]
    assert {worker.status for worker in waited} == {"completed"}
