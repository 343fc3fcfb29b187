"""What `dibs setup` writes for each client is what that client's documentation asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dibs.setup.clients import CLIENTS as KNOWN
from tests.cli.shell import Result
from tests.setup.repository import CLIENTS, Repository

PYTHON = os.path.abspath(sys.executable)
"""The tests run `python -m dibs`, so that is what is written, with -P: no package of the repository is run."""


def server(client: str, *more: str) -> dict[str, Any]:
    return {"command": PYTHON, "args": ["-P", "-m", "dibs", "mcp", "--client", client, *more]}


def grouped(client: str, limit: int, matcher: str = "", **more: str) -> list[dict[str, Any]]:
    handler = {"type": "command", **more, "command": f"{PYTHON} -P -m dibs hook {client}", "timeout": limit}
    return [{"matcher": matcher, "hooks": [handler]} if matcher else {"hooks": [handler]}]


def test_claude(repository: Repository) -> None:
    repository.ok("setup", "claude")
    assert repository.json(".mcp.json") == {"mcpServers": {"dibs": {"type": "stdio", **server("claude")}}}
    assert repository.json(".claude/settings.local.json") == {
        "hooks": {
            "PreToolUse": grouped("claude", 10, "Edit|Write|MultiEdit|NotebookEdit|Bash"),
            "SessionStart": grouped("claude", 10),
            "SessionEnd": grouped("claude", 5),
        }
    }
    assert repository.read("AGENTS.md").startswith("<!-- dibs:begin claude -->\n")
    assert sorted(repository.files()) == [".claude", ".claude/settings.local.json", ".mcp.json", "AGENTS.md"]


def test_codex(repository: Repository) -> None:
    repository.ok("setup", "codex")
    [(name, table)] = tomllib.loads(repository.read(".codex/config.toml"))["mcp_servers"].items()
    handed_on = table.pop("env_vars")
    assert (name, table) == ("dibs", server("codex"))
    assert {"DIBS_BOARD", "DIBS_AGENT", "DIBS_SESSION", "XDG_RUNTIME_DIR"} <= set(handed_on)
    assert repository.json(".codex/hooks.json") == {
        "hooks": {
            "PreToolUse": grouped("codex", 10, "^(apply_patch|Bash)$"),
            "SessionStart": grouped("codex", 10),
            "SessionEnd": grouped("codex", 3),
        }
    }
    assert sorted(repository.files()) == [".codex", ".codex/config.toml", ".codex/hooks.json", "AGENTS.md"]


def test_variables_that_somebody_added_for_codex_stay(repository: Repository) -> None:
    repository.ok("setup", "codex")
    text = repository.read(".codex/config.toml")
    repository.write(".codex/config.toml", text.replace("env_vars = [", 'env_vars = ["MINE", '))
    mine = repository.read(".codex/config.toml")
    repository.ok("setup", "codex", "--closed")
    assert repository.read(".codex/config.toml") == mine
    repository.ok("setup", "codex", "--remove")
    assert not (repository.folder / ".codex").exists()


def test_cursor(repository: Repository) -> None:
    repository.ok("setup", "cursor")
    entry = {"type": "stdio", **server("cursor", "--root", "${workspaceFolder}")}
    assert repository.json(".cursor/mcp.json") == {"mcpServers": {"dibs": entry}}
    hook = {"command": f"{PYTHON} -P -m dibs hook cursor", "timeout": 10}
    edits = "Write|StrReplace|Edit|MultiEdit|Delete|EditNotebook|ApplyPatch"
    wanted = {
        "preToolUse": [{**hook, "matcher": edits}],
        "beforeShellExecution": [hook],
        "sessionStart": [hook],
        "sessionEnd": [{**hook, "timeout": 5}],
    }
    assert repository.json(".cursor/hooks.json") == {"version": 1, "hooks": wanted}
    repository.ok("setup", "cursor", "--closed")
    closed = repository.json(".cursor/hooks.json")["hooks"]
    assert [closed[event][0].get("failClosed") for event in wanted] == [True, True, None, None]
    assert closed["preToolUse"][0]["command"].endswith(" hook cursor --closed")
    repository.ok("setup", "cursor")
    assert repository.json(".cursor/hooks.json")["hooks"] == wanted


def test_gemini(repository: Repository) -> None:
    repository.ok("setup", "gemini")
    assert repository.json(".gemini/settings.json") == {
        "mcpServers": {"dibs": server("gemini")},
        "hooks": {
            "BeforeTool": grouped("gemini", 10_000, "^(write_file|replace|run_shell_command)$", name="dibs"),
            "SessionStart": grouped("gemini", 10_000, name="dibs"),
            "SessionEnd": grouped("gemini", 5_000, name="dibs"),
        },
    }
    assert sorted(repository.files()) == [".gemini", ".gemini/settings.json", "GEMINI.md"]


def test_vscode_is_advised(repository: Repository) -> None:
    result = repository.ok("setup", "vscode", "--json")
    entry = {"type": "stdio", **server("vscode", "--root", "${workspaceFolder}")}
    assert repository.json(".vscode/mcp.json") == {"servers": {"dibs": entry}}
    assert sorted(repository.files()) == [".vscode", ".vscode/mcp.json", "AGENTS.md"]
    assert result.json["enforces"] == "advice"
    assert any("advice only" in step for step in result.json["next"])
    assert repository("setup", "vscode", "--closed").code == 2


@pytest.mark.parametrize("client", CLIENTS)
def test_the_configured_commands_can_be_read_back(repository: Repository, client: str) -> None:
    known, root = KNOWN[client], str(repository.folder)
    assert (known.mcp_command(root), known.hook_commands(root)) == (None, {})
    flags = [] if client == "vscode" else ["--require-lock"]
    repository.ok("setup", client, *flags)
    command = known.mcp_command(root)
    assert command is not None
    assert command[:7] == [PYTHON, "-P", "-m", "dibs", "mcp", "--client", client]
    assert command[7:] in ([], ["--root", root])
    wanted = [[PYTHON, "-P", "-m", "dibs", "hook", client, "--require-lock"]]
    assert known.hook_commands(root) == {event: wanted for event, _, _ in known.events}


def test_the_installed_command_is_named_by_its_path(repository: Repository, tmp_path: Path) -> None:
    tools = tmp_path / "my tools"
    tools.mkdir()
    dibs = tools / "dibs"
    dibs.write_text(f"#!{sys.executable}\nimport sys\nfrom dibs.cli import main\nsys.exit(main())\n")
    dibs.chmod(0o755)
    for word, path in (("dibs", f"{tools}:{os.environ['PATH']}"), (str(dibs), os.environ["PATH"])):
        done = run(repository, word, "setup", "claude", PATH=path)
        assert done.code == 0, done
        assert repository.json(".mcp.json")["mcpServers"]["dibs"]["command"] == str(dibs)
        assert KNOWN["claude"].hook_commands(str(repository.folder))["PreToolUse"] == [[str(dibs), "hook", "claude"]]
    repository.ok("--as", "bob", "lock", "held.txt")
    event = {
        "session_id": "s1",
        "cwd": str(repository.folder),
        "hook_event_name": "PreToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": str(repository.folder / "held.txt"), "content": "x"},
    }
    group = repository.json(".claude/settings.local.json")["hooks"]["PreToolUse"][0]
    done = run(repository, "sh", "-c", group["hooks"][0]["command"], stdin=json.dumps(event))
    assert done.code == 0, done
    assert done.json["hookSpecificOutput"]["permissionDecision"] == "deny"


def run(repository: Repository, *words: str, stdin: str = "", **environ: str) -> Result:
    done = subprocess.run(
        words,
        cwd=repository.folder,
        env=repository.environ | environ,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_a_named_board_is_handed_on(repository: Repository, tmp_path: Path) -> None:
    repository.ok("--board", f"sqlite:{tmp_path}/other.db", "init")
    repository.ok("--board", f"sqlite:{tmp_path}/other.db", "setup", "claude")
    command = KNOWN["claude"].mcp_command(str(repository.folder))
    assert command is not None
    assert command[-2:] == ["--board", f"sqlite:{tmp_path}/other.db"]
    hooks = KNOWN["claude"].hook_commands(str(repository.folder))
    assert hooks["PreToolUse"][0][-2:] == ["--board", f"sqlite:{tmp_path}/other.db"]
    repository.ok("setup", "claude")
    assert "--board" not in repository.read(".mcp.json") + repository.read(".claude/settings.local.json")


# -- advice


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, "AGENTS.md"),
        ({"AGENTS.md": "for others\n"}, "AGENTS.md"),
        ({"CLAUDE.md": "mine", "AGENTS.md": "x"}, "CLAUDE.md"),
        ({"CLAUDE.md": "see\n\n@AGENTS.md\n", "AGENTS.md": "x"}, "AGENTS.md"),
        ({".claude/CLAUDE.md": "mine\n"}, ".claude/CLAUDE.md"),
    ],
)
def test_claude_is_advised_where_it_reads(repository: Repository, files: dict[str, str], wanted: str) -> None:
    for path, text in files.items():
        repository.write(path, text)
    repository.ok("setup", "claude")
    for path in {*files, wanted}:
        assert ("dibs:begin claude" in repository.read(path)) is (path == wanted)


def test_a_linked_claude_file_is_one_file(repository: Repository) -> None:
    repository.write("AGENTS.md", "rules\n")
    (repository.folder / "CLAUDE.md").symlink_to("AGENTS.md")
    repository.ok("setup", "claude")
    repository.ok("setup", "codex")
    assert repository.read("AGENTS.md").startswith("rules\n\n<!-- dibs:begin claude codex -->\n")
    assert repository.ok("setup", "claude", "--json").json["changed"] is False
    repository.ok("setup", "claude", "--remove")
    repository.ok("setup", "codex", "--remove")
    assert repository.read("AGENTS.md") == "rules\n"
    assert (repository.folder / "CLAUDE.md").is_symlink()


@pytest.mark.parametrize(
    ("setting", "wanted"), [('"RULES.md"', "RULES.md"), ('["X.md", "AGENTS.md"]', "AGENTS.md"), ("[]", "GEMINI.md")]
)
def test_gemini_is_advised_where_it_reads(repository: Repository, setting: str, wanted: str) -> None:
    repository.write(".gemini/settings.json", f'{{"context": {{"fileName": {setting}}}}}')
    repository.ok("setup", "gemini")
    assert "dibs:begin gemini" in repository.read(wanted)


def test_clients_that_read_one_file_share_the_advice(repository: Repository) -> None:
    for client in ("vscode", "codex", "cursor"):
        repository.ok("setup", client)
    text = repository.read("AGENTS.md")
    assert text.startswith("<!-- dibs:begin codex cursor vscode -->\n")
    assert text.count("dibs:begin") == 1
    assert len(text.splitlines()) <= 12
    repository.ok("setup", "codex", "--remove")
    repository.ok("setup", "vscode", "--remove")
    assert repository.read("AGENTS.md") == text.replace(" codex cursor vscode ", " cursor ")
    repository.ok("setup", "cursor", "--remove")
    assert repository.files() == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_skill_takes_the_place_of_the_advice(repository: Repository, client: str) -> None:
    repository.ok("setup", client)
    plain = repository.files()
    repository.ok("setup", client, "--skill")
    skill = repository.read(KNOWN[client].skill)
    head, name, description = skill.splitlines()[:3]
    assert (head, name) == ("---", "name: dibs")
    assert description.startswith("description: ")
    assert len(description) <= 1024
    assert not any("dibs:begin" in repository.read(path) for path in repository.files() if path.endswith("S.md"))
    assert repository.ok("setup", client, "--skill", "--json").json["changed"] is False
    repository.ok("setup", client)
    assert repository.files() == plain
    repository.ok("setup", client, "--skill")
    repository.ok("setup", client, "--remove")
    assert repository.files() == {}


def test_a_skill_that_somebody_changed_stays(repository: Repository) -> None:
    repository.ok("setup", "claude", "--skill")
    path = KNOWN["claude"].skill
    repository.write(path, repository.read(path).replace("# dibs", "# our dibs"))
    result = repository("setup", "claude", "--skill")
    assert result.code == 1
    assert "nothing was written" in result.err
    result = repository.ok("setup", "claude", "--remove")
    assert "stays" in result.err
    assert "# our dibs" in repository.read(path)


# -- places


def test_a_subfolder_means_its_worktree(repository: Repository, tmp_path: Path) -> None:
    below = repository.folder / "src" / "deep"
    below.mkdir(parents=True)
    repository.ok("setup", "claude", cwd=below)
    assert (repository.folder / ".mcp.json").exists()
    assert list(below.iterdir()) == []
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    tree = tmp_path / "tree"
    assert repository.git("worktree", "add", "--quiet", str(tree)).returncode == 0
    repository.ok("setup", "codex", cwd=tree)
    assert (tree / ".codex" / "config.toml").exists()
    assert not (repository.folder / ".codex").exists()


def test_all_worktrees_at_once(repository: Repository, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    trees = [tmp_path / "one", tmp_path / "two"]
    for tree in trees:
        assert repository.git("worktree", "add", "--quiet", str(tree)).returncode == 0
    alone = repository.ok("setup", "claude")
    assert "the 2 other worktrees do not have these files: dibs setup claude --worktrees" in " ".join(alone.out.split())
    said = repository.ok("setup", "claude", "--worktrees")
    assert "../one/.mcp.json" in said.out
    for tree in trees:
        for path in (".mcp.json", ".claude/settings.local.json", "AGENTS.md"):
            assert (tree / path).read_bytes() == (repository.folder / path).read_bytes()
    assert "already set up" in repository.ok("setup", "claude", "--worktrees").out
    repository.ok("setup", "claude", "--worktrees", "--remove", cwd=trees[0])
    assert not any((tree / ".mcp.json").exists() for tree in (repository.folder, *trees))


def test_a_file_that_cannot_be_read_in_one_worktree_stops_all(repository: Repository, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    tree = tmp_path / "one"
    assert repository.git("worktree", "add", "--quiet", str(tree)).returncode == 0
    (tree / ".mcp.json").write_text("{")
    assert repository("setup", "claude", "--worktrees").code == 1
    assert not (repository.folder / ".mcp.json").exists()
    assert (tree / ".mcp.json").read_text() == "{"


def test_outside_git_it_is_the_folder_of_the_board(repository: Repository, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "below").mkdir(parents=True)
    result = repository("setup", "claude", cwd=plain)
    assert result.code == 1
    assert "dibs init" in result.err
    repository.ok("init", cwd=plain)
    repository.ok("setup", "claude", cwd=plain / "below")
    assert (plain / ".mcp.json").exists()


def test_without_a_board_it_says_how_to_make_one(repository: Repository, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    repository.git("init", "--quiet", cwd=other)
    assert "dibs init" in repository.ok("setup", "claude", cwd=other).out


def test_an_unknown_client_is_a_usage_error(repository: Repository) -> None:
    result = repository("setup", "claud")
    assert result.code == 2
    assert "did you mean claude" in result.err
