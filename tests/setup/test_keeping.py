"""Whatever the files held stays as it was, to the byte; what cannot be understood is not touched."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from dibs.setup import plans
from tests.setup.repository import CLIENTS, Repository
from tests.variants import variants

DIBS = [os.path.abspath(sys.executable), "-P", "-m", "dibs"]

USERS: dict[str, tuple[str, str | bytes]] = {
    "empty object": ("", "{}"),
    "blank object": ("", "{ \n }\n\n"),
    "no end of line": ("", '{\n  "a": 1\n}'),
    "tabs": ("", '{\n\t"a": {\n\t\t"b": [1, 2]\n\t}\n}\n'),
    "four blanks and CRLF": ("", '{\r\n    "a": true,\r\n    "b": null\r\n}\r\n'),
    "a byte order mark": ("", '\ufeff{\n  "a": "é"\n}\n'),
    "minified": ("", '{"z":1,"a":[{"b":"\\u00e9"}]}'),
    "comments": ("", '// head\n{\n  // one\n  "a": 1, /* two */ // three\n  "b": 2 // four\n  // five\n}\n// foot\n'),
    "trailing commas": ("", '{\n  "a": [1, 2,],\n  "b": {"c": 1,},\n}\n'),
    "strange names": ("", '{"\\"}": "]", "//": "/*", "dibs": "not a server"}\n'),
    "our containers, empty": ("", '{\n  "mcpServers": {},\n  "servers": {\n  },\n  "hooks": {}\n}\n'),
    "our containers, in use": (
        "",
        '{\n  "hooks": {\n    "PreToolUse": [\n      {"matcher": "Bash", "hooks": [{"command": "a"}]}\n'
        '    ],\n    "BeforeTool": [],\n    "preToolUse": [ {"command": "mine"} ],\n    "Stop": []\n  },\n'
        '  "mcpServers": { "x": {"command": "y"} }, "servers": {"x": {"url": "u"}}\n}\n',
    ),
}
TOMLS = {
    "empty": "",
    "comment only": "# mine",
    "values": 'model = "o"\n',
    "tables": '[mcp_servers.x]\ncommand = "y" # mine\n\n[[things]]\na = 1\n\n\n',
    "no end of line": "[features]\nhooks = true",
    "CRLF": '\r\n[a]\r\nb = """x\r\ny"""\r\n',
}
PROSE = {"none": None, "empty": "", "one line": "# Rules", "text": "# Rules\n\n- be kind\n", "CRLF": "a\r\n\r\nb\r\n"}


def in_use(repository: Repository, client: str, name: str) -> None:
    """Files of a user, in all the places where setup will write."""
    text = str(USERS[name][1])
    hooks = text
    if client == "cursor":  # which reads only files with a version
        head, brace, tail = text.partition("{")
        comma = "," if tail.strip(" \t\r\n}") else ""
        hooks = f'{head}{brace}"version": 1{comma}{tail}'
    files = {
        "claude": {".mcp.json": text, ".claude/settings.local.json": hooks, ".claude/other.txt": "x"},
        "codex": {".codex/hooks.json": hooks},
        "cursor": {".cursor/mcp.json": text, ".cursor/hooks.json": hooks},
        "gemini": {".gemini/settings.json": hooks},
        "vscode": {".vscode/mcp.json": text},
    }[client]
    for path, data in files.items():
        repository.write(path, data)


@pytest.mark.parametrize("client", variants(CLIENTS, quick=["claude", "codex"]))
def test_taking_out_leaves_every_file_as_it_was(repository: Repository, client: str) -> None:
    for number, name in enumerate(USERS):
        in_use(repository, client, name)
        prose = list(PROSE.values())[number % len(PROSE)]
        for path in ("CLAUDE.md", "AGENTS.md", "GEMINI.md"):
            (repository.folder / path).unlink(missing_ok=True)
            if prose is not None:
                repository.write(path, prose)
        if client == "codex":
            repository.write(".codex/config.toml", list(TOMLS.values())[number % len(TOMLS)])
        before = repository.files()
        repository.ok("setup", client)
        assert repository.files() != before, name
        again = plans.install(client, str(repository.folder), plans.Options(DIBS))
        assert [file.shown for file in again.changes] == [], name
        repository.ok("setup", client, "--remove")
        assert repository.files() == before, name


@pytest.mark.parametrize("name", variants(USERS, quick=["comments", "four blanks and CRLF", "our containers, in use"]))
def test_everything_else_still_reads_the_same(repository: Repository, name: str) -> None:
    in_use(repository, "gemini", name)
    before = repository.jsonc(".gemini/settings.json")
    repository.ok("setup", "gemini")
    after = repository.jsonc(".gemini/settings.json")
    assert after["mcpServers"].pop("dibs")["args"][-3:] == ["mcp", "--client", "gemini"]
    for event in ("BeforeTool", "SessionStart", "SessionEnd"):
        assert after["hooks"][event].pop()["hooks"][0]["name"] == "dibs"
        if event not in before.get("hooks", {}):
            assert after["hooks"].pop(event) == []
    for section in ("mcpServers", "hooks"):
        if section not in before:
            assert after.pop(section) == {}
    assert after == before


@pytest.mark.parametrize("name", variants(TOMLS, quick=["CRLF", "tables"]))
def test_toml_around_the_block_still_reads_the_same(repository: Repository, name: str) -> None:
    repository.write(".codex/config.toml", TOMLS[name])
    before = tomllib.loads(TOMLS[name])
    repository.ok("setup", "codex")
    after = tomllib.loads(repository.read(".codex/config.toml"))
    assert after["mcp_servers"].pop("dibs")["args"][-1] == "codex"
    if "mcp_servers" not in before:
        assert after.pop("mcp_servers") == {}
    assert after == before
    repository.ok("setup", "codex", "--remove")
    assert repository.read(".codex/config.toml") == TOMLS[name]


@pytest.mark.parametrize("client", variants([*CLIENTS, "git"], quick=["claude", "codex", "git"]))
def test_files_and_folders_that_setup_made_are_gone(repository: Repository, client: str) -> None:
    before = repository.files()
    repository.ok("setup", client)
    assert repository.files() != before
    repository.ok("setup", client, "--remove")
    assert repository.files() == before
    assert "nothing of dibs is here" in repository.ok("setup", client, "--remove").out


@pytest.mark.parametrize("client", variants([*CLIENTS, "git"], quick=["claude", "codex", "git"]))
def test_a_dry_run_shows_everything_and_writes_nothing(repository: Repository, client: str) -> None:
    if client != "git":
        in_use(repository, client, "tabs")
    before = repository.files()
    shown = repository.ok("setup", client, "--dry-run")
    assert repository.files() == before
    assert "nothing was written" in shown.out
    patch = shown.out[: shown.out.index("\nwould ")] + "\n"
    repository.ok("setup", client)
    after = repository.files()
    for path in {name for name in {*before, *after} if before.get(name) != after.get(name) and after[name]}:
        assert f"+++ {path}\n" in patch
    repository.ok("setup", client, "--remove")
    patch_file = repository.folder.parent / "shown.patch"
    patch_file.write_text(patch)
    if client != "git":  # git does not apply patches to its own folder
        done = repository.git("apply", "--unsafe-paths", "-p0", str(patch_file))
        assert done.returncode == 0, done.stderr + patch
        assert {name: data for name, data in repository.files().items() if data} == {
            name: data for name, data in after.items() if data
        }


def test_a_moved_program_and_other_options_change_only_our_entries(repository: Repository) -> None:
    in_use(repository, "claude", "our containers, in use")
    repository.ok("setup", "claude")
    settings, mcp = repository.read(".claude/settings.local.json"), repository.read(".mcp.json")
    repository.ok("setup", "claude", "--require-lock", "--closed")
    wanted = settings.replace(" hook claude", " hook claude --require-lock --closed")
    assert repository.read(".claude/settings.local.json") == wanted
    moved = mcp.replace('"command": "/', '"command": "/old/').replace('/old/bin/dibs"', '/x"')
    repository.write(".mcp.json", moved)
    repository.ok("setup", "claude")
    assert repository.read(".mcp.json") == mcp
    assert repository.read(".claude/settings.local.json") == settings


def test_what_the_user_changed_meanwhile_survives(repository: Repository) -> None:
    repository.write("CLAUDE.md", "old\n")
    repository.ok("setup", "claude")
    repository.ok("setup", "codex")
    repository.write(
        ".mcp.json", repository.read(".mcp.json").replace('"mcpServers": {', '"mcpServers": {\n    "x": {},')
    )
    path = ".claude/settings.local.json"
    mine = '{"type": "command", "command": "mine"}'
    shared = repository.read(path).replace('"hooks": [\n          {', f'"hooks": [{mine},\n          {{', 1)
    repository.write(path, shared.replace('"hooks": {', '"model": "m", // mine\n  "hooks": {', 1))
    repository.write("CLAUDE.md", "# Mine\n" + repository.read("CLAUDE.md") + "more\n")
    toml = repository.read(".codex/config.toml").replace("# dibs:end", "startup_timeout_sec = 20\n# dibs:end")
    repository.write(".codex/config.toml", f"{toml}\n[features]\nx = true\n")
    repository.ok("setup", "codex")
    assert tomllib.loads(repository.read(".codex/config.toml"))["mcp_servers"]["dibs"]["startup_timeout_sec"] == 20
    for client in ("claude", "codex"):
        repository.ok("setup", client, "--remove")
    assert repository.json(".mcp.json") == {"mcpServers": {"x": {}}}
    group = {"matcher": "Edit|Write|MultiEdit|NotebookEdit|Bash", "hooks": [{"type": "command", "command": "mine"}]}
    assert repository.jsonc(path) == {"model": "m", "hooks": {"PreToolUse": [group]}}
    assert "// mine" in repository.read(path)
    assert repository.read("CLAUDE.md") == "# Mine\nold\nmore\n"
    assert repository.read(".codex/config.toml") == "\n[features]\nx = true\n"


# -- refusals


@pytest.mark.parametrize(
    ("client", "path", "data", "said"),
    [
        ("claude", ".mcp.json", '{"a": 1\n"b": 2}', "line 2"),
        ("claude", ".mcp.json", "", "line 1"),
        ("claude", ".mcp.json", "[]", "not an object"),
        ("claude", ".mcp.json", '{"mcpServers": []}', "not an object"),
        ("claude", ".mcp.json", '{"mcpServers": {"dibs": {"command": "npx", "args": ["dibs"]}}}', "did not write"),
        ("claude", ".mcp.json", '{"mcpServers": {"dibs": {"url": "u"}}}', "did not write"),
        ("claude", ".claude/settings.local.json", '{"hooks": {"PreToolUse": {}}}', "not an array"),
        ("claude", "CLAUDE.md", "<!-- dibs:begin claude -->\n", "exactly one"),
        ("claude", "CLAUDE.md", b"\xff\xfe", "UTF-8"),
        ("codex", ".codex/config.toml", "a = \n", "line 1"),
        ("codex", ".codex/config.toml", '[mcp_servers.dibs]\ncommand = "x"\n', "did not write"),
        ("codex", ".codex/config.toml", "mcp_servers = {x = {}}\n", "cannot change"),
        ("cursor", ".cursor/hooks.json", '{"hooks": {}}', "version"),
    ],
)
def test_what_cannot_be_understood_stops_everything(
    repository: Repository, client: str, path: str, data: str | bytes, said: str
) -> None:
    repository.write(path, data)
    before = repository.files()
    result = repository("setup", client, "--json")
    assert result.code == 1
    assert result.error["code"] == "invalid"
    assert path in result.error["message"]
    assert said in result.error["message"]
    assert "nothing was written" in result.error["message"]
    assert result.error["hint"]
    assert repository.files() == before


def test_somebody_elses_server_survives_removal(repository: Repository) -> None:
    repository.write(".mcp.json", '{"mcpServers": {"dibs": {"command": "npx"}}}')
    before = repository.files()
    repository.ok("setup", "claude", "--remove")
    assert repository.files() == before


def test_a_key_behind_the_block_is_not_moved_to_another_table(repository: Repository) -> None:
    repository.write(".codex/config.toml", "[a]\nb = 1\n")
    repository.ok("setup", "codex")
    repository.write(".codex/config.toml", repository.read(".codex/config.toml") + "c = 2\n")
    before = repository.files()
    assert "header of their own" in repository("setup", "codex", "--remove").err
    assert repository.files() == before


def test_a_read_only_file_is_not_replaced(repository: Repository) -> None:
    repository.write("CLAUDE.md", "mine\n", 0o444)
    result = repository("setup", "claude")
    assert result.code == 1
    assert "read-only" in result.err
    assert sorted(repository.files()) == ["CLAUDE.md"]


def test_links_are_followed_only_within_the_repository(repository: Repository, tmp_path: Path) -> None:
    repository.write("conf/mcp.json", "{}")
    (repository.folder / ".mcp.json").symlink_to("conf/mcp.json")
    repository.ok("setup", "claude")
    assert (repository.folder / ".mcp.json").is_symlink()
    assert "dibs" in repository.json("conf/mcp.json")["mcpServers"]
    repository.ok("setup", "claude", "--remove")
    assert repository.read("conf/mcp.json") == "{}"
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository.folder / ".codex").symlink_to(outside)
    result = repository("setup", "codex")
    assert result.code == 1
    assert "leads out of this repository" in result.err
    assert list(outside.iterdir()) == []
    assert not (repository.folder / "AGENTS.md").exists()


def test_a_folder_in_the_place_of_a_file_is_an_error(repository: Repository) -> None:
    (repository.folder / ".mcp.json").mkdir()
    assert "cannot read .mcp.json" in repository("setup", "claude").err
    repository.write(".codex", "a file")
    before = repository.files()
    assert repository("setup", "codex").code == 1
    assert repository.files() == before


def test_a_run_that_was_cut_short_is_completed_by_the_next(repository: Repository) -> None:
    repository.ok("setup", "claude")
    wanted = repository.files()
    os.unlink(repository.folder / ".claude" / "settings.local.json")
    os.unlink(repository.folder / "AGENTS.md")
    repository.ok("setup", "claude")
    assert repository.files() == wanted


def test_settings_that_switch_hooks_off_are_pointed_out(repository: Repository) -> None:
    repository.write(".claude/settings.local.json", '{"disableAllHooks": true}')
    assert "disableAllHooks" in repository.ok("setup", "claude").err
    repository.write(".codex/config.toml", "[features]\nhooks = false\n\n[[hooks.Stop]]\n")
    said = repository.ok("setup", "codex").err
    assert "hooks = false" in said
    assert "there are hooks in .codex/config.toml, too" in said


def test_somebody_elses_hook_of_the_same_words_stays(repository: Repository) -> None:
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "/opt/rtk hook claude"}]}
    repository.write(".claude/settings.local.json", json.dumps({"hooks": {"PreToolUse": [other]}}))
    before = repository.files()
    repository.ok("setup", "claude")
    assert len(repository.json(".claude/settings.local.json")["hooks"]["PreToolUse"]) == 2
    repository.ok("setup", "claude", "--remove")
    assert repository.files() == before


@pytest.mark.parametrize("end", ["```\n", ""])
def test_advice_that_somebody_shows_in_a_block_of_code_is_theirs(repository: Repository, end: str) -> None:
    text = f"# How we work\n\n```md\n<!-- dibs:begin claude -->\nour own words\n<!-- dibs:end -->\n{end}"
    repository.write("AGENTS.md", text)
    repository.ok("setup", "claude")
    assert "our own words" in repository.read("AGENTS.md")
    assert "Claim before you work" in repository.read("AGENTS.md")
    repository.ok("setup", "codex")
    assert repository.read("AGENTS.md").count("Claim before you work") == 1
    repository.ok("setup", "codex", "--remove")
    repository.ok("setup", "claude", "--remove")
    assert repository.read("AGENTS.md") == text
