"""Who acts: the worker that a caller names, the board's own, or the one that the environment names."""

from __future__ import annotations

import os

from dibs import limits
from dibs.errors import Invalid
from dibs.model import Worker
from dibs.worker import from_environment, of_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.base import Store


class Identity:
    def __init__(self, store: Store, default: Worker | str | None) -> None:
        self._store = store
        self._known: dict[tuple[int, str], Worker] = {}
        self._old_names: set[str] = set()
        self._environment: Worker | None = None
        self.default = self.named(default)
        """Whom the board was opened for."""

    def named(self, worker: Worker | str | None) -> Worker | None:
        """A worker as given. A name means a worker that lives as long as this process."""
        if worker is None:
            return None
        if isinstance(worker, Worker):
            known = limits.worker(worker)
        elif (os.getpid(), worker) in self._known:
            known = self._known[os.getpid(), worker]
        else:
            known = self._known[os.getpid(), worker] = of_process(limits.name(worker))
        if not limits.is_plain_name(known.name) and known.name not in self._old_names:
            self._admit(known.name)
        return known

    def _admit(self, name: str) -> None:
        """Let a worker go on under a name that could not be chosen today, if it has been on this board before."""
        from dibs.recipient_hints import is_known

        if not is_known(self._store, name):
            limits.new_name(name)
        self._old_names.add(name)

    def required(self, worker: Worker | str | None, why: str, hint: str = "") -> Worker:
        """The same, for verbs that must know who acts."""
        who = self.named(worker)
        if who is None:
            raise Invalid(why, hint=hint)
        return who

    def actor(self, worker: Worker | str | None = None) -> Worker:
        """Whoever the changelog is to name.

        A program that does not say for whom it acts is not taken for a human, who may decide over others' claims.
        """
        who = self.named(worker) or self.default or self._environment
        if who is None:
            who = from_environment()
            if who.kind == "human" and not os.environ.get("DIBS_KIND"):
                who.kind = "agent"
            limits.new_name(who.name)
            self._environment = who
        return who
