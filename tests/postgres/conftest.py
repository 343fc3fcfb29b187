"""Fixtures of the tests that need a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.actors import board_of
from tests.postgres.desk import Desk
from tests.postgres.proxy import Proxy
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


@pytest.fixture
def desk(server: Server) -> Iterator[Desk]:
    with board_of(server) as url, Proxy(url) as proxy:
        made = Desk(proxy, proxy.url)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """A new, empty board in a database of its own."""
    with board_of(server) as made:
        yield made
