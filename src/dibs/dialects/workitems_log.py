"""The changelogs of a folder of work items as one: each item's `changelog.log`, and dibs' own for what concerns no
item.

Anybody may append to any of them at any time, and every event needs a number that grows and never changes. So the order
is kept in `.dibs/order.log`: a line `NAME<tab>COUNT` says that the next COUNT lines of that item's file come next (an
empty name: dibs' own). A writer appends its events and then their order; what others appended meanwhile is put in order
by whoever looks next, under a lock on that file. Where it cannot be written, readers number what is not in order yet
by the names of the files, for the time being.

A crash between the two leaves lines that are put in order by the next look. Losing the file numbers everything anew.
"""

from __future__ import annotations

import os

from dibs.dialects import changelog_lines
from dibs.errors import Busy
from dibs.guards.flock import FlockGuard
from dibs.jsontext import dumps
from dibs.wire import event_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dibs.model import Event

_PATIENCE = 5.0
_RECENT = 64 * 1024


class ItemsLog:
    def __init__(
        self,
        folder: str,
        durable: bool,
        files: Callable[[], Mapping[str, str]],
        item_of: Callable[[Event], str],
    ) -> None:
        """`files` gives each item's changelog by the item's name, `item_of` the name that an event belongs to."""
        self.path = os.path.join(folder, "changelog.log")
        self._order = os.path.join(folder, "order.log")
        self._durable = durable
        self._files = files
        self._item_of = item_of
        self._reset()

    def _reset(self) -> None:
        self._order_offset = 0
        self._offsets: dict[str, int] = {}
        self._loose: dict[str, list[Event | None]] = {}
        """Lines that were read and are not in order yet; None for those that are no events."""
        self._count = 0
        self._events: list[Event] = []

    # -- writing

    def encode(self, events: Sequence[Event]) -> list[bytes]:
        lines = []
        for event in events:
            name = self._item_of(event)
            line = event_json(event)
            del line["seq"]
            if name:
                line.pop("data", None)
            lines.append(f"{name}\t{dumps(line)}".encode())
        return lines

    def append(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        named = [_split(line) for line in lines]
        files = self._all_files()
        with FlockGuard(self._order, timeout=_PATIENCE):
            self._read()
            order = self._loose_order()
            for name in dict.fromkeys(name for name, _ in named):
                mine = [line for other, line in named if other == name]
                changelog_lines.append(files.get(name, self.path), mine, self._durable)
            self._put_order([*order, *((name, 1) for name, _ in named)])

    def require(self, lines: Sequence[bytes]) -> None:
        """Raise now if these lines could not be appended because of what a file is."""
        for path in {self._order, *map(self._file_of, lines)}:
            changelog_lines.require(path)

    def size(self, lines: Sequence[bytes] = ()) -> int:
        """Of the file that the last of these lines goes to."""
        return _size(self._file_of(lines[-1])) if lines else 0

    def holds(self, lines: Sequence[bytes], offset: int) -> bool:
        path = self._file_of(lines[-1])
        if _size(path) < offset:
            return True  # begun anew
        found, _ = changelog_lines.read_from(path, offset)
        return _split(lines[-1])[1] in found

    def complete(self, lines: Sequence[bytes], offset: int) -> None:
        """Append what is missing of these lines; `offset` is that of the last one's file, the others are looked for
        near the end of theirs."""
        last = self._file_of(lines[-1])
        missing = []
        for line in lines:
            path = self._file_of(line)
            begin = offset if path == last else max(0, _size(path) - _RECENT)
            found, _ = changelog_lines.read_from(path, begin)
            if _split(line)[1] not in found:
                missing.append(line)
        self.append(missing)

    def _file_of(self, line: bytes) -> str:
        return self._all_files().get(_split(line)[0], self.path)

    def _all_files(self) -> dict[str, str]:
        return {**self._files(), "": self.path}

    # -- order

    def _read(self) -> None:
        """Read what is new in every file, and put it in the order that is known."""
        files = self._all_files()
        if any(_size(path) < self._offsets.get(name, 0) for name, path in files.items()):
            self._reset()
        for name in sorted(files):
            lines, self._offsets[name] = changelog_lines.read_from(files[name], self._offsets.get(name, 0))
            self._loose.setdefault(name, []).extend(changelog_lines.parse(line) for line in lines)
        entries, self._order_offset = changelog_lines.read_from(self._order, self._order_offset)
        for entry in entries:
            name, _, count = entry.decode("utf-8", "replace").rpartition("\t")
            if count.isdigit():
                self._number(self._loose.get(name, []), int(count))

    def _number(self, loose: list[Event | None], count: int) -> None:
        for event in loose[:count]:
            self._count += 1
            if event is not None:
                event.seq = self._count
                self._events.append(event)
        del loose[:count]

    def _loose_order(self) -> list[tuple[str, int]]:
        return [(name, len(lines)) for name, lines in sorted(self._loose.items()) if lines]

    def _put_order(self, order: Sequence[tuple[str, int]]) -> None:
        runs: list[tuple[str, int]] = []
        for name, count in order:
            if runs and runs[-1][0] == name:
                count += runs.pop()[1]
            runs.append((name, count))
        changelog_lines.append(self._order, [f"{name}\t{count}".encode() for name, count in runs], durable=False)

    def _catch_up(self) -> list[Event]:
        """All events; what nobody has put in order yet is put in order now."""
        self._read()
        if not self._loose_order():
            return self._events
        try:
            with FlockGuard(self._order, timeout=_PATIENCE):
                self._read()
                if order := self._loose_order():
                    self._put_order(order)
            self._read()
        except (OSError, Busy):
            pass
        found = list(self._events)
        number = self._count
        for name, count in self._loose_order():
            for event in self._loose[name][:count]:
                number += 1
                if event is not None:
                    event.seq = number
                    found.append(event)
        return found

    # -- reading

    def count(self) -> int:
        self._catch_up()
        return self._count + sum(count for _, count in self._loose_order())

    def events(self, after: int = 0) -> list[Event]:
        from bisect import bisect_left

        from dibs.stores.memory import copy_event

        found = self._catch_up()
        start = bisect_left(found, after + 1, key=lambda e: e.seq)
        return [copy_event(event) for event in found[start:]]


def _split(line: bytes) -> tuple[str, bytes]:
    name, _, rest = line.partition(b"\t")
    return name.decode(), rest


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
