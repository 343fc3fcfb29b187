"""`dibs doctor --prove` finds out what is set up, by trying it: each thing that is broken changes the verdict."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard
from dibs.proving import committing, serving
from dibs.proving.configured import read
from dibs.proving.matching import covered, edit_tools
from dibs.proving.trial import prove
from dibs.proving.trusted import is_compound
from tests.cli.shell import PATIENCE, Result, width
from tests.setup.repository import CLIENTS, Repository
from tests.variants import variants

GUARDED, ADVISORY, NOT_SET_UP = "guarded", "advisory", "not set up"
HOOKS = {
    "claude": ".claude/settings.local.json",
    "codex": ".codex/hooks.json",
    "cursor": ".cursor/hooks.json",
    "gemini": ".gemini/settings.json",
}
UNREADABLE = {
    "claude": ".mcp.json and .claude/settings.local.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/hooks.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".vscode/mcp.json",
}


class Proving(Repository):
    """A repository in which set-ups are made, broken and tried."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.temporary = folder.parent / "tmp"
        self.temporary.mkdir()
        self.environ["TMPDIR"] = str(self.temporary)

    def set_up(self, client: str, *words: str) -> None:
        self.ok("setup", client, *words)
        if client == "codex":  # which hands on no PYTHONPATH, and these tests run dibs from its sources
            table = self.read(".codex/config.toml")
            lines = table.splitlines()
            at = next(n for n, line in enumerate(lines) if line.startswith("env_vars"))
            lines[at] = 'env_vars = ["PYTHONPATH", "PYTHONPYCACHEPREFIX"]'
            self.write(".codex/config.toml", "\n".join(lines) + "\n")

    def only_hooks(self, client: str, *words: str) -> None:
        """Set up without the server, which takes longest to try."""
        self.set_up(client, *words)
        path = {"claude": ".mcp.json", "cursor": ".cursor/mcp.json"}.get(client)
        if path:
            (self.folder / path).unlink()
        else:
            self.change(HOOKS[client], lambda document: document.pop("mcpServers"))

    def change(self, path: str, edit: Any) -> None:
        document = self.json(path)
        edit(document)
        self.write(path, json.dumps(document))

    def prove(self, cwd: Path | None = None, **environ: str) -> Result:
        result = self("doctor", "--prove", "--json", cwd=cwd, **environ)
        assert result.code in (0, 1), result
        assert result.err == "", result
        assert result.json["ok"] is (result.code == 0), result
        return result

    def proof(self, client: str, *, code: int, **environ: str) -> Any:
        """What was found about one client, and the exit code that it must have given."""
        result = self.prove(None, **environ)
        assert result.code == code, result
        return named(result)[client]

    def fake(self, script: str) -> str:
        """A program called dibs that is none, first on the PATH: any other would not be started."""
        file = self.folder.parent / "bin" / "dibs"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        self.environ["PATH"] = f"{file.parent}:{os.environ['PATH']}"
        return str(file)


def named(result: Result) -> dict[str, Any]:
    return {client["client"]: client for client in result.json["clients"]}


def verdicts(result: Result) -> dict[str, str]:
    return {name: client["verdict"] for name, client in named(result).items()}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Proving]:
    made = Proving(tmp_path / "work")
    yield made
    left = made.ok("locks", "--json", PYTHONSAFEPATH="1").json["locks"]
    assert left == [], "something is left locked"
    assert list(made.temporary.iterdir()) == [], "something is left of the trial"
    assert running_in(tmp_path) == [], "something is left running"
    assert not list(made.folder.glob("dibs-prove*"))


def running_in(folder: Path) -> list[str]:
    """Processes, but for our own, that stand in a folder or have it in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if (where.startswith(str(folder)) or os.fsencode(folder) in command) and int(process.name) != os.getpid():
            found.append(f"{process.name}: {command!r}")
    return found


# -- what is set up works


def test_everything_that_setup_writes_works(repository: Proving) -> None:
    for client in (*CLIENTS, "git"):
        repository.set_up(client)
    files, index = repository.files(), repository.git("status", "--porcelain", "-uall").stdout
    before = len(repository.ok("log", "--json", "--all").out.splitlines())
    result = repository.prove()
    assert result.code == 0, result
    assert verdicts(result) == {
        **dict.fromkeys(("claude", "codex", "cursor", "gemini", "git"), GUARDED),
        "vscode": ADVISORY,
    }
    for name, client in named(result).items():
        assert client["faults"] == [], client
        if name != "git":
            assert (client["mcp"]["works"], client["mcp"]["tools"]) == (True, 10)
            assert client["mcp"]["worker"].startswith(f"{name}-")
        if name in HOOKS:
            keys = ("denied_edit", "denied_shell_write", "passed_free", "same_worker")
            assert [client["hook"][key] for key in keys] == [True] * 4, client
            assert client["hook"]["not_asked_for"] == []
    assert (repository.files(), repository.git("status", "--porcelain", "-uall").stdout) == (files, index)
    events = [json.loads(line) for line in repository.ok("log", "--json", "--all").out.splitlines()[before:]]
    assert len(events) == 2, "the trial's lock is taken and given back, and nothing else happens on the board"
    assert {event["worker"][:7] for event in events} == {"doctor-"}


def test_nothing_set_up_is_no_fault(repository: Proving) -> None:
    result = repository.prove()
    assert result.code == 0
    assert set(verdicts(result).values()) == {NOT_SET_UP}
    assert [client["next"] for client in result.json["clients"]] == [f"dibs setup {c}" for c in (*CLIENTS, "git")]


def test_the_text_fits_and_names_the_next_command(repository: Proving) -> None:
    repository.only_hooks("claude")
    repository.change(HOOKS["claude"], lambda d: d["hooks"]["PreToolUse"][0].update(matcher="Bash"))
    result = repository("doctor", "--prove")
    assert result.code == 1
    assert all(width(line) <= 80 for line in result.out.splitlines()), result
    assert "\x1b" not in result.out + result.err
    assert "  claude  advisory\n    ! the hook is not asked for Edit, Write, NotebookEdit" in result.out
    assert "      next: dibs setup claude\n" in result.out
    assert "  cursor  not set up  dibs setup cursor\n" in result.out
    assert result.out.endswith("\n! not everything that is set up works: 1 fault, see above\n")


def test_a_terminal_gets_colour(repository: Proving) -> None:
    repository.only_hooks("claude")
    main, other = pty.openpty()
    command = [sys.executable, "-m", "dibs", "doctor", "--prove"]
    environ = {**repository.environ, "TERM": "xterm"}
    with subprocess.Popen(command, cwd=repository.folder, env=environ, stdout=other, stderr=subprocess.PIPE):
        os.close(other)
        shown = b""
        try:
            while part := os.read(main, 1 << 16):
                shown += part
        except OSError:
            pass  # the other end is closed
    os.close(main)
    assert b"\x1b[32mguarded" in shown


def test_no_board_is_an_error_that_says_so(repository: Proving, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    result = repository.prove(cwd=alone)
    assert result.code == 1
    assert [finding["code"] for finding in result.json["findings"]] == ["no_board"]
    assert result.json["clients"] == []


@pytest.mark.slow
def test_each_worktree_has_its_own_set_up(repository: Proving, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    repository.only_hooks("claude")
    repository.set_up("git")
    other = tmp_path / "other"
    repository.git("worktree", "add", "--quiet", str(other))
    assert verdicts(repository.prove(cwd=other))["claude"] == NOT_SET_UP
    repository.ok("setup", "claude", cwd=other)
    (other / ".mcp.json").unlink()
    result = repository.prove(cwd=other)
    assert (result.code, verdicts(result)["claude"], verdicts(result)["git"]) == (0, GUARDED, GUARDED)


# -- the server


def break_server(repository: Proving, **entry: Any) -> None:
    repository.set_up("claude")
    repository.change(".mcp.json", lambda d: d["mcpServers"]["dibs"].update(entry))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "it ended without an answer"),
        pytest.param(
            "echo something is missing >&2; exit 3",
            "it ended without an answer; it said: something is missing",
            marks=pytest.mark.slow,
        ),
        pytest.param("yes hello", "it prints what is no MCP: 'hello'", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_is_none(repository: Proving, script: str, reason: str) -> None:
    break_server(repository, command=repository.fake(script), args=["mcp"])
    proof = repository.proof("claude", code=1)
    assert proof["verdict"] == ADVISORY
    assert reason in proof["reasons"][0]
    assert proof["mcp"]["works"] is False
    assert proof["hook"]["denied_edit"], "the hook is tried all the same"
    assert proof["next"] == "dibs setup claude"


def test_a_server_whose_program_is_gone(repository: Proving, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone" / "dibs")
    break_server(repository, command=gone, args=["mcp"])
    assert f"was not tried: there is no {gone}" in repository.proof("claude", code=1)["reasons"][0]


@pytest.mark.slow
def test_a_server_that_hangs(repository: Proving, monkeypatch: pytest.MonkeyPatch) -> None:
    break_server(repository, command=repository.fake("trap '' TERM; sleep 600 & wait; sleep 600"), args=["mcp"])
    (repository.folder / HOOKS["claude"]).unlink()
    monkeypatch.setattr(serving, "PATIENCE", 0.5)
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 0.2)
    monkeypatch.setattr("mcp.client.stdio.FORCE_KILL_TIMEOUT", 0.2)
    monkeypatch.setenv("TMPDIR", str(repository.temporary))
    monkeypatch.setenv("PATH", repository.environ["PATH"])
    monkeypatch.setattr("tempfile.tempdir", None)
    with TaskBoard.open(f"sqlite:{repository.folder}/.dibs/board.db") as board:
        claude = prove(board, str(repository.folder))[0]
    monkeypatch.setattr("tempfile.tempdir", None)
    assert claude.faults == ["the MCP server does not work: it did not answer within 0.5 s"]
    assert claude.verdict == ADVISORY


@pytest.mark.slow
def test_a_server_and_a_hook_of_another_board(repository: Proving, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/other.db"
    TaskBoard.open(url, create=True).close()
    repository.ok("--board", url, "setup", "claude")
    proof = repository.proof("claude", code=1)
    assert proof["verdict"] == ADVISORY
    assert f"the hook did not deny a forbidden edit; it looks at the board {url}" in proof["reasons"]
    assert "the MCP server does not work: it serves another board than this one" in proof["reasons"]


@pytest.mark.slow
def test_a_server_and_a_hook_that_act_for_two_workers(repository: Proving, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    break_server(repository, env={"DIBS_RUNTIME_DIR": str(elsewhere)})
    proof = repository.proof("claude", code=1)
    assert (proof["verdict"], proof["hook"]["same_worker"]) == (ADVISORY, False)
    assert "kept from its own locks" in proof["reasons"][0]


@pytest.mark.slow
def test_codex_hands_on_few_variables(repository: Proving, tmp_path: Path) -> None:
    """A board that only DIBS_BOARD names is not found by its server."""
    repository.set_up("codex")
    (repository.folder / ".codex/hooks.json").unlink()
    url = f"sqlite:{tmp_path}/other.db"
    TaskBoard.open(url, create=True).close()
    found = repository.proof("codex", code=1, DIBS_BOARD=url)
    assert (
        'it serves another board than this one; Codex hands on few variables: put env_vars = ["DIBS_BOARD"]'
        in (found["reasons"][0])
    )


@pytest.mark.parametrize(
    ("client", "path", "settings", "reason"),
    [
        ("claude", ".claude/settings.json", {"disabledMcpjsonServers": ["dibs"]}, "disabledMcpjsonServers"),
        ("claude", ".claude/settings.json", {"disableAllHooks": True}, "disableAllHooks"),
        ("gemini", ".gemini/settings.json", {"hooksConfig": {"enabled": False}}, "hooksConfig"),
        ("gemini", ".gemini/settings.json", {"mcp": {"excluded": ["dibs"]}}, "mcp.excluded"),
        ("cursor", ".cursor/hooks.json", {"version": 2}, '"version": 1'),
        ("codex", ".codex/hooks.json", {"more": 1}, "a key beside hooks and description"),
    ],
)
def test_what_is_switched_off_is_found(
    repository: Proving, client: str, path: str, settings: dict[str, Any], reason: str
) -> None:
    repository.set_up(client)
    there = repository.json(path) if (repository.folder / path).exists() else {}
    repository.write(path, json.dumps({**there, **settings}))
    found = read(client, str(repository.folder))
    assert any(reason in fault for fault in found.faults), found.faults


# -- the hook


@pytest.mark.slow
def test_no_hook_is_advice(repository: Proving) -> None:
    repository.set_up("claude")
    others = {"type": "command", "command": "true"}
    repository.change(HOOKS["claude"], lambda d: d["hooks"].update(PreToolUse=[{"hooks": [others]}], SessionStart=[]))
    repository.change(HOOKS["claude"], lambda d: d["hooks"].pop("SessionEnd"))
    proof = repository.proof("claude", code=0)
    assert (proof["verdict"], proof["mcp"]["works"], proof["hook"]["configured"]) == (ADVISORY, True, False)
    assert proof["reasons"] == ["no hook is set up: its edits are not checked"]
    assert proof["next"] == "dibs setup claude"


@pytest.mark.parametrize("client", variants(["claude", "cursor"], quick=["claude"]))
def test_a_hook_that_denies_nothing(repository: Proving, client: str) -> None:
    repository.only_hooks(client)
    text = repository.read(HOOKS[client])
    line = f"{os.path.abspath(sys.executable)} -P -m dibs hook {client}"
    assert line in text
    repository.write(HOOKS[client], text.replace(line, f"{repository.fake('cat > /dev/null')} hook {client}"))
    proof = repository.proof(client, code=1)
    assert proof["verdict"] == ADVISORY
    assert proof["reasons"] == [
        "the hook did not deny a forbidden edit",
        "the hook did not deny a forbidden shell write",
    ]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "the hook did not deny a forbidden edit: it ended with exit code 3"),
        ("echo nonsense", "the hook did not deny a forbidden edit"),
        (
            """echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"}}'""",
            "without naming who holds it",
        ),
        (
            """echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'""",
            "the hook allows edits itself",
        ),
        pytest.param("sleep 600 & sleep 600", "did not answer within 0.5 s", marks=pytest.mark.slow),
    ],
)
def test_a_hook_that_answers_something_else(repository: Proving, script: str, reason: str) -> None:
    repository.only_hooks("claude")
    handler = {"type": "command", "command": f"{repository.fake(script)} hook claude", "timeout": 0.5}
    repository.write(HOOKS["claude"], json.dumps({"hooks": {"PreToolUse": [{"hooks": [handler]}]}}))
    proof = repository.proof("claude", code=1)
    assert any(reason in each for each in proof["reasons"]), proof


def test_a_hook_whose_program_is_gone(repository: Proving, tmp_path: Path) -> None:
    repository.only_hooks("gemini")
    python = os.path.abspath(sys.executable)
    text = repository.read(HOOKS["gemini"])
    repository.write(HOOKS["gemini"], text.replace(f"{python} -P -m dibs", str(tmp_path / "gone" / "dibs")))
    assert f"was not tried: there is no {tmp_path}/gone/dibs" in repository.proof("gemini", code=1)["reasons"][0]


@pytest.mark.slow
def test_a_matcher_that_is_too_narrow(repository: Proving) -> None:
    repository.only_hooks("claude")
    repository.only_hooks("cursor")
    repository.only_hooks("gemini")
    repository.change(HOOKS["claude"], lambda d: d["hooks"]["PreToolUse"][0].update(matcher="Edit|Write"))
    repository.change(HOOKS["cursor"], lambda d: d["hooks"].pop("beforeShellExecution"))
    repository.change(HOOKS["gemini"], lambda d: d["hooks"]["BeforeTool"][0].update(matcher="run_shell_command"))
    result = repository.prove()
    assert result.code == 1
    found = {name: named(result)[name]["hook"]["not_asked_for"] for name in ("claude", "cursor", "gemini")}
    assert found == {
        "claude": ["NotebookEdit", "Bash"],
        "cursor": ["beforeShellExecution"],
        "gemini": ["write_file", "replace"],
    }
    assert all(named(result)[name]["verdict"] == ADVISORY for name in found)


@pytest.mark.slow
def test_every_command_is_asked(repository: Proving, tmp_path: Path) -> None:
    """Each tool may have a command of its own: one that looks elsewhere guards nothing."""
    url = f"sqlite:{tmp_path}/other.db"
    TaskBoard.open(url, create=True).close()
    for client, event, first, second in (
        ("claude", "PreToolUse", "Edit|Bash", "Write|NotebookEdit"),
        ("cursor", "preToolUse", "Write|StrReplace|Edit|Delete", "EditNotebook|ApplyPatch"),
        ("gemini", "BeforeTool", "write_file|run_shell_command", "replace"),
    ):
        repository.only_hooks(client)
        hooks = repository.json(HOOKS[client])["hooks"][event][0]
        other = json.loads(json.dumps(hooks).replace(f" hook {client}", f" hook {client} --board {url}"))
        entries = [{**hooks, "matcher": first}, {**other, "matcher": second}]
        repository.change(HOOKS[client], lambda d, event=event, entries=entries: d["hooks"].update({event: entries}))
    found = named(repository.prove())
    for client, tool in (("claude", "Write"), ("cursor", "EditNotebook"), ("gemini", "replace")):
        fault = f"the hook did not deny a forbidden edit; it looks at the board {url} (asked for {tool})"
        assert (found[client]["verdict"], found[client]["faults"]) == (ADVISORY, [fault])
        assert found[client]["hook"]["denied_edit"] is False


@pytest.mark.parametrize("client", variants(HOOKS, quick=["codex"]))
def test_a_command_for_each_tool(repository: Proving, client: str) -> None:
    """An attempt with any tool is one that the hook understands."""
    repository.set_up(client)
    for path in (".mcp.json", ".cursor/mcp.json", ".codex/config.toml"):
        (repository.folder / path).unlink(missing_ok=True)
    tools: dict[str, list[str]] = {}
    for event, tool in edit_tools(client):
        tools.setdefault(event, []).append(tool)
    for event, names in tools.items():
        entry = json.dumps(repository.json(HOOKS[client])["hooks"][event][0])
        entries = [
            {**json.loads(entry.replace(f" hook {client}", f" hook {client}{' --closed' * n}")), "matcher": tool}
            for n, tool in enumerate(names)
        ]
        repository.change(HOOKS[client], lambda d, event=event, entries=entries: d["hooks"].update({event: entries}))
    proof = repository.proof(client, code=0)
    assert (proof["verdict"], proof["faults"]) == (GUARDED, [])
    assert len(proof["hook"]["commands"]) >= max(map(len, tools.values()))


@pytest.mark.slow
def test_more_commands_than_are_tried(repository: Proving) -> None:
    repository.only_hooks("claude")
    group = json.dumps(repository.json(HOOKS["claude"])["hooks"]["PreToolUse"][0])
    groups = [json.loads(group.replace(" hook claude", f" hook claude{' --closed' * n}")) for n in range(9)]
    repository.change(HOOKS["claude"], lambda d: d["hooks"].update(PreToolUse=groups))
    faults = repository.proof("claude", code=1)["faults"]
    assert faults == ["there are 9 different commands of dibs, of which 8 were tried"]


@pytest.mark.slow
def test_a_hook_that_is_told_who_it_is(repository: Proving) -> None:
    repository.set_up("claude")
    text = repository.read(HOOKS["claude"])
    before, middle, after = text.partition(" hook claude")  # of what is asked before an edit, and nothing else
    repository.write(HOOKS["claude"], f"{before}{middle} --as bob{after}")
    proof = repository.proof("claude", code=1)
    why = "the agent would be kept from its own locks"
    assert (proof["verdict"], proof["next"]) == (ADVISORY, "dibs setup claude")
    assert proof["faults"] == [f"with --as a hook acts for bob, the server does not: {why}"]
    repository.write(HOOKS["claude"], text.replace(" hook claude", " hook claude --as bob"))
    assert repository.proof("claude", code=1)["reasons"] == proof["faults"]
    repository.change(".mcp.json", lambda d: d["mcpServers"]["dibs"].update(env={"DIBS_AGENT": "eve"}))
    assert repository.proof("claude", code=1)["faults"] == [
        f"with --as a hook acts for bob, the server acts for eve: {why}"
    ]
    repository.change(".mcp.json", lambda d: d["mcpServers"]["dibs"].update(env={"DIBS_AGENT": "bob"}))
    assert repository.proof("claude", code=0)["verdict"] == GUARDED


@pytest.mark.slow
def test_locks_that_are_required(repository: Proving) -> None:
    for client in ("claude", "gemini", "git"):
        if client == "git":
            repository.set_up(client, "--require-lock")
        else:
            repository.only_hooks(client, "--require-lock", "--closed")
    result = repository.prove()
    assert result.code == 0, result
    assert {name for name, verdict in verdicts(result).items() if verdict == GUARDED} == {"claude", "gemini", "git"}


def test_a_board_without_locks(repository: Proving, tmp_path: Path) -> None:
    url = f"taskboard:{tmp_path}/files"
    (tmp_path / "files").mkdir()
    repository.ok("--board", url, "init")
    repository.only_hooks("claude")
    repository.set_up("git")
    result = repository.prove(DIBS_BOARD=url)
    assert (result.code, verdicts(result)["claude"], verdicts(result)["git"]) == (0, ADVISORY, ADVISORY)
    assert "keeps no locks" in named(result)["claude"]["reasons"][0]


@pytest.mark.slow
def test_a_board_on_which_nothing_expires(repository: Proving, tmp_path: Path) -> None:
    url = f"spec:{tmp_path}/files"
    (tmp_path / "files").mkdir()
    repository.ok("--board", url, "init")
    repository.only_hooks("claude")
    result = repository.prove(DIBS_BOARD=url)
    assert (result.code, verdicts(result)["claude"]) == (0, GUARDED)
    assert repository.ok("--board", url, "locks", "--json").json["locks"] == []


@pytest.mark.slow
def test_the_next_command_repeats_what_is_in_force(repository: Proving, tmp_path: Path) -> None:
    repository.only_hooks("claude", "--require-lock", "--closed", "--skill")
    repository.change(HOOKS["claude"], lambda d: d["hooks"]["PreToolUse"][0].update(matcher="Bash"))
    repository.set_up("git", "--require-lock")
    (repository.folder / ".git/hooks/pre-commit").chmod(0o644)
    result = repository.prove()
    claude, git = named(result)["claude"], named(result)["git"]
    assert claude["next"] == "dibs setup claude --require-lock --closed --skill"
    assert claude["options"] == ["--require-lock", "--closed", "--skill"]
    assert git["next"] == "dibs setup git --require-lock"
    hints = {finding["hint"] for finding in result.json["findings"]}
    assert hints == {claude["next"], git["next"]}
    text = repository("doctor", "--prove").out
    assert "  claude  advisory, locks required, closed\n" in text
    url = f"sqlite:{tmp_path}/other.db"
    TaskBoard.open(url, create=True).close()
    named_one = repository("--board", url, "doctor", "--prove", "--json").json["clients"]
    wanted = f"dibs --board {url} setup claude --require-lock --closed --skill"
    assert [each["next"] for each in named_one if each["client"] == "claude"] == [wanted]


@pytest.mark.slow
def test_a_guard_with_options_says_so(repository: Proving) -> None:
    repository.only_hooks("claude", "--require-lock")
    repository.only_hooks("cursor", "--require-lock", "--closed")
    result = repository.ok("doctor", "--prove")
    assert "  claude  guarded, locks required  edits of what others hold are denied\n" in result.out
    assert "  cursor  guarded, locks required, closed  edits of what others hold are denied\n" in result.out
    assert all(width(line) <= 80 for line in result.out.splitlines()), result
    narrow = repository.ok("doctor", "--prove", COLUMNS="60").out
    assert "  cursor  guarded, locks required, closed\n      edits of what others hold are denied\n" in narrow


def test_an_unreadable_git_hook_is_a_fault(repository: Proving) -> None:
    (repository.folder / ".git/hooks/pre-commit").mkdir(parents=True)
    proof = repository.proof("git", code=1)
    assert "pre-commit cannot be read: Is a directory" in proof["faults"][0]
    assert proof["next"].startswith("mend ")


@pytest.mark.slow
def test_a_board_that_only_the_clients_files_name(repository: Proving, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/elsewhere/b.db"
    (tmp_path / "elsewhere").mkdir()
    TaskBoard.open(url, create=True).close()
    alone = tmp_path / "alone"
    alone.mkdir()
    repository.git("init", "--quiet", cwd=alone)
    said = repository.ok("--board", url, "setup", "claude", "--json", cwd=alone).json
    assert said["next"][-1] == f"see that it works: dibs --board {url} doctor --prove"
    (finding,) = repository.prove(cwd=alone).json["findings"]
    assert (finding["code"], finding["message"]) == ("no_board", "no board here, but .mcp.json names one")
    assert finding["hint"] == f"dibs --board {url} doctor --prove"
    result = repository("--board", url, "doctor", "--prove", "--json", cwd=alone)
    assert (result.code, verdicts(result)["claude"]) == (0, GUARDED)


@pytest.mark.slow
def test_worktrees_that_lack_a_set_up_are_counted(repository: Proving, tmp_path: Path) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "-m", "first")
    for name in ("one", "two"):
        repository.git("worktree", "add", "--quiet", str(tmp_path / name))
    repository.only_hooks("claude", "--closed")
    wanted = "1 of 3 worktrees has this; the others: dibs setup claude --worktrees --closed"
    assert wanted in repository.proof("claude", code=0)["notes"]
    there = named(repository.prove(cwd=tmp_path / "one"))["claude"]
    assert (there["verdict"], there["notes"]) == (NOT_SET_UP, [wanted])
    repository.ok("setup", "claude", "--closed", cwd=tmp_path / "one")
    assert any(
        note.startswith("2 of 3 worktrees have this; the other:")
        for note in repository.proof("claude", code=0)["notes"]
    )
    assert named(repository.prove())["cursor"]["notes"] == []


@pytest.mark.slow
def test_a_command_that_no_shell_finds_is_a_note(repository: Proving, tmp_path: Path) -> None:
    bare = ":".join(part for part in os.environ["PATH"].split(":") if not os.path.exists(os.path.join(part, "dibs")))
    result = repository.prove(PATH=bare)
    assert result.code == 0
    assert result.json["notes"][0].startswith("the agent's shell will not find dibs: ")
    assert "the agent's shell will not find dibs" in repository.ok("doctor", "--prove", PATH=bare).out
    bin_folder = os.path.dirname(repository.fake("exit 0"))
    assert repository.prove(PATH=f"{bin_folder}:{bare}").json["notes"] == []


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.slow
def test_neither_setup_nor_the_trial_needs_git(repository: Proving, tmp_path: Path, inside: bool) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    path = str(tmp_path / "bin")
    where = repository.folder if inside else tmp_path / "plain"
    where.mkdir(exist_ok=True)
    if not inside:
        repository.ok("init", cwd=where, PATH=path)
    repository.ok("setup", "claude", cwd=where, PATH=path)
    assert verdicts(repository.prove(cwd=where, PATH=path))["claude"] == GUARDED
    repository.ok("setup", "claude", "--remove", cwd=where, PATH=path)
    assert not (where / ".mcp.json").exists()


# -- only what is ours is run


def test_nobody_elses_command_is_run(repository: Proving, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    dibs = f"{os.path.abspath(sys.executable)} -m dibs"
    inside = repository.write("tools/dibs", f"#!/bin/sh\ntouch {mark}\n", 0o755)
    touch = repository.write("touch.sh", f"#!/bin/sh\ntouch {mark}\n", 0o755)
    lines = [
        f"{dibs} hook claude; touch {mark}",
        f"{dibs} hook claude --require-lock; touch {mark}",
        f"{dibs} hook claude --require-lock ; touch {mark}",
        f"{dibs} hook claude --board $(touch {mark})",
        f"{dibs} hook claude --board `touch {mark}`",
        f"{dibs} hook claude --board x\ntouch {mark}",
        f"{dibs} hook claude --as >{mark}",
        f"{dibs} hook claude & touch {mark}",
        f"{inside} hook claude",
        f"{touch} hook claude",
        "tools/dibs hook claude",
        f"touch {mark} hook claude",
        f"{touch} -m dibs hook claude",
        f"{touch} -P -m dibs hook claude",
        f"{tmp_path}/w*k/tools/dibs hook claude",
        "'~/tools/dibs' hook claude",
    ]
    repository.write("~/tools/dibs", f"#!/bin/sh\ntouch {mark}\n", 0o755)
    entries = [{"hooks": [{"type": "command", "command": line}]} for line in lines]
    repository.write(HOOKS["claude"], json.dumps({"hooks": {"PreToolUse": entries, "SessionStart": entries}}))
    for client, path, section in (
        ("claude", ".mcp.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".vscode/mcp.json", "servers"),
    ):
        command = {"claude": str(touch), "cursor": "${workspaceFolder}/tools/dibs", "vscode": "./tools/dibs"}[client]
        repository.write(path, json.dumps({section: {"dibs": {"command": command, "args": ["mcp"]}}}))
    repository.write(".git/hooks/pre-commit", f"#!/bin/sh\ntouch {mark}\n{dibs} hook git || exit 1\n", 0o755)
    result = repository.prove()
    assert result.code == 1
    assert not mark.exists()
    found = named(result)
    assert [found[name]["verdict"] for name in ("claude", "cursor", "vscode")] == [ADVISORY] * 3
    assert "was not tried" in found["cursor"]["reasons"][0]
    assert "lies in this repository" in found["cursor"]["reasons"][0]
    assert found["git"]["verdict"] == GUARDED, found["git"]
    assert any("other commands" in note for note in found["git"]["notes"])


@pytest.mark.slow
def test_only_the_running_dibs_and_the_one_on_the_path_are_started(repository: Proving, tmp_path: Path) -> None:
    """Whoever wrote a repository's files decides where they lead: to a download, a shared folder, another clone."""
    mark = tmp_path / "ran"
    (tmp_path / "far").mkdir()
    for name in ("dibs", "python3"):
        program = tmp_path / "far" / name
        program.write_text(f"#!/bin/sh\ntouch {mark}\n")
        program.chmod(0o755)
    # The interpreter of another environment: a link to ours, and it runs what is installed beside the link.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (packages / "sitecustomize.py").write_text(f"open({str(mark)!r}, 'w')\n")
    for program, words in (
        (tmp_path / "far/dibs", []),
        (tmp_path / "far/python3", ["-P", "-m", "dibs"]),
        (tmp_path / "venv/bin/python", ["-P", "-m", "dibs"]),
    ):
        entry = {"command": str(program), "args": [*words, "mcp"]}
        repository.write(".mcp.json", json.dumps({"mcpServers": {"dibs": entry}}))
        line = " ".join([str(program), *words, "hook"])
        handler = {"type": "command", "command": f"{line} claude"}
        repository.write(HOOKS["claude"], json.dumps({"hooks": {"PreToolUse": [{"hooks": [handler]}]}}))
        repository.write(".git/hooks/pre-commit", f"#!/bin/sh\n{line} git || exit 1\n", 0o755)
        found, why = read("claude", str(repository.folder)), f"was not tried: {program} is neither the dibs that is"
        assert [fault.split(" running ")[0] for fault in found.faults] == [
            f"the server dibs in .mcp.json {why}",
            f"a hook in {HOOKS['claude']} {why}",
        ]
        assert (found.server, found.hooks) == (None, [])
        guard = committing.read(str(repository.folder))
        assert (guard.argv, guard.fault) == ([], f"the check {why} running nor the one on the PATH")
    tried = verdicts(repository.prove())
    assert (tried["claude"], tried["git"], mark.exists()) == (ADVISORY, ADVISORY, False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dibs").symlink_to(tmp_path / "far/dibs")
    entry = {"command": str(tmp_path / "far/dibs"), "args": ["mcp"]}
    repository.write(".mcp.json", json.dumps({"mcpServers": {"dibs": entry}}))
    repository.prove(PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert mark.exists(), "the one on the PATH is found through its link"


SETS = "the server dibs in {} was not tried: its entry sets {}"
MORE = "the server dibs in {} was not tried: it has more than dibs setup writes: {}"


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        *(({"env": {name: "."}}, SETS.format(".mcp.json", name)) for name in ("PYTHONHOME", "LD_PRELOAD", "PATH", "X")),
        ({"env": {"NO_COLOR": "1", "PYTHONPATH": "."}}, SETS.format(".mcp.json", "PYTHONPATH")),
        ({"cwd": ".."}, "its working directory is outside this worktree"),
        ({"cwd": "away"}, "its working directory is outside this worktree"),
        ({"cwd": "\0"}, "its working directory is outside this worktree"),
        ({"command": "dibs", "args": ["mcp"]}, "was not tried: dibs is not a full path"),
        ({"command": "~/dibs", "args": ["mcp"]}, "was not tried: ~/dibs is not a full path"),
        ({"args": ["-P", "-m", "dibs", "run", "--", "touch", "mcp"]}, MORE.format(".mcp.json", "'run'")),
        ({"args": ["-P", "-m", "dibs", "mcp", "--new-token", "bob"]}, MORE.format(".mcp.json", "'--new-token'")),
        ({"args": ["-P", "-m", "dibs", "--as", "mcp"]}, "was not tried: it is no call of dibs mcp"),
    ],
)
def test_an_entry_that_may_make_its_server_run_something_else(
    repository: Proving, tmp_path: Path, entry: dict[str, Any], fault: str
) -> None:
    (repository.folder / "away").symlink_to(tmp_path)
    break_server(repository, **entry)
    found = read("claude", str(repository.folder))
    assert (found.server, found.has_server) == (None, True)
    assert any(fault in each for each in found.faults), found.faults


def test_an_entry_may_say_what_dibs_asks_for(repository: Proving) -> None:
    names = ("BOARD", "AGENT", "KIND", "SESSION", "RUNTIME_DIR")
    env = {**{f"DIBS_{name}": "x" for name in names}, "XDG_RUNTIME_DIR": "x", "NO_COLOR": "1"}
    (repository.folder / "sub").mkdir()
    words = ["-P", "-m", "dibs", "--board=x", "mcp", "--as", "bob", "--client", "claude", "--root", "."]
    break_server(repository, env=env, cwd="sub", args=words)
    found = read("claude", str(repository.folder))
    assert found.faults == []
    assert found.server is not None
    assert (found.server.env, found.server.cwd) == (env, str(repository.folder / "sub"))


def test_no_module_of_the_repository_is_run_by_way_of_the_environment(repository: Proving, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    repository.write("evil/sitecustomize.py", f"open({str(mark)!r}, 'w')\n")
    break_server(repository, env={"PYTHONPATH": str(repository.folder / "evil")})
    proof = repository.proof("claude", code=1)
    assert (proof["verdict"], mark.exists()) == (ADVISORY, False)
    assert proof["faults"] == [SETS.format(".mcp.json", "PYTHONPATH")]


def test_a_program_at_the_root_of_the_repository_is_not_run(repository: Proving, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = repository.write("dibs", f"#!/bin/sh\ntouch {mark}\n", 0o755)
    entry = {"command": "${workspaceFolder}/dibs", "args": ["mcp"]}
    repository.write(".cursor/mcp.json", json.dumps({"mcpServers": {"dibs": entry}}))
    handlers = [{"type": "command", "command": f"{word} hook claude"} for word in (str(program), "dibs")]
    repository.write(HOOKS["claude"], json.dumps({"hooks": {"PreToolUse": [{"hooks": handlers}]}}))
    result = outside_of_the_repository(repository, PATH=f":{os.environ['PATH']}")
    assert not mark.exists()
    assert "lies in this repository" in named(result)["cursor"]["faults"][0]
    assert ["lies in this repository" in fault for fault in named(result)["claude"]["faults"]] == [True, True]


def outside_of_the_repository(repository: Proving, **environ: str) -> Result:
    """The trial by a dibs that does not itself take modules from the repository, nor hand that on."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dibs", "doctor", "--prove", "--json"],
        cwd=repository.folder,
        env=repository.environ | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def as_it_was_written_once(repository: Proving) -> None:
    break_server(repository, args=["-m", "dibs", "mcp", "--client", "claude"])
    repository.write(HOOKS["claude"], repository.read(HOOKS["claude"]).replace(" -P -m dibs ", " -m dibs "))


@pytest.mark.parametrize("path", ["dibs/__main__.py", "dibs.py"])
@pytest.mark.slow
def test_a_package_of_the_same_name_in_the_repository_is_not_run(
    repository: Proving, tmp_path: Path, path: str
) -> None:
    mark = tmp_path / "ran"
    repository.set_up("claude")
    as_it_was_written_once(repository)
    repository.set_up("git")
    git = repository.folder / ".git/hooks/pre-commit"
    git.write_text(git.read_text().replace(" -P -m dibs ", " -m dibs "))
    repository.write(path, f"open({str(mark)!r}, 'w')\n")
    if path.startswith("dibs/"):
        repository.write("dibs/__init__.py", "")
    result = outside_of_the_repository(repository)
    assert (result.code, mark.exists()) == (1, False)
    shadow = repository.folder / path.partition("/")[0]
    why = f"was not tried: without -P, python -m dibs runs {shadow}, which lies in this repository"
    claude = named(result)["claude"]
    assert claude["faults"] == [f"the server dibs in .mcp.json {why}", f"a hook in {HOOKS['claude']} {why}"]
    assert (claude["verdict"], claude["next"]) == (ADVISORY, "dibs setup claude")
    assert named(result)["git"]["faults"] == [f"the check {why}"]
    for client in ("claude", "git"):
        repository.ok("setup", client, PYTHONSAFEPATH="1")
    result = outside_of_the_repository(repository)
    assert (result.code, mark.exists()) == (0, False), result
    assert (verdicts(result)["claude"], verdicts(result)["git"]) == (GUARDED, GUARDED)


@pytest.mark.slow
def test_what_was_written_once_takes_no_module_from_the_repository(repository: Proving, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    as_it_was_written_once(repository)
    repository.set_up("git")
    git = repository.folder / ".git/hooks/pre-commit"
    git.write_text(git.read_text().replace(" -P -m dibs ", " -m dibs "))
    for name in ("json", "sqlite3", "shlex", "anyio"):
        repository.write(f"{name}.py", f"open({str(mark)!r}, 'w')\n")
    result = outside_of_the_repository(repository)
    assert (result.code, mark.exists()) == (0, False), result
    assert (verdicts(result)["claude"], verdicts(result)["git"]) == (GUARDED, GUARDED)


@pytest.mark.slow
def test_whatever_the_files_hold(repository: Proving, tmp_path: Path) -> None:
    repository.write(".mcp.json", b"\xff\xfe dibs")
    repository.write(HOOKS["claude"], '{"hooks": ' + "[" * 5000 + "dibs")
    repository.write(".codex/config.toml", "dibs = " + "[" * 5000)
    repository.write(".codex/hooks.json", '{"hooks": {"PreToolUse": [7, {"hooks": 3}, null, {"command": ["dibs"]}]}}')
    repository.write(".cursor/hooks.json", b" " * (2 << 20))
    repository.write(".cursor/mcp.json", '{"mcpServers": {"dibs": {"command": "dibs", "args": ["mcp", 7]}}}')
    (repository.folder / ".vscode").mkdir()
    os.mkfifo(repository.folder / ".vscode/mcp.json")
    (repository.folder / ".gemini/settings.json").mkdir(parents=True)
    result = repository.prove()
    assert result.code == 1
    found = named(result)
    assert found["claude"]["verdict"] == NOT_SET_UP
    assert ".mcp.json cannot be understood: it is not UTF-8 text" in found["claude"]["reasons"]
    assert "cannot be understood" in found["codex"]["reasons"][0]
    assert any(".cursor/hooks.json is too large" in reason for reason in found["cursor"]["faults"])
    assert found["cursor"]["reasons"][0] == (
        "the server dibs in .cursor/mcp.json has no command, or arguments that are not text"
    )
    assert any("cannot be read" in reason for reason in found["vscode"]["faults"])
    mended = {name: f"mend {path}, then again: dibs doctor --prove" for name, path in UNREADABLE.items()}
    assert {name: found[name]["next"] for name in mended} == mended, "setup would refuse"
    text = repository("doctor", "--prove").out
    assert "    ! .vscode/mcp.json cannot be read" in text
    assert "dibs setup vscode" not in text


def test_a_server_that_is_reached_over_http_is_not_tried(repository: Proving) -> None:
    repository.write(".mcp.json", '{"mcpServers": {"dibs": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}}')
    proof = repository.proof("claude", code=0)
    assert (proof["verdict"], "works" in proof["mcp"]) == (ADVISORY, False)
    assert "the server dibs in .mcp.json is reached over HTTP, which was not tried" in proof["notes"]


def test_a_lock_on_everything_leaves_nothing_to_try(repository: Proving) -> None:
    repository.ok("--as", "bob", "lock", ".")
    result = repository.prove()
    assert (result.code, result.json["clients"]) == (1, [])
    assert [finding["code"] for finding in result.json["findings"]] == ["busy"]
    assert "bob" in result.json["findings"][0]["message"]
    repository.ok("--as", "bob", "unlock", ".")


@pytest.mark.parametrize("odd", variants(["\0", "\ud800", "\x1b[31m"], quick=["\x1b[31m"]))
def test_odd_characters_harm_nobody(repository: Proving, odd: str) -> None:
    program = repository.fake("touch ran")
    handler = {"type": "command", "command": f"{program} hook claude --board 'x{odd}'"}
    repository.write(HOOKS["claude"], json.dumps({"hooks": {"PreToolUse": [{"hooks": [handler]}]}}))
    entry = {"command": program, "args": ["mcp", f"x{odd}"], "env": {"X": odd}, "cwd": f"no{odd}"}
    repository.write(".mcp.json", json.dumps({"mcpServers": {"dibs": entry}}))
    result = repository("doctor", "--prove")
    assert result.code == 1
    assert odd not in result.out
    told = " ".join(result.out.split())
    assert "the server dibs in .mcp.json was not tried" in told
    assert "it does more than call dibs" in told
    assert not (repository.folder / "ran").exists()


def test_comments_in_json_are_read(repository: Proving) -> None:
    repository.only_hooks("gemini")
    repository.write(HOOKS["gemini"], "// ours\n" + repository.read(HOOKS["gemini"]))
    assert repository.proof("gemini", code=0)["verdict"] == GUARDED


@pytest.mark.parametrize(
    ("client", "matcher", "tools", "others"),
    [
        ("claude", None, ["Edit", "Bash"], []),
        ("claude", "*", ["Edit"], []),
        ("claude", "Edit|Write", ["Edit", "Write"], ["MultiEdit", "Bash"]),
        ("claude", "Edit, Write", ["Edit", "Write"], ["Bash"]),
        ("claude", "Edi", [], ["Edit"]),
        ("claude", ".*Edit", ["Edit", "MultiEdit"], ["Write"]),
        ("gemini", "write", ["write_file"], ["replace"]),
        ("codex", "^(apply_patch|Bash)$", ["apply_patch", "Bash"], []),
        ("codex", "Edit|Write", ["apply_patch"], ["Bash"]),
        ("codex", "(", [], ["Bash"]),
        ("codex", "(.*)*(.*)*x", [], ["Bash"]),
        ("codex", ["Bash"], [], ["Bash"]),
    ],
)
def test_matchers(client: str, matcher: object, tools: list[str], others: list[str]) -> None:
    assert [tool for tool in (*tools, *others) if covered(client, matcher, tool)] == tools


def test_compound_lines() -> None:
    assert not is_compound("'/opt/a b;c/dibs' hook claude --board 'sqlite:a&b'")
    for line in ("dibs;x", "dibs | x", "dibs > x", "(dibs)", "dibs $X", "dibs `x`", "dibs\nx", "dibs 'x"):
        assert is_compound(line), line


# -- git


@pytest.mark.slow
def test_the_git_guard(repository: Proving) -> None:
    repository.git("config", "core.hooksPath", ".githooks")
    repository.git("config", "core.splitIndex", "true")
    repository.write("a.txt", "a\n")
    repository.write("held.txt", "a\n")
    repository.git("add", "a.txt", "held.txt")
    repository.git("commit", "--quiet", "-m", "first")
    repository.write("held.txt", "b\n")
    repository.git("add", "held.txt")
    repository.ok("--as", "bob", "lock", "held.txt")
    repository.set_up("git")
    before = {path: path.read_bytes() for path in (repository.folder / ".git").rglob("*") if path.is_file()}
    proof = repository.proof("git", code=0)
    assert proof["verdict"] == GUARDED, "what others have staged and hold makes no difference"
    after = {path: path.read_bytes() for path in (repository.folder / ".git").rglob("*") if path.is_file()}
    assert after == before, "not even an object is written"
    repository.ok("--as", "bob", "unlock", "held.txt")
    hook = repository.folder / ".githooks/pre-commit"
    hook.chmod(0o644)
    assert "not executable" in repository.proof("git", code=1)["reasons"][0]
    hook.chmod(0o755)
    text = hook.read_text()
    hook.write_text(text.replace(f"{os.path.abspath(sys.executable)} -P -m dibs", repository.fake("exit 0")))
    assert "was not refused (exit code 0)" in repository.proof("git", code=1)["reasons"][0]
    hook.write_text("#!/bin/sh\nexit 0\n")
    assert repository.proof("git", code=0)["verdict"] == NOT_SET_UP


# -- the end comes early


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_an_interrupt_gives_everything_back(repository: Proving, number: signal.Signals) -> None:
    break_server(repository, command=repository.fake("exec sleep 600"), args=["mcp"])
    (repository.folder / HOOKS["claude"]).unlink()
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "doctor", "--prove"],
        cwd=repository.folder,
        env=repository.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + PATIENCE
    while not any("sleep" in each for each in running_in(repository.folder)) and time.monotonic() < end:
        time.sleep(0.02)
    locks = repository.ok("locks", "--json").json["locks"]
    assert len(locks) == 1
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_trial_that_is_killed_leaves_nothing_held(repository: Proving) -> None:
    break_server(repository, command=repository.fake("cat > /dev/null"), args=["mcp"])
    (repository.folder / HOOKS["claude"]).unlink()
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "doctor", "--prove"], cwd=repository.folder, env=repository.environ
    )
    end = time.monotonic() + PATIENCE
    while not any(b"cat" in each.encode() for each in running_in(repository.folder)) and time.monotonic() < end:
        time.sleep(0.02)
    (lock,) = repository.ok("locks", "--json").json["locks"]
    process.kill()
    process.wait()
    assert repository.ok("--as", "bob", "lock", lock["pattern"]).code == 0, "its process is gone, and so is its lock"
    repository.ok("--as", "bob", "unlock", lock["pattern"])
    while running_in(repository.folder) and time.monotonic() < end:
        time.sleep(0.02)
    for left in repository.temporary.iterdir():  # nobody could clear that away
        subprocess.run(["rm", "-rf", str(left)], check=True)
