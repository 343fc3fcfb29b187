"""A board in one JSON file with a list of tasks: what documents 000 and 004 share.

Only what has changed is decoded, only what must change is encoded (`jsonlist`): with ten thousand tasks in the file,
a claim costs about as much as reading it and writing it.
"""

from __future__ import annotations

import gc
import os

from dibs import fs
from dibs.dialects import jsonlist
from dibs.dialects.filestore import FileStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dibs.dialects.filetx import DialectTx
    from dibs.dialects.jsonlist import JsonList
    from dibs.model import BoardTask


class JsonBoardStore(FileStore):
    path = ""
    """The file."""

    def __init__(self, folder: str, **options: Any) -> None:
        super().__init__(folder, **options)
        self._forget()

    # -- what a dialect fills in

    def _row(self, entry: Mapping[str, Any], document: JsonList) -> BoardTask:
        """A task as the file has it."""
        raise NotImplementedError

    def _element(self, task: BoardTask) -> dict[str, Any]:
        """A new task as the file is to have it."""
        raise NotImplementedError

    def _members(self, task: BoardTask, before: BoardTask, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What has to be set in an element; empty if nothing that it holds has changed."""
        raise NotImplementedError

    def _empty(self) -> JsonList:
        """What a file that is not there yet counts as."""
        return jsonlist.new({})

    def _check(self, document: JsonList) -> None:
        """Refuse a document whose members make no sense."""

    def _finish(self, document: JsonList) -> None:
        """Last changes to a document that is to be written."""

    # -- the store

    def _files(self) -> list[str]:
        return [self.path]

    def _forget(self) -> None:
        self._known = False
        self._data: bytes | None = None
        self._document = self._empty()
        self._next: JsonList | None = None
        self._stamp: tuple[int, int, int] | None = None

    def _load(self, noted: set[str]) -> None:
        stamp = fs.stamp(self.path)
        data = self._read(self.path)
        self._stamp = stamp
        if self._known and data == self._data and not noted:
            return
        # Thousands of rows are made here and none of them is garbage: looking for it would cost a third of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._decode(data, noted)
        finally:
            if collecting:
                gc.enable()

    def _decode(self, data: bytes | None, noted: set[str]) -> None:
        before, document = self._document, self._document
        if not self._known or data != self._data:
            earlier = before if self._known else None
            document = self._empty() if data is None else jsonlist.parse(data, earlier, name=self.path)
            self._check(document)
        if self._known and not document.gone_from(before):
            again = {*document.changed_from(before), *(document.index[i] for i in noted if i in document.index)}
            self.update([self._row(document.rows[at], document) for at in sorted(again)])
        else:
            self.adopt([self._row(entry, document) for entry in document.rows])
        self._data, self._document, self._known = data, document, True

    def _encode(self, tx: DialectTx) -> dict[str, bytes | None]:
        document = self._document.copy()
        changes = 0
        for task_id, before in tx.touched.items():
            task = self.tables.tasks[task_id]
            at = document.index.get(task_id)
            if at is None:
                document.append(self._element(task))
            elif before is not None and (changed := self._members(task, before, document.rows[at])):
                document.replace(at, changed)
            else:
                continue
            changes += 1
        if self._data is not None and not changes:
            return {}
        self._finish(document)
        self._next = document
        return {self.path: document.render()}

    def is_own_file(self, path: str) -> bool:
        return path == os.path.normpath(self.path)

    def _seen(self, path: str) -> bytes | None:
        return self._data

    def _written(self, files: Mapping[str, bytes | None]) -> None:
        if self._next is not None:
            self._data, self._document, self._next = files[self.path], self._next, None

    def _is_as_read(self, path: str, was: bytes | None) -> bool:
        # Only against those who write without the guard, so what the system says is enough; it is a large file.
        return (self._stamp is not None and fs.stamp(path) == self._stamp) or super()._is_as_read(path, was)
