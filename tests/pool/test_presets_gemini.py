"""Gemini CLI: a home for each start, made of the user's own; the project's server is as good, unless it goes astray."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import Invalid
from dibs.pool.runners import make_runner
from tests.pool.standins.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.close()


def project(stage: Stage, *words: str, **env: str) -> None:
    args = ["-P", "-m", "dibs", "mcp", "--client", "gemini", *words]
    entry = {"command": sys.executable, "args": args, "env": env}
    (stage.workspace / ".gemini").mkdir()
    (stage.workspace / ".gemini" / "settings.json").write_text(json.dumps({"mcpServers": {"dibs": entry}}))


def users(stage: Stage, text: str) -> Path:
    folder = stage.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(text)
    return folder


def test_an_edit_of_what_another_worker_holds_is_denied_and_its_own_is_not(stage: Stage) -> None:
    order = stage.order()
    report = stage.run(make_runner("gemini").launch(order), order)
    assert "held by bob" in json.loads(report["edits"]["held.txt"])["reason"]
    assert report["edits"]["own.txt"] == "allowed"


def test_the_user_s_settings_and_files_are_there_and_stay_as_they_were(stage: Stage) -> None:
    mine = {"type": "command", "command": "mine", "timeout": 5}
    hooks: dict[str, Any] = {"BeforeTool": [{"matcher": "x", "hooks": [mine]}]}
    theirs = {"ui": {"theme": "dark"}, "mcpServers": {"other": {"command": "other"}}, "hooks": hooks}
    folder = users(stage, f"// mine\n{json.dumps(theirs)}")
    (folder / "oauth_creds.json").write_text("secret")
    order = stage.order()
    launch = make_runner("gemini").launch(order)
    home = Path(launch.env["GEMINI_CLI_HOME"]) / ".gemini"
    assert os.readlink(home / "oauth_creds.json") == str(folder / "oauth_creds.json")
    settings = stage.run(launch, order)["settings"]
    assert settings["ui"] == {"theme": "dark"}
    assert settings["mcpServers"]["other"] == {"command": "other"}
    assert [group["hooks"][0]["command"] == "mine" for group in settings["hooks"]["BeforeTool"]] == [True, False]
    assert (folder / "settings.json").read_text().startswith("// mine")


def test_settings_that_cannot_be_read_are_not_left_out_silently(stage: Stage) -> None:
    users(stage, "{")
    with pytest.raises(Invalid, match=r"settings of Gemini CLI cannot be read: .*settings\.json"):
        make_runner("gemini").launch(stage.order())


@pytest.mark.parametrize("verb", ["diff", "log", "show"])
def test_git_that_only_looks_is_not_told_a_file_to_write(stage: Stage, verb: str) -> None:
    """`git log --output=FILE` writes anywhere. Gemini CLI asks the rule of the highest priority that matches."""
    launch = make_runner("gemini").launch(stage.order())
    rules = tomllib.loads(Path(launch.argv[launch.argv.index("--policy") + 1]).read_text())["rule"]

    def decision(command: str) -> str | None:
        arguments = json.dumps({"command": command}, separators=(",", ":"))
        for rule in sorted(rules, key=lambda rule: -rule["priority"]):
            prefixes = [f'"command":"{prefix}' for prefix in rule.get("commandPrefix", [])]
            pattern = f'"command":"{rule["commandRegex"]}' if "commandRegex" in rule else None
            if any(prefix in arguments for prefix in prefixes) or (pattern and re.search(pattern, arguments)):
                return str(rule["decision"])
        return None

    for words in (f"{verb} --output=/home/me/.profile", f"{verb} -1 -p --output x", f"{verb} --output x HEAD"):
        assert decision(f"git {words}") == "deny", words
    for words in (verb, f"{verb} --oneline -3", "commit -m 'log: --output is denied'"):
        assert decision(f"git {words}") == "allow", words
    assert decision("git push") is None


def test_the_user_s_policies_stay(stage: Stage) -> None:
    folder = users(stage, "{}") / "policies"
    folder.mkdir()
    order = stage.order()
    assert stage.run(make_runner("gemini").launch(order), order)["policies"][1] == str(folder)


def test_where_the_project_has_the_server_it_works_for_the_same_agent(stage: Stage) -> None:
    project(stage)
    order = stage.order()
    stage.run(make_runner("gemini").launch(order), order)
    stage.check_identity()


def test_a_server_of_the_project_that_names_another_board_or_worker_is_refused(stage: Stage) -> None:
    project(stage, "--board", f"sqlite:{stage.folder}/other.db", DIBS_AGENT="somebody-else", OTHER="fine")
    with pytest.raises(Invalid, match="for another worker or board: it sets DIBS_AGENT, DIBS_BOARD"):
        make_runner("gemini").launch(stage.order())


def test_a_server_of_the_project_that_names_this_board_is_not(stage: Stage) -> None:
    project(stage, "--board", stage.board.url)
    order = stage.order()
    stage.run(make_runner("gemini").launch(order), order)
    stage.check_identity()
