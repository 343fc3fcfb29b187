"""Fixtures of the tests that need a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.server import Server, server_for_test


@pytest.fixture
def server() -> Server:
    """The one of this run, which no test stops."""
    return server_for_test()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that the test may stop and kill."""
    server_for_test()  # says what to install, where there is none
    with Server.start() as started:
        yield started
