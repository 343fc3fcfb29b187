"""A changelog in a file of lines, as document 001 writes it: one JSON object a line, numbered by its place in the file.

Read only when somebody asks for events, and then only what was added since. Lines that are no JSON object of ours
count as lines but are no events. The document's fields come first; `data`, which only dibs reads, follows where the
file is dibs' own.
"""

from __future__ import annotations

import os

from dibs.dialects import changelog_lines
from dibs.jsontext import dumps
from dibs.model import Event
from dibs.wire import event_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class EventLog:
    def __init__(self, path: str, durable: bool, native: bool = False) -> None:
        self.path = path
        self._durable = durable
        self._native = native
        self._offset = 0
        self._lines = 0
        self._events: list[Event] = []

    def encode(self, events: Sequence[Event]) -> list[bytes]:
        lines = []
        for event in events:
            line = event_json(event)
            del line["seq"]
            if self._native and event.action != "sent_message":
                line.pop("data", None)
            lines.append(dumps(line).encode())
        return lines

    def append(self, lines: Sequence[bytes]) -> None:
        if lines:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            changelog_lines.append(self.path, lines, self._durable)

    def require(self, lines: Sequence[bytes]) -> None:
        """Raise now if these lines could not be appended because of what the file is."""
        changelog_lines.require(self.path)

    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def holds(self, lines: Sequence[bytes], offset: int) -> bool:
        """Was the last of these appended at or after this offset? (A file shorter than that was begun anew: yes.)"""
        if self.size() < offset:
            return True
        found, _ = changelog_lines.read_from(self.path, offset)
        return lines[-1] in found

    def complete(self, lines: Sequence[bytes], offset: int) -> None:
        """Append what is missing of these lines: all of them, or those that a torn write left out."""
        self.append([line for line in lines if not self.holds([line], offset)])

    # -- reading

    def _catch_up(self) -> None:
        if self.size() < self._offset:  # begun anew
            self._offset, self._lines, self._events = 0, 0, []
        lines, self._offset = changelog_lines.read_from(self.path, self._offset)
        for line in lines:
            self._lines += 1
            event = changelog_lines.parse(line)
            if event is not None:
                event.seq = self._lines
                self._events.append(event)

    def count(self) -> int:
        self._catch_up()
        return self._lines

    def events(self, after: int = 0) -> list[Event]:
        from bisect import bisect_left

        from dibs.stores.memory import copy_event

        self._catch_up()
        start = bisect_left(self._events, after + 1, key=lambda e: e.seq)
        return [copy_event(event) for event in self._events[start:]]
