"""Which files an apply_patch touches: the form that Codex's tool of that name takes, and others have taken over.

A patch is hunks between `*** Begin Patch` and `*** End Patch`. A hunk is headed by what it does to which file; an
update may move its file. Every other line of a patch begins with a blank, `+`, `-` or `@`.
"""

from __future__ import annotations

_HEADS = ("*** Update File:", "*** Add File:", "*** Delete File:", "*** Move to:")
_UPDATES = ("*** Update File:", "*** Move to:")


def is_patch(text: str) -> bool:
    return "*** Begin Patch" in text


def paths(text: str) -> list[str]:
    """The files of a patch in order, both ends of a move."""
    found = []
    updating = False
    for line in text.split("\n"):
        if updating and line.startswith(" "):
            continue  # a line of the file that is being updated, whatever it says
        head = next((head for head in _HEADS if line.lstrip().startswith(head)), None)
        if head is None:
            continue
        updating = head in _UPDATES
        path = line.partition(":")[2].strip()
        if path:
            found.append(path)
    return list(dict.fromkeys(found))
