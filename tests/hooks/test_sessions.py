"""Sessions: what an agent hears at the start, what is given back at the end, and which locks are the agent's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hooks.repository import Repository, claude, cursor, gemini, is_silent, reason, session

SERVER = """
import sys
from dibs import TaskBoard, clients
from dibs.worker import of_process
board = TaskBoard.open()
me = of_process(sys.argv[2], "agent", "mcp-1")
board.lock([sys.argv[3]], me)
clients.register(me, sys.argv[1], board.url, sys.argv[4])
print("up", flush=True)
sys.stdin.read()
"""
CLIENT = """
import json, subprocess, sys
server, hooks = json.loads(sys.argv[1])
process = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
process.stdout.readline()
for command, event in hooks:
    done = subprocess.run(command, input=event, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]))
process.kill()
process.wait()
"""
"""A coding client: a process that runs an MCP server and, below itself, the hooks and shells of its agent."""


def in_client(repo: Repository, name: str, locked: str, *steps: tuple[list[str], object]) -> list[list[str]]:
    """What the hooks and commands below a Claude Code say (stdout, stderr) whose server holds a file."""
    server = [sys.executable, "-c", SERVER, "claude", name, locked, str(repo.two)]
    hooks = [[[sys.executable, "-m", "dibs", *words], json.dumps(event)] for words, event in steps]
    done = repo.run(sys.executable, "-c", CLIENT, json.dumps([server, hooks]), cwd=repo.two)
    assert done.code == 0, done
    return [json.loads(line)[1:] for line in done.out.splitlines()]


@contextmanager
def elsewhere(repo: Repository, client: str, name: str, locked: str) -> Iterator[None]:
    """Another client, whose server holds a file; nothing in the block runs below it."""
    server = [sys.executable, "-c", SERVER, client, name, locked, str(repo.two)]
    code = (
        "import subprocess, sys\n"
        f"server = subprocess.Popen({server}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "print(server.stdout.readline(), end='', flush=True)\n"
        "sys.stdin.readline()\n"
        "server.kill()\n"
        "server.wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=repo.two, env=repo.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
    finally:
        process.communicate(b"\n", timeout=60)


def write(repo: Repository, path: str, who: str = "s-1") -> dict[str, object]:
    return claude("Write", repo.two, who, file_path=str(repo.two / path), content="x")


# -- the start


@pytest.mark.parametrize("client", ["claude", "codex", "gemini"])
def test_a_session_begins_with_what_prime_says(repo: Repository, client: str) -> None:
    heard = repo.hook(client, session("SessionStart", repo.two, "s-1", source="startup"))
    specific = heard.json["hookSpecificOutput"]
    assert (heard.code, heard.err) == (0, "")
    assert specific.keys() == {"hookEventName", "additionalContext"}
    assert specific["hookEventName"] == "SessionStart"
    assert f'You are "{client}-' in specific["additionalContext"]
    assert '"a.py" by "bob"' in specific["additionalContext"]
    primed = repo.dibs("--as", specific["additionalContext"].split('"')[1], "prime", cwd=repo.two)
    assert primed.out.strip() == specific["additionalContext"].strip()


def test_cursor_hears_it_in_its_own_words(repo: Repository) -> None:
    heard = repo.hook("cursor", cursor("sessionStart", repo.two, session_id="s-1", composer_mode="agent"))
    assert heard.json.keys() == {"additional_context"}
    assert 'You are "cursor-' in heard.json["additional_context"]


def test_shells_of_claude_code_learn_who_they_are(repo: Repository, tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("export OTHER=1\n")
    start = session("SessionStart", repo.two, "it's $(me)", source="startup")
    repo.hook("claude", start, CLAUDE_ENV_FILE=str(file))
    shell = f'. {file}; echo "$OTHER $DIBS_SESSION"; {sys.executable} -m dibs lock learnt.py'
    said = repo.run("sh", "-c", shell, cwd=repo.two)
    assert said.out.startswith("1 it's $(me)\nlocked learnt.py"), said
    assert is_silent("claude", repo.hook("claude", write(repo, "learnt.py", "it's $(me)")))
    assert "is held by claude-" in reason("claude", repo.hook("claude", write(repo, "learnt.py", "s-2")))
    repo.hook("claude", session("SessionEnd", repo.two, "it's $(me)", reason="prompt_input_exit"))


def test_shells_are_told_nothing_where_a_server_will_tell_them(repo: Repository, tmp_path: Path) -> None:
    file = tmp_path / "env"
    start = session("SessionStart", repo.two, "s-1", source="startup")
    for env in ({"DIBS_AGENT": "dora"}, {"DIBS_SESSION": "d"}):
        repo.hook("claude", start, CLAUDE_ENV_FILE=str(file), **env)
    (repo.two / ".mcp.json").write_text('{"mcpServers": {"dibs": {"command": "dibs", "args": ["mcp"]}}}')
    repo.hook("claude", start, CLAUDE_ENV_FILE=str(file))
    (repo.two / ".mcp.json").unlink()
    repo.hook("gemini", start, CLAUDE_ENV_FILE=str(file))
    assert not file.exists()


# -- whose it is


def test_a_shell_of_the_same_session_is_the_same_worker_whatever_its_name(repo: Repository) -> None:
    repo.dibs("--as", "erin", "lock", "shells.py", cwd=repo.two, CLAUDE_CODE_SESSION_ID="s-9")
    assert is_silent("claude", repo.hook("claude", write(repo, "shells.py", "s-9")))
    assert "is held by erin" in reason("claude", repo.hook("claude", write(repo, "shells.py", "s-8")))


def test_the_lock_of_the_clients_own_mcp_server_is_the_agents_own(repo: Repository) -> None:
    steps = [
        (["hook", "claude"], write(repo, "served.py")),
        (["hook", "claude", "--require-lock"], write(repo, "served.py")),
        (["hook", "claude"], write(repo, "a.py")),
    ]
    own, required, others = in_client(repo, "claude-s1", "served.py", *steps)
    assert own == required == ["", ""]
    assert "held by bob" in others[0]


def test_another_clients_server_is_somebody_else(repo: Repository) -> None:
    with elsewhere(repo, "claude", "claude-s2", "theirs.py"):
        heard = repo.hook("claude", write(repo, "theirs.py"))
    assert "is held by claude-s2" in reason("claude", heard)


def test_cursors_server_is_known_by_the_folder_when_hooks_run_elsewhere(repo: Repository) -> None:
    event = cursor("preToolUse", repo.two, tool_name="Write", tool_input={"file_path": str(repo.two / "beside.py")})
    with elsewhere(repo, "cursor", "cursor-s3", "beside.py"):
        own = repo.hook("cursor", event)
        other = repo.hook("cursor", event | {"workspace_roots": [str(repo.one)]})
    assert is_silent("cursor", own)
    assert "is held by cursor-s3" in reason("cursor", other)


# -- renewing, and the end


def test_every_event_renews_when_it_is_time(repo: Repository) -> None:
    me = {"DIBS_AGENT": "faye", "DIBS_SESSION": "f"}
    repo.dibs("lock", "short.py", "--lease", "20m", **me)
    moved = (
        "import sys; from dibs import TaskBoard; from dibs.model import Worker; b = TaskBoard.open();\n"
        "with b.store.write() as tx:\n"
        "    lock = tx.locks(name='faye')[0]; lock.expires_at -= 600; tx.save_locks([lock])\n"
    )
    repo.run(sys.executable, "-c", moved)

    def left() -> float:
        code = "from dibs import TaskBoard; b = TaskBoard.open(); print(b.locks(['short.py'])[0].expires_at - b.now())"
        return float(repo.run(sys.executable, "-c", code).out)

    assert left() < 700
    for client, event in (
        ("claude", write(repo, "b.py")),
        ("gemini", gemini("read_file", repo.two, file_path="b.py")),
    ):
        assert is_silent(client, repo.hook(client, event, **me))
        assert left() > 1100
        before = repo.dibs("log", "--json").out
        assert is_silent(client, repo.hook(client, event, **me))
        assert repo.dibs("log", "--json").out == before
        repo.run(sys.executable, "-c", moved)
    repo.dibs("unlock", "--all", **me)


@pytest.mark.parametrize("client", ["claude", "codex", "gemini"])
@pytest.mark.parametrize("why", ["clear", "other"])
def test_a_session_that_ends_gives_back_what_it_held(repo: Repository, client: str, why: str) -> None:
    agent = f"gina-{client}-{why}"
    task = repo.dibs("add", "to be given back", "--path", f"{agent}/**", "--json").json["id"]
    repo.dibs("claim", task, DIBS_AGENT=agent, DIBS_SESSION="s-4")
    repo.dibs("lock", f"{agent}.py", DIBS_AGENT=agent, DIBS_SESSION="s-4")
    repo.dibs("lock", f"{agent}.txt", DIBS_AGENT=agent, DIBS_SESSION="s-5")
    assert is_silent(client, repo.hook(client, session("SessionEnd", repo.two, "s-4", reason=why), DIBS_AGENT=agent))
    assert [line for line in repo.locks() if agent in line] == [f"{agent} {agent}.txt"]
    assert repo.dibs("show", task, "--json").json["status"] == "pending"


def test_what_shells_of_the_session_took_under_other_names_is_given_back_too(repo: Repository) -> None:
    task = repo.dibs("add", "a shell's", "--json").json["id"]
    repo.dibs("--as", "judy", "claim", task, CLAUDE_CODE_SESSION_ID="s-10")
    repo.dibs("--as", "judy", "lock", "judy.py", CLAUDE_CODE_SESSION_ID="s-10")
    repo.dibs("--as", "judy", "lock", "judy.txt", CLAUDE_CODE_SESSION_ID="s-11")
    assert is_silent("claude", repo.hook("claude", session("SessionEnd", repo.two, "s-10", reason="other")))
    assert [line for line in repo.locks() if "judy" in line] == ["judy judy.txt"]
    assert repo.dibs("show", task, "--json").json["status"] == "pending"


def test_cursors_session_end_does_too(repo: Repository) -> None:
    repo.dibs("lock", "cursors.py", DIBS_AGENT="hugo", DIBS_SESSION="s-6")
    event = cursor("sessionEnd", repo.two, session="s-6", reason="user_close", duration_ms=1, is_background_agent=False)
    assert is_silent("cursor", repo.hook("cursor", event, DIBS_AGENT="hugo"))
    assert "hugo cursors.py" not in repo.locks()


def test_a_session_that_the_user_named_outlives_the_clients(repo: Repository) -> None:
    me = {"DIBS_AGENT": "iris", "DIBS_SESSION": "named"}
    repo.dibs("lock", "named.py", **me)
    assert is_silent("claude", repo.hook("claude", session("SessionEnd", repo.two, "s-7", reason="other"), **me))
    assert "iris named.py" in repo.locks()
    repo.dibs("unlock", "--all", **me)


def test_clearing_a_conversation_gives_nothing_of_the_mcp_server_away(repo: Repository) -> None:
    end = session("SessionEnd", repo.two, "s-1", reason="clear")
    ended, listed = in_client(
        repo, "claude-s4", "kept.py", (["hook", "claude"], end), (["locks", "kept.py", "--json"], None)
    )
    assert ended == ["", ""]
    assert json.loads(listed[0])["total"] == 1
