"""The files beside a board that `--board` names: they carry its whole name, and a mistyped one makes none."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell, names


def test_the_side_files_of_a_board_carry_its_whole_name(shell: Shell) -> None:
    (shell.folder / "Cargo.lock").write_text("precious")
    shell.ok("--board", "Cargo.db", "init")
    shell.ok("--board", "Cargo.db", "add", "x")
    left = [name for name in names(shell.folder) if not name.endswith(("-wal", "-shm"))]
    assert left == [".dibs", "Cargo.db", "Cargo.db-lock", "Cargo.db-sync", "Cargo.lock"]
    assert (shell.folder / "Cargo.lock").read_text() == "precious"


@pytest.mark.parametrize("words", [["list"], ["claim"], ["add", "x"], ["init"], ["doctor"]], ids=" ".join)
def test_a_mistyped_board_is_refused_and_nothing_is_made_beside_it(shell: Shell, words: list[str]) -> None:
    (shell.folder / "Cargo.toml").write_text('[package]\nname = "x"\n')
    (shell.folder / "Cargo.lock").write_text("precious")
    refused = shell("--board", "Cargo.toml", *words)
    assert refused.code == 1, refused
    assert "internal error" not in refused.err
    assert names(shell.folder) == [".dibs", "Cargo.lock", "Cargo.toml"]
    assert (shell.folder / "Cargo.toml").read_text() == '[package]\nname = "x"\n'
    assert (shell.folder / "Cargo.lock").read_text() == "precious"


@pytest.mark.parametrize("words", [["list"], ["claim"], ["add", "x"]], ids=" ".join)
def test_a_board_that_is_not_there_is_not_made_by_looking(shell: Shell, words: list[str]) -> None:
    refused = shell("--board", "nowhere.db", *words)
    assert refused.code == 1, refused
    assert names(shell.folder) == [".dibs"]
