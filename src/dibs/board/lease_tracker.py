"""When it was last looked what each worker holds, and how often that is to be done.

Any verb of a worker renews what it holds. That needs a look at the board, which is taken every twentieth of the
shortest lease that the worker is known to have.
"""

from __future__ import annotations

from dibs.model import Worker

OFTEN = 60.0
"""Seconds between two looks where no shorter lease is known."""
REMEMBERED = 1000
"""Workers that are remembered."""


class LeaseTracker:
    def __init__(self) -> None:
        self._looked: dict[tuple[str, str | None], tuple[float, float]] = {}

    def is_due(self, who: Worker, now: float) -> bool:
        looked, often = self._looked.get((who.name, who.session), (float("-inf"), OFTEN))
        return not 0 <= now - looked < often

    def looked(self, who: Worker, now: float) -> None:
        self._set(who, now, OFTEN)

    def expect(self, who: Worker, lease: float) -> None:
        """This worker holds something with such a lease: look often enough to renew it."""
        looked, often = self._looked.get((who.name, who.session), (float("-inf"), OFTEN))
        self._set(who, looked, min(often, lease / 20))

    def forget(self, who: Worker | None = None) -> None:
        """Look again at the next verb of this worker, or of any."""
        if who is None:
            self._looked.clear()
        else:
            self._looked.pop((who.name, who.session), None)

    def __len__(self) -> int:
        return len(self._looked)

    def _set(self, who: Worker, when: float, often: float) -> None:
        if len(self._looked) >= REMEMBERED:
            self._looked.clear()  # most have gone; for the others it is looked once more
        self._looked[who.name, who.session] = when, often
