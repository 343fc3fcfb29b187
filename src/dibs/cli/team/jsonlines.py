"""The view for programs (--json): every event of the pool as one JSON document a line, the summary as the last."""

from __future__ import annotations

from dibs.jsontext import dumps
from dibs.wire import readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.context import Context
    from dibs.cli.team.output import Output
    from dibs.pool import PoolEvent


class JsonLines:
    gap = ""

    def __init__(self, ctx: Context, out: Output) -> None:
        self._ctx = ctx
        self._out = out

    def event(self, event: PoolEvent) -> None:
        self.document(event.as_dict())

    def document(self, document: dict[str, Any]) -> None:
        try:
            text = dumps(document)
        except (TypeError, ValueError):
            text = dumps(readable(document))
        self._out.put(text + "\n")

    def tick(self) -> None:
        """Everything is written when it happens."""

    def remark(self, text: str) -> None:
        self._ctx.note(f"dibs: {text}")

    def pause(self) -> None:
        """There is nothing to give back."""

    def end(self) -> None:
        """The summary is its own document."""
