"""What `dibs setup` says when it is done, and `dibs doctor` about who you are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE, width
from tests.setup.repository import Repository


def steps(repository: Repository, *words: str, **environ: str) -> list[str]:
    said: list[str] = repository.ok("setup", *words, "--json", stdin="", cwd=None, **environ).json["next"]
    return said


def test_the_options_are_repeated(repository: Repository, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    repository.git("worktree", "add", "--quiet", str(tmp_path / "one"))
    said = steps(repository, "claude", "--require-lock", "--skill")
    again = "dibs setup claude --worktrees --require-lock --skill"
    assert f"the other worktree does not have these files: {again}" in said
    url = repository.ok("doctor", "--json").json["board"]["url"]
    said = steps(repository, "claude", "--closed", DIBS_BOARD=url)
    assert any(step.endswith(f": dibs --board {url} setup claude --closed") for step in said)
    said = repository.ok("--board", url, "setup", "claude", "--json").json["next"]
    assert f"the other worktree does not have these files: dibs --board {url} setup claude --worktrees" in said
    assert said[-1] == f"see that it works: dibs --board {url} doctor --prove"


def test_only_worktrees_that_lack_it_are_counted(repository: Repository, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    for name in ("one", "two"):
        repository.git("worktree", "add", "--quiet", str(tmp_path / name))
    repository.ok("setup", "claude", cwd=tmp_path / "one")
    assert "1 other worktree does not have these files: dibs setup claude --worktrees" in steps(repository, "claude")


def test_removal_says_who_still_has_it(repository: Repository, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    for name in ("one", "two"):
        repository.git("worktree", "add", "--quiet", str(tmp_path / name))
    repository.ok("setup", "claude", "--worktrees")
    said = "2 other worktrees still have it: dibs setup claude --remove --worktrees"
    assert steps(repository, "claude", "--remove") == [said]
    assert said in repository.ok("setup", "claude", "--remove").out, "also where there is nothing left to take out"
    repository.ok("setup", "claude", "--remove", cwd=tmp_path / "one")
    assert steps(repository, "claude", "--remove")[0].startswith("another worktree still has it: ")
    assert steps(repository, "claude", "--remove", "--worktrees") == []


def test_a_command_that_no_shell_finds(repository: Repository, tmp_path: Path) -> None:
    bare = ":".join(part for part in os.environ["PATH"].split(":") if not os.path.exists(os.path.join(part, "dibs")))
    told = [step for step in steps(repository, "claude", PATH=bare) if "the agent's shell will not find dibs" in step]
    beside = os.path.dirname(os.path.abspath(sys.executable))
    if os.path.exists(os.path.join(beside, "dibs")):
        assert told == [f"the agent's shell will not find dibs: put {beside} on its PATH, or link it"]
    assert len(told) == 1
    assert not any("will not find" in step for step in steps(repository, "git", PATH=bare)), "git needs no search"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dibs").write_text("#!/bin/sh\n")
    (tools / "dibs").chmod(0o755)
    said = steps(repository, "codex", PATH=f"{tools}:{bare}")
    assert said
    assert not any("will not find" in step for step in said)


@pytest.mark.parametrize(
    ("files", "words", "told"),
    [
        ({}, (), True),
        ({}, ("--skill",), False),
        ({"CLAUDE.md": "mine\n"}, (), False),
        ({"CLAUDE.md": "@AGENTS.md\n"}, (), False),
    ],
)
def test_an_old_claude_does_not_read_agents_md(
    repository: Repository, files: dict[str, str], words: tuple[str, ...], told: bool
) -> None:
    for path, text in files.items():
        repository.write(path, text)
    said = "Claude Code older than 2.1.277 does not read AGENTS.md: import it in CLAUDE.md (@AGENTS.md)"
    assert (said in steps(repository, "claude", *words)) is told
    assert said not in steps(repository, "codex")


def test_remarks_are_wrapped(repository: Repository) -> None:
    repository.write(".claude/settings.local.json", '{"disableAllHooks": true}')
    repository.write(".codex/config.toml", "[features]\nhooks = false\n\n[[hooks.Stop]]\n")
    for client in ("claude", "codex"):
        result = repository.ok("setup", client)
        lines = (result.out + result.err).splitlines()
        assert "dibs: " in result.err
        assert all(width(line) <= 80 or " " not in line.strip() for line in lines if "/" not in line), result
        assert all(width(line) <= 80 for line in result.err.splitlines()), result


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("copilot",), "did you mean vscode?"),
        (("claude-code",), "did you mean claude?"),
        (("windsurf",), f"let it start {os.path.abspath(sys.executable)} -P -m dibs mcp --client NAME;"),
        (("windsurf",), "to guard commits: dibs setup git"),
        (("claude", "codex"), "one client at a time"),
        (("vscode", "--require-lock"), "to guard commits: dibs setup git --require-lock"),
        (("vscode", "--closed", "--require-lock"), "to guard commits: dibs setup git --require-lock --closed"),
    ],
)
def test_what_cannot_be_set_up_is_answered_with_what_can(
    repository: Repository, words: tuple[str, ...], told: str
) -> None:
    result = repository("setup", *words)
    assert result.code == 2
    assert told in " ".join(result.err.split())
    assert width(result.err.splitlines()[0]) <= 80
    assert repository.files() == {}


def test_below_a_client_doctor_says_that_its_server_names_you(repository: Repository, tmp_path: Path) -> None:
    del repository.environ["DIBS_AGENT"]
    notes = Path(repository.environ["DIBS_RUNTIME_DIR"])
    # This process is the client: the server and the command are both below it.
    with subprocess.Popen(
        [sys.executable, "-m", "dibs", "mcp", "--client", "claude"],
        cwd=repository.folder,
        env=repository.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        hello = (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
            b'"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}\n'
        )
        server.stdin.write(hello)
        server.stdin.flush()
        end = time.monotonic() + PATIENCE
        while not (notes.is_dir() and any(path.suffix != ".new" for path in notes.iterdir())):
            assert time.monotonic() < end, "the server did not register"
            time.sleep(0.02)
        you = repository.ok("doctor", "--json").json["you"]
        text = " ".join(repository.ok("doctor").out.split())
        server.stdin.close()
        server.wait(PATIENCE)
    assert [you[key] for key in ("name_from", "kind_from", "session_from")] == ["client"] * 3
    assert you["name"].startswith("claude-")
    assert (you["kind"], you["process"]) == ("agent", server.pid)
    assert f"from the dibs mcp of your client (process {server.pid})" in text
    assert repository.ok("doctor", "--json").json["you"]["name_from"] == "login"
