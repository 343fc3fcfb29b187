from __future__ import annotations

from tests.processes.harness import crew as crew
from tests.processes.harness import url as url
