"""Files that name this machine's dibs are kept out of git, and taken from its list again to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.setup.repository import CLIENTS, Repository

FILE = ".git/info/exclude"
CLAUDE = ["/.claude/settings.local.json", "/.mcp.json"]


def lines(repository: Repository) -> list[str]:
    return repository.read(FILE).splitlines()


def untracked(repository: Repository, cwd: Path | None = None) -> list[str]:
    return repository.git("status", "--porcelain", "--untracked-files=all", cwd=cwd).stdout.splitlines()


@pytest.mark.parametrize("client", CLIENTS)
def test_only_what_names_no_machine_is_left_to_commit(repository: Repository, client: str) -> None:
    repository.write(".gitignore", "/.dibs/\n")
    said = repository.ok("setup", client, "--json").json["next"]
    advice = "GEMINI.md" if client == "gemini" else "AGENTS.md"
    assert untracked(repository) == ["?? .gitignore", f"?? {advice}"]
    assert f"commit {advice}: it names no machine" in said
    assert repository.ok("setup", client, "--json").json["changed"] is False
    repository.ok("setup", client, "--remove")
    assert not (repository.folder / ".git/info").exists()


@pytest.mark.parametrize("before", ["", "# mine\n*.o\n", "*.o", "a\r\nb\r\n", None])
def test_the_list_is_given_back_to_the_byte(repository: Repository, before: str | None) -> None:
    if before is not None:
        repository.write(FILE, before)
    repository.ok("setup", "claude")
    repository.ok("setup", "cursor")
    assert repository.read(FILE).count("dibs:begin") == 1
    assert lines(repository)[-6:] == [
        "# dibs:begin", CLAUDE[0], "/.cursor/hooks.json", "/.cursor/mcp.json", CLAUDE[1], "# dibs:end"
    ]  # fmt: skip
    repository.ok("setup", "cursor", "--remove")
    assert lines(repository)[-4:] == ["# dibs:begin", *CLAUDE, "# dibs:end"]
    repository.ok("setup", "claude", "--remove")
    assert (repository.read(FILE) if (repository.folder / FILE).exists() else None) == before


def test_worktrees_share_the_list(repository: Repository, tmp_path: Path) -> None:
    repository.write(".gitignore", "/.dibs/\n")
    repository.git("add", ".gitignore")
    repository.git("commit", "--quiet", "-m", "first")
    tree = tmp_path / "tree"
    repository.git("worktree", "add", "--quiet", str(tree))
    said = repository.ok("setup", "claude", "--worktrees", "--json", cwd=tree).json
    assert "commit AGENTS.md in every worktree: it names no machine" in said["next"]
    assert untracked(repository) == untracked(repository, tree) == ["?? AGENTS.md"]
    assert repository.ok("overlaps", "--json").json["overlaps"][0]["path"] == "AGENTS.md"
    repository.ok("setup", "claude", "--remove")
    assert untracked(repository, tree) == ["?? AGENTS.md"], "the other worktree still has its files"
    repository.ok("setup", "claude", "--remove", cwd=tree)
    assert not (repository.folder / ".git/info").exists()


def test_a_tracked_file_is_pointed_out(repository: Repository) -> None:
    repository.write(".mcp.json", "{}\n")
    repository.git("add", ".mcp.json")
    repository.git("commit", "--quiet", "-m", "ours")
    again = "git update-index --skip-worktree .mcp.json"
    told = f".mcp.json is tracked: do not commit this change ({again})"
    assert told in repository.ok("setup", "claude", "--json").json["next"]
    assert lines(repository)[1:-1] == CLAUDE[:1]
    assert repository.git(*again.split()[1:]).returncode == 0
    assert told not in repository.ok("setup", "claude", "--closed", "--json").json["next"], "that has been done"
    assert ".mcp.json" not in "".join(untracked(repository))


def test_a_file_behind_a_link_is_the_one_that_is_kept_out(repository: Repository) -> None:
    repository.write("conf/my mcp.json", "{}")
    (repository.folder / ".mcp.json").symlink_to("conf/my mcp.json")
    repository.ok("setup", "claude")
    assert "?? .mcp.json" in untracked(repository)
    assert not any("my mcp" in line for line in untracked(repository))
    repository.ok("setup", "claude", "--remove")
    assert not (repository.folder / FILE).exists()


@pytest.mark.parametrize("text", [b"\xff\n", b"# dibs:begin\n"])
def test_a_list_that_cannot_be_changed_keeps_nobody_from_it(repository: Repository, text: bytes) -> None:
    repository.write(FILE, text)
    said = repository.ok("setup", "claude", "--json").json
    assert "it was left alone" in said["warnings"][0]
    assert any(
        step.startswith("keep .mcp.json and .claude/settings.local.json out of commits") for step in said["next"]
    )
    assert (repository.folder / FILE).read_bytes() == text
    repository.ok("setup", "claude", "--remove")
    assert (repository.folder / FILE).read_bytes() == text


def test_outside_git_there_is_nothing_to_keep_out_of(repository: Repository, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    repository.ok("init", cwd=plain)
    said = repository.ok("setup", "claude", "--json", cwd=plain).json
    assert not any("commit" in step for step in said["next"])
    assert sorted(file["path"] for file in said["files"]) == [".claude/settings.local.json", ".mcp.json", "AGENTS.md"]
