"""A place for what the tests must not find."""

from __future__ import annotations

NO_CLIENTS = "/dev/null/none"
"""Where no coding client's note can be (DIBS_RUNTIME_DIR): whoever runs the tests may be an agent that dibs knows."""
