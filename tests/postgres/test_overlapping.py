"""What the server says of two patterns is what the rule says, or that it does not know; and it knows the usual ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.paths import normalise, overlaps
from dibs.stores.postgres.overlapping import overlap
from tests.postgres.server import Server

COMPARED = f"""
SELECT compared.met FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS pair (a, b, at)
CROSS JOIN LATERAL ({overlap("pair.a", "pair.b")}) AS compared ORDER BY at
"""

pieces = ["a", "b", "ab", "*", "**", "?", "[ab]", "[!a]", "[", "]", "%", "_", "\\", "\\%", ".py", "é", "'", '"', "$1"]
segments = st.lists(st.sampled_from(pieces), min_size=1, max_size=4).map("".join)
patterns = st.lists(segments, min_size=1, max_size=4).map("/".join).map(normalise)


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection[tuple[bool | None]]]:
    with psycopg.connect(server.url(), cursor_factory=psycopg.RawCursor) as made:
        yield made


def told(connection: psycopg.Connection[tuple[bool | None]], pairs: list[tuple[str, str]]) -> list[bool | None]:
    rows = connection.execute(COMPARED, ([a for a, _ in pairs], [b for _, b in pairs])).fetchall()
    return [row[0] for row in rows]


def may_not_know(a: str, b: str) -> bool:
    """Is there a `[` against something that is spelt differently, or a `?` against another wildcard?"""

    def is_odd(x: str, y: str) -> bool:
        wild = [set("*?") & set(segment) for segment in (x, y)]
        return x != y and "*" not in (x, y) and ("[" in x + y or ("?" in x + y and all(wild)))

    return any(is_odd(x, y) for x, y in zip(a.split("/"), b.split("/"), strict=False))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(patterns, patterns), min_size=1, max_size=60))
def test_the_server_never_says_what_the_rule_does_not(
    connection: psycopg.Connection[tuple[bool | None]], pairs: list[tuple[str, str]]
) -> None:
    for (a, b), met in zip(pairs, told(connection, pairs), strict=True):
        if met is None:
            assert may_not_know(a, b), (a, b)
        else:
            assert met == overlaps(a, b), (a, b)


@pytest.mark.parametrize("seed", range(4))
def test_nor_of_many_that_are_alike(connection: psycopg.Connection[tuple[bool | None]], seed: int) -> None:
    chance = random.Random(seed)

    def pattern() -> str:
        made = ["".join(chance.choices(["a", "b", "*", "?", "**", ".py", "_", "%", "\\"], k=chance.randint(1, 4)))]
        return normalise("/".join(made * chance.randint(1, 2)))

    pairs = [(pattern(), pattern()) for _ in range(5000)]
    answers = told(connection, pairs)
    for (a, b), met in zip(pairs, answers, strict=True):
        assert met == overlaps(a, b) or (met is None and may_not_know(a, b)), (a, b)
    assert answers.count(True) > 500
    assert answers.count(False) > 500


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [
        ("src", "src/a.py", True),
        ("src/**", "src/a.py", True),
        ("**", "x", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a.md", False),
        ("src/*.py", "src/*.md", False),
        ("src/test_*", "src/*.py", True),
        ("src/test_*", "src/a*.py", False),
        ("src/*/x", "src/m1/*", True),
        ("src/**/a.py", "src/m/b.py", True),
        ("a?c", "abc", True),
        ("a?c", "abbc", False),
        ("app/[id]/page.tsx", "app/[id]/page.tsx", True),
        ("app/[id]/page.tsx", "app/*/page.md", False),
        ("100%", "100x", False),
        ("a_b", "axb", False),
        ("[ab]", "a", None),
        ("a?", "*b", None),
    ],
)
def test_it_knows_the_usual_ones(
    connection: psycopg.Connection[tuple[bool | None]], a: str, b: str, met: bool | None
) -> None:
    assert told(connection, [(a, b), (b, a)]) == [met, met]
    assert met is None or overlaps(a, b) == met
