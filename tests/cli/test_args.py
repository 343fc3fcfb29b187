"""The command line is read as its tables say, and what cannot be read is refused with a way out."""

from __future__ import annotations

from typing import Any

import pytest

from dibs.cli.args import Args, UsageError, find, parse, seconds, split
from dibs.cli.guessing import closest, distance


def read(line: str) -> Args:
    args, word, rest = split(line.split())
    command = find(word or "")
    assert command is not None
    return parse(command, rest, args)


def test_global_options_stand_before_or_after_the_command() -> None:
    for line in ("--as bob --json list", "list --as bob --json", "--json list --as=bob", "--as=bob list --json"):
        args = read(line)
        assert (args.as_, args.json, args.human) == ("bob", True, False)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("add x --priority 3", "priority", 3),
        ("add x --priority=3", "priority", 3),
        ("add x -p 3", "priority", 3),
        ("add x -p3", "priority", 3),
        ("add x -p=3", "priority", 3),
        ("add x -p -3", "priority", -3),
        ("add x --priority=-3", "priority", -3),
        ("add x", "priority", None),
        ("add x --needs a --needs b", "needs", ["a", "b"]),
        ("add x --depends-on a --needs b", "needs", ["a", "b"]),
        ("add x", "needs", []),
        ("add x --for HUMAN", "for_", "human"),
        ("add x --max-attempts 0", "max_attempts", 0),
        ("add write the page", "description", ["write", "the", "page"]),
        ("add -- --priority 3", "description", ["--priority", "3"]),
        ("add a -- -b", "description", ["a", "-b"]),
        ("add -", "description", ["-"]),
        ("claim", "id", None),
        ("claim abc", "id", "abc"),
        ("claim -n 3", "count", 3),
        ("claim --lease 90s", "lease", 90.0),
        ("claim --lease 1h30m", "lease", 5400.0),
        ("list -a", "all", True),
        ("list --status in-progress", "status", ["in_progress"]),
        ("log -fa", "follow", True),
        ("log -fan3", "limit", 3),
        ("run make -j4 --json", "command", ["make", "-j4", "--json"]),
        ("run --task a -- make --task b", "command", ["make", "--task", "b"]),
    ],
)
def test_a_line_is_read_so(line: str, name: str, value: Any) -> None:
    assert getattr(read(line), name) == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add x -p", "-p needs a value"),
        ("add x --id --review", "--id needs a value"),
        ("add x -p 1 -p 2", "-p is given twice"),
        ("--as a list --as b", "--as is given twice"),
        ("--as a --as b list", "--as is given twice"),
        ("add x -p one", "'one' is not a whole number"),
        ("add x -p 1_000", "not a whole number"),
        ("add x -p ٣", "not a whole number"),
        ("claim --lease soon", "'soon' is not a length of time"),
        ("claim --lease -5", "not a length of time"),
        ("claim --lease 1e9", "not a length of time"),
        ("add x --review=yes", "--review takes no value"),
        ("add x --for robot", "'robot' is not known"),
        ("claim a b", "unexpected 'b'"),
        ("show", "ID (the task) is missing"),
        ("block a", "REASON (what it waits for) is missing"),
        ("list --stat open", "no option --stat"),
        ("list -x", "no option -x"),
        ("claim --needs x", "no option --needs"),
    ],
)
def test_a_line_is_refused_so(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(line)
    assert message in caught.value.message


@pytest.mark.parametrize("line", ["team --lead add a page", "list --search two words"])
def test_a_text_without_quotes_is_answered_with_a_word_on_quotes(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(line)
    assert caught.value.hint == "put a text with blanks into quotes"


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("30m", 1800.0),
        ("2h", 7200.0),
        ("1.5H", 5400.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("0", 0.0),
        ("", None),
        ("m", None),
        ("1.2.3", None),
        ("-5", None),
        ("5 m", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
    ],
)
def test_lengths_of_time(text: str, length: float | None) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("clam", "claim"), ("cliam", "claim"), ("reday", "ready"), ("com", "completion"), ("xyzzy", None), ("", None)],
)
def test_a_mistyped_word_is_recognised(typed: str, meant: str | None) -> None:
    assert closest(typed, ["claim", "done", "ready", "list", "completion"]) == meant


def test_a_swap_of_neighbours_is_one_mistake() -> None:
    assert distance("list", "lsit") == 1
    assert distance("claim", "claim") == 0
    assert distance("", "abc") == 3
