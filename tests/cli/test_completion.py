"""The completion scripts load in their shells and offer what there is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from dibs.cli.spec import COMMANDS
from tests.cli.shell import PATIENCE, Shell, environment


@pytest.fixture
def ready(shell: Shell, tmp_path: Path) -> Shell:
    """A board with a task, and `dibs` as a command in the path."""
    script = tmp_path / "bin" / "dibs"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dibs "$@"\n')
    script.chmod(0o755)
    shell.environ["PATH"] = f"{script.parent}:{shell.environ['PATH']}"
    shell.add("A task to complete", "--id", "zebra-1")
    return shell


def test_ids_are_offered_and_silence_where_there_is_no_board(ready: Shell, tmp_path: Path) -> None:
    assert ready.ok("completion", "ids").out == "zebra-1\tA task to complete\n"
    empty = tmp_path / "empty"
    empty.mkdir()
    result = ready.ok("completion", "ids", cwd=empty)
    assert (result.out, result.err) == ("", "")
    assert ready("completion", "powershell").code == 2


CASES = [
    ("dibs cla", ["claim"]),
    ("dibs --as bob sho", ["show"]),
    ("dibs list --status fa", ["failed"]),
    ("dibs add --fo", ["--for"]),
    ("dibs add --for hu", ["human"]),
    ("dibs claim zeb", ["zebra-1"]),
    ("dibs dep abc --needs ze", ["zebra-1"]),
    ("dibs done z", ["zebra-1"]),
    ("dibs help unbl", ["unblock"]),
    ("dibs completion z", ["zsh"]),
]


@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash(ready: Shell, line: str, offered: list[str]) -> None:
    script = f"""
        source <(dibs completion bash)
        COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _dibs
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ready.folder,
        env=ready.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.split() == offered


def test_bash_offers_every_command(ready: Shell) -> None:
    script = 'source <(dibs completion bash); COMP_WORDS=(dibs ""); COMP_CWORD=1; _dibs; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], env=ready.environ, capture_output=True, text=True, check=True)
    assert {command[0] for command in COMMANDS} <= set(done.stdout.split())


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish(ready: Shell, line: str, offered: list[str]) -> None:
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"dibs completion fish | source; complete -C '{line}'"],
        cwd=ready.folder,
        env={**ready.environ, "HOME": str(ready.folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    assert [offer.split("\t")[0] for offer in done.stdout.splitlines()] == offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_zsh(ready: Shell, line: str, offered: list[str]) -> None:
    child = pexpect.spawn(
        "zsh",
        ["-f", "-i"],
        cwd=str(ready.folder),
        env={**ready.environ, "TERM": "dumb", "PS1": "> ", "HOME": str(ready.folder)},
        encoding="utf-8",
        dimensions=(40, 200),
        timeout=PATIENCE,
    )
    child.sendline("autoload -U compinit; compinit -u -D; source <(dibs completion zsh); echo load''ed")
    child.expect("loaded")
    child.expect("> ")
    child.send(f"{line}\t")
    child.expect_exact(f"{' '.join(line.split()[:-1])} {offered[0]}")
    child.close(force=True)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_zsh_script_can_be_autoloaded(ready: Shell) -> None:
    folder = ready.folder / "functions"
    folder.mkdir()
    (folder / "_dibs").write_text(ready.ok("completion", "zsh").out)
    done = subprocess.run(
        ["zsh", "-f", "-c", f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; print $_comps[dibs]"],
        env=environment(HOME=str(ready.folder)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.strip() == "_dibs"
