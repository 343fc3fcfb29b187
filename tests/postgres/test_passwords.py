"""A password in an address is shown by nobody, also when the address is misspelt or stands where none belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs import TaskBoard
from dibs.address import masked, masked_in
from dibs.errors import DibsError, Invalid
from dibs.stores.postgres.addresses import public
from tests.cli.shell import Shell
from tests.mcp.driving import serving
from tests.postgres.server import Server
from tests.postgres.test_cli import SECRET

MISTAKES = (
    f"postgress://ann:{SECRET}@127.0.0.1:1/work",
    f"Postgresql://ann:{SECRET}@127.0.0.1:1/work",
    f"pg://ann:{SECRET}@127.0.0.1:1/work",
    f"https://ann:{SECRET}@127.0.0.1:1/work",
    f"ann:{SECRET}@127.0.0.1/work",
    f"ann.lee:{SECRET}@{SECRET}@127.0.0.1/work",
    f"//ann:{SECRET}/{SECRET}@127.0.0.1/work",
    f"postgresql://ann:{SECRET}/work",
    f"postgress://127.0.0.1/work?password={SECRET}&board=web",
    f"host=127.0.0.1 user=ann password={SECRET}",
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("given", MISTAKES)
def test_no_command_shows_the_password_of_a_mistaken_address(shell: Shell, tmp_path: Path, given: str) -> None:
    for line in (["init", "--board", given], ["init", given], ["boards", given], [given, "list"], ["import", given]):
        told = shell(*line)
        assert told.code in (1, 2), told
        assert SECRET not in told.out + told.err
    for line in (["list", "--json"], ["doctor"], ["doctor", "--json"], ["setup", "claude"]):
        told = shell(*line, DIBS_BOARD=given)
        if line[0] != "setup":  # which looks at no board that it was not given
            assert told.code == 1, told
        assert SECRET not in told.out + told.err
    told = shell("setup", "claude", "--board", given)
    assert told.code == 1, told
    assert SECRET not in told.out + told.err
    assert all(SECRET not in str(path) for path in tmp_path.rglob("*")), "a board was made under that name"


@pytest.mark.parametrize("given", MISTAKES)
def test_no_error_of_python_shows_it(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DibsError) as caught:
        TaskBoard.open(given, create=True)
    assert SECRET not in f"{caught.value} {caught.value.as_dict()}"
    assert SECRET not in public(given) + masked(given) + masked_in(f"cannot read {masked(given)}: no such file")
    assert masked(masked(given)) == masked(given)


@pytest.mark.parametrize("given", [MISTAKES[0], MISTAKES[4]])
def test_no_answer_to_an_agent_shows_it(given: str, tmp_path: Path) -> None:
    with serving(None, tmp_path, name="ann", cwd=tmp_path, env={"DIBS_BOARD": given}) as agent:
        answer = agent.call("claim_task")
    assert answer.is_error
    assert "postgresql://" in answer["hint"]
    assert SECRET not in answer.text


def test_the_nearest_kind_is_offered_and_no_file() -> None:
    for given in (MISTAKES[0], MISTAKES[2], MISTAKES[4]):
        with pytest.raises(Invalid) as caught:
            TaskBoard.open(given)
        assert "did you mean postgresql://ann:…@127.0.0.1" in caught.value.hint
        assert "sqlite:" not in caught.value.hint


def test_a_scheme_may_be_written_in_any_case(server: Server) -> None:
    url = server.new_database()
    for scheme in ("Postgresql", "POSTGRES"):
        with TaskBoard.open(url.replace("postgresql", scheme), create=True) as board:
            assert board.url == url


def test_an_address_that_lacks_its_option_is_told_so(shell: Shell) -> None:
    told = shell("init", f"postgresql://ann:{SECRET}@127.0.0.1/work")
    assert told.code == 2
    assert "dibs init --board 'postgresql://ann:…@127.0.0.1/work'" in told.err
    assert "--board" in shell("list", "sqlite:x.db").err


def test_an_address_where_an_id_belongs_is_shown_without_it(shell: Shell) -> None:
    shell.ok("init")
    for line in (["claim"], ["show"], ["done"], ["run", "--task"], ["release"]):
        for more in ([], ["--json"]):
            told = shell(
                *more, *line, f"postgresql://ann:{SECRET}@127.0.0.1/work", *(["--", "true"] * (line[0] == "run"))
            )
            assert told.code, told
            assert SECRET not in told.out + told.err


@pytest.mark.parametrize(
    "given",
    [
        "sqlite:/home/ann:x@y/board.db", "/home/ann:x@y/board.db", "./a:b@c", "taskboard:a:b@c", "C:/Users/a@b/x.db",
        "postgresql://ann@db:5432/work", "postgresql://a,b:1,c/work", "postgresql://[::1]:5432/work", "board.db",
    ],
)  # fmt: skip
def test_what_holds_no_password_is_left_as_it_is(given: str) -> None:
    assert masked(given) == given
