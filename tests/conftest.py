"""What all tests share: hypothesis profiles, and a seed that every run prints."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, settings

from tests.clocks import HandClock
from tests.nowhere import NO_CLIENTS

os.environ["DIBS_RUNTIME_DIR"] = NO_CLIENTS
settings.register_profile(
    "default",
    max_examples=50,
    deadline=None,
    derandomize=False,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), max_examples=100, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"random seed: --hypothesis-seed={config.getoption('hypothesis_seed')}")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
