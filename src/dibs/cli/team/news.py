"""What of a team's events is worth telling, in which words.

    news = News(watcher)
    for second, who, text, bad in news.of(event): …
    for … in news.rest(): …             # now and then, and at the end

Tasks that somebody adds one after the other are told together, as soon as something else happens or `rest` is asked.
"""

from __future__ import annotations

from dibs.cli.words import DID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.team.scene import Watcher
    from dibs.pool import PoolEvent

    Told = tuple[float, str, str, bool]

_DULL = {
    "renewed_activity",
    "renewed_locks",
    "locked_files",
    "unlocked_files",
    "adjusted_clock",
    "work_item_created",
    "added_task",
    "claimed_task",
}
"""Actions of the board that nobody would want to read hundreds of times."""
_BAD_ACTIONS = {"failed_activity", "recovered_activity", "blocked"}
_GONE = ("its client has ended", "its process has ended")
"""What is noted where a worker did not give its task back itself."""
NAMED = 5
"""Ids that are named when tasks are told together."""


class News:
    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._adding: tuple[float, str] | None = None
        self._added: list[str] = []
        self._known: dict[str, str] = {}
        """What tasks are about, as events have told."""

    def of(self, event: PoolEvent) -> list[Told]:
        if event.kind in ("output", "agent_released"):
            return []  # the board says it of each task that was given back
        second = self._watcher.moment(event)
        if event.kind != "board":
            text = event.text.removeprefix(f"{event.agent} ")
            if event.kind == "agent_restarts":
                text = text.partition(": ")[0]  # why was told when it ended
            return [*self.rest(), (second, event.agent or "team", text, _is_bad(event))]
        action, who = str(event.data.get("action", "")), str(event.data.get("worker") or event.agent or "")
        if action in _DULL:
            return []
        if event.data.get("description"):
            self._known[str(event.data.get("task_id"))] = str(event.data["description"])
        if action == "added_activity":
            told = self.rest() if self._adding is not None and self._adding[1] != who else []
            self._adding = self._adding or (second, who)
            self._added.append(str(event.data.get("task_id")))
            return told
        return [*self.rest(), (second, who, self._words(event, action), action in _BAD_ACTIONS)]

    def rest(self) -> list[Told]:
        """What has been kept back."""
        if self._adding is None:
            return []
        (second, who), ids = self._adding, self._added
        self._adding, self._added = None, []
        if len(ids) == 1:
            return [(second, who, f"added {self._task(ids[0])}", False)]
        named = ", ".join(ids[:NAMED]) + (", …" if len(ids) > NAMED else "")
        return [(second, who, f"added {len(ids):,} tasks: {named}", False)]

    def _words(self, event: PoolEvent, action: str) -> str:
        """`claimed cart: Cart: add, remove, count`, `completed cart: with tests`, `told everybody: …`."""
        word = DID.get(action, action.replace("_", " "))
        if action == "sent_message" and event.data.get("to"):
            word = f"told {event.data['to']}"
        task, details = event.data.get("task_id"), event.data.get("details")
        if task is None:
            return f"{word}: {details}" if details else word
        if action == "claimed_activity":
            return f"{word} {self._task(task)}"
        if action == "released_activity" and str(details).startswith(_GONE):
            return f"is gone, and {task} is free again: {details}"
        return f"{word} {task}: {details}" if details else f"{word} {task}"

    def _task(self, task_id: str) -> str:
        description = self._known.get(task_id)
        return f"{task_id}: {description}" if description else task_id


def _is_bad(event: PoolEvent) -> bool:
    if event.kind == "agent_ended":
        return event.data.get("status") in ("error", "timeout")
    if event.kind == "run_ended":
        return event.data.get("ending") != "done"
    return event.kind in ("agent_gave_up", "kill")
