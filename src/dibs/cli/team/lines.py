"""The view for pipes and logs: a line for each event that is worth telling, and with --tail what the agents print:

      1.2 s  worker-1  claimed cart: Cart: add, remove, count
    worker-1 | reading shop/cart.py

Nothing is redrawn and nothing is coloured.
"""

from __future__ import annotations

from dibs.cli.render import cut, one_line, pad, safe
from dibs.cli.team.news import News

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.cli.context import Context
    from dibs.cli.team.output import Output
    from dibs.cli.team.scene import Watcher
    from dibs.pool import PoolEvent

LONGEST = 160
"""Characters of a line about an event. What agents print is not cut."""


class Lines:
    gap = "\n"

    def __init__(self, ctx: Context, out: Output, watcher: Watcher) -> None:
        self._ctx = ctx
        self._out = out
        self._news = News(watcher)
        self._name = 8

    def event(self, event: PoolEvent) -> None:
        if event.kind == "output":
            self._out.put(f"{safe(event.agent or '')} | {safe(event.text.expandtabs(4))}\n", may_drop=True)
            return
        if event.kind == "run_started":
            self._name = max((min(20, len(safe(name))) for name in event.data.get("agents", ())), default=8)
        self._print(self._news.of(event))

    def tick(self) -> None:
        self._print(self._news.rest())

    def remark(self, text: str) -> None:
        self._ctx.note(f"dibs: {text}")

    def pause(self) -> None:
        """There is nothing to give back."""

    def end(self) -> None:
        self.tick()
        if self._out.dropped:
            self.remark(f"{self._out.dropped:,} lines of output were left out: nobody read them in time")

    def _print(self, told: Iterable[tuple[float, str, str, bool]]) -> None:
        for second, who, text, _ in told:
            head = f"{second:5.1f} s  {pad(cut(safe(who), 20), self._name)}  "
            self._out.put(head + cut(one_line(text[:2000]), LONGEST - len(head)) + "\n")
