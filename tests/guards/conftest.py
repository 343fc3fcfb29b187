from __future__ import annotations

from tests.guards.people import python as python
