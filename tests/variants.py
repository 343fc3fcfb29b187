"""Families of variants of which every run tries some: the source says which. `make test-long` tries the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def variants(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: those that are not quick are slow."""
    every = list(values)
    assert all(value in every for value in quick), f"{quick} are not all among {every}"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in every]
