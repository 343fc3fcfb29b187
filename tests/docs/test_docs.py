"""The documentation is true: its examples run, it leaves nothing out, its links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs import BoardTask, TaskBoard, errors
from dibs.cli.spec import COMMANDS, GLOBALS
from tests.docs.pages import PAGES, ROOT, RUN, Block, anchor, blocks, links, sections
from tests.docs.sandbox import Sandbox

CLI, PYTHON, CONCEPTS = (ROOT / "docs" / name for name in ("cli.md", "python.md", "concepts.md"))
NOT_RUN = {"README.md": 3, "docs/cli.md": 1, "docs/many-machines.md": 1, "docs/python.md": 1, "docs/teams.md": 2}
"""How many blocks each page leaves out, saying why. A new one is a decision, so it is counted here too."""

MACHINE_PATH = re.compile(r"(?<![\w.…])/(?:home|root|tmp|work|Users|usr|opt|var|etc|srv|mnt)\b|\b[A-Z]:\\")

SOURCES = sorted((ROOT / "src" / "dibs").rglob("*.py"))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_examples_of_a_page_run_and_print_what_it_says(page: Path, sandbox: Sandbox) -> None:
    for block in blocks(page):
        if block.language in RUN and block.not_run is None:
            sandbox.run(block)


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    left_out = [_name(block.page) for page in PAGES for block in blocks(page) if block.not_run]
    assert {page: left_out.count(page) for page in left_out} == NOT_RUN
    for page in PAGES:
        for block in blocks(page):
            assert block.not_run is None or block.language in RUN, f"{block.place} would not be run anyway"
            assert block.language in (*RUN, "", "text"), (
                f"{block.place} is {block.language}: neither run nor plain text"
            )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_is_documented_with_its_options(command: tuple) -> None:
    text = sections(CLI).get(f"dibs {command[0]}")
    assert text, f"docs/cli.md has no section 'dibs {command[0]}'"
    for long, short, *_ in command[5]:
        assert f"`{long}" in text or f"{long} " in text, f"dibs {command[0]} {long} is not documented"
        assert not short or re.search(rf"`{short}\b", text), f"dibs {command[0]} {short} is not documented"


def test_no_page_names_an_option_that_does_not_exist() -> None:
    known = {name for command in COMMANDS for option in command[5] for name in option[:2]} | {
        name for option in GLOBALS for name in option[:2]
    }
    guesses = {"--depends-on"}
    for page in PAGES:
        for line in page.read_text().splitlines():
            for command in re.findall(r"dibs (?:--as \S+ )?\w+ [^`|]*", line):
                for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", command.partition(" -- ")[0]):
                    assert option in known | guesses, f"{page.name}: {option} in {line!r}"


def test_every_global_option_and_variable_is_documented() -> None:
    text = sections(CLI)
    for long, short, *_ in GLOBALS:
        assert f"`{long}" in text["Options"]
        assert not short or f"`{short}`" in text["Options"]
    variables = {name for file in SOURCES for name in re.findall(r"\bDIBS_[A-Z_]+\b", file.read_text())}
    for variable in sorted(variables):
        assert f"`{variable}`" in text["Environment"], f"{variable} is not documented"


def test_every_public_name_is_documented() -> None:
    text = PYTHON.read_text()
    for name in dibs.__all__:
        assert re.search(rf"\b{name}\b", text), f"dibs.{name} is not documented"
    for owner in (TaskBoard, BoardTask):
        for name in dir(owner):
            if not name.startswith("_") and name not in ("seq", "unmet"):
                assert re.search(rf"`(?:\w+\.)?{name}[`(]", text), f"{owner.__name__}.{name} is not documented"


def test_every_error_is_documented_with_its_code_and_its_builtins() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+)$", sections(PYTHON)["Errors"], re.MULTILINE))
    tree = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.DibsError)
    }
    assert rows.keys() == tree.keys()
    for name, kind in tree.items():
        builtins = [base.__name__ for base in kind.__mro__[1:] if base.__module__ == "builtins"]
        code, also, _ = rows[name].split(" | ", 2)
        assert code == f"`{kind.code}`", name
        for builtin in also.replace("`", "").split(", "):
            assert builtin in builtins, name
        nearest = [base.__name__ for base in kind.__bases__ if base is not errors.DibsError]
        assert also == ", ".join(f"`{base}`" for base in nearest)


def test_every_action_of_the_changelog_is_documented() -> None:
    found = {
        action
        for file in SOURCES
        for action in re.findall(
            r'"((?:[a-z]+_)*(?:[a-z]+ed|sent)_(?:activity|task|files|locks|message|dependency|clock)|(?:un)?blocked|work_item_created|(?:copied|moved)_board|pivot_(?:started|completed))"',
            file.read_text(),
        )
    }
    documented = {
        action
        for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", sections(CONCEPTS)["Changelog"], re.MULTILINE)
        for action in re.findall(r"`(\w+)`", row)
    }
    shape = {"timestamp", "worker", "worker_type", "action", "activity_id", "task_id", "details", "seq", "data"}
    assert shape < documented
    # The step's status makes the name of these two.
    assert documented - shape == found | {"completed_task", "skipped_task"}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{_name(page)} links to {target}"
        assert there.is_relative_to(ROOT)
        if fragment:
            assert fragment in map(anchor, sections(there)), f"{_name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_no_page_names_a_path_of_some_machine(page: Path) -> None:
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert not MACHINE_PATH.search(line), f"{_name(page)}:{number}: {line}"


# -- the sandbox itself


def _block(language: str, text: str) -> Block:
    return Block(ROOT / "planted.md", 1, language, text, None)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("console", "$ echo one\ntwo\n"),
        ("console", "$ echo one\n"),
        ("console", "$ true\none\n"),
        ("console", "$ echo 'yours for 2h 00m'\nyours for 1h 00m\n"),
        ("console", "$ exit 1\n"),
        ("sh", "false\ntrue\n"),
        ("python", "print(1)  # -> 2\n"),
        ("python", "print(1)\n"),
        ("python", "pass  # -> 1\n"),
        ("python", "1 / 0\n"),
    ],
)
def test_the_sandbox_notices_a_wrong_example(language: str, text: str, sandbox: Sandbox) -> None:
    with pytest.raises(AssertionError, match="planted"):
        sandbox.run(_block(language, text))


def test_the_blocks_of_a_page_share_what_they_make(sandbox: Sandbox) -> None:
    for language, text in (
        ("sh", "mkdir inside && cd inside && export COLOUR='a b'\n"),
        ("console", '$ echo "$COLOUR" > made\n'),
        ("console", "$ false\n$ echo $?\n1\n$ cat made\na…\n$ printf 'x\\ny\\nz\\n'\n…\nz\n$ basename $PWD\ninside\n"),
        ("python", "number = 41\n"),
        ("python", "print(number + 1, open('inside/made').read().strip())  # -> 42 a b\n"),
        ("console", "$ echo 'held for another 59m'\nheld for another 1h 00m\n"),
    ):
        sandbox.run(_block(language, text))
