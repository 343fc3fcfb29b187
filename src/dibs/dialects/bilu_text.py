"""Document 002's task files: one Markdown file a task, its id the file's stem. Pure text, no disk.

    task = parse("01-scaffold", data)       BoardUnusable if the bytes are not text
    task.status, task.depends_on, …         canonical values; `task.warnings` says where the file was not
    task.change(status="DONE")              all or nothing; Invalid if the file could not say it
    data = task.render()                    the bytes that were read, but for the lines of what changed

Two shapes are in use, and a file keeps its own. In shape "a" every field is a section, `# Title` first, with a blank
line between sections. In shape "b" the first line is `# <title>`, a free body follows, and the other sections come
after it without blank lines. A section runs to the next `# ` heading that is not inside a code fence; a fence that is
never closed is plain text, since otherwise a slip in the body would hide the status below it.

A scalar is the first non-blank line of its section, a list is the `- item` lines that the section starts with, and
the description is the whole section. Whatever else a file holds (other sections, notes after a list) is not ours and
is never touched.
"""

from __future__ import annotations

from dibs.dialects.bilu_markdown import (
    BLANK,
    bare,
    commas,
    fence_of,
    fenced,
    is_heading,
    item_of,
    link_targets,
    split_lines,
)
from dibs.dialects.bilu_words import (
    KINDS,
    PRIORITIES,
    STATUSES,
    is_stem,
    link_to,
    read_kind,
    read_priority,
    read_status,
)
from dibs.errors import BoardUnusable, Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal

    Shape = Literal["a", "b"]

FIELDS = ("title", "description", "status", "priority", "kind", "tags", "depends_on")

_HEADINGS = {name: name.capitalize() for name in FIELDS} | {"depends_on": "depends_on"}
_ORDER = {
    "a": ("title", "description", "priority", "status", "kind", "tags", "depends_on"),
    "b": ("description", "status", "priority", "kind", "tags", "depends_on"),
}
_SKELETON = {
    "a": "# Title\nNew task\n\n# Description\n\n# Priority\nMEDIUM\n\n# Status\nTODO\n\n# Kind\ntask\n\n# Tags\n[]\n\n"
    "# depends_on\n[]\n",
    "b": "# New task\n\n# Description\n# Status\nTODO\n# Priority\nMEDIUM\n# Kind\ntask\n# Tags\n# depends_on\n",
}
_LISTS = ("tags", "depends_on")
_LINK = (False, "board/tasks/", ".md")
"""How a first dependency is written: the path that the index files and other readers of these files use."""


def parse(stem: str, data: bytes) -> TaskFile:
    """The task in a file's bytes. What is merely wrong (an unknown status) is a warning; what is no text is an error,
    for a rewrite could not keep it."""
    at, what = data.find(0), "a NUL character"
    if at < 0:
        try:
            return TaskFile(stem, data.decode())
        except UnicodeDecodeError as error:
            at, what = error.start, "not UTF-8 text"
    line = data.count(b"\n", 0, at) + 1
    raise BoardUnusable(
        f"{link_to(stem)}, line {line}: {what}", hint="save the file as UTF-8 text", path=link_to(stem), line=line
    )


def new(stem: str, fields: Mapping[str, Any], shape: Shape = "a") -> bytes:
    """A new task's file. `fields` needs a title; what it does not name is TODO, MEDIUM, a task, and empty."""
    if not is_stem(stem):
        raise Invalid(
            f"{stem!r:.80} cannot be the name of a task file",
            hint="use letters, digits, '.', '_' and '-', starting with a letter, digit or '_', and not ending in .md",
        )
    if "title" not in fields:
        raise Invalid("a task file needs a title")
    task = TaskFile(stem, _SKELETON[shape])
    task.change(**fields)
    return task.render()


class TaskFile:
    """A task file: its values, and its text around them."""

    __slots__ = ("stem", "shape", *FIELDS, "warnings", "_bom", "_lines", "_sections", "_titled", "_sound",
                 "_items", "_style")  # fmt: skip

    title: str
    description: str
    status: str
    priority: str
    kind: str
    tags: list[str]
    depends_on: list[str]

    def __init__(self, stem: str, text: str) -> None:
        self.stem = stem
        self.shape: Shape = "b"
        self.warnings: list[tuple[int, str]] = []
        """Line (from 1; 0 for the file as a whole) and text of what was not as it should be."""
        self._bom = text[:1] if text[:1] == "\ufeff" else ""
        self._lines = split_lines(text[len(self._bom) :])
        self._sections: dict[str, tuple[int, int]] = {}
        """Where each field's section has its heading, and where it ends."""
        self._titled = -1
        """The line `# <title>` of shape b."""
        self._sound: set[str] = set()
        """The fields whose value is in the file as it stands, rather than a default for what is missing or unknown."""
        self._items: dict[str, list[tuple[int, list[str]]]] = {"tags": [], "depends_on": []}
        """Of each list, the lines that hold it with the values on each; `[]` holds none."""
        self._style = _LINK
        self._find_sections()
        self._read()

    def render(self) -> bytes:
        return (self._bom + "".join(self._lines)).encode()

    @property
    def link(self) -> str:
        return link_to(self.stem)

    @property
    def summary(self) -> str:
        """The description's first line, which is all that the index files hold of it."""
        return self.description.partition("\n")[0].strip(BLANK)

    def line_of(self, name: str, item: str) -> int:
        """The line, from 1, on which the list `name` ("tags", "depends_on") has this item; 0 if it has not."""
        return next((i + 1 for i, values in self._items[name] if item in values), 0)

    def change(self, *, titles: Mapping[str, str] | None = None, **fields: Any) -> None:
        """Write these fields' values. A value that the file already says leaves its bytes alone; one that was only
        assumed is written. `titles` names the tasks of new dependencies where the file shows titles.

        Each change is read back before it is accepted, with everything else in the file, so that no value can turn
        into a heading, close a fence or swallow its neighbour.
        """
        made = self
        for name in fields:
            if name not in FIELDS:
                raise Invalid(f"a bilu task has no field {name!r}", hint=f"it has {', '.join(FIELDS)}")
        for name in FIELDS:
            if name in fields:
                value = self._clean(name, fields[name])
                if value != getattr(made, name) or name not in made._sound:
                    made = made._with(name, value, titles or {})
        if made is not self:
            for name in self.__slots__:
                setattr(self, name, getattr(made, name))

    def _find_sections(self) -> None:
        first = next((i for i, line in enumerate(self._lines) if line.strip(BLANK)), -1)
        heads = [(i, _key(line)) for i, line in enumerate(self._lines) if line.startswith(("# ", "#\t"))]
        inside = fenced(self._lines)
        heads = [(i, key) for i, key in heads if not inside[i]]
        if heads and heads[0][0] == first and heads[0][1] not in FIELDS and self._lines[first][1:].strip(BLANK):
            self._titled = first
        elif any(key == "title" for _, key in heads) or (heads and heads[0][0] == first and heads[0][1] in FIELDS):
            self.shape = "a"
        ends = [*(i for i, _ in heads), len(self._lines)][1:]
        for (i, key), end in zip(heads, ends, strict=False):
            if i == self._titled or key not in _ORDER[self.shape]:
                continue
            if key in self._sections:
                self.warnings.append((i + 1, f"a second section '# {_HEADINGS[key]}' is ignored"))
            else:
                self._sections[key] = (i, end)

    def _read(self) -> None:
        self.title = self._scalar("title", _same, self.stem, "the file's name")
        first, last = self._text_of("description")
        self.description = "\n".join(bare(line) for line in self._lines[first:last])
        self._sound.add("description")
        self.status = self._scalar("status", read_status, "TODO", "TODO")
        self.priority = self._scalar("priority", read_priority, "MEDIUM", "MEDIUM")
        self.kind = self._scalar("kind", read_kind, "task", "")
        self.tags = self._list("tags")
        self.depends_on = self._list("depends_on")
        self.warnings.sort()

    def _scalar(self, name: str, read: Callable[[str], str | None], default: str, assumed: str) -> str:
        i = self._value_line(name)
        if i >= 0:
            line = self._lines[i]
            text = (line[1:] if i == self._titled else line).strip(BLANK)
            value = read(text)
            if value is not None:
                self._sound.add(name)
                return value
            self.warnings.append((i + 1, f"unknown {name} {text[:60]!r}, read as {default}"))
        elif assumed:
            line_number = self._sections[name][0] + 1 if name in self._sections else 0
            self.warnings.append((line_number, f"no {name}, taken to be {assumed}"))
        return default

    def _value_line(self, name: str) -> int:
        """The line of a scalar's value, or -1. A heading or a fence is no value, and no line to write over."""
        if name == "title" and self.shape == "b":
            return self._titled
        start, end = self._sections.get(name, (0, 0))
        for i in range(start + 1, end):
            if text := self._lines[i].strip(BLANK):
                return -1 if is_heading(text) or fence_of(self._lines[i]) else i
        return -1

    def _text_of(self, name: str) -> tuple[int, int]:
        """From the first non-blank line of a section to behind its last; an empty range below the heading if none."""
        start, end = self._sections.get(name, (-1, -1))
        filled = [i for i in range(start + 1, end) if self._lines[i].strip(BLANK)]
        return (filled[0], filled[-1] + 1) if filled else (start + 1, start + 1)

    def _list(self, name: str) -> list[str]:
        start, end = self._sections.get(name, (0, 0))
        found = self._items[name]
        values: dict[str, None] = {}
        self._sound.add(name)
        for i in range(start + 1, end):
            line = self._lines[i]
            text = line.strip(BLANK)
            item = item_of(text)
            if text == "[]":
                found.append((i, []))
            elif item:
                found.append((i, self._dependencies(i, item) if name == "depends_on" else commas(item)))
                values.update(dict.fromkeys(found[-1][1]))
            elif text:
                if not (found or is_heading(text) or fence_of(line) or text[:3] in ("---", "***", "___", "<!-")):
                    self.warnings.append((i + 1, f"{text[:60]!r} is not an item of a list: write '- item'"))
                # An indented line goes on with an item, also with one that is yet to be written above it.
                if line[0] not in " \t" or (fence_of(line) and not found):
                    break
        return list(values)

    def _dependencies(self, i: int, item: str) -> list[str]:
        linked = link_targets(item)
        made = []
        for text in linked or commas(item):
            target = text.strip("`").partition("#")[0]
            name = target.replace("\\", "/").rpartition("/")[2]
            stem = name[:-3] if name.lower().endswith(".md") else name
            if is_stem(stem) and "://" not in target:
                made.append(stem)
                self._style = (bool(linked), target[: len(target) - len(name)], name[len(stem) :])
            else:
                # Kept as it is: a dependency that names no task holds the task back, visibly, rather than not at all.
                made.append(text)
                self.warnings.append((i + 1, f"dependency {text[:60]!r} does not name a task file"))
        return made

    def _clean(self, name: str, value: Any) -> Any:
        if name in _LISTS:
            if not isinstance(value, list | tuple):
                raise Invalid(f"{name} must be a list")
            known = self.depends_on if name == "depends_on" else self.tags
            return list(dict.fromkeys(v if v in known else _clean_item(name, v) for v in value))
        text = _clean_text(name, value)
        if name == "description":
            lines = text.replace("\r\n", "\n").split("\n")
            while lines and not lines[-1].strip(BLANK):
                lines.pop()
            while lines and not lines[0].strip(BLANK):
                del lines[0]
            return "\n".join(lines)
        text = text.strip(BLANK)
        choices: dict[str, tuple[Any, Iterable[str]]] = {
            "status": (read_status, STATUSES),
            "priority": (read_priority, PRIORITIES),
            "kind": (read_kind, KINDS),
        }
        if name in choices:
            read, allowed = choices[name]
            if read(text) is None:
                raise Invalid(f"{text[:60]!r} is not a {name} of a bilu board", hint=f"use one of {', '.join(allowed)}")
            return read(text)
        if not text.strip():
            raise Invalid(f"the {name} is empty")
        return text

    def _with(self, name: str, value: Any, titles: Mapping[str, str]) -> TaskFile:
        """This file with one field changed."""
        there = name in self._sections or self._value_line(name) >= 0
        lines = self._replaced(name, value, titles) if there else self._inserted(name, value, titles)
        made = TaskFile(self.stem, self._bom + "".join(lines))
        same = all(getattr(made, f) == (value if f == name else getattr(self, f)) for f in FIELDS)
        if not same or name not in made._sound:
            raise Invalid(
                f"{self.link} cannot hold this {name}: it would be read as something else",
                hint="a line of it may look like a heading, a list or a code fence; put it in other words",
                task_id=self.stem,
            )
        return made

    def _replaced(self, name: str, value: Any, titles: Mapping[str, str]) -> list[str]:
        if name in _LISTS:
            return self._replaced_list(name, value, titles)
        if name == "description":
            first, last = self._text_of(name)
            return self._spliced(first, last, value.split("\n") if value else [])
        i = self._value_line(name)
        if i < 0:
            below = self._sections[name][0] + 1
            return self._spliced(below, below, [value])
        line = self._lines[i]
        skip = 1 if i == self._titled else 0
        text = line[skip:].strip(BLANK)
        at = line.index(text, skip)
        return [*self._lines[:i], line[:at] + value + line[at + len(text) :], *self._lines[i + 1 :]]

    def _replaced_list(self, name: str, values: list[str], titles: Mapping[str, str]) -> list[str]:
        held = self._items[name]
        below = self._sections[name][0] + 1
        if not held:
            return self._spliced(below, below, self._written(name, values, titles))
        kept: dict[str, int] = {}
        for i, its in held:
            if len(its) == 1:
                kept.setdefault(its[0], i)
        stay = [value for value in kept if value in values]
        if not values or values[: len(stay)] != stay or any(len(its) > 1 for _, its in held):
            made = [bare(self._lines[kept[v]]) if v in kept else self._written(name, [v], titles)[0] for v in values]
            made = made or self._written(name, [], titles)
            return self._spliced(held[0][0], held[-1][0] + 1, self._annotated(name, values, made))
        # Only additions and removals: lines that stay are not moved, and keep what stands between them.
        last = max((kept[value] for value in stay), default=held[-1][0])
        added = self._written(name, values[len(stay) :], titles) if values[len(stay) :] else []
        gone = {i for i, its in held if not its or kept[its[0]] != i or its[0] not in values}
        gone = {i if i <= last else i + len(added) for i in gone}
        lines = self._spliced(last + 1, last + 1, added)
        open_end = not lines[-1].endswith("\n")
        lines = [line for i, line in enumerate(lines) if i not in gone]
        return [*lines[:-1], bare(lines[-1])] if open_end else lines

    def _annotated(self, name: str, values: list[str], made: list[str]) -> list[str]:
        """These items with what stands between the present ones: a note below its item, or at the end if that goes."""
        notes: dict[str, list[str]] = {}
        held = self._items[name]
        for number, (i, its) in enumerate(held[:-1], 1):
            end = held[number][0]
            below = next((value for value in reversed(its) if value in values), "")
            notes.setdefault(below, []).extend(bare(line) for line in self._lines[i + 1 : end] if line.strip(BLANK))
        found = []
        for line, value in zip(made, values or [""] * len(made), strict=True):
            found += [line, *(notes.pop(value, []) if value else [])]
        return [*found, *(line for rest in notes.values() for line in rest)]

    def _written(self, name: str, values: list[str], titles: Mapping[str, str]) -> list[str]:
        """Lines for these items in the manner of the file."""
        if not values:
            return ["[]"] if self.shape == "a" else []
        lead = "- "
        for i, its in self._items[name]:
            if its:
                line = self._lines[i]
                lead = line[: line.index(item_of(line.strip(BLANK)))]
        if name == "tags":
            return [lead + value for value in values]
        linked, prefix, suffix = self._style
        made = [f"{prefix}{value}{suffix}" if is_stem(value) else value for value in values]
        if linked:
            shown = [titles.get(v, v).replace("[", "(").replace("]", ")") for v in values]
            made = [f"[{text}]({target})" for text, target in zip(shown, made, strict=True)]
        return [lead + text for text in made]

    def _inserted(self, name: str, value: Any, titles: Mapping[str, str]) -> list[str]:
        """With a section that was not there, in its place among those that are."""
        lines = self._lines
        if name == "title" and self.shape == "b":
            return self._spliced(0, 0, [f"# {value}"] + ([""] if lines and lines[0].strip(BLANK) else []))
        text = self._written(name, value, titles) if name in _LISTS else value.split("\n") if value else []
        order = _ORDER[self.shape]
        place = order.index(name)
        before = [self._sections[other][1] for other in order[:place] if other in self._sections]
        after = [self._sections[other][0] for other in order[place + 1 :] if other in self._sections]
        at = before[-1] if before else min(after, default=len(lines))
        starts = sorted(start for start, _ in self._sections.values())[1:]
        spaced = self.shape == "a" or any(not lines[start - 1].strip(BLANK) for start in starts)
        made = [f"# {_HEADINGS[name]}", *text]
        if at > 0 and lines[at - 1].strip(BLANK) and (spaced or not before):
            made.insert(0, "")
        if at < len(lines) and spaced:
            made.append("")
        return self._spliced(at, at, made)

    def _spliced(self, first: int, last: int, made: list[str]) -> list[str]:
        """The lines with some replaced, in the line ends of the neighbourhood; a file without a final newline stays
        so."""
        near = next((line for line in [*self._lines[:first][::-1], *self._lines] if line.endswith("\n")), "\n")
        end = "\r\n" if near.endswith("\r\n") else "\n"
        head, tail = self._lines[:first], self._lines[last:]
        new = [text + end for text in made]
        if new and not tail and self._lines and not self._lines[-1].endswith("\n"):
            new[-1] = made[-1]
            if head and not head[-1].endswith("\n"):
                head[-1] += end
        return head + new + tail


def _same(text: str) -> str | None:
    return text or None


def _key(heading: str) -> str:
    return heading[1:].strip(BLANK).lower().replace(" ", "_").replace("-", "_")


def _clean_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Invalid(f"the {name} must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the {name} is not valid Unicode text") from None
    text = value.replace("\r\n", "\n").replace("\n", "") if name == "description" else value
    if any((c < " " and c != "\t") or "\x7f" <= c <= "\x9f" for c in text):
        raise Invalid(f"the {name} contains a control character", hint="write it as plain text")
    return value


def _clean_item(name: str, value: Any) -> str:
    text = _clean_text(name, value).strip(BLANK)
    if name == "depends_on" and not is_stem(text):
        raise Invalid(f"{text[:60]!r} is not the id of a task file")
    if not text.strip() or "," in text:
        raise Invalid(f"{text[:60]!r} cannot be an item of {name}", hint="it must not be empty or contain a comma")
    return text
