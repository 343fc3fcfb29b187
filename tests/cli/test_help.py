"""Help: every command and option is documented, fits the screen, and the examples are commands that exist."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from dibs import __version__
from dibs.cli import helping, main
from dibs.cli.args import UsageError, find, parse, split
from dibs.cli.spec import COMMANDS, FOLDED, GLOBALS, GROUPS, GUESSES, HINTS, OPTION_GUESSES
from tests.cli.shell import Shell

NAMES = [command[0] for command in COMMANDS]


def test_the_overview_fits_one_screen_and_names_every_command() -> None:
    lines = helping.overview().split("\n")
    assert len(lines) <= 60
    assert any(line.startswith("locks: ") for line in lines)
    assert any("busy: " in line for line in lines)
    assert max(map(len, lines)) <= 80
    listed = [name for _, names in (*GROUPS, *FOLDED) for name in names]
    assert sorted(listed) == sorted(NAMES)
    assert all(any(line.startswith(f"  {name} ") for line in lines) for _, names in GROUPS for name in names)
    assert all(f"{title}: {' '.join(names)}" in lines for title, names in FOLDED)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == page
    assert main([name, "-h"]) == 0
    assert capsys.readouterr().out == page
    lines = page.split("\n")
    assert max(map(len, lines)) <= 80, page
    assert lines[0].startswith(f"usage: dibs {name}")
    assert "example" in page
    command = find(name)
    assert command is not None
    for option in command[5]:
        assert option[0] in page
        assert option[5], f"{name} {option[0]} says nothing about itself"


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_examples_of_a_page_can_be_read(command: tuple[str, ...]) -> None:
    for example in command[6]:
        for part in example.split("&&"):
            words = shlex.split(part.split(">")[0].split("|")[-1 if "| dibs" in part else 0])
            if words[0] != "dibs":
                continue  # `eval "$(dibs …)"`: the shell's business
            args, word, rest = split(words[1:])
            found = find(word or "")
            assert found is not None, example
            parse(found, rest, args)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_function_behind_a_command_exists(command: tuple[str, ...]) -> None:
    module = __import__(f"dibs.cli.{command[1]}", fromlist=[command[2]])
    assert callable(getattr(module, command[2]))


def test_no_help_or_hint_suggests_deleting_or_taking_what_others_hold() -> None:
    texts = [helping.overview(), *(helping.details(command) for command in COMMANDS), *(hint for _, hint in HINTS)]
    for text in texts:
        for bad in ("rm -", "delete the", "remove the", "steal", "override", "unlink"):
            assert bad not in text.lower()


def test_the_tables_are_consistent() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for guess, meant in GUESSES:
        assert find(meant) is not None
        assert find(guess) is None
    for word, _ in HINTS:
        assert find(word) is None
        assert word not in dict(GUESSES)
    everywhere = {name for option in GLOBALS for name in option[:2] if name}
    known = set(everywhere)
    for command in COMMANDS:
        own = [name for option in command[5] for name in option[:2] if name]
        assert len(set(own)) == len(own), command[0]
        assert not everywhere & set(own), command[0]
        known |= set(own)
    assert all(meant in known for _, meant in OPTION_GUESSES)


def test_help_about_something_unknown_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        helping.help_(None, parse(find("help"), ["clam"]))  # type: ignore[arg-type]


def test_alone_it_shows_the_overview_and_version_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == helping.overview() + "\n"
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == helping.overview() + "\n"
    for line in (["--version"], ["list", "--version"]):
        assert main(line) == 0
        assert capsys.readouterr().out == f"dibs {__version__}\n"


@pytest.mark.parametrize(("guess", "meant"), GUESSES)
def test_a_guess_works_and_says_so(guess: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([guess, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: dibs {meant}")
    assert err == f"dibs: {guess} is called {meant} here\n"
    assert main([guess, "--help", "--json"]) == 0
    main(["--json", guess, "--help"])
    assert capsys.readouterr().err == f"dibs: {guess} is called {meant} here\n"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["clam"], "dibs claim"),
        (["finsh"], "dibs done"),
        (["link", "a", "b"], "dibs dep a --needs OTHER"),
        (["rm", "a"], "dibs cancel"),
        (["list", "--stat", "open"], "--status"),
        (["list", "--status", "opne"], "open"),
        (["dep", "a", "b"], "dibs dep A --needs B"),
        (["--bord", "x", "list"], "--board"),
        (["--priority", "3", "add", "x"], "dibs add --priority"),
        (["step", "a", "skp"], "skip"),
    ],
)
def test_what_is_not_understood_is_answered_with_a_suggestion(
    words: list[str],
    suggestion: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIBS_BOARD", "memory:")
    monkeypatch.delenv("DIBS_JSON", raising=False)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert suggestion in err
    assert "usage: dibs " in err
    assert "see: dibs " in err


def test_a_usage_error_under_json_is_json(shell: Shell) -> None:
    for words in (("--json", "clam"), ("list", "--limit", "x", "--json")):
        result = shell(*words)
        assert result.code == 2
        assert result.error["code"] == "usage"
        assert result.error["usage"].startswith("dibs ")
    assert shell("clam", DIBS_JSON="1").error["code"] == "usage"
    assert "error" not in shell("clam", DIBS_JSON="0").err.splitlines()[0]


def test_every_command_of_the_issue_is_there() -> None:
    issue = (
        "init add list show ready claim renew release done fail retry cancel block unblock accept reject dep step lock "
        "unlock locks log tell inbox wait recover export import doctor demo run completion"
    )
    assert set(issue.split()) <= set(NAMES)


def test_hostile_words_on_the_command_line_are_not_echoed_raw(shell: Shell) -> None:
    result = shell("\x1b[31mclaim")
    assert result.code == 2
    assert "\x1b" not in result.err
    result = shell("show", "x\x1b[2J")
    assert result.code == 1
    assert "\x1b" not in result.err
    if os.name == "posix":
        assert shell("add", os.fsdecode(b"\xff\xfe")).code == 1
