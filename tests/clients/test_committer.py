"""Who commits below Gemini CLI, which hides the user's configuration of git. This needs no client."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dibs.pool.runners.gemini import committer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which git knows Ann."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ann Äpfel\n\temail = ann@example.org\n")
    return tmp_path


def author(env: dict[str, str], folder: Path) -> str:
    """Who git takes for the author where it sees nothing of the home."""
    hidden = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    words = ["git", "var", "GIT_AUTHOR_IDENT"]
    done = subprocess.run(words, cwd=folder, env={**os.environ, **hidden, **env}, capture_output=True, check=True)
    return done.stdout.decode().rpartition(">")[0]


def test_the_user_s_name_reaches_git_without_the_user_s_configuration(home: Path) -> None:
    assert author(committer(str(home)), home) == "Ann Äpfel <ann@example.org"


def test_what_the_environment_says_to_git_stays_and_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"user.name": "Bob", "core.abbrev": "12"}
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(given)))
    for number, (key, value) in enumerate(given.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    env = committer(str(home))
    assert author(env, home) == "Bob <ann@example.org"
    words = ["git", "config", "core.abbrev"]
    assert subprocess.run(words, cwd=home, env={**os.environ, **env}, capture_output=True).stdout == b"12\n"


def test_whom_the_environment_names_is_handed_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Carol")
    env = committer(str(home))
    monkeypatch.delenv("GIT_AUTHOR_NAME")  # as Gemini CLI does
    assert author(env, home) == "Carol <ann@example.org"


def test_where_git_knows_nobody_nothing_is_made_up(home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    assert committer(str(home)) == {}
