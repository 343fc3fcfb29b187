"""How many examples hypothesis tries, and which.

`make test` and CI try the same ones at every run, so that a change is judged by what it changes. `make test-search`
tries twenty times as many, from a new seed that it prints; what it finds becomes a test of its own.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings

_USUAL = 50
_EVERYWHERE = settings(
    max_examples=_USUAL,
    deadline=None,
    derandomize=False,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)


def load_profile() -> None:
    settings.register_profile("default", _EVERYWHERE)
    settings.register_profile("ci", _EVERYWHERE, max_examples=35, database=None)
    settings.register_profile("search", _EVERYWHERE, max_examples=20 * _USUAL)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def seed() -> str:
    """What the random choices of this run begin with, unless --hypothesis-seed says otherwise."""
    is_search = os.environ.get("HYPOTHESIS_PROFILE") == "search"
    return str(random.SystemRandom().randrange(2**32)) if is_search else "0"


def examples(number: int) -> settings:
    """So many where a test without this has the usual number; for tests that are quick, or dear."""
    return settings(max_examples=max(1, number * settings().max_examples // _USUAL))
