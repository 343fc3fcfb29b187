"""Imports point inward, and a claim imports next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs import TaskBoard
from dibs.jsontext import dumps
from dibs.model import Worker
from tests.processes.harness import environment

PACKAGE = Path(dibs.__file__).resolve().parent
MODULES = {
    ".".join(("dibs", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
BOARD = {name for name in MODULES if name.startswith("dibs.board")}
"""`TaskBoard` and its verbs."""
RULES = ("dibs.rules.tasks", "dibs.rules.locks")
PURE = {"dibs.model", "dibs.limits", "dibs.rules.tasks", "dibs.rules.locks", "dibs.errors", "dibs.times", "dibs.replay"}
"""What does no I/O."""
HEAVY = {
    "argparse", "re", "json", "enum", "dataclasses", "typing", "pathlib", "contextlib", "collections", "functools",
    "subprocess", "signal", "socket", "asyncio", "sqlite3", "inspect", "logging", "datetime", "random", "tempfile",
    "shutil", "threading", "uuid", "secrets", "hashlib", "importlib.metadata", "traceback", "textwrap", "locale",
}  # fmt: skip
"""Each costs a good part of what a bare interpreter costs to start."""
PAYS_FOR_ITSELF = {"dibs.dialects.yamltext": {"re"}, "dibs.dialects.yamlpatch": {"re"},
                   "dibs.stores.postgres.connections": {"logging"}}  # fmt: skip
"""Reading YAML by expressions is ten times faster than by hand, and only boards in YAML load it. The driver of
PostgreSQL has loaded `logging` already."""


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(path: Path, *, only_at_start: bool = False) -> Iterator[str]:
    """What a file imports, in functions too unless `only_at_start`, but not what only type checkers see."""
    pending: list[ast.AST] = list(ast.parse(path.read_text("utf-8")).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module
            yield from (full for n in node.names if (full := f"{node.module}.{n.name}") in MODULES)
        elif isinstance(node, ast.stmt) and is_type_checking(node):
            assert isinstance(node, ast.If)
            pending += node.orelse
        elif not (only_at_start and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def offenders(modules: set[str], *banned: str) -> list[str]:
    return [
        f"{module} imports {name}"
        for module in sorted(modules & MODULES.keys())
        for name in imported(MODULES[module])
        if within(name, *banned)
    ]


def test_the_pure_modules_know_no_store_no_board_and_no_front() -> None:
    fronts = ("dibs.cli", "dibs.__main__", "dibs.mcp", "dibs.web", "dibs.pool")
    assert offenders(PURE, "dibs.stores.base", "dibs.stores", "dibs.fs", "dibs.address", *BOARD, *fronts) == []
    assert {"dibs.model", "dibs.limits", "dibs.rules.tasks", "dibs.rules.locks"} <= MODULES.keys()


def test_the_pure_modules_do_no_input_and_output() -> None:
    # `time` may format; asking it for the time is checked where it matters: rules are given `now`.
    assert offenders(PURE, "os", "io", "sys", "socket", "subprocess", "apsw", "dibs.worker", "dibs.clock") == []
    assert offenders({"dibs.rules.tasks", "dibs.rules.locks", "dibs.limits", "dibs.replay"}, "time") == []


def test_a_store_knows_no_rule_and_no_board() -> None:
    stores = {name for name in MODULES if within(name, "dibs.stores")} | {"dibs.stores.base"}
    assert len(stores) > 4
    assert (
        offenders(stores, "dibs.rules.tasks", "dibs.rules.locks", "dibs.limits", "dibs.cli", "dibs.worker", *BOARD)
        == []
    )


def test_nobody_imports_the_command_line_but_its_entrance() -> None:
    others = {name for name in MODULES if not within(name, "dibs.cli", "dibs.__main__")}
    assert offenders(others, "dibs.cli", "dibs.__main__") == []


def test_file_locks_are_taken_in_one_place() -> None:
    allowed = {"dibs.fs"}
    assert offenders(MODULES.keys() - allowed, "fcntl", "msvcrt") == []
    for module, path in MODULES.items():
        if module not in allowed:
            names = {n.attr for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Attribute)}
            assert not names & {"flock", "lockf", "locking"}, module
    users = [m for m in MODULES if any(name == "dibs.fs" for name in imported(MODULES[m]))]
    assert "dibs.stores.sqlite.store" in users


def test_only_stores_talk_to_the_database_and_who_examines_or_saves_its_file() -> None:
    others = {name for name in MODULES if not within(name, "dibs.stores", "dibs.cli.doctor", "dibs.salvage")}
    assert offenders(others, "apsw", "sqlite3") == []


@pytest.mark.parametrize(
    "module", sorted(m for m in MODULES if not m.startswith(("dibs.cli.", "dibs.mcp", "dibs.pool.")))
)
def test_no_module_imports_something_heavy_when_it_is_loaded(module: str) -> None:
    """A command's own module is loaded only when that command is invoked; the budget below looks at the quick ones.
    The MCP server lives for hours, and `mcp` itself outweighs everything that it could import besides; so does a pool
    with its agents."""
    heavy = {name for name in imported(MODULES[module], only_at_start=True) if name in HEAVY}
    assert heavy <= PAYS_FOR_ITSELF.get(module, set())


# -- the budget

_CLAIM = 'from dibs import TaskBoard; task = TaskBoard.open("{url}").claim("w"); task.complete("done")'


def modules_of(*arguments: str, env: dict[str, str] | None = None, stdin: str = "") -> set[str]:
    """What an interpreter that is run like this has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        env=environment() | (env or {}),
        cwd="/",
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.fixture(scope="module")
def given() -> set[str]:
    """What we cannot help: the interpreter's own start, hooks of installed packages, and what `apsw` needs."""
    bare = modules_of("-c", "pass")
    with_apsw = modules_of("-c", "import apsw")
    assert {name for name in with_apsw - bare if within(name, *HEAVY)} <= {"collections", "collections.abc"}
    return with_apsw


def test_a_claim_by_the_api_imports_nothing_heavy(tmp_path: Path, given: set[str]) -> None:
    url = f"sqlite:{tmp_path}/board.db"
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.add("a task")
    more = modules_of("-c", _CLAIM.format(url=url)) - given
    assert "dibs.stores.sqlite.store" in more
    assert {name for name in more if within(name, *HEAVY)} == set()
    light = {"__future__", "_json", "_weakref", "errno", "fcntl", "importlib", "pwd", "warnings"}
    assert {name for name in more if not within(name, "dibs")} <= light


@pytest.mark.parametrize("command", ["claim", "done", "list", "claim --json", "list --json", "ready"])
def test_a_command_imports_nothing_heavy(tmp_path: Path, given: set[str], command: str) -> None:
    url = f"sqlite:{tmp_path}/board.db"
    env = {"DIBS_BOARD": url, "DIBS_AGENT": "w", "DIBS_SESSION": "s"}
    with TaskBoard.open(url, create=True, worker="maker") as board:
        board.add("a task")
    if command == "done":
        modules_of("-m", "dibs", "claim", env=env)
    more = modules_of("-m", "dibs", *command.split(), env=env) - given
    more -= modules_of("-c", "import runpy")  # `python -m` needs it; the installed command does not
    assert "dibs.stores.sqlite.store" in more
    assert {name for name in more if within(name, *HEAVY)} == set()
    assert {name for name in more if within(name, "psycopg", "dibs.stores.postgres")} == set()


@pytest.mark.parametrize("path", ["held.py", "free.py"])
@pytest.mark.parametrize("tool", ["Edit", "Bash"])
def test_a_hook_imports_nothing_heavy(tmp_path: Path, given: set[str], tool: str, path: str) -> None:
    """Whether it denies or not: it runs before every edit, and the user waits for it."""
    with TaskBoard.open(f"sqlite:{tmp_path}/.dibs/board.db", create=True, worker="maker") as board:
        board.lock([f"{tmp_path}/held.py"], Worker("maker", session="m"))
    given_to_it = {"file_path": path} if tool == "Edit" else {"command": f"cd . && sed -i s/a/b/ {path}"}
    event = {
        "session_id": "s",
        "cwd": str(tmp_path),
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": given_to_it,
    }
    env = {"DIBS_RUNTIME_DIR": str(tmp_path / "dibs-clients")}
    more = modules_of("-m", "dibs", "hook", "claude", env=env, stdin=dumps(event)) - given
    more -= modules_of("-c", "import runpy")
    assert "dibs.stores.sqlite.store" in more
    assert "dibs.board.task_board" not in more
    assert ("dibs.hooks.shellwrites" in more) is (tool == "Bash")
    assert {name for name in more if within(name, *HEAVY)} == set()
