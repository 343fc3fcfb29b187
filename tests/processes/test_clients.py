"""A client's hooks and shells find the worker that its MCP server is, through the client's process above them all."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dibs import clients
from dibs.worker import of_process
from tests.processes.harness import environment

SERVER = """
import sys
from dibs import clients
from dibs.worker import of_process
me = of_process("claude-1", "agent", "s-" + sys.argv[1])
print(clients.register(me, "claude", sys.argv[1], sys.argv[2]), flush=True)
sys.stdin.read()
"""
ASK = 'from dibs import clients; w = clients.around({board!r}); print(w and f"{{w.name}} {{w.session}}")'
WHOAMI = "from dibs.worker import from_environment as f; w = f({name}); print(w.name, w.kind, w.session)"

CLIENT = """
import os, subprocess, sys
server = subprocess.Popen({server}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
note = server.stdout.readline().strip()
for command in {asked}:
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
{then}
server.kill()
server.wait()
print(os.path.exists(note))
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment() | {"DIBS_RUNTIME_DIR": str(tmp_path / "dibs-clients")}


def client(env: dict[str, str], server: list[str], *asked: list[str], then: str = "") -> list[str]:
    """What a client's children print: `asked` are started below a process that also runs `server`."""
    code = CLIENT.format(server=server, asked=list(asked), then=textwrap.dedent(then))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def shell(command: list[str]) -> list[str]:
    import shlex

    return ["sh", "-c", f"true; {shlex.join(command)}"]


def test_a_child_of_the_client_finds_its_server_also_through_shells(env: dict[str, str]) -> None:
    ask = python(ASK.format(board="b"))
    heard = client(env, python(SERVER, "b", "/r"), ask, shell(shell(ask)))
    assert heard[:2] == ["claude-1 s-b"] * 2


@pytest.mark.parametrize("runner", [["env"], ["sh", "-c", 'true; "$@"; true', "sh"], ["timeout", "50"]])
def test_a_server_started_by_a_runner_serves_the_client_above_it(env: dict[str, str], runner: list[str]) -> None:
    heard = client(env, [*runner, *python(SERVER, "b", "/r")], python(ASK.format(board="b")))
    assert heard[0] == "claude-1 s-b"


def test_others_do_not(env: dict[str, str], tmp_path: Path) -> None:
    server = subprocess.Popen(
        python(CLIENT.format(server=python(SERVER, "b", "/r"), asked=[], then="print('up', flush=True); input()")),
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
    done = subprocess.run(python(ASK.format(board="b")), env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    server.communicate("\n", timeout=30)


def test_a_note_of_a_dead_server_counts_for_nothing_and_is_swept(env: dict[str, str], tmp_path: Path) -> None:
    ask = python(ASK.format(board="b"))
    heard = client(
        env,
        python(SERVER, "b", "/r"),
        then=f"server.kill(); server.wait(); print(subprocess.run({ask}, capture_output=True).stdout.decode().strip())",
    )
    assert heard == ["None", "True"]
    client(env, python(SERVER, "b", "/r"))
    assert len(os.listdir(tmp_path / "dibs-clients")) == 1


def test_of_two_servers_that_of_the_board_is_taken(env: dict[str, str]) -> None:
    second = f"""
    other = subprocess.Popen({python(SERVER, "c", "/r")}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other.stdout.readline()
    for board in "bc":
        ask = {python(ASK)}
        ask[-1] = ask[-1].format(board=board)
        print(subprocess.run(ask, capture_output=True, text=True).stdout.strip())
    other.kill()
    other.wait()
    """
    heard = client(env, python(SERVER, "b", "/r"), then=second)
    assert heard[:2] == ["claude-1 s-b", "claude-1 s-c"]


def test_a_command_in_the_clients_shell_is_the_servers_worker_unless_it_says_otherwise(env: dict[str, str]) -> None:
    heard = client(
        env,
        python(SERVER, "b", "/r"),
        python(WHOAMI.format(name="")),
        python(WHOAMI.format(name="'claude-1'")),
        python(WHOAMI.format(name="'helper'")),
        python(WHOAMI.format(name="human=True")),
    )
    assert heard[0] == heard[1] == "claude-1 agent s-b"
    assert heard[2].startswith("helper agent")
    assert heard[2].split()[2] != "s-b"
    assert heard[3].split()[1] == "human"


def test_a_client_whose_hooks_run_elsewhere_is_known_by_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DIBS_RUNTIME_DIR", str(tmp_path / "dibs-clients"))
    me = of_process("cursor-1", "agent", "s1")
    note = clients.register(me, "cursor", "b", str(tmp_path))
    assert note is not None
    assert clients.beside("cursor", ["/elsewhere", str(tmp_path)], "b") == me
    assert clients.beside("cursor", ["/elsewhere"], "b") is None
    assert clients.beside("codex", [str(tmp_path)], "b") is None
    assert clients.beside("cursor", [str(tmp_path)], "c") is None
    clients.withdraw(note)
    assert clients.beside("cursor", [str(tmp_path)], "b") is None


def test_a_folder_that_others_can_write_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIBS_RUNTIME_DIR", str(tmp_path / "dibs-clients"))
    folder = tmp_path / "dibs-clients"
    folder.mkdir()
    folder.chmod(0o777)
    assert clients.register(of_process("x", "agent", "s"), "claude", "b", None) is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert clients.register(of_process("x", "agent", "s"), "claude", "b", None) is None
    assert clients.around("b") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"worker": {"name": 1}}', '{"worker": {"surprise": 1}}', "\udcff"])
def test_a_damaged_note_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("DIBS_RUNTIME_DIR", str(tmp_path / "dibs-clients"))
    note = clients.register(of_process("x", "agent", "s"), "claude", "b", str(tmp_path))
    assert note is not None
    Path(note).write_text(text, errors="surrogateescape")
    assert clients.beside("claude", [str(tmp_path)], "b") is None


def test_a_name_is_short_and_tells_sessions_apart() -> None:
    names = {clients.worker_name("claude", f"session-{n}") for n in range(50)}
    assert len(names) == 50
    assert all(name.startswith("claude-") and len(name) == 11 for name in names)
