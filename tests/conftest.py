"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest

from tests.clocks import HandClock
from tests.nowhere import NO_CLIENTS
from tests.postgres import server as postgres
from tests.scratch import use_memory
from tests.searching import load_profile, seed

use_memory()
os.environ["DIBS_RUNTIME_DIR"] = NO_CLIENTS
# Under nohup, or as a background job of a script, these are ignored, and would be by whatever the tests start.
for name in ("SIGHUP", "SIGQUIT"):
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
load_profile()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"seed: --hypothesis-seed={config.getoption('hypothesis_seed')}")


@pytest.fixture(scope="session", autouse=True)
def meeting_for_postgres(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The processes of one run share a server, if a test asks for one. Each has a folder in the folder of the run."""
    base = tmp_path_factory.getbasetemp()
    postgres.meet_in(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


def pytest_unconfigure() -> None:
    postgres.close_shared_server()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
